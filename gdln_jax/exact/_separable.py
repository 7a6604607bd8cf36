"""The flow ``x' = (x^2 + C) (s - delta x (x^2 + C))``, solved by its integrated form.

``dT = dx / ((x^2 + C)(s - delta x (x^2 + C)))``. Write A(x) = x^2 + C, r for the largest real
root of delta x A(x) = s (s >= 0), and Q(x) = x^2 + r x + r^2 + C, so that
s - delta x A(x) = delta (r - x) Q(x). After mirroring x -> e x, s -> e s so that the start is not
negative, one of three things happens:

- growth (s > 0, x < r): ``T = (1/s) [int du/A + int u du/((r - u) Q)]`` with both integrals in
  closed form; nothing cancels, because both are positive.
- decay towards r (s > 0, x > r), or towards 0 or sqrt(-C) (s <= 0): the closed form loses a factor
  (x/r)^4 of precision, so that the same integral is done by quadrature in the variable
  zeta = -ln of the remaining distance, in which the integrand has no nearby pole.
- through 0 (s < 0, C > 0): decay to 0 in a finite time, then growth with the other sign.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._linalg import ratio
from gdln_jax.exact._calculus import (
    NODES,
    WEIGHTS,
    arc_integral,
    at_nodes,
    decay_integral,
    implicit_root,
)


def _panels(dtype: Any) -> int:
    """Return into how many panels of unit width of zeta decay is tabulated.

    The integrand's poles are at least pi/3 off the real axis, so 16 nodes give 1e-16 per panel.
    exp(-64) of the start is below any rounding; in float32 exp(-40) is, whose square is no 0 yet.
    """
    return 64 if jnp.finfo(dtype).bits == 64 else 40


def _cubic(r: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
    slope = 3 * r**2 + c
    return r * (r**2 + c), 1 / jnp.where(slope > 0, slope, 1.0)


def _search_attractor(h: jax.Array, c: jax.Array) -> jax.Array:
    # An upper bound, from which Newton's method on this convex function descends monotonically.
    flat = jnp.where(c > 0, h / jnp.where(c > 0, c, 1.0), jnp.inf)
    r = jnp.minimum(jnp.cbrt(h), flat) + jnp.sqrt(jnp.maximum(-c, 0.0))

    def newton(_: Any, r: jax.Array) -> jax.Array:
        value, inverse_slope = _cubic(r, c)
        return r - (value - h) * inverse_slope

    return jax.lax.fori_loop(0, 16, newton, r)


_cubic_root = implicit_root(_search_attractor, _cubic)


def _attractor(s: jax.Array, delta: jax.Array, c: jax.Array) -> jax.Array:
    """Return the largest real root r of ``delta r (r^2 + c) = s``, for s > 0 and delta > 0."""
    return _cubic_root(s / delta, c)


def _growth_time(
    step: jax.Array, xi: jax.Array, s: jax.Array, x0: jax.Array, r: jax.Array, c: jax.Array
) -> jax.Array:
    """Return T from x0 to x0 + step, where ``xi = ln((r - x0)/(r - x0 - step))``."""
    x = x0 + step
    slope = 3 * r**2 + c
    q0 = x0**2 + r * x0 + r**2 + c
    logs = r * xi + r * jnp.log1p(ratio(step * (x + x0 + r), q0)) / 2
    arc = arc_integral(step, x0 + r / 2, 0.75 * r**2 + c)
    rest = ratio(logs - (1.5 * r**2 + c) * arc, slope)
    return (arc_integral(step, x0, c) + rest) / s


def _growth(
    xi: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, r: jax.Array, c: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return T(xi) and 1/T'(xi)."""
    step = (r - x0) * -jnp.expm1(-xi)
    x = x0 + step
    speed = delta * (x**2 + c) * (x**2 + r * x + r**2 + c)
    return _growth_time(step, xi, s, x0, r, c), speed


def _search_growth(time: jax.Array, *rest: jax.Array) -> jax.Array:
    """Return xi with T(xi) = time, by bisection; rest: s, delta, x0, r, c."""
    s, _, _, r, c = rest
    # T is increasing and concave in xi, which brackets the root between two chords; they can be
    # 1e30 apart, so the bisection is in ln xi.
    tiny = jnp.finfo(time.dtype).tiny
    lowest = jnp.maximum(0.9 * time * _growth(jnp.zeros_like(time), *rest)[1], tiny)
    highest = jnp.maximum(1.1 * time * s * (3 * r**2 + c) / r, lowest)

    def halve(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        late = _growth(jnp.exp(middle), *rest)[0] > time
        return jnp.where(late, low, middle), jnp.where(late, middle, high)

    low, high = jax.lax.fori_loop(0, 64, halve, (jnp.log(lowest), jnp.log(highest)))
    return jnp.where(time > 0, jnp.exp((low + high) / 2), 0.0)


_growth_root = implicit_root(_search_growth, _growth)


def _grow(
    time: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    """Return x(T) for 0 <= x0 <= r, s > 0, delta > 0, x0^2 + c > 0."""
    r = _attractor(s, delta, c)
    xi = _growth_root(time, s, delta, x0, r, c)
    return x0 + (r - x0) * -jnp.expm1(-xi)


def _decay_rate(
    gap: jax.Array, target: jax.Array, s: jax.Array, delta: jax.Array, c: jax.Array
) -> jax.Array:
    """Return dT/dzeta at y = target + gap, with the factor that cancels left out."""
    y = target + gap
    # y^2 + c without cancellation near the target, which is sqrt(-c) if s <= 0 and c < 0.
    area = gap * (y + target) + jnp.where((s <= 0) & (c < 0), 0.0, target**2 + c)
    force = delta * y * area - s
    aligned = delta * area * (y**2 + target * y + target**2 + c)
    against = jnp.where(c < 0, y + target, area) * force
    return ratio(jnp.where((s <= 0) & (c >= 0), y, 1.0), jnp.where(s > 0, aligned, against))


def _integrate(
    low: jax.Array, high: jax.Array, panels: int, start: jax.Array, *rest: jax.Array
) -> jax.Array:
    """Return the time from zeta = low to high, by a composite Gauss-Legendre rule."""
    nodes = at_nodes((np.arange(panels)[:, None] + NODES).ravel() / panels, low)
    weights = jnp.asarray(np.tile(WEIGHTS, panels) / panels, low.dtype)
    z = low[..., None] + (high - low)[..., None] * nodes
    rate = _decay_rate(start[..., None] * jnp.exp(-z), *(value[..., None] for value in rest))
    return (high - low) * (rate @ weights)


def _decay_time(zeta: jax.Array, y0: jax.Array, target: jax.Array, *rest: jax.Array) -> jax.Array:
    """Return T(zeta), where ``zeta = ln((y0 - target)/(y - target))``; rest: s, delta, c."""
    panels = _panels(zeta.dtype)
    held = jnp.minimum(zeta, panels)
    total = _integrate(jnp.zeros_like(held), held, panels, y0 - target, target, *rest)
    # Beyond the table the rate is constant, or what is left of the decay is below rounding.
    last = _decay_rate((y0 - target) * jnp.exp(-held), target, *rest)
    return total + (zeta - held) * last


def _search_decay(time: jax.Array, y0: jax.Array, target: jax.Array, *rest: jax.Array) -> jax.Array:
    """Return zeta with T(zeta) = time, from a table of panels; rest: s, delta, c."""

    def panel(low: jax.Array, high: jax.Array) -> jax.Array:
        return _integrate(low, high, 1, y0 - target, target, *rest)

    def march(edge: Any, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        start, past = now
        after = past + panel(start, start + 1)
        inside = (start == edge) & (after <= time)
        return jnp.where(inside, start + 1, start), jnp.where(inside, after, past)

    zero, panels = jnp.zeros_like(time), _panels(time.dtype)
    start, past = jax.lax.fori_loop(0, panels, march, (zero, zero))

    def halve(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        late = past + panel(start, middle) > time
        return jnp.where(late, low, middle), jnp.where(late, middle, high)

    low, high = jax.lax.fori_loop(0, 30, halve, (start, start + 1))
    last = _decay_rate((y0 - target) * math.exp(-panels), target, *rest)
    zeta = jnp.where(start >= panels, panels + (time - past) / last, (low + high) / 2)
    return jnp.where(time > 0, zeta, 0.0)


def _decay_curve(
    zeta: jax.Array, y0: jax.Array, target: jax.Array, *rest: jax.Array
) -> tuple[jax.Array, jax.Array]:
    # Held as in `_decay_time`: at the distance itself, which is 0 in the end, the rate is 0/0.
    held = jnp.minimum(zeta, _panels(zeta.dtype))
    rate = _decay_rate((y0 - target) * jnp.exp(-held), target, *rest)
    return _decay_time(zeta, y0, target, *rest), 1 / rate


_decay_root = implicit_root(_search_decay, _decay_curve)


def _decay(time: jax.Array, y0: jax.Array, target: jax.Array, *rest: jax.Array) -> jax.Array:
    """Return y(T) for a start y0 above its target; rest: s, delta, c."""
    return target + (y0 - target) * jnp.exp(-_decay_root(time, y0, target, *rest))


def _unsaturated_time(
    x: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    """Return T for delta = 0, with the first two derivatives in delta."""
    quintic = (x**5 - x0**5) / 5 + c * (x**3 - x0**3) / 3
    saturation = delta * (x**2 - x0**2) / (2 * s**2) + delta**2 * quintic / s**3
    return arc_integral(x - x0, x0, c) / s + saturation


def _unsaturated_curve(
    x: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> tuple[jax.Array, jax.Array]:
    slope = 1 / (s * (x**2 + c)) + delta * x / s**2 + delta**2 * x**2 * (x**2 + c) / s**3
    return _unsaturated_time(x, s, delta, x0, c), 1 / slope


def _search_unsaturated(time: jax.Array, *rest: jax.Array) -> jax.Array:
    s, _, x0, c = rest
    root = jnp.sqrt(jnp.where(c == 0, 1.0, jnp.abs(c)))
    angle = root * s * time
    tangent = jnp.where(c > 0, jnp.tan(angle), jnp.tanh(angle)) / root
    v = jnp.where(c == 0, s * time, tangent)
    return (x0 + c * v) / (1 - v * x0)


_unsaturated_root = implicit_root(_search_unsaturated, _unsaturated_curve)


def _unsaturated(
    time: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    """Return x(T) for delta = 0, with its first two derivatives in delta; inf once it diverged."""
    # x diverges at T = (1/s) int_x0^inf du/(u^2 + c), that is when 1 - v x0 crosses 0 in the
    # addition theorem above.
    root = jnp.sqrt(jnp.where(c == 0, 1.0, jnp.abs(jax.lax.stop_gradient(c))))
    far = x0 / root
    circle, area = jnp.arctan2(1.0, far), jnp.arctanh(1 / jnp.where(far > 1, far, 2.0))
    last = jnp.where(c > 0, circle, jnp.where(far > 1, area, jnp.inf)) / root
    last = jnp.where(c == 0, 1 / jnp.where(x0 > 0, x0, 1.0), last)
    finite = jax.lax.stop_gradient(s * time) < last
    x = _unsaturated_root(jnp.where(finite, time, 0.0), s, delta, x0, c)
    return jnp.where(finite, x, jnp.inf)


class _Regime(NamedTuple):
    """What happens from a given start, in the mirrored frame where the start y0 is not negative."""

    mirror: jax.Array
    y0: jax.Array
    s: jax.Array
    c: jax.Array
    target: jax.Array  # r if s > 0, else where the decay against s ends
    valid: jax.Array  # delta >= 0 and y0^2 + c >= 0
    still: jax.Array  # y0^2 + c = 0, or no force at all: nothing moves
    origin: jax.Array  # y0 = 0 and s = 0
    grows: jax.Array
    open: jax.Array  # growth without saturation (delta = 0)
    decays: jax.Array


def _regime(s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array) -> _Regime:
    mirror = jnp.where((x0 < 0) | ((x0 == 0) & (s < 0)), -1.0, 1.0)
    y0, s = mirror * x0, mirror * s
    area = y0**2 + c
    valid = (delta >= 0) & (area >= -8 * jnp.finfo(area.dtype).eps * y0**2)
    origin = valid & (area > 0) & (y0 == 0) & (s == 0)
    still = (area <= 0) | ((s == 0) & (delta == 0))
    moves = valid & ~still & ~origin
    saturating = moves & (s > 0) & (delta > 0)
    r = _attractor(*(jnp.where(saturating, value, 1.0) for value in (s, delta, c)))
    low = jnp.where(c < 0, jnp.sqrt(jnp.where(c < 0, -c, 1.0)), 0.0)
    grows = saturating & (y0 <= r)
    return _Regime(
        mirror=mirror,
        y0=y0,
        s=s,
        c=c,
        target=jnp.where(saturating, r, low),
        valid=valid,
        still=still,
        origin=origin,
        grows=grows,
        open=moves & (s > 0) & (delta == 0),
        decays=moves & ((s <= 0) | (saturating & ~grows)),
    )


def _decay_arguments(now: _Regime, delta: jax.Array) -> tuple[jax.Array, ...]:
    """Return y0, target, s, delta, c where the mode decays, and a harmless decay elsewhere."""
    wanted = (now.y0, now.target, now.s, delta, now.c)
    harmless = (1.0, 0.0, -1.0, 1.0, 1.0)
    return tuple(jnp.where(now.decays, *pair) for pair in zip(wanted, harmless, strict=True))


@jax.jit
def solve_separable(
    time: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    """Return x(T) from x(0) = x0; NaN for T < 0, delta < 0 or x0^2 + c < 0."""
    now = _regime(s, delta, x0, c)
    falling = _decay_arguments(now, delta)
    to_zero = _decay_time(jnp.full_like(time, _panels(time.dtype)), *falling)
    crosses = now.decays & (now.s < 0) & (c > 0) & (time > to_zero)
    after = jnp.where(crosses, time - to_zero, time)
    force, start = jnp.where(crosses, -now.s, now.s), jnp.where(crosses, 0.0, now.y0)
    past = jnp.where(now.decays & ~crosses, time, 0.0)
    fallen = _decay(past, *falling)

    def pick(use: jax.Array) -> list[jax.Array]:
        """Return the arguments of growth where ``use``, and a harmless growth elsewhere."""
        wanted = (after, force, delta, start, c)
        harmless = (0.0, 1.0, 1.0, 0.5, 1.0)
        return [jnp.where(use, *pair) for pair in zip(wanted, harmless, strict=True)]

    grown = _grow(*pick(now.grows | (crosses & (delta > 0))))
    open_ = now.open | (crosses & (delta == 0))
    unbounded = _unsaturated(*pick(open_))
    area = now.y0**2 + c
    # To first order in what is 0 here, so that the derivatives are right.
    resting = now.y0 + time * area * (now.s - delta * now.y0 * area)
    fade = jnp.where(now.origin, delta * c**2, 0.0)
    held = jnp.where(now.origin, c, 0.0)
    pushed = now.y0 * jnp.exp(-fade * time) + now.s * held * decay_integral(time, fade)

    y = jnp.where(crosses, -jnp.where(open_, unbounded, grown), fallen)
    y = jnp.where(now.grows, grown, jnp.where(now.open, unbounded, y))
    y = jnp.where(now.still, resting, jnp.where(now.origin, pushed, y))
    return jnp.where(now.valid & (time >= 0), now.mirror * y, jnp.nan)


@jax.jit
def time_separable(
    x: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    """Return the time T at which ``solve_separable`` is at x; inf where it never is."""
    now = _regime(s, delta, x0, c)
    y = now.mirror * x
    allowed = now.valid & (y**2 + c > 0) & ((c > 0) | (y > 0))

    falls = now.decays & allowed & (y > now.target)
    falling = _decay_arguments(now, delta)
    gap = jnp.where(falls, y - now.target, 1.0)
    zeta = jnp.log(jnp.where(falls, now.y0 - now.target, 1.0)) - jnp.log(gap)
    fallen = _decay_time(zeta, *falling)

    crosses = now.decays & (now.s < 0) & (c > 0) & (y <= 0)
    to_zero = _decay_time(jnp.full_like(zeta, _panels(zeta.dtype)), *falling)
    force, start = jnp.where(crosses, -now.s, now.s), jnp.where(crosses, 0.0, now.y0)
    end = jnp.where(crosses, -y, y)
    grows = (now.grows | (crosses & (delta > 0))) & allowed
    wanted, harmless = (force, delta, start, c, end), (1.0, 1.0, 0.25, 1.0, 0.25)
    up = [jnp.where(grows, *pair) for pair in zip(wanted, harmless, strict=True)]
    r = _attractor(up[0], up[1], up[3])
    inside = up[4] < r
    step = jnp.where(inside, up[4] - up[2], 0.0)
    xi = -jnp.log1p(-ratio(step, jnp.where(inside, r - up[2], 1.0)))
    grown = _growth_time(step, xi, up[0], up[2], r, up[3])
    open_ = (now.open | (crosses & (delta == 0))) & allowed
    free = [jnp.where(open_, *pair) for pair in zip(wanted, harmless, strict=True)]
    unbounded = _unsaturated_time(free[4], free[0], free[1], free[2], free[3])

    offset = jnp.where(crosses, to_zero, 0.0)
    time = jnp.where(falls, fallen, jnp.inf)
    time = jnp.where(grows & inside, offset + grown, time)
    time = jnp.where(open_, offset + unbounded, time)
    return jnp.where(now.valid, jnp.where(x == x0, 0.0, time), jnp.nan)
