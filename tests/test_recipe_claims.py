"""The claims of R: the quick size passes, and every check fails when what it watches is wrong.

Known facts: theory#races, the values of tests/reference.json, Barrett and Dherin's modified flow.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax import race
from gdln_jax.recipes import OptionError, Recipe, load, reproduce

# What the recipe is declared with, and the constants that its checks are held against.
from gdln_jax.recipes.claims import ROWS, simulate

# What theory#races says of each claim.
VERDICTS = dict.fromkeys(dict.fromkeys(row[1] for row in ROWS), "holds under conditions") | {
    "losers": "does not hold",
    "entropy": "does not hold",
    "depth": "holds",
}


@pytest.fixture(scope="module")
def result():
    """All experiments at the quick size, with fewer networks and shorter training of ReLU ones."""
    return quick("claims", seeds=3, relu_seeds=2, relu_steps=2500, grid=11)


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 23 + len(ROWS) == 88
    assert "12 claims 1 hold as stated, 9 under conditions, 2 nowhere" in result.verdict
    assert {claim: result.numbers[f"{claim}_verdict"] for claim in VERDICTS} == VERDICTS
    assert result.text.count("**holds under conditions**") == 9
    assert result.text.count(" | yes |") == sum(row[5] for row in ROWS)
    assert "nan" not in result.text
    assert result.data["shares_L2"].dims == ("setup_L2", "seed", "class", "time_L2", "view")


def rows(data, dim, name, change):
    """A change of the rows `name` along the labelled dimension `dim`."""
    where = np.isin(data[dim].values, name)

    def changed(values):
        values = np.array(values, float)
        values[where] = change(values[where])
        return values

    return changed


def late(values, start=125, factor=0.9):
    """Curves (..., time, view) of which the last view is multiplied from some time on."""
    times = np.arange(values.shape[-2])[:, None]
    return np.where(times > start, values * [1.0, 1.0, factor], values)


@pytest.mark.slow
def test_every_fact_can_fail(result, monkeypatch):
    data, seen = result.data, set()
    aligned = {
        f"L{n}": rows(data, f"setup_L{n}", ["aligned"], lambda x: 0.99 * x) for n in (2, 3, 4)
    }
    alone = ["p = 0.8", "p = 0.5"]
    one = np.array([1.0, 1.0, 0.0])
    for ids, changes in (
        ({"law_2", "summary"}, {"shares_L2": aligned["L2"]}),
        ({"law_3"}, {"shares_L3": aligned["L3"]}),
        ({"law_4"}, {"shares_L4": aligned["L4"]}),
        ({"decay"}, {"course_L2": late}),
        ({"drift", "law_2"}, {"shares_L2": late}),
        ({"all_views"}, {"share_L2": rows(data, "setup_L2", alone, lambda x: x * one)}),
        ({"soft"}, {"share_L2": rows(data, "setup_L2", ["smooth"], lambda x: x * one)}),
        ({"one_view"}, {"share_L4": lambda x: x + 0.1}),
        ({"rule_at_L3", "depth_rule"}, {"accuracy": lambda x: np.minimum(x, 0.97)}),
        ({"rule_at_L2", "rule_at_L4"}, {"accuracy": lambda x: 0 * x + 1}),
        ({"forgotten"}, {"accuracy": lambda x: np.repeat(x[:, :, :1], 3, axis=2)}),
        ({"clocks"}, {"course_entropy": lambda x: x ** np.array([1.0, 1.01, 1.0])}),
        ({"small_step", "first_order"}, {"momentum_ratio": lambda x: 1 + 5 * (x - 1)}),
        ({"first_order"}, {"momentum_first_order": lambda x: 2 * x}),
        ({"reversed"}, {"momentum_ratio": lambda x: np.minimum(x, 1.3)}),
        ({"gates_xor"}, {"gates_changed_power_xor": lambda x: 0 * x}),
        ({"gates_multiview"}, {"gates_changed_power_multiview": lambda x: 0 * x}),
        ({"frozen"}, {"clock_frozen": lambda x: x + 1e-7}),
        ({"clock_end"}, {"clock_limit": lambda x: x + 1e-8}),
        ({"exact_depth"}, {"depth_race": lambda x: x + 1e-7}),
    ):
        found = failed(result, **changes)
        assert ids <= found, (ids, found)
        seen |= found
    facts = {one.id for one in recipe().criteria} - {row[0] for row in ROWS}
    assert facts <= seen
    monkeypatch.setattr(simulate, "REFERENCE_CLOCK", 4.373)
    assert failed(result) == {"clock_end"}


def recipe():
    found = load("claims")
    assert isinstance(found, Recipe)
    return found


@pytest.mark.slow
def test_every_set_up_can_fail(result, monkeypatch):
    """With the opposite expectation each set-up of each claim fails, and nothing else."""
    turned = tuple((*row[:5], not row[5], row[6]) for row in ROWS)
    monkeypatch.setattr(simulate, "ROWS", turned)
    found = failed(result)
    # Two standard errors on the wrong side of a limit are chance: of few races they are much.
    chance = {row[0] for row in ROWS if row[1] in ("rule", "seeds")}
    assert {row[0] for row in ROWS} - chance <= found <= {row[0] for row in ROWS}
    assert len(chance & found) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({"share_L2": lambda x: x * [1.0, 0.01, 0.01]}, {"coverage_5", "coverage_6", "shared_6"}),
        ({"share_L4": lambda x: 0 * x + 1}, {"coverage_4", "shared_2", "one_view"}),
        ({"share_L3": lambda x: 1e-3 * x}, {"losers_3"}),
        ({"shares_L2": lambda x: x**2}, {"exponential_1", "ratio_1", "equation_1"}),
        ({"shares_L4": lambda x: np.sqrt(np.abs(x))}, {"law_4"}),
        ({"depth_race": lambda x: x[::-1]}, {"depth_1", "depth_2"}),
        ({"course_entropy": lambda x: late(x, 60, 5.0)}, {"entropy_2", "entropy_3"}),
        ({"momentum_ratio": lambda x: x[:, ::-1]}, {f"momentum_{k}" for k in (1, 2, 4, 5)}),
        ({"batch_ratio": lambda x: x[::-1]}, {"momentum_3", "momentum_6"}),
        ({"identity_xor": lambda x: x + 1e-9}, {"relu_2"}),
        ({"loss_frozen_multiview": lambda x: x[::-1]}, {"relu_8"}),
        ({"laws_L2": lambda x: x + 0.01}, {"equation_1", "law_2", "summary"}),
        ({"accuracy": lambda x: 0 * x + 0.5}, {"rule_1", "rule_3", "rule_4", "rule_5", "rule_6"}),
    ],
)
def test_changed_runs_change_verdicts(result, changes, ids):
    assert ids <= failed(result, **changes)


@pytest.mark.slow
def test_a_run_that_failed_fails_its_checks(result):
    """Not a number is neither inside nor outside of limits."""

    def without(values):
        values = np.array(values)
        values[:, 0] = np.nan
        return values

    found = failed(result, shares_L3=without, share_L3=without)
    assert {"law_3", "equation_3", "losers_3", "coverage_2", "depth_3"} <= found


@pytest.mark.slow
def test_rules_by_the_exact_frozen_state(result):
    """Rate u0^(L-2) at tiny u0; equal rates: the larger start; R's rule = depth rule for L = 3."""
    hits = result.data["accuracy"].values
    assert hits.shape == (3, 3, 3, 4)
    np.testing.assert_array_equal(hits[0, 1], hits[2, 1])
    assert hits[2, 1:, 2].min() == 1.0
    assert float(result.data["accuracy_equal"]) == 1.0


@pytest.mark.slow
def test_first_order_of_the_modified_flow_by_its_differences(result):
    """Against the Euler map itself (beta = 0): effect/step tends to the derivative."""
    first = float(result.data["momentum_first_order"])
    r, a, h = np.array([1.0, 0.8]), np.array([0.1, 0.1]), 2e-3
    flow = np.asarray(race.LotkaVolterra(r).limit(a * np.sqrt(r)))
    for _ in range(15_000):
        a = a + h * a * r * (1 - np.sum(r * a**2))
    s = a * np.sqrt(r)
    effect = np.log(s[1] / s[0]) - np.log(flow[1] / flow[0])
    assert effect / h == pytest.approx(first, rel=5e-3)


@pytest.mark.slow
def test_portraits_rest_where_theory_says(result):
    """R: on the arc. p < 1: at S = D a; both trajectories' ends and the nullclines' crossing."""
    together, apart = (result.data[f"{name}_path"].values for name in ("together", "apart"))
    np.testing.assert_allclose(np.linalg.norm(together[:, -1], axis=1), 1.0, rtol=1e-9)
    p, r = 0.8, np.array([1.0, 0.8])
    known = 1 / (r * (1 + p))  # r_m a_m = 1/(1 + (M - 1) p)
    np.testing.assert_allclose(result.data["apart_rest"].values[0], known, rtol=1e-12)
    np.testing.assert_allclose(apart[:, -1], np.broadcast_to(known, (len(apart), 2)), rtol=1e-6)


def test_reference_values_are_those_of_the_file(reference):
    clock, lost = (reference["exact"][name] for name in ("lotka_volterra", "depth_race"))
    assert clock["T_inf"] == simulate.REFERENCE_CLOCK
    assert clock["s_inf"] == list(simulate.REFERENCE_FROZEN)
    assert [lost[f"L{n}"] for n in (2, 3, 4)] == list(simulate.REFERENCE_DEPTH)


@pytest.mark.slow
def test_frozen_shares_broadcast_and_agree_with_the_limit():
    rates, u0 = jnp.array([1.0, 0.8, 1.1]), jnp.array([[0.1, 0.12, 0.09], [0.2, 0.1, 0.1]])
    for depth in (2, 3, 4):
        share = race.frozen_shares(rates, u0, depth, capacity=0.7)
        np.testing.assert_allclose(share.sum(-1), 1.0, rtol=1e-12)
        model = race.Pathways(rates, 0.7 * np.outer(rates, rates), depth)
        a = model.limit(u0[1] ** depth)
        np.testing.assert_allclose(share[1], 0.7 * rates * a, rtol=1e-12)
    with pytest.raises(ValueError, match="rates must be above 0"):
        race.frozen_shares([1.0, 0.0], [0.1, 0.1], 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 1}, "seeds must be a number at least 2"),
        ({"smallest_step": 1.0}, "smallest_step must be a number at least 1e-05 and at most 0.01"),
        ({"grid": 2}, "grid must be a number at least 5"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("claims", **change)
