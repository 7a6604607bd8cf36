"""Data for pictures of races: nullclines, frozen sets, phase fields, winner maps.

Arrays in, arrays out: nothing is drawn here, and no grid point is visited by a Python loop.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gdln_jax._checks import Result, check_integer, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._linalg import norm, quotient
from gdln_jax.race._arguments import Numbers, as_floats
from gdln_jax.race._clock import frozen_fractions
from gdln_jax.race._lotka_volterra import LotkaVolterra
from gdln_jax.race._pathways import Pathways


class PhaseField(Result, eqx.Module):
    """Velocities on a square grid: `velocity[i, k]` is the one at (`axis[k]`, `axis[i]`)."""

    axis: Float[Array, " grid"]
    velocity: Float[Array, "grid grid 2"]


class WinnerMap(Result, eqx.Module):
    """Who wins, over rates (1, `rate_ratios[i]`) and layer strengths u0 (1, `initial_ratios[k]`).

    Entries are 0 or 1, the index of the winner.

    Attributes:
        share: pathway 1's final part of the output, exact.
        winner: 1 where that exceeds 1/2.
        summary: R's rule, argmax rate u0.
        depth: argmax rate u0^(L-2), right as u0 -> 0.

    R's s(0) is read as u0, the strength of one layer, in which its rule is right for L = 3. Read
    as the norm of the whole pathway, u0^L, it is right for no depth.
    """

    rate_ratios: Float[Array, " rate"]
    initial_ratios: Float[Array, " initial"]
    share: Float[Array, "rate initial"]
    winner: Int[Array, "rate initial"]
    summary: Int[Array, "rate initial"]
    depth: Int[Array, "rate initial"]

    @property
    def summary_accuracy(self) -> Float[Array, ""]:
        """Fraction of the map on which R's rule names the winner."""
        return jnp.mean(self.summary == self.winner)

    @property
    def depth_accuracy(self) -> Float[Array, ""]:
        """Fraction of the map on which rate u0^(L-2) names the winner."""
        return jnp.mean(self.depth == self.winner)


def summary_rule(rates: Numbers, u0: Numbers) -> Int[Array, "..."]:
    """Return R's rule, argmax rate u0 over the last axis. Right for three weight layers only."""
    return jnp.argmax(as_floats(rates) * as_floats(u0), axis=-1)


def depth_rule(rates: Numbers, u0: Numbers, depth: int) -> Int[Array, "..."]:
    """Return the winner for layer strengths u0 -> 0: argmax rate u0^(depth-2), last axis."""
    exponent = check_integer(depth, "depth", minimum=2) - 2
    return jnp.argmax(as_floats(rates) * as_floats(u0) ** exponent, axis=-1)


def frozen_shares(
    rates: Numbers, u0: Numbers, depth: int, *, capacity: ArrayLike = 1.0
) -> Float[Array, "*n m"]:
    """Return the final parts of the output of views that always occur together; they sum to 1.

    For D = capacity S S^T with S = rates; `u0` are layer strengths at t = 0, so that pathway m
    starts with capacity S_m u0_m^depth of the output. Broadcasts over leading axes; works under
    jit and vmap, and is differentiable in all real arguments.
    """
    depth = check_integer(depth, "depth", minimum=2)
    rates, u0 = jnp.broadcast_arrays(as_floats(rates), as_floats(u0))
    capacity = jnp.broadcast_to(jnp.asarray(capacity, rates.dtype), rates.shape[:-1])
    if is_concrete((rates, u0)) and not bool(jnp.all(rates > 0) & jnp.all(u0 >= 0)):
        raise ValueError("rates must be above 0 and u0 at least 0 everywhere.")

    def one(rates: Array, u0: Array, capacity: Array) -> Array:
        return frozen_fractions(rates, u0, capacity, depth)

    for _ in range(rates.ndim - 1):
        one = jax.vmap(one)
    return one(rates, u0, capacity)


def winner_map(
    rate_ratios: Numbers,
    initial_ratios: Numbers,
    depth: int,
    *,
    rate: ArrayLike = 1.0,
    u0: ArrayLike = 0.01,
) -> WinnerMap:
    """Race two pathways that always occur together, on a grid of rate and initial ratios.

    The views occur on the same examples and the target is 1 (D = S S^T), S = rate (1, ratio); the
    frozen state is exact, from the common clock. The grid is one vmapped program.

    Args:
        rate_ratios: S_1/S_0, shape (rate,), > 0.
        initial_ratios: ratio of the strengths of one layer at t = 0, shape (initial,), > 0.
        depth: number L >= 2 of weight layers.
        rate: S_0.
        u0: strength of a layer of pathway 0 at t = 0; the rules hold as it tends to 0.
    """
    depth = check_integer(depth, "depth", minimum=2)
    across, along = as_floats(rate_ratios), as_floats(initial_ratios)
    for name, values in (("rate_ratios", across), ("initial_ratios", along)):
        if values.ndim != 1 or (is_concrete(values) and not bool(jnp.all(values > 0))):
            raise ValueError(f"{name} must be ratios above 0 along one axis; got {values}.")
    first, start = jnp.asarray(rate, across.dtype), jnp.asarray(u0, across.dtype)
    if is_concrete((first, start)) and not bool((first > 0) & (start > 0)):
        raise ValueError(f"rate is {rate} and u0 is {u0}; both must be above 0.")

    share, summary, by_depth = _race_grid(across, along, first, start, depth)
    return WinnerMap(across, along, share, (share > 0.5).astype(int), summary, by_depth)


@partial(jax.jit, static_argnames="depth")
def _race_grid(
    across: Array, along: Array, rate: Array, u0: Array, depth: int
) -> tuple[Array, Array, Array]:
    """Return the share of pathway 1 and what both rules say, each of shape (rate, initial)."""

    def race(
        rate_ratio: Float[Array, ""], initial_ratio: Float[Array, ""]
    ) -> tuple[Array, Array, Array]:
        one = jnp.ones_like(rate_ratio)
        rates, start = rate * jnp.stack([one, rate_ratio]), u0 * jnp.stack([one, initial_ratio])
        share = frozen_fractions(rates, start, one, depth)[1]
        return share, summary_rule(rates, start), depth_rule(rates, start, depth)

    return jax.vmap(jax.vmap(race, (None, 0)), (0, None))(across, along)


def phase_field(system: LotkaVolterra | Pathways, extent: float, num: int = 21) -> PhaseField:
    """Return the velocities of two pathways on num x num points of [0, extent]^2 (s, or a)."""
    axis = jnp.linspace(0.0, extent, check_integer(num, "num", minimum=2))
    _two_pathways(system)
    velocity = jax.vmap(
        jax.vmap(lambda y, x: system.velocity(jnp.stack([x, y])), (None, 0)), (0, None)
    )
    return PhaseField(axis, velocity(axis, axis))


def frozen_arc(s_max: ArrayLike = 1.0, num: int = 101) -> Float[Array, "num 2"]:
    """Return R's frozen set for two pathways: the quarter circle s_1^2 + s_2^2 = s_max^2.

    Every point of it is at rest and attracts from below and above (for any rates), and it is the
    nullcline of both pathways: there is no isolated fixed point with one winner.
    """
    angle = jnp.linspace(0.0, jnp.pi / 2, check_integer(num, "num", minimum=2))
    return jnp.asarray(s_max) * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def nullclines(
    pathways: Pathways, extent: float, num: int = 101
) -> tuple[Float[Array, "2 num 2"], Bool[Array, " 2"]]:
    """Return the lines D_m1 a_1 + D_m2 a_2 = S_m inside [0, extent]^2, for m = 1, 2 (any depth).

    The other nullclines are the axes a_m = 0. The lines coincide, and are then the frozen set, if
    D = c S S^T. Returns points, shape (pathway, num, 2), with the ends exactly on the border of
    the square, and whether each line meets it (NaN, with derivative 0, if not).
    """
    _two_pathways(pathways)
    count = check_integer(num, "num", minimum=2)

    def line(normal: Float[Array, " 2"], level: Float[Array, ""]) -> tuple[Array, Array]:
        length = norm(normal, keepdims=True)
        along = quotient(normal, jnp.broadcast_to(length, normal.shape))
        foot = quotient(level, length[0]) * along
        along = jnp.stack([-along[1], along[0]])
        moving = along != 0
        step = jnp.where(moving, along, 1.0)
        one, two = -foot / step, (extent - foot) / step
        enter = jnp.max(jnp.where(moving, jnp.minimum(one, two), -jnp.inf))
        leave = jnp.min(jnp.where(moving, jnp.maximum(one, two), jnp.inf))
        still_inside = jnp.all(moving | ((foot >= 0) & (foot <= extent)))
        meets = still_inside & (enter <= leave) & (length[0] > 0)
        enter, leave = jnp.where(meets, enter, 0.0), jnp.where(meets, leave, 0.0)
        points = foot[None, :] + jnp.outer(jnp.linspace(enter, leave, count), along)
        return jnp.where(meets, jnp.clip(points, 0.0, extent), jnp.nan), meets

    return jax.vmap(line)(pathways.D, pathways.S)


def _two_pathways(system: LotkaVolterra | Pathways) -> None:
    count = (system.S if isinstance(system, Pathways) else system.rates).shape[0]
    if count != 2:
        raise ValueError(f"A phase plane shows two pathways; this race has {count}.")
