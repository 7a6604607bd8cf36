"""The picture of learned gates, on a subfigure of the recipe `gates`."""

from typing import Any

import numpy as np

from gdln_jax import plot
from gdln_jax.plot import COLOURS
from gdln_jax.recipes import _gates_learned as learned


def draw(figure: Any, runs: learned.LearnedRuns, facts: dict[str, Any], labels: str) -> None:
    """Draw the panels on a figure or subfigure 6.8 inches wide; `labels` are their letters."""
    if runs.routing is None or runs.contexts is None:
        panels = list(figure.subplots(2, 2).ravel())
        a, f, d, e = panels
    else:
        top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1.05])
        a, right = top.subfigures(1, 2, width_ratios=[1, 2.1])
        a = a.subplots()
        d, e, f = bottom.subplots(1, 3, width_ratios=[1.25, 1.25, 1])
        axes = right.subplots(1, 4)
        _gates(axes[:2], runs.routing, "pathway", "route")
        _gates(axes[2:], runs.contexts, "context", "pathway")
        right.suptitle(
            f"one shared pathway: {runs.routing.rate:.0%}        "
            f"all contexts but one: {runs.contexts.rate:.0%} of starts",
            fontsize=8,
        )
        panels = [a, axes[0], axes[2], d, e, f]
    _margin(a, runs, facts)
    slow, fast = 0, len(learned.RATES) - 1
    for ax, rate, name in ((d, slow, "forgetful"), (e, fast, "flexible")):
        _blocks(ax, runs, rate, name)
    _held(f, runs, facts)
    for ax, name in zip(panels, labels[: len(panels)], strict=True):
        plot.panel_label(ax, name)


def _margin(ax: Any, runs: learned.LearnedRuns, facts: dict[str, Any]) -> None:
    deltas = learned.DELTAS
    plot.curve(ax, [runs.crossover] * 2, [-0.12, 1.08], theory=True)
    ax.plot(deltas, runs.margin.mean(axis=1), "o-", color=COLOURS["trained"], markersize=3,
            label=f"all {facts['starts']} starts, mean")  # fmt: skip
    ax.plot(deltas, facts["chosen"], "s", color=COLOURS["untrained"], markersize=5,
            fillstyle="none", label="fastest start")  # fmt: skip
    ax.text(runs.crossover - 0.03, 0.3, f"exact:\n{runs.crossover:.2f}", ha="right", va="center",
            fontsize=7)  # fmt: skip
    ax.set_yticks([0, 1], ["linear", "XoR"])
    ax.set(xlabel="margin $\\Delta$", ylabel="gating learned", ylim=(-0.12, 1.45))
    ax.legend(loc="upper right", fontsize=7)


def _gates(axes: Any, found: learned.Recovery, columns: str, rows: str) -> None:
    best = found.best
    plot.matrix_panels(
        axes, [found.start[best], found.end[best]], ["start", "learned"], xlabel=columns,
        ylabel=rows,
    )  # fmt: skip
    for ax in axes:
        ax.images[0].set(clim=(0, 1))


def _blocks(ax: Any, runs: learned.LearnedRuns, rate: int, name: str) -> None:
    shown = 6 * learned.PER_BLOCK + 1
    t = learned.BLOCK_TIME * np.arange(shown) / learned.PER_BLOCK
    loss, gate = (np.asarray(runs.blocks[k])[-1, rate, 0, :shown] for k in ("loss", "gates"))
    for k, colour in enumerate((COLOURS["trained"], COLOURS["untrained"])):
        ax.plot(t, loss[:, k], color=colour, label=f"loss, task {k + 1}")
        ax.plot(t, gate[:, k], color=colour, linestyle=":", label=f"gate {k + 1}")
    for k in range(1, 6, 2):
        ax.axvspan(k * learned.BLOCK_TIME, (k + 1) * learned.BLOCK_TIME, color="0.93", zorder=0)
    ax.set(xlabel="time $t/\\tau$", xlim=(0, t[-1]), ylim=(0, 5.4),
           title=f"{name}: gates at rate {learned.RATES[rate]:g}")  # fmt: skip
    ax.title.set_fontsize(8)
    if rate == 0:
        ax.set_ylabel("loss $L$, gate")
        ax.legend(loc="upper right", fontsize=6.5, ncols=2, handlelength=1.3, columnspacing=0.8)


def _held(ax: Any, runs: learned.LearnedRuns, facts: dict[str, Any]) -> None:
    values = learned.held(runs)
    colours = (COLOURS["untrained"], COLOURS["shared"])
    for k, (leak, colour) in enumerate(zip(learned.LEAKS, colours, strict=True)):
        plot.runs(ax, learned.RATES, values[k].T, colour=colour, label=f"leak {leak:g}")
    ax.set_xscale("log")
    ax.set(xlabel="rate of gates / rate of weights", ylabel="idle task held", ylim=(-0.04, 1.3))
    for k, side in ((0, "left"), (-1, "right")):
        kept = facts["held"][-1, k]
        ax.text(learned.RATES[k], kept + 0.06, f"{kept:.2f}", ha=side, fontsize=7)
    ax.legend(loc="upper left", fontsize=7, ncols=2)
