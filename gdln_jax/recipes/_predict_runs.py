"""Predictions and, beside them, trained networks: drops, shares of rivals, imitation."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import GatedData, build_gated, discover_gates, imitation_gap, pack, relu
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes import _predict_tasks as problems
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Progress, silent

# Trained a little beyond the last drop, so that its plateau can be read.
_BEYOND = 1.12
# Shares are of networks of this width, scale and step. Larger steps cost units at kinks more.
SHARE_UNITS, SHARE_STD, SHARE_RATE, SHARE_STEPS = 128, 1e-5, 0.01, 4800
_SHARE_TIME = 60.0
# Margins and scales at which the crossing of the shares is looked for.
CROSSING_DELTAS = np.array([0.80, 0.815, 0.82, 0.83, 0.84, 0.85, 0.86, 0.87, 0.88, 0.9])
CROSSING_STDS = np.array([1e-5, 1e-9, 1e-15, 1e-30, 1e-60, 1e-150])
IMITATION_UNITS, IMITATION_STAGES = 200, 3


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        cases: tasks whose drops are predicted and trained. seeds, seed: trained networks.
        stds: two scales of the initial weights, the larger one first; T of trained networks is the
            slope of the time of a drop against ln(1/std) between them.
        learning_rate: of full-batch descent on the mean loss; tau = 1.
        deltas: margins at which shares of rival gates are compared. crossing_units: units of the
            flows that say where the shares cross.
        imitated: tasks of which gated networks are built from predicted and from clustered gates.
    """

    cases: tuple[str, ...] = tuple(problems.CASES)
    seeds: int = 5
    seed: int = 0
    stds: tuple[float, ...] = (1e-8, 1e-12)
    learning_rate: float = 0.02
    deltas: tuple[float, ...] = (0.78, 0.82, 0.86, 0.95)
    crossing_units: int = 1500
    imitated: tuple[str, ...] = tuple(problems.IMITATED)

    def __post_init__(self) -> None:
        sim.check_numbers(self, ("seeds", "crossing_units"), ("learning_rate",))
        for name, given, known in (
            ("cases", self.cases, problems.CASES), ("imitated", self.imitated, problems.IMITATED),
        ):  # fmt: skip
            strange = [one for one in given if one not in known]
            if strange:
                raise ValueError(f"{name} names {strange[0]!r}; there are: {', '.join(known)}")
        if not self.cases:
            raise ValueError("cases is empty; name at least one task")
        if len(self.stds) != 2 or not 0 < self.stds[1] < self.stds[0] < 1:
            raise ValueError(f"stds must be two scales below 1, larger one first, got {self.stds}")


@dataclass(frozen=True)
class Drops:
    """Predicted drops of one task, and those of trained networks."""

    prediction: relu.GatePrediction
    ts: np.ndarray  # (time,)
    losses: np.ndarray  # (std, seed, time), as shares of L(0)
    crossings: np.ndarray  # (std, seed, stage) times of the drops
    slopes: np.ndarray  # (seed, stage) T of trained networks, corrected for the step
    plateaus: np.ndarray  # (seed, stage) at the smaller std


@dataclass(frozen=True)
class Runs:
    """Everything that the picture shows and the checks use."""

    drops: dict[str, Drops]
    shares: np.ndarray  # (delta, seed, 2) of units on for one example: predicted, trained
    crossing: np.ndarray  # (std,) margin at which predicted shares are equal
    gaps: dict[str, tuple[np.ndarray, np.ndarray]]  # mean loss gaps (seed,): k-means, predicted


def simulate(options: Options, progress: Progress = silent) -> Runs:
    """All predictions and all networks."""
    o, drops, gaps = options, {}, {}
    for k, name in enumerate(o.cases):
        progress(0.6 * k / len(o.cases), f"{name}: prediction and {2 * o.seeds} networks")
        drops[name] = _drops(o, problems.CASES[name])
    progress(0.6, f"shares of rival gates at {len(o.deltas)} margins")
    shares = np.array([_shares(o, delta) for delta in o.deltas]).reshape(-1, o.seeds, 2)
    crossing = _crossings(o.crossing_units)
    for k, name in enumerate(o.imitated):
        progress(0.7 + 0.25 * k / len(o.imitated), f"{name}: imitation by gated networks")
        gaps[name] = _imitation(o, problems.IMITATED[name])
    return Runs(drops, shares, crossing, gaps)


# ------------------------------------------------------------------ drops
def _drops(options: Options, case: problems.Case) -> Drops:
    o, data = options, case.make()
    found = relu.predict_gates(data, stages=case.stages, units=case.units)
    count = min(case.trained, len(found.times))
    last = float(found.times[count - 1])
    steps = int(np.ceil(_BEYOND * last * np.log(1 / o.stds[1]) / o.learning_rate))
    if steps > 200_000:
        raise OptionError(f"{case.name} needs {steps} steps; use a larger learning_rate")
    (x,), (y,) = data.inputs.values(), data.targets.values()
    one = [
        relu.ReLUNetwork.init([x.shape[1], 100, y.shape[1]], std=std, key=key)
        for std in o.stds
        for key in sim.keys(o.seed, o.seeds)
    ]
    nets = jax.tree.map(lambda *leaves: jnp.stack(leaves), *one)
    run = sim.descend(nets, data, o.learning_rate, steps, max(steps // 4000, 1), what="network")
    ts = o.learning_rate * np.asarray(run.ts[0], float)
    crossings = found.crossings(run, ts).reshape(2, o.seeds, -1)[..., :count]
    slopes = (crossings[1] - crossings[0]) / np.log(o.stds[0] / o.stds[1])
    losses = np.asarray(run.losses).reshape(2, o.seeds, -1) / found.initial_loss
    plateaus = np.array([
        [_flattest(ts, loss, start, end) for start, end in zip(t, [*t[1:], np.inf], strict=True)]
        for t, loss in zip(crossings[1], losses[1], strict=True)
    ])  # fmt: skip
    return Drops(found, ts, losses, crossings, slopes - case.step * o.learning_rate, plateaus)


def _flattest(ts: np.ndarray, loss: np.ndarray, start: float, end: float) -> float:
    """The loss where it changes least between two times."""
    inside = np.flatnonzero((ts > start) & (ts < end))
    if len(inside) < 3:
        return float("nan")
    return float(loss[inside[np.argmin(np.abs(np.gradient(loss[inside], ts[inside])))]])


# ------------------------------------------------------------------ rivals
def _shares(options: Options, delta: float) -> np.ndarray:
    """(seed, 2) shares of units on for one example, predicted and trained, same initial weights."""
    o, data = options, problems.margin(delta)
    found, nets = [], []
    for seed in range(o.seeds):
        r = np.random.default_rng(seed)
        w, a = r.normal(size=(SHARE_UNITS, 3)), r.normal(size=(SHARE_UNITS, 1))
        gates = relu.dormant_flow(data, w=w, a=a, t=_SHARE_TIME).gates(data)
        found.append(gates.shares(SHARE_STD)[gates.patterns.sum(axis=1) == 1].sum())
        nets.append(relu.ReLUNetwork([SHARE_STD * w, SHARE_STD * a.T]))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)
    end = sim.descend(stacked, data, SHARE_RATE, SHARE_STEPS, SHARE_STEPS).final
    on = jax.vmap(lambda net: relu.activation_patterns(net, data, threshold=0.1))(end)
    power = jax.vmap(lambda net: relu.unit_power(net, data))(end)
    trained = np.sum(np.asarray(power) * (np.asarray(on).sum(axis=-1) == 1), axis=-1)
    return np.stack([np.array(found), trained], axis=-1)


def _crossings(units: int) -> np.ndarray:
    """(std,) margin at which the shares of both kinds of gates are equal, interpolated."""
    leads = []
    for delta in CROSSING_DELTAS:
        data, r = problems.margin(float(delta)), np.random.default_rng(0)
        w, a = r.normal(size=(units, 3)), r.normal(size=(units, 1))
        gates = relu.dormant_flow(data, w=w, a=a, t=_SHARE_TIME).gates(data)
        single = gates.patterns.sum(axis=1) == 1
        shares = [gates.shares(float(std), units=SHARE_UNITS) for std in CROSSING_STDS]
        leads.append([share[~single].sum() - share[single].sum() for share in shares])
    return np.array([np.interp(0.0, lead, CROSSING_DELTAS) for lead in np.array(leads).T])


# ------------------------------------------------------------------ imitation
def _imitation(options: Options, case: problems.Imitated) -> tuple[np.ndarray, np.ndarray]:
    """Mean loss gaps (seed,) of gated networks from k-means and from predicted gates."""
    data: GatedData = case.make()
    (x,), ((output, y),) = data.inputs.values(), data.targets.items()
    keys = jax.random.split(jax.random.key(options.seed), options.seeds)
    every = sim.spacing(case.steps, 100)

    def network(key: Any) -> relu.ReLUNetwork:
        widths = [x.shape[1], IMITATION_UNITS, y.shape[1]]
        return relu.ReLUNetwork.init(widths, std=case.std, key=key)

    def taken(net: Any) -> relu.Snapshots:
        return relu.snapshot(net, data, threshold=case.threshold)

    run = sim.descend(jax.vmap(network)(keys), data, case.rate, case.steps, every, measure=taken)
    found = relu.predict_gates(data, std=case.std, units=IMITATION_UNITS, stages=IMITATION_STAGES)
    end = case.steps * case.rate / np.log(1 / case.std)
    starts = jax.random.split(jax.random.key(options.seed + 1), options.seeds)
    gaps = []
    assert isinstance(run.measured, relu.Snapshots)
    for snapshots in (run.measured, found.snapshots_until(end)):
        modules = discover_gates(snapshots, k=case.k)
        graph, gated, start = build_gated(
            modules, data, std=case.std, key=starts, scales=case.scales
        )
        imitation = sim.descend(
            start, pack(graph, gated), case.rate, case.steps, every,
            measure=lambda net, gated=gated: net(gated)[output],
        )  # fmt: skip
        gaps.append(imitation_gap(run, imitation).mean_loss)
    return gaps[0], gaps[1]
