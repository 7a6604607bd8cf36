"""The true race: gradient flow on pathways that fit one mode of one output together.

Pathway m has L weight layers of equal strength u_m (balanced, aligned) and adds a_m = u_m^L to the
map. With S_m its correlation with the target and D_jm the one between pathways, the loss is
constant - S.a + a.D.a/2, and tau du_m/dt = u_m^(L-1) (S_m - sum_j D_jm a_j) (theory#races).
For L = 2 that is a Lotka-Volterra system, linear in a; it is R's equation only if D is c S S^T.
"""

import dataclasses
from typing import Literal, overload

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._checks import Result, check_integer, check_positive_if_known, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._linalg import quotient, root
from gdln_jax._reduction.reduction import Reduction
from gdln_jax.race._arguments import (
    Numbers,
    Solution,
    as_floats,
    integrate,
    relative_tolerance,
    strengths_vector,
    times_vector,
)
from gdln_jax.race._clock import frozen_fractions
from gdln_jax.race._limit import (
    check_moments,
    differentiable_limit,
    least_squares,
    project,
    rounding,
)
from gdln_jax.race._lotka_volterra import LotkaVolterra
from gdln_jax.race._moments import Path, moments_of

_LARGEST = {8: 1e30, 4: 1e8}  # cap on a in solver stages that overshoot; such steps are rejected


class Pathways(Result, eqx.Module):
    """Pathways with correlations S and D, L weight layers: da/dt = (L/tau) a^(2-2/L) (S - D a).

    Exact for gradient flow of the loss of theory#conventions (mean over examples, 1/2 squared norm)
    on balanced, aligned, non-negative layer strengths u, a = u^L, with pathways that share no edge
    and one mode each of the same output. The loss is `offset` + a.D.a/2 - S.a.

    Args:
        S: correlations <g_m y x_m> in the mode, shape (pathway,); negative ones die out.
        D: correlations <g_j x_j x_m g_m>, shape (pathway, pathway), symmetric, positive
            semi-definite; S has to lie in its range (moments of data always do).
        depth: the number L >= 2 of weight layers; 2 is one hidden layer.
        paths: optionally the edges of each pathway, as `from_reduction` fills them in.

    Raises:
        ValueError: wrong shapes or depth, D not symmetric or not positive semi-definite, S outside
            the range of D (the loss would have no lower bound).
    """

    S: Float[Array, " pathway"]
    D: Float[Array, "pathway pathway"]
    depth: int = eqx.field(static=True)
    paths: tuple[Path, ...] | None = eqx.field(static=True)

    def __init__(
        self, S: Numbers, D: Numbers, depth: int = 2, paths: tuple[Path, ...] | None = None
    ):
        self.paths = paths
        self.S, self.D = as_floats(S, "S"), as_floats(D, "D")
        self.depth = check_integer(depth, "depth", minimum=2)
        if self.S.ndim != 1 or self.S.shape[0] == 0:
            raise ValueError(f"S has shape {self.S.shape}; give one correlation per pathway.")
        size = self.S.shape[0]
        if self.D.shape != (size, size):
            raise ValueError(
                f"D has shape {self.D.shape}; S has {size} pathways, so D must be {(size, size)}."
            )
        if is_concrete((self.S, self.D)):
            check_moments(np.asarray(self.S), np.asarray(self.D))

    @classmethod
    def from_reduction(cls, reduction: Reduction, mode: int = 0) -> "Pathways":
        """Return the race of one mode of a reduction, whose paths share no edge.

        S and D are the derivatives of the reduced loss in the path products, so that gates,
        overlaps U_p^T U_j between frames (E16) and copies of a path are in them. Pathways that
        carry nothing of the mode are left out: `paths` says which edges each pathway has. The
        race agrees with `reduction.solve` while the edges of a path have equal strengths; if the
        reduction has `ties`, tied pathways have to start equal.

        Raises:
            ValueError: paths share an edge, differ in length or are direct; modes meet in the
                loss (or the reduction is coupled); there is no such mode.
        """
        paths, S, D, depth = moments_of(reduction, mode)
        return cls(S, D, depth, paths)

    def velocity(self, a: Float[Array, " pathway"]) -> Float[Array, " pathway"]:
        """Return the velocity tau da/dt = L a^(2-2/L) (S - D a), shape (pathway,)."""
        return self.depth * a ** (2 - 2 / self.depth) * (self.S - self.D @ a)

    def loss(self, a: Float[Array, " pathway"]) -> Float[Array, ""]:
        """Return the loss above that of a = 0, a.D.a/2 - S.a (<y^2>/2 is not known here)."""
        return a @ self.D @ a / 2 - self.S @ a

    @overload
    def solve(
        self,
        a0: Numbers,
        ts: Numbers,
        *,
        tau: ArrayLike = ...,
        rtol: ArrayLike | None = ...,
        solver: diffrax.AbstractAdaptiveSolver | None = ...,
        throw: Literal[True] = ...,
    ) -> Float[Array, "time pathway"]: ...
    @overload
    def solve(
        self,
        a0: Numbers,
        ts: Numbers,
        *,
        tau: ArrayLike = ...,
        rtol: ArrayLike | None = ...,
        solver: diffrax.AbstractAdaptiveSolver | None = ...,
        throw: Literal[False],
    ) -> Solution: ...
    def solve(
        self,
        a0: Numbers,
        ts: Numbers,
        *,
        tau: ArrayLike = 1.0,
        rtol: ArrayLike | None = None,
        solver: diffrax.AbstractAdaptiveSolver | None = None,
        throw: bool = True,
    ) -> Float[Array, "time pathway"] | Solution:
        """Return the contributions a at the times ts, shape (time, pathway), by diffrax.

        Solved in the coordinates in which a plateau is a straight line: ln a for L = 2 and
        u^(2-L) for deeper pathways. The error of the former and the relative error of the latter
        are those of a and u. Plateaus of any length cost nothing for L = 2; for L >= 3 they last
        about u0^(2-L)/S, and float64 cannot resolve the race once that passes 1e12.

        Args:
            a0: contributions u^L at t = 0, shape (pathway,), >= 0 (0 stays 0).
            ts: times >= 0 that do not decrease, shape (time,), in the units of tau.
            tau: time constant of gradient flow (tau dW/dt = -dL/dW).
            rtol: relative error per unit of the solver's control (default 1e-11; float32 1e-5).
            solver: any adaptive diffrax solver; default Dopri8. The steps are
                bounded by stability once a race is over: take `limit` for t to infinity.
            throw: raise where the solver gives up. If False, the result is a `race.Solution` with
                the contributions as `.values`, NaN from the time on that was not reached. Under
                jit, vmap and grad nothing is ever raised, and NaN concern one member of a batch
                alone.

        Raises:
            ValueError: a tau or rtol that is no finite number above 0, an rtol below what the
                precision can resolve, wrong a0 or ts.
            SolveError: the solver gave up; it names the time reached.
        """
        start = strengths_vector(a0, self.S.shape[0], "a0")
        times = times_vector(ts)
        check_positive_if_known(tau=tau)
        alive = start > 0
        z0 = self._to_straight(jnp.where(alive, start, 1.0))
        tolerance = relative_tolerance(rtol, z0.dtype)
        run = self._integrate(z0, alive, times / tau, tolerance, solver or diffrax.Dopri8())
        a = jnp.where(alive[None, :], self._from_straight(run.values), 0.0)
        run = dataclasses.replace(run, ts=times, values=a, reached=run.reached * tau)
        return run.checked() if throw else run

    def limit(self, a0: Numbers | None = None) -> Float[Array, " pathway"]:
        """Return the limit of a(t), shape (pathway,): non-negative least squares on a.D.a/2 - S.a.

        Positive definite D: the same from every positive start; a0 only says which pathways start
        at 0 and stay there. Semi-definite D: the minimisers are a face, and the flow chooses the
        point given by its conserved quantities, k.ln a (L = 2) or k.u^(2-L) (L >= 3) for each k
        with D k = 0 that is 0 on the pathways that die. Then a0 is needed. For D = c S S^T that
        point comes from the common clock, otherwise from a convex problem; no time is simulated.

        Under jit, vmap and grad it is differentiable in S and D, and NaN where D is singular
        (for D = c S S^T, `to_lotka_volterra().limit` is differentiable in the start too). For
        L >= 3 and a singular D that is not c S S^T, u0^(2-L) has to stay below about 1e12 (see
        `solve`).

        Raises:
            ValueError: a0 missing though the limit depends on it.
            SolveError: the convex problem did not converge (a pathway without force that dies).
        """
        size = self.S.shape[0]
        start = None if a0 is None else strengths_vector(a0, size, "a0")
        if not is_concrete((self.S, self.D, start)):
            everyone = jnp.ones(size, bool)
            return differentiable_limit(self.S, self.D, everyone if start is None else start > 0)
        a = None if start is None else np.asarray(start, np.float64)
        alive = np.ones(size, bool) if a is None else a > 0
        S, D = np.asarray(self.S, np.float64), np.asarray(self.D, np.float64)
        sub = np.ix_(alive, alive)
        minimum, support, singular = least_squares(S[alive], D[sub], rounding(np.asarray(self.D)))
        if singular:
            if a is None or start is None:
                raise ValueError(
                    "D is singular, so the limit depends on the start (views that "
                    "always occur together share the output by their head start): limit(a0)."
                )
            if self.coincides_with_lotka_volterra(any_depth=True):
                capacity, u0 = self._capacity(), start ** (1 / self.depth)
                return frozen_fractions(self.S, u0, capacity, self.depth) / (capacity * self.S)
            live = np.flatnonzero(alive)[support]
            face = D[np.ix_(live, live)]
            minimum[support] = project(a[live], minimum[support], face, self.depth)
        result = np.zeros(size)
        result[alive] = minimum
        return jnp.asarray(result, self.S.dtype)

    def winner(self, a0: Numbers) -> Int[Array, ""]:
        """Return the winner for small initial values, argmax S u0^(L-2), u0 = a0^(1/L).

        Derived for D = c S S^T, where u^(2-L) falls linearly in the common clock, and true for
        pathways that fit the same target while it is unexplained. R's rule, argmax S u0, is the
        case L = 3. For L = 2 the initial values drop out in this limit, unless the S are equal
        (they then decide; of equal ones the first wins). At finite values
        `to_lotka_volterra().winner` is exact.
        """
        a = strengths_vector(a0, self.S.shape[0], "a0")
        if self.depth > 2:
            u_power = a ** ((self.depth - 2) / self.depth)
            return jnp.argmax(self.S * u_power)
        best = jnp.max(jnp.where(a > 0, self.S, -jnp.inf))
        return jnp.argmax(jnp.where((a > 0) & jnp.equal(self.S, best), a, -jnp.inf))

    def coincides_with_lotka_volterra(self, tol: float = 1e-9, *, any_depth: bool = False) -> bool:
        """Return whether D_jm = c S_j S_m, all S > 0, within tol |D|, and L = 2: R's equation.

        That is the case of views that always occur together, on the same examples with fixed
        amplitudes. `any_depth` tests the condition on the correlations alone: deeper pathways then
        share one clock too, but follow another law.
        """
        if not is_concrete((self.S, self.D)):
            raise ValueError("This looks at numbers: call it outside jit, vmap and grad.")
        S, D = np.asarray(self.S), np.asarray(self.D)
        if (self.depth != 2 and not any_depth) or (S <= 0).any():
            return False
        capacity = float(self._capacity())
        return bool(np.linalg.norm(D - capacity * np.outer(S, S)) <= tol * np.linalg.norm(D))

    def to_lotka_volterra(self, tol: float = 1e-9) -> LotkaVolterra:
        """Return R's equation for s = sqrt(`contributions`): rates S (per tau), s_max = c^(-1/4).

        Raises:
            ValueError: unless `coincides_with_lotka_volterra(tol)`.
        """
        if self.depth != 2:
            raise ValueError(
                f"depth is {self.depth}; only two weight layers (depth 2) give R's equation."
            )
        if not self.coincides_with_lotka_volterra(tol):
            raise ValueError(
                f"D is not c S S^T with S > 0 within {tol}: pathways that do not always occur "
                f"together follow another law than R's equation. Use Pathways.solve and .limit."
            )
        return LotkaVolterra(self.S, self._capacity() ** (-0.25))

    def contributions(self, a: Float[Array, "*time pathway"]) -> Float[Array, "*time pathway"]:
        """Return each pathway's part of the output when D = c S S^T: sqrt(c) S_m a_m.

        They add up to c^(-1/2) in the end: the target, or sqrt(p) times it if the views occur, all
        together, in a fraction p of the examples. 0 if all S are.
        """
        return jnp.broadcast_to(root(self._capacity()) * self.S, a.shape) * a

    def _capacity(self) -> Float[Array, ""]:
        """Return the c of D = c S S^T (best in least squares)."""
        return quotient(self.S @ self.D @ self.S, jnp.sum(self.S**2) ** 2)

    def _to_straight(self, a: Array) -> Array:
        return jnp.log(a) if self.depth == 2 else a ** (2 / self.depth - 1)

    def _from_straight(self, z: Array) -> Array:
        largest = _LARGEST[z.dtype.itemsize]
        if self.depth == 2:
            return jnp.exp(jnp.minimum(z, np.log(largest)))
        power = self.depth / (self.depth - 2)
        return jnp.maximum(z, largest ** (-1 / power)) ** (-power)

    @eqx.filter_jit
    def _integrate(
        self,
        z0: Float[Array, " pathway"],
        alive: Array,
        times: Float[Array, " time"],
        tolerance: ArrayLike,
        solver: diffrax.AbstractAdaptiveSolver,
    ) -> Solution:
        factor = 2.0 if self.depth == 2 else 2.0 - self.depth

        def slope(_: Array, z: Array, args: tuple[Pathways, Array]) -> Array:
            model, growing = args
            a = jnp.where(growing, model._from_straight(z), 0.0)
            return jnp.where(growing, factor * (model.S - model.D @ a), 0.0)

        rtol, atol = (0.0, tolerance) if self.depth == 2 else (tolerance, 0.0)
        return integrate(slope, z0, times, (self, alive), solver, rtol=rtol, atol=atol)
