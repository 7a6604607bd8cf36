"""Attention: the runs, and the numbers that checks, text and figure use (theory#attention)."""

import itertools
from typing import Any

import numpy as np
import optax
import xarray as xr
from scipy.integrate import solve_ivp

import gdln_jax as gdln
from gdln_jax import exact, rules, tasks
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.ensembles import first_below
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.attention import Options

# Independent values: the end of the race from (0.10, 0.09); limits from seed 0, 3 heads.
REFERENCE_ENDS, REFERENCE_LIMITS = (0.79747138448, 0.42281964373), (0.6190376, 5.29329, 18.46118)
LAM, OMEGA, D = np.array([1.5, 1.0, 0.4]), np.array([1.0, 0.7, 1.3]), 3
NOISES, SPAN = (0.0, 0.1, 1.0), 60.0
QUIET: dict[str, Any] = {"keep_models": False, "progress": False}


def make(o: Options, context: int, noise: float) -> tasks.Task:
    """The task: heads on components 1, 2, 3, and at least one more on component 1."""
    assign = [*range(D), *[0] * (max(*o.heads, D + 1) - D)]
    more = {"context": context, "tasks": OMEGA, "noise": noise, "assign": assign}
    return tasks.linear_attention(LAM, len(assign), **more)


def drawn(o: Options, heads: int, seed: int) -> np.ndarray:
    """Value, key and query of every head, (head, 1 + 2 D), of unit variance."""
    draw = np.random.default_rng(o.seed + seed).standard_normal
    return np.column_stack([draw(heads), draw((heads, D)), draw((heads, D))])


def network(task: tasks.Task, x: np.ndarray) -> gdln.GatedNetwork:
    """The network of heads x (head, 1 + 2 D); further heads are 0 and stay so."""
    x = np.pad(x, ((0, len(task.meta["assign"]) - len(x)), (0, 0)))
    weights = {}
    for h, (v, *key) in enumerate(x[:, : D + 1]):
        weights |= {f"q{h}": x[h : h + 1, D + 1 :], f"v{h}": np.full((1, 1), v)}
        weights |= {f"k{h}_{i}": np.full((1, 1), k) for i, k in enumerate(key)}
    return gdln.GatedNetwork(task.graph, weights)


def limits(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Limits of scale x time of the drops as the scale tends to 0: (time, head, component) each.

    Without saturation a head obeys v' = k.Sq, k' = v Sq, q' = v Sk, and diverges along the
    component that it takes. That head and that component are removed; the others continue from
    where they are. In time stretched by the size of the weights nothing diverges.
    """
    s, free, t, shape, found = s.copy(), np.ones((len(x), 1)), 0.0, x.shape, []

    def velocity(_: float, z: np.ndarray) -> np.ndarray:
        x = z[1:].reshape(shape)
        v, k, q = x[:, :1], x[:, 1 : D + 1], x[:, D + 1 :]
        moved = free * np.hstack([np.sum(k * s * q, axis=1, keepdims=True), v * s * q, v * s * k])
        return np.concatenate([[1.0], moved.ravel()]) / np.linalg.norm(free * x)

    def large(_: float, z: np.ndarray) -> float:
        return float(np.abs(free[:, 0] * z[1:].reshape(shape)[:, 0]).max() - 1e7)

    large.terminal = True  # type: ignore[attr-defined]
    for _ in range(D):
        z = np.concatenate([[t], x.ravel()])
        run = solve_ivp(velocity, (0, 1e4), z, "DOP853", events=large, rtol=1e-10, atol=1e-12)
        t, x = run.y[0, -1], run.y[1:, -1].reshape(shape)
        h = int(np.argmax(np.abs(free[:, 0] * x[:, 0])))
        m = int(np.argmax(np.abs(x[h, 1 : D + 1])))
        found.append((t + 1 / (s[m] * abs(x[h, 0])), h, m))
        free[h], s[m] = 0.0, 0.0
    return np.array(found)


def aligned(o: Options, task: tasks.Task) -> Variables:
    """A head on each component, and two heads on component 1: full network and reduction."""
    reduction = gdln.reduce(task.graph, task.data, **task.meta["reduce"])
    ts, runs = np.linspace(0, SPAN, o.points), []
    for first in ({0: 0.10, 1: 0.09, 2: 0.08}, {0: 0.10, D: 0.09}):
        b0 = {p: first.get(int(p[1:].partition("_")[0]), 0.0) for p in task.graph.parameters}
        small = reduction.solve(b0, ts, progress=False)
        full = gdln.gradient_flow(reduction.embed(b0), task.data, ts, **QUIET)
        pair = np.stack([small.b["v0"][:, 0], small.b[f"v{D}"][:, 0]])
        runs.append((small.losses, full.losses, pair))
    small, full, (_, pair) = zip(*runs, strict=True)
    return {
        "aligned_reduced": (("start", "moment"), np.stack(small), "loss, reduction"),
        "aligned_full": (("start", "moment"), np.stack(full), "loss, full network"),
        "pair": (("racer", "moment"), pair, "strengths of two heads on component 1"),
    }


def random_starts(o: Options, task: tasks.Task, progress: Progress) -> Variables:
    """Flows at every scale, number of heads and seed, and limits of their times."""
    starts = [drawn(o, heads, seed) for heads in o.heads for seed in range(o.seeds)]
    known = np.stack([limits(x, task.meta["strengths"]) for x in starts])
    falls = (task.meta["strengths"] ** 2 / task.meta["variances"] / 2)[known[..., 2].astype(int)]
    plateaus = task.meta["plateaus"][0] - np.pad(np.cumsum(falls, axis=1), ((0, 0), (1, 0)))
    shape = len(o.scales), len(starts), o.points
    loss, times, keys = np.empty(shape), np.empty(shape), np.zeros((*shape[:2], max(o.heads), D))
    for j, n in np.ndindex(shape[:2]):
        progress(0.4 + 0.5 * (j + n / len(starts)) / len(o.scales), f"scale {o.scales[j]:g}")
        times[j, n] = [0, *np.geomspace(0.02, 1.3 * known[n, -1, 0] + 4, o.points - 1)]
        net, ts = network(task, o.scales[j] * starts[n]), times[j, n] / o.scales[j]
        run = gdln.gradient_flow(net, task.data, ts, **QUIET)
        loss[j, n] = run.losses
        for h, i in np.ndindex(keys.shape[2:]):
            keys[j, n, h, i] = run.final.parameters[f"k{h}_{i}"][0, 0]
    return {
        "loss": (("scale", "run", "point"), loss, "loss, random starts"),
        "scaled_time": (("scale", "run", "point"), times, "scale x time"),
        "keys": (("scale", "run", "head", "component"), keys, "keys at the end"),
        "known": (("run", "drop", "what"), known, "limit of scale x time, head and component"),
        "plateaus": (("run", "plateau"), plateaus, "plateaus in the order of the drops"),
    }


def other_rules(o: Options, task: tasks.Task) -> Variables:
    """Merged key and query, white and not; Muon from the starts of the last scale."""
    t, draw, a0 = np.linspace(0, SPAN, o.points), np.random.default_rng(o.seed), 2.5e-3
    one = [np.outer(np.eye(D)[0], np.eye(D)) * np.sqrt(a0 / D), np.sqrt(a0) * np.eye(1, D)]
    random = [1e-3 * draw.standard_normal(shape) for shape in ((D, D * D), (1, D))]
    losses, muon, how = [], [], {"context": o.context, "noise": o.noise, "merged": True}
    for lam, omega, (key, value) in ((0 * LAM + 1, 0 * LAM + 1, one), (LAM, OMEGA, random)):
        other = tasks.linear_attention(lam, D, tasks=omega, **how)
        net = gdln.GatedNetwork(other.graph, {"z->c": key, "c->y": value})
        losses.append(gdln.gradient_flow(net, other.data, t, **QUIET).losses)
    rule = rules.muon(optax.linear_schedule(0.01, 0.0, 1500), method="polar", momentum=0.0)
    often = {"optimizer": rule, "steps": 1500, "save_every": 3, **QUIET}
    for seed in range(o.seeds):
        net = network(task, o.scales[-1] * drawn(o, o.heads[0], seed))
        muon.append(gdln.train(net, task.data, **often).losses)
    theory = exact.attention_merged(t, 1.0, D, o.context, a0, noise=o.noise)
    return {
        "merged_loss": (("inputs", "moment"), np.stack(losses), "loss, merged, gradient flow"),
        "merged_theory": ("moment", theory, "loss, merged, white inputs, closed form"),
        "muon_loss": (("seed", "record"), np.stack(muon), "loss, Muon with the polar factor"),
    }


def contexts(o: Options) -> Variables:
    """Loss at the end of training for several context lengths and label noises."""
    ends, theory = (np.empty((len(NOISES), len(o.contexts))) for _ in range(2))
    ts, start = np.linspace(0, 10 * SPAN, o.points), 0.1 * drawn(o, max(o.heads), 0)
    for at in np.ndindex(ends.shape):
        task = make(o, o.contexts[at[1]], NOISES[at[0]])
        ends[at] = gdln.gradient_flow(network(task, start), task.data, ts, **QUIET).losses[-1]
        theory[at] = task.meta["plateaus"][-1]
    return {
        "final_loss": (("noises", "length"), ends, "loss at the end"),
        "final_theory": (("noises", "length"), theory, "the same by closed form"),
    }


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Aligned starts, random starts, merged heads and Muon, context lengths."""
    progress(0.05, "aligned starts, merged heads, Muon, context lengths")
    task = make(o, o.context, o.noise)
    variables = aligned(o, task) | other_rules(o, task) | contexts(o)
    variables |= random_starts(o, task, progress)
    coords = {"scale": list(o.scales), "noises": list(NOISES), "length": list(o.contexts)}
    coords |= {"moment": np.linspace(0, SPAN, o.points), "inputs": ["white", "coloured"]}
    return labelled("In-context regression by linear attention", coords, variables)


def read(v: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Scale x time of half of each drop, and error of the flattest loss after all but the last.

    (scale, run, drop) each, drops in the order predicted.
    """
    shape = (*v["loss"].shape[:2], D)
    found, flat = np.empty(shape), np.zeros(shape)
    for j, n in np.ndindex(shape[:2]):
        t, loss, steps = v["scaled_time"][j, n], v["loss"][j, n], v["plateaus"][n]
        found[j, n] = [first_below(loss, t, x) for x in (steps[1:] + steps[:-1]) / 2]
        slope = np.abs(np.diff(loss) / np.diff(t))
        for m, (start, stop) in enumerate(itertools.pairwise(found[j, n])):
            between = np.where((t[:-1] > start) & (t[1:] < stop), slope, np.inf)
            flat[j, n, m] = abs(loss[int(between.argmin())] - steps[m + 1])
    return found, flat


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """Distances from reduction and closed forms, and times and plateaus of random starts."""
    v, scales = {str(name): data[name].values for name in data}, np.array(o.scales)
    found, flat = read(v)
    limit, head, component = np.moveaxis(v["known"], -1, 0)
    apart = 1 / v["pair"][1] - 1 / v["pair"][0]
    times = np.abs(found / limit - 1).max(axis=(1, 2))
    taken = np.abs(v["keys"][-1]).argmax(-1)
    won = np.take_along_axis(taken, head.astype(int), 1) == component
    steps, first = np.arange(v["muon_loss"].shape[1]), v["plateaus"][0]
    muon = [first_below(v["muon_loss"], steps, (first[m] + first[m + 1]) / 2) for m in (0, D - 1)]
    return {
        "of_the_reference": (o.context, o.noise, o.heads[0], o.seed) == (20, 0.1, 3, 0),
        "reduced": np.abs(v["aligned_full"] - v["aligned_reduced"]).max() / first[0],
        "difference": np.abs(apart - apart[0]).max(),
        "ends": np.abs(v["pair"][:, -1] - REFERENCE_ENDS).max(),
        "raced": v["pair"][:, -1],
        "limits": np.abs(limit[0] / REFERENCE_LIMITS - 1).max(),
        "limit": limit[0],
        "plateaus": (flat.max(axis=(1, 2)) / np.where(scales > 0.01, 2, 1)).max(),
        "times": (times / scales).max(),
        "late": times[-1],
        "winners": won.mean(),
        "merged": np.abs(v["merged_loss"][0] - v["merged_theory"]).max(),
        "same_end": abs(v["merged_loss"][1, -1] - first[-1]),
        "context_gap": np.abs(v["final_loss"] - v["final_theory"]).max(),
        "spread": (found[-1, : o.seeds, -1] / found[-1, : o.seeds, 0]).min(),
        "muon": np.max(muon[1] / muon[0]),
        "smallest": o.scales[-1],
    }
