"""Rules of `gdln.rules` on the full network, against values that were computed elsewhere."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optimiser_systems import System, system_a, system_b

import gdln_jax as gdln
from gdln_jax import rules

RTOL = 1e-9  # the digits of the reference values
SYSTEMS = {"A": system_a, "B": system_b}
# name of the reference, rule, steps
CASES = {
    "clip_B": (rules.sgd(0.3, clip=0.2), 60),
    "nesterov_B": (rules.sgd(0.05, momentum=0.9, nesterov=True), 100),
    "shampoo_B": (rules.shampoo(0.1, eps=0.01), 100),
    "polar_B": (rules.muon(0.02, method="polar", momentum=0.0), 25),
    "muon_momentum_A_ns": (rules.muon(0.02), 25),
    "normalized_B": (rules.normalized(0.02), 25),
}


@pytest.fixture
def values(reference_beyond: dict[str, Any]) -> dict[str, Any]:
    return {case["name"]: case["values"] for case in reference_beyond["optimisers"]["cases"]}


def trained(system: System, rule: optax.GradientTransformation, steps: int) -> gdln.Trajectory:
    return gdln.train(system.network(), system.data, optimizer=rule, steps=steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_network_trains_as_the_reference_does(values: dict[str, Any], name: str):
    """Losses and strengths of the full network; its weights stay in the frames."""
    system, (rule, steps) = SYSTEMS["A" if "_A" in name else "B"](), CASES[name]
    run = trained(system, rule, steps)
    for step, loss in values[name]["loss_at_step"].items():
        np.testing.assert_allclose(run.losses[int(step)], loss, RTOL)
    for edge, wanted in values[name]["b_end"].items():
        ends = system.graph.edge(edge)
        u, v = system.frames[ends.target], system.frames[ends.source]
        b = np.diag(u.T @ np.asarray(run.final.weights[edge]) @ v)
        np.testing.assert_allclose(b, wanted, RTOL)
    assert system.outside(run.final) < 1e-14


def updated(rule: Any, gradient: Any, params: Any, **extra: Any) -> Any:
    """The first update of a rule."""
    return rule.update(gradient, rule.init(params), params, **extra)[0]


def updates_of(rule: Any, params: Any, gradients: list[Any]) -> list[Any]:
    """Updates of a rule at fixed parameters for some gradients in turn."""

    @jax.jit
    def run(params: Any, gradients: list[Any]) -> list[Any]:
        state, seen = rule.init(params), []
        for gradient in gradients:
            update, state = rule.update(gradient, state, params)
            seen.append(update)
        return seen

    return run(params, gradients)


def strengths(graph: gdln.Graph, b: dict[str, np.ndarray]) -> gdln.ModeStrengths:
    return gdln.ModeStrengths.make(graph, 2, b)


def narrow() -> System:
    """A chain of nodes wider than its two modes."""
    rng = np.random.default_rng(0)
    graph = gdln.Graph({"x": 4, "h": 5, "y": 3}, [("x", "h"), ("h", "y")])
    frames = {v: np.linalg.qr(rng.normal(size=(n, 2)))[0] for v, n in graph.nodes.items()}
    return System(graph, system_a().data, {}, frames)


@pytest.mark.parametrize(
    "rule",
    [
        rules.sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.2, clip=0.3),
        rules.muon(0.1, shape_factor="width", weight_decay=0.2),
        rules.muon(0.1, method="polar", nesterov=False, shape_factor=0.2),
        rules.normalized(0.1, momentum=0.5, weight_decay=0.2),
        rules.shampoo(0.1, eps=0.01, decay=0.9),
        rules.per_matrix(optax.lars(0.1)),
    ],
    ids=lambda rule: rule.kind,
)
def test_a_rule_on_strengths_is_the_rule_on_matrices(rule: rules.Rule):
    """U diag(update of b) V^T is the update of W, over three steps, at r < min(|t|, |s|).

    Gradients have both signs, and are 0 for one edge and for one mode.
    """
    system = narrow()
    rng = np.random.default_rng(1)
    draws = [{e.name: rng.normal(size=2) for e in system.graph.edges} for _ in range(4)]
    draws[1]["x->h"][:] = 0.0
    draws[2]["h->y"][1] = 0.0
    on_matrices = updates_of(rule, *_split([system.network(b) for b in draws]))
    on_modes = updates_of(rule, *_split([strengths(system.graph, b) for b in draws]))
    for full, b in zip(on_matrices, on_modes, strict=True):
        for edge in system.graph.edges:
            u, v = system.frames[edge.target], system.frames[edge.source]
            wanted = u * np.asarray(b[edge.name]) @ v.T
            np.testing.assert_allclose(full.weights[edge.name], wanted, atol=1e-13)


def _split(trees: list[Any]) -> tuple[Any, list[Any]]:
    return trees[0], trees[1:]


@pytest.mark.slow
def test_newton_schulz_of_numbers(values: dict[str, Any]):
    """x <- x (a + b x^2 + c x^4) five times after division by the norm."""
    wanted = values["ns_scalar"]
    graph = gdln.Graph({"x": 3, "y": 3}, [("x", "y")])
    rule = rules.muon(1.0, momentum=0.0, eps=1e-300)
    for g, name in (([1.0, 0.0, 0.0], "one"), ([0.8, 0.6, 0.0], "08_06")):
        b = gdln.ModeStrengths(graph, (jnp.array([g]),))
        update = updated(rule, b, b)
        np.testing.assert_allclose(-update["x->y"][: len(wanted[name])], wanted[name], RTOL)
    b = gdln.ModeStrengths(graph, (jnp.array([[1.0, 1e-3, 0.0]]),))
    update = updated(rule, b, b)
    np.testing.assert_allclose(-update["x->y"][:2], wanted["1_1e-3_normalised"], RTOL)


def test_the_shape_factor_is_that_of_the_full_matrix(values: dict[str, Any]):
    system = system_a()
    rule = rules.muon(0.02, method="polar", momentum=0.0, shape_factor="width")
    run = trained(system, rule, 10)
    b = {
        e.name: np.diag(
            system.frames[e.target].T
            @ np.asarray(run.final.weights[e.name])
            @ system.frames[e.source]
        )
        for e in system.graph.edges
    }
    for edge, wanted in values["shape_factor"].items():
        np.testing.assert_allclose(b[edge], wanted, RTOL)


def test_a_plain_svd_leaves_the_manifold_where_the_polar_factor_does_not():
    """The rank is below both widths: a plain SVD fills the null space with any basis."""
    system = narrow()
    rng = np.random.default_rng(1)
    net, gradient = (
        system.network({e.name: rng.normal(size=2) for e in system.graph.edges}) for _ in "ab"
    )
    rule = rules.muon(1.0, method="polar", momentum=0.0)
    update = updated(rule, gradient, net)
    assert system.outside(update) < 1e-14

    def filled(stack: jax.Array) -> jax.Array:
        u, _, v = jnp.linalg.svd(stack, full_matrices=False)
        return u @ v

    assert system.outside(jax.tree.map(filled, gradient)) > 0.3


@pytest.mark.slow
def test_the_polar_factor_has_a_derivative_where_singular_values_are_equal():
    graph = gdln.Graph({"x": 2, "y": 3}, [("x", "y")])
    rule = rules.muon(1.0, method="polar", momentum=0.0)

    def turned(g: jax.Array) -> jax.Array:
        net = gdln.GatedNetwork.from_stacks(graph, (g,))
        return updated(rule, net, net).stacks[0]

    g, dg = jnp.eye(3, 2)[None], jnp.asarray(np.random.default_rng(0).normal(size=(1, 3, 2)))
    slope = jax.jvp(turned, (g,), (dg,))[1]
    change = (turned(g + 1e-6 * dg) - turned(g - 1e-6 * dg)) / 2e-6
    np.testing.assert_allclose(slope, change, atol=1e-9)


def test_rates_by_edge_and_by_step():
    system = system_a()
    slope = {"x->h": np.array([1.0, 2.0]), "h->y": np.array([3.0, -1.0])}
    net: Any = system.network()
    gradient: Any = system.network(slope)
    rule = rules.sgd({"x->h": 0.1, "h->y": optax.linear_schedule(1.0, 0.0, 2)})
    state = rule.init(net)
    for late in (1.0, 0.5, 0.0):
        step, state = rule.update(gradient, state, net)
        update: Any = step
        for name, rate in (("x->h", 0.1), ("h->y", late)):
            np.testing.assert_allclose(
                update.weights[name], -rate * gradient.weights[name], atol=1e-15
            )
    assert len(np.unique(rule.edge_settings(system.graph), axis=0)) == 2
    same = rules.muon(0.1).edge_settings(system.graph)
    wide = rules.muon(0.1, shape_factor="width").edge_settings(system.graph)
    assert len(np.unique(same, axis=0)) == 1
    assert len(np.unique(wide, axis=0)) == 2
    assert rule.kind == "sgd"
    assert rule.settings["momentum"] == 0.0


@pytest.mark.slow
def test_sam_takes_the_gradient_of_a_neighbour():
    system = system_a()
    net, data = system.network(), system.data
    gradient = jax.jit(jax.grad(gdln.mse))
    rule = rules.sam(rules.sgd(0.1, momentum=0.9), rho=0.05)
    here = gradient(net, data)
    size = np.sqrt(sum(np.sum(np.square(w)) for w in jax.tree.leaves(here)))
    ahead = jax.tree.map(lambda w, g: w + 0.05 * g / size, net, here)
    update = updated(rule, here, net, grad_fn=lambda w, *_: gradient(w, data))
    wanted = jax.tree.map(lambda g: -0.1 * g, gradient(ahead, data))
    for a, b in zip(jax.tree.leaves(update), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-15)
    assert rule.equivariant
    assert not rules.sam(optax.adam(0.1), rho=0.1).equivariant
    with pytest.raises(ValueError, match="grad_fn"):
        updated(rule, here, net)


@pytest.mark.slow
def test_per_matrix_has_one_norm_per_edge_where_optax_has_one_per_stack(values: dict[str, Any]):
    wanted = values["lars_B"]
    lars = optax.lars(0.05, momentum=0.0, trust_coefficient=1.0)
    for rule, name in ((lars, "per_stack"), (rules.per_matrix(lars), "per_matrix")):
        np.testing.assert_allclose(trained(system_b(), rule, 20).losses[-1], wanted[name], RTOL)


def test_what_rules_cannot_do_is_refused(refused_plainly: Any):
    refused_plainly("""
import jax, numpy as np, gdln_jax as gdln
from gdln_jax import rules
graph = gdln.Graph.chain([2, 3, 2])
net = gdln.GatedNetwork.init(graph, gdln.init.normal(1.0), key=jax.random.key(0))
batch = jax.tree.map(lambda w: w[None], net)
attempts = [
    (lambda: rules.sgd(-0.1), "learning_rate is -0.1"),
    (lambda: rules.sgd("fast"), "learning_rate is 'fast'"),
    (lambda: rules.sgd({"x->h1": -1.0}), "learning_rate['x->h1']"),
    (lambda: rules.sgd({"x->h1": 1.0}).init(net), "lacks edge 'h1->y'"),
    (lambda: rules.sgd({"x->h1": 1.0, "h->y": 1.0}).init(net), "did you mean 'h1->y'"),
    (lambda: rules.sgd(0.1, momentum=1.0), "must lie in [0, 1)"),
    (lambda: rules.sgd(0.1, clip=0.0), "clip is 0.0"),
    (lambda: rules.muon(0.1, method="svd"), "method is 'svd'"),
    (lambda: rules.muon(0.1, shape_factor="fan"), "shape_factor is 'fan'"),
    (lambda: rules.muon(0.1, ns_coeffs=(1.0, 2.0)), "ns_coeffs has shape (2,)"),
    (lambda: rules.shampoo(0.1, eps=0.0), "eps is 0.0"),
    (lambda: rules.shampoo(0.1, eps=0.1, decay=1.0), "decay is 1.0"),
    (lambda: rules.sam(0.1, rho=0.1), "inner is 0.1"),
    (lambda: rules.per_matrix(None), "transformation is None"),
    (lambda: rules.muon(0.1).init({"w": np.ones((2, 2))}), "not on a dict"),
    (lambda: rules.muon(0.1).init(batch), "jax.vmap"),
]
""")
    assert issubclass(rules.InexactRuleError, ValueError)
