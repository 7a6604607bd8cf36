"""N A.2: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers

_COLOURS = {"linear": COLOURS["untrained"], "gated": COLOURS["trained"]}


def draw(data: xr.Dataset, _: Numbers) -> Figure:
    """Three panels: losses by flow, losses by descent, total weights."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.3)
        axes = figure.subplots(1, 3, width_ratios=[1.25, 1.25, 1.0])
        for ax, name, panel in zip(axes, "abc", (flows, losses, weights), strict=True):
            panel(ax, data)
            plot.panel_label(ax, name)
    return figure


def flows(ax: Axes, data: xr.Dataset) -> None:
    """Loss from aligned initial weights, and the closed form."""
    t = data["flow_time"].values
    for kind, colour in _COLOURS.items():
        plot.curve(ax, t, data[f"{kind}_loss_flow"], colour=colour, linewidth=2.6, label=kind)
        label = "closed form" if kind == "gated" else None
        loss = data[f"{kind}_loss_theory"]
        plot.curve(ax, t, loss, theory=True, linewidth=1.0, label=label)
    _frame(ax, t)
    plot.legend_above(ax)


def losses(ax: Axes, data: xr.Dataset) -> None:
    """Loss from random initial weights."""
    t = data["time"].values
    for kind, colour in _COLOURS.items():
        ax.plot(t, data[f"{kind}_loss_samples"].values.T, color=colour, linewidth=0.5, alpha=0.6)
        ax.plot(t, np.median(data[f"{kind}_loss_population"].values, axis=0), color=colour)
    for width, label in ((1.4, "population"), (0.5, "samples")):
        ax.plot([], [], color=COLOURS["faint"], linewidth=width, label=label)
    _frame(ax, t)
    plot.legend_above(ax)


def _frame(ax: Axes, t: np.ndarray) -> None:
    ax.set(xlim=(0, t[-1]), ylim=(-0.004, None), xlabel="time $t/\\tau$", ylabel="loss $L$")
    ax.set_yticks((0, 1 / 12, 1 / 6), ("0", "1/12", "1/6"))


def weights(ax: Axes, data: xr.Dataset) -> None:
    """Total weights from the origin to their limits, every seed on its own sample."""
    for kind, colour in _COLOURS.items():
        w = data[f"{kind}_weights_samples"].values  # (seed, time, pathway, feature)
        look = {"s": 12, "color": colour, "zorder": 4, "edgecolor": "white", "linewidth": 0.4}
        for p in range(w.shape[2]):
            ax.plot(w[:, :, p, 0].T, w[:, :, p, 1].T, color=colour, linewidth=0.6, alpha=0.7)
            ax.scatter(*w[:, -1, p].T, marker="o" if kind == "gated" else "s", **look)
    for xy, text, offset, align in (
        ((0.5, 0.5), "[½ ½]\nlinear", (7, 4), "left"),
        ((1.0, 0.0), "[1 0]\ncontext 1", (0, 7), "center"),
        ((0.0, 1.0), "[0 1]\ncontext 2", (8, 0), "left"),
    ):
        ax.annotate(text, xy, offset, textcoords="offset points", ha=align, fontsize=7)
    ax.set(xlim=(-0.15, 1.3), ylim=(-0.15, 1.3), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    ax.set(xlabel="weight on $x_1$", ylabel="weight on $x_2$", aspect="equal")
