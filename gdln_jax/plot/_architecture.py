"""Architecture graphs as pictures: nodes by level, edges, highlighted pathways, closed gates."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from matplotlib.path import Path
from matplotlib.text import Text

from gdln_jax._graph import Graph
from gdln_jax.plot._style import COLOURS

# Above this many nodes on a level only the first and last few are drawn, with dots between.
_SHOWN = 10
# Points: of labels, and how small they get.
_FONT, _SMALLEST = 8, 4.5


def architecture(
    ax: Axes,
    graph: Graph,
    *,
    paths: Sequence[Iterable[str]] = (),
    path_colours: Sequence[Any] | None = None,
    closed: Iterable[str] = (),
    labels: Mapping[str, str] | bool = True,
    horizontal: bool = True,
) -> Axes:
    """Draw a graph: input nodes left, output nodes right, hidden nodes between.

    Args:
        paths: pathways to highlight, each a sequence of edge names (as `graph.paths()` yields). An
            edge that several of them share is drawn in green.
        path_colours: one per path; default trained blue, then untrained orange.
        closed: names of edges and nodes whose gate is 0; drawn dotted and pale.
        labels: node name -> text (mathtext allowed); `True` writes the names, `False` nothing.
        horizontal: levels from left to right; otherwise from bottom to top.

    Readable up to ten nodes on a level; beyond that the middle ones are left out. The limits of the
    axes make way for labels, at the size that the axes have now; labels that are too wide even so
    are written smaller.
    """
    place, hidden = _places(graph)
    turn = (lambda p: p) if horizontal else (lambda p: (p[1], p[0]))
    column = {name: p[0] for name, p in place.items()}
    place = {name: turn(p) for name, p in place.items()}
    colour_of = _edge_colours(paths, path_colours)
    closed = set(closed)
    sizes = _sizes(graph, place, horizontal)
    parallel: dict[tuple[str, str], int] = {}
    for edge in graph.edges:
        if edge.source not in place or edge.target not in place:
            continue
        number = parallel.get((edge.source, edge.target), 0)
        parallel[edge.source, edge.target] = number + 1
        ends = sorted(column[name] for name in (edge.source, edge.target))
        between = [(place[name], sizes[name]) for name in place if ends[0] < column[name] < ends[1]]
        bend = 0.0 if number == 0 and not between else (0.18 + 0.15 * number) * (-1) ** number
        shut = edge.name in closed
        look: dict[str, Any] = {"color": COLOURS["faint"], "lw": 0.7, "alpha": 0.9, "zorder": 1}
        if edge.name in colour_of:
            look = {"color": colour_of[edge.name], "lw": 2.0, "alpha": 1.0, "zorder": 2}
        elif shut:
            look |= {"ls": ":", "alpha": 0.6}
        ax.annotate(
            "",
            place[edge.target],
            place[edge.source],
            arrowprops={
                "arrowstyle": "-",
                "connectionstyle": _Detour(ax, bend, between),
                "shrinkA": 0,
                "shrinkB": 0,
                **look,
            },
            zorder=look["zorder"],
        )
    _draw_nodes(ax, graph, place, hidden, closed, labels, colour_of, horizontal, sizes)
    return ax


class _Detour:
    """A way from node to node that bends around the nodes between: through one it would seem to end
    there. Found when it is drawn, since what an arc passes depends on the scale of the axes.
    """

    def __init__(self, ax: Axes, bend: float, between: Sequence[tuple[Any, Any]]):
        self.ax, self.bend = ax, bend
        self.boxes = [(np.array(centre), np.array(size)) for centre, size in between]

    def __call__(self, start: Any, end: Any, **_: Any) -> Path:
        """The path in display coordinates, of the smallest bend that passes no node."""
        start, end = np.array(start), np.array(end)
        middle, aside = (start + end) / 2, (end - start)[::-1] * [1, -1]
        arcs = [
            np.array([start, middle + self.bend * factor * aside, end])
            for factor in (1, -1, 1.5, -1.5, 2, -2, 3, -3, 4, -4)
        ]
        arc = next((arc for arc in arcs if not self._passes(arc)), arcs[0])
        return Path(arc, [Path.MOVETO, Path.CURVE3, Path.CURVE3])

    def _passes(self, arc: np.ndarray) -> bool:
        s = np.linspace(0, 1, 61)[:, None]
        curve = (1 - s) ** 2 * arc[0] + 2 * s * (1 - s) * arc[1] + s**2 * arc[2]
        curve = self.ax.transData.inverted().transform(curve)
        return any(
            np.any(np.all(np.abs(curve - centre) < size / 2 + 0.05, axis=1))
            for centre, size in self.boxes
        )


def _sizes(
    graph: Graph, place: Mapping[str, Any], horizontal: bool
) -> dict[str, tuple[float, float]]:
    """Width and height of the box of every node drawn; hidden ones are longer."""
    crowd = max(sum(graph.level[n] == k for n in place) for k in {*graph.level.values()})
    height = min(0.3, 1.5 / max(crowd, 1))
    long = {name: height * (2.6 if name in graph.hidden else 1.0) for name in place}
    return {name: (0.11, size) if horizontal else (size, 0.11) for name, size in long.items()}


def _places(graph: Graph) -> tuple[dict[str, tuple[float, float]], list[tuple[float, float]]]:
    """Positions of the nodes drawn, and of the dots that stand for those left out."""
    last = max(graph.level.values())
    columns: dict[int, list[str]] = {}
    for name in graph.nodes:
        # Output nodes stand in the last column whatever their level, so that all are in line.
        columns.setdefault(last if name in graph.outputs else graph.level[name], []).append(name)
    place: dict[str, tuple[float, float]] = {}
    dots = []
    for level, names in columns.items():
        drawn: list[str | None] = list(names)
        if len(names) > _SHOWN:
            drawn = [*names[: _SHOWN - 4], None, *names[-3:]]
        ys = np.linspace(1, -1, len(drawn)) if len(drawn) > 1 else np.zeros(1)
        if len(drawn) == 2:
            ys = ys / 2
        for name, y in zip(drawn, ys, strict=True):
            if name is None:
                dots.append((float(level), float(y)))
            else:
                place[name] = (float(level), float(y))
    return place, dots


def _edge_colours(paths: Sequence[Iterable[str]], colours: Sequence[Any] | None) -> dict[str, Any]:
    if colours is None:
        both = [COLOURS["trained"], COLOURS["untrained"]]
        colours = [both[k % 2] for k in range(len(paths))]
    colour_of: dict[str, Any] = {}
    for path, colour in zip(paths, colours, strict=True):
        for name in path:
            shared = name in colour_of and colour_of[name] != colour
            colour_of[name] = COLOURS["shared"] if shared else colour
    return colour_of


def _draw_nodes(
    ax: Axes,
    graph: Graph,
    place: Mapping[str, tuple[float, float]],
    dots: Sequence[tuple[float, float]],
    closed: set[str],
    labels: Mapping[str, str] | bool,
    colour_of: Mapping[str, Any],
    horizontal: bool,
    sizes: Mapping[str, tuple[float, float]],
) -> None:
    written: list[Text] = []
    for name, (x, y) in place.items():
        touching = [e.name for e in (*graph.incoming[name], *graph.outgoing[name])]
        used = [colour_of[e] for e in touching if e in colour_of]
        edge = COLOURS["faint"] if name in closed else (used[0] if used else "#404040")
        if name in graph.hidden and len(set(used)) > 1:
            edge = COLOURS["shared"]
        wide, tall = sizes[name]
        ax.add_patch(
            FancyBboxPatch(
                (x - wide / 2, y - tall / 2),
                wide,
                tall,
                boxstyle="round,pad=0,rounding_size=0.04",
                facecolor="white",
                edgecolor=edge,
                linewidth=1.5 if used else 0.9,
                linestyle=":" if name in closed else "-",
                zorder=3,
            )
        )
        if labels is False:
            continue
        text = labels.get(name, "") if isinstance(labels, Mapping) else name
        if name in graph.inputs:
            where, align = (x - 0.13, y), ("right", "center")
        elif name in graph.outputs:
            where, align = (x + 0.13, y), ("left", "center")
        else:
            where, align = (x, y + tall / 2 + 0.05), ("center", "bottom")
        if not horizontal:
            shift = -0.1 if name in graph.inputs else 0.1
            where, align = (x, y + shift), ("center", "top" if shift < 0 else "bottom")
            if name in graph.hidden:
                where, align = (x + wide / 2 + 0.03, y), ("left", "center")
        written.append(ax.text(*where, text, ha=align[0], va=align[1], fontsize=_FONT))
    for x, y in dots:
        spot = (x, y) if horizontal else (y, x)
        ax.text(*spot, "⋮" if horizontal else "⋯", ha="center", va="center", zorder=3)
    last = max(graph.level.values())
    long, across = (-0.45, last + 0.45), (-1.2, 1.2)
    ax.axis("off")
    _make_way(ax, written, *((long, across) if horizontal else (across, long)))


def _make_way(
    ax: Axes, texts: Sequence[Text], xlim: tuple[float, float], ylim: tuple[float, float]
) -> None:
    """Set limits from `xlim`, `ylim` on outwards, such that all texts lie inside the axes."""
    box, size = ax.bbox, float(_FONT)
    while True:
        low, high = np.array([xlim[0], ylim[0]]), np.array([xlim[1], ylim[1]])
        # Wider limits move the texts inwards: what is over shrinks by their part of the width.
        for _ in range(30):
            ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
            spans = [text.get_window_extent() for text in texts if text.get_text()]
            if not spans:
                return
            unit = (high - low) / box.size
            under = np.maximum(box.min - np.min([span.min for span in spans], axis=0), 0)
            over = np.maximum(np.max([span.max for span in spans], axis=0) - box.max, 0)
            if max(under.max(), over.max()) < 1:  # a pixel
                return
            low, high = low - 1.05 * under * unit, high + 1.05 * over * unit
        if size <= _SMALLEST:
            return
        size *= 0.8
        for text in texts:
            text.set_fontsize(size)
