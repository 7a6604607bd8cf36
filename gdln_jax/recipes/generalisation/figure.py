"""N Fig. 5c: the figure."""

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
        for ax, by in ((b, "count"), (c, "gap")):
            against(ax, data, numbers, by)
        c.sharey(b)
        b.set_ylabel("relative error, untrained routes")
        sizes, kinds = legends(data)
        plot.legend_above(b, 2, handles=sizes)
        plot.legend_above(c, 3, handles=kinds)
        for ax, name in zip((a, b, c), "abc", strict=True):
            plot.panel_label(ax, name)
    return figure


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


def against(ax: Axes, data: xr.Dataset, numbers: Numbers, by: str) -> None:
    """Untrained errors of all networks by K/M or by the gap."""
    errors = data["untrained"].values
    x = data["gap"].values if by == "gap" else 100 * data["k"].values / data["m"].values
    look = {"markersize": 3, "alpha": 0.65, "linestyle": "none", "markeredgewidth": 0.7}
    for number, m in enumerate(data.attrs["domains"]):
        colour = _BY_SIZE[number % len(_BY_SIZE)]
        for kind, marker in _MARKERS.items():
            rows = (data["m"].values == m) & (data["kind"].values == kind) & np.isfinite(errors)
            ax.plot(x[rows], errors[rows], marker, color=colour, markerfacecolor="none", **look)
    ax.axhline(1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    text = f"rank correlation\n{numbers[f'rank_{by}']:.2f}"
    if by == "gap":
        ax.axvline(0.7, color=COLOURS["faint"], linewidth=0.9, linestyle=":", zorder=0)
        ax.set_xlabel("spectral gap $\\sigma_2/\\sigma_1$")
        plot.corner_text(ax, text, "upper left")
    else:
        ax.set_xlabel("trained outputs per input (%)")
        plot.corner_text(ax, text, "lower left")
    ax.set_yscale("log")


def legends(data: xr.Dataset) -> tuple[list[Line2D], list[Line2D]]:
    """Handles for the numbers of domains (colours) and the kinds of pattern (markers)."""
    dots = {"linestyle": "none", "markersize": 3}
    sizes = [
        Line2D([], [], color=_BY_SIZE[n % len(_BY_SIZE)], marker="o", label=f"$M$ = {m}", **dots)
        for n, m in enumerate(data.attrs["domains"])
    ]
    kinds = [
        Line2D([], [], color="black", marker=marker, markerfacecolor="none", label=kind, **dots)
        for kind, marker in _MARKERS.items()
    ]
    return sizes, kinds
