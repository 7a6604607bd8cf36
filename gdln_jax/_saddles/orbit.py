"""Orbits from one critical point to the next, and deviations carried along (theory#saddles).

The orbit is integrated alone, by LSODA with the Hessian, which turns implicit where it is stiff.
Deviations follow its variational equation, by a Magnus integrator of fourth order on stored steps.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.integrate import LSODA
from scipy.linalg import expm
from scipy.optimize import root_scalar
from scipy.sparse.csgraph import connected_components

from gdln_jax._saddles.deviation import Term, independent, term
from gdln_jax._saddles.landscape import NOISE, Block, Vector

LONGEST = 1e9
_RTOL, _ATOL = 1e-10, 1e-18
_STEPS = 50_000
_MINIMUM = 1e-6  # gradient below which a minimum of it is a saddle that the solver's error leaves
_NEAR = 1e-7  # distance from the next critical point at which its linearisation takes over
_APART = 1e-10  # a coupling below this share of the largest is rounding


class EndlessError(Exception):
    """An orbit that is still on its way at `LONGEST`."""

    def __init__(self, size: float, slope: float):
        super().__init__(size, slope)
        self.size, self.slope = size, slope


class Orbit(NamedTuple):
    """Steps of an orbit, and its limit.

    - `ts`, `ys`: the nodes; `inner`: states between, as a function per step.
    - `end`: the critical point. `half`: the time at which half of the loss drop is done.
    - `before`, `after`: losses at both ends.
    """

    ts: Float[np.ndarray, " node"]
    ys: Float[np.ndarray, "node n"]
    inner: list[Callable[[float], np.ndarray]]
    end: Vector
    half: float
    before: float
    after: float


def follow(block: Block, x: Vector, start: Vector, tol: float) -> Orbit:
    """Integrate from `start`, near the critical point x, to the next one.

    Raises:
        EndlessError: there is none by `LONGEST`.
    """
    solver = LSODA(
        lambda _, y: -block.slope(y)[1],
        0.0,
        start,
        LONGEST,
        rtol=_RTOL,
        atol=_ATOL,
        jac=lambda _, y: -block.curvature(y),
    )
    ts, ys, inner = [0.0], [start], []
    slope = first = float(np.linalg.norm(block.slope(start)[1]))
    risen = False
    while True:
        if solver.status != "running" or len(ts) > _STEPS:
            raise EndlessError(float(np.linalg.norm(ys[-1])), slope)
        solver.step()
        before, slope = slope, float(np.linalg.norm(block.slope(solver.y)[1]))
        if risen and before < _MINIMUM and slope > before:
            break
        ts.append(float(solver.t))
        ys.append(np.array(solver.y))
        inner.append(solver.dense_output())
        risen = risen or slope > max(2 * first, 10 * _MINIMUM)
        if risen and slope < tol:
            break
    end = _newton(block, ys[-1])
    (low, _), (high, _) = block.slope(end), block.slope(x)
    half = _half_time(block, ts, ys, inner, (low + high) / 2)
    return Orbit(np.array(ts), np.stack(ys), inner, end, half, high, low)


def _newton(block: Block, y: Vector) -> Vector:
    """The critical point near y; where they form a set, the nearest of it."""
    best, least = y, np.inf
    for _ in range(8):
        slope = block.slope(y)[1]
        size = float(np.linalg.norm(slope))
        if size >= least:
            break
        best, least = y, size
        y = y - np.linalg.pinv(block.curvature(y), rtol=1e-8, hermitian=True) @ slope
    return np.where(np.abs(best) < 1e-9, 0.0, best)


def _half_time(
    block: Block,
    ts: list[float],
    ys: list[Vector],
    inner: list[Callable[[float], np.ndarray]],
    level: float,
) -> float:
    low, high = 0, len(ts) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if block.slope(ys[middle])[0] > level:
            low = middle
        else:
            high = middle
    there = inner[low]
    return root_scalar(
        lambda t: block.slope(there(t))[0] - level, bracket=(ts[low], ts[high]), xtol=1e-12
    ).root


def arrival(orbit: Orbit) -> int:
    """The node at which the linearisation about the end takes over."""
    near = np.linalg.norm(orbit.ys - orbit.end, axis=1) < _NEAR * max(
        1.0, float(np.linalg.norm(orbit.end))
    )
    return int(np.argmax(near)) if near.any() else len(orbit.ts) - 1


def carry(block: Block, orbit: Orbit, last: int, along: Vector, terms: list[Term]) -> list[Term]:
    """Carry terms to node `last`, each without its part along the orbit and along lower terms.

    `along` is the direction of the orbit at its start. What is left out is a shift in time, or a
    correction to a lower term. Directions that the orbit never couples are carried apart, since
    rounding would let the one that grows win.
    """
    if not terms:
        return []
    steps = [_gauss(block, orbit, k) for k in range(last)]
    return [
        moved
        for rows in uncoupled([a for a, _, _ in steps] or [block.curvature(orbit.end)])
        for moved in _carried(rows, steps, along, terms)
    ]


def _gauss(block: Block, orbit: Orbit, k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Minus the Hessian at the two Gauss points of step k, and its length."""
    low, high = orbit.ts[k], orbit.ts[k + 1]
    middle, offset = (low + high) / 2, (high - low) * np.sqrt(3) / 6
    a, b = (-block.curvature(orbit.inner[k](t)) for t in (middle - offset, middle + offset))
    return a, b, float(high - low)


def uncoupled(matrices: list[np.ndarray]) -> list[np.ndarray]:
    """Orthonormal rows of subspaces that all symmetric matrices map to themselves, small ones.

    Eigenvectors of a generic combination lie in them.
    """
    weights = np.random.default_rng(0).uniform(0.5, 1.5, size=len(matrices))
    rows = np.linalg.eigh(np.tensordot(weights, np.stack(matrices), axes=1))[1].T
    couples = np.max(np.abs(rows @ np.stack(matrices) @ rows.T), axis=0)
    _, label = connected_components(couples > _APART * couples.max(initial=0.0), directed=False)
    return [rows[label == k] for k in range(label.max() + 1)]


def _carried(
    rows: np.ndarray,
    steps: list[tuple[np.ndarray, np.ndarray, float]],
    along: Vector,
    terms: list[Term],
) -> list[Term]:
    """Carry the parts of terms in one subspace by v' = -l''(y(t)) v."""
    parts = [
        part._replace(trail=t.trail)
        for t in terms
        if (part := term(t.exponent, rows @ t.unit, t.log)) is not None
    ]
    orbits = [v for v in (rows @ along,) if np.linalg.norm(v) > NOISE]
    parts = independent(parts, orbits)
    if not parts:
        return []
    logs = np.array([0.0] * len(orbits) + [one.log for one in parts])
    v, logs = _parted(np.stack([*orbits, *(one.unit for one in parts)]).T, logs)
    for *ends, h in steps:
        a, b = (rows @ one @ rows.T for one in ends)
        magnus = h / 2 * (a + b) + np.sqrt(3) / 12 * h**2 * (b @ a - a @ b)
        v, logs = _parted(expm(magnus) @ v, logs)
    after = zip(parts, v.T[len(orbits) :], logs[len(orbits) :], strict=True)
    return [one._replace(unit=unit @ rows, log=float(log)) for one, unit, log in after]


def _parted(v: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal columns of v, each with the logarithm of its length added to `logs`."""
    q, r = np.linalg.qr(v)
    size = np.diag(r)
    return q * np.sign(size), logs + np.log(np.abs(size))
