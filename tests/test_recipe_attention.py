"""Attention: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, Recipe, load, reproduce
from gdln_jax.recipes.attention import simulate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return quick("attention")


def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 12
    assert result.data["loss"].dims == ("scale", "run", "point")


def aligned_formula(known):
    """Times of the drops by the closed form from b(0) = scale, in place of the limits."""
    known = known.copy()
    known[..., 0] = 1 / (simulate.LAM**2 * simulate.OMEGA)[known[..., 2].astype(int)]
    return known


def other_component(known):
    known = known.copy()
    known[0, :2, 1] = known[0, 1::-1, 1]
    return known


def without_fourth_moments(plateaus):
    """Plateaus of Gamma without its term Lambda Omega Lambda / N."""
    s = simulate.LAM**2 * simulate.OMEGA
    gamma = s + ((simulate.LAM * simulate.OMEGA).sum() + 0.1) * simulate.LAM / 20
    return plateaus[:, :1] - np.cumsum([0, *(s**2 / (2 * gamma * simulate.LAM))])


CHANGES = {
    "reduced": ({"aligned_full": lambda x: x + 1e-8}, {"reduced"}),
    "race": ({"pair": lambda x: x ** (1 + 1e-5)}, {"difference", "ends"}),
    "aligned formula": ({"known": aligned_formula}, {"limits", "times"}),
    "other component": ({"known": other_component}, {"winners"}),
    "fourth moments": ({"plateaus": without_fourth_moments}, {"plateaus", "same_end"}),
    "merged": (
        {"merged_loss": lambda x: x + 1e-5},
        {"merged", "same_end"},
    ),
    "contexts": ({"final_theory": lambda x: x + 1e-5}, {"context_gap"}),
    "no staircase": ({"scaled_time": lambda x: x**0.5}, {"times", "spread"}),
    "Muon as flow": ({"muon_loss": lambda x: np.maximum(x, 0.4)}, {"muon"}),
}


def test_every_check_can_fail(result):
    seen = set()
    for name, (changes, expected) in CHANGES.items():
        assert failed(result, **changes) == expected, name
        seen |= expected
    recipe = load("attention")
    assert isinstance(recipe, Recipe)
    assert seen == {one.id for one in recipe.criteria}


def test_reference_values_are_those_of_the_file(reference_beyond):
    tied = reference_beyond["tied"]
    assert tuple(tied["attention_race"]["b"]) == simulate.REFERENCE_ENDS
    assert tuple(tied["attention_random_times"]["eps_times"]) == simulate.REFERENCE_LIMITS


def test_limits_say_which_head_takes_which_component(reference_beyond):
    """The order of drops of the reference; a component that is learned is taken no more."""
    x = np.random.default_rng(0).standard_normal
    heads = np.column_stack([x(3), x((3, 3)), x((3, 3))])
    found = simulate.limits(heads, simulate.LAM**2 * simulate.OMEGA)
    order = reference_beyond["tied"]["attention_random_times"]["order"]
    assert found[:, 1:].astype(int).tolist() == order


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": ()}, "heads must have at least one entry"),
        ({"scales": (0.01, 0.03)}, "scales must fall to 0.01"),
        ({"scales": (0.03,)}, "scales must fall to 0.01"),
        ({"heads": (2,)}, "heads must be a number at least 3"),
        ({"noise": -1.0}, "noise must be a number at least 0"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("attention", **change)
