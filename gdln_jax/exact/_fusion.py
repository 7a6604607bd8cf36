r"""Times at which two modalities are learned, by where their pathways fuse (theory#fusion).

Zhang, Latham and Saxe 2024 (arXiv 2312.00935), with the sign flip corrected: where what is left of
B, s_B - s_A d_AB/d_A, has the sign opposite to s_B, the direction that is needed next decays while
A is learned, so that the distance grows with s_A + s_B and not with s_A - s_B.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike
from gdln_jax.exact._calculus import as_floats, at_nodes, composite_rule
from gdln_jax.exact._unbalanced import chain_blow_up, chain_grown

_PANELS = 64
_DEEP = 40.0  # e-folds of an integrand that are followed


def fusion_times(
    eps: ArrayLike,
    s_a: ArrayLike,
    s_b: ArrayLike,
    d_a: ArrayLike,
    d_b: ArrayLike,
    d_ab: ArrayLike,
    *,
    depth: int,
    fusion: int,
    c: ArrayLike = 1.0,
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Return the times at which two modalities are learned, to leading order in the initial scale.

    A is first where $s_A > s_B$, whatever lowers the loss more. With $\tilde s = s_B - s_A
    d_{AB}/d_A$, $k = s_B/s_A$ and $u_A = (s_A/d_A)^{1/L}$, for two separate layers

    $t_B - t_A = (1 - k) \ln(1/\varepsilon) / (\tilde s u_A^{L-2})$, and for more of them
    $(1 - k) \varepsilon^{2-L_f} / ((L_f - 2) \tilde s u_A^{L-L_f})$.

    For two layers it is $(s_A + s_B) \ln(1/\varepsilon) / (s_A |\tilde s|)$ where the sign flips.

    Args:
        eps: initial scale: strengths start at eps c, those of shared layers at sqrt(2) eps c.
        s_a, s_b: strengths of the modalities, above 0.
        d_a, d_b: their variances.
        d_ab: their covariance.
        depth: number L of layers.
        fusion: number L_f of separate layers; 1 is early fusion, for two layers only, L late.
        c: one number, or for late fusion (2, L), the start of A's and B's layers.

    Returns:
        (t_A, t_B) in units of tau. Early fusion learns both at once. NaN where B is never learned:
        nothing is left of it, or the sign flips and its layers start equal in size.

    Raises:
        ValueError: a fusion outside of 1 to depth, early fusion of a deeper network, or a `c` of
            another shape.
    """
    depth = check_integer(depth, "depth", minimum=2)
    fusion = check_integer(fusion, "fusion", minimum=1)
    start = jnp.asarray(c, jnp.result_type(float))
    if fusion > depth or (fusion == 1 and depth > 2):
        raise ValueError(
            f"fusion is {fusion} of {depth} layers; give 2 to {depth}, or 1 for two layers."
        )
    if start.shape not in ((), (2, depth)) or (start.ndim and fusion != depth):
        raise ValueError(
            f"c has shape {start.shape}; give one number, or for late fusion (2, {depth})."
        )
    values = as_floats(eps, s_a, s_b, d_a, d_b, d_ab)
    return _fusion_times(depth, fusion, start, *values)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _fusion_times(
    depth: int,
    fusion: int,
    c: Array,
    eps: Array,
    s_a: Array,
    s_b: Array,
    d_a: Array,
    d_b: Array,
    d_ab: Array,
) -> tuple[Array, Array]:
    good = (s_a > 0) & (s_b > 0) & (d_a > 0) & (d_b > 0) & (eps > 0)
    if fusion == 1:
        both = -jnp.log(eps * (1.0 if c.ndim else c)) / jnp.hypot(s_a, s_b)
        return jnp.where(good, both, jnp.nan), jnp.where(good, both, jnp.nan)
    swap = s_b > s_a
    big, small = jnp.maximum(s_a, s_b), jnp.minimum(s_a, s_b)
    variance = jnp.where(swap, d_b, d_a)
    rest = small - big * d_ab / variance
    if c.ndim == 0:
        first, gap = _balanced(depth, fusion, eps * c, big, small, variance, rest)
    else:
        of_big = jnp.where(swap[..., None], c[1], c[0])
        of_small = jnp.where(swap[..., None], c[0], c[1])
        first, gap = _late(depth, eps, big, small, rest, of_big, of_small)
    second = first + jnp.where(jnp.isfinite(gap), gap, jnp.nan)
    t_a, t_b = jnp.where(swap, second, first), jnp.where(swap, first, second)
    return jnp.where(good, t_a, jnp.nan), jnp.where(good, t_b, jnp.nan)


def _balanced(
    depth: int, fusion: int, eps: Array, big: Array, small: Array, variance: Array, rest: Array
) -> tuple[Array, Array]:
    """t_A and t_B - t_A where all layers start equal: a flipped sign is never learned."""
    k = small / big
    learned = jnp.where(rest > 0, rest, jnp.nan)
    shared = (big / variance) ** ((depth - fusion) / depth)
    if depth == 2:
        return -jnp.log(eps) / big, -(1 - k) * jnp.log(eps) / learned
    first = _integral(depth, fusion, k) * eps ** (2 - depth) / big
    if fusion == 2:
        return first, -(1 - k) * jnp.log(eps) / (learned * shared)
    return first, (1 - k) * eps ** (2 - fusion) / ((fusion - 2) * learned * shared)


def _integral(depth: int, fusion: int, k: Array) -> Array:
    """I(L, L_f), in the logarithm y of x."""
    nodes, weights = composite_rule(_PANELS)
    span = _DEEP / (depth - 2)
    y, k = span * at_nodes(nodes, k), k[..., None]
    if fusion == 2:
        bracket = 1 + jnp.exp(2 * (k - 1) * y)
    else:
        bracket = 1 + (k + (1 - k) * jnp.exp((fusion - 2) * y)) ** (2 / (2 - fusion))
    values = jnp.exp((2 - depth) * y) * bracket ** ((fusion - depth) / 2)
    return span * (values @ jnp.asarray(weights, k.dtype))


def _late(
    depth: int, eps: Array, big: Array, small: Array, rest: Array, a: Array, b: Array
) -> tuple[Array, Array]:
    """t_A and t_B - t_A of separate chains from a and b (..., layer)."""
    if depth == 2:
        needed = b[..., 0] + jnp.sign(rest) * b[..., 1]
        flips = jnp.where(rest > 0, -1.0, 1.0)
        gap = -(1 + flips * small / big) * jnp.log(eps) / jnp.abs(rest)
        same = jnp.abs(needed) <= 1e-12 * jnp.abs(b).max(axis=-1)
        return -jnp.log(eps) / big, jnp.where(same, jnp.nan, gap)
    first = chain_blow_up(big, a)
    layers = [jnp.broadcast_to(layer, eps.shape) for layer in jnp.moveaxis(b, -1, 0)]
    grown = jnp.stack(chain_grown(first, small, layers), axis=-1)
    return first * eps ** (2 - depth), chain_blow_up(rest, grown) * eps ** (2 - depth)
