"""Small systems whose staircases are known, as graph, data and strengths by edge."""

import itertools
from collections.abc import Sequence

import numpy as np
from scipy.integrate import solve_ivp

from gdln_jax import GatedData, Graph, Reduction, reduce


class Paths:
    """Paths through nodes of width 1: the reduction, and its flow by SciPy in NumPy alone.

    Inputs are called x..., outputs y..., sorted by name; `yx` and `xx` are their moments.
    """

    def __init__(
        self,
        routes: Sequence[Sequence[str]],
        yx: Sequence[Sequence[float]],
        xx: Sequence[Sequence[float]],
    ):
        self.edges = list(dict.fromkeys(p for route in routes for p in itertools.pairwise(route)))
        nodes = sorted({node for pair in self.edges for node in pair})
        inputs, outputs = ([node for node in nodes if node[0] == kind] for kind in "xy")
        self.paths = [[self.edges.index(p) for p in itertools.pairwise(r)] for r in routes]
        ends = [(outputs.index(r[-1]), inputs.index(r[0])) for r in routes]
        self.s = np.array([yx[y][x] for y, x in ends])
        self.d = np.array([[xx[x][u] * (y == v) for v, u in ends] for y, x in ends])
        widths = dict.fromkeys(inputs, 1), dict.fromkeys(outputs, 1)
        data = GatedData.from_moments(*widths, xx=xx, yx=yx)
        self.reduction = reduce(Graph(dict.fromkeys(nodes, 1), self.edges), data)

    def start(self, c: Sequence[float] | np.ndarray) -> dict[str, float]:
        """Strengths by edge, in the order of the edges."""
        pairs = zip(self.edges, c, strict=True)
        return {f"{a}->{b}": float(value) for (a, b), value in pairs}

    def products(self, b: np.ndarray) -> np.ndarray:
        return np.array([np.prod(b[path]) for path in self.paths])

    def velocity(self, _: float, b: np.ndarray) -> np.ndarray:
        error = self.s - self.d @ self.products(b)
        slope = np.zeros(len(b))
        for r, path in zip(error, self.paths, strict=True):
            for e in path:
                slope[e] += r * np.prod([b[f] for f in path if f != e])
        return slope

    def loss(self, b: np.ndarray) -> float:
        """The loss over that of b = 0."""
        m = self.products(b)
        return float(-self.s @ m + m @ self.d @ m / 2)

    def times(
        self,
        c: Sequence[float] | np.ndarray,
        levels: Sequence[float],
        t1: float,
        path: int | None = None,
    ) -> np.ndarray:
        """When the loss over l(0), or the product of a path, crosses levels, in order."""

        def height(b: np.ndarray) -> float:
            return self.loss(b) if path is None else float(self.products(b)[path])

        events = [lambda _, b, level=level: height(b) - level for level in levels]
        events[-1].terminal = True  # type: ignore[attr-defined]
        run = solve_ivp(
            self.velocity,
            (0.0, t1),
            np.asarray(c, float),
            "DOP853",
            events=events,
            rtol=1e-11,
            atol=1e-16 * float(np.min(np.abs(c))),
        )
        return np.array([found[0] if len(found) else np.inf for found in run.t_events])


def chain(depth: int, s: float = 1.3, d: float = 0.7) -> Paths:
    """One path of `depth` edges."""
    return Paths([["x", *(f"h{k}" for k in range(1, depth)), "y"]], [[s]], [[d]])


def fusion(s: Sequence[float], d_ab: float, depth: int = 2, separate: int = 2) -> Paths:
    """Two modalities A and B of variance 1 with `separate` layers each, then shared ones.

    Edges are A's from the input on, then the shared ones, then B's.
    """
    shared = [f"s{k}" for k in range(depth - separate)] + ["y"]
    lines = [[f"x{m}", *(f"h{m}{k}" for k in range(1, separate)), *shared] for m in "AB"]
    return Paths(lines, [list(s)], [[1, d_ab], [d_ab, 1]])


def gated(seed: int) -> tuple[Reduction, dict[str, float]]:
    """One of the 20 random gated systems of two layers, and its c in aligned coordinates."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))
    gates = (rng.random((6, 8)) < 0.6).astype(float)
    c = rng.uniform(0.5, 1.5, 8)
    edges = [(f"x{i}", f"h{j}") for i in (0, 1) for j in (0, 1)]
    edges += [(f"h{i}", f"y{j}") for i in (0, 1) for j in (0, 1)]
    names = [f"{a}->{b}" for a, b in edges]
    graph = Graph(dict.fromkeys([f"{k}{i}" for k in "xhy" for i in (0, 1)], 1), edges)
    data = GatedData(
        {"x0": x[:, :1], "x1": x[:, 1:]},
        {"y0": y[:, :1], "y1": y[:, 1:]},
        edge_gates=dict(zip(names, gates.T, strict=True)),
    )
    reduction = reduce(graph, data)
    # Weights c are strengths up to the signs of frames.
    sign = {k: float(u[0, 0] * v[0, 0]) for k, (u, v) in reduction.frames.items()}
    return reduction, {k: v * sign[k] for k, v in zip(names, c.tolist(), strict=True)}
