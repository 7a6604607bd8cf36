"""N Fig. 5a-b: the figure."""

import math

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.typing import ColorType

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers


def _colours(data: xr.Dataset) -> list[ColorType]:
    """Dedicated orange, fully shared green, the others between."""
    between = plot.mode_colours(data.sizes["paths"] - 1)[:-1]
    return [COLOURS["untrained"], *between[::-1], COLOURS["shared"]]


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Five panels: blocks, curves, time to half; the race and what its loser keeps."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.8)
        (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False)
        left, right = np.ravel(top.subfigures(1, 2, width_ratios=[1.0, 1.25]))
        axes = [_blocks(left, data, numbers), right.subplots(), *bottom.subplots(1, 3)]
        for ax, panel in zip(axes[1:], (_curves, _law, _race, _kept), strict=True):
            panel(ax, data, numbers)
        for ax, name in zip(axes, "abcde", strict=True):
            plot.panel_label(ax, name)
    return figure


def _blocks(part: SubFigure, data: xr.Dataset, numbers: Numbers) -> Axes:
    m, paths = numbers["domains"], data["paths"].values
    axes = part.subplots(2, math.ceil(len(paths) / 2), squeeze=False).ravel()
    for ax in axes[len(paths) :]:
        ax.set_visible(False)
    for ax, p, colour in zip(axes, paths, _colours(data), strict=False):
        edges = np.arange(0, m + 1, math.isqrt(int(p)))
        ax.hlines(edges, 0, m, color="black", linewidth=0.5)
        ax.vlines(edges, 0, m, color="black", linewidth=0.5)
        ax.fill_between([0, m], 0, m, color=colour, alpha=0.45, linewidth=0)
        ax.set(xlim=(0, m), ylim=(m, 0), xticks=(), yticks=(), title=f"$P$ = {p}", aspect="equal")
        ax.spines[:].set_visible(False)
    axes[0].set(ylabel="input")
    axes[len(paths) - 1].set(xlabel="output domain")
    return axes[0]


def _curves(ax: Axes, data: xr.Dataset, _: Numbers) -> None:
    t = data["time"].values
    found, theory = ((b[:, 1] * b[:, 0] ** 2) for b in (data["b_flow"], data["b_theory"]))
    for k, (p, colour) in enumerate(zip(data["paths"].values, _colours(data), strict=True)):
        for m in range(3):
            look = {"label": None if m else f"$P$ = {p}", "linewidth": 2.4 - 0.6 * m}
            plot.curve(ax, t[k], found[k, :, m], colour=colour, **look)
            plot.curve(ax, t[k], theory[k, :, m], theory=True, linewidth=0.9)
    ax.lines[-1].set_label("closed form")
    ax.set(xscale="log", xlim=(t[-1, -1] / 120, t.max()), ylim=(0, None))
    ax.set(xlabel="time $t/\\tau$", ylabel="route's map $B_2B_1^2$")
    plot.legend_above(ax, 3)


def _law(ax: Axes, data: xr.Dataset, _: Numbers) -> None:
    paths, equal = data["paths"].values, data["half"].values[:, 0]
    balanced = data["half_balanced"].values[:, 0]
    ax.plot(paths, equal, "o", markersize=4, color=COLOURS["shared"], label="equal")
    ax.plot(paths, balanced, "s", markersize=4, color=COLOURS["other"], label="balanced")
    plot.curve(ax, paths, balanced[0] * paths ** (-2 / 3), theory=True, label="$P^{-2/3}$")
    ax.set(xlabel="paths per block $P$", ylabel="time to half ($\\tau$)")
    ax.loglog()
    plot.log_ticks(plot.log_ticks(ax, "x", paths), "y")
    plot.legend_above(ax)


def _race(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    t, b1, b2 = (data[f"race_{name}"].values for name in ("time", "b1", "b2"))
    share = (b1**2 * b2)[..., 0] * float(data["d"][0] / data["s"][0])
    ax.plot(t, share[:, 0], color=COLOURS["shared"], label="shared", linewidth=1.8)
    ax.plot(t, share[:, 1], color=COLOURS["untrained"], label="dedicated", linewidth=1.8)
    end = np.full_like(t, numbers["kept"])
    plot.curve(ax, t, end, theory=True, linewidth=0.9, label="exact law")
    ax.set(xlim=(0, t[-1]), yscale="log", ylim=(0.5 * share.min(), 2.0))
    ax.set(xlabel="time $t/\\tau$", ylabel="share of mode 1")
    plot.legend_above(ax)


def _kept(ax: Axes, data: xr.Dataset, _: Numbers) -> None:
    starts, law, found = (data[n].values for n in ("known_start", "kept_theory", "kept"))
    for k, colour in enumerate(plot.mode_colours(3)):
        plot.curve(ax, data["start"], law[:, k], theory=True, colour=colour)
        ax.plot(starts, found[:, k], "o^s"[k], markersize=4, label=f"mode {k + 1}", color=colour)
    ax.set(xscale="log", yscale="log", xlabel="initial strength $B(0)$", ylabel="dedicated keep")
    plot.log_ticks(ax, "x", starts)
    plot.legend_above(ax)
