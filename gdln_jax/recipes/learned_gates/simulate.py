"""Learned gates: the runs, and the numbers that checks, text and figure use."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, PRNGKeyArray

import gdln_jax as gdln
from gdln_jax import exact, gates, mse
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.learned_gates import Options, problems

DELTAS = np.array([0.4, 0.6, 0.75, 1.0, 1.15, 1.35])
RATES, LEAKS = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0]), np.array([0.0, 0.05])
TIMES = 10.0 * np.linspace(0, 12, 145)  # twelve blocks
# Small steps, so that the gates move together: larger ones commit each by itself, too early.
ADAM, STEPS = optax.adam(0.1), 100
# Routes gain most by going together, and plain gradient descent keeps that direction ahead of all
# others; Adam gives each gate the same step, and 1 start in 24 finds the shared pathway.
DESCENT = optax.sgd(3.0)
# Objective, gates from logits, optimiser, standard deviation and shape of logits.
DIMS = {"routing": ("route", "pathway"), "contexts": ("contextual_pathway", "gated_context")}
PROBLEMS = {
    "routing": (problems.routing_time, jax.nn.softmax, DESCENT, 0.3, (9, 3)),
    "contexts": (problems.context_time, jax.nn.sigmoid, ADAM, 0.5, (3, 3)),
}


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """All problems; the random starts of each are one program."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(o.seed), 6), 4)
    progress(0.0, f"{len(DELTAS)} margins, {o.starts} starts each, and two tasks in blocks")
    logits = 0.6 * jax.random.normal(keys[0], (o.starts, 4))
    variables = margins(logits) | in_blocks(jax.random.split(keys[3], o.seeds))
    for k, name in enumerate(PROBLEMS if o.recovery else ()):
        progress(0.3 + 0.3 * k, f"{name}, {o.starts} starts")
        variables |= recovered(name, keys[1 + k], o.starts)
    if o.recovery:
        subsets = itertools.product((0.0, 1.0), repeat=3)
        family = np.array(list(itertools.combinations_with_replacement(subsets, 3)))
        times = jnp.exp(jax.jit(jax.vmap(problems.context_time))(family))
        variables["learned_family"] = (("family", *DIMS["contexts"]), family, "subsets")
        variables["learned_family_time"] = ("family", times, "time to the level of each family")
    coords: dict[str, object] = {"margin": DELTAS, "gate_rate": RATES, "gate_leak": LEAKS}
    coords["block_time"] = ("block_time", TIMES, {"units": "tau"})
    return labelled("Learned gates", coords, variables)


def margins(logits: Array) -> Variables:
    """What is learned at each margin, and times at pure linear and XoR gates."""
    starts = jnp.concatenate([jnp.full((1, 4), -60.0), jnp.full((1, 4), 60.0), logits])
    how = {"optimizer": ADAM, "steps": STEPS}
    found = [gates.learn(problems.margin_time, starts, args=(float(d),), **how) for d in DELTAS]
    times = np.exp([one.values for one in found])
    # A class pathway that serves one example only is that example's own: with equal a(0) the pair
    # is joined only if both of it are.
    apart = np.stack([one.variables[2:] for one in found])[..., [[1, 2], [0, 3]]].max(axis=-1) > 0
    dims, about = ("margin", "start"), "gating learned: 0 linear, 1 XoR, 0.5 one of each"
    return {
        "learned_gating": (dims, apart.mean(axis=-1), about),
        "learned_margin_time": (dims, times[:, 2:, -1], "time to loss 1/5 with learned gates"),
        "pure_time": (("margin", "gating"), times[:, :2, 0], "with pure linear and XoR gates"),
    }


def recovered(name: str, key: PRNGKeyArray, starts: int) -> Variables:
    """Gates learned for speed from every start."""
    objective, bound, optimizer, std, shape = PROBLEMS[name]
    logits = std * jax.random.normal(key, (starts, *shape))
    found = gates.learn(lambda z: objective(bound(z)), logits, optimizer=optimizer, steps=STEPS)
    dims, times = ("start", *DIMS[name]), jnp.exp(found.values[:, -1])
    return {
        f"learned_{name}": (dims, bound(found.variables), f"gates learned, {name}"),
        f"learned_{name}_start": (dims, bound(logits), f"gates at the start, {name}"),
        f"learned_{name}_time": ("start", times, f"time to the level, {name}"),
    }


def in_blocks(keys: Array) -> Variables:
    """Two linear maps, whose inner product is 0, take turns, by leak, rate and seed."""
    rotation, x = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0], 2 * np.eye(4)
    both = [gdln.GatedData({"x": x}, {"y": x @ (rotation * s).T}) for s in (1, [1, 1, -1, -1])]
    turns = gdln.Schedule(both, times=10.0 * np.arange(1, 12), order=np.arange(12) % 2)
    graph = gdln.Graph(dict.fromkeys("xpqy", 4), [("x", "p"), ("x", "q"), ("p", "y"), ("q", "y")])

    def look(model: gates.LearnedGates) -> dict[str, Array]:
        loss, held = (jnp.stack([f(model, task) for task in both]) for f in (mse, gates.retention))
        return {"loss": loss, "gates": model.gates, "held": held}

    def run(leak: Array, rate: Array, key: PRNGKeyArray) -> dict[str, Array] | None:
        net = gdln.GatedNetwork.init(graph, gdln.init.normal(0.1), key=key)
        model = gates.LearnedGates(net, ["p", "q"], rate=rate, leak=leak)
        how = {"rtol": 1e-5, "atol": 1e-6, "measure": look, "keep_models": False, "throw": False}
        return gdln.gradient_flow(model, turns, TIMES, loss=gates.leaky(mse), **how).measured

    over_rates = jax.vmap(jax.vmap(run, (None, None, 0)), (None, 0, None))
    every = jax.jit(jax.vmap(over_rates, (0, None, None)))(LEAKS, RATES, keys)
    dims = "gate_leak", "gate_rate", "block_seed", "block_time"
    last = {"loss": "task", "gates": "block_pathway", "held": "task"}
    return {f"learned_block_{k}": ((*dims, d), every[k], f"blocks: {k}") for k, d in last.items()}


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    deltas, level, a0 = data["margin"].values, 0.2, problems.MARGIN_A0
    closed = [exact.margin_time(level, deltas, a0, gating=kind) for kind in ("linear", "xor")]
    fastest = data["learned_margin_time"].argmin("start")
    chosen = data["learned_gating"].isel(start=fastest).values
    # Of the first task: the last block is of the second.
    held = data["learned_block_held"].isel(block_time=-1, task=0).values
    kept = np.median(held, axis=-1)
    numbers: Numbers = {
        "crossover": float(exact.margin_crossover(a0, level)),
        "pure": float(np.abs(data["pure_time"].values / np.stack(closed, axis=1) - 1).max()),
        "wrong": int(np.sum(chosen != np.argmin(closed, axis=0))),
    }
    numbers |= {"slow": kept[-1, 0], "fast": kept[-1, -1], "without_leak": kept[0, -1]}
    numbers |= {"chosen": chosen, "held": held}
    if not o.recovery:
        return numbers
    shared = np.any(np.all(data["learned_routing"].values > 0.5, axis=1), axis=-1)
    for name, success in (("routing", shared), ("contexts", doubles(data["learned_contexts"]))):
        times = data[f"learned_{name}_time"].values
        best, failed = int(np.nanargmin(times)), int(np.isnan(times).sum())
        numbers |= {f"{name}_best": best, name: success[best], f"{name}_rate": success.mean()}
        numbers[f"{name}_failed"] = failed
    times = data["learned_family_time"].values
    first, second = np.argsort(times)[:2]
    numbers |= {"families": len(times), "fastest": doubles(data["learned_family"])[first]}
    return numbers | {"second": float(times[second] / times[first] - 1)}


def doubles(on: xr.DataArray) -> np.ndarray:
    """Whether gates (..., pathway, context) are all choices of all contexts but one, each once."""
    off = on.values <= 0.5
    return np.all(off.sum(axis=-2) == 1, axis=-1) & np.all(off.sum(axis=-1) == 1, axis=-1)
