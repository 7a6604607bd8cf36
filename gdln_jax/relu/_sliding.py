"""Units at a kink, where the examples on both sides push back: the unit slides along it.

A step of fixed length keeps crossing the kink back and forth. Here each such example is on for
the fraction of the step that keeps the unit on the kink, which is the flow in the sense of
Filippov.
"""

import numpy as np

# Enough for kinks that are not orthogonal: on the tasks of the docs more change nothing.
_SWEEPS = 2


def slide(
    x: np.ndarray, w: np.ndarray, push: np.ndarray, on: np.ndarray, at_kink: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correct weights after a step in which example i moved unit u by `on * push * x_i`.

    Called at every step: its shapes are not checked at run time.

    Args:
        x: (n, x) inputs.
        w: (unit, x) weights after the step.
        push: (unit, n) step times c_i = p_i a . R_i; negative at a kink that holds a unit.
        on: (unit, n) the fraction of the step for which the example was taken to be on.
        at_kink: (unit, n) bool, the pairs whose fraction may change: those that crossed or slid.

    Returns:
        Weights, fractions, and which pairs slide: fraction above 0 and below 1.
    """
    movable = at_kink & (push < 0)
    columns = np.flatnonzero(movable.any(axis=0))
    if not len(columns):
        return w, on, movable
    rows = np.flatnonzero(movable.any(axis=1))
    z, gram = w[rows] @ x.T, x @ x.T
    fraction, pull = on[rows], push[rows]
    square = np.diagonal(gram)
    with np.errstate(divide="ignore", invalid="ignore"):
        per = np.where(movable[rows], 1 / (-pull * square), 0.0)
    per[:, square == 0] = 0.0
    for _ in range(_SWEEPS):
        for i in columns:
            wanted = np.clip(fraction[:, i] + per[:, i] * z[:, i], 0.0, 1.0)
            change = pull[:, i] * (wanted - fraction[:, i])
            fraction[:, i] = wanted
            z += change[:, None] * gram[i]
    w, moved = w.copy(), on.copy()
    w[rows] += (pull * (fraction - on[rows])) @ x
    moved[rows] = fraction
    return w, moved, movable & (moved > 0) & (moved < 1)
