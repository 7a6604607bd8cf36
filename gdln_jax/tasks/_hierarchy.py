"""Items with the features of a binary hierarchy (N Fig. 4c; H Fig. 7)."""

from collections.abc import Sequence

import numpy as np

from gdln_jax._checks import check_integer
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph
from gdln_jax.tasks._task import Task


def hierarchy_features(
    levels: int = 3, values: float | int | Sequence[float | int] = (6, 4, 3)
) -> np.ndarray:
    """Return the features (feature, item) of a binary tree with `2**(levels-1)` items as leaves.

    One row per node of the tree, level by level: `values[k]` for the items below it, 0 for the
    others. The default is the matrix of N Fig. 4; `values=1` gives H's.
    """
    levels = check_integer(levels, "levels", minimum=1)
    heights = [float(values)] * levels if np.ndim(values) == 0 else [float(v) for v in values]  # type: ignore[arg-type, union-attr]
    if len(heights) != levels:
        raise ValueError(
            f"values has {len(heights)} entries for {levels} levels; give one per level, or one "
            "number for all."
        )
    items = 2 ** (levels - 1)
    rows = [
        height * np.kron(np.eye(2**level), np.ones(items // 2**level))
        for level, height in enumerate(heights)
    ]
    return np.concatenate(rows)


def hierarchy(
    levels: int = 3,
    values: float | int | Sequence[float | int] = (6, 4, 3),
    *,
    width: int = 64,
    hidden_layers: int = 1,
) -> Task:
    """Learn the features of the leaves of a binary tree, from one-hot items, without gates.

    The default is the base data set of N Fig. 4: X = I (4 items), 7 features, singular values of
    Sigma^yx: sqrt(185)/4, sqrt(41)/4, 3/4, 3/4 and Sigma^x = I/4. `meta`: `s`, the singular
    values of Sigma^yx in descending order, and `d`, the variance of each mode.
    """
    features = hierarchy_features(levels, values)
    items = features.shape[1]
    hidden_layers = check_integer(hidden_layers, "hidden_layers", minimum=0)
    graph = Graph.chain([items, *[width] * hidden_layers, len(features)])
    data = GatedData({"x": np.eye(items)}, {"y": features.T})
    s = np.linalg.svd(features / items, compute_uv=False)
    return Task(graph, data, "hierarchy", {"s": s, "d": 1 / items})
