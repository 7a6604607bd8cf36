"""The certificate of a reduction: how much of the full gradient leaves the aligned manifold.

Floor 3, below the reduction: may import floors 0 to 2.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._classes import refine
from gdln_jax._graph import Graph
from gdln_jax._group_statistics import GroupStatistics
from gdln_jax._modes import ModeData, ModeStrengths, mode_loss
from gdln_jax._network import GatedNetwork
from gdln_jax._plan import PackedData
from gdln_jax.losses import mse

# Points at which the normal component is measured: below, at and above the size at which the
# modes are learned, so that neither Sigma^yx nor Sigma^x dominates everywhere.
_SIZES = (0.5, 1.0, 1.5)


def typical_strength(graph: Graph, statistics: GroupStatistics, modes: int) -> np.ndarray:
    """Size (mode,) of b per edge at which a mode is learned: (S/D)^(1/path length)."""
    ratio = np.zeros(modes)
    depth = max(graph.level[name] for name in graph.outputs)
    for group, s in statistics.strengths.items():
        d = statistics.variances[group, group]
        ratio = np.maximum(ratio, np.abs(s) / np.where(d > 0, d, np.inf))
    return np.where(ratio > 0, ratio, 1.0) ** (1 / depth)


def normal_component(
    packed: PackedData,
    u: tuple[Array, ...],
    v: tuple[Array, ...],
    mode_data: ModeData,
    scale: np.ndarray,
    labels: np.ndarray | None,
    *,
    seed: int,
) -> float:
    """Relative norm of the gradient's part off the manifold; the worst of several points.

    With `labels` (edge,) the points are constant on classes, and the tangent space is that of
    class-constant strengths.
    """
    graph = packed.graph
    rng = np.random.default_rng(seed + 1)
    edges = sum(len(bundle.edges) for bundle in graph.bundles)
    worst = 0.0
    for size in _SIZES:
        classes = np.arange(edges) if labels is None else labels
        values = size * scale * rng.uniform(0.5, 1.5, size=(classes.max() + 1, len(scale)))
        off, total = _normal_norms(packed, u, v, mode_data.masks, unflatten(graph, values[classes]))
        if float(total) > 0:
            worst = max(worst, float(jnp.sqrt(off / total)))
    return worst


@eqx.filter_jit
def _normal_norms(
    packed: PackedData,
    u: tuple[Array, ...],
    v: tuple[Array, ...],
    masks: tuple[Array, ...],
    b: ModeStrengths,
) -> tuple[Array, Array]:
    graph = packed.graph
    parts = list(zip(u, v, masks, strict=True))
    stacks = tuple(
        jnp.einsum("etm,em,esm->ets", uk, bk * mk, vk)
        for (uk, vk, mk), bk in zip(parts, b.stacks, strict=True)
    )
    gradient = jax.grad(lambda w: mse(GatedNetwork.from_stacks(graph, w), packed))(stacks)
    off, total = jnp.zeros(()), jnp.zeros(())
    for g, (uk, vk, mk) in zip(gradient, parts, strict=True):
        along = jnp.einsum("etm,ets,esm->em", uk, g, vk) * mk
        off += jnp.sum(jnp.square(g - jnp.einsum("etm,em,esm->ets", uk, along, vk)))
        total += jnp.sum(jnp.square(g))
    return off, total


def tied_classes(mode_data: ModeData, scale: np.ndarray, *, seed: int) -> np.ndarray:
    """Classes of edges that stay equal when each bundle of parallel edges starts equal."""
    bundles = mode_data.graph.bundles
    labels = np.repeat(np.arange(len(bundles)), [len(bundle.edges) for bundle in bundles])
    return refine(flat_gradient(mode_data), labels, len(scale), scale, seed=seed)


def flat_gradient(mode_data: ModeData) -> Callable[[np.ndarray], np.ndarray]:
    """The gradient of l as a function of strengths (edge, mode), edges in bundle order."""
    graph = mode_data.graph

    @jax.jit
    def slope(values: Array) -> Array:
        gradient = jax.grad(mode_loss)(unflatten(graph, values), mode_data)
        return jnp.concatenate(gradient.stacks)

    return lambda values: np.asarray(slope(jnp.asarray(values)))


def unflatten(graph: Graph, values: Array | np.ndarray) -> ModeStrengths:
    """Strengths from one array (edge, mode), edges in bundle order."""
    bounds = np.cumsum([len(bundle.edges) for bundle in graph.bundles])[:-1]
    return ModeStrengths(graph, tuple(jnp.split(jnp.asarray(values), bounds)))
