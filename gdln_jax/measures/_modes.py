"""Modes, read by projection on fixed frames: strengths and alignment.

Not by the order of sorted singular values, whose labels swap at crossings, nor through an SVD,
whose derivative is NaN at repeated singular values; `singular_values` is to look at.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import TypeAliasType

from gdln_jax._checks import Suggesting, dataset
from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax._linalg import norm, one_by_one, quotient

Maps = TypeAliasType("Maps", Float[Numbers, "*batch target source"])
OutputFrame = TypeAliasType("OutputFrame", Float[Numbers, "y mode"])
InputFrame = TypeAliasType("InputFrame", Float[Numbers, "x mode"])
Left = TypeAliasType("Left", Float[Numbers, "*batch target mode"])
Right = TypeAliasType("Right", Float[Numbers, "*batch source mode"])


def mode_strengths(
    w: Maps,
    u: Left,
    v: Right,
) -> Float[Array, "*batch mode"]:
    """Return the strengths diag(U^T W V) of a weight matrix, or a batch of them, in given frames.

    Raises:
        ValueError: frames that do not fit `w`, as when `u` and `v` are swapped. Of a square matrix
            no shape tells: name them.
    """
    w, u, v = _in_frames(w, u, v)
    return jnp.einsum("...tm,...ts,...sm->...m", u, w, v)


def _in_frames(w: ArrayLike, u: ArrayLike, v: ArrayLike) -> tuple[Array, Array, Array]:
    """The matrix and its frames as arrays; `ValueError` where they do not fit."""
    w, u, v = (jnp.asarray(a) for a in (w, u, v))
    if min(w.ndim, u.ndim, v.ndim) < 2 or w.shape[-2:] != (u.shape[-2], v.shape[-2]):
        raise ValueError(
            f"w has shape {w.shape}, u {u.shape} and v {v.shape}; w is (target, source), so u is "
            "(target, mode) and comes first, v is (source, mode)."
        )
    if u.shape[-1] != v.shape[-1]:
        raise ValueError(f"u has {u.shape[-1]} modes and v has {v.shape[-1]}; give the same.")
    return w, u, v


def frame_distance(
    w: Maps,
    u: Left,
    v: Right,
    b: Float[Numbers, "*batch mode"] | None = None,
) -> Float[Array, "*batch"]:
    """Return the Frobenius norm of W - U diag(b) V^T; `b` defaults to the strengths of W itself.

    With the default it is the part of W that the frames do not hold: 0 on the aligned manifold,
    where its derivative is 0 by convention.
    """
    w, u, v = _in_frames(w, u, v)
    b = mode_strengths(w, u, v) if b is None else jnp.asarray(b)
    return norm(w - jnp.einsum("...tm,...m,...sm->...ts", u, b, v), axis=(-2, -1))


def singular_values(
    w: Float[Numbers, "*edge target source"],
) -> Float[Array, "*edge value"]:
    """Return all singular values of each matrix, descending, min(target, source) of them.

    To look at: which mode a value belongs to, only `mode_strengths` says. On a CPU, `vmap` over
    runs takes the runs one after the other, since jaxlib's batches can hang there.

    First derivatives only, in forward and reverse mode: d sigma_i = u_i^T dW v_i. They are finite
    everywhere. Of values that are equal, the sum has a derivative, a single one has that of one
    choice of vectors; a value of 0, where no derivative exists, has u v^T for some unit u and v.

    Raises:
        ValueError: for what is no matrix, and for second derivatives, which do not exist at
            repeated values: differentiate `mode_strengths`.
    """
    w = jnp.asarray(w)
    if w.ndim < 2:
        raise ValueError(f"w has shape {w.shape}; give matrices (..., target, source).")
    if w.shape[-2] < w.shape[-1]:
        w = w.mT  # LAPACK is a quarter faster on tall ones
    return _values(w)


@jax.custom_jvp
def _values(w: Array) -> Array:
    return one_by_one(lambda m: jnp.linalg.svd(m, compute_uv=False), w)


@_values.defjvp
def _(primals, tangents):
    u, values, vt = _decomposed(*primals)
    return values, jnp.einsum("...ti,...ts,...is->...i", u, *tangents, vt)


@jax.custom_jvp
def _decomposed(w: Array) -> tuple[Array, Array, Array]:
    return tuple(one_by_one(lambda m: jnp.linalg.svd(m, full_matrices=False), w))


@_decomposed.defjvp
def _(*_):
    raise ValueError(
        "singular_values has first derivatives only, since the second do not exist where values "
        "are equal; differentiate mode_strengths(w, u, v) in fixed frames."
    )


class VectorAlignment(NamedTuple):
    """Cosines with the left and with the right singular vectors, (mode,); unpacks as that pair."""

    left: Float[Array, " mode"]
    right: Float[Array, " mode"]

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__


def singular_vector_alignment(
    w: Float[Numbers, "target source"],
    u: Float[Numbers, "target mode"],
    v: Float[Numbers, "source mode"],
) -> VectorAlignment:
    """Return cosines between a map's singular vectors and the data's, (left, right), by data mode.

    `left` is the cosine of W v with u, `right` of W^T u with v, where (u, v) are singular vectors
    of Sigma^yx. Both are 1 iff (u, v) is a singular pair of W. Differentiable, and right for
    repeated singular values, where any basis of the common space will do. 0, with derivative 0,
    where W takes the direction to 0.
    """
    w, u, v = _in_frames(w, u, v)
    forward, backward = w @ v, w.T @ u
    inner = jnp.sum(u * forward, axis=0)
    forward, backward = norm(forward, axis=0), norm(backward, axis=0)
    return VectorAlignment(quotient(inner, forward), quotient(inner, backward))


def subspace_alignment(
    a: Float[Numbers, "width mode"], b: Float[Numbers, "width mode"]
) -> Float[Array, ""]:
    """Return the mean squared cosine of the principal angles between two frames' spans.

    ||A^T B||_F^2 / modes: 1 for the same space in whatever basis, modes/width on average for
    random spaces, 0 for orthogonal ones.
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    return jnp.sum(jnp.square(a.T @ b)) / a.shape[1]


class SharedStrengths(NamedTuple):
    """Strengths of the data's modes in a routing network, each (mode,)."""

    first: Float[Array, " mode"]
    hidden: Float[Array, " mode"]
    third: Float[Array, " mode"]

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__


def shared_strengths(
    first: Float[Array, "input width x"],
    hidden: Float[Array, "width2 width"],
    third: Float[Array, "output y width2"],
    u: OutputFrame,
    v: InputFrame,
) -> SharedStrengths:
    r"""Return the strength of the data's modes along the code that all domains share.

    Only the average over domains drives the hidden layer (while the error is the same on all
    routes, $\tau \dot W_2 = \bar W_3^T E \bar W_1^T$), so a mode (u, v) enters the hidden layer
    along $p = \bar W_1 v$ and leaves it along $q = \bar W_3^T u$: its strengths are |p|,
    $\hat q^T W_2 \hat p$ and |q|. Needs neither final weights nor sorting. On aligned weights
    they are B1, B2, B3 of N Eq. 13-14; at t = 0 they are the effective initial values of a
    random network (E9), of which |p| and |q| are about $\sqrt{|h|/M}$ times the standard
    deviation of a weight, and the hidden one is that standard deviation, with random sign.

    As a start for N Eq. 15 take |p| = |q| for all layers: the rest of a random W2 carries the
    shared code, too, which the hidden projection does not see (N Fig. 4: mean distance of the
    loss 0.3-1 % of L(0), against 3-4 % from the hidden projection; with W2(0) = 0 it is 4 %
    against 0.3 %). All are 0, with derivative 0, where p or q is 0.
    """
    p = jnp.mean(first, axis=0) @ jnp.asarray(v)
    q = jnp.mean(third, axis=0).T @ jnp.asarray(u)
    p_norm, q_norm = norm(p, axis=0), norm(q, axis=0)
    through = jnp.sum(q * (hidden @ p), axis=0)
    return SharedStrengths(p_norm, quotient(quotient(through, p_norm), q_norm), q_norm)
