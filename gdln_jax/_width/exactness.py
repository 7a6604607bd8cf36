"""The rules that are exact in the small network, and the test of one before it is used."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from typing_extensions import TypeAliasType

from gdln_jax import rules, train
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._width.examples import look
from gdln_jax._width.small import small_data, small_net

Loss = TypeAliasType("Loss", Callable[[Any, Any], Array])
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
    graph, dtype = net.graph, np.dtype(net.stacks[0].dtype)
    wide = _wider(graph)
    # Inputs and frames are those of one wide system; its weights are drawn twice.
    frames = _frames(graph, wide)
    starts = [_start(net, wide, frames, seed) for seed in range(2)]
    _, tables = look(graph, data, 0.0)
    turned = {name: frames[name].T for name in graph.inputs}
    examples = small_data(graph, wide, data, tables, turned, span=False)
    small_ends = _updated(graph, [one.small for one in starts], dtype, data, optimizer, loss)
    wide_ends = _updated(
        wide, [one.inside_and_rest for one in starts], dtype, examples, optimizer, loss
    )
    worst = max(
        _distance(one, frames, graph, *ends)
        for one, *ends in zip(starts, small_ends, wide_ends, strict=True)
    )
    if not worst <= _EXACT[dtype]:
        raise rules.InexactRuleError(
            f"this optimizer is not exact in the small network: after {_STEPS} updates the wide "
            f"weights differ by {worst:.1e} of the way that they moved. Exact are gradient descent "
            "with momentum, decoupled or L2 weight decay and clipping by the global norm, and "
            "gdln.rules without weight decay inside a normalised gradient. Adam, sign and other "
            "element-wise rules are not, nor are rules that read the norm of the weights (LARS). "
            "Train the wide network with these."
        )


class _Start(NamedTuple):
    """Small weights, R w R^T, and a large rest, by edge."""

    small: dict[str, np.ndarray]
    inside: dict[str, np.ndarray]
    rest: dict[str, np.ndarray]

    @property
    def inside_and_rest(self) -> dict[str, np.ndarray]:
        """The wide weights."""
        return {name: w + self.rest[name] for name, w in self.inside.items()}


def _frames(graph: Graph, wide: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: np.eye(width)
        if name in graph.outputs
        else np.linalg.qr(rng.standard_normal((width, width)))[0][:, : graph.nodes[name]]
        for name, width in wide.nodes.items()
    }


def _start(net: GatedNetwork, wide: Graph, frames: dict[str, np.ndarray], seed: int) -> _Start:
    """Random weights of the size of the network's."""
    rng, graph = np.random.default_rng(seed), net.graph
    rms = [float(jnp.sqrt(jnp.mean(jnp.square(w)))) + _LEAST for w in net.stacks]
    start = _Start({}, {}, {})
    for edge in graph.edges:
        name, target, source = edge.name, frames[edge.target], frames[edge.source]
        start.small[name] = rms[graph.slot[name][0]] * rng.standard_normal(graph.shape(name))
        start.inside[name] = target @ start.small[name] @ source.T
        rest = _REST * max(rms) * rng.standard_normal(wide.shape(name))
        rest -= rest @ source @ source.T
        if edge.source not in graph.inputs:
            rest -= target @ (target.T @ rest)
        start.rest[name] = rest
    return start


def _distance(
    start: _Start,
    frames: dict[str, np.ndarray],
    graph: Graph,
    small: dict[str, np.ndarray],
    wide: dict[str, np.ndarray],
) -> float:
    """Largest distance between the wide weights and what the small ones say, over the way moved.

    The rest may have become smaller, by one number per edge.
    """
    gap = moved = 0.0
    for edge in graph.edges:
        name, rest = edge.name, start.rest[edge.name]
        left = wide[name] - frames[edge.target] @ small[name] @ frames[edge.source].T
        share = np.sum(left * rest) / max(np.sum(rest**2), _LEAST**2)
        gap = max(gap, float(np.abs(left - share * rest).max()))
        moved = max(moved, float(np.abs(wide[name] - start.inside[name] - rest).max()))
    return gap / moved if moved else gap


def _wider(graph: Graph) -> Graph:
    """The graph at twice the width, or at the least multiple that keeps its bundles."""
    every = (
        Graph(
            {k: n if k in graph.outputs else factor * n for k, n in graph.nodes.items()},
            [(e.source, e.target, e.name) for e in graph.edges],
        )
        for factor in range(2, 9)
    )
    bundles = [b.edges for b in graph.bundles]
    return next(wide for wide in every if [b.edges for b in wide.bundles] == bundles)


def _updated(
    graph: Graph,
    starts: list[dict[str, np.ndarray]],
    dtype: np.dtype,
    data: Data,
    optimizer: optax.GradientTransformation,
    loss: Loss,
) -> list[dict[str, np.ndarray]]:
    """Weights of each start after three updates."""
    net = small_net(graph, starts, dtype)
    end = jax.vmap(
        lambda one: (
            train(
                one,
                data,
                optimizer=optimizer,
                steps=_STEPS,
                loss=loss,
                save_every=_STEPS,
                keep_models=False,
            ).final
        )
    )(net)
    arrays = {name: np.asarray(w, np.float64) for name, w in end.weights.items()}
    return [{name: w[i] for name, w in arrays.items()} for i in range(len(starts))]
