"""Attention: the figure."""

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers

BLUE, RED, GREEN = (COLOURS[name] for name in ("trained", "random", "shared"))
THEORY = {"color": COLOURS["theory"], "linestyle": "--", "linewidth": 0.8, "zorder": 0}


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Four panels: staircase, race, rules and merged heads, context length."""
    v = {str(name): data[name].values for name in (*data, "moment", "noises", "length")}
    with plot.style(), mpl.rc_context({"lines.markersize": 4.0, "lines.linewidth": 1.2}):
        figure = plot.figure(plot.DOUBLE, 4.9)
        panels = (staircase, race, others, contexts)
        for ax, name, panel in zip(figure.subplots(2, 2).flat, "abcd", panels, strict=True):
            panel(ax, v, numbers)
            plot.panel_label(ax, name)
            plot.legend_above(ax, 3)
    return figure


def staircase(ax: Axes, v: dict[str, np.ndarray], numbers: Numbers) -> None:
    """Losses of random starts at the smallest scale; plateaus and times predicted."""
    for n, (t, loss) in enumerate(zip(v["scaled_time"][-1], v["loss"][-1], strict=True)):
        ax.plot(t[1:], loss[1:], color=BLUE, linewidth=0.8, label=None if n else "random starts")
        steps, label = v["plateaus"][n], None if n else "limit of the time"
        half = (steps[1:] + steps[:-1]) / 2
        ax.plot(v["known"][n, :, 0], half, "o", color=RED, fillstyle="none", label=label)
        ax.hlines(steps, 0.1, t[-1], COLOURS["theory"], "dashed", linewidth=0.8, zorder=0)
    ax.set(xscale="log", xlabel="scale × time", ylabel="loss $L$", ylim=(0, None), xlim=(0.1, None))
    plot.corner_text(ax, f"scale {numbers['smallest']:g}", "lower left")


def race(ax: Axes, v: dict[str, np.ndarray], _: Numbers) -> None:
    """Two heads on one component."""
    for b, colour, start in zip(v["pair"], (BLUE, COLOURS["untrained"]), (0.1, 0.09), strict=True):
        ax.plot(v["moment"], b, color=colour, label=f"b(0) = {start:.2f}")
        ax.axhline(b[-1], **THEORY)
    ax.set(xlim=(0, 10), ylim=(0, None), xlabel="time t/τ", ylabel="strength b of a head")


def others(ax: Axes, v: dict[str, np.ndarray], _: Numbers) -> None:
    """Losses against time over that of the first drop: flow, merged heads, Muon."""
    muon, half = v["muon_loss"][0], v["plateaus"][0, :2].mean()
    for t, loss, colour, style, label in (
        (v["scaled_time"][-1, 0], v["loss"][-1, 0], BLUE, "-", "flow"),
        (np.arange(len(muon)), muon, GREEN, "-", "Muon"),
        (v["moment"], v["merged_loss"][1], RED, "-.", "flow, merged"),
    ):
        first = t[int(np.argmax(loss < half))]
        ax.plot(t[1:] / first, loss[1:], style, color=colour, label=label)
    ax.axhline(v["plateaus"][0, -1], **THEORY)
    ax.set(xscale="log", xlim=(0.2, 80), ylim=(0, None), ylabel="loss $L$")
    ax.set_xlabel("time / time of the first drop")


def contexts(ax: Axes, v: dict[str, np.ndarray], _: Numbers) -> None:
    """Loss at the end against the length of contexts, for several noises."""
    for k, (noise, colour) in enumerate(zip(v["noises"], (BLUE, GREEN, RED), strict=True)):
        ax.plot(v["length"], v["final_theory"][k], **THEORY)
        ax.plot(v["length"], v["final_loss"][k], "os^"[k], color=colour, label=f"noise {noise:g}")
    ax.set(xscale="log", ylim=(0, None), xlabel="examples in a context, N", ylabel="final loss")
    plot.log_ticks(ax, "x", v["length"])
