"""N Fig. 3 and H Fig. 2-5: the figure."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers


@plot.style()
def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Four panels: losses of one task, T of all drops; shares of rivals, where they are equal."""
    figure, blue = plot.figure(plot.DOUBLE, 4.8), COLOURS["trained"]
    a, b, c, d = axes = figure.subplots(2, 2).ravel()
    row = data.sel(task=numbers["shown"])
    seen = np.isfinite(row["T_trained"].values[0])
    t, plateaus = row["T"].values[seen], row["plateau"].values[seen]
    for std, colour in zip(data["std"].values, ("shared", "trained"), strict=True):
        clock, values = data["time"] / np.log(1 / std), data["loss"].sel(std=std).values
        plot.runs(a, clock, values, colour=COLOURS[colour], label=f"std {std:g}")
    x, y = np.repeat([0, *t, 1.12 * t[-1]], 2)[1:-1], np.repeat([1, *plateaus], 2)
    plot.curve(a, x, y, theory=True, label="predicted")
    a.set(xlabel="$t/\\ln(1/\\mathrm{std})$", ylabel="loss / $L(0)$", xlim=(0, x[-1]))
    a.set_ylim(0, None)
    x, y = data["T"].values, data["T_trained"].median("seed").values
    good = np.arange(x.shape[1]) < data["checked"].values[:, None]
    for which, fill, label in ((good, blue, "checked"), (~good, "white", "reported")):
        b.plot(x[which], y[which], "o", color=blue, mfc=fill, markersize=4.5, label=label)
    limits, ticks = (0.8 * np.nanmin(x), 1.25 * np.nanmax(x)), np.array([1, 2, 3, 5, 7])
    plot.curve(b, np.array(limits), np.array(limits), theory=True, linewidth=0.9)
    b.set(xscale="log", yscale="log", xlabel="predicted $T$ of a drop", ylabel="trained $T$")
    b.set(xlim=limits, ylim=limits)
    plot.log_ticks(plot.log_ticks(b, "x", ticks), "y", ticks)
    plot.curve(c, [0, 1], [0, 1], theory=True, linewidth=0.9)
    c.set_prop_cycle(color=plot.mode_colours(data.sizes["delta"]))
    for delta, values in zip(data["delta"].values, data["share"].values, strict=True):
        c.plot(*values.T, "o", mfc="none", markersize=4, label=f"$\\Delta$ = {delta:g}")
    c.set(xlabel="predicted share of XoR gates", ylabel="trained", xlim=(0, 1), ylim=(0, 1))
    x = 1 / np.log(1 / data["crossing_std"].values)
    d.plot(x, data["crossing"], "o-", color=blue, markersize=4, label="equal shares")
    plot.curve(d, [0, 0.095], [np.sqrt(2 / 3)] * 2, theory=True, label="equal rates")
    d.set(xlabel="$1/\\ln(1/\\mathrm{std})$", ylabel="margin $\\Delta$ of the crossing")
    for ax, name, columns in zip(axes, "abcd", (3, 2, 2, 2), strict=True):
        if ax.get_legend_handles_labels()[0]:
            plot.legend_above(ax, columns)
        plot.panel_label(ax, name)
    return figure
