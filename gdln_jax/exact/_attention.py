r"""In-context linear regression by linear attention (Zhang et al., ICML 2025, arXiv 2501.16265).

Inputs have covariance Lambda, tasks covariance Omega that commutes with it, labels have noise of
variance $\sigma^2$. A head of rank 1 on component m has strength $b$ in each of its three factors,
$\tau \dot b = b^2 (S - D b^3)$ with $S = \lambda^2 \omega$, $D = \Gamma \lambda$ and the fourth
moments in $\Gamma = (1 + 1/N) \lambda^2 \omega + (T + \sigma^2) \lambda / N$, $T = \sum \lambda
\omega$, for N examples in context (theory#attention).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax.exact._calculus import as_floats, check_all
from gdln_jax.exact._modes import linear_mode


def attention_moments(
    lam: Float[Numbers, "... component"],
    context: ArrayLike,
    tasks: ArrayLike | None = None,
    noise: ArrayLike = 0.0,
) -> tuple[Float[Array, "... component"], Float[Array, "... component"], Float[Array, "..."]]:
    r"""Return S and D of every component, and the loss of a network that predicts 0.

    $S = \lambda^2 \omega$, $D = \Gamma \lambda$ and $L(0) = (T + \sigma^2)/2$ (theory#attention).

    Args:
        lam: variances of the inputs along the components.
        context: N, the number of labelled examples in a context.
        tasks: variances of the tasks along the same components; 1 by default.
        noise: variance of the noise of labels, that of the query included.

    Returns:
        S and D (..., component), and L(0) (...); `context` and `noise` may have leading axes, too.

    Raises:
        ValueError: a known context below 1, a known negative variance, or shapes that do not fit.
    """
    omega = 1.0 if tasks is None else tasks
    _check_known(lam=lam, tasks=omega, noise=noise)
    check_all(context, lambda n: n >= 1, "context", "at least 1")
    of_inputs, of_tasks = np.shape(lam), np.shape(omega)
    if not of_inputs or len({1, of_inputs[-1], *of_tasks[-1:]}) > 2:
        raise ValueError(
            f"lam has shape {of_inputs} and tasks {of_tasks}; expected (..., component) for both, "
            "or one number for all tasks."
        )
    lam, omega = as_floats(lam, omega)
    noise, context = (jnp.asarray(value, lam.dtype) for value in (noise, context))
    power = jnp.sum(lam * omega, axis=-1) + noise
    s = lam**2 * omega
    gamma = (1 + 1 / context[..., None]) * s + power[..., None] * lam / context[..., None]
    return s, gamma * lam, power / 2


def attention_plateaus(
    lam: Float[Numbers, "... component"],
    context: ArrayLike,
    tasks: ArrayLike | None = None,
    noise: ArrayLike = 0.0,
) -> Float[Array, "... plateau"]:
    r"""Return the losses after 0, 1, ... components, those with large S first.

    $L_m = L(0) - \sum_{j \le m} S_j^2 / (2 D_j)$, which is $\lambda^3 \omega^2/(2 \Gamma)$ a
    component (theory#attention). From small weights they are learned in the order of S. Arguments
    as in `attention_moments`.
    """
    s, d, first = attention_moments(lam, context, tasks, noise)
    s = jnp.broadcast_to(s, d.shape)
    order = jnp.argsort(-s, axis=-1)
    drops = jnp.take_along_axis(jnp.where(s > 0, s**2 / jnp.where(s > 0, d, 1), 0) / 2, order, -1)
    none = jnp.zeros_like(drops[..., :1])
    return first[..., None] - jnp.concatenate([none, jnp.cumsum(drops, axis=-1)], axis=-1)


def attention_time(
    b: ArrayLike, s: ArrayLike, d: ArrayLike, b0: ArrayLike, tau: ArrayLike = 1.0
) -> Float[Array, "..."]:
    r"""Return the time at which one aligned head is at strength b.

    The inverse of $\tau \dot b = b^2 (s - d b^3)$: $t = \tau [F(b) - F(b_0)]$ with $F(x) = -1/(s x)
    + Q(x/r)/(s r)$, $r = (s/d)^{1/3}$ and $Q(u) = \int_0^u v/(1 - v^3) dv$ (theory#attention). From
    small b0 it is near $\tau/(s b_0)$. Broadcasts; differentiable in every argument.

    Args:
        b: strength of each of the three factors, whose product is b^3.
        s, d: of the head's component, as `attention_moments` gives them, at least 0.
        b0: b(0) > 0; from 0 no other strength is reached.
        tau: time constant, > 0.

    Returns:
        Time in the units of ``tau``; negative where b was passed before t = 0, and ``inf`` where b
        is never reached: beyond the end r, or for s = 0. NaN where an argument is.

    Raises:
        ValueError: known s, d or b0 below 0.
    """
    b, s, d, b0, tau = as_floats(b, s, d, b0, tau=tau)
    _check_known(s=s, d=d, b0=b0)
    return _time(b, s, d, b0, tau)


@jax.jit
def _time(b: jax.Array, s: jax.Array, d: jax.Array, b0: jax.Array, tau: jax.Array) -> jax.Array:
    missing = jnp.isnan(s) | jnp.isnan(d) | jnp.isnan(b) | jnp.isnan(b0)
    stop, start = s - d * b**3, s - d * b0**3
    reached = (b > 0) & (b0 > 0) & (s > 0) & (stop * start > 0)
    here, before = (jnp.where(reached, x, 0.5) for x in (b, b0))
    s, d = (jnp.where(reached, x, 1.0) for x in (s, d))
    end = jnp.cbrt(s / d)
    time = 1 / before - 1 / here + (_area(here / end) - _area(before / end)) / end
    otherwise = jnp.where(b == b0, 0.0, jnp.where(missing, jnp.nan, jnp.inf))
    return jnp.where(reached, tau * time / s, otherwise)


def _area(u: jax.Array) -> jax.Array:
    """The integral of v/(1 - v^3) from 0 to u < 1, and its continuation beyond."""
    root = jnp.sqrt(3.0)
    arc = jnp.arctan((2 * u + 1) / root) - jnp.pi / 6
    return -jnp.log(jnp.abs(1 - u)) / 3 + jnp.log1p(u + u**2) / 6 - arc / root


def attention_merged(
    t: ArrayLike,
    lam: ArrayLike,
    dim: ArrayLike,
    context: ArrayLike,
    a0: ArrayLike,
    task: ArrayLike = 1.0,
    noise: ArrayLike = 0.0,
    tau: ArrayLike = 1.0,
) -> Float[Array, "..."]:
    r"""Return the loss L(t) of attention with merged key and query, for white inputs and tasks.

    A two-layer network with one mode, $s = \lambda^2 \omega \sqrt d$ and variance $\Gamma \lambda$
    (theory#attention): it learns all components in one drop. Broadcasts.

    Args:
        t: time, in the units of ``tau``.
        lam: variance of every input.
        dim: d, the number of inputs.
        context: N, the number of labelled examples in a context.
        a0: a(0), value times key-query matrix along the identity over the root of d.
        task: variance of every entry of the task.
        noise: variance of the noise of labels.
        tau: time constant, > 0.

    Raises:
        ValueError: a known `dim` or `context` below 1, or a known negative variance.
    """
    t, lam, dim, context, a0, task, noise, tau = as_floats(
        t, lam, dim, context, a0, task, noise, tau=tau
    )
    _check_known(lam=lam, task=task, noise=noise)
    for value, name in ((dim, "dim"), (context, "context")):
        check_all(value, lambda n: n >= 1, name, "at least 1")
    power = dim * lam * task + noise
    s = lam**2 * task
    d = ((1 + 1 / context) * s + power * lam / context) * lam
    s = s * jnp.sqrt(dim)
    a = linear_mode(t, s, d, a0, tau)
    return power / 2 - s * a + d * a**2 / 2


def _check_known(**values: ArrayLike) -> None:
    """Refuse known values below 0, and NaN."""
    for name, value in values.items():
        check_all(value, lambda x: x >= 0, name, "at least 0")
