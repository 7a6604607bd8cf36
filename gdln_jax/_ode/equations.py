"""The one set-up of ODEs that start on a plateau: tolerances, solver, saved times, events.

Flow, reduction, races and learning times differ in their velocity and in what they look at, and
share what is here. docs/tolerances.md lists the defaults.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PyTree
from typing_extensions import TypeAliasType

from gdln_jax._checks import Result, check_integer, check_positive_if_known, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._ode.march import KINDS, Gap, march, start_index
from gdln_jax._progress import REPORTS, Reporter, is_traced

# None: the default.
Solver = TypeAliasType("Solver", diffrax.AbstractSolver | None)
Adjoint = TypeAliasType("Adjoint", diffrax.AbstractAdjoint | None)

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
# States at repeated times above this size are not worth a program.
_PAD_BYTES = 64 * 2**20


def has_kinks(model: PyTree) -> bool:
    """Whether `model`, or a part of it, says `kinks = True`, as `ReLUNetwork` does."""
    parts = jax.tree.leaves(model, is_leaf=lambda part: hasattr(part, "kinks"))
    return any(getattr(part, "kinks", False) is True for part in parts)


class Crossing(Result, eqx.Module):
    """When a level was crossed: ``time`` (inf if never, NaN if the solver failed), ``reached``."""

    _units: ClassVar = {"time": "the units of tau or of the time given"}

    time: Float[Array, "..."]
    """Time of the first crossing, in the caller's units."""
    reached: Bool[Array, "..."]
    """Whether the level was crossed; where not, ``time`` is inf and its derivatives are 0."""

    def __repr__(self) -> str:
        if not is_concrete(self.time):
            return f"Crossing(time={self.time}, reached={self.reached})"
        count, total = int(np.sum(np.asarray(self.reached))), np.asarray(self.reached).size
        return f"Crossing(time={np.asarray(self.time)}, reached {count} of {total})"


class Settings(eqx.Module):
    """Tolerances, solver, adjoint and the largest number of steps; made by `settings`.

    An `atol` that is NaN stands for `rtol` times the scale of the start, so that giving a number
    compiles nothing new.
    """

    rtol: Array | np.ndarray
    atol: Array | np.ndarray
    solver: diffrax.AbstractSolver
    adjoint: diffrax.AbstractAdjoint
    max_steps: int = eqx.field(static=True)

    def controller(self, y0: PyTree, scale: Array | None, **options: Any) -> diffrax.PIDController:
        """The control of the step size for a run from `y0`, whose size is `scale`."""
        if is_concrete(self.atol) and not np.any(np.isnan(np.asarray(self.atol))):
            atol = self.atol
        else:
            scale = smallest_scale(jax.tree.leaves(y0)) if scale is None else scale
            atol = jnp.where(jnp.isnan(self.atol), self.rtol * scale, self.atol)
        return diffrax.PIDController(rtol=self.rtol, atol=atol, **options)


def settings(
    dtype: DTypeLike,
    *,
    rtol: ArrayLike | None = None,
    atol: ArrayLike | None = None,
    solver: diffrax.AbstractSolver | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
    max_steps: int = MAX_STEPS,
    kinks: bool = False,
) -> Settings:
    """Check what the caller gave and fill in the defaults for states of `dtype`.

    Defaults: rtol 1e-10 with `Dopri8` in float64, 1e-5 with `Tsit5` in float32, 1e-4 with `Bosh3`
    for models with kinks; reverse mode by `RecursiveCheckpointAdjoint`, else `ForwardMode` or
    `DirectAdjoint`.

    Raises:
        ValueError: tolerances that are not above 0 or below rounding, `max_steps` below 1, or
            another adjoint than these three.
    """
    check_positive_if_known(rtol=rtol, atol=atol)
    if adjoint is not None and type(adjoint) not in KINDS:
        raise ValueError(
            f"adjoint is {adjoint!r}; pass diffrax.RecursiveCheckpointAdjoint() for reverse mode, "
            "diffrax.ForwardMode() for forward mode, or diffrax.DirectAdjoint() for both."
        )
    check_resolved(rtol, dtype)
    kind = np.dtype(dtype)
    if solver is None:
        smooth = diffrax.Dopri8() if kind == np.float64 else diffrax.Tsit5()
        solver = diffrax.Bosh3() if kinks else smooth
    return Settings(
        known_array(default_rtol(kind, kinks) if rtol is None else rtol, kind),
        known_array(np.nan if atol is None else atol, kind),
        solver,
        diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
        check_integer(max_steps, "max_steps", minimum=1),
    )


def default_rtol(dtype: DTypeLike, kinks: bool = False) -> float:
    """The relative tolerance for states of `dtype`: 1e-10 or 1e-5, with kinks 1e-4."""
    return _RTOL_KINKS if kinks else _RTOL.get(np.dtype(dtype), 1e-5)


def known_array(value: ArrayLike, dtype: DTypeLike) -> Array | np.ndarray:
    """`value` in NumPy where it is known: a call of a small problem would else be conversions."""
    return np.asarray(value, dtype) if is_concrete(value) else jnp.asarray(value, dtype)


def smallest_scale(arrays: Iterable[Array]) -> Array:
    """Root mean square of the smallest matrix among `arrays` that is not zero, at most 1.

    The last two axes of an array are those of a matrix; an array with fewer axes counts as one.
    An absolute tolerance must lie below that size, or the plateau that small weights cause is
    left too late. Single entries are no measure of it: in rotated frames some are rounding.
    """
    return _smallest_scale([jax.lax.stop_gradient(jnp.asarray(w)) for w in arrays])


def smallest_entry(tree: PyTree) -> Array:
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


def checked_times(
    ts: ArrayLike | Sequence[float | Array], dtype: DTypeLike | None = None
) -> Array | np.ndarray:
    """Return times as an array (in NumPy where they are known), at least two that increase.

    Raises:
        ValueError: times that do not; it names the first.
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


def padded(ts: Array | np.ndarray, state: PyTree) -> Array | np.ndarray:
    """Repeat the last time until there are 16, 64, 256, ...: numbers of times share programs.

    The solver takes no step between equal times, and looks at the state once. `first_of` cuts
    results. Not under transformations, which compile again for
    other shapes in any case and where every member of a batch would keep more, nor where the states
    at these times exceed 64 MB.
    """
    count = 16
    while count < ts.shape[0]:
        count *= 4
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    if is_traced() or not is_concrete(ts) or count * size > _PAD_BYTES:
        return ts
    return np.concatenate([np.asarray(ts), np.repeat(np.asarray(ts)[-1:], count - ts.shape[0])])


def first_of(tree: PyTree, count: int) -> PyTree:
    """The first `count` entries of every array: what `padded` times added is left out."""
    if all(leaf.shape[0] == count for leaf in jax.tree.leaves(tree)):
        return tree
    return _first_of(tree, count)


@functools.partial(jax.jit, static_argnums=1)
def _first_of(tree: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[:count], tree)


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


def check_resolved(rtol: ArrayLike | None, dtype: DTypeLike) -> None:
    """Raise `ValueError` for a known relative tolerance below 10 times the rounding of `dtype`."""
    least = 10 * float(jnp.finfo(dtype).eps)
    if rtol is not None and is_concrete(rtol) and np.any(np.asarray(rtol) < least):
        dtype = np.dtype(dtype)
        remedy = (
            "make the model in float64 (jax.config.update('jax_enable_x64', True) before making "
            "arrays), or loosen it"
            if dtype == np.float32
            else "loosen it"
        )
        raise ValueError(
            f"rtol is {np.min(np.asarray(rtol)):g}, but {dtype} resolves no more than "
            f"{least:.1g}: {remedy}."
        )


class Run(NamedTuple):
    """What `solve` found, and how far it came.

    - `saved`: what `look` returned at the times, stacked; NaN where the solver did not get to.
    - `final`: the state at the last time; NaN if the solver did not get there.
    - `reached`: the time that the solver got to; -inf for a start that is not finite.
    - `complete`: whether that is the last time.
    - `stats`: numbers of steps, accepted and rejected and all of them.
    """

    saved: PyTree
    final: PyTree
    reached: Float[Array, ""]
    complete: Bool[Array, ""]
    stats: dict[str, Int[Array, ""]]


def loss_reported(report: Reporter | None, ts: Array | np.ndarray, t: Array, loss: Array) -> None:
    """Report the loss at one of the times before the last, at most `REPORTS` times."""
    if report is None:
        return
    share = jnp.floor(REPORTS * (ts - ts[0]) / (ts[-1] - ts[0]))
    due = jnp.concatenate([jnp.ones(1, bool), jnp.diff(share) > 0])[jnp.searchsorted(ts, t)]
    report(due & (t < ts[-1]), t - ts[0], loss)


def end_reported(report: Reporter | None, ts: Array | np.ndarray, run: "Run", loss: Array) -> None:
    """Report the loss at the last time, which may be repeated, if the run got there."""
    if report is not None:
        report(run.complete, ts[-1] - ts[0], loss)


def _state(t: Array, y: PyTree, args: PyTree) -> PyTree:
    del t, args
    return y


def solve(
    velocity: Callable[..., PyTree],
    y0: PyTree,
    ts: Array,
    args: PyTree,
    settings: Settings,
    *,
    scale: Array | None = None,
    look: Callable[..., PyTree] = _state,
    t0: Array | None = None,
    jumps: Array | None = None,
    report: Reporter | None = None,
) -> Run:
    """Solve dy/dt = velocity(t, y, args) from `y0`, with steps that end on every time of `ts`.

    Never raises for what happens on the way: see `Run`.

    Args:
        velocity, args: the vector field and its parameters.
        y0: the state at `t0`, by default `ts[0]`.
        ts: (time,), not decreasing.
        settings: tolerances, solver and so on.
        scale: the size of the start that a default `atol` is relative to; by default
            `smallest_scale` of `y0`.
        look: what to keep at the times, `look(t, y, args)`; by default the state.
        jumps: times at which `velocity` jumps; no step crosses one.
        report: called with the time since the start; with the loss by `loss_reported`,
            in `look`, and `end_reported`.
    """
    # A start that is not finite has no step size at all: replace it, and void the result below.
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(y)) for y in jax.tree.leaves(y0)]))
    start = jax.tree.map(lambda y: jnp.where(sound, y, 0), y0)
    # Without a least step a velocity that is not finite would use up max_steps in rejections, and
    # in a batch make everyone wait. It has to lie far below the rounding of t, since landing on
    # the saved times leaves steps of that size.
    dtmin = 1e-25 * jnp.maximum(jnp.abs(ts[0]), jnp.abs(ts[-1]))
    controller = settings.controller(y0, scale, dtmin=dtmin, force_dtmin=False)
    first = 0 if t0 is None else start_index(ts, t0)
    t0 = ts[0] if t0 is None else t0
    end = march(
        velocity,
        start,
        t0,
        ts,
        args,
        settings,
        controller,
        look=look,
        jumps=jumps,
        report=report,
        first=first,
    )
    complete = sound & end.sound & (end.t >= ts[-1])
    reached = jnp.where(sound, end.t, -jnp.inf)
    # Times up to the start, and equal ones at the end, are saved once.
    place = jnp.clip(jnp.arange(len(ts)), first, end.index - 1)
    there = complete | (ts <= reached)
    return Run(
        jax.tree.map(lambda leaf: _until(there, leaf[place]), end.saved),
        jax.tree.map(lambda leaf: jnp.where(complete, leaf, jnp.nan), end.y),
        reached,
        complete,
        dict(zip(_STATS, (end.kept, end.steps - end.kept, end.steps), strict=True)),
    )


class Located(NamedTuple):
    """Where a run to a level ended.

    - `time`: of the crossing, or where the solver came to; it has no derivatives.
    - `y`: the state there, with those of the flow up to that time.
    - `reached`: whether the level was crossed.
    - `failed`: whether the solver gave up before.
    """

    time: Array
    y: PyTree
    reached: Array
    failed: Array


def locate(
    velocity: Callable[..., PyTree],
    measure: Callable[..., Array],
    level: Array,
    y0: PyTree,
    t0: Array,
    t1: Array,
    args: PyTree,
    settings: Settings,
    *,
    scale: Array | None = None,
) -> Located:
    """Run until `measure(t, y, args)` first crosses `level`, in either direction, or to `t1`."""
    t0, t1 = jax.lax.stop_gradient((t0, t1))
    controller, gap = settings.controller(y0, scale), Gap(measure, level)
    end = march(velocity, y0, t0, t1[None], args, settings, controller, gap=gap)
    failed = ~(end.crossed | end.sound & (end.t >= t1))
    return Located(jax.lax.stop_gradient(end.t), end.y, end.crossed, failed)


def cross(
    velocity: Callable[..., PyTree],
    measure: Callable[..., Array],
    level: Array,
    y0: PyTree,
    t0: Array,
    t1: Array,
    args: PyTree,
    settings: Settings,
    *,
    scale: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Find when `measure(t, y, args)` first crosses `level`, with derivatives in all but t0, t1.

    Returns the time (inf if never, NaN if the solver gave up before), whether the level was
    crossed, and whether the solver gave up. First and second derivatives, in the modes that the
    adjoint of `settings` allows.
    """
    there, after, reached, failed = locate(
        velocity, measure, level, y0, t0, t1, args, settings, scale=scale
    )
    # From the located time and the state there, which has derivatives, Newton steps along the
    # solution through it, y + h y' + h^2/2 y''. Two of them carry first and second derivatives.
    until = jnp.where(reached, there, jax.lax.stop_gradient(t0))
    y = jax.tree.map(lambda new, start: jnp.where(reached, new, start), after, y0)
    one = jnp.ones_like(until)
    slope, bend = jax.jvp(
        lambda t, y: velocity(t, y, args), (until, y), (one, velocity(until, y, args))
    )

    def gap(step: Array) -> Array:
        moved = jax.tree.map(lambda y, v, b: y + step * v + step**2 / 2 * b, y, slope, bend)
        return measure(until + step, moved, args) - level

    step = jnp.zeros_like(until)
    for _ in range(2):
        value, rate = jax.jvp(gap, (step,), (jnp.ones_like(step),))
        usable = reached & (rate != 0)
        step = step - jnp.where(usable, value, 0.0) / jnp.where(usable, rate, 1.0)
    time = jnp.where(reached, until + step, jnp.where(failed, jnp.nan, jnp.inf))
    return time, reached, failed


def _until(there: Array, leaf: Array) -> Array:
    """NaN where the solver did not get to, along the leading axis of `leaf`."""
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    return jnp.where(there.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, jnp.nan)
