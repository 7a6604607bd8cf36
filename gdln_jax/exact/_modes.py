"""One mode of a network with one hidden layer: balanced, unbalanced, and between contexts.

N Eq. 21-23 and H Eq. 7 (the logistic), H App. F-G (contexts, in the form of E17), and the
unbalanced mode (theory#one-mode). A mode (s, d) is a strength s of Sigma^yx and the variance d of
Sigma^x in the same frame; its product of weights a obeys tau a' = 2 a (s - d a) if balanced.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax._checks.types import ArrayLike
from gdln_jax._linalg import ratio
from gdln_jax.exact._calculus import (
    as_floats,
    check_all,
    decay_integral,
    growth,
    log1p_over,
    scaled_time,
)


@jax.jit
def solve_linear(
    t: jax.Array, s: jax.Array, d: jax.Array, a0: jax.Array, tau: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the mode a(t) and w(t), where ``1 - a d/s = w (1 - a0 d/s)`` without cancellation."""
    # A balanced mode with a0 < 0 has w2 = -w1 and obeys tau a' = 2 |a| (s - d a): it is the mirror
    # image of the mode of |a0| with -s.
    sign = jnp.where(a0 < 0, -1.0, 1.0)
    size = jnp.where(a0 == 0, 1.0, sign * a0)
    s = sign * s
    time = 2 * scaled_time(t, tau)
    z = s * time
    ahead = z >= 0
    # Both branches are exact and analytic at z = 0; each avoids the exponential that overflows.
    saturation = d * decay_integral(time, jnp.where(ahead, s, -s))
    h, w = growth(jnp.log(size) + jnp.where(ahead, z, 0), saturation)
    a = sign * h * jnp.exp(jnp.where(ahead, 0, z))
    # a0 = 0 stays; its derivative with respect to a0 is that of a0 -> 0+.
    still = a0 * jnp.exp(jnp.minimum(z, jnp.log(jnp.finfo(z.dtype).max) - 2))
    return jnp.where(a0 == 0, still, a), jnp.where(a0 == 0, 1.0, w)


def linear_mode(
    t: ArrayLike, s: ArrayLike, d: ArrayLike, a0: ArrayLike, tau: ArrayLike = 1.0
) -> Float[Array, "..."]:
    """Return the strength a(t) of one mode of a balanced linear network with one hidden layer.

    ``a(t) = (s/d) / (1 - (1 - s/(d a0)) exp(-2 s t/tau))`` (N Eq. 21; H Eq. 7), the solution of
    ``tau a' = 2 |a| (s - d a)``. Mean loss (theory#conventions): t = tau * learning rate * step.

    All arguments are broadcast against each other and may be differentiated.

    Args:
        t: time, in the units of ``tau``; ``inf`` gives the limit. Negative times are allowed
            as far back as the solution exists.
        s: strength of the mode in Sigma^yx, of either sign. A mode whose sign differs from a0's
            decays to 0.
        d: variance of the input along the mode, d >= 0. With d = 0 and s = 0 nothing moves; with
            d = 0 alone the mode grows without bound and is held near the largest float, with
            derivatives 0 there.
        a0: a(0), of either sign (a negative one means w2 = -w1); above s/d the mode decays.
        tau: time constant, > 0.

    Returns:
        Array of the broadcast shape, finite with finite derivatives at any time.
    """
    t, s, d, a0, tau = as_floats(t, s, d, a0, tau=tau)
    return solve_linear(t, s, d, a0, tau)[0]


def linear_mode_time(
    a: ArrayLike, s: ArrayLike, d: ArrayLike, a0: ArrayLike, tau: ArrayLike = 1.0
) -> Float[Array, "..."]:
    """Return the time at which ``linear_mode`` is at ``a``: its exact inverse.

    ``t = tau/(2 s) ln[a (s - d a0) / (a0 (s - d a))]`` (H App. A.1; E21: it depends on d as well).
    Broadcasts; differentiable in every argument.

    Returns:
        Time in the units of ``tau``; negative where a was passed before t = 0, and ``inf`` (with
        derivative 0) where a is never reached: beyond s/d, across 0, or exactly s/d.
    """
    return _linear_time(*as_floats(a, s, d, a0, tau=tau))


@jax.jit
def _linear_time(
    a: jax.Array, s: jax.Array, d: jax.Array, a0: jax.Array, tau: jax.Array
) -> jax.Array:
    sign = jnp.where(a0 < 0, -1.0, 1.0)
    a, a0, s = sign * a, sign * a0, sign * s
    stop, start = s - d * a, s - d * a0
    reached = (a > 0) & (a0 > 0) & (stop * start > 0)
    # s = 0: the factors are -d a and -d a0, and the limit of the logarithm is (a - a0)/(-d a a0).
    safe = [jnp.where(reached, value, 1.0) for value in (a, a0, stop, start, s)]
    a_, a0_, stop_, start_, s_ = safe
    logarithm = jnp.log(a_) - jnp.log(a0_) + jnp.log(jnp.abs(start_)) - jnp.log(jnp.abs(stop_))
    doubled = log1p_over(s_, ratio(ratio(a_ - a0_, a0_), stop_), logarithm)
    time = jnp.where(reached, tau * doubled / 2, jnp.inf)
    return jnp.where(a == a0, 0.0, time)


def context_mode(
    t: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    b0: ArrayLike,
    num_contexts: ArrayLike,
    tau: ArrayLike = 1.0,
) -> Float[Array, "..."]:
    """Return the strength B(t) of one mode of a contextual pathway when there are C contexts.

    ``B(t) = ((C-1) S/D) / (1 - (1 - (C-1) S/(D B0)) exp(-2 S t/tau))`` (H App. F-G as corrected
    in E17). The C pathways that each leave out one context overlap with factor -1/(C-1) on the
    modes they learn (E16), which divides the effective variance by C - 1; so this is
    ``linear_mode`` with d/(C-1). B is the product of a pathway's two weights, and each output is
    the sum of the C - 1 pathways that are active.

    Args:
        t: time, in the units of ``tau``.
        s: strength of the mode in the Sigma^yx of one pathway, after the common pathway's fit.
        d: variance of the pathway's input along the mode.
        b0: B(0). It is not free: the modes grow on the common target first (theory#head-start).
        num_contexts: C >= 2 (a real number, differentiable).
        tau: time constant. H's summed loss and this package's mean loss differ by the number of
            examples: divide its S and D by it, or multiply its times.

    Raises:
        ValueError: a known ``num_contexts`` below 2; one context needs no contextual pathway.
    """
    check_all(num_contexts, lambda c: c >= 2, "num_contexts", "at least 2")
    t, s, d, b0, contexts, tau = as_floats(t, s, d, b0, num_contexts, tau=tau)
    return solve_linear(t, s, d / (contexts - 1), b0, tau)[0]


@jax.jit
def _grow_square(
    p0: jax.Array, q0: jax.Array, s: jax.Array, d: jax.Array, time: jax.Array
) -> jax.Array:
    """Return P(t) of ``P' = 2 P (s - d (P - Q)/4)``, where P Q = p0 q0 is conserved.

    ``P = P0 (C + s S + d Q0 S/2) / (C - s S + d P0 S/2)`` with C = cosh(k t), S = sinh(k t)/k and
    k^2 = s^2 + d^2 P0 Q0/4.
    """
    square = s**2 + d**2 * p0 * q0 / 4
    y = square * time**2
    # Few e-foldings: the power series of C and S in (k t)^2 are entire: k = 0 is nothing special.
    near = y < 1
    y_near = jnp.where(near, y, 0)
    t_near = jnp.where(near, time, 0)
    cosh, sinh = jnp.ones_like(y), jnp.ones_like(y)
    for n in range(10, 0, -1):
        cosh = 1 + cosh * y_near / ((2 * n - 1) * (2 * n))
        sinh = 1 + sinh * y_near / ((2 * n) * (2 * n + 1))
    sinh = sinh * t_near
    numerator = cosh + s * sinh + d * q0 * sinh / 2
    early = p0 * ratio(numerator, cosh - s * sinh + d * p0 * sinh / 2)

    # Many: divide by exp(k t), and take 1 - |s|/k from its conjugate, d^2 P0 Q0 / (4 k (k + |s|)).
    k = jnp.sqrt(jnp.where(near, 1.0, square))
    t_far = jnp.where(near, 1.0, time)
    fade = jnp.exp(-2 * k * t_far)
    speed = jnp.abs(s) / k
    sinh_far = (1 - fade) / k
    slack = d**2 * q0 / (4 * k * (k + jnp.abs(s)))
    up = s >= 0
    top = (1 + speed) + fade * p0 * slack + d * q0 * sinh_far / 2
    moving = p0 > 0
    log_p0 = jnp.log(jnp.where(moving, p0, 1.0))
    h, _ = growth(log_p0 + 2 * k * t_far - jnp.log1p(speed), slack + d * sinh_far / 2)
    rising = jnp.where(moving, top * h, 0.0)
    top = p0 * slack + fade * (1 + speed) + d * q0 * sinh_far / 2
    falling = p0 * ratio(top, (1 + speed) + fade * p0 * slack + d * p0 * sinh_far / 2)
    return jnp.where(near, early, jnp.where(up, rising, falling))


def unbalanced_mode(
    t: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    w1: ArrayLike,
    w2: ArrayLike,
    tau: ArrayLike = 1.0,
) -> Float[Array, "..."]:
    """Return w(t) = w1 w2 of one mode whose two layers start at any w1(0), w2(0).

    ``tau w' = sqrt(c^2 + 4 w^2) (s - w d)`` with c = w2^2 - w1^2 conserved (theory#one-mode). In
    P = (w1 + w2)^2 and Q = (w2 - w1)^2 this is one Riccati equation each, with 4 w = P - Q and
    P Q = c^2; both solutions are smooth through c = 0, where ``linear_mode`` is recovered.
    Broadcasts; differentiable in every argument.

    Args:
        t: time >= 0, in the units of ``tau``; ``inf`` gives the limit.
        s: strength of the mode in Sigma^yx, of either sign.
        d: variance of the input along the mode, >= 0.
        w1: first layer's weight along the mode at t = 0, of either sign.
        w2: second layer's weight at t = 0, of either sign.
        tau: time constant.
    """
    t, s, d, w1, w2, tau = as_floats(t, s, d, w1, w2, tau=tau)
    time = scaled_time(t, tau)
    plus, minus = (w1 + w2) ** 2, (w2 - w1) ** 2
    return (_grow_square(plus, minus, s, d, time) - _grow_square(minus, plus, -s, d, time)) / 4


def unbalanced_mode_time(
    w: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    w1: ArrayLike,
    w2: ArrayLike,
    tau: ArrayLike = 1.0,
) -> Float[Array, "..."]:
    """Return the time at which ``unbalanced_mode`` is at ``w``: its exact inverse.

    With k^2 = s^2 + (c d/2)^2 and P = 2 w + sqrt(c^2 + 4 w^2):
    ``tanh(k t/tau)/k = (P - P0) / (s (P + P0) + d (c^2 - P P0)/2)``. Broadcasts; differentiable.

    Returns:
        Time in the units of ``tau``; negative where w was passed before t = 0, ``inf`` (with
        derivative 0) where w is never reached.
    """
    return _unbalanced_time(*as_floats(w, s, d, w1, w2, tau=tau))


@jax.jit
def _unbalanced_time(
    w: jax.Array, s: jax.Array, d: jax.Array, w1: jax.Array, w2: jax.Array, tau: jax.Array
) -> jax.Array:
    # The mirror image w1 -> -w1 changes the signs of w and s: only s >= 0 needs a formula.
    mirror = jnp.where(s < 0, -1.0, 1.0)
    w, s, w1 = mirror * w, mirror * s, mirror * w1
    p0, q0 = (w1 + w2) ** 2, (w2 - w1) ** 2
    c = jnp.abs((w2 - w1) * (w2 + w1))
    length = jnp.sqrt(jnp.where((c == 0) & (w == 0), 1.0, c**2 + 4 * w**2))
    larger = length + 2 * jnp.abs(w)
    p, q = jnp.where(w >= 0, larger, c**2 / larger), jnp.where(w >= 0, c**2 / larger, larger)

    turning = (s != 0) | (c * d != 0)
    k = jnp.where(turning, jnp.sqrt(jnp.where(turning, s**2 + (c * d / 2) ** 2, 1.0)), 0.0)
    per = jnp.where(turning, d**2 / jnp.where(turning, 4 * (k + s), 1.0), 0.0)
    # exp(2 k t) = (P/P0) top/bottom, and P/P0 = Q0/Q: take the one that cannot be 0/0. In this
    # form, with k - s = per c^2 inserted, nothing cancels when c is small.
    top = s + k + d * (q - p0) / 2 - per * p0 * q
    bottom = s + k + d * (q0 - p) / 2 - per * p * q0
    rising = p0 >= q0
    num, den = jnp.where(rising, p, q0), jnp.where(rising, p0, q)
    reached = (num > 0) & (den > 0) & (top * bottom > 0)
    num, den, top, bottom = (jnp.where(reached, x, 1.0) for x in (num, den, top, bottom))
    logarithm = jnp.log(num) - jnp.log(den) + jnp.log(jnp.abs(top)) - jnp.log(jnp.abs(bottom))
    time = tau * log1p_over(2 * k, ratio(ratio(num - den, den), bottom), logarithm)
    return jnp.where(w == w1 * w2, 0.0, jnp.where(reached, time, jnp.inf))
