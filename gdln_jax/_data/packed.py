"""Packed data: examples arranged so that a step costs in proportion to the active edges.

The pytree of arrays that `packing` makes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._graph import Graph


class Block(NamedTuple):
    """Examples with one gate pattern, written sparsely: what is absent is zero.

    - `inputs`: input node -> (rows, width).
    - `targets`: output node -> (rows, width).
    - `gates`: edge -> its gate times the gate of the node it ends at; absent edges are closed.
    - `weights`: (rows,).
    - `examples`: number of each row in the original data, -1 for padding.
    """

    inputs: Mapping[str, np.ndarray]
    targets: Mapping[str, np.ndarray]
    gates: Mapping[str, float]
    weights: np.ndarray
    examples: np.ndarray


class Stage(eqx.Module):
    """The work of one bundle: `chunk` groups of up to `pair` active (edge, block) pairs.

    `None` stands for the trivial choice: sources and targets in order, edges in order, gates 1.
    """

    source: Int[Array, "chunk pair"] | None
    edge: Int[Array, " chunk"] | None
    gate: Float[Array, "chunk pair _"] | None
    target: Int[Array, "chunk pair"] | None
    shape: tuple[int, int] = eqx.field(static=True)


class OutputTable(eqx.Module):
    """Where the outputs of one class of output nodes are compared with their targets.

    `instance` None means all in order; `node` numbers the output nodes within their class.
    """

    instance: Int[Array, " pair"] | None
    node: Int[np.ndarray, " pair"] | Int[Array, " pair"]
    target: Float[Array, "pair row width"]
    weight: Float[Array, "pair row"]
    example: Int[np.ndarray, "pair row"] | Int[Array, "pair row"]


class PackedData(SeveralArrays, eqx.Module):
    """A data set arranged for one architecture; made by `pack`.

    Can be used in place of `GatedData` wherever a `GatedNetwork` is evaluated or trained, and
    gives the same losses and gradients.

    - `inputs`: node class -> distinct blocks of input activity (instance, row, width).
    - `stages`: one per bundle of the graph, `None` where no edge of it is ever active.
    - `counts`: number of distinct activities per node class.
    - `outputs`: per class of output nodes what its predictions are compared with.
    - `silent`: the same for outputs that no active path reaches; the prediction there is 0.
    """

    graph: Graph = eqx.field(static=True)
    # No named axes in tuples: they would have to agree between the items.
    inputs: tuple[Float[Array, "_ _ _"] | None, ...]
    stages: tuple[Stage | None, ...]
    outputs: tuple[OutputTable | None, ...]
    silent: tuple[OutputTable | None, ...]
    counts: tuple[int, ...] = eqx.field(static=True)
    num_examples: int = eqx.field(static=True)

    @property
    def num_pairs(self) -> int:
        """Number of active (edge, block) products of one forward pass, padding included."""
        return sum(s.shape[0] * s.shape[1] for s in self.stages if s is not None)

    @property
    def rows(self) -> int:
        """Examples per block."""
        tables = (*self.outputs, *self.silent)
        return next((t.target.shape[1] for t in tables if t is not None), 0)

    def __repr__(self) -> str:
        return (
            f"PackedData({self.num_examples} examples in blocks of {self.rows}, "
            f"{self.num_pairs} active edge products a pass, "
            f"{sum(self.counts)} distinct activities)"
        )
