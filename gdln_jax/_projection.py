"""Mode strengths of a given network, in the hidden frames that suit it best.

Floor 3, below the reduction: may import floors 0 to 2.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._modes import ModeStrengths
from gdln_jax._network import GatedNetwork

# Alternating Procrustes rounds; each can only raise the captured strength, and 50 leave changes
# below 1e-6 on random networks.
_ROUNDS = 50


def project(
    net: GatedNetwork, u: tuple[Array, ...], v: tuple[Array, ...], align: bool
) -> tuple[ModeStrengths, dict[str, float]]:
    """Strengths b_e = diag(R_t^T W_e R_s) and ||W_e - R_t diag(b_e) R_s^T|| / ||W_e|| per edge."""
    graph = net.graph
    weights = {name: np.asarray(w) for name, w in net.weights.items()}
    left, right = {}, {}
    for k, bundle in enumerate(graph.bundles):
        for i, name in enumerate(bundle.edges):
            left[name], right[name] = np.asarray(u[k][i]), np.asarray(v[k][i])
    if align:
        frames = _hidden_frames(net, weights, left, right)
        for edge in graph.edges:
            left[edge.name] = frames.get(edge.target, left[edge.name])
            right[edge.name] = frames.get(edge.source, right[edge.name])
    b, misalignment = {}, {}
    for name, w in weights.items():
        b[name] = np.einsum("tm,ts,sm->m", left[name], w, right[name])
        rest = np.linalg.norm(w - (left[name] * b[name]) @ right[name].T)
        misalignment[name] = float(rest / max(np.linalg.norm(w), 1e-300))
    stacks = tuple(jnp.asarray(np.stack([b[n] for n in bundle.edges])) for bundle in graph.bundles)
    return ModeStrengths(graph, stacks), misalignment


def _hidden_frames(
    net: GatedNetwork,
    weights: dict[str, np.ndarray],
    left: dict[str, np.ndarray],
    right: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Orthonormal hidden frames that capture most strength, sum over edges of sum_m b_e,m.

    Starts from the frames of `embed`, so that an embedded network is read exactly.
    """
    graph = net.graph
    frames = {name: right[graph.outgoing[name][0].name] for name in graph.hidden}
    order = [name for name in graph.order if name in frames]

    def total() -> float:
        value = 0.0
        for edge in graph.edges:
            r_t = frames.get(edge.target, left[edge.name])
            r_s = frames.get(edge.source, right[edge.name])
            value += float(np.einsum("tm,ts,sm->", r_t, weights[edge.name], r_s))
        return value

    before = total()
    for sweep in range(_ROUNDS):
        for name in order if sweep % 2 == 0 else order[::-1]:
            pull = np.zeros_like(frames[name])
            for edge in graph.incoming[name]:
                pull += weights[edge.name] @ frames.get(edge.source, right[edge.name])
            for edge in graph.outgoing[name]:
                pull += weights[edge.name].T @ frames.get(edge.target, left[edge.name])
            used = np.any(frames[name], axis=0)
            if not used.any() or not pull.any():
                continue
            p, _, q = np.linalg.svd(pull[:, used], full_matrices=False)
            best = frames[name].copy()
            best[:, used] = p @ q
            frames[name] = best
        after = total()
        if after - before <= 1e-13 * abs(after):
            break
        before = after
    return frames
