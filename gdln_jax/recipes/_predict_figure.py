"""The picture and the data set of the recipe `predict`."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes import _predict_tasks as problems
from gdln_jax.recipes._predict_runs import CROSSING_STDS, Options, Runs

# Shown as a curve over time, the first that was run: one with several drops.
_SHOWN = ("contexts 3", "contexts 5", "Gauss 20x3->1 seed 6", "XoR")


def dataset(options: Options, runs: Runs) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name; NaN where no stage is."""
    names = list(runs.drops)
    most = max(len(drops.prediction.times) for drops in runs.drops.values())
    shown = next((name for name in _SHOWN if name in runs.drops), names[0])
    data = xr.Dataset(
        coords={
            "task": names,
            "stage": 1 + np.arange(most),
            "seed": np.arange(options.seeds),
            "std": list(options.stds),
            "delta": list(options.deltas),
            "kind": ["predicted", "trained"],
            "crossing_std": CROSSING_STDS,
            "time": ("time", runs.drops[shown].ts, {"units": "tau"}),
            "imitated": list(runs.gaps),
            "route": ["clustered", "predicted"],
        },
        attrs={"title": "Gates of ReLU networks from data alone", "shown": shown},
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    def padded(values: Any) -> np.ndarray:
        values = np.asarray(values, float)
        width = [(0, 0)] * (values.ndim - 1) + [(0, most - values.shape[-1])]
        return np.pad(values, width, constant_values=np.nan)

    every = list(runs.drops.values())
    unit = "T = t/ln(1/std)"
    add("T", ("task", "stage"), [padded(d.prediction.times) for d in every], f"predicted {unit}")
    add("T_trained", ("task", "seed", "stage"), [padded(d.slopes) for d in every],
        f"trained {unit}, corrected for the step")  # fmt: skip
    add("plateau", ("task", "stage"), [padded(d.prediction.plateaus) for d in every],
        "predicted share of L(0)")  # fmt: skip
    add("plateau_trained", ("task", "seed", "stage"), [padded(d.plateaus) for d in every],
        "trained share of L(0), smaller std")  # fmt: skip
    add("separated", ("task", "stage"), [padded(d.prediction.separated) for d in every],
        "1: no rivals of other size")  # fmt: skip
    add("leaves", ("task", "stage"), [padded(d.prediction.leaves) for d in every],
        "1: the plateau is left by itself")  # fmt: skip
    add("checked", ("task",), [problems.CASES[name].checked for name in names], "drops checked")
    add("loss", ("std", "seed", "time"), runs.drops[shown].losses, f"loss / L(0), {shown}")
    add("share", ("delta", "seed", "kind"), runs.shares, "share of units on for one example")
    add("crossing", ("crossing_std",), runs.crossing, "margin at which both kinds are equal")
    gaps = np.array([np.stack(pair) for pair in runs.gaps.values()])
    add("gap", ("imitated", "route", "seed"), gaps.reshape(-1, 2, options.seeds),
        "mean loss gap / L(0)")  # fmt: skip
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.6)
        panels = figure.subplots(2, 2)
        _losses(panels[0, 0], data)
        _times(panels[0, 1], data, facts)
        _shares(panels[1, 0], data, facts)
        _crossing(panels[1, 1], data, facts)
        for ax, name in zip(panels.ravel(), "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _losses(ax: Any, data: xr.Dataset) -> None:
    shown = data.attrs["shown"]
    row = data.sel(task=shown)
    count = int(np.sum(np.isfinite(row["T_trained"].values[0])))
    t, plateaus = row["T"].values[:count], row["plateau"].values[:count]
    for std, colour in zip(data["std"].values, ("shared", "trained"), strict=True):
        clock = data["time"].values / np.log(1 / std)
        plot.runs(ax, clock, data["loss"].sel(std=std).values, colour=COLOURS[colour],
                  label=f"trained, std {std:g}")  # fmt: skip
    end = 1.12 * t[-1]
    plot.curve(ax, np.repeat([0, *t, end], 2)[1:-1], np.repeat([1, *plateaus], 2), theory=True,
               label="predicted")  # fmt: skip
    ax.set(xlabel="$t/\\ln(1/\\mathrm{std})$", ylabel="loss / $L(0)$", xlim=(0, end),
           ylim=(0, 1.05), title=shown)  # fmt: skip
    ax.legend(loc="lower left")


def _times(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    trained = data["T_trained"].median("seed").values
    predicted = data["T"].values
    order = np.arange(predicted.shape[1])
    good = order < data["checked"].values[:, None]
    seen = np.isfinite(trained)
    limits = np.array([0.8 * np.nanmin(predicted[seen]), 1.25 * np.nanmax(predicted[seen])])
    plot.curve(ax, limits, limits, theory=True, linewidth=0.9)
    for which, filled, label in ((good, True, "checked"), (~good, False, "reported only")):
        here = which & seen
        ax.plot(predicted[here], trained[here], "o", color=COLOURS["trained"], markersize=4.5,
                markerfacecolor=COLOURS["trained"] if filled else "white", label=label)  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="predicted $T$ of a drop", ylabel="trained $T$",
           xlim=limits, ylim=limits)  # fmt: skip
    ticks = [x for x in (1, 2, 3, 5, 7) if limits[0] < x < limits[1]]
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(ticks, [str(x) for x in ticks])
        axis.set_minor_locator(NullLocator())
    ax.text(0.97, 0.05, f"first drops checked:\nwithin {facts['worst']:.2%}", ha="right",
            va="bottom", transform=ax.transAxes)  # fmt: skip
    ax.legend(loc="upper left")


def _shares(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    predicted, trained = (data["share"].sel(kind=kind).values for kind in ("predicted", "trained"))
    plot.curve(ax, [0, 1], [0, 1], theory=True, linewidth=0.9)
    colours = plot.mode_colours(len(predicted))
    for k, colour in enumerate(colours[: len(predicted)]):
        ax.plot(predicted[k], trained[k], "o", markersize=4, fillstyle="none", color=colour,
                label=f"$\\Delta$ = {data['delta'].values[k]:g}")  # fmt: skip
    ax.set(xlabel="predicted share of XoR gates", ylabel="trained", xlim=(0, 1), ylim=(0, 1))
    ax.text(0.97, 0.05, f"largest difference {facts['shares']:.3f}", ha="right", va="bottom",
            transform=ax.transAxes)  # fmt: skip
    if len(predicted):
        ax.legend(loc="upper left")


def _crossing(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    stds = data["crossing_std"].values
    ax.plot(1 / np.log(1 / stds), data["crossing"], "o-", color=COLOURS["trained"], markersize=4,
            label="equal shares, predicted")  # fmt: skip
    plot.curve(ax, [0, 0.1], [facts["root"]] * 2, theory=True, label="equal rates, $\\sqrt{2/3}$")
    places = (((-6, 6), "right"), ((6, -16), "left"))
    for k, (offset, side) in zip((0, -1), places, strict=True):
        value = float(data["crossing"][k])
        ax.annotate(
            f"std {stds[k]:g}: {value:.4f}", (1 / np.log(1 / stds[k]), value), offset,
            textcoords="offset points", ha=side,
        )  # fmt: skip
    ax.set(xlabel="$1/\\ln(1/\\mathrm{std})$", ylabel="margin $\\Delta$ of the crossing",
           xlim=(0, 0.095), ylim=(0.80, 0.91))  # fmt: skip
    ax.legend(loc="upper left")
