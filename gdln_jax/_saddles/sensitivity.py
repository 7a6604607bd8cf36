r"""First derivatives of times by the loss and the start, discrete choices kept (theory#saddles).

A small change of the loss moves saddles, rates, orbits and what is carried along them. The change
of a time is a sum of changes of the loss, its gradient and its Hessian at known points along known
vectors, a `Functional`. With $\Delta A$ the change of $A = -l''$ at the moving saddle:
$d\mu = w^T \Delta A\, w$, $dP = R\,\Delta A\,P + P\,\Delta A\,R$ with the resolvent R of the
eigenspace, and $dx = -l''^+ \Delta\nabla l$.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from gdln_jax._saddles.climb import Climb, Leaving, Passage
from gdln_jax._saddles.deviation import spectrum
from gdln_jax._saddles.functional import Functional, Points, Stage, UnknownError
from gdln_jax._saddles.landscape import NOISE, Vector, chebyshev
from gdln_jax._saddles.orbit import arrival
from gdln_jax._saddles.power import BlowUpChange, Form, Way, blow_up_change, way_to_ray
from gdln_jax._saddles.track import Carried, Nodes, Track


class _Arrived(NamedTuple):
    """The start, carried through eigenspaces to a saddle: `unit` times e^log.

    Of the last stage: `part`, its unit vector in the eigenspace; `share`, what the projection
    left of its length; and how it was `carried`.
    """

    unit: Vector
    log: float
    part: Vector
    share: float
    carried: Carried | None


class Sensitivity:
    """Derivatives of the events of one block."""

    def __init__(self, climb: Climb):
        self.block, self.start = climb.block, climb.start
        self.passages, self.coefficients = climb.passages, [c for _, _, c in climb.stages]
        self.none = Functional((), (), np.zeros(len(climb.start)))
        self._arrived: dict[tuple[float, ...], _Arrived] = {}

    def stages(self) -> list[Stage]:
        """One per event.

        Raises:
            UnknownError: an event whose time has none.
        """
        found: list[Stage] = []
        shifts: list[Functional] = []  # of s, the time of an orbit's start beyond theta
        for k, passage in enumerate(self.passages):
            try:
                stage, shift = self._stage(k, passage, found, shifts)
            except UnknownError as reason:
                raise UnknownError(reason.text, k) from None
            found.append(stage)
            shifts.append(shift)
        return found

    def _stage(
        self, k: int, passage: Passage, before: list[Stage], shifts: list[Functional]
    ) -> tuple[Stage, Functional]:
        leaving, trail = passage.leaving, passage.leaving.winner.trail
        if trail is None:
            raise UnknownError(
                "its direction does not go back to the start by one chain of eigenspaces, since "
                "products of others, an arrival, or several chains made it"
            )
        a, exponent, logs = 1.0, self.none, self.none
        for i, rate in enumerate(trail):
            found = self.passages[i].leaving.found
            if found is None:
                change, s = self._rate(trail[: i + 1]), self._shift(i)
                theta = self.coefficients[i]
                a -= rate * theta
                exponent += before[i].coefficient.scaled(-rate) + change.scaled(-theta)
                logs += shifts[i].scaled(rate) + change.scaled(s)
            else:
                share = rate / found.speed
                exponent = exponent.scaled(1 - share) + self._coupling(i, trail).scaled(-a)
                a *= 1 - share
        if leaving.form is not None:
            return self._blow_up(k, leaving, exponent, logs), self.none
        w, mu = leaving.winner.unit, leaving.rate
        change = self._matrix(k, w, w)
        coefficient = (exponent + change.scaled(-self.coefficients[k])).scaled(1 / mu)
        if any(one.leaving.form is not None for one in self.passages[:k]):
            return Stage(self.none, coefficient, self.none), self.none
        logs += self._amplitude(k, (*trail, mu), leaving.winner.log)
        shift = (logs + change.scaled(self._shift(k))).scaled(-1 / mu)
        offset = sum(shifts, shift + self._half(k))  # orbits take the times at which they are cut
        return Stage(self.none, coefficient, offset), shift

    # ---------------------------------------------------------------- power stages
    def _blow_up(self, k: int, leaving: Leaving, exponent: Functional, logs: Functional) -> Stage:
        """The stage of a product: its T* by what the form starts from, and by the form."""
        form, found, winner = leaving.form, leaving.found, leaving.winner
        assert form is not None
        assert found is not None
        assert winner.trail is not None
        change = blow_up_change(self._way(k))
        inside = form.inside(np.ones(len(winner.unit)))
        share = float(np.linalg.norm(inside * self._arrive(winner.trail).unit))
        total = (
            self._form(k, form, change.units, change.vectors)
            + self._coming(winner.trail, inside * change.start / share)
            + logs.scaled(float(change.start @ winner.unit))
        )
        kinds = [one.leaving.kind for one in self.passages[:k]]
        grown = [kind for kind, rate in zip(kinds, winner.trail, strict=True) if rate != 0]
        if "power" in kinds and "exponential" in grown:
            raise UnknownError(
                "its time depends on the constant of a stage after a product that grew before, "
                "which is not known"
            )
        return Stage(
            exponent.scaled(float(form.degree - 2)),
            total.scaled(self.coefficients[k] / found.time),
            self.none,
        )

    def _form(self, k: int, form: Form, units: np.ndarray, vectors: np.ndarray) -> Functional:
        """The sum of vectors . dP' at unit vectors, of the form at saddle k."""
        nodes, inverse = chebyshev(self.block.degree)
        x, inside = self.passages[k].x, form.inside(np.ones(units.shape[1]))
        points = (x + nodes[:, None, None] * units).reshape(-1, len(x))
        weighted = inverse[form.degree - 1][:, None, None] * vectors * inside
        weighted = weighted.reshape(points.shape)
        here = self._gradients(points, weighted)
        if k == 0:
            return here
        pull = np.zeros(len(x))
        for y, v in zip(points, weighted, strict=True):
            size = float(np.linalg.norm(v))
            if size > 0:
                pull += size * self.block.taylor(y, v / size)[1]
        return here + self._saddle(k, pull)

    def _coupling(self, k: int, trail: tuple[float, ...]) -> Functional:
        """nu / lambda of the direction that a trail takes through the power stage k."""
        form, found = self.passages[k].leaving.form, self.passages[k].leaving.found
        assert form is not None
        assert found is not None
        nu, w = trail[k], found.ray
        if nu == 0:  # an edge that the ray does not couple
            return self.none
        late = form.resting(found, nu) @ found.late[1]
        u = late / np.linalg.norm(late)
        units, weights = form.line(w, u, 1)
        by_form = self._form(k, form, units, -weights[:, None] * u)
        units, weights = form.line(w, u, 2)
        bend = 2 * (weights @ np.stack([form.slope(one) for one in units]))
        rate = by_form + self._turn(k, -bend)
        speed = self._form(k, form, w[None], -w[None])
        return (rate + speed.scaled(-nu / found.speed)).scaled(1 / found.speed)

    def _turn(self, k: int, q: Vector) -> Functional:
        """q . dw of the ray w of the power stage k, -P'(w) = lambda w."""
        form, found = self.passages[k].leaving.form, self.passages[k].leaving.found
        assert form is not None
        assert found is not None
        w = found.ray
        modes = spectrum(-form.curvature(w))
        beside = [part - w * (w @ part) for part in modes.parts(q - w * (w @ q))]
        turned = [
            part / (rate - found.speed)
            for part, rate in zip(beside, modes.rates.tolist(), strict=True)
            if np.linalg.norm(part) > NOISE * np.linalg.norm(q)
        ]
        return self._form(k, form, w[None], np.sum(turned, axis=0)[None]) if turned else self.none

    def _shift(self, k: int) -> float:
        leaving = self.passages[k].leaving
        return (leaving.log_rho - leaving.winner.log) / leaving.rate

    # ---------------------------------------------------------------- at saddles
    def _saddle(self, k: int, q: Vector) -> Functional:
        """q . dx at saddle k; along a set of critical points it moves as the orbit ends."""
        if k == 0 or np.linalg.norm(q) == 0:
            return self.none
        x = self.passages[k].x
        inverse = np.linalg.pinv(self.block.curvature(x), rtol=1e-8, hermitian=True)
        moved = self._gradients(x[None], -(inverse @ q)[None])
        rest = q - inverse @ (self.block.curvature(x) @ q)
        if np.linalg.norm(rest) <= NOISE * np.linalg.norm(q):
            return moved
        return moved + self._orbit(k - 1, self._track(k - 1), rest)

    def _matrix(self, k: int, a: Vector, b: Vector) -> Functional:
        """a . dA b, A at the moving saddle k."""
        sizes = float(np.linalg.norm(a)), float(np.linalg.norm(b))
        if min(sizes) == 0:
            return self.none
        x = self.passages[k].x
        force = self.block.derivative(x, a / sizes[0], b / sizes[1]) * math.prod(sizes)
        here = Functional((), ((x[None], -a[None], b[None]),), 0 * self.start)
        return here + self._saddle(k, -force)

    def _gradients(self, points: Points, vectors: Points) -> Functional:
        return Functional(((points, np.zeros(len(points)), vectors),), (), 0 * self.start)

    def _space(self, k: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
        """Projection and resolvent of the eigenspace of a rate at saddle k."""
        modes = self.passages[k].modes
        own = int(np.argmin(np.abs(modes.rates - rate)))
        others = [j for j in range(len(modes.rates)) if j != own]
        projections = [rows.T @ rows for rows in modes.spaces]
        resolvent = np.zeros_like(projections[0])
        for j in others:
            resolvent += projections[j] / (modes.rates[own] - modes.rates[j])
        return projections[own], resolvent

    def _rate(self, trail: tuple[float, ...]) -> Functional:
        """The rate of the last eigenspace of a trail."""
        part = self._arrive(trail).part
        return self._matrix(len(trail) - 1, part, part)

    # ---------------------------------------------------------------- what comes from the start
    def _arrive(self, trail: tuple[float, ...]) -> _Arrived:
        if not trail:
            size = float(np.linalg.norm(self.start))
            return _Arrived(self.start / size, math.log(size), self.start / size, 1.0, None)
        if trail not in self._arrived:
            before, k = self._arrive(trail[:-1]), len(trail) - 1
            part, share = self._projected(trail, before)
            carried = self._track(k).forward(part)
            log = before.log + math.log(share) + carried.log
            self._arrived[trail] = _Arrived(carried.end, log, part, share, carried)
        return self._arrived[trail]

    def _rested(self, trail: tuple[float, ...], y: Vector) -> BlowUpChange:
        """The derivative of y . zeta(T*) at the last stage of a trail."""
        leaving = self.passages[len(trail) - 1].leaving
        assert leaving.form is not None
        assert leaving.found is not None
        if trail[-1] != 0:
            raise UnknownError(
                "the strengths that it starts from were coupled to a product that grew before, and "
                "what became of their sizes is not differentiated"
            )
        resting = leaving.form.resting(leaving.found, 0.0)
        return blow_up_change(self._way(len(trail) - 1), resting @ y)

    def _projected(self, trail: tuple[float, ...], before: _Arrived) -> tuple[Vector, float]:
        form = self.passages[len(trail) - 1].leaving.form
        if form is not None:
            way, inside = self._way(len(trail) - 1), form.inside(np.ones(len(before.unit)))
            part = form.resting(way.found, 0.0) @ way.zeta(way.ts[-1])
            share = float(np.linalg.norm(part))
            return part / share, share * float(np.linalg.norm(inside * before.unit))
        part = self._space(len(trail) - 1, trail[-1])[0] @ before.unit
        share = float(np.linalg.norm(part))
        return part / share, share

    def _amplitude(self, k: int, trail: tuple[float, ...], log: float) -> Functional:
        """The logarithm of the length with which the winner leaves saddle k, without growth."""
        before = self._arrive(trail[:-1])
        part, share = self._projected(trail, before)
        grown = sum(rate * self._shift(i) for i, rate in enumerate(trail[:-1]))
        if abs(before.log + math.log(share) + grown - log) > 1e-4:
            raise UnknownError("its length is known to fewer than four digits")
        return self._through(k, trail, before, part / share)

    def _through(self, k: int, trail: tuple[float, ...], before: _Arrived, y: Vector) -> Functional:
        """y . du / |v| of u = P v at saddle k, v what arrives there; or of zeta(T*)."""
        form = self.passages[k].leaving.form
        if form is not None:
            change = self._rested(trail, y)
            inside = form.inside(np.ones(len(y)))
            size = float(np.linalg.norm(inside * before.unit))
            path = self._form(k, form, change.units, change.vectors).scaled(size)
            return path + self._coming(trail[:-1], inside * change.start)
        projection, resolvent = self._space(k, trail[-1])
        part = projection @ before.unit
        return (
            self._matrix(k, resolvent @ y, part)
            + self._matrix(k, projection @ y, resolvent @ before.unit)
            + self._coming(trail[:-1], projection @ y)
        )

    def _coming(self, trail: tuple[float, ...], y: Vector) -> Functional:
        """y . dv / |v| of what arrives by a trail."""
        if np.linalg.norm(y) < 1e-13:
            return self.none
        if not trail:
            return self.none._replace(start=y / np.linalg.norm(self.start))
        here, k = self._arrive(trail), len(trail) - 1
        track, run = self._track(k), here.carried
        assert run is not None
        back = track.backward(y)
        worth = np.exp(run.logs + back.logs - run.log)[:, None, None]
        z, v = worth * back.nodes, run.nodes
        points = track.y.reshape(-1, len(y))
        weighted = -track.weights[..., None] * z
        along = Functional(
            (), ((points, weighted.reshape(points.shape), v.reshape(points.shape)),), 0 * self.start
        )
        sources = self._bend(track, z, v)
        moved = self._orbit(k, track, np.zeros(len(y)), sources)
        start = back.end * math.exp(back.log - run.log) / here.share
        return along + moved + self._through(k, trail, self._arrive(trail[:-1]), start)

    def _bend(self, track: Track, z: Nodes, v: Nodes) -> Nodes:
        """The gradient of z . A(y) v by y, at the nodes."""
        out = np.zeros_like(z)
        for place in np.ndindex(z.shape[:2]):
            sizes = [float(np.linalg.norm(one[place])) for one in (z, v)]
            if min(sizes) > 0:
                units = [one[place] / size for one, size in zip((z, v), sizes, strict=True)]
                out[place] = -math.prod(sizes) * self.block.derivative(track.y[place], *units)
        return out

    @functools.cache  # noqa: B019
    def _way(self, k: int) -> Way:
        leaving = self.passages[k].leaving
        assert leaving.form is not None
        assert leaving.found is not None
        return way_to_ray(leaving.form, leaving.winner.unit, leaving.found)

    # ---------------------------------------------------------------- orbits
    @functools.cache  # noqa: B019  lives as long as the result
    def _track(self, k: int, half: bool = False) -> Track:
        orbit, ray = self.passages[k].orbit, self.passages[k].leaving.ray
        until = orbit.half if half else float(orbit.ts[arrival(orbit)])
        return Track(self.block, orbit, ray, until)

    def _orbit(self, k: int, track: Track, end: Vector, sources: Nodes | None = None) -> Functional:
        """end . dy(T) plus the integral of sources . dy, along orbit k."""
        nodes, first = track.worth(end, sources)
        points = track.y.reshape(-1, len(end))
        vectors = -(track.weights[..., None] * nodes).reshape(points.shape)
        rho = math.exp(self.passages[k].leaving.log_rho)
        return self._gradients(points, vectors) + self._saddle(k, first) + self._ray(k, rho * first)

    def _ray(self, k: int, q: Vector) -> Functional:
        """q . dw, w the unit vector along which saddle k is left."""
        leaving = self.passages[k].leaving
        if leaving.form is not None:
            return self._turn(k, q)
        w, trail = leaving.winner.unit, leaving.winner.trail
        projection, resolvent = self._space(k, leaving.rate)
        turned = self._matrix(k, resolvent @ q, w)
        within = projection @ q - w * (w @ q)
        if np.linalg.norm(within) <= NOISE * np.linalg.norm(q) or trail is None:
            return turned
        before = self._arrive(trail)
        _, share = self._projected((*trail, leaving.rate), before)
        return turned + self._through(k, (*trail, leaving.rate), before, within / share)

    def _half(self, k: int) -> Functional:
        """The time on orbit k at which half of the drop is done."""
        orbit, track = self.passages[k].orbit, self._track(k, half=True)
        there = orbit.inner[len(track.h) - 1](orbit.half)
        slope = self.block.slope(there)[1]
        square = float(slope @ slope)
        points = np.stack([there, self.passages[k].x, orbit.end])
        losses = np.array([1.0, -0.5, -0.5]) / square
        level = Functional(((points, losses, np.zeros_like(points)),), (), 0 * self.start)
        return level + self._orbit(k, track, slope / square)
