"""XoR and XoR with a margin: losses, times, and the margin at which the two gatings change places.

N App. A.1 (with E13: x = (1, 1) has y = -1) and H Sec. 3, App. C (with E15: d = 1/2 + Delta^2/4).
Both tasks have a single target power 1/2 and reach loss 0, so that L = (1 - q a)^2 / 2 with
q = d/s; this form has no cancellation late in training.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax._checks import check_choice
from gdln_jax._checks.types import ArrayLike
from gdln_jax.exact._calculus import as_floats, bisect, check_all
from gdln_jax.exact._modes import linear_mode_time, solve_linear

GATINGS = ("linear", "xor")


@jax.jit
def _residual_loss(
    t: jax.Array, s: jax.Array, d: jax.Array, q: jax.Array, a0: jax.Array, tau: jax.Array
) -> jax.Array:
    _, missing = solve_linear(t, s, d, a0, tau)
    return (missing * (1 - q * a0)) ** 2 / 2


def xor_loss(t: ArrayLike, a0: ArrayLike, tau: ArrayLike = 1.0) -> Float[Array, "..."]:
    """Return the loss of XoR with one path per example, ``1/2 - sqrt(2) a(t) + a(t)^2`` (N Eq. 23).

    a(t) is ``linear_mode`` with s = sqrt(2)/4, d = 1/2: inputs (+-1, +-1), targets +-1, the mean
    over four examples of half the squared error, the four paths equal by symmetry.

    Args:
        t: time, in the units of ``tau``.
        a0: a(0), the product of one path's two weights; for a ReLU layer see E14.
        tau: time constant. Broadcasts; differentiable in every argument.
    """
    t, a0, tau = as_floats(t, a0, tau=tau)
    root = jnp.full_like(a0, math.sqrt(2))
    return _residual_loss(t, root / 4, root**2 / 4, root, a0, tau)


def _check_margin(delta: ArrayLike, gating: str) -> None:
    check_choice(gating, GATINGS, "gating")
    check_all(delta, lambda x: x >= 0, "delta", "0 or more (its sign is that of a feature)")


def _margin_statistics(delta: jax.Array, gating: str) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return s, d and q = d/s of one pathway."""
    if gating == "linear":
        return delta / 2, delta**2 / 2, delta
    q = jnp.sqrt(2 + delta**2)
    return q / 4, q**2 / 4, q


def margin_loss(
    t: ArrayLike,
    delta: ArrayLike,
    a0: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    gating: str,
) -> Float[Array, "..."]:
    """Return the loss of XoR with a third, linearly separating feature +-Delta (H Fig. 2).

    Linear gating (one pathway per class): s = Delta/2, d = Delta^2/2,
    ``L = 1/2 - Delta a + Delta^2 a^2/2``. XoR gating (one per example):
    s = sqrt(2 + Delta^2)/4, d = (2 + Delta^2)/4 (E15: H prints s^2 for d), ``L = 1/2 - 4 s a +
    2 d a^2``. a(t) is ``linear_mode``.

    Args:
        t: time, in the units of ``tau``.
        delta: the margin Delta >= 0. At 0 linear gating learns nothing.
        a0: a(0) of one pathway; about n sd^2/2 for n units with weights N(0, sd^2)
            (theory#initial-amplitude).
        tau: time constant. Broadcasts; differentiable in every argument.
        gating: ``"linear"`` or ``"xor"``.

    Raises:
        ValueError: an unknown ``gating``, or a known ``delta`` below 0.
    """
    _check_margin(delta, gating)
    t, delta, a0, tau = as_floats(t, delta, a0, tau=tau)
    s, d, q = _margin_statistics(delta, gating)
    return _residual_loss(t, s, d, q, a0, tau)


def margin_time(
    level: ArrayLike,
    delta: ArrayLike,
    a0: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    gating: str,
) -> Float[Array, "..."]:
    """Return the time at which ``margin_loss`` is at ``level``: its exact inverse in (0, 1/2).

    Returns:
        Time in the units of ``tau``: ``inf`` where never reached (Delta = 0 with linear gating),
        negative where passed before t = 0.

    Raises:
        ValueError: as ``margin_loss``.
    """
    _check_margin(delta, gating)
    level, delta, a0, tau = as_floats(level, delta, a0, tau=tau)
    s, d, q = _margin_statistics(delta, gating)
    fraction = 1 - jnp.sqrt(2 * jnp.where(level > 0, level, 0.5))
    still = q == 0
    a = jnp.where(still, 2 * a0, fraction / jnp.where(still, 1.0, q))
    time = linear_mode_time(a, s, d, a0, tau)
    return jnp.where((level > 0) & ~still, time, jnp.inf)


def margin_crossover(
    a0: ArrayLike,
    level: ArrayLike = 0.2,
    *,
    equal: str = "pathways",
) -> Float[Array, "..."]:
    """Return the margin Delta at which both gatings reach the loss ``level`` at the same time.

    H finds sqrt(2/3), where the rates Delta/2 and sqrt(2 + Delta^2)/4 are equal. The exact times
    also contain a0: with equal a0 in every pathway XoR has a head start, because its target is
    smaller, and the crossover lies above sqrt(2/3), which it approaches like 1/ln(1/a0) as a0
    goes to 0. With equal total numbers of units an XoR pathway has half the units and a(0) = a0/2,
    and the crossover is sqrt(2/3) exactly, for every a0 and level (theory#xor).

    Args:
        a0: a(0) of a linearly gated pathway, > 0.
        level: the loss, between 0 and 1/2.
        equal: what the two networks share: ``"pathways"``, the same a(0) in each pathway, or
            ``"total_units"``, a(0) = a0/2 in the twice as many XoR pathways.

    Returns:
        The crossover of the broadcast shape, differentiable in ``a0`` and ``level`` (the times do
        not matter in units: tau drops out). NaN where there is none below Delta = 10, which
        happens when a0 is so large that XoR starts at or near the level.

    Raises:
        ValueError: an unknown ``equal``, a known a0 <= 0, or a known level outside (0, 1/2).
    """
    check_choice(equal, ("pathways", "total_units"), "equal")
    check_all(a0, lambda x: x > 0, "a0", "above 0")
    check_all(level, lambda x: (x > 0) & (x < 0.5), "level", "between 0 and 1/2")
    return _crossover(*as_floats(a0, level), 1.0 if equal == "pathways" else 0.5)


@partial(jax.jit, static_argnums=2)
def _crossover(a0: jax.Array, level: jax.Array, share: float) -> jax.Array:
    def lead(delta: jax.Array, a0: jax.Array, level: jax.Array) -> jax.Array:
        """Return a number that is positive where XoR gating is the faster one."""
        linear = margin_time(level, delta, a0, gating="linear")
        return linear - margin_time(level, delta, share * a0, gating="xor")

    solve = jnp.vectorize(partial(_first_sign_change, lead))
    return solve(a0, level)


def _first_sign_change(
    f: Callable[[jax.Array, jax.Array, jax.Array], jax.Array], a0: jax.Array, level: jax.Array
) -> jax.Array:
    """Return the smallest x in (0.7, 10) where ``f`` turns negative, with its derivatives."""
    fixed = jax.lax.stop_gradient((a0, level))
    # Where XoR starts beyond the level its time is negative and the gatings are not comparable;
    # f > 0 there, so that such points never count as a crossing.
    grid = jnp.linspace(0.7, 10, 512, dtype=a0.dtype)
    values = f(grid, *fixed)
    index = jnp.argmax(values < 0)
    found = (values[index] < 0) & (index > 0)
    bracket = grid[jnp.maximum(index - 1, 0)], grid[index]
    x = jnp.where(found, bisect(lambda x: -f(x, *fixed), 0.0, *bracket), 1.0)
    # Two differentiated Newton steps from the root carry derivatives up to the third.
    for _ in range(2):
        value, slope = jax.jvp(lambda x: f(x, a0, level), (x,), (jnp.ones_like(x),))
        x = jnp.where(found, x - value / jnp.where(slope == 0, 1.0, slope), 1.0)
    return jnp.where(found, x, jnp.nan)
