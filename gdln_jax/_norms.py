"""Norms and quotients that have a value and finite derivatives everywhere, at 0 too.

The norm of 0 has no derivative and 0/0 no value: both are NaN in JAX, also where the result is then
not used, and they are met in earnest by units that are silent, by weights that have not moved yet
and by modes that are aligned. Floor 0: imports JAX only.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array


@jax.custom_jvp
def ratio(a: Array, b: Array) -> Array:
    """Return ``a / b``. The derivative forms no ``b**-2``, which overflows for small ``b``."""
    return a / b


@ratio.defjvp
def _(primals, tangents):
    a, b = primals
    da, db = tangents
    value = ratio(a, b)
    return value, ratio(da, b) - value * ratio(db, b)


def quotient(a: Array, b: Array, at_zero: ArrayLike = 0.0) -> Array:
    """Return ``a / b``, and `at_zero` where b is 0; a and b have one shape.

    Derivatives are finite: where b is 0 they are those of `at_zero`.
    """
    there = b != 0
    return jnp.where(there, ratio(a, jnp.where(there, b, 1)), at_zero)


def root(a: Array) -> Array:
    """Return the square root of ``a``, whose derivative is 0 where ``a`` is 0."""
    zero = a == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, a)))


def norm(a: Array, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Array:
    """Return the root of the sum of squares over `axis` (default: all entries).

    Its derivative is 0 where all entries are 0. No square overflows or is lost to underflow: the
    largest entry is taken out first.
    """
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(a), axis=axis, keepdims=True, initial=0))
    largest = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
    size = largest * root(jnp.sum(jnp.square(a / largest), axis=axis, keepdims=True))
    return size if keepdims else jnp.squeeze(size, axis)
