"""The picture and the data set of the initialisation recipe: N Fig. 6."""

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from gdln_jax import plot, tasks
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.initialisation import Runs
else:  # that room imports this one
    Runs = Any

_MEASURES = (
    ("kernel_change", COLOURS["trained"], "o", "kernel, relative change"),
    ("weights", COLOURS["other"], "s", "weights, relative change"),
    ("alignment", COLOURS["shared"], "^", "code across domains, cosine"),
)
_SEEDS = {
    "loss": "loss L (half mean squared norm)",
    "trained": "relative error, trained routes",
    "untrained": "relative error, untrained routes",
    "trained_half": "relative error, trained routes, at half the time",
    "untrained_half": "relative error, untrained routes, at half the time",
    "start_power": "power of the outputs at t = 0 over that of the targets, untrained routes",
    "curvature": "largest curvature of the loss at the end",
    "rise": "largest rise of the loss in a step, over L(0)",
    "weights": "relative change of all weights",
    "layers": "relative change of the weights by layer",
    "kernel_change": "relative Frobenius change of the tangent kernel, four routes",
    "kernel_alignment": "alignment of the tangent kernel at the end with that at t = 0",
    "alignment": "mean cosine of one item at h1 across input domains",
    "b0": "b(0) along the shared code, by mode",
}


def dataset(runs: Runs) -> xr.Dataset:
    """Everything shown and checked; similarity and outputs of the median network."""
    data = xr.Dataset(
        coords={
            "width": ("setting", runs.width, {"long_name": "hidden units N_h"}),
            "scale": ("setting", runs.scale, {"long_name": "sigma_0"}),
            "time": (("setting", "record"), runs.time, {"units": "tau"}),
            "seed": np.arange(runs.values["loss"].shape[1]),
        }
    )
    own = {"loss": "record", "layers": "layer", "b0": "mode"}
    for name, meaning in _SEEDS.items():
        dims = ("setting", "seed", *([own[name]] if name in own else []))
        data[name] = (dims, runs.values[name], {"long_name": meaning})
    errors = runs.values["untrained"]
    middle = [int(np.nanargmin(np.abs(row - np.nanmedian(row)))) for row in errors]
    rows = np.arange(len(errors))
    for name, dims in (
        ("similarity", ("presentation", "presentation2")),
        ("outputs", ("input", "output", "feature", "item")),
    ):
        data[name] = (("setting", *dims), runs.values[name][rows, middle],
                      {"long_name": f"{name} at the end, median network"})  # fmt: skip
    data["rate"] = (("setting",), runs.rate, {"long_name": "learning rate"})
    data["loss_race"] = (("race_record",), runs.race, {"long_name": "N Eq. 15, first setting"})
    linear = np.full((len(rows), data.sizes["record"]), np.nan)
    for row, curves in runs.linear.items():
        linear[row, : curves.shape[1]] = np.median(curves, axis=0)
    data["loss_linear"] = (("setting", "record"), linear,
                           {"long_name": "fixed kernel, median"})  # fmt: skip
    data["pattern"] = (("input", "output"), runs.pattern, {"long_name": "1: route is trained"})
    data.attrs["title"] = "Initialisation, N Fig. 6"
    data.attrs["shown"] = [int(row) for row in runs.ends]
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 6.9)
        rows = figure.add_gridspec(3, 1, height_ratios=[1.45, 1.0, 1.15])
        parts = [figure.add_subfigure(rows[k]) for k in range(3)]
        a, b, c = parts[0].subplots(1, 3)
        _losses(a, data)
        _errors(b, data, facts)
        _measures(c, data)
        similar = parts[1].subplots(1, 4)
        outputs = parts[2].subplots(1, 4)
        for column, row in enumerate(data.attrs["shown"]):
            _similarity(similar[column], data.isel(setting=row))
            _outputs(outputs[column], data.isel(setting=row), first=column == 0)
        for ax, name in zip((a, b, c, similar[0], outputs[0]), "abcde", strict=True):
            plot.panel_label(ax, name)
    return figure


def _label(one: xr.Dataset) -> str:
    return f"$\\sigma_0$ = {float(one['scale']):g}, $N_h$ = {int(one['width'])}"


def _losses(ax: Any, data: xr.Dataset) -> None:
    places = np.linspace(0.0, 0.85, len(data.attrs["shown"]))
    colours = [tuple(row) for row in mpl.colormaps["viridis"](places)]
    for row, colour in zip(data.attrs["shown"], colours, strict=True):
        one = data.isel(setting=row)
        there = np.isfinite(one["time"].values) & (one["time"].values > 0)
        t = one["time"].values[there]
        losses = one["loss"].values[:, there]
        losses = losses[np.isfinite(losses).all(axis=1)]
        start = np.median(one["loss"].values[: len(losses), 0])
        plot.runs(ax, t, losses / start, colour=colour, label=_label(one))
        theory = one["loss_linear"].values[there]
        if row == data.attrs["shown"][0]:
            theory = data["loss_race"].values[there[: data.sizes["race_record"]]]
        if np.isfinite(theory).all():
            plot.curve(ax, t, theory / theory[0] * np.median(losses[:, 0]) / start, theory=True,
                       linewidth=0.9)  # fmt: skip
    handles, _ = ax.get_legend_handles_labels()
    handles.append(Line2D([], [], color="black", linewidth=0.9, linestyle=(0, (3.2, 2.0)),
                          label="theory: Eq. 15 (smallest),\nfixed kernel (others)"))  # fmt: skip
    ax.set(
        xscale="log",
        xlabel="time $t/\\tau$",
        ylabel="loss $L/L(0)$",
        ylim=(0, 1.85),
        xlim=(0.03, None),
    )
    ax.set_yticks([0, 0.5, 1])
    ax.legend(handles=handles, loc="upper left", fontsize=7)


def _errors(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    for width in np.unique(data["width"].values):
        rows = data["width"].values == width
        narrow = width == data["width"].values[0]
        x = data["scale"].values[rows]
        for name in ("untrained", "trained"):
            if name == "trained" and not narrow:
                continue
            values = data[name].values[rows]
            low, middle, high = np.nanquantile(values, (0.1, 0.5, 0.9), axis=1)
            if narrow:
                ax.plot(x, values, ".", color=COLOURS[name], markersize=2, alpha=0.5)
                ax.fill_between(x, low, high, color=COLOURS[name], alpha=0.25, linewidth=0)
            ax.plot(x, middle, color=COLOURS[name], marker="o" if narrow else "s", markersize=3.5,
                    markerfacecolor=COLOURS[name] if narrow else "white",
                    linewidth=1.4 if narrow else 0.9, label=f"{name}, $N_h$ = {width}")  # fmt: skip
    first = data["width"].values == data["width"].values[0]
    x = data["scale"].values[first]
    nothing = 1 + np.nanmedian(data["start_power"].values[first], axis=1)
    plot.curve(ax, x, nothing, theory=True, linewidth=0.9, label="nothing transferred")
    slope = facts["exponent"][0]
    at, value = x[0], float(np.nanmedian(data["untrained"].values[0]))
    ax.annotate(f"$\\propto\\sigma_0^{{{slope:.1f}}}$", (at, value), (-2, 22),
                textcoords="offset points", ha="left", color=COLOURS["untrained"])  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="init scale $\\sigma_0$", ylabel="relative error")
    ax.set_ylim(1e-14, 1e6)
    ax.set_yticks(10.0 ** np.arange(-12, 1, 4))
    _scale_ticks(ax)
    ax.legend(loc="upper left", fontsize=7)


def _measures(ax: Any, data: xr.Dataset) -> None:
    for width in np.unique(data["width"].values):
        rows = data["width"].values == width
        narrow = width == data["width"].values[0]
        x = data["scale"].values[rows]
        for name, colour, marker, label in _MEASURES:
            values = data[name].values[rows]
            if narrow:
                low, high = np.nanquantile(values, (0.1, 0.9), axis=1)
                ax.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
            ax.plot(x, np.nanmedian(values, axis=1), color=colour, marker=marker, markersize=3.5,
                    markerfacecolor=colour if narrow else "white",
                    linewidth=1.4 if narrow else 0.9, label=label if narrow else None)  # fmt: skip
    ax.axhline(1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    ax.set(xscale="log", yscale="log", xlabel="init scale $\\sigma_0$", ylabel="change; cosine")
    top = ax.get_ylim()[1]
    ax.set_ylim(top=top**1.45)
    ax.set_yticks(10.0 ** np.arange(-2, np.log10(top), 2))
    _scale_ticks(ax)
    wide = data["width"].values[-1]
    handles, _ = ax.get_legend_handles_labels()
    handles.append(Line2D([], [], color="black", marker="o", markerfacecolor="white",
                          linewidth=0.9, markersize=3.5, label=f"open: {wide} units"))  # fmt: skip
    ax.legend(handles=handles, loc="upper right", fontsize=7)


def _scale_ticks(ax: Any) -> None:
    places = (0.05, 0.2, 1, 4)
    ax.set_xticks(places, [f"{p:g}" for p in places])
    ax.set_xticks([], minor=True)


def _similarity(ax: Any, one: xr.Dataset) -> None:
    plot.similarity(ax, one["similarity"].values, num_domains=one.sizes["input"], colourbar=None)
    cosine = float(one["alignment"].median("seed"))
    ax.set_title(f"{_label(one)}\ncosine {cosine:.2f}")


def _outputs(ax: Any, one: xr.Dataset, *, first: bool) -> None:
    """Outputs of all routes side by side, on the scale of the targets; untrained routes framed."""
    m, _, features, items = (one.sizes[name] for name in ("input", "output", "feature", "item"))
    image = one["outputs"].transpose("output", "feature", "input", "item").values
    peak = float(np.abs(tasks.hierarchy_features()).max())
    ax.imshow(image.reshape(m * features, m * items), cmap="BrBG_r", vmin=-peak, vmax=peak,
              aspect="auto")  # fmt: skip
    for i, j in np.argwhere(one["pattern"].values == 0):
        ax.add_patch(
            Rectangle((i * items - 0.5, j * features - 0.5), items, features, fill=False,
                      edgecolor=COLOURS["untrained"], linewidth=0.9)
        )  # fmt: skip
    ax.set_xticks((np.arange(m) + 0.5) * items - 0.5, [str(k + 1) for k in range(m)])
    ax.set_yticks((np.arange(m) + 0.5) * features - 0.5, [str(k + 1) for k in range(m)])
    ax.tick_params(length=0, labelleft=first)
    ax.set(xlabel="input domain", ylabel="output domain" if first else "")
    ax.set_title(f"untrained error {float(one['untrained'].median('seed')):.2g}")
