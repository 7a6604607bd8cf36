"""Semantic development: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import measures, plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers
from gdln_jax.recipes.semantic.simulate import NOISY, by_order, passed

_ORDER = ("trained", "untrained", "shared", "random", "other")
_CLOSE = {"handletextpad": 0.4, "columnspacing": 0.8, "handlelength": 1.4}


def draw(data: xr.Dataset, _: Numbers) -> Figure:
    """Four panels: modes, distances of items, illusory correlations, category coherence."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.8)
        axes = figure.subplots(2, 2).ravel()
        panels = (differentiation, distances, illusions, coherence)
        for ax, panel, name in zip(axes, panels, "abcd", strict=True):
            panel(ax, data)
            plot.panel_label(ax, name)
    return figure


def differentiation(ax: Axes, data: xr.Dataset) -> None:
    """Strengths of the modes over time; a dot where a mode is half learned."""
    t, a, n = data["time"].values, data["a"].values, data.sizes["item"]
    for k in range(min(a.shape[1], len(_ORDER))):
        colour, half = COLOURS[_ORDER[k]], float(data["half_time"][k])
        end = n * float(data["s"][k])
        ax.plot(t, a[:, k], color=colour, label=f"mode {k + 1}")
        ax.plot(half, end / 2, "o", color=colour, markersize=4)
    ax.set(xlabel="time (tau)", ylabel="strength learned", xlim=(0, t[-1]), ylim=(0, None))
    plot.legend_above(ax, 4, **_CLOSE)


def distances(ax: Axes, data: xr.Dataset) -> None:
    """Squared hidden distances from the first item."""
    t, names = data["time"].values, data["item"].values.tolist()
    for k, name in enumerate(names[1 : len(_ORDER)]):
        here = {"item": names[0], "other": name}
        label = f"{names[0]}, {name}"
        look = {"color": COLOURS[_ORDER[k]], "linewidth": 2.4, "alpha": 0.5, "label": label}
        ax.plot(t, data["apart"].sel(here), **look)
        plot.curve(ax, t, data["apart_closed"].sel(here), theory=True, linewidth=0.9)
    ax.set(xlabel="time (tau)", ylabel="hidden distance$^2$", xlim=(0, t[-1]), ylim=(0, None))
    plot.legend_above(ax, 2, **_CLOSE)


def illusions(ax: Axes, data: xr.Dataset) -> None:
    """Predictions of the feature with the largest illusion, for all items."""
    t, closed = data["time"].values, data["closed"].values
    size = np.abs(data["data"].values).max()
    swing = np.ptp(closed, axis=0) - np.abs(closed[-1] - closed[0])
    swing = swing * (passed(closed, size) | passed(by_order(data), size))
    feature = int(swing.max(axis=1).round(6).argmax())
    for k, name in enumerate(data["item"].values.tolist()[: len(_ORDER)]):
        look = {"color": COLOURS[_ORDER[k]], "linewidth": 2.4, "alpha": 0.5, "label": name}
        ax.plot(t, data["predicted"][:, feature, k], **look)
        plot.curve(ax, t, closed[:, feature, k], theory=True, linewidth=0.9)
    what = str(data["feature"].values[feature])
    ax.set(xlabel="time (tau)", ylabel=f"prediction of “{what}”", xlim=(0, t[-1]))
    plot.legend_above(ax, 4, **_CLOSE)


def coherence(ax: Axes, data: xr.Dataset) -> None:
    """Overlap of the first mode with a category in noise, against its strength."""
    grid = np.linspace(0.5, 2.6, 200)
    theory = measures.coherence(grid, NOISY[1], NOISY[0])
    mean, error = data["overlap"].mean("seed"), data["overlap"].std("seed", ddof=1)
    error = error / np.sqrt(data.sizes["seed"])
    curves = (theory.item_overlap, theory.feature_overlap)
    for side, curve, name in zip(("item", "feature"), curves, _ORDER, strict=False):
        here = {"side": side}
        ax.errorbar(
            data["strength"].values,
            mean.sel(here),
            error.sel(here),
            fmt="o",
            markersize=3,
            color=COLOURS[name],
            label=f"{side}s",
        )
        plot.curve(ax, grid, curve, theory=True, linewidth=0.9)
    ax.axvline(float(theory.threshold[0]), color=COLOURS["faint"], linewidth=0.8, zorder=0)
    ax.set(xlabel="strength of the category", ylabel="squared overlap", ylim=(-0.03, 1))
    plot.legend_above(ax, 2, **_CLOSE)
