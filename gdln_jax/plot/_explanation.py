"""What `relu.explain` found, as one figure."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gdln_jax import relu
from gdln_jax.plot._curves import LOSS, STEP, curve, mode_curves, runs
from gdln_jax.plot._maps import matrix_panels, similarity
from gdln_jax.plot._style import COLOURS, DOUBLE, figure, mode_colours, panel_label, style

_MOST_NAMES = 30


def explanation(found: relu.Explanation) -> Figure:
    """Draw loss and imitation, modes, gates and when they change, similarity, and how many.

    Panels about the course of learning are left out for one checkpoint. Names of examples that the
    data have stand at the gates and at the similarity.

    Raises:
        ValueError: what `relu.explain` did not return.
    """
    if not isinstance(found, relu.Explanation):
        raise ValueError(
            f"found is a {type(found).__name__}; pass what relu.explain(source, data) returned."
        )
    past = len(found.history) > 1
    with style():
        fig = figure(DOUBLE, 5.2 if past else 2.6)
        axes = list(np.ravel(fig.subplots(2 if past else 1, 3)))
        if past:
            _loss(axes[0], found)
            _modes(axes[1], found)
            _shares(axes[2], found)
        _gates(axes[-3], found)
        _similarity(axes[-2], found)
        _numbers(axes[-1], found)
        for ax, letter in zip(axes, "ABCDEF", strict=False):
            panel_label(ax, letter)
    return fig


def _loss(ax: Axes, found: relu.Explanation) -> None:
    steps = found.history.steps
    curve(ax, steps, found.losses, label="network")
    if found.choice is not None:
        (y,) = found.data.targets.values()
        outputs = found.choice.outputs[list(found.choice.ks).index(found.gates.k)]
        error = np.sum((np.asarray(y) - outputs) ** 2, axis=-1) / 2
        gated = error @ np.asarray(found.data.weights)
        label = f"gated, k = {found.gates.k}"
        runs(ax, steps, gated, colour=COLOURS["random"], label=label)
        ax.lines[-1].set_linestyle("--")
    ax.set(xlabel=STEP, ylabel=LOSS, ylim=(0, None))
    ax.margins(x=0)
    ax.legend()


def _modes(ax: Axes, found: relu.Explanation) -> None:
    mode_curves(ax, found.history.steps, found.modes, ylabel="share of each mode of the targets")
    for at in (0, 1):
        ax.axhline(at, color=COLOURS["faint"], linewidth=0.6, zorder=0)


def _shares(ax: Axes, found: relu.Explanation) -> None:
    colours = mode_colours(found.gates.k)
    for m, share in enumerate(found.shares.T):
        ax.plot(found.history.steps, share, color=colours[m], label=f"gate {m + 1}")
    for at in found.changes:
        ax.axvline(at, color=COLOURS["faint"], linewidth=0.8, linestyle=":")
    ax.set(
        xlabel=STEP, ylabel="share of the output's power", ylim=(min(0, found.shares.min()), 1.05)
    )
    ax.margins(x=0)
    ax.legend()


def _gates(ax: Axes, found: relu.Explanation) -> None:
    matrix_panels(
        [ax],
        [found.gates.centroids],
        ["gates"],
        xlabel="example",
        ylabel="gate",
        names=_examples(found),
    )


def _examples(found: relu.Explanation) -> tuple[str, ...] | None:
    """Names of the examples, if they have some and there is place for them."""
    (names,) = (found.data.names[node].items for node in found.data.inputs)
    return names if names is not None and len(names) <= _MOST_NAMES else None


def _similarity(ax: Axes, found: relu.Explanation) -> None:
    similarity(ax, found.similarity[-1])
    count = len(found.similarity[-1])
    names = _examples(found) or [str(place + 1) for place in range(count)]
    places = np.arange(0, count, max(1, -(-count // 7)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(places, [names[place] for place in places])
    ax.set(xlabel="example", ylabel="example", title="last hidden layer")


def _numbers(ax: Axes, found: relu.Explanation) -> None:
    if found.choice is not None:
        ks, gaps = found.choice.ks, found.choice.gap
        runs(ax, ks, gaps.T, label="over the course")
        ax.axhline(found.choice.limit, color=COLOURS["faint"], linewidth=0.8, linestyle=":")
    if found.reach is not None:
        marks = {"linestyle": "", "clip_on": False, "markersize": 4}
        ends = ("o", "shared", "at the end", found.reach.gap)
        for marker, colour, label, gap in (ends, ("x", "other", "shuffled", found.reach.shuffled)):
            ax.plot(found.reach.ks, gap, marker, color=COLOURS[colour], label=label, **marks)
    ax.set(xlabel="number of gates", ylabel="gap of outputs", ylim=(0, None))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()
