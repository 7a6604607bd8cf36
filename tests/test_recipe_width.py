"""The width recipe: the quick size passes, and every check fails when what it watches is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError, width
from gdln_jax.recipes._options import with_values

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quick():
    options = width.Options(**width.QUICK)
    return options, width.simulate(options)


def failed(options, runs):
    return [check.name for check in width.check(options, runs)[0] if not check.passed]


def test_all_checks_pass_and_the_picture_is_drawn(quick, monkeypatch):
    options, runs = quick
    monkeypatch.setattr(width, "simulate", lambda *_: runs)
    result = width.run(options)
    assert result.passed, [check for check in result.checks if not check.passed]
    assert len(result.checks) == 10
    assert "uses 11 of its 32 dimensions" in result.verdict
    assert isinstance(result.figure(), Figure)  # type: ignore[operator]


def test_every_check_can_fail(quick):
    options, runs = quick
    for (name, n), pair in runs.pairs.items():
        words = {"chain": "orthogonal chain", "gated graph": "gated graph", "two layers": "normal"}
        off = {**runs.pairs, (name, n): replace(pair, small=pair.small * (1 + 1e-11))}
        (found,) = failed(options, replace(runs, pairs=off))
        assert words[name] in found
        larger = tuple(size + 1 for size in pair.sizes)
        off = {**runs.pairs, (name, n): replace(pair, sizes=larger)}
        assert failed(options, replace(runs, pairs=off)) == [
            "sizes of hidden nodes - formula of 8.3, sum of differences"
        ]
    (gain,) = runs.truncated
    one = runs.truncated[gain]
    for change, word in (
        ({"gap": np.full_like(one.gap, 1e-3), "estimate": np.full_like(one.gap, 1e-3)}, "fall"),
        ({"estimate": 2 * one.estimate}, "estimate"),
        ({"leak": 0 * one.leak}, "leak"),
    ):
        (found,) = failed(options, replace(runs, truncated={gain: replace(one, **change)}))
        assert word in found
    assert failed(options, replace(runs, adam=1e-9)) == ["Adam: distance in 25 steps, over L(0)"]
    assert failed(options, replace(runs, reference=(0.0198, (11, 11))))[0].startswith("reference")
    assert failed(options, replace(runs, reference=(width.REFERENCE_LOSS, (11, 12)))) == [
        "reference: sizes, sum"
    ]
    wide, small = np.ones(11), np.ones(11) + 1e-11
    ten = replace(options, wide=64), replace(runs, ten=(wide, small))
    assert failed(*ten) == ["ten steps at width 64: loss of the wide - of the small network"]


def test_options_are_checked():
    for values in ({"widths": (8,)}, {"gains": ()}, {"rounds": 0}, {"wide": -1}):
        with pytest.raises(OptionError):
            with_values(width.Options, values)
