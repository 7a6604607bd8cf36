"""H Fig. 2: the runs, and the numbers that checks, text and figure use."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array

import gdln_jax as gdln
from gdln_jax import exact, relu, rules, tasks
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import labelled
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.margin import Options

# Of tests/reference.json: crossovers at loss 0.2; time to it at step 0.04, mean and sd of 20 seeds.
REFERENCE_CROSSOVER = {1e-8: 0.8584087863, 4e-8: 0.8619133213}
REFERENCE_TIMES = {0.2: (63.48, 0.39), 1.2: (38.48, 0.43)}
GATINGS = ("linear", "xor")
THRESHOLD = 0.1  # share of its largest activity at which a unit is active: below is chance
CLASSES = ((0, 1, 1, 0), (1, 0, 0, 1))  # examples of the task on which linear gates are open
ALIGNED_AT = 0.8  # margin of the aligned gated networks


def initial(o: Options, gating: str) -> float:
    """Expected a(0) of a pathway when both gatings have `width` units in all."""
    units = o.width // (2 if gating == "linear" else 4)
    return gdln.expected_initial(units, (o.variance / o.width) ** 0.5)[0]


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """ReLU networks of all margins and seeds, twice; aligned gated networks; closed forms."""
    deltas, tau = np.array(o.deltas), 1 / o.learning_rate
    times = [exact.margin_time(o.level, deltas, initial(o, g), tau, gating=g) for g in GATINGS]
    # Twice the slowest time to the level leaves nothing to learn.
    epochs = int(np.ceil(2 * np.min(times, axis=0).max() / 10) * 10)
    steps = round(epochs * o.learning_rate / o.flow_rate)
    if steps > 100_000:
        raise OptionError(f"flow_rate {o.flow_rate:g} needs {steps} steps; use a larger one")
    progress(0.05, f"{len(deltas) * o.seeds} networks, {steps} small steps")
    fine = trained(o, o.flow_rate, steps)
    progress(0.5, f"{len(deltas) * o.seeds} networks, {epochs} steps of {o.learning_rate:g}")
    coarse = trained(o, o.learning_rate, epochs)["losses"]
    progress(0.7, "aligned gated networks")
    t, t_step = tau * o.flow_rate * np.arange(steps + 1), np.arange(epochs + 1.0)
    theory = [exact.margin_loss(t, deltas[:, None], initial(o, g), tau, gating=g) for g in GATINGS]
    discrete = [reduced(o, np.append(deltas, ALIGNED_AT), g, epochs) for g in GATINGS]
    maps = [sim.first_below(losses[:-1], t_step, o.level) for losses in discrete]
    aligned = [errors(o, g, d[-1]) for g, d in zip(GATINGS, discrete, strict=True)]
    coords = {"delta": deltas, "epoch": t_step, "seed": np.arange(o.seeds), "gating": list(GATINGS)}
    coords |= {"time": ("time", t, {"units": "epochs of H's step"}), "feature": ["x1", "x2", "x3"]}
    coords |= {"kind": ["linear", "xor", "other"]}
    runs, note = ("delta", "seed"), f"time to loss {o.level:g}, "
    found = [sim.first_below(fine["losses"], t, o.level), sim.first_below(coarse, t_step, o.level)]
    variables = {
        "loss": ((*runs, "time"), fine["losses"], "loss, ReLU, small step"),
        "loss_step": ((*runs, "epoch"), coarse, "loss, ReLU, H's step"),
        "loss_theory": (("gating", "delta", "time"), np.stack(theory), "loss, closed form"),
        "t": (runs, found[0], note + "ReLU, small step"),
        "t_step": (runs, found[1], note + "ReLU, H's step"),
        "t_theory": (("gating", "delta"), np.stack(times), note + "closed form"),
        "t_map": (("gating", "delta"), np.stack(maps), note + "trained reduction"),
        "share": ((*runs, "kind"), shares_of(fine["on"], fine["power"]), "share of output by gate"),
        "direction": (("delta", "unit", "feature"), fine["directions"][:, 0], "input weights"),
        "power": (("delta", "unit"), fine["power"][:, 0], "share of the output, first seed"),
        "aligned": (("gating", "way"), np.array(aligned), "errors of flow and of descent, loss"),
    }
    return labelled("XoR with a margin, H Fig. 2", coords, variables)


def trained(o: Options, rate: float, steps: int) -> dict[str, np.ndarray]:
    """(delta, seed, ...) losses; input weights, gates and power of the units at the end."""
    keys, std = sim.keys(o.seed, o.seeds), (o.variance / o.width) ** 0.5

    def one(_: Array, delta: Array, seed: Array) -> dict[str, Array]:
        task = tasks.margin_xor(delta, gating="none", width=o.width)
        # Not the key of the sweep: networks of different margins share their initial weights.
        net = relu.ReLUNetwork.init(task.graph, std=std, key=keys[seed])
        run = gdln.train(net, task.data, optimizer=optax.sgd(rate), steps=steps, keep_models=False)
        on = relu.activation_patterns(run.final, task.data, threshold=THRESHOLD)
        kept = {"losses": run.losses, "status": run.status, "directions": run.final.weights[0]}
        return kept | {"on": on, "power": relu.unit_power(run.final, task.data)}

    axes = {"delta": np.array(o.deltas), "seed": np.arange(o.seeds)}
    found = gdln.sweep(one, axes, key=jax.random.key(0), progress=False)
    if np.any(found["status"].values):
        at = o.deltas[np.argwhere(found["status"].values)[0][0]]
        raise OptionError(f"training diverged at Delta = {at:g}; use a smaller learning_rate")
    return {str(name): found[name].values for name in found}


def shares_of(on: np.ndarray, power: np.ndarray) -> np.ndarray:
    """(delta, seed, kind): shares of units on for one class, for one example, and of the rest."""
    linear = np.any([np.all(on == np.array(c), axis=-1) for c in CLASSES], axis=0)
    single = on.sum(axis=-1) == 1
    kinds = [linear, single, ~(linear | single)]
    return np.stack([np.sum(power * kind, axis=-1) for kind in kinds], axis=-1)


def reduced(o: Options, deltas: np.ndarray, gating: str, steps: int) -> np.ndarray:
    """Losses (delta, step) of the reduction trained at H's step, all margins in one program."""
    # At Delta = 0 linear gates leave nothing to learn.
    losses, some = np.full((len(deltas), steps + 1), 0.5), (deltas > 0) | (gating == "xor")
    found = [tasks.margin_xor(float(x), gating=gating, width=1) for x in deltas[some]]
    reductions = [gdln.reduce(task.graph, task.data) for task in found]
    stacked = jax.tree.map(lambda *one: jnp.stack(one), *reductions)
    start, rule = np.sqrt(initial(o, gating)), rules.sgd(o.learning_rate)
    trained = eqx.filter_vmap(lambda one: one.train(start, rule=rule, steps=steps).losses)
    losses[some] = trained(stacked)
    return losses


def errors(o: Options, gating: str, discrete: np.ndarray) -> tuple[float, float]:
    """Largest loss errors of an aligned gated network: flow - closed form, descent - `discrete`."""
    tau, steps, a0 = 1 / o.learning_rate, len(discrete) - 1, initial(o, gating)
    task = tasks.margin_xor(ALIGNED_AT, gating=gating, width=o.width // 16)
    net = gdln.reduce(task.graph, task.data).embed(np.sqrt(a0))
    data, ts = gdln.pack(task.graph, task.data), np.linspace(0, steps, 101)
    flow = gdln.gradient_flow(net, data, ts, tau=tau, keep_models=False).losses
    descent = gdln.train(net, data, optimizer=optax.sgd(o.learning_rate), steps=steps).losses
    theory = exact.margin_loss(ts, ALIGNED_AT, a0, tau, gating=gating)
    return float(np.abs(flow - theory).max()), float(np.abs(descent - discrete).max())


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v = {str(name): data[name].values for name in data}
    deltas, middle = data["delta"].values, np.median(v["t"], axis=1)
    fastest, fastest_step = v["t_theory"].min(axis=0), v["t_map"].min(axis=0)
    near = middle / fastest - 1
    late, no_flow = (np.median(v["t_step"], axis=1) / t - 1 for t in (fastest_step, fastest))
    faster = np.argmin(v["t_theory"], axis=0)
    theory = v["loss_theory"][faster, np.arange(len(faster))]
    numbers: Numbers = {f"{g}_flow": v["aligned"][k, 0] for k, g in enumerate(GATINGS)}
    numbers |= {f"{g}_descent": v["aligned"][k, 1] for k, g in enumerate(GATINGS)}
    equal = [float(exact.margin_crossover(a0, 0.2)) - x for a0, x in REFERENCE_CROSSOVER.items()]
    units = float(exact.margin_crossover(initial(o, "linear"), o.level, equal="total_units"))
    setting = (o.width, o.variance, o.learning_rate, o.flow_rate, o.level)
    for name, (delta, (time, sd)) in zip(("low", "high"), REFERENCE_TIMES.items(), strict=True):
        at = np.flatnonzero(np.isclose(deltas, delta))
        known = setting == (128, 4e-8, 0.4, 0.04, 0.2) and len(at) > 0
        error = sd * math.sqrt(math.pi / 2 / o.seeds + 1 / 20)  # of a median and a mean of 20
        numbers[f"{name}_known"] = known
        numbers[name] = float(abs(middle[at[0]] - time) / error) if known else math.nan
    for k, gating in enumerate(GATINGS):
        numbers[f"factor_{gating}"] = factor(o, gating, data.isel(delta=faster == k))
    for name, values in (("near", near), ("late", late), ("no_flow", no_flow)):
        numbers[name] = (values.min(), values.max())
    lead = np.median(v["share"][..., 0] - v["share"][..., 1], axis=1)
    up = np.flatnonzero((lead[:-1] < 0) & (lead[1:] >= 0))[-1:]  # linear gates overtake here
    cross = np.interp(0.0, lead[up[0] :][:2], deltas[up[0] :][:2]) if len(up) else math.nan
    return numbers | {
        "crossover": np.abs(equal).max(),
        "crossover_units": abs(units - math.sqrt(2 / 3)),
        "earliest": near.min(),
        "latest": near.max(),
        "step": late[np.argmax(np.abs(late))],
        "crossing": cross,
        "root": math.sqrt(2 / 3),
        "gaps": sim.gaps(np.median(v["loss"], axis=1), theory, 0.5),
    }


def factor(o: Options, gating: str, here: xr.Dataset) -> float:
    """Median factor of a0 that gives the simulated times; the step's lateness is taken off."""
    if not here.sizes["delta"]:
        return 1.0
    found = [tasks.margin_xor(float(x), gating=gating, width=1) for x in here["delta"]]
    s, t = np.array([float(task.meta["s"]) for task in found]), here["t"].median("seed").values
    late = t * (1 - s * o.flow_rate / 2) - here["t_theory"].sel(gating=gating).values
    return float(np.median(np.exp(-2 * s * late * o.learning_rate)))
