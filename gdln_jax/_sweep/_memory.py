"""How many points run at once: what a program needs against the memory and the caches."""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import jax

from gdln_jax._sweep._program import Program

# A device is ours; the memory of the host is shared with others, and results gather there too.
DEVICE_SHARE, HOST_SHARE = 0.8, 0.25
# What a step of one batch may touch on a core, as traced, about twice what is in use at once: the
# second-level caches of today have 1 to 2 MB. Fixed, so that rounding does not depend on the
# machine.
CACHE = 2**21
_CGROUP = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")


@runtime_checkable
class Device(Protocol):
    """What is asked of a device of JAX."""

    platform: str

    def memory_stats(self) -> Mapping[str, int] | None:
        """Bytes by name, where the backend reports them."""
        ...


def budget(device: Device) -> int:
    """Bytes that a batch may take on `device`: a share of what is free there now."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(DEVICE_SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    local = [d for d in jax.local_devices() if d.platform == device.platform]
    return int(HOST_SHARE * _host_memory() / len(local))


def _host_memory() -> int:
    """Available memory of the host, or of the container; half of all memory if neither is known."""
    found = []
    if _MEMORY.exists():
        lines = _MEMORY.read_text(encoding="utf-8").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    try:
        limit = (_CGROUP / "memory.max").read_text(encoding="utf-8").strip()
        used = (_CGROUP / "memory.current").read_text(encoding="utf-8").strip()
        found += [] if limit == "max" else [int(limit) - int(used)]
    except OSError:  # no container, or another kind of it
        pass
    if found:
        return max(min(found), 1)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def in_cache(wanted: int, devices: int, each: int) -> int:
    """The points of a batch, of `wanted`, whose steps stay in the caches of a CPU's cores.

    `each`: bytes that a step touches of one point. Batches are of equal size, on each device as
    many points as fit, at least one.
    """
    most = devices * max(1, CACHE // max(each, 1))
    return _rounded(math.ceil(wanted / math.ceil(wanted / most)), devices)


def fitted(make: Callable[[int], Program], wanted: int, devices: int, limit: int) -> Program:
    """A program for at most `wanted` points whose memory on each device stays within `limit`.

    Compiles once if that fits, else once more per correction. One point per device is the least.
    """
    batch = _rounded(wanted, devices)
    while True:
        program = make(batch)
        needed = program.bytes_needed()
        if needed <= limit or batch <= devices:
            return program
        pieces = math.ceil(wanted / max(devices, batch * limit // needed))
        # Equal pieces of the chunk; each time smaller, so that this ends.
        batch = min(_rounded(math.ceil(wanted / pieces), devices), batch - devices)


def _rounded(batch: int, devices: int) -> int:
    return devices * math.ceil(batch / devices)
