"""Random gated systems that are built to be diagonalisable, and some that are not.

One orthonormal frame per input node (shared by its edges), one per output node, the same number
of modes everywhere; each gate pattern shows its own mode variances and strengths.
"""

import numpy as np

import gdln_jax as gdln


def random_graph(rng: np.random.Generator, width: int = 5) -> gdln.Graph:
    """1-2 inputs, 1-3 hidden nodes, 1-2 outputs, random forward edges, skips, parallel edges."""
    inputs = [f"x{i}" for i in range(rng.integers(1, 3))]
    hidden = [f"h{i}" for i in range(rng.integers(1, 4))]
    outputs = [f"y{i}" for i in range(rng.integers(1, 3))]
    nodes = {name: int(rng.integers(width, width + 3)) for name in (*inputs, *hidden, *outputs)}
    ordered = [*hidden, *outputs]
    edges: list[tuple[str, ...]] = [(name, str(rng.choice(hidden))) for name in inputs]
    for i, name in enumerate(hidden):
        if not any(target == name for _, target, *_ in edges):
            edges.append((str(rng.choice([*inputs, *hidden[:i]])), name))
        edges.append((name, str(rng.choice(ordered[i + 1 :]))))
    for name in outputs:
        if not any(target == name for _, target, *_ in edges):
            edges.append((str(rng.choice([*inputs, *hidden])), name))
    if rng.random() < 0.5:
        edges.append((str(rng.choice(inputs)), str(rng.choice(outputs)), "skip"))
    if rng.random() < 0.5:
        source, target, *_ = edges[rng.integers(len(edges))]
        edges.append((source, target, "parallel"))
    named = [(e[0], e[1], e[2] if len(e) == 3 else f"e{i}") for i, e in enumerate(edges)]
    return gdln.Graph(nodes, named)


def diagonalisable(
    rng: np.random.Generator,
    graph: gdln.Graph,
    *,
    modes: int = 3,
    patterns: int = 3,
    gates: str = "binary",
    repeated: bool = False,
    skew: float = 0.0,
) -> gdln.GatedData:
    """Data with `modes` modes in common random frames; `skew` rotates one pattern out of them."""
    frame = {v: _orthonormal(rng, graph.nodes[v], modes) for v in (*graph.inputs, *graph.outputs)}
    inputs: dict[str, list[np.ndarray]] = {v: [] for v in graph.inputs}
    targets: dict[str, list[np.ndarray]] = {v: [] for v in graph.outputs}
    node_gates: dict[str, list[float]] = {v: [] for v in (*graph.hidden, *graph.outputs)}
    edge_gates: dict[str, list[float]] = {e.name: [] for e in graph.edges}
    weights = []
    for p in range(patterns):
        # One example per mode: a one-hot code, scaled, in every node's frame.
        sizes = {v: rng.uniform(0.5, 1.5, modes) for v in inputs}
        wanted = {v: rng.uniform(0.5, 2.0, modes) for v in targets}
        if repeated:
            for table in (sizes, wanted):
                for size in table.values():
                    size[-1] = size[-2]
        turn = np.eye(modes)
        if skew and p == 0:
            turn, _ = np.linalg.qr(np.eye(modes) + skew * rng.normal(size=(modes, modes)))
        for v, rows in inputs.items():
            rows.append((frame[v] @ turn * sizes[v]).T)
        for v, rows in targets.items():
            rows.append((frame[v] * wanted[v]).T)
        for table in (node_gates, edge_gates):
            for name in table:
                gate = 1.0 if p == 0 else _gate(rng, gates)
                table[name] += [gate] * modes
        weights += [float(rng.uniform(0.5, 1.5))] * modes
    return gdln.GatedData(
        {k: np.concatenate(v) for k, v in inputs.items()},
        {k: np.concatenate(v) for k, v in targets.items()},
        {k: np.array(v) for k, v in node_gates.items()},
        {k: np.array(v) for k, v in edge_gates.items()},
        np.array(weights),
    )


def two_by_two(
    rng: np.random.Generator,
    strengths: dict[str, list[float]],
    *,
    scales: tuple[float, float] = (1.0, 1.0),
    width: int = 5,
) -> tuple[gdln.Graph, gdln.GatedData]:
    """Inputs a and b, outputs y and z, one shared hidden node; one route at a time.

    `strengths`: route, e.g. "ay", -> size of each mode in its target. Every node has one random
    frame of its own; inputs are white in it, times `scales` for a and b.
    """
    modes = len(next(iter(strengths.values())))
    graph = gdln.Graph(
        {"a": width, "b": width, "h": width + 1, "y": width + 2, "z": width + 2},
        [("a", "h"), ("b", "h"), ("h", "y"), ("h", "z")],
    )
    frame = {v: _orthonormal(rng, graph.nodes[v], modes) for v in "abyz"}
    scale = dict(zip("ab", scales, strict=True))
    routes = list(strengths)
    on = {v: np.repeat([float(v in route) for route in routes], modes) for v in "abyz"}
    inputs = {v: np.tile(scale[v] * frame[v].T, (len(routes), 1)) * on[v][:, None] for v in "ab"}
    targets = {
        v: np.concatenate([(frame[v] * strengths[route]).T for route in routes]) * on[v][:, None]
        for v in "yz"
    }
    gates = {v: on[v] for v in "yz"}
    return graph, gdln.GatedData(inputs, targets, gates, {f"{v}->h": on[v] for v in "ab"})


def nearly_independent(kind: str, seed: int) -> tuple[gdln.Graph, gdln.GatedData]:
    """Exact systems of which some moment or gate is 0 up to rounding only.

    - "one frame", "own frames": inputs a and b, orthogonal over the examples and correlated within
      each, each through a pathway of its own into one output, in one frame or one each.
    - "gates": one pathway per pattern, each with frames of its own; gates cos(0) and cos(pi/2).
    - "errors": a pathway whose targets cancel, 0.1 + 0.2 - 0.3; it learns from the others' errors.
    """
    rng = np.random.default_rng(seed)
    width, out = 4, 5
    names = ("a", "b") if "frame" in kind else ("x", "x")
    graph = gdln.Graph(
        {**dict.fromkeys(names, width), "h": 6, "k": 6, "y": out},
        [(names[0], "h"), (names[1], "k"), ("h", "y"), ("k", "y")],
    )
    v = [_orthonormal(rng, width, width) for _ in "ab"]
    u = [_orthonormal(rng, out, width) for _ in "ab"]
    strengths = rng.uniform(0.5, 2, (2, width))
    if kind == "gates":
        on, off = np.cos([0, np.pi / 2])
        gates = {"h": np.repeat([on, off], width), "k": np.repeat([off, on], width)}
        y = np.concatenate([(u[i] * strengths[i]).T for i in range(2)])
        return graph, gdln.GatedData({"x": np.concatenate([v[0].T, v[1].T])}, {"y": y}, gates)
    if kind == "errors":
        x = v[0][:, [0, 0, 0, 1]].T
        y = u[0][:, [0, 0, 0, 1]].T * np.array([[2], [0.1 + 0.2], [-0.3], [3]])
        return graph, gdln.GatedData({"x": x}, {"y": y}, {"k": np.array([0.0, 1, 1, 0])})
    if kind == "one frame":
        u[1] = u[0]
    q = np.split(_orthonormal(rng, 2 * width, 2 * width), 2, axis=1)
    size = rng.uniform(0.7, 1.4, (2, width))
    inputs = {name: q[i] * size[i] @ v[i].T for i, name in enumerate(names)}
    y = sum(q[i] * strengths[i] @ u[i].T for i in range(2))
    return graph, gdln.GatedData(inputs, {"y": y})


def overlapping(angle: float) -> tuple[gdln.Graph, gdln.GatedData]:
    """Inputs a and b, alone and together, one-hot; the output frame of b is turned by `angle`."""
    one, none = np.eye(3), np.zeros((3, 3))
    u, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))
    frames = u[:, :3], np.cos(angle) * u[:, :3] + np.sin(angle) * u[:, 3:]
    graph = gdln.Graph(
        {"a": 3, "b": 3, "h": 6, "k": 6, "y": 6}, [("a", "h"), ("b", "k"), ("h", "y"), ("k", "y")]
    )
    inputs = {"a": np.concatenate([one, none, one]), "b": np.concatenate([none, one, one])}
    y = sum(x * [3, 2, 1] @ frame.T for x, frame in zip(inputs.values(), frames, strict=True))
    return graph, gdln.GatedData(inputs, {"y": y})


def _gate(rng: np.random.Generator, gates: str) -> float:
    return float(rng.integers(0, 2)) if gates == "binary" else float(rng.normal())


def _orthonormal(rng: np.random.Generator, width: int, modes: int) -> np.ndarray:
    q, _ = np.linalg.qr(rng.normal(size=(width, modes)))
    return q
