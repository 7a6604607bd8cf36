"""Frames in which every path statistic is diagonal at once (N Eq. 7-9, with erratum E4).

A *port* is the open end of an edge: the input side of an edge that leaves an input node (frame
V), or the output side of an edge that enters an output node (frame U). Hidden frames are free.
Paths are never listed: random numbers on the edges of a scalar copy of the network give generic
linear combinations of the statistics of all paths between two ports, and frames that diagonalise
generic combinations diagonalise all of them. Modes found at one port are carried to the others
by the statistics themselves, so that repeated singular values keep their labels. Host code in
NumPy; whether the frames do their job is measured afterwards, not assumed.
"""

from typing import NamedTuple

import numpy as np

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

# Independent generic combinations of the statistics, and rounds in which ports tell each other
# what they know about the modes. Both are generous: the certificate says whether they sufficed.
_DRAWS, _ROUNDS = 3, 6
# Statistics below this, relative to the largest, are rounding noise of sums of products.
_NOISE = 1e-10


class Frames(NamedTuple):
    """One frame per edge and end: `u[e]` (|t(e)|, mode), `v[e]` (|s(e)|, mode).

    Columns are orthonormal, or zero for modes that do not live at that end.
    """

    u: list[np.ndarray]
    v: list[np.ndarray]
    modes: int


class _Port(NamedTuple):
    side: str
    edge: int


class _Statistics:
    """Generic combinations of path statistics between ports, (draw, width, width) each."""

    def __init__(self, data: PackedData, rng: np.random.Generator):
        graph = data.graph
        found = links(data)
        # Positive and away from 0, so that no combination cancels or vanishes by accident.
        theta = rng.uniform(0.7, 1.3, size=(len(graph.edges), _DRAWS))
        self.cross: dict[tuple[_Port, _Port], np.ndarray] = {}
        self.width: dict[_Port, int] = {}
        power: dict[_Port, float] = {}
        for moments in output_moments(data, found, theta):
            weighted = moments.target * moments.weight[:, None]
            total: dict[Seed, np.ndarray] = {}
            for edge in {edge for edge, _, _ in moments.terms}:
                port = _Port("u", edge)
                power[port] = power.get(port, 0.0) + float(np.sum(weighted * moments.target))
            for edge, seed, value in moments.terms:
                x = input_rows(graph, found, seed)
                self._add(("v", seed.edge), ("u", edge), value, x.T @ weighted)
                total[seed] = total.get(seed, 0) + value
            for j, gj in total.items():
                for p, gp in total.items():
                    xj, xp = (input_rows(graph, found, k) for k in (j, p))
                    moment = xj.T @ (xp * moments.weight[:, None])
                    self._add(("v", j.edge), ("v", p.edge), gj * np.roll(gp, 1), moment)
        for (a, b), own in self.cross.items():
            if a == b:
                power[a] = float(np.abs(np.trace(own, axis1=1, axis2=2)).max())
        # Ports that rounding alone connects do not know one another's modes.
        self.cross = {
            (a, b): stack
            for (a, b), stack in self.cross.items()
            if a == b or not is_rounding(stack, power[a] * power[b], data)
        }

    def _add(self, a: tuple[str, int], b: tuple[str, int], value: np.ndarray, moment: np.ndarray):
        key = (_Port(*a), _Port(*b))
        term = np.broadcast_to(value, (_DRAWS,))[:, None, None] * moment
        self.cross[key] = self.cross[key] + term if key in self.cross else term
        self.width[key[0]], self.width[key[1]] = moment.shape

    def neighbours(self) -> dict[_Port, list[tuple[_Port, np.ndarray]]]:
        """Port -> (other port, map from here to there), input-output statistics first."""
        near: dict[_Port, list[tuple[_Port, np.ndarray]]] = {port: [] for port in self.width}
        for (a, b), stack in self.cross.items():
            if a == b:
                continue
            near[a].append((b, np.swapaxes(stack, 1, 2)))
            if b.side == "u":
                near[b].append((a, stack))
        for ends in near.values():
            ends.sort(key=lambda end: end[0].side)
        return near


def find_frames(data: PackedData, *, seed: int = 0) -> Frames:
    """Find frames that diagonalise the statistics of `data` as far as they can be.

    Modes are ordered by strength (singular value of the generic input-output statistics) where
    they are found; ports whose statistics never meet share mode numbers in that order, which is
    exact, since only hidden frames connect them. Cost O(active pairs x width^3).
    """
    graph = data.graph
    statistics = _Statistics(data, np.random.default_rng(seed))
    near = statistics.neighbours()
    known = {port: np.zeros((width, 0)) for port, width in statistics.width.items()}
    scale = max((np.abs(a).max() for a in statistics.cross.values()), default=0.0)
    noise = max(_NOISE, 10 * resolution(data))
    local = _shared_knowledge(statistics, near)
    for _ in range(sum(known_port.shape[0] for known_port in known.values())):
        root = _strongest_unexplained(near, known, noise * scale)
        if root is None:
            break
        columns = _new_modes(root, near, known, local, noise)
        if columns.shape[1] == 0:
            break
        _carry(root, columns, near, known)
    modes = max((frame.shape[1] for frame in known.values()), default=0)
    return _as_frames(graph, known, modes)


def _shared_knowledge(
    statistics: _Statistics, near: dict[_Port, list[tuple[_Port, np.ndarray]]]
) -> dict[_Port, np.ndarray]:
    """Per port symmetric matrices (draw, width, width), diagonal in the frame sought.

    Each round every port adds what its neighbours know, so that two modes are degenerate in the
    end only if nothing in the whole graph tells them apart. Ports of one width go together.
    """
    ports: dict[int, list[_Port]] = {}
    for port, width in statistics.width.items():
        ports.setdefault(width, []).append(port)
    place = {port: i for group in ports.values() for i, port in enumerate(group)}
    local = {}
    for width, group in ports.items():
        # Shifts of the identity keep modes with no variance of their own in play.
        local[width] = np.tile(np.eye(width), (len(group), _DRAWS, 1, 1))
        for i, port in enumerate(group):
            own = statistics.cross.get((port, port))
            if own is not None:
                local[width][i] += _unit(own)
    lines: dict[tuple[int, int], list[tuple[int, int, np.ndarray]]] = {}
    for port, ends in near.items():
        for other, there in ends:
            widths = (statistics.width[port], statistics.width[other])
            lines.setdefault(widths, []).append((place[port], place[other], there))
    carriers = {
        widths: (
            np.array([here for here, _, _ in group]),
            np.array([other for _, other, _ in group]),
            _unit(np.stack([there for _, _, there in group]), axis=(1, 2, 3)),
        )
        for widths, group in lines.items()
    }
    for _ in range(_ROUNDS):
        fresh = {width: stack.copy() for width, stack in local.items()}
        for (width, far), (here, other, carrier) in carriers.items():
            turned = np.roll(carrier, 1, axis=1)
            heard = np.swapaxes(carrier, 2, 3) @ local[far][other] @ turned
            np.add.at(fresh[width], here, 0.5 * (heard + np.swapaxes(heard, 2, 3)))
        local = {width: _unit(stack, axis=(2, 3)) for width, stack in fresh.items()}
    return {port: local[width][i] for width, group in ports.items() for i, port in enumerate(group)}


def _unit(stack: np.ndarray, axis: tuple[int, ...] = (1, 2)) -> np.ndarray:
    size = np.abs(stack).max(axis=axis, keepdims=True)
    return stack / np.where(size > 0, size, 1)


def _strongest_unexplained(
    near: dict[_Port, list[tuple[_Port, np.ndarray]]], known: dict[_Port, np.ndarray], least: float
) -> _Port | None:
    best, where = least, None
    for port, ends in near.items():
        if port.side != "v":
            continue
        for other, there in ends:
            if other.side == "u":
                rest = _outside(known[other], _outside(known[port], there, right=True))
                size = np.abs(rest).max(initial=0.0)
                # Ties go to the first port, so that equal domains are found in order.
                if size > best * (1 + 1e-9):
                    best, where = size, port
    return where


def _outside(frame: np.ndarray, stack: np.ndarray, *, right: bool = False) -> np.ndarray:
    """The part of the maps `stack` outside the columns of `frame`."""
    if frame.shape[1] == 0:
        return stack
    projector = np.eye(len(frame)) - frame @ frame.T
    return stack @ projector if right else projector @ stack


def _new_modes(
    root: _Port,
    near: dict[_Port, list[tuple[_Port, np.ndarray]]],
    known: dict[_Port, np.ndarray],
    local: dict[_Port, np.ndarray],
    noise: float,
) -> np.ndarray:
    """Modes at `root` that are not known yet and drive an output, strongest first."""
    projector = np.eye(len(known[root])) - known[root] @ known[root].T
    values, vectors = np.linalg.eigh(projector)
    rest = vectors[:, values > 0.5]
    unexplained = [_outside(known[o], there) for o, there in near[root] if o.side == "u"]

    def drive(directions: np.ndarray) -> np.ndarray:
        count = directions.shape[1]
        return np.concatenate([(a @ directions).reshape(-1, count) for a in unexplained])

    _, sizes, right = np.linalg.svd(drive(rest), full_matrices=False)
    rest = rest @ right[sizes > noise * sizes.max(initial=0.0)].T
    grams = np.zeros((_DRAWS, rest.shape[1], rest.shape[1]))
    for a in unexplained:
        sent = a @ rest
        grams += np.swapaxes(sent, 1, 2) @ np.roll(sent, 1, axis=0)
    known_here = rest.T @ local[root] @ rest
    columns = rest @ joint_eigenvectors(np.concatenate([known_here, _unit(grams)]))
    strength = np.linalg.norm(drive(columns), axis=0)
    columns = columns[:, np.argsort(-strength, kind="stable")]
    largest = np.abs(columns).argmax(axis=0)
    return columns * np.sign(columns[largest, np.arange(columns.shape[1])])


def _carry(
    root: _Port,
    columns: np.ndarray,
    near: dict[_Port, list[tuple[_Port, np.ndarray]]],
    known: dict[_Port, np.ndarray],
) -> None:
    """Carry new modes from `root` to every port that the statistics connect to it."""
    fresh: dict[_Port, np.ndarray] = {root: columns}
    mix = np.random.default_rng(2).uniform(0.5, 1.5, size=_DRAWS)
    generic = {
        port: [(other, np.tensordot(mix, there, axes=1)) for other, there in ends]
        for port, ends in near.items()
    }
    # Strong statistics first; weak ones fill in only what no strong one reached.
    for threshold in (1e-4, 1e-8):
        waiting = list(fresh)
        for port in waiting:
            for other, there in generic[port]:
                if other in fresh and np.all(np.any(fresh[other], axis=0)):
                    continue
                arrived = _arrivals(there @ fresh[port], there, known[other], threshold)
                before = fresh.get(other)
                after = arrived if before is None else _filled(before, arrived)
                if before is None or np.any(np.any(after, axis=0) & ~np.any(before, axis=0)):
                    fresh[other] = after
                    waiting.append(other)
    reached = {port: frame for port, frame in fresh.items() if frame.any()}
    for m in range(columns.shape[1]):
        members = [port for port, frame in reached.items() if frame[:, m].any()]
        free = 0
        while any(_occupied(known[port], free) for port in members):
            free += 1
        for port in members:
            known[port] = _placed(known[port], free, reached[port][:, m])


def _arrivals(
    sent: np.ndarray, there: np.ndarray, known: np.ndarray, threshold: float
) -> np.ndarray:
    """Directions in which modes arrive, orthonormal also where the statistics are not diagonal."""
    sent = _outside(known, sent)
    size = np.linalg.norm(sent, axis=0)
    enough = size > threshold * np.linalg.norm(there)
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


def _as_frames(graph: Graph, known: dict[_Port, np.ndarray], modes: int) -> Frames:
    inputs, outputs = set(graph.inputs), set(graph.outputs)
    u = [np.zeros((graph.nodes[edge.target], modes)) for edge in graph.edges]
    v = [np.zeros((graph.nodes[edge.source], modes)) for edge in graph.edges]
    for port, frame in known.items():
        (u if port.side == "u" else v)[port.edge][:, : frame.shape[1]] = frame
    passing = _passing(graph, u, v, modes)
    for i, edge in enumerate(graph.edges):
        if edge.target not in outputs:
            u[i] = _hidden_frame(graph.nodes[edge.target], passing[edge.target])
        if edge.source not in inputs:
            v[i] = _hidden_frame(graph.nodes[edge.source], passing[edge.source])
    return Frames(u, v, modes)


def _hidden_frame(width: int, passing: np.ndarray) -> np.ndarray:
    """Hidden frames are free: unit vectors for the modes that pass here, strongest first.

    Modes beyond the width cannot pass (a bottleneck).
    """
    frame = np.zeros((width, len(passing)))
    # A pathway that drives nothing yet may still learn from the errors of others: leave it open.
    chosen = np.flatnonzero(passing if passing.any() else np.ones_like(passing))[:width]
    frame[np.arange(len(chosen)), chosen] = 1
    return frame


def _passing(
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
