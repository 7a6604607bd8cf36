"""Elementary functions of the closed forms, written so that values and derivatives stay finite.

A closed form that is right on paper is often NaN at 20 half times, or has a value
but no derivative where two formulas meet (s = 0, C = 0). Everything of that kind is dealt with
here once, so that the modules beside this one are plain algebra. `race` shares the quadrature and
the roots.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import DTypeLike

from gdln_jax._checks.types import ArrayLike
from gdln_jax._linalg import ratio

# Gauss-Legendre nodes and weights on [0, 1]. Sixteen nodes integrate every integrand used below
# to better than 1e-16 relative: their nearest complex pole lies on a Bernstein ellipse with
# rho >= 3.4, and rho^-32 < 1e-16.
_LEGENDRE = np.polynomial.legendre.leggauss(16)
NODES: np.ndarray = (_LEGENDRE[0] + 1) / 2
WEIGHTS: np.ndarray = _LEGENDRE[1] / 2


def at_nodes(nodes: np.ndarray, x: jax.Array) -> jax.Array:
    """Return ``nodes`` along a new last axis beside the axes of ``x``, in its precision."""
    return jnp.asarray(nodes, x.dtype).reshape((1,) * x.ndim + (-1,))


def composite_rule(panels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on [0, 1] of the Gauss rule on each of ``panels`` equal parts."""
    nodes = (np.arange(panels)[:, None] + NODES).ravel() / panels
    return nodes, np.tile(WEIGHTS, panels) / panels


Curve = Callable[..., tuple[jax.Array, jax.Array]]


def implicit_root(search: Callable[..., jax.Array], curve: Curve) -> Callable[..., jax.Array]:
    """Return ``root(value, *params)``, the x at which ``curve(x, *params)[0]`` is ``value``.

    ``curve`` returns f(x) and 1/f'(x), elementwise; ``search(value, *params)`` finds the root to a
    few digits, and is neither differentiated nor traced for it. Two Newton steps give the others.
    Derivatives of every order by the implicit function theorem.
    """

    @jax.custom_jvp
    def root(value: jax.Array, *params: jax.Array) -> jax.Array:
        x = search(value, *params)
        for _ in range(2):
            reached, inverse_slope = curve(x, *params)
            x = x - (reached - value) * inverse_slope
        return x

    @root.defjvp
    def _(primals, tangents):
        x = root(*primals)
        (_, inverse_slope), (moved, _) = jax.jvp(
            lambda *params: curve(x, *params), primals[1:], tangents[1:]
        )
        return x, (tangents[0] - moved) * inverse_slope

    return root


def newton(curve: Curve, guess: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a ``search`` for ``implicit_root``: Newton's method from ``guess(value, *params)``.

    Without safeguards: for curves that are monotone and convex or concave in x, of which the steps
    keep one side of the root after at most one of them.
    """

    def search(value: jax.Array, *params: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            x, _, count = state
            reached, inverse_slope = curve(x, *params)
            change = (reached - value) * inverse_slope
            small = 2 * jnp.finfo(x.dtype).eps * jnp.abs(x)
            return x - change, jnp.any(jnp.abs(change) > small), count + 1

        start = (guess(value, *params), jnp.asarray(True), jnp.asarray(0))
        return jax.lax.while_loop(lambda state: state[1] & (state[2] < 100), step, start)[0]

    return search


def bisect(
    rising: Callable[[jax.Array], jax.Array],
    value: jax.Array | float,
    low: jax.Array,
    high: jax.Array,
    halvings: int = 60,
) -> jax.Array:
    """Return x between ``low`` and ``high`` where ``rising(x)`` is ``value``, elementwise.

    Not to be differentiated (`implicit_root` does not).
    """

    def halve(_: jax.Array, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        late = rising(middle) > value
        return jnp.where(late, low, middle), jnp.where(late, middle, high)

    low, high = jax.lax.fori_loop(0, halvings, halve, (low, high))
    return (low + high) / 2


def check_numbers(*values: object) -> None:
    """Raise ``ValueError`` for what is neither a number nor an array. Lists are none in JAX."""
    for value in values:
        if value is None or isinstance(value, list | tuple | str):
            remedy = "pass a number" if value is None or isinstance(value, str) else "pass an array"
            raise ValueError(f"closed forms take numbers and arrays; {value!r} is none: {remedy}.")


def as_floats(*values: ArrayLike, tau: ArrayLike | None = None) -> list[jax.Array]:
    """Return all values as arrays of one floating type and one shape (the broadcast shape).

    ``tau``, if given, is checked and comes last.

    Raises:
        ValueError: for what is neither a number nor an array.
    """
    values = values if tau is None else (*values, tau)
    check_numbers(*values)
    if tau is not None:
        check_tau(tau)
    dtype = jnp.result_type(*values, 1.0)
    return list(jnp.broadcast_arrays(*(jnp.asarray(value, dtype) for value in values)))


def concrete(value: ArrayLike) -> np.ndarray | None:
    """Return the numbers behind ``value``, or ``None`` inside ``jit``, ``vmap`` or ``grad``."""
    return None if isinstance(value, Tracer) else np.asarray(value)


def check_all(
    value: ArrayLike, good: Callable[[np.ndarray], np.ndarray], name: str, wanted: str
) -> None:
    """Raise ``ValueError`` if ``value`` is known and ``good(value)`` fails for an element."""
    numbers = concrete(value)
    if numbers is not None and not np.all(good(numbers)):
        shown = numbers[~np.asarray(good(numbers))].ravel()[0] if numbers.ndim else numbers
        raise ValueError(f"{name} is {shown}; it must be {wanted}.")


def check_tau(tau: ArrayLike) -> None:
    """Raise ``ValueError`` for a known time constant that is not finite and above 0."""
    check_all(tau, lambda x: (x > 0) & np.isfinite(x), "tau", "a finite number above 0")


def longest_time(dtype: DTypeLike) -> float:
    """Return the time, in units of tau, that stands for infinity.

    Its third power is still a finite number, so that three derivatives are finite at t = inf.
    """
    return 0.5 * float(jnp.finfo(dtype).max) ** (1 / 3)


def scaled_time(t: jax.Array, tau: jax.Array) -> jax.Array:
    """Return ``t / tau``, held below ``longest_time``; derivatives beyond it are 0."""
    limit = longest_time(t.dtype)
    return jnp.clip(jnp.clip(t, -limit, limit) / tau, -limit, limit)


@jax.custom_jvp
def growth(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ``h = 1 / (exp(-x) + y)`` and ``w = h exp(-x)``, for real x and y >= 0.

    The logistic in logarithmic form: x is the logarithm of the amplitude without saturation, and
    w in [0, 1] is what is still missing. The derivatives ``dh = h (w dx - h dy)`` and
    ``dw = -w h (y dx + dy)`` are exact, have no cancellation, and hold at every order.
    """
    missing = jnp.exp(-jnp.minimum(x, _largest_exponent(x)))
    h = 1 / (missing + y)
    return h, missing * h


@growth.defjvp
def _(primals, tangents):
    x, y = primals
    dx, dy = tangents
    h, w = growth(x, y)
    held = (x > _largest_exponent(x)) & (y == 0)
    dx, dy = jnp.where(held, 0, dx), jnp.where(held, 0, dy)
    return (h, w), (h * (w * dx - h * dy), -w * (h * (y * dx + dy)))


def _largest_exponent(x: jax.Array) -> jax.Array:
    """Return the x at which ``growth`` is held where nothing saturates it: no float is larger."""
    return jnp.log(jnp.finfo(x.dtype).max) - 2


def decay_integral(t: jax.Array, rate: jax.Array) -> jax.Array:
    """Return the integral of ``exp(-rate u)`` for u from 0 to t, where ``rate * t >= 0``.

    Smooth through rate = 0 and t = 0: below 8 e-foldings by quadrature of the entire integrand,
    above by the formula, whose cancellation is harmless there.
    """
    near = rate * t < 8
    t_near, rate_near = jnp.where(near, t, 0), jnp.where(near, rate, 0)
    exponents = (rate_near * t_near)[..., None] * at_nodes(NODES, t)
    by_quadrature = t_near * (jnp.exp(-exponents) @ jnp.asarray(WEIGHTS, t.dtype))
    t_far, rate_far = jnp.where(near, 1, t), jnp.where(near, 1, rate)
    return jnp.where(near, by_quadrature, -jnp.expm1(-rate_far * t_far) / rate_far)


def mean_reciprocal(q: jax.Array, power: int = 1) -> jax.Array:
    """Return the mean of ``1 / (1 + q u**power)`` over u in [0, 1], where q is at least -1/2."""
    return (1 / (1 + q[..., None] * at_nodes(NODES**power, q))) @ jnp.asarray(WEIGHTS, q.dtype)


def log1p_over(rate: jax.Array, u: jax.Array, logarithm: jax.Array) -> jax.Array:
    """Return ``log(1 + rate u) / rate``, smooth through rate = 0.

    ``logarithm`` is log(1 + rate u) computed by the caller in a form without overflow; it is used
    where rate * u is not small.
    """
    near = jnp.abs(rate * u) < 0.5
    u_near, rate_near = jnp.where(near, u, 0), jnp.where(near, rate, 0)
    rate_far = jnp.where(near, 1, rate)
    return jnp.where(near, u_near * mean_reciprocal(rate_near * u_near), logarithm / rate_far)


def arc_integral(step: jax.Array, start: jax.Array, c: jax.Array) -> jax.Array:
    """Return the integral of ``1 / (u**2 + c)`` for u from ``start`` to ``start + step``.

    The arc tangent for c > 0, the area tangent for c < 0, and -1/u for c = 0, in one function
    that is smooth in c. ``u**2 + c`` must be positive between the limits.
    """
    stop = start + step
    den = c + start * stop
    near = (den > 0) & (jnp.abs(c) * step**2 < 0.25 * den**2)
    v = ratio(jnp.where(near, step, 0), jnp.where(near, den, 1))
    by_series = v * mean_reciprocal(jnp.where(near, c, 0) * v**2, power=2)

    circular, hyperbolic = ~near & (c > 0), ~near & (c < 0)
    root = jnp.sqrt(jnp.where(circular | hyperbolic, jnp.abs(c), 1))
    angle = jnp.arctan2(jnp.where(circular, root * step, 0), jnp.where(circular, den, 1))
    ends = [jnp.where(hyperbolic, end, 2 * root) for end in (start, stop)]
    logs = [jnp.log(ratio(end - root, end + root)) for end in ends]
    area = jnp.where(hyperbolic, (logs[1] - logs[0]) / 2, 0)
    # Otherwise c = 0 and an end at 0: the integral diverges, since nothing moves away from 0.
    never = jnp.where(step == 0, 0.0, jnp.inf)
    by_logarithm = jnp.where(circular, angle, area) / root
    return jnp.where(near, by_series, jnp.where(circular | hyperbolic, by_logarithm, never))
