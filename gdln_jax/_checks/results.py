"""Results as xarray data sets, which write themselves to netCDF: one conversion for all of them.

Names of dimensions are those of the annotations, such as `Float[Array, "*batch time mode"]`.
"""

import dataclasses
import importlib.metadata
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from gdln_jax._checks.arguments import is_concrete
from gdln_jax._checks.names import Suggesting
from gdln_jax._version import __version__

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

TIME = "time, in the units of tau"

# (name, dimensions, values, labels of the first dimension or None)
_Variable = tuple[str, tuple[str, ...], "np.ndarray", tuple[str, ...] | None]


class Result(Suggesting):
    """Base of results: named arrays that know their dimensions.

    - `_units`: field -> what it is measured in, where that is no pure number.
    - `_keys`: field -> what the keys of a mapping are, the name of that dimension.
    - `_exported`: the fields or properties that are written; None: all public fields.
    """

    _units: ClassVar[Mapping[str, str]] = {}
    _keys: ClassVar[Mapping[str, str]] = {}
    _exported: ClassVar[tuple[str, ...] | None] = None

    def to_xarray(self) -> "xr.Dataset":
        """Return the result as an xarray `Dataset`, which writes itself to netCDF.

        Variables are the fields, with the dimensions that their annotations name. A mapping of
        arrays of one shape is one variable, with a dimension for its keys. Texts are attributes,
        beside the versions of gdln_jax and JAX that computed the result; variables have units.

        Raises:
            ValueError: values that cannot be seen, under `jit` or `vmap`.
        """
        return dataset(self)


def versions(one: object) -> dict[str, str]:
    """Return the attributes that every data set has."""
    jax = importlib.metadata.version("jax")
    return {"kind": type(one).__name__, "gdln_jax": __version__, "jax": jax}


def dataset(one: Any) -> "xr.Dataset":
    """Return a dataclass or a named tuple as `Result.to_xarray` does."""
    import numpy as np
    import xarray as xr

    if not is_concrete(one):
        raise ValueError("to_xarray() needs values and cannot run under jit, grad or vmap.")
    units: Mapping[str, str] = getattr(type(one), "_units", {})
    kinds: Mapping[str, str] = getattr(type(one), "_keys", {})
    variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, str]]] = {}
    coords: dict[str, np.ndarray] = {}
    attrs = versions(one)
    for field, annotation in _fields(one):
        value = getattr(one, field)
        if isinstance(value, str):
            attrs[field] = value
        elif isinstance(value, tuple) and value and all(map(_is_name, value)):
            attrs[field] = "; ".join(map(_text, value))
        unit = {"units": units[field]} if field in units else {}
        for name, dims, array, keys in _variables(field, value, annotation):
            if keys is not None:
                labels, of = np.array(keys), kinds.get(field, dims[0])
                # Two mappings share a dimension only if they have the same keys in one order.
                of = of if np.array_equal(coords.setdefault(of, labels), labels) else dims[0]
                coords[of] = labels
                variables[name] = ((of, *dims[1:]), array, unit)
            else:
                variables[name] = (dims, array, unit)
    return numbered(xr.Dataset(variables, {k: (k, v) for k, v in coords.items()}, attrs))


def numbered(shown: "xr.Dataset") -> "xr.Dataset":
    """Count modes from 1, as they are printed, in a data set that has them without labels."""
    unlabelled = "mode" in shown.sizes and "mode" not in shown.coords
    return shown.assign_coords(mode=range(1, shown.sizes["mode"] + 1)) if unlabelled else shown


def variable_name(name: str) -> str:
    """Return a name that netCDF accepts: `/` would part groups."""
    return name.replace("/", "|")


def _fields(one: Any) -> list[tuple[str, Any]]:
    """Names and annotations of the public fields that may hold numbers."""
    chosen = getattr(type(one), "_exported", None)
    if chosen is not None:
        notes = {f.name: f.type for f in dataclasses.fields(one)}
        return [(k, notes.get(k) or _returned(type(one), k)) for k in chosen]
    if dataclasses.is_dataclass(one):
        return [(f.name, f.type) for f in dataclasses.fields(one) if not f.name.startswith("_")]
    return list(type(one).__annotations__.items()) if hasattr(one, "_fields") else []


def _returned(owner: type, name: str) -> Any:
    """The annotation of a property."""
    return inspect.getattr_static(owner, name).fget.__annotations__.get("return")


def _variables(name: str, value: Any, annotation: Any) -> Iterator[_Variable]:
    """What a value holds, arrays within it by their place, such as `gates[0]` or `net.weights`."""
    import numpy as np

    if _is_numbers(value):
        array = np.asarray(value)
        yield variable_name(name), _dims(name, annotation, array.ndim), array, None
    elif isinstance(value, Mapping):
        arrays = list(value.values())
        if arrays and all(map(_is_numbers, arrays)) and len(set(map(np.shape, arrays))) == 1:
            stacked = np.stack([np.asarray(array) for array in arrays])
            inner = _dims(name, annotation, stacked.ndim - 1)
            dims = (variable_name(f"{name} of"), *inner)
            yield variable_name(name), dims, stacked, tuple(map(_text, value))
            return
        for key, entry in value.items():
            yield from _variables(f"{name}[{_text(key)}]", entry, None)
    elif dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        for field, _ in _fields(value):
            yield from _variables(f"{name}.{field}", getattr(value, field), None)
    elif isinstance(value, list | tuple) and not all(map(_is_name, value)):
        for i, entry in enumerate(value):
            yield from _variables(f"{name}[{i}]", entry, None)


def _dims(name: str, annotation: Any, ndim: int) -> tuple[str, ...]:
    """Names of the dimensions, from the annotation as far as it has them."""
    names = _annotated(annotation)
    before, stars = [], [k for k, one in enumerate(names) if one.startswith(("*", "..."))]
    if stars:
        lead = names[stars[0]].strip("*.") or "batch"
        before = [f"{lead}_{k}" for k in range(ndim - len(names) + 1)]
        names = [*names[: stars[0]], *before, *names[stars[0] + 1 :]]
    if len(names) != ndim:
        names = ["_"] * ndim
    dims: list[str] = []
    for k, one in enumerate(names):
        anonymous = one == "_" or not one.isidentifier()
        dims.append(
            variable_name(f"{name} axis {k}") if anonymous else f"{one}_{k}" if one in dims else one
        )
    return tuple(dims)


def _annotated(annotation: Any) -> list[str]:
    """The dimensions in an annotation, or in what a union or a mapping in it is of."""
    annotation = getattr(annotation, "__value__", annotation)  # of a named alias
    if hasattr(annotation, "dim_str"):
        return annotation.dim_str.split()
    return next((found for arg in get_args(annotation) if (found := _annotated(arg))), [])


def _is_numbers(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (
        hasattr(value, "dtype") and hasattr(value, "shape") and value.dtype.kind in "biufU"
    )


def _is_name(value: object) -> bool:
    """Whether a value is a text, or a path of texts."""
    return isinstance(value, str) or (
        isinstance(value, tuple) and bool(value) and all(map(_is_name, value))
    )


def _text(key: object) -> str:
    """A key as text: names of edges of a path one after the other, of a pair of paths parted."""
    if not isinstance(key, tuple):
        return str(key)
    return (" | " if any(isinstance(part, tuple) for part in key) else " ").join(map(_text, key))
