"""What a benchmark says: rows of ratios, as Markdown and JSON."""

import argparse
import dataclasses
import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gdln_jax._files import UnwritableError, expanded, writable


def folder(name: str) -> Path:
    """The value of `--out`, which must take files before an hour is measured."""
    try:
        with writable(place := expanded(name)):
            return place
    except UnwritableError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison, measured in one process.

    - `what`, `sizes`: the job. `baseline`: what it is compared with.
    - `cold`: seconds of our first call, tracing and compilation included, without any cache.
    - `warm`: seconds of a later one. `other`: seconds of the baseline; None without one.
    - `goal`: the ratio other/warm that the project asks for, and `cold_goal` the same when cold.
      Without a baseline, `limit` on the warm seconds.
    - `floor`: seconds below which `floor_of` says the job cannot come.
    - `gap`: largest relative difference between the two results, checked before timing.
    - `note`: what else there is to say, e.g. how much of the baseline was timed.
    """

    what: str
    sizes: str
    baseline: str
    cold: float | None
    warm: float
    other: float | None = None
    goal: float | None = None
    cold_goal: float | None = None
    limit: float | None = None
    floor: float | None = None
    floor_of: str = ""
    gap: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times faster than the baseline, warm."""
        return None if self.other is None else self.other / self.warm

    @property
    def cold_ratio(self) -> float | None:
        """The same with compilation."""
        return None if self.other is None or self.cold is None else self.other / self.cold

    @property
    def fraction(self) -> float | None:
        """Of the floor: 1 is as fast as can be."""
        return None if self.floor is None else self.floor / self.warm

    @property
    def reached(self) -> bool | None:
        """Whether all goals are reached; None without any."""
        pairs = [(self.ratio, self.goal), (self.cold_ratio, self.cold_goal)]
        met = [have >= want for have, want in pairs if have is not None and want is not None]
        if self.limit is not None:
            met.append(self.warm <= self.limit)
        return all(met) if met else None


_HEADS = (
    "what", "sizes", "ours cold (s)", "ours warm (s)", "baseline", "baseline (s)", "ratio",
    "ratio cold", "asked", "floor (s)", "of the floor", "gap",
)  # fmt: skip


def markdown(rows: Iterable[Row]) -> str:
    """One table; what does not apply is left empty. Notes stand below it."""
    rows = list(rows)
    lines = ["| " + " | ".join(_HEADS) + " |", "|" + "---|" * len(_HEADS)]
    notes = []
    for row in rows:
        mark = ""
        if row.note:
            notes.append(f"{len(notes) + 1}. {row.note}")
            mark = f" ({len(notes)})"
        floor = "" if row.floor is None else f"{_number(row.floor)}, {row.floor_of}"
        cells = (
            row.what + mark, row.sizes, _number(row.cold), _number(row.warm), row.baseline,
            _number(row.other), _times(row.ratio), _times(row.cold_ratio), _asked(row), floor,
            "" if row.fraction is None else f"{row.fraction:.0%}",
            "" if row.gap is None else f"{row.gap:.0e}",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + (["", *notes] if notes else []))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}x"


def _asked(row: Row) -> str:
    wanted = [f"{row.goal:g}x"] if row.goal is not None else []
    wanted += [f"{row.cold_goal:g}x cold"] if row.cold_goal is not None else []
    wanted += [f"below {row.limit:.3g} s"] if row.limit is not None else []
    if not wanted:
        return ""
    return f"{', '.join(wanted)}: {'yes' if row.reached else 'NO'}"


def machine() -> dict[str, Any]:
    """Where and with what the numbers were made; `load`: mean of the last minute, ours included."""
    versions = {}
    for package in ("gdln_jax", "jax", "jaxlib", "diffrax", "optax", "numpy", "scipy", "torch"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "cores": cores,
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **versions,
    }


def _processor() -> str:
    """The model's name where Linux tells it (`platform.processor()` is often empty there)."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def as_json(rows: Iterable[Row]) -> str:
    """Rows with their ratios, and the machine."""
    records = [
        dataclasses.asdict(row)
        | {
            "ratio": row.ratio,
            "cold_ratio": row.cold_ratio,
            "fraction": row.fraction,
            "reached": row.reached,
        }
        for row in rows
    ]
    return json.dumps({"machine": machine(), "rows": records}, indent=1)
