"""Times of predicted drops in a training whose clock and initial scale are not known.

Predicted times are T ln(1/std) units of tau (theory#drop-times): in steps the drops come at T times
one number, ln(1/std) over the time of a step. A loss curve gives this product and never either
factor. The first drop gives it, and the second one says whether to believe it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gdln_jax import Trajectory
from gdln_jax._checks import Suggesting, dataset
from gdln_jax.relu._prediction import GatePrediction

# The second drop has to come within this share of its time.
_SECOND = 0.1


class Drops(NamedTuple):
    """Observed steps of the predicted drops, and what follows from them; made by `match_drops`.

    - `observed` (stage,): step at which the loss crosses the middle between plateaus; NaN where
      it does not.
    - `steps_per_t`: steps for each unit of T, ln(1/std) over the time of a step, from the first
      drop; None where the second one does not confirm it.
    - `second`: observed step of the second drop over the predicted one; NaN without it.
    - `reason`: why `steps_per_t` is None; empty if it is given.
    """

    observed: Float[np.ndarray, " stage"]
    steps_per_t: float | None
    second: float
    reason: str

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__


def match_drops(prediction: GatePrediction, run: Trajectory) -> Drops:
    """Match the drops of a run whose learning rate and initial scale are not known to predictions.

    The product of clock and ln(1/std) is taken from the first drop, if the first two predictions
    are separated and the second observed drop then comes within 10 % of its time. Else it is None,
    with the reason.

    Args:
        prediction: of `predict_gates` on the run's data.
        run: of a `ReLUNetwork`, `ts` in steps; a `History`'s `.run(data)`.

    Raises:
        ValueError: as `GatePrediction.crossings`.
    """
    observed = np.asarray(prediction.crossings(run), float)
    times = prediction.times
    second = float("nan")
    if len(times) > 1 and np.isfinite(observed[:2]).all():
        second = float(observed[1] / (observed[0] / times[0] * times[1]))
    reason = ""
    if not np.isfinite(observed[0]):
        reason = "the first predicted drop is not seen in these checkpoints"
    elif len(times) < 2:
        reason = "one drop is predicted, and a second one is needed to confirm the product"
    elif not prediction.separated[:2].all():
        reason = "rival gates enter together in the first two drops, whose times then say little"
    elif prediction.leaves[0]:
        reason = (
            "the loss leaves the first plateau by itself: the second drop is no drop of its own"
        )
    elif not np.isfinite(observed[1]):
        reason = "the second predicted drop is not seen, so that nothing confirms the product"
    elif abs(second - 1) > _SECOND:
        reason = (
            f"the second drop comes at {second:.2f} times its predicted step, more than "
            f"{_SECOND:.0%} off: the weights are not small, or it was no gradient descent"
        )
    product = None if reason else float(observed[0] / times[0])
    return Drops(observed, product, second, reason)
