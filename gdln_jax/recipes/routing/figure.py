"""N Fig. 4 a, b and d to h: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import plot, tasks
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Seven panels: network, routes, loss; strengths, similarity; outputs, errors."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 6.2)
        top, middle, bottom = figure.subfigures(3, 1, False, height_ratios=[1.05, 1.25, 1])[:, 0]
        a, b, c = top.subplots(1, 3, width_ratios=[1.1, 0.75, 1.5])
        d, e = middle.subplots(1, 2, width_ratios=[1.45, 1.0])
        *f, g = bottom.subplots(1, 4, width_ratios=[0.8, 0.8, 0.8, 1.5])
        network(a, data)
        plot.route_pattern(b, data["pattern"].values).set_title("trained routes (•)")
        loss(c, data)
        strengths(d, data)
        matrix, bar = data["similarity"].values[numbers["median_seed"]], "dot product at $h_1$"
        plot.similarity(e, matrix, num_domains=data.sizes["input"], colourbar=bar)
        outputs(f, data, numbers["median_seed"])
        for name in ("trained",) if numbers["all_trained"] else ("trained", "untrained"):
            values = data[f"error_{name}"].values
            plot.runs(g, data["time"], values, colour=COLOURS[name], label=name)
        g.set(xlabel="time $t/\\tau$", ylabel="relative error", yscale="log")
        g.margins(x=0)
        plot.legend_above(g)
        for ax, name in zip((a, b, c, d, e, f[0], g), "abcdefg", strict=True):
            plot.panel_label(ax, name)
    return figure


def network(ax: Axes, data: xr.Dataset) -> None:
    """The network with a trained and an untrained route, which share the hidden pathway."""
    pattern = data["pattern"].values
    routes = [np.argwhere(pattern == 1)[0]]
    if len(other := np.argwhere(pattern == 0)):  # the one that is farthest from it
        routes.append(other[np.abs(other - routes[0]).sum(axis=1).argmax()])
    paths = [(f"x{i}->h1", "h1->h2", f"h2->y{j}") for i, j in routes]
    graph = tasks.routing(len(pattern), width=4).graph
    labels = {name: f"${name[0]}_{{{int(name[1:]) + (name[0] != 'h')}}}$" for name in graph.nodes}
    names = ("trained", "untrained", "shared") if len(other) else ("trained",)
    handles = [Line2D([], [], color=COLOURS[name], linewidth=2, label=name) for name in names]
    plot.legend_above(ax, 2, handles=handles, handlelength=1.0)
    plot.architecture(ax, graph, paths=paths, labels=labels)


def loss(ax: Axes, data: xr.Dataset) -> None:
    """Random networks and the decoupled one, with Eq. 15 from their initial values."""
    t, random = data["time"].values, data["loss_random"].values
    plot.loss_curves(ax, t, random, colour=COLOURS["random"], label="random")
    projected = {"theory": True, "colour": "#8A8A8A", "label": "theory, projected"}
    plot.curve(ax, t, data["loss_theory_projected"], **projected)
    plot.curve(ax, t, data["loss_decoupled"], colour=COLOURS["shared"], label="decoupled")
    plot.curve(ax, t, data["loss_theory"], theory=True, label="theory")
    plot.legend_above(ax)


def strengths(ax: Axes, data: xr.Dataset) -> None:
    """Hidden against first layer: at most four modes of the decoupled run, and medians."""
    t, modes = data["time"].values, data.sizes["mode"]
    shown = data.isel(mode=np.unique(np.linspace(0, modes - 1, 4).astype(int)))
    for name, kind, label in (("b2", "trained", "hidden $B_2$"), ("b1", "other", "first $B_1$")):
        middle, own = shown[f"{name}_random"].median("seed"), shown[f"{name}_decoupled"]
        colours = [COLOURS[kind]] * shown.sizes["mode"]
        plot.mode_curves(ax, t, middle.values, colours=colours, linewidth=0.7, alpha=0.6)
        plot.mode_curves(ax, t, own.values, colours=colours, label=label, linewidth=2.2)
        for values in shown[f"{name}_theory"].values.T:
            plot.curve(ax, t, values, theory=True, linewidth=0.9)
    ax.lines[-1].set_label("theory")
    ax.set_ylim(0, None)
    plot.legend_above(ax, 3)


def outputs(axes: list[Axes], data: xr.Dataset, seed: int) -> None:
    """Target, and the median network's output on its worst trained and worst untrained route."""
    wrong, pattern = data["route_error"].values[seed], data["pattern"].values
    shown, titles, colours = [data["target"].values.T], ["target"], ["black"]
    for value, name in ((1, "trained"), (0, "untrained")):
        if len(routes := np.argwhere(pattern == value)):
            i, j = routes[np.argmax(wrong[tuple(routes.T)])]
            shown.append(data["response"].values[seed, i, j].T)
            titles.append(f"worst {name}\nroute {i + 1}→{j + 1}")
            colours.append(COLOURS[name])
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    names = [str(name) for name in data["probe"].values]
    words = {"colourbar": "output", "xlabel": "item" if len(names) <= 4 else "probe"}
    plot.matrix_panels(axes[: len(shown)], shown, titles, colours=colours, names=names, **words)
