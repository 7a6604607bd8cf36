r"""Quotient by symmetry: one variable per class of edges that move together (theory#classes).

Edges that start equal and always receive equal gradients share one variable, which obeys
$\tau |c| \dot x_c = -\partial l/\partial x_c$. Every rate factor of the papers is such a
1/|class|.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import Instead, Result, dataset, is_concrete
from gdln_jax._checks.types import ArrayLike, Times, Tolerance
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._graph import Graph
from gdln_jax._network.edges import EdgeArrays
from gdln_jax._network.pathways import check_learning
from gdln_jax._ode import MAX_STEPS, Adjoint, Crossing, Solver, settings
from gdln_jax._progress import Progress
from gdln_jax._reduction.certificate import joint_gradient, named_classes
from gdln_jax._reduction.classes import equal_rows, refine
from gdln_jax._reduction.flow import ReducedTrajectory, solve_reduced
from gdln_jax._reduction.loss import ModeData
from gdln_jax._reduction.merging import Program, merged, program_loss
from gdln_jax._reduction.strengths import ClassStrengths, ModeStrengths, Shares, Sharing
from gdln_jax._reduction.times import crossing
from gdln_jax._reduction.train import train_classes
from gdln_jax._scan import OptimizerLike

if TYPE_CHECKING:
    import xarray as xr

# What to pass instead of reduced equations where a model is asked for.
REDUCED = (
    "it holds reduced equations, not weights: solve those, reduction.solve(b0, ts), or pass the "
    "network that they stand for, reduction.embed(b0)"
)


class Quotient(Shares, Result, SeveralArrays, eqx.Module):
    """Dynamics on one variable per class and mode; made by `Reduction.quotient`.

    - `classes`: tuple of tuples of edge names; edges of a class start equal and stay equal.
    - `rates`: 1/|class|, in the same order: tau dx_c/dt = -rates[c] dl/dx_c. With time constants
      by edge, `tau` (class,), those of the classes divide them.
    - `labels`: the class of each parameter, in the order of the graph's stores (without ties, of
      each edge, by bundle); `rates` counts arrays, not the edges that use them (theory#classes).
    - `x0`: (class, mode) strengths at the start; `fits`: 0 where a mode does not fit through.
    """

    _instead = Instead(model=REDUCED)
    _exported = "x0", "fits", "tau", "rates"

    graph: Graph = eqx.field(static=True)
    sharing: Sharing = eqx.field(static=True)
    x0: Float[Array, "cls mode"]
    fits: Float[Array, "cls mode"]
    tau: Float[np.ndarray, " cls"]
    program: Program

    @property
    def rates(self) -> Float[np.ndarray, " cls"]:
        """1/|class| per class."""
        return 1.0 / np.bincount(self.labels)

    def loss(self, x: Float[Array, "cls mode"]) -> Float[Array, ""]:
        """Return l at strengths x of the classes."""
        return program_loss(x, self.program)

    def by_edge(self, x: Float[Array, "*batch cls mode"]) -> ClassStrengths:
        """Return strengths of the classes as a mapping edge -> (..., mode)."""
        return ClassStrengths(self.graph, (jnp.asarray(x),), self.sharing)

    def expand(self, x: Float[Array, "*batch cls mode"] | EdgeArrays) -> ModeStrengths:
        """Return the strengths of all edges from those of the classes, `run.x` or `run.b`."""
        if isinstance(x, ClassStrengths):
            return x.expanded()
        if isinstance(x, ModeStrengths):
            return x
        return self.by_edge(jnp.asarray(x)).expanded()

    def solve(
        self,
        ts: Times,
        *misplaced: object,
        x0: ArrayLike | None = None,
        tau: ArrayLike = 1.0,
        rtol: Tolerance = None,
        atol: Tolerance = None,
        solver: Solver = None,
        max_steps: int = MAX_STEPS,
        adjoint: Adjoint = None,
        throw: bool = True,
        progress: Progress = True,
    ) -> ReducedTrajectory:
        """Solve from `x0` (class, mode), default the b0 the quotient was made for.

        The trajectory's `x` is an array (time, class, mode), and `b[edge]` the strengths of an
        edge. Cost does not depend on the number of edges. The other options are those of
        `Reduction.solve`.

        Raises:
            ValueError, SolveError: as `Reduction.solve`; `ValueError` for more than one positional
                argument.
        """
        if misplaced:
            raise ValueError(
                "quotient.solve takes the times alone, solve(ts): its start was given to "
                "reduction.quotient(b0). Another start of the same classes is solve(ts, x0=...)."
            )
        setup = settings(
            self.x0.dtype, rtol=rtol, atol=atol, solver=solver, adjoint=adjoint, max_steps=max_steps
        )
        return solve_reduced(
            self.x0 if x0 is None else self._start(x0),
            program_loss,
            self.program,
            ts,
            setup,
            tau=tau,
            throw=throw,
            progress=progress,
            read=self.by_edge,
            rates=(self.rates / self.tau)[:, None],
        )

    def time_to(
        self,
        level: ArrayLike,
        *,
        t1: ArrayLike,
        path: Sequence[str] | None = None,
        x0: ArrayLike | None = None,
        tau: ArrayLike = 1.0,
        rtol: Tolerance = None,
        atol: Tolerance = None,
        solver: Solver = None,
        max_steps: int = MAX_STEPS,
        adjoint: Adjoint = None,
        throw: bool = True,
    ) -> Crossing:
        """Return when the loss, or each mode of `path`, crosses `level`: `Reduction.time_to`.

        The start is `x0` (class, mode) at time 0, default the b0 the quotient was made for. Cost
        does not depend on the number of edges.
        """
        modes = None
        if path is not None:
            labels = dict(zip(self.graph.moving, self.labels, strict=True))
            edges = self.graph.walk(path)
            check_learning(self.graph, edges)
            names = [self.graph.parameter_of[edge][0] for edge in edges]
            modes = _PathOfClasses(np.array([labels[name] for name in names]))
        setup = settings(
            self.x0.dtype, rtol=rtol, atol=atol, solver=solver, adjoint=adjoint, max_steps=max_steps
        )
        return crossing(
            self.x0 if x0 is None else self._start(x0),
            program_loss,
            self.program,
            level,
            modes,
            setup,
            t1=t1,
            tau=tau,
            throw=throw,
            rates=(self.rates / self.tau)[:, None],
        )

    def train(
        self,
        x0: ArrayLike | None = None,
        *,
        rule: OptimizerLike,
        steps: int,
        save_every: int = 1,
        tol: float = 1e-8,
        resume: ReducedTrajectory | None = None,
        throw: bool = True,
        progress: Progress = True,
    ) -> ReducedTrajectory:
        """Train on one variable per class, as the full network trains (theory#rules-on-classes).

        A rule sees the gradient of one edge, and its norms over edges count every member. An
        optimiser of optax is given sqrt(|class|) x, for which norms over all parameters are right;
        one that is another optimiser there, such as those with a norm per array, is refused. Cost
        and compile time do not depend on the number of edges (the probe of an optax optimiser
        does).

        Args:
            x0: (class, mode), default the b0 the quotient was made for.
            rule: of `gdln.rules`, or any optimiser of optax. It must treat the members of a class
                alike: make the quotient by `reduction.quotient(b0, rule=rule)`.
            steps, save_every, tol, resume, throw: as for `Reduction.train`.

        Returns:
            A `ReducedTrajectory` with `x` (time, class, mode) and `b[edge]`.

        Raises:
            ValueError, SolveError: as `Reduction.train`; `ValueError` that names the class where a
                rule tells its members apart.
        """
        return train_classes(
            self,
            self.x0 if x0 is None else self._start(x0),
            rule=rule,
            steps=steps,
            save_every=save_every,
            tol=tol,
            resume=resume,
            throw=throw,
            progress=progress,
        )

    def _start(self, x0: ArrayLike) -> Array:
        x0 = jnp.asarray(x0, dtype=self.x0.dtype)
        classes, modes = self.x0.shape
        if x0.shape not in ((), (modes,), (classes, 1), (classes, modes)):
            raise ValueError(
                f"x0 has shape {x0.shape}; give one number, ({modes},) per mode, ({classes}, 1) "
                f"per class or ({classes}, {modes})."
            )
        if is_concrete(x0) and not np.all(np.isfinite(x0)):
            raise ValueError("x0 holds values that are not finite.")
        # Modes that do not fit through a class stay 0 there, as in `Reduction.strengths_of`.
        return jnp.broadcast_to(x0, self.x0.shape) * self.fits

    def to_xarray(self) -> "xr.Dataset":
        """Return the classes as an xarray `Dataset`: `x0`, `fits` (cls, mode), `tau`, `rates`.

        A class is labelled by its edges.
        """
        labels = ["; ".join(names) for names in self.classes]
        return dataset(self).assign_coords(cls=labels)

    def __repr__(self) -> str:
        sizes = ", ".join(str(len(c)) for c in self.classes[:8])
        more = ", ..." if len(self.classes) > 8 else ""
        return f"Quotient({len(self.classes)} classes of {len(self.labels)} edges: {sizes}{more})"


class _PathOfClasses(eqx.Module):
    """The product of strengths along a path, whose edges belong to the classes of `index`."""

    index: np.ndarray

    def __call__(self, x: Array) -> Array:
        return jnp.prod(x[self.index], axis=0)


def make_quotients(
    datas: Sequence[ModeData],
    b0: ModeStrengths,
    scale: np.ndarray,
    apart: np.ndarray | None,
    clock: np.ndarray,
    *,
    seed: int,
) -> tuple[Quotient, ...]:
    """Find the coarsest partition that `b0` allows and all `datas` keep, and the losses on it.

    `scale` (mode,): the strengths at which gradients are compared, those at which modes are
    learned, not the plateau where `b0` may lie. `apart` (edge, _): edges with different rows are
    kept apart, and so are those with different time constants `clock` (edge,).
    """
    graph = datas[0].graph
    start = np.concatenate([np.asarray(stack) for stack in b0.stacks])
    masks = np.concatenate([np.asarray(mask) for mask in datas[0].masks])
    apart = np.zeros((len(start), 0)) if apart is None else apart
    labels = equal_rows(np.concatenate([start, masks, apart, clock[:, None]], axis=1))
    labels = refine(joint_gradient(datas), labels, start.shape[1], scale, seed=seed)
    _, first = np.unique(labels, return_index=True)
    return tuple(
        Quotient(
            graph,
            Sharing(named_classes(graph, labels), tuple(labels.tolist())),
            jnp.asarray(start[first]),
            jnp.asarray(masks[first]),
            clock[first],
            merged(data, labels, masks),
        )
        for data in datas
    )
