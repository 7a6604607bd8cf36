"""Random orthogonal matrices (Mezzadri 2007): the draws of `jax.random.orthogonal`, made one by one
on a CPU, which a batch of them could stop (`_lapack`). Floor 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray

from gdln_jax._lapack import one_by_one


def random_orthogonal(
    key: PRNGKeyArray, rows: int, columns: int | None = None, dtype: DTypeLike | None = None
) -> Float[Array, "rows columns"]:
    """A matrix with orthonormal columns (rows, columns), rows >= columns, of uniform measure."""
    shape = (rows, rows if columns is None else columns)
    draw = jax.random.normal(key, shape, jnp.result_type(float) if dtype is None else dtype)
    q, signs = one_by_one(_factor, draw)
    return q * signs[..., None, :]


def _factor(draw: Array) -> tuple[Array, Array]:
    q, r = jnp.linalg.qr(draw)
    return q, jnp.sign(jnp.diagonal(r))
