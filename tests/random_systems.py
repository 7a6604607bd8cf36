"""Random gated systems, and a brute-force network in NumPy alone, for tests of all rooms."""

from typing import Any

import numpy as np

from gdln_jax import GatedData, Graph

# Few widths, so that rooms share compiled shapes; equal ones, so that edges share bundles.
WIDTHS = (2, 3)


def random_graph(rng: np.random.Generator) -> Graph:
    """1-3 inputs, 2-5 hidden nodes, 1-3 outputs, with skips and parallel edges."""
    num_in, num_hidden, num_out = rng.integers(1, 4), rng.integers(2, 6), rng.integers(1, 4)
    inputs = [f"x{i}" for i in range(num_in)]
    hidden = [f"h{i}" for i in range(num_hidden)]
    outputs = [f"y{i}" for i in range(num_out)]
    widths = {name: int(rng.choice(WIDTHS)) for name in (*inputs, *hidden, *outputs)}
    pairs: list[tuple[str, str]] = []

    def choose(names: list[str]) -> str:
        return names[rng.integers(len(names))]

    for i, name in enumerate(hidden):  # every hidden node has a way in and a way out
        pairs.append((choose(inputs + hidden[:i]), name))
        pairs.append((name, choose(hidden[i + 1 :] + outputs)))
    pairs += [(name, choose(hidden + outputs)) for name in inputs]
    pairs += [(choose(inputs + hidden), name) for name in outputs]
    place = [*inputs, *hidden, *outputs]
    for _ in range(rng.integers(0, 4)):  # skips and parallel edges
        source, target = choose(inputs + hidden), choose(hidden + outputs)
        if place.index(source) < place.index(target):
            pairs.append((source, target))
    edges = [
        (source, target, f"e{i}:{source}->{target}") for i, (source, target) in enumerate(pairs)
    ]
    order = rng.permutation(len(edges))
    names = rng.permutation(place)  # the order of declaration must not matter
    return Graph({str(name): widths[str(name)] for name in names}, [edges[i] for i in order])


def random_arrays(
    graph: Graph, rng: np.random.Generator, n: int = 7, gated: float = 0.5
) -> dict[str, Any]:
    """Arguments of `GatedData`: sparse inputs, example weights, Gaussian and binary gates.

    `gated` is the share of nodes and edges with a gate; at 1 all data of a graph have one
    structure, so that a compiled function serves them all.
    """

    def gate() -> np.ndarray:
        binary = (rng.random(n) < 0.6).astype(float)
        return rng.normal(size=n) if rng.random() < 0.4 else binary

    weights = rng.random(n)
    weights[rng.integers(n)] = 0.0
    return {
        "inputs": {
            v: rng.normal(size=(n, graph.nodes[v])) * (rng.random((n, 1)) < 0.8)
            for v in graph.inputs
        },
        "targets": {
            v: rng.normal(size=(n, graph.nodes[v])) * (rng.random((n, 1)) < 0.8)
            for v in graph.outputs
        },
        "node_gates": {v: gate() for v in (*graph.hidden, *graph.outputs) if rng.random() < gated},
        "edge_gates": {e.name: gate() for e in graph.edges if rng.random() < gated},
        "weights": weights,
    }


def random_weights(graph: Graph, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {e.name: rng.normal(size=graph.shape(e.name)) for e in graph.edges}


def random_system(seed: int, n: int = 7) -> tuple[Graph, GatedData, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    return graph, GatedData(**random_arrays(graph, rng, n)), random_weights(graph, rng)


class BruteForce:
    """h_v = g_v sum_q g_q W_q h_s(q), one example, one node, one edge at a time."""

    def __init__(self, graph: Graph, data: GatedData, weights: dict[str, np.ndarray]):
        self.graph, self.weights = graph, weights
        self.inputs = {k: np.asarray(v) for k, v in data.inputs.items()}
        self.targets = {k: np.asarray(v) for k, v in data.targets.items()}
        self.node_gates = {k: np.asarray(v) for k, v in data.node_gates.items()}
        self.edge_gates = {k: np.asarray(v) for k, v in data.edge_gates.items()}
        self.example_weights = np.asarray(data.weights)
        self.activities = [self._forward(m) for m in range(len(self.example_weights))]

    def _edge_gate(self, edge: str, m: int) -> float:
        return self.edge_gates[edge][m] if edge in self.edge_gates else 1.0

    def _node_gate(self, node: str, m: int) -> float:
        return self.node_gates[node][m] if node in self.node_gates else 1.0

    def _forward(self, m: int) -> dict[str, np.ndarray]:
        h: dict[str, np.ndarray] = {}

        def activity(node: str) -> np.ndarray:
            if node in self.inputs:
                return self.inputs[node][m]
            if node not in h:
                total = np.zeros(self.graph.nodes[node])
                for e in self.graph.edges:
                    if e.target == node:
                        gate = self._edge_gate(e.name, m)
                        total = total + gate * self.weights[e.name] @ activity(e.source)
                h[node] = self._node_gate(node, m) * total
            return h[node]

        return {node: activity(node) for node in self.graph.nodes}

    def activity(self, node: str) -> np.ndarray:
        return np.stack([h[node] for h in self.activities])

    def loss(self) -> float:
        total = 0.0
        for m, h in enumerate(self.activities):
            for v, y in self.targets.items():
                total += self.example_weights[m] * 0.5 * np.sum((y[m] - h[v]) ** 2)
        return total

    def gradient(self) -> dict[str, np.ndarray]:
        """dL/dW_q = < g_q g_t(q) delta_t(q) h_s(q)^T >, delta by the chain rule, edge by edge."""
        gradient = {e.name: np.zeros_like(self.weights[e.name]) for e in self.graph.edges}
        for m, h in enumerate(self.activities):
            delta: dict[str, np.ndarray] = {}

            def of(node: str, m: int = m, h: dict = h, delta: dict = delta) -> np.ndarray:
                if node in self.targets:
                    return h[node] - self.targets[node][m]
                if node not in delta:
                    total = np.zeros(self.graph.nodes[node])
                    for e in self.graph.edges:
                        if e.source == node:
                            gate = self._edge_gate(e.name, m) * self._node_gate(e.target, m)
                            total = total + gate * self.weights[e.name].T @ of(e.target)
                    delta[node] = total
                return delta[node]

            for e in self.graph.edges:
                gate = self._edge_gate(e.name, m) * self._node_gate(e.target, m)
                step = gate * np.outer(of(e.target), h[e.source])
                gradient[e.name] += self.example_weights[m] * step
        return gradient
