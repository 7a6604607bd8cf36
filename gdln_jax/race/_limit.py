"""Where a race of pathways ends: least squares over a >= 0, and the flow's choice on a face.

In the coordinates z of `Pathways` (ln a or u^(2-L)) the flow is dz/dt = const (S - D a): a mirror
flow. So z(t) - z(0) stays in the range of D, and the limit is the minimiser nearest to the start in
the Bregman divergence of the potential (relative entropy for L = 2). Host code, but for
`differentiable_limit`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.linalg import eigh
from scipy.optimize import minimize, nnls

from gdln_jax._solution import SolveError


def rounding(D: np.ndarray) -> float:
    """Return the fraction of the largest eigenvalue below which others are zero within rounding."""
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
    """Return a minimiser of a.D.a/2 - S.a over a >= 0, the support of all, and if others exist.

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
    """Return the unique minimiser under jit, vmap and grad; NaN where D leaves a choice.

    Which pathways survive is found on the host; given that, the limit is a linear system, whose
    derivatives are those of the limit wherever no survivor is about to die.
    """

    def survivors(*held: Array) -> tuple[np.ndarray, np.ndarray]:
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
    """Return the minimiser that the flow from a0 reaches, given one on the same support.

    Solves the dual problem: minimise sum u^2/2 - w.minimum over w in the range of D, where w is the
    time integral of S - D a, ln a = ln a0 + 2 w for depth 2 and u^(2-L) = u0^(2-L) - (L-2) w for
    deeper ones. It is smooth and convex, with gradient a - minimum and Hessian L a^(2-2/L).
    """
    values, vectors = eigh(D)
    basis = vectors[:, values > rounding(D) * values[-1]]
    power = 1 - 2 / depth

    def contributions(q: np.ndarray) -> np.ndarray:
        """Return a; NaN where a deeper pathway would be beyond infinity."""
        w = basis @ q
        if depth == 2:
            return a0 * np.exp(np.minimum(2 * w, 300.0))
        z = a0 ** (-power) - (depth - 2) * w
        return np.where(z > 0, z, np.nan) ** (-1 / power)

    def objective(q: np.ndarray) -> float:
        value = np.sum(contributions(q) ** (2 / depth)) / 2 - (basis @ q) @ minimum
        return float(np.nan_to_num(value, nan=np.inf))

    def gradient(q: np.ndarray) -> np.ndarray:
        return basis.T @ (np.nan_to_num(contributions(q)) - minimum)

    def hessian(q: np.ndarray) -> np.ndarray:
        slopes = depth * np.nan_to_num(contributions(q)) ** (2 - 2 / depth)
        return basis.T @ (slopes[:, None] * basis)

    goal = np.linalg.norm(basis.T @ minimum)
    q = minimize(
        objective,
        np.zeros(basis.shape[1]),
        method="trust-exact",
        jac=gradient,
        hess=hessian,
        options={"max_trust_radius": 1e300, "gtol": 1e-7 * goal, "maxiter": 2000},
    ).x
    # Where differences of the objective are rounding, the gradient is still exact.
    for _ in range(3):
        q = q - np.linalg.solve(hessian(q), gradient(q))
    error = np.linalg.norm(gradient(q))
    if not error <= 1e-9 * goal:
        raise SolveError(
            f"The limit was not found: the fit of it is off by {error:.1e}. "
            f"A pathway may be dying without a force; look at solve(a0, ts) for long times."
        )
    return contributions(q)


def _independent(D: np.ndarray, eps: float) -> bool:
    values = eigh(D, eigvals_only=True)
    return values.size == 0 or bool(values[0] > eps * values[-1])
