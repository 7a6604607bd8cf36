"""Which axes fix shapes: fn must see their values as Python values, one program for each.

Strings are always static. Floating-point axes are traced; one that fn cannot take traced is
refused, since a program per value is hardly ever meant. Whole numbers and flags may be either,
seeds or sizes: they are traced wherever fn can be traced with them, else static. Names in
`static=` are static whatever fn does.
"""

import inspect
from collections.abc import Mapping

import jax
import numpy as np

from gdln_jax._checks import suggest
from gdln_jax._sweep._axes import Axis, Fn, Grid
from gdln_jax._sweep._status import labelled

# fn may refuse some points (K above M, say): so many are tried for one that it takes.
_PROBES = 32


def check_arguments(fn: Fn, axes: tuple[Axis, ...]) -> None:
    """Refuse an fn that cannot be called as `fn(key, **point)`."""
    if not callable(fn):
        raise ValueError(f"fn is {fn!r}; pass a function fn(key, **point).")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some callables of C have none
        return
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    known = list(signature.parameters)[1:]
    for axis in axes:
        if axis.name not in known and not takes_any:
            raise ValueError(
                f"axis {axis.name!r} is no argument of fn{suggest(axis.name, known)}; fn must take "
                f"(key, {', '.join(a.name for a in axes)})."
            )
    try:
        signature.bind(None, **{axis.name: None for axis in axes})
    except TypeError as error:
        raise ValueError(f"fn cannot be called as fn(key, **point): {error}.") from error


def find_static(
    fn: Fn, axes: tuple[Axis, ...], static: tuple[str, ...], key: jax.Array
) -> frozenset[str]:
    """The names of all static axes; traces fn, runs nothing.

    Raises:
        ValueError: a floating-point axis needs to be static, with the reason; fn fails at all
            points that were tried.
    """
    given = frozenset(static) | {axis.name for axis in axes if axis.is_text}
    open_axes = [axis for axis in axes if axis.name not in given]
    if not open_axes:
        return given
    if not isinstance(traced(fn, Grid(axes, given, ()), 0, key), Exception):
        return given
    found = frozenset(axis.name for axis in axes)
    number = _point_that_works(fn, Grid(axes, found, ()), key)
    for axis in open_axes:
        failed = traced(fn, Grid(axes, found - {axis.name}, ()), number, key)
        if not isinstance(failed, Exception):
            found -= {axis.name}
        elif not axis.is_whole:
            raise ValueError(
                f"fn needs axis {axis.name!r} as a Python value and cannot be traced with it "
                f"({type(failed).__name__}: {_first_line(failed)}). Make fn traceable, or pass "
                f"static=({axis.name!r},): one compiled program per value."
            ) from failed
    return found


def check_labels(axes: tuple[Axis, ...], static: frozenset[str]) -> None:
    """Refuse values that fn would see as other numbers than their labels say.

    Raises:
        ValueError: names the value. Rounding to JAX's floating-point type is none, unless it makes
            two values one or leaves no digit.
    """
    for axis in axes:
        given, kind = axis.array(), jax.dtypes.canonicalize_dtype(axis.dtype)
        if axis.name in static or kind == given.dtype:
            continue
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            seen = given.astype(kind)
            back = seen.astype(given.dtype)
            allowed = np.finfo(kind).eps * np.abs(given) if kind.kind == "f" else 0
            off = (back != given) & ~(np.abs(back - given) <= allowed)
        _, first, rows = np.unique(seen, return_index=True, return_inverse=True)
        off |= first[rows] != np.arange(len(seen))
        if off.any():
            value, got = axis.values[int(np.argmax(off))], seen[np.argmax(off)].item()
            raise ValueError(
                f"axis {axis.name!r} holds {value!r}, but fn would get {got!r}: JAX holds {kind} "
                "here. Call jax.config.update('jax_enable_x64', True) first, or pass "
                f"static=({axis.name!r},): one compiled program per value."
            )


def _point_that_works(fn: Fn, grid: Grid, key: jax.Array) -> int:
    """The number of a point that fn takes, of some that are tried."""
    numbers = np.unique(np.linspace(0, grid.size - 1, min(_PROBES, grid.size)).astype(int))
    errors = []
    for number in numbers.tolist():
        failed = traced(fn, grid, number, key)
        if not isinstance(failed, Exception):
            return number
        errors.append(failed)
    raise ValueError(
        f"fn fails at all {len(numbers)} points that were tried; at {grid.point(0)}: "
        f"{type(errors[0]).__name__}: {errors[0]}"
    ) from errors[0]


def traced(
    fn: Fn, grid: Grid, number: int, key: jax.Array
) -> Mapping[str, jax.ShapeDtypeStruct] | Exception:
    """What fn returns, by name, or raises at a point when the axes that are not static are traced.

    Runs nothing.
    """
    fixed = grid.static_values(number)
    moving = {
        axis.name: jax.ShapeDtypeStruct((), jax.dtypes.canonicalize_dtype(axis.dtype))
        for axis in grid.traced
    }
    try:
        return jax.eval_shape(
            lambda key, values: labelled(fn(key, **fixed, **values))[0], key, moving
        )
    except Exception as error:  # noqa: BLE001  whatever fn does with a tracer
        return error


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else "no message"
