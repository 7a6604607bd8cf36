"""Who may write to a store: one sweep, or the shards of one sweep, each shard once.

Locks of the operating system (`flock`) on files in the store: they end with the process that holds
them, however it ends, so that no lock is ever stale. The files stay; what they say is for people.
"""

import contextlib
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_WHOLE = "sweep.lock"


class SweepLockedError(RuntimeError):
    """Another sweep is using the store."""


@contextlib.contextmanager
def locked(folder: Path, shard: tuple[int, int] | None) -> Iterator[None]:
    """Hold the store for a whole sweep (`shard` None), or for a shard (number, count).

    A whole sweep excludes everyone; shards of one count exclude whole sweeps, shards of another
    count, and a second process with the same number.

    Raises:
        SweepLockedError: with the process that holds it.
    """
    with contextlib.ExitStack() as stack:
        common = stack.enter_context((folder / _WHOLE).open("a+", encoding="utf-8"))
        if shard is None:
            _take(common, folder, shared=False)
            own = common
        else:
            _take(common, folder, shared=True)
            _refuse_other_counts(folder, shard[1])
            path = folder / f"shard-{shard[0]}-of-{shard[1]}.lock"
            own = stack.enter_context(path.open("a+", encoding="utf-8"))
            _take(own, folder, shared=False)
        stack.callback(_sign, own, "")
        _sign(own, _who())
        yield


@contextlib.contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Wait until it is this process's turn to look at, or to write, what the store holds."""
    with (folder / "layout.lock").open("a+", encoding="utf-8") as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # said by _take already
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _take(file: IO[str], folder: Path, *, shared: bool) -> None:
    if fcntl is None:
        _warn(folder)
        return
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SweepLockedError(
            f"another sweep is at work on the store {folder} ({_holders(folder)}). Wait for it or "
            "end it; to share the work start all of them with shard=(i, n), each with an i of its "
            "own and the same n."
        ) from None
    except OSError:  # a file system without locks
        _warn(folder)


def _refuse_other_counts(folder: Path, count: int) -> None:
    for path in folder.glob("shard-*-of-*.lock"):
        if fcntl is None or path.stem.endswith(f"-of-{count}"):
            continue
        with path.open("r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SweepLockedError(
                    f"the store {folder} is in use by {path.stem} ({_holders(folder)}), but this "
                    f"is one of {count} shards; all must be of one count."
                ) from None
            except OSError:
                return


def _warn(folder: Path) -> None:
    warnings.warn(
        f"the file system of {folder} has no locks: a second sweep on this store is not noticed. "
        "It would do the same work twice, but neither loses anything.",
        RuntimeWarning,
        stacklevel=5,
    )


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _sign(file: IO[str], text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _holders(folder: Path) -> str:
    """What the lock files that are held say."""
    assert fcntl is not None
    held = []
    for path in sorted(folder.glob("*.lock")):
        with path.open("r", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                held.append(file.read())
    return "; ".join(text for text in held if text) or "it does not say which"
