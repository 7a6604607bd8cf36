"""The picture and the data set of the gates recipe: H Fig. 8-9."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes import _gates_learned_figure as learned

if TYPE_CHECKING:
    from gdln_jax.recipes.gates import Runs
else:  # that room imports this one
    Runs = Any

_SHOWN = (2, 3, 4)


def dataset(runs: Runs, facts: dict[str, Any]) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    choice, gap = runs.choice, runs.gap
    data = xr.Dataset(
        coords={
            "time": ("time", runs.t, {"units": "tau"}),
            "k": choice.ks,
            "example": np.arange(len(runs.task.meta["item"])),
            "context": ("example", runs.task.meta["context"] + 1),
            "setting": list(facts["found"]),
        }
    )
    data["found"] = ("setting", list(facts["found"].values()), {"long_name": "runs with all four"})
    for k in _SHOWN:
        modules = choice.modules[list(choice.ks).index(k)]
        data[f"centroids_{k}"] = ((f"module_{k}", "example"), modules.centroids)
        data[f"shares_{k}"] = (f"module_{k}", modules.shares)
    data["gap"] = (("k", "elbow_seed"), choice.gap, {"long_name": "output gap / mean square"})
    data["stability"] = ("k", choice.stability)
    data["loss_gap"] = (("elbow_seed", "time"), gap.loss, {"long_name": "|dL| / L(0)"})
    data["output_gap"] = (("elbow_seed", "time"), gap.output)
    data["loss_spread"] = ("time", gap.loss_spread)
    data["output_spread"] = ("time", gap.output_spread)
    data.attrs |= {"title": "Finding gates, H Fig. 8-9", "spread": choice.spread}
    return data


def draw(data: xr.Dataset, facts: dict[str, Any], part: tuple[Any, Any] | None = None) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them, `part` the learned gates."""
    with plot.style():
        heights = [2.1, 2.5, *([] if part is None else [4.2])]
        figure = plot.figure(plot.DOUBLE, sum(heights))
        rows = figure.add_gridspec(len(heights), 1, height_ratios=heights)
        top, bottom = (figure.add_subfigure(rows[k]) for k in range(2))
        if part is not None:
            learned.draw(figure.add_subfigure(rows[2]), *part, "efghij")
        centroids = top.subplots(1, len(_SHOWN))
        elbow, gap, runs = bottom.subplots(1, 3, width_ratios=[1.1, 1.1, 0.8])
        _centroids(centroids, data)
        _elbow(elbow, data, facts)
        _gap(gap, data)
        _runs(runs, data, facts)
        for ax, name in zip((centroids[0], elbow, gap, runs), "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _centroids(axes: Any, data: xr.Dataset) -> None:
    image = None
    items = data.sizes["example"] // int(data["context"].max())
    for ax, k in zip(axes, _SHOWN, strict=True):
        image = ax.imshow(data[f"centroids_{k}"], cmap="Greens", vmin=0, vmax=1, aspect="auto")
        ax.set_title(f"k = {k}")
        ax.set_yticks(range(k), [f"{share:.0%}" for share in data[f"shares_{k}"].values])
        ax.set_xticks([items * (c + 0.5) - 0.5 for c in range(3)], ["1", "2", "3"])
        for c in (1, 2):
            ax.axvline(items * c - 0.5, color="white", linewidth=1)
        ax.set_xlabel("context")
    axes[0].set_ylabel("module (power)")
    bar = axes[-1].figure.colorbar(image, ax=list(axes), pad=0.02, aspect=15)
    bar.set_label("share of units on")


def _elbow(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    k, gap = data["k"].values, data["gap"].values
    ax.plot(k, gap, "o", color=COLOURS["trained"], markersize=2, alpha=0.5)
    ax.plot(k, gap.mean(axis=1), color=COLOURS["trained"], label="gated networks")
    ax.axhline(data.attrs["spread"], color=COLOURS["shared"], linestyle=":", label="two ReLU seeds")
    if facts["k"] is not None:
        ax.plot(facts["k"], gap.mean(axis=1)[list(k).index(facts["k"])], "o", markersize=9,
                markerfacecolor="none", color=COLOURS["random"],
                label=f"chosen: {facts['k']}")  # fmt: skip
    ax.set(xlabel="number of modules $k$", ylabel="output gap / mean square", yscale="log",
           xticks=k)  # fmt: skip
    ax.set_ylim(top=6 * gap.max())
    ax.legend(loc="upper right")


def _gap(ax: Any, data: xr.Dataset) -> None:
    t = data["time"].values
    plot.runs(ax, t, data["loss_gap"].values, colour=COLOURS["trained"], label="gated, $k$ = 4")
    ax.plot(t, data["loss_spread"], color=COLOURS["shared"], linestyle=":", label="two ReLU seeds")
    ax.set(xlabel="time $t/\\tau$", ylabel=r"loss gap $|\Delta L|/L(0)$", xlim=(0, t[-1]))
    ax.set_ylim(0, 1.3 * float(data["loss_gap"].max()))
    ax.legend(loc="upper right")


def _runs(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    found, n = data["found"].values, facts["seeds"]
    colours = (COLOURS["untrained"], COLOURS["faint"], COLOURS["trained"])
    ax.bar(range(len(found)), found, color=colours)
    for i, value in enumerate(found):
        ax.text(i, value, f"{value}", ha="center", va="bottom")
    ax.set_xticks(range(len(found)), ["plain\n(H)", "no dead\nunits", "output\npower"])
    ax.set(ylabel=f"runs of {n} with all four", ylim=(0, 1.15 * n))
