"""Staircases: the figure."""

import matplotlib as mpl
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers

TITLES = {
    "attention": "linear attention",
    "recurrence": "linear recurrence",
    "autoencoder": "tied autoencoder",
    "ssl": "self-supervision",
    "poles": "recurrence, two poles",
}


def draw(data: xr.Dataset, _: Numbers) -> Figure:
    """Five staircases, and the order of inputs in a recurrent network."""
    with plot.style(), mpl.rc_context({"lines.linewidth": 1.1}):
        figure = plot.figure(plot.DOUBLE, 4.4)
        axes = figure.subplots(2, 3).flat
        for ax, letter, name in zip(axes, "abcde", TITLES, strict=False):
            staircase(ax, data.sel(network=name), name)
            plot.panel_label(ax, letter)
        order(axes[5], data)
        plot.panel_label(axes[5], "f")
    return figure


def staircase(ax: Axes, data: xr.Dataset, name: str) -> None:
    """Losses of random starts, and plateaus."""
    t = data["run_time"].values
    for loss in data["loss"].values:
        ax.plot(t[1:], loss[1:], color=COLOURS["trained"], linewidth=0.8)
    for level in data["steps"].values:
        ax.axhline(level, color=COLOURS["theory"], linestyle="--", linewidth=0.8, zorder=0)
    ax.set(title=TITLES[name], xlabel="time t/τ", ylabel="loss $L$", ylim=(0, None))
    if name == "attention":
        ax.set(xscale="log", xlim=(t[-1] / 1000, t[-1]))
    if name == "poles":
        ax.set_xlim(0, 120)


def order(ax: Axes, data: xr.Dataset) -> None:
    """Half times of the four inputs, beside that of the last."""
    moment = data["moment"].values
    half = moment[(data["maps"].values > 0.5).argmax(axis=0)]
    for k, (name, marker) in enumerate(zip(data["sequence"].values, "os^v", strict=False)):
        colour = [COLOURS[c] for c in ("trained", "shared", "untrained", "random")][k]
        ax.plot(
            range(1, 5), half[:, k] - half[-1, k], marker, ls="-", color=colour, label=str(name)
        )
    ax.axhline(0, color=COLOURS["faint"], linewidth=0.8, zorder=0)
    ax.set(xlabel="input, first to last", ylabel="half time after the last's")
    ax.set_xticks(range(1, 5))
    plot.legend_above(ax, 1)
