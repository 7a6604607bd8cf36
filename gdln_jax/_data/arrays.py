"""Arrays from the caller: checked, brought to one precision, and copied.

`jnp.asarray` shares the memory of a NumPy array where that happens to be aligned, so what the
caller writes later would change data that were checked long ago.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._checks import Mistakable

FLOATS = (np.dtype("float32"), np.dtype("float64"))


Item = TypeVar("Item")


class SeveralArrays(Mistakable):
    """Mixin of what holds several arrays: NumPy would make an array of one object of it."""

    _reads: ClassVar[str] = "jax.tree.leaves(x) lists them"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Refuse, with a `TypeError` that says what to take, unless objects are asked for."""
        del copy
        if dtype is not None and np.dtype(dtype) == object:
            item = np.empty((), object)
            item[()] = self
            return item
        raise TypeError(
            f"a {type(self).__name__} holds several arrays and is none itself: take one of them, "
            f"{self._reads}. For an array of such objects pass dtype=object."
        )


class ArrayMapping(SeveralArrays, Mapping[str, Item]):
    """Mapping name -> array(s); like arrays, two of them have no single answer to ==."""

    _reads = "x[name]"
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Refuse: a `TypeError` that says how to compare."""
        raise TypeError(
            f"a {type(self).__name__} holds arrays, which == compares entry by entry: compare "
            "them one by one, all(jnp.array_equal(a[k], b[k]) for k in a), or two networks by "
            "eqx.tree_equal."
        )


def real_array(value: object, name: str) -> Any:
    """Return `value` as an array of finite real numbers, in NumPy unless it is traced.

    Raises:
        ValueError: sparse or masked arrays, rows of unequal length, what holds no real numbers,
            precisions below float32 or above float64, and values that are not finite.
    """
    if isinstance(value, jax.core.Tracer):
        check_real(value.dtype, name)
        return value
    check_dense(value, name)
    try:
        raw = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} is no array: its rows differ in length.") from None
    check_real(raw.dtype, name)
    check_finite(raw, name)
    return raw


def weight_array(value: object, name: str) -> Array:
    """Return a weight matrix as an array of ours: real, finite, of float32 or float64.

    Whole numbers become JAX's default float.

    Raises:
        ValueError: as `real_array`.
    """
    if isinstance(value, jax.Array):
        check_real(value.dtype, name)
        if not isinstance(value, jax.core.Tracer):
            check_finite(np.asarray(value), name)
        return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)
    raw = real_array(value, name)
    return own_copy(raw, common_dtype([(value, raw)]), name)


def check_real(dtype: np.dtype, name: str) -> None:
    """Raise `ValueError` unless numbers of this type are real and not below float32."""
    floating = jnp.issubdtype(dtype, jnp.floating)
    if floating and dtype.itemsize > 8:
        raise ValueError(
            f"{name} has dtype {dtype}, but JAX knows no precision beyond float64: pass "
            "array.astype(np.float64)."
        )
    if floating and dtype.newbyteorder("=") not in FLOATS:
        raise ValueError(
            f"{name} has dtype {dtype}; use float32 or float64: learning from small initial "
            "weights underflows in lower precision."
        )
    if not floating and not any(jnp.issubdtype(dtype, kind) for kind in (jnp.integer, np.bool_)):
        raise ValueError(
            f"{name} has dtype {dtype}; it must hold real numbers (a gate is a number, say 0 or "
            "1; missing values and text are none)."
        )


def check_finite(values: np.ndarray, name: str) -> None:
    """Raise `ValueError` that names the first entry which is not finite."""
    fine = np.isfinite(values)
    if not np.all(fine):
        where = tuple(int(i) for i in np.argwhere(~fine)[0])
        raise ValueError(f"{name} is not finite at index {where} (value {values[where]}).")


def own_copy(raw: Array | np.ndarray, dtype: np.dtype, name: str) -> Array:
    """Return a JAX array in `dtype` that shares no memory with what `real_array` gave.

    Raises:
        ValueError: a value beyond the range of `dtype`.
    """
    if isinstance(raw, jax.core.Tracer):
        return raw.astype(dtype)
    with np.errstate(over="ignore"):
        copied = raw.astype(dtype)  # also where the type is the same
    narrowed = raw.dtype.kind == "f" and copied.dtype.itemsize < raw.dtype.itemsize
    if narrowed and not np.all(np.isfinite(copied)):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(copied))[0])
        raise ValueError(
            f"{name} is {raw[where]} at index {where}, which {np.dtype(dtype)} cannot hold: scale "
            "it, or set jax.config.update('jax_enable_x64', True) before making arrays."
        )
    return jax.device_put(copied)  # jnp.asarray would compile a program for each new shape


def common_dtype(pairs: Iterable[tuple[object, Array | np.ndarray]]) -> np.dtype:
    """float32 if all floating-point arrays are, else JAX's default float.

    `pairs` are (value as given, its `real_array`). Whatever holds an array counts alike: NumPy,
    JAX, a DataFrame, a DataArray. Lists of Python numbers have no precision of their own.
    """
    floats = {
        raw.dtype.newbyteorder("=")
        for value, raw in pairs
        if raw.dtype.kind == "f" and not _python_numbers(value)
    }
    single = np.dtype("float32")
    return single if floats == {single} else np.dtype(jnp.result_type(float))


def check_dense(value: object, name: str) -> None:
    """Raise `ValueError` for a sparse array, or one of which entries are masked."""
    for method in ("toarray", "todense"):
        if hasattr(value, method):
            raise ValueError(
                f"{name} is sparse ({type(value).__name__}): pass its dense form, array.{method}()."
            )
    parts = jax.tree.leaves(value) if isinstance(value, list | tuple) else [value]
    for part in parts:
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise ValueError(
                f"{name} has {int(np.ma.getmaskarray(part).sum())} masked entries, and what lies "
                "under a mask would be taken as data: pass array.filled(value) or leave those "
                "examples out."
            )


def _python_numbers(value: object) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return not any(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(value))
