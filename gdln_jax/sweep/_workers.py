"""One sweep by several processes that share its store: each works off a shard of the chunks.

No engine of our own: whatever has `submit(function, *arguments)` and returns something with
`result()` starts them, for example `submitit.AutoExecutor` on Slurm. The default are processes on
this machine, one pool each, so that one that is killed takes no other along.
"""

import contextlib
import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_FLAGS = ("jax_enable_x64", "jax_default_matmul_precision")


class WorkerError(RuntimeError):
    """Some workers ended before their work; what they finished is in the store."""


@dataclass(frozen=True)
class _Work:
    """A shard of a sweep in a form that can be sent to another process."""

    fn: Callable[..., Any]
    axes: Mapping[str, Any]
    key: tuple[str, np.ndarray]
    flags: Mapping[str, Any]
    options: Mapping[str, Any]

    def __call__(self, number: int, count: int) -> None:
        from gdln_jax.sweep._sweep import sweep  # noqa: PLC0415  it imports this room

        for name, value in self.flags.items():
            jax.config.update(name, value)
        key = jax.random.wrap_key_data(jnp.asarray(self.key[1]), impl=self.key[0])
        sweep(
            self.fn, self.axes, key=key, shard=(number, count), progress=False, **self.options
        )  # fmt: skip


def work_off(
    fn: Callable[..., Any],
    axes: Mapping[str, Any],
    key: jax.Array,
    count: int,
    executor: Any,
    options: Mapping[str, Any],
) -> None:
    """Run the `count` shards of a sweep in other processes and wait for all of them.

    Raises:
        ValueError: fn cannot be sent to another process.
        WorkerError: after the others have ended, if some did not end well.
    """
    impl, data = str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key))
    flags = {name: jax.config.values[name] for name in _FLAGS}
    work = _Work(fn, axes, (impl, data), flags, options)
    with _starting(work, count, executor) as jobs:
        failed = []
        for number, job in enumerate(jobs):
            try:
                job.result()
            except Exception as error:  # noqa: BLE001  whatever ended it; raised below
                failed.append((number, error))
    if failed:
        number, error = failed[0]
        raise WorkerError(
            f"{len(failed)} of {count} workers did not end well, first worker {number}: "
            f"{type(error).__name__}: {error}. What they finished is in {options['store']}; call "
            "the same sweep again, it goes on from there."
        ) from error


@contextlib.contextmanager
def _starting(work: _Work, count: int, executor: Any) -> Iterator[list[Any]]:
    if executor is not None:
        jobs = [executor.submit(work, number, count) for number in range(count)]
        try:
            yield jobs
        except KeyboardInterrupt:
            for job in jobs:
                job.cancel()
            raise
        return
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"fn cannot be sent to another process ({error}): define it at the top of a module, or "
            "start the processes yourself with shard=(i, n)."
        ) from error
    # Forking a process in which JAX runs threads would lock it up.
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pools = [
            stack.enter_context(ProcessPoolExecutor(1, mp_context=spawn)) for _ in range(count)
        ]
        yield [pool.submit(work, number, count) for number, pool in enumerate(pools)]
