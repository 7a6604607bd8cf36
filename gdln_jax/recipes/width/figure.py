"""The width recipe: the figure."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers
from gdln_jax.recipes.width import SYSTEMS

_COLOURS = [COLOURS[name] for name in ("trained", "untrained", "shared")]
_LOOK = dict(zip(SYSTEMS, zip(_COLOURS, "os^", strict=True), strict=True))
_CLOSE = {"handletextpad": 0.2, "columnspacing": 0.5, "handlelength": 1.2}


def draw(data: xr.Dataset, _: Numbers) -> Figure:
    """Five panels: losses, sizes, truncations, time and memory."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.8)
        grid = figure.add_gridspec(2, 6)
        places = (grid[0, :3], grid[0, 3:], grid[1, :2], grid[1, 2:4], grid[1, 4:])
        axes = [figure.add_subplot(place) for place in places]
        for ax, panel in zip(axes, (losses, sizes, rounds), strict=False):
            panel(ax, data)
        cost(axes[3], 1e3 * data["seconds"], "time of a step (ms)")
        cost(axes[4], 8e-6 * data["weights"], "memory of weights (MB)")
        for ax, name in zip(axes, "abcde", strict=True):
            plot.panel_label(ax, name)
    return figure


def losses(ax: Axes, data: xr.Dataset) -> None:
    """Losses of the widest networks and of their small ones."""
    step = data["step"].values
    for name, (colour, _) in _LOOK.items():
        here = data["loss"].sel(system=name).isel(width=-1)
        wide, small = (here.sel(network=k).values for k in ("wide", "small"))
        ax.plot(step, wide / wide[0], color=colour, linewidth=2.6, alpha=0.55, label=name)
        plot.curve(ax, step, small / wide[0], theory=True, linewidth=1.0)
    ax.set(xlabel="step of gradient descent", ylabel="loss $L/L(0)$", yscale="log")
    ax.set(xlim=(0, step[-1]), ylim=(1e-7, 3))
    plot.legend_above(ax, 3, **_CLOSE)


def sizes(ax: Axes, data: xr.Dataset) -> None:
    """Dimensions used: computed, drawn, and by formula."""
    drawn, width = data["drawn"].values, data["width"].values
    limits = np.array([min(drawn[0], width[0]) * 0.7, max(drawn[-1], width[-1]) * 1.4])
    ax.plot(limits, limits, color=COLOURS["faint"], linewidth=0.8)
    ax.text(limits[1] / 3, limits[1] / 20, "all\ndimensions", color="0.4", ha="center", va="top")
    for (name, (colour, marker)), shift in zip(_LOOK.items(), (0.88, 1.0, 1.14), strict=True):
        here, look = data.sel(system=name), {"color": colour, "markersize": 4}
        ax.plot(drawn * shift, here["size_drawn"], marker, fillstyle="none", label=name, **look)
        ax.plot(width * shift, here["size"], marker, **look)
        plot.curve(ax, limits, [float(here["expected"][-1])] * 2, theory=True, linewidth=0.8)
    ax.set(xlabel="width $N$", ylabel="dimensions used", xscale="log", yscale="log")
    ax.set(xlim=limits, ylim=(5, 1.3 * limits[1]))
    plot.legend_above(ax, 3, **_CLOSE)


def rounds(ax: Axes, data: xr.Dataset) -> None:
    """Distance of truncated networks, and its estimate."""
    steps = data["round"].values
    for (colour, marker), gain in zip(_LOOK.values(), data["gain"].values, strict=False):
        here = data.sel(gain=gain)
        look: Any = {"color": colour, "fillstyle": "none", "label": f"{gain:g}"}
        ax.plot(steps, np.maximum(here["truncated_gap"], 1e-16), marker, **look)
        plot.curve(
            ax, steps, np.maximum(here["truncated_estimate"], 1e-16), theory=True, linewidth=0.8
        )
    ax.set(xlabel="rounds", ylabel="distance of losses / $L(0)$", yscale="log", xticks=steps)
    plot.legend_above(ax, 3, title="gain of the weights", alignment="left", **_CLOSE)


def cost(ax: Axes, values: xr.DataArray, label: str) -> None:
    """One line for the wide chain and one for its small network."""
    width, here = values["width"].values, values.sel(system="chain")
    for network, colour, line in (("wide", "untrained", "s-"), ("small", "trained", "o--")):
        look: Any = {"color": COLOURS[colour], "fillstyle": "none", "label": network}
        ax.plot(width, here.sel(network=network), line, **look)
    ax.set(xlabel="width $N$", ylabel=label, xscale="log", yscale="log")
    low, high = np.log10(float(here.min())), np.log10(float(here.max()))
    ax.set_ylim(10.0 ** np.floor(low), 10.0 ** np.ceil(high + 0.2))
    ax.set_xticks(width, [str(n) for n in width])
    ax.minorticks_off()
    plot.legend_above(ax, 2, **_CLOSE)
