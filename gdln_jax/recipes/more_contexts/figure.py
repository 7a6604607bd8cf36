"""H Fig. 5: the figure, a row per number of contexts and size of them in the inputs."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import plot
from gdln_jax.recipes._core.declare import Numbers

RELU, GATED = plot.COLOURS["shared"], plot.COLOURS["trained"]
TITLES = ("loss $L$", "common modes", "contextual modes", "power of ReLU units")
LEGEND = ("ReLU", "gated", "modes, gated", "common pathway alone", "closed form")
LOOKS = ((RELU, 3.0), (GATED, 1.4), ("0.5", 2.2), ("0.5", 0.9), ("black", 1.0))


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Four panels a row: losses, common modes, contextual modes, power."""
    rows, t = numbers["members"], data["time"].values
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 0.7 + 1.4 * len(rows))
        axes = figure.subplots(len(rows), 4, squeeze=False, sharex="col", sharey="col")
        for (a, b, c, d), row in zip(axes, rows, strict=True):
            found = {k: data[f"{k}_{row['tag']}"].values for k in ("whole", "common", "contextual")}
            common, rest = (data[f"{k}_theory_{row['tag']}"].values for k in list(found)[1:])
            _losses(a, data, row)
            _modes(b, t, common, found["whole"].mean(axis=0), found["common"].mean(axis=0))
            _modes(c, t, rest, found["contextual"].mean(axis=(0, 2)))
            _power(d, data, row)
            a.set_ylabel(f"{row['contexts']} contexts, $c$ = {row['size']:g}")
        for k, ax in enumerate(axes[0]):
            plot.panel_label(ax, "abcd"[k]).set(title=TITLES[k], ylim=(0, 1 if k == 3 else None))
            axes[-1, k].set_xlabel("time $t/\\tau$" if k < 3 else "contexts a unit is on in")
        handles = [
            Line2D([], [], color=colour, linewidth=width, label=name)
            for name, (colour, width) in zip(LEGEND, LOOKS, strict=True)
        ]
        handles[-1].set_linestyle("--")
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _losses(ax: Axes, data: xr.Dataset, row: Numbers) -> None:
    t, tag = data["time"].values, row["tag"]
    for kind, colour, wide in (("relu", RELU, 3.0), ("gated", GATED, 1.4)):
        values = data[f"loss_{kind}_{tag}"].values
        plot.runs(ax, t, values, colour=colour, thin=False, linewidth=wide)
    plot.curve(ax, t, data[f"loss_theory_{tag}"], theory=True, linewidth=1.0)
    ax.set(xlim=(0, t[-1]))
    plot.corner_text(ax, f"mean gap\ngated {row['gated']:.2%}\nReLU {row['relu']:.1%}")


def _modes(ax: Axes, t: np.ndarray, theory: np.ndarray, *curves: np.ndarray) -> None:
    """Tied modes have no frame of their own: their mean, and the theory of each set."""
    late = np.round(theory[len(theory) // 4 :], 6)
    _, first, sets = np.unique(late, axis=1, return_index=True, return_inverse=True)
    for m, colour in zip(np.sort(first), plot.mode_colours(len(first)), strict=True):
        for values, wide in zip(curves, (2.2, 0.9), strict=False):
            ax.plot(t, values[:, sets == sets[m]].mean(axis=1), color=colour, linewidth=wide)
        plot.curve(ax, t, theory[:, m], theory=True, linewidth=0.9)
    ax.set(xlim=(0, t[-1]))


def _power(ax: Axes, data: xr.Dataset, row: Numbers) -> None:
    c, widest, middle = row["contexts"], row["widest"], row["power"]
    values = data["power" if row["size"] == 1 else "power_code"].sel(contexts=c).values
    colours = [plot.COLOURS["untrained" if m == widest else "faint"] for m in range(c + 1)]
    ax.bar(range(c + 1), middle, color=colours, width=0.7, edgecolor="black", linewidth=0.5)
    ax.plot(values.T, ".", color="black", markersize=2.5)
    plot.corner_text(ax, f"{widest} of {c}:\n{middle[widest]:.0%}", "upper left")
    ax.set(xticks=range(data.sizes["active"]), yticks=(0, 0.5, 1))
