"""H Fig. 6: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_parts import context_runs as cx
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, reproduce
from gdln_jax.recipes.depth import CRITERIA, simulate


@pytest.fixture(scope="module")
def result():
    # Larger steps than H's, which move the curves by less than a seed does.
    return quick("depth", learning_rate=2e-3, steps=15_000)


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 9
    assert result.verdict.startswith("H Fig. 6 holds under conditions: the first plateau of the ")
    # Until they open, late pathways leave the plateau of the ReLU networks.
    assert result.numbers["late_plateau"] == pytest.approx(result.numbers["plateau"], abs=0.1)
    assert result.numbers["half_equal"] < result.numbers["half_late"]


@pytest.mark.slow
def test_every_check_can_fail(result):
    fits = {f"fit_{name}": lambda x: x + 0.5 for name in ("mode", "rank_1", "gated_1")}
    changes = {
        "mode first gated": fits,
        "second": {"fit_rank_2": lambda x: x + 3},
        "linear_first linear_end gates_end": {"identity": lambda x: 0 * x + 0.5},
        "one": {"power": lambda x: 0 * x},
        "learned": {"loss_relu": lambda loss: loss + 0.02 * loss[:, :1]},
    }
    seen = set()
    for expected, change in changes.items():
        found = failed(result, **change)
        assert set(expected.split()) <= found, (expected, found)
        seen |= found
    assert seen == {one.id for one in CRITERIA}


def test_best_fits():
    """Rank 1 by singular values = by turns; a read-out per context fits at least as well."""
    task = cx.different()
    fits = simulate.best_fits(task, float(task.meta["loss_scale"]))
    assert fits["mode"] == pytest.approx(71.15, abs=0.005)
    assert fits["rank_1"] == pytest.approx(70.97, abs=0.005)
    assert fits["rank_1"] < fits["mode"]
    assert fits["gated_2"] < fits["gated_1"] < fits["rank_1"]
    one = simulate.gated_fit(task.meta["x"], task.meta["y"], np.zeros(24), 1)
    assert one == pytest.approx(fits["rank_1"], abs=1e-6)


def test_plateaus_and_the_stereotype():
    # Curves with steps of known heights; the third is the mean of the others.
    heights = np.repeat([[1.0, 0.7, 0.3], [1.0, 0.8, 0.2], [1.0, 0.75, 0.25]], 5, axis=1)
    runs, records = simulate.plateau(heights, 0.6, 0.9)
    np.testing.assert_array_equal(heights[runs, records], [0.7, 0.8, 0.75])
    assert simulate.stereotype(heights) == 2
    assert not simulate.plateau(heights, 0.4, 0.5)[1].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 8}, "width must be a number at least 24, got 8"),
        ({"std": -1.0}, "std must be a number above 0"),
        ({"steps": 10, "seeds": 1, "width": 24}, "have learned nothing by the last step"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("depth", **change)
