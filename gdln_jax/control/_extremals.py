"""Extremals of effort: what they spend, their folds, and when the best one becomes another one."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import PyTree
from numpy.polynomial import legendre
from scipy.optimize import root_scalar

from gdln_jax import Quotient, Reduction
from gdln_jax._checks import Result, check_positive, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax.control._free_flow import TO_COEFFICIENTS, FreeFlow, Spending, tabulate

_MOST = 200.0
_PER_PANEL = 4  # efforts of a panel at which the sign of dT/dS is evaluated


@dataclass(frozen=True)
class Extremal(Result):
    """One extremal of effort, from `extremals`.

    - `spent`: S = int g dt, the time of the free flow that it reaches, in units of tau.
    - `cost`: J; `is_minimum`: a minimum in S, else a maximum.
    - `loss_end`: l(T).
    """

    _exported = "spent", "cost", "is_minimum", "loss_end"
    _units: ClassVar = {"spent": "tau"}

    spent: float
    cost: float
    is_minimum: bool
    loss_end: float
    _beta: float
    _free: FreeFlow
    _path: Spending

    def effort(self, t: ArrayLike) -> np.ndarray:
        """Return g at times between 0 and T, of any shape."""
        return np.asarray(np.sqrt(2 / self._beta * self._gap(t)))

    def loss(self, t: ArrayLike) -> np.ndarray:
        """Return l at times between 0 and T, of any shape."""
        return np.asarray(self.loss_end + self._gap(t))

    def _gap(self, t: ArrayLike) -> np.ndarray:
        """l(t) - l(T): the time that remains is inverted, polynomial by polynomial, for v."""
        path, times = self._path, np.asarray(t, float)
        pieces = path.by_interval(path.slopes) * math.sqrt(self._beta)
        remains = np.append(np.cumsum(pieces[::-1])[::-1], 0.0)
        if np.any((times < 0) | (times > remains[0] * (1 + 1e-9))):
            raise ValueError(f"t is {t}; give times between 0 and T = {remains[0]:g}.")
        left = np.clip(remains[0] - times.ravel(), 0.0, None)
        k = np.clip(np.searchsorted(-remains, -left, side="right") - 1, 0, len(pieces) - 1)
        half = (path.ends[:-1] - path.ends[1:]) / 2
        coefficients = half[:, None] * path.slopes @ TO_COEFFICIENTS.T * math.sqrt(self._beta)
        within = legendre.legint(coefficients[k].T, lbnd=-1)
        low, high = np.full(len(left), -1.0), np.full(len(left), 1.0)
        for _ in range(60):
            x = (low + high) / 2
            late = remains[k + 1] + legendre.legval(x, within, tensor=False) > left
            low, high = np.where(late, low, x), np.where(late, x, high)
        v = path.ends[k + 1] + half[k] * (low + high + 2) / 2
        gaps = self._free.gaps(self.spent, k, v[:, None])[:, 0]
        return np.asarray(np.maximum(gaps, 0.0)).reshape(times.shape)

    def __repr__(self) -> str:
        kind = "minimum" if self.is_minimum else "maximum"
        return (
            f"Extremal({kind}, spent={self.spent:.6g}, cost={self.cost:.6g}, "
            f"loss_end={self.loss_end:.6g})"
        )


def extremals(
    dynamics: Reduction | Quotient,
    b0: PyTree,
    T: float,
    *,
    beta: float,
    most: float = _MOST,
) -> tuple[Extremal, ...]:
    """Return all extremals of int_0^T [l + (beta/2) g^2] dt over efforts g(t), ascending in spent.

    Under an effort tau db/dt = -g dl/db. Along an extremal (beta/2) g^2 = l - l(T) (theory#effort),
    so that one number labels it: what it spends. Host code.

    Args:
        dynamics: a `Reduction`, or a `Quotient`.
        b0: the start, as in `Reduction.solve`; of a quotient (class, mode), or None for its own.
        T: the duration, in units of tau; the end is free.
        beta: weight of the cost of effort.
        most: the largest effort that is searched, in units of tau.

    Returns:
        An odd number of them: minima and, between each two, a maximum. The best is the minimum of
        least `cost`.

    Raises:
        ValueError: a T that needs more effort than `most`, or one after which the loss is within
            rounding of its end; numbers that are not above 0; values in float32.
    """
    T = check_positive(T, "T")
    free, beta = _free(dynamics, b0, beta, most)
    unit = T / math.sqrt(beta)
    found = []
    for low, high, rising in _branches(free, most):
        ends = free.duration(low) if low else 0.0, free.duration(high)
        if min(ends) <= unit < max(ends):
            spent = _inverse(free, low, high, unit)
            found.append(_extremal(free, spent, T, beta, rising))
    if not found:
        end = math.sqrt(beta) * free.duration(min(most, free.edges[-1]))
        why = (
            "the loss is within rounding of its end then; pass a smaller T"
            if free.edges[-1] < most
            else "pass a larger most"
        )
        raise ValueError(f"T is {T:g}, and efforts up to {most:g} last {end:.4g}: {why}.")
    return tuple(found)


def folds(
    dynamics: Reduction | Quotient, b0: PyTree, *, beta: float, most: float = _MOST
) -> np.ndarray:
    """Return (fold, 2) the effort spent S and the duration T where two extremals merge.

    Between the two durations of a pair of folds there are three extremals. Arguments as those of
    `extremals`.
    """
    free, beta = _free(dynamics, b0, beta, most)
    ends = [high for _, high, _ in _branches(free, most)][:-1]
    return np.array([(s, math.sqrt(beta) * free.duration(s)) for s in ends]).reshape(-1, 2)


def jumps(
    dynamics: Reduction | Quotient, b0: PyTree, *, beta: float, most: float = _MOST
) -> np.ndarray:
    """Return (jump,) every duration T at which the best extremal becomes another one.

    There its effort jumps from little to much. Empty without folds. Arguments as those of
    `extremals`.
    """
    free, beta = _free(dynamics, b0, beta, most)
    minima = [
        (low, high, free.duration(low) if low else 0.0, free.duration(high))
        for low, high, rising in _branches(free, most)
        if rising
    ]

    def cost(branch: tuple[float, ...], unit: float) -> float:
        low, high, shortest, longest = branch
        if not shortest <= unit <= longest:
            return math.inf
        return _cost(free, free.spending(_inverse(free, low, high, unit)), unit, 1.0)

    found = []
    for one, other in itertools.combinations(minima, 2):
        low, high = max(one[2], other[2]), min(one[3], other[3])

        # Falls with T: what spends more has the smaller loss at the end, and dJ/dT = l(T).
        def gap(unit: float, one: tuple = one, other: tuple = other) -> float:
            return cost(other, unit) - cost(one, unit)

        if low < high and gap(low) > 0 > gap(high):
            at = _root(gap, low, high)
            if min(cost(branch, at) for branch in minima) >= cost(one, at) - 1e-12:
                found.append(at)
    return math.sqrt(beta) * np.array(sorted(found))


def _free(
    dynamics: Reduction | Quotient, b0: PyTree, beta: float, most: float
) -> tuple[FreeFlow, float]:
    """The free flow, and beta, after checks."""
    if not isinstance(dynamics, Reduction | Quotient):
        raise ValueError(
            f"dynamics is a {type(dynamics).__name__}; pass a Reduction, gdln.reduce(graph, data), "
            "or a Quotient, reduction.quotient(b0)."
        )
    if not is_concrete((dynamics, b0)):
        raise ValueError("extremals are looked for in host code: not under jit, grad or vmap.")
    beta, most = check_positive(beta, "beta"), check_positive(most, "most")
    start = dynamics.x0 if isinstance(dynamics, Quotient) and b0 is None else b0
    return tabulate(dynamics, start, most), beta


def _branches(free: FreeFlow, most: float) -> list[tuple[float, float, bool]]:
    """(from, to, whether T(S) increases) between folds, the first from S = 0."""
    end = min(most, float(free.edges[-1]))
    parts = np.arange(1, _PER_PANEL + 1) / _PER_PANEL
    grid = (free.edges[:-1, None] + np.diff(free.edges)[:, None] * parts).ravel()
    grid = np.append(grid[grid < end], end)
    signs = np.array([free.lengthening(s) > 0 for s in grid])
    turns = np.flatnonzero(signs[1:] != signs[:-1])
    ends = [0.0, *(_root(free.lengthening, grid[k], grid[k + 1]) for k in turns), end]
    return [(a, b, k % 2 == 0) for k, (a, b) in enumerate(itertools.pairwise(ends))]


def _inverse(free: FreeFlow, low: float, high: float, unit: float) -> float:
    """The S between `low` and `high` with T(S) = `unit`, in units of sqrt(beta)."""

    def gap(spent: float) -> float:
        return (free.duration(spent) if spent > 0 else 0.0) - unit

    return _root(gap, low, high)


def _root(gap: Callable[[float], float], low: float, high: float) -> float:
    """A root, also where an end is one up to rounding."""
    if gap(low) * gap(high) >= 0:
        return low if abs(gap(low)) < abs(gap(high)) else high
    found = root_scalar(gap, bracket=(low, high), method="brentq", xtol=1e-14, rtol=1e-14)
    return float(found.root)


def _cost(free: FreeFlow, path: Spending, T: float, beta: float) -> float:
    """J = T l(S) + int_0^S sqrt(2 beta (l - l(S))) du."""
    du = 2 * path.spent * path.v
    work = path.integral(np.sqrt(2 * beta * path.gaps) * du)
    return T * free.loss(path.spent) + work


def _extremal(free: FreeFlow, spent: float, T: float, beta: float, rising: bool) -> Extremal:
    path = free.spending(spent)
    cost = _cost(free, path, T, beta)
    return Extremal(spent, cost, rising, free.loss(spent), beta, free, path)
