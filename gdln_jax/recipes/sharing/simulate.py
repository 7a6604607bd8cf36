"""N Fig. 5a-b: the runs, and the numbers that checks, text and figure use."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

import gdln_jax as gdln
from gdln_jax import exact, tasks
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.sharing import Options

# Half times of modes 1-3 at M = 10, B(0) = 0.2, and s/d of these modes (d = 1/4).
REFERENCE_HALF = {
    1: (136.524547146, 283.548898429, 587.17270759),
    100: (5.63287800484, 11.6632775838, 24.0462050526),
}
REFERENCE_MAP = np.sqrt([185.0, 41.0, 9.0])
RTOL = 1e-12  # strengths are held to 1e-9
STARTS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])  # initial strengths at which the race is run


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """One network for each P, then the race between the most and the least shared one."""
    features, shares = tasks.hierarchy_features(), np.array(o.shares)
    s = np.linalg.svd(features, compute_uv=False) / features.shape[1]
    d = np.full_like(s, 1 / features.shape[1])
    equal = np.full(len(shares), o.amplitude)
    start = equal * shares ** (-1 / 12)  # B1(0) of the same product B2 B1^2, B2 = P^(1/4) B1
    half = half_times(s, d, equal, equal, o.domains, shares)
    if not np.all((half > 0) & (half < np.inf)):
        raise ValueError("the start is too large, or too small, for each mode to pass half its end")
    balanced = half_times(s, d, start, start * shares**0.25, o.domains, shares)
    # 0, then equally spaced in the logarithm: modes are learned at very different times.
    grid, networks = np.append(0.0, np.geomspace(1 / 60, 1, o.times - 1)), []
    for k, p in enumerate(o.shares):
        progress(0.7 * k / len(shares), f"P = {p}")
        networks.append(network(o, p, s, d, 1.6 * half[k, 2] * grid))
    progress(0.7, "race")
    coords = {"mode": np.arange(1, len(s) + 1), "point": np.arange(o.times), "layer": ["B1", "B2"]}
    coords |= {"paths": shares, "known_start": STARTS, "pathway": ["shared", "dedicated"]}
    variables = race(o, s, d, 3 * half[-1, 2] * grid) | {
        "s": ("mode", s, "strength of the base data's mode"),
        "d": ("mode", d, "its variance"),
        "half": (("paths", "mode"), half, "time to half, equal start"),
        "half_balanced": (("paths", "mode"), balanced, "time to half, balanced start"),
    }
    for name, (dims, _, meaning) in networks[0].items():
        variables[name] = (("paths", *dims), np.stack([n[name][1] for n in networks]), meaning)
    return labelled("Pathways that share, N Fig. 5a-b", coords, variables)


def half_times(
    s: np.ndarray, d: np.ndarray, b1: np.ndarray, b2: np.ndarray, domains: int, paths: np.ndarray
) -> np.ndarray:
    """(P, mode) time at which B2 B1^2 = s/(2 d), by Eq. 16-17 integrated, from starts (P,)."""
    root, b1, b2 = np.sqrt(paths)[:, None], b1[:, None], b2[:, None]
    c = root * b1**2 - b2**2
    c = np.where(np.abs(c) < 1e-12 * b2**2, 0.0, c)
    product = root * s / (2 * d)  # x (x^2 + c) at that time
    x = np.cbrt(product)
    for _ in range(60):  # Newton's method on a convex function from the right
        x = x - (x * (x**2 + c) - product) / (3 * x**2 + c)
    return np.asarray(exact.routing_time(x, s, d, b2, root, domains**2 / paths[:, None], c=c))


def layers(b: Mapping[str, Array], p: int, order: np.ndarray) -> tuple[np.ndarray, float]:
    """(layer, ..., mode) B1 and B2 of the blocks of P = p, and the largest difference of edges."""
    rows = [
        np.stack([b[e] for e in b if f"_{p}_" in e and e.startswith("h1") is hidden])[..., order]
        for hidden in (False, True)
    ]
    spread = max(np.abs(row - row[0]).max() for row in rows)
    return np.stack([row[0] for row in rows]), float(spread)


def prepared(
    o: Options, blocks: tuple[int] | tuple[int, int], ts: np.ndarray
) -> tuple[gdln.Quotient, np.ndarray, list[np.ndarray], float]:
    """Quotient, order of modes, B1 and B2 of each block by the full network, and what is off."""
    task = tasks.pathway_sharing(o.domains, blocks, width=o.width, compact=True)
    reduction = gdln.reduce(task.graph, task.data)
    net = reduction.embed(o.amplitude)
    flow = gdln.gradient_flow(net, task.data, ts, rtol=RTOL, measure=reduction.read)
    b, outside = flow.measured
    order = np.argsort(-np.abs(next(iter(reduction.strengths.values()))), kind="stable")
    found, spread = zip(*(layers(b, p, order) for p in blocks), strict=True)
    off = max(*spread, float(np.max(list(outside.values()))))
    return reduction.quotient(o.amplitude), order, list(found), off


def network(o: Options, p: int, s: np.ndarray, d: np.ndarray, ts: np.ndarray) -> Variables:
    """One gating: full network, reduction from equal and balanced starts, Eq. 16-17."""
    quotient, order, (flow,), off = prepared(o, (p,), ts)
    # One start per class; at P = 1 all edges are one class, and balanced means equal.
    hidden = np.array([c[0].startswith("h1") for c in quotient.classes])[:, None]
    first = o.amplitude * np.where(hidden & (p > 1), p ** (1 / 6), p ** (-1 / 12))
    reduced, balanced = (
        layers(quotient.expand(quotient.solve(ts, x0=x0, rtol=RTOL).b), p, order)[0]
        for x0 in (np.full_like(first, o.amplitude), first)
    )
    theory = np.stack(exact.sharing_mode(ts[:, None], s, d, o.amplitude, o.domains, p))
    dims = ("layer", "point", "mode")
    return {
        "time": (("point",), ts, "time in tau"),
        "spread": ((), off, "largest difference between edges, or share outside of the frames"),
        "b_flow": (dims, flow, "full network, flow"),
        "b_reduced": (dims, reduced, "reduction"),
        "b_theory": (dims, theory, "N Eq. 16-17"),
        "b_balanced": (dims, balanced, "reduction from a balanced start"),
    }


def race(o: Options, s: np.ndarray, d: np.ndarray, ts: np.ndarray) -> Variables:
    """The network in which a shared and dedicated pathways learn side by side."""
    pair = (o.domains**2, 1)
    quotient, order, flow, off = prepared(o, pair, ts)
    # The last start is the flow's own, on its times; the others run until they have learned.
    starts = jnp.append(STARTS, o.amplitude)
    grid = jnp.append(3 * np.maximum(1, o.amplitude / STARTS), 1)[:, None] * ts
    solved = jax.vmap(lambda x0, ts: quotient.solve(ts, x0=x0, rtol=RTOL).b)(starts, grid)
    reduced = np.stack([layers(quotient.expand(solved), p, order)[0] for p in pair], axis=3)
    end = reduced[0, :-1, -1] ** 2 * reduced[1, :-1, -1]  # (start, pathway, mode)
    curve, rows = np.geomspace(STARTS[0], STARTS[-1], 41), ("known_start", "mode")
    dims, (b1, b2) = ("race_time", "pathway", "mode"), np.stack(flow, axis=2)
    return {
        "race_time": ("race_time", ts, "time in tau"),
        "start": ("start", curve, "initial strengths"),
        "race_b1": (dims, b1, "B1 in the combined network"),
        "race_b2": (dims, b2, "B2 in the combined network"),
        "race_reduced": (("layer", *dims), reduced[:, -1], "the same by the reduction"),
        "race_spread": ((), off, "largest difference between edges"),
        "kept": (rows, end[:, 1] / end.sum(axis=1), "share that dedicated pathways keep"),
        "kept_law": (rows, loser_keeps(STARTS, s / d, o.domains), "the same by the exact law"),
        "kept_theory": (
            ("start", "mode"),
            loser_keeps(curve, s / d, o.domains),
            "the same by the exact law",
        ),
    }


def loser_keeps(starts: np.ndarray, final: np.ndarray, domains: int) -> np.ndarray:
    """(start, mode) final share of dedicated pathways that race with a fully shared one.

    Both have the same error e(t): tau dB1/dt = (sqrt(P)/M^2) B2 B1 e, tau dB2/dt = (P/M^2) B1^2 e.
    In the time dT = e dt each is Eq. 16-17 with s = 1, d = 0, and the race ends when the products
    add up to s/d. Exact for equal starts; by bisection on the shared pathway's B2.
    """
    b, shared = starts[:, None] + np.zeros_like(final), float(domains)
    c, low, high, dedicated = (shared - 1) * b**2, b, np.cbrt(shared * final) + b, b
    for _ in range(53):  # to rounding
        middle = (low + high) / 2
        time = exact.routing_time(middle, 1.0, 0.0, b, shared, 1.0, c=c)
        dedicated = np.asarray(exact.routing_mode(time, 1.0, 0.0, b, 1.0, shared**2)) ** 3
        over = middle * (middle**2 + c) / shared + dedicated > final
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return dedicated / final


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v = {str(name): data[name].values for name in data}
    shares, (b1, b2) = np.array(o.shares, float), v["b_balanced"].swapaxes(0, 1)
    t = v["time"][..., None] * shares[:, None, None] ** (2 / 3)
    alone = exact.sharing_mode(t, v["s"], v["d"], o.amplitude, o.domains, 1).product
    ends = v["b_flow"][:, 1, -1, 0] / v["b_flow"][:, 0, -1, 0]
    shown = [f"{r:.3f} for P = {p} ({p**0.25:.3f})" for p, r in zip(o.shares, ends, strict=True)]
    start, d = np.full(2, 0.2), np.full(3, 0.25)
    halves = half_times(REFERENCE_MAP / 4, d, start, start, 10, np.array([1, 100]))
    steps = np.diff(np.log(shares))[:, None]
    slope, balanced = (np.diff(np.log(v[n]), axis=0) / steps for n in ("half", "half_balanced"))
    kept = loser_keeps(np.array([o.amplitude]), v["s"] / v["d"], o.domains)
    errors = {
        "flow": [v["b_flow"] - v["b_theory"], v["spread"]],
        "reduced": [v["b_reduced"] - v["b_theory"]],
        "ratio": [b2 / b1 / shares[:, None, None] ** 0.25 - 1],
        "exponent": [balanced + 2 / 3],
        "clock": [(b2 * b1**2 - np.asarray(alone)) * v["d"] / v["s"]],
        "race": [np.stack([v["race_b1"], v["race_b2"]]) - v["race_reduced"], v["race_spread"]],
        "kept_error": [v["kept"] - v["kept_law"]],
        "decrease": [np.minimum(np.diff(v["race_b2"][:, 1], axis=0), 0.0)],
        "half": [halves / np.array(list(REFERENCE_HALF.values())) - 1],
    }
    worst = {name: max(float(np.abs(e).max()) for e in each) for name, each in errors.items()}
    return worst | {
        "ends": ", ".join(shown),
        "kept": float(kept[0, 0]),
        "kept_ends": v["kept"][[0, -1], 0],
        "exponents": (float(slope.min()), float(slope.max())),
        "speedup": float(v["half"][0, 0] / v["half"][-1, 0]),
        "starts": STARTS[[0, -1]],
    }
