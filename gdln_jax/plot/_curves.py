"""Curves over time: losses and strengths, single runs thin, medians with bands, theory dashed."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from gdln_jax.plot._style import COLOURS, label_axes, mode_colours
from gdln_jax.plot._types import ArrayLike, Colour

TIME, STEP, LOSS = "time $t/\\tau$", "step", "loss $L$"

# A simulation under its theory, which is thinner, dashed and black: pale, so that both are seen.
UNDER: dict[str, Any] = {"linewidth": 2.8, "alpha": 0.55}
_DASHES = (0, (3.2, 2.0))
# Colours of further curves, neighbours far apart in lightness.
OTHERS = ("trained", "untrained", "random", "shared", "other", "faint")


def curve(
    ax: Axes,
    t: ArrayLike,
    values: ArrayLike,
    *,
    theory: bool = False,
    colour: Colour | None = None,
    **style: Any,
) -> Axes:
    """Draw one curve: dashed for theory, solid for a simulation.

    Without `colour` it is black for theory and blue for a simulation; if it has a `label`, and a
    labelled curve on the axes has that colour and line style, it takes a colour that none has.
    """
    if theory:
        style = {"linestyle": _DASHES, "linewidth": 1.2, "zorder": 4} | style
    usual, label = "theory" if theory else "trained", style.get("label")
    colour = _colour(ax, usual, colour, label, style.get("linestyle", "-"))
    ax.plot(np.asarray(t), np.asarray(values), color=colour, **style)
    return ax


def runs(
    ax: Axes,
    t: ArrayLike,
    values: ArrayLike,
    *,
    colour: Colour | None = None,
    label: str | None = None,
    band: tuple[float, float] | None = (0.25, 0.75),
    thin: bool = True,
    **style: Any,
) -> Axes:
    """Draw several runs (run, time): each one thin, their median, and a band between quantiles.

    Runs that failed (NaN) are left out of median and band. Without `colour` as for `curve`;
    `style` is that of the median.
    """
    t, values = np.asarray(t), np.atleast_2d(np.asarray(values))
    colour = _colour(ax, "trained", colour, label)
    if thin and len(values) > 1:
        ax.plot(t, values.T, color=colour, linewidth=0.4, alpha=0.45, zorder=1)
    if band is not None and len(values) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # times at which all runs have failed
            low, high = np.nanquantile(values, band, axis=0)
        ax.fill_between(t, low, high, color=colour, alpha=0.2, linewidth=0, zorder=1.5)
    ax.plot(t, _median(values), color=colour, label=label, **{"zorder": 2, **style})
    return ax


def loss_curves(
    ax: Axes,
    t: ArrayLike,
    losses: ArrayLike,
    *,
    theory: ArrayLike | None = None,
    colour: Colour | None = None,
    label: str | None = None,
    theory_label: str | None = None,
    xlabel: str | None = None,
    **style: Any,
) -> Axes:
    """Draw losses (time,) or (run, time) over time, with the theory's curve dashed on top.

    Whole numbers `t` are steps, as `train` returns them, all else is time in units of tau;
    `xlabel` says otherwise. Labels and limits that the axes have already stay, and so do
    logarithmic scales; linear axes show a loss of 0. `style` is that of `runs`.
    """
    runs(ax, t, losses, colour=colour, label=label, **style)
    if theory is not None:
        curve(ax, t, theory, theory=True, label=theory_label)
    frame(ax, t, xlabel, LOSS)
    if ax.get_yscale() == "linear":
        for line in ax.lines:
            line.sticky_edges.y.append(0.0)  # no margin below it
        ax.update_datalim([(0.0, 0.0)], updatex=False)
        ax.autoscale_view()
    return ax


def mode_curves(
    ax: Axes,
    t: ArrayLike,
    strengths: ArrayLike,
    *,
    theory: ArrayLike | None = None,
    colours: Sequence[Colour] | None = None,
    label: str | None = None,
    ylabel: str | None = None,
    xlabel: str | None = None,
    **style: Any,
) -> Axes:
    """Draw strengths (time, mode) over time; the theory's dashed in black on wider lines.

    Follow modes by projection (`measures.mode_strengths`), not by sorted singular values. Labels
    and limits as for `loss_curves`; `ylabel` is "mode strength" if it is not given.
    """
    t, strengths = np.asarray(t), np.asarray(strengths)
    colours = mode_colours(strengths.shape[1]) if colours is None else colours
    style = style if theory is None else UNDER | style
    for m in range(strengths.shape[1]):
        ax.plot(t, strengths[:, m], color=colours[m], label=label if m == 0 else None, **style)
        if theory is not None:
            curve(ax, t, np.asarray(theory)[:, m], theory=True)
    if ylabel is not None:
        ax.set_ylabel(ylabel)
    frame(ax, t, xlabel, "mode strength")
    return ax


def _median(values: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN where all runs have failed
        return np.nanmedian(values, axis=0)


def frame(ax: Axes, t: ArrayLike, xlabel: str | None, ylabel: str) -> None:
    """Labels where there are none, and limits of time without a margin where none were set."""
    if xlabel is not None:
        ax.set_xlabel(xlabel)
    whole = np.issubdtype(np.asarray(t).dtype, np.integer)
    label_axes(ax, STEP if whole else TIME, ylabel)
    ax.margins(x=0)


def _colour(
    ax: Axes, usual: str, given: Colour | None, label: object, linestyle: object = "-"
) -> Colour:
    """`given`, or the colour called `usual`, or the next that no labelled line has."""
    if given is not None:
        return given
    labelled = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    used = [(to_hex(line.get_color()), line.get_linestyle()) for line in labelled]
    dash = linestyle if isinstance(linestyle, str) else "--"  # as a line has it
    if label is None or (to_hex(COLOURS[usual]), dash) not in used:
        return COLOURS[usual]
    taken = {colour for colour, _ in used}
    return next((COLOURS[k] for k in OTHERS if to_hex(COLOURS[k]) not in taken), COLOURS[usual])
