"""Few weighted examples with the second moments of many, for `GatedData.compress`."""

import numpy as np


def pseudo_examples(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    factors: dict[bytes, tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and weights of pseudo-examples for the examples of one gate pattern.

    `factors` keeps the triangular factors of inputs, which patterns may share.
    """
    used_x, used_y = np.any(x != 0, axis=0), np.any(y != 0, axis=0)
    total = weights.sum()
    if len(x) <= used_x.sum():
        return x, y, weights
    scale = np.sqrt(weights)[:, None]
    scaled_x, scaled_y = x[:, used_x] * scale, y[:, used_y] * scale
    key = used_x.tobytes() + scaled_x.tobytes()
    if key not in factors:
        factors[key] = _triangular(scaled_x)
    q, r = factors[key]
    along = q.T @ scaled_y
    rest = _triangular(scaled_y - q @ along)[1]
    rest = rest[np.any(np.abs(rest) > 1e-14 * max(np.abs(scaled_y).max(initial=0), 1e-300), axis=1)]
    count = len(r) + len(rest)
    if count >= len(x):
        return x, y, weights
    new_x, new_y = np.zeros((count, x.shape[1])), np.zeros((count, y.shape[1]))
    new_x[np.ix_(range(len(r)), used_x)] = r
    new_y[np.ix_(range(len(r)), used_y)] = along
    new_y[np.ix_(range(len(r), count), used_y)] = rest
    share = total / max(count, 1)
    if count == 0:
        return np.zeros((1, x.shape[1])), np.zeros((1, y.shape[1])), np.array([total])
    return new_x / np.sqrt(share), new_y / np.sqrt(share), np.full(count, share)


def _triangular(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """QR with a non-negative diagonal, so that the factor is a function of the moments."""
    q, r = np.linalg.qr(a)
    sign = np.where(np.diagonal(r) < 0, -1.0, 1.0)
    return q * sign, r * sign[:, None]
