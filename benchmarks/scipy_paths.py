"""Baseline (c): N Eq. 10 as it is written, over paths and pairs of paths, with `solve_ivp`."""

from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp


def solve_paths(
    routes: np.ndarray,
    strength: np.ndarray,
    variance: Callable[[int, int], np.ndarray],
    start: tuple[np.ndarray, np.ndarray, np.ndarray],
    ts: np.ndarray,
    *,
    rtol: float,
    atol: float,
) -> tuple[np.ndarray, int]:
    """Strengths (time, M + 1 + M, mode) of all edges of a routing network, and calls of the slope.

    `routes` (path, 2), as many per output; `strength` (path, mode) S(p); `variance(j, p)` (mode,)
    D(j, p) of two paths into one output; `start`: first, hidden (mode,) and third layer.
    """
    outputs = routes[:, 1].max() + 1
    into = np.stack([np.flatnonzero(routes[:, 1] == j) for j in range(outputs)])
    table = np.array([[[variance(j, p) for p in paths] for j in paths] for paths in into])
    wanted = strength[into]
    sources = routes[into, 0]
    modes = strength.shape[1]
    inputs = len(start[0])

    def slope(_: float, flat: np.ndarray) -> np.ndarray:
        b = flat.reshape(-1, modes)
        first, hidden, third = b[:inputs], b[inputs], b[inputs + 1 :]
        paths = third[:, None] * hidden * first[sources]
        error = wanted - np.einsum("ojpm,ojm->opm", table, paths)
        change = np.zeros_like(b)
        np.add.at(change, sources, third[:, None] * hidden * error)
        change[inputs] = np.sum(third[:, None] * first[sources] * error, axis=(0, 1))
        change[inputs + 1 :] = np.sum(hidden * first[sources] * error, axis=1)
        return change.ravel()

    b0 = np.concatenate([start[0], start[1][None], start[2]]).ravel()
    run = solve_ivp(slope, (ts[0], ts[-1]), b0, method="DOP853", t_eval=ts, rtol=rtol, atol=atol)
    return run.y.T.reshape(len(ts), -1, modes), run.nfev
