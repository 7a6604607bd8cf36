"""A graph as SVG text, for notebooks: levels from left to right.

The usual layered layout: an edge that spans several levels gets a place in each of them, so that it
passes between the nodes, and every level is ordered by the mean place of what feeds it.
An edge of a shared array bears its name, with a T for the transpose; one of a frozen array is
dashed.
"""

import functools
import html
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from gdln_jax._checks.html import svg

_SHOWN = 8  # nodes of a level; of more the first are drawn, and the others counted
_BOX, _GAP, _BETWEEN = (
    34.0,
    14.0,
    70.0,
)  # height of a node, distance to the next, width between levels
_LETTER = 7.5  # width of a character
_LONGEST = 16  # characters of a name

# A node by its name, or a place (edge name, level) that a long edge passes.
_Spot = str | tuple[str, int]


@runtime_checkable
class _Edge(Protocol):
    """What of an `Edge` is drawn."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...


@runtime_checkable
class _Graph(Protocol):
    """What of a `Graph` is drawn; cached as there, which pyright tells from a property."""

    @functools.cached_property
    def nodes(self) -> Mapping[str, int]: ...
    @property
    def edges(self) -> Sequence[_Edge]: ...
    @functools.cached_property
    def level(self) -> Mapping[str, int]: ...
    @functools.cached_property
    def inputs(self) -> tuple[str, ...]: ...
    @functools.cached_property
    def outputs(self) -> tuple[str, ...]: ...
    @functools.cached_property
    def parameter_of(self) -> Mapping[str, tuple[str, bool]]: ...
    @functools.cached_property
    def uses(self) -> Mapping[str, Sequence[tuple[str, bool]]]: ...
    @property
    def frozen(self) -> Sequence[str]: ...
    def shape(self, name: str) -> tuple[int, int]:
        """(|target|, |source|) of an edge."""
        ...


def draw(graph: _Graph) -> str:
    """Return the graph as an SVG drawing; names and shapes of edges are shown on pointing at them.

    Cost O(drawn edges x levels); at most 8 nodes per level are drawn.
    """
    level = _columns(graph)
    columns, hidden = _drawn(graph, level)
    drawn = {name for names in columns for name in names}
    edges = [e for e in graph.edges if {e.source, e.target} <= drawn]
    spots = _ordered(columns, edges, level)
    wide = max(min(len(name), _LONGEST) for name in drawn) * _LETTER + 16
    heights = [sum(_height(s) for s in column) + _GAP * (len(column) - 1) for column in spots]
    tallest = max(heights) + (18 if any(hidden) else 0)
    place: dict[_Spot, tuple[float, float]] = {}
    shapes: list[str] = []
    for number, column in enumerate(spots):
        x = 10 + wide / 2 + number * (wide + _BETWEEN)
        y = 8 + (tallest - heights[number]) / 2
        for spot in column:
            place[spot] = (x, y + _height(spot) / 2)
            y += _height(spot) + _GAP
        if hidden[number]:
            shapes.append(_text(x, y, f"and {hidden[number]} more", 11))
    seen: dict[tuple[str, str], int] = {}
    for edge in edges:
        ends = (edge.source, edge.target)
        seen[ends] = seen.get(ends, -1) + 1
        shapes.append(_curve(graph, edge, _stops(edge, level, place), wide, seen[ends]))
    shapes += [_node(graph, name, *place[name], wide) for name in graph.nodes if name in drawn]
    size = 20 + len(spots) * wide + (len(spots) - 1) * _BETWEEN
    return svg(size, tallest + 16, shapes)


def _columns(graph: _Graph) -> dict[str, int]:
    """Node -> its column; output nodes stand in the last one whatever their level."""
    last = max(graph.level.values())
    outputs = set(graph.outputs)
    return {name: last if name in outputs else graph.level[name] for name in graph.nodes}


def _drawn(graph: _Graph, level: Mapping[str, int]) -> tuple[list[list[str]], list[int]]:
    """Names of each column that are drawn, and the number of the others."""
    columns: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for name in graph.nodes:
        columns[level[name]].append(name)
    hidden = [max(0, len(names) - _SHOWN) for names in columns]
    return [names[:_SHOWN] for names in columns], hidden


def _ordered(
    columns: list[list[str]], edges: list[_Edge], level: Mapping[str, int]
) -> list[list[_Spot]]:
    """Nodes and places of long edges, column by column, each below the mean of what feeds it."""
    spots: list[list[_Spot]] = [list(names) for names in columns]
    feeds: dict[_Spot, list[_Spot]] = {}
    for edge in edges:
        before: _Spot = edge.source
        for number in range(level[edge.source] + 1, level[edge.target]):
            passed = (edge.name, number)
            spots[number].append(passed)
            feeds[passed] = [before]
            before = passed
        feeds.setdefault(edge.target, []).append(before)
    share: dict[_Spot, float] = {}
    for column in spots:
        for k, spot in enumerate(column):
            sources = [share[s] for s in feeds.get(spot, ())]
            share[spot] = sum(sources) / len(sources) if sources else (k + 0.5) / len(column)
        column.sort(key=lambda spot: share[spot])
        share |= {spot: (k + 0.5) / len(column) for k, spot in enumerate(column)}
    return spots


def _height(spot: _Spot) -> float:
    return _BOX if isinstance(spot, str) else 0.0


def _stops(
    edge: _Edge, level: Mapping[str, int], place: Mapping[_Spot, tuple[float, float]]
) -> list[tuple[float, float]]:
    passed = [place[edge.name, k] for k in range(level[edge.source] + 1, level[edge.target])]
    return [place[edge.source], *passed, place[edge.target]]


def _curve(
    graph: _Graph, edge: _Edge, stops: list[tuple[float, float]], wide: float, number: int
) -> str:
    """`number` counts the edges between the same two nodes, which bend away from one another."""
    bend = 12 * ((number + 1) // 2) * (-1) ** number
    way = f"M{stops[0][0] + wide / 2:.1f},{stops[0][1]:.1f}"
    for k in range(len(stops) - 1):
        (x0, y0), (x1, y1) = stops[k], stops[k + 1]
        x0, x1 = x0 + wide / 2, x1 - wide / 2
        middle = (x0 + x1) / 2
        way += f"C{middle:.1f},{y0 + bend:.1f} {middle:.1f},{y1 + bend:.1f} {x1:.1f},{y1:.1f}"
        if k < len(stops) - 2:
            way += f"H{x1 + wide:.1f}"
    target, source = graph.shape(edge.name)
    array, frozen = _tied(graph, edge)
    notes = [f"array {array}"] * bool(array) + ["frozen"] * frozen
    title = html.escape(", ".join([f"{edge.name}: {target} x {source}", *notes]))
    dash = ' stroke-dasharray="4 3"' if frozen else ""
    (x0, y0), (x1, y1) = stops[:2]
    name = _text((x0 + x1) / 2, (y0 + y1) / 2 + 0.75 * bend - 4, array, 11) if array else ""
    return (
        f'<path d="{way}" fill="none" stroke="currentColor" stroke-opacity="0.55"{dash}>'
        f"<title>{title}</title></path>{name}"
    )


def _tied(graph: _Graph, edge: _Edge) -> tuple[str, bool]:
    """Name of the array of an edge, empty where it is the edge's own and learns, and if frozen."""
    name, transposed = graph.parameter_of[edge.name]
    frozen = name in graph.frozen
    if name == edge.name and len(graph.uses[name]) == 1 and not frozen:
        return "", False
    return f"{name}\u1d40" if transposed else name, frozen


def _node(graph: _Graph, name: str, x: float, y: float, wide: float) -> str:
    kind = "input" if name in graph.inputs else "output" if name in graph.outputs else "hidden"
    shown = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
    title = html.escape(f"{name}: {kind} node, {graph.nodes[name]} units")
    return (
        f'<g><title>{title}</title><rect x="{x - wide / 2:.1f}" y="{y - _BOX / 2:.1f}" '
        f'width="{wide:.1f}" height="{_BOX:.0f}" rx="6" fill="currentColor" fill-opacity="0.08" '
        f'stroke="currentColor" stroke-width="{1 if kind == "hidden" else 2}"/>'
        f"{_text(x, y - 2, shown, 13)}{_text(x, y + 12, str(graph.nodes[name]), 10)}</g>"
    )


def _text(x: float, y: float, text: str, size: int) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{size}" '
        f'fill="currentColor">{html.escape(text)}</text>'
    )
