"""The result of a sweep as labelled arrays: axes in front, fn's own dimensions behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from gdln_jax._checks import check_keys
from gdln_jax._sweep._axes import Axis, Grid
from gdln_jax._sweep._program import Block
from gdln_jax._sweep._status import MEANINGS, MISSING, RAISED, REASONS, reasons


@dataclass(frozen=True)
class Labels:
    """What users call things: dimensions of fn's arrays, their coordinates, units of everything."""

    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    coords: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


def assemble(
    grid: Grid,
    blocks: Sequence[tuple[np.ndarray, Block]],
    labels: Labels,
    attrs: Mapping[str, Any],
) -> xr.Dataset:
    """All blocks on the grid; `blocks` are pairs of point numbers and results.

    Points without a result have status `MISSING` and NaN. Arrays whose shapes differ between
    static values are filled up with NaN to the largest shape.

    Raises:
        ValueError: arrays of different numbers of dimensions; labels that fit nothing.
    """
    status = np.full(grid.size, MISSING, np.int8)
    messages = np.full(grid.size, "", dtype=object)
    for numbers, block in blocks:
        status[numbers], messages[numbers] = block.status, block.messages
    names = [axis.name for axis in grid.axes]
    on_grid = lambda flat: flat.reshape(*grid.shape, *flat.shape[1:])  # noqa: E731
    data: dict[str, Any] = {}
    for name in dict.fromkeys(name for _, block in blocks for name in block.arrays):
        array, padded = _gathered(name, grid.size, blocks)
        inner = _inner_dims(name, array.ndim - 1, labels)
        data[name] = (names + inner, on_grid(array), {"padded_with_nan": 1} if padded else {})
    codes = sorted(MEANINGS)
    flags = {
        "flag_values": np.array(codes, np.int8),
        "flag_meanings": " ".join(MEANINGS[code] for code in codes),
        "long_name": "; ".join(f"{code}: {REASONS[code]}" for code in codes),
    }
    data["status"] = (names, on_grid(status), flags)
    data["reason"] = (names, on_grid(reasons(status, messages)).astype(str))
    coords: dict[str, Any] = {
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


def _axis_attrs(axis: Axis, grid: Grid) -> dict[str, Any]:
    return {**axis.attrs, "static": int(axis.name in grid.static)}


def _gathered(
    name: str, size: int, blocks: Sequence[tuple[np.ndarray, Block]]
) -> tuple[np.ndarray, bool]:
    """One array over all points, (point, ...), and whether shapes differed."""
    parts = [(numbers, block.arrays.get(name), block.status) for numbers, block in blocks]
    there = [array for _, array, _ in parts if array is not None]
    ranks = {array.ndim for array in there}
    if len(ranks) > 1:
        raise ValueError(
            f"fn returns {name!r} with {' and '.join(str(r - 1) for r in sorted(ranks))} "
            "dimensions, depending on the static axes; it must be one number."
        )
    shapes = {array.shape[1:] for array in there}
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True)) if shapes else ()
    dtype = np.result_type(*(array.dtype for array in there))
    filled = sum(len(numbers) for numbers, array, _ in parts if array is not None)
    holes = filled < size or any(np.any(s == RAISED) for _, a, s in parts if a is not None)
    # Whole numbers and flags have no NaN: where some are missing all become real numbers.
    if (holes or len(shapes) > 1) and dtype.kind != "f":
        dtype = np.dtype(float)
    whole = np.full((size, *shape), np.nan if dtype.kind == "f" else 0, dtype)
    for numbers, array, states in parts:
        if array is None:
            continue
        values = array.astype(dtype)
        if dtype.kind == "f":
            values[states == RAISED] = np.nan
        whole[(numbers, *(slice(n) for n in array.shape[1:]))] = values
    return whole, len(shapes) > 1


def _inner_dims(name: str, count: int, labels: Labels) -> list[str]:
    given = labels.dims.get(name)
    if given is None:
        return [f"{name}_dim_{k}" for k in range(count)]
    given = [given] if isinstance(given, str) else list(given)
    if len(given) != count:
        raise ValueError(
            f"dims names {len(given)} dimensions of {name!r} ({', '.join(given)}), but each point "
            f"has {count}."
        )
    return given
