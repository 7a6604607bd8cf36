"""One program on several processes (a GPU or TPU pod): how a process joins, and what it shares.

With one process everything here is the identity. Floor 0: imports nothing of this package, and no
JAX until a function runs.
"""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jax import Array
    from jax.sharding import Mesh
else:  # not loaded here, and not checked at run time
    Array = Mesh = Any

# JAX itself waits 100 s before it takes a silent process for dead.
HEARTBEAT_SECONDS = 30
_COUNT, _NUMBER = "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"


def join(heartbeat: int = HEARTBEAT_SECONDS) -> None:
    """Join the processes of this run, before JAX is used for anything else.

    Under Slurm, Open MPI and on TPU pods JAX finds the others by itself; elsewhere set
    JAX_COORDINATOR_ADDRESS (host:port of process 0), JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    When a process dies the others end with an error, at the latest `heartbeat` seconds later.

    Raises:
        ValueError: the variables are not whole numbers, or nothing says who the others are.
    """
    import jax

    count, number = (_whole_number(name) for name in (_COUNT, _NUMBER))
    # Only CPUs look at this; without it they cannot talk to one another.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            num_processes=count, process_id=number, heartbeat_timeout_seconds=heartbeat
        )
    except ValueError as error:
        raise ValueError(
            f"--distributed: {error} Outside of Slurm, Open MPI and TPU pods set "
            f"JAX_COORDINATOR_ADDRESS=host:port, {_COUNT} and {_NUMBER}."
        ) from error


def _whole_number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise ValueError(f"{name} is {text!r}; it must be a whole number.")
    return int(text)


def is_first() -> bool:
    """Whether this process is the one that writes."""
    import jax

    return jax.process_index() == 0


def default_mesh() -> Mesh | None:
    """All devices of all processes; None for one process, which chooses for itself."""
    import jax
    from jax.sharding import Mesh

    return Mesh(np.array(jax.devices()), ("run",)) if jax.process_count() > 1 else None


def whole(array: Array) -> np.ndarray:
    """The whole of an array that is split over devices, on every process."""
    import jax

    if jax.process_count() == 1 or array.is_fully_addressable:
        return np.asarray(array)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def agreed(value: np.ndarray) -> np.ndarray:
    """What process 0 says."""
    import jax

    if jax.process_count() == 1:
        return value
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(value))
