r"""Graded deviation from a saddle: terms $\varepsilon^{a_k} v_k$, and what a stage does to them.

theory#saddles. While a winner grows for a time $\theta \ln(1/\varepsilon) + s$, a term in an
eigenspace of rate mu becomes $\varepsilon^{a - \mu\theta} e^{\mu s} v$.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gdln_jax._saddles.landscape import NOISE, Block, Vector

# Exponents and rates are told apart above this distance.
SAME = 1e-7
# A term that lies in the span of lower ones up to this is a correction to them.
_NEW = 1e-8
# Number of pieces up to which forces of third order are computed.
_THIRD = 16


class Term(NamedTuple):
    """The deviation eps^exponent e^log unit.

    The length is kept as a logarithm, since lengths grow exponentially. `resonant`: times a power
    of ln(1/eps). `trail`: the rates of the eigenspaces through which the start became it, one per
    stage; None for what products of others, several such ways or an arrival have made.
    """

    exponent: float
    unit: Vector
    log: float = 0.0
    resonant: bool = False
    trail: tuple[float, ...] | None = None

    def aged(self, rate: float, theta: float, s: float) -> "Term":
        """The term after theta ln(1/eps) + s in an eigenspace of this rate."""
        trail = None if self.trail is None else (*self.trail, rate)
        exponent, log = self.exponent - rate * theta, self.log + rate * s
        return self._replace(exponent=exponent, log=log, trail=trail)


def term(exponent: float, v: np.ndarray, log: float = 0.0) -> Term | None:
    """eps^exponent e^log v; None for a vector of rounding size."""
    size = float(np.linalg.norm(v))
    return Term(exponent, v / size, log + float(np.log(size))) if size > NOISE else None


class Spectrum(NamedTuple):
    """Eigenspaces of a symmetric matrix: distinct `rates`, descending, with orthonormal rows."""

    rates: Float[np.ndarray, " space"]
    spaces: list[Float[np.ndarray, "_ n"]]

    @property
    def grows(self) -> bool:
        """Whether a rate is above 0."""
        return bool(self.rates[0] > 0)

    def parts(self, v: Vector) -> list[Vector]:
        """Projections of a vector."""
        return [rows.T @ (rows @ v) for rows in self.spaces]


def spectrum(matrix: Float[np.ndarray, "n n"]) -> Spectrum:
    """Eigenspaces; rates that agree to `SAME` of the largest are one, and those below it are 0."""
    rates, vectors = np.linalg.eigh(matrix)
    rates, vectors = rates[::-1], vectors[:, ::-1]
    same = SAME * np.abs(rates).max(initial=0.0)
    rates = np.where(np.abs(rates) <= same, 0.0, rates)
    groups = np.split(np.arange(len(rates)), np.flatnonzero(-np.diff(rates) > same) + 1)
    distinct = np.array([rates[group].mean() for group in groups])
    return Spectrum(distinct, [vectors[:, group].T for group in groups])


def independent(terms: Sequence[Term], taken: Sequence[Vector] = ()) -> list[Term]:
    """Drop terms in the span of those with lower exponents, and of `taken`, in ascending order."""
    basis = [v / np.linalg.norm(v) for v in taken]
    kept: list[Term] = []
    for one in sorted(terms, key=lambda one: one.exponent):
        new = one.unit
        for _ in range(2):
            for v in basis:
                new = new - v * (v @ new)
        size = float(np.linalg.norm(new))
        if size > _NEW:
            basis.append(new / size)
            kept.append(one)
    return kept


def added(same: Sequence[Term]) -> Term | None:
    """The sum of terms with one exponent; None where nothing is left."""
    if not same:
        return None
    most = max(one.log for one in same)
    total = np.sum([np.exp(one.log - most) * one.unit for one in same], axis=0)
    found = term(same[0].exponent, total, most)
    trail = same[0].trail if len({one.trail for one in same}) == 1 else None
    return found and found._replace(resonant=all(one.resonant for one in same), trail=trail)


def _added_up(terms: Sequence[Term]) -> list[Term]:
    """Terms with those of one exponent added up, in ascending order."""
    rest, sums = sorted(terms, key=lambda one: one.exponent), []
    while rest:
        count = sum(one.exponent - rest[0].exponent <= SAME for one in rest)
        sums.append(added(rest[:count]))
        rest = rest[count:]
    return [one for one in sums if one is not None]


class Piece(NamedTuple):
    """A term in one eigenspace."""

    term: Term
    rate: float

    @property
    def event(self) -> float:
        """theta at which it would reach size 1; inf if it does not grow."""
        return self.term.exponent / self.rate if self.rate > 0 else np.inf


def pieces(terms: Sequence[Term], modes: Spectrum, taken: Sequence[Vector] = ()) -> list[Piece]:
    """Part terms by eigenspace, add up those of one exponent, and keep what is independent.

    `taken` are directions that come before all. The event that comes first is first.
    """
    found: list[Piece] = []
    before = [modes.parts(v) for v in taken]
    for k, rate in enumerate(modes.rates.tolist()):
        parts = [term(one.exponent, modes.parts(one.unit)[k], one.log) for one in terms]
        here = [
            part._replace(resonant=one.resonant, trail=one.trail)
            for one, part in zip(terms, parts, strict=True)
            if part is not None
        ]
        there = [parts[k] for parts in before if np.linalg.norm(parts[k]) > NOISE]
        found += [Piece(one, rate) for one in independent(_added_up(here), there)]
    return sorted(found, key=lambda piece: (piece.event, piece.term.exponent))


def forced(block: Block, x: Vector, modes: Spectrum, small: list[Piece]) -> list[Piece]:
    """Pieces of second and third order that small ones force (theory#saddles).

    y grows with the sum of the rates of those that force it, and minus its projections with the
    rates of their eigenspaces. The third order is left out beyond 16 pieces.
    """
    count = range(len(small))
    groups: list[tuple[int, ...]] = [(i, j) for i in count for j in range(i + 1)]
    if len(small) <= _THIRD:
        groups += [(i, j, k) for i in count for j in range(i + 1) for k in range(j + 1)]
    found: list[Piece] = []
    for group in groups:
        often = [math.factorial(group.count(k)) for k in set(group)]
        force = -block.derivative(x, *(small[k].term.unit for k in group)) / math.prod(often)
        found += _response([small[k] for k in group], force, modes)
    return found


def _response(group: list[Piece], force: Vector, modes: Spectrum) -> list[Piece]:
    """Solution of v' = A v + e^(rate t) force from 0, as pieces; rate is that of the group."""
    rate = sum(piece.rate for piece in group)
    exponent = sum(piece.term.exponent for piece in group)
    log = sum(piece.term.log for piece in group)
    same = SAME * max(1.0, float(np.abs(modes.rates).max()))
    parts = list(zip(modes.rates.tolist(), modes.parts(force), strict=True))
    along = sum((y / (rate - own) for own, y in parts if abs(rate - own) > same), 0 * force)
    found = [(term(exponent, along, log), rate)]
    # What is left of an arrival (exponent 0) has driven growing directions along the orbit.
    arrives = any(piece.term.exponent == 0 for piece in group)
    for own, y in parts:
        if own > 0 and arrives:
            continue
        if abs(rate - own) > same:
            found.append((term(exponent, -y / (rate - own), log), own))
        else:
            free = term(exponent, y, log)
            found.append((free and free._replace(resonant=True), own))
    return [Piece(free, own) for free, own in found if free is not None]
