"""Tied linear autoencoders (PCA) and linear self-supervised learning (theory#autoencoders)."""

from collections.abc import Sequence

import numpy as np

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.arrays import real_array
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph
from gdln_jax.tasks._task import Task


def tied_autoencoder(
    covariance: ArrayLike | Sequence,
    width: int,
    *,
    targets: ArrayLike | Sequence | None = None,
) -> Task:
    r"""Reconstruct inputs by $W^T W x$: what a linear autoencoder with tied weights learns.

    One parameter `W` (width, d), used by x->h and, transposed, by h->y. From small random weights
    $W^T W$ tends to the projector on the `width` leading principal components.

    Args:
        covariance: of the inputs, (d, d) or its eigenvalues (d,).
        width: number of hidden units.
        targets: $\Sigma^{yx}$ (d, d) of targets other than the inputs, or the diagonal of it. Only
            its symmetric part is learned, and negative eigenvalues never are.

    Returns:
        A `Task` whose data are pseudo-examples with these moments. `meta`: `eigenvalues`
        (descending) and `components` (d, mode), the eigenvectors of the covariance.

    Raises:
        ValueError: for what is no covariance, or targets outside of the range of the inputs.
    """
    width = check_integer(width, "width", minimum=1)
    c = _symmetric(covariance, "covariance")
    d = len(c)
    yx, yy = c, c
    if targets is not None:
        yx, yy = np.asarray(real_array(targets, "targets"), float), None
        yx = np.diag(yx) if yx.ndim == 1 else yx
    data = GatedData.from_moments({"x": d}, {"y": d}, c, yx, yy)
    edges = [("x", "h"), ("h", "y")]
    graph = Graph({"x": d, "h": width, "y": d}, edges, shared={"W": ["x->h", "h->y^T"]})
    values, vectors = np.linalg.eigh(c)
    meta = {"eigenvalues": values[::-1].copy(), "components": vectors[:, ::-1].copy()}
    return Task(graph, data, "tied_autoencoder", meta)


def linear_ssl(gamma: ArrayLike | Sequence, width: int) -> Task:
    r"""Learn features of two views by $\frac{1}{2k} \|1 - W \Gamma W^T\|^2$, without labels.

    Linear Barlow Twins (Simon et al., ICML 2023, arXiv 2303.15438; their loss is 2 k times this
    one). The graph is z -W^T-> g -Gamma-> f -W-> y with the identity as inputs and targets; one
    parameter `W` (width, d), and `Gamma` frozen.

    Args:
        gamma: the symmetrised correlation of the views, (d, d) or its eigenvalues (d,), of either
            sign.
        width: k, the number of features.

    Returns:
        A `Task`; `meta`: `frozen`, {"Gamma": matrix}, for `GatedNetwork.init(..., frozen=)`, and
        `reduce`, keywords for `gdln.reduce`.

    Raises:
        ValueError: for a `gamma` that is not symmetric.
    """
    k = check_integer(width, "width", minimum=1)
    matrix = _symmetric(gamma, "gamma")
    nodes = {"z": k, "g": len(matrix), "f": len(matrix), "y": k}
    edges = [("z", "g"), ("g", "f", "Gamma"), ("f", "y")]
    graph = Graph(nodes, edges, shared={"W": ["z->g^T", "f->y"]}, frozen=["Gamma"])
    data = GatedData({"z": np.eye(k)}, {"y": np.eye(k)})
    frozen = {"Gamma": matrix}
    return Task(graph, data, "linear_ssl", {"frozen": frozen, "reduce": {"frozen": frozen}})


def _symmetric(values: ArrayLike | Sequence, name: str) -> np.ndarray:
    """A symmetric matrix, from itself or from its eigenvalues."""
    array = np.asarray(real_array(values, name), float)
    matrix = np.diag(array) if array.ndim == 1 else array
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    if not square or np.abs(matrix - matrix.T).max() > 1e-10 * np.abs(matrix).max():
        raise ValueError(
            f"{name} has shape {array.shape}; give eigenvalues (d,), or a symmetric matrix (d, d)."
        )
    return (matrix + matrix.T) / 2
