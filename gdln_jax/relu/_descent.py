"""Gradient descent of the units that make the output, with sliding at kinks, to the next rest."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gdln_jax.relu._sliding import slide
from gdln_jax.relu._utility import Examples

# Units of one direction to this many decimals stay parallel.
_PARALLEL = 9
# Step, as a share of the inverse of the largest curvature.
_STEP = 0.25
# A rest: the slope has fallen below _FALLEN of the steepest and risen again by _RISEN after a loss
# of _LOST L(0); or it is below FLAT of the steepest.
_FALLEN, _RISEN, _LOST, FLAT = 0.3, 1.3, 0.005, 3e-6
MOST_STEPS = 20_000


class Active(NamedTuple):
    """Units that make the output: `w` (unit, x) and `a` (unit, y)."""

    w: Float[np.ndarray, "unit x"]
    a: Float[np.ndarray, "unit y"]

    def sent(self, examples: Examples) -> Float[np.ndarray, "n y"]:
        """The output."""
        return np.maximum(examples.x @ self.w.T, 0.0) @ self.a

    def power(self, examples: Examples) -> Float[np.ndarray, " unit"]:
        """Shares in the energy of the output, as `unit_power`."""
        h = np.maximum(examples.x @ self.w.T, 0.0) * examples.p[:, None]
        sent = self.sent(examples)
        along = np.sum(h * (sent @ self.a.T), axis=0)
        total = float(examples.p @ np.sum(sent**2, axis=1))
        return along / total if total > 0 else np.zeros(len(along))


class Rest(NamedTuple):
    """Where a drop of the loss ended.

    The units, whether the loss `leaves` this rest by itself, the steps taken, and whether they ran
    out before.
    """

    units: Active
    leaves: bool
    steps: int
    exhausted: bool


def descend(examples: Examples, units: Active, *, most: int = MOST_STEPS) -> Rest:
    """Descend to the first rest of the loss."""
    merged, place, scale = _merged(units)
    end = _descend(examples, merged, most)
    w, a = (scale[:, None] * part[place] for part in end.units)
    return end._replace(units=Active(w, a))


def _merged(units: Active) -> tuple[Active, np.ndarray, np.ndarray]:
    """One unit for all of a direction, exact because they stay parallel.

    Also which of them each unit is part of, and its size as a share of it.
    """
    size = np.sqrt(np.sum(units.w**2, axis=1) + np.sum(units.a**2, axis=1))
    direction = np.concatenate([units.w, units.a], axis=1) / size[:, None]
    _, first, place = np.unique(
        np.round(direction, _PARALLEL) + 0.0, axis=0, return_index=True, return_inverse=True
    )
    place = place.ravel()
    total = np.sqrt(np.bincount(place, size**2))
    whole = total[:, None] * direction[first]
    width = units.w.shape[1]
    return Active(whole[:, :width], whole[:, width:]), place, size / total[place]


def _descend(examples: Examples, units: Active, most: int) -> Rest:
    x, p = examples.x, examples.p
    size_x, first = examples.size(x), examples.loss(examples.y)
    w, a = units
    z = w @ x.T
    residual = examples.y - np.maximum(z, 0.0).T @ a
    start = examples.loss(residual)
    fraction, sliding = (z > 0).astype(float), np.zeros(z.shape, bool)
    steepest, lowest, lost, rest = 0.0, np.inf, 0.0, units
    for step in range(1, most + 1):
        square = (np.sum(w**2) + np.sum(a**2)) / 2
        dt = _STEP / (examples.size(residual) * size_x + size_x**2 * square)
        weighted = p[:, None] * residual
        on = np.where(sliding, fraction, z > 0)
        push = dt * (a @ weighted.T)
        moved = w + (on * push) @ x
        z_moved = moved @ x.T
        moved, fraction, sliding = slide(x, moved, push, on, sliding | ((z > 0) != (z_moved > 0)))
        da = np.where(sliding, 0.0, np.maximum(z, 0.0)) @ weighted
        slope = float(np.sum((moved - w) ** 2) / dt**2 + np.sum(da**2))
        if slope > steepest:
            steepest, lowest = slope, np.inf
        if slope < lowest:
            lowest, rest, lost = slope, Active(w, a), start - examples.loss(residual)
        if slope < FLAT * steepest:
            return Rest(Active(w, a), False, step, False)
        if lowest < _FALLEN * steepest and slope > _RISEN * lowest and lost > _LOST * first:
            return Rest(rest, True, step, False)
        w, a = moved, a + dt * da
        z = w @ x.T
        residual = examples.y - np.where(sliding, 0.0, np.maximum(z, 0.0)).T @ a
    return Rest(Active(w, a), False, most, True)
