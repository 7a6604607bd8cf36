"""Linear algebra that several modules share: factorisations one by one, random orthogonal
matrices, joint eigenvectors, balanced pairs of layers, and norms and quotients that
have a value and finite derivatives everywhere.

jaxlib 0.10 splits LAPACK calls on a batch over the threads that run the program's operations, and
waits for them there: a few such calls on some hundred matrices, independent of one another, take
all threads of a small machine and wait forever. One call per matrix is not split, and no slower.

The norm of 0 has no derivative and 0/0 no value: both are NaN in JAX, also where the result is then
not used, and both occur: units that are silent, weights that have not moved yet, aligned modes.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, DTypeLike, Float, PyTree

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray


def one_by_one(factor: Callable[[Array], PyTree], matrix: Array) -> PyTree:
    """`factor(matrix)`; under `vmap` on a CPU one after the other, elsewhere as a batch."""
    return jax.lax.platform_dependent(matrix, cpu=sequential_vmap(factor), default=factor)


def standard_normal(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike | None = None
) -> Float[Array, "..."]:
    """`jax.random.normal`, drawn as one row: the same numbers.

    XLA compiles the generator over several axes 2 to 6 times as long (jaxlib 0.10 on a CPU: 1.9
    against 0.34 s of processor time for a batch of matrices).
    """
    dtype = jnp.result_type(float) if dtype is None else dtype
    return jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)


def random_orthogonal(
    key: PRNGKeyArray, rows: int, columns: int | None = None, dtype: DTypeLike | None = None
) -> Float[Array, "rows columns"]:
    """A matrix with orthonormal columns (rows, columns), rows >= columns, of uniform measure."""
    return orthonormal(standard_normal(key, (rows, rows if columns is None else columns), dtype))


def orthonormal(draw: Float[Array, "rows columns"]) -> Float[Array, "rows columns"]:
    """The orthonormal columns of normal entries; rows >= columns."""
    q, signs = one_by_one(_factor, draw)
    return q * signs[..., None, :]


def _factor(draw: Array) -> tuple[Array, Array]:
    q, r = jnp.linalg.qr(draw)
    return q, jnp.sign(jnp.diagonal(r))


def joint_eigenvectors(stack: np.ndarray, sweeps: int = 30) -> np.ndarray:
    """Orthogonal matrix that diagonalises symmetric matrices (k, r, r) together as well as it can.

    Starts from the eigenvectors of a generic combination and polishes by Jacobi rotations
    (Cardoso and Souloumiac 1996), which settles what is nearly degenerate in the combination but
    not in its parts.
    """
    stack = 0.5 * (stack + np.swapaxes(stack, 1, 2))
    mix = np.random.default_rng(1).uniform(0.5, 1.5, size=len(stack))
    _, basis = np.linalg.eigh(np.tensordot(mix, stack, axes=1))
    a = basis.T @ stack @ basis
    r = a.shape[1]
    size = max(np.abs(a).max(initial=0.0), 1e-300)
    for _ in range(sweeps):
        turned = 0.0
        for i in range(r - 1):
            for j in range(i + 1, r):
                h = np.stack([a[:, i, i] - a[:, j, j], 2 * a[:, i, j]])
                g = h @ h.T
                # Equal up to rounding in every matrix: any basis of the pair will do.
                if g[0, 0] + g[1, 1] < (1e-13 * size) ** 2 * len(stack):
                    continue
                angle = 0.25 * np.arctan2(2 * g[0, 1], g[0, 0] - g[1, 1])
                if abs(angle) < 1e-15:
                    continue
                turned = max(turned, abs(angle))
                c, s = np.cos(angle), np.sin(angle)
                turn = np.array([[c, -s], [s, c]])
                a[:, :, [i, j]] = a[:, :, [i, j]] @ turn
                a[:, [i, j], :] = turn.T @ a[:, [i, j], :]
                basis[:, [i, j]] = basis[:, [i, j]] @ turn
        if turned < 1e-14:
            break
    return basis


def balanced_pair(
    key: PRNGKeyArray,
    widths: tuple[int, ...],
    lam: float | int = 0.0,
    *,
    scale: ArrayLike | None = None,
    product: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
) -> tuple[Float[Array, "hidden in"], Float[Array, "out hidden"]]:
    """Draw W1 and W2 with W2^T W2 - W1 W1^T = lam I exactly (to rounding).

    W1 = R a V^T and W2 = U b R^T with orthogonal R (random), U and V, and per hidden direction
    b^2 - a^2 = lam and a b = p, the singular value of the map; so a^2 = (sqrt(lam^2 + 4 p^2) -
    lam)/2. Continuous in lam at fixed key, through lam = 0.

    Which orders of the widths are possible: W2^T W2 = lam I + W1 W1^T has rank d_hidden if
    lam > 0, which needs d_out >= d_hidden; lam < 0 needs d_in >= d_hidden in the same way; lam = 0
    is possible for all widths. Hidden directions that no mode uses have a = 0, b = sqrt(lam) or
    a = sqrt(-lam), b = 0.

    Args:
        key: JAX random key.
        widths: ``(d_in, d_hidden, d_out)``.
        lam: the balance lambda; a number, not a traced value, since it decides what is possible.
        scale: all min(widths) singular values of W2 W1 (an initial amplitude, not a standard
            deviation); default 1 if ``product`` is not given either.
        product: the map W2 W1 to start from, of shape (d_out, d_in) and rank <= d_hidden; its
            frames are then those of U and V. Give either this or ``scale``. It may be traced, but
            its derivative does not exist where singular values repeat.
        dtype: floating type, by default JAX's.

    Returns:
        ``W1`` (d_hidden, d_in) and ``W2`` (d_out, d_hidden).

    Raises:
        ValueError: widths for which lam is impossible, saying why; a product of the wrong shape
            or of too high a rank; a negative ``scale``.
    """
    if len(widths) != 3:
        raise ValueError(f"widths is {widths!r}; it must be (d_in, d_hidden, d_out).")
    names = ("d_in", "d_hidden", "d_out")
    d_in, hidden, out = (
        check_integer(width, f"widths: {name}", minimum=1)
        for width, name in zip(widths, names, strict=True)
    )
    check_balance_possible((d_in, hidden, out), lam)
    if scale is not None and product is not None:
        raise ValueError("scale and product are both given; give one of them.")
    if isinstance(scale, Tracer) or scale is None:
        pass
    elif not (math.isfinite(float(scale)) and float(scale) >= 0):  # type: ignore[arg-type]
        raise ValueError(f"scale is {scale!r}; it must be a finite number of at least 0.")

    dtype = jnp.dtype(jnp.result_type(float) if dtype is None else dtype)
    keys = jax.random.split(key, 3)
    turn = random_orthogonal(keys[0], hidden, dtype=dtype)
    modes = min(d_in, hidden, out)
    if product is None:
        left = random_orthogonal(keys[1], out, dtype=dtype)
        right = random_orthogonal(keys[2], d_in, dtype=dtype)
        strengths = jnp.full(modes, 1.0 if scale is None else scale, dtype)
    else:
        left, strengths, right = _frames_of(jnp.asarray(product, dtype), (d_in, hidden, out))
        strengths = strengths[:modes]
    p = jnp.zeros(hidden, dtype).at[:modes].set(strengths)

    # The larger of the two squares has no cancellation; the smaller is p^2 / larger.
    larger = (jnp.sqrt(lam**2 + 4 * p**2) + abs(lam)) / 2
    safe = jnp.where(larger > 0, larger, 1.0)
    big = jnp.where(larger > 0, jnp.sqrt(safe), 0.0)
    small = p / jnp.where(big > 0, big, 1.0)
    a, b = (small, big) if lam >= 0 else (big, small)
    used_in, used_out = min(hidden, d_in), min(hidden, out)
    w1 = (turn[:, :used_in] * a[None, :used_in]) @ right[:, :used_in].T
    w2 = (left[:, :used_out] * b[None, :used_out]) @ turn[:, :used_out].T
    return w1, w2


def check_balance_possible(widths: tuple[int, int, int], lam: float | int) -> None:
    """Raise ``ValueError`` if no pair of these widths has W2^T W2 - W1 W1^T = lam I."""
    d_in, hidden, out = widths
    if not math.isfinite(lam):
        raise ValueError(f"lam is {lam!r}; it must be a finite number.")
    for wrong, sign, side, width, gram in (
        (lam > 0 and out < hidden, "> 0", "d_out", out, "W2^T W2 = lam I + W1 W1^T"),
        (lam < 0 and d_in < hidden, "< 0", "d_in", d_in, "W1 W1^T = -lam I + W2^T W2"),
    ):
        if wrong:
            raise ValueError(
                f"lam = {lam} is impossible for widths (d_in, d_hidden, d_out) = {widths}: lam "
                f"{sign} needs {side} >= d_hidden, because {gram} must have rank d_hidden = "
                f"{hidden}, and its rank is at most {side} = {width}. Use lam = 0, the other sign, "
                f"or at most {width} hidden units."
            )


def _frames_of(
    product: jax.Array, widths: tuple[int, int, int]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    d_in, hidden, out = widths
    if product.shape != (out, d_in):
        raise ValueError(f"product has shape {product.shape}; it must be ({out}, {d_in}).")
    left, strengths, right = jnp.linalg.svd(product, full_matrices=True)
    if strengths.shape[0] > hidden and not isinstance(strengths, Tracer):
        rest, first = float(strengths[hidden]), float(strengths[0])
        if rest > 100 * float(jnp.finfo(product.dtype).eps) * first:
            raise ValueError(
                f"product has rank above d_hidden = {hidden} (singular value {hidden + 1} is "
                f"{rest:.2e}); give it at most that rank or the layer more units."
            )
    return left, strengths, right.T


@jax.custom_jvp
def ratio(a: Array, b: Array) -> Array:
    """Return ``a / b``. The derivative forms no ``b**-2``, which overflows for small ``b``."""
    return a / b


@ratio.defjvp
def _(primals, tangents):
    a, b = primals
    da, db = tangents
    value = ratio(a, b)
    return value, ratio(da, b) - value * ratio(db, b)


def quotient(a: Array, b: Array, at_zero: ArrayLike = 0.0) -> Array:
    """Return ``a / b``, and `at_zero` where b is 0; a and b have one shape.

    Derivatives are finite: where b is 0 they are those of `at_zero`.
    """
    there = b != 0
    return jnp.where(there, ratio(a, jnp.where(there, b, 1)), at_zero)


def root(a: Array) -> Array:
    """Return the square root of ``a``, whose derivative is 0 where ``a`` is 0."""
    zero = a == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, a)))


def norm(a: Array, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Array:
    """Return the root of the sum of squares over `axis` (default: all entries).

    Its derivative is 0 where all entries are 0. No square overflows or is lost to underflow: the
    largest entry is taken out first.
    """
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(a), axis=axis, keepdims=True, initial=0))
    largest = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
    size = largest * root(jnp.sum(jnp.square(a / largest), axis=axis, keepdims=True))
    return size if keepdims else jnp.squeeze(size, axis)
