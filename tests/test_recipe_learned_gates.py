"""Learned gates: a short run passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
import xarray as xr
from drawn_text import faults
from matplotlib.figure import Figure
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, Recipe, load, reproduce, with_values

# Beside routing and contexts, which tests/test_learned_gates.py learns from fewer starts.
CHANGES = {
    "pure": {"pure_time": lambda times: 1.1 * times},
    "wrong": {"learned_gating": lambda gating: 1 - gating},
    "slow": {"learned_block_held": np.ones_like},
    "fast": {"learned_block_held": np.zeros_like},
}
ROUTING = np.stack([np.eye(3)[np.zeros(9, int)], np.eye(3)[np.arange(9) % 3]])
SUBSETS = np.stack([1 - np.eye(3), np.eye(3)])
RECOVERED = {
    "routing": ({"learned_routing_time": [2.0, 1.0]}, {"routing"}),
    "its rate": ({"learned_routing": ROUTING[[1, 1]]}, {"routing", "routing_rate"}),
    "contexts": ({"learned_contexts_time": [2.0, 1.0]}, {"contexts"}),
    "their rate": ({"learned_contexts": SUBSETS[[1, 1]]}, {"contexts", "contexts_rate"}),
    "families": ({"learned_family_time": [2.0, 1.0]}, {"fastest"}),
}


@pytest.fixture(scope="module")
def result():
    return quick("learned-gates", starts=12, seeds=3)


def recipe():
    found = load("learned-gates")
    assert isinstance(found, Recipe)
    return found


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 4
    assert "at each of 6 margins the fastest of 12 starts" in result.verdict
    assert result.data["learned_gating"].dims == ("margin", "start")
    assert set(np.unique(result.data["learned_gating"])) <= {0, 0.5, 1}
    assert not result.notes  # those on routing and contexts


@pytest.mark.slow
def test_every_check_can_fail(result):
    for name, change in CHANGES.items():
        assert failed(result, **change) == {name}


@pytest.mark.slow
def test_routing_and_contexts(result):
    """Made-up gates of two starts, the first of which are right."""
    gates, subsets = ("start", "route", "pathway"), ("contextual_pathway", "gated_context")
    made = {
        "learned_routing": (gates, ROUTING),
        "learned_routing_start": (gates, np.full((2, 9, 3), 1 / 3)),
        "learned_contexts": (("start", *subsets), SUBSETS),
        "learned_contexts_start": (("start", *subsets), np.full((2, 3, 3), 0.5)),
        "learned_family": (("family", *subsets), SUBSETS),
        **{f"learned_{name}_time": ("start", [1.0, 2.0]) for name in ("routing", "contexts")},
        "learned_family_time": ("family", [1.0, 2.0]),
    }
    data = result.data.isel(start=slice(2)).assign(made)
    options = with_values(recipe().options, {**result.options, "recovery": True})

    def failing(data: xr.Dataset) -> set[str]:
        checks = recipe().examine(options, data).checks
        return {check.id for check in checks if not check.passed} - {"wrong"}

    assert failing(data) == set()
    shown = recipe().examine(options, data)
    assert "50% of 12 starts find the one shared pathway" in "".join(shown.notes)
    assert callable(shown.figure)
    figure = shown.figure()
    assert isinstance(figure, Figure)
    assert not faults(figure)
    assert len(figure.axes) == 8
    seen = set()
    for name, (changes, expected) in RECOVERED.items():
        changed = data.assign({key: (data[key].dims, x) for key, x in changes.items()})
        assert failing(changed) == expected, name
        seen |= expected
    assert seen | set(CHANGES) == {one.id for one in recipe().criteria}


@pytest.mark.parametrize("change", [{"starts": 0}, {"seeds": 0}])
def test_what_cannot_be_done_is_refused(change):
    with pytest.raises(OptionError, match="s must be a number at least 1, got 0"):
        reproduce("learned-gates", **change)
