"""N Fig. 5c: the figure."""

from itertools import cycle
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers

_MARKERS = {"random": "o", "cyclic": "^", "blocks": "s"}
_BY_SIZE = (COLOURS["untrained"], COLOURS["random"], COLOURS["other"], COLOURS["faint"])


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Three panels: errors by K, untrained errors by K/M, and by the gap."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.9)
        a, b, c = figure.subplots(1, 3, width_ratios=[1.1, 1.0, 1.0])
        counts(a, data, numbers)
        colours = dict(zip(np.unique(data["m"].values).tolist(), cycle(_BY_SIZE), strict=False))
        shares = 100 * data["k"].values / data["m"].values
        against(b, shares, data, colours, f"$\\rho$ = {numbers['count']:.2f}")
        b.set(xlabel="trained outputs per input (%)", ylabel="relative error, untrained routes")
        against(c, data["gap"].values, data, colours, f"$\\rho$ = {numbers['gap']:.2f}")
        c.axvline(0.7, color=COLOURS["faint"], linewidth=0.9, linestyle=":", zorder=0)
        c.set(xlabel="spectral gap $\\sigma_2/\\sigma_1$")
        c.tick_params(labelleft=False)
        close = {"columnspacing": 0.5, "handletextpad": 0.0, "handlelength": 1.3}
        dots = [dot(color=x, marker="o", label=f"$M$ = {m}") for m, x in colours.items()]
        plot.legend_above(b, 3, handles=dots, **close)
        kinds = [dot(color="black", marker=x, label=kind) for kind, x in _MARKERS.items()]
        plot.legend_above(c, 3, handles=kinds, **close)
        for ax, name in zip((a, b, c), "abc", strict=True):
            plot.panel_label(ax, name)
    return figure


def dot(**look: Any) -> Line2D:
    """A handle for a legend."""
    return Line2D([], [], linestyle="none", markersize=3, markerfacecolor="none", **look)


def counts(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Errors of trained and untrained routes, quantiles over networks."""
    m = numbers["m"]
    chosen = (data["m"].values == m) & (data["kind"].values == "random")
    k = data["k"].values[chosen]
    for name, marker in (("untrained", "o"), ("trained", "s")):
        errors, colour = data[name].values[chosen], COLOURS[name]
        steps = np.array([c for c in np.unique(k) if np.isfinite(errors[k == c]).any()])
        quantiles = [np.quantile(errors[k == c], (0.1, 0.5, 0.9)) for c in steps]
        low, middle, high = np.stack(quantiles, axis=1)
        x = 100 * steps / m
        ax.plot(100 * k / m, errors, ".", color=colour, markersize=2.5, alpha=0.5)
        ax.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
        ax.plot(x, middle, color=colour, marker=marker, markersize=3.5, label=name)
    ax.axhline(1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    ax.set(yscale="log", xlabel="trained outputs per input (%)", ylabel="relative error")
    # At K = 1 trained routes are exact to rounding, far below.
    ax.set_ylim(1e-8, 10)
    plot.legend_above(ax)


def against(ax: Axes, x: np.ndarray, data: xr.Dataset, colours: dict[int, str], text: str) -> None:
    """Untrained errors of all networks, by M (colours) and kind of pattern (markers)."""
    look = {"markersize": 3, "alpha": 0.65, "linestyle": "none", "markeredgewidth": 0.7}
    errors, m, kinds = (data[name].values for name in ("untrained", "m", "kind"))
    for number, colour in colours.items():
        for kind, marker in _MARKERS.items():
            rows = (m == number) & (kinds == kind) & np.isfinite(errors)
            ax.plot(x[rows], errors[rows], marker, color=colour, markerfacecolor="none", **look)
    ax.axhline(1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    ax.set(yscale="log", ylim=(errors[errors > 0].min() / 4, 2 * np.nanmax(errors)))
    plot.corner_text(ax, text, "lower left" if x.max() > 1 else "lower right")
