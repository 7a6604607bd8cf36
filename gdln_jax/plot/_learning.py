"""Pictures of runs in one call: losses, and strengths of modes, with their theory."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gdln_jax import Reduction
from gdln_jax.plot._curves import OTHERS, UNDER, curve, frame, loss_curves, runs
from gdln_jax.plot._labels import EndLabels
from gdln_jax.plot._panels import legend_above
from gdln_jax.plot._runs import (
    Curve,
    axes_of,
    check_clock,
    losses_of,
    mapped,
    pathways_of,
    solved_from_start,
)
from gdln_jax.plot._style import COLOURS, mode_colours, style
from gdln_jax.plot._types import Colour

# Height of a legend's row in inches, and the length of names of which two stand in one row.
_ROW, _SHORT = 0.15, 12


def learning(
    run: object,
    theory: object = None,
    *,
    ax: Axes | None = None,
    colour: Colour | None = None,
    band: tuple[float, float] | None = (0.25, 0.75),
) -> Axes:
    """Draw the loss of a run over time, or of several, with the theory dashed in black on top.

    Args:
        run: what `gradient_flow`, `train` or `solve` returned, one run or a batch; the data set of
            a `sweep` whose function returned a run; a pair (t, losses (..., time)); or a mapping
            name -> any of these, whose names label the ends of the curves.
        theory: the same, one or a mapping with the same names; or a `Reduction`, which is solved
            from the start of the run if that is one gradient flow with tau = 1.
        ax: where to draw; default new axes, whose `.figure` shows or saves itself.
        colour: of one run.
        band: quantiles over batches and seeds, drawn around the median; `None` for none.

    Returns:
        The axes. Whole numbers t are steps, all else is time in units of tau.

    Raises:
        ValueError: what holds no losses; a theory on another clock than its run.
    """
    with style():
        ax = axes_of(ax)
        several = mapped(run)
        named = dict(run) if several else {"": run}
        if mapped(theory) and set(theory) != set(named):
            raise ValueError(f"theory names {list(theory)}, the runs are {list(named)}.")
        ends: list[tuple[str, Curve, Colour]] = []
        kinds = []
        for k, (name, one) in enumerate(named.items()):
            known = losses_of(one, f"run[{name!r}]" if several else "run")
            shade = colour or COLOURS[OTHERS[k % len(OTHERS)]]
            own = theory[name] if mapped(theory) else theory
            wide = {} if own is None else UNDER
            loss_curves(ax, known.t, known.values, colour=shade, band=band, **wide)
            if own is not None:
                solved = solved_from_start(own, one) if isinstance(own, Reduction) else own
                other = losses_of(solved, "theory")
                check_clock(known, other)
                for row in other.values:
                    curve(ax, other.t, row, theory=True)
            ends.append((name, known, shade))
            kinds.append(known.kind)
        if several:
            _name_ends(ax, ends)
        if theory is not None:
            _legend(ax, kinds[0], "#606060" if several else ends[0][2])
        return ax


def modes(
    run: object,
    theory: object = None,
    *,
    reduction: Reduction | None = None,
    pathway: str | None = None,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
    band: tuple[float, float] | None = (0.25, 0.75),
) -> Axes:
    """Draw the strengths of modes over time, each named at its end, with the theory on top.

    Colours stand for modes where there is one pathway, else for pathways. With several of both, a
    legend names the pathways and the ends the modes.

    Args:
        run: what `gradient_flow`, `train` or `solve` returned, one run or a batch; the data set of
            a `sweep` over runs; `run.pathways(reduction)`; or a pair (t, strengths (..., time,
            mode)).
        theory: the same; or a `Reduction`, which is solved from the start of the run if that is
            one gradient flow with tau = 1.
        reduction: in whose frames networks are read; default `theory` if that is one.
        pathway: name of the one to draw, such as "x->h->y"; default all.
        labels: of the curves, instead of "mode 1", ..., and of the legend of pathways.
        ax, band: as for `learning`.

    Raises:
        ValueError: networks without a reduction; more than 24 curves; a theory on another clock,
            or without one of the curves.
    """
    with style():
        if isinstance(theory, Reduction):
            reduction = theory if reduction is None else reduction
            theory = solved_from_start(theory, run)
        check_clock(run, theory)
        curves = pathways_of(run, "run", reduction, pathway)
        known = {} if theory is None else pathways_of(theory, "theory", reduction, pathway)
        if (
            theory is not None
            and len({key for key, _ in curves}) == len({key for key, _ in known}) == 1
        ):
            name = next(iter(curves))[0]  # arrays have no names of pathways
            known = {(name, m): value for (_, m), value in known.items()}
        names = _names(list(curves), labels)
        paths = _paths(curves) if labels is None else {}
        # The default figure grows with its legend, so that the axes keep their height.
        ax = axes_of(ax, 2.4 + _ROW * len(paths) / _columns(paths))
        ends = []
        for name, shade, (key, one) in zip(
            names, _shades(list(curves)), curves.items(), strict=True
        ):
            wide = {} if theory is None else UNDER
            runs(ax, one.t, one.values, colour=shade, band=band, **wide)
            if theory is not None:
                if key not in known:
                    raise ValueError(
                        f"theory has no {' '.join((key[0], name)).strip()!r} of the run."
                    )
                check_clock(one, known[key])
                for row in known[key].values:
                    curve(ax, known[key].t, row, theory=True)
            ends.append((name, one, shade))
        frame(ax, ends[0][1].t, None, "mode strength" if len(names) > 1 else "strength")
        _name_ends(ax, ends)
        if theory is not None or paths:
            _legend(ax, None if theory is None else ends[0][1].kind, "#606060", paths)
        return ax


def _shades(keys: Sequence[tuple[str, int]]) -> list[Colour]:
    """Colours of modes from dark to light, or of pathways where there are several."""
    pathways = list(dict.fromkeys(pathway for pathway, _ in keys))
    if len(pathways) == 1:
        return list(mode_colours(len(keys)))
    by_name = (
        [COLOURS[name] for name in OTHERS]
        if len(pathways) <= len(OTHERS)
        else mode_colours(len(pathways))
    )
    return [by_name[pathways.index(pathway)] for pathway, _ in keys]


def _names(keys: Sequence[tuple[str, int]], labels: Sequence[str] | None) -> list[str]:
    if labels is not None:
        if isinstance(labels, str) or len(labels) != len(keys):
            raise ValueError(f"labels has {len(labels)} entries for {len(keys)} curves.")
        return [str(label) for label in labels]
    pathways, modes = {pathway for pathway, _ in keys}, {mode for _, mode in keys}
    if len(pathways) > 1 and len(modes) == 1:
        return [pathway.replace("->", "→") for pathway, _ in keys]
    return [f"mode {mode + 1}" for _, mode in keys]


def _paths(curves: Mapping[tuple[str, int], Curve]) -> dict[str, Colour]:
    """Colours by pathway where a legend has to name them: several, of several modes."""
    if len({pathway for pathway, _ in curves}) == 1 or len({mode for _, mode in curves}) == 1:
        return {}
    shades = zip(curves, _shades(list(curves)), strict=True)
    return {pathway.replace("->", "→"): shade for (pathway, _), shade in shades}


def _columns(paths: Collection[str]) -> int:
    """Columns of the legend: two names of this length fit above axes of the default width."""
    return 2 if max(map(len, paths), default=0) <= _SHORT else 1


def _name_ends(ax: Axes, ends: Sequence[tuple[str, Curve, Colour]]) -> None:
    """Name curves at the last time at which any of their runs is there."""
    points = []
    for _, known, _ in ends:
        there = np.flatnonzero(np.isfinite(known.values).any(axis=0))
        k = int(there[-1]) if len(there) else 0
        points.append((known.t[k], np.nanmedian(known.values[:, k]) if len(there) else 0.0))
    names, _, colours = zip(*ends, strict=True)
    EndLabels(ax, np.array(points, float), names, colours)


def _legend(
    ax: Axes, kind: str | None, colour: Colour, paths: Mapping[str, Colour] | None = None
) -> None:
    """Above the axes: what is solid, what is dashed, and which colour is which pathway.

    `kind` is None where there is no theory.
    """
    entries: dict[str, Line2D] = {}
    if kind is not None:
        dashed = next(line for line in ax.lines if line.get_linestyle() == "--")
        look = {"color": dashed.get_color(), "linestyle": dashed.get_linestyle(), "linewidth": 1.2}
        entries[kind] = Line2D([], [], color=colour, **UNDER)
        entries["theory"] = Line2D([], [], **look)
    for name, shade in (paths or {}).items():
        entries[name] = Line2D([], [], color=shade, **({} if kind is None else UNDER))
    columns = _columns(paths or ())
    # Legends fill columns; these are to be read in rows.
    order = [name for k in range(columns) for name in list(entries)[k::columns]]
    legend_above(ax, columns, handles=[entries[name] for name in order], labels=order)
