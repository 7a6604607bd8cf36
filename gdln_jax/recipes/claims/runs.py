"""Trained networks: races of views by gradient flow, descent with momentum, ReLU networks."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy import ndarray

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, Graph, relu, tasks
from gdln_jax.race import LotkaVolterra, Pathways
from gdln_jax.recipes._core.labelled import Variables
from gdln_jax.recipes.claims import Options

CLASSES, VIEWS, EQUAL, UNEQUAL = 4, 3, (1.0, 1.0, 1.0), (1.0, 0.9, 0.8)
# Strengths and presence of the views, labels, and the gain of Xavier weights (None: aligned).
SETUPS: dict[str, tuple[tuple[float, ...], float, float | str | None, float | None]] = {
    "aligned": (UNEQUAL, 1.0, None, None),
    "aligned, equal": (EQUAL, 1.0, None, None),
    "equal": (EQUAL, 1.0, None, 0.1),
    "unequal": (UNEQUAL, 1.0, None, 0.1),
    "unequal, small": (UNEQUAL, 1.0, None, 0.01),
    "smooth": (UNEQUAL, 1.0, 0.3, 0.01),
    "teacher": (UNEQUAL, 1.0, "views", 0.01),
    "p = 0.8": (EQUAL, 0.8, None, 0.1),
    "p = 0.5": (EQUAL, 0.5, None, 0.1),
    "teacher, p = 0.8": (EQUAL, 0.8, "views", 0.1),
    "aligned, p = 0.8": (UNEQUAL, 0.8, None, None),
}
PAIR, START = np.array([1.0, 0.8]), 0.1  # views trained with momentum; their initial layers


def stack(*trees: PyTree) -> PyTree:
    """One tree of arrays with a leading axis."""
    return jax.tree.map(lambda *a: jnp.stack(a), *trees)


def aligned(graph: Graph, u0: ndarray) -> GatedNetwork:
    """Networks (run, ...) whose pathway m has layers u0[:, m] times the identity."""
    which = {edge: m for m, path in enumerate(graph.paths()) for edge in path}
    weights = {e: u0[:, m, None, None] * np.eye(*graph.shape(e)) for e, m in which.items()}
    return jax.vmap(lambda w: GatedNetwork(graph, w))(weights)


def race(o: Options, tag: str, depth: int, names: list[str], ts: ndarray) -> Variables:
    """Gradient flow of all seeds of some set-ups, one program, and the laws of aligned ones."""
    loss, setups = gdln.cross_entropy if tag == "entropy" else gdln.mse, [SETUPS[x] for x in names]
    # Just below 1 all combinations of views are listed, at probability 1e-16: arrays of one shape.
    most = 1.0 if all(one[1] == 1 for one in setups) else 1 - 1e-16
    u0 = 0.1 * np.exp(0.2 * np.random.default_rng(o.seed).normal(size=(o.seeds, VIEWS)))
    keys = jax.random.split(jax.random.key(o.seed), o.seeds)
    nets, data, laws = [], [], []
    for strengths, presence, labels, gain in setups:
        shown = {"strengths": strengths, "presence": min(presence, most), "soft_labels": labels}
        task = tasks.multiview(CLASSES, VIEWS, **shown, hidden_layers=depth - 1)
        data += [task.data] * o.seeds
        laws.append(np.full((2, o.seeds, len(ts), VIEWS), np.nan))
        if gain is None and tag != "entropy":
            laws[-1] = law(task, np.array(strengths), u0**depth, depth, ts)
        start = partial(GatedNetwork.init, task.graph, gdln.init.xavier(gain or 1.0))
        random = jax.vmap(lambda key, start=start: start(key=key))
        nets.append(aligned(task.graph, u0) if gain is None else random(keys))
    how = {"measure": gdln.measures.input_output_maps, "keep_models": False, "rtol": 1e-8}
    flow = jax.vmap(partial(gdln.gradient_flow, ts=ts, loss=loss, **how))
    joined = jax.tree.map(lambda *a: jnp.concatenate(a), *nets)
    run = eqx.filter_jit(flow)(joined, stack(*data))
    maps = np.reshape(run.measured, (len(setups), o.seeds, len(ts), VIEWS, CLASSES, CLASSES))
    strength = np.array([one[0] for one in setups])[:, None, None]
    # Of logits only differences between classes count.
    outputs = maps - maps.mean(axis=-2, keepdims=True) if tag == "entropy" else maps
    shares = np.einsum("istvkk->isktv", outputs) * strength[:, None]
    start = np.linalg.norm(maps[:, :, 0], axis=-2).swapaxes(-1, -2) * strength
    setup, time = f"setup_{tag}", f"time_{tag}"
    dims, curves = (setup, "seed", "class", "view"), (setup, "seed", time, "view")
    return {
        setup: (setup, names, "set-up of networks"),
        time: (time, ts, "time in tau"),
        f"share_{tag}": (dims, shares[:, :, :, -1], "final share of the output of a class"),
        f"course_{tag}": (curves[1:], shares[0, :, 0], "share of the first class, aligned start"),
        f"shares_{tag}": ((*dims[:3], time, "view"), shares, "share of the output of a class"),
        f"start_{tag}": (dims, start, "R's sigma s(0), up to scale: s(0) is the norm of the map"),
        f"laws_{tag}": (("law", *curves), np.stack(laws, 1), "share by both laws; NaN if random"),
    }


def law(task: tasks.Task, strengths: ndarray, a0: ndarray, depth: int, ts: ndarray) -> ndarray:
    """Shares (2, start, time, view): law of the pathways; R's equation, s_max by least squares."""
    s, d = task.meta["s"], task.meta["d"]
    capacity, model = s @ d @ s / np.sum(s**2) ** 2, Pathways(s, d, depth)
    equation, s0 = LotkaVolterra(s, capacity**-0.25), np.sqrt(np.sqrt(capacity) * s * a0)
    a = jax.vmap(lambda start: model.solve(start, ts))(jnp.asarray(a0))
    strength = jax.vmap(lambda start: equation.solve(start, ts))(jnp.asarray(s0))
    return np.stack([a * strengths, strength**2 * np.sqrt(capacity)])


def momentum(o: Options) -> Variables:
    """Final s_2/s_1 by heavy-ball descent over that of the flow; with batches of one class of 4.

    Descent with a flow time h per step follows the flow of L + kappa |grad L|^2/4, kappa = h
    (1 + beta)/(1 - beta) (Barrett and Dherin 2021; Ghosh et al. 2023): ln u_m = r_m T - kappa r_m^2
    W/2 to first order on R's clock T, with W the integral of 1 - sum s^2 over T.
    """
    betas, steps = np.array([0.0, 0.5, 0.9, 0.99]), np.geomspace(0.3, o.smallest_step, 8)
    few, same = np.array([0.6, 0.2, 0.06, 0.02]), np.full((o.seeds, 2), START)
    u0 = same * np.exp(0.1 * np.random.default_rng(o.seed).normal(size=same.shape))
    ratio, batches = descend(o, 1, u0, betas, steps), descend(o, 4, same, betas[2:3], few)
    s0, model = START * np.sqrt(PAIR), LotkaVolterra(PAIR)
    share = np.asarray(model.limit(s0)) ** 2
    w = float(model.clock_limit(s0)) - np.sum((share - s0**2) / (2 * PAIR))
    later = w * np.sum(share * PAIR**2) / (2 * np.sum(share * PAIR))
    first, meaning = np.diff(later * PAIR - w / 2 * PAIR**2)[0], "final s_2/s_1 over the flow's"
    return {
        "beta": ("beta", betas, "momentum"),
        "step": ("step", steps, "flow time per step, eta/(1 - beta), in tau"),
        "momentum_ratio": (("beta", "step", "start"), ratio[..., 0], meaning),
        "momentum_first_order": ((), first, "d(momentum_ratio)/d kappa at 0, by theory"),
        "batch_step": ("batch_step", few, "flow time per step, batches of 1 of 4"),
        "batch_ratio": (("batch_step", "batch_run"), batches.reshape(len(few), -1), meaning),
    }


def descend(o: Options, classes: int, u0: ndarray, betas: ndarray, steps: ndarray) -> ndarray:
    """Final s_2/s_1 over the flow's (beta, step, start, class); of 4 classes, by batches of one."""
    task = tasks.multiview(classes, 2, strengths=PAIR, width=classes)
    nets, number = aligned(task.graph, u0), int(np.ceil(classes * 20 / steps.min()))

    def one(key: PRNGKeyArray, beta: Array, step: Array, start: Array) -> Array:
        how = {"steps": number, "save_every": number, "keep_models": False}
        how |= {"key": key, "batch_size": 1} if classes > 1 else {}
        net, optimizer = jax.tree.map(lambda w: w[start], nets), optax.sgd(step * (1 - beta), beta)
        end = gdln.train(net, task.data, optimizer=optimizer, **how).final
        maps = gdln.measures.input_output_maps(end)[:, 0]
        share = jnp.abs(PAIR[:, None] * jnp.diagonal(maps, axis1=1, axis2=2))
        return jnp.sqrt(share[1] / share[0])

    axes = {"beta": betas, "step": steps, "start": np.arange(len(u0))}
    ends = gdln.sweep(one, axes, key=jax.random.key(o.seed), progress=False)["value"].values
    flow = jax.vmap(LotkaVolterra(PAIR).limit)(u0 * np.sqrt(PAIR))  # R's equation: exact for a pair
    return ends / np.asarray(flow[:, 1] / flow[:, 0])[:, None]


def relu_networks(o: Options, task: tasks.Task, rate: float, steps: int) -> Variables:
    """ReLU networks of three sizes of initial weights, and each with its gates frozen at t = 0."""
    data, sizes, tag, rows = task.data, np.array([0.01, 0.1, 0.6]), task.name, []
    keys = jax.random.split(jax.random.key(o.seed), o.relu_seeds)
    assert isinstance(data, GatedData)
    how = {"steps": steps, "save_every": max(1, steps // 100), "keep_models": False}
    fit = partial(gdln.train, optimizer=optax.sgd(rate), **how)
    free_fit, held_fit = (eqx.filter_jit(jax.vmap(fit, (0, axis))) for axis in (None, 0))
    patterns = jax.vmap(lambda net: relu.activation_patterns(net, data))
    power = jax.vmap(lambda net: jnp.abs(relu.unit_power(net, data)))
    for size in sizes:
        each = [gdln.ReLUNetwork.init(task.graph, std=size, key=key) for key in keys]
        own, same = stack(*[relu.as_gated(net, data)[1:] for net in each])
        nets, outputs = stack(*each), jnp.stack([net(data)["y"] for net in each])
        free, held = free_fit(nets, data), held_fit(same, own)
        flips = jnp.mean(patterns(nets) != patterns(free.final), axis=-1)
        weight = power(free.final) / power(free.final).sum(axis=-1, keepdims=True)
        apart = jnp.abs(outputs - jax.vmap(lambda net, its: net(its)["y"])(same, own)).max((1, 2))
        losses = [run.losses / run.losses[:, :1] for run in (free, held)]
        rows.append((apart, flips.mean(-1), jnp.sum(flips * weight, axis=-1), *losses, free.ts[0]))
    apart, changed, weighted, losses, frozen, ts = stack(*rows)
    dims = f"size_{tag}", "relu_seed", f"step_{tag}"
    return {
        dims[0]: (dims[0], sizes, "standard deviation of initial weights"),
        dims[2]: (dims[2], ts[0], "step of gradient descent"),
        f"identity_{tag}": (dims[:2], apart, "largest difference to outputs as a gated network"),
        f"gates_changed_{tag}": (dims[:2], changed, "fraction of gates changed in training"),
        f"gates_changed_power_{tag}": (dims[:2], weighted, "the same, units weighted by output"),
        f"loss_relu_{tag}": (dims, losses, "loss over L(0)"),
        f"loss_frozen_{tag}": (dims, frozen, "loss over L(0), gates frozen at the start"),
    }
