"""Packed data: examples arranged so that a step costs in proportion to the active edges.

Examples of one gate pattern form blocks. Per bundle of same-shape edges we list the active
(edge, block) pairs and compute nothing else; activities that several blocks share (an input that
is encoded once for all the outputs it is routed to) are computed once. Everything here happens
in NumPy before tracing; what comes out is a pytree of arrays.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from gdln_jax._checks import is_concrete
from gdln_jax._data.boundary import check_gated_data, check_graph, check_single
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import Block, OutputTable, PackedData, Stage
from gdln_jax._graph import Graph, NodeClass

# Fixed cost of one block in units of one example's work: what a gather or a scatter of a small
# window costs beside the products. Only the layout depends on it, never a result.
_BLOCK_OVERHEAD = 4.0


def pack(graph: Graph, data: GatedData | PackedData) -> PackedData:
    """Arrange `data` for `graph` so that a step costs in proportion to the active edges.

    Looks at the gates, so `data` must not be traced. Cost: one pass over patterns and edges on
    the host.

    Raises:
        ValueError: for data that do not fit the graph (see `GatedData.validate`), or when called
            under jit, grad or vmap over the data.
    """
    check_graph(graph)
    if isinstance(data, PackedData):
        if data.graph != graph:
            raise ValueError("the packed data were made for another graph; pack them again.")
        return data
    check_gated_data(data)
    check_single(data, data.weights.shape[:-1])
    data.validate(graph)
    if not is_concrete(data):
        raise ValueError(
            "pack() has to look at the gates' values and cannot run under jit, grad or vmap over "
            "the data; call it outside and pass the result in."
        )
    return pack_blocks(graph, _blocks(graph, data), data.num_examples, data.weights.dtype)


def unpacked(graph: Graph, data: GatedData) -> PackedData:
    """Arrange `data` as one block with every edge active; works on traced arrays.

    The same result as `pack` at the cost of all edges times all examples. This is the form to
    differentiate with respect to gates or inputs. Without targets for predictions only: the
    targets are 0 then.
    """
    check_single(data, data.weights.shape[:-1])
    data.validate(graph)
    place = {name: i for names in graph.classes.values() for i, name in enumerate(names)}
    n = data.num_examples
    inputs = []
    for names in graph.classes.values():
        known = names[0] in data.inputs
        inputs.append(jnp.stack([data.inputs[v] for v in names]) if known else None)
    stages = []
    for bundle in graph.bundles:
        edges = [graph.edge(name) for name in bundle.edges]
        gates = []
        for edge in edges:
            given = (data.edge_gates.get(edge.name), data.node_gates.get(edge.target))
            factors = [g for g in given if g is not None]
            gates.append(factors[0] * factors[-1] if len(factors) == 2 else (factors or [None])[0])
        gate = None
        if any(g is not None for g in gates):
            one = jnp.ones(n, data.weights.dtype)
            gate = jnp.stack([one if g is None else g for g in gates])[:, None, :]
        source = np.array([[place[edge.source]] for edge in edges])
        target = np.array([[place[edge.target]] for edge in edges])
        stages.append(
            Stage(
                _unless_trivial(source, len(graph.classes[bundle.source])),
                None,
                gate,
                _unless_trivial(target, len(graph.classes[bundle.target])),
                source.shape,
            )
        )
    outputs = []
    for names in graph.classes.values():
        # A class may hold hidden nodes beside output nodes of the same level and width.
        ends = [i for i, name in enumerate(names) if not graph.outgoing[name]]
        table = None
        if ends:
            blank = jnp.zeros((n, graph.nodes[names[ends[0]]]), data.weights.dtype)
            table = OutputTable(
                instance=_unless_trivial(np.array(ends), len(names)),
                node=np.array(ends),
                target=jnp.stack([data.targets.get(names[i], blank) for i in ends]),
                weight=jnp.broadcast_to(data.weights, (len(ends), n)),
                example=np.broadcast_to(np.arange(n), (len(ends), n)),
            )
        outputs.append(table)
    counts = tuple(len(names) for names in graph.classes.values())
    silent = (None,) * len(counts)
    return PackedData(graph, tuple(inputs), tuple(stages), tuple(outputs), silent, counts, n)


def in_blocks(data: GatedData | PackedData) -> GatedData | PackedData:
    """Pack again what `unpacked` arranged in one block, where gates differ between its examples.

    That is what `net.prepare(data)` gives under jit. Not for traced data; `GatedData` pass.
    """
    if isinstance(data, GatedData):
        return data
    gates = [None if stage is None else stage.gate for stage in data.stages]
    if all(gate is None or gate.shape[-1] == 1 for gate in gates):
        return data
    graph = data.graph
    inputs, targets, edge_gates = {}, {}, {}
    weights = None
    for names, x, table in zip(graph.classes.values(), data.inputs, data.outputs, strict=True):
        if x is not None:
            inputs |= dict(zip(names, x, strict=True))
        if table is not None:
            ends = [names[i] for i in np.asarray(table.node)]
            targets |= dict(zip(ends, table.target, strict=True))
            weights = table.weight[0]
    for bundle, gate in zip(graph.bundles, gates, strict=True):
        if gate is not None:
            edge_gates |= dict(zip(bundle.edges, gate[:, 0], strict=True))
    return pack(graph, GatedData(inputs, targets, edge_gates=edge_gates, weights=weights))


def _blocks(graph: Graph, data: GatedData) -> Iterable[Block]:
    """Cut the examples into blocks of equal length and one gate pattern each."""
    patterns = data.patterns()
    order = np.argsort(patterns.index, kind="stable")
    bounds = np.searchsorted(patterns.index[order], np.arange(patterns.count + 1))
    rows = _block_length(np.diff(bounds))
    inputs = {k: np.asarray(v) for k, v in data.inputs.items()}
    targets = {k: np.asarray(v) for k, v in data.targets.items()}
    weights = np.asarray(data.weights)
    some_input, some_target = (
        {k: np.maximum.reduceat(np.any(v[order] != 0, axis=1), bounds[:-1]) for k, v in d.items()}
        for d in (inputs, targets)
    )
    gates = _edge_gates(graph, patterns.node_gates, patterns.edge_gates, patterns.count)
    names = [edge.name for edge in graph.edges]
    for p in range(patterns.count):
        open_edges = np.flatnonzero(gates[p])
        gate_of = {names[i]: float(gates[p, i]) for i in open_edges}
        members = order[bounds[p] : bounds[p + 1]]
        used_inputs = [k for k in inputs if some_input[k][p]]
        used_targets = [k for k in targets if some_target[k][p]]
        for start in range(0, len(members), rows):
            part = members[start : start + rows]
            pad = rows - len(part)
            yield Block(
                {k: _padded(inputs[k][part], pad) for k in used_inputs},
                {k: _padded(targets[k][part], pad) for k in used_targets},
                gate_of,
                _padded(weights[part], pad),
                np.concatenate([part, np.full(pad, -1)]),
            )


def _block_length(counts: np.ndarray) -> int:
    """Rows per block that waste least on padding and on the overhead of many small blocks."""
    if len(counts) > 1000:
        candidates = np.unique(np.quantile(counts, [0, 0.25, 0.5, 0.75, 1]).astype(int))
    else:
        candidates = np.unique(counts)
    costs = [np.sum(-(-counts // b)) * (b + _BLOCK_OVERHEAD) for b in candidates]
    return int(candidates[int(np.argmin(costs))])


def _padded(array: np.ndarray, pad: int) -> np.ndarray:
    return np.pad(array, [(0, pad)] + [(0, 0)] * (array.ndim - 1)) if pad else array


def _edge_gates(
    graph: Graph,
    node_gates: Mapping[str, np.ndarray],
    edge_gates: Mapping[str, np.ndarray],
    count: int,
) -> np.ndarray:
    """Gate of each edge times the gate of the node it ends at, (pattern, edge)."""
    gates = np.ones((count, len(graph.edges)))
    for i, edge in enumerate(graph.edges):
        if edge.name in edge_gates:
            gates[:, i] *= edge_gates[edge.name]
        if edge.target in node_gates:
            gates[:, i] *= node_gates[edge.target]
    return gates


def pack_blocks(
    graph: Graph, blocks: Iterable[Block], num_examples: int, dtype: np.dtype
) -> PackedData:
    """Arrange blocks of equal length; the constructor for data that were never dense."""
    blocks = list(blocks)
    levels = list(graph.classes)
    active, input_tables = _input_instances(graph, blocks, levels)
    stages: dict[int, Stage | None] = {}
    counts = [0 if t is None else len(t) for t in input_tables]
    for c, node_class in enumerate(levels):
        incoming = [k for k, bundle in enumerate(graph.bundles) if bundle.target == node_class]
        if incoming:
            counts[c] = _compute_class(graph, blocks, incoming, active, stages, dtype)
    outputs, silent = [], []
    for c, node_class in enumerate(levels):
        reached, unreached = _output_tables(graph, blocks, node_class, active, counts[c], dtype)
        outputs.append(reached)
        silent.append(unreached)
    return PackedData(
        graph,
        tuple(None if t is None else jnp.asarray(t, dtype) for t in input_tables),
        tuple(stages[k] for k in range(len(graph.bundles))),
        tuple(outputs),
        tuple(silent),
        tuple(counts),
        num_examples,
    )


# Per block: node -> number of its activity among the distinct ones of its class.
_Active = list[dict[str, int]]


def _input_instances(
    graph: Graph, blocks: list[Block], levels: list[NodeClass]
) -> tuple[_Active, list[np.ndarray | None]]:
    active: _Active = [{} for _ in blocks]
    tables: list[np.ndarray | None] = []
    inputs = set(graph.inputs)
    for node_class in levels:
        place = {name: i for i, name in enumerate(graph.classes[node_class]) if name in inputs}
        seen: dict[tuple[int, bytes], list[tuple[int, str]]] = {}
        arrays: dict[tuple[int, bytes], np.ndarray] = {}
        for b, block in enumerate(blocks):
            for name, x in block.inputs.items():
                if name in place and np.any(x):
                    key = (place[name], x.tobytes())
                    seen.setdefault(key, []).append((b, name))
                    arrays.setdefault(key, x)
        # In the order of the nodes; within a node in order of appearance (sorted() is stable).
        keys = sorted(seen, key=lambda key: key[0])
        for number, key in enumerate(keys):
            for b, name in seen[key]:
                active[b][name] = number
        tables.append(np.stack([arrays[key] for key in keys]) if keys else None)
    return active, tables


class _Term(NamedTuple):
    """One summand of an activity: gate times edge (by position in its bundle) times source."""

    bundle: int
    edge: int
    source: int
    gate: float


class _Pair(NamedTuple):
    """A product to compute in one bundle: which edge, to which activity, from which, its gate."""

    edge: int
    target: int
    source: int
    gate: float


def _compute_class(
    graph: Graph,
    blocks: list[Block],
    incoming: list[int],
    active: _Active,
    stages: dict[int, Stage | None],
    dtype: np.dtype,
) -> int:
    """Number the distinct activities of one node class and lay out the work that makes them.

    Two nodes have the same activity, in whatever blocks, if they add up the same terms: the same
    edges, sources and gates.
    """
    bundles = set(incoming)
    places: dict[tuple[_Term, ...], list[tuple[int, str]]] = {}  # sum -> (block, node) with it
    for b, (block, here) in enumerate(zip(blocks, active, strict=True)):
        sums: dict[str, list[_Term]] = {}
        for name, gate in block.gates.items():
            bundle, position = graph.slot[name]
            edge = graph.edge(name)
            if bundle in bundles and edge.source in here:
                term = _Term(bundle, position, here[edge.source], gate)
                sums.setdefault(edge.target, []).append(term)
        for node, terms in sums.items():
            places.setdefault(tuple(sorted(terms)), []).append((b, node))
    # In the order of the edges, so that with one active edge per activity the results of the
    # products already lie where they belong.
    pairs: dict[int, list[_Pair]] = {k: [] for k in incoming}
    for number, terms in enumerate(sorted(places)):
        for b, node in places[terms]:
            active[b][node] = number
        for term in terms:
            pair = _Pair(term.edge, number, term.source, term.gate)
            pairs[term.bundle].append(pair)
    for k in incoming:
        bundle = graph.bundles[k]
        available = _count(graph, active, bundle.source)
        stages[k] = _stage(pairs[k], len(bundle.edges), available, len(places), dtype)
    return len(places)


def _count(graph: Graph, active: _Active, node_class: NodeClass) -> int:
    members = set(graph.classes[node_class])
    numbers = (i for here in active for name, i in here.items() if name in members)
    return 1 + max(numbers, default=-1)


def _stage(
    pairs: list[_Pair],
    num_edges: int,
    num_sources: int,
    num_targets: int,
    dtype: np.dtype,
) -> Stage | None:
    if not pairs:
        return None
    pairs = sorted(pairs)
    edge, target, source, gate = (np.array(column) for column in zip(*pairs, strict=True))
    per_edge = np.bincount(edge, minlength=num_edges)
    width = _chunk_width(per_edge)
    chunks = -(-per_edge // width)
    chunk_edge = np.repeat(np.arange(num_edges), chunks)
    within = np.arange(len(pairs)) - np.repeat(np.cumsum(per_edge) - per_edge, per_edge)
    row = np.repeat(np.cumsum(chunks) - chunks, per_edge) + within // width
    column = within % width
    shape = (len(chunk_edge), width)
    # Padding has gate 0 and reads and adds at place 0.
    table = {"source": np.zeros(shape, int), "target": np.zeros(shape, int)}
    table["source"][row, column] = source
    table["target"][row, column] = target
    gates = np.zeros(shape)
    gates[row, column] = gate
    return Stage(
        _unless_trivial(table["source"], num_sources),
        _unless_trivial(chunk_edge, num_edges),
        None if np.all(gates == 1) else jnp.asarray(gates[:, :, None], dtype),
        _unless_trivial(table["target"], num_targets),
        shape,
    )


def _chunk_width(per_edge: np.ndarray) -> int:
    """Pairs per chunk: one chunk an edge unless padding would more than double the work."""
    widest = int(per_edge.max())
    if np.all(per_edge > 0) and widest * len(per_edge) <= 2 * per_edge.sum():
        return widest
    candidates = np.unique(per_edge[per_edge > 0])
    costs = [np.sum(-(-per_edge // w)) * (w + _BLOCK_OVERHEAD) for w in candidates]
    return int(candidates[int(np.argmin(costs))])


def _unless_trivial(index: np.ndarray, count: int) -> Int[Array, "..."] | None:
    if index.size == count and np.array_equal(index.ravel(), np.arange(count)):
        return None
    return jax.device_put(index)


def _output_tables(
    graph: Graph,
    blocks: list[Block],
    node_class: NodeClass,
    active: _Active,
    count: int,
    dtype: np.dtype,
) -> tuple[OutputTable | None, OutputTable | None]:
    outputs = set(graph.outputs)
    place = {name: i for i, name in enumerate(graph.classes[node_class]) if name in outputs}
    reached, unreached = [], []
    for b, (block, here) in enumerate(zip(blocks, active, strict=True)):
        for name in {n: None for n in (*here, *block.targets) if n in place}:
            (reached if name in here else unreached).append(
                (here.get(name, 0), place[name], b, name)
            )
    reached.sort()

    def table(rows: list[tuple[int, int, int, str]]) -> OutputTable | None:
        if not rows:
            return None
        shape = (len(blocks[0].weights), node_class[1])
        zero = np.zeros(shape)
        target = np.stack([blocks[b].targets.get(name, zero) for _, _, b, name in rows])
        return OutputTable(
            instance=_unless_trivial(np.array([i for i, *_ in rows]), count),
            node=np.array([v for _, v, *_ in rows]),
            target=jnp.asarray(target, dtype),
            weight=jnp.asarray(np.stack([blocks[b].weights for _, _, b, _ in rows]), dtype),
            example=np.stack([blocks[b].examples for _, _, b, _ in rows]),
        )

    return table(reached), table(unreached)
