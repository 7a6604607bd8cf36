"""Representations: similarity between examples and domains (N Fig. 4g), and MDS over time."""

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._linalg import norm, quotient, root


def representational_similarity(
    net: Any, data: GatedData | PackedData, node: str, *, cosine: bool = False
) -> Float[Array, "n n"]:
    """Return dot products between the activities of `node` on all pairs of examples (N Fig. 4g).

    With `cosine` they are divided by the norms of both; an example on which the node is silent has
    cosine 0 with all, with derivative 0. For the similarity across domains give each input domain
    its examples in turn.

    Raises:
        ValueError: when the network has no such node.
    """
    if node not in net.graph.nodes:
        raise ValueError(f"the network has no node {node!r}; nodes: {list(net.graph.nodes)}.")
    h = net.activity(data)[node]
    if cosine:
        h = quotient(h, jnp.broadcast_to(norm(h, axis=-1, keepdims=True), h.shape))
    return h @ h.T


def domain_alignment(similarity: Float[Numbers, "n n"], num_domains: int) -> Float[Array, ""]:
    """Return the mean cosine between the representations of one item in different domains.

    `similarity` holds dot products ordered by domain, then item. 1: the code is invariant to the
    domain (N Sec. 4.1); about 0: each domain has a code of its own. An item that is silent in a
    domain has cosine 0 there, with derivative 0. NaN for one domain, which leaves no pair.
    """
    matrix = jnp.asarray(similarity)
    m = check_integer(num_domains, "num_domains", minimum=1)
    if matrix.shape[0] % m:
        raise ValueError(
            f"similarity has {matrix.shape[0]} rows, which {m} domains cannot share equally."
        )
    size = root(jnp.diagonal(matrix))
    rows, columns = (jnp.broadcast_to(jnp.expand_dims(size, i), matrix.shape) for i in (1, 0))
    cosine = quotient(quotient(matrix, rows), columns)
    blocks = cosine.reshape(m, -1, m, matrix.shape[0] // m)
    same_item = jnp.einsum("aibi->ab", blocks) / blocks.shape[1]
    return (jnp.sum(same_item) - jnp.trace(same_item)) / (m * (m - 1))


def mds(
    points: ArrayLike, *, dimensions: int = 2, seed: int = 0
) -> Float[np.ndarray, "time item dimension"]:
    """Embed representations by metric multidimensional scaling, jointly for all times.

    All time points are embedded together, so that pictures of successive times do not jump.
    Starts from the classical solution, which scikit-learn's stress minimisation refines. Host
    code; O((time item)^2) memory, so thin out the times first.

    Args:
        points: (time, item, feature), the activity of each item at each time.
        dimensions: of the picture.
        seed: for scikit-learn's random state (the start is not random).
    """
    from sklearn.manifold import MDS

    points = np.asarray(points, float)
    if points.ndim != 3:
        raise ValueError(f"points has shape {points.shape}; expected (time, item, feature).")
    flat = points.reshape(-1, points.shape[-1])
    start = _classical(flat, check_integer(dimensions, "dimensions", minimum=1))
    # Renamed in scikit-learn 1.8-1.10: `metric` was whether to do metric MDS, `dissimilarity`
    # what the rows are.
    known = inspect.signature(MDS).parameters
    old = "metric_mds" not in known
    names: dict[str, Any] = {"metric": True}
    if not old:  # `init` is named to be silent; `start` overrides it
        names = {"metric_mds": True, "metric": "euclidean", "init": "classical_mds"}
    scale = MDS(
        n_components=start.shape[1],
        n_init=1,
        random_state=seed,
        normalized_stress=False,  # type: ignore[arg-type]
        **names,
    )
    return np.asarray(scale.fit_transform(flat, init=start)).reshape(*points.shape[:2], -1)


def _classical(flat: np.ndarray, dimensions: int) -> np.ndarray:
    """Principal coordinates: for Euclidean distances classical scaling is PCA."""
    left, size, _ = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    kept = min(dimensions, len(size))
    out = np.zeros((len(flat), dimensions))
    out[:, :kept] = left[:, :kept] * size[:kept]
    # Signs are arbitrary: make the largest entry of each coordinate positive.
    largest = out[np.abs(out).argmax(axis=0), np.arange(dimensions)]
    return out * np.where(largest < 0, -1.0, 1.0)
