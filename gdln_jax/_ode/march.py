"""The one loop over the steps of a solver: to saved times, or to where a level is crossed.

Solvers and the control of the step size are diffrax's. Its own loop, `diffeqsolve`, interpolates
between steps and checks its input by callbacks, and compiles twice as long: here steps end on every
saved time, and a crossing is located by steps.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from gdln_jax._progress import REPORTS, Reporter

# Kinds of loop, and of the loop over the stages of a step, that carry the derivatives asked for.
KINDS = {
    diffrax.RecursiveCheckpointAdjoint: ("checkpointed", None),
    diffrax.DirectAdjoint: ("bounded", "bounded"),
    diffrax.ForwardMode: ("lax", "lax"),
}
# Length of the first step, in units of time, as in diffeqsolve. It grows tenfold a step.
_FIRST_SIZE = 0.01
# A crossing is located to this share of a step; what is left goes with its third power.
_LOCATED = 1e-8


class Gap(NamedTuple):
    """What is to cross 0: `measure(t, y, args) - level`."""

    measure: Callable[..., Array]
    level: Array


class _Search(eqx.Module):
    """Where a gap crosses 0 within a step, by the Illinois rule.

    `lo` and `hi` are lengths of a step to before and to behind the crossing, `gap_lo` and `gap_hi`
    the gaps there, in the sign of the start; before there is a bracket `gap_lo` is that of now.
    """

    lo: Array
    hi: Array
    gap_lo: Array
    gap_hi: Array
    sign: Array
    on: Array
    behind: Array

    @classmethod
    def start(cls, gap: Array) -> "_Search":
        zero, no = jnp.zeros_like(gap), jnp.asarray(False)
        sign = jnp.where(gap < 0, -1, 1).astype(gap.dtype)
        return cls(zero, zero, sign * gap, zero, sign, no, no)

    @property
    def trial(self) -> Array:
        """The length of step to try next."""
        fall = self.gap_lo - self.gap_hi
        return self.hi + self.gap_hi * (self.hi - self.lo) / jnp.where(fall > 0, fall, 1)

    def tried(self, length: Array, gap: Array, kept: Array) -> "_Search":
        """With what a step of `length` led to, which the controller `kept` or not."""
        gap = self.sign * gap
        behind = gap <= 0
        on = self.on | (kept & behind)
        half = jnp.where(behind == self.behind, 0.5, 1).astype(gap.dtype)
        bracket = _Search(
            jnp.where(behind, self.lo, length),
            jnp.where(behind, length, self.hi),
            jnp.where(behind, half * self.gap_lo, gap),
            jnp.where(behind, gap, half * self.gap_hi),
            self.sign,
            on,
            behind,
        )
        ahead = eqx.tree_at(lambda s: s.gap_lo, self, jnp.where(kept, gap, self.gap_lo))
        return _where(on, bracket, ahead)


class March(eqx.Module):
    """The state of `march`; at its end `y` is the state at time `t`.

    - `want`: where the controller of the step size would end the next step.
    - `solver`, `control`: the states of solver and controller.
    - `jumped`: whether the velocity jumped at `t`; None where it never does.
    - `index`: the next of the saved times. `saved`: what `look` gave, by saved time.
    - `sound`: whether the solver can continue.
    - `steps`, `kept`: how many steps were tried, and kept.
    - `shown`: the share of the time that was reported last.
    - `crossed`: whether the gap crossed 0, at `t`.
    """

    t: Array
    want: Array
    y: PyTree
    solver: PyTree
    control: PyTree
    jumped: Array | None
    index: Array
    saved: PyTree
    sound: Array
    steps: Array
    kept: Array
    shown: Array | None
    search: _Search | None
    crossed: Array


@runtime_checkable
class _Options(Protocol):
    """What `march` reads of the set-up of a solver."""

    @property
    def solver(self) -> diffrax.AbstractSolver: ...
    @property
    def adjoint(self) -> diffrax.AbstractAdjoint: ...
    @property
    def max_steps(self) -> int: ...


def march(
    velocity: Callable[..., PyTree],
    y0: PyTree,
    t0: Array,
    ts: Array,
    args: PyTree,
    options: _Options,
    controller: diffrax.PIDController,
    *,
    look: Callable[..., PyTree] = lambda *_: None,
    gap: Gap | None = None,
    jumps: Array | None = None,
    report: Reporter | None = None,
    first: Array | int = 0,
) -> March:
    """Step from `t0` to the last of `ts`, or to where `gap` crosses 0.

    Every step ends at the latest on the next of `ts`, where `look(t, y, args)` is saved; a start at
    a saved time is a step of no length. Times up to `t0` are saved once, at the last of them.
    The solver sees the state as one row, and what is saved is one row: a step is a dozen operations
    on every array, and so is its program.

    Args:
        velocity, args: the vector field `velocity(t, y, args)` and its parameters.
        options: solver, adjoint and the largest number of steps.
        first: `start_index(ts, t0)`.
        jumps: times at which `velocity` jumps; no step crosses one.
        report: called with the time since `t0`.
    """
    row, state = ravel_pytree(y0)
    shapes = jax.eval_shape(lambda t, y: look(t, y, args), t0, y0)
    kind, stages = KINDS[type(options.adjoint)]
    loop = _Loop(
        t0,
        ts,
        args,
        diffrax.ODETerm(lambda t, y, args: ravel_pytree(velocity(t, state(y), args))[0]),
        _prepared(options.solver, controller, stages),
        controller if jumps is None else diffrax.ClipStepSizeController(controller, jump_ts=jumps),
        lambda t, y: _rows(look(t, state(y), args)),
        jax.eval_shape(_rows, shapes),
        jnp.asarray(first),
        None if gap is None else lambda t, y: gap.measure(t, state(y), args) - gap.level,
        report,
    )
    end = eqxi.while_loop(
        loop.continues,
        loop.step,
        loop.begin(row),
        max_steps=options.max_steps,
        buffers=lambda now: now.saved,
        kind=kind,
        checkpoints=getattr(options.adjoint, "checkpoints", None),
    )
    return dataclasses.replace(end, y=state(end.y), saved=_arrays(end.saved, shapes))


def start_index(ts: Array, t0: Array) -> Array:
    """The number of the first saved time that needs an evaluation: the last one up to `t0`."""
    return jnp.maximum(jnp.sum(ts <= t0) - 1, 0)


@dataclasses.dataclass(frozen=True, eq=False)
class _Loop:
    """What one pass of the loop needs beside its state; `look` and `gap` of time and row."""

    t0: Array
    ts: Array
    args: PyTree
    term: diffrax.ODETerm
    solver: diffrax.AbstractSolver
    controller: diffrax.AbstractStepSizeController
    look: Callable[[Array, Array], "_Rows"]
    shapes: "_Rows"
    first: Array
    gap: Callable[[Array, Array], Array] | None
    report: Reporter | None

    def begin(self, row: Array) -> March:
        """The state before the first step."""
        first_size, order = (
            jnp.asarray(_FIRST_SIZE, self.ts.dtype),
            self.solver.error_order(self.term),
        )
        want, control = self.controller.init(
            self.term, self.t0, self.ts[-1], row, first_size, self.args, self.solver.func, order
        )
        no, zero = jnp.asarray(False), jnp.asarray(0)
        jumps = isinstance(self.controller, diffrax.ClipStepSizeController)
        gap = None if self.gap is None else jax.lax.stop_gradient(self.gap(self.t0, row))
        return March(
            t=self.t0,
            want=jnp.asarray(want),
            y=row,
            solver=self.solver.init(self.term, self.t0, want, row, self.args),
            control=jax.tree.map(jnp.asarray, control),
            jumped=no if jumps else None,
            index=self.first,
            saved=jax.tree.map(
                lambda leaf: jnp.zeros((len(self.ts), *leaf.shape), leaf.dtype), self.shapes
            ),
            sound=jnp.asarray(True),
            steps=zero,
            kept=zero,
            shown=None if self.report is None else jnp.zeros_like(self.t0),
            search=None if gap is None else _Search.start(gap),
            crossed=no if gap is None else gap == 0,
        )

    def continues(self, now: March) -> Array:
        """Whether another step is due; the first is, if only to look at the start."""
        begun = now.index != self.first
        return now.sound & ~now.crossed & ((now.t < self.ts[-1]) | ~begun)

    def step(self, whole: March) -> March:
        """One step, kept or not."""
        # Buffers of a loop can be written only.
        now, saved = dataclasses.replace(whole, saved=None), whole.saved
        upcoming = jnp.minimum(now.index, len(self.ts) - 1)
        end = jnp.minimum(now.want, self.ts[upcoming])
        if now.search is not None:
            trial = jax.lax.stop_gradient(now.t + now.search.trial)
            end = jnp.where(now.search.on, trial, end)
        after, kept = self._stepped(now, end)
        if self.gap is not None:
            gap = jax.lax.stop_gradient(self.gap(end, after.y))
            after, kept = _located(now, after, kept, end, gap)
        landed = kept & (after.t >= self.ts[upcoming])
        seen = jax.lax.cond(
            eqxi.unvmap_any(landed),
            lambda: self.look(self.ts[upcoming], after.y),
            lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.shapes),
        )

        def write(one: Array, every: PyTree) -> PyTree:
            # An array will do, though it is annotated as a bool.
            return eqxi.buffer_at_set(every, upcoming, one, pred=landed)  # type: ignore[arg-type]

        return dataclasses.replace(
            after,
            y=jnp.where(kept, after.y, now.y),
            solver=_where(kept, after.solver, now.solver),
            index=now.index + landed.astype(now.index.dtype),
            saved=jax.tree.map(write, seen, saved),
            shown=_reported(self.report, now.shown, after.t - self.t0, self.ts[-1] - self.t0),
        )

    def _stepped(self, now: March, end: Array) -> tuple[March, Array]:
        """A step to `end`, which becomes the state whether it is kept or not, and whether it is."""
        still = end <= now.t
        jumped = False if now.jumped is None else now.jumped
        y, error, _, inner, solved = self.solver.step(
            self.term, now.t, end, now.y, self.args, now.solver, jumped
        )
        order = self.solver.error_order(self.term)
        assert isinstance(y, jax.Array)
        assert error is not None
        assert order is not None
        error = jnp.where(jnp.isnan(error), jnp.inf, error)
        kept, t, want, jumped, control, controlled = self.controller.adapt_step_size(
            now.t, end, now.y, y, self.args, error, order, now.control
        )
        fine = (controlled == diffrax.RESULTS.successful) & (
            (solved == diffrax.RESULTS.successful) | ~kept
        )
        after = dataclasses.replace(
            now,
            t=t,
            want=want,
            y=y,
            solver=inner,
            control=jax.tree.map(jnp.asarray, control),
            jumped=None if now.jumped is None else jumped,
            sound=fine,
            steps=now.steps + 1,
            kept=now.kept + jnp.asarray(kept).astype(now.kept.dtype),
        )
        # A step of no length, to look at the start, says nothing of the size of the next.
        rest = dataclasses.replace(now, solver=inner, steps=now.steps + 1, kept=now.kept + 1)
        return _where(still, rest, after), jnp.asarray(kept) | still


# Type -> all entries of that type.
_Rows = dict[str, Array]


def _rows(tree: PyTree) -> _Rows:
    """The arrays of `tree` as one row for each of their types."""
    parts: dict[str, list[Array]] = {}
    for leaf in jax.tree.leaves(tree):
        parts.setdefault(str(leaf.dtype), []).append(jnp.ravel(leaf))
    return {kind: jnp.concatenate(rows) for kind, rows in parts.items()}


def _arrays(rows: _Rows, shapes: PyTree) -> PyTree:
    """Arrays of these shapes, with one leading axis, from stacks of their `_rows`."""
    leaves, structure = jax.tree.flatten(shapes)
    read, arrays = dict.fromkeys(rows, 0), []
    for leaf in leaves:
        kind = str(leaf.dtype)
        start, read[kind] = read[kind], read[kind] + leaf.size
        stack = rows[kind][:, start : read[kind]]
        arrays.append(stack.reshape(len(stack), *leaf.shape))
    return jax.tree.unflatten(structure, arrays)


def _located(now: March, after: March, kept: Array, end: Array, gap: Array) -> tuple[March, Array]:
    """The same step, which is kept if it does not lead behind the crossing, or ends on it."""
    assert now.search is not None
    length = end - now.t
    search = now.search.tried(length, gap, kept)
    near = _LOCATED * search.hi + 8 * jnp.finfo(end.dtype).eps * jnp.abs(end)
    found = now.search.on & (jnp.abs(search.trial - length) <= near)
    held = dataclasses.replace(
        now,
        t=jnp.where(found, end, now.t),
        y=after.y,
        solver=after.solver,
        sound=jnp.isfinite(gap),
        steps=now.steps + 1,
    )
    after = dataclasses.replace(_where(search.on, held, after), search=search, crossed=found)
    return after, jnp.where(search.on, found, kept)


def _reported(
    report: Reporter | None, shown: Array | None, since: Array, span: Array
) -> Array | None:
    """Report the time since the start at most `REPORTS` times; the share reported last."""
    if report is None or shown is None:
        return None
    share = since / span
    due = share - shown >= 1 / REPORTS
    report(due, since)
    return jnp.where(due, share, shown)


def _prepared(
    solver: diffrax.AbstractSolver, controller: diffrax.PIDController, stages: str | None
) -> diffrax.AbstractSolver:
    """The solver with a loop over stages of this kind, and implicit ones with tolerances."""
    finder = getattr(solver, "root_finder", None)
    from_controller = diffrax.ImplicitEuler().root_finder.rtol
    names = [n for n in ("rtol", "atol", "norm") if getattr(finder, n, None) is from_controller]
    if names:
        solver = eqx.tree_at(
            lambda s: [getattr(s.root_finder, n) for n in names],
            solver,
            [getattr(controller, n) for n in names],
        )
    if stages is not None and getattr(solver, "scan_kind", stages) is None:
        solver = eqx.tree_at(lambda s: s.scan_kind, solver, stages, is_leaf=lambda x: x is None)
    return solver


def _where(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
