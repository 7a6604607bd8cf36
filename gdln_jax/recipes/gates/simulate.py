"""H Fig. 8-9: the runs, and the numbers that checks, text and figure use."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from gdln_jax import Trajectory, pack, relu, tasks
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.gates import REFERENCE_GAP, SETTINGS, SHOWN, Options
from gdln_jax.relu import GateChoice, ImitationGap

KS = (1, 2, 3, 4, 5, 6)
# By context: on in all of them, and in all but one.
FOUR = frozenset({(1, 1, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1)})


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Train the ReLU networks, find gates run by run, choose k, and train the gated networks."""
    task = tasks.semantic_contexts(3, structures="different", pathways="none", width=o.relu_width)
    progress(0.0, f"{o.seeds} ReLU networks, {o.steps} steps")
    trained = relu_networks(o, task)
    progress(0.3, "k-means, run by run")
    runs = [jax.tree.map(lambda a, s=s: a[s], trained.measured) for s in range(o.seeds)]
    gates = [
        [relu.discover_gates(run, k=4, **how).by_group(task.meta["context"]) for run in runs]
        for how in SETTINGS.values()
    ]
    few = jax.tree.map(lambda a: a[: o.elbow_seeds], trained)
    progress(0.4, f"gated networks with {KS[0]} to {KS[-1]} modules, {o.elbow_seeds} seeds")
    choice, gap = gated_networks(o, task, few)
    coords = {
        "time": ("time", o.learning_rate * np.asarray(trained.ts[0], float), {"units": "tau"}),
        "k": choice.ks,
        "example": np.arange(len(task.meta["item"])),
        "context": ("example", task.meta["context"] + 1),
        "setting": list(SETTINGS),
    }
    dims = ("setting", "seed", "module_4", "group")
    variables = {"gates": (dims, gates, "gates by context, of each run alone")}
    energy = np.mean(np.asarray(few.measured.output, float) ** 2)
    variables |= {"mean_square": ((), energy, "mean square of the ReLU networks' outputs")}
    return labelled("Finding gates, H Fig. 8-9", coords, variables | described(choice, gap))


def rate(o: Options, task: tasks.Task) -> float:
    """Learning rate of the mean loss."""
    return o.learning_rate * task.meta["loss_scale"]


def every(o: Options) -> int:
    """Steps between records."""
    return max(1, o.steps // o.snapshots)


def relu_networks(o: Options, task: tasks.Task) -> Trajectory:
    """All ReLU networks by gradient descent in float32, with snapshots of their units."""
    data = sim.as_type(task.data, jnp.float32)
    nets = jax.vmap(lambda key: relu.ReLUNetwork.init(task.graph, std=o.std, key=key))(
        sim.keys(o.seed, o.seeds)
    )
    return sim.descend(
        sim.as_type(nets, jnp.float32),
        data,
        rate(o, task),
        o.steps,
        every(o),
        measure=lambda net: relu.snapshot(net, data),
        what="ReLU network",
    )


def gated_networks(
    o: Options, task: tasks.Task, few: Trajectory
) -> tuple[GateChoice, ImitationGap]:
    """The number of modules, and how far the gated network of four is from ReLU networks."""
    data = sim.as_type(task.data, jnp.float32)
    keys = sim.keys(o.seed, o.elbow_seeds)
    how = {"learning_rate": rate(o, task), "std": o.std, "key": jax.random.fold_in(keys[0], 1)}
    choice = relu.choose_k(few, data, ks=KS, **how)
    four = choice.modules[list(choice.ks).index(4)]
    graph, gated, start = relu.build_gated(four, data, std=o.std, key=keys)
    packed, start = sim.as_type(pack(graph, gated), jnp.float32), sim.as_type(start, jnp.float32)
    follower = sim.descend(
        start, packed, rate(o, task), o.steps, every(o), measure=lambda net: net(packed)["y"]
    )
    return choice, relu.imitation_gap(few, follower)


def described(choice: GateChoice, gap: ImitationGap) -> Variables:
    """Modules by number, gaps of outputs and losses, and those of two ReLU networks."""
    variables: Variables = {}
    for k in SHOWN:
        modules = choice.modules[list(choice.ks).index(k)]
        dims, units = (f"module_{k}", "example"), f"k = {k}, compared runs together"
        variables[f"centroids_{k}"] = (dims, modules.centroids, f"share of units on, {units}")
        variables[f"shares_{k}"] = (dims[:1], modules.shares, f"share of power, {units}")
    over_time = "elbow_seed", "time"
    return variables | {
        "gap": (("k", "elbow_seed"), choice.gap, "output gap / mean square, gated networks"),
        "spread": ((), choice.spread, "the same of two ReLU networks"),
        "stability": ("k", choice.stability, "adjusted Rand index of two halves of the units"),
        "k_chosen": ((), choice.k or 0, "number of modules chosen; 0: none"),
        "reason": ((), choice.reason, "why this number"),
        "loss_gap": (over_time, gap.loss, "|loss of the gated - of the ReLU network| / L(0)"),
        "output_gap": (over_time, gap.output, "output gap over time / mean square"),
        "late": ("elbow_seed", gap.late, "relative loss gap, mean of the second half"),
        "loss_spread": ("time", gap.loss_spread, "loss gap of two ReLU networks"),
        "output_spread": ("time", gap.output_spread, "output gap of two ReLU networks"),
        "late_spread": ((), gap.late_spread, "late loss gap of two ReLU networks"),
    }


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    runs = data["gates"].values.tolist()
    found = [sum(frozenset(map(tuple, run)) == FOUR for run in setting) for setting in runs]
    together = data["centroids_4"].groupby("context").mean() > 0.5
    chosen = frozenset(map(tuple, together.transpose("module_4", "context").values.tolist()))
    squares = data["gap"].mean("elbow_seed") * data["mean_square"]
    numbers: Numbers = {f"square_{k}": float(squares.sel(k=k)) for k in data["k"].values}
    for k, value in REFERENCE_GAP.items():
        numbers[f"reference_{k}"] = abs(numbers[f"square_{k}"] / value - 1)
    loss, output = data["loss_gap"], data["output_gap"].mean("time")
    return numbers | {
        "of_the_paper": (o.relu_width, o.std) == (700, 7.142857e-6),
        "found": found,
        "missed": o.seeds - found[-1],
        "plain": found[0] / o.seeds,
        "together": len(chosen & FOUR),
        "chosen": int(data["k_chosen"]),
        "reason": data["reason"].item(),
        "ratio": numbers["square_4"] / numbers["square_1"],
        "squares": listed(1e3 * squares, "e-3"),
        "stable": listed(data["stability"]),
        "mean_loss": float(loss.mean()),
        "max_loss": float(loss.max("time").mean()),
        "late": float(data["late"].mean()),
        "loss_spread": float(data["loss_spread"].mean()),
        "late_spread": float(data["late_spread"]),
        "mean_output": float(output.mean()),
        "in_spreads": float(output.mean() / data["output_spread"].mean()),
    }


def listed(values: xr.DataArray, unit: str = "") -> str:
    """Numbers by number of modules, as text."""
    return ", ".join(f"{k}: {value:.2f}{unit}" for k, value in values.to_series().items())
