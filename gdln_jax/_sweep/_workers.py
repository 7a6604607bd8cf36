"""One sweep by several processes that share its store: each works off a shard of the chunks.

No engine of our own: whatever has `submit(function, *arguments)` and returns something with
`result()` starts them, for example `submitit.AutoExecutor` on Slurm. The default are processes on
this machine, one pool each, so that one that is killed takes no other along. They end with the
process that started them, however it ends.
"""

import contextlib
import io
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._sweep._interrupt import stopped
from gdln_jax._sweep._locks import SweepLockedError
from gdln_jax._sweep._run import Run
from gdln_jax._sweep._spec import flags
from gdln_jax._sweep._store import SweepStoreError

_ASKED = ("fn", "axes", "key_axes", "static", "batch", "folder")
_SECONDS = 1.0


@runtime_checkable
class Job(Protocol):
    """What an executor returns: a job that runs, or has run."""

    def result(self) -> object:
        """Wait for the end; raise what the job raised."""
        ...

    def cancel(self) -> object:
        """End it."""
        ...


@runtime_checkable
class Executor(Protocol):
    """What starts jobs."""

    def submit(self, function: Callable[[int, int], None], /, *arguments: int) -> Job:
        """Start `function(*arguments)`."""
        ...


class WorkerError(RuntimeError):
    """Some workers ended before their work; what they finished is in the store."""


@dataclass(frozen=True)
class _Work:
    """A sweep in a form that can be sent to another process: there its key is made again."""

    asked: Mapping[str, Any]
    key: tuple[str, np.ndarray]
    flags: Mapping[str, object]

    def __call__(self, number: int, count: int) -> None:
        for name, value in self.flags.items():
            jax.config.update(name, value)
        key = jax.random.wrap_key_data(jnp.asarray(self.key[1]), impl=self.key[0])
        Run(**self.asked, key=key, shard=(number, count)).compute(progress=False)


def work_off(run: Run, count: int, executor: Executor | None) -> None:
    """Do the points of `run` that are missing in `count` other processes; wait for all of them.

    Raises:
        ValueError: fn cannot be sent to another process.
        SweepLockedError: another sweep holds the store.
        WorkerError: after the others have ended, if some did not end well.
    """
    impl, data = str(jax.random.key_impl(run.key)), np.asarray(jax.random.key_data(run.key))
    asked = {name: getattr(run, name) for name in _ASKED}
    work = _Work(asked, (impl, data), flags())
    if executor is None:
        _check_sendable(work)
    with run.held():  # who cannot have the store finds it out here
        pass
    failed: dict[int, Exception] = {}
    with _starting(work, count, executor) as jobs:
        for number, job in enumerate(jobs):
            try:
                job.result()
            except Exception as error:  # noqa: BLE001  whatever ended it; raised below
                failed[number] = error
    for error in failed.values():
        if isinstance(error, SweepLockedError | SweepStoreError):
            raise type(error)(*error.args) from None
    for number, error in failed.items():
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, BrokenProcessPool):
            what = (
                'its process was killed, or did not start (a script needs if __name__ == "__main__"'
                ": around what it runs)"
            )
        raise WorkerError(
            f"{len(failed)} of {count} workers did not end well, first worker {number}: {what}. "
            f"What they finished is in {run.folder}; call the same sweep again, it resumes from "
            "there."
        ) from None


@contextlib.contextmanager
def _starting(work: _Work, count: int, executor: Executor | None) -> Iterator[Sequence[Job]]:
    if executor is not None:
        jobs = [executor.submit(work, number, count) for number in range(count)]
        try:
            yield jobs
        except KeyboardInterrupt:
            for job in jobs:
                job.cancel()
            raise
        return
    # Forking a process in which JAX runs threads would lock it up.
    spawn = multiprocessing.get_context("spawn")
    follow, lead = spawn.Pipe(duplex=False)
    with contextlib.ExitStack() as stack:
        options = {"mp_context": spawn, "initializer": _end_with_parent, "initargs": (follow,)}
        pools = [stack.enter_context(ProcessPoolExecutor(1, **options)) for _ in range(count)]
        try:
            yield [pool.submit(work, number, count) for number, pool in enumerate(pools)]
        except KeyboardInterrupt:
            lead.close()
            raise


def _end_with_parent(follow: Connection) -> None:
    """Watch, in a worker, the process that started it: end with it, and at once.

    Its locks go with the worker, and what it had half-written is removed by the next sweep. Where
    the parent lives and closes its end of `follow`, the current chunk is finished first.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        # The sentinel is a pipe that breaks. A process that the parent has forked may hold its
        # other end: then the system gives the worker another parent.
        first, ends = os.getppid(), [parent.sentinel, follow]
        while os.getppid() == first:
            broken = wait(ends, _SECONDS)
            if parent.sentinel in broken:
                break
            if broken:
                stopped.set()
                ends = [parent.sentinel]
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Sender(pickle.Pickler):
    """Refuses what stands in a `__main__` that other processes cannot import."""

    def reducer_override(self, obj: Any) -> Any:
        if getattr(obj, "__module__", None) == "__main__" and _script() is None:
            raise ValueError(
                f"workers= starts processes that import fn, and {obj.__qualname__} stands in "
                "__main__, which they cannot import here (standard input, python -c, a notebook): "
                "fn must stand in a module."
            )
        return NotImplemented


def _script() -> Path | None:
    """The file of `__main__`, if there is one."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return None if file is None or not Path(file).is_file() else Path(file)


def _check_sendable(work: _Work) -> None:
    main = sys.modules["__main__"]
    try:
        _Sender(io.BytesIO()).dump(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"fn cannot be sent to another process ({error}): define it at the top of a module, or "
            "start the processes yourself with shard=(i, n)."
        ) from error
    if hasattr(main, "__file__") and main.__spec__ is None and _script() is None:
        raise ValueError(
            f"workers= starts processes that run {main.__file__} again, which is no file: save the "
            "script as a file."
        )
