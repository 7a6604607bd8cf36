"""Optimisers: the figure."""

from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers
from gdln_jax.recipes.optimisers import LAWS

BLUE, RED, FAINT = COLOURS["trained"], COLOURS["random"], "0.5"
_COLOURS = (BLUE, "#56B4E9", RED, COLOURS["untrained"], COLOURS["other"], COLOURS["shared"], FAINT)
_LABELS = ("gradient descent", "heavy ball", "Muon, polar", "Newton–Schulz", "G/|G|")
_LABELS += ("Adam, 8 and 3", "Adam, 5 and 5")
LOOK = dict(zip(LAWS, zip(_LABELS, _COLOURS, "ovsD^PX", strict=True), strict=True))


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Four panels: shared structure (a, b), and the edge of stability (c, d)."""
    with plot.style(), mpl.rc_context({"lines.markersize": 3.5, "lines.linewidth": 1.0}):
        figure = plot.figure(plot.DOUBLE, 5.6)
        axes = figure.subplots(2, 2, height_ratios=[1.3, 1.0]).flat
        panels = (aligned, random_starts, two_cycle, curvatures)
        for ax, name, panel in zip(axes, "abcd", panels, strict=True):
            panel(ax, data, numbers)
            plot.panel_label(ax, name)
            plot.legend_above(ax)
    return figure


def law(ax: Axes, height: float, text: str, at: float | int, up: float | int = 2) -> None:
    """A dashed line at a value of theory, and its name at `at`, above it or below."""
    ax.axhline(height, color=COLOURS["theory"], linestyle="--", zorder=0)
    place: dict[str, Any] = {"xytext": (0, up), "va": "bottom" if up > 0 else "top"}
    ax.annotate(text, (at, height), textcoords="offset points", **place)


def aligned(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Error of untrained routes as the trained ones are learned; exact."""
    for name in data["rule"].values:
        label, colour, marker = LOOK[name]
        x, y = (data[key].sel(rule=name).values for key in ("aligned_trained", "aligned_error"))
        least = x <= np.minimum.accumulate(x)
        ax.plot(x[least], y[least], color=colour, marker=marker, label=label, markevery=0.09)
    law(ax, numbers["law"][1], "law of the sign flow", 1e-4, -2)
    law(ax, numbers["law"][0], "law of the race", 1.0, -2)
    plot.corner_text(ax, "exact: reduction = network", "lower right")
    ax.set(xscale="log", yscale="log", xlim=(2.0, 1e-8), ylim=(1e-6, 3))
    ax.set(xlabel="loss of trained routes $L/L(0)$", ylabel="relative error, untrained routes")


def random_starts(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Medians and quartiles at equal trained loss against the scale; measured."""
    scales, (low, middle, high) = data["scale"].values, numbers["quartiles"]
    ax.set(xscale="log", yscale="log", xlabel="scale of the initial weights")
    for k, name in enumerate(data["optimiser"].values):
        label, colour, marker = LOOK[name]
        look: dict[str, Any] = {"color": colour, "marker": marker}
        look["label"] = label if "Adam" in label else None
        ax.errorbar(scales, middle[k], [middle[k] - low[k], high[k] - middle[k]], **look)
    ax.plot(scales, numbers["ends"], "o:", fillstyle="none", color=BLUE, label="descent, end")
    law(ax, 0.25, "1/4", scales[-1] * 2.2)
    law(ax, LAWS["adam"], "$(9/73)^2$", scales[-1] * 2.2, -2)
    plot.corner_text(ax, f"measured at $L/L(0)$ = {numbers['level']:g}", "lower left")
    ax.set(xlim=(scales[0] * 1.7, scales[-1] / 1.7), ylim=(numbers["ends"].min() / 100, 3))


def two_cycle(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Strength of a mode of the network below and above the step limit."""
    for name, rate, colour, marker in (("converges", 0.9, BLUE, "o"), ("cycles", 1.1, RED, "s")):
        strength, label = data["strength"].sel(run=name), f"$\\eta s$ = {rate}"
        ax.plot(strength, color=colour, marker=marker, label=label)
    ax.hlines(data["cycle"], 0, 30, COLOURS["theory"], "dashed")
    plot.corner_text(ax, f"dashed: exact cycle, within {numbers['cycle_gap']:.0e}", "lower right")
    ax.set(xlim=(0, 30), ylim=(0, None), xlabel="step", ylabel="strength in the network")


def curvatures(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Both curvatures along a run at step 0.3, limits of two steps, and where it leaves."""
    ax.plot(data["curvature"], "o", color=RED, markevery=2, label="full network")
    for part, colour, style in (("normal", RED, "--"), ("along", BLUE, "-.")):
        ax.plot(data["curvature_theory"].sel(part=part), style, c=colour, label=f"{part} (exact)")
    for rate in (0.15, 0.3):
        law(ax, 2 / rate, f"limit, step {rate:g}", 39)
    ax.axvline(numbers["left"], color=FAINT, linestyle=":", label="network leaves")
    ax.set(xlim=(0, 60), ylim=(0, 16), xlabel="step", ylabel="largest curvature")
