"""Finding and certifying a reduction (N Eq. 7-10, SCIENCE 3): what `gdln_jax.reduce` does.

The reduction is exact if the full velocity has no component off the aligned manifold; that is
measured here, not assumed.
"""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import check_choice, check_positive, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.boundary import check_gated_data, check_graph, check_single
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.packing import in_blocks, pack
from gdln_jax._graph import Graph
from gdln_jax._network.edges import Stacks, stacked
from gdln_jax._network.losses import mse
from gdln_jax._reduction.certificate import (
    named_classes,
    normal_component,
    span_leak,
    tied_classes,
    typical_strength,
)
from gdln_jax._reduction.coupled import Coupled, couple, couple_tied
from gdln_jax._reduction.frames import Frames, find_frames
from gdln_jax._reduction.frozen_paths import (
    frozen_arrays,
    frozen_stacks,
    without_frozen_paths,
)
from gdln_jax._reduction.loss import ModeData
from gdln_jax._reduction.mode_data import make_mode_data
from gdln_jax._reduction.reduction import Reduction
from gdln_jax._reduction.refusal import InexactReductionError, InexactReductionWarning, advice
from gdln_jax._reduction.statistics import (
    GroupStatistics,
    Moments,
    group_statistics,
    path_moments,
    unit_nodes,
    with_shared_errors,
    without_weightless,
)
from gdln_jax._reduction.tied_frames import Sides, find_tied_frames, scaled_alike

_MODES = ("raise", "warn", "coupled")


def reduce(
    graph: Graph,
    data: GatedData | PackedData,
    *,
    tol: float = 1e-8,
    on_inexact: str = "raise",
    frozen: Mapping[str, ArrayLike] | None = None,
    frames: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    seed: int = 0,
) -> Reduction:
    """Find the aligned coordinates of a network's learning dynamics, and certify them.

    Works on any gated graph: several inputs and outputs, skips, bottlenecks, repeated singular
    values, real gates, frames per group of paths (E4). Paths are never enumerated. Host code, for
    concrete data; cost O(active pairs x width^3).

    Args:
        tol: largest residual that counts as exact; 1e-8 is far above rounding and far below any
            effect of non-diagonal data.
        on_inexact: what to do above it. `"raise"`; `"warn"` and go on with the approximation; or
            `"coupled"`: keep the off-diagonal couplings, exact by construction but with a matrix
            per edge instead of one number per mode.
        frozen: of a graph with frozen parameters, parameter -> array.
        frames: of a graph with ties, edge or parameter -> (U, V) to take instead of looking for
            them; columns may be 0.

    With tied edges there is one b for each parameter, and the certificate is that of the class
    gradient, whose terms may cancel where no edge alone is exact (BEYOND 9.2).

    Raises:
        InexactReductionError: a residual above `tol`; it names the worst statistics and remedies.
        ValueError: inputs and targets that are nowhere correlated, or bad arguments.
    """
    check_graph(graph)
    check_choice(on_inexact, _MODES, "on_inexact")
    tol = check_positive(tol, "tol")
    if graph.tied:
        return _reduce_tied(graph, data, Options(tol, on_inexact, seed), frozen, frames)
    if frozen or frames:
        raise ValueError(
            "frozen= and frames= are for graphs with tied or frozen edges, Graph(shared=, frozen=)."
        )
    packed = packed_for(graph, data)
    units = unit_nodes(packed)
    found = find_frames(units[0], seed=seed)
    check_modes(found)
    moments = path_moments(packed)
    found = with_shared_errors(moments, found)
    options = Options(tol, on_inexact, seed)
    return _certified(view(graph, data, packed, units, moments, found), options)


class Options(NamedTuple):
    """What the caller of `reduce` asks for."""

    tol: float
    on_inexact: str
    seed: int


def check_modes(frames: Frames) -> None:
    if frames.modes == 0:
        raise ValueError(
            "no input is correlated with any target along an open path, so there is no mode to "
            "learn; check gates and targets."
        )


class View(NamedTuple):
    """Data seen in frames: what a certificate and a reduction are made of."""

    graph: Graph
    source: GatedData | PackedData
    packed: PackedData
    unit: PackedData
    frames: Frames
    fixed: Stacks | None
    statistics: GroupStatistics
    mode_data: ModeData
    u: Stacks
    v: Stacks
    unit_scale: np.ndarray
    typical: np.ndarray

    def residual(self, labels: np.ndarray | None, seed: int) -> float:
        """The certificate, with `labels` at strengths that are equal within classes."""
        u, v, masks = self.u, self.v, self.mode_data.masks
        return normal_component(
            self.unit, u, v, masks, self.unit_scale, labels, self.fixed, seed=seed
        )

    def coupled(self, seed: int, every: PackedData | None = None) -> tuple[Coupled, float]:
        """The form with matrices, and the share of the gradient outside of their span."""
        packed, u, v = self.packed, self.u, self.v
        core = couple_tied(packed, u, v, self.fixed) if self.graph.tied else None
        core = couple(packed, u, v, every) if core is None else core
        size = float(self.unit_scale.max())
        return core, span_leak(self.unit, core.u, core.v, size, self.fixed, seed=seed)

    def reduction(
        self,
        residual: float,
        untied: float,
        ties: tuple[tuple[str, ...], ...] | None,
        core: Coupled | None,
    ) -> Reduction:
        """The reduction with its certificate."""
        return Reduction(
            graph=self.graph,
            data=self.packed,
            source=self.source,
            modes=self.frames.modes,
            u=self.u,
            v=self.v,
            mode_data=self.mode_data,
            strengths=self.statistics.strengths,
            variances=self.statistics.variances,
            # NumPy scalars, so that jit sees them as data and does not compile anew for each.
            residual=np.float64(residual),
            untied_residual=np.float64(untied),
            typical=self.typical,
            ties=ties,
            core=core,
            fixed=self.fixed,
        )


def view(
    graph: Graph,
    source: GatedData | PackedData,
    packed: PackedData,
    units: tuple[PackedData, dict[str, float]],
    moments: Moments,
    frames: Frames,
    fixed: Stacks | None = None,
) -> View:
    """Look at data in frames; `units`: the data in units of the nodes' sizes, and these."""
    return View(
        graph,
        source,
        packed,
        units[0],
        frames,
        fixed,
        group_statistics(packed, moments, frames),
        make_mode_data(packed, frames),
        *_stored(graph, frames),
        typical_strength(graph, moments, frames, units[1]),
        typical_strength(graph, moments, frames),
    )


def _certified(seen: View, options: Options) -> Reduction:
    """Measure the certificate in frames, look for ties, and make the reduction."""
    tol, on_inexact, seed = options
    untied = residual = seen.residual(None, seed)
    ties = core = None
    if untied > tol:
        labels = tied_classes(seen.mode_data, seen.typical, seed=seed)
        tied = seen.residual(labels, seed)
        if tied <= tol:
            residual, ties = tied, named_classes(seen.graph, labels)
        else:
            answer_inexact(on_inexact, advice(untied, tol, seen.statistics, seen.packed))
    if residual > tol and on_inexact == "coupled":
        core, residual = seen.coupled(seed)
    return seen.reduction(residual, untied, ties, core)


def _stored(graph: Graph, frames: Frames) -> tuple[Stacks, Stacks]:
    """U and V of every trainable parameter, by store."""
    u, v = {}, {}
    for name in graph.trainable:
        edge, turned = graph.uses[name][0]
        k = graph.edge_index[edge]
        u[name], v[name] = (frames.v[k], frames.u[k]) if turned else (frames.u[k], frames.v[k])
    return stacked(graph, u), stacked(graph, v)


def _reduce_tied(
    graph: Graph,
    data: GatedData | PackedData,
    options: Options,
    frozen: Mapping[str, ArrayLike] | None,
    frames: Mapping[str, tuple[ArrayLike, ArrayLike]] | None,
) -> Reduction:
    """`reduce` for a graph with tied or frozen edges."""
    arrays = frozen_arrays(graph, frozen or {})
    packed = packed_for(graph, without_frozen_paths(graph, data, arrays))
    sides = Sides(graph)
    units = unit_nodes(packed, scaled_alike(graph, sides))
    found = find_tied_frames(units[0], sides, arrays, frames or {}, seed=options.seed)
    check_modes(found)
    fixed = frozen_stacks(graph, arrays)
    seen = view(graph, data, packed, units, path_moments(packed), found, fixed)
    reduction = _certified(seen, options)
    # Strengths of frozen edges are part of l(b): it must be the loss of the network.
    b = 0.7 * reduction.typical
    apart = abs(reduction.loss(b) - mse(reduction.embed(b), packed))
    digits = max(options.tol, 1e4 * float(jnp.finfo(apart.dtype).eps))
    if (
        not reduction.coupled
        and reduction.residual <= options.tol
        and apart > digits * reduction.loss(0.0)
    ):
        raise InexactReductionError(
            "frozen matrices are not diagonal in the frames of the modes between which they lie: "
            "the loss in aligned coordinates is not that of the network. Integrate the network "
            "itself by gradient_flow."
        )
    return reduction


def packed_for(graph: Graph, data: GatedData | PackedData) -> PackedData:
    """Packed data whose examples of weight 0 are not seen, after checks."""
    if not is_concrete(data):
        raise ValueError(
            "reduce() looks at values and cannot run under jit, grad or vmap: call it outside and "
            "pass the reduction in as an argument; it is a pytree."
        )
    if not isinstance(data, PackedData):
        data = check_gated_data(data)
        check_single(data, data.weights.shape[:-1])
        data = data.compress()
    return without_weightless(pack(graph, in_blocks(data)))


def answer_inexact(on_inexact: str, message: str) -> None:
    if on_inexact == "raise":
        raise InexactReductionError(message)
    if on_inexact == "warn":
        warnings.warn(message, InexactReductionWarning, stacklevel=3)
