"""Texts of a figure as they are drawn: their boxes in pixels, which overlap, how small they are."""

from itertools import combinations
from unittest import mock

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

# Boxes have an empty margin of about a pixel at 100 dpi on each side.
MARGIN = 2.0
SMALLEST = 6.0  # points at print size


def texts(figure: Figure) -> list[tuple[str, Bbox, float]]:
    """(text, box, font size) of every text that is drawn; ticks outside of the limits are not."""
    drawn: list[tuple[str, Bbox, float]] = []
    draw = Text.draw

    def recorded(self, renderer, *args, **kwargs):
        if self.get_visible() and self.get_text().strip():
            box = Text.get_window_extent(self, renderer)
            drawn.append((self.get_text(), box, float(self.get_fontsize())))
        draw(self, renderer, *args, **kwargs)

    with mock.patch.object(Text, "draw", recorded):
        FigureCanvasAgg(figure).draw()
    return drawn


def faults(figure: Figure) -> list[str]:
    """Texts that overlap, are cut by the figure's edge or too small; legends that squeeze axes."""
    drawn = texts(figure)
    found = [f"{text!r}: {size:g} pt" for text, _, size in drawn if size < SMALLEST]
    for text, box, _ in drawn:
        width, height = figure.bbox.width + MARGIN, figure.bbox.height + MARGIN
        if min(box.x0, box.y0) < -MARGIN or box.x1 > width or box.y1 > height:
            found.append(f"{text!r} is cut")
    for ax in figure.findobj(Axes):
        legend = ax.get_legend()
        if legend and legend.get_window_extent().width > ax.bbox.width + 20:
            found.append("a legend is wider than its axes")
    for (one, a, _), (other, b, _) in combinations(drawn, 2):
        both = Bbox.intersection(a, b)
        if both is not None and both.width > MARGIN and both.height > MARGIN:
            found.append(f"{one!r} and {other!r} overlap")
    return found
