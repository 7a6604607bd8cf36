"""How costs grow, with fitted exponents: `python -m benchmarks.scaling [--out DIR] [--quick]`.

Each series varies one size of a network and takes the best of several timings; an exponent p is
the slope of log cost against log size over the upper half of the sizes, where fixed costs no
longer hide it. Prints a Markdown table; with --out also writes `scaling.json` and `scaling.png`.
"""

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import folder, machine
from gdln_jax._files import write, written_whole


@dataclasses.dataclass(frozen=True)
class Series:
    """Costs (seconds, or bytes) at growing sizes; `expected` says what the design promises."""

    what: str
    size: str
    unit: str
    x: list[int]
    y: list[float]
    setting: str
    expected: str

    @property
    def exponent(self) -> float:
        """Slope of log y against log x over the upper half of the sizes."""
        tail = slice(len(self.x) // 2, None) if len(self.x) > 3 else slice(None)
        return float(np.polyfit(np.log(self.x[tail]), np.log(self.y[tail]), 1)[0])


def _best(function: Callable[[], Any], repeats: int = 15) -> float:
    from benchmarks.measuring import seconds

    seconds(function)
    return min(seconds(function)[0] for _ in range(repeats))


def _gradient(graph: Any, data: Any) -> tuple[float, float]:
    """Seconds of tracing and compiling the loss and its gradient, and of one evaluation."""
    import jax

    import gdln_jax as gdln
    from benchmarks.measuring import seconds

    net = gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.2), key=jax.random.key(0))
    packed = gdln.pack(graph, data)
    function = jax.jit(jax.value_and_grad(gdln.mse))
    compiling, program = seconds(lambda: _Held(function.lower(net, packed).compile()))
    return compiling, _best(lambda: program.program(net, packed))


@dataclasses.dataclass(frozen=True)
class _Held:
    """Keeps a compiled program from being taken for a result to wait for."""

    program: Any


def domains(quick: bool) -> list[Series]:
    """Step and compilation against M at K = 4."""
    import gdln_jax as gdln

    sizes = [5, 10] if quick else [25, 50, 100, 200, 400, 800]
    both = []
    for m in sizes:
        task = gdln.tasks.routing(m, 4, compact=True)
        both.append(_gradient(task.graph, task.data))
    compiling, stepping = zip(*both, strict=True)
    setting = "routing, K 4, N_h 64"
    return [
        Series("step", "domains M", "s", sizes, list(stepping), setting, "at most 1.1"),
        Series("compilation", "domains M", "s", sizes, list(compiling), setting, "flat"),
    ]


def patterns(quick: bool) -> list[Series]:
    """Step against the number of gate patterns at a fixed number of domains."""
    import gdln_jax as gdln

    m, trained = (8, [1, 8]) if quick else (64, [4, 8, 16, 32, 64])
    taken = []
    for k in trained:
        task = gdln.tasks.routing(m, k, compact=True)
        taken.append(_gradient(task.graph, task.data)[1])
    counts = [m * k for k in trained]
    return [Series("step", "gate patterns", "s", counts, taken, f"routing, M {m}", "at most 1")]


def paths(quick: bool) -> list[Series]:
    """Step against the number of paths: parallel edges in six layers, P^6 paths over 6 P edges."""
    import gdln_jax as gdln

    parallel = [1, 2] if quick else [1, 2, 4, 8]
    names = ["x", "h1", "h2", "h3", "h4", "h5", "y"]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 32, 32))
    counts, taken = [], []
    for p in parallel:
        edges = [(a, b, f"{a}->{b} {i}") for a, b in itertools.pairwise(names) for i in range(p)]
        graph = gdln.Graph(dict.fromkeys(names, 32), edges)
        counts.append(graph.num_paths)
        taken.append(_gradient(graph, gdln.GatedData({"x": x}, {"y": y}))[1])
    setting = "6 layers of P parallel edges, width 32"
    return [Series("step", "paths", "s", counts, taken, setting, "that of the edges, 1/6")]


def width(quick: bool) -> list[Series]:
    """Step against the hidden width."""
    import gdln_jax as gdln

    sizes = [8, 16] if quick else [64, 128, 256, 512, 1024]
    taken = []
    for h in sizes:
        task = gdln.tasks.routing(20, 4, compact=True, width=h)
        taken.append(_gradient(task.graph, task.data)[1])
    return [Series("step", "width N_h", "s", sizes, taken, "routing, M 20, K 4", "at most 2")]


def depth(quick: bool) -> list[Series]:
    """Step and compilation against the number of layers of a chain."""
    import gdln_jax as gdln

    sizes = [2, 4] if quick else [2, 4, 8, 16, 32]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 128, 64))
    both = [
        _gradient(gdln.Graph.chain([64] * (layers + 1)), gdln.GatedData({"x": x}, {"y": y}))
        for layers in sizes
    ]
    compiling, stepping = zip(*both, strict=True)
    setting = "chain, width 64, 128 examples"
    return [
        Series("step", "layers", "s", sizes, list(stepping), setting, "1"),
        Series("compilation", "layers", "s", sizes, list(compiling), setting, "1 at most"),
    ]


def reduction(quick: bool) -> list[Series]:
    """`reduce()` and the quotient's solution against M, and `reduce()` against modes r."""
    import gdln_jax as gdln
    from benchmarks.measuring import seconds

    domains = [4, 6] if quick else [10, 30, 100, 300, 1000]
    ts = np.linspace(0, 20, 11)
    reducing, solving = [], []
    for m in domains:
        task = gdln.tasks.routing(m, 4, compact=True, width=8)
        taken, found = seconds(lambda task=task: gdln.reduce(task.graph, task.data))
        again = seconds(lambda task=task: gdln.reduce(task.graph, task.data))[0]
        reducing.append(min(taken, again))
        b0 = {
            e.name: 0.1 if e.source.startswith("x") else 0.2 if e.target == "h2" else 0.3
            for e in task.graph.edges
        }
        quotient = found.quotient(b0)
        solving.append(_best(lambda quotient=quotient: quotient.solve(ts).losses, 5))
    ranks = [2, 4] if quick else [4, 8, 16, 32, 64]
    by_rank = []
    for r in ranks:
        base = np.eye(r), np.random.default_rng(0).normal(size=(r, 2 * r))
        task = gdln.tasks.routing(6, 3, base=base, width=64, compact=True)
        runs = [seconds(lambda task=task: gdln.reduce(task.graph, task.data))[0] for _ in range(2)]
        by_rank.append(min(runs))
    setting = "routing, K 4, 4 modes"
    return [
        Series("reduce()", "domains M", "s", domains, reducing, setting, "about 1"),
        Series("quotient solution", "domains M", "s", domains, solving, setting, "flat"),
        Series("reduce()", "modes r", "s", ranks, by_rank, "routing, M 6, K 3", "at most 3"),
    ]


def memory(quick: bool) -> list[Series]:
    """Bytes that the compiled training program needs, against the number of saved steps."""
    import jax
    import optax

    import gdln_jax as gdln

    saves = [2, 4] if quick else [1, 10, 100, 1000]
    task = gdln.tasks.routing(7, 4)
    packed = gdln.pack(task.graph, task.data)
    net = gdln.GatedNetwork.init(task.graph, gdln.init.orthogonal(0.2), key=jax.random.key(0))
    optimizer = optax.sgd(0.02)

    def values(net: Any) -> Any:
        return [jax.numpy.linalg.svd(w, compute_uv=False) for w in net.stacks]

    def needed(count: int, *, keep: bool) -> float:
        steps = saves[-1]
        options = {"keep_models": True} if keep else {"keep_models": False, "measure": values}

        def run(net: Any, data: Any) -> Any:
            return gdln.train(
                net, data, optimizer=optimizer, steps=steps, save_every=steps // count, **options
            )

        analysis = jax.jit(run).lower(net, packed).compile().memory_analysis()
        return float(analysis.temp_size_in_bytes + analysis.output_size_in_bytes)

    setting = "routing, M 7, K 4, N_h 64"
    return [
        Series(what, "saved steps", "bytes", saves, [needed(n, keep=keep) for n in saves], setting,
               "at most 1")
        for what, keep in (("memory, all weights kept", True), ("memory, singular values", False))
    ]  # fmt: skip


# Name -> the function and whether it needs float64.
SERIES: dict[str, tuple[Callable[[bool], list[Series]], bool]] = {
    "domains": (domains, False),
    "patterns": (patterns, False),
    "paths": (paths, False),
    "width": (width, False),
    "depth": (depth, False),
    "reduction": (reduction, True),
    "memory": (memory, False),
}


def markdown(found: Sequence[Series]) -> str:
    """One row per series."""
    lines = ["| cost | against | setting | from | to | exponent | expected |", "|" + "---|" * 7]
    for s in found:
        ends = [f"{size} {s.size}: {_amount(y, s.unit)}" for size, y in
                ((s.x[0], s.y[0]), (s.x[-1], s.y[-1]))]  # fmt: skip
        cells = (s.what, s.size, s.setting, *ends, f"{s.exponent:.2f}", s.expected)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _amount(y: float, unit: str) -> str:
    return f"{y / 2**20:.3g} MiB" if unit == "bytes" else f"{1e3 * y:.3g} ms"


def measured(name: str, *, quick: bool) -> list[Series]:
    """The series of one function, from a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scaling", "--alone", name]
    root = Path(__file__).resolve().parent.parent
    command += ["--quick"] if quick else []
    # Threads of LAPACK wait actively: where others work too, they cost up to 25 times the time.
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=root, env=alone
    )
    return [Series(**record) for record in json.loads(done.stdout)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all series, or those asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--series", nargs="+", choices=sorted(SERIES), default=list(SERIES))
    parser.add_argument("--out", type=folder, metavar="DIR", help="folder for numbers and picture")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--alone", choices=sorted(SERIES), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.alone is not None:
        import jax

        function, x64 = SERIES[chosen.alone]
        jax.config.update("jax_enable_x64", x64)
        jax.config.update("jax_enable_compilation_cache", False)
        json.dump([dataclasses.asdict(s) for s in function(chosen.quick)], sys.stdout)
        return
    found = []
    for name in chosen.series:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found += measured(name, quick=chosen.quick)
    print(markdown(found))
    if chosen.out is not None:
        from benchmarks.scaling_figure import draw

        series = [dataclasses.asdict(s) | {"exponent": s.exponent} for s in found]
        record = {"machine": machine(), "series": series}
        write(chosen.out / "scaling.json", json.dumps(record, indent=1))
        with written_whole(chosen.out / "scaling.png") as (beside,):
            draw(found).savefig(beside, dpi=200)


if __name__ == "__main__":
    main()
