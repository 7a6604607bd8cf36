"""Curves over time: losses and strengths, single runs thin, medians with bands, theory dashed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from gdln_jax.plot._style import COLOURS, mode_colours

TIME, LOSS = "time $t/\\tau$", "loss $L$"

_DASHES = (0, (3.2, 2.0))


def curve(
    ax: Axes,
    t: ArrayLike,
    values: ArrayLike,
    *,
    theory: bool = False,
    colour: Any = None,
    **style: Any,
) -> Axes:
    """One curve: dashed for theory, solid for a simulation."""
    if theory:
        style = {"linestyle": _DASHES, "linewidth": 1.2, "zorder": 4} | style
    colour = colour or COLOURS["theory" if theory else "trained"]
    ax.plot(np.asarray(t), np.asarray(values), color=colour, **style)
    return ax


def runs(
    ax: Axes,
    t: ArrayLike,
    values: ArrayLike,
    *,
    colour: Any = None,
    label: str | None = None,
    band: tuple[float, float] | None = (0.25, 0.75),
    thin: bool = True,
) -> Axes:
    """Several runs (run, time): each one thin, their median, and a band between quantiles.

    Runs that failed (NaN) are left out of median and band.
    """
    t, values = np.asarray(t), np.atleast_2d(np.asarray(values))
    colour = colour or COLOURS["trained"]
    if thin and len(values) > 1:
        ax.plot(t, values.T, color=colour, linewidth=0.4, alpha=0.45, zorder=1)
    if band is not None and len(values) > 1:
        low, high = np.nanquantile(values, band, axis=0)
        ax.fill_between(t, low, high, color=colour, alpha=0.2, linewidth=0, zorder=1.5)
    ax.plot(t, np.nanmedian(values, axis=0), color=colour, label=label, zorder=2)
    return ax


def loss_curves(
    ax: Axes,
    t: ArrayLike,
    losses: ArrayLike,
    *,
    theory: ArrayLike | None = None,
    colour: Any = None,
    label: str | None = None,
    theory_label: str | None = None,
) -> Axes:
    """Losses (time,) or (run, time) over time, with the theory's curve dashed on top."""
    runs(ax, t, losses, colour=colour, label=label)
    if theory is not None:
        curve(ax, t, theory, theory=True, label=theory_label)
    ax.set(xlabel=TIME, ylabel=LOSS, xlim=(0, float(np.max(np.asarray(t)))))
    ax.set_ylim(bottom=0)
    return ax


def mode_curves(
    ax: Axes,
    t: ArrayLike,
    strengths: ArrayLike,
    *,
    theory: ArrayLike | None = None,
    colours: Sequence[Any] | None = None,
    label: str | None = None,
    ylabel: str = "mode strength",
    **style: Any,
) -> Axes:
    """Strengths (time, mode) of modes over time, solid; the theory's (time, mode) dashed.

    Follow modes by projection (`measures.mode_strengths`), not by sorted singular values.
    """
    t, strengths = np.asarray(t), np.asarray(strengths)
    colours = mode_colours(strengths.shape[1]) if colours is None else colours
    for m in range(strengths.shape[1]):
        ax.plot(t, strengths[:, m], color=colours[m], label=label if m == 0 else None, **style)
        if theory is not None:
            curve(ax, t, np.asarray(theory)[:, m], theory=True, colour=colours[m])
    ax.set(xlabel=TIME, ylabel=ylabel, xlim=(0, float(t.max())))
    return ax
