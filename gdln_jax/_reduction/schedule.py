r"""Reductions of data that change: frames shared by all phases, exact switches (theory#sequences).

One set of frames must certify in every phase. b(t) is continuous, and its velocity jumps at a
switch, so that each phase is solved by itself, over its own time from 0 to 1.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import Instead, Result, check_positive_if_known, is_concrete
from gdln_jax._checks.types import ArrayLike, PerEdge, Times, Tolerance
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.schedule import checked_switches
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._ode import (
    MAX_STEPS,
    Adjoint,
    Run,
    Settings,
    Solver,
    checked_times,
    first_of,
    known_array,
    padded,
    settings,
    smallest_entry,
    solve,
)
from gdln_jax._reduction.flow import ReducedTrajectory, Strengths, velocity_of
from gdln_jax._reduction.loss import with_products
from gdln_jax._reduction.merging import program_loss
from gdln_jax._reduction.quotient import REDUCED, Quotient, make_quotients
from gdln_jax._reduction.reduction import Reduction, StrengthsLike
from gdln_jax._reduction.strengths import FrameView, MatrixStrengths, ModeStrengths
from gdln_jax._solution import GAVE_UP, OK, Trajectory, raise_if_failed

# An opposite task drives a strength towards 0, from where it is learned again: it keeps its digits
# down to this share of the smallest one at the start.
_SMALLEST = 1e-10


class QuotientSchedule(Result, SeveralArrays, eqx.Module):
    """Dynamics on classes of edges that hold in all phases; made by `ReducedSchedule.quotient`.

    - `parts`: the quotient for each data set; they share classes and start.
    - `times`: (switch,); `order`: (phase,) the data set of each phase.
    """

    _instead = Instead(model=REDUCED)
    _exported = ("times",)
    _units: ClassVar = {"times": "tau"}

    parts: tuple[Quotient, ...]
    times: Float[Array, " switch"]
    order: tuple[int, ...] = eqx.field(static=True)

    @property
    def classes(self) -> tuple[tuple[str, ...], ...]:
        """Names of the edges that start equal and stay equal in every phase."""
        return self.parts[0].classes

    def solve(
        self,
        ts: Times,
        *,
        x0: ArrayLike | None = None,
        tau: ArrayLike = 1.0,
        rtol: Tolerance = None,
        atol: Tolerance = None,
        solver: Solver = None,
        max_steps: int = MAX_STEPS,
        adjoint: Adjoint = None,
        throw: bool = True,
    ) -> ReducedTrajectory:
        """Solve from `x0` (class, mode) as `ReducedSchedule.solve` does."""
        first = self.parts[0]
        start = first.x0 if x0 is None else first._start(x0)
        rates = (first.rates / first.tau)[:, None]
        programs = [part.program for part in self.parts]
        setup = settings(
            start.dtype, rtol=rtol, atol=atol, solver=solver, adjoint=adjoint, max_steps=max_steps
        )
        return solve_phases(
            start,
            program_loss,
            programs,
            self,
            ts,
            setup,
            tau=tau,
            rates=rates,
            read=first.by_edge,
            throw=throw,
        )

    def losses(self, run: ReducedTrajectory) -> Float[Array, "data time"]:
        """Return the loss of every data set along a run of this."""
        return jnp.stack([jax.vmap(part.loss)(run.x) for part in self.parts])

    def __repr__(self) -> str:
        return f"QuotientSchedule({len(self.order)} phases, {self.parts[0]!r})"


class ReducedSchedule(Result, SeveralArrays, eqx.Module):
    """A gated deep linear network that learns tasks in turn, in coordinates that all of them share.

    - `phases`: the `Reduction` of each phase, all with the same `frames`; coupled if any is.
    - `times`: (switch,) when the next phase begins; `order`: (phase,) the data set of each.
    - `residuals`: (phase,) certificates; `residual`: the largest.

    Made by `gdln_jax.reduce(graph, schedule)`. A pytree, differentiable in `times`.
    """

    _instead = Instead(model=REDUCED, data="pass the Schedule that it was made of")
    _exported = "times", "residuals"
    _units: ClassVar = {"times": "tau"}

    parts: tuple[Reduction, ...]
    times: Float[Array, " switch"]
    order: tuple[int, ...] = eqx.field(static=True)

    @property
    def phases(self) -> tuple[Reduction, ...]:
        """The reduction of each phase."""
        return tuple(self.parts[number] for number in self.order)

    @property
    def frames(self) -> FrameView:
        """Edge -> (U_e, V_e), those of every phase."""
        return self.parts[0].frames

    @property
    def residuals(self) -> Float[np.ndarray, " phase"]:
        """The certificate of each phase, see `Reduction`."""
        return np.array([part.residual for part in self.phases])

    @property
    def residual(self) -> float:
        """The largest certificate."""
        return float(self.residuals.max())

    def with_times(self, times: ArrayLike | Sequence[ArrayLike]) -> "ReducedSchedule":
        """Return the same phases with other switches, which may be traced."""
        times = checked_switches(times, "times")
        if times.shape != self.times.shape:
            raise ValueError(f"times has shape {times.shape}; expected {self.times.shape}.")
        return eqx.tree_at(lambda s: s.times, self, times)

    def embed(self, b: StrengthsLike) -> GatedNetwork:
        """Return the full network of strengths, see `Reduction.embed`."""
        return self.parts[0].embed(b)

    def project(
        self, net: GatedNetwork | Trajectory, *, align: bool = True
    ) -> tuple[ModeStrengths | MatrixStrengths, dict[str, float | np.ndarray]]:
        """Return the strengths of networks in the frames, see `Reduction.project`."""
        return self.parts[0].project(net, align=align)

    def loss(self, b: StrengthsLike, phase: int) -> Float[Array, ""]:
        """Return l(b) on the data of a phase, counted from 0."""
        return self.phases[phase].loss(b)

    def losses(self, run: ReducedTrajectory) -> Float[Array, "data time"]:
        """Return the loss of every data set along a run of this, in whatever phase it is."""
        return jnp.stack([jax.vmap(part.loss)(run.b) for part in self.parts])

    def solve(
        self,
        b0: StrengthsLike,
        ts: Times,
        *,
        tau: PerEdge = 1.0,
        rtol: Tolerance = None,
        atol: Tolerance = None,
        solver: Solver = None,
        max_steps: int = MAX_STEPS,
        adjoint: Adjoint = None,
        throw: bool = True,
    ) -> ReducedTrajectory:
        r"""Solve $\tau \dot b_e = -\partial l/\partial b_e$ through all phases, from `b0`.

        No step crosses a switch. Differentiable in `times` exactly (at a saved time that is itself
        a switch: from the left), in `b0`, `tau` and the data.

        Args:
            b0: strengths as in `Reduction.solve`, and so are the other options.
            ts: (time,) increasing, in the units of `tau`; they need not hold the switches.
            atol: default `rtol` times 1e-10 of the smallest strength of `b0`: what an opposite task
                drives towards 0 is learned again from there. Of a coupled form: as in
                `Reduction.solve`.

        Returns:
            A `ReducedTrajectory` whose losses are of the data that hold, at a switch the new ones;
            `losses(run)` has those of all data sets.

        Raises:
            ValueError, SolveError: as `Reduction.solve`.
        """
        first = self.parts[0]
        start, loss, _, scale, read = first._equations(b0)
        datas = [part._equations(b0)[2] for part in self.parts]
        tau, rates = first._clock(tau, start)
        dtype = jnp.result_type(*jax.tree.leaves(start))
        setup = settings(
            dtype, rtol=rtol, atol=atol, solver=solver, adjoint=adjoint, max_steps=max_steps
        )
        return solve_phases(
            start,
            loss,
            datas,
            self,
            ts,
            setup,
            tau=tau,
            rates=rates,
            read=read,
            throw=throw,
            scale=scale,
        )

    def quotient(self, b0: StrengthsLike, *, seed: int = 0) -> QuotientSchedule:
        """Merge the edges that start equal and receive equal gradients in every phase.

        Args:
            b0: strengths at the start.
            seed: of the points at which gradients are compared.

        Raises:
            ValueError: as `Reduction.quotient`.
        """
        first = self.parts[0]
        start = first._merged_start(b0)
        datas, typical = zip(*((part.mode_data, part.typical) for part in self.parts), strict=True)
        clock = np.ones(len(first.graph.trainable))
        parts = make_quotients(datas, start, np.max(typical, axis=0), None, clock, seed=seed)
        return QuotientSchedule(parts, self.times, self.order)

    def __repr__(self) -> str:
        kind = "coupled" if self.parts[0].coupled else "diagonal"
        shown = f"{len(self.order)} phases of {len(self.parts)} data sets"
        if is_concrete(self.times):
            shown += f", switches at {', '.join(f'{t:g}' for t in np.asarray(self.times))}"
        return (
            f"ReducedSchedule({self.parts[0].modes} modes, {shown}, {kind}, residual "
            f"{self.residual:.1e})"
        )


def solve_phases(
    start: PyTree,
    loss: Callable[..., Array],
    datas: Sequence[PyTree],
    schedule: ReducedSchedule | QuotientSchedule,
    ts: Times,
    setup: Settings,
    *,
    tau: ArrayLike,
    rates: PyTree,
    read: Callable[[PyTree], Strengths],
    throw: bool,
    scale: Array | None = None,
) -> ReducedTrajectory:
    """Solve phase by phase; `datas` by data set, the rest as for `solve_reduced`."""
    given = checked_times(ts, jnp.result_type(float))
    times = jnp.asarray(padded(given, start))
    check_positive_if_known(tau=tau)
    clock = known_array(tau, times.dtype)
    rates = jax.tree.map(lambda leaf: known_array(leaf, times.dtype), rates)
    scale = _SMALLEST * smallest_entry(start) if scale is None else scale
    switches = jnp.clip(schedule.times.astype(times.dtype), times[0], times[-1])
    ends = jnp.concatenate([times[:1], switches, times[-1:]])
    runs: list[Run] = []
    state = start
    for k, number in enumerate(schedule.order):
        span = ends[k], ends[k + 1]
        run = _phase(state, datas[number], span, times, clock, rates, setup, scale, loss)
        state = run.final
        runs.append(run)
    # The state is continuous: at a switch that of the phase before it. The loss is not.
    before = jnp.searchsorted(switches, times, side="left")
    here = jnp.arange(len(times))
    coordinates = jax.tree.map(
        lambda *leaves: jnp.stack(leaves)[before, here], *(run.saved for run in runs)
    )
    losses = _losses(coordinates, tuple(datas), loss)
    of_data = jnp.asarray(schedule.order)[jnp.searchsorted(switches, times, side="right")]
    losses = losses[of_data, here]
    complete = jnp.stack([run.complete for run in runs])
    stats = {name: sum(run.stats[name] for run in runs) for name in runs[0].stats}
    coordinates, losses = first_of((coordinates, losses), given.shape[0])
    whole = ReducedTrajectory(
        ts=jnp.asarray(given),
        losses=losses,
        status=jnp.where(jnp.all(complete) & jnp.all(jnp.isfinite(losses)), OK, GAVE_UP),
        stats={name: jnp.asarray(count) for name, count in stats.items()},
        b=read(coordinates),
    )

    def reason() -> str:
        failed = int(np.argmin(np.asarray(complete)))
        share = max(float(runs[failed].reached), 0.0)
        at = float(ends[failed] + share * (ends[failed + 1] - ends[failed]))
        return (
            f"the reduced dynamics stopped in phase {failed} at time {at:.6g} of "
            f"{float(times[-1]):.6g} (max_steps = {setup.max_steps} for each phase): loosen rtol, "
            "raise max_steps, pass a stiff solver such as diffrax.Kvaerno5(), or check b0 for NaN."
        )

    if throw:
        raise_if_failed(whole, reason)
    return whole


@eqx.filter_jit
def _phase(
    start: PyTree,
    data: PyTree,
    span: tuple[Array, Array],
    ts: Array,
    tau: Array | np.ndarray,
    rates: PyTree,
    setup: Settings,
    scale: Array,
    loss: Callable[..., Array],
) -> Run:
    """One phase over its own time from 0 to 1; saved at all of `ts`, those outside at its ends."""
    begin, end = span
    length = end - begin
    own = (ts - begin) / jnp.where(length > 0, length, 1.0)
    own = jnp.where(ts <= begin, 0.0, jnp.where(ts <= end, own, 1.0))
    knots = jnp.concatenate([jnp.zeros(1), own, jnp.ones(1)])
    # A rate of `length` makes the derivative by a switching time exact.
    args = with_products(data), tau, jax.tree.map(lambda rate: length * rate, rates)
    run = solve(velocity_of(loss), start, knots, args, setup, scale=scale)
    return run._replace(saved=jax.tree.map(lambda leaf: leaf[1:-1], run.saved))


@eqx.filter_jit
def _losses(
    coordinates: PyTree, datas: tuple[PyTree, ...], loss: Callable[..., Array]
) -> Float[Array, "data time"]:
    return jnp.stack([jax.vmap(loss, (0, None))(coordinates, data) for data in datas])
