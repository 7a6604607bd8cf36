"""N Fig. 5a-b: the quick size passes, and every check fails when what it watches is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError, reproduce, sharing


@pytest.fixture(scope="module")
def quick():
    options = sharing.Options(**sharing.QUICK)
    return options, sharing.simulate(options)


def failed(options, runs):
    checks, _ = sharing.check(options, runs)
    return {check.name for check in checks if not check.passed}


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_is_drawn(quick, monkeypatch):
    options, runs = quick
    monkeypatch.setattr(sharing, "simulate", lambda *_: runs)
    result = sharing.run(options)
    assert result.passed, [check for check in result.checks if not check.passed]
    assert len(result.checks) == 11
    assert "Eq. 16-17" in result.verdict
    assert isinstance(result.figure(), Figure)  # type: ignore[operator]
    assert result.data["b_flow"].dims == ("paths", "layer", "point", "mode")


@pytest.mark.slow
def test_every_check_can_fail(quick, monkeypatch):
    options, runs = quick

    def net(p, **change):
        networks = runs.networks | {p: replace(runs.networks[p], **change)}
        return failed(options, replace(runs, networks=networks))

    for p, one in runs.networks.items():
        name = f"P = {p}: flow of the full network - Eq. 16-17, B1 and B2"
        assert net(p, spread=1e-8) == {name}
        assert name in net(p, flow=(one.flow[0] + 1e-8, one.flow[1]))
        off = (one.reduced[0], one.reduced[1] + 1e-8)
        assert net(p, reduced=off) == {"reduction (quotient) - Eq. 16-17, B1 and B2"}
        larger = (one.balanced[0], one.balanced[1] * (1 + 1e-7))
        assert net(p, balanced=larger) == {
            "E5: balanced B2/B1 - P^(1/4), relative, all times",
            "balanced: products of all P on the clock t P^(2/3), largest difference / s/d",
        }
    other = replace(runs, half_balanced=runs.half_balanced + 1e-6)
    assert failed(options, other) == {
        "balanced, equal product: exponent of the times to half in P + 2/3, worst"
    }

    def race(**change):
        return failed(options, replace(runs, race=replace(runs.race, **change)))

    flow = "race: flow of the combined network - reduction, B1 and B2"
    assert race(spread=1e-8) == {flow}
    assert race(b1=runs.race.b1 + 1e-8) == {flow}
    assert race(kept=runs.race.kept + 1e-5) == {
        "race: share that the loser keeps - exact law, worst"
    }
    back = runs.race.b2[::-1], runs.race.reduced[1][::-1]
    assert race(b2=back[0], reduced=(runs.race.reduced[0], back[1])) == {
        "race: least increase of the loser's B2 per time (it freezes, it does not decay)"
    }
    monkeypatch.setattr(sharing, "REFERENCE_HALF", {1: (136.5, 283.5, 587.2), 100: (5.6, 12, 24)})
    assert failed(options, runs) == {
        "reference: times to half, M = 10, P = 1",
        "reference: times to half, M = 10, P = 100",
    }


def test_the_loser_keeps_what_two_equal_pathways_would():
    """One domain: "shared" and "dedicated" are alike and end with a half each."""
    kept = sharing.loser_keeps(np.array([0.01, 0.3]), np.array([13.0, 3.0]), 1)
    np.testing.assert_allclose(kept, 0.5, rtol=1e-12)


def test_reference_values_are_those_of_the_file(reference):
    known = reference["exact"]["sharing_M10"]
    assert {p: list(v) for p, v in sharing.REFERENCE_HALF.items()} == {
        1: known["P1"],
        100: known["P100"],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [({"domains": 1}, "domains must be at least 2"), ({"width": 3}, "width must be at least 4")],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("sharing", **change)


def test_options_that_leave_nothing_to_learn_are_exit_code_2_and_one_line(
    monkeypatch, tmp_path, command
):
    """Strengths that start above their ends: the time to half is inf."""
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "sharing", "--set", "domains=2", "--set", "amplitude=3."]
    done = command(*words)
    assert done.exit_code == 2
    (line,) = [line for line in done.output.splitlines() if "sharing" in line]
    assert "sharing cannot run with amplitude=3.0: the start is too large" in line
    assert "Traceback" not in done.output
