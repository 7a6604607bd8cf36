"""N Fig. 3: the figure."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers

RELU = COLOURS["random"]


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Three panels: the task and one network, directions of all units, losses."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.6)
        axes = figure.subplots(1, 3, width_ratios=[1.0, 0.95, 1.35])
        for ax, name, panel in zip(axes, "abc", (corners, directions, losses), strict=True):
            panel(ax, data, numbers)
            plot.panel_label(ax, name)
    return figure


def corners(ax: Axes, data: xr.Dataset, _: Numbers) -> None:
    """The task, and the final input weights of one network."""
    w = data["input_weights"].values[0]
    w = w / np.linalg.norm(w, axis=-1).max()
    for x, y in zip(data["x"].values, data["y"].values, strict=True):
        look: dict[str, Any] = {"marker": "s", "facecolor": COLOURS["untrained"]}
        if y > 0:
            look = {"marker": "o", "facecolor": COLOURS["trained"]}
        ax.scatter(*x, s=42, zorder=5, edgecolor="black", linewidth=0.6, **look)
        above = x[1] > 0
        place: dict[str, Any] = {"textcoords": "offset points", "ha": "center"}
        place |= {"va": "bottom" if above else "top", "xytext": (0, 8 if above else -8)}
        ax.annotate("+1" if y > 0 else "−1", x, **place)
    start = np.zeros(len(w))
    heads = {"width": 0.006, "headwidth": 4, "headlength": 4, "alpha": 0.75}
    scale = {"angles": "xy", "scale_units": "xy", "scale": 1 / 0.95}
    ax.quiver(start, start, *w.T, color=RELU, **scale, **heads)
    ax.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), xticks=(-1, 1), yticks=(-1, 1), aspect="equal")
    ax.set(xlabel="$x_1$", ylabel="$x_2$", title="input weights, one network")


def directions(ax: Axes, data: xr.Dataset, _: Numbers) -> None:
    """Directions of all units' input weights before and after, weighted by their norm."""
    bins = np.linspace(-182.5, 182.5, 74)
    for name, colour, label in (
        ("initial_weights", COLOURS["faint"], "start"),
        ("input_weights", RELU, "end"),
    ):
        w = data[name].values.reshape(-1, 2)
        share = np.sum(w**2, axis=1) / np.sum(w**2)
        heights = np.histogram(np.degrees(np.arctan2(w[:, 1], w[:, 0])), bins, weights=share)[0]
        ax.stairs(heights, bins, color=colour, fill=label == "start", label=label, linewidth=1.2)
    ax.set(xlim=(-180, 180), xticks=(-135, -45, 45, 135), ylim=(0, None))
    ax.set(xlabel="direction (degrees)", ylabel="share of $|w|^2$")
    plot.legend_above(ax)


def losses(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Loss curves of ReLU networks, of the gated network, and the closed form."""
    tau = data["time"].attrs["tau"]
    t, faint = data["time"].values / tau, COLOURS["faint"]
    plot.loss_curves(ax, t, data["loss_flow"].values, colour=RELU, label="ReLU, flow")
    thin = {"colour": COLOURS["other"], "linewidth": 0.9, "linestyle": ":"}
    plot.curve(ax, t, data["loss_descent"].median("seed"), label="ReLU, descent", **thin)
    wide = {"colour": faint, "linewidth": 3.2, "zorder": 0}
    plot.curve(ax, t, data["loss_gated"], label="gated, flow", **wide)
    plot.curve(ax, t, data["loss_theory"], theory=True, label="closed form")
    ax.axhline(0.25, color=faint, linewidth=0.7, zorder=0)
    ax.set(ylim=(0, None), yticks=(0, 0.25, 0.5))
    plot.legend_above(ax)
    text = (
        f"time to half:\nReLU {numbers['flow_time'] / tau:.2f}\n"
        f"closed form {numbers['predicted'] / tau:.2f}\n{numbers['late']:+.1%}, no fit"
    )
    plot.corner_text(ax, text, "lower left")
