"""Finding and certifying a reduction (N Eq. 7-10; theory#certificate): `gdln_jax.reduce`.

The reduction is exact if the full velocity has no component off the aligned manifold; that is
measured here, not assumed.
"""

from collections.abc import Mapping
from typing import overload

import jax.numpy as jnp
from typing_extensions import TypeAliasType

from gdln_jax._checks import check_choice, check_positive
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.boundary import check_graph
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.packing import unpacked
from gdln_jax._data.schedule import Schedule
from gdln_jax._graph import Graph
from gdln_jax._network.losses import mse
from gdln_jax._reduction.frames import Frames, find_frames
from gdln_jax._reduction.frozen_paths import (
    frozen_arrays,
    frozen_stacks,
    without_frozen_paths,
)
from gdln_jax._reduction.mode_data import make_mode_data
from gdln_jax._reduction.reduce_schedule import reduce_schedule
from gdln_jax._reduction.reduction import Reduction
from gdln_jax._reduction.refusal import InexactReductionError
from gdln_jax._reduction.schedule import ReducedSchedule
from gdln_jax._reduction.statistics import in_units, path_moments, unit_nodes, with_shared_errors
from gdln_jax._reduction.tied_frames import Sides, find_tied_frames, scaled_alike
from gdln_jax._reduction.view import Options, certified, check_modes, packed_for, view

Reducible = TypeAliasType("Reducible", GatedData | PackedData | Schedule)
Reduced = TypeAliasType("Reduced", Reduction | ReducedSchedule)
_MODES = ("raise", "warn", "coupled")


@overload
def reduce(
    graph: Graph,
    data: GatedData | PackedData,
    *,
    tol: float = 1e-8,
    on_inexact: str = "raise",
    frozen: Mapping[str, ArrayLike] | None = None,
    frames: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    like: Reduction | None = None,
    seed: int = 0,
) -> Reduction: ...


@overload
def reduce(
    graph: Graph,
    data: Schedule,
    *,
    tol: float = 1e-8,
    on_inexact: str = "raise",
    frozen: Mapping[str, ArrayLike] | None = None,
    frames: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    like: Reduction | None = None,
    seed: int = 0,
) -> ReducedSchedule: ...


def reduce(
    graph: Graph,
    data: Reducible,
    *,
    tol: float = 1e-8,
    on_inexact: str = "raise",
    frozen: Mapping[str, ArrayLike] | None = None,
    frames: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    like: Reduction | None = None,
    seed: int = 0,
) -> Reduced:
    """Find the aligned coordinates of a network's learning dynamics, and certify them.

    Works on any gated graph: several inputs and outputs, skips, bottlenecks, repeated singular
    values, real gates, frames per group of paths (E4). Paths are never enumerated. Host code, for
    concrete data; cost O(active pairs x width^3).

    Args:
        data: of a `Schedule` of `times` the frames are those that all phases share, and the result
            is a `ReducedSchedule`, with a certificate for each phase.
        tol: largest residual that counts as exact; 1e-8 is far above rounding and far below any
            effect of non-diagonal data.
        on_inexact: what to do above it. `"raise"`; `"warn"` and continue with the approximation; or
            `"coupled"`: keep the off-diagonal couplings, exact by construction but with a matrix
            per edge instead of one number per mode.
        frozen: of a graph with frozen parameters, parameter -> array.
        frames: of a graph with ties, edge or parameter -> (U, V) to take instead of looking for
            them; columns may be 0.
        like: of a graph without ties, a reduction whose modes and frames to keep instead of looking
            for them. `loss`, `solve`, `time_to` and `train` of all reductions like it share their
            programs, whatever the values of gates, 0 and 1 included, as long as shapes agree and
            the same gates are named. Make it of data whose gates are open: a path that was closed
            has no frames. A step costs all edges times all examples.

    With tied edges there is one b for each parameter, and the certificate is that of the class
    gradient, whose terms may cancel where no edge alone is exact (theory#tied-frames).

    Raises:
        InexactReductionError: a residual above `tol`; it names the worst statistics and remedies,
            of a schedule the phases that have no frames, alone or together (also as its `phases`).
        ValueError: inputs and targets that are nowhere correlated, or bad arguments.
    """
    check_graph(graph)
    check_choice(on_inexact, _MODES, "on_inexact")
    options = Options(check_positive(tol, "tol"), on_inexact, seed)
    if isinstance(data, Schedule):
        data.check_unit("times", "reduce")
        if graph.tied:
            raise ValueError(
                "reduce takes a Schedule for graphs without tied or frozen edges: reduce the "
                "phases one by one, or integrate the network itself by gradient_flow."
            )
    if graph.tied and not isinstance(data, Schedule):
        return _reduce_tied(graph, data, options, frozen, frames)
    if frozen or frames:
        raise ValueError(
            "frozen= and frames= are for graphs with tied or frozen edges, Graph(shared=, frozen=)."
        )
    if like is not None:
        return _reduce_like(graph, data, options, like)
    if isinstance(data, Schedule):
        return reduce_schedule(graph, data, options)
    packed = packed_for(graph, data)
    units = unit_nodes(packed)
    found = find_frames(units[0], seed=seed)
    check_modes(found)
    moments = path_moments(packed)
    found = with_shared_errors(moments, found)
    return certified(view(graph, data, packed, units, moments, found), options)


def _reduce_like(graph: Graph, data: Reducible, options: Options, like: Reduction) -> Reduction:
    """`reduce` in the frames of another reduction, with one form for all values of the data."""
    if graph.tied or not isinstance(data, GatedData):
        raise ValueError(
            "like= is for GatedData and a graph without tied or frozen edges; leave it out here."
        )
    if not isinstance(like, Reduction) or like.graph != graph or like.coupled:
        raise ValueError(
            "like must be the reduction of other data of the same graph, without matrices: "
            f"reduce(graph, other_data). Given is {like!r}."
        )
    packed = packed_for(graph, data)
    units = unit_nodes(packed)
    frames = Frames.of_bundles(graph, like.u, like.v)
    every = unpacked(graph, data)
    unit = in_units(every, units[1], [dict(enumerate(names)) for names in graph.classes.values()])
    mode_data = make_mode_data(every, frames, by_shape=True)
    moments = path_moments(packed)
    seen = view(graph, data, packed, (unit, units[1]), moments, frames, mode_data=mode_data)
    return certified(seen, options)


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
    reduction = certified(seen, options)
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
