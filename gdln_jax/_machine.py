"""Precision, compilation cache, devices, versions and processes of this run."""

import os
import platform
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import NoneType

from gdln_jax._version import __version__

# What a result depends on; `gdln info` and every record of a run name them.
PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy", "xarray")
_ON_ERROR = "EQX_ON_ERROR"
# Linux ends a process that holds more memory maps; every compiled program holds some.
_MAP_LIMIT = Path("/proc/sys/vm/max_map_count")


def configure(
    *,
    cache: bool | str | Path | None = None,
    error_callbacks: bool | None = None,
    cpu_devices: int | None = None,
) -> dict[str, str]:
    """Set what JAX and Equinox fix early: call it first, before anything is computed.

    ```python
    import gdln_jax as gdln

    gdln.configure(cache=True, error_callbacks=False)
    ```

    Programs are compiled again in every process unless a folder keeps them, and a program that
    calls back into Python cannot be kept. Those of this package do not: a failure of a solver is a
    status and NaN. Checks of your own (`eqx.error_if`) and of diffrax do by default.

    Args:
        cache: True keeps compiled programs in `JAX_COMPILATION_CACHE_DIR`, else in a folder of
            the user's cache; a path keeps them there; False keeps none.
        error_callbacks: False turns every `eqx.error_if` of this process, yours included, into
            NaN in its result instead of an exception. It acts only before Equinox is imported
            (by you or by a function of this package), and holds for the processes that this one
            starts. True, Equinox's default, leaves them on.
        cpu_devices: the number of devices that JAX makes of a CPU, over which `sweep` divides its
            runs. It acts only before JAX computes anything.

    Returns:
        What holds now of what was given, or of all three if nothing was, as text.

    Raises:
        TypeError: `cache` is neither a bool nor a path, or `error_callbacks` no bool.
        ValueError: `cpu_devices` is no whole number of at least 1.

    Warns:
        RuntimeWarning: for what could not be set, with the remedy.
    """
    if not isinstance(cache, bool | str | os.PathLike | NoneType):
        raise TypeError(f"cache is {cache!r}; pass True, False or the path of a folder.")
    if not isinstance(error_callbacks, bool | NoneType):
        raise TypeError(f"error_callbacks is {error_callbacks!r}; pass True or False.")
    whole = isinstance(cpu_devices, int) and not isinstance(cpu_devices, bool)
    if cpu_devices is not None and not (whole and cpu_devices >= 1):
        raise ValueError(f"cpu_devices is {cpu_devices!r}; pass a whole number of at least 1.")
    asked = {"cache": cache, "error_callbacks": error_callbacks, "cpu_devices": cpu_devices}
    holds = {}
    for name, value in asked.items():
        if value is None and any(other is not None for other in asked.values()):
            continue
        setter, reader = _SETTINGS[name]
        if value is not None and (problem := setter(value)):
            warnings.warn(f"{name}: {problem}", RuntimeWarning, stacklevel=2)
        holds[name] = reader()
    return holds


def _set_cache(cache: bool | str | Path) -> str:
    """Set JAX's persistent cache, unless something stands in the way, which is returned."""
    import jax

    folder, trouble = (None, "") if cache is False else cache_folder(cache)
    if trouble:
        return trouble
    jax.config.update("jax_compilation_cache_dir", folder)
    # Programs here are small and many: keep those that compile quickly, too.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return ""


def _set_error_callbacks(on: bool) -> str:
    """Set Equinox's reaction to errors; return what stands in the way."""
    os.environ[_ON_ERROR] = "raise" if on else "nan"
    if _has_error_callbacks() == on:
        return ""
    return (
        f"Equinox was imported before, and keeps what it read then; call "
        f"gdln.configure before you import equinox, diffrax or use gdln_jax, or start Python with "
        f"{_ON_ERROR}={os.environ[_ON_ERROR]}. Processes started from here have it."
    )


def _set_cpu_devices(count: int) -> str:
    """Set the number of devices that JAX makes of a CPU; return what stands in the way."""
    import jax

    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        return (
            "JAX has computed something already; call gdln.configure before, or set "
            "JAX_NUM_CPU_DEVICES."
        )
    return ""


def _cache() -> str:
    import jax

    return jax.config.values["jax_compilation_cache_dir"] or "off"


def _error_callbacks() -> str:
    return "on" if _has_error_callbacks() else "off"


def _cpu_devices() -> str:
    import jax

    count = jax.config.values["jax_num_cpu_devices"]
    return str(count) if count > 0 else "JAX's default"


# option -> how it is set, returning what stands in the way, and how it is read
_SETTINGS: dict[str, tuple[Callable[..., str], Callable[[], str]]] = {
    "cache": (_set_cache, _cache),
    "error_callbacks": (_set_error_callbacks, _error_callbacks),
    "cpu_devices": (_set_cpu_devices, _cpu_devices),
}


def _has_error_callbacks() -> bool:
    if "equinox" not in sys.modules:
        return os.environ.get(_ON_ERROR, "raise") in ("raise", "breakpoint")
    import equinox as eqx
    import jax

    checked = jax.make_jaxpr(lambda x: eqx.error_if(x, x > 0, ""))(1.0)
    return "callback" in str(checked)


def prepare() -> str:
    """Set precision and the persistent compilation cache; return where that is, or why it is off.

    The library never flips these flags on import; the command does, before anything is compiled.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # no TF32 products
    if not (trouble := _set_cache(True)):
        return _cache()
    _set_cache(False)
    return f"off: {trouble}"


def cache_folder(given: str | Path | bool = True) -> tuple[str, str]:
    """The folder of compiled programs, made if it is missing, and why it cannot be used, if so.

    The one that is given, else JAX_COMPILATION_CACHE_DIR, else one under the user's cache folder.
    An address (gs://...) is JAX's to open, which takes the package etils.
    """
    named = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    chosen = named if isinstance(given, bool) else os.fspath(given)
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
