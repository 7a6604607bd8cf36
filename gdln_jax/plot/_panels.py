"""Legends and texts of a panel that cover no curve; numbers on short logarithmic axes."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gdln_jax.plot._types import ArrayLike

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


def log_ticks(ax: Axes, axis: str, values: ArrayLike | None = None) -> Axes:
    """Set plain numbers on a logarithmic axis: `values`, or 1, 2 and 5 times powers of ten
    (1 to 9 times if these are fewer than three).

    For short ranges, in which powers of ten alone leave an axis without numbers.
    """
    low, high = sorted(ax.get_xlim() if axis == "x" else ax.get_ylim())
    if values is None:
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        values = np.outer(powers, [1, 2, 5]).ravel()
        if np.sum((values >= low) & (values <= high)) < 3:
            values = np.outer(powers, np.arange(1, 10)).ravel()
    ticks = [float(x) for x in np.asarray(values) if low <= x <= high]
    line = ax.xaxis if axis == "x" else ax.yaxis
    line.set_ticks(ticks, [f"{x:g}" for x in ticks])
    line.set_ticks([], minor=True)
    return ax
