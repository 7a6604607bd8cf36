"""The product W2 W1 of two layers from any lambda-balanced start, aligned with the data or not.

Fukumizu (1998); Braun et al. (2022). With Q = [W1^T; W2] and W2^T W2 - W1 W1^T = lambda I, the
gradient flow on whitened input is the matrix Riccati equation (derived here for any lambda)

    tau Q' = F Q - Q Q^T Q / 2,    F = [[-lambda/2 I, Sigma^T], [Sigma, lambda/2 I]],

whose solution for X = Q Q^T, which contains W2 W1, W1^T W1 and W2 W2^T, is

    X(t) = e^{Ft} Q (I + Q^T G(t) Q)^{-1} Q^T e^{Ft},    G(t) = int_0^t e^{2Fu} du.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike
from gdln_jax.exact._calculus import check_all, check_numbers, check_tau, concrete, scaled_time

SQUARINGS = 4
TERMS = 18
MOST_STEPS = 4096


def two_layer_flow(
    t: ArrayLike,
    w1: ArrayLike,
    w2: ArrayLike,
    sigma_yx: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    sigma_x: ArrayLike = 1.0,
    tol: float | int | None = None,
    steps: int | None = None,
) -> Float[Array, "*times out in"]:
    """Return the map W2 W1(t) of a linear network with one hidden layer and whitened input.

    The flow is ``tau W1' = W2^T (Sigma^yx - W2 W1 Sigma^x)``, ``tau W2' = (Sigma^yx - W2 W1
    Sigma^x) W1^T`` with Sigma^x a multiple of the identity and W2^T W2 - W1 W1^T = lambda I at
    t = 0. Any three widths, any lambda (0 included), bottlenecks, rank-deficient and
    anti-aligned starts.

    Written with e^{Ft} the solution overflows, and at large t it loses the slow modes. Here it is
    applied ``steps`` times over t/steps, which is the same function (the flow is a semigroup),
    with each factor well conditioned: in the eigenbasis of F, so that modes do not contaminate
    each other, and on Q, so that the rank stays exact. The eigenbasis is a fixed frame that is
    never differentiated; derivatives pass through the matrix functions themselves and exist for
    repeated singular values, in every argument and of every order. The cost is O(n^2 h) per step
    and time, with n = in + out.

    Args:
        t: times >= 0 of any shape, in the units of ``tau``.
        w1: first layer at t = 0, (hidden, in).
        w2: second layer at t = 0, (out, hidden).
        sigma_yx: input-output correlation <y x^T>, (out, in): a mean over examples
            (theory#conventions).
        tau: time constant.
        sigma_x: input correlation <x x^T>: the variance of each input, or a matrix, which must be
            that multiple of the identity.
        tol: how far the start may be from balanced, relative to the norms of both Gram matrices;
            by default the square root of the dtype's precision.
        steps: number of factors. By default from the known arguments (32 to 4096), 512 inside a
            JAX transformation. Times beyond ``4 steps tau / rate`` (2 in float32), where rate is
            the largest eigenvalue of F, return the value there: at 4096 factors, after 16,384
            e-foldings of the fastest mode, what has not been learned is not going to be seen.

    Returns:
        W2 W1 at each time, (*times, out, in). NaN inside ``jit`` if the start is not balanced.
        Derivatives with respect to the weights mean something along balanced changes only; lambda
        follows as the mean over the diagonal.

    Raises:
        ValueError: shapes that do not fit, a start that is not balanced, a ``sigma_x`` that is
            not a multiple of the identity (use ``gradient_flow`` there), or a ``tau`` that is no
            finite number above 0.
    """
    check_numbers(t, w1, w2, sigma_yx, sigma_x, tau)
    dtype = jnp.result_type(t, w1, w2, sigma_yx, tau, sigma_x, 1.0)
    times = jnp.asarray(t, dtype)
    first, second, target = (jnp.asarray(x, dtype) for x in (w1, w2, sigma_yx))
    check_shapes(first, second, target)
    check_tau(tau)
    variance = whitened_variance(sigma_x, first.shape[1], dtype)
    # W sqrt(variance) obeys the flow with Sigma^x = I.
    scale = jnp.sqrt(variance)
    first, second = first * scale, second * scale
    lam, balanced = balance(first, second, tol)

    fastest = jnp.hypot(jnp.linalg.norm(jax.lax.stop_gradient(target), 2), lam / 2)
    count = steps_for(times, tau, fastest, dtype)
    count = count if steps is None else check_integer(steps, "steps", minimum=1)
    product = _flow(times, first, second, target, lam, jnp.asarray(tau, dtype), count) / variance
    return jnp.where(balanced & (times >= 0)[..., None, None], product, jnp.nan)


@partial(jax.jit, static_argnums=6)
def _flow(
    times: jax.Array,
    w1: jax.Array,
    w2: jax.Array,
    sigma: jax.Array,
    lam: jax.Array,
    tau: jax.Array,
    count: int,
) -> jax.Array:
    """Return W2 W1 at ``times`` for Sigma^x = I, in ``count`` steps."""
    phase = prepare(jnp.concatenate([w1.T, w2]), sigma, lam, count)
    width = w1.shape[1]

    def at(time: jax.Array) -> jax.Array:
        rows = phase.at(time, count)
        return rows[width:] @ rows[:width].T

    times = scaled_time(times, tau)
    return jax.vmap(at)(times.ravel()).reshape(*times.shape, *sigma.shape)


class Phase(NamedTuple):
    """One task from one start: F and Q in the eigenbasis of F.

    - `frame`: its vectors, in columns; `force`: F, and `start`: Q in it.
    - `last`: the time beyond which the value there is returned.
    """

    frame: jax.Array
    force: jax.Array
    start: jax.Array
    last: jax.Array

    def at(self, time: jax.Array, count: int) -> jax.Array:
        """Return Q at a time in units of tau, in ``count`` steps."""
        step = jnp.minimum(time, self.last) / count
        return self.frame @ _propagate(self.start, self.force, step, count)


def prepare(q: jax.Array, sigma: jax.Array, lam: jax.Array, count: int) -> Phase:
    """Return the task Sigma^yx with Sigma^x = I, from Q, for ``count`` steps."""
    frame, rates, parts = _frame(*(jax.lax.stop_gradient(x) for x in (sigma, lam)))
    # In value this is diag(rates) exactly, so that zeros stay zeros; its tangents are those of F.
    turned = frame.T @ _force(sigma, lam) @ frame
    turned = jnp.diag(rates) + (turned - jax.lax.stop_gradient(turned))
    fastest = jnp.max(jnp.abs(rates))
    last = _folds(sigma.dtype) * count / jnp.where(fastest > 0, fastest, 1.0)
    return Phase(frame, turned, _coordinates(q, *parts), last)


def _propagate(q: jax.Array, force: jax.Array, step: jax.Array, count: int) -> jax.Array:
    """Return Q after ``count`` steps; right factors of Q, which do not change X, are arbitrary."""
    eye = jnp.eye(force.shape[0], dtype=q.dtype)
    small = step / 2**SQUARINGS
    # Taylor series of e^{Fu} and G(u), then doubling: G(2u) = G(u) + e^{Fu} G(u) e^{Fu}.
    grow, gain = eye, eye
    for n in range(TERMS, 0, -1):
        grow = eye + force @ grow * (small / n)
        gain = eye + force @ gain * (2 * small / (n + 1))
    gain = gain * small
    for _ in range(SQUARINGS):
        gain = gain + grow @ gain @ grow
        grow = grow @ grow

    def advance(q: jax.Array, _: None) -> tuple[jax.Array, None]:
        gram = jnp.eye(q.shape[1], dtype=q.dtype) + q.T @ gain @ q
        lower = jnp.linalg.cholesky(gram, symmetrize_input=True)
        return jax.scipy.linalg.solve_triangular(lower, (grow @ q).T, lower=True).T, None

    return jax.lax.scan(advance, q, None, length=count)[0]


def _force(sigma: jax.Array, lam: jax.Array) -> jax.Array:
    out, width = sigma.shape
    half = lam / 2
    left, right = -half * jnp.eye(width, dtype=sigma.dtype), half * jnp.eye(out, dtype=sigma.dtype)
    return jnp.block([[left, sigma.T], [sigma, right]])


def _frame(
    sigma: jax.Array, lam: jax.Array
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array, jax.Array, jax.Array]]:
    """Return eigenvectors (columns) and eigenvalues of F, and the parts they are made of."""
    out, width = sigma.shape
    u, strengths, vt = jnp.linalg.svd(sigma, full_matrices=True)
    v, pairs = vt.T, strengths.shape[0]
    rate = jnp.hypot(strengths, lam / 2)
    # (x, y) is the growing direction of [[-lambda/2, s], [s, lambda/2]], written without
    # cancellation for either sign of lambda.
    x = jnp.where(lam >= 0, strengths, rate - lam / 2)
    y = jnp.where(lam >= 0, rate + lam / 2, strengths)
    x, y = jnp.where(rate > 0, x, 1.0), jnp.where(rate > 0, y, 1.0)
    x, y = x / jnp.hypot(x, y), y / jnp.hypot(x, y)
    zero_v = jnp.zeros((width, out - pairs), sigma.dtype)
    zero_u = jnp.zeros((out, width - pairs), sigma.dtype)
    paired_v, paired_u, x_row, y_row = v[:, :pairs], u[:, :pairs], x[None, :], y[None, :]
    columns = jnp.block(
        [
            [paired_v * x_row, -paired_v * y_row, v[:, pairs:], zero_v],
            [paired_u * y_row, paired_u * x_row, zero_u, u[:, pairs:]],
        ]
    )
    rest = [jnp.full(width - pairs, -lam / 2), jnp.full(out - pairs, lam / 2)]
    rates = jnp.concatenate([rate, -rate, *rest])
    return columns, rates, (v, u, x, y)


def _coordinates(q: jax.Array, v: jax.Array, u: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return Q in the eigenbasis of F.

    The larger of x and y is taken out of each sum: at lambda = 0 the sums are then a + b and b - a
    with no rounding, and an aligned start without overlap with a growing direction has exactly 0.
    """
    width, pairs = v.shape[0], x.shape[0]
    first, second = v.T @ q[:width], u.T @ q[width:]
    a, b = first[:pairs], second[:pairs]
    part_a = jnp.where(y >= x, x / y, 1.0)[:, None]
    part_b = jnp.where(y >= x, 1.0, y / x)[:, None]
    size = jnp.maximum(x, y)[:, None]
    growing, falling = size * (part_a * a + part_b * b), size * (part_a * b - part_b * a)
    return jnp.concatenate([growing, falling, first[pairs:], second[pairs:]])


def check_shapes(w1: jax.Array, w2: jax.Array, sigma: jax.Array) -> None:
    shapes = [w1.shape, w2.shape, sigma.shape]
    fits = all(len(shape) == 2 for shape in shapes)
    if not fits or w2.shape[1] != w1.shape[0] or sigma.shape != (w2.shape[0], w1.shape[1]):
        raise ValueError(
            "w1, w2, sigma_yx must have shapes (hidden, in), (out, hidden), (out, in); got "
            f"{shapes[0]}, {shapes[1]}, {shapes[2]}."
        )


def whitened_variance(sigma_x: ArrayLike, width: int, dtype: DTypeLike) -> jax.Array:
    given = jnp.asarray(sigma_x, dtype)
    if given.ndim == 0:
        check_all(sigma_x, lambda x: x > 0, "sigma_x", "above 0")
        return given
    if given.shape != (width, width):
        raise ValueError(
            f"sigma_x has shape {given.shape}; it must be a number or ({width}, {width})."
        )
    variance = jnp.trace(given) / width
    off = jnp.linalg.norm(given - variance * jnp.eye(width, dtype=dtype))
    relative = off / jnp.linalg.norm(given)
    known = concrete(relative)
    limit = math.sqrt(float(jnp.finfo(dtype).eps))
    if known is not None and not known <= limit:
        raise ValueError(
            f"sigma_x is not a multiple of the identity (relative departure {float(known):.1e}); "
            "whiten the inputs, or use gradient_flow."
        )
    return jnp.where(relative <= limit, variance, jnp.nan)


def balance(w1: jax.Array, w2: jax.Array, tol: float | int | None) -> tuple[jax.Array, jax.Array]:
    """Return lambda and whether the start is balanced; raise if it is known not to be."""
    limit = math.sqrt(float(jnp.finfo(w1.dtype).eps)) if tol is None else tol
    outgoing, incoming = w2.T @ w2, w1 @ w1.T
    hidden = w1.shape[0]
    lam = jnp.trace(outgoing - incoming) / hidden
    off = jnp.linalg.norm(outgoing - incoming - lam * jnp.eye(hidden, dtype=w1.dtype))
    size = jnp.linalg.norm(outgoing) + jnp.linalg.norm(incoming)
    balanced = off <= limit * size
    known = concrete(balanced)
    if known is not None and not known:
        raise ValueError(
            "w1 and w2 are not balanced: W2^T W2 - W1 W1^T departs from a multiple of the "
            f"identity by {float(off / size):.1e} (relative), tol = {limit:.1e}. Start from "
            "init.balanced, or use gradient_flow."
        )
    return lam, balanced


def _folds(dtype: DTypeLike) -> float:
    # One factor loses e^{2 folds} of precision: 3e3 of 1e16, 50 of 1e7.
    return 4.0 if jnp.finfo(dtype).bits == 64 else 2.0


def steps_for(times: jax.Array, tau: ArrayLike, fastest: jax.Array, dtype: DTypeLike) -> int:
    known = [concrete(x) for x in (times, tau, fastest)]
    if any(x is None for x in known):
        return 512
    moments, constant, rate = (np.asarray(x, float) for x in known)
    wanted = np.max(np.abs(moments), initial=0.0) * float(rate) / float(constant)
    wanted = wanted / (_folds(dtype) / 2)
    if not wanted < MOST_STEPS:
        return MOST_STEPS
    # A power of two, so that few programs are compiled.
    return max(32, 2 ** math.ceil(math.log2(max(wanted, 1.0))))
