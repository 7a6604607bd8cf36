"""Staircases: the runs, and the numbers that checks, text and figure use (theory#attention)."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

import gdln_jax as gdln
from gdln_jax import tasks
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.ensembles import first_below
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.staircases import Options

# Independent values: aligned recurrence of these strengths (time, mode) from these starts; half
# times of x1 to x4; the plateau of the best single pole.
STRENGTHS = ((0.2, 0.1, 0.05), (0.4, 0.2, 0.2), (0.7, 0.5, 0.3), (1.2, 0.9, 0.6))
START = {"Wx": (0.1, 0.08, 0.06), "Wh": (0.05, 0.04, 0.03), "Wy": (0.09, 0.07, 0.05)}
REFERENCE_LOSSES = (0.91173496033, 0.12287192916, 0.0039727889156, 0.0033021943693)
REFERENCE_TIMES = ((4.58, 4.55, 4.49, 4.29), (7.22, 7.17, 7.06, 6.76))
REFERENCE_TIMES += ((4.18, 4.19, 4.21, 4.24), (2.25, 2.34, 2.48, 2.82))
REFERENCE_POLE = 0.33874667852
# Strengths over time of six sequences with their starts a = c and b.
RISING = (0.3, 0.6, 0.8, 1)
SEQUENCES = {
    "equal": ((1, 1, 1, 1), 0.01, 0.01),
    "rising": (RISING, 1e-3, 0.0),
    "rising, b(0) = 0.5": (RISING, 1e-3, 0.5),
    "rising, b(0) = 1": (RISING, 1e-3, 1.0),
    "late": ((0.25, 0.5, 0.75, 1), 0.01, 0.01),
    "early": ((1, 0.75, 0.5, 0.25), 0.01, 0.01),
}
SPANS = {"recurrence": 120.0, "autoencoder": 30.0, "ssl": 120.0, "poles": 200.0}
TIMES, WIDTH, D, T = 4, 8, 3, np.linspace(0, 1, 2001)
NAMES = ("attention", *SPANS)
QUIET: dict[str, Any] = {"keep_models": False, "progress": False}


def recurrent(strengths: Any) -> tasks.Task:
    """Recurrent network of 4 times, 3 modes and 8 units; one program for all."""
    return tasks.linear_rnn(np.array(strengths, float), width=WIDTH)


def networks() -> dict[str, tuple[tasks.Task, np.ndarray]]:
    """The four tasks, and the loss that each mode takes away, in the order of learning."""
    variances, omega = np.array([1.5, 1.0, 0.4]), np.array([1.0, 0.7, 1.3])
    attention = tasks.linear_attention(variances, context=20, tasks=omega, noise=0.1)
    poles, sizes = np.array([0.7, 0.5, 0.6]), np.array([1.2, 0.6, 0.25])
    geometric = sizes * poles ** np.arange(TIMES)[::-1, None]
    eigenvalues, gamma = np.array([2.0, 1.2, 0.7, 0.3, 0.1]), np.array([2.0, 1.0, 0.5, 0.2, -0.3])
    return {
        "attention": (attention, -np.diff(attention.meta["plateaus"])),
        "recurrence": (recurrent(geometric), np.sum(geometric**2, axis=0) / 2),
        "autoencoder": (tasks.tied_autoencoder(eigenvalues, D), eigenvalues[:D] / 2),
        "ssl": (tasks.linear_ssl(gamma, D), np.full(D, 1 / (2 * D))),
    }


def random_starts(o: Options, progress: Progress) -> Variables:
    """Gradient flow of each network from random weights, on a time axis of its own."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    steps, times = [], {}
    poles = [(0, 0, 0), (1, 0, 0), (0, 0, 0), (0.5, 0, 0)]
    known = networks() | {
        "poles": (recurrent(poles), np.array([0.125, 0.5 - REFERENCE_POLE, REFERENCE_POLE]))
    }
    for k, (name, (task, falls)) in enumerate(known.items()):
        progress(0.3 + 0.12 * k, name)
        scale, times[name] = o.std, SPANS.get(name, 1.0) * T
        if name == "attention":  # drops at times of the order of 1/scale
            scale, times[name] = o.scale, np.append(0, np.geomspace(0.02, 40, len(T) - 1)) / o.scale
        assert isinstance(task.data, gdln.GatedData)
        targets = task.data.targets["y"]
        first = float(np.sum(np.asarray(task.data.weights)[:, None] * targets**2)) / 2
        steps.append(first - np.cumsum([0, *falls]))
        for seed in range(o.seeds):
            start, key = gdln.init.normal(scale), jax.random.key(o.seed + seed)
            net = gdln.GatedNetwork.init(task.graph, start, key=key, frozen=task.meta.get("frozen"))
            if name in ("recurrence", "poles"):
                run = recurrence_run(task, net, times[name])
            else:
                run = gdln.gradient_flow(net, task.data, times[name], **QUIET)
            found[name].append(np.asarray(run.losses))
    losses = np.stack([np.stack(runs) for runs in found.values()])
    return {
        "loss": (("network", "seed", "point"), losses, "loss, random starts"),
        "run_time": (("network", "point"), np.stack([*times.values()]), "times of the runs"),
        "steps": (("network", "plateau"), np.stack(steps), "plateaus by closed form"),
    }


def maps_of(net: gdln.GatedNetwork) -> Array:
    """(time, mode): strength of each input's map to the output, along the modes."""
    wx, wh, wy = (net.parameters[name] for name in ("Wx", "Wh", "Wy"))
    maps = [wx]
    for _ in range(TIMES - 1):
        maps.insert(0, wh @ maps[0])
    return jnp.stack([jnp.diag(wy @ one) for one in maps])


def recurrence_run(task: tasks.Task, net: gdln.GatedNetwork, ts: np.ndarray) -> gdln.Trajectory:
    """Gradient flow of a recurrent network; one program for all."""
    return gdln.gradient_flow(net, task.data, ts, measure=maps_of, **QUIET)


def aligned() -> Variables:
    """Recurrence from aligned starts: losses, and how far each input's map is learned."""

    def run(strengths: Any, a: Any, b: Any, c: Any) -> gdln.Trajectory:
        task, frame = recurrent(strengths), np.eye(WIDTH, D)
        weights = {"Wx": frame * a, "Wh": frame * b @ frame.T, "Wy": (frame * c).T}
        return recurrence_run(task, gdln.GatedNetwork(task.graph, weights), 20 * T)

    maps = []
    for k in (0, D):
        three = [*SEQUENCES.values()][k : k + D]
        s, a, b = zip(*three, strict=True)
        maps.append(run(np.transpose(s), a, b, a).measured)
    maps = np.concatenate(maps, axis=-1)
    shares = maps / maps[-1]
    return {
        "aligned": ("moment", run(STRENGTHS, *START.values()).losses, "loss, aligned start"),
        "maps": (("moment", "input", "sequence"), shares, "share of an input's map"),
    }


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Random starts of four networks and of a target with two poles; aligned recurrence."""
    progress(0.05, "aligned starts")
    variables = aligned() | random_starts(o, progress)
    coords = {"network": list(NAMES), "sequence": list(SEQUENCES), "moment": 20 * T}
    return labelled("Staircases of tied networks", coords, variables)


def flattest(loss: np.ndarray, t: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Loss where it is flattest between two drops, for all plateaus but the first and last."""
    halves = [float(first_below(loss, t, x)) for x in (steps[1:] + steps[:-1]) / 2]
    slope, found = np.abs(np.diff(loss) / np.diff(t)), []
    for start, stop in itertools.pairwise(halves):
        between = np.where((t[:-1] > start) & (t[1:] < stop), slope, np.inf)
        found.append(loss[int(between.argmin())])
    return np.array(found)


def measure(_: Options, data: xr.Dataset) -> Numbers:
    """Distances of plateaus, half times and losses from closed forms and references."""
    v = {str(name): data[name].values for name in data}
    flat = np.stack(
        [
            [flattest(loss, t, steps) for loss in losses]
            for losses, t, steps in zip(v["loss"], v["run_time"], v["steps"], strict=True)
        ]
    )
    off = dict(zip(NAMES, np.abs(flat - v["steps"][:, None, 1:-1]).max(axis=(1, 2)), strict=True))
    half = (v["maps"] > 0.5).argmax(axis=0).T * 20.0 * T[1]
    at = [int(t / 20 / T[1] + 0.5) for t in (2, 4, 8, 16)]
    return {
        "flow": np.abs(v["aligned"][at] - REFERENCE_LOSSES).max(),
        **{name: off[name] for name in NAMES[:4]},
        "levels": off["poles"],
        "times": np.abs(half[: len(REFERENCE_TIMES)] - REFERENCE_TIMES).max(),
        "half": half,
        "late_first": half[0, 0] - half[0, -1],
        "reversed": half[3, -1] - half[3, 0],
        "early": half[5].max() / half[4].max(),
        "two_poles": v["loss"][-1, :, -1].max(),
        "one_pole": REFERENCE_POLE,
    }
