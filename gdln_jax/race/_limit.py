"""Where a race of pathways ends: least squares over a >= 0, and the flow's choice on a face.

In the coordinates z of `Pathways` (ln a or u^(2-L)) the flow is dz/dt = const (S - D a): a mirror
flow. So z(t) - z(0) stays in the range of D, and the limit is the minimiser nearest to the start in
the Bregman divergence of the potential (relative entropy for L = 2). Host code, but for
`differentiable_limit`; imports nothing of the package.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.linalg import eigh
from scipy.optimize import nnls


def rounding(D: np.ndarray) -> float:
    """Eigenvalues below this fraction of the largest are zero within rounding."""
    return 100 * D.shape[0] * float(np.finfo(D.dtype).eps)


def check_moments(S: np.ndarray, D: np.ndarray) -> None:
    """Raise unless S and D can be second moments: D symmetric, >= 0, S in its range."""
    if not (np.isfinite(S).all() and np.isfinite(D).all()):
        raise ValueError("S or D contains a number that is not finite.")
    scale = np.abs(D).max()
    if np.abs(D - D.T).max() > rounding(D) * scale:
        j, m = np.unravel_index(np.argmax(np.abs(D - D.T)), D.shape)
        raise ValueError(
            f"D is not symmetric: D[{j}, {m}] = {D[j, m]}, D[{m}, {j}] = {D[m, j]}. It is the "
            f"correlation of pathways with one another; use (D + D.T)/2 if that is rounding."
        )
    values, vectors = eigh(D)
    if values[0] < -rounding(D) * scale:
        raise ValueError(
            f"D is not positive semi-definite: its smallest eigenvalue is {values[0]:.3g}. "
            f"A matrix of correlations <g_j x_j x_m g_m> cannot be; check how D was built."
        )
    null = vectors[:, values <= rounding(D) * scale]
    # Moments obey |k.S| <= sqrt(k.D.k <y^2>): a rounding eps in D allows its root in S.
    if np.linalg.norm(null.T @ S) > 10 * np.sqrt(rounding(D)) * np.linalg.norm(S):
        raise ValueError(
            f"S = {S} has a part outside the range of D: along it the loss has no lower bound. "
            f"Compute S and D from the same examples (a pathway without input has S = 0)."
        )


def least_squares(S: np.ndarray, D: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray, bool]:
    """A minimiser of a.D.a/2 - S.a over a >= 0, where others may be positive, and if others exist.

    NNLS (Lawson and Hanson, scipy) on a factor of D. Pathways with a force S - D a below 0 are 0
    in every minimiser; on the rest D decides whether the minimiser is unique.
    """
    values, vectors = eigh(D)
    keep = values > eps * values[-1]
    root = np.sqrt(values[keep])
    a, _ = nnls(root[:, None] * vectors[:, keep].T, (vectors[:, keep].T @ S) / root)
    used = a > 0
    if used.any() and _independent(D[np.ix_(used, used)], eps):  # refine beyond the factor's error
        a[used] = np.maximum(np.linalg.solve(D[np.ix_(used, used)], S[used]), 0.0)
    support = used | (S - D @ a > -np.sqrt(eps) * np.abs(S).max())
    singular = not _independent(D[np.ix_(support, support)], eps)
    return a, support, singular


def differentiable_limit(
    S: Float[Array, " pathway"], D: Float[Array, "pathway pathway"], alive: Bool[Array, " pathway"]
) -> Float[Array, " pathway"]:
    """The unique minimiser under jit, vmap and grad; NaN where D leaves a choice.

    Which pathways survive is found on the host; given that, the limit is a linear system, whose
    derivatives are those of the limit wherever no survivor is about to die.
    """

    def survivors(*held: Any) -> tuple[np.ndarray, np.ndarray]:
        S, D, alive = (np.asarray(a) for a in held)
        used = np.zeros(len(S), bool)
        sub = np.ix_(alive, alive)
        eps = rounding(D)
        a, _, singular = least_squares(S[alive].astype(float), D[sub].astype(float), eps)
        used[alive] = a > 0
        return used, np.asarray(singular)

    kinds = (jax.ShapeDtypeStruct(S.shape, bool), jax.ShapeDtypeStruct((), bool))
    held = (jax.lax.stop_gradient(x) for x in (S, D, alive))
    used, singular = jax.pure_callback(survivors, kinds, *held, vmap_method="sequential")
    system = jnp.where(jnp.outer(used, used), D, jnp.eye(len(S), dtype=D.dtype))
    return jnp.where(singular, jnp.nan, jnp.linalg.solve(system, jnp.where(used, S, 0.0)))


def project(a0: np.ndarray, minimum: np.ndarray, D: np.ndarray, depth: int) -> np.ndarray:
    """The minimiser that the flow from a0 reaches, given one minimiser on the same support.

    Solves the dual: minimise sum u^2/2 - w.minimum over w in the range of D, where w is the time
    integral of S - D a, ln a = ln a0 + 2 w for depth 2 and u^(2-L) = u0^(2-L) - (L-2) w for deeper
    ones. It is smooth and convex; damped Newton steps.
    """
    values, vectors = eigh(D)
    basis = vectors[:, values > rounding(D) * values[-1]]
    power = 1 - 2 / depth

    def contributions(q: np.ndarray) -> np.ndarray:
        w = basis @ q
        if depth == 2:
            return a0 * np.exp(np.minimum(2 * w, 600.0))
        z = a0 ** (-power) - (depth - 2) * w
        return np.where(z > 0, np.where(z > 0, z, 1.0) ** (-1 / power), np.inf)

    def objective(q: np.ndarray) -> float:
        return float(np.sum(contributions(q) ** (2 / depth)) / 2 - (basis @ q) @ minimum)

    q, goal = np.zeros(basis.shape[1]), basis.T @ minimum
    gradient = goal
    for _ in range(500):
        a = contributions(q)
        gradient = basis.T @ a - goal
        if np.linalg.norm(gradient) <= 1e-13 * np.linalg.norm(goal):
            break
        slopes = depth * a ** (2 - 2 / depth)
        step = np.linalg.solve(basis.T @ (slopes[:, None] * basis), gradient)
        q, moved = _damped(objective, q, step, float(gradient @ step))
        if not moved:
            break
    if np.linalg.norm(gradient) > 1e-9 * np.linalg.norm(goal):
        raise RuntimeError(
            f"The limit was not found: the fit of it is off by {np.linalg.norm(gradient):.1e}. "
            f"A pathway may be dying without a force; look at solve(a0, ts) for long times."
        )
    return contributions(q)


def _damped(
    objective: Callable[[np.ndarray], float], q: np.ndarray, step: np.ndarray, decrease: float
) -> tuple[np.ndarray, bool]:
    """Step back along `step` until the objective falls enough; False when it no longer can."""
    here, factor = objective(q), 1.0
    while factor > 1e-60:
        there = objective(q - factor * step)
        if np.isfinite(there) and there <= here - 1e-4 * factor * decrease + 1e-15 * abs(here):
            return q - factor * step, True
        factor /= 2
    return q, False


def _independent(D: np.ndarray, eps: float) -> bool:
    values = eigh(D, eigvals_only=True)
    return values.size == 0 or bool(values[0] > eps * values[-1])
