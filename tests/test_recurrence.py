"""Runs of like levels as one scan, and linear recurrent networks (theory#recurrence).

Known answers: the same levels one by one, for runs; the keys `rnn*` of reference_beyond.json.
"""

import itertools

import equinox as eqx
import jax
import jax.extend
import numpy as np
import pytest

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, Graph, exact, init, tasks

gradient_of = eqx.filter_jit(eqx.filter_value_and_grad(gdln.mse))


def operations(function, *args):
    """Number of operations of a program, those within loops included."""

    def count(jaxpr):
        inner = [jax.extend.core.jaxprs_in_params(e.params) for e in jaxpr.eqns]
        return len(jaxpr.eqns) + sum(count(j) for j in itertools.chain(*inner))

    return count(jax.make_jaxpr(function)(*args).jaxpr)


def recurrence(times, *, read=(), frozen=()):
    """A recurrent network of width 3 unrolled over `times`, read at the end and at times `read`."""
    steps, outs = range(1, times + 1), (*read, times)
    nodes = {
        **{f"x{t}": 2 for t in steps},
        **{f"h{t}": 3 for t in steps},
        **{f"y{t}": 2 for t in outs},
    }
    shared = {
        "Wx": [f"x{t}->h{t}" for t in steps],
        "Wh": [f"h{t - 1}->h{t}" for t in steps[1:]],
        "Wy": [f"h{t}->y{t}" for t in outs],
    }
    ends = [edge.split("->") for uses in shared.values() for edge in uses]
    edges = [(source, target) for source, target in ends]
    return Graph(nodes, edges, shared=shared, frozen=frozen)


def examples(graph, **more):
    draw = np.random.default_rng(0).standard_normal
    return GatedData(
        {v: draw((5, 2)) for v in graph.inputs}, {v: draw((5, 2)) for v in graph.outputs}, **more
    )


def one_by_one(monkeypatch, function):
    with monkeypatch.context() as patch:
        patch.setattr("gdln_jax._data.runs._SHORTEST", 1000)
        return function()


DEEP = Graph(
    {"x": 2, **{f"h{k}": 3 for k in range(1, 7)}, "y": 2},
    [("x", "h1"), *((f"h{k}", f"h{k + 1}") for k in range(1, 6)), ("h6", "y")],
    shared={"B": [f"h{k}->h{k + 1}" for k in range(1, 6)]},
)
GATE = np.array([1.0, 0.5, 0.0, -1.0, 2.0])
RUNS = {
    "recurrence": (recurrence(6), {}),
    "read at every time": (recurrence(6, read=(2, 4, 5)), {}),
    "frozen recurrence": (recurrence(6, frozen=["Wh"]), {}),
    "gates at some times": (recurrence(11), {"node_gates": {"h6": GATE}}),
    "one layer again and again": (DEEP, {"node_gates": {f"h{k}": GATE for k in range(1, 7)}}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_its_levels_one_by_one(name, monkeypatch):
    graph, gates = RUNS[name]
    data = examples(graph, **gates)
    net = GatedNetwork.init(graph, init.normal(0.5), key=jax.random.key(1))
    packed = net.prepare(data)

    def seen():  # compiled anew: the levels are found while it is traced
        def both(net, packed, data):
            return eqx.filter_value_and_grad(gdln.mse)(net, packed), net.activity(data)

        return eqx.filter_jit(both)(net, packed, data)

    def length():
        return operations(jax.grad(gdln.mse), net, packed)

    assert eqx.tree_equal(seen(), one_by_one(monkeypatch, seen), rtol=1e-13, atol=1e-13)
    assert length() < 0.8 * one_by_one(monkeypatch, length)


def test_a_run_of_the_reduced_loss_is_its_levels_one_by_one(monkeypatch):
    task = tasks.linear_rnn(
        np.linspace(1.0, 0.2, 12).reshape(6, 2)[::-1, :], width=3, key=jax.random.key(2)
    )
    reduction = gdln.reduce(task.graph, task.data)
    assert reduction.residual < 1e-12
    b = gdln.ModeStrengths.make(
        reduction.graph, 2, {"Wx": [0.3, 0.4], "Wh": [1.1, -0.9], "Wy": [0.5, 0.6]}
    )

    def seen():
        return jax.jit(jax.value_and_grad(reduction.loss))(b)

    def length():
        return operations(jax.grad(reduction.loss), b)

    assert eqx.tree_equal(seen(), one_by_one(monkeypatch, seen), rtol=1e-13, atol=1e-13)
    assert length() < 0.8 * one_by_one(monkeypatch, length)
    closed = exact.rnn_loss(task.meta["strengths"], b["Wx"], b["Wh"], b["Wy"])
    np.testing.assert_allclose(seen()[0], closed, rtol=1e-13)
    np.testing.assert_allclose(jax.jit(gdln.mse)(reduction.embed(b), task.data), closed, rtol=1e-13)


def test_the_trace_does_not_grow_with_time():
    found = []
    for times in (5, 50):
        task = tasks.linear_rnn(0.8 ** np.arange(times)[::-1, None] * [1.0, 0.5], width=3)
        graph, data = task.graph, task.data
        net = GatedNetwork.init(graph, init.normal(0.5), key=jax.random.key(1))
        reduction = gdln.reduce(graph, data)
        b = gdln.ModeStrengths.make(graph, 2, 0.5)
        found.append(
            (
                operations(jax.grad(gdln.mse), net, net.prepare(data)),
                operations(jax.grad(gdln.mse), net, data),
                operations(jax.grad(reduction.loss), b),
            )
        )
    assert found[1] == found[0]


@pytest.fixture(scope="module")
def tied(reference_beyond):
    return reference_beyond["tied"]


@pytest.mark.slow
def test_flow_of_the_reference(tied):
    case = tied["rnn"]
    task = tasks.linear_rnn(case["strengths"], width=3, key=jax.random.key(0))
    run = gdln.reduce(task.graph, task.data).solve(
        {"Wx": [0.1, 0.08, 0.06], "Wh": [0.05, 0.04, 0.03], "Wy": [0.09, 0.07, 0.05]},
        [float(t) for t in case["L"]],
    )
    np.testing.assert_allclose(run.losses, list(case["L"].values()), atol=1e-9)
    at = {str(int(t)): b for t, b in zip(run.ts, run.b["Wh"], strict=True)}
    for t, b in case["b"].items():
        np.testing.assert_allclose(at[t], b, atol=1e-8)


def pole(*strengths):
    b, loss, attained = exact.rnn_minimum(np.array(strengths, float)[:, None])
    return b[0], loss[0], attained[0]


def test_minima_of_the_reference(tied):
    case = tied["rnn_minimum"]
    np.testing.assert_allclose(pole(0, 1, 0, 0.5)[:2], (case["b"], case["L"]), rtol=1e-9)
    best = case["1_0_.6"]
    np.testing.assert_allclose(pole(1, 0, 0.6)[:2], (best["b"], best["L"]), rtol=1e-9)
    for strengths, infimum in (((1, 0, 0), "infimum_100"), ((1, 0, 0.4), "infimum_10.4")):
        b, loss, attained = pole(*strengths)
        np.testing.assert_allclose(loss, case[infimum], atol=1e-12)
        assert (b, attained) == (np.inf, False)
    assert pole(1, 0.2, 0)[2]  # s_1 s_2 != 0
    assert pole(0, 0, 0) == pole(0.5) == (0, 0, True)
    geometric = 0.3 * 1.7 ** np.arange(5.0)
    np.testing.assert_allclose(pole(*geometric), (1 / 1.7, 0, True), atol=1e-12)
    # The best pole is no worse than any on a line, at its best a c.
    s, line = np.array([[0.7], [-0.4], [0.2], [0.5]]), np.linspace(-3, 3, 601)[:, None]
    powers = line ** np.arange(4)[::-1]
    product = (powers @ s) / np.sum(powers**2, axis=1, keepdims=True)
    losses = exact.rnn_loss(s, product, line, np.ones_like(line))
    b, loss, _ = pole(*s[:, 0])
    assert loss <= losses.min() < loss + 1e-4
    at = b ** np.arange(4)[::-1]
    np.testing.assert_allclose(exact.rnn_loss(s, at @ s / (at @ at), b[None], 1.0), loss)
    assert exact.rnn_loss(s, 1.0, 0.5, 2.0) == exact.rnn_loss(s, *np.array([[1.0], [0.5], [2.0]]))
    slope = jax.grad(exact.rnn_loss, 2)(s, np.ones(1), np.zeros(1), np.ones(1))
    np.testing.assert_allclose(slope, -0.2)  # at b = 0 the last but one input drives b
    with pytest.raises(ValueError, match="traced"):
        jax.jit(exact.rnn_minimum)(s)


def test_steep_minima_warn_and_missing_ones_are_refused(tied, refused_plainly):
    def steep(base):
        return base ** (1 - np.arange(1, 51.0))[:, None]

    assert round(tied["rnn_curvature"]["value"]) == 16254
    with pytest.warns(UserWarning, match=r"1\.63e\+04 \(mode 1, pole 1\.05\)"):
        tasks.linear_rnn(steep(1.05), width=2)
    with pytest.warns(UserWarning, match=r"5\.46e\+04"):
        tasks.linear_rnn(steep(1.2), width=2)
    tasks.linear_rnn(0.9**49 * steep(0.9), width=2)  # is an error if it warns
    refused_plainly("""
import numpy as np
from gdln_jax import exact, tasks
def g(strengths=None, **more):
    return lambda: tasks.linear_rnn(strengths, **{"width": 2, **more})
x, y = np.ones((4, 3, 2)), np.ones((4, 2))
attempts = [
    (g([[1.0], [0.0], [0.0]]), "the loss falls towards 0 as the pole b grows"),
    (g([[0.5, 1.0], [0.3, 0.0], [0.2, 0.4]]), "no network is best for mode 2"),
    (g(), "give strengths"),
    (g([[1.0]], inputs=x, targets=y), "give strengths"),
    (g(inputs=x), "give strengths"),
    (g([1.0, 0.5]), "expected (time, mode)"),
    (g(inputs=x[0], targets=y), "expected (n, time, features)"),
    (g(inputs=x, targets=y, key=1), "key draws frames of strengths"),
    (lambda: exact.rnn_minimum(np.array([[np.nan], [1.0]])), "must be finite real numbers"),
    (lambda: exact.rnn_minimum(np.ones((2, 1)) * 1j), "must be finite real numbers"),
    (lambda: exact.rnn_minimum(np.ones((0, 1))), "strengths has shape (0, 1); expected (time"),
    (lambda: exact.rnn_loss(np.ones(3), 1.0, 1.0, 1.0), "strengths has shape (3,)"),
    (lambda: exact.rnn_loss(np.ones((3, 1)), np.ones(3), 1.0, 1.0), "strengths have 1 modes"),
]
""")


def test_sequences_of_ones_own():
    draw = np.random.default_rng(4).standard_normal
    x, y = draw((7, 4, 2)), draw((7, 1))
    task = tasks.linear_rnn(width=3, inputs=x, targets=y)
    net = GatedNetwork.init(task.graph, init.normal(0.5), key=jax.random.key(0))
    p = net.parameters
    h = 0
    for t in range(4):
        h = h @ p["Wh"].T + x[:, t] @ p["Wx"].T if t else x[:, t] @ p["Wx"].T
    np.testing.assert_allclose(net(task.data)["y"], h @ p["Wy"].T, rtol=1e-12)
    once = tasks.linear_rnn([[1.0, 0.5]], width=3).graph
    assert set(once.parameters) == {"Wx", "Wy"}


def off_frames(degrees, *, of_input):
    """Share of the gradient off the frames at b = (1, 0.9, 0.8), V_3 or U_h turned."""
    strengths = np.array([[0.6, 0.4, 0.2], [0.8, 0.5, 0.3], [1.0, 0.7, 0.4]])
    t, turn, f = np.deg2rad(degrees), np.eye(3), np.eye(4, 3)
    turn[:2, :2] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
    v = [np.eye(3), np.eye(3), turn if of_input else np.eye(3)]
    yx = np.hstack([np.diag(row) @ one.T for row, one in zip(strengths, v, strict=True)])
    graph = tasks.linear_rnn(strengths, width=4).graph
    data = GatedData.from_moments({f"x{k}": 3 for k in (1, 2, 3)}, {"y": 3}, np.eye(9), yx)
    frames = {"Wx": (f, v[0]), "Wh": (f if of_input else f @ turn, f), "Wy": (np.eye(3), f)}
    b = np.array([1.0, 0.9, 0.8])
    net = GatedNetwork(graph, {name: left * b @ right.T for name, (left, right) in frames.items()})
    total = off = 0.0
    for name, g in gradient_of(net, data)[1].parameters.items():
        left, right = frames[name]
        inside = left * np.einsum("tm,ts,sm->m", left, g, right) @ right.T
        total, off = total + np.sum(g**2), off + np.sum((g - inside) ** 2)
    return float(np.sqrt(off / total))


def test_frames_that_differ_over_time_or_within_the_recurrence_are_not_exact():
    assert off_frames(0.0, of_input=True) < 1e-12
    for of_input, expected in ((True, (0.16, 0.40, 0.52)), (False, (0.38, 0.62, 0.51))):
        found = [off_frames(degrees, of_input=of_input) for degrees in (10, 30, 60)]
        np.testing.assert_allclose(found, expected, atol=6e-3)
