r"""Tied linear autoencoders and linear self-supervised learning (theory#autoencoders).

An autoencoder $W^T W x$ with one array W learns eigenvalue lambda of its input covariance as
$a = b^2$, $\tau \dot a = 4 \lambda a (1 - a)$: twice the rate of two layers of their own. For white
inputs the whole course of W is known from any start.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax.exact._calculus import as_floats, scaled_time
from gdln_jax.exact._modes import solve_linear


def autoencoder_mode(
    t: ArrayLike, lam: ArrayLike, a0: ArrayLike, tau: ArrayLike = 1.0
) -> Float[Array, "..."]:
    r"""Return the strength a(t) = b^2 of one principal component of a tied linear autoencoder.

    $a(t) = 1 / (1 + (1/a_0 - 1) e^{-4 \lambda t/\tau})$, for the loss $\frac12 \langle \|x - W^T W
    x\|^2 \rangle$ (theory#autoencoders). Broadcasts; differentiable in every argument.

    Args:
        t: time, in the units of ``tau``.
        lam: eigenvalue of the input covariance, >= 0.
        a0: a(0) >= 0, the square of the singular value of W along the component.
        tau: time constant, > 0.

    Returns:
        Array of the broadcast shape, finite at any time.
    """
    t, lam, a0, tau = as_floats(t, lam, a0, tau=tau)
    return solve_linear(t, 2 * lam, 2 * lam, a0, tau)[0]


def ssl_mode(
    t: ArrayLike, gamma: ArrayLike, a0: ArrayLike, width: ArrayLike, tau: ArrayLike = 1.0
) -> Float[Array, "..."]:
    r"""Return the strength $a(t) = \gamma b^2$ of one mode of linear self-supervised learning.

    $\tau \dot a = \frac{4 \gamma}{k} a (1 - a)$ for the loss $\frac{1}{2k} \|1 - W \Gamma
    W^T\|^2$ of k outputs (linear Barlow Twins; Simon et al., ICML 2023, whose loss is 2 k times
    this one; theory#autoencoders). A negative gamma has a < 0, which decays to 0. Broadcasts.

    Args:
        t: time, in the units of ``tau``.
        gamma: eigenvalue of the correlation of the two views, of either sign.
        a0: a(0), of the sign of ``gamma``.
        width: k, the number of outputs.
        tau: time constant, > 0.

    Returns:
        Array of the broadcast shape, finite at any time.
    """
    t, gamma, a0, width, tau = as_floats(t, gamma, a0, width, tau=tau)
    rate = 2 * jnp.abs(gamma) / width
    return solve_linear(t, rate, rate, a0, tau)[0]


def autoencoder_white(
    t: ArrayLike, w0: Float[Numbers, "width d"], lam: ArrayLike, tau: ArrayLike = 1.0
) -> Float[Array, "*time width d"]:
    r"""Return W(t) of a tied linear autoencoder from any start, for covariance `lam` times 1.

    $W(t) = (1 + (e - 1) W_0 W_0^T)^{-1/2} \sqrt e\, W_0$ with $e = e^{4 \lambda t/\tau}$
    (theory#autoencoders). For inputs that are not white no closed form is known.

    Args:
        t: one time or several, in the units of ``tau``.
        w0: W(0), (width, d).
        lam: variance of the inputs, one number >= 0.
        tau: time constant, one number > 0.

    Returns:
        (width, d), with the axes of ``t`` before. Cost O(width^3) a time.
    """
    t, lam, tau = as_floats(t, lam, tau=tau)
    w0 = jnp.asarray(w0, jnp.result_type(float))
    return _white(scaled_time(t, tau), w0, 4 * lam, jnp.ones_like(lam))


def ssl_white(
    t: ArrayLike, w0: Float[Numbers, "width d"], gamma: ArrayLike, tau: ArrayLike = 1.0
) -> Float[Array, "*time width d"]:
    r"""Return W(t) of linear self-supervised learning from any start, for Gamma = `gamma` times 1.

    As `autoencoder_white` with $\gamma W_0 W_0^T$ for $W_0 W_0^T$ and $e = e^{4 \gamma t/(k
    \tau)}$, k the number of rows of W (theory#autoencoders).

    Args:
        t: one time or several, in the units of ``tau``.
        w0: W(0), (width, d).
        gamma: the eigenvalue, one number of either sign.
        tau: time constant, one number > 0.

    Returns:
        (width, d), with the axes of ``t`` before. Cost O(width^3) a time.
    """
    t, gamma, tau = as_floats(t, gamma, tau=tau)
    w0 = jnp.asarray(w0, jnp.result_type(float))
    return _white(scaled_time(t, tau), w0, 4 * gamma / w0.shape[0], gamma)


@jax.jit
def _white(time: Array, w0: Array, rate: Array, factor: Array) -> Array:
    """(1 + (e - 1) factor W0 W0^T)^(-1/2) sqrt(e) W0 with e = exp(rate time)."""
    gram = factor[..., None, None] * (w0 @ w0.T)
    z = (rate * time)[..., None, None]
    # Of e and 1/e the one that does not overflow.
    small, one = jnp.exp(-jnp.abs(z)), jnp.eye(len(w0), dtype=w0.dtype)
    ahead = small * one + (1 - small) * gram
    behind = one - (1 - small) * gram
    grown = _inverse_root(jnp.where(z >= 0, ahead, behind)) @ w0
    return jnp.where(z >= 0, 1.0, jnp.exp(-jnp.abs(z) / 2)) * grown


@jax.custom_jvp
def _inverse_root(m: Array) -> Array:
    """M^(-1/2) of symmetric positive matrices (..., k, k)."""
    values, vectors = jnp.linalg.eigh(m)
    return (vectors / jnp.sqrt(_positive(values))[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)


@_inverse_root.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # By differences of the function, which have a limit where eigenvalues repeat; the derivative of
    # eigenvectors has none.
    (m,), (moved,) = primals, tangents
    values, vectors = jnp.linalg.eigh(m)
    root, turned = jnp.sqrt(_positive(values)), jnp.swapaxes(vectors, -1, -2)
    left, right = root[..., :, None], root[..., None, :]
    inside = -(turned @ moved @ vectors) / (left * right * (left + right))
    return _inverse_root(m), vectors @ inside @ turned


def _positive(values: Array) -> Array:
    """Directions in which W0 has no part may round to 0 or below; what is there is 0 anyway."""
    return jnp.maximum(values, jnp.finfo(values.dtype).tiny)
