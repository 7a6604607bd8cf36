"""Runs per second against the number of runs in a sweep: `python -m benchmarks.sweep [LARGEST]`.

A run is 50 steps of full-batch gradient descent on the routing network of N Fig. 4 (M = 7, K = 4,
N_h = 64), float32. For 1 to 1024 runs as `gdln.sweep` computes them: the time without compiling,
runs per second, how many runs are one batch and how many batches run at once (on a CPU), what the
compiler says a batch holds in memory (and the peak that the device reports, where it does), and
the floating-point rate as a share of that of one large matrix product on the same device.
Operations are those of the matrix products that the active edges need. Printed last: where it
saturates.
"""

import sys
import time

import jax

jax.config.update("jax_enable_x64", False)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

import gdln_jax as gdln  # noqa: E402
from benchmarks.programs import product_flops  # noqa: E402
from gdln_jax._sweep._axes import read_axes  # noqa: E402
from gdln_jax._sweep._processes import default_mesh  # noqa: E402
from gdln_jax._sweep._run import Maker, Run  # noqa: E402

STEPS, LARGEST = 50, 1024
TASK = gdln.tasks.routing(7, 4)


def network(key):
    # Not orthogonal: the QR factorisations, one after the other on a CPU, are no part of training.
    return gdln.GatedNetwork.init(TASK.graph, gdln.init.xavier(0.2), key=key)


def run(key, seed):
    """One run; `seed` only tells the runs apart."""
    del seed
    done = gdln.train(
        network(key), TASK.data, optimizer=optax.sgd(0.02), steps=STEPS, save_every=STEPS,
        keep_models=False,
    )  # fmt: skip
    return {"loss": done.losses[-1], "status": done.status}


def flops_per_run():
    return STEPS * product_flops(network(jax.random.key(0)).prepare(TASK.data))


def seconds(function, repeats=3):
    """Least time of a call after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def device_rate(size=2048):
    """Operations per second of a large float32 product."""
    a = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda x: x @ x)
    return 2 * size**3 / seconds(lambda: jax.block_until_ready(product(a)))


def main(largest=LARGEST):
    device = jax.devices()[0]
    rate, flops = device_rate(), flops_per_run()
    print(f"{device.device_kind}, {rate / 1e9:.0f} GFLOP/s in a product of 2048 x 2048")
    print(f"{flops / 1e6:.0f} MFLOP per run of {STEPS} steps\n")
    print("| runs | time (s) | runs/s | batch x at once | batch (MB) | peak (MB) | share of rate |")
    print("|---|---|---|---|---|---|---|")
    counts = [4**k for k in range(12) if 4**k <= largest]
    speeds = []
    for count in counts:
        axes = read_axes({"seed": np.arange(count)})
        asked = Run(run, axes, jax.random.key(0), ("seed",), ())
        program = Maker(asked, 0, default_mesh()).first(count)
        numbers = asked.grid.groups[0]
        took = seconds(lambda: program(numbers), repeats=3 if count < 256 else 2)  # noqa: B023
        speeds.append(count / took)
        stats = device.memory_stats() or {}
        peak = f"{stats['peak_bytes_in_use'] / 1e6:.0f}" if "peak_bytes_in_use" in stats else "-"
        print(
            f"| {count} | {took:.3g} | {speeds[-1]:.3g} | {program.batch} x {program.threads} "
            f"| {program.bytes_needed() / 1e6:.3g} | {peak} | {speeds[-1] * flops / rate:.1%} |",
            flush=True,
        )
    enough = next(n for n, speed in zip(counts, speeds, strict=True) if speed > 0.9 * max(speeds))
    print(f"\n90 % of the best rate is reached with {enough} runs.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
