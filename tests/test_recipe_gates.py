"""H Fig. 8-9: a short run passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, Recipe, load, reproduce
from gdln_jax.recipes.gates import REFERENCE_GAP


@pytest.fixture(scope="module")
def result():
    return quick("gates", seeds=3, snapshots=40)


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 6 + len(REFERENCE_GAP)
    assert "imitation, not identity" in result.verdict
    assert "of 3 with units weighted by output power" in result.verdict
    assert result.data["gap"].shape == (6, 2)
    assert len(result.figure().axes) == 7  # three maps and their bar, three panels


def alike(setting):
    """The gates of one setting of k-means: all on in all contexts."""
    return lambda gates: np.where(np.arange(3)[:, None, None, None] == setting, 1, gates)


CHANGES = {
    "defaults": ({"gates": alike(2)}, {"missed"}),
    "plain": ({"gates": alike(0)}, {"plain"}),
    "modules": ({"centroids_4": np.ones_like}, {"together"}),
    "number": ({"k_chosen": np.zeros_like}, {"chosen"}),
    "order": ({"gap": lambda gap: gap[::-1]}, {"ratio", "reference_1", "reference_4"}),
    "loss": ({"loss_gap": lambda gap: gap + 0.1}, {"mean_loss"}),
}


@pytest.mark.slow
def test_every_check_can_fail(result):
    seen = set()
    for name, (changes, expected) in CHANGES.items():
        assert failed(result, **changes) == expected, name
        seen |= expected
    recipe = load("gates")
    assert isinstance(recipe, Recipe)
    assert seen == {one.id for one in recipe.criteria}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"elbow_seeds": 13}, "elbow_seeds must be 1 to seeds = 12"),
        ({"snapshots": 9000}, "snapshots must be 2 to steps = 8000"),
        ({"snapshots": 1}, "snapshots must be a number at least 2, got 1"),
        ({"std": 0.0}, "std must be a number above 0, got 0.0"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("gates", **change)
