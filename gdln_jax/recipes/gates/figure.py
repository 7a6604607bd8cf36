"""H Fig. 8-9: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers
from gdln_jax.recipes.gates import SHOWN

GREEN = COLOURS["shared"]


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Four panels: modules, output gap by their number, loss gap over time, runs that agree."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.8)
        (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False, height_ratios=[2.1, 2.7])
        maps = top.subplots(1, len(SHOWN))
        axes = bottom.subplots(1, 3, width_ratios=[1.1, 1.1, 0.8])
        modules(maps, data)
        for ax, panel in zip(axes, (elbow, gaps, agreeing), strict=True):
            panel(ax, data, numbers)
        for ax, name in zip((maps[0], *axes), "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def modules(axes: np.ndarray, data: xr.Dataset) -> None:
    """Share of units that are on, by module and example."""
    contexts = int(data["context"].max())
    items = data.sizes["example"] // contexts
    for ax, k in zip(axes, SHOWN, strict=True):
        ax.imshow(data[f"centroids_{k}"], cmap="Greens", vmin=0, vmax=1, aspect="auto")
        ax.set_yticks(range(k), [f"{share:.0%}" for share in data[f"shares_{k}"].values])
        middles = items * (np.arange(contexts) + 0.5) - 0.5
        ax.set_xticks(middles, [str(c + 1) for c in range(contexts)])
        for c in range(1, contexts):
            ax.axvline(items * c - 0.5, color="white", linewidth=1)
        ax.set(xlabel="context", title=f"$k$ = {k}")
    axes[0].set_ylabel("module (power)")
    bar = axes[0].figure.colorbar(axes[-1].images[0], ax=list(axes), pad=0.02, aspect=15)
    bar.set_label("share of units on")


def elbow(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Gap of outputs by number of modules."""
    k, gap, blue = data["k"].values, data["gap"], COLOURS["trained"]
    mean = gap.mean("elbow_seed")
    ax.plot(k, gap, "o", color=blue, markersize=2, alpha=0.5)
    ax.plot(k, mean, color=blue, label="gated")
    spread = float(data["spread"])
    ax.axhline(spread, color=GREEN, linestyle=":")
    ax.annotate(
        "two ReLU networks", (k[-1], spread), (0, 3), textcoords="offset points", ha="right"
    )
    if numbers["chosen"]:
        ring = {"markersize": 9, "markerfacecolor": "none", "color": COLOURS["random"]}
        ax.plot(numbers["chosen"], mean.sel(k=numbers["chosen"]), "o", label="chosen", **ring)
    ax.set(xlabel="number of modules $k$", ylabel="output gap / mean square", yscale="log")
    ax.set_xticks(k)
    plot.legend_above(ax)


def gaps(ax: Axes, data: xr.Dataset, _: Numbers) -> None:
    """Gap of losses over time."""
    t = data["time"].values
    plot.runs(ax, t, data["loss_gap"].values, colour=COLOURS["trained"], label="gated")
    ax.plot(t, data["loss_spread"], color=GREEN, linestyle=":", label="two ReLU")
    ax.set(xlabel="time $t/\\tau$", ylabel=r"loss gap $|\Delta L|/L(0)$", xlim=(0, t[-1]))
    ax.set_ylim(bottom=0)
    plot.legend_above(ax)


def agreeing(ax: Axes, _: xr.Dataset, numbers: Numbers) -> None:
    """Runs in which all four gates are found, by the settings of k-means."""
    found, seeds = numbers["found"], numbers["seeds"]
    colours = (COLOURS["untrained"], COLOURS["faint"], COLOURS["trained"])
    bars = ax.bar(range(len(found)), found, color=colours)
    ax.bar_label(bars)
    ax.set_xticks(range(len(found)), ["all\nunits", "no dead\nunits", "output\npower"])
    ax.set(ylabel=f"runs of {seeds} with all four", ylim=(0, 1.1 * seeds))
