r"""Closed forms of discrete training, and of other optimisers than descent (theory#discrete-time).

A mode has strength s, input variance d, target p = s/d and loss d/2 (prod b - p)^2.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax.exact._calculus import as_floats, bisect, implicit_root
from gdln_jax.exact._chain import chain_mode_time


def two_cycle(
    s: ArrayLike, d: ArrayLike, learning_rate: ArrayLike
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    r"""Return the two-cycle of gradient descent on a balanced mode beyond its step limit.

    With mu = eta s the weights obey, in u = w sqrt(eta d), u' = u (1 + mu - u^2). For mu > 1 the
    minimum is unstable and w^2 alternates between $1/(A \eta d)$ and $A/(\eta d)$, where A + 1/A =
    1 + mu.

    Returns:
        (low, high, multiplier, transverse): both values of w^2; the multiplier of a deviation over
        one cycle, 9 - 2 (1 + mu)^2, stable above -1, which is mu < sqrt(5) - 1; and that of an
        imbalance of the layers, 3 - 2 mu. NaN for mu <= 1.
    """
    s, d, eta = as_floats(s, d, learning_rate)
    mu = eta * s
    there = mu > 1
    mu = jnp.where(there, mu, 2.0)
    a = (1 + mu + jnp.sqrt((mu - 1) * (mu + 3))) / 2
    results = (1 / (a * eta * d), a / (eta * d), 9 - 2 * (1 + mu) ** 2, 3 - 2 * mu)
    low, high, multiplier, transverse = (jnp.where(there, x, jnp.nan) for x in results)
    return low, high, multiplier, transverse


def imbalance_factor(
    s: ArrayLike, d: ArrayLike, b: Float[Numbers, "*batch layer"], learning_rate: ArrayLike
) -> Float[Array, "*batch hidden"]:
    r"""Return the factor by which one step of gradient descent multiplies b_(k+1)^2 - b_k^2.

    It is $1 - (\eta\, r \prod_{m \neq k, k+1} b_m)^2$ with the residual r = s - d prod b: the
    quantity that the flow conserves decays at second order in the step.

    Args:
        s: strength of the mode, an array (...) or a number.
        d: variance of the input along it.
        b: strengths of the layers, first layer first, at least two.
        learning_rate: eta.

    Returns:
        One factor per hidden node, (..., layer - 1).

    Raises:
        ValueError: for fewer than two layers.
    """
    (b,) = as_floats(b)
    layers = b.shape[-1] if b.ndim else 0
    if layers < 2:
        raise ValueError(f"b has shape {b.shape}; give at least two layers, (..., layer).")
    s, d, eta = as_floats(s, d, learning_rate)
    residual = s - d * jnp.prod(b, axis=-1)
    others = [
        jnp.prod(b[..., np.array([m for m in range(layers) if m not in (k, k + 1)], int)], axis=-1)
        for k in range(layers - 1)
    ]
    return 1 - ((eta * residual)[..., None] * jnp.stack(others, axis=-1)) ** 2


def momentum_clock_error(
    s: ArrayLike, learning_rate: ArrayLike, momentum: ArrayLike
) -> Float[Array, "..."]:
    r"""Return the relative error of the clock eta steps/(1 - beta) for a mode under heavy ball.

    The mode grows by z per step, the larger root of z^2 - (1 + beta + eta s) z + beta = 0, and not
    by exp(a), a = eta s/(1 - beta); the error is 1 - ln(z)/a, to first order a (1 + beta)/(2 (1 -
    beta)). It must be small beside 1/(s t) on a plateau of length t.

    Args:
        s: growth rate of the mode in the flow, above 0: its strength with two layers.
        learning_rate: eta, above 0.
        momentum: beta, in [0, 1).

    Returns:
        The error; NaN outside the ranges above.
    """
    s, eta, beta = as_floats(s, learning_rate, momentum)
    good = (s > 0) & (eta > 0) & (beta >= 0) & (beta < 1)
    step, beta = jnp.where(good, eta * s, 1.0), jnp.where(good, beta, 0.0)
    # z - 1 is the positive root of x^2 + c x - eta s.
    c = 1 - beta - step
    root = jnp.sqrt(c**2 + 4 * step)
    x = jnp.where(c > 0, 2 * step / (jnp.abs(c) + root), (root - c) / 2)
    return jnp.where(good, 1 - jnp.log1p(x) * (1 - beta) / step, jnp.nan)


def sign_time(
    b0: Float[Numbers, "*#batch path layer"], p: ArrayLike
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch path"]]:
    r"""Return the time and shares of pathways when sign flow, db/dt = +-1, learns a mode.

    That is the polar factor (Muon) with small steps: all strengths grow alike, and the target p is
    met when $\sum_{paths} \prod_e (b_e(0) + t) = p$.

    Args:
        b0: strengths (..., path, layer) at the start, above 0.
        p: target s/d of the mode, a number or an array (...) for modes, with which the leading axes
            of b0 broadcast; above the sum of products at the start.

    Returns:
        (time, shares): the time in units of step size times steps, and the share of every path in
        p. NaN outside the ranges above.
    """
    (b0,) = as_floats(b0)
    if b0.ndim < 2:
        raise ValueError(f"b0 has shape {b0.shape}; give (path, layer).")
    batch = jnp.broadcast_shapes(b0.shape[:-2], jnp.shape(p))
    b0, p = jnp.broadcast_to(b0, batch + b0.shape[-2:]), jnp.broadcast_to(p, batch).astype(b0.dtype)
    good = jnp.all(b0 > 0, axis=(-2, -1)) & (jnp.sum(jnp.prod(b0, axis=-1), axis=-1) < p)
    start = jnp.where(good[..., None, None], b0, 0.5)
    target = jnp.where(good, p, float(b0.shape[-2]))
    time = _sign_root(target, start)
    shares = jnp.prod(start + time[..., None, None], axis=-1) / target[..., None]
    return jnp.where(good, time, jnp.nan), jnp.where(good[..., None], shares, jnp.nan)


def _sign_curve(time: Array, start: Array) -> tuple[Array, Array]:
    grown = start + time[..., None, None]
    products = jnp.prod(grown, axis=-1)
    return jnp.sum(products, -1), 1 / jnp.sum(products * jnp.sum(1 / grown, axis=-1), -1)


def _sign_search(target: Array, start: Array) -> Array:
    # The sum of products is convex and at least paths * t^L: Newton from above, monotone.
    paths, layers = start.shape[-2:]

    def step(_: Array, time: Array) -> Array:
        reached, inverse = _sign_curve(time, start)
        return time - (reached - target) * inverse

    return jax.lax.fori_loop(0, 40, step, (target / paths) ** (1 / layers))


_sign_root = jax.jit(implicit_root(_sign_search, _sign_curve))


def adagrad_steps(
    b: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    b0: ArrayLike,
    depth: int,
    learning_rate: ArrayLike,
    eps: ArrayLike,
) -> Float[Array, "..."]:
    r"""Return the steps of Adagrad, or Shampoo, until every layer of a balanced chain is at `b`.

    The update is $-\eta g/\sqrt{\epsilon + \sum g^2}$. For small steps $\sqrt{\epsilon + \sum g^2}$
    is $\sqrt\epsilon + (l_0 - l)/(2 L \eta)$ with the loss l of the mode, which gives the number of
    steps in terms of the time of the flow; its error is of the order of eta.

    Args:
        b: strength of every layer, between `b0` and (s/d)^(1/L).
        s: strength of the mode, above 0.
        d: variance of the input along it, above 0.
        b0: strength of every layer at the start, above 0.
        depth: number L of layers.
        learning_rate: eta.
        eps: epsilon of `rules.shampoo`.

    Returns:
        Number of steps, inf or NaN where `chain_mode_time` is.
    """
    depth = check_integer(depth, "depth", minimum=1)
    b, s, d, b0, eta, eps = as_floats(b, s, d, b0, learning_rate, eps)
    p = s / d
    if depth == 2:
        area = p * jnp.log(b / b0)
    else:
        area = p * (b0 ** (2 - depth) - b ** (2 - depth)) / (depth - 2)
    area -= (b**2 - b0**2) / 2
    first = d * (b0**depth - p) ** 2 / 2
    time = chain_mode_time(b**depth, s, d, b0**depth, depth)
    slow = jnp.sqrt(eps) / eta + first / (2 * depth * eta**2)
    return slow * time - area / (4 * depth * eta**2)


def pathway_race(
    kappa: Float[Numbers, "*#batch path"],
    u0: Float[Numbers, "*#batch path"],
    s: ArrayLike,
    d: ArrayLike,
    depth: int,
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch path"]]:
    r"""Return the outcome of the race of balanced pathways that feed one mode.

    Each has $\tau \dot u_q = \kappa_q u_q^{L-1} (s - d \sum_q u_q^L)$, with kappa the geometric
    mean of the rate factors of its layers (theory#shared-pathways). In the clock dTheta = (s - d
    sum u^L) dt/tau each grows by itself; the race ends where sum u^L = s/d.

    Args:
        kappa: rate factor of each pathway, (..., path), above 0.
        u0: strengths at the start, the geometric mean over layers, above 0.
        s: strength of the mode, above 0: a number, or an array (...) for modes, with which the
            leading axes of u0 broadcast.
        d: variance of the input along it, above 0.
        depth: number L of layers, at least 2.

    Returns:
        (clock, u) at the end; the share of a pathway is u^L d/s. NaN outside the ranges above, and
        for a start beyond the target.
    """
    depth = check_integer(depth, "depth", minimum=2)
    kappa, u0 = as_floats(kappa, u0)
    if not u0.ndim:
        raise ValueError("kappa and u0 are numbers; give one per pathway, (..., path).")
    batch = jnp.broadcast_shapes(u0.shape[:-1], jnp.shape(s), jnp.shape(d))
    kappa, u0 = (jnp.broadcast_to(x, batch + u0.shape[-1:]) for x in (kappa, u0))
    s, d = (jnp.broadcast_to(x, batch).astype(u0.dtype) for x in (s, d))
    good = jnp.all((kappa > 0) & (u0 > 0), -1) & (d > 0) & (jnp.sum(u0**depth, -1) * d < s)
    p = jnp.where(good, s / jnp.where(good, d, 1.0), float(u0.shape[-1]))
    kappa, u0 = jnp.where(good[..., None], kappa, 1.0), jnp.where(good[..., None], u0, 0.5)
    clock = _race_root(depth)(p, kappa, u0)
    grown = _grown(depth, clock, kappa, u0)
    return jnp.where(good, clock, jnp.nan), jnp.where(good[..., None], grown, jnp.nan)


def _grown(depth: int, clock: Array, kappa: Array, u0: Array) -> Array:
    grown = kappa * clock[..., None]
    if depth == 2:
        return u0 * jnp.exp(grown)
    return u0 * (1 - (depth - 2) * grown * u0 ** (depth - 2)) ** (-1 / (depth - 2))


def _race_root(depth: int):
    def curve(clock: Array, kappa: Array, u0: Array) -> tuple[Array, Array]:
        u = _grown(depth, clock, kappa, u0)
        slope = jnp.sum(depth * kappa * u ** (2 * depth - 2), -1)
        return jnp.sum(u**depth, -1), 1 / slope

    def search(p: Array, kappa: Array, u0: Array) -> Array:
        # One pathway alone would take longer: the fastest bounds the clock from above.
        end = p[..., None] ** (1 / depth)
        if depth == 2:
            alone = jnp.log(end / u0) / kappa
        else:
            alone = (u0 ** (2 - depth) - end ** (2 - depth)) / ((depth - 2) * kappa)
        high = jnp.min(alone, -1)
        return bisect(lambda x: curve(x, kappa, u0)[0], p, jnp.zeros_like(high), high)

    return implicit_root(search, curve)
