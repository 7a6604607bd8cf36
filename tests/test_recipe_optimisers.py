"""Optimisers: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, Recipe, load, reproduce
from gdln_jax.recipes.optimisers import LAWS, simulate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return quick("optimisers")


def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 11
    assert "6.97e-05" in result.verdict
    assert result.data["error"].dims == ("optimiser", "scale", "seed", "reading")
    # What the text says of widths that were not run.
    assert "with widths 5 and 5 not run here" in " ".join(result.notes)


def of(name, factor):
    """Errors of one optimiser, times a factor."""
    return lambda error: (
        error
        * np.where(np.arange(len(error)) == name, factor, 1.0).reshape(-1, *(1,) * (error.ndim - 1))
    )


def last_scale(error):
    """Gradient descent ends with the same error at all scales."""
    error = error.copy()
    error[0, -1, :, -1] = error[0, 0, :, -1]
    return error


CHANGES = {
    "network": ({"aligned_gap": lambda x: x + 1e-11}, {"network"}),
    "edge": ({"gap": lambda x: x + 1e-11}, {"network"}),
    "law": ({"law": lambda x: x * (1 + 1e-7)}, {"laws"}),
    "descent": ({"aligned_error": of(0, 1.01)}, {"descent_c"}),
    "polar": ({"aligned_error": of(1, 1.01)}, {"sign_c"}),
    "no law": ({"error": of(1, 2.0)}, {"polar_law"}),
    "Adam as Muon": ({"error": of(2, 16.0)}, {"adam_law"}),
    "no difference": ({"error": of(0, 1e7)}, {"ratio"}),
    "slope": ({"error": last_scale}, {"slope"}),
    "cycle": ({"cycle": lambda x: x + 1e-8}, {"cycle_gap"}),
    "curvature": ({"curvature": lambda x: x + 1e-7}, {"sharp"}),
    "never": ({"outside": lambda x: 0 * x}, {"left"}),
    # Losses that stay above the level are not read at all.
    "not learned": ({"trained": lambda x: np.maximum(x, 1e-4)}, {"polar_law", "adam_law", "ratio"}),
}


def test_every_check_can_fail(result):
    seen = set()
    for name, (changes, expected) in CHANGES.items():
        assert failed(result, **changes) == expected, name
        seen |= expected
    recipe = load("optimisers")
    assert isinstance(recipe, Recipe)
    others = {f"{name}_law" for name in LAWS if name not in result.data["optimiser"]}
    assert seen == {one.id for one in recipe.criteria} - others


def test_reference_values_are_those_of_the_file(reference_beyond):
    known = {case["name"]: case["values"] for case in reference_beyond["optimisers"]["cases"]}
    race, sign = (known[name]["zero_shot"] for name in ("race_gd_flow_C", "race_polar_C"))
    assert pytest.approx((race, sign), rel=1e-12) == simulate.REFERENCE_LAWS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trained": 7}, "trained = 7 must be below domains = 7"),
        ({"steps": 150}, "steps must be a multiple of 100, got 150"),
        ({"scales": (0.01, 0.1)}, "two falling numbers"),
        ({"scales": (0.1,)}, "two falling numbers"),
        ({"optimisers": ("descent", "muon")}, "must be of descent, momentum, polar"),
        ({"optimisers": ("descent", "adam")}, "with descent and polar"),
        ({"steps": 10}, "steps must be a number at least 100"),
        ({"level": 0.5}, "level must be a number above 0 and below 0.1"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("optimisers", **change)
