"""The picture and the data set of the contexts recipe: H Fig. 4."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import measures, plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.contexts import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_RELU, _DOUBLE, _SINGLE = COLOURS["shared"], COLOURS["trained"], COLOURS["untrained"]
_MARKERS = "os^"
# Times of the joint embedding, as shares of the run.
_MOMENTS = (0.04, 0.08, 0.13, 0.2, 0.3, 0.45, 0.7, 1.0)


def dataset(options: Options, runs: Runs, facts: dict[str, Any]) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    chosen = facts["chosen"]
    moments = np.unique(np.round(np.array(_MOMENTS) * (len(runs.t) - 1)).astype(int))
    data = xr.Dataset(
        coords={
            "time": ("time", runs.t, {"units": "tau"}),
            "step": ("time", runs.step),
            "seed": np.arange(options.seeds),
            "pathway": list(runs.names),
            "mode": np.arange(1, runs.aligned.shape[-1] + 1),
            "group": [
                "all examples", "strictly consistent", *(f"majority in {k}" for k in range(4))
            ],
            "context": ("example", runs.task.meta["context"] + 1),
            "item": ("example", runs.task.meta["item"] + 1),
            "plateau": runs.step[chosen],
            "moment": runs.step[moments],
        }
    )  # fmt: skip

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    for kind in ("relu", *runs.gated):
        add(f"loss_{kind}", ("seed", "time"), runs.loss(kind), f"loss, {kind}")
    add("loss_reduction", ("time",), runs.reduced, "loss, coupled reduction, equal scales")
    add("loss_reduction_scaled", ("time",), runs.reduced_scaled, "the same with pathway_scales")
    dims = ("seed", "time", "pathway", "mode")
    double = runs.gated["double"].measured["strength"]
    add("strength", dims, double, "u^T W v of each pathway, gated networks, equal scales")
    add("strength_aligned", dims[1:], runs.aligned, "the same from aligned weights, flow")
    groups = runs.relu.measured["groups"]
    add("power", ("seed", "time", "group"), groups, "share of the output of ReLU units by gates")
    add("target", ("example", "feature"), runs.task.meta["y"], "target")
    for name, run in (("relu", runs.relu), ("scaled", runs.gated["scaled"])):
        output = np.asarray(run.measured["output"])[0, chosen]
        add(f"output_{name}", ("plateau", "example", "feature"), output, f"output, {name}")
        hidden = np.asarray(run.measured["hidden"])[0, moments]
        place = measures.mds(hidden)
        add(f"mds_{name}", ("moment", "example", "dimension"), place, f"MDS of hidden, {name}")
    data.attrs["title"] = "Items in contexts, H Fig. 4"
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 7.4)
        rows = figure.add_gridspec(3, 1, height_ratios=[1.1, 1.0, 1.0])
        top, middle, bottom = (figure.add_subfigure(rows[k]) for k in range(3))
        a, b = top.subplots(1, 2, width_ratios=[1.25, 1.0])
        c, d, e = middle.subplots(1, 3, width_ratios=[1.0, 1.0, 1.1])
        _losses(a, data, facts)
        _strengths(b, data)
        _mds((c, d), data, facts)
        _gates(e, data)
        f = _outputs(bottom, data, facts)
        for ax, name in zip((a, b, c, e, f), "abcde", strict=True):
            plot.panel_label(ax, name)
    return figure


def _losses(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["time"].values
    gaps = facts["gaps"]
    curves = [("single", _SINGLE, "single contexts"), ("double", _DOUBLE, "double contexts")]
    if facts["factors"] != (1.0, 1.0):
        name = "double, scales fitted" if facts["fitted"] else "double, scales given"
        curves.append(("scaled", COLOURS["other"], name))
    plot.runs(ax, t, data["loss_relu"].values, colour=_RELU, thin=False,
              label=f"ReLU ({data.sizes['seed']} seeds)")  # fmt: skip
    ax.lines[-1].set_linewidth(3.0)
    ax.lines[-1].set_alpha(0.6)
    for kind, colour, label in curves:
        plot.runs(ax, t, data[f"loss_{kind}"].values, colour=colour, thin=False,
                  label=f"{label}: {gaps[kind][0]:.1%}, {gaps[kind][1]:.0%}")  # fmt: skip
    plot.curve(ax, t, data["loss_reduction"], theory=True, linewidth=1.0,
               label="coupled reduction, no fit")  # fmt: skip
    ax.set(xlabel="time $t/\\tau$", ylabel="loss $L$ (sum)", xlim=(0, t[-1]), yscale="log",
           ylim=(0.5 * float(data["loss_relu"].min()),
                 100 * float(data["loss_relu"].max())))  # fmt: skip
    ax.set_yticks(10.0 ** np.arange(-2, 3))
    ax.set_yticks([], minor=True)
    ax.legend(loc="upper right", title="mean and largest gap to ReLU, over $L(0)$",
              title_fontsize=8, alignment="left", ncols=1)  # fmt: skip


def _strengths(ax: Any, data: xr.Dataset) -> None:
    t = data["time"].values
    shades = plot.mode_colours(data.sizes["mode"])
    for k, name in enumerate(data["pathway"].values):
        common = name == "common"
        median = data["strength"].values[:, :, k].mean(axis=0)
        for m in range(3):
            colour = shades[m] if common else COLOURS["random"]
            ax.plot(t, median[:, m], color=colour,
                    linewidth=2.0 if common else 1.2, alpha=1.0 if common else 0.75)  # fmt: skip
            plot.curve(ax, t, data["strength_aligned"].values[:, k, m], theory=True,
                       linewidth=0.8)  # fmt: skip
    handles = [
        Line2D([], [], color=shades[1], linewidth=2.0, label="common pathway"),
        Line2D([], [], color=COLOURS["random"], label="contextual pathways"),
        Line2D([], [], color="black", linewidth=0.8, linestyle=(0, (3.2, 2.0)),
               label="aligned start, = reduction"),
    ]  # fmt: skip
    top = float(data["strength"].max())
    ax.set(xlabel="time $t/\\tau$", ylabel="mode strength (modes 1-3)", xlim=(0, t[-1]),
           ylim=(0, 1.55 * top))  # fmt: skip
    ax.legend(handles=handles, loc="upper right")


def _mds(axes: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    """Trajectories of the 24 examples in one joint embedding per network."""
    titles = {"relu": "ReLU", "scaled": "gated (double)"}
    reference = data["mds_relu"].values
    for ax, name in zip(axes, titles, strict=True):
        points = data[f"mds_{name}"].values
        if name != "relu":
            points = _turned(points, reference)
        for i in range(points.shape[1]):
            c = int(data["context"][i]) - 1
            colour = (COLOURS["trained"], COLOURS["untrained"], COLOURS["shared"])[c]
            ax.plot(*points[:, i].T, color=colour, linewidth=0.5, alpha=0.6)
            ax.plot(*points[-1, i], marker=_MARKERS[c], color=colour, markersize=3.2)
        ax.set(title=titles[name], xticks=[], yticks=[])
        ax.set_xlabel("MDS 1")
        ax.set_aspect("equal", adjustable="datalim")
        for side in ax.spines.values():
            side.set_visible(True)
    axes[0].set_ylabel("MDS 2")
    handles = [
        Line2D([], [], linestyle="", marker=_MARKERS[c], color=colour, markersize=3.2,
               label=str(c + 1))
        for c, colour in enumerate(
            (COLOURS["trained"], COLOURS["untrained"], COLOURS["shared"])
        )
    ]  # fmt: skip
    axes[0].legend(handles=handles, title="context", title_fontsize=7, fontsize=7, loc="best",
                   handletextpad=0.1)  # fmt: skip
    axes[1].set_xlabel(f"similarities correlate ≥ {facts['likeness'][0]:.2f}")


def _turned(points: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Rotated or mirrored towards the reference; distances stay."""
    flat, goal = points.reshape(-1, 2), reference.reshape(-1, 2)
    u, _, vt = np.linalg.svd((flat - flat.mean(0)).T @ (goal - goal.mean(0)))
    return ((flat - flat.mean(0)) @ (u @ vt)).reshape(points.shape)


def _gates(ax: Any, data: xr.Dataset) -> None:
    t = data["time"].values
    power = data["power"].median("seed")
    lines = (
        ("all examples", "all examples", "black", "-"),
        ("majority in 2", "2 contexts", _DOUBLE, "--"),
        ("majority in 1", "1 context", _SINGLE, "-."),
        ("strictly consistent", "strict 1 or 2", COLOURS["other"], ":"),
    )
    for group, label, colour, style in lines:
        ax.plot(t, power.sel(group=group), color=colour, linestyle=style, label=label)
    end = float(power.sel(group="majority in 1")[-1])
    ax.text(t[-1], end + 0.03, f"{end:.2f}", ha="right", va="bottom", color="black", fontsize=7)
    ax.set(xlabel="time $t/\\tau$", ylabel="share of output power", xlim=(0, t[-1]),
           ylim=(-0.04, 1.9))  # fmt: skip
    ax.set_yticks((0, 0.5, 1))
    ax.legend(loc="upper right", title="ReLU units on for", title_fontsize=8, alignment="left")


def _outputs(part: Any, data: xr.Dataset, facts: dict[str, Any]) -> Any:
    """The target, and both networks' outputs on plateaus and at the end."""
    count = data.sizes["plateau"]
    axes = part.subplots(1, 1 + 2 * count)
    shown, titles = [data["target"].values.T], ["target"]
    for k in range(count):
        step = int(data["plateau"][k])
        shown += [data["output_relu"].values[k].T, data["output_scaled"].values[k].T]
        titles += [f"ReLU\nstep {step}", f"gated\napart {facts['apart'][k]:.0%}"]
    plot.matrix_panels(axes, shown, titles, xlabel="context", ylabel="feature", colourbar="output")
    items = int(data["item"].max())
    for ax in axes:
        ax.set_xticks([items * (c + 0.5) - 0.5 for c in range(3)], ["1", "2", "3"])
    return axes[0]
