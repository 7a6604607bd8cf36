"""H Fig. 3-4: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.recipes._core.declare import Numbers

DOUBLE, SINGLE, RELU = (plot.COLOURS[name] for name in ("trained", "untrained", "shared"))
CONTEXTS = tuple(zip((DOUBLE, SINGLE, RELU), "os^", strict=True))
TIME = "time $t/\\tau$"


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Five panels: losses, strengths; hidden representations, gates; outputs."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 7.2)
        (top,), (middle,), (bottom,) = figure.subfigures(3, 1, False, height_ratios=[11, 11, 10])
        a, b = top.subplots(1, 2, width_ratios=[1.2, 1.0])
        c, d, e = middle.subplots(1, 3, width_ratios=[1.0, 1.0, 1.1])
        f = bottom.subplots(1, 1 + 2 * data.sizes["plateau"])
        _losses(a, data)
        _strengths(b, data)
        _embeddings(c, d, data)
        _gates(e, data)
        _outputs(f, data, numbers)
        for ax, name in zip((a, b, c, e, f[0]), "abcde", strict=True):
            plot.panel_label(ax, name)
    return figure


def _losses(ax: Axes, data: xr.Dataset) -> None:
    t = data["time"].values
    looks = {"relu": (RELU, "ReLU"), "single": (SINGLE, "single"), "double": (DOUBLE, "double")}
    looks["scaled"] = plot.COLOURS["other"], "double, scaled"
    for kind, (colour, label) in looks.items():
        values, wide = data[f"loss_{kind}"].values, 3.2 if kind == "relu" else 1.4
        plot.runs(ax, t, values, colour=colour, label=label, thin=False, linewidth=wide)
    plot.curve(ax, t, data["loss_reduction"], theory=True, linewidth=1.0, label="reduction")
    ax.set(xlabel=TIME, ylabel="loss $L$", xlim=(0, t[-1]), yscale="log")
    plot.legend_above(ax, 3)


def _strengths(ax: Axes, data: xr.Dataset) -> None:
    t, common = data["time"].values, data["pathway"].values == "common"
    mean, aligned = (data[k].values[..., :3] for k in ("strength", "strength_aligned"))
    mean, aligned = mean.mean(axis=0), aligned.reshape(len(t), -1)
    for m, colour in enumerate(plot.mode_colours(4)[:3]):
        label = "common" if m == 1 else None
        ax.plot(t, mean[:, common, m], color=colour, linewidth=2.2, label=label)
    lines = ax.plot(t, mean[:, ~common].reshape(len(t), -1), color=SINGLE, linewidth=2.2)
    lines[0].set_label("contextual")
    plot.curve(ax, t, aligned, theory=True, linewidth=0.8)
    ax.lines[-1].set_label("aligned")
    ax.set(xlabel=TIME, ylabel="mode strength", xlim=(0, t[-1]), ylim=(0, None))
    plot.legend_above(ax, 3)


def _embeddings(left: Axes, right: Axes, data: xr.Dataset) -> None:
    goal, other = (data[name].values for name in ("mds_relu", "mds_scaled"))
    flat, onto = (each.reshape(-1, 2) - each.mean((0, 1)) for each in (other, goal))
    u, _, vt = np.linalg.svd(flat.T @ onto)
    for ax, points, name in ((left, goal, "ReLU"), (right, other @ u @ vt, "gated")):
        for i, context in enumerate(data["context"].values):
            colour, marker = CONTEXTS[context - 1]
            ax.plot(*points[:, i].T, color=colour, linewidth=0.5, alpha=0.6)
            label = None if i % 8 else str(context)
            ax.plot(*points[-1, i], marker, color=colour, markersize=3.2, label=label)
        ax.set(xticks=[], yticks=[], xlabel=f"{name}, MDS 1", ylabel="MDS 2")
        ax.set_aspect("equal", adjustable="datalim")
        ax.spines[:].set_visible(True)
    plot.legend_above(left, 3, title="context", alignment="left")


def _gates(ax: Axes, data: xr.Dataset) -> None:
    power, t = data["power"].median("seed"), data["time"].values
    groups = ("all examples", "majority in 2", "majority in 1", "strictly consistent")
    labels = ("all examples", "2 contexts", "1 context", "strict 1 or 2")
    colours = ("black", DOUBLE, SINGLE, plot.COLOURS["other"])
    looks = zip(groups, labels, colours, ("-", "--", "-.", ":"), strict=True)
    for group, label, colour, line in looks:
        ax.plot(t, power.sel(group=group), color=colour, linestyle=line, label=label)
    ax.set(xlabel=TIME, ylabel="share of output power", xlim=(0, t[-1]))
    ax.set(ylim=(-0.02, 1.02), yticks=(0, 0.5, 1))
    plot.legend_above(ax)


def _outputs(axes: np.ndarray, data: xr.Dataset, numbers: Numbers) -> None:
    shown, titles = [data["target"].values.T], ["target"]
    for k, step in enumerate(data["plateau"].values):
        shown += [data[f"output_{name}"].values[k].T for name in ("relu", "scaled")]
        titles += [f"ReLU\nstep {step}", f"gated\n{numbers['apart'][k]:.0%} apart"]
    plot.matrix_panels(axes, shown, titles, xlabel="context", colourbar="output")
    for ax in axes:
        ax.set_xticks([3.5, 11.5, 19.5], ["1", "2", "3"])
