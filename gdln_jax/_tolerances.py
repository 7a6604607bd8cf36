"""Default solvers and tolerances of ODEs that start on a plateau (docs/tolerances.md lists them).

Floor 2: imports nothing of this package.
"""

from collections.abc import Iterable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# A few digits above rounding for float64, so that theory and flow can be compared to 1e-8; for
# float32 what its 7 digits allow.
_RTOL = {np.dtype("float64"): 1e-10, np.dtype("float32"): 1e-5}
# Where ReLU units rest on their kinks the velocity jumps in every step, the number of steps is
# proportional to 1/rtol and a higher order gains nothing. Measured on XoR with 20 units: 3,000
# steps and 3e-4 of the loss; at 1e-6 more than 200,000 steps with any solver.
_RTOL_KINKS = 1e-4


def has_kinks(model: Any) -> bool:
    """Whether `model`, or a part of it, says `kinks = True`, as `ReLUNetwork` does."""
    parts = jax.tree.leaves(model, is_leaf=lambda part: hasattr(part, "kinks"))
    return any(getattr(part, "kinks", False) is True for part in parts)


def default_rtol(dtype: Any, kinks: bool = False) -> float:
    """The relative tolerance for states of `dtype`: 1e-10 or 1e-5, with kinks 1e-4."""
    return _RTOL_KINKS if kinks else _RTOL.get(np.dtype(dtype), 1e-5)


def default_solver(dtype: Any, kinks: bool = False) -> diffrax.AbstractSolver:
    """`Dopri8` for float64, `Tsit5` for float32, `Bosh3` for models with kinks."""
    if kinks:
        return diffrax.Bosh3()
    return diffrax.Dopri8() if np.dtype(dtype) == np.float64 else diffrax.Tsit5()


def smallest_scale(arrays: Iterable[Array]) -> Array:
    """Root mean square of the smallest matrix among `arrays` that is not zero, at most 1.

    The last two axes of an array are those of a matrix; an array with fewer axes counts as one.
    An absolute tolerance must lie below that size, or the plateau that small weights cause is
    left too late. Single entries are no measure of it: in rotated frames some are rounding.
    """
    return _smallest_scale([jax.lax.stop_gradient(jnp.asarray(w)) for w in arrays])


@jax.jit  # one program: as single operations they would each be compiled
def _smallest_scale(arrays: list[Array]) -> Array:
    scales = []
    for w in arrays:
        axes = tuple(range(max(w.ndim - 2, 0), w.ndim))
        # Divided by the largest entry, since squares of 1e-30 vanish in float32.
        most = jnp.max(jnp.abs(w), axis=axes, keepdims=True, initial=0)
        spread = jnp.sqrt(jnp.mean(jnp.square(w / jnp.where(most > 0, most, 1)), axis=axes))
        size = spread * jnp.reshape(most, spread.shape)
        scales.append(jnp.min(jnp.where(size > 0, size, jnp.inf), initial=jnp.inf))
    smallest = jnp.min(jnp.stack(scales))
    least = jnp.finfo(smallest.dtype).tiny / jnp.finfo(smallest.dtype).eps
    return jnp.where(jnp.isfinite(smallest), jnp.clip(smallest, least, 1.0), 1.0)
