"""What is drawn of the results of runs: losses, strengths of pathways, and networks, as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import jax
import numpy as np
from jaxtyping import ArrayLike, Float, Num
from matplotlib.axes import Axes

from gdln_jax import GatedNetwork, Pathways, ReducedTrajectory, Reduction, Trajectory
from gdln_jax._checks import listed
from gdln_jax.plot._style import SINGLE, figure

Solved = Trajectory | ReducedTrajectory
# More curves than this in one picture cannot be told apart.
MOST_CURVES = 24


@dataclass(frozen=True)
class Curve:
    """Values (run, time) at the times t; `steps` says whether these are numbers of steps.

    `kind` is what a legend calls the run.
    """

    t: Num[np.ndarray, " time"]
    values: Float[np.ndarray, "run time"]
    kind: str

    @classmethod
    def of(cls, t: ArrayLike, values: ArrayLike, kind: str, name: str) -> "Curve":
        """Flatten a batch; `ValueError` for shapes that do not fit and times that differ."""
        times, array = np.asarray(t), np.asarray(values, float)
        if not times.ndim or not array.ndim or times.shape[-1] != array.shape[-1]:
            raise ValueError(
                f"{name} has times of shape {times.shape} and values of shape {array.shape}; "
                "expected (time,) and (..., time)."
            )
        rows = times.reshape(-1, times.shape[-1])
        if not np.all(rows == rows[0]):
            raise ValueError(f"{name} has other times in each of its runs; draw one at a time.")
        array = array.reshape(-1, array.shape[-1])
        return cls(rows[0], array, f"{kind}, {len(array)} runs" if len(array) > 1 else kind)

    @property
    def steps(self) -> bool:
        """Whether t counts steps."""
        return np.issubdtype(self.t.dtype, np.integer)


def losses_of(run: object, name: str) -> Curve:
    """The losses of a run, a batch of runs, a sweep's data set, or a pair (t, losses).

    Raises:
        ValueError: for anything else; a data set without losses.
    """
    if isinstance(run, Solved):
        return Curve.of(run.ts, run.losses, _kind(run), name)
    if is_data_set(run):
        held: dict[str, object] = {**run.coords, **run.data_vars}  # type: ignore[attr-defined]
        found = [key for key in map(str, held) if key.rpartition(".")[2] == "losses"]
        if len(found) != 1:
            raise ValueError(
                f"{name} is a data set with {len(found)} variables called losses (variables "
                f"{listed(held)}); return one run from the function that is swept."
            )
        beside = found[0].removesuffix("losses")
        times = f"{beside}ts" if f"{beside}ts" in held else "time"
        if times not in held:
            raise ValueError(f"{name} is a data set without the times {beside}ts of its losses.")
        return Curve.of(np.asarray(held[times]), np.asarray(held[found[0]]), "network", name)
    if _is_pair(run):
        return Curve.of(run[0], run[1], "run", name)
    raise ValueError(_refusal(run, name, "losses"))


def pathways_of(
    run: object, name: str, reduction: Reduction | None, pathway: str | None
) -> dict[tuple[str, int], Curve]:
    """Strengths by (pathway, mode) of a run; of a pair (t, strengths) the pathway is "".

    Raises:
        ValueError: what holds no strengths; networks without a reduction to read them.
    """
    if _is_pair(run):
        t, values = run[0], np.asarray(run[1], float)
        if values.ndim < 2:
            raise ValueError(
                f"{name} has strengths of shape {values.shape}; expected (time, mode)."
            )
        modes = range(values.shape[-1])
        _check_number(name, [""], len(modes))
        return {("", m): Curve.of(t, values[..., m], "run", name) for m in modes}
    kind = "network"
    if isinstance(run, Pathways):
        found, kind = run, "reduction" if run.how == "solved" else "network"
    elif isinstance(run, ReducedTrajectory):
        found, kind = run.pathways(reduction), "reduction"
    elif isinstance(run, Trajectory) or is_data_set(run):
        if reduction is None:
            raise ValueError(
                f"{name} holds networks; modes are read in the frames of a reduction: pass "
                "reduction=gdln.reduce(graph, data)."
            )
        found = reduction.pathways(run)  # type: ignore[arg-type]
    else:
        raise ValueError(_refusal(run, name, "strengths"))
    chosen = list(found) if pathway is None else [pathway]
    if pathway is not None and pathway not in found:
        raise ValueError(f"pathway is {pathway!r}; {name} has {listed(found)}.")
    _check_number(name, chosen, len(found.modes))
    return {
        (key, m): Curve.of(found.ts, found[key][..., m], kind, name)
        for key in chosen
        for m in range(len(found.modes))
    }


def solved_from_start(reduction: Reduction, run: object) -> ReducedTrajectory:
    """The reduced dynamics from the start of a gradient flow, at its times.

    Raises:
        ValueError: other runs, whose theory has to be solved by the caller.
    """
    if not isinstance(run, Trajectory) or run.losses.ndim != 1 or _clock(run):
        raise ValueError(
            "theory is a Reduction, which is solved from the start of one gradient flow; here pass "
            "the solved theory, such as reduction.solve(b0, ts), or for training in steps "
            "reduction.train(b0, rule=optimizer, steps=steps)."
        )
    start = run.model(0)
    b0, outside = reduction.read(start)
    if max(float(share) for share in outside.values()) > 0.01:
        b0, _ = reduction.project(start)
    return reduction.solve(b0, run.ts)


def check_clock(run: object, theory: object) -> None:
    """Raise `ValueError` where one counts steps and the other has times.

    A data set is not searched, since only its variables say what its clock is.
    """
    clocks = [_clock(run), _clock(theory)]
    if None not in clocks and clocks[0] != clocks[1]:
        steps, times = ("run", "theory") if clocks[0] else ("theory", "run")
        raise ValueError(
            f"the {steps} counts steps and the {times} has times in units of tau: solve the "
            "theory in steps, reduction.train(b0, rule=optimizer, steps=steps), or pass pairs "
            "(t, values) with one clock."
        )


def _clock(run: object) -> bool | None:
    """Whether times count steps, where that can be read."""
    if isinstance(run, Curve):
        return run.steps
    if isinstance(run, Solved | Pathways):
        return np.issubdtype(np.asarray(run.ts).dtype, np.integer)
    return np.issubdtype(np.asarray(run[0]).dtype, np.integer) if _is_pair(run) else None


def networks_of(run: object, name: str, reduction: Reduction | None) -> tuple[GatedNetwork, bool]:
    """The networks of a run, and whether their last leading axis is time.

    Raises:
        ValueError: models that were not kept; what holds no networks.
    """
    if isinstance(run, GatedNetwork):
        return run, False
    if isinstance(run, Trajectory) and run.models is not None:
        if not isinstance(run.models, GatedNetwork):
            raise ValueError(f"{name} is a run of {type(run.models).__name__}, which has no nodes.")
        return run.models, True
    if isinstance(run, Trajectory):
        raise ValueError(f"the models of {name} were not kept: pass keep_models=True to the run.")
    if isinstance(run, ReducedTrajectory) or is_data_set(run):
        if reduction is None:
            raise ValueError(
                f"{name} is a {type(run).__name__}, whose networks only its reduction can make: "
                "pass reduction=gdln.reduce(graph, data)."
            )
        return reduction.networks(run), True  # type: ignore[arg-type]
    raise ValueError(_refusal(run, name, "networks"))


def axes_of(ax: object, height: float = 2.4) -> Axes:
    """`ax`, or new axes of a column's width and this height in inches.

    Raises:
        ValueError: for anything else.
    """
    if ax is None:
        return figure(SINGLE, height).add_subplot()
    if not isinstance(ax, Axes):
        raise ValueError(
            f"ax is a {type(ax).__name__}; pass one Axes of matplotlib, such as "
            "plot.figure().add_subplot(), or leave it out."
        )
    return ax


def is_data_set(run: object) -> bool:
    """Whether this is an xarray `Dataset`, without an import of xarray."""
    return hasattr(run, "data_vars") and hasattr(run, "coords")


def _is_pair(run: object) -> TypeGuard[Sequence[ArrayLike]]:
    return isinstance(run, tuple | list) and len(run) == 2 and not isinstance(run[0], str)


def _kind(run: Solved) -> str:
    return "network" if isinstance(run, Trajectory) else "reduction"


def _check_number(name: str, pathways: Sequence[str], modes: int) -> None:
    if len(pathways) * modes > MOST_CURVES:
        raise ValueError(
            f"{name} has {len(pathways)} pathways with {modes} modes each, more curves than can be "
            f"told apart ({MOST_CURVES}): choose a pathway, pathway={pathways[0]!r}, draw "
            "run.pathways(reduction, by='route'), or pass some of the modes as a pair (t, "
            "strengths)."
        )


def _refusal(run: object, name: str, what: str) -> str:
    if isinstance(run, Axes):
        return f"{name} is an Axes: the run comes first and the axes by keyword, ax=ax."
    remedy = (
        "solve it first, .solve(...)"
        if hasattr(run, "solve")
        else "pass what gradient_flow, train or solve returned, the data set of a sweep over them"
        + ("" if what == "networks" else f", or a pair (t, {what})")
    )
    return f"{name} is a {type(run).__name__}, which holds no {what}: {remedy}."


def mapped(runs: object) -> TypeGuard[Mapping[str, object]]:
    """Whether this is a mapping name -> run, and no result that reads like a mapping."""
    return isinstance(runs, Mapping) and not isinstance(runs, Pathways) and not is_data_set(runs)


def last(networks: GatedNetwork) -> GatedNetwork:
    """The networks at the last time."""
    return jax.tree.map(lambda stack: stack[(..., -1, *[slice(None)] * 3)], networks)
