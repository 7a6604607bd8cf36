"""Which examples use which edges, and the spaces that inputs and targets span there.

An edge is live on an example if it lies on an active path from an input node with non-zero
activity to an output node; weights do not matter.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import Block, OutputTable, PackedData
from gdln_jax._graph import Graph

# Singular values below this share of the largest count as 0.
TOLERANCES = {np.dtype("float64"): 1e-10, np.dtype("float32"): 1e-5}

Rows = Bool[np.ndarray, " row"]


class Table(NamedTuple):
    """Examples, one a row. Edges that are absent from `gates` are closed on all of them."""

    inputs: Mapping[str, Float[np.ndarray, "row _"]]
    targets: Mapping[str, Float[np.ndarray, "row _"]]
    gates: Mapping[str, Rows]
    rows: int


class Seen(NamedTuple):
    """What a closure has to know about the data.

    - `inputs`: input node -> its vectors (vector, width); small ones are set to 0.
    - `open`: live edge from an input node -> on which of these vectors it is live.
    - `live`: the edges that are live on some example.
    - `targets`: output node -> targets (row, width) of the examples that reach the node.
    """

    inputs: dict[str, np.ndarray]
    open: dict[str, np.ndarray]
    live: frozenset[str]
    targets: dict[str, np.ndarray]


def look(graph: Graph, data: GatedData | PackedData, tol: float) -> tuple[Seen, list[Table]]:
    """Collect what the data use; also the tables with small inputs set to 0."""
    tables = _without_small(graph, _tables(graph, data), tol)
    vectors: dict[str, dict[int, tuple[np.ndarray, dict[str, np.ndarray]]]] = {
        name: {} for name in graph.inputs
    }
    targets: dict[str, list[np.ndarray]] = {name: [] for name in graph.outputs}
    every: set[str] = set()
    for table in tables:
        live, reached = live_rows(graph, table)
        every |= {name for name, rows in live.items() if rows.any()}
        for name, x in table.inputs.items():
            # Blocks that present one array share it: its rows are counted once.
            _, known = vectors[name].setdefault(id(x), (x, {}))
            for edge in graph.outgoing[name]:
                if edge.name in live:
                    before = known.get(edge.name, np.zeros(len(x), bool))
                    known[edge.name] = before | live[edge.name]
        for name, y in table.targets.items():
            targets[name].append(y[reached[name]])
    inputs, use = {}, {}
    for name, arrays in vectors.items():
        width = graph.nodes[name]
        inputs[name] = np.concatenate([np.zeros((0, width)), *(x for x, _ in arrays.values())])
        for edge in graph.outgoing[name]:
            if edge.name in every:
                parts = [k.get(edge.name, np.zeros(len(x), bool)) for x, k in arrays.values()]
                use[edge.name] = np.concatenate(parts)
    seen = Seen(
        inputs,
        use,
        frozenset(every),
        {k: np.concatenate([np.zeros((0, graph.nodes[k])), *v]) for k, v in targets.items()},
    )
    return seen, tables


def live_rows(graph: Graph, table: Table) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Edge -> rows on which it is live, and output node -> rows that reach it."""
    place = {name: i for i, name in enumerate(graph.order)}
    edges = [graph.edge(name) for name in table.gates]
    none = np.zeros(table.rows, bool)
    forward = {name: np.any(x != 0, axis=1) for name, x in table.inputs.items()}
    for edge in sorted(edges, key=lambda e: place[e.target]):
        sent = forward.get(edge.source, none) & table.gates[edge.name]
        forward[edge.target] = forward.get(edge.target, none) | sent
    ways = open_ways(graph, table)
    live = {
        e.name: forward.get(e.source, none) & table.gates[e.name] & ways.get(e.target, none)
        for e in edges
    }
    return live, {name: forward.get(name, none) for name in graph.outputs}


def open_ways(graph: Graph, table: Table) -> dict[str, Rows]:
    """Node -> rows on which an open way leads from it to an output node."""
    place = {name: i for i, name in enumerate(graph.order)}
    ways = {name: np.ones(table.rows, bool) for name in graph.outputs}
    none = np.zeros(table.rows, bool)
    edges = [graph.edge(name) for name in table.gates]
    for edge in sorted(edges, key=lambda e: -place[e.source]):
        back = ways.get(edge.target, none) & table.gates[edge.name]
        ways[edge.source] = ways.get(edge.source, none) | back
    return ways


def basis(vectors: Float[np.ndarray, "vector width"], tol: float) -> Float[np.ndarray, "width _"]:
    """Orthonormal columns that span the vectors, up to singular values of `tol` x the largest."""
    width = vectors.shape[1]
    if not len(vectors) or not vectors.any():
        return np.zeros((width, 0))
    if len(vectors) > 2 * width:
        vectors = np.asarray(np.linalg.qr(vectors, mode="r"))
    _, sizes, right = np.linalg.svd(vectors, full_matrices=False)
    rank = int(np.sum(sizes > tol * sizes[0]))
    return np.eye(width) if rank == width else right[:rank].T


def blocks_of(data: PackedData) -> list[Block]:
    """The examples of packed data, one block for each output node that they are compared at.

    Each holds the inputs and gates of the active paths to that node. An instance of an input class
    does not say which node it belongs to; the edges of the stages that read it do.
    """
    classes = list(data.graph.classes)
    arrays = [None if x is None else [np.asarray(a) for a in np.asarray(x)] for x in data.inputs]
    incoming = _incoming(data)
    number = {node_class: c for c, node_class in enumerate(classes)}
    traced: dict[tuple[int, int], tuple[dict[str, float], dict[str, np.ndarray]]] = {}

    def trace(c: int, instance: int) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        if (c, instance) not in traced:
            gates: dict[str, float] = {}
            inputs: dict[str, np.ndarray] = {}
            for name, gate, source in incoming.get((c, instance), []):
                gates[name] = gate
                node = data.graph.edge(name).source
                before = number[data.graph.node_class(node)]
                if node in data.graph.inputs:
                    known = arrays[before]
                    assert known is not None
                    inputs[node] = known[source]
                more = trace(before, source)
                gates.update(more[0])
                inputs.update(more[1])
            traced[c, instance] = gates, inputs
        return traced[c, instance]

    blocks = []
    for c, names in enumerate(data.graph.classes.values()):
        for table, reached in ((data.outputs[c], True), (data.silent[c], False)):
            for row, (node, instance) in enumerate(_rows(table)):
                assert table is not None
                gates, inputs = trace(c, instance) if reached else ({}, {})
                target, weight = np.asarray(table.target[row]), np.asarray(table.weight[row])
                example = np.asarray(table.example)[row]
                blocks.append(Block(inputs, {names[node]: target}, gates, weight, example))
    return blocks


def _rows(table: OutputTable | None) -> Iterable[tuple[int, int]]:
    """(node, instance) of each row."""
    if table is None:
        return []
    nodes = np.asarray(table.node)
    given = table.instance
    instances = np.arange(len(nodes)) if given is None else np.asarray(given)
    return [(int(v), int(i)) for v, i in zip(nodes, instances, strict=True)]


def _incoming(data: PackedData) -> dict[tuple[int, int], list[tuple[str, float, int]]]:
    """(class, instance) -> the edges that make it, each with its gate and source instance."""
    number = {node_class: c for c, node_class in enumerate(data.graph.classes)}
    made: dict[tuple[int, int], list[tuple[str, float, int]]] = {}
    for bundle, stage in zip(data.graph.bundles, data.stages, strict=True):
        if stage is None:
            continue
        count = stage.shape[0] * stage.shape[1]
        order = np.arange(count).reshape(stage.shape)
        source = order if stage.source is None else np.asarray(stage.source)
        target = order if stage.target is None else np.asarray(stage.target)
        edge = np.arange(stage.shape[0]) if stage.edge is None else np.asarray(stage.edge)
        gate = np.ones(stage.shape) if stage.gate is None else np.asarray(stage.gate)[..., 0]
        for i, j in zip(*np.nonzero(gate), strict=True):  # a gate of 0 is padding
            place = number[bundle.target], int(target[i, j])
            made.setdefault(place, []).append(
                (bundle.edges[edge[i]], float(gate[i, j]), int(source[i, j]))
            )
    return made


def _tables(graph: Graph, data: GatedData | PackedData) -> list[Table]:
    if isinstance(data, GatedData):
        return [table_of(graph, data)]
    return [
        Table(
            b.inputs, b.targets, {k: np.ones(len(b.weights), bool) for k in b.gates}, len(b.weights)
        )
        for b in blocks_of(data)
    ]


def table_of(graph: Graph, data: GatedData) -> Table:
    """All examples, with the gate of each edge times that of the node it ends at."""
    one = np.ones(data.num_examples)
    gates = {
        edge.name: np.asarray(data.edge_gates.get(edge.name, one) != 0)
        & np.asarray(data.node_gates.get(edge.target, one) != 0)
        for edge in graph.edges
    }
    inputs, targets = (
        {k: np.asarray(v, np.float64) for k, v in arrays.items()}
        for arrays in (data.inputs, data.targets)
    )
    return Table(inputs, targets, gates, data.num_examples)


def _without_small(graph: Graph, tables: list[Table], tol: float) -> list[Table]:
    """The tables with inputs of at most `tol` x the largest of their node set to 0."""
    largest = dict.fromkeys(graph.inputs, 0.0)
    cut: dict[tuple[str, int], np.ndarray] = {}
    for table in tables:
        for name, x in table.inputs.items():
            largest[name] = max(largest[name], np.linalg.norm(x, axis=1).max(initial=0.0))
    for table in tables:
        for name, x in table.inputs.items():
            if (name, id(x)) not in cut:
                small = np.linalg.norm(x, axis=1) <= tol * largest[name]
                cut[name, id(x)] = np.where(small[:, None], 0.0, x)
    return [
        table._replace(inputs={name: cut[name, id(x)] for name, x in table.inputs.items()})
        for table in tables
    ]
