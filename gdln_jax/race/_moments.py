"""S and D of the race that a `Reduction` describes: its loss, read as a function of path products.

Where no two paths share an edge, the loss in aligned coordinates is a quadratic function of the
products a_pk of the strengths along each path p and mode k: l = c - S.a + a.D.a/2. S and D are
therefore its derivatives at a = 0, exactly, with all that enters them: gates, overlaps U_p^T U_j of
frames, paths that are copies of one another.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import check_integer, listed
from gdln_jax._reduction.reduction import Reduction

# Couplings below this, relative to the largest, are rounding.
_ROUNDING = 1e-9

# The names of the edges of a path, in order.
Path = tuple[str, ...]


class Moments(NamedTuple):
    """The pathways that carry one mode, and their correlations."""

    paths: tuple[Path, ...]
    S: np.ndarray
    D: np.ndarray
    depth: int


def moments_of(reduction: Reduction, mode: int) -> Moments:
    """Return the race of `mode` (`Pathways.from_reduction`). O(paths) gradients of the loss."""
    mode = check_integer(mode, "mode", minimum=0)
    if mode >= reduction.modes:
        raise ValueError(f"mode is {mode}, but the reduction has {reduction.modes}, from 0 on.")
    if reduction.coupled:
        raise ValueError(
            "a coupled reduction has matrices instead of strengths, so its pathways do not race "
            "mode by mode; use reduction.solve."
        )
    paths = _separate_paths(reduction)
    lengths = sorted({len(path) for path in paths})
    if len(lengths) > 1 or lengths[0] < 2:
        raise ValueError(
            f"the pathways have {listed(lengths)} weight layers; in a race all have the same "
            "number of at least 2. Use reduction.solve."
        )
    derivatives = _derivatives(reduction, paths, jnp.asarray(mode))
    S, hessian = (np.asarray(a, np.float64) for a in derivatives)
    D = hessian[:, :, mode]
    _check_alone(hessian, mode)
    carried = np.diag(D) > _ROUNDING * np.abs(D).max()
    if not carried.any():
        raise ValueError(f"no pathway carries mode {mode}: its inputs are 0 along all of them.")
    named = tuple(path for path, there in zip(paths, carried, strict=True) if there)
    D = (D + D.T) / 2  # equal but for rounding
    return Moments(named, S[carried], D[np.ix_(carried, carried)], lengths[0])


@eqx.filter_jit
def _derivatives(
    reduction: Reduction, paths: tuple[Path, ...], mode: Array
) -> tuple[Float[Array, " path"], Float[Array, "path path mode"]]:
    """Return S (path,) of one mode, and its couplings to all modes of all paths."""
    zero = jnp.zeros((len(paths), reduction.modes))

    def loss(products: Float[Array, "path mode"]) -> Float[Array, ""]:
        b = {e: jnp.ones(reduction.modes) for path in paths for e in path[:-1]}
        return reduction.loss(b | {path[-1]: a for path, a in zip(paths, products, strict=True)})

    def push(p: Array) -> Float[Array, "path mode"]:
        return jax.jvp(jax.grad(loss), (zero,), (zero.at[p, mode].set(1.0),))[1]

    return -jax.grad(loss)(zero)[:, mode], jax.vmap(push)(jnp.arange(len(paths)))


def _separate_paths(reduction: Reduction) -> tuple[Path, ...]:
    """Return all paths; an error if two of them share an edge, found before any are listed."""
    graph = reduction.graph
    for edge in graph.edges:
        here = f"the edge {edge.name!r}"
        if len(graph.incoming[edge.source]) > 1:
            ways = [e.name for e in graph.incoming[edge.source]]
        elif edge.source in graph.hidden and len(graph.outgoing[edge.source]) > 1:
            ways = [e.name for e in graph.outgoing[edge.source]]
            here = f"the edge {graph.incoming[edge.source][0].name!r}"
        else:
            continue
        raise ValueError(
            f"paths share {here} ({listed(ways, 4)} meet it), so it learns from several "
            "pathways at once and they do not race for the output alone (N Eq. 13-17 are such "
            "cases). Use reduction.solve or reduction.quotient."
        )
    return tuple(graph.paths())


def _check_alone(hessian: np.ndarray, mode: int) -> None:
    others = np.abs(hessian)
    others[:, :, mode] = 0
    if others.max() > _ROUNDING * np.abs(hessian).max():
        other = np.unravel_index(np.argmax(others), others.shape)[2]
        raise ValueError(
            f"mode {mode} meets mode {other} in the loss (coupling {others.max():.2g} beside "
            f"{np.abs(hessian).max():.2g}): frames that differ between the paths into one output "
            "mix modes there. Use reduction.solve."
        )
