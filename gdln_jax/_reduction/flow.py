"""Gradient flow of a reduced loss, by diffrax.

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

from gdln_jax._checks import check_integer, check_positive_if_known, is_concrete
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._ode import check_increasing, check_resolved
from gdln_jax._solution import GAVE_UP, OK

# Enough for any plateau; a run that needs more is stiff.
MAX_STEPS = 200_000


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
    times: Any = _array(ts, jnp.result_type(float))
    if times.ndim != 1 or times.shape[0] < 2:
        raise ValueError(f"ts has shape {times.shape}; pass at least two increasing times.")
    if is_concrete(times):
        check_increasing(np.asarray(times))
    check_positive_if_known(tau=tau, rtol=rtol, atol=atol)
    dtype = np.dtype(jnp.result_type(*jax.tree.leaves(start)))
    check_resolved(rtol, dtype)
    max_steps = check_integer(max_steps, "max_steps", minimum=1)
    if rtol is None:
        rtol = 1e-10 if dtype == np.float64 else 1e-5
    if solver is None:
        solver = diffrax.Dopri8() if dtype == np.float64 else diffrax.Tsit5()
    # NaN stands for the default, so that giving a tolerance does not compile anew.
    relative, absolute, clock = (
        _array(value, times.dtype) for value in (rtol, np.nan if atol is None else atol, tau)
    )
    run, reached = _solve(
        start, data, times, clock, jax.tree.map(lambda leaf: _array(leaf, times.dtype), rates),
        relative, absolute, scale, loss, solver, max_steps,
        diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
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


@jax.jit  # one program: as single operations they would each be compiled
def smallest_size(start: Any) -> Array:
    """The smallest non-zero entry in size: the scale that absolute tolerances must be below."""
    leaves = [jnp.abs(jax.lax.stop_gradient(leaf)) for leaf in jax.tree.leaves(start)]
    smallest = jnp.min(
        jnp.stack([jnp.min(jnp.where(x > 0, x, jnp.inf), initial=jnp.inf) for x in leaves])
    )
    tiny = jnp.finfo(smallest.dtype).tiny ** 0.5
    return jnp.where(jnp.isfinite(smallest), jnp.clip(smallest, tiny, 1.0), 1.0)


def smallest_scale(b: Any) -> Array:
    """The smallest non-zero strength, or root mean square of a matrix, of (matrix) strengths."""
    if b.core == 1:
        return smallest_size(b)
    return smallest_size([jnp.sqrt(jnp.mean(jnp.square(m), axis=(-2, -1))) for m in b.stacks])


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
    adjoint: diffrax.AbstractAdjoint,
) -> tuple[ReducedTrajectory, Array]:
    scale = smallest_size(start) if scale is None else scale
    absolute = jnp.where(jnp.isnan(atol), rtol * scale, atol)
    # A start that is not finite has no step size at all: replace it, and void the result below.
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(start)]))
    start = jax.tree.map(lambda x: jnp.where(sound, x, 0), start)

    def velocity(_: Any, y: Any, args: Any) -> Any:
        data, tau, rates = args
        gradient = jax.grad(loss)(y, data)
        if jax.tree.structure(rates) == jax.tree.structure(gradient):
            return jax.tree.map(lambda g, rate: -rate * g / tau, gradient, rates)
        return jax.tree.map(lambda g: -rates * g / tau, gradient)

    def look(_: Any, y: Any, args: Any) -> tuple[Any, Array]:
        return y, loss(y, args[0])

    # Steps end on the saved times: the dense output of Dopri8 is some thousand times less
    # accurate than its steps. Without a least step a velocity that is not finite would use up
    # max_steps in rejections; it lies far below the rounding of t.
    dtmin = 1e-25 * jnp.max(jnp.abs(ts))
    controller = diffrax.ClipStepSizeController(
        diffrax.PIDController(rtol=rtol, atol=absolute, dtmin=dtmin, force_dtmin=False),
        step_ts=ts,
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
    good = sound & (solution.result == diffrax.RESULTS.successful)
    reached = jnp.where(sound, solution.ts[1][0], -jnp.inf)
    there = ts <= reached

    def until(leaf: Array) -> Array:
        return jnp.where(there.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, jnp.nan)

    b, losses = jax.tree.map(until, (b, losses))
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.nan)
    status = jnp.where(good & jnp.all(jnp.isfinite(losses)), OK, GAVE_UP)
    steps = jnp.asarray(solution.stats["num_steps"])
    return ReducedTrajectory(ts, b, losses, status, steps), reached
