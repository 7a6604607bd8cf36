"""The stages of learning of a ReLU network, calculated without a network.

Every unit has an active part (0 while it is dormant), a vector of amplitudes, and modes with sizes
s in units of ln(1/std): all are -1 at first, and a mode enters when its s comes to 0. Between two
drops of the loss sizes grow at the modes' rates; a drop is the descent of the active units to their
next rest.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from gdln_jax.relu._descent import MOST_STEPS, Active, descend
from gdln_jax.relu._growth import Growth
from gdln_jax.relu._settled import kink_level
from gdln_jax.relu._utility import Examples, Modes, Utility

Stop = Literal["learned", "stuck", "budget", "not separated"]

# Learned: the loss is below this share of L(0).
_LEARNED = 1e-3
# Small units flow for 1, 2, ..., 6 times this, in units of one over the largest possible rate.
_ROUND, _ROUNDS, _STEP = 15.0, 6, 0.05
# Rates below this share of the first stage's largest possible rate are those of nothing.
_SLOWEST = 1e-3
# A new mode takes the size of old ones that overlap with it by more.
_OVERLAP = 0.02
# Modes of at least this relative size enter together, at this amplitude.
_JOINS, _ENTRY = 0.05, 0.01
# Units have come to their gates where rate x T ln(1/std) of the first drop exceeds this.
_TURNED = 3.0
# Dormant gates that enter with sizes between _JOINS and this compete.
_EQUAL = 0.98


@dataclass
class Unit:
    """One unit of the network; `size` are those of `modes`, `gate` says which units share them."""

    start: Float[np.ndarray, " parameter"]
    active: Float[np.ndarray, " parameter"]
    modes: Modes
    size: Float[np.ndarray, " mode"]
    gate: bytes = b""
    first_rate: float = np.inf  # its rate before the first drop

    @property
    def dormant(self) -> bool:
        """Whether the output does not have it yet."""
        return not self.active.any()


class Stage(NamedTuple):
    """A drop of the loss and the plateau after it."""

    time: float
    plateau: float
    leaves: bool
    joined: Float[np.ndarray, "joined 2"]  # relative size and rate
    next_size: float
    separated: bool
    w: Float[np.ndarray, "unit x"]
    a: Float[np.ndarray, "unit y"]


class Offer(NamedTuple):
    """A mode of a unit that can enter."""

    unit: Unit
    mode: int

    @property
    def rate(self) -> float:
        """Its rate of growth."""
        return float(self.unit.modes.rates[self.mode])

    @property
    def size(self) -> float:
        """Its size s, in units of ln(1/std)."""
        return float(self.unit.size[self.mode])


@dataclass
class Course:
    """The calculation as far as it has come."""

    examples: Examples
    units: list[Unit]
    log: float  # ln(1/std)
    time: float = 0.0
    steps: int = 0
    slowest: float = 0.0
    stages: list[Stage] = field(default_factory=list)
    caveats: tuple[str, ...] = ()

    @property
    def active(self) -> Active:
        """All units' active parts."""
        width = self.examples.x.shape[1]
        every = np.stack([unit.active for unit in self.units])
        return Active(every[:, :width], every[:, width:])


def calculate(
    examples: Examples, *, std: float, units: int, stages: int, seed: int
) -> tuple[Course, Stop]:
    """All stages up to a stop, and why it stopped."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(units, examples.x.shape[1]))
    starts = np.concatenate([w, rng.normal(size=(units, examples.y.shape[1]))], axis=1)
    none = Modes(np.zeros(0), starts[:0])
    course = Course(
        examples,
        [Unit(start, np.zeros(len(start)), none, np.zeros(0)) for start in starts],
        -float(np.log(std)),
    )
    stop = None
    while stop is None:
        stop = _stage(course, stages)
    return course, stop


def _stage(course: Course, most: int) -> Stop | None:
    """Take one drop of the loss, with all rests in it; or say why there is none."""
    examples = course.examples
    residual = examples.y - course.active.sent(examples)
    if course.stages and not course.stages[-1].separated:
        return "not separated"
    if examples.loss(residual) < _LEARNED * examples.loss(examples.y):
        return "learned"
    if len(course.stages) >= most or course.steps >= MOST_STEPS:
        return "budget"
    utility = Utility(examples, residual)
    course.slowest = course.slowest or _SLOWEST * utility.top
    _settle(course, utility)
    if course.stages:
        _ride(course, utility)
    offers = [
        Offer(unit, mode)
        for unit in course.units
        for mode in range(len(unit.modes.rates))[: 1 if unit.dormant else None]
    ]
    if not offers:
        return "stuck"
    wait = min(-offer.size / offer.rate for offer in offers)
    course.time += wait
    for unit in course.units:
        unit.size = unit.size + unit.modes.rates * wait
    _warn_of_late_gates(course, [offer for offer in offers if offer.size >= -1e-9])
    joined, next_size, separated = _join(course, offers)
    leaves = True
    while leaves:
        end = descend(examples, _moving(course), most=MOST_STEPS - course.steps)
        course.steps += end.steps
        moving = [unit for unit in course.units if not unit.dormant]
        for unit, row in zip(moving, np.concatenate(end.units, axis=1), strict=True):
            unit.active = row
        share = examples.loss(examples.y - course.active.sent(examples))
        share /= examples.loss(examples.y)
        w, a = course.active
        leaves = end.leaves
        course.stages.append(Stage(course.time, share, leaves, joined, next_size, separated, w, a))
        if end.exhausted or (leaves and len(course.stages) >= most):
            return "not separated" if not separated else "budget"
    return None


def _warn_of_late_gates(course: Course, winners: list[Offer]) -> None:
    """Note a winner whose units had hardly begun to turn to their gate at the first drop."""
    if not course.stages:
        for unit in course.units:
            unit.first_rate = float(unit.modes.rates[0]) if len(unit.modes.rates) else 0.0
        return
    slow = min((o.unit.first_rate for o in winners if o.unit.dormant), default=np.inf)
    if slow * course.stages[0].time * course.log < _TURNED:
        caveat = (
            f"the drop at T {course.time:.4f} is of units that grow at {slow:.3g} until the first "
            "drop, too slowly to have come to their gates by then: expect its time to be off by "
            "some per cent and to vary over seeds"
        )
        course.caveats = (*course.caveats, caveat)


def _moving(course: Course) -> Active:
    w, a = course.active
    on = [not unit.dormant for unit in course.units]
    return Active(w[on], a[on])


def _settle(course: Course, utility: Utility) -> None:
    """Let dormant units flow to the maxima of the utility, and give them those gates' modes."""
    x, width = course.examples.x, course.examples.x.shape[1]
    dormant = [unit for unit in course.units if unit.dormant]
    if not dormant or utility.top == 0:
        return
    th = np.stack([unit.start for unit in dormant])
    flowing = Growth(th[:, :width], th[:, width:])
    first = not course.stages
    left, t = np.ones(len(dormant), bool), 0.0
    for number in range(1, _ROUNDS + 1):
        if not left.any():
            break
        flowing.flow(utility, left, number * _ROUND / utility.top, _STEP / utility.top)
        t += number * _ROUND / utility.top
        for k in np.flatnonzero(left):
            kink = flowing.sliding[k]
            gate = utility.gate((flowing.w[k] @ x.T > 0) & ~kink, kink)
            if gate is None:
                continue
            left[k] = False
            unit, n = dormant[k], np.append(flowing.w[k], flowing.a[k])
            most, (rates, directions) = np.linalg.norm(unit.start), gate.modes
            if first:
                # A mode that has decayed to rounding counts as its unit's start at most.
                grown = np.exp(np.minimum(flowing.log_size[k] - rates * t, 700.0))
                unit.start = np.clip((directions @ n) * grown, -most, most) @ directions
            else:
                unit.start = most * directions[0]
            modes = _growing(gate.modes, course.slowest)
            _take(unit, modes, gate.on.tobytes() + gate.kink.tobytes())
    for k in np.flatnonzero(left):
        unit, n = dormant[k], np.append(flowing.w[k], flowing.a[k])
        z = np.maximum(x @ flowing.w[k], 0.0)
        rate = 2 * float(course.examples.p @ (z * (utility.residual @ flowing.a[k])))
        grown = flowing.log_size[k] - rate * t if first else np.log(np.linalg.norm(unit.start))
        unit.start = np.exp(grown) * n
        modes = _growing(Modes(np.array([rate]), n[None]), course.slowest)
        _take(unit, modes, b"unsettled" + (z > 0).tobytes())


def _ride(course: Course, utility: Utility) -> None:
    """Give active units the modes of their patterns, which ride on them."""
    x, w = course.examples.x, course.active.w
    z, level = w @ x.T, kink_level(w, x)
    on, kink = z > level, (np.abs(z) <= level) & np.any(x, axis=1)
    for k, unit in enumerate(course.units):
        if not unit.dormant:
            modes = _growing(utility.modes(on[k], kink[k]), course.slowest)
            _take(unit, modes, on[k].tobytes() + kink[k].tobytes())


def _growing(modes: Modes, slowest: float) -> Modes:
    return Modes(*(part[modes.rates > slowest] for part in modes))


def _take(unit: Unit, modes: Modes, gate: bytes) -> None:
    """New modes inherit the sizes of the old ones that they overlap with."""
    size = np.full(len(modes.rates), -1.0)
    if len(unit.size):
        near = np.abs(modes.directions @ unit.modes.directions.T) > _OVERLAP
        size = np.maximum(size, np.max(np.where(near, unit.size, -np.inf), axis=1))
        if unit.dormant and len(size):
            size[0] = unit.size.max()
    unit.modes, unit.size, unit.gate = modes, size, gate


def _join(course: Course, offers: list[Offer]) -> tuple[np.ndarray, float, bool]:
    """Let all modes enter that are large enough.

    Returns their (size, rate), the next size, and whether no dormant gates compete.
    """
    sizes = np.exp(np.array([offer.size for offer in offers]) * course.log)
    entering = sizes >= _JOINS
    chosen = [(offer, size) for offer, size in zip(offers, sizes, strict=True) if size >= _JOINS]
    along = np.array([o.unit.modes.directions[o.mode] @ o.unit.start for o, _ in chosen])
    unit_size = np.sqrt(np.mean(along**2))
    kinds: dict[tuple[bytes, int, bool], tuple[float, float]] = {}
    for offer, size in chosen:
        key = (offer.unit.gate, offer.mode, offer.unit.dormant)
        kinds[key] = max(kinds.get(key, (0.0, 0.0)), (float(size), offer.rate))
    compete = any(key[2] and size <= _EQUAL for key, (size, _) in kinds.items())
    for (offer, size), amount in zip(chosen, along / unit_size, strict=True):
        unit, mode = offer
        unit.active = unit.active + _ENTRY * size * amount * unit.modes.directions[mode]
        unit.size[mode] = -1.0
    joined = np.unique(np.round(list(kinds.values()), 9), axis=0)[::-1]
    rest = sizes[~entering]
    return joined, float(rest.max()) if len(rest) else 0.0, not compete
