r"""Chains of any depth from any start (theory#chains), for the fusion of modalities too.

A chain has strengths b_c, each m_c times in the product P and shared by g_c edges: its flow is
$g_c \dot b_c = m_c (P/b_c)(s - d P)$, and $(g_c/m_c) b_c^2 - (g_e/m_e) b_e^2$ is conserved. Let j
have the smallest $(g/m) b(0)^2$. All others keep their signs, only b_j may pass through 0.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax.exact._calculus import (
    as_floats,
    at_nodes,
    bisect,
    check_tau,
    composite_rule,
    implicit_root,
)

_PANELS = 64
_FAR = 200.0  # beyond any z that is reached
_DEEP = 40.0  # e-folds of an integrand that are followed

# (multiplicity, size) of each class.
_Form = tuple[tuple[int, float], ...]
_Path = Callable[[Array], tuple[Array, Array]]


class _Chain(NamedTuple):
    """A chain in the coordinate z of b_j = h sinh z.

    - `k`: what is conserved, `sign`: of the strength, `is_j`: whether it is the smallest, by class.
    - `ratio`: g_j/m_j. `z0`: the start. `turns`: whether b_j may pass through 0.
    """

    form: _Form
    h: Array
    ratio: Array
    k: list[Array]
    sign: list[Array]
    is_j: list[Array]
    z0: Array
    turns: Array

    def at(self, z: Array) -> tuple[Array, Array]:
        """The product P, and dz/dt over s - d P."""
        smallest = self.h * jnp.sinh(z)
        rest = rate = jnp.ones_like(z)
        for (m, g), k, sign, is_j in zip(self.form, self.k, self.sign, self.is_j, strict=True):
            square = (k + self.ratio * smallest**2) * (m / g)
            other = sign * jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (square > 0)
            rest = rest * jnp.where(is_j, smallest, other) ** (m - 1) * jnp.where(is_j, 1.0, other)
            rate = rate * jnp.where(is_j, m / g, 1.0)
        return rest * smallest, rate * rest / (self.h * jnp.cosh(z))

    def time(self, low: Array, high: Array, s: Array, d: Array, at: _Path) -> Array:
        """Integral of |dt/dz| |dz/dx| over x, on the path x -> (z, |dz/dx|)."""
        nodes, weights = composite_rule(_PANELS)
        x = low[..., None] + (high - low)[..., None] * at_nodes(nodes, low)
        z, slope = at(x)
        arrays = jax.tree.map(lambda one: one[..., None], tuple(self)[1:])
        product, rate = _Chain(self.form, *arrays).at(z)
        values = slope / jnp.abs(rate * (s[..., None] - d[..., None] * product))
        return (high - low) * (values @ jnp.asarray(weights, low.dtype))


def _chain(form: _Form, b: Sequence[Array]) -> _Chain:
    """The chain that starts at these strengths, one array per class."""
    sizes = jnp.stack([g / m * x**2 for (m, g), x in zip(form, b, strict=True)])
    index, smallest = jnp.argmin(sizes, axis=0), jnp.min(sizes, axis=0)
    is_j = [index == c for c in range(len(form))]
    k = [jnp.where(here, 0.0, size - smallest) for here, size in zip(is_j, sizes, strict=True)]
    start = jnp.sum(jnp.stack(b) * jnp.stack(is_j), axis=0)
    ratio = jnp.asarray([g / m for m, g in form], start.dtype)[index]
    once = jnp.asarray([m == 1 for m, _ in form])[index]
    least = jnp.min(jnp.where(jnp.stack(is_j), jnp.inf, jnp.stack(k)), axis=0)
    apart = (least > 0) & (least < jnp.inf)
    alone = jnp.where(start == 0, 1.0, jnp.abs(start))
    h = jnp.where(apart, jnp.sqrt(jnp.where(apart, least, 1.0) / ratio), alone)
    h = jax.lax.stop_gradient(h)
    sign = [jnp.sign(x) for x in b]
    return _Chain(form, h, ratio, k, sign, is_j, jnp.arcsinh(start / h), once & (least > 0))


@functools.cache
def _place(form: _Form) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Functions (side P, side, *b) -> z where P rises with side z: by Newton, and by halving."""

    def search(value: Array, side: Array, *b: Array) -> Array:
        chain = _chain(form, b)
        low, high = chain.z0 - _FAR, chain.z0 + _FAR
        # Where b_j cannot pass through 0 it stays on its side.
        low = jnp.where(chain.turns | (chain.z0 <= 0), low, 0.0)
        high = jnp.where(chain.turns | (chain.z0 >= 0), high, 0.0)
        return bisect(lambda z: side * chain.at(z)[0], value, low, high, 80)

    def curve(z: Array, side: Array, *b: Array) -> tuple[Array, Array]:
        value, slope = jax.jvp(lambda z: side * _chain(form, b).at(z)[0], (z,), (jnp.ones_like(z),))
        return value, 1 / jnp.where(slope == 0, 1.0, slope)

    return implicit_root(search, curve), search


def chain_time(
    product: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    b0: Float[Numbers, "*batch cls"],
    *,
    multiplicities: Sequence[int] | None = None,
    sizes: Sequence[float | int] | None = None,
    tau: ArrayLike = 1.0,
) -> Float[Array, "..."]:
    r"""Return the time at which a chain from any b(0) has the given product (theory#chains).

    $t = \tau \int db_j\, g_j / (m_j Q (s - d P))$ with $Q = P/b_j$, over the path of the smallest
    strength. Signs need no case: a wrong product falls to 0, b_j changes its sign, and it grows.
    `chain_mode_time` is the case in which all strengths are equal.

    Args:
        product: of all strengths, each as often as its multiplicity.
        s: strength of the mode.
        d: variance of its input, at least 0.
        b0: strengths at t = 0, (..., class).
        multiplicities: how often each class occurs along a path; default once.
        sizes: number of edges that share the gradient of a class, |class|; default 1.
        tau: time constant.

    Returns:
        Time in the units of `tau`, of the broadcast shape of product, s, d, tau and b0 without its
        last axis. Negative where the product was passed before t = 0, inf where it is never
        reached, as where two smallest strengths are equal in size and the product has the wrong
        sign. NaN for d below 0 and for arguments that are NaN.

    Raises:
        ValueError: multiplicities or sizes that do not fit, or are not above 0.

    Cost: 2,000 evaluations of the product.
    """
    form, b = _form(b0, multiplicities, sizes)
    check_tau(tau)
    return _chain_time(form, *as_floats(product, s, d, tau, *b))


def _form(
    b0: ArrayLike, multiplicities: Sequence[int] | None, sizes: Sequence[float | int] | None
) -> tuple[_Form, list[Array]]:
    """Multiplicities and sizes of the classes, and their strengths."""
    (b,) = as_floats(b0)
    if b.ndim == 0 or b.shape[-1] == 0:
        raise ValueError(f"strengths have shape {b.shape}; give an array (..., class).")
    count = b.shape[-1]
    m = [1] * count if multiplicities is None else list(multiplicities)
    g = [1.0] * count if sizes is None else [float(size) for size in sizes]
    for name, given in (("multiplicities", m), ("sizes", g)):
        if len(given) != count or min(given) <= 0:
            raise ValueError(f"{name} is {given}; give {count} numbers above 0, one per class.")
    counts = [check_integer(k, "multiplicities", minimum=1) for k in m]
    return tuple(zip(counts, g, strict=True)), list(jnp.moveaxis(b, -1, 0))


@functools.partial(jax.jit, static_argnums=0)
def _chain_time(form: _Form, product: Array, s: Array, d: Array, tau: Array, *b: Array) -> Array:
    chain = _chain(form, b)
    start, slope = chain.at(chain.z0)
    gap, gap0 = s - d * product, s - d * start
    side = jnp.sign(slope)
    ahead = side * jnp.sign(gap0)  # the direction in which z moves
    kept = jnp.sign(product) == jnp.sign(start)
    reached = (gap * gap0 > 0) & (side != 0) & (chain.turns | kept)
    root, search = _place(form)
    last = root(side * jnp.where(reached, product, start), side, *b)
    limit = jnp.where(d > 0, s / jnp.where(d > 0, d, 1.0), jnp.sign(s) * jnp.inf)
    end = jax.lax.stop_gradient(search(*jax.lax.stop_gradient((side * limit, side, *b))))
    # Where no limit lies ahead any distant point will do.
    end = jnp.where(ahead * (end - chain.z0) > 0, end, chain.z0 + ahead * _FAR)
    distances = [ahead * (end - z) for z in (chain.z0, last)]
    far = [jnp.maximum(x, 1.0) for x in distances]
    close = [jnp.log(jnp.clip(x, jnp.finfo(s.dtype).tiny, 1.0)) for x in distances]

    linear = _from(end, -ahead)

    def logarithmic(u: Array) -> tuple[Array, Array]:
        return linear(jnp.exp(u))[0], jnp.exp(u)

    time = chain.time(far[1], far[0], s, d, linear)
    time += chain.time(close[1], close[0], s, d, logarithmic)
    time = jnp.where(product == start, 0.0, jnp.where(reached, tau * time, jnp.inf))
    known = (d >= 0) & ~jnp.isnan(product + s + tau + sum(b))
    return jnp.where(known, time, jnp.nan)


def chain_blow_up(
    s: ArrayLike,
    c: Float[Numbers, "*batch cls"],
    *,
    multiplicities: Sequence[int] | None = None,
    sizes: Sequence[float | int] | None = None,
) -> Float[Array, "..."]:
    r"""Return T*, the coefficient of the time of a deep chain from a small start.

    From $b(0) = \varepsilon c$ its mode is learned at $T^* \varepsilon^{2-L}$ as eps goes to 0, L
    the sum of multiplicities: the integral of `chain_time` with d = 0, up to infinity. For routing
    with $C = M c_1^2 - c_2^2 > 0$ it is $M/(s\sqrt C)\,(\pi/2 - \arctan(c_2/\sqrt C))$.

    Args:
        s: strength of the mode.
        c: direction of the start, (..., class).
        multiplicities, sizes: as for `chain_time`.

    Returns:
        T* in units of tau; inf for two layers, and where a wrong sign cannot turn.
    """
    form, b = _form(c, multiplicities, sizes)
    return _chain_blow_up(form, *as_floats(s, *b))


@functools.partial(jax.jit, static_argnums=0)
def _chain_blow_up(form: _Form, s: Array, *b: Array) -> Array:
    chain = _chain(form, b)
    depth = sum(m for m, _ in form)
    if depth < 3:
        return jnp.full_like(s, jnp.inf)
    start, slope = chain.at(chain.z0)
    ahead = jnp.sign(slope) * jnp.sign(s)
    span = _DEEP / (depth - 2) + 2 * jnp.abs(chain.z0) + 4
    time = chain.time(jnp.zeros_like(s), span, s, 0 * s, _from(chain.z0, ahead))
    grows = (ahead != 0) & (chain.turns | (start * s > 0))
    return jnp.where(grows, time, jnp.inf)


def _from(z0: Array, ahead: Array) -> _Path:
    """The path x -> z0 + ahead x."""

    def path(x: Array) -> tuple[Array, Array]:
        return z0[..., None] + ahead[..., None] * x, jnp.ones_like(x)

    return path


def chain_grown(t: ArrayLike, s: ArrayLike, c: Sequence[Array]) -> list[Array]:
    """Strengths at time t of a chain that does not saturate (d = 0), every class once.

    Before its blow-up; c holds one array per class.
    """
    form = tuple((1, 1.0) for _ in c)
    return _grown(form, *as_floats(t, s, *c))


@functools.partial(jax.jit, static_argnums=0)
def _grown(form: _Form, t: Array, s: Array, *c: Array) -> list[Array]:
    chain = _chain(form, c)
    x = _growth(form)(t, s, *c)
    smallest = chain.h * jnp.sinh(chain.z0 + _ahead(chain, s) * x)
    others = [
        sign * jnp.sqrt(jnp.where(here, 1.0, k + smallest**2))
        for k, sign, here in zip(chain.k, chain.sign, chain.is_j, strict=True)
    ]
    return [jnp.where(h, smallest, y) for h, y in zip(chain.is_j, others, strict=True)]


def _ahead(chain: _Chain, s: Array) -> Array:
    return jnp.sign(chain.at(chain.z0)[1]) * jnp.sign(s)


@functools.cache
def _growth(form: _Form) -> Callable[..., Array]:
    """Function (t, s, *c) -> |z - z0| at time t, without saturation."""

    def curve(x: Array, s: Array, *c: Array) -> tuple[Array, Array]:
        chain = _chain(form, c)
        path = _from(chain.z0, _ahead(chain, s))
        z, _ = path(x[..., None])
        time = chain.time(jnp.zeros_like(x), x, s, 0 * s, path)
        return time, jnp.abs(chain.at(z[..., 0])[1] * s)

    def search(t: Array, s: Array, *c: Array) -> Array:
        zero = jnp.zeros_like(t)
        return bisect(lambda x: curve(x, s, *c)[0], t, zero, zero + _PANELS, 50)

    return implicit_root(search, curve)
