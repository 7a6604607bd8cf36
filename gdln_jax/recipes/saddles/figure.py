"""Saddles: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers
from gdln_jax.recipes.saddles import CASES


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Three panels: one staircase, two modalities, all systems."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.7)
        axes = figure.subplots(1, 3, width_ratios=[1, 1, 1.25])
        for ax, name, panel in zip(axes, "abc", (steps, fusion, systems), strict=True):
            panel(ax, data, numbers)
            plot.panel_label(ax, name)
    return figure


def steps(ax: Axes, data: xr.Dataset, _: Numbers) -> None:
    """The loss of the flow, and the plateaus and times that are predicted."""
    t, levels = data["time"].values, data["levels"].values
    plot.loss_curves(ax, t, data["loss"].values, label="flow")
    x = [0.0, *data["steps"].values, t[-1]]
    plot.curve(ax, x, [*levels, levels[-1]], theory=True, label="saddles", drawstyle="steps-post")
    plot.legend_above(ax)


def fusion(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Ratio of times against the covariance of two modalities; both formulas, and the flow."""
    s_a, s_b = data["s"].values[0]
    grid = np.linspace(0, 1, 201)
    rest = s_b - s_a * grid
    rest[np.abs(rest) < 0.02] = np.nan
    plain, flip = (1 + (s_a + sign * s_b) / np.abs(rest) for sign in (-1, 1))
    corrected = np.where(rest > 0, plain, flip)
    plot.curve(ax, grid, corrected, theory=True, label="corrected")
    wrong = np.where(rest > 0, np.nan, plain)
    ax.plot(grid, wrong, ":", color="0.5", label="as printed")
    chosen = slice(0, len(data["scan"]) - 2)
    x, y = data["covariance"].values[chosen], numbers["slopes"][chosen]
    ax.plot(x, y, "o", color=COLOURS["trained"], label="flow")
    ax.set(xlabel="covariance $d_{AB}$", ylabel="$t_B/t_A$", yscale="log", ylim=(1, 100))
    plot.log_ticks(ax, "y", [1, 2, 5, 10, 20, 50, 100])
    plot.legend_above(ax, columns=1, handlelength=2.0)


def systems(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Duration over its prediction at three scales, and the limit, for each stage."""
    eps, gap, power = (data[name].values for name in ("eps", "gap", "power"))
    unit = np.where(power[:, None] > 0, eps ** -power[:, None], -np.log(eps))
    ratio = gap / unit / data["coefficient"].values[:, None]
    y = np.arange(len(ratio))[::-1]
    for k, (size, shade) in enumerate(((3.0, "0.75"), (3.6, "0.55"), (4.2, "0.35"))):
        label = ("largest scale", None, "smallest scale")[k]
        ax.plot(ratio[:, k], y, "o", markersize=size, color=shade, label=label)
    limit = numbers["found"] / data["coefficient"].values
    ax.plot(limit, y, "|", markersize=9, color=COLOURS["trained"], label="extrapolated")
    ax.axvline(1, color=COLOURS["theory"], linestyle="--", zorder=0)
    ax.set_yticks(y, [CASES[name] for name in data["case"].values])
    ax.set(xlabel="duration of a stage / prediction", ylim=(-0.6, len(y) - 0.4))
    plot.legend_above(ax, columns=1)
