"""Two layers through a sequence of tasks: the Riccati solution of one task starts the next.

W2^T W2 - W1 W1^T = lambda I is conserved under every task with whitened input, so that X = Q Q^T
obeys the equation of `two_layer_flow` in each (theory#sequences). The product W2 W1 alone does not
determine the continuation; Q does, up to a right factor that changes nothing.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks.types import ArrayLike
from gdln_jax.exact._calculus import check_all, check_numbers, check_tau, concrete, scaled_time
from gdln_jax.exact._two_layer import Phase, balance, check_shapes, prepare, steps_for


def two_layer_sequence(
    ts: ArrayLike,
    w1: ArrayLike,
    w2: ArrayLike,
    sigmas: ArrayLike | Sequence[ArrayLike],
    times: ArrayLike | Sequence[ArrayLike],
    tau: ArrayLike = 1.0,
    *,
    sigma_x: ArrayLike | Sequence[ArrayLike] = 1.0,
) -> Float[Array, "*times out in"]:
    """Return the map W2 W1(t) of a linear network with one hidden layer that learns task by task.

    Each task holds for a while, as in a `Schedule`. Within it this is `two_layer_flow`.

    Args:
        ts: times >= 0 of any shape, in the units of ``tau``; the first task begins at 0.
        w1: first layer at t = 0, (hidden, in).
        w2: second layer at t = 0, (out, hidden); balanced: W2^T W2 - W1 W1^T = lambda I.
        sigmas: input-output correlation <y x^T> of each task, (task, out, in).
        times: (task - 1,) increasing times above 0 at which the next task begins.
        tau: time constant.
        sigma_x: variance of each input, whitened: one number, or one for each task, (task,).

    Returns:
        W2 W1 at each time, (*times, out, in), differentiable in every argument, ``times`` included
        (at a time that is itself a switch: from the left). NaN inside ``jit`` if the start is not
        balanced. Cost: that of `two_layer_flow` plus one step of it per task.

    Raises:
        ValueError: shapes that do not fit, a start that is not balanced, switches that do not
            increase from 0, a ``sigma_x`` that is not above 0, or a ``tau`` that is no finite
            number above 0.
    """
    check_numbers(ts, w1, w2, tau)
    dtype = jnp.result_type(ts, w1, w2, tau, *jax.tree.leaves((sigmas, times, sigma_x)), 1.0)
    moments, first, second, targets, switches = (
        jnp.asarray(x, dtype) for x in (ts, w1, w2, sigmas, times)
    )
    if targets.ndim != 3 or switches.shape != (len(targets) - 1,):
        raise ValueError(
            f"sigmas has shape {targets.shape} and times {switches.shape}; give one matrix for "
            "each task, (task, out, in), and n - 1 switches for n tasks."
        )
    check_shapes(first, second, targets[0])
    check_tau(tau)
    starts = jnp.concatenate([jnp.zeros(1, dtype), switches])
    known = concrete(starts)
    if known is not None and not np.all(np.diff(known) > 0):
        raise ValueError(f"times must increase from above 0, got {known[1:]}.")
    variances = jnp.asarray(sigma_x, dtype)
    if variances.shape not in ((), (len(targets),)):
        raise ValueError(
            f"sigma_x has shape {variances.shape}; give one number, or one for each of the "
            f"{len(targets)} tasks."
        )
    check_all(variances, lambda x: x > 0, "sigma_x", "above 0")
    variances = jnp.broadcast_to(variances, (len(targets),))
    lam, balanced = balance(first, second, None)

    strongest = jnp.max(jnp.linalg.norm(jax.lax.stop_gradient(targets), 2, axis=(1, 2)))
    fastest = jnp.hypot(strongest, lam * jnp.max(variances) / 2)
    longest = jnp.maximum(
        jnp.max(jnp.diff(starts), initial=0.0), jnp.max(moments - starts[-1], initial=0.0)
    )
    count = steps_for(longest, tau, fastest, dtype)
    clock = jnp.asarray(tau, dtype)
    product = _sequence(moments, first, second, targets, starts, variances, lam, clock, count)
    return jnp.where(balanced & (moments >= 0)[..., None, None], product, jnp.nan)


@partial(jax.jit, static_argnums=8)
def _sequence(
    times: Array,
    w1: Array,
    w2: Array,
    sigmas: Array,
    starts: Array,
    variances: Array,
    lam: Array,
    tau: Array,
    count: int,
) -> Array:
    """Return W2 W1 at ``times``; ``starts`` (task,) is when each task begins."""
    width = w1.shape[1]
    ends = jnp.concatenate([starts[1:], starts[-1:]])

    def task(q: Array, given: tuple[Array, ...]) -> tuple[Array, Phase]:
        sigma, variance, duration = given
        # W sqrt(variance) obeys the flow with Sigma^x = I, and has lambda times the variance.
        scale = jnp.sqrt(variance)
        phase = prepare(q * scale, sigma, lam * variance, count)
        return phase.at(scaled_time(duration, tau), count) / scale, phase

    q = jnp.concatenate([w1.T, w2])
    _, phases = jax.lax.scan(task, q, (sigmas, variances, ends - starts))

    def at(time: Array) -> Array:
        number = jnp.searchsorted(starts[1:], time, side="left")
        phase = jax.tree.map(lambda leaf: leaf[number], phases)
        rows = phase.at(scaled_time(time - starts[number], tau), count)
        return rows[width:] @ rows[:width].T / variances[number]

    return jax.vmap(at)(times.ravel()).reshape(*times.shape, *sigmas.shape[1:])
