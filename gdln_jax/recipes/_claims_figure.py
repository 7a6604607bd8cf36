"""The picture of the claims: clock and frozen shares, phase portraits, winner maps, tests."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from gdln_jax import plot
from gdln_jax.plot import COLOURS

VIEWS = (COLOURS["trained"], COLOURS["untrained"], COLOURS["shared"])
_DASHED, _DOTTED = (0, (3.2, 2.0)), (0, (1.0, 1.4))


def draw(data: xr.Dataset) -> Figure:
    """Draw all panels."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 7.6)
        rows = figure.add_gridspec(3, 1, height_ratios=[0.92, 1.2, 1.15])
        top, middle, bottom = (figure.add_subfigure(rows[k]) for k in range(3))
        a = top.subplots(1, 4, width_ratios=[1, 1, 1.06, 1.06])
        _clock(a[0], data)
        _shares(a[1], data)
        _portrait(a[2], data, "together")
        _portrait(a[3], data, "apart")
        b = middle.subplots(1, 3, sharey=True)
        _maps(middle, b, data)
        c = bottom.subplots(1, 4, width_ratios=[0.95, 1, 1, 1.1])
        _learned(c[0], data)
        _losses(c[1], data)
        _momentum(c[2], data)
        _relu(c[3], data)
        for ax in a:
            ax.set_box_aspect(1)
        for ax, name in zip((*a, b[0], *c), "abcdefghi", strict=True):
            plot.panel_label(ax, name)
    return figure


def _clock(ax: Any, data: xr.Dataset) -> None:
    """T(t): it runs with time, slows down and stops."""
    t, clock = data["clock_time"].values, data["clock"].values
    stop = float(data["clock_limit"])
    early, late = data["clock_phase"].values
    ax.axvspan(early, late, color="0.92", linewidth=0)
    ax.plot([0, stop * 1.25], [0, stop * 1.25], color=COLOURS["faint"], linewidth=0.8)
    ax.axhline(stop, color=COLOURS["theory"], linewidth=1.2, linestyle=_DASHED)
    ax.plot(t, clock, color=COLOURS["trained"])
    ax.text(0.2, stop * 1.02, f"$T_\\infty$ = {stop:.3f}", va="bottom")
    ax.text(1.9, 1.1, "$T=t$", color="0.45", va="top")
    ax.text(late - 0.2, 0.15, "competition", rotation=90, ha="right", va="bottom", color="0.35")
    ax.set(xlabel="time $t$", ylabel="common clock $T$", xlim=(0, t[-1]), ylim=(0, stop * 1.22),
           title="the clock stops")  # fmt: skip


def _shares(ax: Any, data: xr.Dataset) -> None:
    """Shares s^2/s_max^2 freeze; none goes back to 0."""
    t = data["clock_time"].values
    share, frozen = data["clock_strength"].values ** 2, data["clock_frozen"].values ** 2
    for m, rate in enumerate((1.0, 0.9, 0.8)):
        ax.plot(t, share[:, m], color=VIEWS[m])
        ax.plot([t[0], t[-1]], [frozen[m]] * 2, color=VIEWS[m], linewidth=1, linestyle=_DASHED)
        ax.text(0.15, frozen[m] + 0.01, f"$\\sigma$ = {rate:g}", color=VIEWS[m], va="bottom")
    ax.set(xlabel="time $t$", ylabel="share $s_m^2/s_{max}^2$", xlim=(0, t[-1]), ylim=(0, 0.75),
           title="the shares freeze")  # fmt: skip


def _portrait(ax: Any, data: xr.Dataset, name: str) -> None:
    """Flow lines, nullclines, and the set at which the flow rests."""
    together = name == "together"
    for path in data[f"{name}_path"].values:
        ax.plot(*path.T, color=COLOURS["faint"], linewidth=0.7, zorder=1)
        along = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
        here, there = (path[np.searchsorted(along, along[-1] * f)] for f in (0.55, 0.6))
        ax.annotate("", there, here, zorder=1, arrowprops={
            "arrowstyle": "-|>", "color": COLOURS["faint"], "lw": 0.7, "mutation_scale": 6,
            "shrinkA": 0, "shrinkB": 0,
        })  # fmt: skip
    if together:
        ax.plot(*data[f"{name}_rest"].values.T, color=COLOURS["random"], linewidth=2.2, zorder=3)
        ax.plot([0, 1], [1, 0], "o", color="black", markersize=4, zorder=4, clip_on=False)
        ax.text(0.72, 0.98, "all of it\nfrozen", color=COLOURS["random"], va="bottom", zorder=5)
        ax.set(xlabel="strength $s_1$", ylabel="strength $s_2$", title="always together (R: ●)")
    else:
        for m, line in enumerate(data[f"{name}_line"].values):
            ax.plot(*line.T, color=VIEWS[m], linewidth=1.2, linestyle=_DASHED, zorder=2)
        rest = data[f"{name}_rest"].values[0]
        ax.plot(*rest, "o", color=COLOURS["random"], markersize=6, zorder=4)
        ax.text(0.72, 0.98, "both\nlearned", color=COLOURS["random"], va="bottom", zorder=5)
        ax.set(xlabel="contribution $a_1$", ylabel="contribution $a_2$", title="each with $p$ = .8")
    ax.set(xlim=(0, 1.35), ylim=(0, 1.35), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], aspect="equal")


def _maps(figure: Any, axes: Any, data: xr.Dataset) -> None:
    """Final share of view 2, its boundary at 1/2, and the boundaries of both rules."""
    x, y = data["start_ratio"].values, data["rate_ratio"].values
    image = None
    for k, ax in enumerate(axes):
        depth = int(data["depth"][k])
        share = data["map_share"].values[k]
        image = ax.pcolormesh(
            x, y, share, cmap="PuOr", vmin=0, vmax=1, shading="nearest", rasterized=True
        )
        ax.contour(x, y, share, levels=[0.5], colors="black", linewidths=1.6)
        along = np.geomspace(x[0], x[-1], 200)
        ax.plot(along, 1 / along, color=COLOURS["random"], linewidth=1.4, linestyle=_DASHED)
        ax.plot(along, along ** (2.0 - depth), color="black", linewidth=1.4, linestyle=_DOTTED)
        ax.set(xscale="log", yscale="log", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(FixedLocator([0.5, 1, 2]))
            axis.set_minor_locator(FixedLocator([]))
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        right = float(data["map_accuracy_summary"][k])
        ax.set(title=f"$L$ = {depth}: R's rule right on {right:.0%}")
        ax.set_xlabel("initial strength $u_2(0)/u_1(0)$")
    axes[0].set_ylabel("rate $S_2/S_1$")
    handles = [
        Line2D([], [], color="black", linewidth=1.6, label="exact"),
        Line2D([], [], color=COLOURS["random"], linestyle=_DASHED, label="R: $S\\,u(0)$"),
        Line2D([], [], color="black", linestyle=_DOTTED, label="$S\\,u(0)^{L-2}$"),
    ]
    axes[0].legend(handles=handles, loc="lower left", frameon=True, framealpha=0.85, edgecolor="w")
    axes[2].text(0.97, 0.93, "view 2 wins", transform=axes[2].transAxes, ha="right", va="top",
                 color="white")  # fmt: skip
    axes[2].text(0.03, 0.07, "view 1 wins", transform=axes[2].transAxes, color="white")
    bar = figure.colorbar(image, ax=list(axes), pad=0.015, aspect=22)
    bar.set_label("final share of view 2")
    bar.outline.set_linewidth(0.5)
    bar.set_ticks([0, 0.5, 1])


_LEARNED = (
    ("L2", "equal", "L = 2"),
    ("L3", "equal", "L = 3"),
    ("L4", "equal", "L = 4"),
    ("L4", "aligned, equal", "L = 4, aligned"),
    ("L2", "unequal, small", "L = 2, unequal"),
    ("L2", "smooth", "smooth labels"),
    ("L2", "teacher", "teacher"),
    ("L2", "p = .8", "L = 2, p = .8"),
    ("L2", "p = .5", "L = 2, p = .5"),
)


def _learned(ax: Any, data: xr.Dataset) -> None:
    """Effective number of views by set-up: medians, quartiles, every network."""
    for row, (tag, setup, _) in enumerate(_LEARNED):
        k = data[f"setup_{tag}"].values.tolist().index(setup)
        share = data[f"share_{tag}"].values[k]
        count = (share.sum(-1) ** 2 / (share**2).sum(-1)).mean(axis=-1)
        colour = COLOURS["shared"] if setup.startswith("p") else COLOURS["trained"]
        jitter = np.linspace(-0.22, 0.22, len(count))
        ax.plot(count, row + jitter, ".", color=colour, markersize=2.2, alpha=0.5)
        low, middle, high = np.quantile(count, (0.25, 0.5, 0.75))
        ax.plot([low, high], [row, row], color=colour, linewidth=1.2)
        ax.plot(middle, row, "o", color=colour, markersize=4)
    ax.axvline(1, color=COLOURS["random"], linewidth=1, linestyle=_DASHED)
    ax.text(1.05, len(_LEARNED) - 0.9, "R: one", color=COLOURS["random"])
    ax.set_yticks(range(len(_LEARNED)), [label for *_, label in _LEARNED])
    ax.set(title="networks", xlabel="views learned, of 3", xlim=(0.85, 3.1), xticks=[1, 2, 3],
           ylim=(len(_LEARNED) - 0.4, -0.6))  # fmt: skip


def _losses(ax: Any, data: xr.Dataset) -> None:
    """Loser/winner over time: squared error freezes it, cross-entropy goes on."""
    for tag, colour, label, height in (
        ("L2", COLOURS["trained"], "squared error", 1.26),
        ("entropy", COLOURS["untrained"], "cross-entropy", 0.62),
    ):
        t, share = data[f"time_{tag}"].values, data[f"course_{tag}"].values
        ratio = share[..., 2] / share[..., 0]
        ratio = ratio / ratio[:, :1]
        keep = t >= 1
        if tag == "L2":  # frozen: it stays as it is
            t, ratio = np.append(t, 1e4), np.concatenate([ratio, ratio[:, -1:]], axis=1)
            keep = np.append(keep, True)
        plot.runs(ax, t[keep], ratio[:, keep], colour=colour)
        ax.text(8e3, height * np.median(ratio[:, -1]), label, color=colour, ha="right", va="center")
    ax.set(title="losses", xscale="log", xlabel="time $t/\\tau$",
           ylabel="loser/winner, over $t$ = 0",
           xlim=(1, 1e4), ylim=(0, 1.02), xticks=[1, 100, 1e4])  # fmt: skip


def _momentum(ax: Any, data: xr.Dataset) -> None:
    """Final ratio over the flow's against the step of the modified flow, and its first order."""
    step, beta = data["step"].values, data["beta"].values
    colours = plot.mode_colours(len(beta))[::-1]
    kappa = np.geomspace(step[-1], 30, 2)
    first = float(data["momentum_first_order"])
    plot.curve(ax, kappa, first * kappa, theory=True, label="first order")
    for k, b in enumerate(beta):
        middle = np.median(data["momentum_ratio"].values[k], axis=-1) - 1
        ax.plot(step * (1 + b) / (1 - b), middle, "o", color=colours[k], markersize=3,
                label=f"$\\beta$ = {b:g}")  # fmt: skip
    ax.set(title="momentum", xscale="log", yscale="log", xlabel="$\\eta(1+\\beta)/(1-\\beta)^2$",
           ylabel="(loser/winner) / flow − 1", ylim=(1e-4, 3e2))  # fmt: skip
    ax.legend(loc="upper left", handlelength=1.2, labelspacing=0.15)


def _relu(ax: Any, data: xr.Dataset) -> None:
    """Gates that changed against the distance to the network with frozen gates, every seed."""
    sizes = data["size_xor"].values
    colours = (COLOURS["trained"], COLOURS["shared"], COLOURS["untrained"])
    for task, marker in (("xor", "o"), ("multiview", "^")):
        gap = np.abs(data[f"loss_relu_{task}"].values - data[f"loss_frozen_{task}"].values).max(-1)
        changed = data[f"gates_changed_power_{task}"].values
        for k, colour in enumerate(colours):
            ax.plot(changed[k], gap[k], marker, color=colour, markersize=3.5, alpha=0.8)
    handles = [
        *(Line2D([], [], color=c, marker="s", linestyle="", markersize=4, label=f"sd {s:g}")
          for c, s in zip(colours, sizes, strict=True)),
        *(Line2D([], [], color="0.3", marker=m, linestyle="", markersize=4, label=n)
          for m, n in (("o", "XoR"), ("^", "views"))),
    ]  # fmt: skip
    ax.legend(handles=handles, loc="lower right", handlelength=0.8, labelspacing=0.15)
    ax.set(title="ReLU networks", yscale="log", xlabel="gates changed", xticks=[0, 0.1, 0.2, 0.3],
           ylabel="loss gap to frozen gates / $L(0)$", xlim=(0, 0.36), ylim=(3e-6, 2))  # fmt: skip
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
