"""What the routing recipe asserts, and the numbers that its text and picture quote."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gdln_jax.recipes import _routing_runs as sim
from gdln_jax.recipes._recipe import Check
from gdln_jax.recipes._routing_plan import Plan

if TYPE_CHECKING:
    from gdln_jax.recipes.routing import Final, Runs
else:  # that room imports this one
    Final = Runs = Any

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


def check(plan: Plan, runs: Runs, final: Final) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    checks = [*_exact_checks(plan, runs), *_reduced_checks(plan, runs)]
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
    m1, m2 = runs.reduced.descent
    decoupled = jax.tree.map(lambda leaf: leaf[-1], runs.descent.measured)
    yield Check.below(
        "decoupled: descent - Euler map, weights",
        sim.weight_error(decoupled, m1, m2), 1e-10,
        f"Eq. 13-14 by the quotient, {steps[-1]} steps of {plan.rate:g}",
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


def _reduced_checks(plan: Plan, runs: Runs) -> Iterator[Check]:
    """Closed form = reduced = quotient = full flow, and the rates of Eq. 13-14 found by itself."""
    found, modes, b = runs.reduced, plan.modes, plan.amplitude
    b1, b2 = modes.flow(found.ts, b, b)
    gaps = (found.b1 - b1, found.b2 - b2, found.b3 - b1)
    yield Check.below(
        "reduced: solve - Eq. 15, strengths", max(float(np.max(np.abs(gap))) for gap in gaps),
        1e-8, "all edges and modes",
    )  # fmt: skip
    flow = np.asarray(runs.flow.losses)
    yield Check.below(
        "reduced: loss - full flow / L(0)", np.max(np.abs(found.losses - flow)) / flow[0], 1e-8
    )
    yield Check.below(
        "quotient: loss - reduced / L(0)",
        np.max(np.abs(found.quotient_losses - found.losses)) / flow[0], 1e-8,
        f"{found.classes} variables per mode for {2 * modes.num_domains + 1} edges",
    )  # fmt: skip
    # With one domain the three edges in a row grow alike.
    yield Check.near("quotient: classes", found.classes, float(min(2, modes.num_domains)), 0.0)
    wanted = (1 / modes.num_domains, 1.0, 1 / modes.num_domains)
    off = [np.max(np.abs(r - w)) for r, w in zip(found.rates, wanted, strict=True)]
    yield Check.below(
        "quotient: rates - (1/M, 1, 1/M)", np.max(off), 1e-12, "found from the graph and the data"
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
        "classes": runs.reduced.classes,
        "unequal": runs.unequal,
        "unequal_gap": _unequal_gap(runs),
    }


def _unequal_gap(runs: Runs) -> float:
    """Largest distance of the loss with unequal inputs per output from Eq. 15's, in L(0)."""
    if runs.unequal is None:
        return float("nan")
    losses = runs.reduced.losses
    return float(np.max(np.abs(runs.unequal.losses - losses)) / losses[0])
