"""The routing network in one variable per edge and mode, and in one per symmetry class.

`reduce` and `quotient` know nothing of N Eq. 13-15: they find the frames, the classes and the rates
1/M themselves, for any pattern of trained routes. That they meet the closed form where it holds,
and part from it where it does not (E7), is what the recipe checks.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gdln_jax import Reduction, reduce, rules, tasks


@dataclass(frozen=True)
class Reduced:
    """Solutions from B1(0) = B2(0) = b at the times ts; b1, b2, b3 are (edge, time, mode)."""

    ts: np.ndarray
    b1: np.ndarray
    b2: np.ndarray
    b3: np.ndarray
    losses: np.ndarray
    quotient_losses: np.ndarray
    classes: int  # of edges that start equal and stay equal
    rates: tuple[np.ndarray, ...]  # per layer the rates of its classes, layers told apart
    descent: tuple[np.ndarray, np.ndarray]  # B1 and B2 (step, mode) of gradient descent


@dataclass(frozen=True)
class Unequal:
    """K outputs per input, but not K inputs per output (E7)."""

    residual: float
    classes: int
    edges: int
    losses: np.ndarray


def solve(
    reduction: Reduction,
    order: np.ndarray,
    b: float,
    ts: np.ndarray,
    rate: float,
    steps: np.ndarray,
) -> Reduced:
    """Solve the reduced dynamics and their quotient; `order` sorts the reduction's modes.

    The quotient is also trained at learning rate `rate`, which is the Euler map of Eq. 13-14, and
    read at `steps`.
    """
    start = _start(reduction, 1.0, b)
    found = reduction.solve(start, ts)
    quotient = reduction.quotient(start)
    layers = layer_edges(reduction)
    # Layers that start apart are classes of their own, so that each shows its own rate.
    apart = reduction.quotient(
        {e: (1 + k) * start[e] for k, layer in enumerate(layers) for e in layer}
    )
    rate_of = {e: r for c, r in zip(apart.classes, apart.rates, strict=True) for e in c}
    spacing = int(steps[1] - steps[0])
    descent = quotient.train(rule=rules.sgd(rate), steps=int(steps[-1]), save_every=spacing)
    b1, b2, b3 = (np.stack([np.asarray(found.b[e])[:, order] for e in layer]) for layer in layers)
    return Reduced(
        np.asarray(ts),
        b1,
        b2,
        b3,
        np.asarray(found.losses),
        np.asarray(quotient.solve(ts).losses),
        len(quotient.classes),
        tuple(np.array([rate_of[e] for e in layer]) for layer in layers),
        (np.asarray(descent.b[layers[0][0]])[:, order], np.asarray(descent.b["h1->h2"])[:, order]),
    )


def solve_unequal(
    domains: int, trained: int, base: tuple[Any, Any], seed: int, b: float, ts: np.ndarray
) -> Unequal:
    """The same task with random outputs per input; widths do not matter to the reduced dynamics."""
    width = min(len(base[0].T), len(base[1].T))
    task = tasks.routing(
        domains, trained, base=base, pattern="rows_only", key=jax.random.key(seed), width=width
    )
    reduction = reduce(task.graph, task.data)
    quotient = reduction.quotient(_start(reduction, 1.0, b))
    losses = np.asarray(quotient.solve(ts).losses)
    edges = len(task.graph.edges)
    return Unequal(float(reduction.residual), len(quotient.classes), edges, losses)


def layer_edges(reduction: Reduction) -> tuple[list[str], list[str], list[str]]:
    """Names of the edges of the three layers."""
    names = [edge.name for edge in reduction.graph.edges]
    first = [name for name in names if name.endswith("->h1")]
    third = [name for name in names if name.startswith("h2->")]
    return first, ["h1->h2"], third


def _start(reduction: Reduction, factor: float, b: float) -> dict[str, np.ndarray]:
    modes = reduction.modes
    return {edge.name: np.full(modes, factor * b) for edge in reduction.graph.edges}
