"""How time is taken: alternately, as medians, beside the rates that the machine reaches itself."""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """One call, until its result is there."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - start, result


def alternate(*functions: Callable[[], Any], repeats: int = 3) -> list[float]:
    """Median seconds of each, called in turn (A B A B), so that all meet the same machine.

    What takes less than 50 ms is called several times in its turn: a single call would measure the
    caches that the others have left.
    """
    counts = [max(1, int(0.05 / seconds(function)[0])) for function in functions]
    pairs = list(zip(functions, counts, strict=True))
    taken = [[_mean(function, count) for function, count in pairs] for _ in range(repeats)]
    return np.median(np.array(taken), axis=0).tolist()


def _mean(function: Callable[[], Any], count: int) -> float:
    return sum(seconds(function)[0] for _ in range(count)) / count


def on_cores(count: int) -> None:
    """Confine this process to `count` cores; before JAX or PyTorch make their threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def small_product_rate(batch: int, rows: int, inner: int, columns: int) -> float:
    """FLOP/s of batched products (rows, inner) x (inner, columns), inner = rows, many in a row.

    The batch is shared out over the devices, as `programs.training` does with its runs.
    """
    repeats = max(1, int(2e8 / (2 * batch * rows * inner * columns)))
    weights = jax.random.normal(jax.random.key(0), (batch, rows, inner)) / inner**0.5
    start = jax.random.normal(jax.random.key(1), (batch, inner, columns))

    def several(weights: Any, h: Any) -> Any:
        return jax.lax.fori_loop(0, repeats, lambda _, h: weights @ h, h)

    chain = jax.jit(over_devices(several, batch))
    return 2 * batch * rows * inner * columns * repeats / _best(lambda: chain(weights, start))


def over_devices(function: Callable, runs: int, *, shared: int = 0) -> Callable:
    """Share the leading axis of all arguments but the `shared` last ones out, where it divides."""
    devices = jax.devices()
    if len(devices) == 1 or runs % len(devices):
        return function
    mesh = jax.sharding.Mesh(np.array(devices), ("run",))
    spec = jax.sharding.PartitionSpec

    def split(*arguments: Any) -> Any:
        own = len(arguments) - shared
        specs = (spec("run"),) * own + (spec(),) * shared
        return jax.shard_map(
            function, mesh=mesh, check_vma=False, in_specs=specs, out_specs=spec("run")
        )(*arguments)

    return split


@functools.cache
def product_rate(size: int = 2048) -> float:
    """FLOP/s of one large product in the default precision."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(lambda a: jnp.matmul(a, a, precision=jax.lax.Precision.HIGHEST))
    return 2 * size**3 / _best(lambda: product(a))


@functools.cache
def copy_rate(mebibytes: int = 256) -> float:
    """Bytes per second, read plus written, of adding 1 to an array beyond all caches."""
    a = jnp.zeros(mebibytes * 2**18, jnp.float32)
    add = jax.jit(lambda a: a + 1, donate_argnums=0)
    best = np.inf
    for _ in range(6):  # the first compiles
        taken, a = seconds(functools.partial(add, a))
        best = min(best, taken)
    return 2 * a.nbytes / best


def _best(function: Callable[[], Any], repeats: int = 5) -> float:
    seconds(function)
    return min(seconds(function)[0] for _ in range(repeats))
