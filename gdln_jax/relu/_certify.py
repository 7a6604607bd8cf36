"""Whether a direction is a local maximum of the utility, so that small units stay with its gate."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from gdln_jax._checks import Result, check_positive
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._utility import Examples, Utility, as_matrix, residual_of

# What is 0 but for rounding, as a share of the rate.
_ZERO = 1e-7


class GateCertificate(Result, eqx.Module):
    """Whether a direction is a local maximum of the utility; made by `certify`.

    - `ok`: the direction meets the conditions of first and second order, with equality allowed.
    - `rate`: units of this direction grow as e^{rate t}.
    - `gap`: 1 - s2/s1 of the linear map on the face; 0 where the largest singular value is double.
    - `margin`: of the kinks, how far the forces that hold the unit are from letting go; inf
      without kinks.
    - `stationary`: distance from balance, as a share of the rate.
    - `pattern` (n,): -1 off, 0 kink, 1 on.
    """

    ok: bool
    rate: float
    gap: float
    margin: float
    stationary: float
    pattern: Int[np.ndarray, " n"]

    @property
    def strict(self) -> bool:
        """Whether it is a strict maximum: `ok`, with a gap and a margin above 0."""
        return self.ok and self.gap > _ZERO and self.margin > _ZERO * self.rate

    def __repr__(self) -> str:
        verdict = "no local maximum"
        if self.ok:
            verdict = "strict local maximum" if self.strict else "local maximum, not strict"
        on, kink = int(np.sum(self.pattern == 1)), int(np.sum(self.pattern == 0))
        return (
            f"GateCertificate({verdict}: rate {self.rate:.6g}, gap {self.gap:.3g}, margin "
            f"{self.margin:.3g}, distance from balance {self.stationary:.1e}; on for {on} of "
            f"{len(self.pattern)} examples, {kink} at the kink)"
        )


def certify(
    data: GatedData,
    *,
    w: ArrayLike | Sequence[Any],
    a: ArrayLike | Sequence[Any],
    residual: ArrayLike | Sequence[Any] | None = None,
    tol: float | int = 1e-9,
) -> GateCertificate:
    r"""Check that one unit's direction is a local maximum of the utility, kinks included.

    With |w| = |a| = 1, D = {x_i . w > 0}, Z = {x_i . w = 0}, $M_D = \sum_{i \in D} p_i R_i x_i^T$,
    rate = a . M_D w and c_i = p_i a . R_i: (i) M_D w = rate a, and g = M_D^T a - rate w lies in the
    span of the x_i in Z; (ii) rate is the largest singular value of M_D on the complement of that
    span; (iii) g = sum_Z b_i x_i for some 0 < b_i < -c_i, a linear program. (i, iii) is the
    condition of first order, (ii) the one of second order on the face. A double singular value or
    a margin of 0 is no failure: `.ok` holds, `.strict` does not.

    Args:
        data: one input and one output node, no gates; its weights are p.
        w: (x,) input weights of the unit, of any length above 0.
        a: (y,) its output weights, of any length above 0.
        residual: R (n, y). Default: the targets, as at the start of learning.
        tol: an example is at the kink where |w . x_i| <= tol |w| |x_i|.

    Raises:
        ValueError: for arrays that do not fit the data or are not finite, weights of length 0,
            and data with gates, several inputs or outputs, or targets that are all 0.

    Host code. Cost of one SVD (y, x) and a linear program in the examples at the kink.
    """
    examples = Examples.of(data)
    utility = Utility(examples, residual_of(examples, residual))
    w, a = (_direction(part, name) for part, name in ((w, "w"), (a, "a")))
    for name, part, width in (("w", w, examples.x.shape[1]), ("a", a, examples.y.shape[1])):
        if part.shape != (width,):
            raise ValueError(f"{name} has shape {part.shape}; expected ({width},), one unit.")
    z, reach = examples.x @ w, np.linalg.norm(examples.x, axis=1)
    level = check_positive(tol, "tol") * reach
    on, kink = z > level, (np.abs(z) <= level) & (reach > 0)
    image = utility.matrix(on) @ w
    rate = float(a @ image)
    held = utility.kinks(w, a, rate, on, kink)
    scale = max(rate, np.finfo(float).tiny)
    stationary = float(max(np.linalg.norm(image - rate * a) / scale, held.error))
    rates = np.append(utility.modes(on, kink).rates, [0.0, 0.0])
    gap = 1 - float(rates[1] / rates[0]) if rates[0] > 0 else 0.0
    ok = (
        rate > 0
        and stationary <= _ZERO
        and rate >= (1 - _ZERO) * rates[0]
        and held.margin >= -_ZERO * rate
    )
    pattern = np.where(on, 1, np.where(kink, 0, -1))
    return GateCertificate(bool(ok), rate, gap, held.margin, stationary, pattern)


def _direction(array: ArrayLike | Sequence[Any], name: str) -> Float[np.ndarray, " _"]:
    values = as_matrix(np.atleast_2d(np.asarray(array, np.float64)), name)
    if len(values) != 1 or np.ndim(array) != 1:
        raise ValueError(f"{name} has shape {np.shape(array)}; expected one axis, of one unit.")
    size = float(np.linalg.norm(values))
    if size == 0:
        raise ValueError(f"{name} is 0: such a unit has no direction.")
    return values[0] / size
