"""The certificate of a reduction: how much of the full gradient leaves the aligned manifold."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph
from gdln_jax._network.edges import Stacks, by_store
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._network.losses import mse
from gdln_jax._reduction.classes import refine
from gdln_jax._reduction.loss import ModeData, mode_loss
from gdln_jax._reduction.statistics import GroupStatistics
from gdln_jax._reduction.strengths import ModeStrengths

# Points at which the normal component is measured: below, at and above the size at which the
# modes are learned, so that neither Sigma^yx nor Sigma^x dominates everywhere.
_SIZES = (0.5, 1.0, 1.5)


def typical_strength(
    graph: Graph,
    ports: Iterable[tuple[int, int]],
    seen: GroupStatistics,
    sizes: Mapping[str, float] | None = None,
) -> np.ndarray:
    """Size (mode,) of b per edge at which a mode is learned: (S/D)^(1/path length).

    `ports`: first and last edge of each group of paths. With `sizes`, for data in units of the
    nodes' sizes.
    """
    depth = max(graph.level[name] for name in graph.outputs)
    s = np.abs(np.stack(list(seen.strengths.values())))
    d = np.stack([seen.variances[group, group] for group in seen.strengths])
    # A variance of rounding size would make a mode that is never seen look strong.
    varies = d > 1e-12 * d.max(axis=1, keepdims=True, initial=0.0)
    ratio = s * varies / np.where(varies, d, 1)
    if sizes is not None:
        ends = ((graph.edges[e].source, graph.edges[f].target) for e, f in ports)
        ratio *= np.array([[sizes[source] / sizes[target]] for source, target in ends])
    largest = ratio.max(axis=0)
    return np.where(largest > 0, largest, 1.0) ** (1 / depth)


def normal_component(
    packed: PackedData,
    u: tuple[Array, ...],
    v: tuple[Array, ...],
    masks: tuple[Array, ...],
    scale: np.ndarray,
    labels: np.ndarray | None,
    fixed: Stacks | None = None,
    *,
    seed: int,
) -> float:
    """Relative norm of the gradient's part off the manifold; the worst of several points.

    `packed` should be in units of the nodes' sizes, so that a node measured in small units counts
    like the others. With `labels` (parameter,) the points are constant on classes, and the tangent
    space is that of all strengths. `fixed` are the frozen arrays; of tied edges the gradient is
    that of the class, whose terms may cancel (theory#tied-frames).
    """
    rng = np.random.default_rng(seed + 1)
    classes = np.arange(len(packed.graph.moving)) if labels is None else labels
    frames = _Frames(u, v, [np.asarray(mask) for mask in masks])
    worst = 0.0
    for size in _SIZES:
        values = size * scale * rng.uniform(0.5, 1.5, size=(classes.max() + 1, len(scale)))
        strengths = by_store(packed.graph, values[classes], core=1)
        worst = max(worst, frames.share_outside(packed, strengths, fixed))
    return worst


def span_leak(
    packed: PackedData,
    u: tuple[Array, ...],
    v: tuple[Array, ...],
    size: float,
    fixed: Stacks | None = None,
    *,
    seed: int,
) -> float:
    """Relative norm of the gradient's part outside the span of full frames; the worst of several.

    The points are random matrices M_e of about `size`, W_e = U_e M_e V_e^T, and the span holds
    all such weights. `packed` as in `normal_component`.
    """
    rng = np.random.default_rng(seed + 2)
    count = u[0].shape[-1]
    frames = _Frames(u, v)
    worst = 0.0
    for factor in _SIZES:
        spread = factor * size / np.sqrt(count)
        matrices = tuple(spread * rng.normal(size=(len(stack), count, count)) for stack in u)
        worst = max(worst, frames.share_outside(packed, matrices, fixed))
    return worst


class _Frames:
    """Frames in NumPy, where what is done once with each stack is no program.

    With `masks` (parameter, mode) their weights are U diag(b) V^T, without U b V^T.
    """

    def __init__(
        self,
        u: Sequence[Array],
        v: Sequence[Array],
        masks: Sequence[np.ndarray] | None = None,
    ) -> None:
        self.u, self.v, self.masks = [*map(np.asarray, u)], [*map(np.asarray, v)], masks

    def share_outside(
        self, packed: PackedData, strengths: Sequence[np.ndarray], fixed: Stacks | None
    ) -> float:
        """Relative norm of the gradient's part that no strengths make, at `strengths`."""
        weights = [self._weights(k, b) for k, b in enumerate(strengths)]
        gradient = [np.asarray(g) for g in _gradient(packed, jax.device_put(weights), fixed)]
        total = sum(float(np.sum(np.square(g))) for g in gradient)
        outside = [g - self._weights(k, self._read(k, g)) for k, g in enumerate(gradient)]
        off = sum(float(np.sum(np.square(rest))) for rest in outside)
        return math.sqrt(off / total) if total > 0 else 0.0

    def _weights(self, k: int, b: np.ndarray) -> np.ndarray:
        left = self.u[k] @ b if self.masks is None else self.u[k] * (b * self.masks[k])[:, None]
        return left @ np.swapaxes(self.v[k], 1, 2)

    def _read(self, k: int, w: np.ndarray) -> np.ndarray:
        right = w @ self.v[k]
        if self.masks is None:
            return np.swapaxes(self.u[k], 1, 2) @ right
        return np.sum(self.u[k] * right, axis=1)


@eqx.filter_jit
def _gradient(packed: PackedData, weights: Sequence[Array], fixed: Stacks | None) -> Stacks:
    def loss(weights: Sequence[Array]) -> Array:
        return mse(GatedNetwork.from_stacks(packed.graph, tuple(weights), fixed), packed)

    return tuple(jax.grad(loss)(weights))


def tied_classes(datas: Sequence[ModeData], scale: np.ndarray, *, seed: int) -> np.ndarray:
    """Classes of parameters that stay equal when each store of parallel ones starts equal."""
    counts = [len(mask) for mask in datas[0].masks]
    labels = np.repeat(np.arange(len(counts)), counts)
    return refine(joint_gradient(datas), labels, len(scale), scale, seed=seed)


def joint_gradient(datas: Sequence[ModeData]) -> Callable[[np.ndarray], np.ndarray]:
    """The gradients of l on all data, side by side, as a function of strengths (parameter, mode).

    In the order of stores; with one data set (parameter, mode).
    """

    def gradient(values: np.ndarray) -> np.ndarray:
        slopes = [np.asarray(_slope(jnp.asarray(values), data)) for data in datas]
        return np.concatenate(slopes, axis=1)

    return gradient


@eqx.filter_jit
def _slope(values: Array, mode_data: ModeData) -> Array:
    # The data are an argument: closed over, they would be baked into the program.
    b = ModeStrengths.from_flat(mode_data.graph, values)
    return jax.grad(mode_loss)(b, mode_data).flat()


def named_classes(graph: Graph, labels: np.ndarray) -> tuple[tuple[str, ...], ...]:
    """Names of the parameters of each class, `labels` in the order of stores."""
    groups: list[list[str]] = [[] for _ in range(labels.max() + 1)]
    for name, label in zip(graph.moving, labels.tolist(), strict=True):
        groups[label].append(name)
    return tuple(tuple(group) for group in groups)
