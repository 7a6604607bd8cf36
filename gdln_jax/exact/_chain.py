r"""One mode of a deep linear chain: learning curve at any depth, folds under decay, curvature.

A mode has strength s in Sigma^yx and input variance d; the product of its L weights is a, its loss
d/2 (a - s/d)^2. A balanced chain obeys tau a' = L a^(2 - 2/L) (s - d a) (theory#chains,
theory#curvature).
"""

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax.exact._calculus import as_floats, bisect, implicit_root, scaled_time
from gdln_jax.exact._modes import linear_mode


def chain_mode_time(
    a: ArrayLike, s: ArrayLike, d: ArrayLike, a0: ArrayLike, depth: int, tau: ArrayLike = 1.0
) -> Float[Array, "..."]:
    r"""Return the time at which a balanced chain has the mode at `a` (theory#chains).

    With $p = s/d$ and $y = (a/p)^{1/L}$ it is $\tau p^{2/L-1}/s$ times the change of $y^{2-L}/(2-L)
    + F_L(y)$ (for L = 2: $\ln y + F_2(y)$), $F_L = \int z/(1 - z^L)$ in logarithms of $1 - y/w_k$,
    $w_k^L = 1$. All arguments but `depth` are broadcast and may be differentiated.

    Args:
        a: product of weights, above 0.
        s: strength of the mode in Sigma^yx, above 0.
        d: variance of the input along the mode, above 0.
        a0: product at t = 0, above 0; above s/d the mode falls.
        depth: number L of layers, at least 1.
        tau: time constant.

    Returns:
        Time in the units of `tau`; negative where a was passed before t = 0, inf where it is never
        reached (s/d, and beyond). NaN for s, d, a or a0 that are not above 0.
    """
    depth = check_integer(depth, "depth", minimum=1)
    return _chain_mode_time(depth, *as_floats(a, s, d, a0, tau=tau))


@functools.partial(jax.jit, static_argnums=0)
def _chain_mode_time(depth: int, a: Array, s: Array, d: Array, a0: Array, tau: Array) -> Array:
    good = (a > 0) & (a0 > 0) & (s > 0) & (d > 0)
    a, a0, s, d = (jnp.where(good, x, y) for x, y in ((a, 1.0), (a0, 1.0), (s, 2.0), (d, 1.0)))
    gap, gap0 = s - d * a, s - d * a0
    reached = gap * gap0 > 0
    safe, safe0 = (jnp.where(reached, x, s / 2) for x in (gap, gap0))
    stop, start = (_clock(depth, g / s, jnp.log(jnp.abs(g / s))) for g in (safe, safe0))
    time = tau * _unit(depth, s, d) * (stop - start)
    time = jnp.where(a == a0, 0.0, jnp.where(reached, time, jnp.inf))
    return jnp.where(good, time, jnp.nan)


def chain_mode(
    t: ArrayLike, s: ArrayLike, d: ArrayLike, a0: ArrayLike, depth: int, tau: ArrayLike = 1.0
) -> Float[Array, "..."]:
    r"""Return the product a(t) of the weights of one mode in a balanced chain of `depth` layers.

    The inverse of `chain_mode_time`. For two layers it is `linear_mode`.

    Args:
        t: time of at least 0, in the units of `tau`; inf gives s/d.
        s: strength of the mode, above 0.
        d: variance of the input along the mode, above 0.
        a0: a(0), above 0, on either side of s/d.
        depth: number L of layers, at least 1.
        tau: time constant.

    Returns:
        Array of the broadcast shape; NaN outside the ranges above.
    """
    depth = check_integer(depth, "depth", minimum=1)
    return _chain_mode(depth, *as_floats(t, s, d, a0, tau=tau))


@functools.partial(jax.jit, static_argnums=0)
def _chain_mode(depth: int, t: Array, s: Array, d: Array, a0: Array, tau: Array) -> Array:
    good = (t >= 0) & (a0 > 0) & (s > 0) & (d > 0)
    t, a0, s, d = (jnp.where(good, x, y) for x, y in ((t, 0.0), (a0, 1.0), (s, 2.0), (d, 1.0)))
    p = s / d
    if depth == 1:
        a = p + (a0 - p) * jnp.exp(-d * scaled_time(t, tau))
    elif depth == 2:
        a = linear_mode(t, s, d, a0, tau)
    else:
        there = a0 == p
        start = jnp.where(there, p / 2, a0)
        # Far beyond the learning of the mode nothing changes.
        time = jnp.minimum(t / tau, 1e4 * _unit(depth, s, d) * (1 + (start / p) ** (2 / depth - 1)))
        q = _logit_at(depth)(time, s, d, start)
        a = jnp.where(there, p, p / (1 + jnp.where(start < p, 1.0, -1.0) * jnp.exp(-q)))
    return jnp.where(good, a, jnp.nan)


def _unit(depth: int, s: Array, d: Array) -> Array:
    return (s / d) ** (2 / depth - 1) / s


def _clock(depth: int, gap: Array, log_gap: Array) -> Array:
    """Time in units of `_unit`, up to a constant, at gap = 1 - a/p with log_gap = ln |gap|."""
    y = (1 - gap) ** (1 / depth)
    # 1 - y^L over 1 - y is the sum of powers of y: no cancellation near y = 1.
    log_rest = log_gap - jnp.log(sum((y**k for k in range(1, depth)), jnp.ones_like(y)))
    if depth == 1:
        return -log_rest
    total = log_rest
    for k in range(1, depth):
        angle = 2 * np.pi * k / depth
        c, sine = np.cos(angle), np.sin(angle)
        modulus = 0.5 * jnp.log1p(y * (y - 2 * c))
        total += np.cos(2 * angle) * modulus
        total -= np.sin(2 * angle) * jnp.arctan2(y * sine, 1 - y * c)
    first = jnp.log(y) if depth == 2 else -(y ** (2 - depth)) / (depth - 2)
    return first - total / depth


@functools.cache
def _logit_at(depth: int):
    """Root in q = ln(a/|p - a|) of the time since a0, in units of tau; dq/dt = L s a^(1 - 2/L)."""

    def curve(q: Array, s: Array, d: Array, a0: Array) -> tuple[Array, Array]:
        p = s / d
        side = jnp.where(a0 < p, 1.0, -1.0)
        fade = jnp.exp(-q)
        gap = side * fade / (1 + side * fade)
        gap0 = (p - a0) / p
        now = _clock(depth, gap, -q - jnp.log1p(side * fade))
        then = _clock(depth, gap0, jnp.log(jnp.abs(gap0)))
        a = p / (1 + side * fade)
        return _unit(depth, s, d) * (now - then), depth * s * a ** (1 - 2 / depth)

    def search(time: Array, s: Array, d: Array, a0: Array) -> Array:
        p = s / d
        q0 = jnp.log(a0) - jnp.log(jnp.abs(p - a0))
        ends = [q0 + depth * s * a ** (1 - 2 / depth) * time for a in (a0, p)]
        return bisect(lambda q: curve(q, s, d, a0)[0], time, jnp.minimum(*ends), jnp.maximum(*ends))

    return implicit_root(search, curve)


def decay_fold(
    s: ArrayLike, d: ArrayLike, depth: int
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Return the largest weight decay at which a balanced chain of 3 or more layers keeps a mode.

    With decay lambda in the flow a nonzero solution exists up to $\lambda^* = a^{*\,1-2/L} s L/(2L
    - 2)$, where its product is $a^* = (L-2) s/((2L-2) d)$: a fold. Below it the smaller of two
    solutions is the threshold that the start must exceed.

    Returns:
        (decay, product) at the fold.

    Raises:
        ValueError: for a depth below 3; two layers have none, the mode is lost at decay s.
    """
    depth = check_integer(depth, "depth", minimum=3)
    s, d = as_floats(s, d)
    product = (depth - 2) * s / ((2 * depth - 2) * d)
    return product ** (1 - 2 / depth) * s * depth / (2 * depth - 2), product


def chain_sharpness(
    b: Float[Numbers, "layer mode"],
    s: ArrayLike,
    d: ArrayLike,
    *,
    widths: Sequence[int] | None = None,
    empty_variance: ArrayLike = 0.0,
) -> tuple[Float[Array, " reduced"], Float[Array, " normal"]]:
    """Return the eigenvalues of the Hessian of an aligned chain, on the manifold and normal to it.

    The Hessian falls into one block per mode (reduced), and one per pair of directions of the nodes
    (normal; theory#curvature). A direction is a mode, or an empty one that carries none.

    Args:
        b: strengths (layer, mode), first layer first.
        s: strength of each mode in Sigma^yx, (mode,) or a number.
        d: variance of the input along each mode.
        widths: of the nodes, input first, layer + 1 of them. None: no empty directions.
        empty_variance: variance of the input along its empty directions.

    Returns:
        (reduced, normal), both ascending; together all eigenvalues of the full Hessian.

    Raises:
        ValueError: for a b that is not (layer, mode), or widths that do not fit it.
    """
    (b,) = as_floats(b)
    if b.ndim != 2:
        raise ValueError(f"b has shape {b.shape}; give (layer, mode).")
    layers, modes = b.shape
    nodes = [modes] * (layers + 1) if widths is None else [int(width) for width in widths]
    if len(nodes) != layers + 1 or min(nodes) < modes:
        raise ValueError(
            f"widths is {nodes}; give one width of at least {modes} (the modes) for each of the "
            f"{layers + 1} nodes."
        )
    s, d = (jnp.broadcast_to(jnp.asarray(x, b.dtype), (modes,)) for x in (s, d))
    return _chain_sharpness(tuple(nodes), b, s, d, jnp.asarray(empty_variance, b.dtype))


@functools.partial(jax.jit, static_argnums=0)
def _chain_sharpness(
    nodes: tuple[int, ...], b: Array, s: Array, d: Array, empty_variance: Array
) -> tuple[Array, Array]:
    layers, modes = b.shape
    reduced = jnp.sort(jnp.linalg.eigvalsh(_mode_blocks(b, s, d)).ravel())

    empty = max(nodes) - modes
    b, s = jnp.pad(b, ((0, 0), (0, empty))), jnp.pad(s, (0, empty))
    variances = jnp.where(np.arange(modes, max(nodes)) < nodes[0], empty_variance, 0.0)
    d = jnp.concatenate([d, variances])
    # Pairs of directions by which of their entries exist: blocks of one size at a time.
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for j, i in itertools.combinations(range(max(nodes)), 2):
        down = [k for k in range(layers) if i < nodes[k + 1] and j < nodes[k]]
        up = [layers + k for k in range(layers) if j < nodes[k + 1] and i < nodes[k]]
        if down or up:
            groups.setdefault((*down, *up), []).append((i, j))
    parts = [
        jnp.linalg.eigvalsh(
            _pair_blocks(b, s, d, np.array(pairs))[:, np.array(kept)][:, :, np.array(kept)]
        ).ravel()
        for kept, pairs in groups.items()
    ]
    for i in range(modes, max(nodes)):
        there = sum(i < min(nodes[k], nodes[k + 1]) for k in range(layers))
        parts.append(jnp.full(there, d[i] if layers == 1 else 0.0))
    return reduced, jnp.sort(jnp.concatenate([jnp.zeros(0, b.dtype), *parts]))


def _without(b: Array, *layers: int) -> Array:
    """Product over all layers but some."""
    kept = [k for k in range(len(b)) if k not in layers]
    return jnp.prod(b[np.array(kept, int)], axis=0)


def _mode_blocks(b: Array, s: Array, d: Array) -> Array:
    """Hessian (mode, layer, layer) of d/2 (prod b - s/d)^2 per mode."""
    residual = d * jnp.prod(b, axis=0) - s
    layers = range(len(b))
    slope = jnp.stack([_without(b, k) for k in layers])
    rows = [
        jnp.stack([jnp.zeros_like(s) if k == m else residual * _without(b, k, m) for m in layers])
        for k in layers
    ]
    return jnp.moveaxis(d * slope[:, None] * slope[None] + jnp.stack(rows), -1, 0)


def _pair_blocks(b: Array, s: Array, d: Array, pairs: np.ndarray) -> Array:
    """Blocks (pair, 2 layer, 2 layer) of the entries X_l[i, j], then X_l[j, i], per pair (i, j)."""
    residual = d * jnp.prod(b, axis=0) - s
    (bi, bj), (di, dj), (ri, rj) = (
        (x[..., pairs[:, 0]], x[..., pairs[:, 1]]) for x in (b, d, residual)
    )
    layers = range(len(b))

    def product(x: Array, low: int, high: int | None) -> Array:
        return jnp.prod(x[low:high], axis=0)

    def cross(k: int, m: int) -> Array:
        """Second derivative by X_k[i, j] and X_m[j, i]."""
        if k == m:
            return jnp.zeros_like(ri)
        if k > m:
            return ri * product(bi, k + 1, None) * product(bj, m + 1, k) * product(bi, 0, m)
        return rj * product(bj, m + 1, None) * product(bi, k + 1, m) * product(bj, 0, k)

    down = jnp.stack([product(bi, k + 1, None) * product(bj, 0, k) for k in layers])
    up = jnp.stack([product(bj, k + 1, None) * product(bi, 0, k) for k in layers])
    corner = jnp.stack([jnp.stack([cross(k, m) for m in layers]) for k in layers])
    top = jnp.concatenate([dj * down[:, None] * down[None], corner], axis=1)
    bottom = jnp.concatenate([jnp.swapaxes(corner, 0, 1), di * up[:, None] * up[None]], axis=1)
    return jnp.moveaxis(jnp.concatenate([top, bottom]), -1, 0)
