"""Cost of the reduction against the number of domains: `python -m benchmarks.quotient`.

Routing with K = 4 trained outputs per input, reduced from packed data that are never dense. For
each number of domains M: packing, `reduce`, `quotient`, the first and a later solution on the
classes to T = 20, and the number of products in the merged program. The solution must not depend
on M (issue 3 point 3); the first one compiles for the smallest M only.
"""

import sys
import time

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

import gdln_jax as gdln  # noqa: E402

SIZES = (10, 100, 1000, 10_000)


def seconds(function):
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - start, result


def start(graph):
    """First, hidden and third layers apart: three classes."""
    return {
        e.name: 0.1 if e.source.startswith("x") else 0.2 if e.target == "h2" else 0.3
        for e in graph.edges
    }


def main(sizes=SIZES):
    ts = np.linspace(0, 20, 21)
    print(
        "| M | pack (s) | reduce (s) | quotient (s) | classes | products | first solve (s) ", end=""
    )
    print("| solve (ms) | residual |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in sizes:
        packing, task = seconds(lambda: gdln.tasks.routing(size, 4, compact=True, width=8))  # noqa: B023
        reducing, reduction = seconds(lambda: gdln.reduce(task.graph, task.data))  # noqa: B023
        b0 = start(task.graph)
        merging, quotient = seconds(lambda: reduction.quotient(b0))  # noqa: B023
        first, _ = seconds(lambda: quotient.solve(ts).losses)  # noqa: B023
        again = np.median([seconds(lambda: quotient.solve(ts).losses)[0] for _ in range(5)])  # noqa: B023
        products = sum(len(work.label) for work in quotient.program.work)
        print(
            f"| {size} | {packing:.2f} | {reducing:.2f} | {merging:.2f} | {len(quotient.classes)} "
            f"| {products} | {first:.2f} | {1e3 * again:.1f} | {reduction.residual:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or SIZES)
