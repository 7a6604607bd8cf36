"""The picture and the data set of the depth recipe: H Fig. 6."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.depth import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_COLOURS = {"relu": COLOURS["shared"], "late": COLOURS["trained"], "equal": COLOURS["untrained"]}


def dataset(options: Options, runs: Runs, facts: dict[str, Any]) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    groups = ["all examples", "strictly consistent", *(f"majority in {k}" for k in range(4))]
    data = xr.Dataset(
        coords={
            "time": ("time", runs.t, {"units": "tau"}),
            "step": ("time", runs.step),
            "seed": np.arange(options.seeds),
            "layer": [1, 2],
            "group": groups,
            "moment": ["first plateau", "end"],
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    for kind in ("relu", "equal", "late"):
        add(f"loss_{kind}", ("seed", "time"), runs.loss(kind), f"loss, {kind}")
    measured = runs.relu.measured
    meaning = "relative change of the output when the layer's ReLU is replaced by the identity"
    add("identity", ("seed", "time", "layer"), measured["identity"], meaning)
    add("power", ("seed", "time", "group"), measured["groups"], "share of second-layer units")
    shared = "power of second-layer units that are on in both contexts"
    add("shared", ("seed", "time", "context", "other"), measured["shared"], shared)
    add("opens", (), runs.opens, "time at which the contextual pathways open")
    add("target", ("example", "feature"), runs.meta["y"], "target")
    chosen = facts["chosen"]
    outputs = {
        "relu": np.asarray(measured["output"])[chosen["relu"], [facts["plateau_record"], -1]],
        "late": np.asarray(runs.gated["late"].measured)[chosen["late"], [facts["late_record"], -1]],
    }
    for kind, values in outputs.items():
        add(f"output_{kind}", ("moment", "example", "feature"), values, f"output, {kind}")
    for name, value in runs.fits.items():
        add(f"fit_{name.replace(' ', '_')}", (), value, f"best loss, {name}")
    data.attrs["title"] = "Two hidden layers, H Fig. 6"
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 5.4)
        rows = figure.add_gridspec(2, 1, height_ratios=[1.15, 1.0])
        top, bottom = (figure.add_subfigure(rows[k]) for k in range(2))
        a = top.subplots()
        sides = bottom.add_gridspec(1, 2, width_ratios=[1.12, 1.0])
        left, right = (bottom.add_subfigure(sides[k]) for k in range(2))
        b, c = left.subplots(1, 2)
        axes = right.subplots(1, 5)
        _losses(a, data, facts)
        _linearity(b, data, facts)
        _power(c, data, facts)
        _outputs(axes, data)
        for ax, name in zip((a, b, c, axes[0]), "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _losses(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["time"].values
    names = {
        "relu": f"ReLU ({data.sizes['seed']} seeds)",
        "late": f"gated, contextual pathways from t = {facts['opens']:.1f}",
        "equal": "gated, equal scales",
    }
    for kind, label in names.items():
        values = data[f"loss_{kind}"].values
        ax.plot(t, values.T, color=_COLOURS[kind], linewidth=0.4, alpha=0.5)
        gap = "" if kind == "relu" else f": {facts['gaps'][kind][0]:.1%} apart"
        ax.plot(t, values[facts["chosen"][kind]], color=_COLOURS[kind],
                linewidth=2.6 if kind == "relu" else 1.4, label=label + gap)  # fmt: skip
    for name, level in facts["fits"].items():
        if name == "mode":
            continue
        linear = name.startswith("rank")
        plot.curve(ax, [0, t[-1]], [level, level], theory=True, linewidth=0.8,
                   linestyle=(0, (3.2, 2.0)) if linear else ":")  # fmt: skip
        label = f"best map of {name}" if linear else f"gates and rank {name[-1]}"
        ax.text(t[-1] * (1.0 if linear else 0.7), level + 0.7, f"{label}: {level:.2f}",
                ha="right", va="bottom", fontsize=7)  # fmt: skip
    ax.set(xlabel="time $t/\\tau$", ylabel="loss $L$ (sum)", xlim=(0, t[-1]),
           ylim=(0, 1.06 * facts["start"]))  # fmt: skip
    ax.legend(loc="upper right", bbox_to_anchor=(1.0, 1.03))


def _linearity(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["time"].values
    # At the start the output is noise, and so is its change.
    seen = data["loss_relu"].median("seed").values < 0.9 * facts["start"]
    for layer, colour, name in ((2, COLOURS["untrained"], "2nd"), (1, COLOURS["trained"], "1st")):
        values = data["identity"].sel(layer=layer).values[:, seen]
        plot.runs(ax, t[seen], values, colour=colour, label=f"{name} layer")
        ax.lines[-1].set_linestyle("-" if layer == 1 else "--")
        end = facts["linear_end"][layer - 1]
        ax.text(t[-1], end + 0.04, f"{end:.0%}", ha="right", va="bottom")
    ax.set(
        xlabel="time $t/\\tau$", ylabel="change without its ReLU", xlim=(0, t[-1]), ylim=(0, 1.5)
    )
    ax.legend(loc="upper left")


def _power(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["time"].values
    power = data["power"].median("seed")
    lines = (
        ("all examples", "all examples", "black", "-"),
        ("majority in 2", "2 contexts", COLOURS["trained"], "--"),
        ("majority in 1", f"1 context: {facts['groups'][3]:.2f}", COLOURS["untrained"], "-."),
    )
    for group, label, colour, style in lines:
        ax.plot(t, power.sel(group=group), color=colour, linestyle=style, label=label)
    ax.set(xlabel="time $t/\\tau$", ylabel="share of power, 2nd layer", xlim=(0, t[-1]),
           ylim=(-0.04, 1.75))  # fmt: skip
    ax.set_yticks((0, 0.5, 1))
    ax.legend(loc="upper right", title="units on for", title_fontsize=8, alignment="left")


def _outputs(axes: Any, data: xr.Dataset) -> None:
    """The target, and both networks on the first plateau and at the end."""
    shown, titles = [data["target"].values.T], ["target"]
    for k, moment in enumerate(("early", "end")):
        for kind, name in (("relu", "ReLU"), ("late", "gated")):
            shown.append(data[f"output_{kind}"].values[k].T)
            titles.append(f"{name}\n{moment}")
    plot.matrix_panels(axes, shown, titles, xlabel="context", ylabel="feature", colourbar="output")
    for ax in axes:
        ax.set_xticks([3.5, 11.5, 19.5], ["1", "2", "3"])
        ax.set_xlabel("")
    axes[len(axes) // 2].set_xlabel("context")
