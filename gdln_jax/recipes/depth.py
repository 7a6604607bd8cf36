"""H Fig. 6: two hidden layers. Is the first one linear, and which gates does the second one take?

Plateaus are held against the best fits of the rank that has been learned; stereotypical
trajectories are those nearest to the mean. Contextual pathways open at the change point of the
ReLU networks' gates. Errata: E19, E25.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import GatedData, GatedNetwork, Graph, Schedule, Trajectory, init, pack, relu, tasks
from gdln_jax.recipes import _context_runs as cx
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes._depth_figure import dataset, draw
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform

# SCIENCE 6: L(0) - s_1^2/(2 d_1), and what was measured there.
REFERENCE_PLATEAU, REFERENCE_MEASURED = 71.15, 70.97
_STD, _STD_WIDTH = 6e-4, 420  # std = 6e-4 sqrt(420/H)


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        seeds, seed: networks of each kind. width: units of each hidden layer of the ReLU network
            and of the first layer of the gated one. pathway_width: units of a second-layer
            pathway; None is width/2. std: of iid normal weights; None is 6e-4 sqrt(420/width).
        opens: time at which the contextual pathways open in the gated networks called "late";
            None is the change point of the ReLU networks' gates, so that nothing is set by hand.
        learning_rate, steps: of gradient descent, for L = loss_scale times the mean.
        loss_scale: None is H's sum over the examples.
    """

    seeds: int = 8
    seed: int = 0
    width: int = 128
    pathway_width: int | None = None
    std: float | None = None
    opens: float | None = None
    learning_rate: float = 1e-3
    steps: int = 30_000
    loss_scale: float | None = None

    def __post_init__(self) -> None:
        sim.check_numbers(
            self,
            ("seeds", "steps"),
            ("std", "opens", "learning_rate", "loss_scale", "pathway_width"),
        )
        if self.width < 24:
            raise ValueError(f"width must be at least 24, got {self.width}")


QUICK = {"seeds": 2, "width": 64}


@dataclass(frozen=True)
class Runs:
    """What was simulated; losses are loss_scale times the mean, times t = learning_rate step."""

    meta: Any
    scale: float
    t: np.ndarray
    step: np.ndarray
    relu: Trajectory
    gated: dict[str, Trajectory]  # contextual pathways open at once ("equal") or "late"
    opens: float  # when, in units of time
    fits: dict[str, float]  # best losses by what may have been learned

    def loss(self, kind: str) -> np.ndarray:
        """Losses (seed, time) of "relu", "equal" or "late"."""
        run = self.relu if kind == "relu" else self.gated[kind]
        return self.scale * np.asarray(run.losses, float)


def run(options: Options, progress: Progress = silent) -> Result:
    """Make H Fig. 6."""
    return perform("depth", options, progress, simulate, check, _tell)


def _tell(options: Options, runs: Runs, facts: dict[str, Any]) -> Told:
    data = dataset(options, runs, facts)
    settled = {"loss_scale": runs.scale}
    return Told(data, partial(draw, data, facts), _finding(facts), _notes(options, facts), settled)


# ------------------------------------------------------------------ the runs
def simulate(options: Options, progress: Progress = silent) -> Runs:
    """ReLU networks with two hidden layers, and gated ones with a shared linear first layer."""
    o = options
    plain = tasks.semantic_contexts(3, structures="different", pathways="none", width=1)
    scale = o.loss_scale or float(plain.meta["loss_scale"])
    std = o.std or _STD * np.sqrt(_STD_WIDTH / o.width)
    rate, save_every = o.learning_rate * scale, sim.spacing(o.steps, 250)
    keys = sim.keys(o.seed, o.seeds)
    progress(0.02, f"{o.seeds} ReLU networks, {o.steps} steps")
    trained = _train_relu(plain, o.width, std, keys, rate, o.steps, save_every)
    step = np.asarray(trained.ts[0])
    times = o.learning_rate * step
    opens = o.opens or opening_time(times, trained)
    gated = {}
    for k, (kind, since) in enumerate((("equal", None), ("late", opens / o.learning_rate))):
        progress(0.35 + 0.3 * k, f"{o.seeds} gated networks, {kind} contextual pathways")
        gated[kind] = _train_gated(
            plain, o.width, o.pathway_width or o.width // 2, std, since, keys, rate, o.steps,
            save_every,
        )  # fmt: skip
    return Runs(
        plain.meta,
        scale,
        times,
        step,
        trained,
        gated,
        opens,
        best_fits(plain.meta, scale),
    )


def _train_relu(
    task: tasks.Task,
    width: int,
    std: float,
    keys: jax.Array,
    rate: float,
    steps: int,
    save_every: int,
) -> Trajectory:
    """Measured: `identity` (2,), the change of the output, relative, when the ReLU of a layer is

    replaced by the identity; `groups`, power of second-layer units; `output`; `shared`, which
    contexts share second-layer units.
    """
    assert isinstance(task.data, GatedData)
    data = sim.as_type(task.data, cx.FLOAT)
    x, y = data.inputs["x"], data.targets["y"]
    widths = [x.shape[1], width, width, y.shape[1]]
    nets = jax.vmap(lambda k: relu.ReLUNetwork.init(widths, std=std, key=k))(keys)

    def look(net: relu.ReLUNetwork) -> dict[str, Any]:
        z1, z2, output = net.pre_activations(x)
        _, second, third = net.weights
        linear = jnp.maximum(z1 @ second.T, 0) @ third.T, z2 @ third.T
        size = jnp.linalg.norm(output)
        return {
            "identity": jnp.stack([jnp.linalg.norm(a - output) / size for a in linear]),
            "groups": cx.power_groups(net, data, (3, x.shape[0] // 3)),
            "output": output,
            "shared": relu.coactivation(net, data, groups=task.meta["context"]),
        }

    return sim.descend(
        sim.as_type(nets, cx.FLOAT), data, rate, steps, save_every, measure=look,
        what="ReLU network",
    )  # fmt: skip


def opening_time(times: np.ndarray, trained: Trajectory) -> float:
    """When the second layer's gates change from those of the first plateau to contextual ones.

    The one change point of `coactivation`, averaged over seeds, from where the loss has begun to
    fall: before, the output and the units' shares of it are noise.
    """
    loss = np.mean(np.asarray(trained.losses, float), axis=0)
    learning = loss < 0.9 * loss[0]
    if np.sum(learning) < 2:
        raise OptionError(
            "the ReLU networks have learned nothing by the last step, so their gates show no "
            "change; use --set steps= with more, or --set opens=TIME"
        )
    shared = np.mean(np.asarray(trained.measured["shared"], float), axis=0)
    return float(relu.change_points(times[learning], shared[learning], changes=1)[0])


def _train_gated(
    task: tasks.Task,
    width: int,
    pathway_width: int,
    std: float,
    since: float | None,
    keys: jax.Array,
    rate: float,
    steps: int,
    save_every: int,
) -> Trajectory:
    """H's architecture: one linear first layer, then a common and three double pathways.

    The double pathways are closed before the step `since`.
    """
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    pairs = {"in_0_1": (0, 1), "in_0_2": (0, 2), "in_1_2": (1, 2)}
    hidden = ("common", *pairs)
    graph = Graph(
        {"x": x.shape[1], "h": width, **dict.fromkeys(hidden, pathway_width), "y": y.shape[1]},
        [("x", "h"), *(("h", name) for name in hidden), *((name, "y") for name in hidden)],
    )
    gates = {name: np.isin(context, pair).astype(float) for name, pair in pairs.items()}
    initial = init.normal(std)

    def start(key: Any) -> GatedNetwork:
        return GatedNetwork.init(graph, initial, key=key)

    inputs = jnp.asarray(x, cx.FLOAT)
    gate = {name: jnp.asarray(g, cx.FLOAT)[:, None] for name, g in gates.items()}

    def look(net: GatedNetwork) -> Any:
        first = inputs @ net.weights["x->h"].T
        parts = [
            gate.get(name, 1.0) * (first @ net.weights[f"h->{name}"].T)
            @ net.weights[f"{name}->y"].T
            for name in hidden
        ]  # fmt: skip
        return jnp.sum(jnp.stack(parts), axis=0)

    open_ = GatedData({"x": x}, {"y": y}, gates)
    if since is None:
        data = pack(graph, open_)
    else:
        closed = GatedData({"x": x}, {"y": y}, {name: 0 * g for name, g in gates.items()})
        data = Schedule([closed, open_], steps=[math.ceil(round(since, 6))])
    return sim.descend(
        sim.as_type(jax.vmap(start)(keys), cx.FLOAT), sim.as_type(data, cx.FLOAT), rate, steps,
        save_every, measure=look, what="gated network",
    )  # fmt: skip


def best_fits(meta: Any, scale: float) -> dict[str, float]:
    """Smallest losses of what may have been learned on a plateau.

    "mode": L(0) - s_1^2/(2 d_1), H's first mode (its frames do not diagonalise Sigma^x);
    "rank 1", "rank 2", "rank 3": the best map of that rank; "gated 1", "gated 2": the best first
    layer of rank 1 or 2 with a read-out of its own in each context, which common and double
    pathways together give.
    """
    x, y, context = meta["x"], meta["y"], meta["context"]
    share = scale / len(x)
    whole = 0.5 * share * np.sum(y**2)
    _, s, vt = np.linalg.svd(y.T @ x, full_matrices=False)
    d = np.sum((x @ vt[0]) ** 2)
    # Reduced-rank regression: singular values of Y on the row space of X.
    left = np.linalg.svd(x, full_matrices=False)
    seen = left[0][:, left[1] > 1e-9 * left[1][0]]
    explained = np.cumsum(np.linalg.svd(y.T @ seen, compute_uv=False) ** 2)
    return {
        "mode": float(whole - 0.5 * share * s[0] ** 2 / d),
        **{f"rank {k + 1}": float(whole - 0.5 * share * e) for k, e in enumerate(explained[:3])},
        "gated 1": share * _gated_fit(x, y, context, 1),
        "gated 2": share * _gated_fit(x, y, context, 2),
    }


def _gated_fit(x: np.ndarray, y: np.ndarray, context: np.ndarray, rank: int) -> float:
    """Least squares of y = A_c W x by turns in A and W, the best of three starts."""
    blocks = [(x[context == c], y[context == c]) for c in np.unique(context)]
    found = []
    for seed in range(3):
        w = np.random.default_rng(seed).normal(size=(rank, x.shape[1]))
        loss = np.inf
        for _ in range(600):
            readouts = [np.linalg.lstsq(a @ w.T, b, rcond=None)[0] for a, b in blocks]
            gram = np.zeros((w.size, w.size))
            pull = np.zeros(w.size)
            for (a, b), readout in zip(blocks, readouts, strict=True):
                gram += np.kron(readout @ readout.T, a.T @ a)
                pull += (readout @ b.T @ a).ravel()
            w = np.linalg.lstsq(gram, pull, rcond=1e-10)[0].reshape(w.shape)
            w = np.linalg.qr(w.T)[0].T  # only its row space counts
        readouts = [np.linalg.lstsq(a @ w.T, b, rcond=None)[0] for a, b in blocks]
        errors = (b - a @ w.T @ r for (a, b), r in zip(blocks, readouts, strict=True))
        loss = 0.5 * sum(float(np.sum(e**2)) for e in errors)
        found.append(loss)
    return min(found)


# ------------------------------------------------------------------ checks
def stereotype(losses: np.ndarray) -> int:
    """The run nearest to the mean trajectory, by the summed squared distance (H Fig. 6)."""
    return int(np.argmin(np.sum((losses - losses.mean(axis=0)) ** 2, axis=1)))


def plateau(loss: np.ndarray, low: float, high: float) -> int:
    """The record between two losses at which a falling curve moves least."""
    between = np.flatnonzero((loss > low) & (loss < high))
    if len(between) == 0:
        return 0
    speed = np.abs(np.gradient(loss))
    return int(between[np.argmin(speed[between])])


def check(options: Options, runs: Runs) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    facts = _facts(options, runs)
    start, fits = facts["start"], runs.fits
    sums = runs.scale == runs.meta["loss_scale"]
    checks = []
    if sums:
        checks.append(
            Check.near(
                "reference: L(0) - s_1^2/(2 d_1), sum", fits["mode"], REFERENCE_PLATEAU, 5e-3
            )
        )
    checks += [
        # Float32 noise, and what the next mode has already learned.
        Check.near(
            "ReLU: first plateau - best map of rank 1, median", facts["plateau"], fits["rank 1"],
            1.5e-3 * start, f"sums: {REFERENCE_MEASURED} measured before; mode {fits['mode']:.2f}",
        ),
        Check.near(
            "ReLU: second plateau - best map of rank 2, median", facts["second"], fits["rank 2"],
            0.02 * start, "short: the next mode has begun; still linear",
        ),
        Check.near(
            "gated, equal scales: first plateau - best gated fit of rank 1", facts["gated_plateau"],
            fits["gated 1"], 3e-3 * start, "not H's plateau: contexts are told apart at once",
        ),
        Check.below(
            "ReLU: first layer's ReLU -> identity on the first plateau, change of the output",
            facts["linear_plateau"][0], 0.02, "H: linear always; median, relative",
        ),
        # E25: 11-18 % and 77-130 % at larger widths.
        Check.between(
            "ReLU: the same at the end", facts["linear_end"][0], 0.08, 0.28,
            "H: 0; E25: .11 .. .18, more in narrow networks",
        ),
        Check.between(
            "ReLU: second layer's ReLU -> identity at the end", facts["linear_end"][1], 0.6, 1.4,
            "E25: .77 .. 1.30",
        ),
        Check.between(
            "ReLU: power of single-context units in the second layer, by majority",
            facts["groups"][3], 0.15, 0.5, "H: none; E25: .28 .. .45",
        ),
        Check.below(
            "ReLU: final loss / L(0), median", facts["final"]["relu"] / start, 0.01,
            f"{options.steps} steps",
        ),
    ]  # fmt: skip
    return checks, facts


def _facts(options: Options, runs: Runs) -> dict[str, Any]:
    loss = {kind: runs.loss(kind) for kind in ("relu", "equal", "late")}
    start = float(loss["relu"][0, 0])
    chosen = {kind: stereotype(values) for kind, values in loss.items()}
    # Between the fits: rank 1 lies above the gated fits, those above the next ones.
    low, high = 0.55 * start, 0.9 * start
    first = [plateau(one, low, high) for one in loss["relu"]]
    seeds = np.arange(options.seeds)
    identity = np.asarray(runs.relu.measured["identity"])
    between = 0.5 * (runs.fits["gated 1"] + runs.fits["gated 2"]), 0.58 * start
    gated = [plateau(one, *between) for one in loss["equal"]]
    stereo = {kind: values[chosen[kind]] for kind, values in loss.items()}
    aligned = {}
    for kind in ("equal", "late"):
        first_drop = [
            float(sim.first_below(stereo[k], runs.t, 0.9 * start)) for k in ("relu", kind)
        ]
        moved = np.interp(runs.t - first_drop[0] + first_drop[1], runs.t, stereo[kind])
        aligned[kind] = sim.gaps(moved, stereo["relu"], start)
    half = {kind: sim.first_below(values, runs.t, 0.5 * start) for kind, values in loss.items()}
    late = [plateau(one, low, high) for one in loss["late"]]
    # Halfway between the fits of neighbouring ranks.
    ranks = [runs.fits[f"rank {k}"] for k in (1, 2, 3)]
    second = [
        plateau(one, 0.5 * (ranks[1] + ranks[2]), 0.5 * (ranks[0] + ranks[1]))
        for one in loss["relu"]
    ]
    return {
        "start": start,
        "chosen": chosen,
        "plateau": float(np.median(loss["relu"][seeds, first])),
        "plateau_record": first[chosen["relu"]],
        "second": float(np.median(loss["relu"][seeds, second])),
        "linear_second": float(np.median(identity[seeds, second, 1])),
        "late_plateau": float(np.median(loss["late"][seeds, late])),
        "late_record": late[chosen["late"]],
        "gated_plateau": float(np.median(loss["equal"][seeds, gated])),
        "linear_plateau": np.median(identity[seeds, first], axis=0),
        "linear_end": np.median(identity[:, -1], axis=0),
        "groups": np.median(np.asarray(runs.relu.measured["groups"])[:, -1], axis=0),
        "final": {kind: float(np.median(values[:, -1])) for kind, values in loss.items()},
        "gaps": {k: sim.gaps(stereo[k], stereo["relu"], start) for k in ("equal", "late")},
        "aligned": aligned,
        "half": {k: (float(np.mean(v)), float(np.std(v))) for k, v in half.items()},
        "fits": runs.fits,
        "seeds": options.seeds,
        "opens": runs.opens,
    }


# ------------------------------------------------------------------ in words
def _finding(facts: dict[str, Any]) -> str:
    gaps, linear = facts["gaps"], facts["linear_end"]
    return (
        f"the ReLU network's first plateau is {facts['plateau']:.2f}, its "
        f"first layer is linear there but changes the output by {linear[0]:.0%} at the end, and "
        f"single-context units hold {facts['groups'][3]:.0%} of the second layer's power (E25). "
        f"Stereotypical losses of gated networks are {gaps['late'][0]:.1%} (contextual pathways "
        f"open at the gates' change point) and {gaps['equal'][0]:.1%} (equal scales) of L(0) away "
        "in the mean, "
        f"{gaps['late'][1]:.0%} and {gaps['equal'][1]:.0%} at most; with the first drops aligned "
        f"{facts['aligned']['late'][0]:.1%} and {facts['aligned']['equal'][0]:.1%} in the mean."
    )


def _notes(options: Options, facts: dict[str, Any]) -> Iterator[str]:
    fits = facts["fits"]
    yield (
        f"Plateaus. ReLU: {facts['plateau']:.2f}, the best map of rank 1 ({fits['rank 1']:.2f}); "
        f"L(0) - s_1^2/(2 d_1) = {fits['mode']:.2f} is near it because the first singular vector "
        "nearly diagonalises Sigma^x. Gated networks with equal scales skip it: the first layer's "
        "one direction serves a read-out of its own in every context, and the plateau is "
        f"{facts['gated_plateau']:.2f}, the best such fit ({fits['gated 1']:.2f}). The next of "
        f"that kind is {fits['gated 2']:.2f}, which ReLU networks pass, too. Before it they slow "
        f"down near {facts['second']:.1f} (median) and the best maps of rank 2 and 3, "
        f"{fits['rank 2']:.2f} and {fits['rank 3']:.2f}; without the second layer's ReLU the "
        f"output would change by {facts['linear_second']:.0%} there."
    )
    yield (
        f"Late: the contextual pathways open at t = {facts['opens']:.2f}, "
        f"{'given' if options.opens else 'the change point of the ReLU second layer gates'}; until "
        f"then the first plateau is {facts['late_plateau']:.2f}, as in the ReLU network."
    )
    half = "; ".join(f"{k} {mean:.1f} ± {sd:.1f}" for k, (mean, sd) in facts["half"].items())
    yield (
        "ReLU networks start later: each ReLU passes half of what arrives. 'Aligned' moves a gated "
        "curve in time until it falls below .9 L(0) together with the ReLU network's: one fitted "
        f"number. Gaps then: late {facts['aligned']['late'][0]:.1%} in the mean, "
        f"{facts['aligned']['late'][1]:.0%} at most; equal {facts['aligned']['equal'][0]:.1%}, "
        f"{facts['aligned']['equal'][1]:.0%}."
    )
    yield f"Time to half of L(0), mean and sd over {facts['seeds']} seeds: {half}."
    groups = facts["groups"]
    yield (
        f"Second layer at the end: on for all examples {groups[0]:.0%}; by majority 1, 2, 3 "
        f"contexts {groups[3]:.0%}, {groups[4]:.0%}, {groups[5]:.0%} (medians)."
    )
    if options.loss_scale is None:
        yield sim.SUM_NOTE
