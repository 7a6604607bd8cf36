r"""The initial value of a pathway that first grows on another one's target (theory#head-start).

While both pathways are small, the contextual ones of H grow on everything that correlates with
their input, also on what the common pathway is about to learn. Their later modes inherit that head
start (E23), which fixes the B(0) that H's closed forms leave open.
"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax import SolveError, exact
from gdln_jax._checks import Result, check_integer, check_positive, is_concrete
from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax._ode import Settings, solve

# What the other pathway has still to learn when its growth counts as over; beyond it the drive
# changes by less than rounding.
_LEFT = 1e-13
# Strengths below this share of the largest are rounding, not modes.
_RANK = 1e-9
_MAX_STEPS = 100_000


class HeadStart(Result, eqx.Module):
    r"""Modes of a pathway on what another one leaves, and their initial values.

    Attributes:
        s: (mode,) strengths on the residual, largest first.
        u, v: frames (y, mode) and (x, mode).
        on_output, on_input: (mode, y) and (mode, x): a mode grows as $|z|^2 e^{2 s t/\tau}$ with
            $z = W_2^T p + W_1 q$, where p and q are these rows and W_1, W_2 the pathway's weights
            at t = 0. Without another pathway p = u/2 and q = v/2.
    """

    s: Float[Array, " mode"]
    u: Float[Array, "y mode"]
    v: Float[Array, "x mode"]
    on_output: Float[Array, "mode y"]
    on_input: Float[Array, "mode x"]

    @property
    def gain(self) -> Float[Array, " mode"]:
        """How many times larger than without a head start the expected initial value is."""
        return 2 * (jnp.sum(self.on_output**2, axis=1) + jnp.sum(self.on_input**2, axis=1))

    def expected(self, num_units: int, std: ArrayLike) -> Float[Array, " mode"]:
        """Return the mean initial value of `num_units` units with iid N(0, std^2) weights."""
        n = check_integer(num_units, "num_units", minimum=1)
        if is_concrete(std):
            check_positive(std, "std")
        return n * jnp.asarray(std) ** 2 / 2 * self.gain

    def of(
        self, w1: Float[Numbers, "hidden x"], w2: Float[Numbers, "y hidden"]
    ) -> Float[Array, " mode"]:
        """Return the initial value |z|^2 of given weights."""
        z = jnp.asarray(w1) @ self.on_input.T + jnp.asarray(w2).T @ self.on_output.T
        return jnp.sum(z**2, axis=0)

    def __repr__(self) -> str:
        shown = ", ".join(f"{g:.4g}" for g in np.asarray(self.gain)[:4])
        return f"HeadStart({len(self.s)} modes, gains [{shown}{', ...' * (len(self.s) > 4)}])"


def head_start(
    own: ArrayLike,
    taken: ArrayLike,
    s: ArrayLike,
    d: ArrayLike,
    a0: ArrayLike,
    *,
    throw: bool = True,
) -> HeadStart:
    r"""Refer the growth of a pathway beside a faster one back to t = 0.

    While the pathway is small, $\tau \dot W_1 = W_2^T G(t)$, $\tau \dot W_2 = G(t) W_1^T$ is
    linear, with $G(t) = \mathrm{own} - \sum_k f_k(t)\,\mathrm{taken}_k$ and f_k the share of its
    mode k that the other pathway has learned (`exact.linear_mode`). Once that is done, a mode of
    $G(\infty) = U S V^T$ grows as $e^{2 S t/\tau}$. Its size, divided by that factor, is the
    initial value from which a closed form such as `exact.context_mode` must start; it is no free
    parameter. Valid as long as the pathway is small while the other one learns.

    Args:
        own: (y, x), Sigma^yx(p) of the pathway.
        taken: (k, y, x), what mode k of the other pathway takes off it once learned:
            $(s_k/d_k)\, u_k v_k^T \Sigma^x(j, p)$.
        s: (k,), strengths of the other pathway's modes.
        d: (k,), their variances.
        a0: (k,), their initial values; n std^2/2 for n units with iid N(0, std^2) weights
            (`expected_initial`). The time constant drops out.

        throw: raise where the ODE solver gives up. If False, `on_output` and `on_input` are NaN for
            the modes that it did not finish.

    Host code: O((x + y)^2) per step of an ODE for each mode. Needs float64 for more than six
    digits.

    Raises:
        ValueError: for shapes that do not fit, numbers that are not finite, initial values that are
            not between 0 and s/d, or when the other pathway leaves nothing.
        SolveError: when the ODE solver gives up, with the time reached.
    """
    own, taken = jnp.asarray(own), jnp.asarray(taken)
    s, d, a0 = (jnp.asarray(value) for value in (s, d, a0))
    if (
        taken.ndim != 3
        or taken.shape[1:] != own.shape
        or not (s.shape == d.shape == a0.shape == taken.shape[:1])
    ):
        raise ValueError(
            f"own has shape {own.shape}, taken {taken.shape}, s {s.shape}, d {d.shape}, a0 "
            f"{a0.shape}; expected (y, x), (k, y, x) and three times (k,)."
        )
    if not bool(jnp.all((a0 > 0) & (d * a0 < s))):
        raise ValueError(
            "a0 must lie between 0 and s/d for every mode of the other pathway; leave out modes "
            "that learn nothing."
        )
    rest = np.asarray(own - jnp.sum(taken, axis=0))
    if not np.all(np.isfinite(rest)):
        raise ValueError("own or taken has an entry that is not finite.")
    u, strength, vt = np.linalg.svd(rest, full_matrices=False)
    kept = strength > _RANK * float(jnp.linalg.norm(own))
    if not kept.any():
        raise ValueError("the other pathway leaves nothing to learn, so there is no mode to start.")
    u, strength, v = jnp.asarray(u[:, kept]), jnp.asarray(strength[kept]), jnp.asarray(vt[kept].T)
    rows = jnp.concatenate([u, v]).T / 2
    if len(s):
        rows, reached, end = _referred_back(taken, s, d, a0, u, strength, v)
        mode = int(jnp.argmin(reached))
        if throw and not bool(reached[mode] >= end):
            raise SolveError(
                f"the head start of mode {mode} was not found: the ODE solver gave up after "
                f"{float(reached[mode]):.6g} of {float(end):.6g} tau, within {_MAX_STEPS} steps. "
                "The modes of `own` grow too fast beside those of the other pathway (s): scale "
                "both alike, or leave out modes that never matter."
            )
    return HeadStart(strength, u, v, rows[:, : len(own)], rows[:, len(own) :])


@jax.jit
def _referred_back(
    taken: Array, s: Array, d: Array, a0: Array, u: Array, strength: Array, v: Array
) -> tuple[Array, Array, Array]:
    """Return rows (mode, y + x) that act on [W_2; W_1^T] at t = 0, the time reached, and the end.

    The row that picks the growing combination at the end, carried back by the adjoint equation:
    dr/dt = -(A(t) - S) r with the symmetric A = [[0, G], [G^T, 0]], in units of tau.
    """
    end = jnp.max(exact.linear_mode_time((1 - _LEFT) * s / d, s, d, a0))
    split = u.shape[0]
    rtol = 1e-12 if u.dtype == jnp.float64 else 1e-6
    # Not by `settings`, which takes less than 10 eps for unresolved: in float32 this is 8 eps.
    precise = Settings(
        np.asarray(rtol, u.dtype),
        np.asarray(1e-3 * rtol, u.dtype),
        diffrax.Dopri8(),
        diffrax.RecursiveCheckpointAdjoint(),
        _MAX_STEPS,
    )

    def back(r: Array, strength: Array) -> tuple[Array, Array]:
        def slope(t: Array, r: Array, args: None) -> Array:
            del args
            left = 1 - exact.linear_mode(end - t, s, d, a0) * d / s
            # G(t) = G(inf) + what is still to be taken, so that nothing cancels late.
            g = rest + jnp.einsum("k,kyx->yx", left, taken)
            return jnp.concatenate([g @ r[split:], g.T @ r[:split]]) - strength * r

        run = solve(
            slope,
            r,
            jnp.stack([jnp.zeros_like(end), end]),
            None,
            precise,
        )
        return run.final, jnp.where(run.complete, end, jnp.minimum(run.reached, 0.999 * end))

    rest = jnp.einsum("ym,m,xm->yx", u, strength, v)
    return *jax.vmap(back)(jnp.concatenate([u, v]).T / 2, strength), end
