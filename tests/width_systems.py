"""Wide systems in plain NumPy, independent of the package: what the width tests compare with."""

import itertools
from typing import Any, NamedTuple

import numpy as np

import gdln_jax as gdln

HIERARCHY = np.array(
    [
        [1.5, 1.0, 0.0, 0.75, 0.0, 0.0, 0.0],
        [1.5, 1.0, 0.0, 0.0, 0.75, 0.0, 0.0],
        [1.5, 0.0, 1.0, 0.0, 0.0, 0.75, 0.0],
        [1.5, 0.0, 1.0, 0.0, 0.0, 0.0, 0.75],
    ]
)


class System(NamedTuple):
    graph: gdln.Graph
    weights: dict
    data: gdln.GatedData

    @property
    def net(self):
        return gdln.GatedNetwork(self.graph, self.weights)


def hierarchy():
    return gdln.GatedData({"x": 2 * np.eye(4)}, {"y": HIERARCHY})


def orthogonal(rng, target, source, gain=1.0):
    q, r = np.linalg.qr(rng.standard_normal((max(target, source), min(target, source))))
    q = gain * q * np.sign(np.diag(r))
    return q if target >= source else q.T


def chain(widths, seed, gain=0.5, data=None):
    """A chain of orthogonal maps."""
    rng, graph = np.random.default_rng(seed), gdln.Graph.chain(widths)
    weights = {e.name: orthogonal(rng, *graph.shape(e.name), gain) for e in graph.edges}
    return System(graph, weights, hierarchy() if data is None else data)


def normal_chain(widths, seed, gain):
    """A chain of normal maps, entries gain / sqrt(source)."""
    rng, graph = np.random.default_rng(seed), gdln.Graph.chain(widths)
    weights = {
        e.name: gain / np.sqrt(graph.shape(e.name)[1]) * rng.standard_normal(graph.shape(e.name))
        for e in graph.edges
    }
    return System(graph, weights, hierarchy())


HIDDEN = tuple(f"h{i}" for i in range(5))


def random_dag(seed, framed, width=48):
    """Five hidden nodes, two inputs, two outputs, real gates, twelve weighted examples.

    Hidden edges are a forest of orthogonal maps, or framed maps with cycles.
    """
    rng = np.random.default_rng(seed)
    joined = _joined(rng, framed)
    graph = gdln.Graph(
        {"x0": 3, "x1": 2, **dict.fromkeys(HIDDEN, width), "y0": 2, "y1": 3},
        [*joined, *_ends(rng, joined)],
    )
    frames = {h: orthogonal(rng, width, width) for h in HIDDEN}
    weights = {}
    for e in graph.edges:
        if (e.source, e.target) not in joined:
            weights[e.name] = 0.15 * rng.standard_normal(graph.shape(e.name))
        elif framed:
            weights[e.name] = 0.5 * frames[e.target] @ frames[e.source].T
        else:
            weights[e.name] = 0.5 * orthogonal(rng, width, width)
    n = 12
    gates = {
        e.name: rng.choice([0.0, 0.5, 1.0, -1.0], n) for e in graph.edges if rng.random() < 0.6
    }
    node_gates = {h: rng.choice([0.0, 1.0, 1.5], n) for h in HIDDEN if rng.random() < 0.4}
    data = gdln.GatedData(
        {"x0": rng.standard_normal((n, 3)), "x1": rng.standard_normal((n, 2))},
        {"y0": rng.standard_normal((n, 2)), "y1": rng.standard_normal((n, 3))},
        node_gates,
        gates,
        rng.uniform(0.2, 1.0, n),
    )
    return System(graph, weights, data)


def _joined(rng, framed):
    """Pairs of hidden nodes: six, or three without a cycle."""
    pairs = list(itertools.combinations(HIDDEN, 2))
    joined, of = [], {h: h for h in HIDDEN}
    for a, b in (pairs[i] for i in rng.permutation(len(pairs))):
        if len(joined) < 6 if framed else of[a] != of[b] and len(joined) < 3:
            joined.append((a, b))
            of = {h: of[a] if of[h] == of[b] else of[h] for h in HIDDEN}
    return joined


def _ends(rng, joined):
    """Edges from inputs and to outputs, so that every node has a way in and out."""
    edges = []
    for h in HIDDEN:
        if not any(b == h for _, b in joined) or rng.random() < 0.3:
            edges.append((f"x{rng.integers(2)}", h))
        if not any(a == h for a, _ in joined) or rng.random() < 0.3:
            edges.append((h, f"y{rng.integers(2)}"))
    edges += [(x, "h0") for x in ("x0", "x1") if not any(a == x for a, _ in edges)]
    return edges + [("h4", y) for y in ("y0", "y1") if not any(b == y for _, b in edges)]


def formula(system):
    """Sizes by 8.3 for a forest of orthogonal maps or framed maps: min(N, s_C) with live edges."""
    graph, data = system.graph, system.data
    n = data.num_examples
    one = np.ones(n)
    gate = {
        e.name: (np.asarray(data.edge_gates.get(e.name, one)) != 0)
        & (np.asarray(data.node_gates.get(e.target, one)) != 0)
        for e in graph.edges
    }
    live = {}
    for path in graph.paths():
        on = np.logical_and.reduce([gate[name] for name in path])
        for name in path:
            live[name] = live.get(name, False) | on
    edges = [graph.edge(name) for name, on in live.items() if on.any()]
    of = {h: h for h in graph.hidden}
    for e in edges:
        if e.source in of and e.target in of:
            a, b = of[e.source], of[e.target]
            of = {h: a if name == b else name for h, name in of.items()}
    total = dict.fromkeys(of.values(), 0)
    for e in edges:
        if e.source in graph.inputs and e.target in of:
            x = np.asarray(data.inputs[e.source])[live[e.name]]
            total[of[e.target]] += int(np.linalg.matrix_rank(x))
        elif e.source in of and e.target in graph.outputs:
            total[of[e.source]] += graph.nodes[e.target]
    return {h: min(graph.nodes[h], total[of[h]]) for h in graph.hidden}


class Arrays(NamedTuple):
    """Data as NumPy arrays, with the gate of each edge times that of its target."""

    graph: gdln.Graph
    inputs: dict
    targets: dict
    gates: dict
    weights: np.ndarray


def arrays(graph, data, dtype: Any = np.float64):
    n = data.num_examples
    one = np.ones(n)
    gates = {
        e.name: (
            np.asarray(data.edge_gates.get(e.name, one))
            * np.asarray(data.node_gates.get(e.target, one))
        ).astype(dtype)[:, None]
        for e in graph.edges
    }
    inputs, targets = (
        {k: np.asarray(v, dtype) for k, v in d.items()} for d in (data.inputs, data.targets)
    )
    return Arrays(graph, inputs, targets, gates, np.asarray(data.weights, dtype))


def forward(weights, d):
    h = dict(d.inputs)
    for v in d.graph.order:
        if v not in h:
            h[v] = sum(
                d.gates[e.name] * (h[e.source] @ weights[e.name].T) for e in d.graph.incoming[v]
            )
    return h


def loss_and_gradient(weights, d, cross_entropy=False):
    """Weighted mean of half the squared norm (or cross-entropy), and its gradient by edge."""
    h = forward(weights, d)
    loss, delta = 0.0, {}
    for v, y in d.targets.items():
        if cross_entropy:
            top = h[v] - h[v].max(axis=1, keepdims=True)
            log = top - np.log(np.exp(top).sum(axis=1, keepdims=True))
            loss -= np.sum(d.weights[:, None] * y * log)
            delta[v] = d.weights[:, None] * (np.exp(log) * y.sum(axis=1, keepdims=True) - y)
        else:
            loss += 0.5 * np.sum(d.weights[:, None] * (h[v] - y) ** 2)
            delta[v] = d.weights[:, None] * (h[v] - y)
    gradient = {}
    for v in reversed(d.graph.order):
        for e in d.graph.outgoing[v]:
            sent = d.gates[e.name] * delta[e.target]
            gradient[e.name] = sent.T @ h[v]
            delta[v] = delta.get(v, 0.0) + sent @ weights[e.name]
    return loss, gradient, delta


def kernel(weights, d):
    """Tangent kernel (example, output, example, output), outputs side by side."""
    h = forward(weights, d)
    rows = []
    n, ends = len(d.weights), [(v, k) for v in d.targets for k in range(h[v].shape[1])]
    for example in range(n):
        for end, unit in ends:
            one = Arrays(
                d.graph,
                {k: x[[example]] for k, x in d.inputs.items()},
                {v: np.zeros((1, h[v].shape[1])) for v in d.targets},
                {k: g[[example]] for k, g in d.gates.items()},
                np.ones(1),
            )
            # The gradient of half the squared distance to h - e_k is that of h_k.
            for v in d.targets:
                one.targets[v][0] = h[v][example]
            one.targets[end][0, unit] -= 1.0
            gradient = loss_and_gradient(weights, one)[1]
            rows.append(np.concatenate([g.ravel() for g in gradient.values()]))
    rows = np.array(rows)
    return (rows @ rows.T).reshape(n, len(ends), n, len(ends))


def descend(weights, d, steps, update, *, batches=None, cross_entropy=False):
    """Losses at steps 0 ... steps, and the weights at the end.

    `update(w, g, memory)` returns the new weights of all edges; `memory` is a dictionary of its
    own.
    """
    weights, memory, losses = dict(weights), {}, []
    for k in range(steps + 1):
        loss, gradient, _ = loss_and_gradient(weights, d, cross_entropy)
        losses.append(loss)
        if batches is not None:
            part = batches[k % len(batches)]
            few = Arrays(
                d.graph,
                {k: x[part] for k, x in d.inputs.items()},
                {k: y[part] for k, y in d.targets.items()},
                {k: g[part] for k, g in d.gates.items()},
                d.weights[part],
            )
            gradient = loss_and_gradient(weights, few, cross_entropy)[1]
        if k < steps:
            weights = update(weights, gradient, memory)
    return np.array(losses), weights


def gradient_descent(rate):
    return lambda w, g, _: {k: w[k] - rate * g[k] for k in w}


def momentum(rate, beta=0.9, decay=0.0, l2=0.0, nesterov=False, rule=None):
    """m = beta m + g, W -= rate (m + decay W); `rule` maps each m (or its look-ahead)."""

    def update(w, g, memory):
        g = {k: g[k] + l2 * w[k] for k in w}
        m = memory["m"] = {k: beta * memory["m"][k] + g[k] if memory else g[k] for k in w}
        u = {k: g[k] + beta * m[k] if nesterov else m[k] for k in w}
        u = u if rule is None else {k: rule(x) for k, x in u.items()}
        return {k: w[k] - rate * (u[k] + decay * w[k]) for k in w}

    return update


RULES = {
    "gd .05": gradient_descent(0.05),
    "momentum .9, rate .02, decoupled decay .01": momentum(0.02, decay=0.01),
    "momentum .9, rate .02, L2 .01 inside the gradient": momentum(0.02, l2=0.01),
}


def small_arrays(reduction):
    """The small weights and data of a reduction."""
    net = reduction.net
    weights = {e.name: np.asarray(net.weights[e.name]) for e in net.graph.edges}
    return weights, arrays(net.graph, reduction.data, weights[net.graph.edges[0].name].dtype)


def gap(system, reduction, steps, update, **options):
    """Largest distance of the losses over L(0), and the end weights, wide and small."""
    wide, w_end = descend(
        system.weights, arrays(system.graph, system.data), steps, update, **options
    )
    small, s_end = descend(*small_arrays(reduction), steps, update, **options)
    return np.abs(wide - small).max() / wide[0], w_end, s_end


def lifted(system, reduction, small, rest):
    """R_t w R_s^T + c (W(0) - P_t W(0) P_s) by NumPy."""
    frames = {k: np.asarray(f) for k, f in reduction.frames.items()}
    lift = {}
    for e in system.graph.edges:
        t, s, w = frames[e.target], frames[e.source], system.weights[e.name]
        lift[e.name] = t @ small[e.name] @ s.T + rest * (w - t @ (t.T @ w @ s) @ s.T)
    return lift


# ---------------------------------------------------------------- rules by matrix
def polar(g, cut=1e-7):
    u, s, v = np.linalg.svd(g, full_matrices=False)
    keep = s > cut * max(s[0], 1e-300)
    return u[:, keep] @ v[keep]


def newton_schulz(g):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (np.linalg.norm(g) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def per_matrix(rule, rate, l2=0.0):
    return lambda w, g, _: {k: w[k] - rate * rule(g[k] + l2 * w[k]) for k in w}


def shampoo(rate):
    """With accumulation from .01 I, a fourth root on each side."""

    def root(m):
        values, vectors = np.linalg.eigh(m)
        return vectors * values**-0.25 @ vectors.T

    def update(w, g, memory):
        for k, x in g.items():
            left, right = memory.get(k, (0.01 * np.eye(len(x)), 0.01 * np.eye(x.shape[1])))
            memory[k] = left + x @ x.T, right + x.T @ x
        return {k: w[k] - rate * root(memory[k][0]) @ g[k] @ root(memory[k][1]) for k in w}

    return update


def adam(rate):
    def update(w, g, memory):
        t = memory["t"] = memory.get("t", 0) + 1
        for k, x in g.items():
            m, v = memory.get(k, (0.0, 0.0))
            memory[k] = 0.9 * m + 0.1 * x, 0.999 * v + 0.001 * x**2
        return {
            k: w[k]
            - rate * memory[k][0] / (1 - 0.9**t) / (np.sqrt(memory[k][1] / (1 - 0.999**t)) + 1e-8)
            for k in w
        }

    return update


def lars(rate):
    def update(w, g, _):
        return {
            k: w[k] - rate * np.linalg.norm(w[k]) / (np.linalg.norm(g[k]) + 1e-12) * g[k] for k in w
        }

    return update
