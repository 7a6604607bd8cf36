"""H Fig. 2: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers

_GATES = {"linear gates": COLOURS["trained"], "XoR gates": COLOURS["untrained"]}
_BLUE, _ORANGE = _GATES.values()
_RELU, _FAINT = COLOURS["shared"], COLOURS["faint"]


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Times and losses; shares of the two kinds of gates, and input weights."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 5.0)
        (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False)
        a, b = np.ravel(top.subplots(1, 2, width_ratios=[1.2, 1.0]))
        c, d, e = np.ravel(bottom.subplots(1, 3, width_ratios=[1.25, 1.0, 1.0]))
        for ax, panel in zip((a, b, c), (_times, _losses, _shares), strict=True):
            panel(ax, data, numbers)
        for ax, delta in ((d, 0.5), (e, 1.2)):
            _directions(ax, data.sel(delta=delta, method="nearest"))
        for ax, name in zip((a, b, c, d), "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _times(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    delta, top = data["delta"].values, 1.08 * float(data["t_step"].max())
    for row, (name, colour) in zip(data["t_theory"].values, _GATES.items(), strict=True):
        plot.curve(ax, delta, row, theory=True, colour=colour, label=name)
    fastest = data["t_map"].min("gating")
    plot.curve(ax, delta, fastest, theory=True, linestyle=":", linewidth=1.0, label="trained")
    for name, face, label in (("t_step", "white", "ReLU"), ("t", _RELU, "ReLU, small step")):
        low, middle, high = data[name].quantile([0.0, 0.5, 1.0], "seed").values
        look = {"fmt": "o", "markersize": 3.6, "color": _RELU, "markerfacecolor": face}
        ax.errorbar(delta, middle, [middle - low, high - middle], label=label, zorder=5, **look)
    _root(ax, numbers, 0.04)
    ax.set(xlim=(-0.03, delta[-1] + 0.03), ylim=(0.75 * float(data["t"].min()), top))
    ax.set(xlabel="half margin $\\Delta$", ylabel="time to the level (epochs)")
    plot.legend_above(ax)


def _root(ax: Axes, numbers: Numbers, height: float) -> None:
    ax.axvline(numbers["root"], color=_FAINT, linewidth=0.9, zorder=0)
    place = ax.get_xaxis_transform()
    ax.text(numbers["root"] - 0.02, height, "$\\sqrt{2/3}$", transform=place, ha="right")


def _losses(ax: Axes, data: xr.Dataset, _: Numbers) -> None:
    t, delta = data["time"].values, data["delta"].values
    for k in sorted({int(np.abs(delta - x).argmin()) for x in (0.0, 1.0, delta[-1])}):
        plot.runs(ax, t, data["loss"].values[k], colour=_RELU)
        faster = int(np.argmin(data["t_theory"].values[:, k]))
        theory, colour = data["loss_theory"].values[faster, k], (_BLUE, _ORANGE)[faster]
        plot.curve(ax, t, theory, theory=True, colour=colour)
        late = t[np.argmax(data["loss"][k].median("seed").values < 0.12)]
        last = k == len(delta) - 1
        look = {"textcoords": "offset points", "va": "center", "fontsize": 7}
        place = {"xytext": (-9 if last else 4, 0), "ha": "right" if last else "left"}
        ax.annotate(f"$\\Delta$ = {delta[k]:g}", (late, 0.12), **(look | place))
    ax.plot([], [], color=_RELU, label="ReLU")
    for name, colour in _GATES.items():
        plot.curve(ax, [], [], theory=True, colour=colour, label=name)
    ax.axhline(0.2, color=_FAINT, linewidth=0.7, zorder=0)
    ax.set(xlim=(0, 1.6 * float(data["t"].max())), ylim=(0, None))
    ax.set(xlabel="time (epochs)", ylabel="loss $L$")
    plot.legend_above(ax)


def _shares(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    delta = data["delta"].values
    looks = ("o", _BLUE, "one class"), ("s", _ORANGE, "one example"), ("^", _FAINT, "others")
    for k, (marker, colour, name) in enumerate(looks):
        low, middle, high = data["share"][..., k].quantile([0.25, 0.5, 0.75], "seed").values
        ax.fill_between(delta, low, high, color=colour, alpha=0.25, linewidth=0)
        ax.plot(delta, middle, marker=marker, markersize=3, color=colour, label=name)
    _root(ax, numbers, 0.5)
    ax.axvline(numbers["crossing"], color="black", linewidth=0.7, linestyle=":", zorder=0)
    ax.set(xlabel="half margin $\\Delta$", ylabel="share of output power")
    plot.legend_above(ax)


def _directions(ax: Axes, data: xr.Dataset) -> None:
    delta, power = float(data["delta"]), np.clip(data["power"].values, 0, None)
    w = data["direction"].values
    w = w / np.linalg.norm(w, axis=1, keepdims=True)
    # Targets are +1 on the diagonal (1, -1) and -1 on (1, 1); x3 has the target's sign.
    across = np.where(w[:, 2] > 0, w[:, 0] - w[:, 1], w[:, 0] + w[:, 1]) / np.sqrt(2)
    tips = np.array([[np.sqrt(2), delta], [-np.sqrt(2), delta]]) / np.sqrt(2 + delta**2)
    for tip in [*tips, *-tips, (0, 1), (0, -1)]:
        style = {"arrowstyle": "-|>", "color": _ORANGE if tip[0] else _BLUE, "linewidth": 1.6}
        style |= {"shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
        ax.annotate("", tip, (0, 0), zorder=3, arrowprops=style)
    size = 4 + 150 * power / max(power.sum(), 1e-12)
    ax.scatter(across, w[:, 2], s=size, facecolor="none", edgecolor=_RELU, zorder=4)
    ax.set(xlim=(-1.15, 1.15), ylim=(-1.2, 1.2), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    ax.set(xlabel="own diagonal", ylabel="$x_3$", title=f"$\\Delta$ = {delta:g}", aspect="equal")
