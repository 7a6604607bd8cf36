"""Learned gates: the figure."""

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes._core.declare import Numbers


def draw(data: xr.Dataset, numbers: Numbers) -> Figure:
    """Margin, retention and two runs in blocks; routing and contexts, where they were run."""
    maps = numbers["recovery"]
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 5.8 if maps else 4.2)
        heights = [2.6, 1] if maps else [1]
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        axes = list(parts[0].subplots(2, 2).ravel())
        margin(axes[0], data, numbers)
        held(axes[1], data, numbers)
        for ax, rate in zip(axes[2:], (0, -1), strict=True):
            blocks(ax, data.isel(gate_rate=rate, gate_leak=-1, block_seed=0))
        axes += gates(parts[1], data, numbers) if maps else []
        for ax, name in zip(axes, "abcdef", strict=False):
            plot.panel_label(ax, name)
    return figure


def margin(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """Gating learned, by margin."""
    deltas, mean, shown = data["margin"], data["learned_gating"].mean("start"), numbers["chosen"]
    ax.plot(deltas, mean, "o-", color=COLOURS["trained"], markersize=3, label="mean")
    ax.plot(deltas, shown, "s", color=COLOURS["untrained"], fillstyle="none", label="fastest")
    plot.curve(ax, [numbers["crossover"]] * 2, [-0.1, 1.1], theory=True, label="closed form")
    ax.set(yticks=(0, 1), yticklabels=("linear", "XoR"), ylim=(-0.1, 1.1))
    ax.set(xlabel="margin $\\Delta$", ylabel="gating learned")
    plot.legend_above(ax, 3)


def held(ax: Axes, data: xr.Dataset, numbers: Numbers) -> None:
    """What the weights hold of the idle task, by the rate of gates."""
    rates, leaks = data["gate_rate"].values, data["gate_leak"].values
    for leak, values, name in zip(leaks, numbers["held"], ("untrained", "shared"), strict=True):
        plot.runs(ax, rates, values.T, colour=COLOURS[name], label=f"leak {leak:g}")
    ax.set(xscale="log", xlabel="rate of gates / rate of weights", ylabel="idle task held")
    plot.legend_above(plot.log_ticks(ax, "x", rates))


def blocks(ax: Axes, data: xr.Dataset) -> None:
    """Losses and gates of one network over six blocks."""
    half = data.isel(block_time=slice(73))
    for k, colour in enumerate((COLOURS["trained"], COLOURS["untrained"])):
        for name, line in (("loss", "-"), ("gates", ":")):
            curve, label = half[f"learned_block_{name}"][:, k], f"{name[:4]} {k + 1}"
            ax.plot(half["block_time"], curve, line, color=colour, label=label)
    for start in (10, 30, 50):
        ax.axvspan(start, start + 10, color="0.93", zorder=0)
    at = f"time $t/\\tau$, gates at rate {data['gate_rate'].item():g}"
    ax.set(xlabel=at, ylabel="loss $L$, gate", xlim=(0, 60), ylim=(0, None))
    plot.legend_above(ax, 4)


def gates(part: SubFigure, data: xr.Dataset, numbers: Numbers) -> list[Axes]:
    """Gates of the fastest starts, before and after."""
    axes = part.subplots(1, 4)
    panels = ("routing", "pathway", "route"), ("contexts", "context", "pathway")
    for pair, (name, x, y) in zip((axes[:2], axes[2:]), panels, strict=True):
        two = [data[f"learned_{name}{k}"].values[numbers[f"{name}_best"]] for k in ("_start", "")]
        for ax in plot.matrix_panels(pair, two, ["start", "learned"], xlabel=x, ylabel=y):
            ax.images[0].set(clim=(0, 1))
    return [axes[0], axes[2]]
