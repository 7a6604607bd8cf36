"""Measures of the wide network: those that the small one shares, and those that need the rest."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gdln_jax import measures
from gdln_jax._data.gated import GatedData
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._network.losses import cross_entropy, mse
from gdln_jax._width.exactness import Data

Measure = Callable[..., Any]


def shared(
    fn: Measure,
    small: GatedNetwork,
    data: Data,
    span: bool,
    node: str | None,
    followed: Callable[[str], np.ndarray],
) -> Any:
    """A measure that is the same for both networks; `NotImplemented` if it is none of them."""
    if fn is mse or (fn is cross_entropy and not span):
        return _over(lambda net: fn(net, data), small)
    if fn is measures.empirical_ntk and not span:
        return _over(lambda net: measures.empirical_ntk(net, data), small)
    if (
        fn is measures.representational_similarity
        and node is not None
        and isinstance(data, GatedData)
    ):
        known = jnp.asarray(followed(node))
        gram = _over(lambda net: measures.representational_similarity(net, data, node), small)
        return jnp.where(known[:, None] & known[None], gram, jnp.nan)
    return NotImplemented


def of_weights(fn: Measure, before: GatedNetwork, after: GatedNetwork) -> Any:
    """A measure of all weights, of the wide network at the start and now."""
    before = jax.tree.map(lambda a, b: jnp.broadcast_to(a, b.shape), before, after)
    if fn in (measures.singular_values, jnp.linalg.norm):
        return {name: _over_matrices(fn, w) for name, w in after.weights.items()}
    if fn is measures.weight_movement:
        return _over(measures.weight_movement, before, after)
    return _over(fn, after)


OF_WEIGHTS = (
    measures.singular_values,
    jnp.linalg.norm,
    measures.balancedness,
    measures.weight_movement,
    optax.global_norm,
)


def refusal(fn: Measure, span: bool) -> str:
    """Why a measure is refused, and what to do."""
    name = getattr(fn, "__name__", repr(fn))
    if fn is measures.representational_similarity:
        return "representational_similarity needs node=, the node whose activities are compared."
    if span and fn in (cross_entropy, measures.empirical_ntk):
        return (
            f"{name} needs all directions of the outputs, and this reduction has outputs='span'; "
            "reduce with outputs='complete'."
        )
    return (
        f"{name} is not among the measures that are known to be the same for both networks, or to "
        f"need the rest of the weights. Apply it to the wide network, {name}(reduction.lift(small, "
        "rest), ...); of losses and outputs, which are equal, to small and reduction.data."
    )


def _over(fn: Measure, *nets: GatedNetwork) -> Any:
    """`fn` over all leading axes of networks."""
    for _ in nets[-1].stacks[0].shape[:-3]:
        fn = jax.vmap(fn)
    return fn(*nets)


def _over_matrices(fn: Measure, w: Array) -> Array:
    return fn(w) if fn is measures.singular_values else jnp.linalg.norm(w, axis=(-2, -1))
