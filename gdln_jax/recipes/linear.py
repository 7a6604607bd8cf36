"""H Fig. 7 and App. A.1: a linear network learns a hierarchy, mode by mode.

Closed forms against simulation with no fitted number: aligned, random, unbalanced and unaligned
starts, and data whose Sigma^x and Sigma^yx share no frame. Errata: E19-E21.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    Reduction,
    Trajectory,
    exact,
    gradient_flow,
    init,
    measures,
    mse,
    pack,
    reduce,
    reduce_width,
    tasks,
)
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes._linear_figure import dataset, draw
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform

# Independent values (tests/reference.json, `linear_hierarchy` and `unbalanced_mode`): mean loss,
# tau = 1, pi(0) = 1e-3.
REFERENCE_PI_10 = (2.633228626694474, 1.332284456933895, 0.12934587504526662, 0.12934587504526662)
REFERENCE_L_5 = 1.1205675291198238
REFERENCE_HALF_TIMES = (5.956971303111132, 8.610005981039492, 13.813509557297111)
REFERENCE_UNBALANCED = 2.793308870055863
_PI0 = 1e-3
# Weights of the unbalanced start, as in the reference: first and second layer.
_UNBALANCED = (1e-3, 0.5)
# How often each item is seen in the variant without common frames.
_FREQUENCIES = (0.4, 0.3, 0.2, 0.1)
# Every how many times the matrix solution is evaluated, which costs more than the others.
_THINNED = 10


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        seeds, seed: random networks. width: hidden units. std: of their iid normal weights.
        learning_rate, duration: of gradient descent, for L = loss_scale times the mean.
        loss_scale: 1 is the mean of SCIENCE 1, 4 H's sum over the items.
    """

    seeds: int = 10
    seed: int = 0
    width: int = 128
    std: float = 1e-3
    learning_rate: float = 0.02
    duration: float = 50.0
    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        sim.check_numbers(self, ("seeds",), ("std", "learning_rate", "duration", "loss_scale"))
        if self.width < 4:
            raise ValueError(f"width must be at least 4, the number of modes, got {self.width}")

        if not 2 <= self.steps <= 200_000:
            raise ValueError(
                f"duration {self.duration:g} at learning rate {self.learning_rate:g} is "
                f"{self.steps} steps; between 2 and 200000 are possible"
            )

    @property
    def steps(self) -> int:
        """Number of steps of gradient descent."""
        return round(self.duration / self.learning_rate)


QUICK = {"seeds": 3}


@dataclass(frozen=True)
class Modes:
    """The data's modes under L = loss_scale times the mean, strongest first; floor 0."""

    s: np.ndarray
    d: np.ndarray
    u: np.ndarray
    v: np.ndarray

    def loss(self, a: Any) -> np.ndarray:
        """Loss at strengths (..., mode): L = 1/2 sum (s - d a)^2/d; every mode can be learned."""
        return np.asarray(0.5 * np.sum((self.s - self.d * np.asarray(a)) ** 2 / self.d, axis=-1))


@dataclass(frozen=True)
class Runs:
    """What was simulated; times in units of tau."""

    task: tasks.Task
    modes: Modes
    ts: np.ndarray
    descent: Trajectory
    small: np.ndarray  # (seed, time) losses of the small networks
    sizes: tuple[int, int]  # hidden units of those, and of the random networks
    start: np.ndarray  # (seed, mode) effective a0
    product: np.ndarray  # (seed, mode) u^T W2 W1 v at t = 0
    grid: np.ndarray
    aligned: Trajectory
    unbalanced: Trajectory
    unaligned: tuple[GatedNetwork, Trajectory]
    uneven: "Uneven"
    theory: dict[str, np.ndarray]


@dataclass(frozen=True)
class Uneven:
    """The variant without common frames: items seen at different frequencies."""

    reduction: Reduction
    commutator: float
    flow: Trajectory
    reduced: Any
    maps: np.ndarray  # (time, mode, mode) of the coupled reduction
    h_gradient: tuple[float, float]


def run(options: Options, progress: Progress = silent) -> Result:
    """Make H Fig. 7."""
    return perform("linear", options, progress, simulate, check, _tell)


def _tell(options: Options, runs: Runs, facts: dict[str, Any]) -> Told:
    data = dataset(options, runs)
    return Told(data, partial(draw, data, facts), _finding(facts), _notes(facts))


# ------------------------------------------------------------------ the runs
def simulate(options: Options, progress: Progress = silent) -> Runs:
    """Random networks by descent; aligned, unbalanced, unaligned and uneven ones by flow."""
    o = options
    task = tasks.hierarchy(values=1, width=o.width)
    reduction = reduce(task.graph, task.data)
    modes = _modes(task, o.loss_scale)
    data = pack(task.graph, task.data)

    initial = init.normal(o.std)
    nets = jax.vmap(lambda k: GatedNetwork.init(task.graph, initial, key=k))(
        sim.keys(o.seed, o.seeds)
    )
    first, second = (
        nets.weights["x->h1"] @ modes.v,
        jnp.einsum("nyh,ym->nhm", nets.weights["h1->y"], modes.u),
    )
    start = np.asarray(jnp.sum((first + second) ** 2, axis=1)) / 4
    product = np.asarray(jnp.sum(first * second, axis=1))
    steps = o.steps
    progress(0.1, f"{o.seeds} networks, {steps} steps of gradient descent")
    rate = o.learning_rate * o.loss_scale
    descent = sim.descend(nets, data, rate, steps, sim.spacing(steps, 500))
    r = reduce_width(nets, task.data)
    packed = pack(r.net.graph, r.data)
    small = sim.descend(r.net, packed, rate, steps, sim.spacing(steps, 500)).losses
    ts = o.learning_rate * np.asarray(descent.ts[0], float)

    progress(0.5, "gradient flow")
    grid = np.linspace(0, ts[-1], 201)
    flow = _Flow(o, modes)
    aligned = flow(reduction.embed(np.sqrt(_PI0)), data, grid)
    weights = dict(zip(("x->h1", "h1->y"), _UNBALANCED, strict=True))
    unbalanced = flow(reduction.embed(weights), data, grid)
    net = GatedNetwork.init(task.graph, init.balanced(scale=0.1), key=jax.random.key(o.seed))
    unaligned = net, flow(net, data, grid)
    progress(0.7, "items seen at different frequencies")
    uneven = _uneven(o, task, flow, grid)
    progress(0.8, "closed forms")
    return Runs(
        task, modes, ts, descent, np.asarray(small), (r.net.graph.nodes["h1"], o.width), start,
        product, grid, aligned, unbalanced, unaligned, uneven,
        theory(modes, ts, start, grid, net),
    )  # fmt: skip


def _modes(task: tasks.Task, scale: float) -> Modes:
    """The hierarchy's modes; modes 3 and 4 are tied, and H's choice of them is taken."""
    assert isinstance(task.data, GatedData)
    x, y = (np.asarray(a) for a in (task.data.inputs["x"], task.data.targets["y"]))
    v = np.array([[1, 1, 2, 0], [1, 1, -2, 0], [1, -1, 0, 2], [1, -1, 0, -2]]) / 2
    v = v / np.linalg.norm(v, axis=0)
    mapped = y.T @ x @ v / len(x)
    s, d = np.linalg.norm(mapped, axis=0), np.sum((x @ v) ** 2, axis=0) / len(x)
    return Modes(scale * s, scale * d, mapped / s, v)


class _Flow:
    """Gradient flow of L = loss_scale times the mean, reading the modes of the map."""

    def __init__(self, options: Options, modes: Modes):
        u, v = modes.u, modes.v

        def look(net: GatedNetwork) -> dict[str, Any]:
            w = net.weights["h1->y"] @ net.weights["x->h1"]
            return {
                "strength": measures.mode_strengths(w, u, v),
                "off": measures.frame_distance(w, u, v),
                "map": w,
            }

        # One function, so that all flows share one compiled program.
        self.tau, self.look = 1 / options.loss_scale, look

    def __call__(self, net: GatedNetwork, data: Any, grid: np.ndarray) -> Trajectory:
        # The flow of loss_scale L is that of L with tau divided by it.
        return gradient_flow(net, data, grid, tau=self.tau, measure=self.look, keep_models=False)


def _uneven(options: Options, task: tasks.Task, flow: _Flow, grid: np.ndarray) -> Uneven:
    """Items with different frequencies: Sigma^x = diag(p) has no frame in common with Sigma^yx."""
    assert isinstance(task.data, GatedData)
    data = GatedData(task.data.inputs, task.data.targets, weights=np.array(_FREQUENCIES))
    graph: Graph = task.graph
    reduction = reduce(graph, data, on_inexact="coupled")
    start = np.sqrt(_PI0)
    packed = pack(graph, data)
    u = np.asarray(reduction.frames["h1->y"][0])
    v = np.asarray(reduction.frames["x->h1"][1])
    run = flow(reduction.embed(start), packed, grid)
    reduced = reduction.solve(start, grid, tau=1 / options.loss_scale)
    inner = np.asarray(reduced.b["h1->y"]) @ np.asarray(reduced.b["x->h1"])
    x, y = np.asarray(data.inputs["x"]), np.asarray(data.targets["y"])
    p = np.array(_FREQUENCIES)
    sigma_x, sigma_yx = x.T * p @ x, y.T * p @ x
    gram = sigma_yx.T @ sigma_yx
    both = sigma_x @ gram
    commutator = float(np.linalg.norm(both - both.T) / np.linalg.norm(both))
    return Uneven(
        reduction, commutator, run, reduced, np.einsum("ym,tmn,xn->tyx", u, inner, v),
        _h_gradient(graph, packed, sigma_x, sigma_yx),
    )  # fmt: skip


def _h_gradient(
    graph: Graph, data: Any, sigma_x: np.ndarray, sigma_yx: np.ndarray
) -> tuple[float, float]:
    """Relative errors of H's updates without common frames: as E20 has them, and as printed.

    Weights of mode coordinates W2 = U Wb2 R^T, W1 = R Wb1 V^T at a random point, U, S, Vh from the
    SVD of Sigma^yx and V, D from Sigma^x.
    """
    u, s, vh = np.linalg.svd(sigma_yx, full_matrices=False)
    d, v = np.linalg.eigh(sigma_x)
    k, width = len(s), graph.nodes["h1"]
    rng = np.random.default_rng(0)
    wb1, wb2 = rng.normal(size=(2, k, k))
    r = np.linalg.qr(rng.normal(size=(width, k)))[0]
    net = GatedNetwork(graph, {"x->h1": r @ wb1 @ v.T, "h1->y": u @ wb2 @ r.T})
    slope = jax.grad(mse)(net, data)
    found = -np.stack([
        r.T @ np.asarray(slope.weights["x->h1"]) @ v, u.T @ np.asarray(slope.weights["h1->y"]) @ r
    ])  # fmt: skip
    error = np.diag(s) @ (vh @ v) - wb2 @ wb1 @ np.diag(d)
    right = np.stack([wb2.T @ error, error @ wb1.T])
    printed = np.stack([wb2 @ error, wb1 @ error])
    size = np.linalg.norm(found)
    return float(np.linalg.norm(found - right) / size), float(
        np.linalg.norm(found - printed) / size
    )


def theory(
    m: Modes, ts: np.ndarray, start: np.ndarray, grid: np.ndarray, net: GatedNetwork
) -> dict[str, np.ndarray]:
    """The closed forms of everything that was simulated; nothing is fitted."""
    column = grid[:, None]
    pi0 = np.full_like(m.s, _PI0)
    # All balanced starts in one call: the program is compiled for one shape.
    both = np.concatenate([pi0[None], start])[:, None, :]
    times = np.union1d(grid, ts)
    modes = np.asarray(exact.linear_mode(times[:, None], m.s, m.d, both))
    riccati = exact.two_layer_flow(
        grid[::_THINNED],
        net.weights["x->h1"],
        net.weights["h1->y"],
        m.u * m.s @ m.v.T,
        sigma_x=m.d[0],
    )
    return {
        "aligned": modes[0, np.searchsorted(times, grid)],
        "random": modes[1:, np.searchsorted(times, ts)],
        "unbalanced": np.asarray(exact.unbalanced_mode(column, m.s, m.d, *_UNBALANCED)),
        "unaligned": np.asarray(riccati),
    }


# ------------------------------------------------------------------ checks
def check(options: Options, runs: Runs) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    known = runs.theory
    checks = [*_flow_checks(runs, known), *_uneven_checks(runs.uneven), *_reference_checks()]
    losses = options.loss_scale * np.asarray(runs.descent.losses)
    wanted = runs.modes.loss(known["random"])
    pairs = [sim.gaps(one, other, wanted[0, 0]) for one, other in zip(losses, wanted, strict=True)]
    mean, most = np.median(pairs, axis=0)
    # The obvious initial value u^T W2 W1 v instead of the growing combination.
    facts = {
        "mean": float(mean),
        "max": float(most),
        "negative": float(np.mean(runs.product < 0)),
        "a0": (float(runs.start.mean()), float(runs.start.std())),
        "expected_a0": options.width * options.std**2 / 2,
        "residual": float(runs.uneven.reduction.untied_residual),
        "commutator": runs.uneven.commutator,
        "printed": runs.uneven.h_gradient[1],
        "seeds": options.seeds,
        "sizes": runs.sizes,
    }
    off = np.abs(options.loss_scale * runs.small - losses).max() / losses[0, 0]
    checks.append(
        Check.below(
            "random: loss of the wide - of the exact small networks, / L(0)", off, 1e-10,
            f"{runs.sizes[0]} of {runs.sizes[1]} hidden units; no effective amplitude",
        )
    )  # fmt: skip
    checks.append(
        Check.below(
            "random: loss - closed form, mean over time / L(0)", mean, 0.01,
            f"median of {options.seeds} seeds, a0 = |W2^T u + W1 v|^2/4; largest {most:.2%}",
        )
    )  # fmt: skip
    return checks, facts


def _flow_checks(runs: Runs, known: dict[str, np.ndarray]) -> Iterator[Check]:
    span = f"t <= {runs.grid[-1]:g}"
    for name, formula in (("aligned", "H Eq. 7"), ("unbalanced", "SCIENCE 6")):
        seen = getattr(runs, name).measured
        gap = np.abs(np.asarray(seen["strength"]) - known[name]).max()
        yield Check.below(
            f"{name}: flow - {formula}, modes", max(gap, float(np.max(seen["off"]))), 1e-8, span
        )
    losses = np.asarray(runs.aligned.losses) * _scale(runs)
    yield Check.below(
        "aligned: flow - H Eq. 7, loss",
        np.abs(losses - runs.modes.loss(known["aligned"])).max(), 1e-8, span,
    )  # fmt: skip
    _, flow = runs.unaligned
    yield Check.below(
        "unaligned: flow - matrix Riccati solution, map",
        np.abs(np.asarray(flow.measured["map"])[::_THINNED] - known["unaligned"]).max(), 1e-8,
        "balanced random frames; largest entry",
    )  # fmt: skip


def _scale(runs: Runs) -> float:
    """loss_scale, read off the modes: d is 1/4 for the mean."""
    return float(4 * runs.modes.d[0])


def _uneven_checks(uneven: Uneven) -> Iterator[Check]:
    yield Check.below(
        "uneven items: flow - coupled reduction, map",
        np.abs(np.asarray(uneven.flow.measured["map"]) - uneven.maps).max(), 1e-8, "largest entry",
    )  # fmt: skip
    yield Check.between(
        "uneven items: certificate says the statistics share no frame",
        uneven.reduction.untied_residual, 0.01, 1.0,
        f"share of the gradient off the frames; ||[Sx, Gyx]||/||Sx Gyx|| = {uneven.commutator:.3f}",
    )  # fmt: skip
    yield Check.below(
        "E20: -gradient in modes - corrected equation", uneven.h_gradient[0], 1e-12,
        f"relative; as printed {uneven.h_gradient[1]:.2f}",
    )  # fmt: skip


def _reference_checks() -> Iterator[Check]:
    s, d = np.array([7**0.5, 3**0.5, 1, 1]) / 4, np.full(4, 0.25)
    modes = Modes(s, d, np.eye(4), np.eye(4))
    at = np.asarray(exact.linear_mode(np.array([[5.0], [10.0]]), s, d, _PI0))
    # Tolerance: the digits given.
    yield Check.below(
        "reference: modes at t = 10", np.max(np.abs(at[1] / REFERENCE_PI_10 - 1)), 1e-12, "relative"
    )
    yield Check.near("reference: loss at t = 5", modes.loss(at[0]), REFERENCE_L_5, 1e-12)
    half = np.asarray(exact.linear_mode_time(s[:3] / d[:3] / 2, s[:3], d[:3], _PI0))
    yield Check.below(
        "reference: half times (E21)", np.max(np.abs(half / REFERENCE_HALF_TIMES - 1)), 1e-12,
        "relative",
    )  # fmt: skip
    yield Check.near(
        "reference: half time of the unbalanced mode 1",
        exact.unbalanced_mode_time(s[0] / d[0] / 2, s[0], d[0], *_UNBALANCED),
        REFERENCE_UNBALANCED, 1e-10,
    )  # fmt: skip


# ------------------------------------------------------------------ in words
def _finding(facts: dict[str, Any]) -> str:
    return (
        "each closed form follows its flow to 1e-8; random networks follow H Eq. 7 "
        f"to {facts['mean']:.2%} of L(0) in the mean ({facts['max']:.1%} at most; medians of "
        f"{facts['seeds']} seeds) once a0 is |W2^T u + W1 v|^2/4, without a fit."
    )


def _notes(facts: dict[str, Any]) -> Iterator[str]:
    mean, spread = facts["a0"]
    yield (
        f"The effective a0 of random weights is {mean:.3g} ± {spread:.2g} (seeds and modes; "
        f"expected n std^2/2 = {facts['expected_a0']:.3g}). The obvious u^T W2 W1 v is negative "
        f"in {facts['negative']:.0%} of the cases and would never learn."
    )
    yield (
        f"Without any effective amplitude: a network of {facts['sizes'][0]} hidden units "
        f"(reduce_width) has the loss of each random one of {facts['sizes'][1]} to rounding."
    )
    yield (
        "What is left between random networks and H Eq. 7 is the overlap of different modes in "
        "the hidden layer, about 1/sqrt(width), which the closed form takes for 0."
    )
    yield (
        "E20: without common frames the updates are tau W1' = W2^T (S Vh^T V - W2 W1 D) and "
        "tau W2' = (S Vh^T V - W2 W1 D) W1^T; as printed they miss the gradient by "
        f"{facts['printed']:.0%}. E21: only the rate is independent of Sigma^x; times depend on d."
    )
    yield sim.SUM_NOTE
