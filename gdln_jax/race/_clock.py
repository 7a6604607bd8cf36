"""Exact solution of races whose growth rates share one factor, by a rescaled time (theory#races).

Where every growth rate is multiplied by the same factor h, the pathways interact only through one
rescaled time T(t), the clock, with dT/dt = h. Strengths are explicit functions of T, and T stops at
a finite T_inf, where h is 0. Here T_inf, t(T) and T(t) are computed without an ODE solver.

Numerics. With D = T_inf - T the factor of R's equation is h(D) = sum_m w_m (1 - exp(-2 sigma_m D)),
w_m = s_m(inf)^2 / s_max^2, which has no cancellation anywhere. With y = ln(D(0)/D) the time is
t(y) = int_0^y D/h dy', whose integrand is smooth and runs from D(0)/h(D(0)) to the constant
1/(2 mean rate): a fixed Gauss rule is exact to rounding from any plateau, s(0) = 1e-3 or 1e-30.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gdln_jax.exact._calculus import composite_rule, implicit_root, newton

_NODES, _WEIGHTS = composite_rule(20)
_EXPONENT_OF_ROUNDING = 37.0  # exp(-37) = 8.5e-17, below float64's rounding


def safe_log(x: Array) -> Array:
    """Return the natural logarithm, and -inf with derivative 0 where x is 0."""
    positive = x > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1.0)), -jnp.inf)


def _log_total(clock: Array, rates: Array, log_ratio: Array) -> tuple[Array, Array]:
    """Return ln sum_m exp(2 (log_ratio_m + rates_m T)), increasing and convex, and 1/slope."""
    logs = 2 * (log_ratio + rates * clock)
    return logsumexp(logs), 1 / (2 * (jax.nn.softmax(logs) @ rates))


def _first_alone(log_total: Array, rates: Array, log_ratio: Array) -> Array:
    """Return the clock at which the first pathway alone has the total: at or right of the root."""
    return jnp.min((log_total / 2 - log_ratio) / rates)


# The clock at which sum_m exp(2 (log_ratio_m + rates_m T)) = exp(log_total), of
# (log_total, rates, log_ratio).
clock_at_total = jax.jit(implicit_root(newton(_log_total, _first_alone), _log_total))


def _mean_slope(log_share: Array, x: Array) -> Array:
    """Return share (1 - exp(-x)) / x, analytic through 0.

    No overflow at x << 0 where the share is tiny.
    """
    near, far = jnp.abs(x) < 1e-2, x < -1
    series = jnp.ones_like(x)
    for k in range(8, 1, -1):  # the next term is below 1e-21 relative
        series = 1 - x / k * series
    mid_x, far_x = jnp.where(near | far, 1.0, x), jnp.where(far, x, -1.0)
    share = jnp.exp(log_share)
    middle = jnp.where(near, series, -jnp.expm1(-mid_x) / mid_x)
    return jnp.where(far, (share - jnp.exp(log_share - far_x)) / far_x, share * middle)


@jax.jit
def elapsed(
    y: Float[Array, ""],
    rates: Float[Array, " pathway"],
    log_shares: Float[Array, " pathway"],
    distance: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the time until D has shrunk from `distance` = D(0) to D(0) exp(-y), and 1/slope in y.

    D(0) is negative from above s_max, where the time is convex in y; from below it is concave.
    """
    # The last part, where the integrand is its limit, is done in closed form.
    late = 1 / (2 * jnp.sum(jnp.exp(log_shares) * rates))
    reach = _EXPONENT_OF_ROUNDING + jnp.log1p(jnp.abs(distance) * jnp.max(rates))
    upper = jnp.minimum(y, reach)
    gaps = distance * jnp.exp(-upper * jnp.asarray(np.append(_NODES, 1.0), y.dtype))
    factor_over_gap = _mean_slope(log_shares[None, :], 2 * jnp.outer(gaps, rates)) @ (2 * rates)
    early = jnp.asarray(_WEIGHTS, y.dtype) @ (1 / factor_over_gap[:-1] - late)
    return y * late + upper * early, factor_over_gap[-1]


_shrinkage = implicit_root(newton(elapsed, lambda t, *_: jnp.zeros_like(t)), elapsed)


@jax.jit
def clock_at_times(
    times: Float[Array, " time"],
    rates: Float[Array, " pathway"],
    log_shares: Float[Array, " pathway"],
    distance: Float[Array, ""],
) -> Float[Array, " time"]:
    """Return T at the given times: `elapsed` inverted for y = ln(D(0)/D); T = D(0) - D."""
    y = jax.vmap(_shrinkage, (0, None, None, None))(times, rates, log_shares, distance)
    return -distance * jnp.expm1(-y)


@partial(jax.jit, static_argnames="depth")
def frozen_fractions(
    rates: Float[Array, " pathway"],
    u0: Float[Array, " pathway"],
    capacity: Float[Array, ""],
    depth: int,
) -> Float[Array, " pathway"]:
    """Return the final fractions of the output for D = capacity * S S^T, any depth; they sum to 1.

    `rates` are S, and the fraction of pathway m is g_m = capacity S_m u_m^depth. All du_m/dT are
    explicit in the common clock T, which stops where the fractions sum to 1.
    """
    if depth > 2:
        return _frozen_deep(rates, u0, capacity, depth)
    # ln u grows linearly in T.
    log_ratio = safe_log(u0) + jnp.log(capacity * rates) / 2
    clock = clock_at_total(jnp.zeros_like(capacity), rates, log_ratio)
    return jnp.exp(2 * (log_ratio + rates * clock))


def _frozen_deep(rates: Array, u0: Array, capacity: Array, depth: int) -> Array:
    """Return `frozen_fractions` for depth L >= 3, where u^(2-L) falls linearly in T.

    With z = (capacity S)^(-1/p) u^(2-L) and p = L/(L-2) the fraction is g = z^(-p), and
    z(T) = z(0) - fall T. Pathway m alone would reach g = 1 at T = (z_m(0) - 1)/fall_m. Let
    T_1 be the first of these times. The race stops at T_1 - rest with a small rest >= 0, which is
    the unknown here: T itself, about u0^(2-L), is too large for differences of it to be exact.
    """
    p = depth / (depth - 2)
    scale = (capacity * rates) ** (-1 / p)
    starts = u0 > 0
    z0 = jnp.where(starts, scale * jnp.where(starts, u0, 1.0) ** (2 - depth), jnp.inf)
    fall = (depth - 2) * rates * scale
    first = jnp.argmin((z0 - 1) / fall)
    at_first_alone = (z0 - z0[first] * fall / fall[first]) + fall / fall[first]  # z(T_1)
    at_first_alone = jnp.where(at_first_alone < 1, 1.0, at_first_alone)  # below 1 by rounding only

    def curve(rest: Array, at_first_alone: Array, fall: Array) -> tuple[Array, Array]:
        """Return (sum g)^(-1/p), a power mean of z: concave and increasing; and 1/slope."""
        z = at_first_alone + fall * rest
        total = jnp.sum(z**-p)
        mean = total ** (-1 / p)
        return mean, total / (mean * jnp.sum(fall * z ** (-p - 1)))

    find = implicit_root(newton(curve, lambda one, *_: jnp.zeros_like(one)), curve)
    rest = find(jnp.ones_like(capacity), at_first_alone, fall)
    return (at_first_alone + fall * rest) ** -p
