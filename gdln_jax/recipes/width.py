"""The exact small network behind a wide one, from any start (BEYOND 8): sizes, losses, cost.

Orthogonal chains and a gated graph are followed exactly at any width; a normal hidden matrix leaves
a truncation with an error estimate. No figure of the papers shows this.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from gdln_jax import GatedData, GatedNetwork, Graph, draw_width, init, pack, reduce_width, train
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform
from gdln_jax.recipes._width_figure import dataset, draw

# Items by features, three levels of a hierarchy of strengths 1.5, 1 and .75; inputs are 2 I.
_FEATURES = np.array(
    [
        [1.5, 1.0, 0.0, 0.75, 0.0, 0.0, 0.0],
        [1.5, 1.0, 0.0, 0.0, 0.75, 0.0, 0.0],
        [1.5, 0.0, 1.0, 0.0, 0.0, 0.75, 0.0],
        [1.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.75],
    ]
)
# Loss of the wide chain 4-32-32-7 after 60 steps at rate .05, from default_rng(20) as in
# `_reference`: plain NumPy, independent of this package (reference/beyond.json, `width`).
REFERENCE_LOSS = 0.01980122279
_STEPS, _RATE = 200, 0.05
_SYSTEMS = ("chain", "gated graph", "two layers")
# Widths of the truncated chain, its learning rate and number of steps, as in BEYOND 8.4.
_TRUNCATED, _SLOW, _LONG = 48, 0.02, 400


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        seed: of the random weights. widths: hidden units of the networks that are trained in full.
        drawn: widths at which the small network is drawn directly. wide: width of a full run of
            ten steps; None leaves it out. gains: scales of the normal weights that are truncated;
            rounds: of the truncation, at most.
    """

    seed: int = 0
    widths: tuple[int, ...] = (64, 256, 1024)
    drawn: tuple[int, ...] = (64, 256, 1024, 4096, 16384)
    wide: int | None = 4096
    gains: tuple[float, ...] = (0.1, 0.5, 1.0)
    rounds: int = 5

    def __post_init__(self) -> None:
        sim.check_numbers(self, ("rounds",), ("wide",))
        for name in ("widths", "drawn", "gains"):
            values = getattr(self, name)
            if not values or min(values) <= 0:
                raise ValueError(f"{name} needs one or more numbers above 0, got {values}")
        if min(*self.widths, *self.drawn) < 16:
            raise ValueError("widths and drawn must be at least 16, above the sizes that are used")


QUICK = {"widths": (32,), "drawn": (64, 16384), "wide": None, "gains": (0.5,), "rounds": 3}


@dataclass(frozen=True)
class Pair:
    """A wide network and its small one, trained alike.

    `sizes` and `expected` are of the hidden nodes; `seconds` of a step when compiled, wide and
    small; `closing` of the reduction; `weights` the numbers of weights.
    """

    wide: np.ndarray
    small: np.ndarray
    sizes: tuple[int, ...]
    expected: tuple[int | None, ...]
    seconds: tuple[float, float]
    closing: float
    weights: tuple[int, int]


@dataclass(frozen=True)
class Truncation:
    """True distance, estimate, leak and largest size for each number of rounds, from 0."""

    gap: np.ndarray
    estimate: np.ndarray
    leak: np.ndarray
    size: np.ndarray


@dataclass(frozen=True)
class Runs:
    """What was computed."""

    steps: np.ndarray
    pairs: dict[tuple[str, int], Pair]
    drawn: dict[tuple[str, int], tuple[np.ndarray, int]]  # losses, largest size
    drawing: dict[int, float]  # width -> seconds
    ten: tuple[np.ndarray, np.ndarray] | None  # wide and small losses
    truncated: dict[float, Truncation]
    adam: float
    reference: tuple[float, tuple[int, ...]]


def run(options: Options, progress: Progress = silent) -> Result:
    """Follow wide networks by small ones."""
    return perform("width", options, progress, simulate, check, _tell)


def _tell(options: Options, runs: Runs, facts: dict[str, Any]) -> Told:
    data = dataset(options, runs)
    return Told(data, partial(draw, data, facts), _finding(facts), _notes(facts))


# ------------------------------------------------------------------ the runs
def simulate(options: Options, progress: Progress = silent) -> Runs:
    """Full and small runs at every width, direct draws, and truncations."""
    o = options
    pairs = {}
    for k, name in enumerate(_SYSTEMS):
        for width in o.widths:
            progress(0.02 + 0.15 * k, f"{name}, width {width}")
            pairs[name, width] = _pair(*_system(name, width), o.seed)
    progress(0.5, "direct draws")
    drawn, drawing = {}, {}
    for name in _SYSTEMS:
        for width in o.drawn:
            graph, data, initial = _system(name, width)
            begun = time.perf_counter()
            one = draw_width(graph, data, initial, key=jax.random.key(o.seed))
            drawing[width] = time.perf_counter() - begun
            size = max(int(one.sizes[node]) for node in graph.hidden)
            drawn[name, width] = _losses(one.net, one.data), size
    ten = None
    if o.wide is not None:
        progress(0.6, f"ten steps at width {o.wide}")
        graph, data, initial = _system("chain", o.wide)
        net = GatedNetwork.init(graph, initial, key=jax.random.key(o.seed))
        small = reduce_width(net, data)
        ten = _losses(net, data, steps=10), _losses(small.net, small.data, steps=10)
    truncated = {}
    for k, gain in enumerate(o.gains):
        progress(0.7 + 0.2 * k / len(o.gains), f"truncations at gain {gain:g}")
        truncated[gain] = _truncation(gain, o.rounds, o.seed)
    return Runs(
        np.arange(_STEPS + 1), pairs, drawn, drawing, ten, truncated, _adam(o.seed), _reference()
    )


def hierarchy() -> GatedData:
    """Four items with seven features."""
    return GatedData({"x": 2 * np.eye(4)}, {"y": _FEATURES})


def _system(name: str, width: int) -> tuple[Graph, GatedData, Any]:
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
    gates = {"a->b": np.array([1.0, 1.0, 0.0, 0.5, 1.0, 0.0, -1.0, 1.0])}
    gates["x1->c"] = np.array([0.0, 1.0] * 4)
    node = {"c": np.array([1.0, 0.5, 1.0, 1.0, 0.0, 1.0, 1.0, 2.0])}
    data = GatedData({"x0": x0, "x1": x1}, {"y0": y0, "y1": y1}, node, gates)
    return graph, data, init.orthogonal(0.6)


def _pair(graph: Graph, data: GatedData, initial: Any, seed: int) -> Pair:
    net = GatedNetwork.init(graph, initial, key=jax.random.key(seed))
    begun = time.perf_counter()
    r = reduce_width(net, data)
    closing = time.perf_counter() - begun
    wide, small = _losses(net, data), _losses(r.net, r.data)
    hidden = graph.hidden
    return Pair(
        wide,
        small,
        tuple(int(r.sizes[name]) for name in hidden),
        tuple(r.expected[name] for name in hidden),
        (_seconds(net, data), _seconds(r.net, r.data)),
        closing,
        (_count(net), _count(r.net)),
    )


def _losses(net: GatedNetwork, data: Any, steps: int = _STEPS, rate: float = _RATE) -> np.ndarray:
    """Losses at every step of gradient descent."""
    one = jax.tree.map(lambda leaf: leaf[None], net)
    run = sim.descend(one, pack(net.graph, data), rate, steps, 1)
    return np.asarray(run.losses[0], float)


def _seconds(net: GatedNetwork, data: Any) -> float:
    """Processor seconds of a step, of a run that was compiled before."""
    begun = time.process_time()
    _losses(net, data)
    return (time.process_time() - begun) / _STEPS


def _count(net: GatedNetwork) -> int:
    return sum(stack.size for stack in net.stacks)


def _truncation(gain: float, rounds: int, seed: int) -> Truncation:
    """The chain 4-48-48-7 from normal weights of standard deviation gain / sqrt(source)."""
    graph, data = Graph.chain([4, _TRUNCATED, _TRUNCATED, 7]), hierarchy()
    std = {e.name: gain / graph.shape(e.name)[1] ** 0.5 for e in graph.edges}
    net = GatedNetwork.init(graph, init.normal(std), key=jax.random.key(seed))
    full = _losses(net, data, _LONG, _SLOW)
    reductions = [reduce_width(net, data, on_open="truncate", rounds=k) for k in range(rounds + 2)]
    curves = [_losses(r.net, r.data, _LONG, _SLOW) for r in reductions]
    gap = [np.abs(curve - full).max() / full[0] for curve in curves[:-1]]
    # What `defect` computes, without running every truncation twice.
    estimate = [np.abs(b - a).max() / a[0] for a, b in itertools.pairwise(curves)]
    leak = [r.leak for r in reductions[:-1]]
    size = [max(int(r.sizes["h1"]), int(r.sizes["h2"])) for r in reductions[:-1]]
    return Truncation(np.array(gap), np.array(estimate), np.array(leak), np.array(size))


def _adam(seed: int) -> float:
    """Largest distance over L(0) in 25 steps of Adam, which is not exact."""
    graph, data, initial = _system("chain", 32)
    net = GatedNetwork.init(graph, initial, key=jax.random.key(seed))
    r = reduce_width(net, data)
    adam = optax.adam(0.01)
    wide, small = (
        np.asarray(_by_adam(one, pack(one.graph, d), adam), float)
        for one, d in ((net, data), (r.net, r.data))
    )
    return float(np.abs(wide - small).max() / wide[0])


@partial(jax.jit, static_argnames="adam")
def _by_adam(net: GatedNetwork, data: Any, adam: Any) -> Any:
    return train(net, data, optimizer=adam, steps=25, keep_models=False).losses


def _reference() -> tuple[float, tuple[int, ...]]:
    """Loss after 60 steps and sizes of the chain of the reference."""
    rng, graph = np.random.default_rng(20), Graph.chain([4, 32, 32, 7])
    weights = {}
    for edge in graph.edges:
        rows, columns = graph.shape(edge.name)
        q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
        q = 0.5 * q * np.sign(np.diag(r))
        weights[edge.name] = q if rows >= columns else q.T
    r = reduce_width(GatedNetwork(graph, weights), hierarchy())
    return float(_losses(r.net, r.data)[60]), (int(r.sizes["h1"]), int(r.sizes["h2"]))


# ------------------------------------------------------------------ checks
def check(options: Options, runs: Runs) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    facts = _facts(runs)
    named = {
        "chain": "orthogonal chain",
        "gated graph": "orthogonal gated graph",
        "two layers": "two normal layers",
    }
    checks = [
        Check.below(
            f"{named[name]}: loss of the wide - of the small network, / L(0)",
            facts["gap"][name],
            1e-12,
            f"widths {', '.join(map(str, options.widths))}; {_STEPS} steps",
        )
        for name in _SYSTEMS
    ]
    checks.append(
        Check.near(
            "sizes of hidden nodes - formula of 8.3, sum of differences",
            facts["sizes_off"],
            0.0,
            0.0,
            f"{facts['sizes']['chain']} and {facts['sizes']['gated graph']} at every width",
        )
    )
    if runs.ten is not None:
        wide, small = runs.ten
        checks.append(
            Check.below(
                f"ten steps at width {options.wide}: loss of the wide - of the small network",
                np.abs(wide - small).max() / wide[0],
                1e-12,
                "over L(0)",
            )
        )
    checks += [
        Check.between(
            "truncation: least fall of the distance per round",
            facts["fall"],
            10.0,
            1e6,
            "from one round on, above 1e-13",
        ),
        Check.below(
            "truncation: error estimate against the distance, worst factor",
            facts["factor"],
            1.5,
            "|L_K - L_(K+1)|, an estimate; above 1e-13",
        ),
        Check.between(
            "truncation: least leak, which is no measure of its error",
            facts["leak"],
            0.1,
            1.0,
            f"while the distance falls to {facts['last']:.0e}",
        ),
        Check.between(
            "Adam: distance in 25 steps, over L(0)",
            runs.adam,
            1e-3,
            10.0,
            "refused by .train",
        ),
        Check.near("reference: loss after 60 steps", runs.reference[0], REFERENCE_LOSS, 1e-10),
        Check.near("reference: sizes, sum", float(sum(runs.reference[1])), 22.0, 0.0, "11 and 11"),
    ]
    return checks, facts


def _facts(runs: Runs) -> dict[str, Any]:
    gap, sizes, off = {}, {}, 0
    for name in _SYSTEMS:
        here = [pair for (one, _), pair in runs.pairs.items() if one == name]
        gap[name] = max(float(np.abs(p.wide - p.small).max() / p.wide[0]) for p in here)
        sizes[name] = max(max(p.sizes) for p in here)
        off += sum(
            abs(size - wanted) if wanted is not None else size
            for p in here
            for size, wanted in zip(p.sizes, p.expected, strict=True)
        )
        off += sum(
            abs(size - sizes[name]) for (one, _), (_, size) in runs.drawn.items() if one == name
        )
    falls, factors = [], []
    for one in runs.truncated.values():
        seen = one.gap > 1e-13
        falls += [a / b for a, b, k in zip(one.gap[1:], one.gap[2:], seen[2:], strict=False) if k]
        ratio = (one.estimate / one.gap)[seen]
        factors += [*ratio, *(1 / ratio)]
    largest = max(width for _, width in runs.pairs)
    pair = runs.pairs["chain", largest]
    return {
        "gap": gap,
        "sizes": sizes,
        "sizes_off": float(off),
        "fall": float(min(falls, default=np.inf)),
        "factor": float(max(factors, default=np.inf)),
        "leak": float(min(one.leak.min() for one in runs.truncated.values())),
        "last": float(min(one.gap.min() for one in runs.truncated.values())),
        "largest": largest,
        "weights": pair.weights,
        "seconds": pair.seconds,
        "drawing": max(runs.drawing.values()),
        "most": max(runs.drawing),
        "adam": runs.adam,
    }


# ------------------------------------------------------------------ in words
def _finding(facts: dict[str, Any]) -> str:
    return (
        f"a chain of two hidden layers from orthogonal weights uses {facts['sizes']['chain']} of "
        f"its {facts['largest']} dimensions a layer, a gated graph "
        f"{facts['sizes']['gated graph']}; the small networks have the losses of the wide ones to "
        f"{max(facts['gap'].values()):.0e} of L(0). Normal hidden weights fill the width; each "
        f"round of a truncation reduces the distance at least {facts['fall']:.0f} times, and the "
        f"estimate is right within a factor {facts['factor']:.2f}."
    )


def _notes(facts: dict[str, Any]) -> Iterator[str]:
    wide, small = facts["weights"]
    yield (
        f"At width {facts['largest']} the chain has {wide:,} weights, its small network {small:,}. "
        f"A small network of width {facts['most']} is drawn in {facts['drawing']:.2g} s."
    )
    yield (
        f"The leak of a truncation is at least {facts['leak']:.2f} while its loss is within "
        f"{facts['last']:.0e}: it certifies that a reduction is closed and measures no error."
    )
    yield (
        f"Adam leaves the small network by {facts['adam']:.1%} of L(0) in 25 steps; "
        "`WidthReduction.train` refuses it."
    )
