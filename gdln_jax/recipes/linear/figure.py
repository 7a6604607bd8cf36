"""H Fig. 7: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers


def draw(data: xr.Dataset, _: Numbers) -> Figure:
    """The decomposition of the data; modes, losses, and two variants."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.5)
        (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.0, 1.25])
        axes = [_factors(top, data), *bottom.subplots(1, 3)]
        for ax, panel in zip(axes[1:], (_modes, _losses, _variants), strict=True):
            panel(ax, data)
        for ax, name in zip(axes, "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _factors(part: SubFigure, data: xr.Dataset) -> Axes:
    axes = part.subplots(1, 4)
    names, numbers = list(data["feature"].values), ["1", "2", "3", "4"]
    panels = (
        (data["y"].values, "features $Y$", "item", "", names),
        (data["u"].values, "$U$", "mode", "", names),
        (np.diag(data["s"].values), "$S$ (of $\\Sigma^{yx}$)", "mode", "mode", numbers),
        (data["v"].values.T, "$V^T$", "item", "mode", numbers),
    )
    for ax, (values, title, xlabel, ylabel, rows) in zip(axes, panels, strict=True):
        ax.imshow(values, cmap="PuOr_r", vmin=-1, vmax=1, aspect="auto")
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
        ax.set_xticks(range(4), numbers)
        ax.set_yticks(range(len(values)), rows)
        ax.tick_params(length=0)
        ax.spines[:].set(visible=True, linewidth=0.6)
    part.colorbar(axes[0].images[0], ax=axes, pad=0.01, aspect=22, label="entry")
    for k, value in enumerate(data["s"].values):
        look = {"fontsize": 6, "color": "white" if value > 0.55 else "black"}
        axes[2].text(k, k, f"{value:.2f}", ha="center", va="center", **look)
    return axes[0]


def _modes(ax: Axes, data: xr.Dataset) -> None:
    t, modes = data["flow_time"].values, data["mode_aligned"].values[:, :3]  # 3 and 4 coincide
    plot.mode_curves(ax, t, modes, colours=plot.mode_colours(3), linewidth=2.4)
    for values in data["mode_aligned_theory"].values.T[:3]:
        plot.curve(ax, t, values, theory=True, linewidth=1.0)
    for end, name in zip(modes[-1], ("1", "2", "3, 4"), strict=True):
        ax.text(t[-1], end - 0.08, f"mode {name}", ha="right", va="top")
    ax.set(ylim=(0, None), ylabel="mode strength $a$")


def _losses(ax: Axes, data: xr.Dataset) -> None:
    t, theory = data["time"].values, np.median(data["loss_random_theory"].values, axis=0)
    losses = data["loss_random"].values
    plot.loss_curves(ax, t, losses, colour=COLOURS["random"], label="random start")
    plot.curve(ax, t, theory, theory=True, label="closed form")
    plot.legend_above(ax, 1)


def _variants(ax: Axes, data: xr.Dataset) -> None:
    t, final = data["flow_time"].values, float(data["s"][0] / data["d"][0])
    plot.curve(ax, t, data["loss_uneven"], colour=COLOURS["shared"], label="uneven", linewidth=2.4)
    plot.curve(ax, t, data["loss_uneven_coupled"], theory=True, label="reduced")
    share, theory = (data[f"mode_unbalanced{k}"].values[:, 0] / final for k in ("", "_theory"))
    plot.curve(ax, t, share, colour=COLOURS["other"], label="mode 1", linewidth=2.4)
    plot.curve(ax, t, theory, theory=True, linestyle=":", label="closed form")
    ax.set(xlabel="time $t/\\tau$", ylabel="loss $L$, or share", xlim=(0, t[-1]), ylim=(0, None))
    plot.legend_above(ax)
