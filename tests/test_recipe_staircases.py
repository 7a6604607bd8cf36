"""Staircases: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, Recipe, load, reproduce
from gdln_jax.recipes.staircases import simulate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return quick("staircases")


def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 11
    assert result.data["loss"].dims == ("network", "seed", "point")
    # Half times of equal strengths, and of the start above the end of b.
    assert "4.59, 4.55, 4.50 and 4.29" in " ".join(result.notes)


def raised(k, by):
    """Plateaus of network k are others."""

    def change(steps):
        steps = steps.copy()
        steps[k, 1:-1] += by
        return steps

    return change


def one_pole(loss):
    """The network with two poles ends where one pole does."""
    loss = loss.copy()
    loss[-1] = np.maximum(loss[-1], simulate.REFERENCE_POLE - 0.2)
    return loss


def turned(maps):
    """All maps are learned as the first sequence's, and in the opposite order of time."""
    return np.repeat(maps[:, ::-1, :1], maps.shape[2], axis=2)


CHANGES = {
    "flow": ({"aligned": lambda x: x + 1e-8}, {"flow"}),
    "attention": ({"steps": raised(0, 0.002)}, {"attention"}),
    "recurrence": ({"steps": raised(1, 0.012)}, {"recurrence"}),
    "autoencoder": ({"steps": raised(2, 0.015)}, {"autoencoder"}),
    "ssl": ({"steps": raised(3, 0.011)}, {"ssl"}),
    "poles": ({"steps": raised(4, 0.011)}, {"levels"}),
    "one pole": ({"loss": one_pole}, {"two_poles"}),
    "order": ({"maps": turned}, {"times", "late_first", "reversed", "early"}),
}


def test_every_check_can_fail(result):
    seen = set()
    for name, (changes, expected) in CHANGES.items():
        assert failed(result, **changes) == expected, name
        seen |= expected
    recipe = load("staircases")
    assert isinstance(recipe, Recipe)
    assert seen == {one.id for one in recipe.criteria}


def test_reference_values_are_those_of_the_file(reference_beyond):
    tied = reference_beyond["tied"]
    losses = tied["rnn"]["L"]
    assert tuple(losses[t] for t in ("2", "4", "8", "16")) == simulate.REFERENCE_LOSSES
    assert np.array_equal(tied["rnn"]["strengths"], simulate.STRENGTHS)
    assert tied["rnn_minimum"]["L"] == simulate.REFERENCE_POLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"std": 0.1}, "std must be a number above 0 and at most 0.001"),
        ({"scale": 0.03}, "scale must be a number above 0 and at most 0.01"),
        ({"seeds": 0}, "seeds must be a number at least 1"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("staircases", **change)
