"""Linear functionals of a small change of the loss and of the start."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gdln_jax._saddles.landscape import Vector

Points = Float[np.ndarray, "point n"]


class UnknownError(Exception):
    """Why the time of an event has no derivative here, and the stage of its block, from 0."""

    def __init__(self, text: str, stage: int = 0):
        super().__init__(text, stage)
        self.text, self.stage = text, stage


class Functional(NamedTuple):
    """A linear functional of a change of the loss, and of the start.

    - `firsts`: (points, factors, vectors): factor * dl + vector . d(grad l) at each point.
    - `seconds`: (points, a, b): a . d(Hessian) b at each point. `start`: (n,).
    """

    firsts: tuple[tuple[Points, np.ndarray, Points], ...]
    seconds: tuple[tuple[Points, Points, Points], ...]
    start: Vector

    def __add__(self, other: "Functional") -> "Functional":  # type: ignore[override]
        return Functional(
            self.firsts + other.firsts, self.seconds + other.seconds, self.start + other.start
        )

    def scaled(self, by: float) -> "Functional":
        """The functional times a number."""
        if by == 0:
            return Functional((), (), 0 * self.start)
        return Functional(
            tuple((y, by * one, by * v) for y, one, v in self.firsts),
            tuple((y, by * a, b) for y, a, b in self.seconds),
            by * self.start,
        )


class Stage(NamedTuple):
    """Derivatives of one stage: its power of 1/eps, its coefficient, and the event's offset."""

    power: Functional
    coefficient: Functional
    offset: Functional
