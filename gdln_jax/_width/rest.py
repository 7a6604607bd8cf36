"""What a small network does not hold: the rest of the wide weights, and how it decays.

W_e(t) = R_t w_e(t) R_s^T + c(t) [W_e(0) - P_t W_e(0) P_s], where c = 1 without weight decay.
"""

import math
from collections.abc import Iterator, Mapping
from numbers import Real

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from gdln_jax import train
from gdln_jax._checks import check_integer, check_keys, check_positive
from gdln_jax._data.arrays import ArrayMapping
from gdln_jax._network.gated import GatedNetwork

Factor = float | Mapping[str, float]
_HIGHEST = jax.lax.Precision.HIGHEST


class Rest(ArrayMapping[Array]):
    """Read-only mapping edge -> W_e(0) - P_t W_e(0) P_s, made when asked for."""

    def __init__(self, wide: GatedNetwork, small: GatedNetwork, frames: Mapping[str, Array]):
        self._wide, self._small, self._frames = wide, small, frames

    def __getitem__(self, name: str) -> Array:
        w = self._wide.weights[name]
        edge = self._wide.graph.edge(name)
        ends = self._frames[edge.target], self._frames[edge.source]
        return w - widened(self._small.weights[name], *ends).astype(w.dtype)

    def __iter__(self) -> Iterator[str]:
        return (edge.name for edge in self._wide.graph.edges)

    def __len__(self) -> int:
        return len(self._wide.graph.edges)

    def __repr__(self) -> str:
        return f"Rest({len(self)} edges)"


def widened(
    w: Float[Array, "*batch target source"],
    target: Float[Array, "*seed N target"],
    source: Float[Array, "*seed M source"],
) -> Float[Array, "*batch N M"]:
    """R_t w R_s^T."""
    return jnp.einsum("...tr,...rq,...sq->...ts", target, w, source, precision=_HIGHEST)


def lifted(
    wide: GatedNetwork,
    start: GatedNetwork,
    small: GatedNetwork,
    frames: Mapping[str, Array],
    rest: Factor,
) -> GatedNetwork:
    """The wide network that `small` stands for: R_t (w - c w(0)) R_s^T + c W(0)."""
    c = factors(rest, wide)
    stacks = []
    for bundle in wide.graph.bundles:
        edges = []
        for name in bundle.edges:
            edge, w = wide.graph.edge(name), wide.weights[name]
            moved = small.weights[name] - c[name] * start.weights[name]
            inside = widened(moved, frames[edge.target], frames[edge.source])
            edges.append(inside.astype(w.dtype) + c[name] * w)
        stacks.append(jnp.stack(edges, axis=-3))
    return GatedNetwork.from_stacks(wide.graph, tuple(stacks))


def factors(rest: Factor, net: GatedNetwork) -> dict[str, float]:
    """Edge -> c."""
    if isinstance(rest, Real):
        return dict.fromkeys(net.graph.edge_index, float(rest))
    if not isinstance(rest, Mapping):
        raise ValueError(
            f"rest is a {type(rest).__name__}; pass one number, a mapping edge -> number, or what "
            ".rest_factor(...) returns."
        )
    check_keys(rest, net.graph.edge_index, "rest", "an edge of the graph")
    return {name: float(rest.get(name, 1.0)) for name in net.graph.edge_index}


def flow_factor(decay: float, t: float, tau: float) -> float:
    """exp(-decay t / tau): tau dW/dt = -decay W for what has no gradient."""
    for name, value in (("decay", decay), ("t", t)):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{name} is {value}; it must be a finite number of at least 0.")
    return math.exp(-decay * t / check_positive(tau, "tau"))


def descent_factor(
    net: GatedNetwork, optimizer: optax.GradientTransformation, steps: int
) -> Factor:
    """Run the optimiser with gradient 0 from 1, one entry a matrix.

    The leaves have the axes of the network's, since optimisers may treat numbers, vectors and
    matrices differently. One number if all edges agree, else one per edge.
    """
    if check_integer(steps, "steps", minimum=0) == 0:
        return 1.0
    ones = jax.tree.map(lambda stack: jnp.ones((1, *stack.shape[-3:-2], 1, 1), stack.dtype), net)
    end = jax.vmap(
        lambda one: (
            train(
                one,
                None,
                optimizer=optimizer,
                steps=steps,
                loss=_nothing,
                save_every=steps,
                keep_models=False,
            ).final
        )
    )(ones)
    found = {edge.name: float(end.weights[edge.name][0, 0, 0]) for edge in net.graph.edges}
    if not all(math.isfinite(value) for value in found.values()):
        raise ValueError(
            "the optimizer makes weights without a gradient infinite or NaN, so it has no factor "
            "for the rest: a normalised rule must leave a gradient of 0 alone."
        )
    values = set(found.values())
    return values.pop() if len(values) == 1 else found


def _nothing(net: GatedNetwork, _: None) -> Array:
    """A loss without a gradient."""
    return 0.0 * sum((jnp.sum(stack) for stack in net.stacks), jnp.zeros(()))
