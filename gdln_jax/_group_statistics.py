"""S and D of N Eq. 7-8 per group of paths, and how far they are from diagonal. Floor 2."""

import itertools
from typing import NamedTuple

import numpy as np

from gdln_jax._frames import Frames, input_rows, links, output_moments
from gdln_jax._plan import PackedData

Group = tuple[str, str]
_Ports = tuple[int, int]


class GroupStatistics(NamedTuple):
    """Statistics of groups of paths in frames; see `Reduction` for the keys.

    `off_diagonal` lists (which statistics, share of their norm outside the diagonal).
    """

    strengths: dict[Group, np.ndarray]
    variances: dict[tuple[Group, Group], np.ndarray]
    off_diagonal: list[tuple[str, float]]

    def worst(self, count: int) -> list[tuple[str, float]]:
        """The statistics farthest from diagonal."""
        return sorted(self.off_diagonal, key=lambda item: -item[1])[:count]


def group_statistics(data: PackedData, frames: Frames) -> GroupStatistics:
    """Sum the statistics over the paths between each two ports and look at them in frames."""
    graph = data.graph
    found = links(data)
    yx: dict[_Ports, np.ndarray] = {}
    xx: dict[tuple[_Ports, _Ports], np.ndarray] = {}
    for moments in output_moments(data, found, np.ones((len(graph.edges), 1))):
        weighted = moments.target * moments.weight[:, None]
        rows = {seed: input_rows(graph, found, seed) for _, seed, _ in moments.terms}
        for edge, seed, value in moments.terms:
            key = (seed.edge, edge)
            yx[key] = yx.get(key, 0) + np.squeeze(value) * (weighted.T @ rows[seed])
        for (f, j, gj), (g, p, gp) in itertools.product(moments.terms, repeat=2):
            pair = ((j.edge, f), (p.edge, g))
            moment = rows[j].T @ (rows[p] * moments.weight[:, None])
            xx[pair] = xx.get(pair, 0) + np.squeeze(gj * gp) * moment
    names = _group_names(data, list(yx))
    strengths, variances, off = {}, {}, []
    for (e, f), a in yx.items():
        s = np.einsum("ym,yx,xm->m", frames.u[f], a, frames.v[e])
        strengths[names[e, f]] = s
        size = np.linalg.norm(a)
        if size > 0:
            rest = np.linalg.norm(a - (frames.u[f] * s) @ frames.v[e].T)
            off.append((f"Sigma^yx of {_arrow(names[e, f])}", float(rest / size)))
    for (j, p), c in xx.items():
        vj, vp = frames.v[j[0]], frames.v[p[0]]
        d = np.einsum("xm,xz,zm->m", vj, c, vp)
        variances[names[j], names[p]] = d
        size = np.linalg.norm(c @ vp)
        if size > 0:
            rest = np.linalg.norm(c @ vp - vj * d)
            both = _arrow(names[p]) if j == p else f"{_arrow(names[j])} with {_arrow(names[p])}"
            off.append((f"Sigma^x of {both}", float(rest / size)))
    return GroupStatistics(strengths, variances, off)


def _arrow(group: Group) -> str:
    return f"{group[0]} ... {group[1]}"


def _group_names(data: PackedData, ports: list[_Ports]) -> dict[_Ports, Group]:
    """Key groups by nodes, or by edges where several groups join the same two nodes."""
    edges = data.graph.edges
    nodes = {(e, f): (edges[e].source, edges[f].target) for e, f in ports}
    count: dict[Group, int] = {}
    for pair in nodes.values():
        count[pair] = count.get(pair, 0) + 1
    return {
        (e, f): pair if count[pair] == 1 else (edges[e].name, edges[f].name)
        for (e, f), pair in nodes.items()
    }
