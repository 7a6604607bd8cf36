"""Checks of the arguments of races: vectors of strengths, times, tolerances.

A check looks at values only where they are concrete; inside jit, vmap or grad it sees shapes
alone. May import floors 0 to 3.
"""

from typing import Any

import diffrax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._data import is_concrete


def as_floats(value: Any) -> Array:
    """An array of the default float type (float64 when JAX is in 64-bit mode)."""
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)


def strengths_vector(value: Any, size: int, name: str) -> Float[Array, " pathway"]:
    """Initial strengths: one non-negative finite number per pathway, at least one positive."""
    array = as_floats(value)
    if array.shape != (size,):
        raise ValueError(
            f"{name} has shape {array.shape}; it needs one entry per pathway, shape ({size},). "
            f"For a batch of initial values use jax.vmap."
        )
    if is_concrete(array):
        numbers = np.asarray(array)
        for index, number in enumerate(numbers):
            if not (np.isfinite(number) and number >= 0):
                raise ValueError(
                    f"{name}[{index}] is {number}; a strength is a finite number of at least 0."
                )
        if not (numbers > 0).any():
            raise ValueError(f"{name} is 0 everywhere: nothing would ever grow. Start one above 0.")
    return array


def times_vector(ts: Any) -> Float[Array, " time"]:
    """Times at which a solution is wanted: one axis, from 0 on, never decreasing."""
    array = as_floats(ts)
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(f"ts has shape {array.shape}; give times along one axis, as in [0.0, t].")
    if is_concrete(array):
        numbers = np.asarray(array)
        if not np.isfinite(numbers).all() or (numbers < 0).any() or (np.diff(numbers) < 0).any():
            raise ValueError(
                f"ts runs from {numbers[0]} to {numbers[-1]}; times must be finite, at least 0 "
                f"(the initial values hold at t = 0), and must not decrease: sort them."
            )
    return array


def relative_tolerance(rtol: float | None, dtype: Any) -> float:
    """The solver's relative tolerance: 1e-11 in float64, 1e-5 in float32, if not given."""
    eps = float(jnp.finfo(dtype).eps)
    if rtol is None:
        return 1e-11 if eps < 1e-12 else 1e-5
    if not rtol > 4 * eps:
        raise ValueError(
            f"rtol is {rtol}, which {jnp.dtype(dtype).name} cannot resolve (eps {eps:.1e}); give "
            f"a larger one or set jax.config.update('jax_enable_x64', True)."
        )
    return float(rtol)


def landing_controller(
    times: Float[Array, " time"], *, rtol: Any, atol: Any
) -> diffrax.AbstractStepSizeController:
    """Adaptive steps that end on every wanted time.

    Between steps diffrax interpolates, for Dopri8 50 to 1,000 times less accurately than the step
    itself (measured here: 6e-9 against 5e-12 at rtol 1e-10).
    """
    control = diffrax.PIDController(rtol=rtol, atol=atol)
    return diffrax.ClipStepSizeController(control, step_ts=times)
