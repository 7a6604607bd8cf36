"""Optimisers: the runs, and the numbers that checks, text and figure use (theory#optimisers)."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array

import gdln_jax as gdln
from gdln_jax import exact, measures, rules, tasks
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.optimisers import LAWS, Options

# Independent values, M = 6, K = 3: errors by the laws of race and sign flow, and of descent at 0.3.
REFERENCE_LAWS, REFERENCE_DESCENT = (6.81106956e-05, 0.2383755067), 6.97e-5
# Steps of gradient descent: about its limit, of inputs of equal and of unequal variance.
RATES = {"converges": 0.9, "cycles": 1.1, "stays": 0.15, "leaves": 0.3}


def made(o: Options, rate: float, descent: float, steps: int) -> dict[str, Any]:
    """The optimisers; rules that divide by the gradient settle only if their rate falls to 0."""
    fall = optax.linear_schedule(rate, 0.0, steps)
    polar, schulz = (rules.muon(fall, method=m, momentum=0.0) for m in ("polar", "newton_schulz"))
    every = (rules.sgd(descent), rules.sgd(descent / 10, momentum=0.9), polar, schulz)
    every += (rules.normalized(fall), optax.adam(fall), optax.adam(fall))
    return {name: one for name, one in zip(LAWS, every, strict=True) if name in o.optimisers}


def aligned(o: Options) -> Variables:
    """Rules on the quotient of M = 6, K = 3, one of them beside the full network, and laws."""
    m, k, u0, steps = 6, 3, 0.2, 800
    task = tasks.routing(m, k, base=(np.eye(2), np.diag([2.0, 1.0])), width=2, dedicated=2)
    reduction = gdln.reduce(task.graph, task.data)
    outer, inner = u0 * m ** (-1 / 6), u0 * m ** (1 / 3)  # balanced: b^2 ~ rate factor
    start = {e.name: outer if "h" in e.name else u0 for e in task.graph.edges} | {"h1->h2": inner}
    quotient, goal = reduction.quotient(start), np.asarray(reduction.typical) ** 3
    loss, error, gap = [], [], math.nan
    for name, rule in made(o, 0.01, 0.3, steps).items():
        if "adam" in name:
            continue
        run = quotient.train(rule=rule, steps=steps, save_every=4)
        shared = np.prod([run.b[e] for e in ("x0->h1", "h1->h2", "h2->y0")], axis=0)
        loss.append(np.asarray(run.losses / run.losses[0]))
        error.append(np.sum((goal - shared) ** 2, axis=-1) / np.sum(goal**2))
        if name == "polar":  # 48 steps, before a mode is learned
            net = gdln.train(reduction.embed(start), task.data, optimizer=rule, steps=48).losses
            gap = np.max(np.abs(net[::4] / net[0] - loss[-1][:13]))
    kappa = np.array([m ** (-2 / 3), 1 / (m * k)])
    ends = np.asarray(exact.pathway_race(kappa, np.full(2, u0), goal / 2, 0.5, 3)[1]) ** 3
    shares = np.asarray(exact.sign_time(np.array([[outer, inner, outer], [u0] * 3]), goal)[1])
    laws = [np.sum(x**2) / np.sum(goal**2) for x in (ends[:, 1], goal * shares[:, 1])]
    return {
        "aligned_trained": (("rule", "record"), loss, "loss of trained routes / L(0), aligned"),
        "aligned_error": (("rule", "record"), error, "error of untrained routes, aligned"),
        "aligned_gap": ((), gap, "full network - quotient, loss / L(0)"),
        "law": ("law", laws, "error of untrained routes by the laws of race and sign flow"),
    }


def random_starts(o: Options, progress: Progress) -> Variables:
    """Loss and error of every optimiser, scale and seed; one program an optimiser."""
    found = []
    for k, (name, rule) in enumerate(made(o, 3 / o.steps, 1.0, o.steps).items()):
        progress(0.3 + 0.08 * k, f"random starts, {name}")
        widths = (5, 5) if name == "adam-equal" else (8, 3)
        found.append(_train(o, widths, rule, o.steps * (1 if LAWS[name] else 4)))
    loss, error = (np.stack(arrays) for arrays in zip(*found, strict=True))
    dims, loss = ("optimiser", "scale", "seed", "reading"), loss / loss[..., :1]
    trained = (dims, loss, "loss of trained routes / L(0)")
    return {"trained": trained, "error": (dims, error, "relative error of untrained routes")}


def _train(o: Options, widths: tuple[int, int], rule: Any, steps: int) -> tuple[Array, Array]:
    """Losses and errors (scale, seed, reading); the weights of a seed differ by the scale only."""
    base, (width, dedicated) = (np.ones((1, 1)), np.ones((1, 1))), widths
    task = tasks.routing(o.domains, o.trained, base=base, width=width, dedicated=dedicated)
    graph, rng = task.graph, np.random.default_rng(o.seed)
    std = {e.name: widths["h" not in e.name] ** -0.5 for e in graph.edges}
    unit = {e: rng.normal(scale=std[e], size=(o.seeds, *graph.shape(e))) for e in std}

    def run(weights: dict[str, Array], scale: Array, data: Any) -> tuple[Array, Array]:
        net = gdln.GatedNetwork(graph, {name: scale * w for name, w in weights.items()})
        often = {"steps": steps, "save_every": steps // 100, "keep_models": False}
        look = partial(measures.zero_shot_error, x=base[0], y=base[1], pattern=task.meta["pattern"])
        found = gdln.train(net, data, optimizer=rule, measure=lambda n: look(n)[1], **often)
        return found.losses, found.measured

    program = jax.jit(jax.vmap(jax.vmap(run, (0, None, None)), (None, 0, None)))
    return program(unit, np.asarray(o.scales), gdln.pack(graph, task.data))


def gated(d: list[float], s: list[float]) -> tuple[gdln.Graph, gdln.GatedData]:
    """Two patterns, each with a pathway of two layers of its own, of strengths s, variances d."""
    v, u = (np.linalg.qr(np.array(a))[0] for a in ([[3, 1], [1, 3]], [[1, 2], [2, 1]]))
    x, y = (np.tile(2 * (f * g).T, (2, 1)) for f, g in ((v, np.sqrt(d)), (u, s / np.sqrt(d))))
    gates = {"h1": np.array([1.0, 1.0, 0.0, 0.0]), "h2": np.array([0.0, 0.0, 1.0, 1.0])}
    edges = [("x", "h1"), ("x", "h2"), ("h1", "y"), ("h2", "y")]
    graph = gdln.Graph({"x": 2, "h1": 3, "h2": 3, "y": 2}, edges)
    return graph, gdln.GatedData({"x": x}, {"y": y}, gates)


def stability() -> Variables:
    """Four runs of gradient descent, in one program, and curvatures along the last of them."""
    systems = [gated([1.0, 1.0], [1.0, 0.6]), gated([0.1, 1.0], [1.0, 1.0])]
    white, unequal = ((gdln.reduce(*one), gdln.pack(*one)) for one in systems)

    @eqx.filter_jit
    @eqx.filter_vmap
    def run(system: tuple[gdln.Reduction, Any], rate: Array) -> tuple[Any, ...]:
        (reduction, data), rule, steps = system, rules.sgd(rate), 60
        small = reduction.train(0.5, rule=rule, steps=steps)
        net = gdln.train(reduction.embed(0.5), data, optimizer=rule, steps=steps)
        b, outside = reduction.read(net.models)
        strength = jnp.max(b["x->h1"] * b["h1->y"], axis=1)
        return net.losses, small, strength, jnp.max(jnp.stack([*outside.values()]), axis=0)

    stacked = jax.tree.map(lambda *one: jnp.stack(one), white, white, unequal, unequal)
    full, small, strength, outside = run(stacked, np.array(list(RATES.values())))
    reduction, last = unequal[0], jax.tree.map(lambda a: a[-1], small)
    sharp = jax.jit(jax.vmap(reduction.sharpness))(last.b)
    b = jnp.stack([last.b["x->h1"], last.b["h1->y"]], axis=1)
    closed = partial(exact.chain_sharpness, s=1.0, d=reduction.typical**-2, widths=(2, 3, 2))
    parts = [jnp.max(each, axis=1) for each in jax.vmap(closed)(b)]
    dims, cycle = ("run", "step"), exact.two_cycle(1.0, 1.0, RATES["cycles"])[:2]
    return {
        "gap": (dims, np.abs(full - small.losses) / full[:, :1], "network - reduction / L(0)"),
        "outside": (dims, outside, "share of the weights off the manifold, worst edge"),
        "strength": (dims, strength, "largest strength of pattern 1 in the network"),
        "cycle": ("side", np.array(cycle), "strengths of the two-cycle, closed form"),
        "curvature": ("step", sharp, "largest curvature of the full loss, run with step 0.3"),
        "curvature_theory": (("part", "step"), parts, "largest of each part by closed form"),
    }


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Aligned starts, random starts, and the edge of stability."""
    progress(0.05, "aligned starts, edge of stability")
    variables = aligned(o) | stability() | random_starts(o, progress)
    names = [name for name in LAWS if name in o.optimisers]
    coords = {"rule": [name for name in names if "adam" not in name], "optimiser": names}
    coords |= {"scale": list(o.scales), "run": list(RATES), "part": ["along", "normal"]}
    return labelled("Which optimiser finds shared structure", coords, variables)


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """Errors beside their laws, at equal trained loss, and the edge of stability."""
    last = dict(zip(data["rule"].values, data["aligned_error"].values[:, -1], strict=True))
    reached = data["trained"].values <= o.level
    read = np.take_along_axis(data["error"].values, reached.argmax(-1)[..., None], -1)[..., 0]
    read[~reached.any(axis=-1)] = np.nan  # fails the checks
    quartiles = np.quantile(read, [0.25, 0.5, 0.75], axis=-1)
    found = dict(zip(data["optimiser"].values, quartiles[1, :, -1], strict=True))
    small = dict.fromkeys(LAWS, math.nan) | found
    ends = np.median(data["error"].sel(optimiser="descent").values[..., -1], axis=-1)
    top = min(int(np.sum(np.array(o.scales) > 0.15)), len(o.scales) - 2)
    gap, outside = data["gap"].values, data["outside"].sel(run="leaves").values > 1e-6
    derived: Numbers = {f"{name}_law": small[name] / law for name, law in LAWS.items() if law}
    derived |= {"law": data["law"].values, "aligned": last, "ends": ends, "quartiles": quartiles}
    derived |= {name: name in found for name in LAWS} | {"small": small, "smallest": o.scales[-1]}
    return derived | {
        "network": max(float(data["aligned_gap"]), gap[:3].max()),
        "laws": np.max(np.abs(data["law"].values / REFERENCE_LAWS - 1)),
        "descent_c": abs(last["descent"] / REFERENCE_DESCENT - 1),
        "sign_c": abs(last["polar"] - data["law"].values[1]),
        "ratio": small["polar"] / small["descent"],
        "slope": np.log(ends[top] / ends[-1]) / np.log(o.scales[top] / o.scales[-1]),
        "cycle_gap": abs(np.sort(data["strength"][1, -2:]) - data["cycle"]).max(),
        "sharp": float(abs(data["curvature"] - data["curvature_theory"].max("part")).max()),
        "left": float(outside.argmax()) if outside.any() else math.inf,
        "apart": gap[3].max(),
        "equal": f"{small['adam-equal']:.3f}" if "adam-equal" in found else "not run here",
        "finite": last["descent"] / data["law"].values[0] - 1,
    }
