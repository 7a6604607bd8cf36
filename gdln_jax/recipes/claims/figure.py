"""The claims: the figure."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from gdln_jax import plot
from gdln_jax.recipes._core.declare import Numbers

BLUE, ORANGE, GREEN, _, BROWN, _, FAINT = COLOURS = list(plot.COLOURS.values())


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Clock, shares and phase portraits; winner maps; what networks do."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 7.9)
        (top,), (middle,), (bottom,) = figure.subfigures(3, 1, False, height_ratios=[0.9, 1.2, 1.3])
        theory, last = top.subplots(1, 4), bottom.subplots(1, 4, width_ratios=[0.8, 1, 1, 1])
        _theory(theory, data)
        _networks(last, data, numbers)
        for ax, letter in zip([*theory, _maps(middle, data), *last], "abcdefghi", strict=True):
            plot.panel_label(ax, letter)
    return figure


def _theory(axes: np.ndarray, data: xr.Dataset) -> None:
    (a, b, c, d), t, stop = axes, data["clock_time"].values, float(data["clock_limit"])
    a.axvspan(*data["clock_phase"].values, color="0.92", linewidth=0)
    a.plot([0, 1.2 * stop], [0, 1.2 * stop], color=FAINT, linewidth=0.8)
    plot.curve(a, t, data["clock"])
    plot.curve(a, t, np.full_like(t, stop), theory=True)
    a.set(xlim=(0, t[-1]), ylim=(0, 1.2 * stop), title=f"$T_\\infty$ = {stop:.3f}")
    a.set(xlabel="time $t$", ylabel="common clock $T$")
    for k, rate in enumerate((1, 0.9, 0.8)):
        end = float(data["clock_frozen"][k]) ** 2
        plot.curve(b, t, data["clock_strength"][:, k] ** 2, colour=COLOURS[k])
        plot.curve(b, t, np.full_like(t, end), theory=True, colour=COLOURS[k], linewidth=1)
        b.text(0.15, end + 0.01, f"$\\sigma$ = {rate:g}", color=COLOURS[k], va="bottom")
    b.set(xlim=(0, t[-1]), ylim=(0, 0.75), xlabel="time $t$", ylabel="share $s_m^2/s_{max}^2$")
    for ax, name, look in ((c, "together", "-"), (d, "apart", "o")):
        for path in data[f"{name}_path"].values:
            ax.plot(*path.T, color=FAINT, linewidth=0.7, zorder=1)
            away = np.linalg.norm(path - path[0], axis=1)
            k = np.argmax(away > 0.55 * away[-1])
            ax.annotate("", path[k + 1], path[k], arrowprops={"arrowstyle": "->", "color": FAINT})
        for line, colour in zip(data[f"{name}_line"].values, COLOURS, strict=False):
            ax.plot(*line.T, color=colour, linewidth=1.2, linestyle="--")
        ax.plot(*data[f"{name}_rest"].values.T, look, color=BROWN, linewidth=2.2, markersize=6)
        ax.set(xlim=(0, 1.35), ylim=(0, 1.35), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    c.plot([0, 1], [1, 0], "o", color="black", markersize=4, clip_on=False)
    c.set(xlabel="$s_1$", ylabel="$s_2$", title="views together", aspect="equal")
    d.set(xlabel="$a_1$", ylabel="$a_2$", title="each with $p$ = 0.8", aspect="equal")


def _maps(part: SubFigure, data: xr.Dataset) -> Axes:
    x, y, axes = data["start_ratio"], data["rate_ratio"], part.subplots(1, 3, sharey=True)
    for ax, one in zip(axes, (data.sel(depth=n) for n in (2, 3, 4)), strict=True):
        share, depth, right = one["map_share"], int(one["depth"]), one["map_accuracy_summary"]
        ax.pcolormesh(x, y, share, cmap="PuOr", vmin=0, vmax=1, alpha=0.75, rasterized=True)
        ax.contour(x, y, share, levels=[0.5], colors="black", linewidths=1.6)
        ax.plot(x, 1 / x, color=BROWN, linestyle="--", label="claimed: $S\\,u(0)$")
        ax.plot(x, x ** (2.0 - depth), color="black", linestyle=":", label="$S\\,u(0)^{L-2}$")
        ax.set(xscale="log", yscale="log", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        ax.set(title=f"$L$ = {depth}: claim right on {float(right):.0%}", xlabel="$u_2(0)/u_1(0)$")
        plot.log_ticks(plot.log_ticks(ax, "x", [0.5, 1, 2]), "y", [0.5, 1, 2])
    axes[0].plot([], [], color="black", label="exact")
    axes[0].set(ylabel="rate $S_2/S_1$")
    part.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    part.colorbar(axes[0].collections[0], ax=list(axes), ticks=[0, 0.5, 1], label="share of view 2")
    return axes[0]


def _networks(axes: np.ndarray, data: xr.Dataset, numbers: Numbers) -> None:
    (a, b, c, d), views = axes, numbers["views"]
    for k, (place, values) in enumerate(views.items()):
        colour, count = GREEN if "p =" in place else BLUE, 3 * values.mean(axis=-1)
        low, middle, high = np.quantile(count, (0.25, 0.5, 0.75))
        a.plot(count, k + np.linspace(-0.2, 0.2, len(count)), ".", color=colour, markersize=2)
        a.plot([low, middle, high], [k] * 3, "-o", color=colour, markersize=4, markevery=[1])
    a.axvline(1, color=BROWN, linewidth=1, linestyle="--")
    a.set_yticks(range(len(views)), list(views), fontsize=6)
    a.set(xlabel="views learned", xlim=(0.85, 3.1), xticks=(1, 2, 3), ylim=(len(views) - 0.4, -0.6))
    for tag, colour, label in (("L2", BLUE, "squared error"), ("entropy", ORANGE, "cross-entropy")):
        share, t = data[f"course_{tag}"].values, np.append(data[f"time_{tag}"].values, 1e4)
        ratio = share[..., 2] / share[..., 0]
        ratio = np.append(ratio, ratio[:, -1:], axis=1) / ratio[:, :1]
        plot.runs(b, t, ratio, colour=colour, label=label)
    b.set(xscale="log", xlim=(1, 1e4), xticks=(1, 100, 1e4), ylim=(0, 1.02))
    b.set(xlabel="time $t/\\tau$", ylabel="loser/winner, over $t$ = 0")
    step = data["step"].values
    plot.curve(c, [step[-1], 30], [numbers["kappa"] * x for x in (step[-1], 30)], theory=True)
    for k, beta in enumerate(data["beta"].values):
        effect = data["momentum_ratio"][k].median("start") - 1
        look = {"color": plot.mode_colours(4)[3 - k], "label": f"$\\beta$ = {beta:g}"}
        c.plot(step * (1 + beta) / (1 - beta), effect, "o", markersize=3, **look)
    c.set(xscale="log", yscale="log", xlabel="$\\eta(1+\\beta)/(1-\\beta)^2$")
    c.set(ylabel="(loser/winner) / flow − 1", xticks=(0.01, 1, 100))
    for task, marker, name in (("xor", "o", "XoR"), ("multiview", "^", "views")):
        gap = abs(data[f"loss_relu_{task}"] - data[f"loss_frozen_{task}"]).max(f"step_{task}")
        x, sizes = 100 * data[f"gates_changed_power_{task}"], data[f"size_{task}"].values
        for k, colour in enumerate((BLUE, GREEN, ORANGE)):
            look = {"color": colour, "label": f"sd {sizes[k]:g}" if task == "xor" else None}
            d.plot(x[k], gap[k], marker, markersize=3.5, **look)
        d.plot([], [], marker, color="0.3", markersize=3.5, label=name)
    d.set(yscale="log", xlabel="gates changed (%)", ylabel="loss gap to frozen gates / $L(0)$")
    for ax, columns in ((b, 1), (c, 2), (d, 2)):
        plot.legend_above(ax, columns, handlelength=0.7, columnspacing=0.3, fontsize=7)
