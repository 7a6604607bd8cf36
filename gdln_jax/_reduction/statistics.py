"""S and D of N Eq. 7-8 per group of paths, and how far they are from diagonal."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._data.packed import OutputTable, PackedData
from gdln_jax._graph import NodeClass
from gdln_jax._reduction.activities import (
    input_rows,
    is_rounding,
    links,
    output_moments,
    resolution,
)
from gdln_jax._reduction.frames import Frames

Group = tuple[str, str]
# First and last edge of a group of paths.
_Ports = tuple[int, int]
_Key = TypeVar("_Key")
# Variances below this, relative to the largest of their group, are rounding.
_ROUNDING = 1e-10


class GroupStatistics(NamedTuple):
    """Statistics of groups of paths in frames; see `Reduction` for the keys.

    `yx_off` and `x_off`: which statistics -> share of their norm outside the diagonal. `overlaps`:
    which two groups, active together -> how far their output frames differ, as the share of what
    one predicts that lies across the other's frame (H's overlap terms, E16).
    """

    strengths: dict[Group, np.ndarray]
    variances: dict[tuple[Group, Group], np.ndarray]
    yx_off: dict[str, float]
    x_off: dict[str, float]
    overlaps: dict[str, float]


class Moments(NamedTuple):
    """Second moments between ports, summed over the paths between them.

    `yx[e, f]`: (|t(f)|, |s(e)|) for paths from edge e to edge f; `x[(e, f), (e', f')]`: (|s(e)|,
    |s(e')|) for paths that meet in one output.
    """

    yx: dict[_Ports, np.ndarray]
    x: dict[tuple[_Ports, _Ports], np.ndarray]


def path_moments(data: PackedData) -> Moments:
    """Sum the statistics over the paths between each two ports, without listing paths.

    What is 0 up to rounding is 0.
    """
    found = links(data)
    power: dict[int, float] = {}
    yx: dict[_Ports, np.ndarray] = {}
    xx: dict[tuple[_Ports, _Ports], np.ndarray] = {}
    for moments in output_moments(data, found, np.ones((len(data.graph.edges), 1))):
        weighted = moments.target * moments.weight[:, None]
        rows = {seed: input_rows(data.graph, found, seed) for _, seed, _ in moments.terms}
        for edge in {edge for edge, _, _ in moments.terms}:
            power[edge] = power.get(edge, 0.0) + float(np.vdot(weighted, moments.target))
        for edge, seed, value in moments.terms:
            key = (seed.edge, edge)
            yx[key] = yx.get(key, 0) + np.squeeze(value) * (weighted.T @ rows[seed])
        for (f, j, gj), (g, p, gp) in itertools.product(moments.terms, repeat=2):
            pair = ((j.edge, f), (p.edge, g))
            moment = rows[j].T @ (rows[p] * moments.weight[:, None])
            xx[pair] = xx.get(pair, 0) + np.squeeze(gj * gp) * moment
    digits = resolution(data)
    own = {key: float(np.einsum("xx", xx[key, key])) for key in yx}
    for (e, f), a in yx.items():
        if is_rounding(a, own[e, f] * power[f], digits):
            yx[e, f] = np.zeros_like(a)
    for (j, p), c in xx.items():
        if is_rounding(c, own[j] * own[p], digits):
            xx[j, p] = np.zeros_like(c)
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
    yx_off: dict[str, float] = {}
    x_off: dict[str, float] = {}
    overlaps: dict[str, float] = {}
    # Statistics of rounding size have no shape worth reporting.
    least_yx, least_x = 1e-12 * _largest(moments.yx), 1e-12 * _largest(moments.x)
    yx = _strengths_in(moments.yx, frames)
    for ports, (_, size, rest) in yx.items():
        if size > least_yx:
            yx_off[_arrow(names[ports])] = float(rest / size)
    x = _variances_in(moments.x, frames)
    for (j, p), (d, size, rest) in x.items():
        if size > least_x:
            both = _arrow(names[p]) if j == p else f"{_arrow(names[j])} with {_arrow(names[p])}"
            x_off[both] = float(rest / size)
            if j != p and d.any():
                pair = " and ".join(sorted((_arrow(names[j]), _arrow(names[p]))))
                share = _across(frames.u[j[1]] * d, frames.u[p[1]])
                overlaps[pair] = max(share, overlaps.get(pair, 0.0))
    return GroupStatistics(
        {names[ports]: found.diagonal for ports, found in yx.items()},
        {(names[j], names[p]): found.diagonal for (j, p), found in x.items()},
        yx_off,
        x_off,
        overlaps,
    )


class _Seen(NamedTuple):
    """The diagonal (mode,) of a moment in frames, its norm, and that of what is not diagonal."""

    diagonal: np.ndarray
    size: float
    rest: float


def _strengths_in(yx: Mapping[_Ports, np.ndarray], frames: Frames) -> dict[_Ports, _Seen]:
    """A = U S V^T of every group, and what of A that is not."""
    seen: dict[_Ports, _Seen] = {}
    for keys, a in _by_shape(yx):
        u = np.stack([frames.u[f] for _, f in keys])
        v = np.stack([frames.v[e] for e, _ in keys])
        s = np.sum((a @ v) * u, axis=1)
        rest = a - (u * s[:, None]) @ np.swapaxes(v, 1, 2)
        seen |= zip(keys, map(_Seen, s, _norms(a), _norms(rest)), strict=True)
    return {key: seen[key] for key in yx}


def _variances_in(
    x: Mapping[tuple[_Ports, _Ports], np.ndarray], frames: Frames
) -> dict[tuple[_Ports, _Ports], _Seen]:
    """C V' = V D of every two groups, and what of C V' that is not."""
    seen: dict[tuple[_Ports, _Ports], _Seen] = {}
    for keys, c in _by_shape(x):
        vj = np.stack([frames.v[j[0]] for j, _ in keys])
        sent = c @ np.stack([frames.v[p[0]] for _, p in keys])
        d = np.sum(vj * sent, axis=1)
        seen |= zip(keys, map(_Seen, d, _norms(sent), _norms(sent - vj * d[:, None])), strict=True)
    return {key: seen[key] for key in x}


def _by_shape(table: Mapping[_Key, np.ndarray]) -> Iterator[tuple[list[_Key], np.ndarray]]:
    """The entries of each shape as one stack, with their keys."""
    groups: dict[tuple[int, ...], list[_Key]] = {}
    for key, a in table.items():
        groups.setdefault(a.shape, []).append(key)
    for keys in groups.values():
        yield keys, np.stack([table[key] for key in keys])


def _largest(table: Mapping[_Key, np.ndarray]) -> float:
    return max((float(_norms(stack).max()) for _, stack in _by_shape(table)), default=0.0)


def _norms(stack: np.ndarray) -> np.ndarray:
    return np.linalg.norm(stack, axis=(1, 2))


def _across(sent: np.ndarray, frame: np.ndarray) -> float:
    """Share of the modes `sent` (width, mode) that lies across the same modes of `frame`."""
    along = frame * np.sum(frame * sent, axis=0)
    return float(np.linalg.norm(sent - along) / max(np.linalg.norm(sent), 1e-300))


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


def input_owners(packed: PackedData, c: int) -> dict[int, str]:
    """Which input node each distinct input activity of class `c` belongs to."""
    edges = packed.graph.edges
    return {
        a: edges[edge].source
        for row in links(packed).incoming
        for parts in row
        for edge, _, s, a in parts
        if s == c
    }


def unit_nodes(
    packed: PackedData, alike: Iterable[set[str]] = ()
) -> tuple[PackedData, dict[str, float]]:
    """Divide inputs and targets by the largest norm that they have at their node.

    The nodes of each set of `alike` by the largest of theirs.
    Returns the data and the sizes (1 where a node is silent). O(size of the data).
    """
    graph = packed.graph
    sizes = dict.fromkeys(graph.nodes, 0.0)
    owners: list[dict[int, str]] = []
    for c, x in enumerate(packed.inputs):
        owners.append({} if x is None else input_owners(packed, c))
        if x is not None:
            norms = np.linalg.norm(np.asarray(x), axis=2).max(axis=1)
            for a, name in owners[c].items():
                sizes[name] = max(sizes[name], float(norms[a]))
    for tables in (packed.outputs, packed.silent):
        for names, table in zip(graph.classes.values(), tables, strict=True):
            if table is not None:
                norms = np.linalg.norm(np.asarray(table.target), axis=2).max(axis=1)
                for i, norm in zip(np.asarray(table.node).tolist(), norms, strict=True):
                    sizes[names[i]] = max(sizes[names[i]], float(norm))
    for names in alike:
        sizes |= dict.fromkeys(names, max(sizes[name] for name in names))
    sizes = {name: size or 1.0 for name, size in sizes.items()}
    return in_units(packed, sizes, owners), sizes


def in_units(
    packed: PackedData, sizes: Mapping[str, float], owners: Sequence[Mapping[int, str]]
) -> PackedData:
    """Divide inputs and targets by the sizes of their nodes.

    `owners`: per class the input node of each distinct input activity.
    """
    inputs = []
    for x, owner in zip(packed.inputs, owners, strict=True):
        if x is None:
            inputs.append(None)
            continue
        scale = np.array([sizes[owner[a]] if a in owner else 1.0 for a in range(len(x))])
        inputs.append(jax.device_put(np.asarray(x) / scale[:, None, None]))

    def target(table: OutputTable, names: tuple[str, ...]) -> Array:
        scale = np.array([sizes[names[i]] for i in np.asarray(table.node).tolist()])
        return jax.device_put(np.asarray(table.target) / scale[:, None, None])

    return packed.with_arrays(inputs, target)


def without_weightless(data: PackedData) -> PackedData:
    """The same data with inputs and targets 0 where an example weighs 0, so that none is seen.

    Cost: one pass over the active pairs on the host, if there is such an example.
    """
    tables = [table for table in (*data.outputs, *data.silent) if table is not None]
    if not any(np.any((np.asarray(t.weight) == 0) & (t.example >= 0)) for t in tables):
        return data
    live = _live(data)
    inputs = (
        None if x is None else jnp.where(jnp.asarray(live[c])[..., None], x, 0)
        for c, x in zip(data.graph.classes, data.inputs, strict=True)
    )
    return data.with_arrays(inputs, lambda t, _: jnp.where(t.weight[..., None] > 0, t.target, 0))


def _live(data: PackedData) -> dict[NodeClass, np.ndarray]:
    """Whether any output of positive weight depends on an activity, (instance, row) per class."""
    graph = data.graph
    live = {
        c: np.zeros((n, data.rows), bool) for c, n in zip(graph.classes, data.counts, strict=True)
    }
    for c, table in zip(graph.classes, data.outputs, strict=True):
        if table is not None:
            np.logical_or.at(live[c], table.instances, np.asarray(table.weight) > 0)
    for bundle, stage in reversed(list(zip(graph.bundles, data.stages, strict=True))):
        if stage is not None:
            pairs = stage.pairs()
            sent = live[bundle.target][pairs.target] & (pairs.gate != 0)[:, None]
            np.logical_or.at(live[bundle.source], pairs.source, sent)
    return live
