"""N Fig. 5c: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax import tasks
from gdln_jax.recipes import OptionError, reproduce
from gdln_jax.recipes.generalisation import BANDS, CRITERIA, Options, simulate


@pytest.fixture(scope="module")
def result():
    return quick("generalisation")


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 11
    assert "spectral gap" in result.verdict
    assert set(np.unique(result.data["kind"])) == set(simulate.KINDS)


@pytest.mark.slow
def test_every_check_can_fail(result):
    cyclic = result.data["kind"].values == "cyclic"
    k = result.data["k"].values.astype(float)
    changes = {
        "another loss": {"engine": lambda _: 1e-11},
        "not learned": {"trained": lambda x: 0 * x + 0.05},
        "no transfer": {"untrained": lambda x: 0 * x + 5.0},
        "cyclic ones better": {"untrained": lambda x: np.where(cyclic, 1e-3, 1) * x},
        # As if K and not the gap decided.
        "K decides": {
            "untrained": lambda _: 10.0**-k,
            "gap": lambda x: np.arange(len(x)) % 4 / 4,
        },
    }
    seen = set()
    for name, change in changes.items():
        found = failed(result, **change)
        assert found, name
        seen |= found
    assert seen == {one.id for one in CRITERIA}


def test_patterns_are_biregular_and_start_alike():
    labels, patterns = simulate.routes(Options(domains=(6,), seeds=2), 6)
    for axis in (1, 2):
        np.testing.assert_array_equal(patterns.sum(axis=axis), np.repeat(labels[:, :1], 6, 1))
    blocks = patterns[labels[:, 1] == 2]
    assert len(blocks) == 2
    assert tasks.spectral_gap(blocks[0]) == pytest.approx(1)
    random = patterns[(labels[:, 1] == 0) & (labels[:, 0] == 3)]
    assert np.any(random[0] != random[1])


def test_reference_values_are_those_of_the_file(reference):
    known = reference["statistical"]["fig5c_M10_biregular_gain0.2_xavier"]
    known = known["relative_error_untrained_mean_sd_10_seeds"]
    for k, (mean, sd) in simulate.REFERENCE.items():
        given = known[f"K{k}"]
        assert (given if isinstance(given, list) else [given, 0.0]) == [mean, sd]
        low, high = BANDS[k]
        assert low <= mean <= high


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": (5,)}, "domains must be even"),
        ({"fractions": (0.0,)}, "fractions must be a number above 0 and at most 1"),
        ({"learning_rate": 1e-7}, "steps"),
        ({"learning_rate": 50.0, "duration": 1e3, "domains": (4,), "seeds": 2}, "diverged"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("generalisation", **change)
