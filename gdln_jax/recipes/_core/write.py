"""Results on disk: PNG, PDF, netCDF, and the checks as JSON and Markdown, whole or not at all.

Every file is written beside its place, synced and renamed, and only when all of them are complete.
"""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gdln_jax._files import expanded, refuse_foreign, written_whole
from gdln_jax._machine import versions
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes._core.result import Dataset, Figure, Result, failed, plain
from gdln_jax.recipes._core.spread import spread_over_seeds

FAILED = "CHECKS FAILED"
# The record goes first: it says which of the others are ours.
_ENDINGS = ("json", "png", "pdf", "nc", "md", "txt")


def write(
    result: Result, out: Path | str, *, run: Mapping[str, object] | None = None
) -> list[Path]:
    """Write `result` into the folder `out` and return the paths of its files.

    `NAME.png`, `NAME.pdf`: the picture, with a red banner where a check failed; `NAME.txt`: its
    caption. `NAME.nc`: every number (netCDF-4), with options, checks and versions in its
    attributes. `NAME.json`, `NAME.md`: the checks. After an error none of them is there, and older
    ones are as they were. `run` says how it was made (the command gives seconds, device and
    setting), as plain values.

    Raises:
        OSError: a file cannot be written, or would replace one that no run of the recipe wrote.
    """
    out = expanded(out)
    refuse_foreign(foreign(result.name, out))
    figure = _drawn(result)
    record = _record(result, run or {})
    contents = {
        "png": _picture(figure, format="png", dpi=200, metadata={"Software": None}),
        "pdf": _picture(figure, format="pdf", metadata={"CreationDate": None}),
        "nc": _data(result, record),
        "md": _markdown(result, record).encode(),
        "txt": (result.caption + "\n").encode(),
    }
    files = {f"{result.name}.{ending}": _digest(content) for ending, content in contents.items()}
    record |= {"text": result.text, "caption": result.caption}
    record |= {"numbers": spread_over_seeds(result.data), "files": files}
    contents["json"] = (json.dumps(record, indent=2, allow_nan=False) + "\n").encode()
    places = [out / f"{result.name}.{ending}" for ending in _ENDINGS]
    with written_whole(*places) as beside:
        for path, ending in zip(beside, _ENDINGS, strict=True):
            path.write_bytes(contents[ending])
    return places


def foreign(name: str, out: Path) -> list[Path]:
    """Return the files that `write` would replace although no run of recipe `name` wrote them.

    `NAME.json` lists what was written with it; the records of 0.1.0 do not, and are believed.
    """
    places = {ending: out / f"{name}.{ending}" for ending in _ENDINGS}
    there = {ending: place for ending, place in places.items() if os.path.lexists(place)}
    try:
        record = json.loads(places["json"].read_text(encoding="utf-8"))
        if record["recipe"] != name:
            return list(there.values())
    except (OSError, ValueError, TypeError, KeyError):
        return list(there.values())
    known = record.get("files")
    if known is None:
        return []
    return [
        place
        for ending, place in there.items()
        if ending != "json" and known.get(place.name) != _digest(place.read_bytes())
    ]


def read(file: Path | str) -> tuple[str, dict[str, Any], Dataset]:
    """Return the recipe, the options and the data of a NAME.nc that `write` wrote.

    Raises:
        OptionError: there is no such file, or it is of another kind.
    """
    import xarray as xr

    try:
        with xr.open_dataset(expanded(file), engine="h5netcdf") as opened:
            data = opened.load()
        return data.attrs["recipe"], json.loads(data.attrs["options"]), data
    except FileNotFoundError:
        raise OptionError(f"there is no file {file}") from None
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(f"{file} is no data set of a recipe (NAME.nc): {error}") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _picture(figure: Figure, **options: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, **options)
    return file.getvalue()


def _drawn(result: Result) -> Figure:
    figure = result.figure() if callable(result.figure) else result.figure
    if names := failed(result.checks):
        look = {"ha": "center", "va": "top", "color": "white", "weight": "bold", "wrap": True}
        look |= {"bbox": {"facecolor": "red", "edgecolor": "none"}}
        figure.text(0.5, 0.995, f"{FAILED}: {names}", **look)
    return figure


def _record(result: Result, run: Mapping[str, object]) -> dict[str, Any]:
    """What a reader needs to judge and repeat the run, as plain values."""
    return {
        "recipe": result.name,
        "passed": result.passed,
        "verdict": result.verdict,
        "checks": [check.as_dict() for check in result.checks],
        "notes": list(result.notes),
        "options": plain(result.options or {}),
        "versions": versions(),
        "run": dict(run),
    }


def _data(result: Result, record: dict[str, Any]) -> bytes:
    texts = {key: x if isinstance(x, str) else json.dumps(x) for key, x in record.items()}
    return bytes(result.data.assign_attrs(texts).to_netcdf(engine="h5netcdf"))


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
