"""The result of a sweep as labelled arrays: axes in front, fn's own dimensions behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from gdln_jax._checks import check_keys
from gdln_jax._checks.types import ArrayLike
from gdln_jax._sweep._axes import Axis, Grid
from gdln_jax._sweep._program import Block
from gdln_jax._sweep._status import MEANINGS, MISSING, RAISED, REASONS, reasons


@dataclass(frozen=True)
class Labels:
    """What users call things: dimensions of fn's arrays, their coordinates, units of everything."""

    dims: Mapping[str, str | Sequence[str]]
    coords: Mapping[str, ArrayLike | Sequence | xr.DataArray]
    units: Mapping[str, str]

    @classmethod
    def checked(
        cls,
        dims: Mapping[str, str | Sequence[str]] | None,
        coords: Mapping[str, ArrayLike | Sequence | xr.DataArray] | None,
        units: Mapping[str, str] | None,
    ) -> "Labels":
        """The labels as given to `sweep`, None for none.

        Raises:
            ValueError: one of the three is no mapping; names of dimensions are no strings.
        """
        for name, given in (("dims", dims), ("coords", coords), ("units", units)):
            if given is not None and not isinstance(given, Mapping):
                raise ValueError(
                    f"{name} is {given!r}; it must be a mapping by the names of what fn returns."
                )
        for name, given in (dims or {}).items():
            if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
                raise ValueError(f"dims[{name!r}] is {given!r}; pass a list of names.")
        return cls(dims or {}, coords or {}, units or {})

    def inner(self, name: str, count: int) -> list[str]:
        """The names of the `count` dimensions that an array of fn has at each point.

        Raises:
            ValueError: `dims` names another number of them.
        """
        given = self.dims.get(name, [f"{name}_dim_{k}" for k in range(count)])
        names = [given] if isinstance(given, str) else list(given)
        if count != len(names):
            raise ValueError(
                f"dims names {len(names)} dimensions of {name!r} ({', '.join(names)}), but each "
                f"point has {count}."
            )
        return names


def assemble(
    grid: Grid, blocks: Sequence[Block], labels: Labels, attrs: Mapping[str, str]
) -> xr.Dataset:
    """All blocks on the grid.

    Points without a result have status `MISSING` and NaN. Arrays whose shapes differ between
    static values are filled up with NaN to the largest shape.

    Raises:
        ValueError: arrays of different numbers of dimensions; labels that fit nothing.
    """
    status = np.full(grid.size, MISSING, np.int8)
    messages = np.full(grid.size, "", dtype=object)
    for block in blocks:
        status[block.numbers], messages[block.numbers] = block.status, block.messages
    names = [axis.name for axis in grid.axes]
    on_grid = lambda flat: flat.reshape(*grid.shape, *flat.shape[1:])  # noqa: E731
    data: dict[str, tuple] = {}
    for name in dict.fromkeys(name for block in blocks for name in block.arrays):
        array, padded = _gathered(name, grid.size, blocks)
        inner = labels.inner(name, array.ndim - 1)
        data[name] = (names + inner, on_grid(array), {"padded_with_nan": 1} if padded else {})
    codes = sorted(MEANINGS)
    flags = {
        "flag_values": np.array(codes, np.int8),
        "flag_meanings": " ".join(MEANINGS[code] for code in codes),
        "long_name": "; ".join(f"{code}: {REASONS[code]}" for code in codes),
    }
    data["status"] = (names, on_grid(status), flags)
    data["reason"] = (names, on_grid(reasons(status, messages)).astype(str))
    coords: dict[str, object] = {
        axis.name: (axis.name, _coordinate(axis), _axis_attrs(axis, grid)) for axis in grid.axes
    }
    for name, values in labels.coords.items():
        coords[name] = values if hasattr(values, "dims") else (name, np.asarray(values))
    result = xr.Dataset(data, coords, dict(attrs))
    check_keys(labels.dims, data, "dims", "an array that fn returns")
    check_keys(labels.units, map(str, result.variables), "units", "an axis, coordinate or variable")
    for name, unit in labels.units.items():
        result[name].attrs["units"] = unit
    return result


def _coordinate(axis: Axis) -> np.ndarray:
    values = axis.array()
    return values.astype(np.float32) if values.dtype == np.float16 else values  # pandas has none


def _axis_attrs(axis: Axis, grid: Grid) -> dict[str, object]:
    return {**axis.attrs, "static": int(axis.name in grid.static)}


def _gathered(name: str, size: int, blocks: Sequence[Block]) -> tuple[np.ndarray, bool]:
    """One array over all points, (point, ...), and whether shapes differed."""
    blocks = [block for block in blocks if name in block.arrays]
    there = [block.arrays[name] for block in blocks]
    ranks = {array.ndim for array in there}
    if len(ranks) > 1:
        raise ValueError(
            f"fn returns {name!r} with {' and '.join(str(r - 1) for r in sorted(ranks))} "
            "dimensions, depending on the static axes; it must be one number."
        )
    shapes = {array.shape[1:] for array in there}
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True)) if shapes else ()
    dtype = np.result_type(*(array.dtype for array in there))
    filled = sum(map(len, there))
    holes = filled < size or any(np.any(block.status == RAISED) for block in blocks)
    # Whole numbers and flags have no NaN: where some are missing all become real numbers.
    if (holes or len(shapes) > 1) and dtype.kind != "f":
        dtype = np.dtype(float)
    whole = np.full((size, *shape), np.nan if dtype.kind == "f" else 0, dtype)
    for block, array in zip(blocks, there, strict=True):
        values = array.astype(dtype)
        if dtype.kind == "f":
            values[block.status == RAISED] = np.nan
        whole[(block.numbers, *(slice(n) for n in array.shape[1:]))] = values
    return whole, len(shapes) > 1
