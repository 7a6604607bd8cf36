"""The staircase that learning follows from a small start."""

import numpy as np
from matplotlib.axes import Axes

from gdln_jax import Staircase
from gdln_jax._checks import check_positive
from gdln_jax.plot._curves import LOSS, TIME, curve
from gdln_jax.plot._runs import axes_of
from gdln_jax.plot._style import label_axes


def staircase(staircase: Staircase, eps: float, ax: Axes | None = None) -> Axes:
    """Draw the plateaus of the loss that `saddles` predicts for an initial scale, dashed.

    Steps are where half of a drop is done. Draw it over losses: `plot.loss_curves(ax, run.ts,
    run.losses)` before.

    Args:
        staircase: of `saddles`, with at least one event.
        eps: initial scale.
        ax: axes to draw on; by default new ones.

    Returns:
        The axes.

    Raises:
        ValueError: for a staircase without events, or an eps that is not above 0.
    """
    check_positive(eps, "eps")
    if not isinstance(staircase, Staircase):
        raise ValueError(
            f"staircase is a {type(staircase).__name__}; make one, gdln.saddles(reduction, c)."
        )
    if not staircase.events:
        raise ValueError("the staircase has no events, so that there is nothing to draw.")
    axes = axes_of(ax)
    times = np.asarray(staircase.times(eps))
    levels = [staircase.events[0].loss_before, *(one.loss_after for one in staircase.events)]
    end = max(1.15 * times[-1], axes.get_xlim()[1] if axes.lines else 0.0)
    ends = [min(0.0, times[0]), *times, end]
    curve(axes, ends, [*levels, levels[-1]], theory=True, label="staircase", drawstyle="steps-post")
    label_axes(axes, TIME, LOSS)
    return axes
