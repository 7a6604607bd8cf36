"""The one style: sizes of a journal's columns, and what each colour means."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SINGLE = 3.3
"""Width in inches of one column of a journal's page."""
DOUBLE = 6.8
"""Width in inches of two columns."""

COLOURS = {
    "trained": "#0072B2",
    "untrained": "#E69F00",
    "shared": "#009E73",
    "theory": "#000000",
    "random": "#8C2D04",
    "other": "#4A1486",
    "faint": "#C8C8C8",
}
"""Colour of what is trained, untrained, shared, theory, random, other or faint.

Blue, orange, green and black are those of Okabe and Ito; brown, violet and grey were chosen so that
any two are told apart also without green receptors (CIE76 distance at least 20 after Machado et
al. 2009) and in grey (lightness L* at least 10 apart)."""

_RC: dict[Any, Any] = {
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.titlepad": 4,
    "axes.labelpad": 2,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.borderaxespad": 0.2,
    "legend.labelspacing": 0.25,
    "lines.linewidth": 1.4,
    "lines.dash_capstyle": "round",
    "image.interpolation": "nearest",
    "mathtext.fontset": "dejavusans",
    "savefig.bbox": None,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the package's style inside this block; settings are restored afterwards."""
    with mpl.rc_context(_RC):
        yield


def figure(width: float | int = DOUBLE, height: float | int = 4.0) -> Figure:
    """Make a figure (inches) with constrained layout, without pyplot's global state."""
    with style():
        return Figure(figsize=(width, height), layout="constrained")


def panel_label(ax: Axes, label: str) -> Axes:
    """Write a bold panel letter at the upper left corner, outside of the axes."""
    ax.annotate(
        label,
        (0, 1),
        xycoords="axes fraction",
        xytext=(-16, 5),
        textcoords="offset points",
        fontsize=10,
        weight="bold",
        ha="right",
        va="bottom",
        annotation_clip=False,
    )
    return ax


def label_axes(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Label the axes where they have no label yet."""
    ax.set(xlabel=ax.get_xlabel() or xlabel, ylabel=ax.get_ylabel() or ylabel)


def mode_colours(count: int) -> list[tuple[float, float, float, float]]:
    """Return colours of modes, from dark (the strongest) to light; distinguishable in grey."""
    return [tuple(row) for row in mpl.colormaps["viridis"](np.linspace(0.0, 0.82, max(count, 1)))]
