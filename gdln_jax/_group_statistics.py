"""S and D of N Eq. 7-8 per group of paths, and how far they are from diagonal. Floor 2."""

import itertools
from typing import NamedTuple

import numpy as np

from gdln_jax._frames import Frames
from gdln_jax._links import input_rows, links, output_moments
from gdln_jax._plan import PackedData

Group = tuple[str, str]
# First and last edge of a group of paths.
_Ports = tuple[int, int]
# Variances below this, relative to the largest of their group, are rounding.
_ROUNDING = 1e-10


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


class Moments(NamedTuple):
    """Second moments between ports, summed over the paths between them.

    `yx[e, f]`: (|t(f)|, |s(e)|) for paths from edge e to edge f; `x[(e, f), (e', f')]`: (|s(e)|,
    |s(e')|) for paths that meet in one output.
    """

    yx: dict[_Ports, np.ndarray]
    x: dict[tuple[_Ports, _Ports], np.ndarray]


def path_moments(data: PackedData) -> Moments:
    """Sum the statistics over the paths between each two ports, without listing paths."""
    found = links(data)
    yx: dict[_Ports, np.ndarray] = {}
    xx: dict[tuple[_Ports, _Ports], np.ndarray] = {}
    for moments in output_moments(data, found, np.ones((len(data.graph.edges), 1))):
        weighted = moments.target * moments.weight[:, None]
        rows = {seed: input_rows(data.graph, found, seed) for _, seed, _ in moments.terms}
        for edge, seed, value in moments.terms:
            key = (seed.edge, edge)
            yx[key] = yx.get(key, 0) + np.squeeze(value) * (weighted.T @ rows[seed])
        for (f, j, gj), (g, p, gp) in itertools.product(moments.terms, repeat=2):
            pair = ((j.edge, f), (p.edge, g))
            moment = rows[j].T @ (rows[p] * moments.weight[:, None])
            xx[pair] = xx.get(pair, 0) + np.squeeze(gj * gp) * moment
    return Moments(yx, xx)


def with_shared_errors(moments: Moments, frames: Frames) -> Frames:
    """Give edges into an output the modes whose errors reach them only through other edges.

    Where a group of paths carries a mode without any correlation of its own (S = 0) beside a
    group that has one (D(j, p) != 0), it learns from the error that the other leaves, which
    points along the other's frame. `find_frames` follows correlations and leaves it empty there.
    """
    u = [frame.copy() for frame in frames.u]
    pairs = [
        (j, p, np.einsum("xm,xz,zm->m", frames.v[j[0]], c, frames.v[p[0]]))
        for (j, p), c in moments.x.items()
        if j[1] != p[1]
    ]
    changed = True
    while changed:
        changed = False
        for (_, f), (_, g), d in pairs:
            missing = ~u[f].any(axis=0) & u[g].any(axis=0)
            for m in np.flatnonzero(missing & (np.abs(d) > _ROUNDING * np.abs(d).max())):
                direction = u[g][:, m]
                # Not where it would lie across other modes: then no frame fits.
                if np.abs(direction @ u[f]).max() < _ROUNDING:
                    u[f][:, m] = direction
                    changed = True
    return Frames(u, frames.v, frames.modes)


def group_statistics(data: PackedData, moments: Moments, frames: Frames) -> GroupStatistics:
    """Look at the statistics of groups of paths in frames."""
    names = _group_names(data, list(moments.yx))
    strengths, variances, off = {}, {}, []
    # Statistics of rounding size have no shape worth reporting.
    least_yx, least_x = (
        1e-12 * max((np.linalg.norm(a) for a in table.values()), default=0.0) for table in moments
    )
    for (e, f), a in moments.yx.items():
        s = np.einsum("ym,yx,xm->m", frames.u[f], a, frames.v[e])
        strengths[names[e, f]] = s
        size = np.linalg.norm(a)
        if size > least_yx:
            rest = np.linalg.norm(a - (frames.u[f] * s) @ frames.v[e].T)
            off.append((f"Sigma^yx of {_arrow(names[e, f])}", float(rest / size)))
    for (j, p), c in moments.x.items():
        vj, vp = frames.v[j[0]], frames.v[p[0]]
        d = np.einsum("xm,xz,zm->m", vj, c, vp)
        variances[names[j], names[p]] = d
        size = np.linalg.norm(c @ vp)
        if size > least_x:
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
    names = {
        (e, f): pair if count[pair] == 1 else (edges[e].name, edges[f].name)
        for (e, f), pair in nodes.items()
    }
    if len(set(names.values())) < len(names):
        # An edge is called like a node: name all groups by their edges.
        names = {(e, f): (edges[e].name, edges[f].name) for e, f in ports}
    return names
