"""Real gates folded into the inputs: copies of nodes with tied weights (theory#folded-gates).

A network whose gates differ from example to example is one without such gates on more inputs: the
products of the gates that follow a node on its ways to the outputs multiply its copies' inputs.
"""

from typing import NamedTuple

import numpy as np

from gdln_jax._checks import check_integer, is_concrete
from gdln_jax._data.boundary import check_gated_data, check_graph
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Edge, Graph

# Products of gates that agree to this up to a factor share a copy.
_EQUAL = 1e-12


class _Copy(NamedTuple):
    """An edge between two copies of nodes, with a constant gate."""

    edge: Edge
    source: str
    target: str
    gate: float


def fold_gates(graph: Graph, data: GatedData, *, max_nodes: int = 1000) -> tuple[Graph, GatedData]:
    """Return a graph and data without example-dependent gates, with the same loss and gradients.

    Node v is copied once for each distinct product of gates that follow it on a way to an output
    (up to a factor, which becomes a constant gate). Copies are called `v@0`, `v@1`, ..., copies of
    edges `e@0`, ...; output nodes keep their names. The copies of an edge share its parameter, of
    the same name, so that `GatedNetwork(folded, net.parameters)` is the same network. With a
    context as real gates `data.compress()` then leaves |x| + |y| examples.

    Args:
        graph: the gated graph; with ties and frozen parameters too.
        data: its data.
        max_nodes: largest number of nodes of the folded graph, at most the number of paths.

    Returns:
        `(graph, data)`. A parameter, an input or an output that all gates shut keeps one edge, of
        constant gate 0.

    Raises:
        ValueError: if there would be more than `max_nodes`; for data that do not fit.
    """
    check_graph(graph)
    check_gated_data(data)
    data.validate(graph)
    most = check_integer(max_nodes, "max_nodes", minimum=1)
    if not is_concrete(data):
        raise ValueError("fold_gates looks at the gates' values; call it outside of jit and vmap.")
    folding = _Folding(graph, data, most)
    for node in reversed(graph.order):
        folding.visit(node)
    folding.drop_silent()
    folding.keep_what_vanished()
    return folding.result()


class _Folding:
    """Copies of nodes and edges in the making, from the outputs back."""

    def __init__(self, graph: Graph, data: GatedData, most: int):
        self.graph, self.data, self.most = graph, data, most
        self.n = data.num_examples
        self.gates = {
            **{("node", k): np.asarray(v, float) for k, v in data.node_gates.items()},
            **{("edge", k): np.asarray(v, float) for k, v in data.edge_gates.items()},
        }
        # Node -> its copies: name and product of the gates that follow.
        self.copies: dict[str, dict[str, np.ndarray]] = {
            v: {} if graph.outgoing[v] else {v: np.ones(self.n)} for v in graph.nodes
        }
        self.made = dict.fromkeys(graph.nodes, 0)
        self.edges: list[_Copy] = []

    def visit(self, node: str) -> None:
        """Make the copies of the sources that the copies of a node need."""
        own = self.gates.get(("node", node))
        for name, product in self.copies[node].items():
            for edge in self.graph.incoming[node]:
                more = self.gates.get(("edge", edge.name))
                after = product * (1.0 if own is None else own) * (1.0 if more is None else more)
                if np.any(after):
                    source, gate = self._copy_of(edge.source, after)
                    self.edges.append(_Copy(edge, source, name, gate))

    def _copy_of(self, node: str, product: np.ndarray) -> tuple[str, float]:
        """The copy with this product up to a factor, and the factor."""
        for name, known in self.copies[node].items():
            k = int(np.abs(known).argmax())
            factor = float(product[k] / known[k]) if known[k] else 0.0
            if np.abs(product - factor * known).max() <= _EQUAL * np.abs(product).max():
                return name, factor
        k = int(np.abs(product).argmax())
        return self._new(node, product / product[k]), float(product[k])

    def _new(self, node: str, product: np.ndarray) -> str:
        name = f"{node}@{self.made[node]}"
        self.made[node] += 1
        self.copies[node][name] = product
        count = sum(map(len, self.copies.values()))
        if count > self.most:
            raise ValueError(
                f"folding these gates takes more than max_nodes = {self.most} copies of nodes (the "
                f"graph has {self.graph.num_paths} paths): raise max_nodes, or keep the gates."
            )
        return name

    def drop_silent(self) -> None:
        """Drop copies of hidden nodes that no edge reaches, since all gates on their way are 0."""
        for node in self.graph.order:
            if self.graph.incoming[node] and self.graph.outgoing[node]:
                reached = {copy.target for copy in self.edges}
                silent = self.copies[node].keys() - reached
                self.edges = [copy for copy in self.edges if copy.source not in silent]
                for name in silent:
                    del self.copies[node][name]

    def keep_what_vanished(self) -> None:
        """Lead a path of gates 0 through every parameter, input and output without a copy."""
        paths = list(self.graph.paths()) if self._vanished() else []
        for path in paths:
            lost = self._vanished()
            ends = {self.graph.edge(path[0]).source, self.graph.edge(path[-1]).target}
            if lost & (ends | {self.graph.parameter_of[name][0] for name in path}):
                self._closed(path)

    def _vanished(self) -> set[str]:
        used = {self.graph.parameter_of[c.edge.name][0] for c in self.edges}
        reached = {c.target for c in self.edges} | {c.edge.source for c in self.edges}
        ends = (*self.graph.inputs, *self.graph.outputs)
        return {p for p in self.graph.parameters if p not in used} | {
            v for v in ends if v not in reached
        }

    def _closed(self, path: tuple[str, ...]) -> None:
        for name in path:
            edge = self.graph.edge(name)
            ends = []
            for node in (edge.source, edge.target):
                closed = next((k for k, v in self.copies[node].items() if not v.any()), None)
                if not self.graph.outgoing[node]:
                    closed = node
                ends.append(closed or self._new(node, np.zeros(self.n)))
            self.edges.append(_Copy(edge, ends[0], ends[1], 0.0))

    def result(self) -> tuple[Graph, GatedData]:
        """The folded graph and data."""
        nodes, inputs = {}, {}
        for node, copies in self.copies.items():
            for name, product in copies.items():
                nodes[name] = self.graph.nodes[node]
                if node in self.graph.inputs:
                    inputs[name] = np.asarray(self.data.inputs[node]) * product[:, None]
        order = {edge.name: k for k, edge in enumerate(self.graph.edges)}
        count: dict[str, int] = {}
        shared: dict[str, list[str]] = {name: [] for name in self.graph.parameters}
        edges, gates = [], {}
        for edge, source, target, gate in sorted(self.edges, key=lambda c: order[c.edge.name]):
            k = count[edge.name] = count.get(edge.name, -1) + 1
            name = f"{edge.name}@{k}"
            edges.append((source, target, name))
            parameter, transposed = self.graph.parameter_of[edge.name]
            shared[parameter].append(f"{name}^T" if transposed else name)
            if gate != 1:
                gates[name] = np.full(self.n, gate)
        folded = Graph(nodes, edges, shared=shared, frozen=self.graph.frozen)
        targets = {name: np.asarray(y) for name, y in self.data.targets.items()}
        weights = np.asarray(self.data.weights)
        return folded, GatedData(inputs, targets, {}, gates, weights)
