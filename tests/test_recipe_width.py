"""The width recipe: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, width, with_values

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return quick("width")


def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 10
    assert "uses 11 of its 32 dimensions" in result.verdict


def further(k):
    """The small network of system `k` is a little off."""

    def change(losses):
        losses = losses.copy()
        losses[k, :, 1] *= 1 + 1e-11
        return losses

    return change


CHANGES = {
    **{
        f"gap_{name.replace(' ', '_')}": {"loss": further(k)}
        for k, name in enumerate(width.SYSTEMS)
    },
    "sizes": {"difference": lambda x: x + 1},
    "fall": {"truncated_gap": lambda x: 0 * x + 1e-3, "truncated_estimate": lambda x: 0 * x + 1e-3},
    "factor": {"truncated_estimate": lambda x: 2 * x},
    "leak": {"truncated_leak": lambda x: 0 * x},
    "adam": {"adam": lambda x: np.stack([x[0], x[0] + 1e-9])},
    "reference_loss": {"reference_loss": lambda x: x + 1e-9},
    "reference_sizes": {"reference_sizes": lambda x: x + np.array([0, 1])},
}


@pytest.mark.parametrize("key", CHANGES)
def test_every_check_can_fail(result, key):
    assert failed(result, **CHANGES[key]) == {key}


def test_one_size_is_drawn_at_every_width(result):
    assert failed(result, size_drawn=lambda x: x + (np.arange(x.shape[1]) == 1)) == {"sizes"}


def test_every_check_has_its_change():
    # Ten steps at a large width are left out at the quick size.
    assert {one.id for one in width.CRITERIA} == {*CHANGES, "ten"}


def test_ten_steps_at_a_large_width():
    small = {"widths": (16,), "drawn": (16,), "gains": (0.5,), "rounds": 2}
    result = width.RECIPE.run(width.Options(**small, wide=64), lambda *_: None)
    assert result.passed, result.checks
    assert "ten" in {check.id for check in result.checks}
    assert failed(result, ten=lambda x: x * np.array([[1.0], [1 + 1e-11]])) == {"ten"}


def test_options_are_checked():
    for values in ({"widths": (8,)}, {"gains": ()}, {"rounds": 0}, {"wide": -1}):
        with pytest.raises(OptionError):
            with_values(width.Options, values)
