"""Random orthogonal matrices that do not stop a CPU (Mezzadri 2007).

The same draws as `jax.random.orthogonal`. On a CPU, jaxlib 0.10 splits the QR factorisation of a
batch over the threads that run the program's operations, and waits for them there: two such
factorisations of some hundred matrices, independent of one another, take all threads of a small
machine and wait for ever. One matrix after the other is not split, and no slower. Floor 0.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray


def random_orthogonal(
    key: PRNGKeyArray, rows: int, columns: int | None = None, dtype: DTypeLike | None = None
) -> Float[Array, "rows columns"]:
    """A matrix with orthonormal columns (rows, columns), rows >= columns, of uniform measure."""
    shape = (rows, rows if columns is None else columns)
    draw = jax.random.normal(key, shape, jnp.result_type(float) if dtype is None else dtype)
    q, signs = jax.lax.platform_dependent(draw, cpu=sequential_vmap(_factor), default=_factor)
    return q * signs


def _factor(draw: Array) -> tuple[Array, Array]:
    q, r = jnp.linalg.qr(draw)
    return q, jnp.sign(jnp.diagonal(r))
