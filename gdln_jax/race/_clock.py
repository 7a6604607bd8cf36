"""One clock for all pathways: the exact law of races with a shared brake (SCIENCE 5).

Where every pathway is braked by the same factor, the pathways know each other only through one
clock T(t), with dT/dt = the brake. Strengths are explicit functions of T, and T stops at a finite
T_inf, where the brake is 0. This room finds T_inf, t(T) and T(t) without an ODE solver. Imports
nothing of the package.

Numerics. With D = T_inf - T the brake of R's equation is h(D) = sum_m w_m (1 - exp(-2 sigma_m D)),
w_m = s_m(inf)^2 / s_max^2, which has no cancellation anywhere. With y = ln(D(0)/D) the time is
t(y) = int_0^y D/h dy', whose integrand is smooth and runs from D(0)/h(D(0)) to the constant
1/(2 mean rate): a fixed Gauss rule is exact to rounding from any plateau, s(0) = 1e-3 or 1e-30.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

_PANELS, _ORDER = 20, 16
_EXPONENT_OF_ROUNDING = 37.0  # exp(-37) = 8.5e-17, below float64's rounding


def _composite_gauss() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1): `_PANELS` equal panels of `_ORDER` points."""
    x, w = np.polynomial.legendre.leggauss(_ORDER)
    edges = np.arange(_PANELS)[:, None]
    nodes = (edges + (x + 1) / 2) / _PANELS
    weights = np.broadcast_to(w / (2 * _PANELS), nodes.shape)
    return nodes.ravel(), weights.ravel()


_NODES, _WEIGHTS = _composite_gauss()


def monotone_root(
    f: Callable[[Float[Array, ""]], Float[Array, ""]], guess: Float[Array, ""]
) -> Float[Array, ""]:
    """Root of a monotone convex or concave scalar function by Newton's method, differentiable.

    From the guesses used here Newton's steps keep one side of the root (after at most one step),
    so no safeguard is needed. Derivatives come from the implicit function theorem.
    """

    def solve(g: Callable, start: Float[Array, ""]) -> Float[Array, ""]:
        small = 2 * jnp.finfo(start.dtype).eps

        def step(state: tuple) -> tuple:
            x, _, count = state
            value, slope = jax.jvp(g, (x,), (jnp.ones_like(x),))
            change = value / slope
            return x - change, jnp.abs(change) > small * jnp.abs(x), count + 1

        def go_on(state: tuple) -> Array:
            return state[1] & (state[2] < 100)

        return jax.lax.while_loop(go_on, step, (start, jnp.asarray(True), 0))[0]

    return jax.lax.custom_root(
        f, jax.lax.stop_gradient(guess), solve, lambda g, y: y / g(jnp.ones_like(y))
    )


def safe_log(x: Array) -> Array:
    """Natural logarithm, and -inf with derivative 0 where x is 0."""
    positive = x > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1.0)), -jnp.inf)


@jax.jit
def clock_at_total(
    rates: Float[Array, " pathway"], log_ratio: Float[Array, " pathway"], log_total: Array
) -> Float[Array, ""]:
    """The clock at which sum_m exp(2 (log_ratio_m + rates_m T)) = exp(log_total).

    The logarithm of the sum is convex and increasing in T; the start, where the first pathway
    alone reaches the total, lies at or right of the root.
    """

    def excess(clock: Float[Array, ""]) -> Float[Array, ""]:
        return logsumexp(2 * (log_ratio + rates * clock)) - log_total

    return monotone_root(excess, jnp.min((log_total / 2 - log_ratio) / rates))


def _mean_slope(log_share: Array, x: Array) -> Array:
    """The function share (1 - exp(-x)) / x, analytic through 0.

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
) -> Float[Array, ""]:
    """Time until D has shrunk from `distance` = D(0) to D(0) exp(-y); D(0) < 0 from above s_max.

    The last part, where the integrand is its limit 1/(2 mean rate), is done in closed form.
    """
    late = 1 / (2 * jnp.sum(jnp.exp(log_shares) * rates))
    reach = _EXPONENT_OF_ROUNDING + jnp.log1p(jnp.abs(distance) * jnp.max(rates))
    upper = jnp.minimum(y, reach)
    gaps = distance * jnp.exp(-upper * jnp.asarray(_NODES, y.dtype))
    slopes = _mean_slope(log_shares[None, :], 2 * jnp.outer(gaps, rates))
    brake_over_gap = slopes @ (2 * rates)
    early = jnp.sum(jnp.asarray(_WEIGHTS, y.dtype) * (1 / brake_over_gap - late))
    return y * late + upper * early


@jax.jit
def clock_at_times(
    times: Float[Array, " time"],
    rates: Float[Array, " pathway"],
    log_shares: Float[Array, " pathway"],
    distance: Float[Array, ""],
) -> Float[Array, " time"]:
    """T at the given times: `elapsed` inverted for y = ln(D(0)/D); T = D(0) - D.

    As a function of y the time is concave from below s_max and convex from above it.
    """

    def shrinkage(t: Float[Array, ""]) -> Float[Array, ""]:
        return monotone_root(
            lambda y: elapsed(y, rates, log_shares, distance) - t, jnp.zeros_like(t)
        )

    return -distance * jnp.expm1(-jax.vmap(shrinkage)(times))


@partial(jax.jit, static_argnames="depth")
def frozen_fractions(
    rates: Float[Array, " pathway"],
    u0: Float[Array, " pathway"],
    capacity: Float[Array, ""],
    depth: int,
) -> Float[Array, " pathway"]:
    """Final fractions of the output for D = capacity * S S^T, rates S, any depth; they sum to 1.

    The fraction of pathway m is g_m = capacity S_m u_m^L. For L = 2 it grows as exp(2 S_m T); for
    L >= 3, u_m^(2-L) falls linearly in T, so the winner is the first whose u^(2-L)/S is used up:
    argmax S u0^(L-2). The distance is counted back from the clock at which the first pathway
    would be done alone, because T itself (up to u0^(2-L)) is too large to subtract from.
    """
    if depth == 2:
        log_ratio = safe_log(u0) + jnp.log(capacity * rates) / 2
        clock = clock_at_total(rates, log_ratio, jnp.zeros_like(capacity))
        return jnp.exp(2 * (log_ratio + rates * clock))
    alive = u0 > 0
    power = depth / (depth - 2)
    scale = (capacity * rates) ** (-1 / power)
    start = scale * jnp.where(alive, u0, 1.0) ** (2 - depth)  # g = (start - fall T)^(-power)
    fall = (depth - 2) * rates * scale
    first = jnp.argmin(jnp.where(alive, (start - 1) / fall, jnp.inf))
    left = (start - start[first] * fall / fall[first]) + fall / fall[first]
    left = jnp.where(left < 1, 1.0, left)  # below 1 by rounding only

    def fractions(back: Float[Array, ""]) -> Float[Array, " pathway"]:
        return jnp.where(alive, (left + fall * back) ** (-power), 0.0)

    def excess(back: Float[Array, ""]) -> Float[Array, ""]:  # a power mean: concave, increasing
        return jnp.sum(fractions(back)) ** (-1 / power) - 1

    return fractions(monotone_root(excess, jnp.zeros_like(capacity)))
