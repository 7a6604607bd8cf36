"""Three gating problems whose reduced dynamics are known for every value of the gates.

Each objective is the logarithm of the time to a loss level, a function of gate variables. The
dynamics are those of full networks from aligned small weights, exactly, because all gates leave
the same frames: margin XoR has one output, so that a pathway is one vector; in routing the gates
multiply whole routes, which share the base data's modes; with equal contexts the gates multiply
whole contexts, which share the items' modes, and an output is a vector over the blocks of features.
"""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax import GatedData, GatedNetwork, Graph, gates, mse, tasks

# Pathways of the margin task on the examples (-1,-1), (1,-1), (-1,1), (1,1): one per class, then
# one per example. They are the patterns of ReLU units that are on where their own input weights,
# grown along <g y x>, say so; no other pattern of the 16 is.
_SERVED = np.array(
    [[0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], float
)
CLASSES = ((1, 2), (0, 3))


# Relative tolerance of the solver: a time to some 1e-4, gradients likewise.
_RTOL = 1e-4


class MarginTime(eqx.Module):
    """Log time to loss 1/5 of margin XoR, where each example is routed by one variable.

    `own` (4,): logits of the gate of the example's own pathway (XoR gating); its class's pathway
    (linear gating) gets the rest. All six pathways start at a(0) = a0 along their <g y x>.
    """

    delta: Float[Array, ""]
    a0: Float[Array, ""]

    def __call__(self, own: Float[Array, " 4"]) -> Float[Array, ""]:
        graph = _parallel(3, 6, 1)
        share = jax.nn.sigmoid(own)
        g = jnp.concatenate([_SERVED[:2] * (1 - share), _SERVED[2:] * share])
        plain = tasks.margin_xor(self.delta, gating="none").data
        assert isinstance(plain, GatedData)
        pull = (g * plain.targets["y"][:, 0]) @ plain.inputs["x"]
        along = _direction(pull)
        amplitude = jnp.sqrt(self.a0)
        weights = {f"x->h{i}": amplitude * along[i][None] for i in range(6)}
        weights |= {f"h{i}->y": jnp.full((1, 1), amplitude) for i in range(6)}
        data = gates.with_gates(plain, {f"h{i}": g[i] for i in range(6)})
        net = GatedNetwork(graph, weights)
        return jnp.log(gates.learning_time(net, data, 0.2, t1=400.0, rtol=_RTOL))


def margin_gating(own: np.ndarray) -> np.ndarray:
    """0 linear, 1 XoR, .5 one of each per class, from logits (..., 4).

    A class pathway that serves one example only is that example's own: with equal a(0) the pair
    is joined only if both of it are.
    """
    apart = [np.max(np.asarray(own)[..., list(pair)], axis=-1) > 0 for pair in CLASSES]
    return np.mean(apart, axis=0)


class RoutingTime(eqx.Module):
    """Log time to a tenth of L(0) of routing, where each route chooses among hidden pathways.

    `logits` (route, pathway), a softmax over pathways. Candidates are all-to-all: every input
    domain feeds, and every output domain is fed by, every hidden pathway.
    """

    graph: Graph = eqx.field(static=True)
    data: GatedData
    b0: Float[Array, ""]

    def __call__(self, logits: Float[Array, "route pathway"]) -> Float[Array, ""]:
        chosen = jax.nn.softmax(logits, axis=-1)
        data = gates.with_gates(self.data, {f"h{p}": chosen[:, p] for p in range(logits.shape[-1])})
        ones = {edge.name: jnp.full((1, 1), self.b0) for edge in self.graph.edges}
        net = _side_by_side(GatedNetwork(self.graph, ones), len(data.weights))
        level = mse(net, data) / 10
        return jnp.log(gates.learning_time(net, data, level, t1=1000.0, rtol=_RTOL))


def routing_time(domains: int, pathways: int, b0: float) -> tuple[RoutingTime, int]:
    """The objective for M domains, all routes trained on the hierarchy, and the routes' number."""
    features = tasks.hierarchy_features()
    n = features.shape[1]
    values = np.linalg.svd(features / n, compute_uv=False)
    d = 1 / n
    routes = list(itertools.product(range(domains), repeat=2))
    xs, ys = ([f"{v}{i}" for i in range(domains)] for v in "xy")
    hidden = [(f"h{p}", f"k{p}") for p in range(pathways)]
    graph = Graph(
        dict.fromkeys([*xs, *(v for pair in hidden for v in pair), *ys], 1),
        [
            *((x, h) for x in xs for h, _ in hidden),
            *hidden,
            *((k, y) for _, k in hidden for y in ys),
        ],
    )
    starts, ends = (np.eye(domains)[[route[i] for route in routes]] for i in (0, 1))
    data = [
        GatedData(
            {x: np.sqrt(d) * starts[:, [i]] for i, x in enumerate(xs)},
            {y: s / np.sqrt(d) * ends[:, [i]] for i, y in enumerate(ys)},
            {},
            {f"{k}->{y}": ends[:, i] for _, k in hidden for i, y in enumerate(ys)},
        )
        for s in values[values > 1e-9 * values[0]]
    ]
    return RoutingTime(graph, _stacked(data), jnp.asarray(b0)), len(routes)


class ContextTime(eqx.Module):
    """Log time to a twentieth of L(0) of C contexts of equal structure, from gates per context.

    `logits` (pathway, context), a sigmoid each: which contexts a contextual pathway is on in, next
    to a common one. The corners are all families of subsets of contexts.
    """

    graph: Graph = eqx.field(static=True)
    data: GatedData
    a0: Float[Array, ""]

    def __call__(self, logits: Float[Array, "pathway context"]) -> Float[Array, ""]:
        return self.at(jax.nn.sigmoid(logits))

    def at(self, g: Float[Array, "pathway context"]) -> Float[Array, ""]:
        """The objective at given gates."""
        data = gates.with_gates(self.data, {f"h{p}": g[p] for p in range(len(g))})
        blocks = self.data.targets["y"][0] / jnp.max(self.data.targets["y"][0])
        amplitude = jnp.sqrt(self.a0)
        pulls = {"common": blocks.mean(axis=0)} | {f"h{p}": g[p] @ blocks for p in range(len(g))}
        weights = {}
        for name, pull in pulls.items():
            along = _direction(pull)
            weights[f"x->{name}"] = jnp.full((1, 1), amplitude)
            weights[f"{name}->y"] = amplitude * along[:, None]
        net = _side_by_side(GatedNetwork(self.graph, weights), len(data.weights))
        level = mse(net, data) / 20
        return jnp.log(gates.learning_time(net, data, level, t1=400.0, rtol=_RTOL))


def context_time(contexts: int, pathways: int, a0: float) -> ContextTime:
    """The objective for C contexts and a number of contextual pathways (8 items, H Fig. 5)."""
    plain = tasks.semantic_contexts(contexts, pathways="none", width=1)
    n = plain.meta["loss_scale"] // contexts
    rows = plain.meta["y"].shape[1] // (contexts + 1)
    tree = plain.meta["y"][:n, :rows].T
    values = np.linalg.svd(tree - tree.mean(axis=1, keepdims=True), compute_uv=False)[: n - 1]
    graph = _parallel(1, pathways, contexts + 1, "common")
    blocks = np.concatenate([np.ones((contexts, 1)), np.eye(contexts)], axis=1)
    x = np.full((contexts, 1), 1 / np.sqrt(n))
    data = [GatedData({"x": x}, {"y": value / np.sqrt(n) * blocks}) for value in values]
    return ContextTime(graph, _stacked(data), jnp.asarray(a0))


def families(contexts: int, pathways: int) -> np.ndarray:
    """All choices of subsets of contexts, one per pathway, as 0/1 (choice, pathway, context)."""
    subsets = np.array(list(itertools.product([0.0, 1.0], repeat=contexts)))
    chosen = itertools.combinations_with_replacement(range(len(subsets)), pathways)
    return np.array([subsets[list(which)] for which in chosen])


def is_doubles(g: np.ndarray) -> bool:
    """Whether gates (pathway, context) are all C choices of C - 1 contexts, each once."""
    on = np.asarray(g) > 0.5
    return bool(np.all((~on).sum(axis=0) == 1) and np.all((~on).sum(axis=1) == 1))


def _parallel(inputs: int, count: int, outputs: int, *more: str) -> Graph:
    hidden = [*more, *(f"h{i}" for i in range(count))]
    return Graph(
        {"x": inputs, **dict.fromkeys(hidden, 1), "y": outputs},
        [*(("x", h) for h in hidden), *((h, "y") for h in hidden)],
    )


def _direction(pull: Array) -> Array:
    """`pull` (..., width) scaled to norm 1; 0, with derivatives, where a pathway is off."""
    return pull / jnp.sqrt(jnp.sum(pull**2, axis=-1, keepdims=True) + 1e-12)


def _stacked(datas: list[GatedData]) -> GatedData:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *datas)


def _side_by_side(net: GatedNetwork, modes: int) -> gates.ModeNetworks:
    def repeated(leaf: Any) -> Array:
        return jnp.broadcast_to(leaf, (modes, *leaf.shape))

    return gates.ModeNetworks(jax.tree.map(repeated, net))
