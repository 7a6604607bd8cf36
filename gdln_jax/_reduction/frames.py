"""Frames in which every path statistic is diagonal at once (N Eq. 7-9, with erratum E4).

An *endpoint* is the input side of an edge that leaves an input node (frame V), or the output side
of one that enters an output node (frame U). Hidden frames are free. Paths are never listed: random
numbers on the edges of a scalar copy of the network give generic linear combinations of the
statistics of all paths between two endpoints, and frames that diagonalise generic combinations
diagonalise all of them. Modes found at one endpoint are carried to the others by the statistics
themselves, so that repeated singular values keep their labels. Host code in NumPy; whether the
frames diagonalise the statistics is measured afterwards, not assumed.
"""

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Array

from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph
from gdln_jax._linalg import joint_eigenvectors
from gdln_jax._reduction.activities import (
    Seed,
    input_rows,
    is_rounding,
    links,
    output_moments,
    resolution,
)

# Independent generic combinations of the statistics, and rounds in which matrices are sent between
# endpoints. Both are generous: the certificate says whether they sufficed.
DRAWS, _ROUNDS = 3, 6
# Pairs every draw with another one.
_NEXT = np.arange(DRAWS) - 1
# Statistics below this, relative to the largest, are rounding noise of sums of products.
_NOISE = 1e-10


class Frames(NamedTuple):
    """One frame per edge and end: `u[e]` (|t(e)|, mode), `v[e]` (|s(e)|, mode).

    Columns are orthonormal, or zero for modes that do not live at that end. `frozen`: edge of a
    frozen parameter -> its constant strengths (mode,).
    """

    u: list[np.ndarray]
    v: list[np.ndarray]
    modes: int
    frozen: Mapping[str, np.ndarray] = MappingProxyType({})

    @classmethod
    def of_bundles(cls, graph: Graph, u: Sequence[Array], v: Sequence[Array]) -> "Frames":
        """The frames of a graph without ties, from stacks (edge, width, mode) per bundle."""
        stacks_u, stacks_v = ([np.asarray(stack, float) for stack in side] for side in (u, v))
        places = [graph.slot[edge] for edge in graph.edge_index]
        return cls(
            [stacks_u[k][i] for k, i in places],
            [stacks_v[k][i] for k, i in places],
            u[0].shape[-1],
        )


class Endpoint(NamedTuple):
    side: str  # "v", an input side, or "u", an output side
    edge: int


class Link(NamedTuple):
    """The statistics that lead from one endpoint to another, (draw, width there, width here).

    New modes are looked for where they `drives`: in the statistics from inputs to outputs.
    """

    other: Endpoint
    maps: np.ndarray
    drives: bool


Near = dict[Endpoint, list[Link]]
ByEndpoint = dict[Endpoint, np.ndarray]
# Statistics of an endpoint with itself or with another, (draw, width, width).
Cross = dict[tuple[Endpoint, Endpoint], np.ndarray]


class _Statistics:
    """Generic combinations of path statistics between ports, (draw, width, width) each."""

    def __init__(self, data: PackedData, rng: np.random.Generator):
        graph = data.graph
        found = links(data)
        # Positive and away from 0, so that no combination cancels or vanishes by accident.
        theta = rng.uniform(0.7, 1.3, size=(len(graph.edges), DRAWS))
        self.cross: dict[tuple[Endpoint, Endpoint], np.ndarray] = {}
        self.width: dict[Endpoint, int] = {}
        power: dict[Endpoint, float] = {}
        for moments in output_moments(data, found, theta):
            weighted = moments.target * moments.weight[:, None]
            total: dict[Seed, np.ndarray] = {}
            for edge in {edge for edge, _, _ in moments.terms}:
                end = Endpoint("u", edge)
                power[end] = power.get(end, 0.0) + float(np.vdot(weighted, moments.target))
            for edge, seed, value in moments.terms:
                x = input_rows(graph, found, seed)
                self._add(Endpoint("v", seed.edge), Endpoint("u", edge), value, x.T @ weighted)
                total[seed] = total.get(seed, 0) + value
            ends = [
                (Endpoint("v", j.edge), input_rows(graph, found, j), g) for j, g in total.items()
            ]
            for (a, xa, ga), (b, xb, gb) in itertools.product(ends, repeat=2):
                moment = xa.T @ (xb * moments.weight[:, None])
                self._add(a, b, ga * gb[_NEXT], moment)
        for (a, b), own in self.cross.items():
            if a == b:
                power[a] = float(np.abs(np.einsum("dxx->d", own)).max())
        # Endpoints that rounding alone connects have no modes in common.
        digits = resolution(data)
        self.cross = {
            (a, b): stack
            for (a, b), stack in self.cross.items()
            if a == b or not is_rounding(stack, power[a] * power[b], digits)
        }

    def _add(self, a: Endpoint, b: Endpoint, value: np.ndarray, moment: np.ndarray):
        term = value[:, None, None] * moment
        before = self.cross.get((a, b))
        self.cross[a, b] = term if before is None else before + term
        self.width[a], self.width[b] = moment.shape

    def neighbours(self) -> Near:
        """Endpoint -> links to others, input-output statistics before those between inputs."""
        near: Near = {end: [] for end in self.width}
        for (a, b), stack in self.cross.items():
            if a == b:
                continue
            near[a].append(Link(b, np.swapaxes(stack, 1, 2), (a.side, b.side) == ("v", "u")))
            if b.side == "u":
                near[b].append(Link(a, stack, False))
        for links_here in near.values():
            links_here.sort(key=lambda link: link.other.side)
        return near


def find_frames(data: PackedData, *, seed: int = 0) -> Frames:
    """Find frames that diagonalise the statistics of `data` as far as they can be.

    Modes are ordered by strength (singular value of the generic input-output statistics) where
    they are found; endpoints whose statistics never meet share mode numbers in that order, which
    is exact, since only hidden frames connect them. Cost O(active pairs x width^3).
    """
    statistics = _Statistics(data, np.random.default_rng(seed))
    near = statistics.neighbours()
    known = common_modes(statistics.cross, statistics.width, near, resolution(data))
    modes = max((frame.shape[1] for frame in known.values()), default=0)
    return _as_frames(data.graph, known, modes)


def common_modes(
    cross: Cross, widths: Mapping[Endpoint, int], near: Near, digits: float
) -> ByEndpoint:
    """Frames (width, mode) of endpoints in which their statistics are diagonal.

    `cross` holds at least the statistics of endpoints with themselves, `digits` is the relative
    rounding of the data.
    """
    known: ByEndpoint = {end: np.zeros((width, 0)) for end, width in widths.items()}
    scale = max((np.abs(a).max() for a in cross.values()), default=0.0)
    noise = max(_NOISE, 10 * digits)
    diagonal = _jointly_diagonal(cross, widths, near)
    for _ in range(sum(widths.values())):
        root = _strongest_unexplained(near, known, noise * scale)
        if root is None:
            break
        columns = _new_modes(root, near, known, diagonal, noise)
        if columns.shape[1] == 0:
            break
        _place(_carried(root, columns, near, known), known)
    return known


def _jointly_diagonal(cross: Cross, widths: Mapping[Endpoint, int], near: Near) -> ByEndpoint:
    """Matrices (draw, width, width) per endpoint, symmetric and diagonal in the frame looked for.

    If C is the statistic from endpoint a to b, diagonal in their frames (C = U_b S U_a^T), and A_b
    is diagonal in U_b, then C^T A_b C is diagonal in U_a. So each endpoint starts with its own
    variance, and in every round adds C^T A_b C' for all neighbours b (C' another generic
    combination, symmetrised). After enough rounds two modes have equal entries everywhere only if
    nothing in the whole graph tells them apart. Endpoints of one width are stacked.
    """
    groups: dict[int, list[Endpoint]] = {}
    for end, width in widths.items():
        groups.setdefault(width, []).append(end)
    place = {end: i for group in groups.values() for i, end in enumerate(group)}
    now = {}
    for width, group in groups.items():
        # Shifts of the identity keep modes with no variance of their own in play.
        now[width] = np.tile(np.eye(width), (len(group), DRAWS, 1, 1))
        own = {i: cross[end, end] for i, end in enumerate(group) if (end, end) in cross}
        if own:
            now[width][list(own)] += unit(np.stack(list(own.values())), axis=(2, 3))
    senders = []
    for widths_of_link, ((ends, others), maps) in _by_widths(widths, near).items():
        here, there = (np.array([place[end] for end in group]) for group in (ends, others))
        # Links come in the order of their ends.
        first = np.flatnonzero(np.diff(here, prepend=-1))
        both = np.ascontiguousarray(np.swapaxes(maps, 2, 3)), maps[:, _NEXT]
        senders.append((widths_of_link, there, first, here[first], both))
    for _ in range(_ROUNDS):
        new = {width: stack.copy() for width, stack in now.items()}
        for (width, width_there), there, first, here, (back, maps) in senders:
            sent = np.add.reduceat(back @ now[width_there][there] @ maps, first, axis=0)
            new[width][here] += 0.5 * (sent + np.swapaxes(sent, 2, 3))
        now = {width: unit(stack, axis=(2, 3)) for width, stack in new.items()}
    return {end: now[width][i] for width, group in groups.items() for i, end in enumerate(group)}


def _by_widths(
    width: Mapping[Endpoint, int], near: Near
) -> dict[tuple[int, int], tuple[tuple[list[Endpoint], list[Endpoint]], np.ndarray]]:
    """Near grouped by (width here, width there): both ends, and the maps (link, draw, _, _)."""
    groups: dict[tuple[int, int], list[tuple[Endpoint, Link]]] = {}
    for end, links_here in near.items():
        for link in links_here:
            groups.setdefault((width[end], width[link.other]), []).append((end, link))
    return {
        widths: (
            ([end for end, _ in group], [link.other for _, link in group]),
            unit(np.stack([link.maps for _, link in group]), axis=(1, 2, 3)),
        )
        for widths, group in groups.items()
    }


def unit(stack: np.ndarray, axis: tuple[int, ...] = (1, 2)) -> np.ndarray:
    size = np.abs(stack).max(axis=axis, keepdims=True)
    return stack / np.where(size > 0, size, 1)


def _strongest_unexplained(near: Near, known: ByEndpoint, least: float) -> Endpoint | None:
    """The input side whose statistics with outputs are largest outside of the known modes."""
    best, where = least, None
    for end, links_here in near.items():
        for other, maps, drives in links_here:
            if drives:
                rest = _outside(known[other], _outside(known[end], maps, right=True))
                size = np.abs(rest).max(initial=0.0)
                # Ties go to the first endpoint, so that equal domains are found in order.
                if size > best * (1 + 1e-9):
                    best, where = size, end
    return where


def _outside(frame: np.ndarray, stack: np.ndarray, *, right: bool = False) -> np.ndarray:
    """The part of the maps `stack` outside the columns of `frame`."""
    if frame.shape[1] == 0:
        return stack
    inside = (stack @ frame) @ frame.T if right else frame @ (frame.T @ stack)
    return stack - inside


def _new_modes(
    root: Endpoint,
    near: Near,
    known: ByEndpoint,
    diagonal: ByEndpoint,
    noise: float,
) -> np.ndarray:
    """Modes at `root` that are not known yet and drive an output, strongest first."""
    projector = np.eye(len(known[root])) - known[root] @ known[root].T
    values, vectors = np.linalg.eigh(projector)
    rest = vectors[:, values > 0.5]
    driving = [(other, maps) for other, maps, drives in near[root] if drives]
    unexplained = [_outside(known[other], maps) for other, maps in driving]

    def drive(directions: np.ndarray) -> np.ndarray:
        count = directions.shape[1]
        return np.concatenate([(a @ directions).reshape(-1, count) for a in unexplained])

    _, sizes, right = np.linalg.svd(drive(rest), full_matrices=False)
    rest = rest @ right[sizes > noise * sizes.max(initial=0.0)].T
    grams = np.zeros((DRAWS, rest.shape[1], rest.shape[1]))
    for a in unexplained:
        sent = a @ rest
        grams += np.swapaxes(sent, 1, 2) @ np.roll(sent, 1, axis=0)
    from_graph = rest.T @ diagonal[root] @ rest
    columns = rest @ joint_eigenvectors(np.concatenate([from_graph, unit(grams)]))
    strength = np.linalg.norm(drive(columns), axis=0)
    signed = [maps.mean(axis=0) for other, maps in driving if other == root]
    if signed:  # inputs and outputs share this frame: values, and negative ones come last
        strength = np.einsum("xm,xz,zm->m", columns, sum(signed), columns)
    columns = columns[:, np.argsort(-strength, kind="stable")]
    largest = np.abs(columns).argmax(axis=0)
    return columns * np.sign(columns[largest, np.arange(columns.shape[1])])


def _carried(root: Endpoint, columns: np.ndarray, near: Near, known: ByEndpoint) -> ByEndpoint:
    """New modes at every endpoint that the statistics connect to `root`, where they are `columns`.

    Endpoints are visited breadth first. Near that carry a mode strongly are followed first; weak
    ones, in a second walk, only fill in what no strong one reached.
    """
    mix = np.random.default_rng(2).uniform(0.5, 1.5, size=DRAWS)
    new: ByEndpoint = {root: columns}
    full = {root}
    for least in (1e-4, 1e-8):
        waiting = list(new)
        for end in waiting:
            for other, maps, _ in near[end]:
                if other in full:
                    continue
                before = new.get(other)
                there = np.einsum("d,dyx->yx", mix, maps)
                after = _arrivals(there @ new[end], there, known[other], least)
                if before is not None:
                    after = _filled(before, after)
                if before is None or np.any(after.any(axis=0) & ~before.any(axis=0)):
                    new[other] = after
                    waiting.append(other)
                    if np.all(after.any(axis=0)):
                        full.add(other)
    return new


def _place(new: ByEndpoint, known: ByEndpoint) -> None:
    """Add new modes to the known ones, each at the first number free at all its endpoints."""
    for m in range(next(iter(new.values())).shape[1]):
        members = [end for end, frame in new.items() if frame[:, m].any()]
        free = 0
        while any(_occupied(known[end], free) for end in members):
            free += 1
        for end in members:
            known[end] = _placed(known[end], free, new[end][:, m])


def _arrivals(
    sent: np.ndarray, there: np.ndarray, known: np.ndarray, threshold: float
) -> np.ndarray:
    """Directions in which modes arrive, orthonormal also where the statistics are not diagonal."""
    sent = _outside(known, sent)
    size = np.linalg.norm(sent, axis=0)
    enough = size > threshold * np.linalg.norm(there)
    if enough.all() and _orthonormal(sent / size):
        return sent / size
    arrived = np.zeros_like(sent)
    taken = np.zeros((len(sent), 0))
    for m in np.flatnonzero(enough)[np.argsort(-size[enough], kind="stable")]:
        direction = _outside(taken, sent[:, m])
        left = np.linalg.norm(direction)
        # Half of it or more lies along stronger modes: no direction of its own here.
        if left > 0.5 * size[m]:
            arrived[:, m] = direction / left
            taken = np.concatenate([taken, arrived[:, m : m + 1]], axis=1)
    return arrived


def _orthonormal(columns: np.ndarray) -> bool:
    """Whether columns are orthonormal up to rounding."""
    return bool(np.abs(columns.T @ columns - np.eye(columns.shape[1])).max() < 1e-15)


def _filled(before: np.ndarray, arrived: np.ndarray) -> np.ndarray:
    after = before.copy()
    for m in range(before.shape[1]):
        if not before[:, m].any() and arrived[:, m].any():
            direction = _outside(after[:, np.any(after, axis=0)], arrived[:, m])
            left = np.linalg.norm(direction)
            if left > 0.5:
                after[:, m] = direction / left
    return after


def _occupied(frame: np.ndarray, column: int) -> bool:
    return column < frame.shape[1] and bool(frame[:, column].any())


def _placed(frame: np.ndarray, column: int, direction: np.ndarray) -> np.ndarray:
    wide = np.zeros((len(frame), max(frame.shape[1], column + 1)))
    wide[:, : frame.shape[1]] = frame
    wide[:, column] = direction
    return wide


def _as_frames(graph: Graph, known: ByEndpoint, modes: int) -> Frames:
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    u = [np.zeros((graph.nodes[edge.target], modes)) for edge in graph.edges]
    v = [np.zeros((graph.nodes[edge.source], modes)) for edge in graph.edges]
    for end, frame in known.items():
        (u if end.side == "u" else v)[end.edge][:, : frame.shape[1]] = frame
    passing = passing_modes(graph, u, v, modes)
    for i, edge in enumerate(graph.edges):
        if edge.target not in outputs:
            u[i] = hidden_frame(graph.nodes[edge.target], passing[edge.target])
        if edge.source not in inputs:
            v[i] = hidden_frame(graph.nodes[edge.source], passing[edge.source])
    return Frames(u, v, modes)


def hidden_frame(width: int, passing: np.ndarray) -> np.ndarray:
    """Hidden frames are free: unit vectors for the modes that pass here, strongest first.

    Modes beyond the width cannot pass (a bottleneck).
    """
    frame = np.zeros((width, len(passing)))
    # A pathway that drives nothing yet may still learn from the errors of others: leave it open.
    chosen = np.flatnonzero(passing if passing.any() else np.ones_like(passing))[:width]
    frame[np.arange(len(chosen)), chosen] = 1
    return frame


def passing_modes(
    graph: Graph, u: list[np.ndarray], v: list[np.ndarray], modes: int
) -> dict[str, np.ndarray]:
    """Which modes (mode,) come from an input and go to an output through each node."""
    arriving = {name: np.zeros(modes, bool) for name in graph.order}
    leaving = {name: np.zeros(modes, bool) for name in graph.order}
    for name in graph.order:
        for edge in graph.outgoing[name]:
            live = np.any(v[graph.edge_index[edge.name]], axis=0)
            arriving[edge.target] |= arriving[name] if graph.incoming[name] else live
    for name in reversed(graph.order):
        for edge in graph.incoming[name]:
            live = np.any(u[graph.edge_index[edge.name]], axis=0)
            leaving[edge.source] |= leaving[name] if graph.outgoing[name] else live
    return {name: arriving[name] & leaving[name] for name in graph.order}
