"""What runs return: products along paths, xarray, one way to fail, strengths of a network."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

import gdln_jax as gdln
from gdln_jax import init, tasks

TS = np.array([0.0, 1.0, 3.0])
PATH = ["x->h1", "h1->y"]


@pytest.fixture(scope="module")
def hierarchy():
    task = tasks.hierarchy(width=8)
    return task, gdln.reduce(task.graph, task.data)


@pytest.fixture(scope="module")
def runs(hierarchy):
    """One run of each kind, all from the same start."""
    task, reduction = hierarchy
    net = reduction.embed(0.1)
    tree = gdln.reduce(task.graph, task.data, on_inexact="coupled", tol=1e-30)
    assert tree.coupled
    return {
        "flow": gdln.gradient_flow(net, task.data, TS, keep_models=True),
        "train": gdln.train(net, task.data, optimizer=optax.sgd(0.05), steps=20),
        "reduced": reduction.solve(0.1, TS),
        "coupled": tree.solve(0.1, TS),
        "quotient": reduction.quotient(0.1).solve(TS),
    }


def test_products_along_a_path_agree_in_all_forms(hierarchy, runs):
    _, reduction = hierarchy
    (u, _), (_, v) = reduction.frames["h1->y"], reduction.frames["x->h1"]
    full = runs["flow"].product(PATH)
    assert full.shape == (3, *(reduction.graph.nodes[n] for n in ("y", "x")))
    a = runs["reduced"].product(PATH)
    np.testing.assert_allclose(jnp.einsum("tm,ym,xm->tyx", a, u, v), full, atol=1e-8)
    np.testing.assert_allclose(runs["quotient"].product(PATH), a, atol=1e-8)
    matrices = runs["coupled"].product(PATH)
    modes = a.shape[-1]
    np.testing.assert_allclose(jnp.diagonal(matrices, axis1=-2, axis2=-1)[:, :modes], a, atol=1e-8)
    np.testing.assert_allclose(
        runs["flow"].product(["h1->y"]), runs["flow"].models.weights["h1->y"]
    )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("x->h1", r"path is 'x->h1'; pass the names of its edges"),
        ([], r"pass the names of its edges in order"),
        (["h1->y", "x->h1"], r"'h1->y' ends at 'y', and 'x->h1' begins at 'x'"),
    ],
)
def test_what_is_no_path(runs, path, words):
    with pytest.raises(ValueError, match=words):
        runs["reduced"].product(path)


def test_products_need_models(hierarchy):
    task, reduction = hierarchy
    run = gdln.train(
        reduction.embed(0.1), task.data, optimizer=optax.sgd(0.05), steps=20, keep_models=False
    )
    with pytest.raises(ValueError, match="not kept"):
        run.product(PATH)


@pytest.mark.parametrize("kind", ["flow", "train", "reduced", "coupled", "quotient"])
def test_runs_become_data_sets_and_files(runs, kind, tmp_path):
    run = runs[kind]
    run.to_xarray().to_netcdf(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc") as data:
        np.testing.assert_array_equal(data["losses"], run.losses)
        np.testing.assert_array_equal(data["time"], run.ts)
        assert data["time"].attrs["units"] == (
            "steps" if kind == "train" else "time, in the units of tau"
        )
        assert (int(data["status"]), data.attrs["gdln_jax"]) == (0, gdln.__version__)
        if kind in ("flow", "train"):
            weights = data["weights[x->h1]"]
            assert weights.dims == ("time", "unit of h1", "unit of x")
            np.testing.assert_array_equal(weights, run.models.weights["x->h1"])
        elif kind == "quotient":
            np.testing.assert_array_equal(data["x"], run.x)
        else:
            np.testing.assert_array_equal(data["b"].sel(edge="h1->y"), run.b["h1->y"])
        if kind in ("reduced", "quotient"):
            assert data["mode"].values.tolist() == [1, 2, 3, 4]


def test_names_of_data_label_a_run(hierarchy, runs):
    task, _ = hierarchy
    features = [f"feature {k}" for k in range(7)]
    data = task.data.with_names({"y": (features, None)})
    shown = runs["flow"].to_xarray(data)
    assert shown["unit of y"].values.tolist() == features
    assert "unit of y" not in runs["flow"].to_xarray().coords
    unkept = gdln.gradient_flow(runs["flow"].final, task.data, TS, keep_models=False)
    with pytest.raises(ValueError, match=r"7 names for 'unit of y', of which this run has 0"):
        unkept.to_xarray(data)


@pytest.mark.parametrize("kind", ["reduced", "coupled", "quotient"])
def test_shapes_of_strengths_print(runs, kind):
    b = runs[kind].b
    shapes = jax.tree.map(np.shape, b)
    assert repr(shapes) == f"{type(b).__name__}({tuple(stack.shape for stack in b.stacks)})"


def test_a_batch_and_what_was_measured(hierarchy):
    task, reduction = hierarchy
    starts = jnp.array([0.1, 0.2])
    run = jax.vmap(
        lambda b: gdln.train(
            reduction.embed(b),
            task.data,
            optimizer=optax.sgd(0.05),
            steps=20,
            measure=lambda net: {"first": net.weights["x->h1"]},
        )
    )(starts)
    data = run.to_xarray()
    assert data["losses"].dims == ("batch_0", "time")
    assert data["measured['first']"].shape == run.measured["first"].shape
    assert data["measured['first']"].dims[:2] == ("batch_0", "time")


def test_a_run_under_jit_is_no_data_set(hierarchy):
    _, reduction = hierarchy

    @jax.jit
    def last(b):
        return reduction.solve(b, TS).to_xarray()

    with pytest.raises(ValueError, match="cannot run under jit"):
        last(0.1)


def _itself(_, y, __):
    return y


class TestSolveError:
    """One exception for all that does not get to its end; it holds what there is."""

    def test_training_that_diverges(self, hierarchy):
        task, reduction = hierarchy
        options = {"optimizer": optax.sgd(50.0), "steps": 200}
        with pytest.raises(gdln.SolveError, match="no longer finite at step") as caught:
            gdln.train(reduction.embed(0.1), task.data, **options)
        assert isinstance(caught.value, RuntimeError)
        quiet = gdln.train(reduction.embed(0.1), task.data, **options, throw=False)
        assert gdln.STATUS[int(quiet.status)].startswith("diverged")
        np.testing.assert_array_equal(caught.value.solution.losses, quiet.losses)

    def test_solvers_that_give_up(self, hierarchy):
        task, reduction = hierarchy
        net, ts = reduction.embed(0.1), np.array([0.0, 100.0])
        quotient = reduction.quotient(0.1)
        for call in (
            lambda: gdln.gradient_flow(net, task.data, ts, max_steps=3),
            lambda: reduction.solve(0.1, ts, max_steps=3),
            lambda: quotient.solve(ts, max_steps=3),
        ):
            with pytest.raises(gdln.SolveError, match="max_steps = 3") as caught:
                call()
            solution = caught.value.solution
            assert int(solution.status) == 2
            assert np.isnan(solution.losses[-1])
            assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(solution.final))
        with pytest.raises(gdln.SolveError, match="max_steps = 3"):
            gdln.time_to(0.5, ode=_itself, y0=1e-9, measure=_itself, t1=50.0, max_steps=3)


class TestClassStrengths:
    """The strengths of a quotient, by edge, without a copy per edge."""

    def test_it_reads_by_edge_and_starts_again(self, runs, hierarchy):
        _, reduction = hierarchy
        quotient, run = reduction.quotient(0.1), runs["quotient"]
        for name in reduction.graph.edge_index:
            np.testing.assert_array_equal(run.b[name], quotient.expand(run.x)[name])
            np.testing.assert_allclose(run.b[name], runs["reduced"].b[name], atol=1e-9)
        assert sum(leaf.size for leaf in jax.tree.leaves(run.b)) == run.x.size
        np.testing.assert_array_equal(run.final["x->h1"], run.b["x->h1"][-1])
        again = reduction.solve(run.final, TS)
        np.testing.assert_array_equal(again.b["x->h1"][0], run.x[-1][quotient.labels[0]])

    def test_other_solutions_have_no_classes(self, runs):
        with pytest.raises(AttributeError, match="x holds strengths by class"):
            _ = runs["reduced"].x


class TestRead:
    """`reduction.read`: strengths in the frames of `embed`, under all transformations."""

    def test_it_inverts_embed(self, hierarchy):
        _, reduction = hierarchy
        b = {"x->h1": jnp.array([0.3, -0.2, 0.1, 0.4]), "h1->y": 0.5}
        read, outside = reduction.read(reduction.embed(b))
        start = reduction.strengths_of(b)
        for name in start:
            np.testing.assert_allclose(read[name], start[name], atol=1e-12)
            assert float(outside[name]) < 1e-14

    def test_a_run_of_the_full_network_is_the_reduced_run(self, runs, hierarchy):
        _, reduction = hierarchy
        b, outside = reduction.read(runs["flow"].models)
        for name in b:
            np.testing.assert_allclose(b[name], runs["reduced"].b[name], atol=1e-8)
            assert float(jnp.max(outside[name])) < 1e-7

    def test_jit_vmap_and_grad(self, runs, hierarchy):
        _, reduction = hierarchy
        models = runs["flow"].models
        whole, shares = reduction.read(models)
        mapped, their_shares = jax.jit(jax.vmap(reduction.read))(models)
        np.testing.assert_allclose(mapped["h1->y"], whole["h1->y"], rtol=1e-12)
        np.testing.assert_allclose(their_shares["h1->y"], shares["h1->y"], atol=1e-12)
        net = reduction.embed(0.2)

        def size(net):
            b, outside = reduction.read(net)
            return jnp.sum(b["x->h1"] ** 2) + sum(outside.values())

        gradient = eqx.filter_grad(size)(net)
        b, _ = reduction.read(gradient)
        np.testing.assert_allclose(
            b["x->h1"], 0.4 * (reduction.read(net)[0]["x->h1"] > 0), atol=1e-9
        )

    def test_what_lies_outside_is_measured(self, hierarchy):
        _, reduction = hierarchy
        net = gdln.GatedNetwork.init(reduction.graph, init.normal(0.1), key=jax.random.key(0))
        b, outside = reduction.read(net)
        w = net.weights["x->h1"]
        u, v = reduction.frames["x->h1"]
        rest = w - (u * b["x->h1"]) @ v.T
        np.testing.assert_allclose(
            outside["x->h1"], np.linalg.norm(rest) / np.linalg.norm(w), rtol=1e-12
        )
        assert float(outside["x->h1"]) > 0.1

    def test_matrices_of_a_coupled_reduction(self):
        task = tasks.semantic_contexts(3)
        reduction = gdln.reduce(task.graph, task.data, on_inexact="coupled")
        assert reduction.coupled
        start = reduction.strengths_of(0.2)
        read, outside = reduction.read(reduction.embed(start))
        for name in read:
            np.testing.assert_allclose(
                jnp.diagonal(read[name])[: reduction.modes], start[name], atol=1e-12
            )
            assert float(outside[name]) < 1e-12

    def test_a_network_of_another_graph(self, hierarchy):
        _, reduction = hierarchy
        other = tasks.routing(2, 1).graph
        net = gdln.GatedNetwork.init(other, init.normal(0.1), key=jax.random.key(0))
        with pytest.raises(ValueError, match="another graph"):
            reduction.read(net)
