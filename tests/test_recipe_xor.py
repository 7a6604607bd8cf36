"""N Fig. 3: the quick size passes, and every check fails when what it watches is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError, reproduce, xor


@pytest.fixture(scope="module")
def quick():
    options = xor.Options(**xor.QUICK)  # type: ignore[arg-type]
    return options, xor.simulate(options)


def failed(options, runs):
    checks, _ = xor.check(options, runs)
    return {check.name for check in checks if not check.passed}


def test_all_checks_pass_and_the_picture_is_drawn(quick, monkeypatch):
    options, runs = quick
    monkeypatch.setattr(xor, "simulate", lambda *_: runs)
    result = xor.run(options)
    assert result.passed, [check for check in result.checks if not check.passed]
    assert len(result.checks) == 14
    assert "45.09" in result.verdict
    assert isinstance(result.figure(), Figure)  # type: ignore[operator]
    assert result.data["loss_flow"].dims == ("seed", "time")
    assert all("long_name" in result.data[name].attrs for name in result.data.data_vars)


def tampered(runs):
    """Pairs of what is changed and the checks that must then fail."""
    late = np.roll(runs.flow, 3, axis=1)
    late[:, :3] = runs.flow[:, :1]
    very = np.roll(runs.descent, 4, axis=1)
    very[:, :4] = runs.descent[:, :1]
    lame = runs.flow.copy()
    lame[0, 40:] += 0.013
    turn = np.array([[0.0, -1.0], [1.0, 0.0]]) + np.eye(2)
    return {
        "gated flow": (
            {"gated": runs.gated + 1e-9, "xnor": runs.xnor + 1e-9},
            {"gated: flow - N Eq. 23, loss"},
        ),
        "gated descent": (
            {"gated_descent": runs.gated_descent + 1e-9},
            {"gated: descent - Euler map in scalars, loss"},
        ),
        "xnor": ({"xnor": runs.xnor + 1e-9}, {"E13: XNOR (as printed) - XoR, loss"}),
        "late flow": (
            {"flow": late, "coarse": late},
            {
                "ReLU flow: time to loss .25 / E14 - 1, median",
                "reference: ReLU time to loss .25",
                "ReLU flow: loss after a fit of a(0) - N Eq. 23, worst",
            },
        ),
        "late descent": (
            {"descent": very},
            {"ReLU descent: time to loss .25 / E14 through the discrete map - 1, median"},
        ),
        "coarse": (
            {"coarse": late},
            {"ReLU flow: time to loss .25 at twice the small step / at it - 1, worst"},
        ),
        "other form": ({"flow": lame}, {"ReLU flow: loss after a fit of a(0) - N Eq. 23, worst"}),
        "turned by 45 degrees": (
            {"weights": runs.weights @ turn},
            {"cell types: cosine of input weights with the nearest corner"},
        ),
        "signs": (
            {"read_out": -runs.read_out},
            {"cell types: share of units whose read-out has the corner's sign"},
        ),
        "shares": (
            {"power": runs.power * np.where(runs.read_out > 0, 1.2, 0.8)},
            {"cell types: shares of the four types - 1/4, worst"},
        ),
    }


def test_every_check_can_fail(quick, monkeypatch):
    options, runs = quick
    seen = set()
    for name, (change, expected) in tampered(runs).items():
        found = failed(options, replace(runs, **change))
        assert expected <= found, name
        # A quarter turn of all weights also changes which corner they are nearest to.
        assert len(found) <= len(expected) + 2, (name, found)
        seen |= found
    monkeypatch.setattr(xor, "REFERENCE_LOSS", {10.0: 0.4952})
    monkeypatch.setattr(xor, "REFERENCE_TIMES", {0.25: 25.8})
    monkeypatch.setattr(xor, "REFERENCE_PREDICTED", 45.081)
    seen |= failed(options, runs)
    assert seen == {check.name for check in xor.check(options, runs)[0]}


def test_reference_values_are_those_of_the_file(reference):
    exact, relu = reference["exact"]["xor"], reference["statistical"]["xor_relu"]
    assert dict(zip(exact["t"], exact["L"], strict=True)) == xor.REFERENCE_LOSS
    assert {0.25: exact["t_at_L_0.25"], 0.01: exact["t_at_L_0.01"]} == xor.REFERENCE_TIMES
    assert tuple(relu["t_at_L_0.25"]) == xor.REFERENCE_RELU
    # The file has kappa = .6636 as simulated; exact is .661699 (E14).
    later = 2.5 * np.log(0.6636 / 0.661699) / (2 * np.sqrt(2) / 4)
    assert relu["predicted"] + later == pytest.approx(xor.REFERENCE_PREDICTED, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 30}, "multiple of 4"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"std": 0.5}, "no small start"),
        ({"duration": 1e6}, "would take 1000000 epochs"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("xor", **change)
