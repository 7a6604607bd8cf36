"""Routing between M domains (N Eq. 13-15) and partial sharing (N Eq. 16-17).

Both are the flow ``tau x' = (1/M) (x^2 + C) (s - x (x^2 + C) d/M)`` of x = B2, which separates:
the time is a closed form of x. It is inverted by bracketing, and its derivatives, of every order
and in all of s, d, b0, M, C, t and tau, come from the implicit function theorem. theory#routing
states the time as a sum of complex logarithms over the five roots; here it is written with real
functions that stay smooth where roots meet.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import Suggesting, dataset
from gdln_jax._checks.types import ArrayLike
from gdln_jax._linalg import root
from gdln_jax.exact._calculus import as_floats, check_all, concrete, scaled_time
from gdln_jax.exact._separable import solve_separable, time_separable


def _check_domains(num_domains: ArrayLike) -> None:
    check_all(num_domains, lambda m: m >= 1, "num_domains", "at least 1")


def _check_start(b0: ArrayLike, c: ArrayLike) -> None:
    start, shift = concrete(b0), concrete(c)
    if start is not None and shift is not None and (start**2 + shift < -1e-12 * start**2).any():
        raise ValueError(
            "c is below -b0**2, but b0**2 + c = M B1(0)**2 cannot be negative; pass "
            "c = M * B1(0)**2 - B2(0)**2."
        )


def routing_mode(
    t: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    b0: ArrayLike,
    num_domains: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    c: ArrayLike = 0.0,
) -> Float[Array, "..."]:
    """Return B2(t) of one mode of the shared hidden layer in the routing task (N Eq. 15).

    ``tau B2' = (1/M) (B2^2 + C) (s - (1/M) B2 (B2^2 + C) d)``. First and third layers have
    B1^2 = (B2^2 + C)/M, since M B1^2 - B2^2 = C is conserved (E8); the map of a route is B2 B1^2.
    Exact for M inputs and outputs with K routes trained per input AND per output (E7: K drops
    out; E6: averages over trained routes), all input and output layers starting equal.

    Args:
        t: time >= 0, in the units of ``tau``; ``inf`` gives the limit. NaN for t < 0.
        s: strength of the mode in Sigma^yx of the base data set (not divided by K M).
        d: variance of the base input along the mode, >= 0. With d = 0 there is no saturation: the
            mode is infinite from a finite time on.
        b0: B2(0), of either sign. If its sign differs from that of ``s``, the mode first decays;
            with C > 0 it crosses 0 and then grows with the sign of ``s``.
        num_domains: M >= 1 (a real number, differentiable).
        tau: time constant.
        c: C = M B1(0)^2 - B2(0)^2; 0 if first and hidden layer start in their asymptotic ratio,
            (M - 1) b0^2 if all layers start equal.

    Returns:
        Array of the broadcast shape; about 1e-14 relative in float64 but for the conditioning of
        the plateau itself, which ends at a time ~ M/(s b0) that the argument t must resolve.

    Raises:
        ValueError: a known ``num_domains`` below 1, or known b0 and c with b0^2 + c < 0.
    """
    _check_domains(num_domains)
    _check_start(b0, c)
    t, s, d, b0, domains, c, tau = as_floats(t, s, d, b0, num_domains, c, tau=tau)
    time = scaled_time(t, tau * domains)
    return solve_separable(time, s, d / domains, b0, c)


def routing_time(
    b2: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    b0: ArrayLike,
    num_domains: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    c: ArrayLike = 0.0,
) -> Float[Array, "..."]:
    """Return the time at which ``routing_mode`` is at ``b2``: N Eq. 15 integrated.

    Returns:
        Time in the units of ``tau``; ``inf`` (with derivative 0) where b2 is never reached. Where
        b2 was passed before t = 0 the result is negative.

    Raises:
        ValueError: as ``routing_mode``.
    """
    _check_domains(num_domains)
    _check_start(b0, c)
    b2, s, d, b0, domains, c, tau = as_floats(b2, s, d, b0, num_domains, c, tau=tau)
    time = time_separable(b2, s, d / domains, b0, c)
    reached = jnp.isfinite(time)
    return jnp.where(reached, tau * domains * jnp.where(reached, time, 0.0), time)


def routing_loss(
    t: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    b0: ArrayLike,
    num_domains: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    c: ArrayLike = 0.0,
    half_trace: ArrayLike | None = None,
) -> Float[Array, "..."]:
    """Return the loss of the routing task on its trained routes, from its modes.

    ``L = 1/2 tr Sigma^yy + sum over modes of (d/2) a^2 - s a`` with a = B2 (B2^2 + C)/M.

    Args:
        t: times, of any shape.
        s: strengths of the modes (one axis); ``d``, ``b0`` and ``c`` broadcast against them.
        d: variances, above 0.
        b0: B2(0) of each mode.
        num_domains: M.
        tau: time constant.
        c: C of each mode.
        half_trace: 1/2 tr Sigma^yy, half the mean squared norm of the targets. The default,
            the sum of s^2/(2 d), is right when the modes explain all of the target.

    Returns:
        The loss at each time, shape of ``t``.
    """
    times = jnp.asarray(t, jnp.result_type(t, 1.0))[..., None]
    # First along the axis of modes, then (*time, mode).
    times, strengths, variances, start, shift = as_floats(times, *as_floats(s, d, b0, c))
    x = routing_mode(times, strengths, variances, start, num_domains, tau, c=shift)
    a = x * (x**2 + shift) / num_domains
    explained = jnp.where(variances > 0, strengths**2 / jnp.where(variances > 0, variances, 1), 0)
    left = 0.0 if half_trace is None else jnp.asarray(half_trace) - jnp.sum(explained, axis=-1) / 2
    gap = (strengths - variances * a) ** 2 / jnp.where(variances > 0, variances, 1)
    return left + jnp.sum(gap, axis=-1) / 2


class SharingMode(NamedTuple):
    """The two strengths of one mode under pathway sharing: ``b1, b2 = sharing_mode(...)``."""

    b1: Float[Array, "..."]
    """Strength in the first and in the third layer."""
    b2: Float[Array, "..."]
    """Strength in the hidden layer of a block."""

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__

    @property
    def product(self) -> Float[Array, "..."]:
        """Strength of the map of a route, B2 B1^2; its limit is s/d."""
        return self.b2 * self.b1**2


def _sharing_as_routing(
    b0: jax.Array, domains: jax.Array, paths: jax.Array, tau: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return M, tau and C of the routing problem that N Eq. 16-17 are."""
    # With M' = sqrt(P) and tau' = tau M^2/P, Eq. 13-14 read exactly as Eq. 16-17.
    side = jnp.sqrt(paths)
    return side, tau * domains**2 / paths, (side - 1) * b0**2


def sharing_mode(
    t: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    b0: ArrayLike,
    num_domains: ArrayLike,
    num_blocks_paths: ArrayLike,
    tau: ArrayLike = 1.0,
) -> SharingMode:
    """Return B1(t), B2(t) of one mode when P of the M^2 paths share a hidden layer.

    ``tau B1' = (sqrt(P)/M^2) B2 B1 (s - B2 B1^2 d)``, ``tau B2' = (P/M^2) B1^2 (s - B2 B1^2 d)``
    (N Eq. 16-17), from B1(0) = B2(0) = b0; sqrt(P) B1^2 - B2^2 is conserved. All M^2 routes are
    trained, and each block of P paths has first and third layers of its own. At the same initial
    product and balanced (B2^2 = sqrt(P) B1^2) all times go as P^(-2/3). For other initial values
    use ``routing_mode`` with num_domains = sqrt(P), tau = tau M^2/P and its own C.

    Args:
        t: time >= 0, in the units of ``tau``.
        s: strength of the mode in Sigma^yx of the base data set.
        d: variance of the base input along the mode.
        b0: B1(0) = B2(0).
        num_domains: M.
        num_blocks_paths: P, the number of paths through one hidden layer: 1 (nothing shared) to
            M^2 (all shared). sqrt(P) must be an integer that divides M.
        tau: time constant.

    Returns:
        ``SharingMode(b1, b2)``, each of the broadcast shape, with ``.product`` = B2 B1^2.

    Raises:
        ValueError: known M and P for which sqrt(P) is no integer that divides M. Values under a
            JAX transformation are not checked: P is then a real number.
    """
    _check_domains(num_domains)
    known_domains, known_paths = concrete(num_domains), concrete(num_blocks_paths)
    if known_domains is not None and known_paths is not None:
        _check_blocks(known_domains, known_paths)
    values = (t, s, d, b0, num_domains, num_blocks_paths)
    t, s, d, b0, domains, paths, tau = as_floats(*values, tau=tau)
    side, slow, c = _sharing_as_routing(b0, domains, paths, tau)
    b2 = solve_separable(scaled_time(t, slow * side), s, d / side, b0, c)
    # A mode that starts at 0 stays there; to first order it is b0.
    b1 = jnp.where(b0 == 0, b0, jnp.sign(b0) * root((b2**2 + c) / side))
    return SharingMode(b1, b2)


def _check_blocks(num_domains: np.ndarray, num_blocks_paths: np.ndarray) -> None:
    side = np.rint(np.sqrt(num_blocks_paths))
    whole = (side >= 1) & (side**2 == num_blocks_paths)
    if not np.all(whole & (np.mod(num_domains, np.where(whole, side, 1)) == 0)):
        raise ValueError(
            f"num_blocks_paths is {num_blocks_paths} for num_domains = {num_domains}; its square "
            "root must be an integer that divides num_domains (a block joins sqrt(P) inputs with "
            "sqrt(P) outputs)."
        )
