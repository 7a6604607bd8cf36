"""What was recorded over time, as an xarray data set: one form for all results."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Array

from gdln_jax._checks import is_concrete, numbered, variable_name, versions

if TYPE_CHECKING:
    import xarray as xr

# (Dimensions behind those of the batch, values), and as a third entry attributes.
Variable = tuple[tuple[str, ...], Array] | tuple[tuple[str, ...], Array, dict[str, str]]


def data_set(
    result: object,
    ts: Array,
    batch: int,
    variables: Mapping[str, Variable],
    coords: Mapping[str, list],
) -> "xr.Dataset":
    """Return variables over the times `ts` of a result as an xarray `Dataset`.

    The `batch` leading axes of all variables come first, as `batch_0`, ...; attributes name the
    clock, the kind of the result, and the versions of gdln_jax and JAX that computed it.

    Raises:
        ValueError: values that cannot be seen, under `jit` or `vmap`.
    """
    import xarray as xr

    if not is_concrete(result):
        raise ValueError("to_xarray() needs values and cannot run under jit, grad or vmap.")
    times = np.asarray(ts)
    steps = np.issubdtype(times.dtype, np.integer)
    clock = {"units": "steps" if steps else "time, in the units of tau"}
    lead = [f"batch_{k}" for k in range(batch)]
    data: dict[str, tuple] = {
        variable_name(name): ([*lead, *map(variable_name, dims)], np.asarray(value), *attributes)
        for name, (dims, value, *attributes) in variables.items()
    }
    labels: dict[str, object] = dict(coords)
    if np.all(times == times.reshape(-1, times.shape[-1])[0]):
        labels["time"] = ("time", times.reshape(-1, times.shape[-1])[0], clock)
    else:
        data["ts"] = ([*lead, "time"], times, clock)
    return numbered(xr.Dataset(data, labels, versions(result)))
