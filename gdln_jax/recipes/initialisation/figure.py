"""N Fig. 6: the figure."""

from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gdln_jax import plot, tasks
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers

_MEASURES = (
    ("kernel_change", COLOURS["trained"], "o", "kernel, change"),
    ("weights", COLOURS["other"], "s", "weights, change"),
    ("alignment", COLOURS["shared"], "^", "code, cosine"),
)


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Losses of four settings, errors and changes by sigma_0; codes and outputs of the four."""
    shown = [data.isel(setting=row) for row in numbers["shown"]]
    values = ((float(one["scale"]), int(one["width"])) for one in shown)
    names = [f"$\\sigma_0$ = {scale:g}, $N_h$ = {width}" for scale, width in values]
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 6.9)
        rows = figure.add_gridspec(3, 1, height_ratios=[1.45, 1.0, 1.15])
        above, *below = (figure.add_subfigure(rows[k]) for k in range(3))
        axes = above.subplots(1, 3)
        codes, maps = (part.subplots(1, 4) for part in below)
        losses(axes[0], dict(zip(names, shown, strict=True)), data["loss_race"].values)
        errors(axes[1], data, numbers)
        changes(axes[2], data)
        for k, one in enumerate(shown):
            similarity, cosine = one["similarity"].values, float(one["alignment"].median())
            plot.similarity(codes[k], similarity, num_domains=len(one["input"]), colourbar=None)
            codes[k].set_title(f"{names[k]}\ncosine {cosine:.2f}")
            outputs(maps[k], one)
        maps[0].set_ylabel("output domain")
        for ax, name in zip((*axes, codes[0], maps[0]), "abcde", strict=True):
            plot.panel_label(ax, name)
    return figure


def losses(ax: Axes, shown: dict[str, xr.Dataset], race: np.ndarray) -> None:
    """Losses with N Eq. 15 for the first setting, the theory of a fixed kernel for the others."""
    for k, (name, one) in enumerate(shown.items()):
        theory = one["loss_linear"].values if k else race
        t, colour = one["time"].values[1 : len(theory)], mpl.colormaps["viridis"](0.283 * k)
        runs = one["loss"].dropna("seed", how="all").values[:, : len(theory)]
        plot.runs(ax, t, runs[:, 1:] / np.median(runs[:, 0]), colour=colour, label=name)
        plot.curve(ax, t, theory[1:] / theory[0], theory=True, linewidth=0.9)
    ax.lines[-1].set_label("theory")
    ax.set(xscale="log", xlabel="time $t/\\tau$", ylabel="loss $L/L(0)$")
    ax.set(xlim=(0.03, None), ylim=(0, 1.05), yticks=(0, 0.5, 1))
    plot.legend_above(ax, 1)


def errors(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Relative errors after training."""
    for k, (width, here) in enumerate(data.groupby("width")):
        for name in ("untrained", "trained")[: 1 if k else 2]:
            look = {"color": COLOURS[name], "marker": "os^Dv"[k % 5]}
            medians(ax, here, name, not k, label=f"{name}, $N_h$ = {width}", **look)
            if not k:
                ax.plot(here["scale"], here[name], ".", color=COLOURS[name], ms=2, alpha=0.5)
    first = data.isel(setting=data["width"].values == data["width"].values[0])
    nothing = 1 + first["start_power"].median("seed")
    plot.curve(ax, first["scale"], nothing, theory=True, linewidth=0.9, label="nothing transferred")
    text = f"$\\propto\\sigma_0^{{{numbers['exponent']:.1f}}}$"
    at = (numbers["scale_rich"], numbers["untrained_rich"])
    ax.annotate(text, at, (-2, 22), textcoords="offset points", color=COLOURS["untrained"])
    by_scale(ax, "relative error")


def changes(ax: Axes, data: xr.Dataset) -> None:
    """What changes in training, and how far domains share a code."""
    for k, (_, here) in enumerate(data.groupby("width")):
        for name, colour, marker, text in _MEASURES:
            look = {"color": colour, "marker": marker, "label": None if k else text}
            medians(ax, here, name, not k, **look)
    ax.axhline(1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    ax.plot([], [], "ko-", ms=3.5, lw=0.9, mfc="white", label="open: wider")
    by_scale(ax, "relative change; cosine")


def medians(ax: Axes, here: xr.Dataset, name: str, first: bool, **look: Any) -> None:
    """Medians by scale; those of the first width, which has the most networks, with 10 to 90 %."""
    x, colour = here["scale"].values, look["color"]
    low, middle, high = np.nanquantile(here[name].values, (0.1, 0.5, 0.9), axis=1)
    look |= {"mfc": colour if first else "white", "lw": 1.4 if first else 0.9, "ms": 3.5}
    ax.plot(x, middle, **look)
    if first:
        ax.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)


def by_scale(ax: Axes, ylabel: str) -> None:
    """Logarithmic axes against sigma_0."""
    ax.set(xscale="log", yscale="log", xlabel="init scale $\\sigma_0$", ylabel=ylabel)
    plot.log_ticks(ax, "x", np.array([0.05, 0.2, 1, 4]))
    plot.legend_above(ax, 1)


def outputs(ax: Axes, one: xr.Dataset) -> None:
    """Outputs of all routes side by side, on the scale of the targets; untrained routes framed."""
    m, _, features, items = one["outputs"].shape
    image = one["outputs"].transpose("output", "feature", "input", "item").values
    peak = float(np.abs(tasks.hierarchy_features()).max())
    look = {"cmap": "BrBG_r", "vmin": -peak, "vmax": peak, "aspect": "auto"}
    ax.imshow(image.reshape(m * features, m * items), **look)
    frame = {"fill": False, "edgecolor": COLOURS["untrained"], "linewidth": 0.9}
    for i, j in np.argwhere(one["pattern"].values == 0):
        ax.add_patch(Rectangle((i * items - 0.5, j * features - 0.5), items, features, **frame))
    names, middle = [str(k + 1) for k in range(m)], np.arange(m) + 0.5
    ax.set_xticks(middle * items - 0.5, names)
    ax.set_yticks(middle * features - 0.5, names)
    ax.tick_params(length=0)
    ax.set(xlabel="input domain", title=f"untrained error {float(one['untrained'].median()):.2g}")
