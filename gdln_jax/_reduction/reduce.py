"""Finding and certifying a reduction (N Eq. 7-10, SCIENCE 3): what `gdln_jax.reduce` does.

The reduction is exact if the full velocity has no component off the aligned manifold; that is
measured here, not assumed.
"""

import warnings

import numpy as np

from gdln_jax._checks import check_choice, check_positive, is_concrete
from gdln_jax._data.boundary import check_gated_data, check_graph, check_single
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.packing import in_blocks, pack
from gdln_jax._graph import Graph
from gdln_jax._network.edges import check_untied, stacked
from gdln_jax._reduction.certificate import (
    named_classes,
    normal_component,
    span_leak,
    tied_classes,
    typical_strength,
)
from gdln_jax._reduction.coupled import couple
from gdln_jax._reduction.frames import find_frames
from gdln_jax._reduction.mode_data import make_mode_data
from gdln_jax._reduction.reduction import Reduction
from gdln_jax._reduction.refusal import InexactReductionError, InexactReductionWarning, advice
from gdln_jax._reduction.statistics import (
    group_statistics,
    path_moments,
    unit_nodes,
    with_shared_errors,
    without_weightless,
)

_MODES = ("raise", "warn", "coupled")


def reduce(
    graph: Graph,
    data: GatedData | PackedData,
    *,
    tol: float = 1e-8,
    on_inexact: str = "raise",
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

    Raises:
        InexactReductionError: a residual above `tol`; it names the worst statistics and remedies.
        ValueError: inputs and targets that are nowhere correlated, or bad arguments.
    """
    check_graph(graph)
    check_untied(graph, "reduce", "integrate the network itself by gradient_flow")
    check_choice(on_inexact, _MODES, "on_inexact")
    tol = check_positive(tol, "tol")
    packed = _packed(graph, data)
    unit, sizes = unit_nodes(packed)
    frames = find_frames(unit, seed=seed)
    if frames.modes == 0:
        raise ValueError(
            "no input is correlated with any target along an open path, so there is no mode to "
            "learn; check gates and targets."
        )
    moments = path_moments(packed)
    frames = with_shared_errors(moments, frames)
    statistics = group_statistics(packed, moments, frames)
    mode_data = make_mode_data(packed, frames)
    u, v = (
        stacked(graph, dict(zip(graph.edge_index, f, strict=True))) for f in (frames.u, frames.v)
    )
    unit_scale = typical_strength(graph, moments, frames, sizes)
    typical = typical_strength(graph, moments, frames)

    def residual_at(labels: np.ndarray | None) -> float:
        masks = mode_data.masks
        return normal_component(unit, u, v, masks, unit_scale, labels, seed=seed)

    untied = residual = residual_at(None)
    ties = core = None
    if untied > tol:
        labels = tied_classes(mode_data, typical, seed=seed)
        tied = residual_at(labels)
        if tied <= tol:
            residual, ties = tied, named_classes(graph, labels)
        else:
            _answer_inexact(on_inexact, advice(untied, tol, statistics, packed))
    if residual > tol and on_inexact == "coupled":
        core = couple(packed, u, v)
        residual = span_leak(unit, core.u, core.v, float(unit_scale.max()), seed=seed)
    return Reduction(
        graph=graph,
        data=packed,
        source=data,
        modes=frames.modes,
        u=u,
        v=v,
        mode_data=mode_data,
        strengths=statistics.strengths,
        variances=statistics.variances,
        # NumPy scalars, so that jit sees them as data and does not compile anew for each.
        residual=np.float64(residual),
        untied_residual=np.float64(untied),
        typical=typical,
        ties=ties,
        core=core,
    )


def _packed(graph: Graph, data: GatedData | PackedData) -> PackedData:
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


def _answer_inexact(on_inexact: str, message: str) -> None:
    if on_inexact == "raise":
        raise InexactReductionError(message)
    if on_inexact == "warn":
        warnings.warn(message, InexactReductionWarning, stacklevel=3)
