"""N Fig. 3 and H Fig. 2-5: predictions and trained networks, and the numbers that are quoted."""

import re
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from sklearn.datasets import load_digits

from gdln_jax import GatedData, build_gated, discover_gates, imitation_gap, pack, relu, tasks
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.predict import CASES, IMITATED, Options

UNITS, STD = 128, 1e-5  # of networks whose shares of rival gates are compared
MARGINS = (0.80, 0.815, 0.82, 0.83, 0.84, 0.85, 0.86, 0.87, 0.88, 0.9)
STDS = np.array([1e-5, 1e-9, 1e-15, 1e-30, 1e-60, 1e-150])
# Closed forms: T = 1/rate (E15); contexts: modes of the linear network (theory#drop-times).
CLOSED = {"XoR": 2 * np.sqrt(2), "margin 0.5": 4 / np.sqrt(2.25), "margin 1.2": 1 / 0.6}
MODES = {"contexts 3": (0.93420, 2.19089, 2.61861)}
# By an independent implementation, or a closed form where contexts have one.
PLATEAUS = {"XoR": (0.0,), "margin 0.5": (0.0,), "margin 1.2": (0.0,), "contexts 4": (0.70703,)}
PLATEAUS |= {"contexts 3": (0.6875, 0.53125, 0.38542), "contexts 5": (0.71875, 0.58750)}
PLATEAUS |= {"contexts different": (0.6720,), "Gauss 20x3->1 seed 1": (0.7523,)}
PLATEAUS |= {"Gauss 20x3->1 seed 6": (0.8215, 0.6341)}
Shares = Callable[[float], float]
TIES, REPORTED = ("margin 0.8", "Gauss 30x4->2 seed 1"), "contexts 4"


def made(name: str) -> GatedData:
    """Return the data of a task from its name, without gates."""
    kind, _, value = name.partition(" ")
    numbers = [int(x) for x in re.findall(r"\d+", value)]
    if kind == "digits":
        images, labels = (np.asarray(a)[:100] for a in load_digits(return_X_y=True))
        return GatedData({"x": images / 16}, {"y": np.eye(10)[labels]})
    if kind in ("Gauss", "random"):
        n, d, outputs, seed = numbers or (100, 8, 0, 0)
        r = np.random.default_rng(seed)
        x = r.normal(size=(n, d))
        y = r.normal(size=(n, outputs)) if outputs else r.choice([-1.0, 1.0], (n, 1))
        return GatedData({"x": x}, {"y": y})
    if kind == "contexts":
        how = "same" if numbers else "different"
        task = tasks.semantic_contexts(*numbers, pathways="none", structures=how)
    elif kind == "margin":
        task = tasks.margin_xor(float(value), gating="none")
    else:
        task = tasks.xor(gating="none")
    assert isinstance(task.data, GatedData)
    return GatedData(task.data.inputs, task.data.targets)


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Predict and train all tasks; shares of rivals; imitation by gated networks."""
    found = {}
    for k, name in enumerate(o.cases):
        progress(0.6 * k / len(o.cases), f"{name}: prediction and {2 * o.seeds} networks")
        found[name] = drops(o, name)
    progress(0.6, f"shares of rival gates at {len(o.deltas)} margins")
    shares = np.array([rivals(o, delta) for delta in o.deltas]).reshape(-1, o.seeds, 2)
    progress(0.7, f"imitation by gated networks of {len(o.imitated)} tasks")
    gaps = np.reshape([imitation(o, name) for name in o.imitated], (-1, 2, o.seeds))
    variables: Variables = {
        "share": (("delta", "seed", "kind"), shares, "share of units on for one example"),
        "crossing": ("crossing_std", crossings(o), "margin at which both kinds are equal"),
        "gap": (("imitated", "route", "seed"), gaps, "mean loss gap / L(0)"),
    }
    coords = {"std": list(o.stds), "kind": ["predicted", "trained"], "seed": np.arange(o.seeds)}
    coords |= {"delta": list(o.deltas), "crossing_std": STDS, "imitated": list(o.imitated)}
    coords |= {"route": ["clustered", "predicted"], "task": list(o.cases)}
    data = labelled("Gates of ReLU networks from data alone", coords, variables)
    every = xr.concat([one.drop_dims("time") for one in found.values()], "task", join="outer")
    shown = max(o.cases, key=lambda name: CASES[name][2])
    return data.merge(every).assign(loss=found[shown]["loss"]).assign_attrs(shown=shown)


def drops(o: Options, name: str) -> xr.Dataset:
    """Predicted and trained drops of a task, and losses over L(0)."""
    (stages, checked, count), data = CASES[name], made(name)
    units = 60 if name in ("random labels", "digits") else 100
    found = relu.predict_gates(data, stages=stages, units=units)
    size = len(found.times)
    # A little beyond the last drop, so that its plateau can be read.
    end = 1.12 * float(found.times[:count][-1]) * np.log(1 / o.stds[1])
    if (steps := int(np.ceil(end / o.learning_rate))) > 200_000:
        raise OptionError(f"{name} needs {steps} steps; use a larger learning_rate")
    (x,), (y,), keys = data.inputs.values(), data.targets.values(), sim.keys(o.seed, o.seeds)
    widths = [x.shape[1], 100, y.shape[1]]
    one = [relu.ReLUNetwork.init(widths, std=std, key=key) for std in o.stds for key in keys]
    nets = jax.tree.map(lambda *leaves: jnp.stack(leaves), *one)
    run = sim.descend(nets, data, o.learning_rate, steps, max(steps // 4000, 1))
    ts = o.learning_rate * np.asarray(run.ts[0], float)
    crossed = found.crossings(run, ts).reshape(2, o.seeds, size)
    crossed[..., count:] = np.nan
    # A step makes T late by half of it, at XoR's kinks by three quarters.
    late = (0.75 if name == "XoR" else 0.5) * o.learning_rate
    slopes = (crossed[1] - crossed[0]) / np.log(o.stds[0] / o.stds[1]) - late
    losses = np.asarray(run.losses).reshape(2, o.seeds, -1) / found.initial_loss
    # Plateaus are where the loss changes least between drops, and after the last one.
    starts, ends = crossed[1][..., None], np.pad(crossed[1, :, 1:], [(0, 0), (0, 1)])[..., None]
    inside = (ts > starts) & ((ts < ends) | ~(ends > 0))
    slope = np.abs(np.gradient(losses[1], ts, axis=-1))[:, None]
    rests = np.take_along_axis(losses[1], np.where(inside, slope, np.inf).argmin(axis=-1), axis=-1)
    rests = np.where(inside.any(axis=-1), rests, np.nan)
    unit, rows = "T = t/ln(1/std)", ("seed", "stage")
    variables: Variables = {
        "T": ("stage", found.times, f"predicted {unit}"),
        "T_trained": (rows, slopes, f"trained {unit}, corrected for the step"),
        "plateau": ("stage", found.plateaus, "predicted share of L(0)"),
        "plateau_trained": (rows, rests, "trained share of L(0), smaller std"),
        "separated": ("stage", found.separated * 1.0, "1: no rivals of other size"),
        "leaves": ("stage", found.leaves * 1.0, "1: the loss leaves the plateau by itself"),
        "checked": ((), checked, "drops checked"),
        "loss": (("std", "seed", "time"), losses, f"loss / L(0), {name}"),
    }
    coords = {"stage": 1 + np.arange(size), "time": ("time", ts, {"units": "tau"})}
    return labelled(name, coords, variables)


def dormant(delta: float, units: int, seed: int) -> tuple[Shares, relu.ReLUNetwork]:
    """Return the predicted share of gates on for one example, by std, and the units at STD."""
    data, r = made(f"margin {delta}"), np.random.default_rng(seed)
    w, a = r.normal(size=(units, 3)), r.normal(size=(units, 1))
    gates = relu.dormant_flow(data, w=w, a=a, t=60.0).gates(data)
    single, net = gates.patterns.sum(axis=1) == 1, relu.ReLUNetwork([STD * w, STD * a.T])
    return lambda std: float(gates.shares(std, units=UNITS)[single].sum()), net


def rivals(o: Options, delta: float) -> np.ndarray:
    """(seed, 2) shares of units on for one example, predicted and trained, same initial weights."""
    data, found = made(f"margin {delta}"), [dormant(delta, UNITS, seed) for seed in range(o.seeds)]
    nets = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(net for _, net in found))
    end = sim.descend(nets, data, 0.01, 4800, 4800).final  # larger steps cost units at kinks more
    on = jax.vmap(lambda net: relu.activation_patterns(net, data, threshold=0.1))(end)
    power = jax.vmap(lambda net: relu.unit_power(net, data))(end)
    trained = jnp.sum(power * (on.sum(axis=-1) == 1), axis=-1)
    return np.stack([[share(STD) for share, _ in found], trained], axis=-1)


def crossings(o: Options) -> np.ndarray:
    """(std,) margin at which half of the gates are on for one example, interpolated."""
    shares = [dormant(delta, o.crossing_units, 0)[0] for delta in MARGINS]
    leads = [[1 - 2 * share(std) for share in shares] for std in STDS.tolist()]
    return np.array([np.interp(0.0, lead, MARGINS) for lead in leads])


def imitation(o: Options, name: str) -> list[np.ndarray]:
    """Mean loss gaps (seed,) of gated networks from k-means and from predicted gates."""
    data, (k, std, rate, steps) = made(name), IMITATED[name]
    (x,), ((output, y),) = data.inputs.values(), data.targets.items()
    keys, starts = (jax.random.split(jax.random.key(o.seed + n), o.seeds) for n in (0, 1))
    widths, often = [x.shape[1], 200, y.shape[1]], (rate, steps, sim.spacing(steps, 100))
    nets = jax.vmap(lambda key: relu.ReLUNetwork.init(widths, std=std, key=key))(keys)
    threshold, scales = (0.1, "turning") if name == "XoR" else (0.0, "units")
    look, gaps = partial(relu.snapshot, data=data, threshold=threshold), []
    run = sim.descend(nets, data, *often, measure=look)
    found = relu.predict_gates(data, std=std, units=200, stages=3)
    for shots in (run.measured, found.snapshots_until(steps * rate / np.log(1 / std))):
        modules = discover_gates(shots, k=k)
        graph, gated, start = build_gated(modules, data, std=std, key=starts, scales=scales)
        packed, answer = pack(graph, gated), lambda net, gated=gated: net(gated)[output]
        other = sim.descend(start, packed, *often, measure=answer)
        gaps.append(imitation_gap(run, other).mean_loss)
    return gaps


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    names = ["T", "T_trained", "plateau", "plateau_trained", "separated", "leaves"]
    medians = data[names].median("seed", skipna=False)
    t, slopes, flat, rests, separated, leaves = (medians[name].values for name in names)
    late, apart = abs(slopes / t - 1), abs(rests - flat)
    order, row = np.arange(t.shape[1]), {n: k for k, n in enumerate(o.cases)}
    some = order < data["checked"].values[:, None]
    sd = data["T_trained"].std("seed", ddof=1).values if o.seeds > 1 else np.full_like(t, np.inf)
    beyond = np.maximum(late - 0.012, 0) / (np.sqrt(np.pi / 2 / o.seeds) * sd / t)
    clustered, predicted = data["gap"].values.mean(axis=2).T
    held, share = np.array(o.imitated) != REPORTED, data["share"].values
    first, last = data["crossing"].values[[0, -1]]
    found = {
        "closed": [abs(t[row[n], 0] - x) for n, x in CLOSED.items() if n in row],
        "modes": [abs(t[row[n], :3] - x).max() for n, x in MODES.items() if n in row],
        "plateaus": [
            abs(flat[row[n], : len(x)] - x).max() for n, x in PLATEAUS.items() if n in row
        ],
        "first": late[some & (order < 2)],
        "third": beyond[some & (order == 2)],
        "trained": apart[some & (leaves == 0)],
        "left": apart[some & (leaves == 1)],
        "unnoticed": [not (separated[row[n]] == 0).any() for n in TIES if n in row],
        "rivals": abs(share[..., 0] - share[..., 1]).ravel(),
        "crossing": [abs(first - 0.8682) / (0.01 * np.sqrt(1500 / o.crossing_units))],
        "limit": [abs(last - np.sqrt(2 / 3))],
        "imitation": np.maximum(predicted - 1.3 * clustered, 0)[held],
    }
    numbers: Numbers = {name: float(np.max(x, initial=0)) for name, x in found.items()}
    numbers |= {f"has_{name}": len(x) > 0 for name, x in found.items()}
    ratios = (predicted / clustered)[held]
    numbers |= {"least": ratios.min(initial=np.inf), "most": ratios.max(initial=0.0)}
    numbers |= {"tasks": int(some[:, 0].sum()), "first_crossing": first, "last_crossing": last}
    numbers["shown"] = data.attrs["shown"]
    frames = medians.to_dataframe().dropna(subset="T"), data["gap"].mean("seed").to_pandas()
    for name, frame in zip(("table", "gaps"), frames, strict=True):
        head, *rows = frame.to_csv(sep="|", float_format="{:.5g}".format, na_rep="–").splitlines()
        numbers[name] = "\n".join([head, "|".join("---" for _ in head.split("|")), *rows, ""])
    return numbers
