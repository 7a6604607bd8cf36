"""Gradient flow of a reduced loss, by diffrax.

Velocity and loss are its own, so that its agreement with `gradient_flow` is a test; the set-up of
the solver is shared, and held to SciPy's.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import check_positive_if_known
from gdln_jax._checks.types import ArrayLike, Times
from gdln_jax._network.edges import EdgeArrays
from gdln_jax._network.pathways import Pathways, pathways
from gdln_jax._ode import (
    Run,
    Settings,
    checked_times,
    end_reported,
    first_of,
    known_array,
    loss_reported,
    padded,
    smallest_entry,
    solve,
)
from gdln_jax._progress import Progress, Reporter, reporting
from gdln_jax._reduction.loss import with_products
from gdln_jax._reduction.strengths import ClassStrengths, MatrixStrengths, ModeStrengths
from gdln_jax._solution import GAVE_UP, OK, Reads, Solution, raise_if_failed

Strengths = ModeStrengths | MatrixStrengths | ClassStrengths


class ReducedTrajectory(Solution):
    """A solution of the reduced dynamics.

    Beside what every `Solution` has (`ts` in the units of tau):

    - `b`: mapping edge -> (time, mode); of a coupled reduction edge -> (time, mode, mode). On a
      quotient the strengths of an edge are looked up when asked for, and `x` has them by class.
    - `optimizer_state`: that of discrete training after the last step, for `train(resume=)`.
    """

    _asked: ClassVar = {
        **Solution._asked,
        **dict.fromkeys(
            ("weights", "models", "networks", "strengths"),
            "strengths are .b[edge]; Reduction.networks gives the networks",
        ),
        "steps": "the times are .ts, the number of steps of the solver is .stats['num_steps']",
    }

    b: Strengths
    optimizer_state: PyTree = None

    @property
    def final(self) -> Strengths:
        """Strengths at the last time."""
        inner = self.b.core + 1
        return jax.tree.map(lambda stack: stack[(..., -1, *[slice(None)] * inner)], self.b)

    @property
    def x(self) -> Float[Array, "*batch time cls mode"]:
        """Strengths by class of edges; of solutions of a quotient only."""
        if not isinstance(self.b, ClassStrengths):
            raise AttributeError(
                "x holds strengths by class, which a Quotient's solution has; read this one by "
                "edge, run.b[edge]."
            )
        return self.b.x

    def pathways(self, reduction: Reads | None = None, *, by: str = "path") -> Pathways:
        """Return the strengths of all pathways over time, see `Reduction.pathways`.

        Args:
            reduction: of which this is a run; needed in its coupled form only, where it says how
                many rows of a matrix are modes.
            by: `"path"` or `"route"`.

        Raises:
            ValueError: a coupled run without its reduction; as `Reduction.pathways`.
        """
        modes = getattr(reduction, "modes", None)
        if isinstance(self.b, MatrixStrengths) and modes is None:
            raise ValueError(
                "the matrices of a coupled run have more rows than there are modes: pass the "
                "reduction that it is a run of, run.pathways(reduction)."
            )
        b = self.b.expanded() if isinstance(self.b, ClassStrengths) else self.b
        return pathways(b, self.ts, by=by, how="solved", modes=modes)

    def _edges(self) -> EdgeArrays:
        return self.b

    def _contents(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        if isinstance(self.b, ClassStrengths):
            return {"x": (("time", "class", "mode"), self.b.x)}
        inner = ("mode",) if isinstance(self.b, ModeStrengths) else ("row", "column")
        values = jnp.stack(list(self.b.values()), axis=self.losses.ndim - 1)
        return {"b": (("edge", "time", *inner), values)}

    def _coordinates(self) -> dict[str, list[str]]:
        if isinstance(self.b, ClassStrengths):
            return {"class": [names[0] for names in self.b.classes]}
        return {"edge": list(self.b)}

    def __repr__(self) -> str:
        first, *rest = self._described()
        return f"ReducedTrajectory({', '.join([first, repr(self.b), *rest])})"


def solve_reduced(
    start: PyTree,
    loss: Callable[..., Array],
    data: PyTree,
    ts: Times,
    setup: Settings,
    *,
    tau: ArrayLike,
    throw: bool,
    read: Callable[[PyTree], Strengths],
    progress: Progress,
    rates: PyTree = 1.0,
    scale: Array | None = None,
) -> ReducedTrajectory:
    r"""Solve $\tau \dot b = -\text{rate} \; \partial\,\text{loss}/\partial b$ from `start`.

    Options are those of `Reduction.solve`; `start` is given at `ts[0]`.

    Args:
        start, loss, data: coordinates, and `loss(coordinates, data)`.
        read: strengths of (a stack of) coordinates.
        rates: one number, or one for each leaf of `start`.
        scale: the size that the default of `atol` is relative to; default that of the smallest
            entry of `start`.

    Raises:
        ValueError: times that do not increase, or bad options.
        SolveError: the solver gave up, with `throw`; it names the time reached.
    """
    times = checked_times(ts, jnp.result_type(float))
    check_positive_if_known(tau=tau)
    clock = known_array(tau, times.dtype)
    rates = jax.tree.map(lambda leaf: known_array(leaf, times.dtype), rates)
    with reporting("reduced dynamics", times[-1] - times[0], "t", progress) as report:
        every = padded(times, start)
        done, losses, status = _solve(start, data, every, clock, rates, setup, scale, loss, report)
    saved, losses = first_of((done.saved, losses), times.shape[0])
    # Outside of the program, which must not depend on names and numbers of edges.
    run = ReducedTrajectory(
        ts=jnp.asarray(times),
        losses=losses,
        status=status,
        stats=done.stats,
        b=read(saved),
    )

    def reason() -> str:
        return (
            f"the reduced dynamics stopped at time {float(done.reached):.6g} of "
            f"{float(times[-1]):.6g} "
            f"after {int(run.stats['num_steps'])} steps (max_steps = {setup.max_steps}): loosen "
            "rtol, raise max_steps, pass a stiff solver such as diffrax.Kvaerno5(), or check b0 "
            "for NaN."
        )

    if throw:
        raise_if_failed(run, reason)
    return run


def velocity_of(loss: Callable[..., Array]) -> Callable[..., PyTree]:
    """The velocity -rate dloss/dy / tau, a function of (t, y, (data, tau, rates))."""

    def velocity(_: Array, y: PyTree, args: tuple[PyTree, Array, PyTree]) -> PyTree:
        data, tau, rates = args
        gradient = jax.grad(loss)(y, data)
        if jax.tree.structure(rates) == jax.tree.structure(gradient):
            return jax.tree.map(lambda g, rate: -rate * g / tau, gradient, rates)
        return jax.tree.map(lambda g: -rates * g / tau, gradient)

    return velocity


@eqx.filter_jit
def _solve(
    start: PyTree,
    data: PyTree,
    ts: Array | np.ndarray,
    tau: Array | np.ndarray,
    rates: PyTree,
    setup: Settings,
    scale: Array | None,
    loss: Callable[..., Array],
    report: Reporter | None,
) -> tuple[Run, Array, Array]:
    """The run with its coordinates at the times as `saved`, without `final`; losses and status."""

    def look(t: Array, y: PyTree, args: tuple[PyTree, Array, PyTree]) -> tuple[PyTree, Array]:
        here = loss(y, args[0])
        loss_reported(report, ts, t, here)
        return y, here

    ts = jnp.asarray(ts)
    scale = smallest_entry(start) if scale is None else scale
    args = with_products(data), tau, rates
    run = solve(velocity_of(loss), start, ts, args, setup, scale=scale, look=look, report=report)
    coordinates, losses = run.saved
    end_reported(report, ts, run, losses[-1])
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.nan)
    status = jnp.where(run.complete & jnp.all(jnp.isfinite(losses)), OK, GAVE_UP)
    return run._replace(saved=coordinates, final=None), losses, status
