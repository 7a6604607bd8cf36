"""The processes of one program (`jax.distributed`), which run the same sweep together."""

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh


def default_mesh() -> Mesh | None:
    """All devices of all processes, or of a CPU that was asked to be several; else one device."""
    several = jax.config.values["jax_num_cpu_devices"] > 1 and jax.default_backend() == "cpu"
    shared = several or jax.process_count() > 1
    return Mesh(np.array(jax.devices()), ("run",)) if shared else None


def whole(array: jax.Array) -> np.ndarray:
    """The whole of an array that is split over devices, on every process."""
    if jax.process_count() == 1 or array.is_fully_addressable:
        return np.asarray(array)
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def agreed(value: np.ndarray) -> np.ndarray:
    """The value of process 0."""
    if jax.process_count() == 1:
        return value
    return np.asarray(multihost_utils.broadcast_one_to_all(value))
