"""When a reduced loss, or the modes of a path, cross a level: solved on the reduced equations."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from gdln_jax._checks import check_positive_if_known, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._network.pathways import product
from gdln_jax._ode import Crossing, Settings, cross, known_array, smallest_entry
from gdln_jax._reduction.flow import Strengths, velocity_of
from gdln_jax._reduction.loss import with_products
from gdln_jax._solution import SolveError


def crossing(
    start: PyTree,
    loss: Callable[..., Array],
    data: PyTree,
    level: ArrayLike,
    modes: Callable[[PyTree], Array] | None,
    setup: Settings,
    *,
    t1: ArrayLike,
    tau: ArrayLike,
    throw: bool,
    rates: PyTree = 1.0,
    scale: Array | None = None,
) -> Crossing:
    """Find when the loss, or each of the `modes(coordinates)`, crosses `level`, from time 0.

    Arguments and errors are those of `Reduction.time_to` and `solve_reduced`.
    """
    check_positive_if_known(t1=t1, tau=tau)
    if is_concrete(level) and np.isnan(np.asarray(level)).any():
        raise ValueError(f"level is {level}; it must be a number, or one per mode.")
    dtype = jnp.result_type(*jax.tree.leaves(start))
    end, clock, levels = (known_array(value, dtype) for value in (t1, tau, level))
    rates = jax.tree.map(lambda leaf: known_array(leaf, dtype), rates)
    if modes is not None:
        shape = jax.eval_shape(modes, start).shape
        if levels.shape not in ((), shape):
            raise ValueError(
                f"level has shape {levels.shape}; give one number, or one per mode: {shape}."
            )
        levels = jnp.broadcast_to(levels, shape)
    found, failed = _cross(
        start, data, jnp.asarray(levels), end, clock, rates, setup, scale, loss, modes
    )
    if throw and is_concrete(failed) and bool(jnp.any(failed)):
        raise SolveError(
            f"the reduced dynamics gave up before t1 = {t1} (max_steps = {setup.max_steps}) and "
            "before the level was crossed: loosen rtol, raise max_steps, or pass a stiff solver "
            "such as diffrax.Kvaerno5()."
        )
    return found


class PathModes(eqx.Module):
    """The product of strengths along a path, per mode; of matrices its diagonal."""

    read: Callable[[PyTree], Strengths]
    path: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, y: PyTree) -> Array:
        b = self.read(y)
        total = product(b, self.path)
        return total if b.core == 1 else jnp.diagonal(total, axis1=-2, axis2=-1)


@eqx.filter_jit
def _cross(
    start: PyTree,
    data: PyTree,
    levels: Array,
    end: Array | np.ndarray,
    tau: Array | np.ndarray,
    rates: PyTree,
    setup: Settings,
    scale: Array | None,
    loss: Callable[..., Array],
    modes: Callable[[PyTree], Array] | None,
) -> tuple[Crossing, Array]:
    scale = smallest_entry(start) if scale is None else scale
    args = (with_products(data), jnp.asarray(tau), rates)
    first, last = jnp.zeros_like(jnp.asarray(end)), jnp.asarray(end)

    def one(level: Array, mode: Array) -> tuple[Array, Array, Array]:
        def value(_: Array, y: PyTree, args: PyTree) -> Array:
            return loss(y, args[0]) if modes is None else modes(y)[mode]

        return cross(velocity_of(loss), value, level, start, first, last, args, setup, scale=scale)

    numbers = jnp.zeros(levels.shape, int) if modes is None else jnp.arange(levels.size)
    times, reached, failed = jnp.vectorize(one)(levels, numbers)
    return Crossing(times, reached), failed
