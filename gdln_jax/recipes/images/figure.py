"""N Fig. 7-10: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers

_MARKERS = "os^D"


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Accuracy against K/M, against the spectral gap, and against the gain."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.6)
        axes = figure.subplots(1, 3, sharey=True)
        by_k, last = data.isel(run=data["panel"] == 0), data.isel(run=data["panel"] == 1)
        for n, m in enumerate(numbers["domains"]):
            here = by_k.isel(run=by_k["m"] == m)
            share = 100 * here["k"].values / m
            _points(axes[0], here, share, _MARKERS[n % 4], f", $M$ = {m}", line=True)
            _points(axes[1], here, here["gap"].values, _MARKERS[n % 4], "", line=False)
        _points(axes[2], last, last["gain"].values, "o", "", line=True)
        axes[0].set(xlabel="trained outputs per input (%)", ylabel="test accuracy", ylim=(0, 1))
        axes[1].set(xlabel="gap $\\sigma_2/\\sigma_1$")
        axes[1].axvline(0.7, color=COLOURS["faint"], linewidth=0.9, linestyle=":", zorder=0)
        title = f"$M$ = {last['m'].values[0]}, $K$ = {last['k'].values[0]}"
        axes[2].set(xscale="log", xlabel="gain of initial weights", title=title)
        plot.legend_above(axes[0], 1)
        for ax, name in zip(axes, "abc", strict=True):
            ax.axhline(0.1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
            plot.panel_label(ax, name)
    return figure


def _points(
    ax: Axes, data: xr.Dataset, x: np.ndarray, marker: str, label: str, *, line: bool
) -> None:
    for name in ("trained", "untrained"):
        y = data[name].values
        good = np.isfinite(y)
        look = {"color": COLOURS[name], "markerfacecolor": "none", "markeredgewidth": 0.7}
        ax.plot(x[good], y[good], marker, markersize=3, alpha=0.6, **look)
        if line:
            at = np.unique(x[good])
            middle = [np.median(y[good & (x == v)]) for v in at]
            look = {"color": COLOURS[name], "linewidth": 1.1, "label": f"{name}{label}"}
            ax.plot(at, middle, marker=marker, markersize=2.5, **look)
