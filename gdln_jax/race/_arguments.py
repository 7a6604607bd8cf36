"""Arguments of races (vectors of strengths, times, tolerances), and the one call of an ODE solver.

A check looks at values only where they are concrete; inside jit, vmap or grad it sees shapes
alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import check_positive_if_known, is_concrete
from gdln_jax._data.arrays import check_dense, check_real
from gdln_jax._ode import check_resolved, settings, solve
from gdln_jax._solution import GAVE_UP, OK

MAX_STEPS = 100_000


def as_floats(value: Any, name: str = "the array") -> Array:
    """A copy as an array of floats; whole numbers become JAX's default float.

    **Raises:** `ValueError` for sparse or masked arrays, what holds no real numbers, and precisions
    below float32.
    """
    if not isinstance(value, jax.Array):
        check_dense(value, name)
        value = np.asarray(value)
    check_real(value.dtype, name)
    array = jnp.array(value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)


def strengths_vector(value: Any, size: int, name: str) -> Float[Array, " pathway"]:
    """Initial strengths: one non-negative finite number per pathway, at least one positive."""
    array = as_floats(value, name)
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
    array = as_floats(ts, "ts")
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


def relative_tolerance(rtol: Any, dtype: Any) -> Any:
    """The solver's relative tolerance: 1e-11 in float64, 1e-5 in float32, if not given."""
    check_positive_if_known(rtol=rtol)
    check_resolved(rtol, dtype)
    if rtol is None:
        return 1e-11 if float(jnp.finfo(dtype).eps) < 1e-12 else 1e-5
    return rtol


class Course(NamedTuple):
    """Values at the times, NaN from where the solver gave up; 0 or 2; time reached; steps."""

    values: Array
    status: Array
    reached: Array
    steps: Array


def integrate(
    slope: Callable[..., Array],
    start: Float[Array, " pathway"],
    times: Float[Array, " time"],
    args: Any,
    solver: diffrax.AbstractAdaptiveSolver,
    *,
    rtol: Any,
    atol: Any,
) -> Course:
    """Solve dy/dt = slope(t, y, args) from t = 0, at the wanted times."""
    run = solve(
        slope,
        start,
        times,
        args,
        settings(times.dtype, rtol=rtol, atol=atol, solver=solver, max_steps=MAX_STEPS),
        t0=jnp.zeros((), times.dtype),
    )
    there = jnp.all(jnp.isfinite(run.saved), axis=1)
    status = jnp.where(run.complete & jnp.all(there), OK, GAVE_UP)
    values = jnp.where(there[:, None], run.saved, jnp.nan)
    return Course(values, status, run.reached, run.stats["num_steps"])


def check_course(course: Course, end: Any) -> None:
    """Raise `RuntimeError` where the solver is known to have given up."""
    if is_concrete((course, end)) and int(course.status) != OK:
        why = "a value is not finite there, or runs to infinity"
        if int(course.steps) >= MAX_STEPS:
            why = f"all {MAX_STEPS} steps are used up; loosen rtol, or take limit for late times"
        raise RuntimeError(
            f"the solver gave up at time {float(course.reached):.6g} of {float(end):.6g}: {why}. "
            "With throw=False the result is NaN from there on."
        )
