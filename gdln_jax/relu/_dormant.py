"""The flow of units too small to change the output: their directions, and how fast they grow.

th = (w, a) follows th' = grad U(th), and U has degree 2: the direction n follows
n' = grad U(n) - 2 U(n) n and (ln |th|)' = 2 U(n). The initial scale only adds to ln |th|, so that
one flow serves any scale.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from gdln_jax._checks import Result, check_positive
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._growth import Growth
from gdln_jax.relu._settled import DormantGates, gates_of
from gdln_jax.relu._utility import Examples, Utility, as_matrix, residual_of


class DormantFlow(Result, eqx.Module):
    """Units after a time during which none of them changes the output; made by `dormant_flow`.

    - `w` (unit, x), `a` (unit, y): directions, |w|^2 + |a|^2 = 1.
    - `log_size` (unit,): ln sqrt(|w|^2 + |a|^2), the start included; for weights of standard
      deviation std from units drawn from N(0, 1) add ln std.
    - `kinks` (unit, n): the examples on whose kink a unit stays.
    - `t`: the time.
    """

    _units: ClassVar = {"t": "time, in the units of tau"}

    w: Float[np.ndarray, "unit x"]
    a: Float[np.ndarray, "unit y"]
    log_size: Float[np.ndarray, " unit"]
    kinks: Bool[np.ndarray, "unit n"]
    t: float
    residual: Float[np.ndarray, "n y"]

    def gates(self, data: GatedData) -> DormantGates:
        """Return the distinct gates that the units have come to, largest rate first.

        A unit counts if the leading mode of its pattern passes `certify`; give the flow a time of
        some 10 divided by the smallest rate.
        """
        examples = Examples.of(data)
        if self.kinks.shape[1] != len(examples.p):
            raise ValueError(
                f"this flow is of {self.kinks.shape[1]} examples, the data have "
                f"{len(examples.p)}; pass the data that dormant_flow was given."
            )
        return gates_of(
            Utility(examples, self.residual), self.w, self.a, self.log_size, self.kinks, self.t
        )

    def __repr__(self) -> str:
        return (
            f"DormantFlow({len(self.w)} units on {self.kinks.shape[1]} examples at t = {self.t:g}; "
            f"ln size {self.log_size.min():.4g} to {self.log_size.max():.4g}, "
            f"{self.kinks.any(axis=1).mean():.0%} at a kink)"
        )


def dormant_flow(
    data: GatedData,
    *,
    w: ArrayLike | Sequence[Any],
    a: ArrayLike | Sequence[Any],
    t: float | int,
    residual: ArrayLike | Sequence[Any] | None = None,
    h: float | int | None = None,
) -> DormantFlow:
    r"""Let ReLU units grow for a time `t` (units of tau) while they do not change the output.

    The units $a\,\mathrm{relu}(w \cdot x)$ climb
    $U = \sum_i p_i (a \cdot R_i)\,\mathrm{relu}(w \cdot x_i)$ each by itself. Only directions and
    logarithms of sizes are kept, so that no initial scale is too small, and a flow from N(0, 1)
    serves every scale: add ln std to `log_size`. |a|^2 - |w|^2 is conserved.

    Args:
        data: one input and one output node, no gates; its weights are p.
        w: (unit, x) input weights of the units.
        a: (unit, y) their output weights.
        t: how long.
        residual: R (n, y), what the output lacks. Default: the targets, as at the start of
            learning.
        h: length of a step; default 0.05 divided by |R| |X|, the largest possible rate. Midpoint
            rule on the weights; a unit at a kink slides along it exactly, where steps across it
            would take t h s^2/4 off ln r on XoR.

    Returns:
        Directions, logarithms of sizes and kinks, in float64.

    Raises:
        ValueError: for arrays that do not fit the data or are not finite, units that are 0, and
            data with gates, several inputs or outputs, or targets that are all 0.

    Host code. Cost O(t/h x units x examples x (x + y)).
    """
    examples = Examples.of(data)
    wanted = residual_of(examples, residual)
    w, a = as_matrix(w, "w"), as_matrix(a, "a")
    for name, part, width in (("w", w, examples.x.shape[1]), ("a", a, examples.y.shape[1])):
        if part.shape != (len(w), width) or not len(part):
            raise ValueError(
                f"{name} has shape {part.shape}; expected (units, {width}), a unit a row, as many "
                "in w as in a. A read-out is (y, unit): pass its transpose."
            )
    still = np.flatnonzero(~np.any(w, axis=1) & ~np.any(a, axis=1))
    if len(still):
        raise ValueError(f"unit {still[0]} is 0 and never grows; leave it out.")
    t = 0.0 if t == 0 else check_positive(t, "t")
    utility = Utility(examples, wanted)
    step = 0.05 / max(utility.top, np.finfo(float).tiny) if h is None else check_positive(h, "h")
    units = Growth(w, a)
    units.flow(utility, np.ones(len(w), bool), t, step)
    return DormantFlow(units.w, units.a, units.log_size, units.sliding, t, wanted)
