"""Results on disk: PNG, PDF, netCDF, and the checks as JSON and Markdown, whole or not at all.

Every file is written beside its place, synced and renamed, and only when all of them are complete.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdln_jax._machine import versions
from gdln_jax.recipes._recipe import Result
from gdln_jax.recipes._spread import spread_over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:  # not loaded here, and not checked at run time
    Figure = Any

FAILED = "CHECKS FAILED"


def write(result: Result, out: Path | str, *, run: Mapping[str, Any] | None = None) -> list[Path]:
    """Write `result` into the folder `out` and return the paths of its files.

    `NAME.png`, `NAME.pdf`: the picture, with a red banner where a check failed. `NAME.nc`: every
    number (netCDF-4), with options, checks and versions in its attributes. `NAME.json`, `NAME.md`:
    the checks. An error on the way leaves none of them behind, and older ones as they were. `run`
    says how it was made (the command gives seconds, device and setting), as plain values.
    """
    out = Path(out)
    figure = _drawn(result)
    record = _record(result, run or {})
    made = _missing(out)
    out.mkdir(parents=True, exist_ok=True)
    writers: dict[str, Callable[[Path], object]] = {
        "png": lambda path: figure.savefig(
            path, format="png", dpi=200, metadata={"Software": None}
        ),
        "pdf": lambda path: figure.savefig(path, format="pdf", metadata={"CreationDate": None}),
        "nc": lambda path: _write_data(result, record, path),
        "json": lambda path: path.write_text(
            json.dumps(
                {**record, "text": result.text, "numbers": spread_over_seeds(result.data)},
                indent=2,
                allow_nan=False,
            )
            + "\n",
            encoding="utf-8",
        ),
        "md": lambda path: path.write_text(_markdown(result, record), encoding="utf-8"),
    }
    beside = {ending: out / f".{result.name}.{ending}.tmp-{os.getpid()}" for ending in writers}
    try:
        for ending, path in beside.items():
            writers[ending](path)
            _sync(path)
    except BaseException:
        for path in beside.values():
            path.unlink(missing_ok=True)
        for folder in made:  # only those made here, and only while empty
            folder.rmdir()
        raise
    places = [out / f"{result.name}.{ending}" for ending in writers]
    for path, place in zip(beside.values(), places, strict=True):
        path.replace(place)
    return places


def _missing(folder: Path) -> list[Path]:
    """The folders that making `folder` will make, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _drawn(result: Result) -> Figure:
    figure = result.figure() if callable(result.figure) else result.figure
    if not result.passed:
        failed = [check.name for check in result.checks if not check.passed]
        figure.text(
            0.5,
            0.995,
            f"{FAILED}: {', '.join(failed) or 'there are none'}",
            ha="center",
            va="top",
            color="white",
            weight="bold",
            wrap=True,
            bbox={"facecolor": "red", "edgecolor": "none"},
        )
    return figure


def _record(result: Result, run: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader needs to judge and repeat the run, as plain values."""
    return {
        "recipe": result.name,
        "passed": result.passed,
        "verdict": result.verdict,
        "checks": [check.as_dict() for check in result.checks],
        "notes": list(result.notes),
        "options": json.loads(json.dumps(dict(result.options or {}), default=str)),
        "versions": versions(),
        "run": dict(run),
    }


def _write_data(result: Result, record: dict[str, Any], path: Path) -> None:
    data = result.data.assign_attrs(
        {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in record.items()
        }
    )
    data.to_netcdf(path, engine="h5netcdf")


def _markdown(result: Result, record: dict[str, Any]) -> str:
    lines = [
        f"# {result.name}: {'all checks passed' if result.passed else FAILED}",
        "",
        result.verdict,
        "",
        *([result.text, "## Checks", ""] if result.text else []),
        "| check | value | limit | passed | |",
        "|---|---|---|---|---|",
        *(
            f"| {check.name} | {check.value:.6g} | {check.limit} |"
            f" {'yes' if check.passed else '**NO**'} | {check.detail} |"
            for check in result.checks
        ),
        "",
        *(f"- {note}" for note in result.notes),
        "",
        f"Options: `{json.dumps(record['options'])}`.",
        f"Versions: `{json.dumps(record['versions'])}`.",
        *([f"Run: `{json.dumps(record['run'])}`."] if record["run"] else []),
    ]
    return "\n".join(lines) + "\n"
