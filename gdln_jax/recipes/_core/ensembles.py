"""Many networks by gradient descent in one program, and how far they are from a curve."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree
from numpy.typing import ArrayLike, DTypeLike

from gdln_jax import STATUS, Trajectory, train
from gdln_jax.recipes._core.options import OptionError

Measure = Callable[..., PyTree] | None


def keys(seed: int, count: int) -> jax.Array:
    """One key per network; adding networks leaves the others as they were."""
    return jax.vmap(lambda k: jax.random.fold_in(jax.random.key(seed), k))(jnp.arange(count))


def as_type(tree: PyTree, dtype: DTypeLike) -> PyTree:
    """The same model or data with floating-point arrays of another precision."""
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, tree)


def descend(
    nets: PyTree,
    data: PyTree,
    rate: float,
    steps: int,
    save_every: int,
    *,
    measure: Measure = None,
    keep_models: bool = False,
    what: str = "network",
) -> Trajectory:
    """Train stacked networks on one data set by full-batch gradient descent on the mean loss.

    `rate` is the learning rate of the mean loss. Networks and data must have one precision.

    Raises:
        OptionError: some network diverged; says which, and what to change.
    """
    dtype = next(a.dtype for a in jax.tree.leaves(nets) if eqx.is_inexact_array(a))
    often = {"steps": steps, "save_every": save_every, "keep_models": keep_models}
    run = _program(nets, data, jnp.asarray(rate, dtype), measure=measure, **often)
    bad = np.flatnonzero(np.asarray(run.status))
    if len(bad):
        code = int(np.asarray(run.status)[bad[0]])
        raise OptionError(
            f"{what} {bad[0]} of {len(run.status)}: {STATUS[code]} at learning rate {rate:g} of "
            "the mean loss; use --set learning_rate= with a smaller one, or smaller initial weights"
        )
    return run


@eqx.filter_jit
def _program(nets: PyTree, data: PyTree, rate: Array, **how: Any) -> Trajectory:
    return eqx.filter_vmap(lambda net: train(net, data, optimizer=optax.sgd(rate), **how))(nets)


def spacing(steps: int, records: int = 250) -> int:
    """Steps between records: a round number that gives about `records` of them."""
    return max(
        k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if k <= max(1, steps / records)
    )


def gaps(curve: ArrayLike, reference: ArrayLike, scale: float) -> tuple[float, float]:
    """Mean and largest distance of two curves over time, as shares of `scale`, say L(0)."""
    distance = np.abs(np.asarray(curve) - np.asarray(reference)) / scale
    return float(np.mean(distance)), float(np.max(distance))


def first_below(curves: ArrayLike, times: ArrayLike, level: float) -> np.ndarray:
    """Time at which each falling curve (..., time) first reaches `level`, interpolated; inf if not.

    In the logarithm of the curve, which is nearly straight where it falls.
    """
    # A loss of exactly 0 has no logarithm.
    tiny = np.finfo(float).tiny
    curves, times = np.log(np.maximum(np.asarray(curves, float), tiny)), np.asarray(times, float)
    below = curves < np.log(level)
    k = np.clip(below.argmax(axis=-1), 1, None)
    before = np.take_along_axis(curves, k[..., None] - 1, -1)[..., 0]
    after = np.take_along_axis(curves, k[..., None], -1)[..., 0]
    share = (before - np.log(level)) / np.where(before > after, before - after, 1)
    return np.where(below.any(axis=-1), times[k - 1] + share * (times[k] - times[k - 1]), np.inf)
