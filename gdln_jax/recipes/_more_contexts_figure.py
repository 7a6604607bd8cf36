"""The picture and the data set of the more-contexts recipe: H Fig. 5."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.more_contexts import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_RELU, _GATED = COLOURS["shared"], COLOURS["trained"]


def dataset(options: Options, runs: list[Runs]) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name; `_C`: number of contexts."""
    data = xr.Dataset(
        coords={
            "time": ("time", runs[0].t, {"units": "tau"}),
            "seed": np.arange(options.seeds),
            "contexts": [one.num_contexts for one in runs],
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    most = max(one.num_contexts for one in runs) + 1
    power = np.full((len(runs), options.seeds, most), np.nan)
    for k, one in enumerate(runs):
        c, theory = one.num_contexts, one.theory
        add(f"loss_relu_{c}", ("seed", "time"), one.loss("relu"), "loss, ReLU networks")
        add(f"loss_gated_{c}", ("seed", "time"), one.loss("gated"), "loss, gated networks")
        add(f"loss_theory_{c}", ("time",), theory.loss, "loss, closed form")
        modes, rest = f"mode_{c}", f"rest_{c}"
        add(f"common_{c}", ("seed", "time", modes), one.common, "common pathway, gated networks")
        add(f"whole_{c}", ("seed", "time", modes), one.whole,
            "whole output along the common modes, gated networks")  # fmt: skip
        add(f"common_theory_{c}", ("time", modes), theory.common, "common pathway, H Eq. 7")
        add(f"contextual_{c}", ("seed", "time", f"pathway_{c}", rest), one.rest,
            "contextual pathways, gated networks")  # fmt: skip
        add(f"contextual_theory_{c}", ("time", rest), theory.rest, "contextual pathways, E17")
        add(f"start_{c}", (rest,), theory.start, "B(0), referred back to t = 0")
        final = np.asarray(one.relu.measured["groups"])[:, -1, 2:]
        power[k, :, : final.shape[1]] = final
    meaning = "share of the output of ReLU units by the number of contexts they are mostly on in"
    add("power", ("contexts", "seed", "active"), power, meaning)
    data.attrs["title"] = "More contexts, H Fig. 5"
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    contexts = data["contexts"].values.tolist()
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 7.4)
        axes = figure.subplots(4, len(contexts), squeeze=False, height_ratios=[1.2, 1.0, 1.0, 0.8])
        tops = _tops(data, contexts)
        for k, c in enumerate(contexts):
            column = axes[:, k]
            _losses(column[0], data, c, facts, tops[0])
            _common(column[1], data, c, tops[1])
            _contextual(column[2], data, c, tops[2])
            _power(column[3], data, k, c)
            if k:
                for ax in column:
                    ax.set_ylabel("")
        axes[0, 0].legend(handles=_handles(data), loc="upper right")
        for row, name in zip(axes, "abcd", strict=True):
            plot.panel_label(row[0], name)
    return figure


def _tops(data: xr.Dataset, contexts: list[int]) -> list[float]:
    """One scale per row."""
    names = ("loss_theory", "common_theory", "contextual_theory")
    return [max(float(data[f"{name}_{c}"].max()) for c in contexts) for name in names]


def _handles(data: xr.Dataset) -> list[Line2D]:
    seeds = data.sizes["seed"]
    return [
        Line2D([], [], color=_RELU, linewidth=3.0, alpha=0.6, label=f"ReLU ({seeds} seeds)"),
        Line2D([], [], color=_GATED, label="gated"),
        Line2D([], [], color="black", linewidth=1.0, linestyle=(0, (3.2, 2.0)),
               label="closed form"),
    ]  # fmt: skip


def _losses(ax: Any, data: xr.Dataset, c: int, facts: dict[str, Any], top: float) -> None:
    t = data["time"].values
    gaps = facts["C"][c]["gaps"]
    plot.runs(ax, t, data[f"loss_relu_{c}"].values, colour=_RELU, thin=False)
    ax.lines[-1].set(linewidth=3.0, alpha=0.6)
    plot.runs(ax, t, data[f"loss_gated_{c}"].values, colour=_GATED, thin=False)
    plot.curve(ax, t, data[f"loss_theory_{c}"], theory=True, linewidth=1.0)
    ax.set(title=f"{c} contexts", ylabel="loss $L$ (sum)", xlim=(0, t[-1]), ylim=(0, 1.05 * top))
    ax.text(
        0.97, 0.5,
        f"mean gap, gated: {gaps['gated'][0]:.2%}\nReLU: {gaps['relu'][0]:.1%}",
        transform=ax.transAxes, ha="right", va="top",
    )  # fmt: skip


def _common(ax: Any, data: xr.Dataset, c: int, top: float) -> None:
    t = data["time"].values
    theory = data[f"common_theory_{c}"].values
    whole, own = (data[f"{name}_{c}"].mean("seed").values for name in ("whole", "common"))
    shown = _distinct(theory)
    for m, colour in zip(shown, plot.mode_colours(len(shown)), strict=True):
        ax.plot(t, whole[:, m], color=colour, linewidth=2.2)
        ax.plot(t, own[:, m], color=colour, linewidth=0.9)
        plot.curve(ax, t, theory[:, m], theory=True, linewidth=0.9)
    ax.set(ylabel="common modes $\\pi$", xlim=(0, t[-1]), ylim=(0, 1.5 * top))
    if ax.get_subplotspec().is_first_col():
        handles = [
            Line2D([], [], color="grey", linewidth=2.2, label="whole output"),
            Line2D([], [], color="grey", linewidth=0.9, label="common pathway alone"),
        ]
        ax.legend(handles=handles, loc="upper right")


def _contextual(ax: Any, data: xr.Dataset, c: int, top: float) -> None:
    t = data["time"].values
    theory = data[f"contextual_theory_{c}"].values
    found = data[f"contextual_{c}"].mean(("seed", f"pathway_{c}")).values
    shown = _distinct(theory)
    colours = plot.mode_colours(len(shown))
    for m, colour in zip(shown, colours, strict=True):
        # Tied modes have no frame of their own: their mean is what theory speaks of.
        tied = np.abs(theory[-1] - theory[-1, m]) < 1e-6 * theory.max()
        ax.plot(t, found[:, tied].mean(axis=1), color=colour, linewidth=2.2)
        plot.curve(ax, t, theory[:, m], theory=True, linewidth=0.9)
    ax.set(xlabel="time $t/\\tau$", ylabel="contextual pathways $B$", xlim=(0, t[-1]),
           ylim=(0, 1.08 * top))  # fmt: skip


def _distinct(theory: np.ndarray) -> list[int]:
    """One of each set of modes with equal curves."""
    _, first = np.unique(np.round(theory[len(theory) // 4 :], 6), axis=1, return_index=True)
    return sorted(int(k) for k in first)


def _power(ax: Any, data: xr.Dataset, k: int, c: int) -> None:
    values = data["power"].values[k][:, : c + 1]
    middle = np.median(values, axis=0)
    colours = [COLOURS["untrained"] if m == c - 1 else COLOURS["faint"] for m in range(c + 1)]
    ax.bar(range(c + 1), middle, color=colours, width=0.7, edgecolor="black", linewidth=0.5)
    for m in range(c + 1):
        ax.plot([m] * len(values), values[:, m], ".", color="black", markersize=2.5)
    ax.text(c - 1, middle.max() + 0.08, f"C−1: {middle[c - 1]:.0%}", ha="center", va="bottom")
    ax.set(xlabel="contexts in which a unit is on", ylabel="power, ReLU units", ylim=(-0.05, 1.05))
    ax.set_xticks(range(c + 1))
