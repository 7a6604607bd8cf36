"""Path statistics, and the gradient as a sum over paths, against autodiff and single examples."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_systems import random_arrays, random_system, random_weights
from reduction_parts import loss as modes

from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    ModeStrengths,
    gradient_flow,
    mse,
    path_statistics,
    path_sum_gradient,
    reduce,
    tasks,
)

DRAFT = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.mark.parametrize("batch", range(5))
def test_the_sum_over_paths_is_the_gradient(batch):
    # N Eq. 3-4 with E1, E2: sum_{p through e} W^T [Sigma^yx(p) - sum_j W_j Sigma^x(j,p)] W^T
    # = -dL/dW_e, on 50 random graphs, to 1e-12 relative.
    systems = [random_system(100 + 10 * batch + i) for i in range(10)]
    networks = [GatedNetwork(graph, weights) for graph, _, weights in systems]
    data = [d for _, d, _ in systems]

    def gradients(networks, data):
        return [jax.grad(mse)(n, d) for n, d in zip(networks, data, strict=True)]

    # One program for all ten graphs, compiled without optimisation: it runs once.
    program = jax.jit(gradients).lower(networks, data).compile(compiler_options=DRAFT)
    for (graph, d, _), network, by_autodiff in zip(
        systems, networks, program(networks, data), strict=True
    ):
        by_paths = path_sum_gradient(network, path_statistics(graph, d))
        assert list(by_paths) == [e.name for e in graph.edges]
        scale = np.sqrt(sum(np.sum(np.square(g)) for g in by_paths.values()))
        assert scale > 0
        gap = sum(np.sum(np.square(g + by_autodiff.weights[k])) for k, g in by_paths.items())
        assert np.sqrt(gap) < 1e-12 * scale


@pytest.mark.parametrize("seed", [1, 5])
def test_second_moments_by_brute_force(seed):
    # Sigma^yx(p) = < g_p y x^T >, Sigma^x(j, p) = < g_j x_j x_p^T g_p >, example by example;
    # g_p leaves out the source node (E2), which has no gate.
    graph, data, _ = random_system(seed, n=5)
    stats = path_statistics(graph, data)
    assert stats.paths == tuple(graph.paths())
    edge = {e.name: e for e in graph.edges}

    def ends(path):
        return edge[path[0]].source, edge[path[-1]].target

    def gate(path, m):
        value = 1.0
        for name in path:
            value *= float(data.edge_gates[name][m]) if name in data.edge_gates else 1.0
            node = edge[name].target
            value *= float(data.node_gates[node][m]) if node in data.node_gates else 1.0
        return value

    x = {k: np.asarray(v) for k, v in data.inputs.items()}
    y = {k: np.asarray(v) for k, v in data.targets.items()}
    p_m = np.asarray(data.weights)
    for p in stats.paths:
        source, target = ends(p)
        wanted = sum(p_m[m] * gate(p, m) * np.outer(y[target][m], x[source][m]) for m in range(5))
        np.testing.assert_allclose(stats.yx[p], wanted, rtol=0, atol=1e-12)
    pairs = [(j, p) for j in stats.paths for p in stats.paths if ends(j)[1] == ends(p)[1]]
    assert set(stats.x) == set(pairs)
    for j, p in pairs:
        wanted = sum(
            p_m[m] * gate(j, m) * gate(p, m) * np.outer(x[ends(j)[0]][m], x[ends(p)[0]][m])
            for m in range(5)
        )
        np.testing.assert_allclose(stats.x[j, p], wanted, rtol=0, atol=1e-12)
        np.testing.assert_allclose(stats.x[p, j].T, stats.x[j, p], rtol=0, atol=1e-12)


def test_too_many_paths_are_refused_with_the_counts_before_any_work():
    layers = 60
    graph = Graph(
        {f"n{i}": 2 for i in range(layers + 1)},
        [(f"n{i}", f"n{i + 1}", f"{side}{i}") for i in range(layers) for side in "ab"],
    )
    data = GatedData({"n0": np.ones((3, 2))}, {f"n{layers}": np.ones((3, 2))})
    with pytest.raises(
        ValueError, match=rf"{2**60} paths and {2**120} pairs .* max_pairs = 250000"
    ):
        path_statistics(graph, data)
    # The network itself needs no paths: each edge 1/2, two edges in parallel, so the map is 1.
    network = GatedNetwork(graph, {e.name: np.eye(2) / 2 for e in graph.edges})
    assert float(mse(network, data)) == pytest.approx(0)


def test_wide_inputs_are_refused_with_the_memory_before_any_work():
    edges = [(f"x{i}", "y") for i in range(400)]
    graph = Graph({**{f"x{i}": 784 for i in range(400)}, "y": 1}, edges)
    x = np.ones((1, 784), np.float32)
    data = GatedData({f"x{i}": x for i in range(400)}, {"y": x[:, :1]})
    with pytest.raises(ValueError, match=r"160000 pairs .* hold 98344960000 numbers, 366\.4 GiB"):
        path_statistics(graph, data)


def test_statistics_of_another_graph_are_refused():
    graph, data, _ = random_system(0)
    other = random_system(1)
    stats = path_statistics(graph, data)
    with pytest.raises(ValueError, match="another graph"):
        path_sum_gradient(GatedNetwork(other[0], other[2]), stats)
    assert f"{graph.num_paths} paths" in repr(stats)


GRAPH = Graph(
    {"x": 3, "z": 2, "a": 2, "b": 3, "c": 2, "y": 2},
    [
        ("x", "a"), ("z", "a"), ("x", "b"), ("a", "b", "ab"), ("a", "b", "ab again"),
        ("b", "c"), ("a", "c"), ("c", "y"), ("x", "y"), ("b", "y"),
    ],
)  # fmt: skip


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
def test_the_flow_conserves_at_every_hidden_node(seed):
    # d/dt [ sum_{e into v} W_e W_e^T - sum_{e out of v} W_e^T W_e ] = 0 for any gates (E8)
    rng = np.random.default_rng(seed)
    data = GatedData(**random_arrays(GRAPH, rng, 6, gated=1))
    network = GatedNetwork(GRAPH, {k: 0.7 * w for k, w in random_weights(GRAPH, rng).items()})
    # As traced data, so that one program serves all examples.
    final = _flow(network, data)
    moved = 0.0
    for node in GRAPH.hidden:
        before, after = (
            sum(w.weights[e.name] @ w.weights[e.name].T for e in GRAPH.incoming[node])
            - sum(w.weights[e.name].T @ w.weights[e.name] for e in GRAPH.outgoing[node])
            for w in (network, final)
        )
        size = sum(jnp.sum(jnp.square(final.weights[e.name])) for e in GRAPH.edges)
        # The flow's relative tolerance is 1e-10 per step, some hundred steps.
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-8 * float(size))
        moved += sum(
            float(jnp.linalg.norm(final.weights[e.name] - network.weights[e.name]))
            for e in GRAPH.incoming[node]
        )
    assume(moved > 1e-3)  # else the gates have closed every way


@jax.jit
def _flow(network, data):
    return gradient_flow(network, data, [0.0, 3.0], keep_models=False).final


def test_sums_over_many_routes_have_the_derivatives_of_the_squares():
    """288 irregular routes between 24 inputs and 24 outputs, of unequal weight, target and gate."""
    task = tasks.routing(24, 12, pattern="rows_only", key=jax.random.key(0), width=4, compact=True)
    data = reduce(task.graph, task.data).mode_data
    (k,) = data.dense  # only the bundle into the outputs
    rng = np.random.default_rng(0)
    table, stage = data.outputs[-1], data.stages[k]
    assert table is not None
    assert stage is not None
    assert stage.gate is not None  # outputs have unequal numbers of routes, so that some are padded
    data = eqx.tree_at(
        lambda d: (d.outputs[-1].target, d.outputs[-1].weight, d.stages[k].gate),
        data,
        (
            table.target * rng.uniform(0.5, 1.5, table.target.shape),
            table.weight * rng.uniform(0.5, 1.5, table.weight.shape),
            stage.gate * rng.uniform(0.5, 1.5, stage.gate.shape),
        ),
    )
    b = ModeStrengths.from_flat(data.graph, rng.uniform(0.5, 1.5, (49, 4)))

    def loss(values, target, prepared):
        given = eqx.tree_at(lambda d: d.outputs[-1].target, data, target)
        return modes.mode_loss(values, modes.with_products(given) if prepared else given)

    def derivatives(prepared):
        def sides(values, target):
            return jax.value_and_grad(loss, (0, 1))(values, target, prepared)

        tangent = jax.tree.map(jnp.cos, (b, data.outputs[-1].target))
        return jax.jvp(sides, (b, data.outputs[-1].target), tangent)

    program = jax.jit(derivatives, static_argnums=0)
    found, known = program(True), program(False)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(known), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12 * np.abs(other).max())


def test_sums_over_many_routes_do_not_cancel_in_the_loss():
    """Beside the best strengths the loss is 1e-17 of that of no network."""
    task = tasks.routing(16, 16, width=4, compact=True)
    reduction = reduce(task.graph, task.data)
    data = modes.with_products(reduction.mode_data)
    assert data.products is not None
    group = next(iter(reduction.strengths))
    best = np.cbrt(reduction.strengths[group] / reduction.variances[group, group])
    b = reduction.strengths_of(best * (1 + 1e-9))
    found, known = (float(jax.jit(modes.mode_loss)(b, d)) for d in (data, reduction.mode_data))
    np.testing.assert_allclose(found, known, rtol=1e-6)
    assert 0 < found < 1e-15 * reduction.loss(0.0)
