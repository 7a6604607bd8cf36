"""R's race equation ds_m/dt = sigma_m s_m (1 - sum s^2/s_max^2) + E_m(t), solved exactly for E = 0.

R is a third party's summary of N and adds this equation; N does not contain it. What follows from
it is not what R says: see theory#races and the class below.
"""

from collections.abc import Callable
from typing import ClassVar, Literal, overload

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._checks import Result, check_choice, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._solution import OK
from gdln_jax.race._arguments import (
    Numbers,
    Solution,
    as_floats,
    integrate,
    relative_tolerance,
    strengths_vector,
    times_vector,
)
from gdln_jax.race._clock import clock_at_times, clock_at_total, elapsed, safe_log


class Phases(Result, eqx.Module):
    """The two times that part a race into growth, competition and freezing.

    With F = sum s^2/s_max^2, all growth rates are the free ones times the factor 1 - F.

    - exponential phase: t < `exponential_end`, factor above 1 - `slowed` (it may be 0 long);
    - competition: between the two times;
    - frozen phase: t > `frozen_start`, |factor| below `frozen`. No strength will change by more
      than about `frozen`/2 any more, in relation to itself, unless its rate is far above the mean.
    """

    _units: ClassVar = {
        "exponential_end": "time of the equation, 1/rates",
        "frozen_start": "time of the equation, 1/rates",
    }

    exponential_end: Float[Array, ""]
    frozen_start: Float[Array, ""]
    slowed: float = eqx.field(static=True)
    frozen: float = eqx.field(static=True)

    @property
    def competition(self) -> Float[Array, ""]:
        """Duration of the competition."""
        return self.frozen_start - self.exponential_end


class LotkaVolterra(Result, eqx.Module):
    """The race equation of R: ds_m/dt = rates_m s_m (1 - sum_j s_j^2/s_max^2) + drive_m(t).

    Time is that of the equation: 1/rates. (`Pathways.to_lotka_volterra` gives rates per tau.)

    With drive = None (E = 0) there is one clock, dT/dt = 1 - sum s^2/s_max^2, T(0) = 0, and
    s_m(t) = s_m(0) exp(rates_m T(t)). T stops at a finite T_inf. Hence, against R's claims:

    - from sum s(0)^2 < s_max^2 every strength grows and then freezes; none decays to 0;
    - the final ratios are s_i(0)/s_j(0) exp((rates_i - rates_j) T_inf): equal rates keep ratios;
    - the winner is argmax [ln s(0) + rates T_inf], not argmax rates s(0).

    If sum s(0)^2 >= s_max^2 the clock runs backward, to T_inf <= 0: all strengths shrink, the
    fastest most, until sum s^2 = s_max^2. A strength that starts at 0 stays there.

    Every method takes one vector s0 and can be vmapped; those without `drive` are differentiable
    to any order in rates, s_max, s0 and ts (implicitly, through the roots).

    Args:
        rates: shape (pathway,), all > 0; R's sigma_1(Sigma_{y,m}).
        s_max: the strength at which growth stops, > 0.
        drive: None, or a function of t that returns a scalar or shape (pathway,); R's E(t).

    Raises:
        ValueError: a rate or s_max that is not positive, or wrong shapes.
    """

    rates: Float[Array, " pathway"]
    s_max: Float[Array, ""]
    drive: Callable[[Array], ArrayLike] | None

    def __init__(
        self,
        rates: Numbers,
        s_max: Numbers = 1.0,
        drive: Callable[[Array], ArrayLike] | None = None,
    ):
        self.rates = as_floats(rates, "rates")
        if self.rates.ndim != 1 or self.rates.shape[0] == 0:
            raise ValueError(f"rates has shape {self.rates.shape}; give one rate per pathway.")
        self.s_max = as_floats(s_max, "s_max").astype(self.rates.dtype)
        if self.s_max.shape != ():
            raise ValueError(f"s_max has shape {self.s_max.shape}; all pathways share one number.")
        if drive is not None and not callable(drive):
            raise ValueError(f"drive is {drive!r}; give a function of t (or None for E = 0).")
        self.drive = drive
        if is_concrete((self.rates, self.s_max)):
            for index, rate in enumerate(np.asarray(self.rates)):
                if not (np.isfinite(rate) and rate > 0):
                    raise ValueError(
                        f"rates[{index}] is {rate}; a rate is a finite number above 0. "
                        f"Leave a pathway without correlation out."
                    )
            if not (np.isfinite(self.s_max) and self.s_max > 0):
                raise ValueError(f"s_max is {self.s_max}; it must be a finite number above 0.")

    def velocity(self, s: Float[Array, " pathway"], t: ArrayLike = 0.0) -> Float[Array, " pathway"]:
        """Return the right-hand side of the equation, shape (pathway,)."""
        growth = self.rates * s * (1 - jnp.sum((s / self.s_max) ** 2))
        return growth if self.drive is None else growth + self.drive(jnp.asarray(t))

    @overload
    def solve(
        self,
        s0: Numbers,
        ts: Numbers,
        *,
        method: str = ...,
        rtol: ArrayLike | None = ...,
        throw: Literal[True] = ...,
    ) -> Float[Array, "time pathway"]: ...
    @overload
    def solve(
        self,
        s0: Numbers,
        ts: Numbers,
        *,
        method: str = ...,
        rtol: ArrayLike | None = ...,
        throw: Literal[False],
    ) -> Solution: ...
    def solve(
        self,
        s0: Numbers,
        ts: Numbers,
        *,
        method: str = "auto",
        rtol: ArrayLike | None = None,
        throw: bool = True,
    ) -> Float[Array, "time pathway"] | Solution:
        """Return the strengths at the times ts, shape (time, pathway).

        Args:
            s0: strengths at t = 0, shape (pathway,), >= 0.
            ts: times >= 0 that do not decrease, shape (time,).
            method: "clock": exact to rounding, E = 0 only; "ode": a diffrax solution in s itself,
                which shares nothing with the clock and checks it; "auto": the clock if drive is
                None, else the ODE.
            rtol: relative tolerance of "ode" (default 1e-11, in float32 1e-5). The absolute one is
                rtol times the smallest positive s0, so that plateaus are resolved.
            throw: raise where the ODE solver gives up. If False, the result is a `race.Solution`
                with the strengths as `.values`, NaN from the time on that was not reached. Under
                jit, vmap and grad nothing is ever raised, and NaN concern one member of a batch
                alone.

        Raises:
            ValueError: an rtol for the clock, which has none, or one below what the precision can
                resolve; wrong s0, ts or method.
            SolveError: the ODE solver gave up; it names the time reached.
        """
        check_choice(method, ("auto", "clock", "ode"), "method")
        s, times = self._strengths(s0), times_vector(ts)
        if method == "clock" or (method == "auto" and self.drive is None):
            if rtol is not None:
                raise ValueError(
                    f"rtol is {rtol!r}, but the clock is exact to rounding and has no tolerance; "
                    "leave rtol out, or pass method='ode'."
                )
            strengths = s[None, :] * jnp.exp(jnp.outer(self.clock(s0, ts), self.rates))
            run = Solution(times, strengths, jnp.asarray(OK), times[-1], {})
        else:
            run = self._solve_ode(s, times, relative_tolerance(rtol, s.dtype))
        return run.checked() if throw else run

    def clock(self, s0: Numbers, ts: Numbers) -> Float[Array, " time"]:
        """Return T(t) at the times ts, shape (time,); exact to rounding. E = 0 only."""
        times = times_vector(ts).astype(self.rates.dtype)
        distance, log_shares = self._distance_and_shares(s0)
        return clock_at_times(times, self.rates, log_shares, distance)

    def clock_limit(self, s0: Numbers) -> Float[Array, ""]:
        """Return T_inf, the root of sum s_m(0)^2 exp(2 rates_m T) = s_max^2. E = 0 only."""
        return self._clock_at(s0, 1.0)

    def limit(self, s0: Numbers) -> Float[Array, " pathway"]:
        """Return the frozen strengths s(inf) = s(0) exp(rates T_inf), on the sphere |s| = s_max."""
        return self._strengths(s0) * jnp.exp(self.rates * self.clock_limit(s0))

    def winner(self, s0: Numbers) -> Int[Array, ""]:
        """Return the index of the largest final strength, argmax [ln s(0) + rates T_inf].

        Of equal ones the first.
        """
        s = self._strengths(s0)
        return jnp.argmax(safe_log(s) + self.rates * self.clock_limit(s0))

    def phases(self, s0: Numbers, *, slowed: float = 0.1, frozen: float = 0.01) -> Phases:
        """Return the times at which growth is slowed by the share `slowed`, and down to `frozen`.

        `Phases` defines the three phases; 0 < slowed < 1 - frozen < 1. From above s_max there is
        no exponential phase, and the frozen one starts where sum s^2/s_max^2 is 1 + frozen.
        """
        if not (0 < slowed < 1 - frozen < 1):
            raise ValueError(
                f"slowed is {slowed} and frozen is {frozen}; needed: 0 < slowed < 1 - frozen < 1, "
                f"as with the defaults 0.1 and 0.01."
            )
        distance, log_shares = self._distance_and_shares(s0)

        def time_at(total: Array | float) -> Float[Array, ""]:
            gap = distance - self._clock_at(s0, total)
            ahead = jnp.abs(gap) < jnp.abs(distance)  # that total is still to come
            shrinkage = jnp.log(jnp.where(ahead, distance / jnp.where(ahead, gap, 1.0), 1.0))
            time, _ = elapsed(shrinkage, self.rates, log_shares, distance)
            return jnp.where(ahead, time, 0.0)

        below = distance > 0
        freezing = time_at(jnp.where(below, 1 - frozen, 1 + frozen))
        return Phases(jnp.where(below, time_at(slowed), 0.0), freezing, slowed, frozen)

    def _strengths(self, s0: Numbers) -> Float[Array, " pathway"]:
        return strengths_vector(s0, self.rates.shape[0], "s0")

    def _clock_at(self, s0: Numbers, total: Array | float) -> Float[Array, ""]:
        """Return the clock at which sum s^2/s_max^2 equals `total`."""
        if self.drive is not None:
            raise ValueError(
                "There is no common clock with a drive E(t): each pathway gets its own push. Use "
                "solve(s0, ts), or LotkaVolterra(rates, s_max) without drive."
            )
        log_ratio = safe_log(self._strengths(s0)) - jnp.log(self.s_max)
        level = jnp.log(jnp.asarray(total, self.rates.dtype))
        return clock_at_total(level, self.rates, log_ratio)

    def _distance_and_shares(
        self, s0: Numbers
    ) -> tuple[Float[Array, ""], Float[Array, " pathway"]]:
        """Return T_inf, and the logarithms of the final shares s_m^2/s_max^2, which sum to 1."""
        distance = self.clock_limit(s0)
        log_ratio = safe_log(self._strengths(s0)) - jnp.log(self.s_max)
        return distance, 2 * (log_ratio + self.rates * distance)

    @eqx.filter_jit
    def _solve_ode(
        self, s: Float[Array, " pathway"], times: Float[Array, " time"], rtol: ArrayLike
    ) -> Solution:
        smallest = jnp.minimum(jnp.min(jnp.where(s > 0, s, jnp.inf)), self.s_max)
        return integrate(
            lambda t, y, model: model.velocity(y, t),
            s,
            times,
            self,
            diffrax.Dopri8(),
            rtol=rtol,
            atol=rtol * jax.lax.stop_gradient(smallest),
        )
