"""The picture of the scaling series: log-log, measured points with the fitted power beside them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from benchmarks.scaling import Series
from gdln_jax import plot

_PANELS = (
    ("step", ("domains M", "gate patterns"), "a"),
    ("step", ("paths", "width N_h", "layers"), "b"),
    ("compilation", ("domains M", "layers"), "c"),
    ("reduce()", ("domains M", "modes r"), "d"),
    ("quotient solution", ("domains M",), "e"),
    ("memory", ("saved steps",), "f"),
)
_COLOURS = ("#0072B2", "#E69F00", "#009E73")
_MARKERS = ("o", "s", "^")


def draw(found: Sequence[Series]) -> Figure:
    """Six panels; dashed lines are the fits over the upper half of the sizes."""
    with plot.style():
        figure = Figure(figsize=(6.8, 4.2), layout="constrained")
        for axes, (what, sizes, letter) in zip(figure.subplots(2, 3).flat, _PANELS, strict=True):
            chosen = [s for s in found if s.what.startswith(what) and s.size in sizes]
            for series, colour, marker in zip(chosen, _COLOURS, _MARKERS, strict=False):
                _curve(axes, series, colour, marker, label=_label(series, what))
            axes.set(xscale="log", yscale="log", title=f"{letter}  {what}")
            axes.set_xlabel(", ".join(sizes).replace("N_h", "$N_h$"))
            axes.set_ylabel("MiB" if what == "memory" else "seconds")
            low, high = axes.get_ylim()
            low = min(low, high / 30)  # no false drama
            axes.set_ylim(low, high * (high / low) ** (0.12 + 0.1 * len(chosen)))  # labels above
            axes.legend(loc="upper left", fontsize=6.5)
    return figure


def _label(series: Series, what: str) -> str:
    name = series.what.removeprefix("memory, ") if what == "memory" else series.size
    name = name.replace("N_h", "$N_h$")
    return f"{name}: power {series.exponent:.2f}"


def _curve(axes: object, series: Series, colour: str, marker: str, *, label: str) -> None:
    x = np.array(series.x, float)
    y = np.array(series.y) / (2**20 if series.unit == "bytes" else 1)
    axes.plot(x, y, marker, color=colour, ms=3.5, ls="-", lw=0.8, label=label)
    tail = slice(len(x) // 2, None) if len(x) > 3 else slice(None)
    level = np.exp(np.mean(np.log(y[tail]) - series.exponent * np.log(x[tail])))
    axes.plot(x[tail], level * x[tail] ** series.exponent, "--", color="black", lw=0.8, zorder=3)
