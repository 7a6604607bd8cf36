"""The width recipe: the runs, and the numbers that checks, text and figure use."""

import time
from typing import Any

import jax
import numpy as np
import optax
import xarray as xr

from gdln_jax import GatedData, GatedNetwork, Graph, draw_width, init, reduce_width, train
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.width import SYSTEMS, Options

# Loss of the wide chain 4-32-32-7 after 60 steps at rate 0.05, from default_rng(20) as in
# `reference`: plain NumPy, independent of this package (reference/beyond.json, `width`).
REFERENCE_LOSS, REFERENCE_SIZE = 0.01980122279, 11
STEPS = 200
DESCENT, SLOW, ADAM = optax.sgd(0.05), optax.sgd(0.02), optax.adam(0.01)
# Of each network, draw and truncation: further dimensions and meaning of what is recorded.
PAIRS: dict[str, tuple[tuple[str, ...], str]] = {
    "loss": (("network", "step"), "loss"),
    "size": ((), "largest size of a hidden node"),
    "expected": ((), "the same by formula"),
    "difference": ((), "sizes of hidden nodes - formula, sum"),
    "seconds": (("network",), "processor seconds a step"),
    "weights": (("network",), "number of weights"),
}
DRAWN: dict[str, tuple[tuple[str, ...], str]] = {
    "loss_drawn": (("step",), "loss of a small network that was drawn directly"),
    "size_drawn": ((), "its size"),
    "drawing": ((), "seconds of the draw"),
}
CUTS = {
    "truncated_gap": "largest distance of the losses over L(0)",
    "truncated_estimate": "the same, estimated by one round more",
    "truncated_leak": "share of the images that leave the space",
    "truncated_size": "largest size",
}


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Full and small runs at every width, direct draws, and truncations."""
    pairs = []
    for k, name in enumerate(SYSTEMS):
        progress(0.02 + 0.15 * k, f"{name}, widths {', '.join(map(str, o.widths))}")
        pairs.append([pair(*system(name, width), o.seed) for width in o.widths])
    drawn = [[draw(*system(name, width), o.seed) for width in o.drawn] for name in SYSTEMS]
    cuts = [truncation(gain, o.rounds, o.seed) for gain in o.gains]
    variables: Variables = {}
    for rows, dim, entries in ((pairs, "width", PAIRS), (drawn, "drawn", DRAWN)):
        for k, (name, (more, meaning)) in enumerate(entries.items()):
            values = np.array([[cell[k] for cell in row] for row in rows])
            variables[name] = (("system", dim, *more), values, meaning)
    for k, (name, meaning) in enumerate(CUTS.items()):
        variables[name] = (("gain", "round"), [cut[k] for cut in cuts], meaning)
    if o.wide is not None:
        ten = pair(*system("chain", o.wide), o.seed, 10)[0]
        variables["ten"] = (("network", "first"), ten, f"loss at width {o.wide}")
    loss, sizes = from_reference()
    adam = pair(*system("chain", 32), o.seed, 25, ADAM)[0]
    variables["adam"] = (("network", "early"), adam, "loss in 25 steps of Adam, which is not exact")
    variables["reference_loss"] = ((), loss, "loss after 60 steps, reference")
    variables["reference_sizes"] = (("layer",), sizes, "sizes, reference")
    coords = {"step": np.arange(STEPS + 1), "round": np.arange(o.rounds + 1)}
    coords |= {"width": list(o.widths), "drawn": list(o.drawn), "gain": list(o.gains)}
    coords |= {"system": list(SYSTEMS), "network": ["wide", "small"]}
    return labelled("The exact small network behind a wide one", coords, variables)


def hierarchy() -> GatedData:
    """Four items with seven features, three levels of strengths 1.5, 1 and 0.75; inputs 2 I."""
    halves = np.kron(np.eye(2), np.ones((2, 1)))
    features = np.hstack([1.5 * np.ones((4, 1)), halves, 0.75 * np.eye(4)])
    return GatedData({"x": 2 * np.eye(4)}, {"y": features})


def system(name: str, width: int) -> tuple[Graph, GatedData, Any]:
    """Graph, data and initial weights; of two layers normal ones."""
    if name == "chain":
        return Graph.chain([4, width, width, 7]), hierarchy(), init.orthogonal(0.5)
    if name == "two layers":
        return Graph.chain([4, width, 7]), hierarchy(), init.normal(0.5 / width**0.5)
    graph = Graph(
        {"x0": 3, "x1": 2, "a": width, "b": width, "c": width, "y0": 2, "y1": 3},
        [("x0", "a"), ("x1", "b"), ("a", "b"), ("a", "c"), ("b", "y0"), ("c", "y1"), ("x1", "c")],
    )
    rng = np.random.default_rng(22)
    x0, x1, y0, y1 = (rng.standard_normal((8, k)) for k in (3, 2, 2, 3))
    a = np.array([1.0, 1.0, 0.0, 0.5, 1.0, 0.0, -1.0, 1.0])
    gates = {"a->b": a, "x1->c": np.array([0.0, 1.0] * 4)}
    c = {"c": np.array([1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 2.0])}
    data = GatedData({"x0": x0, "x1": x1}, {"y0": y0, "y1": y1}, c, gates)
    return graph, data, init.orthogonal(0.6)


def pair(
    graph: Graph, data: GatedData, initial: Any, seed: int, steps: int = STEPS, by: Any = DESCENT
) -> tuple:
    """Losses, sizes and cost of a wide network and its small one, trained alike."""
    net = GatedNetwork.init(graph, initial, key=jax.random.key(seed))
    small = reduce_width(net, data)
    both = ((net, data), (small.net, small.data))
    curves = [losses(*one, steps, by) for one in both]
    seconds = []
    for one in both:  # compiled by now
        begun = time.process_time()
        losses(*one, steps, by)
        seconds.append((time.process_time() - begun) / steps)
    sizes = np.array([small.sizes[name] for name in graph.hidden])
    formula = np.array([small.expected[name] or 0 for name in graph.hidden])
    weights = [sum(stack.size for stack in one.stacks) for one, _ in both]
    return curves, sizes.max(), formula.max(), np.abs(sizes - formula).sum(), seconds, weights


def draw(graph: Graph, data: GatedData, initial: Any, seed: int) -> tuple[np.ndarray, int, float]:
    """Losses and size of a small network drawn directly, and the seconds of the draw."""
    begun = time.perf_counter()
    one = draw_width(graph, data, initial, key=jax.random.key(seed))
    seconds = time.perf_counter() - begun
    return losses(one.net, one.data), max(int(one.sizes[n]) for n in graph.hidden), seconds


def losses(net: GatedNetwork, data: Any, steps: int = STEPS, by: Any = DESCENT) -> np.ndarray:
    """Losses at every step of an optimiser."""
    return np.asarray(train(net, data, optimizer=by, steps=steps, keep_models=False).losses)


def truncation(gain: float, rounds: int, seed: int) -> list[np.ndarray]:
    """Distance, estimate, leak and size by rounds, from 0, of the chain 4-48-48-7.

    Weights are normal of standard deviation gain / sqrt(source).
    """
    graph, data = Graph.chain([4, 48, 48, 7]), hierarchy()
    std = {e.name: gain / graph.shape(e.name)[1] ** 0.5 for e in graph.edges}
    net = GatedNetwork.init(graph, init.normal(std), key=jax.random.key(seed))
    full = losses(net, data, 400, SLOW)
    cuts = [reduce_width(net, data, on_open="truncate", rounds=k) for k in range(rounds + 2)]
    curves = np.stack([losses(cut.net, cut.data, 400, SLOW) for cut in cuts])
    gap = np.abs(curves[:-1] - full).max(axis=1) / full[0]
    # What `defect` computes, without running every truncation twice.
    estimate = np.abs(np.diff(curves, axis=0)).max(axis=1) / curves[:-1, 0]
    sizes = [max(int(cut.sizes["h1"]), int(cut.sizes["h2"])) for cut in cuts[:-1]]
    return [gap, estimate, np.array([cut.leak for cut in cuts[:-1]]), np.array(sizes)]


def from_reference() -> tuple[float, list[int]]:
    """Loss after 60 steps and sizes of the chain of the reference."""
    rng, graph = np.random.default_rng(20), Graph.chain([4, 32, 32, 7])
    weights = {}
    for edge in graph.edges:
        rows, columns = graph.shape(edge.name)
        q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
        q *= 0.5 * np.sign(np.diag(r))
        weights[edge.name] = q if rows >= columns else q.T
    small = reduce_width(GatedNetwork(graph, weights), hierarchy())
    return float(losses(small.net, small.data)[60]), [int(small.sizes[n]) for n in ("h1", "h2")]


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""

    def apart(curves: xr.DataArray, along: str) -> float:
        wide, small = curves.sel(network="wide"), curves.sel(network="small")
        return float((abs(wide - small).max(along) / wide.isel({along: 0})).max())

    numbers: Numbers = {}
    for name in SYSTEMS:
        key = name.replace(" ", "_")
        numbers[f"gap_{key}"] = apart(data["loss"].sel(system=name), "step")
        numbers[f"size_{key}"] = int(data["size"].sel(system=name).max())
    # One size for all widths, computed or drawn.
    spread = np.abs(data["size_drawn"] - data["size"].max("width")).sum()
    gap, estimate, leak = (data[f"truncated_{k}"].values for k in ("gap", "estimate", "leak"))
    factors = estimate[gap > 1e-13] / gap[gap > 1e-13]
    falls = (gap[:, 1:-1] / np.maximum(gap[:, 2:], 1e-17))[gap[:, 2:] > 1e-13]
    chain = data.sel(system="chain").isel(width=-1)
    return numbers | {
        "worst": apart(data["loss"], "step"),
        "sizes": float(data["difference"].sum() + spread),
        "ten": apart(data["ten"], "first") if o.wide is not None else 0.0,
        "fall": float(falls.min(initial=np.inf)),
        "factor": float(np.maximum(factors, 1 / factors).max(initial=0)) or np.inf,
        "leak": float(leak.min()),
        "last": float(gap.min()),
        "adam": apart(data["adam"], "early"),
        "reference_loss": abs(float(data["reference_loss"]) - REFERENCE_LOSS),
        "reference_sizes": float(np.abs(data["reference_sizes"] - REFERENCE_SIZE).sum()),
        "largest": int(chain["width"]),
        "wide_weights": int(chain["weights"][0]),
        "small_weights": int(chain["weights"][1]),
        "slowest": float(data["drawing"].max()),
        "most": max(o.drawn),
    }
