"""Sizes of the spaces by formula (theory#sizes), and the edge or cycle where they do not close."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gdln_jax._graph import Edge, Graph

Block = Float[np.ndarray, "_ _"]
Map = Callable[[Block], Block]
# Edge name, and whether to take the transpose.
Maps = Callable[[str, bool], Map]

_PROBES = 4
# Up to this width the norm is computed, above it estimated.
_EXACT_NORM = 512


class Probe(NamedTuple):
    """What a few random vectors say about a weight matrix.

    - `norm`: its largest singular value; of large matrices a lower bound, some 10 % below.
    - `scale`: c, if W is c times a partial isometry.
    - `bend`: ||W^T W g - c^2 g|| / ||W^T W g||: 0 iff W has c times orthonormal columns.
    """

    norm: float
    scale: float
    bend: float


def probe(forth: Map, back: Map, shape: tuple[int, int]) -> Probe:
    """Send random vectors through a matrix and back."""
    sent = forth(_random(shape[1]))
    echo = back(sent)
    square = np.linalg.norm(echo) ** 2 / np.linalg.norm(sent) ** 2
    bend = np.linalg.norm(echo - square * _random(shape[1])) / np.linalg.norm(echo)
    norm = np.linalg.norm(echo, 2) / np.linalg.norm(sent, 2)
    if max(shape) <= _EXACT_NORM:
        norm = np.linalg.norm(forth(np.eye(shape[1])), 2)
    return Probe(float(norm), float(np.sqrt(square)), float(bend))


def _random(width: int) -> Block:
    return np.random.default_rng(width).standard_normal((width, min(width, _PROBES)))


def _transposed(graph: Graph, name: str) -> tuple[int, int]:
    rows, columns = graph.shape(name)
    return columns, rows


def components(edges: Iterable[Edge]) -> dict[str, str]:
    """Node -> name that all nodes of its connected component share."""
    of: dict[str, str] = {}
    for edge in edges:
        a, b = of.setdefault(edge.source, edge.source), of.setdefault(edge.target, edge.target)
        if a != b:
            of.update({node: a for node, name in of.items() if name == b})
    return of


def component_sums(seeds: Mapping[str, int], inner: Iterable[Edge]) -> dict[str, int]:
    """Node -> s_C, the number of seeds in its component."""
    of = components(inner)
    totals: dict[str, int] = {}
    for node, count in seeds.items():
        totals[of.get(node, node)] = totals.get(of.get(node, node), 0) + count
    return {node: totals[of.get(node, node)] for node in seeds}


def expected_sizes(
    graph: Graph,
    grown: Iterable[str],
    inner: Sequence[Edge],
    seeds: Mapping[str, int],
    start: Mapping[str, Block],
    probes: Mapping[str, Probe],
    maps: Maps,
    tol: float,
) -> dict[str, int | None]:
    """Sizes for generic weights at the ends; `None` where there is no formula.

    With hidden maps c F_t F_s^T, one frame F_v of q columns a node, all seeds of a component meet
    in the frames: min(q, s_C) directions, and at node v min(N_v - q, s_v) more of its own outside
    of the frame. Orthogonal maps without cycles are the case q = N; no hidden map is q = 0.
    """
    sums, of = component_sums(seeds, inner), components(inner)
    groups: dict[str, list[Edge]] = {}
    for edge in inner:
        groups.setdefault(of[edge.source], []).append(edge)
    ranks = {}
    for name, edges in groups.items():
        ends = sorted({node for e in edges for node in (e.source, e.target)})
        alone = [node for node in graph.outputs if node in ends]
        if alone:
            found = _with_span(graph, edges, alone, seeds, probes, maps, tol)
            ranks[name] = None if found is None else {**found}
        else:
            q = _frame_rank(graph, edges, probes, maps, tol)
            ranks[name] = (
                None
                if q is None
                else {
                    v: min(q, sums[v])
                    + _outside(v, q, graph, edges, seeds, start, probes, maps, tol)
                    for v in ends
                }
            )
    sizes: dict[str, int | None] = {}
    for node in grown:
        if node in of:
            known = ranks[of[node]]
            sizes[node] = None if known is None else known[node]
        else:
            sizes[node] = min(graph.nodes[node], seeds[node])
    return sizes


def _frame_rank(
    graph: Graph, edges: Sequence[Edge], probes: Mapping[str, Probe], maps: Maps, tol: float
) -> int | None:
    """The q of a component whose maps are framed; `None` if they are not."""
    tree, extra = spanning_tree(edges)
    if all(_orthogonal(graph, edge, probes, tol) for edge in edges):
        rank = graph.nodes[edges[0].source]
    else:
        projectors: dict[str, list[Block]] = {}
        ranks = set()
        for edge in edges:
            c2 = probes[edge.name].scale ** 2
            forth, back = maps(edge.name, False), maps(edge.name, True)
            for node, one, two in ((edge.source, forth, back), (edge.target, back, forth)):
                g = _random(graph.nodes[node])
                projected = two(one(g)) / c2
                again = two(one(projected)) / c2
                if np.linalg.norm(again - projected) > tol * np.linalg.norm(projected):
                    return None
                projectors.setdefault(node, []).append(projected)
            ranks.add(_trace(forth, graph.nodes[edge.source]) / c2)
        rounded = {round(r) for r in ranks}
        same = all(
            np.linalg.norm(p - ps[0]) <= tol * np.linalg.norm(p)
            for ps in projectors.values()
            for p in ps
        )
        if len(rounded) > 1 or not same:
            return None
        rank = rounded.pop()
    turns = [_turn(graph, tree, edge, probes, maps) for edge in extra]
    return rank if all(turn <= tol for turn in turns) else None


def _orthogonal(graph: Graph, edge: Edge, probes: Mapping[str, Probe], tol: float) -> bool:
    return graph.nodes[edge.source] == graph.nodes[edge.target] and probes[edge.name].bend <= tol


def _trace(forth: Map, width: int, columns: int = 512) -> float:
    """||W||_F^2, by columns."""
    total = 0.0
    for start in range(0, width, columns):
        total += float(np.linalg.norm(forth(np.eye(width)[:, start : start + columns])) ** 2)
    return total


def _outside(
    node: str,
    rank: int,
    graph: Graph,
    edges: Sequence[Edge],
    seeds: Mapping[str, int],
    start: Mapping[str, Block],
    probes: Mapping[str, Probe],
    maps: Maps,
    tol: float,
) -> int:
    """Own seeds outside of the frame; none if they lie in it, as in `init.balanced`."""
    left = graph.nodes[node] - rank
    frame = start[node]
    if not left or not frame.shape[1]:
        return 0
    edge = next(e for e in edges if node in (e.source, e.target))
    at_source = edge.source == node
    forth, back = maps(edge.name, not at_source), maps(edge.name, at_source)
    mixed = frame @ np.ones((frame.shape[1], 1))
    inside = back(forth(mixed)) / probes[edge.name].scale ** 2
    framed = np.linalg.norm(inside - mixed) <= tol * np.linalg.norm(mixed)
    return 0 if framed else min(left, seeds[node])


def _with_span(
    graph: Graph,
    edges: Sequence[Edge],
    outputs: Sequence[str],
    seeds: Mapping[str, int],
    probes: Mapping[str, Probe],
    maps: Maps,
    tol: float,
) -> dict[str, int] | None:
    """Sizes with targets that span few directions: one output at the end of an orthogonal forest.

    R_out = r_x + r_y; the hidden nodes have r_x more.
    """
    hidden = [e for e in edges if e.target not in outputs]
    last = [e for e in edges if e.target in outputs]
    fed = [node for node in seeds if seeds[node] and node not in outputs]
    nodes = {v for e in edges for v in (e.source, e.target)} - {*outputs}
    if len(outputs) > 1 or len(last) > 1 or len({*fed} & nodes) > 1 or spanning_tree(edges)[1]:
        return None
    if not all(_orthogonal(graph, edge, probes, tol) for edge in hidden):
        return None
    (out,), width = outputs, graph.nodes[last[0].source]
    name = last[0].name
    transposed = probe(maps(name, True), maps(name, False), _transposed(graph, name))
    if graph.nodes[out] > width or transposed.bend > tol:
        return None
    r_x = sum(seeds[v] for v in nodes)
    shared = min(graph.nodes[out], r_x + seeds[out])
    return {v: min(width - graph.nodes[out], r_x) + shared for v in nodes} | {out: shared}


def spanning_tree(edges: Iterable[Edge]) -> tuple[list[Edge], list[Edge]]:
    """Edges of a spanning forest, and the others, each of which closes a cycle."""
    tree: list[Edge] = []
    extra: list[Edge] = []
    for edge in edges:
        of = components(tree)
        same = of.get(edge.source, edge.source) == of.get(edge.target, edge.target)
        (extra if same else tree).append(edge)
    return tree, extra


def _walk(tree: Sequence[Edge], start: str, end: str) -> list[tuple[Edge, bool]]:
    """The way between two nodes of a tree: edges, and whether each is walked backwards."""
    ways: dict[str, list[tuple[Edge, bool]]] = {start: []}
    while end not in ways:
        for edge in tree:
            for here, there, back in (
                (edge.source, edge.target, False),
                (edge.target, edge.source, True),
            ):
                if here in ways and there not in ways:
                    ways[there] = [*ways[here], (edge, back)]
    return ways[end]


def _turn(
    graph: Graph, tree: Sequence[Edge], extra: Edge, probes: Mapping[str, Probe], maps: Maps
) -> float:
    """How far the product around the cycle that an extra edge closes is from +-1 on its frame."""
    name, scale = extra.name, probes[extra.name].scale
    g = _random(graph.nodes[extra.source])
    sent = maps(name, False)(g) / scale
    start = maps(name, True)(sent) / scale  # the part of g in the frame
    walked = start
    for edge, back in _walk(tree, extra.source, extra.target):
        walked = maps(edge.name, back)(walked) / probes[edge.name].scale
    size = np.linalg.norm(sent)
    return float(min(np.linalg.norm(walked - sent), np.linalg.norm(walked + sent)) / size)


def named_cycle(
    inner: Sequence[Edge],
    probes: Mapping[str, Probe],
    maps: Maps,
    graph: Graph,
    tol: float,
) -> tuple[str, ...]:
    """The edge whose W^T W (or W W^T) is furthest from a multiple of 1, else the worst cycle."""

    def bend(edge: Edge) -> float:
        other = probe(maps(edge.name, True), maps(edge.name, False), _transposed(graph, edge.name))
        return max(probes[edge.name].bend, other.bend)

    worst = max(inner, key=bend)
    if bend(worst) > tol:
        return (worst.name,)
    tree, extra = spanning_tree(inner)
    edge = max(extra, key=lambda e: _turn(graph, tree, e, probes, maps))
    return (edge.name, *(e.name for e, _ in _walk(tree, edge.source, edge.target)))
