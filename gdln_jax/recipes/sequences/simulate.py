"""Tasks in turn: the runs, and the numbers that checks, text and figure use."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree

import gdln_jax as gdln
from gdln_jax import GatedData, Graph, Reduction, Schedule, control, exact, gates, init, measures
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.sequences import Options

# Independent values, from scipy on the closed forms: d = 1, a(0) = 0.01, level 0.3.
REFERENCE = {"backward": 0.4119291611472249, "forward": -0.12946328254333483}
REFERENCE |= {"t_learn": 2.4251006238, "t_relearn": 0.4031502306, "savings": 0.8337593803}
ENDS, LEVEL = np.array([5.0, 9.0, 14.0]), 0.3
S_A, S_B = np.array([0.6, 1.0]), np.array([1.1, 0.2])
BETAS, DURATION = (0.5, 0.2), 4.0
BLOCK, BLOCKS, LEAK = 10.0, 8, 0.05  # of fast gates; tasks A and B without them last two blocks
WINDOWS = np.array([1.0, 2.0, 4.0])
FIRST = np.diag([1.0, 1, 0, 0])  # task A, for forgetting
EDGES = [("x", "p"), ("x", "q"), ("p", "y"), ("q", "y")]
NETWORKS = ["chain", "XoR"]


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """The sequence, forgetting against overlap, the critical period, and effort."""
    found: Variables = {}
    for k, part in enumerate((sequence, forgetting, critical_period, effort)):
        progress(0.05 + 0.24 * k, part.__name__.replace("_", " "))
        found |= part(o)
    coords = {
        "time": ("time", times(), {"units": "tau"}),
        "task": ["A", "B"],
        "overlap": np.linspace(0, 0.9, o.overlaps),
        "window": WINDOWS,
        "closes": np.linspace(0, 6, o.starts),
        "network": NETWORKS,
        "step": DURATION / o.steps * np.arange(o.steps),
    }
    return labelled("Tasks in turn", coords, found)


def times() -> np.ndarray:
    """Saved times of A, B, A, ends of phases included."""
    return np.union1d(np.linspace(0, ENDS[-1], 71), ENDS)


def white(maps: np.ndarray, rest: float = 0.0) -> GatedData:
    """y = map x for whitened inputs, and a feature whose loss `rest` nothing can change."""
    out, width = maps.shape
    yy = np.zeros((out + 1, out + 1))
    yy[:out, :out], yy[out, out] = maps @ maps.T, 2 * rest
    yx = np.concatenate([maps, np.zeros((1, width))])
    return GatedData.from_moments({"x": width}, {"y": out + 1}, np.eye(width), yx, yy)


def sequence(o: Options) -> Variables:
    """A, B, A: the reduction over the schedule, and the chained closed form."""
    graph, b0, ts = Graph.chain([2, 3, 3]), np.sqrt(o.amplitude), times()
    tasks = [white(np.diag(S_A), 0.1), white(np.diag(S_B), 0.05)]
    schedule = Schedule(tasks, ENDS[:2], [0, 1, 0])
    reduction = gdln.reduce(graph, schedule)
    run = reduction.solve(b0, ts)
    sigmas = [np.diag(s) for s in (S_A, S_B, S_A)]
    start = b0 * np.eye(2)
    maps = exact.two_layer_sequence(ts, start, start, sigmas, ENDS[:2])
    found = measures.forgetting(run, reduction, level=LEVEL)
    a = run.product(["x->h1", "h1->y"])
    return {
        "strength": (("time", "mode"), a, "strengths a, reduction"),
        "closed": (("time", "mode"), np.diagonal(maps, axis1=1, axis2=2), "the same, closed form"),
        "loss_task": (("task", "time"), found.losses, "loss of each task"),
        **{name: ((), getattr(found, name), name) for name in REFERENCE},
    }


def task_b(overlap: Array | float) -> Array:
    """The strengths of task B, whose overlap with A is given."""
    rest = jnp.sqrt(1 - jnp.square(overlap))
    return jnp.stack([overlap, overlap, rest, rest])


def forgetting(o: Options) -> Variables:
    """The share of A that the weights hold after B, under the best gates for A."""
    overlaps = np.linspace(0, 0.9, o.overlaps)
    # Without gates both pathways together are one mode, which starts at twice a(0).
    a = exact.linear_mode(2 * BLOCK, jnp.diag(FIRST), 1.0, 2 * o.amplitude)
    a = exact.linear_mode(2 * BLOCK, jax.vmap(task_b)(jnp.asarray(overlaps)), 1.0, a)
    ungated = (a[:, 0] + a[:, 1]) ** 2 / (2 * jnp.sum(a**2, axis=1))
    fast, slow = fast_gates(o, overlaps).T
    return {
        "ungated": (("overlap",), ungated, "share of A that weights hold after B, no gates"),
        "fast_gates": (("overlap",), fast, "the same, fast gates"),
        "slow_gates": (("overlap",), slow, "the same, slow gates"),
    }


def fast_gates(o: Options, overlaps: np.ndarray) -> Array:
    """(overlap, rate) the same for gates that learn, after blocks of A and B in turn."""
    graph = Graph({"x": 4, "p": 4, "q": 4, "y": 4}, EDGES)
    net = gdln.GatedNetwork.init(graph, init.normal(0.1), key=jax.random.key(0))
    switches, order = BLOCK * np.arange(1, BLOCKS), np.arange(BLOCKS) % 2
    eye = 2 * np.eye(4)

    @jax.jit
    @jax.vmap
    def held(overlap: Array) -> Array:
        maps = FIRST, jnp.diag(task_b(overlap))
        tasks = [GatedData({"x": eye}, {"y": eye @ m}) for m in maps]
        turns = Schedule(tasks, switches, order)

        def at(rate: Array) -> Array:
            model = gates.LearnedGates(net, ["p", "q"], rate=rate, leak=LEAK)
            ends = [0.0, BLOCK * BLOCKS]
            often: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6, "keep_models": False}
            run = gdln.gradient_flow(model, turns, ends, loss=gates.leaky(gdln.mse), **often)
            return gates.retention(run.final, tasks[0])

        return jax.vmap(at)(jnp.array([o.rate, o.rate / 100]))

    return held(jnp.asarray(overlaps))


def critical_period(o: Options) -> Variables:
    """Two pathways to one mode; the gate of the first is closed in a window."""
    graph, one, end = Graph({"x": 1, "p": 1, "q": 1, "y": 1}, EDGES), np.ones((1, 1)), 40.0
    unit = GatedData({"x": one}, {"y": one})
    shut = GatedData({"x": one}, {"y": one}, {"p": np.zeros(1)})
    b0, reduction = o.amplitude**0.5, gdln.reduce(graph, Schedule([unit, shut], [1, 2], [0, 1, 0]))

    def share(switches: np.ndarray) -> Array:
        run = reduction.with_times(switches).solve(b0, [0.0, end])
        a, other = (run.product([f"x->{h}", f"{h}->y"])[-1, 0] for h in "pq")
        return a / (a + other)

    closes = np.linspace(0, 6, o.starts)
    grid = np.stack(np.broadcast_arrays(closes[:, None], closes[:, None] + WINDOWS), axis=-1)
    found = np.array([share(window) for window in grid.reshape(-1, 2)]).reshape(grid.shape[:2])
    half = exact.linear_mode(closes, 1.0, 1.0, 2 * o.amplitude)[:, None] / 2
    other = exact.linear_mode(WINDOWS, 1.0, 1.0, half)
    never = share(end + np.array([1.0, 2.0]))
    return {
        "share": (("closes", "window"), found, "final share of the pathway, reduction"),
        "share_closed": (("closes", "window"), half / (half + other), "the same, closed form"),
        "share_never": ((), never, "the same, never closed"),
    }


def run_with(efforts: Array, dynamics: Reduction, b0: ArrayLike, dt: Array) -> Array:
    """Losses at all steps of Euler's method; those of length 0 change nothing."""

    def step(b: PyTree, given: tuple[Array, Array]) -> tuple[PyTree, Array]:
        g, dt = given
        loss, slope = jax.value_and_grad(dynamics.loss)(b)
        return jax.tree.map(lambda x, s: x - dt * g * s, b, slope), loss

    end, losses = jax.lax.scan(step, dynamics.strengths_of(b0), (efforts, dt))
    return jnp.append(losses, dynamics.loss(end))


def total_cost(
    efforts: Array, dynamics: Reduction, b0: ArrayLike, dt: Array, beta: ArrayLike
) -> Array:
    """J = int [l + (beta/2) g^2] dt."""
    return dt @ (run_with(efforts, dynamics, b0, dt)[:-1] + beta / 2 * efforts**2)


def effort(o: Options) -> Variables:
    """Effort by descent against the law on two networks."""
    chain, xor = gdln.tasks.hierarchy(2, (1, 1), width=2), gdln.tasks.xor(width=1)
    residuals, efforts, ends = [], [], []
    for task, beta in zip((chain, xor), BETAS, strict=True):
        reduction, here = gdln.reduce(task.graph, task.data), []
        for count in (o.steps // 2, o.steps):
            dt = jnp.where(jnp.arange(o.steps) < count, DURATION / count, 0.0)
            given = reduction, 0.4, dt, beta
            run = control.optimise(total_cost, jnp.ones((1, o.steps)), steps=60, args=given)
            g = jnp.where(dt > 0, run.controls[0], 0.0)
            ts, losses = np.append(0, np.cumsum(dt)), run_with(g, reduction, 0.4, dt)
            here += [control.law_residual(ts, g, losses, beta=k * beta) for k in (1, 2)]
        residuals.append(np.reshape(here, (2, 2)))
        efforts.append(g)
        ends.append(np.sqrt(2 / beta * (losses[:-1] - losses[-1])))
    return {
        "residual": (("network", "half", "law"), residuals, "residual of the law of effort"),
        "effort": (("network", "step"), efforts, "effort, by descent"),
        "effort_law": (("network", "step"), ends, "effort by the law, from the losses of the run"),
    }


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v = {name: data[name].values for name in data}
    ratios = v["residual"][:, 0, 0] / v["residual"][:, 1, 0]

    def apart(one: str, other: str) -> float:
        return float(np.abs(v[one] - v[other]).max())

    return {
        "of_the_reference": o.amplitude == 0.01,
        "sequence": apart("strength", "closed"),
        "savings_reference": max(abs(float(v[k]) - x) for k, x in REFERENCE.items()),
        **{name: float(v[name]) for name in REFERENCE},
        "fast": float(v["fast_gates"][0]),
        "slow": float(v["slow_gates"][0]),
        "period": apart("share", "share_closed"),
        "never": float(abs(v["share_never"] - 0.5)),
        "law_low": float(ratios.min()),
        "law_high": float(ratios.max()),
        "wrong": float(v["residual"][:, 1, 1].min()),
        "law": float(v["residual"][:, 1, 0].max()),
    }
