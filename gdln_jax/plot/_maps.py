"""Matrices as pictures: similarities, outputs, and which routes are trained."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import ListedColormap
from matplotlib.image import AxesImage

from gdln_jax import GatedData, GatedNetwork, Reduction, Trajectory
from gdln_jax.plot._differentiation import activities, item_names
from gdln_jax.plot._runs import axes_of, last, networks_of
from gdln_jax.plot._style import COLOURS, label_axes, style
from gdln_jax.plot._types import ArrayLike, Colour


def similarity(
    run: object,
    data: object = None,
    *,
    node: str | None = None,
    reduction: Reduction | None = None,
    ax: Axes | None = None,
    num_domains: int = 1,
    domain_names: Sequence[str] | None = None,
    colourbar: str | None = "dot product",
) -> Axes:
    """Draw a matrix (n, n) of similarities between examples, with lines between domains.

    One scale from 0, or symmetric about 0 where there are negative entries. Labels that the axes
    have already stay. `similarity(ax, matrix)` draws a matrix on given axes as well.

    Args:
        run: what `gradient_flow` or `train` returned, whose last network is meant; a network; with
            its `reduction` a solved run or the data set of a `sweep`; or the matrix itself. Of a
            batch the mean matrix.
        data: `GatedData` whose examples are compared; their names are written.
        node: whose activities are compared; default the hidden node farthest from the inputs.
        reduction: that makes the networks of a solved run.
        num_domains: number of blocks of examples, in the order of `data`.
        domain_names: of the blocks.
        colourbar: its label, or `None` for no bar.

    Raises:
        ValueError: what holds no networks, data of another type, an unknown node.
    """
    if isinstance(run, Axes):
        ax, run, data = run, data, None
    with nullcontext() if ax is not None else style():
        ax = axes_of(ax)
        if isinstance(run, np.ndarray | jax.Array | list | tuple):
            matrix, names = np.asarray(run), None
        else:
            matrix, names = _similarities(run, data, node, reduction)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the similarities have shape {matrix.shape}; expected (n, n).")
        return _draw_similarity(ax, matrix, names, num_domains, domain_names, colourbar)


def _similarities(
    run: object, data: object, node: str | None, reduction: Reduction | None
) -> tuple[np.ndarray, list[str] | None]:
    if isinstance(run, Trajectory) and isinstance(run.final, GatedNetwork):
        networks = run.final
    else:
        networks, over_time = networks_of(run, "run", reduction)
        networks = last(networks) if over_time else networks
    if not isinstance(data, GatedData):
        raise ValueError(
            f"data is a {type(data).__name__}; pass the gdln.GatedData whose examples are compared."
        )
    h = np.asarray(activities(networks, data, node))
    matrix = h @ h.swapaxes(-1, -2)
    return matrix.reshape(-1, *matrix.shape[-2:]).mean(axis=0), item_names(data)


def _draw_similarity(
    ax: Axes,
    matrix: np.ndarray,
    names: Sequence[str] | None,
    num_domains: int,
    domain_names: Sequence[str] | None,
    colourbar: str | None,
) -> Axes:
    image = ax.imshow(matrix, **_scale([matrix], "Greens"))
    size = matrix.shape[0] / num_domains
    if num_domains > 1:
        for k in range(1, num_domains):
            for line in (ax.axhline, ax.axvline):
                line(k * size - 0.5, color="white", linewidth=0.8)
        names = domain_names or [str(k + 1) for k in range(num_domains)]
        places = [(k + 0.5) * size - 0.5 for k in range(num_domains)]
        label_axes(ax, "input domain", "input domain")
    else:
        places = list(range(len(matrix)))
    if names is not None:
        for axis in (ax.xaxis, ax.yaxis):
            _name_ticks(axis, places, names, len(matrix), at_most=10 if num_domains > 1 else None)
    _bare(ax)
    if colourbar is not None:
        _colourbar([ax], image, colourbar, pad=0.03, fraction=0.05, aspect=22)
    return ax


def matrix_panels(
    axes: Sequence[Axes] | np.ndarray,
    matrices: Sequence[ArrayLike],
    titles: Sequence[str],
    *,
    colours: Sequence[Colour] | None = None,
    xlabel: str = "item",
    ylabel: str = "feature",
    colourbar: str | None = None,
    names: Sequence[str] | None = None,
) -> list[Axes]:
    """Draw matrices of one shape side by side on one colour scale, say target and outputs.

    `colours` colours the frame and title of each, say `COLOURS["untrained"]`; `names` are the
    columns': upright where they are too wide to stand side by side, some of them where there is
    no place for all.
    """
    axes = list(axes)
    arrays = [np.asarray(matrix) for matrix in matrices]
    scale = _scale(arrays, "Greys")
    image = None
    for k, (ax, array, title) in enumerate(zip(axes, arrays, titles, strict=True)):
        image = ax.imshow(array, aspect="auto", **scale)
        colour = "black" if colours is None else colours[k]
        ax.set_title(title, color=colour)
        ax.set_xlabel(xlabel)
        _number_ticks(ax.yaxis, array.shape[0])
        if names is None:
            _number_ticks(ax.xaxis, array.shape[1])
        else:
            _name_ticks(ax.xaxis, list(range(array.shape[1])), names, array.shape[1])
        if k:
            ax.tick_params(labelleft=False)
        _bare(ax, colour)
    axes[0].set_ylabel(ylabel)
    if colourbar is not None and image is not None:
        _colourbar(axes, image, colourbar, pad=0.02, aspect=25)
    return axes


def route_pattern(ax: Axes, pattern: ArrayLike) -> Axes:
    """Draw which routes are trained: a 0/1 matrix (input, output), trained blue, others orange.

    Labels that the axes have already stay.
    """
    pattern = np.asarray(pattern)
    inputs, outputs = pattern.shape
    m = max(inputs, outputs)
    colours = ListedColormap([COLOURS["untrained"], COLOURS["trained"]])
    ax.imshow(pattern, cmap=colours, vmin=0, vmax=1)
    # Told apart in grey as well: trained routes carry a dot.
    if m <= 30:
        y, x = np.nonzero(pattern)
        ax.scatter(x, y, s=min(14, 700 / m**2), color="white", linewidths=0)
        ax.set_xticks(np.arange(outputs - 1) + 0.5, minor=True)
        ax.set_yticks(np.arange(inputs - 1) + 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=0.8)
        ax.tick_params(which="minor", length=0)
    for axis, size in ((ax.xaxis, outputs), (ax.yaxis, inputs)):
        _number_ticks(axis, size, at_most=10)
    label_axes(ax, "output domain", "input domain")
    _bare(ax)
    return ax


def _scale(arrays: Sequence[np.ndarray], plain: str) -> dict[str, Any]:
    """Colours from 0, or symmetric about 0 where there are entries below it."""
    peak = max(float(np.abs(array).max()) for array in arrays) or 1.0
    signed = min(float(array.min()) for array in arrays) < -0.02 * peak
    return {
        "cmap": "PuOr_r" if signed else plain,
        "vmin": -peak if signed else 0.0,
        "vmax": peak,
    }


def _bare(ax: Axes, colour: Colour = "none") -> None:
    for spine in ax.spines.values():
        spine.set(visible=True, edgecolor=colour, linewidth=1.2)
    ax.tick_params(which="both", length=0)


def _number_ticks(axis: Axis, size: int, at_most: int = 7) -> None:
    """Some numbers at regular places, counted from 1."""
    places = list(range(0, size, max(1, -(-size // at_most))))
    axis.set_ticks(places, [str(k + 1) for k in places])


def _name_ticks(
    axis: Axis,
    places: Sequence[float | int],
    names: Sequence[str],
    size: int,
    at_most: int | None = None,
) -> None:
    """Write `names` at `places` of an axis over `size` entries so that they do not overlap.

    A layout engine may make the axes smaller: they are taken to keep three quarters of their size.
    """
    ax, count = axis.axes, len(places)
    box = ax.get_window_extent()
    length = 0.75 * (box.width if axis is ax.xaxis else box.height)
    axis.set_ticks(places, names[:count])
    texts = [label.get_window_extent() for label in axis.get_ticklabels()]
    pitch = length * (places[1] - places[0] if count > 1 else size) / size
    line = 1.1 * max(text.height for text in texts)
    upright = axis is ax.xaxis and max(text.width for text in texts) > pitch
    # Names one below the other, or upright side by side, need a line each; others are as they fit.
    step = max(1, math.ceil(line / pitch)) if upright or axis is ax.yaxis else 1
    step = max(step, -(-count // (at_most or count)))
    axis.set_ticks(places[::step], names[:count:step])
    if upright:
        axis.set_tick_params(rotation=90)


def _colourbar(axes: Sequence[Axes], image: AxesImage, label: str, **place: Any) -> None:
    figure = axes[0].figure
    assert figure is not None
    bar = figure.colorbar(image, ax=axes, **place)
    bar.set_label(label)
    bar.outline.set_linewidth(0.5)  # type: ignore[operator, union-attr]
