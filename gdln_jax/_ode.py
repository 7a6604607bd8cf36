"""The one set-up of ODEs that start on a plateau: tolerances, solver, saved times, events.

Flow, reduction, races and learning times differ in their velocity and in what they look at, and
share what is here. docs/tolerances.md lists the defaults.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, ArrayLike

from gdln_jax._checks import is_concrete

# Enough for any plateau; a run that needs more is stiff.
MAX_STEPS = 200_000
_STATS = ("num_accepted_steps", "num_rejected_steps", "num_steps")
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


def smallest_entry(tree: Any) -> Array:
    """The smallest entry of `tree` that is not 0, in size: `smallest_scale` of strengths."""
    return smallest_scale([leaf[..., None, None] for leaf in jax.tree.leaves(tree)])


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


def checked_times(ts: ArrayLike | Sequence[Any], dtype: Any = None) -> Any:
    """Return times as an array (in NumPy where they are known), at least two that increase.

    **Raises:** `ValueError` naming the first that does not.
    """
    known = is_concrete(ts)
    array = np.asarray(ts, dtype) if known else jnp.asarray(ts, dtype)
    if array.ndim != 1 or array.shape[0] < 2:
        raise ValueError(
            f"ts has shape {array.shape}; pass at least two increasing times, e.g. "
            "jnp.linspace(0., 10., 101)."
        )
    if known:
        check_increasing(np.asarray(array))
    return array


def check_increasing(ts: np.ndarray | Sequence[float], name: str = "ts") -> None:
    """Raise `ValueError`, naming the first that is wrong, unless times are finite and increase."""
    values = np.asarray(ts)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        what = f"{name}[{wrong[0]}] is {values[wrong[0]]}"
    else:
        back = np.flatnonzero(np.diff(values) <= 0)
        if not len(back):
            return
        i = int(back[0])
        what = f"{name}[{i + 1}] = {values[i + 1]:g} follows {name}[{i}] = {values[i]:g}"
    raise ValueError(
        f"{name} must be finite and strictly increasing, but {what}; pass for example "
        "jnp.linspace(0.0, 10.0, 101)."
    )


def check_resolved(rtol: Any, dtype: Any) -> None:
    """Raise `ValueError` for a known relative tolerance below 10 times the rounding of `dtype`."""
    least = 10 * float(jnp.finfo(dtype).eps)
    if rtol is not None and is_concrete(rtol) and float(rtol) < least:
        dtype = np.dtype(dtype)
        remedy = (
            "make the model in float64 (jax.config.update('jax_enable_x64', True) before making "
            "arrays), or loosen it"
            if dtype == np.float32
            else "loosen it"
        )
        raise ValueError(
            f"rtol is {float(rtol):g}, but {dtype} resolves no more than {least:.1g}: {remedy}."
        )


class Solution(NamedTuple):
    """What `solve` found, and how far it came.

    - `saved`: what `look` returned at the times, stacked; NaN where the solver did not get to.
    - `final`: the state at the last time; NaN if the solver did not get there.
    - `reached`: the time that the solver got to; -inf for a start that is not finite.
    - `complete`: whether that is the last time.
    - `stats`: numbers of steps, accepted and rejected and all of them.
    """

    saved: Any
    final: Any
    reached: Array
    complete: Array
    stats: dict[str, Array]


def _state(t: Array, y: Any, args: Any) -> Any:
    del t, args
    return y


def solve(
    velocity: Callable[..., Any],
    y0: Any,
    ts: Array,
    args: Any = None,
    *,
    rtol: Array | float,
    atol: Array | float,
    solver: diffrax.AbstractSolver,
    look: Callable[..., Any] = _state,
    t0: Array | None = None,
    jumps: Array | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
    max_steps: int = MAX_STEPS,
    meter: diffrax.AbstractProgressMeter | None = None,
) -> Solution:
    """Solve dy/dt = velocity(t, y, args) from `y0`, with steps that end on every time of `ts`.

    Never raises for what happens on the way: see `Solution`.

    - `ts`: (time,), not decreasing; `y0` holds at `t0`, by default `ts[0]`.
    - `look`: what to keep at the times, `look(t, y, args)`; by default the state.
    - `jumps`: times at which `velocity` jumps; no step crosses one.
    """
    # A start that is not finite has no step size at all: replace it, and void the result below.
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(y)) for y in jax.tree.leaves(y0)]))
    start = jax.tree.map(lambda y: jnp.where(sound, y, 0), y0)
    # Without a least step a velocity that is not finite would use up max_steps in rejections, and
    # in a batch make everyone wait. It has to lie far below the rounding of t, since clipping to
    # the saved times leaves steps of that size.
    dtmin = 1e-25 * jnp.max(jnp.abs(ts))
    controller = diffrax.PIDController(rtol=rtol, atol=atol, dtmin=dtmin, force_dtmin=False)
    done = _integrate(
        velocity,
        start,
        ts[0] if t0 is None else t0,
        ts[-1],
        args,
        # Between steps diffrax interpolates, for Dopri8 50 to 1,000 times less accurately than the
        # step itself (measured: 6e-9 against 5e-12 at rtol 1e-10).
        controller=diffrax.ClipStepSizeController(controller, step_ts=ts, jump_ts=jumps),
        solver=solver,
        adjoint=adjoint,
        max_steps=max_steps,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=ts, fn=look), diffrax.SubSaveAt(t1=True)]),
        progress_meter=diffrax.NoProgressMeter() if meter is None else meter,
    )
    assert done.ts is not None
    assert done.ys is not None
    saved, final = done.ys
    complete = sound & (done.result == diffrax.RESULTS.successful)
    # What is saved at t1 is saved wherever the solver stopped.
    reached = jnp.where(sound, done.ts[1][0], -jnp.inf)
    return Solution(
        jax.tree.map(lambda leaf: _until(complete | (ts <= reached), leaf), saved),
        jax.tree.map(lambda leaf: jnp.where(complete, leaf[0], jnp.nan), final),
        reached,
        complete,
        {k: jnp.asarray(done.stats[k]) for k in _STATS},
    )


def state_at(
    velocity: Callable[..., Any],
    y0: Any,
    t0: Array,
    t1: Array,
    args: Any,
    *,
    rtol: Array | float,
    atol: Array | float,
    solver: diffrax.AbstractSolver,
    adjoint: diffrax.AbstractAdjoint | None = None,
    max_steps: int = MAX_STEPS,
) -> Any:
    """The state at `t1`, which may be `t0`; differentiable in all but `t1`."""
    done = _integrate(
        velocity,
        y0,
        t0,
        t1,
        args,
        controller=diffrax.PIDController(rtol=rtol, atol=atol),
        solver=solver,
        adjoint=adjoint,
        max_steps=max_steps,
        saveat=diffrax.SaveAt(t1=True),
    )
    return jax.tree.map(lambda leaf: leaf[-1], done.ys)


def locate(
    velocity: Callable[..., Any],
    measure: Callable[..., Array],
    level: Array,
    y0: Any,
    t0: Array,
    t1: Array,
    args: Any,
    *,
    rtol: Array | float,
    atol: Array | float,
    solver: diffrax.AbstractSolver,
    adjoint: diffrax.AbstractAdjoint | None = None,
    max_steps: int = MAX_STEPS,
) -> tuple[Array, Array, Array]:
    """Find when `measure(t, y, args)` first crosses `level`, in either direction.

    Returns the time, whether the level was crossed, and whether the solver gave up before. Without
    derivatives: none may pass through the interpolant on which the time is found.
    """
    # Closed-over parameters become leaves, so that they too can be cut off.
    velocity = eqx.filter_closure_convert(velocity, t0, y0, args)
    measure = eqx.filter_closure_convert(measure, t0, y0, args)
    velocity, measure, level, y0, t0, t1, args, rtol, atol = jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf,
        (velocity, measure, level, y0, t0, t1, args, rtol, atol),
    )
    first = measure(t0, y0, args) - level
    side = jnp.where(first < 0, -1.0, 1.0)

    def condition(t: Array, y: Any, args: Any, **_: Any) -> Array:
        # In JAX's default float: diffrax compares it with a literal.
        return (side * (measure(t, y, args) - level)).astype(float)

    done = _integrate(
        velocity,
        y0,
        t0,
        t1,
        args,
        controller=diffrax.PIDController(rtol=rtol, atol=atol),
        solver=solver,
        adjoint=adjoint,
        max_steps=max_steps,
        saveat=diffrax.SaveAt(t1=True),
        event=diffrax.Event(condition, root_finder(level.dtype)),
    )
    assert done.ts is not None
    assert done.event_mask is not None
    at_start = first == 0
    reached = done.event_mask | at_start
    failed = ~reached & (done.result != diffrax.RESULTS.successful)
    return jnp.where(at_start, t0, done.ts[-1]), reached, failed


def root_finder(dtype: Any) -> optx.Bisection:
    """What locates an event whose condition falls through 0.

    So does, at the end of a run, the placeholder that diffrax puts where no event happened (`flip`
    says so). The tolerance follows the dtype: 1e-8 fails in float32.
    """
    eps = float(jnp.finfo(dtype).eps)
    return optx.Bisection(rtol=8 * eps, atol=math.sqrt(eps), flip=True)


def _integrate(
    velocity: Callable[..., Any],
    y0: Any,
    t0: Array,
    t1: Array,
    args: Any,
    *,
    controller: diffrax.AbstractStepSizeController,
    solver: diffrax.AbstractSolver,
    adjoint: diffrax.AbstractAdjoint | None,
    max_steps: int,
    saveat: diffrax.SaveAt,
    **options: Any,
) -> diffrax.Solution:
    """The one call of diffrax."""
    return diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        solver,
        t0,
        t1,
        None,
        y0,
        args,
        saveat=saveat,
        stepsize_controller=controller,
        adjoint=diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
        max_steps=max_steps,
        throw=False,
        **options,
    )


def _until(there: Array, leaf: Array) -> Array:
    """NaN where the solver did not get to, along the leading axis of `leaf`."""
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    return jnp.where(there.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, jnp.nan)
