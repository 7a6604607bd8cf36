"""Arguments of races (vectors of strengths, times, tolerances), and the one call of an ODE solver.

A check looks at values only where they are concrete; inside jit, vmap or grad it sees shapes
alone.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._checks import Result, check_positive_if_known, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.arrays import SeveralArrays, check_dense, check_real
from gdln_jax._ode import Settings, check_resolved, solve
from gdln_jax._solution import GAVE_UP, OK, SolveError

MAX_STEPS = 100_000

# One number or many: an array, or a list.
Numbers = ArrayLike | Sequence[object]
Args = TypeVar("Args")


def as_floats(value: Numbers, name: str = "the array") -> Array:
    """Return a copy as an array of floats; whole numbers become JAX's default float.

    Raises:
        ValueError: for sparse or masked arrays, what holds no real numbers, and precisions below
            float32.
    """
    if not isinstance(value, jax.Array):
        check_dense(value, name)
        value = np.asarray(value)
    check_real(value.dtype, name)
    array = jnp.array(value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)


def strengths_vector(value: Numbers, size: int, name: str) -> Float[Array, " pathway"]:
    """Return initial strengths: non-negative finite numbers, one per pathway, not all of them 0."""
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


def times_vector(ts: Numbers) -> Float[Array, " time"]:
    """Return the times of a solution: one axis, from 0 on, never decreasing."""
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


def relative_tolerance(rtol: ArrayLike | None, dtype: np.dtype) -> ArrayLike:
    """Return the solver's relative tolerance, by default 1e-11, or 1e-5 in float32."""
    check_positive_if_known(rtol=rtol)
    check_resolved(rtol, dtype)
    if rtol is None:
        return 1e-11 if float(jnp.finfo(dtype).eps) < 1e-12 else 1e-5
    return rtol


class Solution(Result, SeveralArrays, eqx.Module):
    """A solved race, as `solve(..., throw=False)` returns it.

    Attributes:
        ts: (time,).
        values: (time, pathway), NaN from where the solver gave up.
        status: 0, or 2 where the solver gave up.
        reached: the time that it got to.
        stats: numbers of steps of the ODE solver; empty for the clock, which has none.
    """

    _units: ClassVar = {"ts": "the time of the equation that was solved", "reached": "as ts"}

    ts: Float[Array, "*batch time"]
    values: Float[Array, "*batch time pathway"]
    status: Int[Array, "*batch"]
    reached: Float[Array, "*batch"]
    stats: dict[str, Int[Array, "*batch"]]

    def checked(self) -> Float[Array, "*batch time pathway"]:
        """Return the values; raise `SolveError` where the solver is known to have given up."""
        if is_concrete(self) and int(self.status) != OK:
            why = "a value is not finite there, or runs to infinity"
            if int(self.stats["num_steps"]) >= MAX_STEPS:
                why = (
                    f"all {MAX_STEPS} steps are used up; loosen rtol, or take limit for late times"
                )
            raise SolveError(
                f"the solver gave up at time {float(self.reached):.6g} of "
                f"{float(self.ts[-1]):.6g}: {why}. With throw=False values are NaN from there on."
            )
        return self.values


def integrate(
    slope: Callable[[Array, Array, Args], Array],
    start: Float[Array, " pathway"],
    times: Float[Array, " time"],
    args: Args,
    solver: diffrax.AbstractAdaptiveSolver,
    *,
    rtol: ArrayLike,
    atol: ArrayLike,
) -> Solution:
    """Solve dy/dt = slope(t, y, args) from t = 0. One of both tolerances may be 0."""
    adjoint = diffrax.RecursiveCheckpointAdjoint()
    run = solve(
        slope,
        start,
        times,
        args,
        Settings(jnp.asarray(rtol), jnp.asarray(atol), solver, adjoint, MAX_STEPS),
        t0=jnp.zeros((), times.dtype),
    )
    there = jnp.all(jnp.isfinite(run.saved), axis=1)
    status = jnp.where(run.complete & jnp.all(there), OK, GAVE_UP)
    values = jnp.where(there[:, None], run.saved, jnp.nan)
    return Solution(times, values, status, run.reached, run.stats)
