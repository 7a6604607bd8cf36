"""Precision, compilation cache, devices, versions and processes of this run."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from gdln_jax._version import __version__

# What a result depends on; `gdln info` and every record of a run name them.
PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy", "xarray")
# Linux ends a process that holds more memory maps; every compiled program holds some.
_MAP_LIMIT = Path("/proc/sys/vm/max_map_count")


def prepare() -> str:
    """Set precision and the persistent compilation cache; return where that is, or why it is off.

    The library never flips these flags on import; the command does, before anything is compiled.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # no TF32 products (PITFALLS 13)
    folder, trouble = cache_folder()
    jax.config.update("jax_compilation_cache_dir", None if trouble else folder)
    # Programs here are small and many: keep those that compile quickly, too.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return f"off: {trouble}" if trouble else folder


def cache_folder() -> tuple[str, str]:
    """The folder of compiled programs, made if it is missing, and why it cannot be used, if so.

    JAX_COMPILATION_CACHE_DIR, else one under the user's cache folder. An address (gs://...) is
    JAX's to open, which takes the package etils.
    """
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    if "://" in chosen:
        known = find_spec("etils") is not None and find_spec("etils.epath") is not None
        return chosen, "" if known else f"{chosen} is an address: pip install 'etils[epath]'"
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    folder = Path(chosen) if chosen else users / "gdln_jax" / "compiled"
    try:
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
    except RuntimeError:
        return "", "this user has no home folder; set JAX_COMPILATION_CACHE_DIR"
    except OSError as error:
        return "", f"{folder} cannot be made: {error.strerror}"
    return str(folder), "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is read-only"


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of those that its numbers depend on."""
    return {
        "python": platform.python_version(),
        "gdln_jax": __version__,
        **{name: version(name) for name in PACKAGES},
    }


def machine() -> dict[str, str]:
    """Platform, cores and devices, as far as a result or a bug report needs them.

    No name of the host and no path: records are meant to be passed on.
    """
    import jax

    return {
        "platform": platform.platform(),
        "cores": str(cores()),
        "devices": ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices()),
        "precision": (
            f"{'float64' if jax.config.values['jax_enable_x64'] else 'float32'}, "
            f"products {jax.config.values['jax_default_matmul_precision']}"
        ),
    }


def cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_limit() -> str:
    """The number of memory maps a process may hold, or that the system does not say."""
    return _MAP_LIMIT.read_text().strip() if _MAP_LIMIT.exists() else "not stated by this system"


def environment() -> dict[str, str]:
    """The variables that change what JAX and this command do, as far as they are set."""
    known = ("JAX_", "XLA_", "EQX_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    return {key: value for key, value in sorted(os.environ.items()) if key.startswith(known)}


def moment() -> str:
    """Now, in UTC, as text that sorts by time."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


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
