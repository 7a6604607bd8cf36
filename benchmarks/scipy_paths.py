"""Baseline (c): N Eq. 10 as it is written, over paths and pairs of paths, with `solve_ivp`."""

from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp

Start = tuple[np.ndarray, np.ndarray, np.ndarray]


def make_paths(
    routes: np.ndarray, strength: np.ndarray, variance: Callable[[int, int], np.ndarray]
) -> Callable[..., tuple[np.ndarray, int]]:
    """Tabulate the pairs of paths of a routing network, for `solve(start, ts, rtol=, atol=)`.

    `routes` (path, 2), as many per output; `strength` (path, mode) S(p); `variance(j, p)` (mode,)
    D(j, p) of two paths into one output; `start`: first, hidden (mode,) and third layer. Returns
    strengths (time, M + 1 + M, mode) of all edges, and the number of calls of the slope.
    """
    outputs = routes[:, 1].max() + 1
    into = np.stack([np.flatnonzero(routes[:, 1] == j) for j in range(outputs)])
    pairs = np.array([[[variance(j, p) for j in paths] for p in paths] for paths in into])
    # (output, mode, p, j): products of matrices with vectors, which BLAS does.
    table = np.ascontiguousarray(np.moveaxis(pairs, 3, 1))
    wanted = np.swapaxes(strength[into], 1, 2)
    sources = routes[into, 0]
    modes = strength.shape[1]
    # Paths in the order of their inputs, to add up what belongs to one.
    order = np.argsort(sources.ravel(), kind="stable")
    firsts = np.searchsorted(sources.ravel()[order], np.arange(sources.max() + 1))

    def solve(start: Start, ts: np.ndarray, *, rtol: float, atol: float) -> tuple[np.ndarray, int]:
        inputs = len(start[0])

        def slope(_: float, flat: np.ndarray) -> np.ndarray:
            b = flat.reshape(-1, modes)
            first, hidden, third = b[:inputs], b[inputs], b[inputs + 1 :]
            inner = hidden * first[sources]
            paths = np.swapaxes(third[:, None] * inner, 1, 2)
            error = np.swapaxes(wanted - (table @ paths[..., None])[..., 0], 1, 2)
            change = np.empty_like(b)
            back = (third[:, None] * error).reshape(-1, modes)
            sums = np.add.reduceat(back[order], firsts)
            change[:inputs] = hidden * sums
            change[inputs] = np.sum(first * sums, axis=0)
            change[inputs + 1 :] = np.sum(inner * error, axis=1)
            return change.ravel()

        b0 = np.concatenate([start[0], start[1][None], start[2]]).ravel()
        ends = ts[0], ts[-1]
        run = solve_ivp(slope, ends, b0, method="DOP853", t_eval=ts, rtol=rtol, atol=atol)
        return run.y.T.reshape(len(ts), -1, modes), run.nfev

    return solve
