"""How a recipe ended, read from the files that it left: its record, or a note of its failure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from gdln_jax._files import write
from gdln_jax.recipes import CATALOGUE, Recipe

# The keys that every record has had from the start; "run" came later.
_RECORD = {
    "passed": bool,
    "verdict": str,
    "checks": list,
    "notes": list,
    "options": dict,
    "versions": dict,
}
_CHECK = {"name": str, "limit": str, "passed": bool}
_FAILURE = {"trouble": str, "ended": str}


class State(Enum):
    """How far a recipe came; the value is how it is called on a page."""

    BROKE = "broke off"
    FAILED = "checks failed"
    MISSING = "not run"
    RUNNING = "running"
    WAITING = "waiting"
    PASSED = "passed"

    @property
    def bad(self) -> bool:
        """Whether this is to be seen at the top of a page."""
        return self in (State.BROKE, State.FAILED, State.MISSING)


@dataclass(frozen=True)
class Outcome:
    """One recipe on a page.

    Attributes:
        entry: its line of the catalogue.
        state: how it ended.
        record: what `NAME.json` says, empty where there is none that counts.
        folder: where its files are.
        trouble: why it broke off or is missing, with the last lines that it printed.
    """

    entry: Recipe
    state: State
    record: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    trouble: str = ""

    @property
    def picture(self) -> Path | None:
        """The PNG, None where there is no result to show."""
        path = self.folder / f"{self.entry.name}.png"
        return path if self.record and path.is_file() else None

    @property
    def checks(self) -> list[Mapping[str, Any]]:
        """The checks, failed ones first."""
        return sorted(self.record.get("checks", []), key=lambda check: check["passed"])

    @property
    def checks_passed(self) -> int:
        """How many checks passed."""
        return sum(check["passed"] for check in self.checks)

    @property
    def run(self) -> Mapping[str, Any]:
        """Seconds, device and setting of the run, as far as they were recorded."""
        return self.record.get("run", {})

    @property
    def standing(self) -> str:
        """What this run says of the paper's statement: nothing unless every check passed."""
        if self.state is not State.PASSED:
            return "not established by this run"
        return self.entry.standing or "not judged"


def outcomes(
    folder: Path | str,
    entries: Iterable[Recipe] | None = None,
    *,
    since: str = "",
    unfinished: Mapping[str, State] | None = None,
) -> list[Outcome]:
    """The outcomes of recipes whose files are in `folder`/NAME, in the order of the catalogue.

    Args:
        folder: as given to `gdln reproduce all --out`.
        entries: default all of the catalogue.
        since: files of runs that ended before this moment (ISO, UTC) do not count.
        unfinished: recipe -> state, for those that are not over yet; their files do not count.
    """
    found = []
    for entry in CATALOGUE.values() if entries is None else entries:
        place = Path(folder) / entry.name
        if unfinished and entry.name in unfinished:
            found.append(Outcome(entry, unfinished[entry.name], folder=place))
        else:
            found.append(outcome(entry, place, since=since))
    return found


def outcome(entry: Recipe, folder: Path, *, since: str = "") -> Outcome:
    """The outcome of one recipe whose files are in `folder`; the later of record and failure."""
    failure = _read(_failure_file(folder, entry.name))
    record = _read(folder / f"{entry.name}.json")
    ended = str(record.get("run", {}).get("ended", ""))
    if failure and failure.get("ended", "") >= max(since, ended):
        return Outcome(entry, State.BROKE, folder=folder, trouble=failure.get("trouble", ""))
    if "unreadable" in record:
        return Outcome(entry, State.BROKE, folder=folder, trouble=str(record["unreadable"]))
    if not record or ended < since:
        return Outcome(entry, State.MISSING, folder=folder, trouble=f"gdln reproduce {entry.name}")
    return Outcome(entry, State.PASSED if record["passed"] else State.FAILED, record, folder)


def note_failure(folder: Path, name: str, *, ended: str, trouble: str) -> None:
    """Leave in `folder` that `name` broke off without a record."""
    text = json.dumps({"recipe": name, "ended": ended, "trouble": trouble}, indent=2)
    write(_failure_file(folder, name), text + "\n")


def forget_failure(folder: Path, name: str) -> None:
    """Take back what `note_failure` left; a later run has ended with a record."""
    _failure_file(folder, name).unlink(missing_ok=True)


def has_failure(folder: Path, name: str) -> bool:
    """Whether `note_failure` has written there."""
    return "trouble" in _read(_failure_file(folder, name))


def _failure_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.failed.json"


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, empty if there is no file."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {"unreadable": f"{path.name} cannot be read: {error}"}
    if not isinstance(read, dict) or not (_fits(read, _RECORD) or _fits(read, _FAILURE)):
        return {"unreadable": f"{path.name} is no record of a recipe"}
    return read


def _fits(read: Any, kinds: Mapping[str, type]) -> bool:
    """Whether `read` has these keys with values of these types, and so have its checks."""
    return (
        isinstance(read, dict)
        and all(isinstance(read.get(key), kind) for key, kind in kinds.items())
        and isinstance(read.get("run", {}), dict)
        and all(_fits(check, _CHECK) and "value" in check for check in read.get("checks", []))
    )
