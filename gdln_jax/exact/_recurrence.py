r"""Linear recurrent networks read at their last time, for white inputs (theory#recurrence).

$h_t = W_h h_{t-1} + W_x x_t$, $y = W_y h_T$, with $\Sigma^{y x_t} = U\, \mathrm{diag}(s_t) V^T$. In
aligned coordinates each mode is a pole b between an input strength a and a read-out c,
$l = \frac12 \sum_t (s_t - c\, a\, b^{T-t})^2$ (Proca, Domine, Shanahan, Mediano, ICML 2025).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax.exact._calculus import concrete

# Poles at which stationary points of the loss are looked for, on each side of |b| = 1; peaks near
# it are about 1/T wide.
_GRID = 4001
# 1/b below which a pole counts as infinite.
_INFINITE = 1e-8


class RecurrentMinimum(NamedTuple):
    """The best aligned linear recurrent network, (mode,) each.

    - `b`: pole; infinite where no network attains the infimum.
    - `loss`: the infimum of the mode's loss.
    - `attained`: whether a network has it.
    """

    b: np.ndarray
    loss: np.ndarray
    attained: np.ndarray


def rnn_loss(
    strengths: Float[Numbers, "time mode"], a: ArrayLike, b: ArrayLike, c: ArrayLike
) -> Float[Array, "..."]:
    r"""Return $l = \frac12 \sum_{m,t} (s_t - c\, a\, b^{T-t})^2$ of an aligned recurrent network.

    The loss without what no strength can change (theory#recurrence). Differentiable in every
    argument.

    Args:
        strengths: $s_t$ (time, mode) of white inputs, the first input first.
        a, b, c: strengths of Wx, Wh and Wy, (..., mode), or a number for all modes.

    Raises:
        ValueError: shapes that do not fit.
    """
    s = jnp.asarray(strengths, jnp.result_type(float))
    _check_sequence(s.shape)
    modes, shapes = s.shape[1], [np.shape(x) for x in (a, b, c)]
    if any(shape and shape[-1] not in (1, modes) for shape in shapes):
        raise ValueError(
            f"a, b, c have shapes {', '.join(map(str, shapes))}; strengths have {modes} modes: "
            f"expected (..., {modes}), or a number for all modes."
        )
    a, b, c, _ = jnp.broadcast_arrays(*(jnp.asarray(x, s.dtype) for x in (a, b, c)), s[0])
    # Products, not powers: 0 ** 0 has no derivative.
    steps = jnp.broadcast_to(b[..., None, :], (*b.shape[:-1], len(s) - 1, b.shape[-1]))
    powers = jnp.cumprod(jnp.concatenate([jnp.ones_like(b)[..., None, :], steps], axis=-2), axis=-2)
    error = s[::-1] - (a * c)[..., None, :] * powers
    return jnp.sum(jnp.square(error), axis=(-2, -1)) / 2


def rnn_minimum(strengths: Float[Numbers, "time mode"]) -> RecurrentMinimum:
    r"""Find the best aligned recurrent network of each mode, and whether there is one.

    At the best a c the loss is $\frac12 \sum_t s_t^2 - \frac12 g(b)$ with $g = (\sum_k s_{T-k}
    b^k)^2 / \sum_k b^{2k}$, which tends to $s_1^2$ for infinite b: there is a minimiser iff a
    finite b reaches the largest value (theory#recurrence). Host code, outside of jit: it looks for
    all stationary poles. Cost O(time) for each of 8,000 poles and a mode.

    Args:
        strengths: $s_t$ (time, mode) of white inputs, the first input first.

    Returns:
        (b, loss, attained), each (mode,). Of two best poles the positive one. A mode without
        strengths, or with one time only, has b = 0, which takes no part.

    Raises:
        ValueError: under jit, vmap or grad, or for anything but finite numbers (time, mode).
    """
    s = concrete(strengths) if not isinstance(strengths, list | tuple) else np.asarray(strengths)
    if s is None:
        raise ValueError(
            "rnn_minimum takes known strengths (time, mode), outside of jit, vmap and grad; got "
            "traced ones."
        )
    _check_sequence(s.shape)
    if s.dtype.kind not in "iuf" or not np.all(np.isfinite(s)):
        raise ValueError(f"strengths must be finite real numbers; got {s.tolist()}.")
    found = [_best_pole(column) for column in np.asarray(s, float).T]
    b, loss, attained = (np.array(part) for part in zip(*found, strict=True))
    return RecurrentMinimum(b, loss, attained)


def _check_sequence(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"strengths has shape {shape}; expected (time, mode), the first input first."
        )


def _best_pole(s: np.ndarray) -> tuple[float, float, bool]:
    """(b, loss, attained) of one mode."""
    if len(s) == 1 or not s.any():
        return 0.0, 0.0, True
    # Poles |b| <= 1 by b, others by u = 1/b; polyval takes the highest power first.
    inside = _peaks(s)
    outside = _peaks(s[::-1])
    finite = [(_gain(s, b), b) for b in inside]
    finite += [(_gain(s[::-1], u), 1 / u) for u in outside if abs(u) > _INFINITE]
    top = max((gain for gain, _ in finite), default=0.0)
    never = top <= s[0] ** 2 * (1 + 1e-12)
    loss = max(float(s @ s - max(top, s[0] ** 2)) / 2, 0.0)
    best = max(b for gain, b in finite if gain >= top * (1 - 1e-12)) if not never else np.inf
    return best, loss, not never


def _gain(s: np.ndarray, b: float) -> float:
    """g(b), by how much twice the loss falls at the best a c."""
    square = np.polyval(np.ones(len(s)), np.square(b))
    return float(np.square(np.polyval(s, b)) / square)


def _peaks(s: np.ndarray) -> list[float]:
    """Maxima of g in [-1, 1], by bisection of its slope where that changes sign on a grid."""

    def slope(b: np.ndarray) -> np.ndarray:
        n, square = np.polyval(s, b), np.polyval(np.ones(len(s)), b**2)
        powers = np.polyval(np.polyder(np.ones(len(s))), b**2) * 2 * b
        return n * (2 * np.polyval(np.polyder(s), b) * square - n * powers)

    grid = np.linspace(-1 - 1e-3, 1 + 1e-3, _GRID)
    up = slope(grid) > 0
    (at,) = np.nonzero(up[:-1] & ~up[1:])
    low, high = grid[at], grid[at + 1]
    for _ in range(60):
        middle = (low + high) / 2
        rising = slope(middle) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return ((low + high) / 2).tolist()
