"""Tasks in turn: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers
from gdln_jax.recipes.sequences.simulate import ENDS

_FIRST, _SECOND, _OTHER = (COLOURS[name] for name in ("trained", "untrained", "shared"))


def draw(data: xr.Dataset, _: Numbers) -> Figure:
    """Four panels: A, B, A; forgetting; critical period; effort."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.6)
        axes, panels = figure.subplots(2, 2).ravel(), (losses, held, period, effort)
        for ax, panel, name in zip(axes, panels, "abcd", strict=True):
            panel(ax, data)
            plot.panel_label(ax, name)
    return figure


def losses(ax: Axes, data: xr.Dataset) -> None:
    """The loss of each task while A, B and A are learned."""
    t = data["time"].values
    for name, colour in (("A", _FIRST), ("B", _SECOND)):
        ax.plot(t, data["loss_task"].sel(task=name), color=colour, label=f"loss of {name}")
    for end in ENDS[:2]:
        ax.axvline(end, color=COLOURS["faint"], linewidth=0.8, zorder=0)
    for middle, name in zip((2.5, 7.0, 11.5), "ABA", strict=True):
        ax.text(middle, 0.79, f"learns {name}", ha="center", va="top", color="0.35")
    ax.set(xlabel="time (tau)", ylabel="loss", xlim=(0, t[-1]), ylim=(0, 0.82))
    plot.legend_above(ax, 2)


def held(ax: Axes, data: xr.Dataset) -> None:
    """What the weights hold of A after B, against the overlap of both."""
    x = data["overlap"].values
    ax.plot(x, data["fast_gates"], "o-", color=_OTHER, label="fast gates", markersize=3)
    ax.plot(x, data["slow_gates"], "s:", color=_OTHER, label="slow gates", markersize=3)
    plot.curve(ax, x, data["ungated"], theory=True, label="no gates")
    ax.set(xlabel="overlap of A and B", ylabel="share of A held after B", ylim=(-0.03, 1.06))
    plot.legend_above(ax, 3)


def period(ax: Axes, data: xr.Dataset) -> None:
    """The final share of a pathway whose gate was closed for a while."""
    x = data["closes"].values
    for k, shade in enumerate(np.linspace(0.4, 1.0, data.sizes["window"])):
        here = data.isel(window=k)
        look = {"color": _FIRST, "alpha": shade, "markersize": 3}
        ax.plot(x, here["share"], "o", label=f"{float(here['window']):g}", **look)
        plot.curve(ax, x, here["share_closed"], theory=True, linewidth=0.9)
    ax.set(xlabel="gate closes at (tau)", ylabel="final share of the pathway", ylim=(0, 0.42))
    plot.legend_above(ax, 4, title="closed for (tau)")


def effort(ax: Axes, data: xr.Dataset) -> None:
    """Effort over time, by descent, and by the law."""
    x = data["step"].values
    for name, colour in zip(data["network"].values.tolist(), (_FIRST, _SECOND), strict=True):
        here = data.sel(network=name)
        ax.plot(x, here["effort"], color=colour, label=name, linewidth=2.4, alpha=0.5)
        plot.curve(ax, x, here["effort_law"], theory=True, linewidth=0.9)
    ax.set(xlabel="time (tau)", ylabel="effort $g$", xlim=(0, 4), ylim=(0, None))
    plot.legend_above(ax, 2)
