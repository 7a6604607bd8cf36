"""N Fig. 5c: the quick size passes, and every check fails when what it watches is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError, generalisation, reproduce

# Fewer networks than QUICK, at the size of the reference.
SMALL = {"domains": (10,), "seeds": 2}


@pytest.fixture(scope="module")
def quick():
    options = generalisation.Options(**SMALL)
    return options, generalisation.simulate(options)


def failed(options, runs):
    checks, _ = generalisation.check(options, runs)
    return {check.name for check in checks if not check.passed}


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_is_drawn(quick, monkeypatch):
    options, runs = quick
    monkeypatch.setattr(generalisation, "simulate", lambda *_: runs)
    result = generalisation.run(options)
    # Two seeds are too few for the bootstrap of the difference and for medians of K = 2.
    assert {check.name for check in result.checks if not check.passed} <= {
        "finding: that minus the rank correlation with -K/M, lower 2.5 % of bootstraps",
        "reference: untrained error, M = 10, K = 2, median",
    }
    assert len(result.checks) == 10
    assert result.passed or result.verdict.startswith("Checks failed (")
    assert "spectral gap" in generalisation._finding(generalisation.check(options, runs)[1])
    assert isinstance(result.figure(), Figure)  # type: ignore[operator]
    assert set(np.unique(result.data["kind"])) == {"random", "cyclic", "blocks"}


@pytest.mark.slow
def test_every_check_can_fail(quick):
    options, runs = quick
    seen = set()
    for change in (
        {"engine": 1e-11},
        {"trained": np.full_like(runs.trained, 0.05)},
        {"untrained": np.full_like(runs.untrained, 5.0)},
        {"untrained": np.where(runs.kind == 1, 1e-3, 1) * runs.untrained},
        # As if K and not the gap decided.
        {"untrained": 10.0 ** -runs.k.astype(float), "gap": 1.0 * runs.seed},
    ):
        found = failed(options, replace(runs, **change))
        assert found
        seen |= found
    assert seen == {check.name for check in generalisation.check(options, runs)[0]}


def test_patterns_are_biregular_and_start_alike():
    options = generalisation.Options(domains=(6,), seeds=2)
    labels, patterns = generalisation._patterns(options, 6)
    for axis in (1, 2):
        np.testing.assert_array_equal(patterns.sum(axis=axis), np.repeat(labels[:, :1], 6, 1))
    blocks = patterns[labels[:, 1] == 2]
    assert len(blocks) == 2
    assert generalisation.tasks.spectral_gap(blocks[0]) == pytest.approx(1)
    random = patterns[(labels[:, 1] == 0) & (labels[:, 0] == 3)]
    assert np.any(random[0] != random[1])


def test_reference_values_are_those_of_the_file(reference):
    known = reference["statistical"]["fig5c_M10_biregular_gain0.2_xavier"]
    known = known["relative_error_untrained_mean_sd_10_seeds"]
    for k, (mean, sd) in generalisation.REFERENCE.items():
        wanted = known[f"K{k}"]
        assert (wanted if isinstance(wanted, list) else [wanted, 0.0]) == [mean, sd]
        low, high = generalisation.BANDS[k]
        assert low <= mean <= high


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": (5,)}, "domains must be even"),
        ({"fractions": (0.0,)}, "fractions must lie between 0 and 1"),
        ({"learning_rate": 1e-7}, "steps"),
        ({"learning_rate": 50.0, "duration": 1e3, "domains": (4,), "seeds": 2}, "diverged"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("generalisation", **change)
