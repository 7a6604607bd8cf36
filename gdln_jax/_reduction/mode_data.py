"""Packed data as the modes see them: `ModeData` from frames.

Where modes do not meet in the loss the examples of a block collapse to one. Host code in NumPy.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from gdln_jax._data.packed import OutputTable, PackedData
from gdln_jax._graph import Graph
from gdln_jax._reduction.activities import Links, Part, links
from gdln_jax._reduction.frames import Frames
from gdln_jax._reduction.loss import ModeData, ModeTable

# Relative size of what rounding leaves in a product of orthonormal frames and moments: of a mode
# that is there, and of one that is not, beside the others.
_ROUNDING, _NOISE = 1e-12, 1e-14


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


def make_mode_data(data: PackedData, frames: Frames) -> ModeData:
    """Look at packed data through frames. Host code; O(active pairs x width x modes)."""
    graph = data.graph
    found = links(data)
    inputs = [_seen_inputs(data, found, frames, k) for k in range(len(graph.bundles))]
    masks = [
        np.stack([_fits(frames, graph.edge_index[name]) for name in bundle.edges])
        for bundle in graph.bundles
    ]
    signs = _signs(frames)
    shared = {
        key: _instance_frames(graph, key[1], found.incoming[c], frames, signs)
        for c, key in enumerate(graph.classes)
    }
    ends = set(graph.outputs)
    readouts = []
    for bundle in graph.bundles:
        readout = None
        if any(graph.edge(name).target in ends for name in bundle.edges):
            shown = frames.u if shared[bundle.target] is None else signs
            rows = [shown[graph.edge_index[name]] for name in bundle.edges]
            kept = [graph.edge(name).target in ends for name in bundle.edges]
            readout = np.stack([row * keep for row, keep in zip(rows, kept, strict=True)])
        readouts.append(readout)
    # What no mode can reach, summed as squares: a difference of sums could fall below 0.
    constant = sum(_host(table).half_square() for table in data.silent if table is not None)
    outputs = []
    for key, table in zip(graph.classes, data.outputs, strict=True):
        seen, rotations = None, shared[key]
        if table is not None:
            seen = _host(table)
            if rotations is not None:
                there = rotations[seen.instance]
                target = np.einsum("pby,pym->pbm", seen.target, there)
                constant += seen.half_square(np.einsum("pbm,pym->pby", target, there))
                seen = seen._replace(target=target)
        outputs.append(seen)
    if all(rotations is not None for rotations in shared.values()):
        inputs, outputs, constant = _collapse(data, found, inputs, outputs, constant)
    return ModeData(
        graph,
        tuple(None if x is None else jnp.asarray(x) for x in inputs),
        data.stages,
        data.counts,
        tuple(jnp.asarray(mask) for mask in masks),
        tuple(None if r is None else jnp.asarray(r) for r in readouts),
        tuple(
            None if table is None else _to_device(table, count)
            for table, count in zip(outputs, data.counts, strict=True)
        ),
        jnp.asarray(constant),
    )


def _to_device(table: _Table, count: int) -> ModeTable:
    trivial = np.array_equal(table.instance, np.arange(count))
    instance = None if trivial else jnp.asarray(table.instance)
    return ModeTable(
        instance=instance, target=jnp.asarray(table.target), weight=jnp.asarray(table.weight)
    )


def _fits(frames: Frames, edge: int) -> np.ndarray:
    return (np.any(frames.u[edge], axis=0) & np.any(frames.v[edge], axis=0)).astype(float)


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


def _signs(frames: Frames) -> np.ndarray:
    """Per edge and mode the sign of U's column beside one of u and -u that is always the same.

    0 for empty columns.
    """
    generic = np.random.default_rng(4).uniform(0.5, 1.5, size=max(map(len, frames.u)))
    signs = []
    for u in frames.u:
        along = generic[: len(u)] @ u
        signs.append(np.where(np.any(u, axis=0), np.where(along < 0, -1.0, 1.0), 0.0))
    return np.stack(signs)


def _instance_frames(
    graph: Graph,
    width: int,
    incoming: list[list[Part]],
    frames: Frames,
    signs: np.ndarray,
) -> np.ndarray | None:
    """Frame (instance, width, mode) of each prediction of one class; None where none will do.

    One frame must serve all edges that are active together in a prediction, up to signs.
    """
    ends = set(graph.outputs)
    zero = np.zeros((width, frames.modes))
    known: dict[tuple[int, ...], np.ndarray | None] = {}
    every = [
        tuple(sorted({e for e, *_ in parts if graph.edges[e].target in ends})) for parts in incoming
    ]
    if not any(every):
        return zero[None][:0]
    for edges in every:
        if edges not in known:
            columns = [frames.u[e] * signs[e] for e in edges]
            known[edges] = _common_frame(columns) if edges else zero
    stack = [known[edges] for edges in every]
    there = [frame for frame in stack if frame is not None]
    return np.stack(there) if len(there) == len(stack) else None


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
    """Per activity the one row vector (row, mode) that all its inputs share up to sign, if any."""
    graph = data.graph
    classes = list(graph.classes)
    ends = [c for c, key in enumerate(classes) if key[0] == 0]
    seen_by: dict[tuple[int, int], np.ndarray] = {}
    for k, x in enumerate(inputs):
        stage = data.stages[k]
        if x is not None and stage is not None:
            source, edge, gate, _ = stage.pairs()
            flat = x.reshape(-1, *x.shape[2:])
            for p in np.flatnonzero(gate):
                name = graph.bundles[k].edges[edge[p]]
                seen_by[graph.edge_index[name], int(source[p])] = flat[p]
    signs = np.random.default_rng(3).uniform(0.5, 1.5, size=(data.rows, 1))
    seen_by = {key: _canonical(rows, signs) for key, rows in seen_by.items()}
    rows_of: list[list[np.ndarray]] = [[] for _ in classes]
    for c, row in enumerate(found.incoming):
        for parts in row:
            here: np.ndarray | None = None
            for edge, _, s, a in parts:
                more = seen_by[edge, a] if (edge, a) in seen_by and s in ends else rows_of[s][a]
                here = more if here is None else _common(here, more)
                if here is None:
                    return None
            rows_of[c].append(here if here is not None else np.zeros((data.rows, 0)))
    small: list[np.ndarray | None] = []
    for k, x in enumerate(inputs):
        if x is None:
            small.append(None)
            continue
        stage = data.stages[k]
        assert stage is not None
        _, _, _, target = stage.pairs()
        c = classes.index(graph.bundles[k].target)
        shared_rows = np.stack([rows_of[c][i] for i in target.tolist()]).reshape(x.shape)
        sign = np.sign(np.sum(x * shared_rows, axis=2, keepdims=True))
        small.append(sign * np.sqrt(np.mean(x**2, axis=2, keepdims=True)))
    return rows_of, small


def _canonical(rows: np.ndarray, generic: np.ndarray) -> np.ndarray:
    """One of x and -x, always the same, per mode."""
    return rows * np.where(np.sum(rows * generic, axis=0) < 0, -1.0, 1.0)


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
