"""Gradient flow of a reduced loss, by diffrax. Floor 3, below the reduction.

Kept apart from `_flow` on purpose: the agreement of the two is a test.
"""

from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from gdln_jax._boundary import check_increasing
from gdln_jax._data import is_concrete


class ReducedTrajectory(eqx.Module):
    """A solution of the reduced dynamics.

    - `ts`: (time,), in the units of tau. `losses`: (time,).
    - `b`: mapping edge -> (time, mode); a coupled reduction: edge -> (time, mode, mode).
    - `status`: 0 ok, 2 the solver gave up; then losses it did not reach are NaN. Outside of jit
      and vmap that is raised instead. `steps`: number of steps the solver took.
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
    tau: ArrayLike = 1.0,
    *,
    rates: Any = 1.0,
    rtol: ArrayLike | None = None,
    atol: ArrayLike | None = None,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int = 200_000,
    adjoint: diffrax.AbstractAdjoint | None = None,
) -> ReducedTrajectory:
    r"""Solve $\tau \dot b = -\text{rate} \; \partial\,\text{loss}/\partial b$ from `start` at
    `ts[0]`.

    - `rtol`, `atol`: default 1e-10 (float32: 1e-5) and `rtol` times the smallest non-zero entry
      of `start` in size, so that a plateau is resolved however long it is.
    - `solver`: default `Dopri8` (float32: `Tsit5`). Deep networks with modes that are learned at
      very different times are stiff: `diffrax.Kvaerno5()`.
    - `adjoint`: default `diffrax.RecursiveCheckpointAdjoint()` (reverse mode); for `jacfwd`, also
      nested, `diffrax.ForwardMode()`; for `hessian`, which is forward over reverse,
      `diffrax.DirectAdjoint()` with a small `max_steps`.

    **Raises:** `ValueError` for times that do not increase; `RuntimeError` when the solver gives
    up, with the time reached.
    """
    times: Any = _array(ts, jnp.result_type(float))
    if times.ndim != 1 or times.shape[0] < 2:
        raise ValueError(f"ts has shape {times.shape}; pass at least two increasing times.")
    if is_concrete(times):
        check_increasing(np.asarray(times))
    if solver is None:
        solver = diffrax.Dopri8() if _dtype(start) == np.float64 else diffrax.Tsit5()
    # NaN stands for the default, so that giving a tolerance does not compile anew.
    relative, absolute, clock = (
        _array(value, times.dtype)
        for value in (default_rtol(start, rtol), np.nan if atol is None else atol, tau)
    )
    run, reached = _solve(
        start, data, times, clock, jax.tree.map(lambda leaf: _array(leaf, times.dtype), rates),
        relative, absolute, loss, solver, max_steps,
        diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
    )  # fmt: skip
    if is_concrete(run) and int(run.status) != 0:
        raise RuntimeError(
            f"the reduced dynamics stopped at time {float(reached):.6g} of {float(times[-1]):.6g} "
            f"after {int(run.steps)} steps (max_steps = {max_steps}): loosen rtol, raise "
            "max_steps, pass a stiff solver such as diffrax.Kvaerno5(), or check b0 for NaN."
        )
    return run


def _array(value: Any, dtype: Any) -> Any:
    # NumPy where values are known: a call of a small problem would else be half conversions.
    return np.asarray(value, dtype) if is_concrete(value) else jnp.asarray(value, dtype)


def default_rtol(start: Any, rtol: ArrayLike | None) -> ArrayLike:
    """`rtol`, or what the precision of `start` allows."""
    if rtol is not None:
        return rtol
    return 1e-10 if _dtype(start) == np.float64 else 1e-5


def _dtype(start: Any) -> np.dtype:
    return np.dtype(jnp.result_type(*jax.tree.leaves(start)))


@jax.jit  # one program: as single operations they would each be compiled
def smallest_size(start: Any) -> Array:
    """The smallest non-zero entry in size: the scale that absolute tolerances must be below."""
    leaves = [jnp.abs(jax.lax.stop_gradient(leaf)) for leaf in jax.tree.leaves(start)]
    smallest = jnp.min(
        jnp.stack([jnp.min(jnp.where(x > 0, x, jnp.inf), initial=jnp.inf) for x in leaves])
    )
    tiny = jnp.finfo(smallest.dtype).tiny ** 0.5
    return jnp.where(jnp.isfinite(smallest), jnp.clip(smallest, tiny, 1.0), 1.0)


@eqx.filter_jit
def _solve(
    start: Any,
    data: Any,
    ts: Array,
    tau: Array,
    rates: Any,
    rtol: Array,
    atol: Array,
    loss: Callable[[Any, Any], Array],
    solver: diffrax.AbstractSolver,
    max_steps: int,
    adjoint: diffrax.AbstractAdjoint,
) -> tuple[ReducedTrajectory, Array]:
    absolute = jnp.where(jnp.isnan(atol), rtol * smallest_size(start), atol)

    def velocity(_: Any, y: Any, args: Any) -> Any:
        data, tau, rates = args
        gradient = jax.grad(loss)(y, data)
        if jax.tree.structure(rates) == jax.tree.structure(gradient):
            return jax.tree.map(lambda g, rate: -rate * g / tau, gradient, rates)
        return jax.tree.map(lambda g: -rates * g / tau, gradient)

    def look(_: Any, y: Any, args: Any) -> tuple[Any, Array]:
        return y, loss(y, args[0])

    # Steps end on the saved times: the dense output of Dopri8 is some thousand times less
    # accurate than its steps.
    controller = diffrax.ClipStepSizeController(
        diffrax.PIDController(rtol=rtol, atol=absolute), step_ts=ts
    )
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        solver,
        ts[0],
        ts[-1],
        None,
        start,
        args=(data, tau, rates),
        saveat=diffrax.SaveAt(
            subs=[
                diffrax.SubSaveAt(ts=ts, fn=look),
                # Made wherever the solver stops: the time reached.
                diffrax.SubSaveAt(t1=True, fn=lambda t, *_: jnp.asarray(t)),
            ]
        ),
        stepsize_controller=controller,
        adjoint=adjoint,
        max_steps=max_steps,
        throw=False,
    )
    assert solution.ts is not None
    assert solution.ys is not None
    b, losses = solution.ys[0]
    good = solution.result == diffrax.RESULTS.successful
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.nan)
    status = jnp.where(good & jnp.all(jnp.isfinite(losses)), 0, 2)
    steps = jnp.asarray(solution.stats["num_steps"])
    return ReducedTrajectory(ts, b, losses, status, steps), solution.ts[1][0]
