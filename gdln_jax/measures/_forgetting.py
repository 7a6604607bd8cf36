"""Forgetting, transfer and savings of a run through a sequence of tasks (theory#forgetting)."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gdln_jax import ReducedSchedule, ReducedTrajectory, Schedule, Trajectory, mse
from gdln_jax._checks import Result, is_concrete
from gdln_jax._checks.types import ArrayLike, Loss, Times

# A saved time is an end of a phase up to this, relative to the length of the run.
_SAME = 1e-6


class Forgetting(Result, eqx.Module):
    """What a run forgets of task A while it learns B, and what it saves when A returns.

    - `losses`: (task, time) of every data set; `level`: of the loss of A, for the times.
    - `backward`: L_A at the end of B minus at the end of A, above 0 where A is forgotten.
    - `forward`: L_B at the start of B minus at the start of the run, below 0 where A helps.
    - `t_learn`, `t_relearn`: from the start of the first and the next phase of A to `level`.
    - `savings`: 1 - t_relearn/t_learn, negative where A is harder to learn again. Under a level
      that is never reached it is NaN, and `reasons` say why.
    """

    _units: ClassVar = {"t_learn": "those of the times", "t_relearn": "those of the times"}

    losses: Float[Array, "task time"]
    backward: Float[Array, ""]
    forward: Float[Array, ""]
    savings: Float[Array, ""]
    t_learn: Float[Array, ""]
    t_relearn: Float[Array, ""]
    level: Float[Array, ""]
    _again: int | None = eqx.field(static=True)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why values do not exist; empty if all do."""
        if not is_concrete(self.savings):
            raise ValueError(
                "reasons are words for values that can be seen; not under jit or vmap."
            )
        found = []
        if np.isnan(self.t_learn):
            found.append(
                f"t_learn: the loss did not reach {float(self.level):g} in the first phase"
            )
        elif self.t_learn == 0:
            found.append(f"savings: the loss was below {float(self.level):g} before it was learned")
        if self._again is None:
            found.append("t_relearn: no later phase has the data of the first again")
        elif np.isnan(self.t_relearn):
            found.append(
                f"t_relearn: the loss did not reach {float(self.level):g} in phase {self._again}"
            )
        return tuple(found)

    def __repr__(self) -> str:
        if not is_concrete(self.savings) or self.savings.ndim:
            return f"Forgetting(savings={self.savings})"
        names = "backward", "forward", "savings", "t_learn", "t_relearn", "level"
        shown = (f"{name}={float(getattr(self, name)):.6g}" for name in names)
        return f"Forgetting({', '.join(shown)})"


class _Phases(NamedTuple):
    """When phases begin and end, as positions among the saved times; and their data sets."""

    ends: list[Array]
    order: tuple[int, ...]


def forgetting(
    run: Trajectory | ReducedTrajectory | tuple[Times, PyTree],
    schedule: Schedule | ReducedSchedule,
    *,
    level: ArrayLike | None = None,
    first: int = 0,
    second: int = 1,
    loss: Loss = mse,
    tau: ArrayLike = 1.0,
) -> Forgetting:
    """Return backward and forward transfer and savings between two tasks of a run.

    Task A is that of phase `first`, B that of phase `second`. *Untrained* is the network at the
    start of the run.

    Args:
        run: of `gradient_flow` or `train` with its models, or `(ts, models)` with a leading axis of
            times; of `ReducedSchedule.solve`.
        schedule: what it learned. The ends of its phases must be among the saved times.
        level: of the loss of A at which it counts as learned; default half of its loss at the start
            of phase `first`.
        first, second: numbers of phases.
        loss: a function (model, data) -> number, for runs of models.
        tau: time constant of a reduced run.

    Returns:
        `Forgetting`. Of a `ReducedSchedule` the times are located on the equations, and all is
        differentiable in switches, start and data; otherwise they are linear between saved times.

    Raises:
        ValueError: a run without models or of another kind than the schedule, an end of a phase
            that was not saved, or phases that do not exist or are not in order.
    """
    reduced = isinstance(schedule, ReducedSchedule)
    if reduced != isinstance(run, ReducedTrajectory):
        raise ValueError(
            f"run is a {type(run).__name__} and schedule a {type(schedule).__name__}; a run of "
            "ReducedSchedule.solve needs that ReducedSchedule, any other the Schedule."
        )
    if isinstance(run, ReducedTrajectory):
        assert isinstance(schedule, ReducedSchedule)
        ts, losses = run.ts, schedule.losses(run)
    else:
        assert isinstance(schedule, Schedule)
        ts, losses = _of_models(run, schedule, loss)
    phases = _phases(ts, schedule)
    if not 0 <= first < second < len(phases.order):
        raise ValueError(
            f"first is {first} and second {second}; give numbers of phases in order, from 0 to "
            f"{len(phases.order) - 1}."
        )
    a, b = phases.order[first], phases.order[second]
    later = range(second + 1, len(phases.order))
    again = next((k for k in later if phases.order[k] == a), None)
    of_a, of_b, ends = losses[a], losses[b], phases.ends
    level = of_a[ends[first]] / 2 if level is None else jnp.asarray(level, losses.dtype)

    def until(phase: int) -> Array:
        begin, end = ends[phase], ends[phase + 1]
        if isinstance(run, ReducedTrajectory):
            assert isinstance(schedule, ReducedSchedule)
            start = jax.tree.map(lambda leaf: leaf[begin], run.b)
            found = schedule.phases[phase].time_to(
                level, start, t1=ts[end] - ts[begin], tau=tau, throw=False
            )
            time = jnp.where(found.reached, found.time, jnp.nan)
        else:
            time = _interpolated(ts, of_a, level, begin, end)
        return jnp.where(of_a[begin] <= level, 0.0, time)

    t_learn = until(first)
    t_relearn = jnp.full_like(t_learn, jnp.nan) if again is None else until(again)
    ratio = t_relearn / jnp.where(t_learn > 0, t_learn, jnp.nan)
    return Forgetting(
        losses=losses,
        backward=of_a[ends[second + 1]] - of_a[ends[first + 1]],
        forward=of_b[ends[second]] - of_b[0],
        savings=1 - ratio,
        t_learn=t_learn,
        t_relearn=t_relearn,
        level=level,
        _again=again,
    )


def _of_models(
    run: Trajectory | tuple[Times, PyTree], schedule: Schedule, loss: Loss
) -> tuple[Array, Float[Array, "task time"]]:
    """Times, and the loss of every data set along the models of a run."""
    ts, models = (run.ts, run._kept_models()) if isinstance(run, Trajectory) else run
    ts = jnp.asarray(ts)
    if isinstance(run, Trajectory):
        steps = jnp.issubdtype(ts.dtype, jnp.integer)
        schedule.check_unit("steps" if steps else "times", "this run")
    return ts.astype(float), _all_losses(models, schedule, loss)


@eqx.filter_jit
def _all_losses(models: PyTree, schedule: Schedule, loss: Loss) -> Float[Array, "task time"]:
    count = schedule.counts.shape[0]
    datas = [jax.tree.map(lambda leaf, k=k: leaf[k], schedule.data) for k in range(count)]
    return jnp.stack([eqx.filter_vmap(lambda m, d=data: loss(m, d))(models) for data in datas])


def _phases(ts: Array, schedule: Schedule | ReducedSchedule) -> _Phases:
    """Where each phase begins, and the end of the last, among the saved times."""
    switches = schedule.times if isinstance(schedule, ReducedSchedule) else schedule.switches
    known = is_concrete((ts, switches))
    ends = [jnp.asarray(0)]
    for k in range(len(switches)):
        gaps = jnp.abs(jax.lax.stop_gradient(ts - switches[k]))
        at = jnp.argmin(gaps)
        if known and float(gaps[at]) > _SAME * float(ts[-1] - ts[0]):
            raise ValueError(
                f"the run has no record at {float(switches[k]):g}, where phase {k + 1} begins; "
                "save there, np.union1d(ts, schedule.switches)."
            )
        ends.append(at)
    order = tuple(int(number) for number in schedule.order)
    return _Phases([*ends, jnp.asarray(len(ts) - 1)], order)


def _interpolated(ts: Array, losses: Array, level: Array, begin: Array, end: Array) -> Array:
    """The time since `begin` at which the loss first falls to the level; NaN if never."""
    here = jnp.arange(len(ts))
    reached = (losses <= level) & (here > begin) & (here <= end)
    at = jnp.maximum(jnp.argmax(reached), 1)
    before, after = losses[at - 1], losses[at]
    fall = jnp.where(before > after, before - after, 1.0)
    time = ts[at - 1] + (before - level) / fall * (ts[at] - ts[at - 1]) - ts[begin]
    return jnp.where(jnp.any(reached), time, jnp.nan)
