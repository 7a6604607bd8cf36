"""The systems on which optimisers are tested: A to E and ten random ones (theory#optimisers).

Each is a graph, data, and a start in aligned coordinates; `tests/reference_beyond.json`, key
`optimisers`, has values for them that were computed independently of this package.
"""

from typing import NamedTuple

import numpy as np

import gdln_jax as gdln

H1 = np.array([[1, 2], [2, 1], [2, -2]]) / 3
H2 = np.array([[2, 1], [-2, 2], [1, 2]]) / 3
SEEDS = range(10)


class System(NamedTuple):
    """A graph, its data, strengths at the start, and orthonormal frames of the nodes."""

    graph: gdln.Graph
    data: gdln.GatedData
    b0: dict[str, np.ndarray]
    frames: dict[str, np.ndarray]

    def network(self, b: dict[str, np.ndarray] | None = None) -> gdln.GatedNetwork:
        """The network with weights F_t diag(b) F_s^T."""
        b = self.b0 if b is None else b
        ends = {e.name: (self.frames[e.target], self.frames[e.source]) for e in self.graph.edges}
        weights = {name: u * np.asarray(b[name]) @ v.T for name, (u, v) in ends.items()}
        return gdln.GatedNetwork(self.graph, weights)

    def outside(self, net: gdln.GatedNetwork) -> float:
        """Share of the weights outside F_t diag(.) F_s^T, over all edges."""
        off = total = 0.0
        for e in self.graph.edges:
            w, u, v = np.asarray(net.weights[e.name]), self.frames[e.target], self.frames[e.source]
            inside = u * np.diag(u.T @ w @ v) @ v.T
            off, total = off + np.sum((w - inside) ** 2), total + np.sum(w**2)
        return float(np.sqrt(off / total))


def turn(angle: float) -> np.ndarray:
    """The rotation of the plane by an angle."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def system_a(
    d: tuple[float, float] = (0.5, 1.0),
    s: tuple[float, float] = (1.5, 0.6),
    start: tuple[tuple[float, float], tuple[float, float]] = ((0.2, 0.1), (0.3, 0.15)),
) -> System:
    """A chain x(2) -> h(3) -> y(2) with two modes."""
    d_, s_ = np.array(d), np.array(s)
    frames = {"x": turn(0.3), "h": H1, "y": turn(-0.7)}
    graph = gdln.Graph({"x": 2, "h": 3, "y": 2}, [("x", "h"), ("h", "y")])
    data = gdln.GatedData(
        {"x": (frames["x"] * np.sqrt(2 * d_)).T},
        {"y": (frames["y"] * (np.sqrt(2) * s_ / np.sqrt(d_))).T},
    )
    return System(graph, data, {"x->h": np.array(start[0]), "h->y": np.array(start[1])}, frames)


def system_b() -> System:
    """Two pathways x -> h1 -> y and x -> h2 -> y, the second gated; stacks of two edges."""
    d, s = np.array([0.5, 1.0]), np.array([[1.5, 0.6], [1.0, 0.4]])
    frames = {"x": turn(0.3), "h1": H1, "h2": H2, "y": turn(-0.7)}
    nodes = {"x": 2, "h1": 3, "h2": 3, "y": 2}
    graph = gdln.Graph(nodes, [("x", "h1"), ("x", "h2"), ("h1", "y"), ("h2", "y")])
    data = gdln.GatedData(
        {"x": np.tile((frames["x"] * np.sqrt(2 * d)).T, (2, 1))},
        {"y": np.concatenate([(frames["y"] * (np.sqrt(2) * k / np.sqrt(d))).T for k in s])},
        edge_gates={"x->h2": np.array([1.0, 1.0, 0.0, 0.0])},
    )
    b0 = {"x->h1": [0.2, 0.1], "x->h2": [0.1, 0.2], "h1->y": [0.3, 0.15], "h2->y": [0.15, 0.1]}
    return System(graph, data, {name: np.array(b) for name, b in b0.items()}, frames)


def system_c(domains: int = 6, trained: int = 3) -> tuple[gdln.Graph, gdln.GatedData]:
    """Routing with a shared pathway and a dedicated one per trained route; two modes."""
    routes = [(i, (i + k) % domains) for i in range(domains) for k in range(trained)]
    nodes = dict.fromkeys([f"x{i}" for i in range(domains)], 2)
    nodes |= dict.fromkeys(["h1", "h2", *(f"y{j}" for j in range(domains))], 2)
    nodes |= {f"{n}{i}_{j}": 2 for i, j in routes for n in "pq"}
    edges = [(f"x{i}", "h1") for i in range(domains)] + [("h1", "h2")]
    edges += [("h2", f"y{j}") for j in range(domains)]
    for i, j in routes:
        p, q = f"p{i}_{j}", f"q{i}_{j}"
        edges += [(f"x{i}", p), (p, q), (q, f"y{j}")]
    n = 2 * len(routes)
    inputs = {f"x{i}": np.zeros((n, 2)) for i in range(domains)}
    targets = {f"y{j}": np.zeros((n, 2)) for j in range(domains)}
    gates = {f"y{j}": np.zeros(n) for j in range(domains)}
    for k, (i, j) in enumerate(routes):
        rows = slice(2 * k, 2 * k + 2)
        inputs[f"x{i}"][rows] = np.eye(2)
        targets[f"y{j}"][rows] = np.diag([2.0, 1.0])
        gates[f"y{j}"][rows] = 1.0
    return gdln.Graph(nodes, edges), gdln.GatedData(inputs, targets, node_gates=gates)


def system_d() -> System:
    """System A with unequal inputs, whose sharpest direction is normal to the manifold."""
    return system_a((0.1, 1.0), (1.0, 1.0), ((0.5, 0.5), (0.5, 0.5)))


def system_e() -> tuple[gdln.Graph, gdln.GatedData, dict[str, np.ndarray]]:
    """A chain whose modes are coupled; weights at the start."""
    a = np.array([[1, 0.2], [0.3, 1.1], [-0.4, 0.5]])
    c = np.array([[1.2, 0.1], [0.2, 0.9], [0.5, -0.7]])
    bh = np.array([[1, 1], [1, -1], [1, 1], [1, -1]]) / 2
    graph = gdln.Graph({"x": 3, "h": 4, "y": 3}, [("x", "h"), ("h", "y")])
    weights = {
        "x->h": bh @ np.array([[0.4, 0.1], [-0.2, 0.3]]) @ H1.T,
        "h->y": H2 @ np.array([[0.3, -0.1], [0.2, 0.5]]) @ bh.T,
    }
    return graph, gdln.GatedData({"x": a @ H1.T}, {"y": c @ H2.T}), weights


def random_system(seed: int) -> System:
    """Six nodes of different widths, seven edges with a parallel one and a skip, three modes."""
    rng = np.random.default_rng(seed)
    nodes = {"x1": 5, "x2": 4, "h1": 7, "h2": 6, "y1": 5, "y2": 6}
    edges = [
        ("x1", "h1"),
        ("x2", "h1"),
        ("h1", "h2"),
        ("h1", "h2", "h1->h2b"),
        ("h2", "y1"),
        ("h2", "y2"),
        ("h1", "y2"),
    ]
    graph = gdln.Graph(nodes, edges)
    frames = {}
    for name, width in nodes.items():
        q, r = np.linalg.qr(rng.standard_normal((width, 3)))
        frames[name] = q * np.sign(np.diag(r))
    s = 0.5 + rng.random((4, 3))
    c = 0.7 + 0.6 * rng.random((4, 3))
    gates = {e.name: rng.integers(0, 2, 4).astype(float) for e in graph.edges}
    rho = 0.5 + rng.random(4)
    b0 = {e.name: 0.3 + 0.4 * rng.random(3) for e in graph.edges}
    for name in ("x1->h1", "h1->h2", "h2->y1", "h2->y2"):
        gates[name] = np.ones(4)

    def rows(size: np.ndarray, frame: np.ndarray) -> np.ndarray:
        return np.sqrt(3) * size.reshape(12, 1) * np.tile(frame.T, (4, 1))

    data = gdln.GatedData(
        {name: rows(c, frames[name]) for name in graph.inputs},
        {name: rows(s, frames[name]) for name in graph.outputs},
        {"h2": np.repeat(rho, 3)},
        {name: np.repeat(gate, 3) for name, gate in gates.items()},
    )
    return System(graph, data, b0, frames)
