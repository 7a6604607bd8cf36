"""Cost of the core against the number of domains: `python -m benchmarks.core`.

Routing with K = 4 trained outputs per input and N_h = 64. For each number of domains M: tracing
and compiling the gradient of the loss, one step of it, and the same for the form that evaluates
every edge for every example (what a list of modules amounts to). Fitted exponents of the step's
cost in M are printed below; DESIGN asks for at most 1.1.
"""

import time

import jax

jax.config.update("jax_enable_x64", False)

import equinox as eqx  # noqa: E402
import numpy as np  # noqa: E402

import gdln_jax as gdln  # noqa: E402
from gdln_jax._plan import unpacked  # noqa: E402

SIZES, DENSE_SIZES = (7, 40, 200, 1000), (7, 40)


def timed(function, *args, repeats=20):
    """Median time of a call, after one to warm up, and the time of lowering plus compiling."""
    start = time.perf_counter()
    function.lower(*args).compile()
    compiled = time.perf_counter() - start
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return compiled, float(np.median(times))


def main():
    print("| M | active products | trace + compile (s) | step (ms) | every edge: compile | step |")
    print("|---|---|---|---|---|---|")
    steps = []
    for size in SIZES:
        task = gdln.tasks.routing(size, 4, compact=True)
        net = gdln.GatedNetwork.init(task.graph, gdln.init.orthogonal(0.2), key=jax.random.key(0))
        gradient = eqx.filter_jit(eqx.filter_grad(gdln.mse))
        compiled, step = timed(gradient, net, task.data)
        steps.append(step)
        row = f"| {size} | {task.data.num_pairs} | {compiled:.2f} | {1e3 * step:.3f} |"
        if size in DENSE_SIZES:
            dense = unpacked(task.graph, gdln.tasks.routing(size, 4).data)
            compiled, slow = timed(gradient, net, dense)
            row += f" {compiled:.2f} | {1e3 * slow:.3f} ({slow / step:.0f}x) |"
        else:
            row += " | |"
        print(row, flush=True)
    exponent = np.polyfit(np.log(SIZES[1:]), np.log(steps[1:]), 1)[0]
    print(f"\nStep cost grows as M^{exponent:.2f} from M = {SIZES[1]} to {SIZES[-1]} at fixed K.")


if __name__ == "__main__":
    main()
