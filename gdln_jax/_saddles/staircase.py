"""The staircase: events in the order of time, as a result."""

import math
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import Suggesting, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._reduction.reduction import Reduction, StrengthsLike
from gdln_jax._reduction.strengths import ModeStrengths
from gdln_jax._saddles.change import StrengthsByGroup
from gdln_jax._saddles.climb import Stage
from gdln_jax._saddles.origin import Origin


@dataclass(frozen=True)
class SaddleEvent(Suggesting):
    """One step of the staircase: modes learned at one time.

    - `kind`: "exponential" or "power", how the saddle before it is left.
    - `stages`: (kind, power, coefficient) of all stages up to it. Its time is the sum of
      coefficient * ln(1/eps) and coefficient * eps^-power, and `offset`.
    - `theta`: the sum of the coefficients of ln(1/eps).
    - `offset`: kappa, to half of the loss drop; NaN after a power stage, where it is not known.
    - `rate`: of growth from the saddle, per unit of tau; NaN for a power stage.
    - `modes`: numbers, from 1, of the modes whose strengths change.
    - `loss_before`, `loss_after`: plateaus of the loss. `b`: strengths on the plateau after it.
    - `flags`: what the time needs to be trusted, empty for nothing.
    """

    kind: str
    stages: tuple[Stage, ...]
    theta: float
    offset: float
    rate: float
    modes: tuple[int, ...]
    loss_before: float
    loss_after: float
    b: ModeStrengths = field(repr=False)
    flags: tuple[str, ...] = ()

    def law(self) -> str:
        """Return the time as a text, such as "2.333 ln(1/eps) - 3.183"."""
        powers: dict[float, float] = {}
        for _, power, coefficient in self.stages:
            powers[power] = powers.get(power, 0.0) + coefficient
        parts = [
            f"{powers[p]:.4g} " + (f"eps^-{p:.4g}" if p else "ln(1/eps)")
            for p in sorted(powers, reverse=True)
        ]
        if not math.isnan(self.offset):
            parts.append(f"{self.offset:.4g}")
        return " + ".join(parts).replace("+ -", "- ")


def order(stages: tuple[Stage, ...], offset: float) -> tuple[float, ...]:
    """What sorts times as eps goes to 0: powers and their coefficients, the largest first."""
    powers: dict[float, float] = {}
    for _, power, coefficient in stages:
        powers[power] = powers.get(power, 0.0) + coefficient
    key = [number for power in sorted(powers, reverse=True) for number in (power, powers[power])]
    return (*key, 0.0 if math.isnan(offset) else offset)


@dataclass(frozen=True)
class Staircase(Suggesting):
    """Events of learning as the initial scale goes to 0; made by `saddles`.

    - `events`: in the order of time. `flags`: those of all events.
    - `origin`: what it was made of.
    - `end`: per block of modes that meet in the loss "minimum", or "stable: never learned" where
      directions would lower the loss in which the start has no component. With `quotient` among
      strengths that are equal within each class: see `saddles(..., quotient=False)` for others.
    """

    events: tuple[SaddleEvent, ...]
    end: tuple[str, ...]
    origin: Origin | None = field(default=None, repr=False, compare=False)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of all events, numbered from 1."""
        return tuple(
            f"event {k}: {flag}" for k, one in enumerate(self.events, 1) for flag in one.flags
        )

    def times(
        self,
        eps: ArrayLike,
        *,
        reduction: Reduction | None = None,
        c: StrengthsLike | None = None,
        strengths: StrengthsByGroup | None = None,
    ) -> Float[Array, "*batch event"]:
        r"""Return the times of all events at an initial scale.

        Asymptotic: relative errors are eps to the power of the smallest gap in exponents. Where
        `offset` is not known it is left out.

        Given other strengths or another c, times are those of this staircase plus their first
        order in the change (theory#saddles): saddles, rates, orbits and what is carried along them
        move, while the order of events is kept. So first derivatives are right at the values that
        the staircase was made for; make another one, `saddles`, after a large step. Values that
        are known must have the same events. Traced ones cannot be checked, and a change that
        breaks an equality (of members of a class, of two rates) has no derivative.

        Args:
            eps: initial scale, a number or an array, above 0.
            reduction: one of the same graph and gates, whose `mode_data` differ or are traced.
            c: another start, as in `saddles`; of a class of edges the mean counts.
            strengths: group -> S, a number or one per mode, for some of the keys of
                `Reduction.strengths`. Not with `reduction`.

        Returns:
            Times in units of tau (..., event); differentiable, once, in `eps`, `strengths`, `c`
            and the arrays of `reduction`, under jit, vmap, grad and jvp.

        Raises:
            ValueError: a known eps that is not above 0 and finite; strengths or a c with other
                events; an event whose time has no such derivative, which is named.

        Cost: of the first call with other strengths as that of `saddles`, then one evaluation of
        derivatives of the loss at some thousand points.
        """
        if is_concrete(eps):
            known = np.asarray(eps)
            if known.dtype.kind not in "fiu" or not np.all((known > 0) & (known < np.inf)):
                raise ValueError(f"eps is {eps!r}; it must be above 0 and finite.")
        scale = jnp.asarray(eps, jnp.result_type(float))
        changes = np.zeros((len(self.events), 3))
        if not (reduction is None and c is None and strengths is None):
            if self.origin is None:
                raise ValueError("this staircase was not made by saddles: only eps can change.")
            changes = self.origin.changes(reduction, c, strengths)
        total = []
        for k, one in enumerate(self.events):
            time = jnp.full_like(scale, 0.0 if np.isnan(one.offset) else one.offset)
            time = time + changes[k][2]
            for j, (kind, power, coefficient) in zip(self._before(k), one.stages, strict=True):
                law = scale ** -(power + changes[j][0]) if kind == "power" else -jnp.log(scale)
                time = time + (coefficient + changes[j][1]) * law
            total.append(time)
        return jnp.stack(total, axis=-1) if total else jnp.zeros((*scale.shape, 0))

    def _before(self, k: int) -> list[int]:
        """The events of the block of event k up to it, one per stage."""
        if self.origin is None:
            return [k] * len(self.events[k].stages)
        number, _ = self.origin.order[k]
        count = len(self.events[k].stages)
        return [self.origin.order.index((number, stage)) for stage in range(count)]

    def table(self) -> str:
        """Return events as a text, one a line: time, modes, plateau of the loss, flags."""
        rows = [("event", "time", "modes", "loss after", "")]
        for k, one in enumerate(self.events, 1):
            modes = ", ".join(map(str, one.modes))
            rows.append((str(k), one.law(), modes, f"{one.loss_after:.6g}", "; ".join(one.flags)))
        widths = [max(len(row[c]) for row in rows) for c in range(4)]
        lines = [
            "  ".join([*(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=False)), row[4]])
            for row in rows
        ]
        ends = [f"block {k}: {end}" for k, end in enumerate(self.end, 1)]
        return "\n".join(line.rstrip() for line in [*lines, *ends])

    def __repr__(self) -> str:
        laws = "; ".join(one.law() for one in self.events)
        flags = f", {len(self.flags)} flags" if self.flags else ""
        return f"Staircase({len(self.events)} events: {laws}{flags})"


class SaddleError(ValueError):
    """A staircase that is not a sequence of single events at known times.

    - `reason`: "simultaneous", "driven", "unequal exponents", "stable set" or "orbit does not end".
    - `staircase`: the events before it, and those of other blocks.
    """

    def __init__(self, text: str, reason: str, staircase: Staircase):
        super().__init__(text)
        self.reason, self.staircase = reason, staircase
