"""Data seen in frames, and the certificate there: what `reduce` makes reductions of."""

import warnings
from typing import NamedTuple

import numpy as np

from gdln_jax._checks import is_concrete
from gdln_jax._data.boundary import check_gated_data, check_single
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.packing import in_blocks, pack
from gdln_jax._graph import Graph
from gdln_jax._network.edges import Stacks, stacked
from gdln_jax._reduction.certificate import (
    named_classes,
    normal_component,
    span_leak,
    tied_classes,
    typical_strength,
)
from gdln_jax._reduction.coupled import Coupled, couple, couple_tied
from gdln_jax._reduction.frames import Frames
from gdln_jax._reduction.loss import ModeData
from gdln_jax._reduction.mode_data import make_mode_data
from gdln_jax._reduction.reduction import Reduction
from gdln_jax._reduction.refusal import InexactReductionError, InexactReductionWarning, advice
from gdln_jax._reduction.statistics import (
    GroupStatistics,
    Moments,
    group_statistics,
    without_weightless,
)
from gdln_jax._reduction.table import ByGroup


class Options(NamedTuple):
    """What the caller of `reduce` asks for."""

    tol: float
    on_inexact: str
    seed: int


def check_modes(frames: Frames) -> None:
    """Raise `ValueError` where there is no mode."""
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
            strengths=ByGroup.of(self.statistics.strengths),
            variances=ByGroup.of(self.statistics.variances),
            # NumPy scalars, so that jit sees them as data and does not compile again for each.
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
    mode_data: ModeData | None = None,
) -> View:
    """Look at data in frames; `units`: the data in units of the nodes' sizes, and these.

    `mode_data` are those of `packed` if not given.
    """
    seen = group_statistics(packed, moments, frames)
    return View(
        graph,
        source,
        packed,
        units[0],
        frames,
        fixed,
        seen,
        make_mode_data(packed, frames) if mode_data is None else mode_data,
        *_stored(graph, frames),
        typical_strength(graph, moments.yx, seen, units[1]),
        typical_strength(graph, moments.yx, seen),
    )


def certified(seen: View, options: Options) -> Reduction:
    """Measure the certificate in frames, look for ties, and make the reduction."""
    tol, on_inexact, seed = options
    untied = residual = seen.residual(None, seed)
    ties = core = None
    if untied > tol:
        labels = tied_classes([seen.mode_data], seen.typical, seed=seed)
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


def answer_inexact(on_inexact: str, message: str, phases: tuple[int, ...] = ()) -> None:
    """Raise, warn or continue, as the caller of `reduce` asked for."""
    if on_inexact == "raise":
        error = InexactReductionError(message)
        error.phases = phases
        raise error
    if on_inexact == "warn":
        warnings.warn(message, InexactReductionWarning, stacklevel=3)
