"""Controls over time by descent of their cost, from several starts, and the law to hold them to."""

from collections.abc import Callable

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import check_integer, check_positive_if_known
from gdln_jax._checks.types import ArrayLike
from gdln_jax.gates import Learned, learn

# One object, so that a cost is compiled once.
_LBFGS = optax.lbfgs()


class Optimised(Learned):
    """What `optimise` returns: all starts, the best is one of them.

    Near a fold two extremals merge and descent may stop at either, so look at all `costs`.
    `variables` and `values` (start, step) are those of `gates.learn`.
    """

    @property
    def controls(self) -> PyTree:
        """The last controls, with the leading axis (start,)."""
        return self.variables

    @property
    def costs(self) -> Float[Array, " start"]:
        """The last cost of each start; NaN where it ceased to be finite."""
        return self.values[:, -1]


def optimise(
    cost: Callable[..., Array],
    starts: PyTree,
    *,
    steps: int,
    optimizer: optax.GradientTransformation | None = None,
    args: tuple[object, ...] = (),
) -> Optimised:
    """Minimise `cost(control, *args)` from every start at once, by `gates.learn`.

    Args:
        cost: differentiable, returns a number, say the loss over time of the reduced or the full
            dynamics under a rate, gates or a mixture of tasks, plus what the control costs.
        starts: any pytree of float arrays with a leading axis (start,).
        steps: of the optimiser.
        optimizer: from optax, default L-BFGS.
        args: arrays that `cost` is handed; other values need no new program.

    Raises:
        ValueError: as `gates.learn`.
    """
    steps = check_integer(steps, "steps", minimum=1)
    optimizer = _LBFGS if optimizer is None else optimizer
    found = learn(cost, starts, optimizer=optimizer, steps=steps, args=args)
    return Optimised(found.variables, found.values)


def law_residual(
    ts: ArrayLike, efforts: ArrayLike, losses: ArrayLike, *, beta: ArrayLike
) -> Float[Array, ""]:
    """Return max |(beta/2) g^2 - (l - l(T))| / l(0): how far a run is from the law of effort.

    The law holds for one effort for all weights, plain gradient flow and the cost (beta/2) g^2.

    Args:
        ts: (time,) where the run was saved, the last is T.
        efforts: g at these times (time,), or in each step between them (time - 1,).
        losses: l at these times (time,).
        beta: weight of the cost.

    Raises:
        ValueError: shapes that do not fit, or a beta that is not above 0.
    """
    check_positive_if_known(beta=beta)
    ts, efforts, losses = (jnp.asarray(x) for x in (ts, efforts, losses))
    count = len(losses) if losses.ndim == 1 else -1
    if ts.shape != (count,) or efforts.shape not in ((count,), (count - 1,)):
        raise ValueError(
            f"ts, efforts and losses have shapes {ts.shape}, {efforts.shape} and {losses.shape}; "
            "give one time and one loss for each record, and one effort for each or for each step."
        )
    fallen = losses[: len(efforts)] - losses[-1]
    return jnp.max(jnp.abs(jnp.asarray(beta) / 2 * efforts**2 - fallen)) / losses[0]
