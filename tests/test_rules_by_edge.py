"""An optimiser for each edge, against `optax.partition` where its labels can say the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optimiser_systems import system_a, system_b

import gdln_jax as gdln
from gdln_jax import rules

STEPS = 5
ADAM, SGD = optax.adam(0.05), optax.sgd(0.2, momentum=0.9)
CLIP = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.3))


def loss(weights: dict[str, jax.Array], data: Any) -> jax.Array:
    """Of weights by edge, each a leaf of its own, which `optax.partition` can label."""
    return gdln.mse(gdln.GatedNetwork(system_b().graph, weights), data)


@pytest.mark.parametrize(
    "chosen",
    [
        {"x->h1": ADAM, "x->h2": SGD, "h1->y": None, "h2->y": ADAM},
        pytest.param(
            {"x->h1": CLIP, "x->h2": None, "h1->y": CLIP, "h2->y": SGD}, marks=pytest.mark.slow
        ),
    ],
)
def test_edges_of_one_stack_train_as_leaves_do(chosen: dict[str, Any]):
    """Adam's and momentum's state, and the norm over the edges of one optimiser (CLIP)."""
    system = system_b()
    net = system.network()
    labels = {name: str(id(one)) for name, one in chosen.items()}
    parts: dict[Any, Any] = {str(id(o)): o or optax.set_to_zero() for o in chosen.values()}
    by_leaf = optax.partition(parts, labels)
    leaves = dict(net.weights.items())
    wanted = gdln.train(leaves, system.data, optimizer=by_leaf, steps=STEPS, loss=loss)
    run = gdln.train(net, system.data, optimizer=rules.by_edge(chosen), steps=STEPS)
    for name, weight in run.final.weights.items():
        np.testing.assert_allclose(weight, wanted.final[name], rtol=1e-13, atol=1e-16)
        still = bool(jnp.all(weight == net.weights[name]))
        assert still == (chosen[name] is None)


def test_where_every_edge_is_a_leaf_labels_of_optax_say_the_same():
    system = system_a()
    net = system.network()
    labels = jax.tree.unflatten(jax.tree.structure(net), ["x->h", "h->y"])
    assert [bundle.edges for bundle in system.graph.bundles] == [("x->h",), ("h->y",)]
    parts: dict[Any, Any] = {"x->h": ADAM, "h->y": optax.set_to_zero()}
    ours = rules.by_edge({"x->h": ADAM}, default=None)
    runs = [
        gdln.train(net, system.data, optimizer=one, steps=STEPS)
        for one in (optax.partition(parts, lambda _: labels), ours)
    ]
    for a, b in zip(*(jax.tree.leaves(run.final) for run in runs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_strengths_train_as_the_network_and_frozen_ones_stay():
    system = system_b()
    slow = rules.sgd({"x->h1": 0.05, "h1->y": 0.1}, momentum=0.5)  # rates of its own edges
    rule = rules.by_edge({"x->h1": slow, "h1->y": slow, "x->h2": None}, default=rules.sgd(0.2))
    reduction = gdln.reduce(system.graph, system.data)
    start = reduction.strengths_of(system.b0)
    small = reduction.train(start, rule=rule, steps=20, check_end=False)
    full = gdln.train(reduction.embed(start), system.data, optimizer=rule, steps=20)
    np.testing.assert_allclose(small.losses, full.losses, rtol=1e-12)
    np.testing.assert_array_equal(small.b["x->h2"][-1], start["x->h2"])
    table = rule.edge_settings(system.graph)
    assert len(np.unique(table, axis=0)) == 4
    assert rule.equivariant
    assert not rules.by_edge({}, default=optax.adam(0.1)).equivariant


@pytest.mark.slow
def test_a_quotient_keeps_edges_of_different_optimisers_apart():
    task = gdln.tasks.routing(4, 2, width=8)
    reduction = gdln.reduce(task.graph, task.data)
    rule = rules.by_edge({"h1->h2": None}, default=rules.sgd(0.2))
    one = rules.by_edge({"x0->h1": rules.sgd(0.1)}, default=rules.sgd(0.2))
    whole, split = (reduction.quotient(0.3, rule=each) for each in (rule, one))
    assert len(split.classes) > len(whole.classes)
    few = whole.train(rule=rule, steps=10)
    all_edges = reduction.train(0.3, rule=rule, steps=10, check_end=False)
    np.testing.assert_allclose(few.losses, all_edges.losses, rtol=1e-12)
    with pytest.raises(ValueError, match=r"apart .*quotient\(b0, rule=rule\)"):
        whole.train(rule=one, steps=2)


@pytest.mark.slow
def test_sam_and_line_searches_see_the_loss_of_their_own_edges():
    """One group for all edges is the optimiser itself, whatever it asks the loss for."""
    system = system_b()
    net, data = system.network(), system.data
    for one in (rules.sam(rules.sgd(0.1), rho=0.05), optax.lbfgs(memory_size=2)):
        several = one, rules.by_edge({}, default=one)
        runs = [gdln.train(net, data, optimizer=rule, steps=3) for rule in several]
        np.testing.assert_allclose(runs[0].losses, runs[1].losses, rtol=1e-12)


@pytest.mark.slow
def test_rates_may_be_traced_and_runs_go_on():
    system = system_a()

    def end(rate: jax.Array) -> gdln.Trajectory:
        rule = rules.by_edge({"x->h": optax.sgd(rate)}, default=None)
        return gdln.train(system.network(), system.data, optimizer=rule, steps=4)

    both = jax.vmap(end)(jnp.array([0.1, 0.2]))
    rule = rules.by_edge({"x->h": optax.adam(0.1)}, default=optax.sgd(0.2))
    np.testing.assert_allclose(end(jnp.asarray(0.2)).losses, both.losses[1], rtol=1e-13)
    net = system.network()
    half = gdln.train(net, system.data, optimizer=rule, steps=2)
    rest = gdln.train(net, system.data, optimizer=rule, steps=2, resume=half)
    whole = gdln.train(net, system.data, optimizer=rule, steps=4)
    np.testing.assert_array_equal(rest.losses, whole.losses[2:])


@pytest.mark.slow
def test_adam_by_edge_is_no_exact_rule_of_strengths():
    system = system_a()
    reduction = gdln.reduce(system.graph, system.data)
    rule = rules.by_edge({"x->h": optax.adam(0.1)}, default=rules.sgd(0.1))
    with pytest.raises(gdln.InexactRuleError, match="leaves the aligned manifold"):
        reduction.train(0.1, rule=rule, steps=2)
    with pytest.raises(ValueError, match=r"response of rules.by_edge to a small"):
        reduction.max_step(0.1, rules.by_edge({}, default=rules.sgd(0.1)))


def test_refusals(refused_plainly: Any):
    refused_plainly("""
import jax, numpy as np, optax, gdln_jax as gdln
from gdln_jax import rules
graph = gdln.Graph.chain([2, 3, 2])
net = gdln.GatedNetwork.init(graph, gdln.init.normal(1.0), key=jax.random.key(0))
data = gdln.GatedData({"x": np.eye(2)}, {"y": np.eye(2)})
batch = jax.tree.map(lambda w: w[None], net)
adam = optax.adam(0.1)
def train(rule):
    gdln.train(net, data, optimizer=rule, steps=2)
attempts = [
    (lambda: train(rules.by_edge({"x->h": adam}, default=None)), "did you mean 'x->h1'"),
    (lambda: train(rules.by_edge({"x->h1": adam})), "by_edge lacks edge 'h1->y'"),
    (lambda: rules.by_edge({"x->h1": 0.1}), "optimizers['x->h1'] is 0.1; pass a rule"),
    (lambda: rules.by_edge({}, default=0.1), "default is 0.1; pass a rule"),
    (lambda: rules.by_edge({"x->h1": optax.MultiSteps(adam, 2)}), ".gradient_transformation()"),
    (lambda: rules.by_edge(adam), "pass a mapping edge -> optimiser"),
    (lambda: rules.by_edge({}, default=adam).init(batch), "jax.vmap"),
    (lambda: rules.by_edge({}, default=adam).init({"w": np.ones((2, 2))}), "not on a dict"),
    (
        lambda: train(rules.by_edge({"x->h1": rules.sgd({"h1->y": 0.1})}, default=adam)),
        "learning_rate lacks edge 'x->h1'",
    ),
]
""")
