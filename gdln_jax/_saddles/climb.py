"""The events of one block, from saddle to saddle (theory#saddles)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gdln_jax._saddles.deviation import (
    SAME,
    Piece,
    Spectrum,
    Term,
    added,
    forced,
    pieces,
    spectrum,
    term,
)
from gdln_jax._saddles.landscape import NOISE, Block, Vector
from gdln_jax._saddles.orbit import LONGEST, EndlessError, Orbit, arrival, carry, follow
from gdln_jax._saddles.power import BlowUp, Form, beside_ray, blow_up, leading_form, never_falls

# Where orbits start: the distance from a saddle, and from a power stage rho^degree.
_RHO, _RHO_POWER = 1e-6, 1e-9
# Two events part, and an arrival is over, at this many e-folds.
_FOLDS = 5.0
_SHARE = 1e-3  # of an arrival that counts for how slow it is

Stage = tuple[str, float, float]


class RefusedError(Exception):
    """Why a block cannot continue; the first argument is the reason in two words."""

    def __init__(self, reason: str, text: str):
        super().__init__(reason, text)
        self.reason, self.text = reason, text


class Rise(NamedTuple):
    """One event of a block; `stages` are all up to it, and `y` is the plateau after it."""

    kind: str
    stages: tuple[Stage, ...]
    offset: float
    rate: float
    flags: tuple[str, ...]
    y: Vector
    drop: float


class Leaving(NamedTuple):
    """How a saddle is left: along `ray` from distance e^log_rho, with what is beside it.

    `winner`: the term that grows, in its eigenspace or as the start of the blow-up `found` of
    `form`.
    """

    kind: str
    ray: Vector
    log_rho: float
    beside: list[Term]
    rate: float
    flags: tuple[str, ...]
    winner: Term
    form: Form | None = None
    found: BlowUp | None = None


class Passage(NamedTuple):
    """A saddle x, how it was left, and the orbit to the next."""

    x: Vector
    modes: Spectrum
    leaving: Leaving
    orbit: Orbit


@dataclass
class Climb:
    """The way of one block from its start eps * y.

    After all events `end` says what holds it. `passages`: one per event.
    """

    block: Block
    start: Vector
    near: float
    tol: float
    end: str = ""
    stages: list[Stage] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    offset: float = 0.0
    arriving: Vector | None = None

    def events(self) -> Iterator[Rise]:
        """Events in the order of time.

        Raises:
            RefusedError: what comes next is not one event at one time.
        """
        x = np.zeros(len(self.start))
        begin = term(1.0, self.start)
        terms = [] if begin is None else [begin._replace(trail=())]
        modes, form = self._look(x)
        while (leaving := self._leave(x, terms, modes, form)) is not None:
            try:
                distance = math.exp(leaving.log_rho)
                orbit = follow(self.block, x, x + distance * leaving.ray, self.tol)
            except EndlessError as found:
                raise RefusedError(
                    "orbit does not end",
                    f"at time {LONGEST:g} after it the strengths are {found.size:.3g} and the "
                    f"gradient {found.slope:.1e}, both still changing: the minimum may lie at "
                    "infinity. Integrate Reduction.solve instead",
                ) from None
            self.passages.append(Passage(x, modes, leaving, orbit))
            yield Rise(
                leaving.kind,
                tuple(self.stages),
                self.offset + orbit.half,
                leaving.rate,
                leaving.flags,
                orbit.end,
                orbit.before - orbit.after,
            )
            x = orbit.end
            modes, form = self._look(x)
            terms = self._arrive(orbit, leaving, modes) if modes.grows or form else []
        self.end = "stable: never learned" if modes.grows else "minimum"

    def _look(self, x: Vector) -> tuple[Spectrum, Form | None]:
        """Rates at a critical point, and the leading form if it may fall there."""
        curvature = self.block.curvature(x)
        form = leading_form(self.block, x, curvature)
        falls = form is not None and not never_falls(form)
        return spectrum(-curvature), form if falls else None

    def _arrive(self, orbit: Orbit, leaving: Leaving, modes: Spectrum) -> list[Term]:
        last = arrival(orbit)
        self.offset += float(orbit.ts[last])
        carried = carry(self.block, orbit, last, leaving.ray, leaving.beside)
        parts = modes.parts(orbit.ys[last] - orbit.end)
        falling = [p for p, rate in zip(parts, modes.rates, strict=True) if rate < 0]
        gap = np.sum(falling, axis=0) if falling else np.zeros_like(orbit.end)
        size = float(np.linalg.norm(gap))
        self.arriving = gap / size if size > 0 else None
        lacks = [] if size == 0 else [Term(0.0, gap / size, math.log(size))]
        return [*lacks, *carried]

    def _leave(
        self, x: Vector, terms: list[Term], modes: Spectrum, form: Form | None
    ) -> Leaving | None:
        found = pieces(terms, modes)
        if found and found[0].rate > 0:
            return self._grow(x, found, modes)
        if modes.grows:
            self._check_forced(forced(self.block, x, modes, found), np.inf)
        return None if form is None or not terms else self._blow_up(form, terms, modes)

    def _grow(self, x: Vector, found: list[Piece], modes: Spectrum) -> Leaving:
        """An exponential stage: the piece that reaches size 1 first wins."""
        winner, *others = found
        theta, rate = winner.event, winner.rate
        flags = self._flags(winner, others, modes)
        s = (math.log(_RHO) - winner.term.log) / rate
        more = forced(self.block, x, modes, others)
        self._check_forced(more, theta)
        ray = np.where(np.abs(winner.term.unit) < 1e-10, 0.0, winner.term.unit)
        aged = [piece.term.aged(piece.rate, theta, s) for piece in [*others, *more]]
        beside = [piece.term for piece in pieces(aged, modes, [ray])]
        if any(one.resonant for one in beside):
            flags = (*flags, "resonance: a later time may hold a further ln ln(1/eps)")
        self.stages.append(("exponential", 0.0, theta))
        self.offset += s
        return Leaving("exponential", ray, math.log(_RHO), beside, rate, flags, winner.term)

    def _flags(self, winner: Piece, others: list[Piece], modes: Spectrum) -> tuple[str, ...]:
        flags, theta = [], winner.event
        for other in others:
            gap = other.event - theta
            if gap <= SAME * theta and other.rate != winner.rate:
                raise RefusedError(
                    "simultaneous",
                    f"directions of rates {winner.rate:.6g} and {other.rate:.6g} reach size 1 at "
                    f"the same theta {theta:.6g}, and which is first does not depend on eps. "
                    "Change a strength, or integrate Reduction.solve at the eps in question",
                )
            if gap < self.near * theta:
                below = _FOLDS / (min(winner.rate, other.rate) * max(gap, 1e-300))
                flags.append(f"near: another follows {gap:.3g} ln(1/eps) later; {_at(below)}")
        if self.arriving is not None:
            shares = [float(np.linalg.norm(part)) for part in modes.parts(self.arriving)]
            slowest = min(-r for r, p in zip(modes.rates, shares, strict=True) if p > _SHARE)
            if slowest * theta < self.near:
                flags.append(
                    f"slow: the plateau before is reached at rate {slowest:.3g}; "
                    f"{_at(_FOLDS / (slowest * theta))}"
                )
        return tuple(flags)

    def _check_forced(self, more: list[Piece], theta: float) -> None:
        first = min((piece.event for piece in more), default=np.inf)
        if first <= theta and first < np.inf:
            raise RefusedError(
                "driven",
                f"a direction without a share in the start is driven by products of others, and "
                f"reaches size 1 at theta {first:.6g}, before any that grows by itself. Start it "
                "unequal, or integrate Reduction.solve",
            )

    def _blow_up(self, form: Form, terms: list[Term], modes: Spectrum) -> Leaving:
        """A power stage: the leading form blows up."""
        edges = np.flatnonzero(form.taking_part)
        exponents = [
            min((one.exponent for one in terms if abs(one.unit[e]) > NOISE), default=np.inf)
            for e in edges
        ]
        started = [a for a in exponents if a < np.inf]
        if started and max(started) - min(started) > SAME:
            raise RefusedError(
                "unequal exponents",
                f"strengths of sizes eps^{min(started):.6g} to eps^{max(started):.6g} enter the "
                f"product of {form.degree} that grows next, whose time is then no power of eps. "
                "Integrate Reduction.solve",
            )
        sources = [one for one in terms if started and abs(one.exponent - started[0]) <= SAME]
        inside = np.zeros(len(form.x))
        inside[form.free] = 1.0
        begin = added([one._replace(unit=one.unit * inside) for one in sources])
        found = None if begin is None else blow_up(form, begin.unit)
        if begin is None or found is None:
            raise RefusedError(
                "stable set",
                f"the product of {form.degree} strengths that should grow next falls to 0 from "
                "this start: it has a wrong sign which cannot turn. Start its smallest strengths "
                "unequal in size",
            )
        power = begin.exponent * (form.degree - 2)
        log_rho = math.log(_RHO_POWER) / form.degree
        kept = [
            part
            for one in terms
            if all(one is not source for source in sources)
            if (part := self._resting(one, form, modes)) is not None
        ]
        beside = [*beside_ray(form, found, begin, log_rho), *kept]
        time = found.time * math.exp(-begin.log * (form.degree - 2))
        self.stages.append(("power", power, time))
        self.offset = np.nan
        return Leaving("power", found.ray, log_rho, beside, np.nan, (), begin, form, found)

    def _resting(self, one: Term, form: Form, modes: Spectrum) -> Term | None:
        """The part of a term that neither grows, decays nor takes part in the blow-up."""
        still = np.zeros(len(form.x))
        for rate, part in zip(modes.rates, modes.parts(one.unit), strict=True):
            still += part * (rate == 0)
        return term(one.exponent, np.where(form.taking_part, 0.0, still), one.log)


def _at(folds: float) -> str:
    """The initial scale below which ln(1/eps) exceeds `folds`."""
    return f"times from here on are to be trusted below eps = 1e-{math.ceil(folds / math.log(10))}"
