"""H Fig. 7: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, Recipe, load, reproduce
from gdln_jax.recipes.linear import simulate


@pytest.fixture(scope="module")
def result():
    return quick("linear")


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 13
    assert result.data["loss_random"].dims == ("seed", "time")


OFF = 1 + 1e-7
CHANGES = {
    "aligned": {"mode_aligned": lambda a: a * OFF},
    "unbalanced": {"off_unbalanced": lambda a: a + 1e-7},
    "loss": {"loss_aligned": lambda losses: losses * OFF},
    "unaligned": {"map_unaligned": lambda w: w * OFF},
    "uneven": {"map_uneven_coupled": lambda w: w * OFF},
    "residual": {"residual": 0.0},
    "gradient": {"gradient": 1e-11},
    "small": {"loss_small": lambda losses: losses + 1e-9},
    "mean": {"loss_random_theory": lambda losses: losses * 1.1},
}
REFERENCES = {
    "PI_10": "modes",
    "L_5": "loss_5",
    "HALF_TIMES": "half",
    "UNBALANCED": "half_unbalanced",
}


@pytest.mark.slow
def test_every_check_can_fail(result, monkeypatch):
    for name, changes in CHANGES.items():
        assert failed(result, **changes) == {name}
    for name in REFERENCES:
        other = np.asarray(getattr(simulate, f"REFERENCE_{name}")) * (1 + 1e-9)
        monkeypatch.setattr(simulate, f"REFERENCE_{name}", other)
    assert failed(result) == set(REFERENCES.values())
    recipe = load("linear")
    assert isinstance(recipe, Recipe)
    assert {*CHANGES, *REFERENCES.values()} == {one.id for one in recipe.criteria}


def test_reference_values_are_those_of_the_file(reference):
    known = reference["exact"]["linear_hierarchy"]
    assert list(simulate.REFERENCE_PI_10) == known["pi_10"]
    assert known["L_5"] == simulate.REFERENCE_L_5
    assert list(simulate.REFERENCE_HALF_TIMES) == known["half_times"]
    assert reference["exact"]["unbalanced_mode"]["t"] == simulate.REFERENCE_UNBALANCED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "seeds must be a number at least 1"),
        ({"width": 3}, "width must be a number at least 4"),
        ({"learning_rate": 1e-9}, "steps"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("linear", **change)
