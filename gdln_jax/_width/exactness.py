"""The rules that are exact in the small network, and the test of one before it is used."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._scan import as_transformation
from gdln_jax._width.examples import look
from gdln_jax._width.small import small_data
from gdln_jax.rules import InexactRuleError

Loss = Callable[[Any, Any], Array]
Data = GatedData | PackedData

# Largest distance of an exact rule after three updates, over the way they moved the weights.
# Exact ones are at rounding; L2 inside a normalised rule is the nearest of the others.
_EXACT = {np.dtype("float64"): 1e-7, np.dtype("float32"): 1e-3}
_STEPS = 3
_REST = 10.0
_LEAST = 1e-12


def check_rule(
    net: GatedNetwork, data: Data, optimizer: optax.GradientTransformation, loss: Loss
) -> None:
    """Raise `InexactRuleError` unless updates of small and wide networks agree.

    Three updates from each of two random starts in the small network, and in one of twice the
    width that reduces to it.
    """
    rule = as_transformation(optimizer)
    worst = max(_distance(net, data, rule, loss, number) for number in range(2))
    if not worst <= _EXACT[np.dtype(net.stacks[0].dtype)]:
        raise InexactRuleError(
            f"this optimizer is not exact in the small network: after {_STEPS} updates the wide "
            f"weights differ by {worst:.1e} of the way that they moved. Exact are gradient descent "
            "with momentum, decoupled or L2 weight decay and clipping by the global norm, and "
            "gdln.rules without weight decay inside a normalised gradient. Adam, sign and other "
            "element-wise rules are not, nor are rules that read the norm of the weights (LARS). "
            "Train the wide network with these."
        )


def _distance(
    net: GatedNetwork, data: Data, rule: optax.GradientTransformation, loss: Loss, number: int
) -> float:
    """Largest distance between the wide weights and what the small ones say, over the way moved.

    The rest may have become smaller, by one number per edge.
    """
    rng = np.random.default_rng(number)
    graph, dtype = net.graph, net.stacks[0].dtype
    wide = _wider(graph)
    rms = [float(jnp.sqrt(jnp.mean(jnp.square(w)))) for w in net.stacks]
    frames = {
        name: np.linalg.qr(rng.standard_normal((width, width)))[0][:, : graph.nodes[name]]
        if name not in graph.outputs
        else np.eye(width)
        for name, width in wide.nodes.items()
    }
    small, inside, rest = {}, {}, {}
    for edge in graph.edges:
        size = rms[graph.slot[edge.name][0]] + _LEAST
        target, source = frames[edge.target], frames[edge.source]
        small[edge.name] = size * rng.standard_normal(graph.shape(edge.name))
        inside[edge.name] = target @ small[edge.name] @ source.T
        more = _REST * (max(rms) + _LEAST) * rng.standard_normal(wide.shape(edge.name))
        more -= more @ source @ source.T
        if edge.source not in graph.inputs:
            more -= target @ (target.T @ more)
        rest[edge.name] = more
    _, tables = look(graph, data, 0.0)
    turned = {name: frames[name].T for name in graph.inputs}
    examples = small_data(graph, wide, data, tables, turned, span=False)
    small_end = _updated(_network(graph, small, dtype), data, rule, loss)
    start = {name: inside[name] + rest[name] for name in inside}
    wide_end = _updated(_network(wide, start, dtype), examples, rule, loss)
    gap = moved = 0.0
    for edge in graph.edges:
        name, target, source = edge.name, frames[edge.target], frames[edge.source]
        end = np.asarray(wide_end.weights[name], np.float64)
        left = end - target @ np.asarray(small_end.weights[name], np.float64) @ source.T
        share = np.sum(left * rest[name]) / max(np.sum(rest[name] ** 2), _LEAST**2)
        gap = max(gap, float(np.abs(left - share * rest[name]).max()))
        moved = max(moved, float(np.abs(end - start[name]).max()))
    return gap / moved if moved else gap


def _network(graph: Graph, weights: Mapping[str, np.ndarray], dtype: np.dtype) -> GatedNetwork:
    return GatedNetwork(graph, {name: jnp.asarray(w, dtype) for name, w in weights.items()})


def _wider(graph: Graph) -> Graph:
    """The graph at twice the width, or at the least multiple that keeps its bundles."""
    for factor in (2, 3, 4, 5):
        wide = Graph(
            {k: n if k in graph.outputs else factor * n for k, n in graph.nodes.items()},
            [(e.source, e.target, e.name) for e in graph.edges],
        )
        if [b.edges for b in wide.bundles] == [b.edges for b in graph.bundles]:
            return wide
    return wide


@eqx.filter_jit
def _updated(
    net: GatedNetwork, data: Data, optimizer: optax.GradientTransformation, loss: Loss
) -> GatedNetwork:
    """The network after three updates."""
    rule = optax.with_extra_args_support(optimizer)

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        here, state = carry
        value, gradient = jax.value_and_grad(loss)(here, data)
        extra = {"value": value, "grad": gradient, "value_fn": lambda net: loss(net, data)}
        updates, state = rule.update(gradient, state, here, **extra)
        return (eqx.apply_updates(here, updates), state), None

    state = rule.init(eqx.filter(net, eqx.is_inexact_array))
    (end, _), _ = jax.lax.scan(step, (net, state), None, length=_STEPS)
    return end
