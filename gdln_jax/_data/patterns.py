"""Gate patterns: the distinct gate vectors of a data set."""

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from gdln_jax._checks import Result


class Patterns(Result, eqx.Module):
    """The distinct gate vectors of a data set.

    - `index`: for each example the number of its pattern, in order of first appearance.
    - `node_gates`, `edge_gates`: name -> the gate's value in each pattern.
    """

    index: Int[np.ndarray, " n"]
    node_gates: dict[str, Float[np.ndarray, " pattern"]]
    edge_gates: dict[str, Float[np.ndarray, " pattern"]]
    count: int

    def __repr__(self) -> str:
        return f"Patterns({self.count} gate patterns over {self.index.shape[0]} examples)"


def distinct_rows(columns: list[np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct rows in order of first appearance; also each one's first example."""
    if not columns:
        return np.zeros(n, dtype=np.int64), np.zeros(1, dtype=np.int64)
    table = np.ascontiguousarray(np.stack(columns, axis=1).astype(np.float64)) + 0.0
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(first))
    return rank[inverse.ravel()], first[by_appearance]
