"""H Fig. 3-4: items whose features depend on a context. Which gated network does a ReLU one follow?

The structures differ between the contexts, so that Sigma^x and Sigma^yx do not commute and the
reduction stays coupled. Errata: E16, E18, E19, E22-E24.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.signal import find_peaks

from gdln_jax import Reduction, Trajectory, expected_initial, gradient_flow, pack, reduce, tasks
from gdln_jax.recipes import _context_runs as cx
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes._contexts_figure import dataset, draw
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform

# Independent values (tests/reference.json, `contextual_task` and `contextual_relu`): sums, 5 seeds.
REFERENCE_L0, REFERENCE_ADDITIVE = 105.623, 16.508433333333336
REFERENCE_SINGULAR = (27.42500638120751, 14.649566125808512, 10.954451150103326, 9.113014219762253)
REFERENCE_STEPS = (1000, 2000, 3000, 5000, 8000)  # the last is 7999 there
REFERENCE_MEAN = (47.09, 22.87, 8.49, 2.04, 0.0234)
REFERENCE_SD = (0.12, 0.09, 0.09, 0.05, 0.003)

# The right gating, the alternative of H, and all pathways together.
GATINGS = {"double": "common+double", "single": "common+single", "all": "all"}
# Modes read per pathway, and units per pathway of the network that the reduction is held against.
_SHOWN, _NARROW = 4, 24


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        seeds, seed: networks of each kind. width: units per pathway. relu_width: of the ReLU
            network. std: of iid normal weights. learning_rate, steps: of gradient descent, for
            L = loss_scale times the mean. loss_scale: None is H's sum over the examples.
        pathway_scales: factors of the initial weights of the common and the contextual pathways:
            "equal" (1,1), "fit" (both fitted to the ReLU network's loss, and said so), or
            two numbers such as 1.4,3.
    """

    seeds: int = 5
    seed: int = 0
    width: int = 100
    relu_width: int = 700
    std: float = 7.142857e-6
    learning_rate: float = 1e-3
    steps: int = 8000
    loss_scale: float | None = None
    pathway_scales: str | tuple[float, ...] = "fit"

    def __post_init__(self) -> None:
        sim.check_numbers(
            self, ("seeds", "width", "relu_width"), ("std", "learning_rate", "loss_scale")
        )
        if self.steps < 1000:
            raise ValueError(f"steps must be at least 1000, got {self.steps}")
        known = self.pathway_scales in ("equal", "fit")
        if not known and (isinstance(self.pathway_scales, str) or len(self.pathway_scales) != 2):
            raise ValueError(
                "pathway_scales is 'equal', 'fit', or two factors (common, contextual), got "
                f"{self.pathway_scales!r}"
            )


QUICK = {"seeds": 2}


@dataclass(frozen=True)
class Runs:
    """What was simulated; losses are loss_scale times the mean, times t = learning_rate step."""

    task: tasks.Task
    scale: float
    t: np.ndarray
    step: np.ndarray
    relu: Trajectory
    gated: dict[str, Trajectory]  # gating, and "scaled": double with pathway_scales
    factors: tuple[float, float]
    names: tuple[str, ...]  # pathways of the double gating
    reduction: Reduction
    reduced: np.ndarray  # losses of the coupled form, equal scales
    reduced_scaled: np.ndarray
    aligned: np.ndarray  # (time, pathway, mode) strengths of the aligned network
    reduction_errors: tuple[float, float]

    def loss(self, kind: str) -> np.ndarray:
        """Losses (seed, time) of "relu" or of a gating."""
        run = self.relu if kind == "relu" else self.gated[kind]
        return self.scale * np.asarray(run.losses, float)


def run(options: Options, progress: Progress = silent) -> Result:
    """Make H Fig. 3-4."""
    return perform("contexts", options, progress, simulate, check, _tell)


def _tell(options: Options, runs: Runs, facts: dict[str, Any]) -> Told:
    data = dataset(options, runs, facts)
    settled = {"loss_scale": runs.scale, "factors": runs.factors}
    return Told(data, partial(draw, data, facts), _finding(facts), _notes(options, facts), settled)


# ------------------------------------------------------------------ the runs
def simulate(options: Options, progress: Progress = silent) -> Runs:
    """ReLU and gated networks by descent; the coupled reduction and the flow it must follow."""
    o = options
    plain = tasks.semantic_contexts(3, structures="different", pathways="none", width=o.relu_width)
    scale = o.loss_scale or float(plain.meta["loss_scale"])
    rate, save_every = o.learning_rate * scale, sim.spacing(o.steps, 150)
    keys = sim.keys(o.seed, o.seeds)
    progress(0.05, f"{o.seeds} ReLU networks, {o.steps} steps")
    relu = cx.train_relu(plain, o.std, keys, rate, o.steps, save_every)
    step = np.asarray(relu.ts[0])
    t = o.learning_rate * step
    gated = {}
    for k, (name, words) in enumerate(GATINGS.items()):
        progress(0.2 + 0.1 * k, f"{o.seeds} gated networks, {words}")
        task = _task(words, o.width)
        frames = _frames(task) if name == "double" else None
        gated[name], _ = cx.train_gated(task, o.std, keys, rate, o.steps, save_every, frames=frames)
    progress(0.5, "coupled reduction")
    # The reduction does not depend on the width: a narrow network will do.
    task = _task(GATINGS["double"], _NARROW)
    reduction = reduce(task.graph, task.data, on_inexact="coupled")
    theory = _Theory(task, reduction, np.sqrt(expected_initial(o.width, o.std)[0]), scale, t)
    reduced, _ = theory.solve((1.0, 1.0))
    strengths, errors = theory.flow()
    factors = _factors(o, theory, scale * np.median(np.asarray(relu.losses, float), axis=0))
    progress(0.75, f"gated networks with scales {factors[0]:.3g}, {factors[1]:.3g}")
    names = tuple(task.graph.hidden)
    if factors == (1.0, 1.0):
        gated["scaled"] = gated["double"]
    else:
        own = {h: factors[0] if h == "common" else factors[1] for h in names}
        wide = _task(GATINGS["double"], o.width)
        gated["scaled"], _ = cx.train_gated(
            wide, o.std, keys, rate, o.steps, save_every, scales=own, frames=_frames(wide)
        )
    return Runs(
        plain, scale, t, step, relu, gated, factors, names, reduction, reduced,
        theory.solve(factors)[0], strengths, errors,
    )  # fmt: skip


def _task(words: str, width: int) -> tasks.Task:
    return tasks.semantic_contexts(3, structures="different", pathways=words, width=width)


def _frames(task: tasks.Task) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Singular vectors of what each pathway has to learn: the data, or what is left of them.

    These are fixed frames to read strengths in; no label can swap over time.
    """
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    items = x[:, : task.graph.nodes["items"]]
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    frames = {}
    for name, active in task.meta["active"].items():
        on = np.isin(context, active)
        target = y.T @ x if name == "common" else rest[on].T @ items[on]
        u, _, vt = np.linalg.svd(target, full_matrices=False)
        frames[name] = u[:, :_SHOWN], vt[:_SHOWN].T
    return frames


class _Theory:
    """The coupled reduction from aligned weights of the expected size, and its flow in full."""

    def __init__(
        self, task: tasks.Task, reduction: Reduction, b0: float, scale: float,
        t: np.ndarray,
    ):  # fmt: skip
        self.task, self.reduction, self.b0 = task, reduction, float(b0)
        self.scale, self.t = scale, t
        self.ways, self.frames = cx.pathways(task.graph), _frames(task)

    def solve(self, factors: tuple[float, float], **options: Any) -> tuple[np.ndarray, Any]:
        """Losses (time,) and the trajectory of the coupled reduction."""
        start = {
            edge: self.b0 * factors[int(h != "common")]
            for h, (_, *edges) in self.ways.items()
            for edge in edges
        }
        run = self.reduction.solve(start, self.t, tau=1 / self.scale, **options)
        return self.scale * np.asarray(run.losses), run

    def flow(self) -> tuple[np.ndarray, tuple[float, float]]:
        """The full network's gradient flow from the same start.

        Returns its strengths (time, pathway, mode), and how far the reduction is from it: largest
        differences of the loss, over L(0), and of the maps between the reduction's frames.
        """
        ways = self.ways

        def look(net: Any) -> dict[str, Any]:
            return {h: net.weights[b] @ net.weights[a] for h, (_, a, b) in ways.items()}

        net, data = self.reduction.embed(self.b0), pack(self.task.graph, self.task.data)
        flow = gradient_flow(net, data, self.t, tau=1 / self.scale, measure=look, keep_models=False)
        loss, reduced = self.solve((1.0, 1.0))
        gap = np.abs(self.scale * np.asarray(flow.losses) - loss).max() / loss[0]
        strengths, worst = [], 0.0
        for h, (_, first, second) in ways.items():
            found = np.asarray(flow.measured[h])
            strengths.append(_read(found, *self.frames[h]))
            u, v = self.reduction.frames[second][0], self.reduction.frames[first][1]
            inside = np.einsum("ym,tyx,xn->tmn", np.asarray(u), found, np.asarray(v))
            product = np.asarray(reduced.b[second]) @ np.asarray(reduced.b[first])
            worst = max(worst, float(np.abs(inside - product).max()))
        return np.stack(strengths, axis=1), (float(gap), worst)


def _read(maps: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Strengths (time, mode) of maps (time, y, x) in frames."""
    return np.einsum("ym,tyx,xm->tm", u, maps, v)


def _factors(options: Options, theory: _Theory, wanted: np.ndarray) -> tuple[float, float]:
    """The factors of the initial weights, fitted by least squares of the loss if asked for."""
    if options.pathway_scales == "equal":
        return 1.0, 1.0
    if options.pathway_scales != "fit":
        common, contextual = options.pathway_scales
        return float(common), float(contextual)

    def misfit(logs: np.ndarray) -> float:
        common, contextual = np.exp(logs)
        # Six digits are enough for a fit.
        loss, _ = theory.solve((common, contextual), rtol=1e-6)
        return float(np.mean((loss - wanted) ** 2)) / wanted[0] ** 2

    found = minimize(
        misfit, [0.0, 0.5], method="Nelder-Mead", options={"xatol": 5e-3, "maxfev": 80}
    )
    if not np.isfinite(found.fun):
        raise OptionError("pathway_scales=fit found no finite fit; give two numbers")
    common, contextual = np.exp(found.x)
    return float(common), float(contextual)


# ------------------------------------------------------------------ checks
def check(options: Options, runs: Runs) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    facts = _facts(options, runs)
    return [*_exact_checks(runs), *_relu_checks(options, runs, facts), *_gap_checks(facts)], facts


def _facts(options: Options, runs: Runs) -> dict[str, Any]:
    relu = np.median(runs.loss("relu"), axis=0)
    gaps, late = {}, {}
    for kind in runs.gated:
        curve = np.median(runs.loss(kind), axis=0)
        gaps[kind] = sim.gaps(curve, relu, relu[0])
        late[kind] = cx.late_error(curve, relu)
    random = np.median(runs.loss("double"), axis=0)
    groups = np.median(np.asarray(runs.relu.measured["groups"]), axis=0)
    early = (runs.step >= 300) & (runs.step <= 500)
    chosen = _plateaus(runs, relu)
    hidden = [np.asarray(r.measured["hidden"])[0] for r in (runs.relu, runs.gated["scaled"])]
    learned = runs.step >= 500
    likeness = [
        cx.similarity_correlation(a, b) for a, b in zip(*(h[learned] for h in hidden), strict=True)
    ]
    outputs = [np.asarray(r.measured["output"])[0] for r in (runs.relu, runs.gated["scaled"])]
    apart = [
        float(np.linalg.norm(outputs[0][k] - outputs[1][k]) / np.linalg.norm(outputs[0][k]))
        for k in chosen
    ]
    return {
        "gaps": gaps,
        "late": late,
        "reduction_gap": sim.gaps(random, runs.reduced, random[0]),
        "groups": groups,
        "early_all": float(groups[early, 0].min()) if early.any() else float("nan"),
        "chosen": chosen,
        "likeness": (float(min(likeness)), likeness[-1]),
        "apart": apart,
        "fitted": options.pathway_scales == "fit",
        "factors": runs.factors,
        "commutator": float(runs.task.meta["commutator"]),
        "residual": float(runs.reduction.untied_residual),
        "seeds": options.seeds,
    }


def _plateaus(runs: Runs, loss: np.ndarray) -> list[int]:
    """Records at which learning pauses: minima of its speed in the first half, and the end."""
    speed = -np.gradient(np.log(loss), runs.t)
    places = find_peaks(-speed, prominence=0.1 * speed.max())[0]
    places = [int(k) for k in places if loss[k] < 0.95 * loss[0]][:2]
    return [*places, len(loss) - 1]


def _exact_checks(runs: Runs) -> Iterator[Check]:
    meta = runs.task.meta
    n = meta["loss_scale"]
    # Tolerances: the digits given.
    yield Check.near("reference: L(0), sum", n * meta["initial_loss"], REFERENCE_L0, 1e-9)
    yield Check.near(
        "reference: L after the additive fit, sum", n * meta["additive_loss"], REFERENCE_ADDITIVE,
        1e-9,
    )  # fmt: skip
    found = n * meta["singular_values"][: len(REFERENCE_SINGULAR)]
    yield Check.below(
        "reference: singular values of Y X^T", np.max(np.abs(found / REFERENCE_SINGULAR - 1)),
        1e-12, "relative, the first four",
    )  # fmt: skip
    yield Check.between(
        "certificate: the statistics do not commute", meta["commutator"], 0.045, 0.049,
        "SCIENCE 6: 4.7 %; ||[X X^T, G]||/||X X^T G||, G = (Y X^T)^T Y X^T",
    )  # fmt: skip
    yield Check.between(
        "certificate: no diagonal reduction", runs.reduction.untied_residual, 0.1, 1.0,
        "share of the gradient off the frames; the reduction is coupled",
    )  # fmt: skip
    loss, maps = runs.reduction_errors
    span = f"aligned start, t <= {runs.t[-1]:g}"
    yield Check.below(
        "coupled reduction - flow of the gated network, loss / L(0)", loss, 1e-6, span
    )
    yield Check.below("coupled reduction - flow of the gated network, maps", maps, 1e-6, span)


def _relu_checks(options: Options, runs: Runs, facts: dict[str, Any]) -> Iterator[Check]:
    o = options
    known = (o.relu_width, o.std, o.learning_rate, runs.scale) == (700, 7.142857e-6, 1e-3, 24.0)
    if known and np.isin(REFERENCE_STEPS, runs.step).all():
        at = np.searchsorted(runs.step, REFERENCE_STEPS)
        found = runs.loss("relu")[:, at]
        mean = found.mean(axis=0)
        # Standard errors of the difference of two means, by the larger of both spreads.
        spread = np.maximum(found.std(axis=0, ddof=int(o.seeds > 1)), REFERENCE_SD)
        errors = spread * np.sqrt(1 / o.seeds + 1 / 5)
        worst = float(np.max(np.abs(mean - REFERENCE_MEAN) / errors))
        yield Check.below(
            "reference: ReLU loss at five steps, standard errors", worst, 3.5,
            f"means {', '.join(f'{m:.3g}' for m in mean)} of {o.seeds} seeds",
        )  # fmt: skip
    groups = facts["groups"]
    # SCIENCE E24.
    yield Check.between(
        "ReLU gates: power of units on for all examples, steps 300-500", facts["early_all"], 0.85,
        1.01, "'nearly all': the common phase",
    )  # fmt: skip
    yield Check.below(
        "ReLU gates: power of strictly context-consistent units at the end", groups[-1, 1], 0.25,
        "H: all of them; E24: under 10-20 %",
    )  # fmt: skip
    yield Check.between(
        "ReLU gates: power of single-context units at the end, by majority", groups[-1, 3], 0.1,
        0.32, "H: none; E24: about a fifth",
    )  # fmt: skip


def _gap_checks(facts: dict[str, Any]) -> Iterator[Check]:
    gaps, late = facts["gaps"], facts["late"]
    seeds = f"medians of {facts['seeds']} seeds"
    yield Check.below(
        "gated networks - coupled reduction, mean loss gap / L(0)", facts["reduction_gap"][0], 0.01,
        f"random weights, aligned theory with b0^2 = n sd^2/2; largest "
        f"{facts['reduction_gap'][1]:.1%}",
    )  # fmt: skip
    yield Check.below(
        "double, equal scales: mean loss gap to ReLU / L(0)", gaps["double"][0], 0.025,
        f"largest {gaps['double'][1]:.1%}, late relative error {late['double']:.0%}; {seeds}",
    )  # fmt: skip
    yield Check.below(
        "double beats single: ratio of mean loss gaps", gaps["double"][0] / gaps["single"][0], 0.6,
        f"single: mean {gaps['single'][0]:.1%}, largest {gaps['single'][1]:.1%}, late "
        f"{late['single']:.0%}",
    )  # fmt: skip
    if not facts["fitted"]:
        return
    which = "two scales fitted to the ReLU network's loss"
    yield Check.below(
        "double, fitted scales: mean loss gap to ReLU / L(0)", gaps["scaled"][0], 0.015, which
    )
    yield Check.below(
        "double, fitted scales: largest loss gap to ReLU / L(0)", gaps["scaled"][1], 0.12, which
    )
    yield Check.below(
        "double, fitted scales: late relative error of the loss", late["scaled"], 0.6,
        "mean over the second half; the paper claims 0",
    )  # fmt: skip


# ------------------------------------------------------------------ in words
def _finding(facts: dict[str, Any]) -> str:
    kind = "scaled" if facts["fitted"] else "double"
    how = "with two fitted scales" if facts["fitted"] else "at given scales"
    mean, most = facts["gaps"][kind]
    return (
        f"{how} the double-context gating follows the ReLU "
        f"network's loss to {mean:.2%} of L(0) in the mean and {most:.1%} at most, single-context "
        f"gating to {facts['gaps']['single'][0]:.1%} and {facts['gaps']['single'][1]:.1%}; late "
        f"losses differ by {facts['late'][kind]:.0%}. 'Exactly, for all t' does not hold (E24)."
    )


def _notes(options: Options, facts: dict[str, Any]) -> Iterator[str]:
    gaps, late, groups = facts["gaps"], facts["late"], facts["groups"]
    words = "; ".join(
        f"{kind} {mean:.2%}, {most:.1%}, {late[kind]:.0%}" for kind, (mean, most) in gaps.items()
    )
    yield (
        f"Loss against the ReLU network's: mean gap and largest gap over L(0), mean relative error "
        f"in the second half; medians of {facts['seeds']} seeds: {words}."
    )
    common, contextual = facts["factors"]
    if facts["fitted"]:
        yield (
            f"pathway_scales=fit: 'scaled' has initial weights times {common:.2f} (common) and "
            f"{contextual:.2f} (contextual), fitted to the ReLU network's loss with the coupled "
            "reduction. Two free parameters; all else is without a fit."
        )
    elif options.pathway_scales != "equal":
        yield f"pathway_scales: initial weights times {common:g} (common) and {contextual:g}."
    yield (
        f"The statistics do not commute ({facts['commutator']:.1%}), and {facts['residual']:.0%} "
        "of the gradient leaves any frames: H's Assumption 2.1 is violated in H's own main task. "
        "The reduction with its overlap terms is exact all the same."
    )
    yield (
        f"E24: gates change during training. Units that are on for all examples hold at least "
        f"{facts['early_all']:.2%} of the power at steps 300-500 and {groups[-1, 0]:.0%} at the "
        f"end; strictly context-consistent ones {groups[-1, 1]:.0%} at the end; by majority one, "
        f"two, three contexts hold {groups[-1, 3]:.0%}, {groups[-1, 4]:.0%}, {groups[-1, 5]:.0%}."
    )
    low, end = facts["likeness"]
    yield (
        "Hidden representations: correlation of all dot products between ReLU and gated network "
        f"at least {low:.3f} after step 500, {end:.3f} at the end (first seed). Not equal: a gated "
        "contextual pathway does not see the context, while ReLU units do."
    )
    yield (
        "E22-E23: Lemma 4.1 and Prop. 4.2 do not hold as stated: `relu.implementable_patterns` "
        "finds all patterns without an XoR minor, and the right gating wins by its head start, "
        "not by the singular values of the residual, which tie for m and C - m contexts."
    )
    yield sim.SUM_NOTE
