"""Packed data as the modes see them: `ModeData` from frames.

Where modes do not meet in the loss the examples of a block collapse to one. Host code in NumPy.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._data.packed import OutputTable, PackedData
from gdln_jax._graph import Bundle, Graph, NodeClass
from gdln_jax._reduction.activities import Links, Part, links
from gdln_jax._reduction.frames import Frames
from gdln_jax._reduction.loss import ModeData, ModeTable

# Relative size of what rounding leaves in a product of orthonormal frames and moments: of a mode
# that is there, and of one that is not, beside the others.
_ROUNDING, _NOISE = 1e-12, 1e-14
# Pairs of a stage below which all forms of a sum take a few microseconds.
_FEW_PAIRS = 256


class _Table(NamedTuple):
    """A `ModeTable` in the making, with the number of each output node in its class."""

    instance: np.ndarray
    node: np.ndarray
    target: np.ndarray
    weight: np.ndarray

    def half_square(self, reached: np.ndarray | float = 0.0) -> float:
        """Loss at predictions `reached`; never below 0, unlike a difference of two losses."""
        return float(0.5 * np.sum(self.weight * np.square(self.target - reached)))


def _host(table: OutputTable) -> _Table:
    target, weight = np.asarray(table.target, float), np.asarray(table.weight, float)
    return _Table(table.instances, np.asarray(table.node), target, weight[..., None])


def make_mode_data(data: PackedData, frames: Frames, *, by_shape: bool = False) -> ModeData:
    """Look at packed data through frames. Host code; O(active pairs x width x modes).

    With `by_shape` nothing is left out for its values: the result's structure is that of `data`.
    """
    graph = data.graph
    found = links(data)
    inputs = [_seen_inputs(data, found, frames, k) for k in range(len(graph.bundles))]
    fits = [np.any(u, axis=0) & np.any(v, axis=0) for u, v in zip(frames.u, frames.v, strict=True)]
    signs = _signs(frames)
    shared = {
        key: None if by_shape else _instance_frames(graph, key[1], parts, frames, signs)
        for key, parts in zip(graph.classes, found.incoming, strict=True)
    }
    outputs, constant = _seen_outputs(data, shared)
    if all(there is not None for there in shared.values()):
        inputs, outputs, constant = _collapse(data, found, inputs, outputs, constant)
    wiring = _wiring(graph, frames)
    shown = [frames.u if shared[bundle.target] is None else signs for bundle in graph.bundles]
    single = wiring is None and all(
        table is None or table.target.shape[1] == 1 for table in outputs
    )
    return ModeData(
        graph,
        inputs=tuple(None if x is None else jax.device_put(x) for x in inputs),
        stages=data.stages,
        counts=data.counts,
        masks=tuple(
            jax.device_put(np.stack([fits[first_use(graph, name)] for name in names]).astype(float))
            for names in (store.names for store in graph.stores if not store.frozen)
        ),
        readouts=tuple(
            _readout(graph, bundle, here) for bundle, here in zip(graph.bundles, shown, strict=True)
        ),
        outputs=tuple(
            None if table is None else _to_device(table, count)
            for table, count in zip(outputs, data.counts, strict=True)
        ),
        constant=jax.device_put(np.asarray(constant)),
        wiring=wiring,
        frozen=jnp.asarray(np.stack(list(frames.frozen.values()))) if frames.frozen else None,
        dense=tuple(
            k
            for k, bundle in enumerate(graph.bundles)
            if single and shared[bundle.target] is not None and _is_dense(data, k)
        ),
    )


def _is_dense(data: PackedData, k: int) -> bool:
    """Whether sums over the predictions of bundle `k` are better products (`Products`).

    Each prediction has one term, of an activity that is no input. A cell of a matrix takes 2 ns on
    one core, a gather and scatter of a pair 14; with few pairs neither matters.
    """
    graph, stage, bundle = data.graph, data.stages[k], data.graph.bundles[k]
    classes = list(graph.classes)
    sending = any(other.source == bundle.target for other in graph.bundles)
    beside = sum(other.target == bundle.target for other in graph.bundles) > 1
    if stage is None or bundle.source[0] == 0 or sending or beside:
        return False
    pairs = stage.pairs()
    live = pairs.gate != 0
    cells = len(bundle.edges) * data.counts[classes.index(bundle.source)]
    alone = np.unique(pairs.target[live]).size == live.sum()
    return bool(alone and live.sum() >= max(_FEW_PAIRS, cells / 4))


def _wiring(graph: Graph, frames: Frames) -> tuple[Array, ...] | None:
    """Which row of strengths each edge reads, per bundle; None without ties."""
    if not graph.tied:
        return None
    row = {name: k for k, name in enumerate(graph.moving)}
    frozen = {edge: len(row) + k for k, edge in enumerate(frames.frozen)}

    def of(edge: str) -> int:
        return frozen[edge] if edge in frozen else row[graph.parameter_of[edge][0]]

    return tuple(jnp.asarray([of(edge) for edge in bundle.edges]) for bundle in graph.bundles)


def first_use(graph: Graph, parameter: str) -> int:
    """Position of the first edge that uses a parameter."""
    return graph.edge_index[graph.uses[parameter][0].edge]


def _to_device(table: _Table, count: int) -> ModeTable:
    trivial = np.array_equal(table.instance, np.arange(count))
    return ModeTable(
        instance=None if trivial else jax.device_put(table.instance),
        target=jax.device_put(table.target),
        weight=jax.device_put(table.weight),
    )


def _readout(graph: Graph, bundle: Bundle, shown: Sequence[np.ndarray]) -> Array | None:
    """How the edges of a bundle show in outputs, `shown` per edge; 0 for edges to hidden nodes."""
    ends = [not graph.outgoing[graph.edge(name).target] for name in bundle.edges]
    if not any(ends):
        return None
    rows = [shown[graph.edge_index[name]] for name in bundle.edges]
    return jax.device_put(np.stack([row * end for row, end in zip(rows, ends, strict=True)]))


def _seen_outputs(
    data: PackedData, shared: Mapping[NodeClass, np.ndarray | None]
) -> tuple[list[_Table | None], float]:
    """What predictions are compared with, in shared frames where there are any; and the rest.

    The rest is the loss that no mode can change, summed as squares: a difference of sums could fall
    below 0.
    """
    silent = [_host(table) for table in data.silent if table is not None]
    rest = sum((table.half_square() for table in silent), 0.0)
    outputs: list[_Table | None] = []
    for key, table in zip(data.graph.classes, data.outputs, strict=True):
        seen, there = None if table is None else _host(table), shared[key]
        if seen is not None and there is not None:
            frame = there[seen.instance]
            target = np.einsum("pby,pym->pbm", seen.target, frame)
            rest += seen.half_square(np.einsum("pbm,pym->pby", target, frame))
            seen = seen._replace(target=target)
        outputs.append(seen)
    return outputs, rest


def _seen_inputs(data: PackedData, found: Links, frames: Frames, k: int) -> np.ndarray | None:
    """V_e^T x per active pair of a bundle that leaves input nodes, (chunk, pair, row, mode)."""
    graph, stage, bundle = data.graph, data.stages[k], data.graph.bundles[k]
    if stage is None or bundle.source[0] != 0:
        return None
    x = found.inputs[list(graph.classes).index(bundle.source)]
    assert x is not None
    source, edge, _, _ = stage.pairs()
    v = np.stack([frames.v[graph.edge_index[name]] for name in bundle.edges])
    seen = np.einsum("pbx,pxm->pbm", x[source], v[edge])
    return seen.reshape(*stage.shape, *seen.shape[1:])


def _orientation(vectors: np.ndarray, seed: int) -> np.ndarray:
    """The sign (mode,) of each column of `vectors` (_, mode) beside the one chosen of x and -x.

    A mode is the same for x and -x, but arrays that are to be compared need one of the two, chosen
    by the vector alone. The one chosen has a positive inner product with a fixed random vector g.
    Rounding does not change this choice, since g x is 0 for no vector that occurs. A rule about
    entries (the largest is positive) fails: the entries of (1, -1) tie up to rounding.
    """
    return np.where(_generic(len(vectors), seed) @ vectors < 0, -1.0, 1.0)


@functools.cache
def _generic(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, size=size)


def _signs(frames: Frames) -> list[np.ndarray]:
    """Per edge the signs (mode,) of the columns of U_e beside the chosen ones; 0 for empty ones.

    An edge has one sign for all predictions that it takes part in, so that U_e = f diag(sign) in
    whatever frame f it shares with the other edges of a prediction.
    """
    return [np.any(u, axis=0) * _orientation(u, seed=4) for u in frames.u]


def _instance_frames(
    graph: Graph,
    width: int,
    incoming: list[list[Part]],
    frames: Frames,
    signs: list[np.ndarray],
) -> np.ndarray | None:
    """Frame (instance, width, mode) of each prediction of one class; None where none will do.

    One frame must serve all edges that are active together in a prediction, up to signs.
    """
    known: dict[tuple[int, ...], np.ndarray | None] = {(): np.zeros((width, frames.modes))}
    every = [
        tuple(sorted({p.edge for p in parts if not graph.outgoing[graph.edges[p.edge].target]}))
        for parts in incoming
    ]
    for edges in every:
        if edges not in known:
            known[edges] = _common_frame([frames.u[e] * signs[e] for e in edges])
    stack = [frame for edges in every if (frame := known[edges]) is not None]
    if len(stack) < len(every):
        return None
    return np.stack(stack) if stack else np.zeros((0, width, frames.modes))


def _common_frame(columns: list[np.ndarray]) -> np.ndarray | None:
    """The frame of which all `columns` (width, mode) are part, or None."""
    frame = np.zeros_like(columns[0])
    for u in columns:
        new = ~frame.any(axis=0)
        frame[:, new] = u[:, new]
    used = frame.any(axis=0)
    gram = frame[:, used].T @ frame[:, used]
    if np.abs(gram - np.eye(used.sum())).max(initial=0.0) > _ROUNDING:
        return None
    if any(np.abs((u - frame) * np.any(u, axis=0)).max() > _ROUNDING for u in columns):
        return None
    return frame


def _collapse(
    data: PackedData,
    found: Links,
    inputs: list[np.ndarray | None],
    outputs: list[_Table | None],
    constant: float,
) -> tuple[list[np.ndarray | None], list[_Table | None], float]:
    """Replace the rows of every block by one, where the modes do not meet in the loss.

    A mode whose inputs are all the same row vector up to sign enters the loss through two
    numbers per output: s = <y x> and d = <x^2>. Weight d/x^2 and target s/(w x) reproduce both.
    """
    unchanged = inputs, outputs, constant
    if data.rows == 1:
        return unchanged
    reference = _reference_rows(data, found, inputs)
    if reference is None:
        return unchanged
    rows_of, small_inputs = reference
    small_outputs: list[_Table | None] = []
    for c, table in enumerate(outputs):
        if table is None:
            small_outputs.append(None)
            continue
        x = np.stack([rows_of[c][i] for i in table.instance.tolist()])
        d = np.sum(table.weight * x**2, axis=1, keepdims=True)
        s = np.sum(table.weight * x * table.target, axis=1, keepdims=True)
        size = np.mean(x**2, axis=1, keepdims=True)
        small_weight = d / np.where(size > 0, size, 1)
        scale = small_weight * np.sqrt(size)
        small_target = s / np.where(scale > 0, scale, 1)
        constant += table.half_square(x * (s / np.where(d > 0, d, 1)))
        small_outputs.append(table._replace(target=small_target, weight=small_weight))
    return small_inputs, small_outputs, constant


def _reference_rows(
    data: PackedData, found: Links, inputs: list[np.ndarray | None]
) -> tuple[list[list[np.ndarray]], list[np.ndarray | None]] | None:
    """The row vector that all inputs of an activity share up to sign, and each input beside it.

    The first is (row, mode) per class and activity. The second are inputs with one row instead:
    the root mean square over rows, with the sign beside that vector. None where two inputs of an
    activity differ.
    """
    rows_of = _shared_rows(found, _seen_by_edge(data, inputs))
    if rows_of is None:
        return None
    classes = list(data.graph.classes)
    small: list[np.ndarray | None] = []
    for bundle, stage, x in zip(data.graph.bundles, data.stages, inputs, strict=True):
        if x is None or stage is None:
            small.append(None)
            continue
        there = rows_of[classes.index(bundle.target)]
        shared = np.stack([there[i] for i in stage.pairs().target.tolist()]).reshape(x.shape)
        sign = np.sign(np.sum(x * shared, axis=2, keepdims=True))
        small.append(sign * np.sqrt(np.mean(x**2, axis=2, keepdims=True)))
    return rows_of, small


def _seen_by_edge(
    data: PackedData, inputs: list[np.ndarray | None]
) -> dict[tuple[int, int], np.ndarray]:
    """Inputs (row, mode) by edge and distinct activity of its source, up to sign."""
    seen: dict[tuple[int, int], np.ndarray] = {}
    for bundle, stage, x in zip(data.graph.bundles, data.stages, inputs, strict=True):
        if x is not None and stage is not None:
            pairs, flat = stage.pairs(), x.reshape(-1, *x.shape[2:])
            for p in np.flatnonzero(pairs.gate):
                edge = data.graph.edge_index[bundle.edges[pairs.edge[p]]]
                seen[edge, int(pairs.source[p])] = flat[p] * _orientation(flat[p], seed=3)
    return seen


def _shared_rows(
    found: Links, seen: Mapping[tuple[int, int], np.ndarray]
) -> list[list[np.ndarray]] | None:
    """Per class and activity what its inputs have in common (row, mode); None if two differ."""
    rows_of: list[list[np.ndarray]] = [[] for _ in found.incoming]
    for c, activities in enumerate(found.incoming):
        for parts in activities:
            here: np.ndarray | None = None
            for part in parts:
                of_source = rows_of[part.source_class]
                first = (part.edge, part.source) in seen
                more = seen[part.edge, part.source] if first else of_source[part.source]
                here = more if here is None else _common(here, more)
                if here is None:
                    return None
            rows_of[c].append(here if here is not None else np.zeros((0, 0)))
    return rows_of


def _common(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """The row vectors that two inputs share mode by mode up to sign (0 fits all), or None."""
    size_a, size_b = (np.abs(x).max(axis=0, initial=0.0) for x in (a, b))
    same = np.minimum(np.abs(a - b).max(axis=0), np.abs(a + b).max(axis=0)) <= (
        _ROUNDING * np.maximum(size_a, size_b)
    )
    empty_a, empty_b = (size <= _NOISE * size.max(initial=0.0) for size in (size_a, size_b))
    if not np.all(same | empty_a | empty_b):
        return None
    return np.where(size_a >= size_b, a, b)
