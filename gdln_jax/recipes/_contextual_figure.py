"""The picture and the data set of the contextual recipe: N A.2."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.contextual import Kind, Options
else:  # that room imports this one
    Kind = Options = Any

_COLOURS = {"linear": COLOURS["untrained"], "gated": COLOURS["trained"]}


def dataset(options: Options, runs: dict[str, Kind]) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    first = runs["linear"]
    data = xr.Dataset(
        coords={
            "time": ("time", first.ts, {"units": "tau"}),
            "flow_time": ("flow_time", np.asarray(first.flow.ts), {"units": "tau"}),
            "seed": np.arange(options.seeds),
            "feature": ["x1", "x2"],
            "context": [1, 2],
            "one": [0],
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    for kind, one in runs.items():
        pathway = "one" if kind == "linear" else "context"
        add(f"{kind}_loss_flow", ("flow_time",), one.flow.losses, "loss, aligned start, flow")
        add(f"{kind}_mode_theory", ("flow_time",), one.theory, "closed form of the mode a(t)")
        s, d = one.meta["s"], one.meta["d"]
        pathways = len(one.meta["limit"])
        loss = one.meta["final_loss"] + pathways * (s - d * one.theory) ** 2 / (2 * d)
        add(f"{kind}_loss_theory", ("flow_time",), loss, "loss by the closed form")
        for name in ("population", "samples"):
            add(f"{kind}_loss_{name}", ("seed", "time"), one.losses[name], f"loss, {name}")
            add(f"{kind}_weights_{name}", ("seed", "time", pathway, "feature"), one.maps[name],
                f"total weights, {name}")  # fmt: skip
        add(f"{kind}_best", ("seed", pathway, "feature"), one.best, "least squares on the sample")
    data.attrs["title"] = "Contextual classification, N A.2"
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.5)
        a, b, c = figure.subplots(1, 3, width_ratios=[1.25, 1.25, 1.0])
        _flows(a, data)
        _losses(b, data, facts)
        _weights(c, data)
        for ax, name in zip((a, b, c), "abc", strict=True):
            plot.panel_label(ax, name)
    return figure


def _flows(ax: Any, data: xr.Dataset) -> None:
    t = data["flow_time"].values
    for kind, colour in _COLOURS.items():
        plot.curve(ax, t, data[f"{kind}_loss_flow"], colour=colour, linewidth=2.6, label=kind)
        plot.curve(ax, t, data[f"{kind}_loss_theory"], theory=True, linewidth=1.0,
                   label="closed form" if kind == "gated" else None)  # fmt: skip
    ax.set(xlim=(0, t[-1]), ylim=(-0.004, 0.24), xlabel="time $t/\\tau$", ylabel="loss $L$",
           title="aligned start, flow")  # fmt: skip
    ax.set_yticks((0, 1 / 12, 1 / 6), ("0", "1/12", "1/6"))
    ax.legend(loc="upper right", ncols=2, columnspacing=0.9)


def _losses(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["time"].values
    for kind, colour in _COLOURS.items():
        ax.plot(t, data[f"{kind}_loss_samples"].values.T, color=colour, linewidth=0.5, alpha=0.6)
        median = np.median(data[f"{kind}_loss_population"].values, axis=0)
        ax.plot(t, median, color=colour,
                label=f"{kind}, population")  # fmt: skip
    mean, sd = facts["sample_loss"]
    ax.text(0.97, 0.65, f"{facts['loss']['linear']:.4f}, population\n{mean:.4f} ± {sd:.4f}\n"
            "samples (thin)", transform=ax.transAxes, ha="right", va="top")  # fmt: skip
    ax.text(0.97, 0.06, f"{facts['loss']['gated']:.0e}", transform=ax.transAxes, ha="right",
            va="bottom")  # fmt: skip
    ax.set(xlim=(0, t[-1]), ylim=(-0.004, 0.24), xlabel="time $t/\\tau$", ylabel="loss $L$",
           title="random start, descent")  # fmt: skip
    ax.set_yticks((0, 1 / 12, 1 / 6), ("0", "1/12", "1/6"))
    ax.legend(loc="upper right")


def _weights(ax: Any, data: xr.Dataset) -> None:
    """Total weights from the origin to their limits, every seed on its own sample."""
    for kind, colour in _COLOURS.items():
        w = data[f"{kind}_weights_samples"].values  # (seed, time, pathway, feature)
        for p in range(w.shape[2]):
            ax.plot(w[:, :, p, 0].T, w[:, :, p, 1].T, color=colour, linewidth=0.6, alpha=0.7)
            ax.scatter(*w[:, -1, p].T, s=12, color=colour, marker="o" if kind == "gated" else "s",
                       zorder=4, edgecolor="white", linewidth=0.4)  # fmt: skip
    for xy, text, offset, align in (
        ((0.5, 0.5), "[½ ½]\nlinear", (7, 4), "left"),
        ((1.0, 0.0), "[1 0]\ncontext 1", (0, 7), "center"),
        ((0.0, 1.0), "[0 1]\ncontext 2", (8, 0), "left"),
    ):
        ax.annotate(text, xy, offset, textcoords="offset points", ha=align, fontsize=7)
    ax.set(xlim=(-0.15, 1.3), ylim=(-0.15, 1.3), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1),
           xlabel="weight on $x_1$", ylabel="weight on $x_2$", title="total weights")  # fmt: skip
    ax.set_aspect("equal")
