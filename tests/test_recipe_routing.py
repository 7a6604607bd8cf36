"""The main job, `gdln reproduce routing`: it passes, every check can fail, bad input is refused.

Known answers: N Eq. 13-15 (values of tests/reference.json), the quotient trained (their Euler map),
and E8. The quick size runs once; what tampers with it reuses that run.
"""

import dataclasses
import json

import equinox as eqx
import jax
import numpy as np
import pytest
import xarray
from recipe_runs import WRITTEN

from gdln_jax import recipes
from gdln_jax import rules as gdln_rules

# References and theory are tampered with.
from gdln_jax.recipes import OptionError, _routing_checks, _routing_runs, routing

# A size at which a run costs little more than its compilation.
SMALL = {"domains": 3, "trained": 2, "width": 8, "seeds": 2, "duration": 4.0, "unequal": False}


@pytest.fixture(scope="module")
def quick():
    """The quick size: plan, runs, final state."""
    plan = routing.make_plan(routing.Options(**routing.QUICK))  # type: ignore[arg-type]
    runs = routing.simulate(plan)
    return plan, runs, routing.final_state(plan, runs)


@pytest.fixture
def gdln(monkeypatch, tmp_path, command):
    """Runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: command("reproduce", "routing", *words)


@pytest.fixture
def rerun(monkeypatch, quick):
    """The command then takes the runs that there are already."""
    for name, value in zip(("make_plan", "simulate", "final_state"), quick, strict=True):
        monkeypatch.setattr(routing, name, lambda *_, value=value: value)


def failed(quick):
    checks, _ = routing.check(*quick)
    return {check.name for check in checks if not check.passed}


@pytest.mark.slow
def test_the_command_writes_everything_and_passes(gdln, rerun, tmp_path):
    done = gdln("--quick")
    assert done.exit_code == 0, done.output
    assert "decoupled: flow - Eq. 15, weights" in done.stdout
    assert "FAILED" not in done.stdout
    assert "E9" in done.stdout
    out = tmp_path / "out" / "routing"
    assert sorted(p.suffix for p in out.iterdir()) == WRITTEN
    assert (out / "routing.png").stat().st_size < 400_000
    with xarray.open_dataset(out / "routing.nc", engine="h5netcdf") as data:
        assert data.attrs["base"] == "hierarchy of N Fig. 4c"
        assert data["b2_theory"].dims == ("time", "mode")
        assert all("long_name" in data[name].attrs for name in data.data_vars)
        assert json.loads(data.attrs["options"])["learning_rate"] == 0.02


@pytest.mark.slow
def test_all_checks_are_there_and_pass(quick):
    checks, facts = routing.check(*quick)
    assert len(checks) == 15
    assert failed(quick) == set()
    # E9: the effective b(0) of Xavier weights times .2 is .1016 +- .0064 for one network and mode.
    b, spread = facts["projected"]
    assert b == pytest.approx(0.1016, abs=3 * 0.0064 / np.sqrt(12))
    assert spread < 0.02
    assert facts["fitted"][0] == pytest.approx(b, rel=0.15)


def test_the_reference_values_are_those_of_the_file(reference):
    exact = reference["exact"]["routing_M7_B0_0.2"]
    assert list(_routing_checks.REFERENCE_T) == exact["loss"]["t"]
    assert list(_routing_checks.REFERENCE_LOSS) == exact["loss"]["L"]
    descent = exact["gradient_descent_lr_0.02_loss"]
    assert list(_routing_checks.REFERENCE_STEPS) == descent["step"]
    assert list(_routing_checks.REFERENCE_DESCENT) == descent["L"]
    assert exact["final_ratio_B2_B1_mode_1"] == _routing_checks.REFERENCE_RATIO


# ------------------------------------------------------------------ every check can fail
@pytest.mark.slow
def test_a_theory_that_is_off_by_a_millionth_is_exit_code_1(gdln, rerun, tmp_path, monkeypatch):
    right = _routing_runs.hidden_strength
    monkeypatch.setattr(_routing_runs, "hidden_strength", lambda *a: right(*a) * (1 + 1e-6))
    done = gdln()
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert "checks failed" in done.output
    report = (tmp_path / "out" / "routing" / "routing.md").read_text()
    assert "CHECKS FAILED" in report
    record = json.loads((tmp_path / "out" / "routing" / "routing.json").read_text())
    bad = {check["name"] for check in record["checks"] if not check["passed"]}
    assert bad >= {"decoupled: flow - Eq. 15, weights", "reference: loss by Eq. 15"}


@pytest.mark.slow
def test_an_euler_map_with_another_step_fails(quick):
    plan, runs, final = quick
    start = np.full(plan.reduction.modes, plan.amplitude)
    quotient = plan.reduction.quotient(start)
    spacing = int(runs.descent.ts[0][1])
    run = quotient.train(
        rule=gdln_rules.sgd(plan.rate * (1 + 1e-9)),
        steps=int(runs.descent.ts[0][-1]),
        save_every=spacing,
    )
    descent = tuple(np.asarray(run.b[e])[:, plan.modes.order] for e in ("x0->h1", "h1->h2"))
    other = dataclasses.replace(runs, reduced=dataclasses.replace(runs.reduced, descent=descent))
    assert failed((plan, other, final)) == {
        "decoupled: descent - Euler map, weights",
        "decoupled: descent - Euler map, loss / L(0)",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "where", "change", "name"),
    [
        # The hidden layer's strengths 1e-7 too large.
        (
            "flow",
            lambda flow: flow.measured["aligned"][1],
            lambda b: b * (1 + 1e-7),
            "decoupled: final B2/B1 per mode - theory",
        ),
        (
            "flow",
            lambda flow: flow.measured["conserved"][0],
            lambda m: m.at[-1].multiply(1 + 1e-7),
            "decoupled: drift of the matrices of E8",
        ),
        # The hidden layer of every network has grown 5 % more.
        (
            "descent",
            lambda descent: descent.measured["squares"],
            lambda square: square.at[:, -1, 1].multiply(1.05),
            "random: E8, growth of hidden layer / first layers",
        ),
        # Weights that leave the frames count, too.
        (
            "descent",
            lambda descent: descent.measured["off"][2],
            lambda off: off + 1e-9,
            "decoupled: descent - Euler map, weights",
        ),
        (
            "descent",
            lambda descent: descent.losses,
            lambda loss: loss * (1 + 1e-9),
            "reference: loss of gradient descent",
        ),
    ],
)
def test_a_simulation_that_deviates_fails(quick, run, where, change, name):
    plan, runs, final = quick
    deviant = eqx.tree_at(where, getattr(runs, run), replace_fn=change)
    assert name in failed((plan, dataclasses.replace(runs, **{run: deviant}), final))


@pytest.mark.slow
def test_networks_that_do_not_generalise_fail(quick):
    plan, runs, final = quick
    worse = dataclasses.replace(final, errors=final.errors + 1e-3)
    assert failed((plan, runs, worse)) == {"random: zero-shot relative error, median"}


@pytest.mark.slow
def test_another_reference_ratio_fails(quick, monkeypatch):
    monkeypatch.setattr(_routing_checks, "REFERENCE_RATIO", 7**0.5)
    assert failed(quick) == {"reference: final B2/B1 of mode 1"}


# ------------------------------------------------------------------ other settings
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:nothing was learned")  # they end on the plateau, to be short
@pytest.mark.parametrize(
    "change",
    [
        {"domains": 1, "trained": 1},  # nothing is left untrained
        {
            "domains": 12,
            "trained": 5,
            "pattern": "random_biregular",
            "duration": 1.0,
            "init": "orthogonal",
        },
    ],
)
def test_other_numbers_of_domains(change):
    result = recipes.reproduce("routing", **{**SMALL, **change})
    exact = [check for check in result.checks if check.name.startswith("decoupled")]
    assert len(exact) == 5
    assert all(check.passed for check in exact)
    assert not any(check.name.startswith("reference") for check in result.checks)
    assert result.figure().axes  # type: ignore[operator]


@pytest.mark.slow
def test_the_users_arrays(gdln, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=rng.normal(size=(30, 3)), y=rng.normal(size=(30, 2)))
    settings = [f"--set={key}={value}" for key, value in SMALL.items() if key != "duration"]
    done = gdln("--base", "mine.npz", "--out", "o", *settings)
    assert done.exit_code == 0, done.output
    with xarray.open_dataset(tmp_path / "o" / "routing.nc", engine="h5netcdf") as data:
        assert data.sizes["mode"] == 2
        np.testing.assert_allclose(data["d"], 1, atol=1e-12)  # whitened
        assert "mine.npz, inputs whitened (3 of 3 directions), condensed" in data.attrs["base"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:nothing was learned")
def test_digits():
    result = recipes.reproduce("routing", **{**SMALL, "width": 16}, base="digits")
    exact = [check for check in result.checks if check.name.startswith("decoupled")]
    assert len(exact) == 5
    assert all(check.passed for check in exact), result.checks
    assert (
        "scikit-learn's digits, inputs whitened (61 of 64 directions)"
        in (result.data.attrs["base"])
    )
    assert result.figure().axes  # type: ignore[operator]


# ------------------------------------------------------------------ what is refused
def test_bad_files_are_exit_code_2_and_leave_nothing(gdln, tmp_path):
    np.savez(tmp_path / "labels.npz", x=np.ones((3, 2)), y=np.arange(3))
    np.savez(tmp_path / "no_y.npz", x=np.ones((3, 2)))
    (tmp_path / "text.npz").write_text("no archive")
    before = sorted(tmp_path.iterdir())
    for name, message in (
        ("labels.npz", "write labels as one-hot rows"),
        ("no_y.npz", "no array 'y'"),
        ("text.npz", "cannot be read"),
        ("none.npz", "there is no file none.npz"),
        ("digit", "neither 'digits' nor a file"),
    ):
        done = gdln("--base", name)
        assert done.exit_code == 2, name
        assert message in " ".join(done.output.replace("│", " ").split())
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pattern": "rows_only", "domains": 6},
            r"trains each output with \d to \d inputs.*E7.*cyclic",
        ),
        ({"trained": 4}, "only 3 domains"),
        ({"width": 3}, "4 modes .* --set width=4"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"learning_rate": -1.0}, "learning_rate must be a number above 0"),
        ({"duration": 1e5, "learning_rate": 1e-3}, r"would take .* steps"),
    ],
)
def test_what_theory_does_not_cover_is_refused_with_the_remedy(change, message):
    with pytest.raises(OptionError, match=message):
        recipes.reproduce("routing", **{**SMALL, "seed": 3, **change})


def test_too_large_a_step_is_named():
    with pytest.raises(OptionError, match=r"diverged.* learning rate 5 .*smaller"):
        recipes.reproduce("routing", **{**SMALL, "learning_rate": 5.0, "duration": 500.0})


def test_data_without_a_common_frame_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)) @ np.diag([1.0, 2.0, 5.0])
    np.savez(tmp_path / "raw.npz", x=x, y=x @ rng.normal(size=(3, 2)))
    with pytest.raises(OptionError, match="no common frame; leave out --set whiten=false"):
        recipes.reproduce("routing", **SMALL, base=str(tmp_path / "raw.npz"), whiten=False)


def test_the_time_is_the_exact_clock():
    steps = np.array([0, 50, 1000])
    np.testing.assert_allclose(_routing_runs.times(steps, 0.02), 0.02 * steps, rtol=1e-15)
    assert jax.config.jax_enable_x64  # type: ignore[attr-defined]
