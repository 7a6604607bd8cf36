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
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import DTypeLike

from gdln_jax._linalg import ratio
from gdln_jax._progress import is_traced
from gdln_jax.exact._calculus import (
    arc_integral,
    at_nodes,
    bisect,
    composite_rule,
    decay_integral,
    implicit_root,
    newton,
)


def _panels(dtype: DTypeLike) -> int:
    """Return into how many panels of unit width of zeta decay is tabulated.

    The integrand's poles are at least pi/3 off the real axis, so 16 nodes give 1e-16 per panel.
    exp(-64) of the start is below any rounding; in float32 exp(-40) is, whose square is no 0 yet.
    """
    return 64 if jnp.finfo(dtype).bits == 64 else 40


def _cubic(r: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
    slope = 3 * r**2 + c
    return r * (r**2 + c), 1 / jnp.where(slope > 0, slope, 1.0)


def _above_root(h: jax.Array, c: jax.Array) -> jax.Array:
    # From an upper bound Newton's method on this convex function descends monotonically.
    flat = jnp.where(c > 0, h / jnp.where(c > 0, c, 1.0), jnp.inf)
    return jnp.minimum(jnp.cbrt(h), flat) + jnp.sqrt(jnp.maximum(-c, 0.0))


_cubic_root = implicit_root(newton(_cubic, _above_root), _cubic)


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

    def curve(log_xi: jax.Array) -> jax.Array:
        return _growth(jnp.exp(log_xi), *rest)[0]

    log_xi = bisect(curve, time, jnp.log(lowest), jnp.log(highest), 64)
    return jnp.where(time > 0, jnp.exp(log_xi), 0.0)


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
    nodes, weights = composite_rule(panels)
    z = low[..., None] + (high - low)[..., None] * at_nodes(nodes, low)
    rate = _decay_rate(start[..., None] * jnp.exp(-z), *(value[..., None] for value in rest))
    return (high - low) * (rate @ jnp.asarray(weights, low.dtype))


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

    def march(
        edge: jax.Array | int, now: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        start, past = now
        after = past + panel(start, start + 1)
        inside = (start == edge) & (after <= time)
        return jnp.where(inside, start + 1, start), jnp.where(inside, after, past)

    zero, panels = jnp.zeros_like(time), _panels(time.dtype)
    start, past = jax.lax.fori_loop(0, panels, march, (zero, zero))

    within = bisect(lambda zeta: past + panel(start, zeta), time, start, start + 1, 30)
    last = _decay_rate((y0 - target) * math.exp(-panels), target, *rest)
    zeta = jnp.where(start >= panels, panels + (time - past) / last, within)
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


class _Motion(NamedTuple):
    """How x moves from its start, in a frame mirrored such that the start y0 is not negative.

    Where ``valid``, exactly one of the masks from ``still`` to ``decays`` holds.
    """

    mirror: jax.Array  # 1, or -1 where x = -y
    y0: jax.Array
    s: jax.Array  # as y: mirrored
    delta: jax.Array
    c: jax.Array
    target: jax.Array  # the limit of y: r if s > 0, else 0 or sqrt(-c)
    valid: jax.Array  # delta >= 0 and y0^2 + c >= 0
    still: jax.Array  # y0^2 + c = 0, or s = delta = 0: nothing moves
    origin: jax.Array  # y0 = s = 0 < c: nothing moves, but y has derivatives in both
    grows: jax.Array  # s > 0 and y0 <= r: to r
    diverges: jax.Array  # s > 0 and delta = 0: growth without saturation
    decays: jax.Array  # to the target

    @property
    def passes_zero(self) -> jax.Array:
        """Where decay reaches 0 in a finite time and continues as growth with the other sign."""
        return self.decays & (self.s < 0) & (self.c > 0)

    def falling(self) -> list[jax.Array]:
        """Return y0, target, s, delta, c where the mode decays, and a harmless decay elsewhere."""
        wanted = (self.y0, self.target, self.s, self.delta, self.c)
        return _where(self.decays, wanted, (1.0, 0.0, -1.0, 1.0, 1.0))

    def time_to_zero(self) -> jax.Array:
        """Return the time of ``passes_zero``, at which the table of the decay ends."""
        whole_table = jnp.full_like(self.y0, _panels(self.y0.dtype))
        return _decay_time(whole_table, *self.falling())

    def rising(self, passed: jax.Array) -> tuple[jax.Array, ...]:
        """Return s, delta, x0, c of growth, which starts at 0 where the mode ``passed`` 0."""
        force, start = jnp.where(passed, -self.s, self.s), jnp.where(passed, 0.0, self.y0)
        return force, self.delta, start, self.c


def _where(
    mask: jax.Array, wanted: tuple[jax.Array, ...], harmless: tuple[float, ...]
) -> list[jax.Array]:
    """Return ``wanted`` where the mask holds, and arguments with finite derivatives elsewhere."""
    return [jnp.where(mask, *pair) for pair in zip(wanted, harmless, strict=True)]


def _motion(s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array) -> _Motion:
    mirror = jnp.where((x0 < 0) | ((x0 == 0) & (s < 0)), -1.0, 1.0)
    y0, s = mirror * x0, mirror * s
    area = y0**2 + c
    valid = (delta >= 0) & (area >= -8 * jnp.finfo(area.dtype).eps * y0**2)
    origin = valid & (area > 0) & (y0 == 0) & (s == 0)
    still = (area <= 0) | ((s == 0) & (delta == 0))
    moves = valid & ~still & ~origin
    saturates = moves & (s > 0) & (delta > 0)
    r = _attractor(*_where(saturates, (s, delta, c), (1.0, 1.0, 1.0)))
    low = jnp.where(c < 0, jnp.sqrt(jnp.where(c < 0, -c, 1.0)), 0.0)
    grows = saturates & (y0 <= r)
    diverges = moves & (s > 0) & (delta == 0)
    decays = moves & ((s <= 0) | (saturates & ~grows))
    target = jnp.where(saturates, r, low)
    masks = (valid, still, origin, grows, diverges, decays)
    return _Motion(mirror, y0, s, delta, c, target, *masks)


def solve_separable(
    time: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    """Return x(T) from x(0) = x0; NaN for T < 0, delta < 0 or x0^2 + c < 0.

    Where every mode is known to grow, which is most of the use, only growth is compiled: a third.
    """
    rising = not is_traced() and _rises(*map(np.asarray, (s, delta, x0, c)))
    return (_risen if rising else _solved)(time, s, delta, x0, c)


def _rises(s: np.ndarray, delta: np.ndarray, x0: np.ndarray, c: np.ndarray) -> bool:
    """Whether all modes grow from x0 to a limit that they are not close to."""
    force, area = np.where(x0 == 0, np.abs(s), np.sign(x0) * s), x0**2 + c
    return bool(np.all((delta > 0) & (area > 0) & (delta * np.abs(x0) * area < 0.9 * force)))


@jax.jit
def _risen(
    time: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    mirror = jnp.where((x0 < 0) | ((x0 == 0) & (s < 0)), -1.0, 1.0)
    y = _grow(jnp.maximum(time, 0.0), mirror * s, delta, mirror * x0, c)
    return jnp.where(time >= 0, mirror * y, jnp.nan)


@jax.jit
def _solved(
    time: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    """The same for all modes.

    All of decay, growth and rest are computed, each with harmless arguments where it does not
    apply, so that derivatives stay finite; the masks of ``_Motion`` select.
    """
    motion = _motion(s, delta, x0, c)
    to_zero = motion.time_to_zero()
    passed = motion.passes_zero & (time > to_zero)
    fallen = _decay(jnp.where(motion.decays & ~passed, time, 0.0), *motion.falling())

    diverges = motion.diverges | (passed & (delta == 0))
    grows = motion.grows | (passed & (delta > 0))
    growth = (jnp.where(passed, time - to_zero, time), *motion.rising(passed))
    harmless = (0.0, 1.0, 1.0, 0.5, 1.0)
    grown = _grow(*_where(grows, growth, harmless))
    risen = jnp.where(diverges, _unsaturated(*_where(diverges, growth, harmless)), grown)

    y = jnp.select(
        [motion.grows | motion.diverges, passed, motion.still, motion.origin],
        [risen, -risen, _resting(time, motion), _leaving_zero(time, motion)],
        fallen,
    )
    return jnp.where(motion.valid & (time >= 0), motion.mirror * y, jnp.nan)


def _resting(time: jax.Array, at: _Motion) -> jax.Array:
    """Return y0, with the derivatives of y(T) in what is 0 where nothing moves."""
    area = at.y0**2 + at.c
    return at.y0 + time * area * (at.s - at.delta * at.y0 * area)


def _leaving_zero(time: jax.Array, at: _Motion) -> jax.Array:
    """Return y(T) to first order in y0 and s, which are 0: ``y' = c s - delta c^2 y``."""
    fade = jnp.where(at.origin, at.delta * at.c**2, 0.0)
    c = jnp.where(at.origin, at.c, 0.0)
    return at.y0 * jnp.exp(-fade * time) + at.s * c * decay_integral(time, fade)


@jax.jit
def time_separable(
    x: jax.Array, s: jax.Array, delta: jax.Array, x0: jax.Array, c: jax.Array
) -> jax.Array:
    """Return the time T at which ``solve_separable`` is at x; inf where it never is."""
    motion = _motion(s, delta, x0, c)
    y = motion.mirror * x
    allowed = motion.valid & (y**2 + c > 0) & ((c > 0) | (y > 0))

    falls = motion.decays & allowed & (y > motion.target)
    distance, gap = _where(falls, (motion.y0 - motion.target, y - motion.target), (1.0, 1.0))
    fallen = _decay_time(jnp.log(distance) - jnp.log(gap), *motion.falling())

    passed = motion.passes_zero & (y <= 0)
    diverges = (motion.diverges | (passed & (delta == 0))) & allowed
    grows = (motion.grows | (passed & (delta > 0))) & allowed
    growth, harmless = (jnp.where(passed, -y, y), *motion.rising(passed)), (0.5, 1.0, 1.0, 0.5, 1.0)
    end, force, slope, start, shift = _where(grows, growth, harmless)
    r = _attractor(force, slope, shift)
    inside = end < r
    step, left = _where(inside, (end - start, r - start), (0.0, 1.0))
    grown = _growth_time(step, -jnp.log1p(-ratio(step, left)), force, start, r, shift)
    unbounded = _unsaturated_time(*_where(diverges, growth, harmless))

    since = jnp.where(passed, motion.time_to_zero(), 0.0)
    time = jnp.select(
        [diverges, grows & inside, falls], [since + unbounded, since + grown, fallen], jnp.inf
    )
    return jnp.where(motion.valid, jnp.where(x == x0, 0.0, time), jnp.nan)
