"""Names beside curves and points, placed when the picture is drawn, so that none covers another."""

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase, IdentityTransform

from gdln_jax.plot._text import check_text
from gdln_jax.plot._types import Colour

# Points: size of the letters, distance from what they name, without and with a line between them,
# and beyond which distance a point's name has such a line.
_SIZE, _APART, _ASIDE, _NEAR = 7.0, 4.0, 11.0, 8.0
# Directions from a point in which its name is tried, in 16ths of a turn: level ones first.
_TURNS = (0, 2, -2, 4, -4, 6, -6, 8, 1, -1, 3, -3, 5, -5, 7, -7, 3.5, -3.5, 4.5, -4.5)
# Points: distances at which a point's name is tried.
_DISTANCES = (_APART, 8.0, 13.0, 20.0, 28.0, 38.0)
# Lines of text are this much higher than their letters.
_LEADING = 1.12


class _Labels(Artist):
    """Texts for the points (n, 2) of some axes, in the units of the data.

    Where they stand is found at each drawing, from the limits and the size that the axes have then.
    """

    def __init__(
        self, ax: Axes, points: np.ndarray, texts: Sequence[str], colours: Sequence[Colour]
    ):
        super().__init__()
        self.points = points
        self.texts = [
            Text(0, 0, check_text(text, "a label"), color=colour, fontsize=_SIZE, va="center")
            for text, colour in zip(texts, colours, strict=True)
        ]
        self.lines = [Line2D([], [], color=colour, linewidth=0.5) for colour in colours]
        ax.add_artist(self)
        for part in (*self.texts, *self.lines):
            part.set_figure(ax.figure)
            part.set_transform(IdentityTransform())
        self.set(clip_on=False, zorder=6)

    def place(self, renderer: RendererBase) -> None:
        """Move the texts and their lines, in pixels."""
        raise NotImplementedError

    def draw(self, renderer: RendererBase) -> None:
        """Place and draw."""
        if not self.get_visible():
            return
        self.place(renderer)
        for part in (*self.lines, *self.texts):
            part.draw(renderer)

    def get_window_extent(self, renderer: RendererBase | None = None) -> Bbox:
        """The box around all texts, which a layout makes way for."""
        figure = self.get_figure(root=True)
        assert figure is not None
        renderer = figure._get_renderer() if renderer is None else renderer  # type: ignore[attr-defined]
        self.place(renderer)
        boxes = [text.get_window_extent(renderer) for text in self.texts if text.get_text()]
        return Bbox.union(boxes) if boxes else Bbox.null()

    def get_tightbbox(self, renderer: RendererBase | None = None) -> Bbox | None:
        """As `get_window_extent`."""
        box = self.get_window_extent(renderer)
        return box if box.width > 0 else None

    def _pixels(self) -> np.ndarray:
        assert self.axes is not None
        return self.axes.transData.transform(self.points)


class EndLabels(_Labels):
    """Names of curves at their right ends, one above the other where ends lie close together."""

    def place(self, renderer: RendererBase) -> None:
        """Outside of the axes, as high as the ends, as far as there is a line's height between."""
        assert self.axes is not None
        box, unit = self.axes.bbox, _point(renderer)
        ends = np.clip(self._pixels(), box.min, box.max)
        gap = _LEADING * max(text.get_window_extent(renderer).height for text in self.texts)
        heights = spread(ends[:, 1], gap, box.y0, box.y1)
        # One line to each, or none at all, so that names stand below one another.
        moved = bool(np.any(np.abs(heights - ends[:, 1]) > 0.5 * gap))
        x = box.x1 + unit * (_ASIDE if moved else _APART)
        for text, line, end, y in zip(self.texts, self.lines, ends, heights, strict=True):
            text.set_position((x, y))
            line.set_data(*(([end[0] + unit, x - unit], [end[1], y]) if moved else ([], [])))

    def get_window_extent(self, renderer: RendererBase | None = None) -> Bbox:
        """As if there were lines, since whether there are depends on the size of the axes."""
        box, figure = super().get_window_extent(renderer), self.get_figure(root=True)
        assert self.axes is not None
        assert figure is not None
        widest = max(text.get_window_extent(renderer).width for text in self.texts)
        right = self.axes.bbox.x1 + _ASIDE * figure.dpi / 72 + widest
        return Bbox.from_extents(box.x0, box.y0, right, box.y1)


def label_ends(ax: Axes) -> Axes:
    """Name every labelled line at its right end, in its colour, instead of in a legend.

    Lines that are drawn later are not named; give each line its `label` first. Names stand outside
    of the axes and do not cover one another, whatever the size and the limits.

    Raises:
        ValueError: no line has a label.
    """
    lines = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    if not lines:
        raise ValueError("no line of the axes has a label; draw them with label=.")
    ends = [np.asarray(line.get_xydata(), float) for line in lines]
    ends = [points[np.isfinite(points).all(axis=1)][-1] for points in ends]
    names, colours = [str(line.get_label()) for line in lines], [line.get_color() for line in lines]
    EndLabels(ax, np.array(ends), names, colours)
    return ax


class PointLabels(_Labels):
    """Names of points in a plane, each beside its own and on no other name or point.

    `avoid`: lines (n, 2), in the units of the data, that should stay visible.
    """

    def __init__(
        self,
        ax: Axes,
        points: np.ndarray,
        texts: Sequence[str],
        colours: Sequence[Colour],
        avoid: Sequence[np.ndarray],
    ):
        super().__init__(ax, points, texts, colours)
        self.avoid = avoid

    def place(self, renderer: RendererBase) -> None:
        """To the right if that is free, else around, else farther away with a line to the point.

        Such a line passes no other name and no other point, and later names keep off it.
        """
        assert self.axes is not None
        unit, points = _point(renderer), self._pixels()
        ways = np.concatenate([_dense(self.axes.transData.transform(one)) for one in self.avoid])
        leaders = np.zeros((0, 2))
        # Corners (box, 2, 2) of all points, and of the names that have been placed.
        dots = np.stack([points - 2 * unit, points + 2 * unit], axis=1)
        taken = dots[:0]
        for k, (text, line) in enumerate(zip(self.texts, self.lines, strict=True)):
            point = points[k]
            text.set(ha="left", position=(0.0, 0.0))
            size = text.get_window_extent(renderer)
            others = np.concatenate([taken, dots[~_meets(dots, dots[k, 0], dots[k, 1])]])
            solid = np.concatenate([taken, dots])
            best = (np.inf, 0.0, size, leaders[:0])
            for away, angle in itertools.product(_DISTANCES, np.pi / 8 * np.array(_TURNS)):
                box = _beside(point, size.width, size.height, away * unit, angle)
                near = np.clip(point, *(box.padded(unit).get_points()))
                leader = _dense(np.array([point, near]))
                leader = leader if away > _NEAR else leader[:0]
                # The worst first: a fault outweighs all that follow.
                faults = (
                    _meets(solid, np.asarray(box.min), np.asarray(box.max)).any(),
                    any(_inside(leader, Bbox(other)).any() for other in others if len(leader)),
                    _inside(leaders, box).any(),
                    not _contains(self.axes.bbox, box),
                    _inside(ways, box).any(),
                )
                cost = sum(2.0 ** (4 - k) for k, fault in enumerate(faults) if fault)
                if cost < best[0]:
                    best = (cost, away, box, leader)
                if not cost:
                    break
            _, away, box, leader = best
            taken = np.concatenate([taken, [[box.min, box.max]]])
            leaders = np.concatenate([leaders, leader])
            text.set_position((box.x0, (box.y0 + box.y1) / 2))
            line.set_data(*(leader[[0, -1]].T if len(leader) else ([], [])))


def _point(renderer: RendererBase) -> float:
    """A point in pixels."""
    return float(np.asarray(renderer.points_to_pixels(1.0)))


def _contains(outer: BboxBase, box: Bbox) -> bool:
    return bool(np.all(box.min >= outer.min) and np.all(box.max <= outer.max))


def _meets(corners: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which boxes (n, 2, 2) overlap with the box between two corners."""
    return np.all((corners[:, 0] <= high) & (corners[:, 1] >= low), axis=1)


def _inside(points: np.ndarray, box: Bbox) -> np.ndarray:
    return np.all((points > box.min) & (points < box.max), axis=1)


def _dense(line: np.ndarray) -> np.ndarray:
    """Points along a line (n, 2) in pixels, at most 2 apart."""
    far = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    at = np.linspace(0.0, far[-1], int(far[-1] / 2) + 2)
    return np.stack([np.interp(at, far, line[:, 0]), np.interp(at, far, line[:, 1])], axis=1)


def _beside(point: np.ndarray, width: float, height: float, away: float, angle: float) -> Bbox:
    """A box of this size that lies in one direction of a point."""
    along = np.array([np.cos(angle), np.sin(angle)])
    centre = point + along * away + np.round(along, 6) * np.array([width, height]) / 2
    half = np.array([width, height]) / 2
    return Bbox.from_extents(*(centre - half), *(centre + half))


def spread(wanted: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Return the positions nearest to those wanted (least squares) that are `gap` apart.

    They stay between `low` and `high` if they fit in, and keep their order.
    """
    # From the lowest up; of two as good as equal the first one stands above the second.
    order = np.lexsort((-np.arange(len(wanted)), np.round(wanted / (0.2 * gap))))
    steps = gap * np.arange(len(wanted))
    # Without the gaps, positions must not decrease: neighbours that do are pooled.
    pools: list[list[float]] = []  # mean, number
    for value in wanted[order] - steps:
        pools.append([float(value), 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, count), (other, more) = pools[-2:]
            pools[-2:] = [[(mean * count + other * more) / (count + more), count + more]]
    flat = np.array(list(itertools.chain(*([mean] * int(count) for mean, count in pools))))
    flat = np.clip(flat, low, max(low, high - steps[-1])) if len(flat) else flat
    placed = np.empty(len(flat))
    placed[order] = flat + steps
    return placed
