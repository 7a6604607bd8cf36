"""Curves of pathways from runs of any kind in one call (`project`, `pathways`)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from small_runs import START, STEPS, TS, two_pathways

import gdln_jax as gdln
from gdln_jax import init


@pytest.fixture(scope="module")
def system():
    graph, data = two_pathways()
    reduction = gdln.reduce(graph, data)
    return data, reduction, gdln.reduce(graph, data, on_inexact="coupled", tol=1e-30)


@pytest.fixture(scope="module")
def runs(system):
    """One run of each kind, all from the same start."""
    data, reduction, coupled = system
    net = reduction.embed(START)
    return {
        "flow": gdln.gradient_flow(net, data, TS, keep_models=True),
        "solve": reduction.solve(START, TS),
        "quotient": reduction.quotient(START).solve(TS),
        "coupled": coupled.solve(START, TS),
        "train": gdln.train(net, data, **STEPS),
    }


@pytest.fixture(scope="module")
def drawn(system):
    data, reduction, _ = system
    return small_runs.drawn(reduction, data)


# ---------------------------------------------------------------- pathways
@pytest.mark.parametrize("kind", ["flow", "solve", "quotient", "coupled"])
def test_all_forms_give_the_same_curves(system, runs, kind):
    _, reduction, coupled = system
    found = runs[kind].pathways(coupled if kind == "coupled" else reduction)
    assert list(found) == ["x->h1->y", "x->h2->y"]
    assert found.how == ("read" if kind == "flow" else "solved")
    first, second = found["x->h1->y"], found["x->h2->y"]
    b = runs["solve"].b
    np.testing.assert_allclose(first, b["x->h1"] * b["h1->y"], atol=1e-8)
    np.testing.assert_allclose(second, b["x->h2"] * b["h2->y"], atol=1e-8)
    assert float(first[0, 0]) == pytest.approx(-0.06)  # the sign of the start is kept
    np.testing.assert_array_equal(found["x->h1", "h1->y"], first)
    routes = runs[kind].pathways(coupled if kind == "coupled" else reduction, by="route")
    assert list(routes) == ["x->y"]
    np.testing.assert_allclose(routes["x", "y"], first + second, atol=1e-8)


def test_a_solved_run_needs_no_reduction_unless_it_is_coupled(system, runs):
    _, reduction, _ = system
    for kind in ("solve", "quotient"):
        own, asked = runs[kind].pathways(), reduction.pathways(runs[kind])
        np.testing.assert_array_equal(own.strengths, asked.strengths)
        assert own.outside is None
    with pytest.raises(ValueError, match=r"pass the reduction .*run\.pathways\(reduction\)"):
        runs["coupled"].pathways()


def test_trained_networks_are_read_where_they_were_embedded(system, runs):
    _, reduction, _ = system
    found = runs["train"].pathways(reduction)
    reduced = reduction.train(
        START, rule=gdln.rules.sgd(0.1), steps=8, save_every=2, check_end=False
    )
    np.testing.assert_allclose(found.strengths, reduced.pathways().strengths, atol=1e-12)
    assert found.how == "read"
    assert float(jnp.max(found.outside)) < 1e-12
    np.testing.assert_array_equal(found.ts, [0, 2, 4, 6, 8])
    assert "2 pathways x 5 times x 2 modes, read, at most" in repr(found)


def test_other_starts_are_projected_one_network_at_a_time(system, drawn):
    _, reduction, _ = system
    found = drawn.pathways(reduction)
    assert found.how == "projected"
    assert found.strengths.shape == (3, 2, 5, 2)
    assert found["x->h1->y"].shape == (3, 5, 2)
    run = jax.tree.map(lambda leaf: leaf[1], drawn)
    for k in (0, 4):
        b, misalignment = reduction.project(run.model(k))
        np.testing.assert_array_equal(found["x->h2->y"][1, k], b["x->h2"] * b["h2->y"])
        assert float(found.outside[1, k]) == max(misalignment.values())
    assert float(found.outside[:2].min()) > 0.05


def test_a_start_close_to_embed_is_read(system):
    data, reduction, _ = system
    noise = gdln.GatedNetwork.init(reduction.graph, init.normal(1.0), key=jax.random.key(3))
    for size, how in ((1e-4, "read"), (0.1, "projected")):
        net = jax.tree.map(lambda w, n, size=size: w + size * n, reduction.embed(0.3), noise)
        assert gdln.train(net, data, **STEPS).pathways(reduction).how == how


def test_the_data_set_of_a_sweep_is_a_batch_of_runs(system):
    data, reduction, _ = system

    swept = small_runs.swept(reduction, data)
    found = reduction.pathways(swept)
    assert found["x->h1->y"].shape == (2, 3, 5, 2)
    b, _ = reduction.project(swept)
    np.testing.assert_array_equal(found["x->h1->y"], b["x->h1"] * b["h1->y"])
    run = swept.isel(scale=1, seed=2)
    stacks = tuple(jnp.asarray(run[f"models.stacks.{k}"].values) for k in range(2))
    alone, _ = reduction.project(gdln.GatedNetwork.from_stacks(reduction.graph, stacks))
    np.testing.assert_array_equal(b["h2->y"][1, 2], alone["h2->y"])
    # Networks at one time are projected, but are no curves.
    last = swept[["final.stacks.0", "final.stacks.1"]]
    b_last, shares = reduction.project(last)
    assert b_last["x->h1"].shape == (2, 3, 2)
    assert shares["x->h1"].shape == (2, 3)
    np.testing.assert_array_equal(b_last["x->h1"], b["x->h1"][:, :, -1])
    with pytest.raises(ValueError, match=r"no times 'ts'"):
        reduction.pathways(swept[["models.stacks.0", "models.stacks.1"]])
    with pytest.raises(ValueError, match="at one time each"):
        reduction.pathways(swept[["ts", "final.stacks.0", "final.stacks.1"]])
    with pytest.raises(ValueError, match=r"several networks: 'a\.', 'b\.'"):
        reduction.project(
            last.rename({f"final.stacks.{k}": f"a.stacks.{k}" for k in (0, 1)}).assign(
                {f"b.stacks.{k}": last[f"final.stacks.{k}"] for k in (0, 1)}
            )
        )
    with pytest.raises(ValueError, match=r"no weights of this graph .*'losses'"):
        reduction.project(swept[["losses"]])


def test_a_run_that_was_written_is_read_again(system, runs):
    _, reduction, _ = system
    found, known = reduction.pathways(runs["flow"].to_xarray()), runs["flow"].pathways(reduction)
    np.testing.assert_array_equal(found.strengths, known.strengths)
    np.testing.assert_array_equal(found.ts, TS)


def test_solved_runs_in_data_sets(system, runs):
    _, reduction, _ = system
    known = runs["solve"].pathways()

    def one(key, start):
        del key
        return {"run": reduction.train(start, rule=gdln.rules.sgd(0.1), steps=8, save_every=2)}

    swept = gdln.sweep(one, {"start": [0.1, 0.3]}, key=jax.random.key(0), progress=False)
    found = reduction.pathways(swept)
    assert found.how == "solved"
    assert found.strengths.shape == (2, 2, 5, 2)
    np.testing.assert_allclose(found["x->h1->y"][:, 0, 0], [0.01, 0.09])
    written = reduction.pathways(runs["solve"].to_xarray())
    np.testing.assert_array_equal(written.strengths, known.strengths)
    np.testing.assert_array_equal(written.ts, known.ts)


def test_runs_that_failed_are_nan_and_spoil_no_other(system, drawn):
    assert drawn.status.tolist() == [0, 0, 1]
    for form in system[1:]:
        found = drawn.pathways(form)
        assert np.isfinite(found.strengths[:2]).all()
        assert np.isfinite(found.strengths[2, :, 0]).all()
        assert np.isnan(found.strengths[2, :, -1]).all()


# ---------------------------------------------------------------- project
@pytest.mark.parametrize("form", [1, 2])
def test_project_takes_runs_and_stacks(system, drawn, form):
    reduction = system[form]
    b, shares = reduction.project(drawn)
    again, _ = reduction.project(drawn.models)
    one, share = reduction.project(jax.tree.map(lambda leaf: leaf[1, 3], drawn.models))
    for name, value in b.items():
        np.testing.assert_array_equal(value, again[name])
        np.testing.assert_array_equal(value[1, 3], one[name])
        assert shares[name][1, 3] == share[name]
    assert isinstance(share["x->h1"], float)


@pytest.mark.parametrize("kind", ["flow", "solve", "quotient", "coupled"])
def test_networks_of_a_run(system, runs, kind):
    _, reduction, coupled = system
    found = (coupled if kind == "coupled" else reduction).networks(runs[kind])
    for name, known in runs["flow"].models.weights.items():
        np.testing.assert_allclose(found.weights[name], known, atol=1e-8)


def test_paths_with_parallel_edges_and_of_unequal_length():
    graph = gdln.Graph(
        {"x": 2, "h": 2, "y": 2}, [("x", "h", "a"), ("x", "h", "b"), ("h", "y"), ("x", "y")]
    )
    b = gdln.ModeStrengths.make(graph, 1, {"a": 0.1, "b": -0.2, "h->y": 0.3, "x->y": 0.5})
    over_time = gdln.ModeStrengths(graph, tuple(stack[None] for stack in b.stacks))
    zero = jnp.zeros(1)
    run = gdln.ReducedTrajectory(ts=zero, losses=zero, status=jnp.array(0), stats={}, b=over_time)
    found = run.pathways(by="path")
    assert list(found) == ["a, h->y", "b, h->y", "x->y"]
    np.testing.assert_allclose(found.strengths[:, 0, 0], [0.03, -0.06, 0.5])
    routes = run.pathways(by="route")
    np.testing.assert_allclose(routes["x", "y"], [[0.47]])


def test_very_many_paths_are_summed_and_not_listed(runs, monkeypatch):
    monkeypatch.setattr("gdln_jax._network.pathways.MOST_PATHS", 1)
    with pytest.raises(ValueError, match=r"2 paths; pass by='route'"):
        runs["solve"].pathways()
    assert runs["solve"].pathways(by="route").strengths.shape == (1, 5, 2)


def test_pathways_become_a_data_set(system, drawn):
    _, reduction, _ = system
    found = drawn.pathways(reduction)
    data = found.to_xarray()
    assert data["strengths"].dims == ("batch_0", "path", "time", "mode")
    assert data["time"].attrs["units"] == "steps"
    assert (data.attrs["how"], data.attrs["kind"]) == ("projected", "Pathways")
    chosen = data["strengths"].sel(path="x->h2->y", mode="mode 2")
    np.testing.assert_array_equal(chosen, found["x->h2->y"][..., 1])
    assert data["outside"].dims == ("batch_0", "time")


def test_pathways_of_a_solved_run_are_compiled_and_differentiated(runs):
    run = runs["solve"]

    def total(b, by):
        return jnp.sum(eqx.tree_at(lambda r: r.b, run, b).pathways(by=by).strengths)

    for by in ("path", "route"):
        slope = jax.jit(jax.grad(total), static_argnames="by")(run.b, by=by)
        np.testing.assert_allclose(slope["h1->y"], run.b["x->h1"], rtol=1e-12)


# ---------------------------------------------------------------- refusals
def test_what_cannot_be_read(system, runs, drawn):
    data, reduction, _ = system
    small = gdln.train(reduction.embed(0.3), data, **STEPS, keep_models=False)
    for read in (reduction.project, reduction.pathways):
        with pytest.raises(ValueError, match="models of this run were not kept"):
            read(small)
    other = gdln.reduce(
        gdln.Graph.chain([2, 2, 2]), gdln.GatedData({"x": np.eye(2)}, {"y": np.eye(2)})
    )
    for run in (runs["flow"], runs["solve"], runs["quotient"]):
        for read in (other.pathways, other.networks):
            with pytest.raises(ValueError, match="another graph"):
                read(run)
    with pytest.raises(ValueError, match=r"by is 'mode'; it must be one of 'path', 'route'"):
        runs["flow"].pathways(reduction, by="mode")
    with pytest.raises(KeyError, match=r"no pathway is called 'x->h3->y' \(did you mean"):
        runs["solve"].pathways()["x->h3->y"]
    with pytest.raises(ValueError, match=r"use reduction\.read\(run\.models\)"):
        eqx.filter_jit(reduction.pathways)(runs["flow"])
