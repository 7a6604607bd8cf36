"""Recipe saddles: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import Recipe, load
from gdln_jax.recipes.saddles import Options


@pytest.fixture(scope="module")
def result():
    return quick("saddles")


@pytest.mark.slow  # a run of 17 s
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 8
    assert "is first by a factor 1.76" in result.verdict


def second(factor):
    """Times of which those of the second event are longer."""
    return lambda times: times * np.array([1.0, factor])


CHANGES = {
    "prediction": ({"coefficient": lambda x: 1.01 * x}, {"closed", "routing", "deeper"}),
    "theta": ({"theta": second(1.01)}, {"formula", "two_layers"}),
    "flow": ({"times": second(1.01)}, {"ratio", "two_layers"}),
    "early": ({"times": second(0.5)}, {"old", "bias", "ratio"}),
}


@pytest.mark.slow  # needs that run
def test_every_check_can_fail(result):
    seen = set()
    for name, (changes, expected) in CHANGES.items():
        found = failed(result, **changes)
        assert expected <= found, name
        seen |= found
    recipe = load("saddles")
    assert isinstance(recipe, Recipe)
    assert seen == {one.id for one in recipe.criteria}


def test_options_that_cannot_work():
    with pytest.raises(ValueError, match="three falling numbers"):
        Options(small=(1e-5, 1e-3, 1e-7))
    with pytest.raises(ValueError, match="cases must be of"):
        Options(cases=("chain-3",))
