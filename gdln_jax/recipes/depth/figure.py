"""H Fig. 6: the figure."""

from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from gdln_jax import plot
from gdln_jax.recipes._core.declare import Numbers

BLUE, ORANGE, GREEN = (plot.COLOURS[name] for name in ("trained", "untrained", "shared"))
TIME = "time $t/\\tau$"


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Four panels: losses; how linear the layers are, gates of the second one, outputs."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 5.4)
        (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.15, 1.0])
        ((left, right),) = bottom.subfigures(1, 2, squeeze=False, width_ratios=[1.12, 1.0])
        a, (b, c) = top.subplots(), left.subplots(1, 2)
        _losses(a, data, numbers)
        _linearity(b, data, numbers)
        _gates(c, data)
        for ax, name in zip((a, b, c, _outputs(right, data)), "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _losses(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    t = data["time"].values
    for kind, colour, label in (
        ("relu", GREEN, "ReLU"),
        ("late", BLUE, f"gated, contextual pathways from $t$ = {numbers['opened']:.1f}"),
        ("equal", ORANGE, "gated, equal scales"),
    ):
        values, wide = data[f"loss_{kind}"].values, 2.6 if kind == "relu" else 1.4
        ax.plot(t, values.T, color=colour, linewidth=0.4, alpha=0.5)
        one = values[numbers[f"stereotype_{kind}"]]
        ax.plot(t, one, color=colour, label=label, linewidth=wide)
    for name in ("rank_1", "rank_2", "rank_3", "gated_1", "gated_2"):
        level, linear = numbers[f"fit_{name}"], name.startswith("rank")
        dashes: dict[str, Any] = {} if linear else {"linestyle": ":"}
        plot.curve(ax, [0, t[-1]], [level, level], theory=True, linewidth=0.8, **dashes)
        text = f"{'best map of' if linear else 'gates and'} rank {name[-1]}: {level:.2f}"
        place: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 7}
        ax.text(t[-1] * (1.0 if linear else 0.7), level + 0.7, text, **place)
    ax.set(xlabel=TIME, ylabel="loss $L$", xlim=(0, t[-1]), ylim=(0, 1.03 * numbers["start"]))
    plot.legend_above(ax, 3)


def _linearity(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    # At the start the output is noise, and so is its change.
    seen = data["loss_relu"].median("seed").values < 0.9 * numbers["start"]
    t = data["time"].values
    for layer, colour, line in ((1, BLUE, "-"), (2, ORANGE, "--")):
        values = data["identity"].sel(layer=layer).values[:, seen]
        look: dict[str, Any] = {"colour": colour, "linestyle": line, "label": f"layer {layer}"}
        plot.runs(ax, t[seen], values, **look)
    ax.set(xlabel=TIME, ylabel="change without its ReLU", xlim=(0, t[-1]), ylim=(0, None))
    plot.legend_above(ax, 1)


def _gates(ax: Axes, data: xr.Dataset) -> None:
    power, t = data["power"].median("seed"), data["time"].values
    for group, label, colour, line in (
        ("all examples", "all examples", "black", "-"),
        ("majority in 2", "2 contexts", BLUE, "--"),
        ("majority in 1", "1 context", ORANGE, "-."),
    ):
        ax.plot(t, power.sel(group=group), color=colour, linestyle=line, label=label)
    ax.set(xlabel=TIME, ylabel="share of power, layer 2", xlim=(0, t[-1]))
    ax.set(ylim=(-0.02, 1.02), yticks=(0, 0.5, 1))
    plot.legend_above(ax, 1)


def _outputs(part: SubFigure, data: xr.Dataset) -> Axes:
    axes = part.subplots(1, 5)
    shown, titles = [data["target"].values.T], ["target"]
    for k, moment in enumerate(("early", "end")):
        for kind, name in (("relu", "ReLU"), ("late", "gated")):
            shown.append(data[f"output_{kind}"].values[k].T)
            titles.append(f"{name}\n{moment}")
    plot.matrix_panels(axes, shown, titles, xlabel="", colourbar="output")
    for ax in axes:
        ax.set_xticks([3.5, 11.5, 19.5], ["1", "2", "3"])
    axes[2].set_xlabel("context")
    return axes[0]
