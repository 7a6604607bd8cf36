"""Every recipe, one after the other, each in a process of its own.

A compiled program holds memory maps and Linux ends a process at 65,530 of them, which all recipes
together would reach; and a recipe that crashes must not take the others along.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gdln_jax._cli import signals as _signals
from gdln_jax._cli.report._outcome import (
    Outcome,
    State,
    forget_failure,
    has_failure,
    note_failure,
    outcome,
    outcomes,
)
from gdln_jax._machine import moment
from gdln_jax.recipes import Recipe, foreign

# `gdln` of this interpreter, wherever the command itself may be.
GDLN = (sys.executable, "-m", "gdln_jax")
# What a page shows of the output of a recipe that broke off.
_LAST_LINES = 12
_WITH_A_RESULT = (0, 1)  # exit codes: all checks passed, or some failed
_GRACE = 10.0  # seconds that a recipe gets to end after SIGTERM


def reproduce_all(
    entries: Iterable[Recipe],
    out: Path,
    *,
    options: Callable[[Recipe], Sequence[str]],
    changed: Callable[[list[Outcome]], None],
    keep_going: bool = True,
    command: Sequence[str] | None = None,
) -> list[Outcome]:
    """Run recipes, each as `command reproduce NAME --out OUT/NAME OPTIONS`; return how they ended.

    What a recipe prints goes to `OUT/NAME/NAME.log`. One that ends without a record (an exception,
    a refusal, a signal) leaves `NAME.failed.json` with the reason, and the others continue.

    Args:
        entries: the recipes.
        out: the folder; made if it is missing.
        options: the further arguments of a recipe.
        changed: called with the outcomes of all recipes before each one starts and at the end,
            also on an interruption, where those that did not end are `State.MISSING`.
        keep_going: continue after a recipe that failed; otherwise the rest is `State.MISSING`.
        command: what runs `gdln`; default `GDLN`, this interpreter's.

    Raises:
        KeyboardInterrupt: passed on after the running recipe was stopped and `changed` was called.
        SystemExit: with 143, on SIGTERM, likewise.
    """
    entries = list(entries)
    since = moment()
    rest = [entry.name for entry in entries]

    def report(running: str | None) -> list[Outcome]:
        waiting = State.WAITING if running else State.MISSING
        unfinished = {name: State.RUNNING if name == running else waiting for name in rest}
        now = outcomes(out, entries, since=since, unfinished=unfinished)
        changed(now)
        return now

    with _signals.raised():
        try:
            for entry in entries:
                report(entry.name)
                words = [*(command or GDLN)]
                one = _run_one(entry, out / entry.name, words, options(entry), since)
                rest.remove(entry.name)
                if one.state is not State.PASSED and not keep_going:
                    break
        finally:
            ended = report(None)
    return ended


def foreign_files(entries: Iterable[Recipe], out: Path) -> list[Path]:
    """What `reproduce_all` would replace in `out` although it did not write it."""
    found: list[Path] = []
    for name in (entry.name for entry in entries):
        folder = out / name
        log = _log(folder, name)
        strange = foreign(name, folder)
        # Logs of 0.1.0 do not begin with their command, but have a result beside them.
        ours = not strange and (has_failure(folder, name) or (folder / f"{name}.json").exists())
        if os.path.lexists(log) and not (ours or log.read_bytes().startswith(_head(name))):
            strange.append(log)
        found += strange
    return found


def _log(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"


def _head(name: str) -> bytes:
    return f"$ gdln reproduce {name}\n".encode()


def _run_one(
    entry: Recipe, folder: Path, command: list[str], options: Sequence[str], since: str
) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    log = _log(folder, entry.name)
    start = time.monotonic()
    words = [*command, "reproduce", entry.name, "--out", str(folder), *options]
    with log.open("wb") as file:
        file.write(_head(entry.name))
        file.flush()
        process = subprocess.Popen(  # noqa: S603 (this command, with names of the catalogue)
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            code = process.wait()
        finally:
            _stop(process)
    if code in _WITH_A_RESULT and outcome(entry, folder, since=since).record:
        forget_failure(folder, entry.name)
    else:
        text = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        how = f"after {time.monotonic() - start:.0f} s {_how_it_ended(code)}"
        trouble = "\n".join([how, *text[-_LAST_LINES:]])
        note_failure(folder, entry.name, ended=moment(), trouble=trouble)
    return outcome(entry, folder, since=since)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End a recipe that still runs, because this process is to end."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by the signal {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by the signal {-code}"
