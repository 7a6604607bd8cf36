"""Gradient flow of a reduced loss, by diffrax.

Velocity and loss are its own, so that its agreement with `gradient_flow` is a test; the set-up of
the solver is shared, and held to SciPy's.
"""

from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from gdln_jax._checks import check_integer, check_positive_if_known, is_concrete
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._ode import (
    check_resolved,
    checked_times,
    default_rtol,
    default_solver,
    smallest_entry,
    solve,
)
from gdln_jax._solution import GAVE_UP, OK


class ReducedTrajectory(SeveralArrays, eqx.Module):
    """A solution of the reduced dynamics.

    - `ts`: (time,), in the units of tau. `losses`: (time,).
    - `b`: mapping edge -> (time, mode); a coupled reduction: edge -> (time, mode, mode).
    - `status`: 0 ok, 2 the solver gave up; then `b` and losses are NaN where it did not get to.
      Outside of jit and vmap that is raised instead, unless `throw=False`. `steps`: number of
      steps the solver took.
    """

    ts: Float[Array, "*batch time"]
    b: Any
    losses: Float[Array, "*batch time"]
    status: Array
    steps: Array

    def __repr__(self) -> str:
        return f"ReducedTrajectory({self.ts.shape[-1]} times, {self.b!r})"


def solve_reduced(
    start: Any,
    loss: Callable[[Any, Any], Array],
    data: Any,
    ts: ArrayLike | Sequence[Any],
    *,
    tau: ArrayLike,
    rtol: ArrayLike | None,
    atol: ArrayLike | None,
    solver: diffrax.AbstractSolver | None,
    max_steps: int,
    adjoint: diffrax.AbstractAdjoint | None,
    throw: bool,
    rates: Any = 1.0,
    scale: Array | None = None,
) -> ReducedTrajectory:
    r"""Solve $\tau \dot b = -\text{rate} \; \partial\,\text{loss}/\partial b$ from `start` at
    `ts[0]`.

    Options are those of `Reduction.solve`. `scale`: the size that the default of `atol` is
    relative to; default that of the smallest entry of `start`.

    **Raises:** `ValueError` for times that do not increase or bad options; with `throw`,
    `RuntimeError` when the solver gives up, with the time reached.
    """
    times = checked_times(ts, jnp.result_type(float))
    check_positive_if_known(tau=tau, rtol=rtol, atol=atol)
    dtype = np.dtype(jnp.result_type(*jax.tree.leaves(start)))
    check_resolved(rtol, dtype)
    max_steps = check_integer(max_steps, "max_steps", minimum=1)
    rtol = default_rtol(dtype) if rtol is None else rtol
    solver = default_solver(dtype) if solver is None else solver
    # NaN stands for the default, so that giving a tolerance does not compile anew.
    relative, absolute, clock = (
        _array(value, times.dtype) for value in (rtol, np.nan if atol is None else atol, tau)
    )
    run, reached = _solve(
        start, data, times, clock, jax.tree.map(lambda leaf: _array(leaf, times.dtype), rates),
        relative, absolute, scale, loss, solver, max_steps, adjoint,
    )  # fmt: skip
    if throw and is_concrete(run) and int(run.status) != OK:
        raise RuntimeError(
            f"the reduced dynamics stopped at time {float(reached):.6g} of {float(times[-1]):.6g} "
            f"after {int(run.steps)} steps (max_steps = {max_steps}): loosen rtol, raise "
            "max_steps, pass a stiff solver such as diffrax.Kvaerno5(), or check b0 for NaN."
        )
    return run


def _array(value: Any, dtype: Any) -> Any:
    # NumPy where values are known: a call of a small problem would else be half conversions.
    return np.asarray(value, dtype) if is_concrete(value) else jnp.asarray(value, dtype)


@eqx.filter_jit
def _solve(
    start: Any,
    data: Any,
    ts: Array,
    tau: Array,
    rates: Any,
    rtol: Array,
    atol: Array,
    scale: Array | None,
    loss: Callable[[Any, Any], Array],
    solver: diffrax.AbstractSolver,
    max_steps: int,
    adjoint: diffrax.AbstractAdjoint | None,
) -> tuple[ReducedTrajectory, Array]:
    scale = smallest_entry(start) if scale is None else scale
    absolute = jnp.where(jnp.isnan(atol), rtol * scale, atol)

    def velocity(_: Any, y: Any, args: Any) -> Any:
        data, tau, rates = args
        gradient = jax.grad(loss)(y, data)
        if jax.tree.structure(rates) == jax.tree.structure(gradient):
            return jax.tree.map(lambda g, rate: -rate * g / tau, gradient, rates)
        return jax.tree.map(lambda g: -rates * g / tau, gradient)

    def look(_: Any, y: Any, args: Any) -> tuple[Any, Array]:
        return y, loss(y, args[0])

    run = solve(
        velocity,
        start,
        ts,
        (data, tau, rates),
        rtol=rtol,
        atol=absolute,
        solver=solver,
        look=look,
        adjoint=adjoint,
        max_steps=max_steps,
    )
    b, losses = run.saved
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.nan)
    status = jnp.where(run.complete & jnp.all(jnp.isfinite(losses)), OK, GAVE_UP)
    return ReducedTrajectory(ts, b, losses, status, run.stats["num_steps"]), run.reached
