"""Legends and texts of a panel that cover no curve."""

from typing import Any

from matplotlib.axes import Axes

_CORNERS = {
    "upper left": (0.02, 0.98, "left", "top"),
    "upper right": (0.98, 0.98, "right", "top"),
    "lower left": (0.02, 0.02, "left", "bottom"),
    "lower right": (0.98, 0.02, "right", "bottom"),
}


def legend_above(ax: Axes, columns: int = 2, **style: Any) -> Axes:
    """Set the legend above the axes; with constrained layout the figure makes space for it."""
    usual = {"columnspacing": 0.9, "handlelength": 1.5, "handletextpad": 0.5, "borderaxespad": 0.4}
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, **(usual | style))
    return ax


def corner_text(ax: Axes, text: str, corner: str = "upper right") -> Axes:
    """Write `text` into a corner of the axes, with proper minus signs."""
    x, y, ha, va = _CORNERS[corner]
    ax.text(x, y, text.replace("-", "−"), transform=ax.transAxes, ha=ha, va=va)
    return ax
