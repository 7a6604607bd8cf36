"""A time constant per edge: full flow, reduction, coupled form and quotient follow one another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gdln_jax as gdln
from gdln_jax import init, measures, tasks

TS = np.array([0.0, 0.5, 1.5])
TAU = {"x->h1": 0.5, "h1->y": 3.0}
B0 = 0.2


@pytest.fixture(scope="module")
def hierarchy():
    task = tasks.hierarchy(width=6)
    return task, gdln.reduce(task.graph, task.data)


def test_flow_and_reduction_agree(hierarchy):
    task, reduction = hierarchy
    full = gdln.gradient_flow(reduction.embed(B0), task.data, TS, tau=TAU, keep_models=True)
    small = reduction.solve(B0, TS, tau=TAU)
    read, outside = reduction.read(full.models)
    for name in read:
        np.testing.assert_allclose(read[name], small.b[name], atol=1e-8)
        assert float(jnp.max(outside[name])) < 1e-7
    alike = reduction.solve(B0, TS)
    assert float(jnp.max(jnp.abs(small.b["x->h1"] - alike.b["x->h1"]))) > 0.1


def test_what_is_conserved(hierarchy):
    task, _ = hierarchy
    net = gdln.GatedNetwork.init(task.graph, init.normal(0.3), key=jax.random.key(0))
    run = gdln.gradient_flow(net, task.data, TS, tau=TAU, keep_models=True)
    kept = [measures.conserved(run.model(k), "h1", tau=TAU) for k in (0, -1)]
    plain = [measures.conserved(run.model(k), "h1") for k in (0, -1)]
    np.testing.assert_allclose(kept[1], kept[0], atol=1e-8)
    assert float(jnp.max(jnp.abs(plain[1] - plain[0]))) > 0.1


def test_a_common_time_constant_is_the_clock(hierarchy):
    _, reduction = hierarchy
    by_edge = reduction.solve(B0, TS, tau=dict.fromkeys(TAU, 2.0))
    np.testing.assert_allclose(by_edge.losses, reduction.solve(B0, TS, tau=2.0).losses, rtol=1e-9)


def test_the_quotient_keeps_time_constants_apart():
    task = tasks.routing(3, 2, width=4)
    reduction = gdln.reduce(task.graph, task.data)
    names = list(reduction.graph.edge_index)
    slow = [name for name in names if name.endswith("->h1")][:1]
    tau = {name: 2.0 if name in slow else 1.0 for name in names}
    plain, split = reduction.quotient(0.3), reduction.quotient(0.3, tau=tau)
    assert len(split.classes) > len(plain.classes)
    run = split.solve(TS, tau=1.5)
    full = reduction.solve(0.3, TS, tau={name: 1.5 * t for name, t in tau.items()})
    for name in (*slow, names[1], names[-1]):
        np.testing.assert_allclose(run.b[name], full.b[name], atol=1e-9)


def test_matrices_of_a_coupled_reduction(hierarchy):
    task, reduction = hierarchy
    coupled = gdln.reduce(task.graph, task.data, on_inexact="coupled", tol=1e-30)
    assert coupled.coupled
    losses = coupled.solve(B0, TS, tau=TAU).losses
    np.testing.assert_allclose(losses, reduction.solve(B0, TS, tau=TAU).losses, rtol=1e-8)


@pytest.mark.parametrize(
    ("tau", "words"),
    [
        ({"x->h1": 1.0}, "tau lacks edge 'h1->y'"),
        ({**TAU, "x": 1.0}, "'x', which is not an edge of the graph"),
        ({**TAU, "x->h1": 0.0}, r"tau\['x->h1'\]"),
    ],
)
def test_refusals(hierarchy, tau, words):
    task, reduction = hierarchy
    with pytest.raises(ValueError, match=words):
        reduction.solve(B0, TS, tau=tau)
    with pytest.raises(ValueError, match=words):
        gdln.gradient_flow(reduction.embed(B0), task.data, TS, tau=tau)


def test_a_model_without_edges_has_one_time_constant(hierarchy):
    task, _ = hierarchy
    relu = gdln.ReLUNetwork.init([4, 3, 7], std=0.1, key=jax.random.key(0))
    with pytest.raises(ValueError, match="needs a GatedNetwork with edges"):
        gdln.gradient_flow(relu, task.data, TS, tau=TAU)
