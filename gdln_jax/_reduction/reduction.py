r"""The reduction: the loss in aligned coordinates, with a certificate (theory#reduction).

On the manifold $W_e = U_e \,\mathrm{diag}(b_e) V_e^T$ gradient flow is $\tau \dot b_e =
-\partial l / \partial b_e$ with $l(b) = L(W(b))$. That is exact if the full velocity has no
component off the manifold, which is measured, not assumed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from typing_extensions import TypeAliasType

from gdln_jax._checks import Instead, Result, is_concrete
from gdln_jax._checks.types import ArrayLike, Loss, PerEdge, Times, Tolerance
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph
from gdln_jax._linalg import norm
from gdln_jax._network.edges import Stacks, per_parameter
from gdln_jax._network.gated import GatedNetwork, check_network
from gdln_jax._network.pathways import Pathways, pathways
from gdln_jax._ode import (
    MAX_STEPS,
    Adjoint,
    Crossing,
    Solver,
    settings,
    smallest_entry,
    smallest_scale,
)
from gdln_jax._paths import path_statistics
from gdln_jax._progress import Progress
from gdln_jax._reduction.class_rules import what_sets_apart
from gdln_jax._reduction.coupled import Coupled, coupled_loss
from gdln_jax._reduction.curvature import horizon, max_step, sharpness
from gdln_jax._reduction.flow import ReducedTrajectory, Strengths, solve_reduced
from gdln_jax._reduction.frames import Frames
from gdln_jax._reduction.loss import ModeData, mode_loss
from gdln_jax._reduction.mode_data import make_mode_data
from gdln_jax._reduction.project import project, project_matrices
from gdln_jax._reduction.quotient import REDUCED, Quotient, make_quotients
from gdln_jax._reduction.reading import NEAR, DataSet, networks_of, run_of, strengths_in
from gdln_jax._reduction.refusal import (
    check_finite,
    check_tied_clock,
    check_ties,
)
from gdln_jax._reduction.shown import as_dataset, as_html, printed
from gdln_jax._reduction.statistics import (
    Group,
)
from gdln_jax._reduction.strengths import (
    ClassStrengths,
    FrameView,
    MatrixStrengths,
    ModeStrengths,
    embedded,
    holds_matrices,
    in_frames,
)
from gdln_jax._reduction.table import PathTable, path_table
from gdln_jax._reduction.times import PathModes, crossing
from gdln_jax._reduction.train import train
from gdln_jax._scan import OptimizerLike
from gdln_jax._solution import Trajectory
from gdln_jax.rules import Rule

if TYPE_CHECKING:
    import xarray as xr

# One number, one per mode, or edge -> either (coupled: or a matrix).
StrengthsLike = TypeAliasType(
    "StrengthsLike", ArrayLike | Sequence[float] | Mapping | ModeStrengths | MatrixStrengths
)


# Operation by operation a new shape would be some 20 programs.
_mode_loss = eqx.filter_jit(mode_loss)
_coupled_loss = eqx.filter_jit(coupled_loss)


class Reduction(Result, SeveralArrays, eqx.Module):
    """A gated deep linear network in aligned coordinates; made by `reduce`.

    - `frames`: edge -> (U_e (|t(e)|, mode), V_e (|s(e)|, mode)); of a coupled reduction with more
      columns than modes: all of the span that its dynamics can reach.
    - `strengths`: S per group of paths, (mode,). A group is the paths between an input and an
      output node, keyed `(input, output)`; where several edges start or end there it is
      the paths between two edges, keyed `(first edge, last edge)`.
    - `variances`: D per pair of groups that are active together, `(group j, group p)`.
    - `residual`: the certificate, the relative norm of the gradient's component normal to the
      manifold, worst of several random points. 0 up to rounding means exact.
    - `ties`: None, or classes of edges between which the reduction is exact only while they are
      equal (H's contextual pathways, E16); then `residual` is measured there, and
      `untied_residual` elsewhere.
    - `coupled`: whether off-diagonal couplings are kept; then b are matrices, `residual` is the
      share of the gradient outside of their span, at random matrices, and `untied_residual` that
      of the diagonal form.
    - `fixed`: the arrays of frozen parameters, one stack per store; None without any.
    - `typical`: (mode,) the size of b at which a mode is learned, (S/D)^(1/path length), the
      largest over groups.

    Strengths `b` are given as one number, one per mode, or edge -> either; those of a coupled
    reduction also as edge -> matrix U_e^T W_e V_e. Edges that share a parameter have one b, under
    its name. A pytree: pass it through `jit` as an argument,
    so that the data are not baked into the program.
    """

    _instead = Instead(model=REDUCED, data="pass its .data")
    _exported = "strengths", "variances", "typical", "residual", "untied_residual"
    _keys: ClassVar = {"strengths": "group", "variances": "pair of groups"}

    graph: Graph = eqx.field(static=True)
    data: PackedData
    source: GatedData | PackedData
    modes: int = eqx.field(static=True)
    u: tuple[Array, ...]
    v: tuple[Array, ...]
    mode_data: ModeData
    strengths: Mapping[Group, Float[Array | np.ndarray, " mode"]]
    variances: Mapping[tuple[Group, Group], Float[Array | np.ndarray, " mode"]]
    residual: float
    untied_residual: float
    typical: Float[np.ndarray, " mode"]
    ties: tuple[tuple[str, ...], ...] | None = eqx.field(static=True)
    core: Coupled | None
    fixed: Stacks | None = None

    @property
    def coupled(self) -> bool:
        """Whether this is the coupled form."""
        return self.core is not None

    @property
    def frames(self) -> FrameView:
        """Edge -> (U_e, V_e)."""
        u, v = (self.u, self.v) if self.core is None else (self.core.u, self.core.v)
        return FrameView(self.graph, u, v)

    def strengths_of(self, b: StrengthsLike, *, name: str = "b") -> ModeStrengths | MatrixStrengths:
        """Bring `b` (number, per mode, or per edge) into the form the dynamics use.

        Modes that do not fit through an edge (a bottleneck) get strength 0 there whatever `b`.
        A coupled reduction takes matrices too, edge -> (mode, mode) or `run.b` at one time,
        `jax.tree.map(lambda x: x[-1], run.b)`. Messages call it `name`.
        """
        if self.core is not None and holds_matrices(b):
            return MatrixStrengths.make(self.graph, self.core.size, self.modes, b)
        made = ModeStrengths.make(self.graph, self.modes, b, name=name)
        return made.masked(self.mode_data.masks)

    def embed(self, b: StrengthsLike) -> GatedNetwork:
        """Return the full network W_e = U_e diag(b_e) V_e^T, for b as in `strengths_of`."""
        given = self.strengths_of(b)
        if isinstance(given, MatrixStrengths):
            assert self.core is not None
            return GatedNetwork.from_stacks(
                self.graph, self.core.weights(given), self._fixed_beside(given)
            )
        return GatedNetwork.from_stacks(
            self.graph, embedded(self.u, given, self.v), self._fixed_beside(given)
        )

    def _fixed_beside(self, b: ModeStrengths | MatrixStrengths) -> Stacks | None:
        """The frozen arrays, with the leading axes of strengths."""
        if self.fixed is None:
            return None
        lead = b.stacks[0].shape[: -1 - b.core]
        return tuple(jnp.broadcast_to(w, (*lead, *w.shape)) for w in self.fixed)

    def loss(self, b: StrengthsLike) -> Float[Array, ""]:
        """Return l(b) = L(W(b)), differentiable to all orders; O(modes x active edges)."""
        given = self.strengths_of(b)
        # Frozen matrices that are not diagonal in the frames couple modes whatever b.
        if self.core is not None and (isinstance(given, MatrixStrengths) or self.fixed is not None):
            start = self.core.start(given)
            compiled = is_concrete((start, self.core.data))
            return (_coupled_loss if compiled else coupled_loss)(start, self.core.data)
        assert isinstance(given, ModeStrengths)
        compiled = is_concrete((given, self.mode_data))
        return (_mode_loss if compiled else mode_loss)(given, self.mode_data)

    def project(
        self, net: GatedNetwork | Trajectory | DataSet, *, align: bool = True
    ) -> tuple[ModeStrengths | MatrixStrengths, dict[str, float | np.ndarray]]:
        """Return (b, misalignment per edge) of a network, or of each one of a run.

        b_e = diag(R_t^T W_e R_s) and the misalignment is ||W_e - R_t diag(b_e) R_s^T|| / ||W_e||.
        Without `align` the hidden frames R are those of `embed`. Hidden frames are free, so with
        `align` those that fit `net` best are computed first (host code): an aligned network is
        recovered exactly, up to the free sign of each hidden mode, which is chosen so that what
        arrives there is positive; other networks are read in the frames that maximise the sum of
        all strengths, the combination that grows. Modes keep their labels when values cross.

        A coupled reduction returns matrices R_t^T W_e R_s, and as misalignment the share of each
        W_e outside of their span.

        Args:
            net: a network; a stack of networks with leading axes; a run, whose models at all times
                are read; or the data set of a `sweep` whose function returned a network or a run.
                Leading axes (those of the sweep, then time) are kept.
            align: look for hidden frames, for each network by itself.

        Returns:
            Strengths (..., mode) and shares (...) by edge; NaN where a run had failed. Cost: host
            code, some milliseconds a network; from an embedded start `read` compiles.

        Raises:
            ValueError: a run without models, what is no network, or one of another graph.
        """
        net = self._network(networks_of(net, self.graph))
        if self.graph.tied:
            if align:
                raise ValueError(
                    "project looks for hidden frames node by node, which tied edges join: pass "
                    "align=False to read the network in the frames of embed."
                )
            b, outside = self.read(net)
            return b, {name: np.asarray(share) for name, share in outside.items()}
        if self.core is not None:
            return project_matrices(net, self.u, self.v, self.frames, align)
        return project(net, self.u, self.v, align)

    def read(
        self, net: GatedNetwork
    ) -> tuple[ModeStrengths | MatrixStrengths, dict[str, Float[Array, "..."]]]:
        """Return (b, share outside per edge) of a network in the frames of `embed`.

        b_e = diag(U_e^T W_e V_e), of a coupled reduction the matrix U_e^T W_e V_e, and the share
        outside is ||W_e - U_e diag(b_e) V_e^T|| / ||W_e||. A linear map: `jit`, `vmap` and `grad`
        pass through, and leading axes (times, seeds) are kept, so that `read(run.models)` is a run
        in the coordinates of `solve`.

        For networks that started from `embed` (or near it). One from another start is aligned in
        other hidden frames, which `project` looks for in host code; read here, what it learned
        looks like a share outside.

        Raises:
            ValueError: what is no `GatedNetwork`, or one of another graph.
        """
        net = self._network(net)
        u, v = (self.u, self.v) if self.core is None else (self.core.u, self.core.v)
        kind = ModeStrengths if self.core is None else MatrixStrengths
        b = in_frames(kind, self.graph, u, net.stacks, v)
        outside = []
        for w, inside in zip(net.stacks, embedded(u, b, v), strict=True):
            size = norm(w, axis=(-2, -1))
            outside.append(norm(w - inside, axis=(-2, -1)) / jnp.where(size > 0, size, 1))
        return b, {
            name: outside[k][..., i]
            for name, (k, i, _) in self.graph.place.items()
            if name not in self.graph.frozen
        }

    def pathways(
        self, run: Trajectory | ReducedTrajectory | DataSet, *, by: str = "path"
    ) -> Pathways:
        """Return the strengths of all pathways over a run, signs included.

        Networks that started from `embed` (no edge with more than 1 % outside of its frames at the
        first time, in every run of a batch) are read by `read`, others by `project`; the result's
        `how` says which, its `outside` how much is not described.

        Args:
            run: of `gradient_flow` or `train`, with its models; of `solve` or `train` of this
                reduction or its quotient; or the data set of a `sweep` that returned runs.
            by: `"path"`, or `"route"` for one entry per pair of an input and an output node, the
                sum over their paths, which are not listed.

        Returns:
            A mapping name -> (..., time, mode). Of a coupled reduction the diagonals of the
            products of matrices.

        Raises:
            ValueError: as `project`; a run of another graph; more than 10,000 paths; under `jit`
                or `vmap`, where the start cannot be seen (`read` works there).
        """
        if isinstance(run, ReducedTrajectory):
            if run.b.graph != self.graph:
                raise ValueError("the run has another graph than this reduction.")
            return run.pathways(self, by=by)
        if isinstance(run, DataSet) and (held := strengths_in(run, self.graph, self.modes)):
            return pathways(*held, by=by, how="solved")
        models, ts = run_of(run, self.graph)
        models = self._network(models)
        if not is_concrete(models):
            raise ValueError(
                "pathways() looks at the start of a run and cannot run under jit or vmap: use "
                "reduction.read(run.models) there, or call it on what the mapped function returned."
            )
        (b, outside), how = self.read(models), "read"
        worst = _largest(outside)
        if np.nanmax(worst[..., 0], initial=0.0) > NEAR:
            (b, outside), how = self.project(models), "projected"
            worst = _largest(outside)
        return pathways(b, ts, by=by, how=how, modes=self.modes, outside=jnp.asarray(worst))

    def networks(self, run: Trajectory | ReducedTrajectory | DataSet) -> GatedNetwork:
        """Return the networks of a run at all its times, with leading axes (..., time).

        Of reduced dynamics they are embedded; of a trajectory they are its models, of the data set
        of a `sweep` those that its function returned.

        Raises:
            ValueError: as `project`.
        """
        if not isinstance(run, ReducedTrajectory):
            return self._network(networks_of(run, self.graph))
        b = run.b.expanded() if isinstance(run.b, ClassStrengths) else run.b
        if b.graph != self.graph:
            raise ValueError("the run has another graph than this reduction.")
        u, v = (self.u, self.v) if self.core is None else (self.core.u, self.core.v)
        return GatedNetwork.from_stacks(self.graph, embedded(u, b, v), self._fixed_beside(b))

    def _network(self, net: GatedNetwork) -> GatedNetwork:
        check_network(net)
        if net.graph != self.graph:
            raise ValueError("the network has another graph than this reduction.")
        return net

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
        progress: Progress = True,
    ) -> ReducedTrajectory:
        r"""Solve $\tau \dot b_e = -\partial l/\partial b_e$ from `b0`, given at `ts[0]`.

        Args:
            b0: strengths as in `strengths_of`. A coupled reduction returns `b[edge]` as (time,
                mode, mode) matrices U_e^T W_e V_e in its `frames`, which hold all of W_e: a run can
                be continued from its matrices at one time, or start from those of `project`.
            ts: increasing times (time,), in the units of `tau`.
            tau: time constant, or a mapping edge -> time constant, equal within ties.
            rtol, atol: tolerances of the adaptive step; default 1e-10 (float32: 1e-5) and `rtol`
                times the smallest non-zero strength of `b0`, so that a plateau is resolved however
                long it is.
            solver: default `Dopri8` (float32: `Tsit5`). Deep networks with modes that are learned
                at very different times are stiff: `diffrax.Kvaerno5()`.
            adjoint: how to differentiate in `b0`, `tau` and the data; default
                `diffrax.RecursiveCheckpointAdjoint()` (reverse mode). For `jacfwd`, also twice,
                `diffrax.ForwardMode()`; for `hessian` (forward over reverse)
                `diffrax.DirectAdjoint()` with a `max_steps` of some hundreds, since it keeps every
                step.
            throw: raise when the solver gives up. Otherwise, and always under `jit` or `vmap`, the
                trajectory has status 2 and NaN in `b` and `losses` where it did not get to.
            progress: as in `gradient_flow`.

        Ties are checked outside of `jit` and `vmap` only.

        Raises:
            ValueError: `b0` that breaks the reduction's ties, is not finite or does not fit, `ts`
                that does not increase, a `tau`, `rtol` or `atol` that is no finite number above 0.
            SolveError: the solver gave up; it names the time reached.
        """
        if not isinstance(ts, Sequence) and np.ndim(ts) == 0:
            raise ValueError(f"ts is one number, {ts}; b0 comes first: solve(b0, ts).")
        start, loss, data, scale, read = self._equations(b0)
        tau, rates = self._clock(tau, start)
        dtype = jnp.result_type(*jax.tree.leaves(start))
        setup = settings(
            dtype, rtol=rtol, atol=atol, solver=solver, adjoint=adjoint, max_steps=max_steps
        )
        return solve_reduced(
            start,
            loss,
            data,
            ts,
            setup,
            tau=tau,
            throw=throw,
            progress=progress,
            read=read,
            rates=rates,
            scale=scale,
        )

    def _equations(
        self, b0: StrengthsLike
    ) -> tuple[PyTree, Callable[..., Array], PyTree, Array | None, Callable[..., Strengths]]:
        """Start, loss, its data, the scale of the start, and how to read strengths."""
        start = self.strengths_of(b0)
        check_finite(start)
        if self.core is None:
            check_ties(self.ties, self.untied_residual, start)
            return start, mode_loss, self.mode_data, None, _as_they_are
        # Rotated weights hold rounding errors, whose size must not set the tolerance.
        matrices = holds_matrices(start)
        scale = smallest_scale(start.stacks) if matrices else smallest_entry(start)
        return self.core.start(start), coupled_loss, self.core.data, scale, self.core.read

    def _clock(self, tau: PerEdge, start: PyTree) -> tuple[ArrayLike, PyTree]:
        """The time constant, and rates beside it: 1, or in the structure of `start` 1/tau_e."""
        if not isinstance(tau, Mapping):
            return tau, 1.0
        check_tied_clock(self.ties, tau)
        stacks = per_parameter(self.graph, tau, "tau", core=1 if self.core is None else 2)
        return 1.0, jax.tree.unflatten(jax.tree.structure(start), [1 / stack for stack in stacks])

    def time_to(
        self,
        level: ArrayLike,
        b0: StrengthsLike,
        *,
        t1: ArrayLike,
        path: Sequence[str] | None = None,
        tau: PerEdge = 1.0,
        rtol: Tolerance = None,
        atol: Tolerance = None,
        solver: Solver = None,
        max_steps: int = MAX_STEPS,
        adjoint: Adjoint = None,
        throw: bool = True,
    ) -> Crossing:
        """Return when the loss first crosses `level`, or with `path` when each of its modes does.

        Args:
            level: of the loss, any shape, one crossing for each; or of the strength of a path,
                one number or (mode,), say half of what is learned, 0.5 * S / D.
            b0: strengths at time 0, as in `solve`.
            t1: the end of the search, in the units of `tau`.
            path: names of edges from an input to an output; its strength per mode is the product
                of theirs (of a coupled reduction the diagonal of the product of matrices).
            tau, rtol, atol, solver, max_steps, throw: as in `solve`.
            adjoint: for derivatives in `b0`, `level`, `tau` and the data: reverse mode by default,
                `diffrax.ForwardMode()` for `jacfwd`, `diffrax.DirectAdjoint()` for both.

        Returns:
            `Crossing(time, reached)`: times are inf where the level is not reached by `t1`, with
            derivatives that are 0, and NaN where the solver gave up.

        Raises:
            ValueError: as `solve`; a level of another shape, names that form no path, a path that
                passes a frozen edge, which has no strength.
            SolveError: the solver gave up before a level was crossed.
        """
        start, loss, data, scale, read = self._equations(b0)
        tau, rates = self._clock(tau, start)
        dtype = jnp.result_type(*jax.tree.leaves(start))
        setup = settings(
            dtype, rtol=rtol, atol=atol, solver=solver, adjoint=adjoint, max_steps=max_steps
        )
        return crossing(
            start,
            loss,
            data,
            level,
            None if path is None else PathModes(read, self.graph.walk(path)),
            setup,
            t1=t1,
            tau=tau,
            throw=throw,
            rates=rates,
            scale=scale,
        )

    def train(
        self,
        b0: StrengthsLike,
        *,
        rule: OptimizerLike,
        steps: int,
        loss: Loss | None = None,
        save_every: int = 1,
        tol: float = 1e-8,
        on_inexact: str = "raise",
        check_end: bool = True,
        resume: ReducedTrajectory | None = None,
        throw: bool = True,
        progress: Progress = True,
    ) -> ReducedTrajectory:
        """Train in aligned coordinates, as the full network, at any step size (theory#optimisers).

        One compiled scan; it may be mapped over `b0` and over rates of rules that are made inside
        the mapped function, and differentiated. The polar factor's derivative by b is 0.

        Args:
            b0: strengths as in `strengths_of`. The network that trains alike is `embed(b0)`.
            rule: one of `gdln.rules`, which needs no certificate; or any optimiser of optax, which
                is probed first by `rule_residual` (not where its rates or this reduction are
                traced: then do so before).
            steps: number of steps.
            loss: `loss(model, data)` of the embedded network, for the data given to `reduce`;
                default l(b), the loss of `gdln.mse`. Its gradient is certified first.
            save_every: steps between two records; steps 0 and the last are always kept.
            tol: largest residual of an exact rule (in float32 at least 1e-3).
            on_inexact: for an optimiser that keeps the manifold but sees the shapes of matrices:
                `"raise"`, or `"embed"` to run it on matrices of full shape.
            check_end: warn with `SaddleWarning` where the run ends in a saddle of the full loss.
                Costs 100 products with the Hessian; not done under `jit` and `vmap`.
            resume: a trajectory of `train` to continue from, in place of `b0`, for `steps` more.
            throw: raise when the loss ceases to be finite; never under `jit` or `vmap`, where the
                member has status 1.

        Returns:
            A `ReducedTrajectory` whose `ts` are numbers of steps. Exact in exact arithmetic;
            rounding leaves the manifold where steps are too large, see `max_step` and `horizon`.

        Raises:
            InexactRuleError: a `ValueError`, for an optimiser that leaves the manifold.
            ValueError: for bad arguments.
            SolveError: when training diverges, with `throw`.
        """
        return train(
            self,
            b0,
            rule=rule,
            steps=steps,
            loss=loss,
            save_every=save_every,
            tol=tol,
            on_inexact=on_inexact,
            check_end=check_end,
            resume=resume,
            throw=throw,
            progress=progress,
        )

    def sharpness(
        self, b: StrengthsLike, *, part: str = "full", smallest: bool = False
    ) -> Float[Array, ""]:
        """Return the largest eigenvalue of the Hessian of `gdln.mse` at the network of `b`.

        Args:
            b: strengths as in `strengths_of`.
            part: `"full"`, all weights; `"reduced"`, along the manifold; `"normal"`, the rest. The
                spectra of the last two make up the first.
            smallest: the smallest eigenvalue instead, which is negative at a saddle.

        Returns:
            The algebraically largest (or smallest), by Lanczos' method with up to 100 vectors of
            the size of the weights. Can be compiled and mapped.

        Raises:
            ValueError: for another part, or `"normal"` where the manifold holds all weights.
        """
        return sharpness(self, b, part=part, smallest=smallest)

    def max_step(self, b: StrengthsLike, rule: Rule) -> Float[Array, ""]:
        """Return the rate above which `rule` amplifies rounding at `b` (theory#step-limits).

        2/lambda with the largest curvature lambda of the full Hessian, for momentum and decay its
        kin. For `shampoo` a rate that is small enough, from eps alone. For rules that divide by the
        gradient (`muon`, `normalized`) a local indicator: it shrinks with the gradient, and falls
        to 0 where a mode is learned.

        Args:
            b: strengths: those of the sharpest point of a run, not of its start.
            rule: a rule of `gdln.rules`; its learning rate is not read.

        Raises:
            ValueError: for an optimiser of optax or `per_matrix`, which do not tell their settings.
        """
        return max_step(self, b, rule)

    def horizon(self, run: ReducedTrajectory, rule: Rule, *, tol: float = 1e-6) -> int | None:
        """Return the step at which rounding is expected to have left the manifold by `tol`.

        An indicator, not a bound: it multiplies the growth of normal perturbations step by step and
        ignores how their directions turn (theory#step-limits). Between saved steps curvature is
        interpolated.

        Args:
            run: of `train`, with this rule.
            rule: `rules.sgd`.
            tol: share of the weights outside the manifold.

        Returns:
            A step of the run, or None if it is not reached.

        Raises:
            ValueError: for another rule, or a batch of runs.
        """
        return horizon(self, run, rule, tol=tol)

    def quotient(
        self,
        b0: StrengthsLike,
        *,
        rule: Rule | None = None,
        tau: Mapping[str, ArrayLike] | None = None,
        seed: int = 0,
    ) -> Quotient:
        """Merge the edges that start equal in `b0` and always receive equal gradients.

        Args:
            b0: strengths at the start.
            rule: of `gdln.rules`, for `Quotient.train`: edges that it tells apart, by their rate or
                shape factor, are not merged.
            tau: edge -> time constant, for `Quotient.solve`: edges with different ones are not
                merged. The `tau` of `solve` multiplies them.
            seed: of the points at which gradients are compared.

        Raises:
            ValueError: for a coupled reduction, or when `b0` breaks the ties.
        """
        start = self._merged_start(b0)
        apart = None if rule is None else what_sets_apart(rule, self.graph)
        clock = np.ones(len(self.graph.trainable))
        if tau is not None:
            check_tied_clock(self.ties, tau)
            clock = np.concatenate(
                [np.ravel(s) for s in per_parameter(self.graph, tau, "tau", core=1)]
            )
        data = self.mode_data
        if any(s is not None and s.gate is not None and s.gate.shape[-1] > 1 for s in data.stages):
            # Made by `reduce(like=)`: gates differ between rows, where merging expects blocks.
            data = make_mode_data(self.data, Frames.of_bundles(self.graph, self.u, self.v))
        return make_quotients([data], start, self.typical, apart, clock, seed=seed)[0]

    def _merged_start(self, b0: StrengthsLike) -> ModeStrengths:
        """The start of a quotient, after checks."""
        if self.core is not None:
            raise ValueError(
                "a coupled reduction has matrices, which quotient() does not merge; reduce with "
                "on_inexact='warn' to merge the diagonal approximation."
            )
        start = self.strengths_of(b0)
        assert isinstance(start, ModeStrengths)
        if not is_concrete(start):
            raise ValueError("quotient() compares values of b0 and cannot run under jit or vmap.")
        check_finite(start)
        check_ties(self.ties, self.untied_residual, start)
        return start

    def path_table(self, *, max_pairs: int = 250_000) -> PathTable:
        """Enumerate the paths with their S(p) and D(j, p); needs a reduction of `GatedData`."""
        if not isinstance(self.source, GatedData):
            raise ValueError("path_table() needs a reduction of GatedData, not of packed data.")
        return path_table(
            path_statistics(self.graph, self.source, max_pairs=max_pairs), self.frames
        )

    def to_xarray(self) -> "xr.Dataset":
        """Return statistics and frames as an xarray `Dataset`, which writes itself to netCDF.

        `strengths` (group, mode), `variances` (pair of groups, mode), `typical`, residuals, and the
        frames of the ends, `V[edge]` (unit of input node, mode) and `U[edge]` (unit of output node,
        mode). Modes are counted from 1, units labelled by the names of features in the data.

        Raises:
            ValueError: values that cannot be seen, under `jit` or `vmap`.
        """
        return as_dataset(self)

    def _repr_html_(self) -> str:
        return as_html(self, self._certified())

    def __repr__(self) -> str:
        return self._certified() + printed(self)

    def _certified(self) -> str:
        groups = f"{self.modes} modes, {len(self.strengths)} path groups"
        if self.core is not None:
            return (
                f"Reduction({groups}, coupled: matrices ({self.core.size}, {self.core.size}), "
                f"{self.residual:.1e} of the gradient outside; diagonal residual "
                f"{self.untied_residual:.1e})"
            )
        kind = f"exact under ties, {len(self.ties)} classes of ties" if self.ties else "diagonal"
        return f"Reduction({groups}, {kind}, residual {self.residual:.1e})"


def _largest(outside: Mapping[str, float | np.ndarray | Array]) -> np.ndarray:
    return np.max([np.asarray(share) for share in outside.values()], axis=0)


def _as_they_are(b: ModeStrengths) -> ModeStrengths:
    return b
