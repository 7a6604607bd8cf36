"""The exact small network behind a wide one (theory#width).

Wide networks are trained by plain NumPy (`width_systems`), small ones by that or by the package.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.integrate
import scipy.stats
import width_systems as ws

import gdln_jax as gdln
from gdln_jax.rules import InexactRuleError

mse = jax.jit(gdln.mse)  # one program for each shape, not a hundred
REFERENCE = Path(__file__).parent / "reference_width.json"


@pytest.fixture(scope="module")
def known():
    """Losses of wide networks and sizes, computed independently of this package."""
    return json.loads(REFERENCE.read_text(encoding="utf-8"))


def case(known, name):
    return next(c for c in known["cases"] if c["name"] == name)


# ---------------------------------------------------------------- reference values
def two_layers():
    rng, graph = np.random.default_rng(21), gdln.Graph.chain([4, 64, 7])
    weights = {"x->h1": 0.5 * rng.standard_normal((64, 4))}
    weights["h1->y"] = 0.125 * rng.standard_normal((7, 64))
    return ws.System(graph, weights, ws.hierarchy())


def gated(setup, seed):
    graph = gdln.Graph(setup["nodes"], [(s, t, name) for name, s, t in setup["edges"]])
    rng = np.random.default_rng(22)
    x0, x1, y0, y1 = (rng.standard_normal((8, k)) for k in (3, 2, 2, 3))
    data = gdln.GatedData(
        {"x0": x0, "x1": x1}, {"y0": y0, "y1": y1}, setup["node_gates"], setup["edge_gates"]
    )
    if seed == 22:
        weights = {e.name: ws.orthogonal(rng, *graph.shape(e.name), 0.6) for e in graph.edges}
        return ws.System(graph, weights, data)
    rng = np.random.default_rng(seed)
    frames = {k: ws.orthogonal(rng, 40, 40) for k in "abc"}
    weights = {
        e.name: 0.5 * frames[e.target] @ frames[e.source].T
        if {e.source, e.target} <= {*"abc"}
        else 0.1 * rng.standard_normal(graph.shape(e.name))
        for e in graph.edges
    }
    return ws.System(graph, weights, data)


def biases(setup):
    rng = np.random.default_rng(24)
    graph = gdln.Graph(setup["nodes"], [(s, t, name) for name, s, t in setup["edges"]])
    x, y = rng.standard_normal((20, 3)) @ rng.standard_normal((3, 6)), rng.standard_normal((20, 3))
    weights = {
        "x->h1": ws.orthogonal(rng, 40, 6, 0.5),
        "one->h1": np.zeros((40, 1)),
        "h1->h2": ws.orthogonal(rng, 40, 40, 0.5),
        "one->h2": 0.2 * rng.standard_normal((40, 1)),
        "h2->y": ws.orthogonal(rng, 3, 40, 0.5),
        "one->y": np.zeros((3, 1)),
    }
    return ws.System(graph, weights, gdln.GatedData({"x": x, "one": np.ones((20, 1))}, {"y": y}))


def wide_targets():
    rng = np.random.default_rng(25)
    x = rng.standard_normal((12, 3))
    y = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 12))
    graph = gdln.Graph.chain([3, 40, 40, 12])
    weights = {e.name: ws.orthogonal(rng, *graph.shape(e.name), 0.5) for e in graph.edges}
    return ws.System(graph, weights, gdln.GatedData({"x": x}, {"y": y}))


CASES = [
    "chain 4-32-32-7, orthogonal",
    "chain 4-64-7, normal",
    "gated forest",
    "framed hidden cycle",
    "biases and low-rank inputs",
    "wide targets, complete outputs",
    "wide targets, span of targets",
]


def built(known, name):
    setup = case(known, name)["setup"]
    return {
        "chain 4-32-32-7, orthogonal": lambda: ws.chain([4, 32, 32, 7], 20),
        "chain 4-64-7, normal": two_layers,
        "gated forest": lambda: gated(setup, 22),
        "framed hidden cycle": lambda: gated(setup, 23),
        "biases and low-rank inputs": lambda: biases(setup),
    }.get(name, wide_targets)()


@pytest.mark.parametrize("name", CASES)
def test_reference_sizes_and_losses(known, name):
    here, system = case(known, name), built(known, name)
    r = gdln.reduce_width(system.net, system.data, outputs=here["outputs"])
    assert r.closed
    assert r.sizes == here["sizes"] == r.expected
    assert r.leak < 1e-12
    for rule, values in here["losses_of_the_wide_network"].items():
        losses, _ = ws.descend(*ws.small_arrays(r), 60, ws.RULES[rule])
        np.testing.assert_allclose(losses[values["steps"]], values["L"], rtol=2e-9, atol=1e-12)


def test_reference_sizes_of_semi_orthogonal_maps(known):
    table = case(known, "sizes for semi-orthogonal maps of unequal width (complete outputs)")
    for row in table["table"]:
        system = ws.chain(row["widths"], 27, 0.7)
        r = gdln.reduce_width(system.net, system.data)
        sizes = [r.sizes[name] for name in r.net.graph.hidden]
        assert sizes == row["hidden_sizes"]
        assert all(r.expected[k] in (None, r.sizes[k]) for k in r.sizes)


def test_reference_factors_of_the_rest(known):
    values = case(known, "factor of the untouched rest after 60 steps")["values"]
    system = ws.chain([4, 32, 32, 7], 20)
    r = gdln.reduce_width(system.net, system.data)
    decay = optax.add_decayed_weights
    rules = {
        "rate .1, decay .02": optax.chain(decay(0.02), optax.sgd(0.1)),
        "momentum .9, rate .02, decoupled decay .01": optax.chain(
            optax.trace(0.9), decay(0.01), optax.sgd(0.02)
        ),
        "momentum .9, rate .02, L2 .01 inside the gradient": optax.chain(
            decay(0.01), optax.sgd(0.02, 0.9)
        ),
    }
    for name, rule in rules.items():
        assert abs(r.rest_factor(rule, 60) - values[name]) < 1e-9
    assert abs(r.rest_factor(decay=0.02, t=6.0) - values["flow, decay .02, t = 6, tau = 1"]) < 1e-9

    def first_only(updates, state, params):
        leaves, structure = jax.tree.flatten(updates)
        return jax.tree.unflatten(structure, [leaves[0], *(0 * w for w in leaves[1:])]), state

    frozen = optax.GradientTransformation(lambda _: (), first_only)  # type: ignore[arg-type]
    by_edge = r.rest_factor(optax.chain(decay(0.02), frozen, optax.sgd(0.1)), 60)
    assert isinstance(by_edge, dict)
    assert by_edge["h1->h2"] == by_edge["h2->y"] == 1.0
    assert abs(by_edge["x->h1"] - values["rate .1, decay .02"]) < 1e-9


# ---------------------------------------------------------------- random graphs
@pytest.mark.slow
@pytest.mark.parametrize("framed", [False, True])
def test_random_gated_graphs(framed):
    rules = [
        (ws.gradient_descent(0.05), 1.0),
        (ws.momentum(0.02, decay=0.05), None),
        (ws.momentum(0.02, l2=0.01, nesterov=True), None),
    ]
    sizes = set()
    for seed in range(10):
        system = ws.random_dag(seed, framed)
        r = gdln.reduce_width(system.net, system.data)
        hidden = {k: r.sizes[k] for k in system.graph.hidden}
        assert hidden == ws.formula(system) == {k: r.expected[k] for k in hidden}
        assert r.leak < 1e-12
        sizes |= set(hidden.values())
        for update, factor in rules:
            rest = factor
            distance, wide, small = ws.gap(system, r, 60, update)
            assert distance < 1e-13
            if rest is None:
                one, memory = {"c": np.ones((1, 1))}, {}
                for _ in range(60):
                    one = update(one, {"c": np.zeros((1, 1))}, memory)
                rest = float(one["c"][0, 0])
                assert rest < 0.99
            back = ws.lifted(system, r, small, rest)
            for name, w in wide.items():
                assert np.abs(w - back[name]).max() < 1e-12 * np.abs(w).max()
    assert len(sizes) > 5


# ---------------------------------------------------------------- what else is exact
def test_two_layers_of_normal_weights_are_exact_at_any_width():
    # 64 units are among the reference values.
    system = ws.normal_chain([4, 2048, 7], 3, 0.5)
    r = gdln.reduce_width(system.net, system.data)
    assert r.sizes["h1"] == 11
    assert ws.gap(system, r, 60, ws.momentum(0.02, decay=0.01))[0] < 1e-13


def test_minibatches_and_other_losses_of_complete_outputs():
    system = ws.random_dag(2, framed=False)
    r = gdln.reduce_width(system.net, system.data)
    batches = np.random.default_rng(0).permutation(12).reshape(3, 4)
    for options in ({}, {"cross_entropy": True}):
        rule = ws.gradient_descent(0.05)
        assert ws.gap(system, r, 100, rule, batches=batches, **options)[0] < 1e-13


def test_span_of_compressed_targets():
    rng = np.random.default_rng(4)
    graph = gdln.Graph.chain([6, 64, 64, 20])
    weights = {e.name: ws.orthogonal(rng, *graph.shape(e.name), 0.5) for e in graph.edges}
    x = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 6))
    data = gdln.GatedData({"x": x}, {"y": rng.standard_normal((60, 20))})
    system = ws.System(graph, weights, data)
    noisy = gdln.reduce_width(system.net, data, outputs="span")
    small = gdln.reduce_width(system.net, data.compress(), outputs="span")
    assert [noisy.sizes[k] for k in ("h1", "h2", "y")] == [23, 23, 20]
    assert [small.sizes[k] for k in ("h1", "h2", "y")] == [9, 9, 6]
    assert noisy.expected == noisy.sizes
    assert small.expected == small.sizes
    # The compressed data have the moments of all examples, so the wide run is that of the data.
    assert ws.gap(system, small, 60, ws.gradient_descent(0.05))[0] < 1e-13


def skipping(gated_edge):
    """Eight one-hot items and a skip edge; `gated_edge` is open on two of them."""
    rng = np.random.default_rng(5)
    graph = gdln.Graph(
        {"x": 8, "h1": 32, "h2": 32, "y": 2}, [("x", "h1"), ("h1", "h2"), ("h2", "y"), ("x", "y")]
    )
    weights = {e.name: ws.orthogonal(rng, *graph.shape(e.name), 0.5) for e in graph.edges}
    gates = {gated_edge: np.array([1, 1, 0, 0, 0, 0, 0, 0])}
    data = gdln.GatedData({"x": np.eye(8)}, {"y": rng.standard_normal((8, 2))}, edge_gates=gates)
    return ws.System(graph, weights, data)


@pytest.mark.parametrize("gated_edge", ["x->h1", "h1->h2"])
def test_an_edge_open_on_few_examples_counts_these_only(gated_edge):
    system = skipping(gated_edge)
    r = gdln.reduce_width(system.net, system.data)
    assert r.sizes == {"x": 8, "h1": 4, "h2": 4, "y": 2} == r.expected
    assert ws.gap(system, r, 200, ws.gradient_descent(0.1))[0] < 1e-13


def test_a_zero_hidden_edge_joins_nothing():
    system = ws.chain([4, 32, 32, 7], 6)
    system.weights["h1->h2"][:] = 0
    r = gdln.reduce_width(system.net, system.data)
    assert r.sizes == {"x": 4, "h1": 4, "h2": 7, "y": 7} == r.expected
    assert ws.gap(system, r, 60, ws.gradient_descent(0.05))[0] < 1e-13


def test_single_precision_reduces_at_its_own_tolerance():
    system = ws.chain([4, 1024, 1024, 7], 7)
    single = {k: w.astype(np.float32) for k, w in system.weights.items()}
    data = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), system.data)
    r = gdln.reduce_width(gdln.GatedNetwork(system.graph, single), data)
    assert r.sizes == {"x": 4, "h1": 11, "h2": 11, "y": 7}
    assert r.net.stacks[0].dtype == np.float32
    small, _ = ws.descend(*ws.small_arrays(r), 10, ws.gradient_descent(0.05))
    wide, _ = ws.descend(
        single, ws.arrays(system.graph, data, np.float32), 10, ws.gradient_descent(0.05)
    )
    assert np.abs(small - wide).max() < 1e-6 * wide[0]


# ---------------------------------------------------------------- measures
@pytest.fixture(scope="module")
def forest(known):
    """The wide system, the small one, and the kernel of it in one program."""
    system = built(known, "gated forest")
    r = gdln.reduce_width(system.net, system.data)
    return system, r, jax.jit(lambda net: r.measure(gdln.measures.empirical_ntk, net))


@pytest.mark.slow
def test_tangent_kernel_and_gram_matrices_are_equal_where_they_are_followed(known, forest):
    system, r, measured = forest
    kernel = ws.kernel(system.weights, ws.arrays(system.graph, system.data))
    same = np.asarray(measured(r.net))
    np.testing.assert_allclose(same, kernel, rtol=0, atol=1e-13 * np.abs(kernel).max())
    here = case(known, "gated forest")
    assert abs(np.einsum("akak", same) - here["ntk_trace_at_start"]) < 1e-6
    h = ws.forward(*ws.small_arrays(r))["c"]
    np.testing.assert_allclose(h[0] @ h.T, here["gram_c_first_row"], atol=1e-9)


@pytest.mark.slow
def test_tangent_kernel_and_gram_matrices_are_equal_after_training(forest):
    system, r, measured = forest
    data = ws.arrays(system.graph, system.data)
    _, wide = ws.descend(system.weights, data, 60, ws.gradient_descent(0.05))
    small = r.train(optimizer=optax.sgd(0.05), steps=60, keep_models=False).final
    kernel = ws.kernel(wide, data)
    np.testing.assert_allclose(measured(small), kernel, rtol=0, atol=1e-12 * np.abs(kernel).max())
    fn = gdln.measures.representational_similarity
    h = ws.forward(wide, data)["c"]
    gram = h @ h.T
    shown = np.asarray(r.measure(fn, small, node="c"))
    np.testing.assert_allclose(shown, gram, rtol=0, atol=1e-12 * np.abs(gram).max())


def test_activities_without_a_way_out_are_not_followed_and_masked():
    system = skipping("h1->h2")
    r = gdln.reduce_width(system.net, system.data)
    assert list(r.followed("h1")) == [True, True, *[False] * 6]
    fn = gdln.measures.representational_similarity
    wide = np.asarray(fn(system.net, system.data, "h1"))
    shown = np.asarray(r.measure(fn, r.net, node="h1"))
    np.testing.assert_allclose(shown[:2, :2], wide[:2, :2], atol=1e-14)
    assert np.all(np.isnan(shown[2:]))
    assert isinstance(r.data, gdln.GatedData)
    bare = np.asarray(fn(r.net, r.data, "h1"))
    assert np.abs(bare - wide)[2:, 2:].max() > 0.1 * np.abs(wide).max()  # this is why
    with pytest.raises(ValueError, match="needs node="):
        r.measure(fn, r.net)


@pytest.mark.slow
def test_measures_of_all_weights_take_the_rest():
    system = ws.chain([4, 16, 16, 7], 8)
    r = gdln.reduce_width(system.net, system.data)
    rule = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.05))
    run = r.train(optimizer=rule, steps=12, keep_models=True)
    update = lambda w, g, _: {k: w[k] - 0.05 * (g[k] + 0.5 * w[k]) for k in w}  # noqa: E731
    losses, end = ws.descend(system.weights, ws.arrays(system.graph, system.data), 12, update)
    assert np.abs(np.asarray(run.losses) - losses).max() < 1e-13 * losses[0]
    wide, start = run.lift(), run.lift(0)
    for name, w in end.items():
        np.testing.assert_allclose(wide.weights[name], w, atol=1e-12)
        np.testing.assert_allclose(start.weights[name], system.weights[name], atol=1e-12)
    rest = r.rest_factor(rule, 12)
    assert isinstance(rest, float)
    assert abs(rest - 0.975**12) < 1e-12
    small, fn = run.final, gdln.measures
    for name, values in r.measure(fn.singular_values, small, rest).items():
        true = np.linalg.svd(end[name], compute_uv=False)
        np.testing.assert_allclose(values, true, atol=1e-12)
    moved = float(r.measure(fn.weight_movement, small, rest))
    way = sum(np.sum((end[k] - w) ** 2) for k, w in system.weights.items())
    size = sum(np.sum(w**2) for w in system.weights.values())
    assert abs(moved - np.sqrt(way / size)) < 1e-12
    assert abs(moved - fn.weight_movement(r.net, small)) > 1e-3  # the small network alone
    into = [w @ w.T for w in (end["x->h1"], end["h1->h2"])]
    out = [w.T @ w for w in (end["h1->h2"], end["h2->y"])]
    balance = r.measure(fn.balancedness, small, rest)
    for node, a, b in zip(("h1", "h2"), into, out, strict=True):
        true = np.linalg.norm(a - b) / (np.linalg.norm(a) + np.linalg.norm(b))
        assert abs(balance[node] - true) < 1e-12
    sizes = r.measure(jnp.linalg.norm, small, rest)
    assert abs(sizes["h1->h2"] - np.linalg.norm(end["h1->h2"])) < 1e-12
    inside = r.frames["h2"] @ r.net.weights["h1->h2"] @ r.frames["h1"].T
    np.testing.assert_allclose(r.rest["h1->h2"] + inside, system.weights["h1->h2"], atol=1e-14)
    with pytest.raises(ValueError, match="mds is not among the measures"):
        r.measure(fn.mds, small)


# ---------------------------------------------------------------- the package's own runs
@pytest.mark.slow
def test_seeds_are_padded_exactly_and_train_together():
    rng = np.random.default_rng(9)
    systems = [ws.chain([4, 16, 16, 7], seed) for seed in (1, 2)]
    first = systems[0].weights["x->h1"]
    first[:] = first @ np.diag([1, 1, 0, 0])  # a smaller space than the other seed's
    del rng
    net = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[system.net for system in systems])
    r = gdln.reduce_width(net, ws.hierarchy())
    assert np.array_equal(r.sizes["h1"], [9, 11])
    assert r.net.stacks[0].shape == (2, 1, 11, 4)
    run = r.train(optimizer=optax.sgd(0.05, momentum=0.9), steps=40)
    update = ws.momentum(0.05)
    for system, losses in zip(systems, run.losses, strict=True):
        wide, _ = ws.descend(system.weights, ws.arrays(system.graph, system.data), 40, update)
        assert np.abs(np.asarray(losses) - wide).max() < 1e-13 * wide[0]
    padded = np.asarray(run.final.weights["h1->h2"])[0]
    assert not padded[9:].any()
    assert not padded[:, 9:].any()
    assert run.lift().stacks[1].shape == (2, 1, 16, 16)


@pytest.mark.slow
def test_packed_data_reduce_too():
    # The two input nodes present the same vectors, so that packed data hold these once.
    rng = np.random.default_rng(10)
    graph = gdln.Graph(
        {"a": 3, "b": 3, "h": 16, "g": 16, "y": 2, "z": 2},
        [("a", "h"), ("b", "h"), ("h", "g"), ("g", "y"), ("g", "z")],
    )
    weights = {e.name: ws.orthogonal(rng, *graph.shape(e.name), 0.5) for e in graph.edges}
    x = rng.standard_normal((4, 3))
    one, zero = np.ones(4), np.zeros(4)
    data = gdln.GatedData(
        {"a": np.vstack([x, 0 * x]), "b": np.vstack([0 * x, x])},
        {k: rng.standard_normal((8, 2)) for k in "yz"},
        edge_gates={"g->y": np.concatenate([one, zero]), "g->z": np.concatenate([zero, 0.5 * one])},
    )
    system = ws.System(graph, weights, data)
    dense = gdln.reduce_width(system.net, data)
    packed = gdln.reduce_width(system.net, gdln.pack(graph, data))
    assert packed.sizes == dense.sizes
    assert isinstance(packed.data, gdln.PackedData)
    for net in (dense.net, packed.net):
        assert abs(mse(net, packed.data) - mse(system.net, data)) < 1e-13
    for name, frame in dense.frames.items():
        np.testing.assert_allclose(
            packed.frames[name] @ packed.frames[name].T, frame @ frame.T, atol=1e-12
        )
    with pytest.raises(ValueError, match="needs a reduction of GatedData"):
        packed.followed("h")


@pytest.mark.slow
def test_the_small_network_reduces_like_any_other():
    system = ws.chain([4, 32, 32, 7], 11)
    r = gdln.reduce_width(system.net, system.data)
    wide, small = gdln.reduce(system.graph, system.data), gdln.reduce(r.net.graph, r.data)
    assert small.residual < 1e-12
    starts = [wide.embed(0.5), small.embed(0.5)]
    losses = [mse(*pair) for pair in zip(starts, (system.data, r.data), strict=True)]
    assert abs(losses[0] - losses[1]) < 1e-12


@pytest.mark.slow
def test_flow_with_decay_equals_the_wide_flow_by_scipy():
    system = ws.chain([4, 24, 24, 7], 12)
    r = gdln.reduce_width(system.net, system.data)
    ts, decay, tau = np.linspace(0.0, 6.0, 7), 0.02, 1.5
    data, names = ws.arrays(system.graph, system.data), list(system.weights)
    shapes = [system.weights[k].shape for k in names]

    def unravelled(flat):
        parts = np.split(flat, np.cumsum([a * b for a, b in shapes])[:-1])
        return {k: p.reshape(s) for k, p, s in zip(names, parts, shapes, strict=True)}

    def velocity(_, flat):
        w = unravelled(flat)
        g = ws.loss_and_gradient(w, data)[1]
        return -np.concatenate([(g[k] + decay * w[k]).ravel() for k in names]) / tau

    start = np.concatenate([system.weights[k].ravel() for k in names])
    tight: Any = {"rtol": 1e-10, "atol": 1e-12}
    wide = scipy.integrate.solve_ivp(velocity, (0, 6), start, method="DOP853", t_eval=ts, **tight)
    run = r.flow(ts, tau=tau, decay=decay, keep_models=True, **tight)
    for index in (0, 3, -1):
        there = unravelled(wide.y[:, index])
        loss = ws.loss_and_gradient(there, data)[0]
        assert abs(run.losses[index] - loss) < 1e-8 * run.losses[0]
        for name, w in run.lift(index).weights.items():
            np.testing.assert_allclose(w, there[name], atol=1e-8)


# ---------------------------------------------------------------- rules
@pytest.fixture(scope="module")
def tree():
    """A gated forest of 40 units with framed maps (forest and framed at once), and its small one.

    Nothing changes their arrays.
    """
    system = ws.random_dag(0, framed=True, width=40)
    return system, gdln.reduce_width(system.net, system.data)


EXACT = {
    "polar, momentum": (ws.momentum(0.005, 0.95, decay=0.01, rule=ws.polar), 25, 1e-12),
    "polar, momentum, long": (ws.momentum(0.005, 0.95, rule=ws.polar), 100, 1e-11),
    "NS5, momentum": (ws.momentum(0.005, 0.95, decay=0.01, rule=ws.newton_schulz), 25, 1e-12),
    "NS5, momentum, long": (ws.momentum(0.005, 0.95, rule=ws.newton_schulz), 100, 1e-11),
    "over the Frobenius norm": (
        ws.per_matrix(lambda g: g / (np.linalg.norm(g) + 1e-12), 0.02),
        100,
        1e-11,
    ),
    "Shampoo": (ws.shampoo(0.02), 100, 1e-12),
}
INEXACT = {
    "polar without a threshold": (
        ws.momentum(0.005, 0.95, rule=lambda g: ws.polar(g, 0.0)),
        25,
        1e-8,
    ),
    "over the root mean square entry": (
        ws.per_matrix(lambda g: 0.02 * g / (np.sqrt(np.mean(g**2)) + 1e-12), 1.0),
        25,
        1e-6,
    ),
    "L2 inside a normalised rule": (
        ws.per_matrix(lambda g: g / (np.linalg.norm(g) + 1e-12), 0.02, l2=0.1),
        25,
        1e-6,
    ),
    "LARS": (ws.lars(0.01), 25, 1e-6),
    "Adam": (ws.adam(0.01), 25, 1e-6),
    "sign": (ws.per_matrix(np.sign, 0.01), 25, 1e-6),
}


@pytest.mark.parametrize("name", [*EXACT, *INEXACT])
def test_which_rules_are_exact(tree, name):
    update, steps, bound = {**EXACT, **INEXACT}[name]
    system, r = tree
    distance = ws.gap(system, r, steps, update)[0]
    assert distance < bound if name in EXACT else distance > bound


@pytest.fixture(scope="module")
def narrow():
    system = ws.chain([4, 16, 16, 7], 13)
    return gdln.reduce_width(system.net, system.data)


@pytest.mark.parametrize("name", ["momentum", "Shampoo", "NS5, momentum", "polar, momentum"])
def test_padded_weights_stay_zero(narrow, name):
    update = ws.momentum(0.02, decay=0.01) if name == "momentum" else EXACT[name][0]
    weights, data = ws.small_arrays(narrow)
    grown = {
        k: np.pad(w, [(0, 5 * (n not in (4, 7))) for n in w.shape]) for k, w in weights.items()
    }
    one, end = ws.descend(grown, data, 25, update)
    other, _ = ws.descend(weights, data, 25, update)
    assert np.abs(one - other).max() < 1e-13 * one[0]
    assert not end["h1->h2"][11:].any()
    assert not end["h1->h2"][:, 11:].any()


@pytest.mark.slow
def test_train_tests_the_rule_first(narrow):
    normalised = optax.chain(optax.normalize_by_update_norm(), optax.sgd(0.01))
    decayed = optax.chain(optax.add_decayed_weights(0.01), normalised)
    for rule in (optax.adam(0.01), decayed):
        with pytest.raises(InexactRuleError, match=r"differ by [0-9.]+e[+-]\d\d of the way"):
            narrow.train(optimizer=rule, steps=3)
    assert narrow.train(optimizer=normalised, steps=3).losses.shape == (4,)


# ---------------------------------------------------------------- where it does not close
def test_an_open_closure_names_the_edge_or_the_cycle():
    system = ws.normal_chain([4, 48, 48, 7], 14, 1.0)
    with pytest.raises(gdln.OpenClosureError, match=r"W\^T W of edge 'h1->h2'.*truncate") as caught:
        gdln.reduce_width(system.net, system.data)
    assert caught.value.cycle == ("h1->h2",)
    assert caught.value.sizes["h1"] == 48
    full = gdln.reduce_width(system.net, system.data, on_open="fill")
    assert full.closed
    assert full.sizes == system.graph.nodes
    rng = np.random.default_rng(15)
    graph = gdln.Graph(
        {"x": 4, "a": 24, "b": 24, "c": 24, "y": 7},
        [("x", "a"), ("a", "b"), ("b", "c"), ("a", "c"), ("c", "y")],
    )
    weights = {e.name: ws.orthogonal(rng, *graph.shape(e.name), 0.5) for e in graph.edges}
    with pytest.raises(gdln.OpenClosureError, match="around the cycle") as caught:
        gdln.reduce_width(gdln.GatedNetwork(graph, weights), system.data)
    assert {*caught.value.cycle} == {"a->b", "b->c", "a->c"}
    # One node of the width of the seeds is full, and closed.
    narrow = ws.normal_chain([4, 8, 8, 7], 16, 1.0)
    assert gdln.reduce_width(narrow.net, narrow.data).closed


def truncated(system, rounds):
    return gdln.reduce_width(system.net, system.data, on_open="truncate", rounds=rounds)


def by_numpy(net, data):
    weights = {e.name: np.asarray(net.weights[e.name]) for e in net.graph.edges}
    steps = 400
    return ws.descend(weights, ws.arrays(net.graph, data), steps, ws.gradient_descent(0.02))[0]


def test_reference_truncations(known):
    here = case(known, "truncation, chain 4-48-48-7, normal")
    rng, graph = np.random.default_rng(26), gdln.Graph.chain([4, 48, 48, 7])
    weights = {
        e.name: scale * rng.standard_normal(graph.shape(e.name))
        for e, scale in zip(graph.edges, (0.25, 0.5 / 48**0.5, 0.5 / 48**0.5), strict=True)
    }
    system = ws.System(graph, weights, ws.hierarchy())
    update = ws.gradient_descent(0.02)
    for row in here["rounds"]:
        r = truncated(system, row["rounds"])
        assert [r.sizes["h1"], r.sizes["h2"]] == row["sizes"]
        assert not r.closed
        assert abs(r.leak - row["leak"]) < 1e-4
        distance, _, _ = ws.gap(system, r, 200, update)
        assert distance < 1.01 * row["largest_loss_gap_over_L0"] + 1e-15
        assert distance > 0.99 * row["largest_loss_gap_over_L0"] - 1e-14


@pytest.mark.parametrize(
    ("widths", "gains", "factor"),
    [([4, 48, 48, 7], (0.1, 1.0), 10), ([4, 48, 48, 48, 7], (0.3,), 5)],
)
def test_every_round_gains_and_the_estimate_says_how_much(widths, gains, factor):
    for gain in gains:
        system = ws.normal_chain(widths, 0, gain)
        wide = by_numpy(system.net, system.data)
        before, rounds = None, 0
        for rounds in range(1, 5):
            r = truncated(system, rounds)
            distance = np.abs(by_numpy(r.net, r.data) - wide).max() / wide[0]
            if distance < 1e-13:
                break
            if before is not None and (len(widths) == 4 or rounds > 1):
                assert before / distance > factor
            estimate = r.defect(by_numpy)
            assert 1 / 1.5 < estimate / distance < 1.5
            before = distance
        assert rounds > 2


def test_a_truncation_is_exact_at_first():
    system = ws.normal_chain([4, 48, 48, 7], 17, 0.5)
    wide = by_numpy(system.net, system.data)
    for rounds in range(4):
        r = truncated(system, rounds)
        distance = np.abs(by_numpy(r.net, r.data) - wide) / wide[0]
        assert distance[: rounds + 1].max() < 1e-14
        assert distance[rounds + 1] > 1e-13 or rounds > 2
    largest = gdln.reduce_width(system.net, system.data, on_open="truncate", max_size=20)
    assert (largest.rounds, largest.sizes["h2"]) == (2, 18)
    assert largest.refined().rounds == 3
    closed = gdln.reduce_width(
        ws.chain([4, 16, 16, 7], 1).net, system.data, on_open="truncate", rounds=9
    )
    assert closed.closed
    assert closed.defect(by_numpy) == 0.0


# ---------------------------------------------------------------- direct draws
def test_draws_are_consistent_with_the_wide_law_at_any_width():
    graph = gdln.Graph.chain([4, 10**6, 10**6, 7])
    key = jax.random.key(0)
    r = gdln.draw_width(graph, ws.hierarchy(), gdln.init.orthogonal(0.3), key=key)
    assert r.closed
    assert r.sizes == {"x": 4, "h1": 11, "h2": 11, "y": 7}
    block = np.asarray(r.net.weights["x->h1"])
    np.testing.assert_allclose(block.T @ block, 0.09 * np.eye(4), atol=1e-14)
    r = gdln.draw_width(graph, ws.hierarchy(), gdln.init.normal(1e-3), key=key, rounds=2)
    assert (r.sizes["h1"], r.sizes["h2"], r.rounds, r.closed) == (15, 18, 2, False)
    finer = r.refined()
    np.testing.assert_array_equal(finer.net.weights["h1->h2"][:18, :15], r.net.weights["h1->h2"])
    with pytest.raises(ValueError, match="one round more"):
        finer.refined()
    for attempt in (lambda: r.lift(r.net), lambda: r.rest):
        with pytest.raises(ValueError, match="draws the small network only"):
            attempt()
    with pytest.raises(ValueError, match="draws the small network only"):
        r.measure(gdln.measures.balancedness, r.net)
    assert np.isfinite(r.measure(gdln.mse, r.net))


def test_initialisers_carry_kind_and_scale():
    graph = gdln.Graph.chain([4, 8, 7])
    key = jax.random.key(3)
    one = gdln.GatedNetwork.init(graph, gdln.init.normal(0.5), key=key)
    by_edge = gdln.init.normal({"x->h1": 0.5, "h1->y": 1.0})
    two = gdln.GatedNetwork.init(graph, by_edge, key=key)
    np.testing.assert_array_equal(one.weights["x->h1"], two.weights["x->h1"])
    np.testing.assert_array_equal(2 * one.weights["h1->y"], two.weights["h1->y"])
    assert (gdln.init.xavier(0.2).kind, float(gdln.init.xavier(0.2).scale)) == ("xavier", 0.2)
    with pytest.raises(ValueError, match="std lacks edge 'h1->y'"):
        gdln.GatedNetwork.init(graph, gdln.init.normal({"x->h1": 0.5}), key=key)
    with pytest.raises(ValueError, match="std names 'x->h2'"):
        gdln.GatedNetwork.init(graph, gdln.init.normal({"x->h2": 0.5}), key=key)


def gauss_graph(width):
    """Normal maps around a triangle of hidden nodes with a double edge, gated."""
    graph = gdln.Graph(
        {"x0": 3, "x1": 2, "a": width, "b": width, "c": width, "y0": 2, "y1": 3},
        [
            ("x0", "a"),
            ("x1", "b"),
            ("a", "b"),
            ("a", "b", "again"),
            ("a", "c"),
            ("b", "c"),
            ("b", "y0"),
            ("c", "y1"),
            ("x1", "c"),
        ],
    )
    rng = np.random.default_rng(18)
    data = gdln.GatedData(
        {"x0": rng.standard_normal((6, 3)), "x1": rng.standard_normal((6, 2))},
        {"y0": rng.standard_normal((6, 2)), "y1": rng.standard_normal((6, 3))},
        {"c": np.array([1.0, 0.5, 1.0, 1.0, 0.0, 2.0])},
        {"again": np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])},
    )
    return graph, data


def learning(weights, data):
    """Singular values of the outputs, and losses at start and after three and six steps."""
    h = ws.forward(weights, data)
    outputs = np.hstack([h[v] for v in data.targets])
    losses, _ = ws.descend(weights, data, 6, ws.gradient_descent(0.1))
    return [*np.linalg.svd(outputs, compute_uv=False)[:3], *losses[[0, 3, 6]]]


def letters(weights, data):
    """Statistics of at most three hidden maps in a row, which one round reproduces."""
    h = ws.forward(weights, data)
    outputs = np.hstack([h[v] for v in data.targets])
    sizes = [np.linalg.norm(h[v]) for v in "ab"]
    backward = ws.loss_and_gradient(weights, data)[2]
    return [*np.linalg.svd(outputs, compute_uv=False)[:3], *sizes, np.linalg.norm(backward["b"])]


def p_values(graph, data, init, draw_wide, draws, statistics, rounds=None):
    """Kolmogorov-Smirnov p of each statistic: direct draws against wide networks."""
    one, other = [], []
    wide = ws.arrays(graph, data)
    for k in range(draws):
        r = gdln.draw_width(graph, data, init, key=jax.random.key(k), rounds=rounds)
        one.append(statistics(*ws.small_arrays(r)))
        rng = np.random.default_rng(k)
        weights = {e.name: draw_wide(rng, *graph.shape(e.name)) for e in graph.edges}
        other.append(statistics(weights, wide))
    columns = zip(np.transpose(one), np.transpose(other), strict=True)
    return np.array([scipy.stats.ks_2samp(a, b)[1] for a, b in columns])


@pytest.mark.slow
def test_direct_draws_of_orthogonal_forests_have_the_wide_law(known):
    system = built(known, "gated forest")
    graph = gdln.Graph(
        {k: 32 if k in "abc" else n for k, n in system.graph.nodes.items()},
        [(e.source, e.target, e.name) for e in system.graph.edges],
    )
    law = lambda rng, t, s: ws.orthogonal(rng, t, s, 0.6)  # noqa: E731
    p = p_values(graph, system.data, gdln.init.orthogonal(0.6), law, 150, learning)
    assert p.min() > 1e-3


@pytest.mark.slow
def test_direct_draws_of_two_normal_layers_narrower_than_the_data_have_the_wide_law():
    law = lambda rng, t, s: 0.3 * rng.standard_normal((t, s))  # noqa: E731
    graph = gdln.Graph.chain([4, 6, 7])
    p = p_values(graph, ws.hierarchy(), gdln.init.normal(0.3), law, 200, learning)
    assert p.min() > 1e-3


@pytest.mark.slow
def test_direct_draws_of_normal_graphs_have_the_wide_law():
    # With directions orthogonal only to what came through the edge just mapped, p is below 5e-3.
    graph, data = gauss_graph(16)
    law = lambda rng, t, s: 0.2 * rng.standard_normal((t, s))  # noqa: E731
    p = p_values(graph, data, gdln.init.normal(0.2), law, 150, letters, rounds=1)
    assert p.min() > 1e-3


# ---------------------------------------------------------------- refusals
def test_bad_input_is_refused_in_words(refused_plainly):
    refused_plainly("""
import jax, numpy as np
import gdln_jax as gdln
graph = gdln.Graph.chain([2, 8, 8, 2])
data = gdln.GatedData({"x": np.eye(2)}, {"y": np.eye(2)})
key = jax.random.key(0)
net = gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), key=key)
cycle = gdln.Graph({"x": 2, "a": 8, "b": 8, "c": 8, "y": 2},
    [("x", "a"), ("a", "b"), ("b", "c"), ("a", "c"), ("c", "y")])
wide_end = gdln.Graph.chain([16, 8, 8, 2])
wide_data = gdln.GatedData({"x": np.eye(16)}, {"y": np.zeros((16, 2))})
r = gdln.reduce_width(net, data)
span = gdln.reduce_width(net, data, outputs="span")
orthogonal, normal = gdln.init.orthogonal(0.1), gdln.init.normal(0.1)
import optax
attempts = [
    (lambda: gdln.reduce_width(graph, data), "net is a Graph"),
    (lambda: gdln.reduce_width(net, {"x": 1}), "data is a dict"),
    (lambda: gdln.reduce_width(net, wide_data), "expected (n, 2)"),
    (lambda: gdln.reduce_width(net, data, outputs="all"), "'complete', 'span'"),
    (lambda: gdln.reduce_width(net, data, on_open="stop"), "on_open is 'stop'"),
    (lambda: gdln.reduce_width(net, data, on_open="truncate"), "needs rounds= or max_size="),
    (lambda: gdln.reduce_width(net, data, rounds=2), "needs rounds= or max_size="),
    (lambda: gdln.reduce_width(net, data, on_open="truncate", rounds=-1), "rounds is -1"),
    (lambda: gdln.reduce_width(net, data, tol=2.0), "must be below 1"),
    (lambda: jax.jit(lambda n: gdln.reduce_width(n, data).leak)(net), "under jit"),
    (lambda: r.refined(), "is closed"),
    (lambda: r.lift(net), "another graph"),
    (lambda: r.lift(r.net, rest="much"), "rest is a str"),
    (lambda: r.lift(r.net, rest={"x->h": 1.0}), "rest names 'x->h'"),
    (lambda: r.rest_factor(decay=0.1), "pass optimizer and steps"),
    (lambda: r.flow([0.0, 1.0], decay=-1.0), "decay is -1.0"),
    (lambda: r.followed("h3"), "no node 'h3'"),
    (lambda: span.train(optimizer=optax.sgd(0.1), steps=1, loss=gdln.cross_entropy), "'complete'"),
    (lambda: span.measure(gdln.measures.empirical_ntk, span.net), "outputs='complete'"),
    (lambda: r.train(optimizer=0.1, steps=1), "optimizer is 0.1"),
    (lambda: gdln.draw_width(graph, data, gdln.init.balanced(), key=key), "init is"),
    (lambda: gdln.draw_width(graph, data, normal, key=key), "pass rounds="),
    (lambda: gdln.draw_width(graph, data, orthogonal, key=key, rounds=1), "exact without"),
    (lambda: gdln.draw_width(cycle, data, orthogonal, key=key), "closes a cycle"),
    (lambda: gdln.draw_width(wide_end, wide_data, orthogonal, key=key), "no wider than the"),
    (lambda: gdln.draw_width(gdln.Graph.chain([2, 8, 9, 2]), data, orthogonal, key=key),
     "of one width"),
    (lambda: gdln.draw_width(graph, data, orthogonal, key=0), "key is 0"),
]
""")
