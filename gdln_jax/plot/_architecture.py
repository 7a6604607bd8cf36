"""Architecture graphs as pictures: nodes by level, edges, highlighted pathways, closed gates."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from matplotlib.path import Path
from matplotlib.text import Text

from gdln_jax._graph import Edge, Graph
from gdln_jax.plot._runs import axes_of
from gdln_jax.plot._style import COLOURS
from gdln_jax.plot._types import ArrayLike, Colour

# Above this many nodes on a level only the first and last few are drawn, with dots between.
_SHOWN = 10
# Points: of labels, and how small they get.
_FONT, _SMALLEST = 8, 6
# Distance of a label from its node, in levels.
_APART = 0.13
# Colours of classes of tied edges, in turn.
_TIED = ("other", "random", "untrained", "trained", "shared")
_Pair = tuple[float, float]


def architecture(
    first: object = None,
    /,
    graph: object = None,
    *,
    ax: Axes | None = None,
    paths: Sequence[Iterable[str]] = (),
    path_colours: Sequence[Colour] | None = None,
    closed: Iterable[str] = (),
    labels: Mapping[str, str] | bool = True,
    horizontal: bool = True,
) -> Axes:
    """Draw a graph: input nodes left, output nodes right, hidden nodes between.

    Both `architecture(graph, ax=ax)` and `architecture(ax, graph)` are read.

    Args:
        first: the graph, or axes to draw on with the graph behind them.
        ax: axes to draw on; default new ones.
        paths: pathways to highlight, each a sequence of edge names (as `graph.paths()` yields). An
            edge that several of them share is drawn in green.
        path_colours: one per path; default trained blue, then untrained orange.
        closed: names of edges and nodes whose gate is 0; drawn dotted and pale.
        labels: node name -> text (mathtext allowed); `True` writes the names, `False` nothing.
        horizontal: levels from left to right; otherwise from bottom to top.

    Readable up to ten nodes on a level; beyond that the middle ones are left out. The limits of the
    axes make way for labels, at the size that the axes have now; labels that are too wide even so
    are written smaller, down to 6 points, and then in two lines. Edges that share a parameter have
    one colour and its name, with a T for the transpose; frozen ones are grey and dashed.
    """
    if isinstance(first, Graph):
        first, graph = ax, first
    if not isinstance(graph, Graph):
        raise ValueError(f"graph is a {type(graph).__name__}; pass a gdln.Graph: task.graph.")
    ax = axes_of(ax if first is None else first)
    layout = _Layout.of(graph, horizontal)
    colour_of, closed = _edge_colours(paths, path_colours), set(closed)
    drawn: Counter[tuple[str, str]] = Counter()
    tied = _tied_looks(graph)
    for edge in graph.edges:
        if edge.source in layout.place and edge.target in layout.place:
            number = drawn[edge.source, edge.target]
            drawn[edge.source, edge.target] += 1
            look = tied.get(edge.name, _Tied())
            colour, dashed = colour_of.get(edge.name, look.colour), look.frozen
            _draw_edge(ax, layout, edge, number, colour, edge.name in closed, dashed)
            if look.text:
                _name_edge(ax, layout, edge, look.text, colour)
    for name in layout.place:
        _draw_node(ax, graph, layout, name, colour_of, name in closed)
    for spot in layout.dots:
        ax.text(*spot, "⋮" if horizontal else "⋯", ha="center", va="center", zorder=3)
    texts = {} if labels is False else {n: n for n in layout.place} if labels is True else labels
    written = [_write_label(ax, graph, layout, n, texts.get(n, "")) for n in layout.place if texts]
    ax.axis("off")
    limits = (-0.45, max(graph.level.values()) + 0.45), (-1.2, 1.2)
    _make_way(ax, written, *(limits if horizontal else limits[::-1]))
    return ax


@dataclass(frozen=True)
class _Layout:
    """The nodes that are drawn: centres and sizes of their boxes, in units of the axes.

    `dots` stand for nodes that are left out. `along` is the axis that counts levels.
    """

    place: Mapping[str, _Pair]
    size: Mapping[str, _Pair]
    dots: Sequence[_Pair]
    along: int

    @classmethod
    def of(cls, graph: Graph, horizontal: bool) -> "_Layout":
        """Levels are columns, or rows; boxes of hidden nodes are longer."""
        turned = (lambda spot: spot) if horizontal else (lambda spot: (spot[1], spot[0]))
        place, dots = _places(graph)
        crowd = max(Counter(graph.level[name] for name in place).values())
        height = min(0.3, 1.5 / crowd)
        tall = {name: height * (2.6 if name in graph.hidden else 1.0) for name in place}
        return cls(
            {name: turned(spot) for name, spot in place.items()},
            {name: turned((0.11, length)) for name, length in tall.items()},
            [turned(spot) for spot in dots],
            0 if horizontal else 1,
        )


def _draw_edge(
    ax: Axes,
    layout: _Layout,
    edge: Edge,
    number: int,
    colour: Colour | None,
    closed: bool,
    dashed: bool,
) -> None:
    """`number` counts the edges between the same two nodes, which bend away from one another."""
    start, end = layout.place[edge.source], layout.place[edge.target]
    low, high = sorted((start[layout.along], end[layout.along]))
    between = [
        (spot, layout.size[name])
        for name, spot in layout.place.items()
        if low < spot[layout.along] < high
    ]
    bend = 0.0 if number == 0 and not between else (0.18 + 0.15 * number) * (-1) ** number
    if colour is not None:
        look = {"color": colour, "lw": 2.0, "alpha": 1.0, "zorder": 2}
    else:
        shut = {"color": COLOURS["faint"], "ls": ":"} if closed else {"color": "#808080"}
        look = {"lw": 0.7, "zorder": 1, **shut}
    if dashed and not closed:
        look |= {"ls": "--"}
    way = {"arrowstyle": "-", "connectionstyle": _Detour(ax, bend, between)}
    arrow = {**way, "shrinkA": 0, "shrinkB": 0, **look}
    ax.annotate("", end, start, arrowprops=arrow, zorder=float(look["zorder"]))


@dataclass(frozen=True)
class _Tied:
    """How a tied or frozen edge is drawn; what is not is drawn as ever."""

    colour: Colour | None = None
    text: str = ""
    frozen: bool = False


def _tied_looks(graph: Graph) -> dict[str, _Tied]:
    """Edge -> its look, for edges of shared or frozen parameters."""
    looks, count = {}, 0
    for name, uses in graph.uses.items() if graph.tied else ():
        own = uses[0].edge == name and len(uses) == 1
        frozen = name in graph.frozen
        if own and not frozen:
            continue
        colour = None if frozen else COLOURS[_TIED[count % len(_TIED)]]
        count += not frozen
        for edge, transposed in uses:
            looks[edge] = _Tied(colour, f"{name}\u1d40" if transposed else name, frozen)
    return looks


def _name_edge(ax: Axes, layout: _Layout, edge: Edge, text: str, colour: Colour | None) -> None:
    """Write the name of a parameter in the middle of an edge."""
    (x, y), (a, b) = layout.place[edge.source], layout.place[edge.target]
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    shade = colour or "#808080"
    middle = ((x + a) / 2, (y + b) / 2)
    ax.text(*middle, text, ha="center", va="center", fontsize=_FONT, color=shade, bbox=box)


class _Detour:
    """A way from node to node that bends around the nodes between: through one it would seem to end
    there. Found when it is drawn, since what an arc passes depends on the scale of the axes.
    """

    def __init__(
        self,
        ax: Axes,
        bend: float,
        between: Sequence[tuple[_Pair, _Pair]],
    ):
        self.ax, self.bend = ax, bend
        self.boxes = [(np.array(centre), np.array(size)) for centre, size in between]

    def __call__(self, start: ArrayLike, end: ArrayLike, **_: object) -> Path:
        """The path in display coordinates, of the smallest bend that passes no node."""
        first, last = np.array(start), np.array(end)
        middle, aside = (first + last) / 2, (last - first)[::-1] * [1, -1]
        arcs = [
            np.array([first, middle + self.bend * factor * aside, last])
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


def _places(graph: Graph) -> tuple[dict[str, _Pair], list[_Pair]]:
    """Positions of the nodes drawn, and of the dots that stand for those left out."""
    last = max(graph.level.values())
    columns: dict[int, list[str]] = {}
    for name in graph.nodes:
        # Output nodes stand in the last column whatever their level, so that all are in line.
        columns.setdefault(last if name in graph.outputs else graph.level[name], []).append(name)
    place: dict[str, _Pair] = {}
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


def _edge_colours(
    paths: Sequence[Iterable[str]], colours: Sequence[Colour] | None
) -> dict[str, Colour]:
    if colours is None:
        both = [COLOURS["trained"], COLOURS["untrained"]]
        colours = [both[k % 2] for k in range(len(paths))]
    colour_of: dict[str, Colour] = {}
    for path, colour in zip(paths, colours, strict=True):
        for name in path:
            shared = name in colour_of and colour_of[name] != colour
            colour_of[name] = COLOURS["shared"] if shared else colour
    return colour_of


def _draw_node(
    ax: Axes,
    graph: Graph,
    layout: _Layout,
    name: str,
    colour_of: Mapping[str, Colour],
    closed: bool,
) -> None:
    touching = [edge.name for edge in (*graph.incoming[name], *graph.outgoing[name])]
    used = [colour_of[edge] for edge in touching if edge in colour_of]
    colour = COLOURS["faint"] if closed else (used[0] if used else "#404040")
    if name in graph.hidden and len(set(used)) > 1:
        colour = COLOURS["shared"]
    (x, y), (wide, tall) = layout.place[name], layout.size[name]
    box = FancyBboxPatch(
        (x - wide / 2, y - tall / 2),
        wide,
        tall,
        boxstyle="round,pad=0,rounding_size=0.04",
        facecolor="white",
        edgecolor=colour,
        linewidth=1.5 if used else 0.9,
        linestyle=":" if closed else "-",
        zorder=3,
    )
    ax.add_patch(box)


def _write_label(ax: Axes, graph: Graph, layout: _Layout, name: str, text: str) -> Text:
    """Outside of the picture for inputs and outputs, beside the level for hidden nodes."""
    (x, y), (wide, tall) = layout.place[name], layout.size[name]
    horizontal, outer = layout.along == 0, name not in graph.hidden
    before = name in graph.inputs
    if horizontal == outer:  # beside the node, to its left or right
        shift = (-_APART if before else _APART) if outer else wide / 2 + 0.03
        spot, align = (x + shift, y), ("right" if before else "left", "center")
    else:
        shift = (-0.1 if before else 0.1) if outer else tall / 2 + 0.05
        spot, align = (x, y + shift), ("center", "top" if before else "bottom")
    return ax.text(*spot, text, ha=align[0], va=align[1], fontsize=_FONT)


def _make_way(ax: Axes, texts: Sequence[Text], xlim: _Pair, ylim: _Pair) -> None:
    """Set limits from `xlim`, `ylim` on outwards, such that all texts lie inside the axes."""
    box, size = ax.bbox, float(_FONT)
    wrapped = [text for text in texts if " " in text.get_text() and "$" not in text.get_text()]
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
            if not wrapped:
                return
            for text in wrapped:
                text.set_text(_in_two_lines(text.get_text()))
            wrapped = []
        size = max(0.8 * size, _SMALLEST)
        for text in texts:
            text.set_fontsize(size)


def _in_two_lines(text: str) -> str:
    """Broken at the space nearest to the middle."""
    spaces = [k for k, letter in enumerate(text) if letter == " "]
    middle = min(spaces, key=lambda k: abs(k - len(text) / 2))
    return f"{text[:middle]}\n{text[middle + 1 :]}"
