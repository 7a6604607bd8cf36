"""The picture of the routing recipe: N Fig. 4 a-b and d-h from its data set."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import Graph, plot
from gdln_jax.plot import COLOURS


def draw(data: xr.Dataset, graph: Graph, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 6.2)
        rows = figure.add_gridspec(3, 1, height_ratios=[1.05, 1.25, 1.0])
        top, middle, bottom = (figure.add_subfigure(rows[k]) for k in range(3))
        a, b, c = top.subplots(1, 3, width_ratios=[1.1, 0.75, 1.5])
        d, e = middle.subplots(1, 2, width_ratios=[1.45, 1.0])
        _architecture(a, graph, data)
        plot.route_pattern(b, data["pattern"].values)
        b.set_title("trained routes (•)")
        _loss(c, data)
        _strengths(d, data)
        _similarity(e, data, facts)
        axes = bottom.subplots(1, 4, width_ratios=[0.8, 0.8, 0.8, 1.5])
        _outputs(axes[:3], data, facts)
        _errors(axes[3], data, facts)
        for ax, name in zip((a, b, c, d, e, axes[0], axes[3]), "abcdefg", strict=True):
            plot.panel_label(ax, name)
    return figure


def _architecture(ax: Any, graph: Graph, data: xr.Dataset) -> None:
    """The network with a trained and an untrained route, which share the hidden pathway."""
    pattern = data["pattern"].values
    routes = [tuple(np.argwhere(pattern == 1)[0])]
    if (pattern == 0).any():
        other = np.argwhere(pattern == 0)
        # The one that starts and ends farthest away, so that both can be told apart.
        routes.append(tuple(other[np.abs(other - routes[0]).sum(axis=1).argmax()]))
    paths = [(f"x{i}->h1", "h1->h2", f"h2->y{j}") for i, j in routes]
    m = len(pattern)
    labels = {f"x{i}": f"$x_{{{i + 1}}}$" for i in range(m)}
    labels |= {f"y{i}": f"$y_{{{i + 1}}}$" for i in range(m)} | {"h1": "$h_1$", "h2": "$h_2$"}
    plot.architecture(ax, graph, paths=paths, labels=labels)
    handles = [
        Line2D([], [], color=COLOURS[name], linewidth=2, label=name)
        for name in ("trained", "untrained", "shared")[: 3 if len(paths) > 1 else 1]
    ]
    ax.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=3,
        handlelength=1.0, columnspacing=0.9, handletextpad=0.4,
    )  # fmt: skip


def _loss(ax: Any, data: xr.Dataset) -> None:
    t = data["time"].values
    plot.loss_curves(
        ax, t, data["loss_random"].values, colour=COLOURS["random"],
        label=f"random start ({data.sizes['seed']} seeds)",
    )  # fmt: skip
    plot.curve(ax, t, data["loss_theory_projected"], theory=True, colour="#8A8A8A",
               label="Eq. 15, projected $b(0)$")  # fmt: skip
    plot.curve(ax, t, data["loss_decoupled"], colour=COLOURS["shared"], label="decoupled start")
    plot.curve(ax, t, data["loss_theory"], theory=True, label="Eq. 15, no free parameter")
    # Where the plateau is long the legend needs room above it.
    early = data["loss_random"].median("seed").values[int(0.3 * len(t))]
    start = float(data["loss_theory"][0])
    ax.set_ylim(0, (1.95 if early > 0.5 * start else 1.05) * start)
    ax.legend(loc="upper right")


def _strengths(ax: Any, data: xr.Dataset) -> None:
    """Hidden against first and third layer: every mode of the decoupled run, and the medians."""
    t = data["time"].values
    every = data
    # More than a few modes hide one another.
    chosen = np.unique(np.linspace(0, data.sizes["mode"] - 1, 4).astype(int))
    data = data.isel(mode=chosen)
    layers = (
        ("b2", COLOURS["trained"], "hidden layer $B_2$"),
        ("b1", COLOURS["other"], "first layer $B_1$"),
    )
    for name, colour, label in layers:
        values = data[f"{name}_random"].median("seed").values
        colours = [colour] * values.shape[1]
        plot.mode_curves(ax, t, values, colours=colours, linewidth=0.7, alpha=0.6)
        plot.mode_curves(
            ax, t, data[f"{name}_decoupled"].values, colours=colours, label=label, linewidth=2.2
        )
        for theory in data[f"{name}_theory"].values.T:
            plot.curve(ax, t, theory, theory=True, linewidth=0.9)
    if len(chosen) < every.sizes["mode"]:
        names = ", ".join(str(k + 1) for k in chosen)
        ax.set_title(f"modes {names} of {every.sizes['mode']}")
    end = every.isel(time=-1)
    ratio = end["b2_decoupled"] / end["b1_decoupled"]
    m = data.sizes["input"]
    low, high = float(ratio.min()), float(ratio.max())
    span = f"{low:.3f}" if high - low < 5e-4 else f"{low:.3f} … {high:.3f}"
    top = float(end["b2_decoupled"].max())
    ax.set_ylim(0, 1.62 * top)
    ax.text(
        0.99, 0.98,
        f"final $B_2/B_1$ = {span}\n$\\sqrt{{M}}$ = {np.sqrt(m):.3f}\n"
        "$M B_1^2 - B_2^2$ conserved (E8)",
        transform=ax.transAxes, ha="right", va="top",
    )  # fmt: skip
    handles, _ = ax.get_legend_handles_labels()
    handles += [
        Line2D([], [], color="black", linewidth=0.9, linestyle=(0, (3.2, 2.0)), label="Eq. 13-15"),
        Line2D([], [], color="grey", linewidth=0.7, label="random start, median"),
    ]
    ax.legend(handles=handles, loc="upper left")
    ax.set_ylabel("mode strength")


def _similarity(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    seed = facts["median_seed"]
    plot.similarity(
        ax, data["similarity"].values[seed], num_domains=data.sizes["input"],
        colourbar="dot product at $h_1$",
    )  # fmt: skip
    ax.set_title(f"cosine across domains {facts['alignment']:.2f}")


def _outputs(axes: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    """Target, and the median network's output on its worst trained and worst untrained route."""
    seed = facts["median_seed"]
    errors, outputs = data["route_error"].values[seed], data["output"].values[seed]
    pattern = data["pattern"].values
    kinds = [(1, "trained")] + ([(0, "untrained")] if (pattern == 0).any() else [])
    shown, titles, colours = [data["target"].values.T], ["target"], ["black"]
    for value, name in kinds:
        routes = np.argwhere(pattern == value)
        i, j = routes[np.argmax(errors[tuple(routes.T)])]
        shown.append(outputs[i, j].T)
        titles.append(f"worst {name}\nroute {i + 1}→{j + 1}")
        colours.append(COLOURS[name])
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    plot.matrix_panels(
        axes[: len(shown)], shown, titles, colours=colours, colourbar="output",
        xlabel="item" if data.sizes["probe"] <= 4 else "probe",
        names=[str(name) for name in data["probe"].values],
    )  # fmt: skip


def _errors(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["time"].values
    for name in ("trained", "untrained"):
        values = data[f"error_{name}"].values
        if not np.isfinite(values).any():
            continue
        plot.runs(ax, t, values, colour=COLOURS[name], label=f"{name}: {_power(facts[name])}")
    ax.set(xlabel="time $t/\\tau$", ylabel="relative error", yscale="log", xlim=(0, t[-1]))
    bottom = ax.get_ylim()[0]
    # Room for the legend above 1, without labels there.
    ax.set_ylim(bottom, 10 ** (0.7 * abs(np.log10(bottom))))
    places = 10.0 ** np.arange(0, np.floor(np.log10(bottom)), -2)
    ax.set_yticks(places)
    ax.set_yticks([], minor=True)
    ax.legend(loc="upper right", title="at the end, median", title_fontsize=8)


def _power(value: float) -> str:
    """The number as 2.1 × 10^-5."""
    digits, power = f"{value:.1e}".split("e")
    return f"${digits}\\times10^{{{int(power)}}}$"
