"""Frames under tied and frozen weights: one pair (U, V) for each parameter (theory#tied-frames).

The two sides of every array, and the ends of frozen edges, are united wherever they meet at a
hidden node. What is united has one frame. Ends at inputs and outputs are *ports*, which bring the
statistics of the data; a frozen matrix is a statistic between its ends. Random numbers are drawn
once for each parameter, so that tied paths have the coefficients that the gradient gives them, and
statistics cancel here where they cancel there. The certificate decides.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph
from gdln_jax._reduction.activities import (
    Seed,
    input_rows,
    is_rounding,
    links,
    output_moments,
    resolution,
)
from gdln_jax._reduction.frames import (
    DRAWS,
    ByEndpoint,
    Endpoint,
    Frames,
    Link,
    Near,
    common_modes,
    hidden_frame,
    passing_modes,
    unit,
)
from gdln_jax._reduction.frozen_paths import constant_edges, frozen_matrices

Arrays = Mapping[str, np.ndarray]


class Sides:
    """The two ends of every edge, united where their frames are one.

    `target[e]`, `source[e]` (edge,): number of the component of each end; `nodes[c]`: the nodes of
    component c, `ports[c]` those among them that are inputs or outputs; `free`: components whose
    frames nothing fixes.
    """

    def __init__(self, graph: Graph):
        above: dict[tuple[str, str], tuple[str, str]] = {}

        def find(side: tuple[str, str]) -> tuple[str, str]:
            while side in above:
                side = above[side]
            return side

        ends: list[tuple[tuple[str, str], tuple[str, str]]] = []
        meeting: dict[str, list[tuple[str, str]]] = {name: [] for name in graph.nodes}
        for edge in graph.edges:
            name, transposed = graph.parameter_of[edge.name]
            if name in graph.frozen:  # its matrix ties no frames together
                name, transposed = f"{edge.name} frozen", False
            sides = (name, "R" if transposed else "L"), (name, "L" if transposed else "R")
            ends.append(sides)
            meeting[edge.target].append(sides[0])
            meeting[edge.source].append(sides[1])
        for node in graph.hidden:
            for side in meeting[node][1:]:
                first, other = find(meeting[node][0]), find(side)
                if first != other:
                    above[other] = first
        number: dict[tuple[str, str], int] = {}
        for pair in ends:
            for side in pair:
                number.setdefault(find(side), len(number))
        self.target = [number[find(t)] for t, _ in ends]
        self.source = [number[find(s)] for _, s in ends]
        self.nodes: list[set[str]] = [set() for _ in number]
        for edge, t, s in zip(graph.edges, self.target, self.source, strict=True):
            self.nodes[t].add(edge.target)
            self.nodes[s].add(edge.source)
        fixed = {
            number[find(side)]
            for pair in ends
            for side in pair
            if side[0].endswith(" frozen") and pair
        }
        outer = {*graph.inputs, *graph.outputs}
        self.free = [k for k in range(len(number)) if not self.nodes[k] & outer and k not in fixed]
        self.ports = [nodes & outer for nodes in self.nodes]


def scaled_alike(graph: Graph, sides: Sides) -> list[set[str]]:
    """Groups of inputs and outputs that must be measured in one unit.

    Ports of one frame, whose sums may cancel; of a graph with frozen arrays all.
    """
    if graph.frozen:
        return [{*graph.inputs, *graph.outputs}]
    return [ports for ports in sides.ports if ports]


class _TiedStatistics:
    """Generic combinations of statistics between components, (draw, width, width) each."""

    def __init__(self, data: PackedData, sides: Sides, fixed: Arrays, rng: np.random.Generator):
        self.graph, self.sides, self.data = data.graph, sides, data
        self.matrix = frozen_matrices(self.graph, fixed)
        self.yx: dict[tuple[int, int], np.ndarray] = {}
        self.xx: dict[tuple[int, int], np.ndarray] = {}
        self.own: dict[int, list[np.ndarray]] = {}
        self.width: dict[int, int] = {}
        self.power = {"x": {}, "y": {}}
        self._collect(rng)
        self._frozen(rng)

    def _collect(self, rng: np.random.Generator) -> None:
        drawn = {name: rng.uniform(0.7, 1.3, DRAWS) for name in self.graph.trainable}
        theta = np.array(
            [
                drawn.get(self.graph.parameter_of[edge.name][0], np.ones(DRAWS))
                for edge in self.graph.edges
            ]
        )
        found = links(self.data)
        for moments in output_moments(self.data, found, theta):
            total: dict[Seed, np.ndarray] = {}
            for edge, seed, value in moments.terms:
                a, x = self._entering(seed, input_rows(self.graph, found, seed))
                b, y = self._leaving(edge, moments.target)
                moment = x.T @ (y * moments.weight[:, None])
                self._add(self.yx, (a, b), value, moment)
                self._grow("y", b, np.sum(moments.weight[:, None] * y * y))
                total[seed] = total.get(seed, 0) + value
            for j, gj in total.items():
                for p, gp in total.items():
                    a, xj = self._entering(j, input_rows(self.graph, found, j))
                    b, xp = self._entering(p, input_rows(self.graph, found, p))
                    moment = xj.T @ (xp * moments.weight[:, None])
                    self._add(self.xx, (a, b), gj * np.roll(gp, 1), moment)
                    if j == p:
                        self._grow("x", a, np.trace(moment))

    def _entering(self, seed: Seed, x: np.ndarray) -> tuple[int, np.ndarray]:
        """The component at which a path begins to learn, and the inputs there."""
        if seed.edge in self.matrix:
            return self.sides.target[seed.edge], x @ self.matrix[seed.edge].T
        return self.sides.source[seed.edge], x

    def _leaving(self, edge: int, y: np.ndarray) -> tuple[int, np.ndarray]:
        """The component at which it ends to learn, and the targets there."""
        if edge in self.matrix:
            return self.sides.source[edge], y @ self.matrix[edge]
        return self.sides.target[edge], y

    def _add(
        self,
        table: dict[tuple[int, int], np.ndarray],
        key: tuple[int, int],
        value: np.ndarray,
        moment: np.ndarray,
    ) -> None:
        term = np.broadcast_to(value, (DRAWS,))[:, None, None] * moment
        table[key] = table[key] + term if key in table else term
        self.width[key[0]], self.width[key[1]] = moment.shape

    def _grow(self, kind: str, component: int, power: float) -> None:
        self.power[kind][component] = self.power[kind].get(component, 0.0) + float(power)

    def _frozen(self, rng: np.random.Generator) -> None:
        """Frozen matrices between two ends, and as the metric of what they read out."""
        self.between: list[tuple[int, int, np.ndarray]] = []
        constant = constant_edges(self.graph)
        for edge, f in self.matrix.items():
            ends = self.graph.edges[edge]
            if ends.name in constant:
                continue
            here, there = self.sides.source[edge], self.sides.target[edge]
            if ends.source in self.graph.inputs:
                continue
            self.width[here] = f.shape[1]
            if ends.target in self.graph.outputs:
                self.own.setdefault(here, []).append(np.tile(f.T @ f, (DRAWS, 1, 1)))
            else:
                self.width[there] = f.shape[0]
                self.between.append((here, there, rng.uniform(0.7, 1.3, (DRAWS, 1, 1)) * f))

    def tables(self, rng: np.random.Generator) -> tuple[dict, dict[Endpoint, int], Near]:
        """Statistics of components with themselves, widths, and links between components."""
        end = {c: Endpoint("c", c) for c in self.width}
        near: Near = {one: [] for one in end.values()}
        own = {c: list(stacks) for c, stacks in self.own.items()}
        for (a, b), stack in self._above_rounding(self.yx, "x", "y"):
            if a == b:
                own.setdefault(a, []).append(_symmetric(stack))
                near[end[a]].append(Link(end[a], _symmetric(stack), True))
            else:
                near[end[a]].append(Link(end[b], np.swapaxes(stack, 1, 2), True))
                near[end[b]].append(Link(end[a], stack, False))
        for (a, b), stack in self._above_rounding(self.xx, "x", "x"):
            if a == b:
                own.setdefault(a, []).append(_symmetric(stack))
            else:
                near[end[a]].append(Link(end[b], np.swapaxes(stack, 1, 2), False))
        for a, b, matrix in self.between:
            stack = unit(matrix)
            if a == b:
                own.setdefault(a, []).append(_symmetric(stack))
                near[end[a]].append(Link(end[a], _symmetric(stack), True))
            else:
                near[end[a]].append(Link(end[b], stack, True))
                near[end[b]].append(Link(end[a], np.swapaxes(stack, 1, 2), False))
        for links_here in near.values():
            links_here.sort(key=lambda link: not link.drives)
        cross = {}
        for c, stacks in own.items():
            numbers = rng.uniform(0.7, 1.3, (len(stacks), DRAWS, 1, 1))
            cross[end[c], end[c]] = sum(
                number * unit(stack) for number, stack in zip(numbers, stacks, strict=True)
            )
        return cross, {end[c]: width for c, width in self.width.items()}, near

    def _above_rounding(
        self, table: dict[tuple[int, int], np.ndarray], left: str, right: str
    ) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        size = max((np.abs(stack).max() for stack in table.values()), default=1.0) or 1.0
        digits = resolution(self.data)
        for (a, b), stack in table.items():
            power = self.power[left].get(a, 0.0) * self.power[right].get(b, 0.0)
            if not is_rounding(stack, power, digits):
                yield (a, b), stack / size


def find_tied_frames(
    data: PackedData, sides: Sides, fixed: Arrays, given: Mapping[str, tuple], *, seed: int = 0
) -> Frames:
    """Find frames for a graph with ties: `find_frames`, with components of sides for endpoints.

    `fixed`: frozen parameter -> array. `given`: edge or parameter -> (U, V), which are taken as
    they are.
    """
    graph, rng = data.graph, np.random.default_rng(seed)
    statistics = _TiedStatistics(data, sides, fixed, rng)
    cross, width, near = statistics.tables(rng)
    found: ByEndpoint = common_modes(cross, width, near, resolution(data))
    taken, carried = _given(graph, sides, given)
    known = {end.edge: frame for end, frame in found.items()} | taken
    modes = max((frame.shape[1] for frame in known.values()), default=0)
    known = {c: np.pad(x, ((0, 0), (0, modes - x.shape[1]))) for c, x in known.items()}
    u, v, frozen = _by_edge(graph, sides, statistics.matrix, known, modes)
    # Components without statistics are free: unit vectors for the modes that pass at their nodes.
    passing = passing_modes(graph, u, v, modes)
    for c, nodes in enumerate(sides.nodes):
        inner = nodes & set(graph.hidden)
        if c not in known and inner:
            open_modes = np.any([passing[name] for name in inner], axis=0)
            known[c] = hidden_frame(graph.nodes[next(iter(inner))], open_modes)
    u, v, frozen = _by_edge(graph, sides, statistics.matrix, known, modes)
    for k, edge in enumerate(graph.edges):
        name = graph.parameter_of[edge.name][0]
        if name in carried:
            mask = np.pad(carried[name], (0, modes - len(carried[name])))
            u[k], v[k] = u[k] * mask, v[k] * mask
    return Frames(u, v, modes, frozen)


def _by_edge(
    graph: Graph,
    sides: Sides,
    matrix: Mapping[int, np.ndarray],
    known: Mapping[int, np.ndarray],
    modes: int,
) -> tuple[list[np.ndarray], list[np.ndarray], dict[str, np.ndarray]]:
    """Frames of every edge from those of components, and strengths of frozen edges."""
    u, v, frozen = [], [], {}
    constant = constant_edges(graph)
    for k, edge in enumerate(graph.edges):
        widths = graph.nodes[edge.target], graph.nodes[edge.source]
        left, right = (
            known.get(c, np.zeros((width, modes)))
            for c, width in zip((sides.target[k], sides.source[k]), widths, strict=True)
        )
        if k in matrix:
            f, strength = matrix[k], np.ones(modes)
            ends = edge.source in graph.inputs, edge.target in graph.outputs
            if edge.name in constant:  # its prediction was taken off the targets
                left, right = np.zeros((widths[0], modes)), np.zeros((widths[1], modes))
            elif ends[0]:
                right = f.T @ left
            elif ends[1]:
                strength = np.linalg.norm(f @ right, axis=0)
                left = f @ right / np.where(strength > 0, strength, 1)
            else:
                strength = np.einsum("tm,ts,sm->m", left, f, right)
            frozen[edge.name] = strength * np.any(left, axis=0) * np.any(right, axis=0)
        u.append(left)
        v.append(right)
    return u, v, frozen


def _given(
    graph: Graph, sides: Sides, given: Mapping[str, tuple]
) -> tuple[dict[int, np.ndarray], dict[str, np.ndarray]]:
    """Frames that the caller gives, by component, and by parameter which modes it carries (mode,).

    A parameter with a column 0 does not carry that mode, though others of its component may.
    """
    known: dict[int, np.ndarray] = {}
    carried: dict[str, np.ndarray] = {}
    for name, (left, right) in given.items():
        if name in graph.parameters:
            edge, turned = graph.uses[name][0]
        else:
            edge, turned = graph.edge(name).name, False
        pair = (right, left) if turned else (left, right)
        k = graph.edge_index[edge]
        shape = graph.shape(edge)
        arrays = [np.asarray(frame, float) for frame in pair]
        for c, array, width in zip((sides.target[k], sides.source[k]), arrays, shape, strict=True):
            if array.ndim != 2 or len(array) != width:
                raise ValueError(
                    f"frames[{name!r}] has a frame of shape {array.shape} where ({width}, modes) "
                    "is expected: pass (U, V) in the orientation of the name."
                )
            before = known.setdefault(c, array)
            modes = max(before.shape[1], array.shape[1])
            one, other = (np.pad(x, ((0, 0), (0, modes - x.shape[1]))) for x in (before, array))
            both = one.any(axis=0) & other.any(axis=0)
            if not np.allclose(one[:, both], other[:, both]):
                raise ValueError(
                    f"frames[{name!r}] gives a second frame to sides that meet at a hidden node, "
                    f"{' or '.join(sorted(sides.nodes[c]))}: they have one frame together."
                )
            known[c] = np.where(one.any(axis=0), one, other)
        modes = min(array.shape[1] for array in arrays)
        first, second = (array[:, :modes].any(axis=0) for array in arrays)
        carried[graph.parameter_of[edge][0]] = np.asarray(first & second)
    return known, carried


def _symmetric(stack: np.ndarray) -> np.ndarray:
    return (stack + np.swapaxes(stack, 1, 2)) / 2
