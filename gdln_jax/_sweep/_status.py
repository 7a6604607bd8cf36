"""What became of each point: a code with its meaning, never an exception for the whole grid.

fn reports by returning an integer named `status` (a `Trajectory` has one) or the `result` of a
diffrax or optimistix solve. What it reports as failed is set to NaN where it is a plausible number;
what is not finite without a report is recorded, and left as it is.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gdln_jax._solution import DIVERGED, GAVE_UP, OK, STATUS

NOT_FINITE, OTHER, RAISED, MISSING = 3, 4, 5, 6
REASONS = {
    **STATUS,
    NOT_FINITE: "a value is not finite",
    OTHER: "fn reported another status than 0, 1 or 2",
    RAISED: "fn raised",
    MISSING: "not computed yet",
}
# For attributes, as in the CF conventions: one word each.
MEANINGS = {
    OK: "ok",
    DIVERGED: "diverged",
    GAVE_UP: "solver_gave_up",
    NOT_FINITE: "not_finite",
    OTHER: "other_status_reported",
    RAISED: "raised",
    MISSING: "not_computed_yet",
}
SINGLE = "value"
# Names that chunks and results use themselves.
RESERVED = ("status", "reason", "message", "point")
_KINDS = (jnp.floating, jnp.integer, jnp.bool_)


def labelled(out: PyTree) -> tuple[dict[str, jax.Array], jax.Array]:
    """The arrays in what fn returned, by path, and the status () of the point."""
    leaves = jax.tree_util.tree_flatten_with_path(out, is_leaf=_is_result)[0]
    arrays: dict[str, jax.Array] = {}
    reports = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".").replace("/", "|") or SINGLE
        if _is_result(leaf):
            number = jnp.asarray(leaf._value)
            reports.append(jnp.where(number == 0, OK, GAVE_UP))
            continue
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
            continue  # what a module carries beside its arrays
        array = jnp.asarray(leaf)
        if name.rsplit(".", 1)[-1] == "status" and _is_whole_number(array):
            reports.append(jnp.where((array >= OK) & (array <= GAVE_UP), array, OTHER))
            if name == "status":
                continue  # it is merged into the sweep's own
        if not any(jnp.issubdtype(array.dtype, kind) for kind in _KINDS):
            raise ValueError(
                f"fn returns {name!r} of type {array.dtype}; a data set holds real numbers and "
                "flags: return real and imaginary parts, or jax.random.key_data of a key."
            )
        arrays[name] = _widened(array)
    if not arrays:
        raise ValueError("fn returns no array; it must return an array or a pytree of arrays.")
    return _judged(arrays, reports)


def _widened(array: jax.Array) -> jax.Array:
    """The same values in a type that NumPy and netCDF have: they lack bfloat16 and int4."""
    if array.dtype.kind != "V":
        return array
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(np.float32)
    return array.astype(np.int8 if jnp.issubdtype(array.dtype, jnp.signedinteger) else np.uint8)


def _judged(
    arrays: dict[str, jax.Array], reports: list[jax.Array]
) -> tuple[dict[str, jax.Array], jax.Array]:
    status = jnp.max(jnp.stack([jnp.asarray(OK), *reports])).astype(jnp.int8)
    failed = status != OK
    real = {k: a for k, a in arrays.items() if jnp.issubdtype(a.dtype, jnp.floating)}
    finite = jnp.stack([jnp.asarray(True), *(jnp.all(jnp.isfinite(a)) for a in real.values())])
    # A curve that is NaN from where it failed says so itself; a number that looks sound does not.
    hidden = {
        name: jnp.where(failed & ~jnp.any(jnp.isnan(a)), jnp.nan, a) for name, a in real.items()
    }
    status = jnp.where(failed | jnp.all(finite), status, NOT_FINITE).astype(jnp.int8)
    return {**arrays, **hidden}, status


def _is_whole_number(array: jax.Array) -> bool:
    return array.ndim == 0 and jnp.issubdtype(array.dtype, jnp.integer)


def _is_result(leaf: object) -> bool:
    """An outcome of a diffrax, optimistix or lineax solve: an item of an equinox enumeration."""
    return isinstance(leaf, eqx.Module) and hasattr(leaf, "_enumeration")


def reasons(status: np.ndarray, messages: np.ndarray) -> np.ndarray:
    """The reason per point as text, with the message of what was raised."""
    texts = np.array([REASONS[code] for code in range(len(REASONS))], dtype=object)[status]
    return np.where(messages == "", texts, texts + ": " + messages).astype(object)
