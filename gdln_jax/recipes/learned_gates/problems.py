"""Three gating problems: the log time to a level of the loss, from gates.

These are the dynamics of full networks from aligned small weights, exactly, because all gates leave
the same frames: margin XoR has one output; gates of routing multiply whole routes, which share the
modes of the base data, and gates of equal contexts whole contexts, which share the items' modes.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax import GatedData, gates, tasks

# Pathways of the margin task on the examples (-1,-1), (1,-1), (-1,1), (1,1): one per class, then
# one per example. They are the patterns of ReLU units that are on where their own input weights,
# grown along <g y x>, are positive; no other pattern of the 16 is.
SERVED = np.vstack([[[0, 1, 1, 0], [1, 0, 0, 1]], np.eye(4)])
MARGIN_A0, CONTEXT_A0, ROUTING_B0 = 1e-4, 1e-3, 0.05
UNTIL, RTOL = 400.0, 1e-4  # a time to some 1e-4, gradients likewise
Arrays = tuple[Array, ...]


def margin_time(own: Float[Array, " 4"], delta: Float[Array, ""]) -> Float[Array, ""]:
    """Log time to loss 1/5 of margin XoR, where each example is routed by one variable.

    `own`: logits of the gate of the example's own pathway (XoR gating); its class's pathway
    (linear gating) gets the rest.
    """
    share = jax.nn.sigmoid(own)
    on = jnp.concatenate([SERVED[:2] * (1 - share), SERVED[2:] * share])
    plain = tasks.margin_xor(delta, gating="none").data
    assert isinstance(plain, GatedData)
    return aligned_time(MARGIN_A0, (on, plain.inputs["x"][None], plain.targets["y"][None]), 0.2)


def context_time(on: Float[Array, "pathway context"]) -> Float[Array, ""]:
    """Log time to L(0)/20 of equal contexts (8 items), with a common pathway beside."""
    contexts = on.shape[1]
    on = jnp.concatenate([jnp.ones((1, contexts)), on])
    blocks = np.concatenate([np.ones((contexts, 1)), np.eye(contexts)], axis=1)
    tree = tasks.hierarchy_features(4, 1)
    values = np.linalg.svd(tree - tree.mean(axis=1, keepdims=True), compute_uv=False)[:7]
    y = jnp.asarray(values[:, None, None] * blocks / math.sqrt(8))
    return aligned_time(CONTEXT_A0, (on, jnp.full((7, contexts, 1), 1 / math.sqrt(8)), y))


def aligned_time(a0: float, data: Arrays, level: Array | float | None = None) -> Float[Array, ""]:
    """Log time to a level, or to L(0)/20, from weights along <g y x>, of one row or column."""
    on, x, y = data
    pull = jnp.einsum("pn,ano,ani->apoi", on, y, x)
    along = pull / jnp.sqrt(jnp.sum(pull**2, axis=(-2, -1), keepdims=True) + 1e-12)
    one = jnp.ones((*pull.shape[:2], 1, 1))
    inner, outer = (one, along) if pull.shape[-1] == 1 else (along, one)
    weights = math.sqrt(a0) * inner, math.sqrt(a0) * outer
    level = loss(weights, data) / 20 if level is None else level
    return jnp.log(gates.learning_time(weights, data, level, loss=loss, t1=UNTIL, rtol=RTOL))


def loss(weights: Arrays, data: Arrays) -> Float[Array, ""]:
    """Sum over modes of the mean loss of pathways side by side, each of one unit."""
    (inner, outer), (on, x, y) = weights, data
    outputs = jnp.einsum("pn,apok,apki,ani->ano", on, outer, inner, x)
    return jnp.mean(jnp.sum((y - outputs) ** 2, axis=(0, 2))) / 2


def routing_time(chosen: Float[Array, "route pathway"]) -> Float[Array, ""]:
    """Log time to L(0)/10 of routing, where each route chooses among all-to-all pathways."""
    features, m, p = tasks.hierarchy_features(), math.isqrt(len(chosen)), chosen.shape[1]
    s = np.linalg.svd(features / features.shape[1], compute_uv=False)[:4]  # the others are 0
    start = tuple(jnp.full((len(s), *shape), ROUTING_B0) for shape in ((m, p), (p,), (p, m)))
    data = chosen.reshape(m, m, p), jnp.asarray(s), jnp.asarray(1 / features.shape[1])
    level = routing_loss(start, data) / 10
    return jnp.log(gates.learning_time(start, data, level, loss=routing_loss, t1=UNTIL, rtol=RTOL))


def routing_loss(b: Arrays, data: Arrays) -> Float[Array, ""]:
    """Sum over modes (s, d) of the mean loss of routes; b by layer, each with an axis of modes."""
    (first, middle, last), (chosen, s, d) = b, data
    maps = jnp.einsum("ijp,aip,ap,apj->ija", chosen, first, middle, last)
    return jnp.mean(jnp.sum((s - d * maps) ** 2, axis=-1)) / (2 * d)
