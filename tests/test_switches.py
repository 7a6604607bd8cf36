"""A wide sample of the public functions under JAX's switches.

Neither shapes nor precisions may meet by luck (`jax_numpy_rank_promotion="raise"`,
`jax_numpy_dtype_promotion="strict"`). The sample is traced, not compiled, where that is enough.
"""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gdln_jax as gdln
from gdln_jax import exact, init, measures, race, relu, tasks

KEY = jax.random.key(0)
TS = jnp.array([0.0, 1.0, 2.0])
EYE = jnp.eye(2)
TASK = tasks.hierarchy(width=3)
REDUCTION = gdln.reduce(TASK.graph, TASK.data)
ROUTING = tasks.routing(2, 1, width=3)
XOR = tasks.xor(gating="none", width=5)
SGD = optax.sgd(0.1, momentum=0.9)
# Tasks may hold packed data; these do not.
TASK_DATA, ROUTING_DATA, XOR_DATA = (cast(gdln.GatedData, t.data) for t in (TASK, ROUTING, XOR))


def network(task: tasks.Task = TASK) -> gdln.GatedNetwork:
    return gdln.GatedNetwork.init(task.graph, init.orthogonal(0.3), key=KEY)


def rectified(**options: Any) -> relu.ReLUNetwork:
    return relu.ReLUNetwork.init(XOR.graph, std=0.3, key=KEY, **options)


def pathways(depth: int = 2) -> race.Pathways:
    return race.Pathways(jnp.array([1.0, 0.5, 0.7]), jnp.eye(3), depth)


RACE = race.LotkaVolterra([1.0, 2.0, 0.5])
START = jnp.array([0.1, 0.2, 0.1])

TRACED: dict[str, Callable[[], Any]] = {
    "init": lambda: [
        gdln.GatedNetwork.init(ROUTING.graph, how(), key=KEY)
        for how in (init.orthogonal, init.normal, init.xavier, init.balanced)
    ],
    "init.balanced": lambda: gdln.GatedNetwork.init(TASK.graph, init.balanced(0.1), key=KEY),
    "modes": lambda: [
        exact.linear_mode(TS, 1.0, 1.0, 0.1),
        exact.linear_mode_time(TS, 1.0, 1.0, 0.1),
        exact.unbalanced_mode(TS, 1.0, 1.0, 0.1, 0.2),
        exact.unbalanced_mode_time(TS, 1.0, 1.0, 0.1, 0.2),
        exact.context_mode(TS, 1.0, 1.0, 0.1, 3),
    ],
    "routing": lambda: [
        exact.routing_mode(TS, 1.0, 1.0, 0.1, 3),
        exact.routing_time(TS, 1.0, 1.0, 0.1, 3),
        exact.routing_loss(TS, jnp.array([1.0, 2.0]), 1.0, 0.1, 3),
        exact.sharing_mode(TS[:, None], jnp.array([1.0, 2.0]), 1.0, 0.1, 4, 4),
    ],
    "xor": lambda: [
        exact.xor_loss(TS, 0.1),
        exact.margin_loss(TS, 0.1, 0.1, gating="xor"),
        exact.margin_time(0.2, 0.1, 0.1, gating="linear"),
        exact.margin_crossover(jnp.array([1e-4, 1e-5])),
    ],
    "two_layer_flow": lambda: exact.two_layer_flow(TS, 0.1 * EYE, 0.1 * EYE, EYE),
    "LotkaVolterra": lambda: [
        RACE.solve(START, TS),
        RACE.solve(START, TS, method="ode"),
        RACE.phases(START),
        RACE.limit(START),
        RACE.winner(START),
    ],
    "Pathways": lambda: [
        pathways().solve(START, TS),
        pathways(3).solve(START, TS, tau=2.0),
        jax.vmap(jax.grad(lambda S: race.Pathways(S, jnp.eye(3)).limit().sum()))(jnp.ones((2, 3))),
        pathways().winner(START),
        pathways().contributions(jnp.ones((4, 3))),
    ],
    "portraits": lambda: [
        race.frozen_shares(jnp.ones((2, 3)), START, 3),
        race.frozen_shares([1.0, 0.5], [0.1, 0.1], 2),
        race.depth_rule([1.0, 0.5], [0.1, 0.1], 3),
        race.winner_map([1.0, 0.5, 2.0], [0.5, 1.0], 3),
        race.nullclines(race.Pathways([1.0, 0.5], EYE), 1.0, 3),
        race.phase_field(race.LotkaVolterra([1.0, 2.0]), 1.0, 3),
    ],
    "ReLUNetwork": lambda: [
        relu.ReLUNetwork.init([2, 3, 4, 1], bias=True, slope=0.1, key=KEY)(jnp.ones((5, 2))),
        relu.snapshot(rectified(bias=True), XOR_DATA, threshold=0.1),
        relu.coactivation(rectified(), XOR_DATA, groups=np.array([0, 0, 1, 1])),
    ],
    "gradient_flow": lambda: gdln.gradient_flow(network(), TASK_DATA, TS),
    "gradient_flow of ReLU": lambda: gdln.gradient_flow(rectified(bias=True), XOR_DATA, TS),
    "train": lambda: [
        gdln.train(network(), TASK_DATA, optimizer=SGD, steps=4),
        gdln.train(network(), TASK_DATA, optimizer=SGD, steps=2, loss=gdln.cross_entropy),
        gdln.train(network(), TASK_DATA, optimizer=SGD, steps=2, batch_size=2, key=KEY),
        gdln.train(rectified(bias=True), XOR_DATA, optimizer=SGD, steps=2),
    ],
    "losses": lambda: [
        gdln.mse(network(ROUTING), ROUTING_DATA),
        gdln.mse(network(ROUTING), gdln.pack(ROUTING.graph, ROUTING_DATA)),
        gdln.path_statistics(ROUTING.graph, ROUTING_DATA),
    ],
    "solve": lambda: REDUCTION.solve(0.1, TS),
    "measures": lambda: [
        measures.route_errors(network(ROUTING), *ROUTING.meta["base"]),
        measures.error_by_group(network(), TASK_DATA, jnp.zeros(TASK.data.num_examples, int), 1),
        measures.empirical_ntk(network(), TASK_DATA),
        measures.weight_movement(network(), network()),
        measures.balancedness(network(ROUTING)),
        measures.representational_similarity(network(), TASK_DATA, "h1", cosine=True),
        measures.domain_alignment(jnp.eye(4), 2),
        measures.kernel_movement(EYE, EYE),
        measures.frame_distance(EYE, EYE, EYE),
        measures.singular_vector_alignment(EYE, EYE, EYE),
        jax.vmap(jax.grad(lambda w: measures.singular_values(w).sum()))(jnp.ones((3, 3, 2))),
    ],
}


def gates() -> None:
    net = rectified(bias=True)
    shot = relu.snapshot(net, XOR_DATA, threshold=0.1)
    modules = relu.discover_gates(shot, k=1)
    _, data, gated = gdln.build_gated(modules, XOR_DATA, std=0.1, key=KEY)
    gated(data)
    relu.pattern_power(net, XOR_DATA, threshold=0.1)
    relu.as_gated(net, XOR_DATA, merge=True)


HOST: dict[str, Callable[[], Any]] = {
    "reduce": lambda: gdln.reduce(ROUTING.graph, ROUTING_DATA).quotient(0.1),
    "project": lambda: REDUCTION.project(network()),
    "Pathways": lambda: [
        race.Pathways.from_reduction(REDUCTION, 0),
        race.Pathways([1.0, 0.5], np.outer([1, 0.5], [1, 0.5])).limit([0.1, 0.1]),
    ],
    "gates": gates,
    "tasks": lambda: [tasks.xor(), tasks.semantic_contexts(3), tasks.contextual_classification()],
    "sweep": lambda: gdln.sweep(
        lambda key, s: s * jax.random.normal(key), {"s": [0.1, 0.2]}, key=KEY
    ),
}


def arrays(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)]


@pytest.mark.parametrize("name", TRACED)
def test_shapes_and_precisions_do_not_meet_by_luck_in_traced(name):
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        assert jax.eval_shape(lambda: arrays(TRACED[name]()))


@pytest.mark.parametrize("name", HOST)
def test_shapes_and_precisions_do_not_meet_by_luck_in(name):
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        HOST[name]()
