"""When a loss or a mode crosses a level, and how that time depends on everything else.

The time t* solves value(t*, theta) = level, so that dt*/dtheta = -(dvalue/dtheta)/(dvalue/dt):
the implicit function theorem, whatever located the root.
"""

from collections.abc import Callable

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree, Scalar
from typing_extensions import TypeAliasType

from gdln_jax._checks import is_concrete
from gdln_jax._checks.types import ArrayLike, Curve, Tolerance
from gdln_jax._ode import (
    MAX_STEPS,
    Adjoint,
    Crossing,
    Solver,
    check_increasing,
    cross,
    settings,
    smallest_scale,
)
from gdln_jax._solution import SolveError

Velocity = TypeAliasType("Velocity", Callable[..., PyTree] | None)
State = TypeAliasType("State", PyTree | None)
Grid = TypeAliasType("Grid", Float[Array, " time"] | np.ndarray)


def time_to(
    level: ArrayLike,
    *,
    curve: Curve = None,
    ode: Velocity = None,
    y0: State = None,
    measure: Curve = None,
    args: PyTree = None,
    t0: ArrayLike = 0.0,
    t1: ArrayLike | None = None,
    search: Grid | None = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    solver: Solver = None,
    adjoint: Adjoint = None,
    max_steps: int = MAX_STEPS,
    throw: bool = True,
) -> Crossing:
    """Return the first time at which a quantity crosses ``level``, in either direction.

    From a closed form: ``time_to(0.25, curve=lambda t: exact.xor_loss(t, a0))``. The first sign
    change of ``curve - level`` on the times ``search`` is bracketed and bisected to rounding
    (optimistix); a curve that crosses and comes back between two of them goes unseen.

    From an ODE: ``time_to(0.1, ode=f, y0=y0, measure=m, t1=100.)`` solves ``dy/dt = f(t, y, args)``
    until ``m(t, y, args)`` crosses the level (a real-valued diffrax event with a root finder: a
    boolean one has no derivative), then solves once more up to that time and takes Newton steps
    on the true velocity, since the event itself is located on an interpolant only.

    Differentiable in the level and in all parameters, passed in ``args`` and ``y0`` or closed
    over: first and second derivatives. For an ODE, in reverse mode by default; pass
    ``adjoint=diffrax.ForwardMode()`` for ``jacfwd`` and ``diffrax.DirectAdjoint()`` for both and
    for second derivatives.

    Args:
        level: number or array; every element has its own crossing.
        curve: function of t (and of ``args`` as second argument if those are given), real-valued,
            also at array-free scalars; it must be finite on the times searched.
        ode: vector field ``f(t, y, args)`` with the structure of ``y0``; divide by tau yourself.
        y0: state at ``t0``: any pytree of arrays.
        measure: the scalar to watch, ``m(t, y, args)``.
        args: parameters passed to ``curve``, ``ode`` and ``measure``.
        t0: start; a value that equals the level there is crossed at t0.
        t1: end, after which the level counts as never reached. Required for an ODE; for a curve
            the default is 2^65, far beyond any learning time in units of its rate.
        search: increasing times (time,) at which a curve is first evaluated. By default t0 and a
            geometric grid from t0 up to t1, two points per octave over 100 octaves.
        rtol: relative tolerance of the ODE solver: 1e-10, or 1e-5 in float32.
        atol: absolute tolerance, by default rtol times the scale of ``y0``, so that a plateau of
            1e-30 is resolved. The scale is the root mean square of the smallest matrix (the last
            two axes of an array) that is not zero, as in ``gradient_flow``; entries of vectors and
            numbers count singly. Give ``atol`` where entries of one matrix, say strengths
            (edge, mode), start at very different sizes.
        solver: diffrax solver; default ``Dopri8`` in float64, ``Tsit5`` in float32.
        adjoint: diffrax adjoint.
        max_steps: limit on the steps of the ODE solver.
        throw: raise when the ODE solver gives up; under ``jit`` or ``vmap`` its time is NaN.

    Returns:
        ``Crossing(time, reached)`` with the shape of ``level``.

    Raises:
        ValueError: not exactly one of ``curve`` and ``ode``, or an argument that it needs is
            missing or belongs to the other; a level or a time that is NaN, ``t1`` not after
            ``t0``, times ``search`` that do not increase, tolerances that are not positive or
            below rounding; a curve that is NaN before it crosses (traced: its time is NaN).
        SolveError: the ODE solver gave up.
    """
    _check_arguments(curve, ode, y0, measure, t1, search)
    _check_values(level, t0, t1, search)
    if curve is not None:
        return _of_curve(curve, jnp.asarray(level), args, t0, t1, search)
    assert ode is not None
    assert measure is not None
    y0 = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf, 1.0)), y0)
    dtype = jnp.result_type(*jax.tree.leaves(y0))
    setup = settings(
        dtype, rtol=rtol, atol=atol, solver=solver, adjoint=adjoint, max_steps=max_steps
    )
    scale = _scale(y0)
    start, stop, levels = (jnp.asarray(value, dtype) for value in (t0, t1, level))

    def one(value: Array) -> tuple[Array, Array, Array]:
        return cross(ode, measure, value, y0, start, stop, args, setup, scale=scale)

    times, reached, failed = one(levels) if levels.ndim == 0 else jnp.vectorize(one)(levels)
    if throw and not isinstance(failed, Tracer) and bool(jnp.any(failed)):
        raise SolveError(
            f"the ODE solver gave up before t1 = {t1} (max_steps = {max_steps}) and before the "
            "level was crossed; raise max_steps, loosen rtol, or give a stiff solver."
        )
    return Crossing(times, reached)


def until_learned(
    remaining: Callable[[Array, PyTree, PyTree], Float[Array, " mode"]], level: float | int = 0.01
) -> diffrax.Event:
    """Build the diffrax event that ends a run once EVERY mode is learned to within ``level``.

    A global criterion (steady state, norm of the gradient) fires on the initial plateau, where
    nothing moves either, and stops before the slow modes. Here every mode reports
    what is left of it, 1 on the plateau and 0 at the end, and the largest counts. The condition
    is real-valued and is located by a root finder, so that the final time has a derivative.

    Args:
        remaining: ``remaining(t, y, args)`` -> fraction left of each mode, for example
            ``unlearned(product_of_weights, s, d)``.
        level: the fraction at which a mode counts as learned, above 0. A run that starts with
            all modes learned does not end by this event.

    Returns:
        An event for ``diffrax.diffeqsolve(..., event=...)``.

    Raises:
        ValueError: a ``level`` that is not above 0; an exact 0 is never reached.
    """
    if not level > 0:
        raise ValueError(f"level is {level!r}; it must be above 0 (an exact 0 is never reached).")

    def condition(t: Array, y: PyTree, args: PyTree, **_: object) -> Scalar:
        return (jnp.max(remaining(t, y, args)) - level).astype(float)

    # The condition falls through 0, and so does, at the end of a run, the placeholder that diffrax
    # puts where no event happened (`flip` says so). A tolerance of 1e-8 would fail in float32.
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    finder = optx.Bisection(rtol=8 * eps, atol=eps**0.5, flip=True)
    return diffrax.Event(condition, finder, direction=False)


def unlearned(a: ArrayLike, s: ArrayLike, d: ArrayLike) -> Float[Array, "..."]:
    """Return what is left of each mode, ``|1 - d a/s|``; |d a| for modes with s = 0.

    It is the factor of the gradient (s - d a) that vanishes at the end only. The gradient itself
    also vanishes at the start, with the weights.
    """
    dtype = jnp.result_type(a, s, d, 1.0)
    a, s, d = (jnp.asarray(value, dtype) for value in (a, s, d))
    return jnp.abs(s - d * a) / jnp.where(s == 0, 1.0, jnp.abs(s))


def _check_arguments(
    curve: object, ode: object, y0: PyTree, measure: object, t1: object, search: object
) -> None:
    if (curve is None) == (ode is None):
        raise ValueError("give exactly one of curve (a function of t) and ode (a vector field).")
    needed = {"y0": y0, "measure": measure}
    if curve is not None:
        extra = [name for name, value in needed.items() if value is not None]
        if extra:
            raise ValueError(f"{' and '.join(extra)} belong to ode; a curve needs neither.")
        return
    missing = [name for name, value in {**needed, "t1": t1}.items() if value is None]
    if missing:
        raise ValueError(f"ode also needs {', '.join(missing)}.")
    if search is not None:
        raise ValueError("search belongs to curve; an ode is watched at every step.")


def _check_values(
    level: ArrayLike, t0: ArrayLike, t1: ArrayLike | None, search: ArrayLike | None
) -> None:
    for name, value in (("level", level), ("t0", t0), ("t1", t1)):
        if value is not None and is_concrete(value) and np.isnan(np.asarray(value)).any():
            raise ValueError(f"{name} is {value}; it must be a number.")
    if t1 is not None and is_concrete((t0, t1)) and not np.all(np.asarray(t1) > np.asarray(t0)):
        raise ValueError(f"t1 is {t1} and t0 is {t0}; the search runs forwards, from t0 to t1.")
    if search is not None and is_concrete(search):
        check_increasing(np.asarray(search), "search")


def _of_curve(
    curve: Callable[..., Array],
    levels: Array,
    args: PyTree,
    t0: ArrayLike,
    t1: ArrayLike | None,
    search: ArrayLike | None,
) -> Crossing:
    value = (lambda t, _: curve(t)) if args is None else curve
    dtype = jnp.result_type(levels, t0, 0.0 if search is None else search, 1.0)
    if search is None:
        octaves = np.concatenate([[0.0], 2.0 ** (np.arange(-200, 1) / 2)])
        span = 2.0**65 if t1 is None else jnp.asarray(t1, dtype) - jnp.asarray(t0, dtype)
        times = jnp.asarray(t0, dtype) + span * jnp.asarray(octaves, dtype)
    else:
        times = jnp.asarray(search, dtype)
    values = jax.vmap(lambda t: jnp.asarray(value(t, args)))(times)
    if values.shape != times.shape:
        raise ValueError(
            f"curve returns shape {values.shape[1:]} at one time; it must return a number. Use "
            "jax.vmap over parameters around time_to."
        )
    bits = jnp.finfo(dtype).nmant + 8

    def one(level: Array) -> tuple[Array, Array, Array]:
        gaps = jax.lax.stop_gradient(values - level)
        side = jnp.where(gaps[0] < 0, -1.0, 1.0).astype(gaps.dtype)
        crossed = gaps * side <= 0
        found = jnp.any(crossed)
        index = jnp.argmax(crossed)
        unknown = jnp.any(jnp.isnan(gaps) & (~found | (jnp.arange(len(gaps)) < index)))
        low, high = times[jnp.maximum(index - 1, 0)], times[index]
        low, high = jax.lax.stop_gradient((low, high))

        def gap(t: Array, given: tuple[PyTree, Array]) -> Array:
            """Fall from positive to negative through the crossing; without one, through low."""
            theirs, level = given
            return jnp.where(found, side * (value(t, theirs) - level), low - t)

        # Bisection also tests |gap| < atol, in the units of the curve, where no absolute number
        # is right for levels from 1 to 1e-30: it is run to the last bit instead.
        root = optx.root_find(
            gap,
            optx.Bisection(rtol=0.0, atol=0.0, flip=True),
            (low + high) / 2,
            (args, level),
            options={"lower": low, "upper": high},
            max_steps=bits,
            throw=False,
        ).value
        time = jnp.where(unknown, jnp.nan, jnp.where(found, root, jnp.inf))
        return time, found & ~unknown, unknown

    crossings, reached, unknown = one(levels) if levels.ndim == 0 else jnp.vectorize(one)(levels)
    if is_concrete((unknown, values)) and bool(jnp.any(unknown)):
        first = float(times[int(jnp.argmax(jnp.isnan(values)))])
        raise ValueError(
            f"curve is NaN at t = {first:g}, before it crosses the level: pass t1 or search, so "
            "that it is asked only where it is finite."
        )
    return Crossing(crossings, reached)


def _scale(y0: PyTree) -> Array:
    leaves = jax.tree.leaves(y0)
    return smallest_scale([w[..., None, None] if w.ndim < 2 else w for w in leaves])
