"""What a staircase was made of, and what a change of it does to its times."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import is_concrete
from gdln_jax._reduction.reduction import Reduction, StrengthsLike
from gdln_jax._saddles.change import (
    Probes,
    StrengthsByGroup,
    changed,
    probes,
    start_of,
    targets_by_strengths,
    with_strengths,
)
from gdln_jax._saddles.climb import Climb
from gdln_jax._saddles.functional import UnknownError
from gdln_jax._saddles.landscape import NOISE, Landscape
from gdln_jax._saddles.sensitivity import Sensitivity


@dataclass(frozen=True, eq=False)
class Origin:
    """The reduction and the start of a staircase, and the ways of its blocks.

    - `order`: (block, stage) of each event. `again`: the same call with others.
    """

    reduction: Reduction
    c: StrengthsLike
    land: Landscape
    climbs: tuple[Climb, ...]
    order: tuple[tuple[int, int], ...]
    again: Callable[[Reduction, StrengthsLike], "Origin | None"]

    def changes(
        self,
        reduction: Reduction | None,
        c: StrengthsLike | None,
        strengths: StrengthsByGroup | None,
    ) -> Float[Array, "event 3"]:
        """Changes of the last stage's power and coefficient, and of the offset, of each event.

        Raises:
            ValueError: an event whose time has no derivative, or that is another one.
        """
        if reduction is not None and strengths is not None:
            raise ValueError("give reduction or strengths, not both: strengths change its targets.")
        new = self.reduction if reduction is None else self._checked(reduction)
        if strengths is not None:
            data = with_strengths(new, jnp.asarray(self._inverse), strengths)
            new = eqx.tree_at(lambda r: r.mode_data, new, data)
        start = self.c if c is None else c
        begin, before = (
            start_of(self.land, *one) for one in ((new, start), (self.reduction, self.c))
        )
        old = self.reduction.mode_data
        known = is_concrete((new.mode_data, begin))
        if known and not _equal((new.mode_data, begin), (old, before)):
            self._check_same_events(new, start)
        total = changed(self.land, self._probes, old, new.mode_data)
        return (total + self._probes.start @ (begin - before)).reshape(-1, 3)

    @functools.cached_property
    def _inverse(self) -> np.ndarray:
        with jax.ensure_compile_time_eval():
            return targets_by_strengths(self.reduction)

    @functools.cached_property
    def _probes(self) -> Probes:
        with jax.ensure_compile_time_eval():
            return self._derivatives()

    def _derivatives(self) -> Probes:
        stages = {}
        for number, climb in enumerate(self.climbs):
            try:
                for k, stage in enumerate(Sensitivity(climb).stages()):
                    stages[number, k] = climb.block, stage
            except UnknownError as reason:
                event = 1 + self.order.index((number, reason.stage))
                raise ValueError(
                    f"the time of event {event} has no derivative by strengths or c: {reason.text}."
                    f" Cut it off, saddles(..., max_events={reason.stage}), or take differences of "
                    "saddles at other strengths."
                ) from None
        parts = [(stages[one][0], f) for one in self.order for f in stages[one][1]]
        return probes(parts, self.land.root.size)

    def _checked(self, reduction: Reduction) -> Reduction:
        old, new = (
            jax.tree.map(jnp.shape, one.mode_data) if isinstance(one, Reduction) else None
            for one in (self.reduction, reduction)
        )
        if old != new:
            raise ValueError(
                "reduction: give one of the same graph and gates as that of the staircase, with "
                "arrays of the same shapes."
            )
        return reduction

    def _check_same_events(self, reduction: Reduction, c: StrengthsLike) -> None:
        """Refuse known values at which other events happen."""
        text = (
            "times follows the events of its staircase, and with these strengths or this c they "
            "are others{}. Call saddles with them."
        )
        try:
            other = self.again(reduction, c)
        except ValueError as reason:
            raise ValueError(text.format(f" ({reason})")) from None
        if other is None or other.signature() != self.signature():
            raise ValueError(text.format(""))

    def signature(self) -> tuple[object, ...]:
        """What must be the same for times to be a smooth function: classes, events, their kinds."""
        events = []
        for number, k in self.order:
            passage = self.climbs[number].passages[k]
            form = passage.leaving.form
            moved = np.abs(passage.orbit.end - passage.x) > NOISE
            trail = passage.leaving.winner.trail
            events.append((number, k, form and form.degree, trail and len(trail), moved.tolist()))
        return self.land.labels, events


def _equal(one: object, other: object) -> bool:
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )
