"""N Fig. 4: routing. M input and M output domains learn through one shared hidden pathway.

(a) networks from random initial weights by gradient descent, (b) a decoupled network by gradient
descent and by gradient flow, (c) N Eq. 13-15 with the exact clock t = tau eta step and no fitted
factor between (b) and (c). Errata: E6-E10.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import _reduction, init, measures, tasks
from gdln_jax._network import GatedNetwork
from gdln_jax._plan import pack
from gdln_jax._trajectory import STATUS, Trajectory
from gdln_jax.recipes import _routing_runs as sim
from gdln_jax.recipes._base import Base, load_base
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._routing_data import dataset
from gdln_jax.recipes._routing_figure import draw
from gdln_jax.tasks._routing import routing_data

# Values computed independently of this package (tests/reference.json, `routing_M7_B0_0.2`), for
# M = 7, B1(0) = B2(0) = .2, tau = 1 and the hierarchy of N Fig. 4c.
REFERENCE_T = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)
REFERENCE_LOSS = (
    30.4480228105, 30.4038247427, 30.297084131, 7.37306670537, 2.52130789361, 0.420468915711,
)  # fmt: skip
REFERENCE_STEPS = (0, 50, 100, 250, 500, 1000)
REFERENCE_DESCENT = (
    30.448022811, 30.404066475, 30.298785419, 7.4171600585, 2.5552495052, 0.42967597095,
)  # fmt: skip
REFERENCE_RATIO = 2.63053924

# The hierarchy's largest s/d, from which other data take their scale (see `_scaled`).
_HIERARCHY_MAP = 185**0.5
_MAX_STEPS = 60_000
_ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
# Zero-shot generalisation is expected below this sigma_2/sigma_1 of the route matrix (E11/12).
_GAP = 0.7


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        domains: M. trained: K, outputs trained per input. width: N_h. pattern: see tasks.routing.
        seeds: random networks. seed: from which they and random patterns are drawn.
        init, init_scale: random initial weights; N's sigma_0 is the gain of Xavier weights.
        amplitude: b(0) of the decoupled network.
        learning_rate, duration: of gradient descent; duration in units of tau.
        base: "hierarchy", "digits" or FILE.npz with x (n, d) and y (n, k).
        whiten: whether inputs are whitened; by default all but the hierarchy's.

    None leaves a choice to the data: initial values in the same ratio to the final ones as on the
    hierarchy (where they are .2), a stable learning rate, and time enough to learn.
    """

    domains: int = 7
    trained: int = 4
    width: int = 64
    seeds: int = 10
    seed: int = 0
    pattern: Literal["cyclic", "random_biregular", "rows_only"] = "cyclic"
    init: Literal["xavier", "orthogonal", "normal"] = "xavier"
    init_scale: float | None = None
    amplitude: float | None = None
    learning_rate: float | None = None
    duration: float | None = None
    base: str = "hierarchy"
    whiten: bool | None = None

    def __post_init__(self) -> None:
        for name in ("domains", "trained", "width", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.trained > self.domains:
            raise ValueError(
                f"trained = {self.trained} outputs per input, but there are only "
                f"{self.domains} domains"
            )
        for name in ("init_scale", "amplitude", "learning_rate", "duration"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be a number above 0, got {value}")


QUICK = {"seeds": 3}


@dataclass(frozen=True)
class Plan:
    """Everything that is settled before the first network is trained."""

    task: tasks.Task
    reduction: _reduction.Reduction
    modes: sim.Modes
    base: Base
    options: Options
    amplitude: float
    init_scale: float
    rate: float

    @property
    def pattern(self) -> np.ndarray:
        """The 0/1 matrix of trained routes."""
        return np.asarray(self.task.meta["pattern"])

    @property
    def generalises(self) -> bool:
        """Whether there are untrained routes, and theory expects them to work (E10-E12)."""
        return bool((self.pattern == 0).any()) and self.task.meta["spectral_gap"] < _GAP

    @property
    def reference(self) -> bool:
        """Whether the reference values are for this setting of the decoupled network."""
        o = self.options
        return o.base == "hierarchy" and not o.whiten and o.domains == 7 and self.amplitude == 0.2


@dataclass(frozen=True)
class Runs:
    """What was simulated; times are in units of tau. Runs of `descent`: the seeds, then (b)."""

    ts: np.ndarray
    descent: Trajectory
    flow: Trajectory
    start: Any
    fitted: np.ndarray
    misfit: np.ndarray


def run(options: Options, progress: Progress = silent) -> Result:
    """Make N Fig. 4."""
    progress(0.0, "data")
    plan = make_plan(options)
    progress(0.1, "random networks")
    runs = simulate(plan, progress)
    progress(0.9, "checks")
    final = final_state(plan, runs)
    checks, facts = check(plan, runs, final)
    data = dataset(plan, runs, final, starting_values(runs))
    progress(1.0, "picture")
    return Result(
        name="routing",
        data=data,
        checks=tuple(checks),
        figure=lambda: draw(data, plan.task.graph, facts),
        verdict=_verdict(plan, facts),
        notes=tuple(_notes(plan, facts)),
        options={
            **{field.name: getattr(options, field.name) for field in fields(options)},
            "amplitude": plan.amplitude,
            "init_scale": plan.init_scale,
            "learning_rate": plan.rate,
            "duration": float(runs.ts[-1]),
        },
    )


# ------------------------------------------------------------------ before the runs
def make_plan(options: Options) -> Plan:
    """Load the base data, refuse what Eq. 13-15 do not cover, and settle scales and step."""
    base = _base(options)
    task = tasks.routing(
        options.domains,
        options.trained,
        base=(base.x, base.y),
        pattern=options.pattern,
        key=jax.random.key(options.seed),
        width=options.width,
    )
    if not task.meta["biregular"]:
        counts = task.meta["pattern"].sum(axis=0)
        raise OptionError(
            f"pattern {options.pattern!r} trains each output with {counts.min()} to "
            f"{counts.max()} inputs; Eq. 13-15 need as many trained inputs per output as outputs "
            "per input (E7): use --set pattern=cyclic or pattern=random_biregular"
        )
    try:
        reduction = _reduction.reduce(task.graph, task.data)
    except _reduction.InexactReductionError as error:
        raise OptionError(
            f"base {options.base!r} is not of Eq. 13's kind, Sigma^x and Sigma^yx have no common "
            f"frame; leave out --set whiten=false. {error}"
        ) from error
    except ValueError as error:
        raise OptionError(f"base {options.base!r}: {error}") from error
    modes = sim.find_modes(task, reduction)
    rank = np.linalg.matrix_rank(base.y.T @ base.x)
    if rank > options.width:
        raise OptionError(
            f"the base data have {rank} modes but the hidden layers {options.width} units: "
            f"use --set width={rank} or more"
        )
    amplitude = options.amplitude or _scaled(0.2, modes)
    rate = options.learning_rate or _one_digit(0.13 / sim.curvature(modes, amplitude))
    init_scale = options.init_scale or _scaled(0.2, modes)
    return Plan(task, reduction, modes, base, options, amplitude, init_scale, rate)


def _base(options: Options) -> Base:
    if options.base == "hierarchy":
        features = tasks.hierarchy_features()
        base = Base(np.eye(features.shape[1]), features.T, "hierarchy of N Fig. 4c")
    else:
        base = load_base(options.base)
    whiten = options.base != "hierarchy" if options.whiten is None else options.whiten
    return (base.whitened() if whiten else base).condensed()


def _scaled(value: float, modes: sim.Modes) -> float:
    """`value` in the same ratio to the largest final strength, (s/d)^(1/3), as on the hierarchy."""
    ratio = (float(np.max(modes.s / modes.d)) / _HIERARCHY_MAP) ** (1 / 3)
    return value if abs(ratio - 1) < 1e-9 else float(f"{value * ratio:.2g}")


def _one_digit(value: float) -> float:
    return float(f"{value:.1g}")


def _duration(plan: Plan, b1: np.ndarray, b2: np.ndarray) -> float:
    """Time enough for the slowest mode that matters, by Eq. 15 from the measured b(0).

    Modes that together hold a thousandth of what can be learned are not waited for. A third as
    long again, because random networks are late, and a round number.
    """
    if plan.options.duration is not None:
        return plan.options.duration
    gain = plan.modes.s**2 / plan.modes.d
    rest = np.append(np.cumsum(gain[::-1])[::-1][1:], 0.0)
    counts = rest + gain > 1e-3 * gain.sum()
    wanted = 1.3 * float(sim.learning_time(plan.modes, b1, b2)[counts].max())
    if not np.isfinite(wanted):
        raise OptionError(
            "some mode of the base data is too weak to be learned in any reasonable time; "
            "say how long to train with --set duration="
        )
    scale = 10.0 ** np.floor(np.log10(wanted))
    return float(next(r * scale for r in _ROUND if r * scale >= wanted))


# ------------------------------------------------------------------ the runs
def simulate(plan: Plan, progress: Progress = silent) -> Runs:
    """Train the random networks and the decoupled one together; then the decoupled one's flow."""
    o, modes = plan.options, plan.modes
    frames = sim.frames_of(plan.task, plan.reduction, modes)
    random = sim.initial_networks(plan.task, o.init, plan.init_scale, o.seeds, o.seed)
    start = jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda n: sim.shared(n, frames)))(random))
    b1, b2 = (np.median(b, axis=0) for b in (np.sqrt(start.first * start.third), start.hidden))
    steps, save_every = _steps(plan, _duration(plan, b1, b2))
    decoupled = GatedNetwork.init(
        plan.task.graph, init.decoupled(plan.reduction, plan.amplitude), key=jax.random.key(0)
    )
    nets = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), random, decoupled)
    data = pack(plan.task.graph, plan.task.data)
    progress(0.2, f"{o.seeds + 1} networks, {steps} steps of gradient descent")
    descent = sim.descend(nets, data, frames, plan.rate, steps, save_every)
    _check_status(descent.status, plan.rate)
    progress(0.6, "gradient flow")
    ts = sim.times(descent.ts[0], plan.rate)
    grid = np.unique(np.concatenate([ts[:: max(1, len(ts) // 100)], [ts[-1]], REFERENCE_T]))
    flow = sim.follow_flow(decoupled, data, frames, grid[grid <= ts[-1]])
    progress(0.8, "theory")
    some = slice(None, None, max(1, len(ts) // 100))
    losses = np.asarray(descent.losses)[:-1]
    fitted, misfit = sim.fit_amplitude(modes, ts[some], losses[:, some], float(np.median(b1)))
    return Runs(ts, descent, flow, start, fitted, misfit)


def _steps(plan: Plan, duration: float) -> tuple[int, int]:
    """Number of steps, and steps between records: some hundreds of them, at round numbers."""
    wanted = duration / plan.rate
    if wanted > _MAX_STEPS:
        raise OptionError(
            f"learning would take {wanted:.0f} steps (t = {duration:g} at learning rate "
            f"{plan.rate:g}); initial values {plan.init_scale:g} are small or some mode of the "
            "base data is weak: set init_scale or amplitude higher, or duration lower"
        )
    spacing = [1, 2, 5, 10, 25, 50, 100, 200]
    save_every = max(k for k in spacing if k <= max(1.0, wanted / 250))
    return max(2, round(wanted / save_every)) * save_every, save_every


def _check_status(status: Any, rate: float) -> None:
    bad = np.flatnonzero(np.asarray(status))
    if len(bad):
        code = int(np.asarray(status)[bad[0]])
        raise OptionError(
            f"network {bad[0]} of {len(status)}: {STATUS[code]} at learning rate {rate:g}; "
            "use --set learning_rate= with a smaller one, or a smaller init_scale"
        )


@dataclass(frozen=True)
class Final:
    """The random networks at the end; arrays (seed, ...)."""

    errors: np.ndarray
    similarity: np.ndarray
    alignment: np.ndarray
    outputs: np.ndarray
    target: np.ndarray
    probes: tuple[str, ...]
    median_seed: int


def final_state(plan: Plan, runs: Runs) -> Final:
    """Errors by route, similarity across domains, and outputs on all routes, of every seed."""
    m, x = plan.options.domains, plan.task.meta["base"][0]
    nets = jax.tree.map(lambda leaf: leaf[:-1], runs.descent.final)
    probes, names = _probes(plan)
    # One example per domain and probe; only the input's side matters for h1.
    m_probes, features = len(probes), len(plan.modes.u)
    own = routing_data(m, np.stack([np.arange(m)] * 2, 1), probes, np.zeros((m_probes, features)))
    best = plan.modes.prediction(x)

    @jax.jit
    @jax.vmap
    def look(net: GatedNetwork) -> tuple[Any, ...]:
        outputs = jnp.einsum("ijyx,nx->ijny", measures.input_output_maps(net), probes)
        similarity = measures.representational_similarity(net, own, "h1")
        return measures.route_errors(net, x, best), similarity, outputs

    errors, similarity, outputs = (np.asarray(a) for a in look(nets))
    alignment = [float(measures.domain_alignment(one, m)) if m > 1 else 1.0 for one in similarity]
    off = plan.pattern == 0 if (plan.pattern == 0).any() else plan.pattern == 1
    score = errors[:, off].mean(axis=1)
    median_seed = int(np.argsort(score, kind="stable")[(len(score) - 1) // 2])
    target = plan.modes.prediction(probes)
    return Final(errors, similarity, np.array(alignment), outputs, target, names, median_seed)


def _probes(plan: Plan) -> tuple[np.ndarray, tuple[str, ...]]:
    """Inputs to look at the network with: the items, the mean of each class, or the modes."""
    x, y = plan.task.meta["base"]
    if len(x) <= 12:
        return x, tuple(str(k + 1) for k in range(len(x)))
    if plan.options.base == "digits":
        # Least squares on one-hot labels: <x y_c> / <y_c> is the mean input of class c.
        means = (x.T @ y / np.sum(y**2, axis=0)).T
        return means, tuple(str(k) for k in range(len(means)))
    count = min(10, len(plan.modes.s))
    probes = (plan.modes.v * np.sqrt(plan.modes.d)).T[:count]
    return probes, tuple(f"m{k + 1}" for k in range(count))


# ------------------------------------------------------------------ checks
def check(plan: Plan, runs: Runs, final: Final) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    checks = list(_exact_checks(plan, runs))
    facts = _facts(plan, runs, final)
    checks.append(
        Check.near(
            "random: E8, growth of hidden layer / first layers",
            facts["growth"], 1.0, 0.01,
            "sum of squares, median; 1 for the flow, first order in the step",
        )
    )  # fmt: skip
    if plan.generalises:
        checks.append(
            Check.below(
                "random: zero-shot relative error, median",
                facts["untrained"], 1e-3,
                f"{plan.options.seeds} seeds, quartiles {facts['low']:.1e} .. {facts['high']:.1e};"
                f" trained {facts['trained']:.1e}",
            )
        )  # fmt: skip
    return checks, facts


def _exact_checks(plan: Plan, runs: Runs) -> Iterator[Check]:
    modes, b = plan.modes, plan.amplitude
    grid = np.asarray(runs.flow.ts)
    b1, b2 = modes.flow(grid, b, b)
    yield Check.below(
        "decoupled: flow - Eq. 15, weights",
        sim.weight_error(runs.flow.measured, b1, b2), 1e-8,
        f"largest Frobenius norm over edges and t <= {grid[-1]:g}",
    )  # fmt: skip
    steps = np.asarray(runs.descent.ts[0])
    m1, m2 = (a[steps] for a in modes.descent(int(steps[-1]), plan.rate, b))
    decoupled = jax.tree.map(lambda leaf: leaf[-1], runs.descent.measured)
    yield Check.below(
        "decoupled: descent - Euler map, weights",
        sim.weight_error(decoupled, m1, m2), 1e-10,
        f"Eq. 13-14 in scalars, {steps[-1]} steps of {plan.rate:g}",
    )  # fmt: skip
    losses = np.asarray(runs.descent.losses[-1])
    yield Check.below(
        "decoupled: descent - Euler map, loss / L(0)",
        np.max(np.abs(losses - modes.loss(m1, m2))) / losses[0], 1e-10,
    )  # fmt: skip
    yield Check.below(
        "decoupled: drift of the matrices of E8",
        sim.conserved_drift(runs.flow.measured), 1e-8,
        "relative, at both hidden nodes along the flow",
    )  # fmt: skip
    c = (modes.num_domains - 1) * np.full_like(modes.s, b) ** 2
    first, hidden, _ = (np.asarray(a)[-1] for a in runs.flow.measured["aligned"])
    ratio = hidden[0] / first
    wanted = b2[-1] / b1[-1]
    yield Check.below(
        "decoupled: final B2/B1 per mode - theory",
        np.max(np.abs(ratio / wanted - 1)), 1e-8,
        f"{ratio[0, 0]:.8g} for mode 1; sqrt(M) = {np.sqrt(modes.num_domains):.8g} is the limit",
    )  # fmt: skip
    settled = modes.final_hidden(c)
    yield from _reference_checks(
        plan, runs, settled / np.sqrt((settled**2 + c) / modes.num_domains)
    )


def _reference_checks(plan: Plan, runs: Runs, final_ratio: np.ndarray) -> Iterator[Check]:
    if not plan.reference:
        return
    modes, b = plan.modes, plan.amplitude
    # Tolerances: half a unit of the last digit given.
    yield Check.near("reference: final B2/B1 of mode 1", final_ratio[0], REFERENCE_RATIO, 5e-9)
    theory = modes.loss(*modes.flow(REFERENCE_T, b, b))
    yield Check.below(
        "reference: loss by Eq. 15", _largest(theory, REFERENCE_LOSS), 1e-10, "relative, 6 times"
    )
    steps = np.asarray(runs.descent.ts[0])
    if plan.rate == 0.02 and np.isin(REFERENCE_STEPS, steps).all():
        found = np.asarray(runs.descent.losses[-1])[np.searchsorted(steps, REFERENCE_STEPS)]
        yield Check.below(
            "reference: loss of gradient descent", _largest(found, REFERENCE_DESCENT), 1e-10,
            "relative, 6 numbers of steps",
        )  # fmt: skip


def _largest(found: np.ndarray, expected: tuple[float, ...]) -> float:
    return float(np.max(np.abs(found / np.array(expected) - 1)))


def starting_values(runs: Runs) -> dict[str, tuple[Any, Any]]:
    """(B1(0), B2(0)) that stand for the random networks; medians over seeds.

    "projected": |p| = |q| of the shared code, per mode, taken for all layers as N does (E9).
    "separate": the hidden layer's own projection, which is near 0 with random sign.
    "fitted": the one number whose loss curve is nearest.
    """
    b1 = np.median(np.sqrt(runs.start.first * runs.start.third), axis=0)
    fit = float(np.median(runs.fitted))
    return {
        "projected": (b1, b1),
        "separate": (b1, np.median(runs.start.hidden, axis=0)),
        "fitted": (fit, fit),
    }


def _facts(plan: Plan, runs: Runs, final: Final) -> dict[str, Any]:
    modes = plan.modes
    trained = final.errors[:, plan.pattern == 1].mean(axis=1)
    rest = plan.pattern == 0
    untrained = final.errors[:, rest].mean(axis=1) if rest.any() else np.full(len(trained), np.nan)
    low, median, high = np.quantile(untrained, (0.25, 0.5, 0.75))
    squares = np.asarray(runs.descent.measured["squares"])[:-1]
    change = squares[:, -1] - squares[:, 0]
    start = np.sqrt(runs.start.first * runs.start.third)
    losses = np.asarray(runs.descent.losses)[:-1]
    starts = starting_values(runs)
    median_loss = np.median(losses, axis=0)
    misfit = {
        name: float(np.mean(np.abs(median_loss - modes.loss(*modes.flow(runs.ts, *b)))))
        / modes.half_trace
        for name, b in starts.items()
    }
    return {
        "trained": float(np.median(trained)),
        "untrained": float(median),
        "low": float(low),
        "high": float(high),
        "growth": float(np.median(change[:, 1] / change[:, 0])),
        "alignment": float(np.median(final.alignment)),
        "projected": (float(start.mean()), float(start.std())),
        "projected_hidden": (float(runs.start.hidden.mean()), float(runs.start.hidden.std())),
        "fitted": (float(np.median(runs.fitted)), float(runs.fitted.std())),
        "misfit": misfit,
        "generalises": plan.generalises,
        "median_seed": final.median_seed,
    }


# ------------------------------------------------------------------ in words
def _verdict(plan: Plan, facts: dict[str, Any]) -> str:
    o = plan.options
    first = (
        f"M = {o.domains}, K = {o.trained}, {plan.base.origin}: the decoupled network follows "
        "Eq. 13-15 to rounding"
    )
    if not (plan.pattern == 0).any():
        return f"{first}; every route is trained, so there is no zero-shot error."
    ends = (
        "the untrained routes have relative error" if plan.generalises else "untrained routes keep"
    )
    return (
        f"{first}; from random weights {ends} {facts['untrained']:.1e} (median of {o.seeds} "
        f"seeds), trained ones {facts['trained']:.1e}."
    )


def _notes(plan: Plan, facts: dict[str, Any]) -> Iterator[str]:
    o = plan.options
    (b, spread), (hidden, hidden_spread) = facts["projected"], facts["projected_hidden"]
    fit, fit_spread = facts["fitted"]
    misfit = facts["misfit"]
    yield (
        f"E9: {o.init} weights with scale {plan.init_scale:g} are not b(0) = {plan.init_scale:g}."
        f" Projected on the shared code: b(0) = {b:.4f} ± {spread:.4f} (seeds and modes); best fit"
        f" of Eq. 15 to the loss: {fit:.4f} ± {fit_spread:.4f} (seeds). Mean distance to the median"
        f" loss, in L(0): {misfit['projected']:.2%} projected, {misfit['fitted']:.2%} fitted."
    )
    yield (
        f"The hidden layer's own projection is B2(0) = {hidden:.4f} ± {hidden_spread:.4f}; Eq. 15 "
        f"from it misses by {misfit['separate']:.2%}. The rest of the random W2 turns and carries "
        "the shared code early on; without it (W2(0) = 0) that projection would be the right one."
    )
    yield (
        "E8: sqrt(M) between the singular values is a limit; exact is M B1^2 - B2^2 = const, "
        "per mode and as matrices at every hidden node."
    )
    gap = plan.task.meta["spectral_gap"]
    if not (plan.pattern == 0).any():
        yield "All routes are trained: no zero-shot check."
    elif not plan.generalises:
        yield (
            f"E10-E12: sigma_2/sigma_1 of the trained routes is {gap:.2f}; zero-shot "
            f"generalisation is expected below {_GAP} only, so it is reported, not checked."
        )
    if plan.base.origin.startswith("hierarchy"):
        return
    yield (
        "Relative errors are against the best linear prediction, which leaves "
        f"{plan.modes.floor / plan.modes.half_trace:.1%} of the targets' power."
    )
