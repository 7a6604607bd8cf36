"""Odd functions of singular values, for stacks of matrices and for the numbers of a diagonal.

Each has two forms that agree (theory#optimisers): on matrices (..., |target|, |source|), U f(sigma)
V^T; on strengths (..., mode), f(g) entry by entry with norms over the modes.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array

from gdln_jax._linalg import norm, quotient

_HIGHEST = jax.lax.Precision.HIGHEST
_MATRIX, _MODES = (-2, -1), (-1,)


def unit_norm(g: Array, matrices: bool) -> Array:
    """Each matrix over its Frobenius norm; 0 where it is 0."""
    size = norm(g, axis=_MATRIX if matrices else _MODES, keepdims=True)
    return quotient(g, jnp.broadcast_to(size, g.shape))


def newton_schulz(
    g: Array, matrices: bool, coefficients: Sequence[Sequence[float]], eps: float
) -> Array:
    """Newton-Schulz iteration of g/(|g| + eps), one step per row of `coefficients`.

    A step is x <- a x + b x x^T x + c x x^T x x^T x. Cost of a step O(|t||s| min(|t|, |s|)).
    """
    x = g / (norm(g, axis=_MATRIX if matrices else _MODES, keepdims=True) + eps)
    if not matrices:
        for a, b, c in coefficients:
            x = x * (a + b * x**2 + c * x**4)
        return x
    tall = x.shape[-2] > x.shape[-1]
    x = jnp.swapaxes(x, -2, -1) if tall else x
    for a, b, c in coefficients:
        gram = _product(x, jnp.swapaxes(x, -2, -1))
        x = a * x + _product(b * gram + c * _product(gram, gram), x)
    return jnp.swapaxes(x, -2, -1) if tall else x


def polar(g: Array, matrices: bool, cutoff: float) -> Array:
    """The partial isometry of the polar decomposition; singular values below the cut give 0.

    The cut is `cutoff` times the largest singular value of each matrix. A plain SVD would fill the
    null space with an arbitrary basis, which is not equivariant (theory#optimisers).
    """
    if matrices:
        return _partial_isometry(cutoff, g)
    size = jnp.abs(g)
    return jnp.where(size > cutoff * jnp.max(size, axis=-1, keepdims=True), jnp.sign(g), 0.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _partial_isometry(cutoff: float, g: Array) -> Array:
    u, _, v, _ = _kept(cutoff, g)
    return _product(u, v)


@_partial_isometry.defjvp
def _(cutoff: float, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # At constant rank; the derivative of an SVD has 1/(s_i - s_j), this has not.
    (g,), (dg,) = primals, tangents
    u, s, v, kept = _kept(cutoff, g)
    ut, vt = jnp.swapaxes(u, -2, -1), jnp.swapaxes(v, -2, -1)
    inner = _product(_product(ut, dg), vt)
    both = kept[..., :, None] & kept[..., None, :]
    sums = jnp.where(both, s[..., :, None] + s[..., None, :], 1.0)
    turn = jnp.where(both, (inner - jnp.swapaxes(inner, -2, -1)) / sums, 0.0)
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1.0), 0.0)
    left = _product(dg, vt) - _product(u, inner)
    right = _product(ut, dg) - _product(inner, v)
    change = _product(_product(u, turn), v)
    change += _product(left * inverse[..., None, :], v) + _product(u * inverse[..., None, :], right)
    return _product(u, v), change


def _kept(cutoff: float, g: Array) -> tuple[Array, Array, Array, Array]:
    """U (..., t, k), sigma and V^T (..., k, s), 0 below the cut, and which are kept."""
    u, s, v = jnp.linalg.svd(g, full_matrices=False)
    kept = s > cutoff * jnp.max(s, axis=-1, keepdims=True)
    return u * kept[..., None, :], s, v * kept[..., :, None], kept


def inverse_fourth_root(a: Array, eps: float | int | Array) -> Array:
    """(A + eps)^(-1/4) of symmetric matrices (..., n, n) without negative eigenvalues."""
    values, vectors = jnp.linalg.eigh(a)
    scaled = vectors * (jnp.maximum(values, 0.0) + eps)[..., None, :] ** -0.25
    return _product(scaled, jnp.swapaxes(vectors, -2, -1))


def _product(a: Array, b: Array) -> Array:
    # HIGHEST: GPUs would otherwise multiply float32 in reduced precision.
    return jnp.matmul(a, b, precision=_HIGHEST)
