"""The grid of a sweep: named axes, its points, and one key per point.

A point's key depends on the values of its coordinates alone, never on their positions: adding a
value, reordering axes, another chunk size or mesh leave the keys as they were.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import PyTree
from typing_extensions import TypeAliasType

from gdln_jax._checks import listed, suggest

Value = bool | int | float | str
# What a sweep calls: fn(key, **point).
Fn = TypeAliasType("Fn", Callable[..., PyTree])
# Names of variables and dimensions that the result has anyway, and of fn's first argument.
_RESERVED = ("key", "status", "reason", "point")
# A key is folded from this many words of 32 bits: with one, 10,000 points would collide in 1 % of
# all sweeps, with four in 1e-31.
WORDS = 4


@dataclass(frozen=True)
class Axis:
    """A named list of values; `attrs` (for example units) go into the result."""

    name: str
    values: tuple[Value, ...]
    dtype: np.dtype
    attrs: Mapping[str, object]

    @property
    def is_text(self) -> bool:
        """Strings can only be static."""
        return self.dtype.kind == "U"

    @property
    def kind(self) -> str:
        """What fn gets: the type of numbers, or text, of whatever length."""
        return "text" if self.is_text else str(self.dtype)

    @property
    def is_whole(self) -> bool:
        """Integers and flags may be seeds (traced) or sizes (static)."""
        return self.dtype.kind in "iub"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Of all values."""
        return tuple(map(self.label, self.values))

    def label(self, value: Value) -> str:
        """Text that is the same for equal values, whatever their type."""
        return f"{self.name}={_canonical(value)}"

    def array(self) -> np.ndarray:
        """The values as coordinates."""
        return np.array(self.values, dtype=self.dtype)


def read_axes(axes: Mapping[str, object]) -> tuple[Axis, ...]:
    """Check the axes as given.

    Raises:
        ValueError: names the axis, what is wrong with it, and what to pass.
    """
    if not isinstance(axes, Mapping) or not axes:
        raise ValueError("axes must be a mapping of at least one name to 1-D values.")
    return tuple(_read_axis(name, values) for name, values in axes.items())


def _read_axis(name: object, values: object) -> Axis:
    if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED:
        raise ValueError(
            f"axis name {name!r}: it must be the name of an argument of fn, and none of "
            f"{listed(_RESERVED)}."
        )
    if isinstance(values, str | bytes | Mapping):
        raise ValueError(f"axis {name!r} is {values!r}; pass a list or 1-D array of values.")
    attrs = dict(getattr(values, "attrs", {}))
    plain = list(values) if isinstance(values, Iterable) and not hasattr(values, "shape") else None
    raw = np.asarray(values if plain is None else plain)
    if raw.ndim != 1 or raw.size == 0:
        raise ValueError(f"axis {name!r} has shape {raw.shape}; pass 1-D values, at least one.")
    mixed = raw.dtype.kind == "U" and not all(isinstance(v, str) for v in plain or [""])
    wide = raw.dtype.kind == "f" and raw.dtype.itemsize > 8
    if raw.dtype.kind not in "fiubU" or wide or mixed:
        raise ValueError(
            f"axis {name!r} holds {raw.dtype} values; pass numbers of at most 64 bits, flags or "
            "strings, of one kind (names of objects that fn looks up, for example)."
        )
    if raw.dtype.kind == "f" and np.isnan(raw).any():
        raise ValueError(f"axis {name!r} has NaN among its values.")
    for given, kept in zip(plain or [], raw.tolist(), strict=False):
        if given != kept:  # whole numbers of 64 bits among other numbers
            raise ValueError(
                f"axis {name!r} holds {given!r}, which among its other values becomes {kept!r} "
                f"({raw.dtype}): pass values of one type, such as np.array(values, np.uint64)."
            )
    if len(set(raw.tolist())) != raw.size:
        raise ValueError(
            f"axis {name!r} has a value twice: both points would have the same key. For "
            "repetitions add an axis of seeds."
        )
    return Axis(name, tuple(raw.tolist()), raw.dtype, attrs)


def _canonical(value: Value) -> str:
    if isinstance(value, bool | str):
        return repr(value)
    # An axis [1, 2] becomes [1.0, 2.0, 0.5] when 0.5 is added: the keys of 1 and 2 must not change.
    exact = float(value) == value
    return (float(value) + 0.0).hex() if exact else str(value)


@dataclass(frozen=True)
class Grid:
    """All points of a sweep, numbered in C order of the axes.

    `static` axes are seen by fn as Python values, the others are traced; the points of one choice
    of static values form a group, which is one compiled program. `key_axes`: the axes that keys
    depend on.
    """

    axes: tuple[Axis, ...]
    static: frozenset[str]
    key_axes: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values per axis."""
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    @property
    def traced(self) -> tuple[Axis, ...]:
        """The axes that one program maps over."""
        return tuple(axis for axis in self.axes if axis.name not in self.static)

    @cached_property
    def groups(self) -> np.ndarray:
        """Numbers of the points, (group, member)."""
        fixed = [n for n, axis in enumerate(self.axes) if axis.name in self.static]
        free = [n for n, axis in enumerate(self.axes) if axis.name not in self.static]
        count = math.prod(self.shape[n] for n in fixed)
        return np.arange(self.size).reshape(self.shape).transpose(fixed + free).reshape(count, -1)

    def point(self, number: int) -> dict[str, Value]:
        """The coordinates of a point as Python values."""
        where = np.unravel_index(number, self.shape)
        return {a.name: a.values[int(i)] for a, i in zip(self.axes, where, strict=True)}

    def static_values(self, number: int) -> dict[str, Value]:
        """What fn sees as Python values at a point."""
        return {k: v for k, v in self.point(number).items() if k in self.static}

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """The coordinates of points on all axes, (point,) each."""
        where = np.unravel_index(numbers, self.shape)
        return {a.name: a.array()[i] for a, i in zip(self.axes, where, strict=True)}

    def numbers(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The numbers of the points with these coordinates, -1 for one that is none of the grid."""
        where = []
        for axis in self.axes:
            at = {label: index for index, label in enumerate(axis.labels)}
            values, rows = np.unique(columns[axis.name], return_inverse=True)
            index = [at.get(axis.label(value), -1) for value in values.tolist()]
            where.append(np.array(index)[rows])
        strange = np.any(np.array(where) < 0, axis=0)
        flat = np.ravel_multi_index([np.maximum(index, 0) for index in where], self.shape)
        return np.where(strange, -1, flat)

    def words(self, numbers: np.ndarray) -> np.ndarray:
        """What is folded into the sweep's key to make the points' keys, (point, WORDS) uint32."""
        where = np.unravel_index(numbers, self.shape)
        chosen = sorted(
            (
                (axis, index)
                for axis, index in zip(self.axes, where, strict=True)
                if axis.name in self.key_axes
            ),
            key=lambda pair: pair[0].name,
        )
        out = np.empty((len(numbers), WORDS), np.uint32)
        for row in range(len(numbers)):
            text = "\n".join(axis.labels[int(index[row])] for axis, index in chosen)
            digest = hashlib.sha256(text.encode()).digest()
            out[row] = np.frombuffer(digest, "<u4", WORDS)
        return out


def check_names(names: Sequence[str], axes: tuple[Axis, ...], what: str) -> tuple[str, ...]:
    """Return `names` in the order given, or refuse one that is no axis."""
    known = [axis.name for axis in axes]
    if isinstance(names, str):
        raise ValueError(f"{what} is {names!r}; pass a tuple of names, ({names!r},).")
    if not isinstance(names, Iterable):
        raise ValueError(f"{what} is {names!r}; pass a tuple of names of axes: {listed(known)}.")
    names = tuple(names)
    for name in names:
        if name not in known:
            raise ValueError(
                f"{what} names {name!r}, which is no axis{suggest(str(name), known)}; axes: "
                f"{listed(known)}."
            )
    return names
