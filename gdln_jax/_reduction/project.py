"""Mode strengths of a given network, in the hidden frames that fit it best."""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array

from gdln_jax._graph import Graph
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._reduction.strengths import FrameView, MatrixStrengths, ModeStrengths

# Alternating Procrustes rounds; each can only raise the captured strength, and 50 leave changes
# below 1e-6 on random networks.
_ROUNDS = 50
# A network is aligned, in frames and signs of its own, if the walk from its inputs captures this
# share of its squared norm. That is 1 for an aligned one and 1 - eps^2 with relative noise eps, so
# that 0.99 admits 10 % of noise; random networks have 0.09 to 0.40 (routing, hierarchy, semantic
# contexts). An aligned network is read with the signs of its weights; of any other the combination
# of the layers that grows is looked for.
_ALIGNED = 0.99
# Weights above this power of the largest number overflow in products of four: they diverged.
_SOUND = 0.25

# Node -> frame; edge -> strengths or matrices; edge -> share outside.
_Frames = dict[str, np.ndarray]
_Arrays = dict[str, np.ndarray]
_Shares = dict[str, float]


def project(
    net: GatedNetwork, u: tuple[Array, ...], v: tuple[Array, ...], align: bool
) -> tuple[ModeStrengths, dict[str, float | np.ndarray]]:
    """Strengths b_e = diag(R_t^T W_e R_s) and ||W_e - R_t diag(b_e) R_s^T|| / ||W_e|| per edge.

    Leading axes of the network are kept; NaN where weights are not finite, or overflow.
    """
    size = u[0].shape[-1:]

    def one(reading: _Reading) -> tuple[_Arrays, _Shares]:
        frames = reading.embedded()
        if align and reading.rest(frames) > 1e-12:
            frames = reading.aligned(frames)
        b, misalignment = {}, {}
        for name, w in reading.weights.items():
            left, right = reading.ends(name, frames)
            b[name] = reading.strengths(name, frames)
            misalignment[name] = _share(w - (left * b[name]) @ right.T, w)
        return b, misalignment

    b, misalignment = _each(net, u, v, one, size)
    return ModeStrengths(net.graph, _joined(net.graph, b, 1)), misalignment


def project_matrices(
    net: GatedNetwork,
    u: tuple[Array, ...],
    v: tuple[Array, ...],
    spans: FrameView,
    align: bool,
) -> tuple[MatrixStrengths, dict[str, float | np.ndarray]]:
    """Matrices M_e = R_t^T W_e R_s and ||W_e - R_t M_e R_s^T|| / ||W_e|| per edge.

    `u`, `v` are the frames of the modes, `spans` those of the whole span, with more columns.
    """
    ends = {name: tuple(np.asarray(span) for span in spans[name]) for name in spans}
    size = next(iter(ends.values()))[0].shape[-1:] * 2

    def one(reading: _Reading) -> tuple[_Arrays, _Shares]:
        frames = reading.embedded()
        matrices, outside = _within(reading, frames, ends)
        if align and max(outside.values()) > 1e-6:
            matrices, outside = _within(reading, reading.aligned(frames), ends)
        return matrices, outside

    matrices, outside = _each(net, u, v, one, size)
    return MatrixStrengths(net.graph, _joined(net.graph, matrices, 2)), outside


def _within(
    reading: "_Reading", frames: _Frames, ends: dict[str, tuple[np.ndarray, ...]]
) -> tuple[_Arrays, _Shares]:
    """Matrices in the spans whose hidden sides are `frames`, and the shares outside."""
    hidden = set(reading.order)
    matrices, outside = {}, {}
    for name, w in reading.weights.items():
        edge = reading.graph.edge(name)
        left, right = (
            _widened(frames[node], span.shape[1]) if node in hidden else span
            for node, span in zip((edge.target, edge.source), ends[name], strict=True)
        )
        matrices[name] = left.T @ w @ right
        outside[name] = _share(w - left @ matrices[name] @ right.T, w)
    return matrices, outside


def _each(
    net: GatedNetwork,
    u: tuple[Array, ...],
    v: tuple[Array, ...],
    one: Callable[["_Reading"], tuple[_Arrays, _Shares]],
    size: tuple[int, ...],
) -> tuple[_Arrays, dict[str, float | np.ndarray]]:
    """What `one` reads of each network, with the leading axes in front."""
    # Cut in NumPy: in JAX every shape would be a program.
    stacks = [np.asarray(stack) for stack in net.stacks]
    weights = {}
    for name, home in net.graph.home.items():
        w = stacks[home.store][..., home.position, :, :]
        weights[name] = np.swapaxes(w, -1, -2) if home.transposed else w
    lead = next(iter(weights.values())).shape[:-2]
    rows: dict[str, list[np.ndarray]] = {name: [] for name in weights}
    shares: dict[str, list[float]] = {name: [] for name in weights}
    for index in np.ndindex(lead):
        here = {name: w[index] for name, w in weights.items()}
        if all(np.all(np.abs(w) < np.finfo(w.dtype).max ** _SOUND) for w in here.values()):
            read, outside = one(_Reading(net.graph, here, u, v))
        else:
            read = dict.fromkeys(here, np.full(size, np.nan))
            outside = dict.fromkeys(here, np.nan)
        for name in here:
            rows[name].append(read[name])
            shares[name].append(outside[name])
    if not lead:
        return {name: row[0] for name, row in rows.items()}, {n: s[0] for n, s in shares.items()}
    return (
        {name: np.reshape(row, (*lead, *size)) for name, row in rows.items()},
        {name: np.reshape(share, lead) for name, share in shares.items()},
    )


def _joined(graph: Graph, arrays: _Arrays, core: int) -> tuple[Array, ...]:
    """One stack (..., edge, *shape) per bundle."""
    groups = [[arrays[name] for name in bundle.edges] for bundle in graph.bundles]
    return tuple(jax.device_put(np.stack(group, axis=-1 - core)) for group in groups)


def _share(rest: np.ndarray, whole: np.ndarray) -> float:
    return float(np.linalg.norm(rest) / max(np.linalg.norm(whole), 1e-300))


def _widened(frame: np.ndarray, size: int) -> np.ndarray:
    return np.pad(frame, ((0, 0), (0, size - frame.shape[1])))


class _Reading:
    """A network beside the fixed frames of its inputs and outputs; hidden frames vary."""

    def __init__(self, graph: Graph, weights: _Arrays, u: tuple[Array, ...], v: tuple[Array, ...]):
        self.graph, self.weights = graph, weights
        self.left: _Frames = {}
        self.right: _Frames = {}
        for bundle, us, vs in zip(self.graph.bundles, u, v, strict=True):
            for name, left, right in zip(bundle.edges, np.asarray(us), np.asarray(vs), strict=True):
                self.left[name], self.right[name] = left, right
        hidden = set(self.graph.hidden)
        self.order = [name for name in self.graph.order if name in hidden]

    def embedded(self) -> _Frames:
        """The hidden frames of `Reduction.embed`."""
        return {name: self.right[self.graph.outgoing[name][0].name] for name in self.order}

    def ends(self, name: str, frames: _Frames) -> tuple[np.ndarray, np.ndarray]:
        edge = self.graph.edge(name)
        left = frames.get(edge.target, self.left[name])
        return left, frames.get(edge.source, self.right[name])

    def strengths(self, name: str, frames: _Frames) -> np.ndarray:
        left, right = self.ends(name, frames)
        return np.einsum("tm,tm->m", left, self.weights[name] @ right)

    def rest(self, frames: _Frames) -> float:
        """Share of the squared norm of all weights that the strengths do not capture."""
        total = sum(float(np.sum(w**2)) for w in self.weights.values())
        return 1 - self._captured(frames, signed=False) / max(total, 1e-300)

    def aligned(self, frames: _Frames) -> _Frames:
        """Hidden frames that fit the network, searched from `frames`."""
        walked = self.walked()
        if 1 - self.rest(walked) >= _ALIGNED:
            return self.positive(self.polished(walked, signed=False))
        return self.polished(frames, signed=True)

    def walked(self) -> _Frames:
        """Frames found by walking from the inputs: exact for an aligned network of any signs.

        Each mode goes where most of its squared strength arrives, whatever the signs.
        """
        frames: _Frames = {}
        start = self.embedded()
        for name in self.order:
            arrived = [
                self.weights[e.name] @ frames.get(e.source, self.right[e.name])
                for e in self.graph.incoming[name]
            ]
            columns = np.stack(arrived, axis=2)  # (width, mode, edge)
            columns = columns * np.any(start[name], axis=0)[None, :, None]
            pull = np.zeros_like(start[name])
            for m in range(columns.shape[1]):
                direction, size, _ = np.linalg.svd(columns[:, m], full_matrices=False)
                pull[:, m] = direction[:, 0] * size[0]
            frames[name] = _nearest(pull, start[name])
        return frames

    def polished(self, frames: _Frames, *, signed: bool) -> _Frames:
        """Raise the captured strength, sum of b (signed) or of b^2, node by node.

        The signed sum singles out the combination of the layers that grows: for two layers
        b_1 + b_2 = |W_1 v + W_2^T u|.
        """
        frames = dict(frames)
        before = self._captured(frames, signed)
        for sweep in range(_ROUNDS):
            for name in self.order if sweep % 2 == 0 else self.order[::-1]:
                pull = np.zeros_like(frames[name])
                for edge in self.graph.incoming[name]:
                    sent = self.weights[edge.name] @ self.ends(edge.name, frames)[1]
                    pull += sent if signed else sent * self.strengths(edge.name, frames)
                for edge in self.graph.outgoing[name]:
                    sent = self.weights[edge.name].T @ self.ends(edge.name, frames)[0]
                    pull += sent if signed else sent * self.strengths(edge.name, frames)
                if pull.any():
                    frames[name] = _nearest(pull, frames[name])
            after = self._captured(frames, signed)
            if after - before <= 1e-13 * abs(after):
                break
            before = after
        return frames

    def positive(self, frames: _Frames) -> _Frames:
        """Choose the free sign of each hidden mode so that what arrives there is positive."""
        frames = dict(frames)
        for name in self.order:
            arrives = sum(self.strengths(e.name, frames) for e in self.graph.incoming[name])
            frames[name] = frames[name] * np.where(arrives < 0, -1.0, 1.0)
        return frames

    def _captured(self, frames: _Frames, signed: bool) -> float:
        b = [self.strengths(name, frames) for name in self.weights]
        return float(sum(np.sum(x if signed else x**2) for x in b))


def _nearest(pull: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The frame nearest to `pull`, with empty columns where `like` has them."""
    used = np.any(like, axis=0)
    best = np.zeros_like(like)
    p, _, q = np.linalg.svd(pull[:, used], full_matrices=False)
    best[:, used] = p @ q
    return best
