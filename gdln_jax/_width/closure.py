"""The smallest spaces R_v that hold all activities and errors of a run (theory#width).

Host code in float64: directions are mapped through every live edge, forward by W and backward by
W^T, until nothing new appears. Products with float32 weights stay in float32 where the tolerance
allows it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gdln_jax._graph import Edge, Graph
from gdln_jax._width.examples import Seen, basis
from gdln_jax._width.sizes import Probe, component_sums, expected_sizes, named_cycle, probe

Matrix = Float[np.ndarray, "_ _"]

# Products in float32 err by some 1e-7 of the norm.
_SINGLE = 1e-6
_ROWS = 2048


class OpenClosureError(ValueError):
    """The spaces grow until they fill the network, so that no smaller network is exact.

    Attributes:
        cycle: names of the edges around which directions never close; one name stands for an edge
            whose W^T W is no multiple of the identity.
        sizes: node -> size when the search stopped.
    """

    cycle: tuple[str, ...]
    sizes: dict[str, int]

    def __init__(self, message: str, cycle: tuple[str, ...], sizes: dict[str, int]):
        super().__init__(message)
        self.cycle, self.sizes = cycle, sizes


class Limits(NamedTuple):
    """When to stop: after so many rounds, at so large a space, or where no closure is in sight."""

    tol: float
    rounds: int | None
    max_size: int | None
    refuse_open: bool


class Closure(NamedTuple):
    """The spaces of one network, and its weights there.

    - `frames`: node -> R_v (width, size), orthonormal columns.
    - `weights`: edge -> R_t^T W R_s.
    - `leaks`: live edge -> what of its images lies outside, relative to the norm of W.
    """

    frames: dict[str, Matrix]
    weights: dict[str, Matrix]
    leaks: dict[str, float]
    closed: bool
    rounds: int
    expected: dict[str, int | None]


def close(
    graph: Graph, weights: Mapping[str, np.ndarray], seen: Seen, span: bool, limits: Limits
) -> Closure:
    """Find the smallest closed spaces, or those after a number of rounds."""
    growth = _Growth(graph, weights, seen, span, limits)
    growth.seed()
    closed, rounds = growth.grow()
    small, leaks = growth.read()
    return Closure(growth.frames, small, leaks, closed, rounds, growth.expected())


def times(w: np.ndarray, block: Matrix, tol: float) -> Matrix:
    """Return w @ block in float64, or in the precision of w where `tol` allows it."""
    if w.dtype == np.float64 or tol >= _SINGLE:
        return (w @ block.astype(w.dtype)).astype(np.float64)
    pieces = [w[i : i + _ROWS].astype(np.float64) @ block for i in range(0, len(w), _ROWS)]
    return np.concatenate(pieces)


class _Growth:
    """The frames while they grow.

    An edge is one of three kinds: from an input node; `inner`, between nodes that grow; or `last`,
    from a hidden node into an output node whose frame is the identity.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, np.ndarray],
        seen: Seen,
        span: bool,
        limits: Limits,
    ):
        self.graph, self.weights, self.seen, self.limits = graph, weights, seen, limits
        self.grown = {*graph.hidden, *(graph.outputs if span else ())}
        joined = [e for e in graph.edges if e.name in seen.live and weights[e.name].any()]
        self.first = [e for e in joined if e.source in graph.inputs]
        self.inner = [e for e in joined if {e.source, e.target} <= self.grown]
        self.last = [e for e in joined if e.source in graph.hidden and e.target not in self.grown]
        self.frames = {
            name: np.zeros((width, 0)) if name in self.grown else np.eye(width)
            for name, width in graph.nodes.items()
        }
        self.frames |= {k: basis(x, limits.tol) for k, x in seen.inputs.items()}
        self.probes: dict[str, Probe] = {
            e.name: probe(self._by(e.name), self._by(e.name, back=True), weights[e.name].shape)
            for e in joined
        }
        self.images: dict[str, Matrix] = {}  # W R_s
        self.echoes: dict[str, Matrix] = {}  # W^T R_t
        self.seeds = dict.fromkeys(graph.nodes, 0)

    def _by(self, name: str, back: bool = False):
        w = self.weights[name].T if back else self.weights[name]
        return lambda block: times(w, block, self.limits.tol)

    def seed(self) -> None:
        """Round 0: what inputs and outputs send into the nodes next to them."""
        tol = self.limits.tol
        for name in self.graph.outputs:
            if name in self.grown:
                self.frames[name] = basis(self.seen.targets[name], tol)
                self.seeds[name] += self.frames[name].shape[1]
        for edge in self.first:
            frame = self.frames[edge.source]
            used = basis(self.seen.inputs[edge.source][self.seen.open[edge.name]], tol)
            self.images[edge.name] = self._by(edge.name)(frame)
            if edge.target in self.grown:
                self.seeds[edge.target] += used.shape[1]
                self._extend(edge.target, self.images[edge.name] @ (frame.T @ used), edge)
        for edge in self.last:
            block = self.weights[edge.name].T.astype(np.float64)
            self.echoes[edge.name] = block
            self.seeds[edge.source] += block.shape[1]
            self._extend(edge.source, block, edge)
        self.start = dict(self.frames)
        self.sums = component_sums(self.seeds, self.inner)

    def grow(self) -> tuple[bool, int]:
        """Map what is new through every inner edge, round by round; (closed, rounds)."""
        for edge in self.inner:
            self.images[edge.name] = np.zeros((self.graph.nodes[edge.target], 0))
            self.echoes[edge.name] = np.zeros((self.graph.nodes[edge.source], 0))
        rounds = 0
        while True:
            fresh = [self._map(edge) for edge in self.inner]
            before = dict(self.frames)
            for edge, (image, echo) in zip(self.inner, fresh, strict=True):
                self._extend(edge.target, image, edge)
                self._extend(edge.source, echo, edge)
            sizes = {name: frame.shape[1] for name, frame in self.frames.items()}
            if all(sizes[name] == frame.shape[1] for name, frame in before.items()):
                return True, rounds
            if rounds == self.limits.rounds or self._too_large(sizes):
                self.frames = before
                return False, rounds
            rounds += 1
            if self.limits.refuse_open:
                self._refuse_open(sizes)

    def _map(self, edge: Edge) -> tuple[Matrix, Matrix]:
        """Images, by W and W^T, of the directions that this edge has not met yet."""
        name = edge.name
        image = self._by(name)(self.frames[edge.source][:, self.images[name].shape[1] :])
        echo = self._by(name, back=True)(self.frames[edge.target][:, self.echoes[name].shape[1] :])
        self.images[name] = np.hstack([self.images[name], image])
        self.echoes[name] = np.hstack([self.echoes[name], echo])
        return image, echo

    def _extend(self, node: str, block: Matrix, edge: Edge) -> None:
        """Append what of the block lies outside of a node's frame."""
        frame = self.frames[node]
        left = self.graph.nodes[node] - frame.shape[1]
        if not left or not block.size:
            return
        outside = block / self.probes[edge.name].norm
        for _ in range(2):  # once would leave rounding errors of the size of the block
            outside = outside - frame @ (frame.T @ outside)
        directions, size, _ = np.linalg.svd(outside, full_matrices=False)
        new = directions[:, : min(left, int(np.sum(size > self.limits.tol)))]
        if new.shape[1]:
            new, _ = np.linalg.qr(new - frame @ (frame.T @ new))
            self.frames[node] = np.hstack([frame, new])

    def _too_large(self, sizes: Mapping[str, int]) -> bool:
        most = self.limits.max_size
        return most is not None and any(sizes[name] > most for name in self.grown)

    def _refuse_open(self, sizes: Mapping[str, int]) -> None:
        for name in self.graph.hidden:
            width, size, total = self.graph.nodes[name], sizes[name], self.sums[name]
            if (size == width and total < width) or size > max(64, 4 * total + 16):
                cycle = named_cycle(self.inner, self.probes, self._by, self.graph, 10 * self.tol)
                raise OpenClosureError(_open_message(cycle, name, size, width), cycle, dict(sizes))

    @property
    def tol(self) -> float:
        """The relative tolerance."""
        return self.limits.tol

    def read(self) -> tuple[dict[str, Matrix], dict[str, float]]:
        """Weights in the frames, and the leak of each live edge."""
        small, leaks = {}, {}
        for edge in self.graph.edges:
            name, target = edge.name, self.frames[edge.target]
            if name not in self.images:
                self.images[name] = self._by(name)(self.frames[edge.source])
            small[name] = target.T @ self.images[name]
            if name in self.probes:
                leaks[name] = self._leak(edge)
        return small, leaks

    def _leak(self, edge: Edge) -> float:
        name, source, target = edge.name, self.frames[edge.source], self.frames[edge.target]
        image = self.images[name]
        if edge in self.first:
            used = basis(self.seen.inputs[edge.source][self.seen.open[name]], self.tol)
            image = image @ (source.T @ used)
        outside = _norm(image - target @ (target.T @ image))
        if edge not in self.first:
            echo = self.echoes[name]
            outside = max(outside, _norm(echo - source @ (source.T @ echo)))
        return outside / self.probes[name].norm

    def expected(self) -> dict[str, int | None]:
        """Sizes by formula."""
        ends = {k: self.frames[k].shape[1] for k in self.graph.nodes if k not in self.grown}
        return ends | expected_sizes(
            self.graph,
            self.grown,
            self.inner,
            self.seeds,
            self.start,
            self.probes,
            self._by,
            10 * self.tol,
        )


def _norm(block: Matrix) -> float:
    return float(np.linalg.norm(block, 2)) if block.size else 0.0


def _open_message(cycle: tuple[str, ...], node: str, size: int, width: int) -> str:
    if len(cycle) == 1:
        why = (
            f"W^T W of edge {cycle[0]!r} is no multiple of the identity, so that going forth and "
            "back through it adds new directions"
        )
    else:
        why = (
            f"the product of the weights around the cycle {' - '.join(cycle)} is no multiple of "
            "the identity, so that going round it adds new directions"
        )
    return (
        f"no smaller network is exact: {why} in every round (node {node!r} has reached {size} of "
        f"{width} units). Start from gdln.init.orthogonal(gain) with hidden nodes of one width "
        "and no cycle among them, or from gdln.init.balanced(); pass on_open='truncate' with "
        "rounds= or max_size= for an approximation with an error estimate; or on_open='fill' to go "
        "on up to the full width."
    )
