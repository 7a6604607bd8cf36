"""N Fig. 3 and A.1: XoR by four pathways, each on for one example, and by a ReLU network.

Closed form, flow and descent of the gated network; ReLU networks by descent and by flow, predicted
from the statistics of their initial weights alone (E14) and after a fit of one number; the four
functional cell types. Errata: E4, E13, E14.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from gdln_jax import (
    GatedData,
    GatedNetwork,
    exact,
    expected_initial,
    gradient_flow,
    pack,
    reduce,
    relu,
    tasks,
)
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform
from gdln_jax.recipes._xor_figure import dataset, draw

# Independent values (tests/reference.json): `xor` for a0 = 2e-4 and tau = 2.5, and `xor_relu`, mean
# and sd over 10 seeds of the time to loss .25 of N's ReLU networks. E14's prediction there, 45.081,
# has kappa = .6636; with the exact .661699 it is tau ln(.6636/.661699) / (2 s) later.
REFERENCE_LOSS = {0.0: 0.499717197288, 10.0: 0.495247429718, 40.0: 0.000855045}
REFERENCE_TIMES = {0.25: 25.7703762901, 0.01: 35.2629598869}
REFERENCE_RELU = (45.47, 0.53)
REFERENCE_PREDICTED = 45.0911
_A0 = 2e-4

# The level of the loss at which theory and simulation are compared: half of the initial loss.
LEVEL = 0.25
# Relative tolerance of the gated flow, whose loss is held to 1e-10.
_RTOL = 1e-12
# Steps per epoch that stand for the flow of ReLU networks; late by s eta/2 = .07 % in time.
_PARTS = 100
# Factors of a0 that the fit tries; between them a parabola is laid.
_FACTORS = np.exp(np.linspace(-1.2, 1.2, 241))


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        seeds, seed: ReLU networks. width: N_h. std: of their iid normal weights, N's sigma_0.
        learning_rate: of gradient descent; time is in its epochs, tau = 1/learning_rate.
        duration: in epochs; None: twice the predicted time to half the loss.
    """

    seeds: int = 10
    seed: int = 0
    width: int = 128
    std: float = 2e-4
    learning_rate: float = 0.4
    duration: float | None = None

    def __post_init__(self) -> None:
        sim.check_numbers(self, ("seeds",), ("std", "learning_rate", "duration"))
        if self.width < 4 or self.width % 4:
            raise ValueError(f"width must be a multiple of 4 pathways, got {self.width}")

    @property
    def tau(self) -> float:
        """Time constant in epochs."""
        return 1 / self.learning_rate

    @property
    def a0(self) -> float:
        """Expected effective a(0) of a pathway of the ReLU network (E14)."""
        return expected_initial(self.width, self.std, layer="relu")[0]

    @property
    def of_the_paper(self) -> bool:
        """Whether the reference values of the ReLU networks are for this setting."""
        return (self.width, self.std, self.learning_rate) == (128, 2e-4, 0.4)


QUICK = {"seeds": 4}


@dataclass(frozen=True)
class Runs:
    """What was simulated, times in epochs; losses (seed, time) of the ReLU networks."""

    t: np.ndarray
    descent: np.ndarray
    flow: np.ndarray
    coarse: np.ndarray  # at twice the step of `flow`
    corners: np.ndarray  # (4, 2) the examples
    target: np.ndarray  # (4,)
    weights: np.ndarray  # (seed, unit, 2) final input weights, of the flow
    read_out: np.ndarray  # (seed, unit)
    initial: np.ndarray  # (seed, unit, 2) and their start
    power: np.ndarray  # (seed, unit) shares of the output
    gated: np.ndarray  # flow of the four-path network from a0
    xnor: np.ndarray  # the same with N's printed target (E13)
    gated_descent: np.ndarray  # descent of the same, steps
    frames: float  # residual of the reduction
    fitted: np.ndarray  # (seed,) a0 that fits the flow best


def run(options: Options, progress: Progress = silent) -> Result:
    """Make N Fig. 3."""
    return perform("xor", options, progress, simulate, check, _tell)


def _tell(options: Options, runs: Runs, facts: dict[str, Any]) -> Told:
    data = dataset(options, runs)
    return Told(data, partial(draw, data, facts), _finding(facts), _notes(options, facts))


# ------------------------------------------------------------------ the runs
def simulate(options: Options, progress: Progress = silent) -> Runs:
    """ReLU networks by descent and by flow, the gated network, and the fit."""
    o = options
    predicted = float(exact.margin_time(LEVEL, 0.0, o.a0, o.tau, gating="xor"))
    if not 0 < predicted < float("inf"):
        raise OptionError(f"std {o.std:g} is no small start: a(0) = {o.a0:.3g} is beyond half way")
    epochs = round(2 * predicted) if o.duration is None else round(o.duration)
    if not 2 <= epochs <= 20_000:
        raise OptionError(f"the run would take {epochs} epochs; set duration or std otherwise")
    t = np.arange(epochs + 1.0)
    task = tasks.xor(gating="none", width=o.width)
    assert isinstance(task.data, GatedData)
    nets = jax.vmap(lambda k: relu.ReLUNetwork.init(task.graph, std=o.std, key=k))(
        sim.keys(o.seed, o.seeds)
    )
    progress(0.1, f"{o.seeds} ReLU networks, {epochs} steps of gradient descent")
    descent = sim.descend(nets, task.data, o.learning_rate, epochs, 1)
    progress(0.2, f"{o.seeds} ReLU networks, gradient flow")
    flow, coarse = _relu_flow(nets, task.data, epochs, o.learning_rate)
    power = np.asarray(jax.vmap(lambda n: relu.unit_power(n, task.data))(flow.final))
    progress(0.8, "gated networks")
    gated, xnor, gated_descent, residual = _gated(o, t)
    losses = np.asarray(flow.losses)[:, ::2]
    return Runs(
        t=t,
        descent=np.asarray(descent.losses),
        flow=losses,
        coarse=coarse,
        corners=np.asarray(task.data.inputs["x"]),
        target=np.asarray(task.data.targets["y"])[:, 0],
        weights=np.asarray(flow.final.weights[0]),
        read_out=np.asarray(flow.final.weights[1])[:, 0],
        initial=np.asarray(nets.weights[0]),
        power=power,
        gated=gated,
        xnor=xnor,
        gated_descent=gated_descent,
        frames=residual,
        fitted=_fit(o, t, losses),
    )


def _relu_flow(nets: Any, data: Any, epochs: int, rate: float) -> tuple[Any, np.ndarray]:
    """Descent at 1/_PARTS of the step, and the losses at twice that step, both once an epoch.

    An adaptive solver gives up here: a unit of one corner slides along the kinks at which two
    other examples switch it off, where the velocity jumps (a Filippov flow). Euler's method with
    a small step converges to that flow, at first order. One program serves both steps.
    """
    fine, coarse = (
        sim.descend(nets, data, k * rate / _PARTS, epochs * _PARTS, _PARTS // 2) for k in (1, 2)
    )
    return fine, np.asarray(coarse.losses)[:, : epochs + 1]


def _gated(options: Options, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Losses of the aligned four-path network: flow for XoR and for XNOR, descent; residual."""
    o = options
    task, printed = (tasks.xor(width=o.width // 4, at_ones=k) for k in (-1, 1))
    reduction = reduce(task.graph, task.data)
    net = reduction.embed(np.sqrt(o.a0))
    # Aligned with XNOR, whose targets are the negative: turn the read-out around.
    turned = {e: -w if e.endswith("y") else w for e, w in net.weights.items()}
    other = GatedNetwork(task.graph, turned)
    data = pack(task.graph, task.data)
    flow, xnor = (
        gradient_flow(n, pack(task.graph, d), t, tau=o.tau, rtol=_RTOL, keep_models=False)
        for n, d in ((net, task.data), (other, printed.data))
    )
    stacked = jax.tree.map(lambda a: a[None], net)
    descent = sim.descend(stacked, data, o.learning_rate, len(t) - 1, 1)
    losses, printed_losses = np.asarray(flow.losses), np.asarray(xnor.losses)
    return losses, printed_losses, np.asarray(descent.losses)[0], float(reduction.residual)


def euler_map(options: Options, steps: int) -> np.ndarray:
    """Losses of gradient descent on the aligned network, in scalars: w += eta w (s - d w^2)."""
    s, d = math.sqrt(2) / 4, 0.5
    w, losses = math.sqrt(options.a0), []
    for _ in range(steps + 1):
        losses.append((1 - math.sqrt(2) * w**2) ** 2 / 2)
        w += options.learning_rate * w * (s - d * w**2)
    return np.array(losses)


def _fit(options: Options, t: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """(seed,) the a0 whose closed form is closest to each curve in the mean square."""
    curves = np.asarray(exact.xor_loss(t, options.a0 * _FACTORS[:, None], options.tau))
    misfit = np.mean((losses[:, None, :] - curves) ** 2, axis=-1)
    best = np.clip(np.argmin(misfit, axis=-1), 1, len(_FACTORS) - 2)
    left, middle, right = (
        np.take_along_axis(misfit, best[:, None] + k, 1)[:, 0] for k in (-1, 0, 1)
    )
    shift = 0.5 * (left - right) / (left - 2 * middle + right)
    spacing = np.log(_FACTORS[1] / _FACTORS[0])
    return options.a0 * _FACTORS[best] * np.exp(shift * spacing)


# ------------------------------------------------------------------ checks
def cell_types(runs: Runs) -> dict[str, np.ndarray]:
    """Which corner each unit's input weights point to, and how well.

    Arrays (seed, unit): `cosine` with the nearest corner, `corner` its number, `agrees`: whether
    the read-out has the sign of the corner's target.
    """
    unit = runs.weights / np.linalg.norm(runs.weights, axis=-1, keepdims=True)
    cosines = unit @ (runs.corners / np.linalg.norm(runs.corners, axis=1, keepdims=True)).T
    corner = np.argmax(cosines, axis=-1)
    return {
        "cosine": np.max(cosines, axis=-1),
        "corner": corner,
        "agrees": np.sign(runs.read_out) == runs.target[corner],
    }


def check(options: Options, runs: Runs) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    o, n = options, options.seeds
    theory = np.asarray(exact.xor_loss(runs.t, o.a0, o.tau))
    discrete = euler_map(o, len(runs.t) - 1)
    predicted = float(exact.margin_time(LEVEL, 0.0, o.a0, o.tau, gating="xor"))
    fitted = np.asarray(exact.xor_loss(runs.t, runs.fitted[:, None], o.tau))
    residual = np.abs(runs.flow - fitted).max(axis=1)
    times, times_descent = (
        sim.first_below(curves, runs.t, LEVEL) for curves in (runs.flow, runs.descent)
    )
    predicted_map = float(sim.first_below(discrete, runs.t, LEVEL))
    step = float(np.max(np.abs(sim.first_below(runs.coarse, runs.t, LEVEL) / times - 1)))
    late = float(np.median(times) / predicted - 1)
    late_descent = float(np.median(times_descent) / predicted_map - 1)
    types = cell_types(runs)
    shares = np.stack(
        [np.sum(runs.power * (types["corner"] == k), axis=1) for k in range(4)], axis=1
    )
    cosine = np.sum(runs.power * types["cosine"], axis=1)
    agrees = np.sum(runs.power * types["agrees"], axis=1)
    facts = {
        "predicted": predicted,
        "predicted_map": predicted_map,
        "times": times,
        "times_descent": times_descent,
        "late": late,
        "late_descent": late_descent,
        "residual": float(residual.max()),
        "factor": runs.fitted / o.a0,
        "cosine": float(np.median(cosine)),
        "shares": shares,
        "a0": o.a0,
        "seeds": n,
        "wrong_type": float(np.median(1 - np.mean(types["agrees"], axis=1))),
    }
    spread = f"{n} seeds, {times.min():.2f} .. {times.max():.2f}"
    checks = [
        Check.below(
            "gated: flow - N Eq. 23, loss", np.abs(runs.gated - theory).max(), 1e-10,
            f"a(0) = {o.a0:.3g} in four paths; residual of the reduction {runs.frames:.1e}",
        ),
        Check.below(
            "gated: descent - Euler map in scalars, loss",
            np.abs(runs.gated_descent - discrete).max(), 1e-10, f"step {o.learning_rate:g}",
        ),
        Check.below(
            "E13: XNOR (as printed) - XoR, loss", np.abs(runs.xnor - runs.gated).max(), 1e-10
        ),
        *_reference_checks(),
        # E14's kappa is a mean over networks. What is left is their scatter, and the time that a
        # unit needs to turn from two examples to one.
        Check.between(
            "ReLU flow: time to loss .25 / E14 - 1, median", late, -0.02, 0.03,
            f"nothing fitted; {spread} against {predicted:.2f}",
        ),
        # The map knows no kinks: at this step units that turn to their corner and then chatter
        # about two kinks lose a further 3.5 to 4 % (see the notes), a first-order effect.
        Check.between(
            "ReLU descent: time to loss .25 / E14 through the discrete map - 1, median",
            late_descent, -0.02, 0.06,
            f"step {o.learning_rate:g}; {np.median(times_descent):.2f} against {predicted_map:.2f}",
        ),
        # The error of first order, s eta/2 of the time, is halved: .0007 of it.
        Check.below(
            "ReLU flow: time to loss .25 at twice the small step / at it - 1, worst", step, 2e-3,
            f"{_PARTS} steps an epoch",
        ),
        # Reference: .0077 for N's setting, for other seeds half as much again.
        Check.below(
            "ReLU flow: loss after a fit of a(0) - N Eq. 23, worst", residual.max(), 0.012,
            f"a(0) of {n} seeds is {np.median(runs.fitted / o.a0):.3f} of E14's; a fit, no test",
        ),
        Check.between(
            "cell types: cosine of input weights with the nearest corner",
            np.median(cosine), 0.99, 1.0, "weighted by the units' shares of the output, median",
        ),
        Check.between(
            "cell types: share of units whose read-out has the corner's sign",
            np.median(agrees), 0.99, 1.0 + 1e-9, "of the output's power, median",
        ),
        # Each example's output is learned to 1: a quarter of the power, up to what is left.
        Check.below(
            "cell types: shares of the four types - 1/4, worst",
            np.abs(np.median(shares, axis=0) - 0.25).max(), 0.02,
        ),
    ]  # fmt: skip
    if o.of_the_paper:
        mean, sd = REFERENCE_RELU
        # Three standard errors of the difference of a median and a mean of 10.
        band = 3 * sd * math.sqrt(math.pi / 2 / n + 1 / 10)
        checks += [
            Check.near("reference: E14's time to loss .25", predicted, REFERENCE_PREDICTED, 1e-3),
            Check.near(
                "reference: ReLU time to loss .25", np.median(times), mean, band,
                f"epochs, flow, median; {spread}",
            ),
        ]  # fmt: skip
    return checks, facts


def _reference_checks() -> Iterator[Check]:
    loss = partial(exact.xor_loss, a0=_A0, tau=2.5)
    time = partial(exact.margin_time, delta=0.0, a0=_A0, tau=2.5, gating="xor")
    # Tolerances: the digits given.
    worst = max(abs(float(loss(t)) - value) for t, value in REFERENCE_LOSS.items())
    yield Check.below("reference: N Eq. 23 at a(0) = 2e-4, loss", worst, 1e-9)
    worst = max(abs(float(time(level)) - value) for level, value in REFERENCE_TIMES.items())
    yield Check.below("reference: times to loss .25 and .01", worst, 1e-9)


# ------------------------------------------------------------------ in words
def _finding(facts: dict[str, Any]) -> str:
    times = facts["times"]
    return (
        "with the initial value of E14 in place of sigma_0 the predicted time to half the loss is "
        f"{facts['predicted']:.2f} epochs, ReLU networks need {np.median(times):.2f} "
        f"({times.min():.2f} .. {times.max():.2f}, {facts['seeds']} seeds, flow), no number fitted."
    )


def _notes(options: Options, facts: dict[str, Any]) -> Iterator[str]:
    o, factor = options, facts["factor"]
    naive = float(exact.margin_time(LEVEL, 0.0, o.std, o.tau, gating="xor"))
    yield (
        f"E14: taking sigma_0 = {o.std:g} itself for a(0) predicts {naive:.1f} epochs. "
        f"a(0) = (N_h/4) kappa sigma_0^2 = {o.a0:.3g}, since early on a unit is on for two of the "
        "four examples and grows at sqrt(2) s, then turns to one of them. The curves fit best "
        f"with {np.median(factor):.3f} ({factor.min():.3f} .. {factor.max():.3f}) times that, and "
        f"then N Eq. 23 is within {facts['residual']:.4f} of the loss at all times."
    )
    yield (
        f"Step {o.learning_rate:g} is no flow: descent takes "
        f"{np.median(facts['times_descent']):.2f} epochs, the discrete map of the aligned network "
        f"{facts['predicted_map']:.2f}. The rest are the kinks: at N's step .4 units lose an "
        "eighth of their a(0) while they turn to their corner, and then grow .8 % an epoch slower "
        "than the map because they chatter about the kinks of two other examples. Both vanish with "
        "the step, at first order (see the check)."
    )
    yield (
        "The flow of the ReLU networks is one with sliding: a unit that has turned to its corner "
        "is held on the kinks of the two neighbouring examples, where the velocity jumps and an "
        "adaptive solver gives up. It is taken as the limit of small steps."
    )
    yield "E13: N A.1 gives x = (1, 1) the target 1, which is XNOR; XoR's loss curve is the same."
    yield (
        "E4: the four paths leave one input node in four directions, so that N Eq. 7-8 with one V "
        "per node do not hold; frames per edge do, and the reduction is exact all the same."
    )
    yield (
        f"The units that carry the output fall into N's four types. {facts['wrong_type']:.0%} of "
        "all units (median) have a read-out of the wrong sign for their corner and stay near 0."
    )
