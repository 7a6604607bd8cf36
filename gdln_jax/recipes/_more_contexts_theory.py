"""Closed forms for any number of contexts, and the frames in which networks are read (H Fig. 5).

The common pathway's d belongs to its own v (E27); the contextual modes start where the growth on
the common pathway's target leaves them (`relu.head_start`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gdln_jax import exact, expected_initial, gradient_flow, measures, pack, reduce, relu, tasks
from gdln_jax.recipes import _context_runs as cx

NARROW = 8


@dataclass(frozen=True)
class Theory:
    """Closed forms for C contexts, under loss_scale times the mean.

    common: s, d, a (time, mode) of the common pathway; rest: strengths S and variance D of a
    contextual pathway, its B(0), B(t) (time, mode); loss (time,).
    """

    common_s: np.ndarray
    common_d: np.ndarray
    common: np.ndarray
    rest_s: np.ndarray
    rest_d: float
    start: np.ndarray
    gain: np.ndarray
    rest: np.ndarray
    loss: np.ndarray


def _svd(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, S, V of the modes that are not rounding."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    kept = s > 1e-9 * s[0]
    return u[:, kept], s[kept], vt[kept].T


def _residual_maps(task: tasks.Task) -> dict[str, np.ndarray]:
    """Y X^T (sums) of every contextual pathway on what the common one leaves."""
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    items = x[:, : task.graph.nodes["items"]]
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    active = {name: np.isin(context, on) for name, on in task.meta["active"].items()}
    return {name: rest[on].T @ items[on] for name, on in active.items() if name != "common"}


def frames_of(task: tasks.Task) -> tuple[dict[str, Any], list[tuple[np.ndarray, np.ndarray]]]:
    """Frames in which pathways are read, and the contextual pathways' own.

    For every pathway first its own modes, padded to one number, then the common modes: (u_k, q)
    with q = <x_p x^T> v_k/d_k, so that the strengths summed over pathways are those of the whole
    network's output. All contextual pathways share the item modes V, in which U_p^T U_j is a
    multiple of I.
    """
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    maps = _residual_maps(task)
    v = _svd(next(iter(maps.values())))[2]
    own = {name: (m @ v / np.linalg.norm(m @ v, axis=0), v) for name, m in maps.items()}
    u, _, wide = _svd(y.T @ x)
    d = np.sum((x @ wide) ** 2, axis=0)
    count = max(wide.shape[1], v.shape[1])
    frames = {}
    for name, (left, right) in {"common": (u, wide), **own}.items():
        seen = x * np.isin(context, task.meta["active"][name])[:, None]
        seen = seen if name == "common" else seen[:, : len(v)]
        pad = ((0, 0), (0, count - right.shape[1]))
        frames[name] = (
            np.concatenate([np.pad(left, pad), u], axis=1),
            np.concatenate([np.pad(right, pad), seen.T @ x @ wide / d], axis=1),
        )
    return frames, list(own.values())


def overlap_of(frames: list[tuple[np.ndarray, np.ndarray]], c: int) -> float:
    """Largest entry of U_p^T U_j + I/(C-1) over pairs of contextual pathways (E16)."""
    worst = 0.0
    for k, (one, _) in enumerate(frames):
        for other, _ in frames[:k]:
            gap = one.T @ other + np.eye(one.shape[1]) / (c - 1)
            worst = max(worst, float(np.abs(gap).max()))
    return worst


def find_theory(task: tasks.Task, width: int, std: float, scale: float, t: np.ndarray) -> Theory:
    """Closed forms from the task's arrays alone; `scale` is loss_scale, n C for sums."""
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    c, n = int(context.max()) + 1, task.graph.nodes["items"]
    share = scale / len(x)  # sums times this are the statistics of loss_scale times the mean
    u, s, v = _svd(y.T @ x)
    d = np.sum((x @ v) ** 2, axis=0)
    a0 = np.full(len(s), expected_initial(width, std)[0])
    common = np.asarray(exact.linear_mode(t[:, None], share * s, share * d, a0))

    on = np.isin(context, next(
        active for name, active in task.meta["active"].items() if name != "common"
    ))  # fmt: skip
    items = x[:, :n] * on[:, None]
    taken = np.einsum("k,yk,xk,xz->kyz", s / d, u, v, x.T @ items)
    head = relu.head_start(share * (y.T @ items), share * taken, share * s, share * d, a0)
    start, strengths = np.asarray(head.expected(width, std)), np.asarray(head.s)
    variance = share * (c - 1)
    rest = np.asarray(exact.context_mode(t[:, None], strengths, variance, start, c))
    learned = rest * variance / ((c - 1) * strengths)
    # H App. G as in SCIENCE 6: (C-1)/2 sum sigma^2 (1 - B/B_inf)^2, S = sqrt((C-1)/C) sigma.
    power = c * strengths**2 / share
    loss = 0.5 * np.sum(share * s**2 / d * (1 - common * d / s) ** 2, axis=-1)
    loss = loss + 0.5 * np.sum(power * (1 - learned) ** 2, axis=-1)
    return Theory(
        share * s, share * d, common, strengths, variance, start, np.asarray(head.gain), rest, loss
    )


def residual_error(c: int, scale: float, b0: float, t: np.ndarray) -> float:
    """Largest error of E17 against the flow of aligned contextual pathways on the residual."""
    task = tasks.semantic_contexts(c, residual=True, width=NARROW)
    reduction = reduce(task.graph, task.data)
    ways = cx.pathways(task.graph)
    frames = {h: (reduction.frames[b][0], reduction.frames[a][1]) for h, (_, a, b) in ways.items()}

    def look(net: Any) -> dict[str, Any]:
        return {
            h: measures.mode_strengths(net.weights[b] @ net.weights[a], *frames[h])
            for h, (_, a, b) in ways.items()
        }

    flow = gradient_flow(
        reduction.embed(np.sqrt(b0)), pack(task.graph, task.data), t[:: max(1, len(t) // 80)],
        tau=1 / scale, measure=look, keep_models=False,
    )  # fmt: skip
    worst = 0.0
    for h, (_, first, second) in ways.items():
        s = scale * np.asarray(reduction.strengths[first, second])
        d = scale * (c - 1) / len(task.meta["x"])
        wanted = np.asarray(exact.context_mode(np.asarray(flow.ts)[:, None], s, d, b0, c))
        worst = max(worst, float(np.abs(np.asarray(flow.measured[h]) - wanted).max()))
    return worst
