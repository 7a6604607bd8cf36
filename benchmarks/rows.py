"""The comparisons of the table; each is measured in a process of its own (`benchmarks.alone`)."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from benchmarks.table import Row


@dataclasses.dataclass(frozen=True)
class Job:
    """A function that measures rows, and what its process needs: precision, cores, and how many
    devices JAX makes of them.
    """

    measure: Callable[[bool], list[Row]]
    x64: bool = False
    cores: int = 2
    devices: int = 2


# The scripts' loop over runs takes minutes and is the same for each: two of them, scaled up. The
# first and the last, so that the comparison of results sees the smallest and the largest scale.
_TIMED = (0, -1)


def training_row(quick: bool) -> list[Row]:
    """N Fig. 4: routing M = 7, K = 4, N_h = 64, 10 seeds x 500 steps, singular values.

    On two devices of the CPU, as after `gdln.configure(cpu_devices=2)`, or on one.
    """
    seeds, steps = (2, 20) if quick else (10, 500)
    # Without singular values too: with them, most of the time goes to LAPACK's SVDs.
    return [
        row
        for values in (True, False)
        for row in _training((0.2,), seeds, steps, 2, values=values, timed=_TIMED)
    ]


def initialisation_row(quick: bool) -> list[Row]:
    """N Fig. 6: 6 initial scales x 20 seeds x 700 steps."""
    scales = np.geomspace(0.01, 1.0, 2 if quick else 6)
    seeds, steps = (2, 20) if quick else (20, 700)
    return _training(tuple(scales.tolist()), seeds, steps, 10, values=False, timed=_TIMED)


def _training(
    scales: tuple[float, ...], seeds: int, steps: int, save_every: int, *, values: bool,
    timed: tuple[int, ...],
) -> list[Row]:  # fmt: skip
    import jax

    import gdln_jax as gdln
    from benchmarks import measuring, programs
    from benchmarks.jax_loop import make_loop

    task, rate = gdln.tasks.routing(7, 4), 0.02
    setting = {"rate": rate, "steps": steps, "save_every": save_every}
    work = programs.training(task, scales, seeds, values=values, **setting)
    cold, (losses, measured) = measuring.seconds(work.run)
    losses = np.asarray(losses)
    x, y = task.meta["base"]
    runs = len(work.starts)
    given = {"routes": task.meta["routes"], "x": x, "y": y, **setting}
    everything = tuple(range(runs))
    others: dict[str, tuple[Callable, tuple[int, ...]]] = {}
    try:
        import torch

        from benchmarks.torch_modules import train_modules
        from benchmarks.torch_vmap import train_vmap
    except ImportError:
        pass
    else:
        torch.set_num_threads(1)  # these matrices are too small to share: two threads are slower
        few = [work.starts[run] for run in timed]
        others["(a) PyTorch modules, a pass per route"] = (
            lambda: train_modules(few, **given, values=values), timed,
        )  # fmt: skip
        others["(a') PyTorch modules, encoded once"] = (
            lambda: train_modules(few, **given, values=values, once=True), timed,
        )  # fmt: skip
        others["(b) PyTorch, vmap over seeds"] = (
            lambda: train_vmap(work.starts, **given, values=values), everything,
        )  # fmt: skip
    others["(d) JAX, loop over steps"] = (
        make_loop(work.starts, **given, values=values), everything,
    )  # fmt: skip
    gaps = {}
    for name, (function, chosen) in others.items():
        found, seen = function()
        gaps[name] = _relative(found, losses[list(chosen)])
        if values:
            gaps[name] = max(gaps[name], _values_gap(seen, measured, list(chosen)))
    taken = measuring.alternate(work.run, *(f for f, _ in others.values()), repeats=2)
    rate_here = measuring.small_product_rate(runs, 64, 64, 28)
    sizes = f"M 7, K 4, N_h 64, {len(scales)} scale(s) x {seeds} seeds x {steps} steps"
    devices = len(jax.devices())
    what = "routing, descent" + (f", singular values every {save_every}" if values else "")
    what += f", {devices} devices" if devices > 1 else ", a plain vmap"
    rows = []
    for (name, (_, chosen)), seconds in zip(others.items(), taken[1:], strict=True):
        count = len(chosen)
        note = "" if count == runs else f"{count} of {runs} runs of the baseline timed, scaled up."
        modules = name.startswith("(a)")
        rows.append(
            Row(
                what, sizes, name, cold, taken[0], seconds * runs / count,
                goal=(60 if values else 40) if modules else None,
                cold_goal=5 if modules and values else None,
                floor=work.flops / rate_here,
                floor_of=f"{work.flops / 1e9:.2g} GFLOP, products at {rate_here / 1e9:.3g} GFLOP/s",
                gap=gaps[name], note=note,
            )
        )  # fmt: skip
    return rows


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference of two sets of numbers over the largest."""
    return float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))


def _values_gap(seen: list, measured: list, chosen: list[int]) -> float:
    """The same for singular values at the last save, of whichever way a baseline lists them."""
    first, hidden, third = (np.asarray(part)[chosen, -1] for part in measured)
    last = [run[-1] for run in seen] if isinstance(seen[0][0], list) else seen[-1]
    if isinstance(seen[0][0], list):  # (a): a list of modules per run
        m = first.shape[1]
        found = [
            np.array([run[:m] for run in last]),
            np.array([run[m : m + 1] for run in last]),
            np.array([run[m + 1 :] for run in last]),
        ]
    else:
        found = [last[0], np.asarray(last[1])[:, None], last[2]]
    wanted = (first, hidden, third)
    return max(_relative(np.asarray(f), w) for f, w in zip(found, wanted, strict=True))


def reduced_row(quick: bool) -> list[Row]:
    """N Eq. 10 for M = 100, K = 40: 4,000 paths, 160,000 pairs of paths into one output.

    And for twice as many domains, where there are eight times as many pairs.
    """
    sizes = [(6, 3, (None, None))] if quick else [(100, 40, (20, 100)), (200, 80, (None, None))]
    return [row for m, k, goals in sizes for row in _reduced(m, k, goals, quick)]


def _reduced(m: int, k: int, goals: tuple[float | None, float | None], quick: bool) -> list[Row]:
    import jax.numpy as jnp

    import gdln_jax as gdln
    from benchmarks import measuring
    from benchmarks.scipy_paths import make_paths

    task = gdln.tasks.routing(m, k, compact=True, width=8)
    ts, rtol = np.linspace(0, 20.0, 21), 1e-8
    finding, reduction = measuring.seconds(lambda: gdln.reduce(task.graph, task.data))
    routes, modes = task.meta["routes"], reduction.modes
    strength = np.stack([reduction.strengths[f"x{i}", f"y{j}"] for i, j in routes])
    keys = [(f"x{i}", f"y{j}") for i, j in routes]
    none = np.zeros(modes)
    tabulating, solve_paths = measuring.seconds(
        lambda: make_paths(
            routes, strength,
            lambda j, p: np.asarray(reduction.variances.get((keys[j], keys[p]), none)),
        )
    )  # fmt: skip
    rng = np.random.default_rng(0)
    rows = []
    kinds = "every edge its own start", "equal starts: quotient"
    for kind, goal in zip(kinds, goals, strict=True):
        spread = 0.2 if kind.startswith("every") else 0.0
        start = tuple(
            0.3 * (1 + spread * rng.uniform(-1, 1, size=(count, modes))) for count in (m, 1, m)
        )
        names = [e.name for e in task.graph.edges]
        b0 = dict(zip(names, np.concatenate(start), strict=True))
        if spread:
            data = reduction

            def ours(data=data, b0=b0):
                return data.solve(b0, ts, rtol=rtol, atol=rtol)
        else:
            data = reduction.quotient(b0)

            def ours(data=data):
                return data.solve(ts, rtol=rtol, atol=rtol)

        def pairs(start=start):
            return solve_paths((start[0], start[1][0], start[2]), ts, rtol=rtol, atol=rtol)

        cold, run = measuring.seconds(ours)
        by_edge = run.b if spread else data.expand(run.b)
        found = jnp.stack([by_edge[name] for name in names], axis=1)
        wanted, calls = pairs()
        gap = _relative(np.asarray(found), wanted)
        warm, other = measuring.alternate(ours, pairs, repeats=2 if quick else 3)
        rows.append(
            Row(
                f"reduced dynamics of N Eq. 10, {kind}", f"M {m}, K {k}, {modes} modes, t 20",
                "(c) SciPy solve_ivp over path pairs", cold, warm, other, goal=goal, gap=gap,
                note=f"Without reduce(), {finding:.2g} s, and the baseline's table of pairs, "
                f"{tabulating:.2g} s. The baseline called its slope {calls} times, ours took "
                f"{int(run.stats['num_steps'])} steps; rtol {rtol:g} for both.",
            )
        )  # fmt: skip
    return rows


def image_row(quick: bool) -> list[Row]:
    """N Sec. 5: M = 100, K = 40, 784-128-128-10, batch 8, momentum; one thread each."""
    from benchmarks import measuring, programs

    m, k, pixels, width, steps = (4, 2, 20, 8, 3) if quick else (100, 40, 784, 128, 20)
    rng = np.random.default_rng(1)
    batches = rng.normal(size=(steps, m, 8, pixels)).astype(np.float32)
    labels = rng.integers(10, size=(steps, 8))
    targets = np.repeat(np.eye(10, dtype=np.float32)[labels][:, None], m, axis=1)
    setting = {"width": width, "rate": 1e-3, "momentum": 0.9}
    few = slice(min(steps, 5))  # the scripts' way takes a second a step
    rows = []
    for what, goal, work in (
        ("train_images", 2.0, programs.trainer_steps(m, k, batches, labels, **setting)),
        ("train, any graph", None, programs.image_steps(m, k, batches, targets, **setting)),
    ):
        cold, losses = measuring.seconds(work.run)
        floor = work.traffic / measuring.copy_rate() / steps
        products = work.flops / measuring.product_rate() / steps
        floor_of = (
            f"{work.traffic / steps / 1e6:.3g} MB at {measuring.copy_rate() / 1e9:.3g} GB/s "
            f"({work.flops / steps / 1e9:.2g} GFLOP at {measuring.product_rate() / 1e9:.3g} "
            f"GFLOP/s: {products * 1e3:.2g} ms)"
        )
        for name, theirs, count in _image_baselines(m, k, work.starts[0], batches, targets, few):
            gap = _relative(np.array(theirs()), np.asarray(losses)[:count])
            warm, other = measuring.alternate(work.run, theirs, repeats=5)
            rows.append(
                Row(
                    f"image task, a step of SGD with momentum, {what}",
                    f"M {m}, K {k}, {pixels}-{width}-{width}-10, batch 8, one thread each",
                    name, cold / steps, warm / steps, other / count, goal=goal,
                    floor=max(floor, products), floor_of=floor_of, gap=gap,
                    note=f"Per step; cold: of the first {steps} steps, compilation included.",
                )
            )  # fmt: skip
    return rows


def _image_baselines(
    m: int, k: int, start: dict, batches: np.ndarray, targets: np.ndarray, few: slice
) -> list[tuple[str, Callable[[], list[float]], int]]:
    """Names, functions that take steps, and how many steps they take."""
    import torch

    import gdln_jax as gdln
    from benchmarks.torch_modules import ImageModules, train_images

    torch.set_num_threads(1)
    routes = gdln.tasks.routing(m, k, width=1, compact=True).meta["routes"]
    data = list(zip(torch.tensor(batches), torch.tensor(targets), strict=True))
    found = []
    for name, grouped, given in (
        ("(a) PyTorch modules, a pass per route", False, data[few]),
        ("(a') PyTorch modules, routes grouped by decoder", True, data),
    ):
        model = ImageModules(start, routes, grouped=grouped)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        take = functools.partial(train_images, model, optimizer, given)
        found.append((name, take, len(given)))
    return found


def gradient_row(quick: bool) -> list[Row]:
    """Exact full-batch gradient on 60,000 images, through compress(), against an epoch."""
    import jax
    import torch

    import gdln_jax as gdln
    from benchmarks import measuring, programs
    from benchmarks.torch_modules import ImageModules, full_gradient, train_images

    m, k, pixels, width, count = (3, 2, 20, 8, 300) if quick else (10, 4, 784, 128, 60_000)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, pixels)).astype(np.float32)
    y = np.eye(10, dtype=np.float32)[rng.integers(10, size=count)]
    flat = gdln.GatedData({"x": x}, {"y": y})
    packing, small = measuring.seconds(flat.compress)
    base = np.asarray(small.inputs["x"]), np.asarray(small.targets["y"])
    task = gdln.tasks.routing(m, k, base=base, width=width, compact=True)
    net = gdln.GatedNetwork.init(task.graph, gdln.init.xavier(1.0), key=jax.random.key(0))
    gradient = jax.jit(jax.value_and_grad(gdln.mse))

    def ours():
        return gradient(net, task.data)

    cold, (loss, slope) = measuring.seconds(ours)
    model = ImageModules(net.weights, task.meta["routes"], grouped=True)
    images = torch.tensor(x).expand(m, *x.shape)
    labels = torch.tensor(y).expand(m, *y.shape)

    def exact():
        return full_gradient(model, images, labels, size=500)

    steps = 5 if quick else 40
    batches = [(images[:, 8 * s : 8 * s + 8], labels[:, 8 * s : 8 * s + 8]) for s in range(steps)]
    per_route = ImageModules(net.weights, task.meta["routes"], grouped=False)
    optimizer = torch.optim.SGD(per_route.parameters(), lr=1e-6, momentum=0.9)

    def epoch():
        return train_images(per_route, optimizer, batches)

    total = exact()
    hidden = model.hidden.weight.grad
    assert hidden is not None
    gap = max(
        _relative(np.array(total), np.asarray(loss)),
        _relative(hidden.numpy(), np.asarray(slope.weights["h1->h2"])),
    )
    warm, fast = measuring.alternate(ours, exact, repeats=2)
    warm_again, slow = measuring.alternate(ours, epoch, repeats=2)
    flops = programs.product_flops(task.data)
    shared = {
        "floor": flops / measuring.product_rate(),
        "floor_of": f"{flops / 1e9:.3g} GFLOP at {measuring.product_rate() / 1e9:.3g} GFLOP/s",
        "gap": gap,
    }
    what = "exact full-batch gradient through compress()"
    sizes = f"M {m}, K {k}, {count} images, {pixels}-{width}-{width}-10"
    note = f"compress() itself, once: {packing:.2g} s for {len(base[0])} pseudo-examples."
    epoch_seconds = slow * count / (8 * steps)
    return [
        Row(
            what, sizes, "(a) PyTorch modules, an epoch of batches of 8", cold, warm_again,
            epoch_seconds, goal=200, **shared,
            note=f"{note} {steps} steps of the epoch timed, scaled up.",
        ),
        Row(
            what, sizes, "PyTorch, the same exact gradient in batches of 500", cold, warm, fast,
            **shared, note=note,
        ),
    ]  # fmt: skip


def start_row(quick: bool) -> list[Row]:
    """Import, help, and the first figure, cold and with a warm cache."""
    from benchmarks.start import measure

    return measure(quick)


def width_row(quick: bool) -> list[Row]:
    """The small network behind a chain of 16384 units a layer."""
    from benchmarks.width import measure

    return measure(quick)


def rules_row(quick: bool) -> list[Row]:
    """Discrete training through the quotient: its time does not grow with M."""
    from benchmarks.rules import measure

    return measure(quick)


def ties_row(quick: bool) -> list[Row]:
    """What ties cost in a step, and that networks without them pay nothing."""
    from benchmarks.ties import measure

    return measure(quick)


def predict_row(quick: bool) -> list[Row]:
    """Gates of a ReLU network from its data, in float64 NumPy on one core."""
    from sklearn.datasets import load_digits

    import gdln_jax as gdln
    from benchmarks import measuring

    r = np.random.default_rng(2)
    x, y = r.normal(size=(40, 5)), r.normal(size=(40, 3))
    images, labels = load_digits(return_X_y=True)
    contexts = gdln.tasks.semantic_contexts(3, pathways="none").data
    given = {
        "two stages of C = 3, 60 units": (contexts, 2),
        "two stages of Gaussian targets 40 x 5 -> 3, 60 units": (
            gdln.GatedData({"x": x}, {"y": y}), 2,
        ),
        "one stage of 100 digits, 60 units": (
            gdln.GatedData({"x": images[:100] / 16}, {"y": np.eye(10)[labels[:100]]}), 1,
        ),
    }  # fmt: skip
    rows = []
    for sizes, (data, stages) in given.items():
        units = 10 if quick else 60

        def ours(data=data, stages=stages, units=units):
            return gdln.relu.predict_gates(data, units=units, stages=stages)

        cold, _ = measuring.seconds(ours)
        warm, found = measuring.seconds(ours)
        rows.append(
            Row(
                "gates of a ReLU network from data alone", sizes, "none", cold, warm,
                limit=None if quick else 5.0, note=f"{len(found.times)} stages, {found.stop}.",
            )
        )  # fmt: skip
    return rows


JOBS = {
    "routing": Job(training_row),
    "routing_vmap": Job(training_row, devices=1),
    "initialisation": Job(initialisation_row),
    "initialisation_vmap": Job(initialisation_row, devices=1),
    "reduced": Job(reduced_row, x64=True),
    "image": Job(image_row, cores=1),
    "gradient": Job(gradient_row),
    "width": Job(width_row),
    "start": Job(start_row),
    "rules": Job(rules_row, x64=True),
    "ties": Job(ties_row, cores=1),
    "predict": Job(predict_row, x64=True, cores=1),
}
