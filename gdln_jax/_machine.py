"""What a run meets here: precision, compilation cache, devices, versions.

Floor 0: imports nothing of this package and no JAX until a function runs.
"""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from gdln_jax import __version__

# What a result depends on; `gdln info` and every record of a run name them.
PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy", "xarray")
# Linux ends a process that holds more memory maps; every compiled program holds some.
_MAP_LIMIT = Path("/proc/sys/vm/max_map_count")


def prepare() -> Path | None:
    """Set precision and the persistent compilation cache; return its folder, None if there is none.

    The library never flips these flags on import; the command does, before anything is compiled.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # no TF32 products (PITFALLS 13)
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(cache, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(cache))
    # Programs here are small and many: keep those that compile quickly, too.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return cache


def cache_folder() -> Path:
    """The folder of compiled programs: JAX_COMPILATION_CACHE_DIR, else one under the user's."""
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path("~/.cache").expanduser()) / "gdln_jax" / "compiled"


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
