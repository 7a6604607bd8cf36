"""Runs of like levels as one scan, and linear recurrent networks (BEYOND 9.8).

Known answers: the same levels one by one, for runs; the keys `rnn*` of reference_beyond.json.
"""

import itertools

import equinox as eqx
import jax
import jax.extend
import numpy as np
import pytest

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, Graph, init
from gdln_jax._data import runs
from gdln_jax._reduction.loss import mode_loss
from gdln_jax._reduction.strengths import ModeStrengths

gradient_of = eqx.filter_value_and_grad(gdln.mse)


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
    edges = [tuple(edge.split("->")) for uses in shared.values() for edge in uses]
    return Graph(nodes, edges, shared=shared, frozen=frozen)


def examples(graph, **more):
    draw = np.random.default_rng(0).standard_normal
    return GatedData(
        {v: draw((5, 2)) for v in graph.inputs}, {v: draw((5, 2)) for v in graph.outputs}, **more
    )


def one_by_one(monkeypatch, function):
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_SHORTEST", 1000)
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

    def seen():
        return gradient_of(net, packed), net.activity(data)

    def length():
        return operations(jax.grad(gdln.mse), net, packed)

    assert eqx.tree_equal(seen(), one_by_one(monkeypatch, seen), rtol=1e-13, atol=1e-13)
    assert length() < 0.8 * one_by_one(monkeypatch, length)


def white(times, strengths):
    """A recurrence of white inputs whose targets have `strengths` (time, mode)."""
    graph = recurrence(times)
    yx = np.concatenate([np.diag(row) for row in strengths], axis=1)
    widths = dict.fromkeys(graph.inputs, 2)
    return graph, GatedData.from_moments(widths, {f"y{times}": 2}, np.eye(2 * times), yx)


def test_a_run_of_the_reduced_loss_is_its_levels_one_by_one(monkeypatch):
    reduction = gdln.reduce(*white(6, np.linspace(0.2, 1.0, 12).reshape(6, 2)))
    assert reduction.residual < 1e-12
    b = ModeStrengths.make(
        reduction.graph, 2, {"Wx": [0.3, 0.4], "Wh": [1.1, 0.9], "Wy": [0.5, 0.6]}
    )

    def seen():
        return jax.value_and_grad(mode_loss)(b, reduction.mode_data)

    def length():
        return operations(jax.grad(mode_loss), b, reduction.mode_data)

    assert eqx.tree_equal(seen(), one_by_one(monkeypatch, seen), rtol=1e-13, atol=1e-13)
    assert length() < 0.8 * one_by_one(monkeypatch, length)
    np.testing.assert_allclose(seen()[0], gdln.mse(reduction.embed(b), reduction.data), rtol=1e-13)


def test_the_trace_does_not_grow_with_time():
    found = []
    for times in (5, 50):
        graph, data = white(times, np.full((times, 2), [1.0, 0.5]))
        net = GatedNetwork.init(graph, init.normal(0.5), key=jax.random.key(1))
        reduction = gdln.reduce(graph, data)
        b = ModeStrengths.make(graph, 2, 0.5)
        found.append(
            (
                operations(jax.grad(gdln.mse), net, net.prepare(data)),
                operations(jax.grad(gdln.mse), net, data),
                operations(jax.grad(mode_loss), b, reduction.mode_data),
            )
        )
    assert found[1] == found[0]
