"""Packed data: examples arranged so that a step costs in proportion to the active edges.

The pytree of arrays that `packing` makes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._checks import MAKE_A_MODEL, Instead
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._graph import Graph

# Multiplications that `Stage.sent` takes more for each number that it need not gather: where they
# were at most 15, a step became 5 to 9 % faster on a CPU.
_WORTH = 16
# Inputs from which on it is faster to transpose the data than the weights.
_WIDE = 64


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


class ActivePairs(NamedTuple):
    """The active (edge, activity) pairs of a stage in NumPy, each (pair,), padding included.

    `edge` numbers the edges of the bundle, `source` and `target` the distinct activities of its
    source and target class.
    """

    source: np.ndarray
    edge: np.ndarray
    gate: np.ndarray
    target: np.ndarray


class Stage(eqx.Module):
    """The work of one bundle: `chunk` groups of up to `pair` active (edge, activity) pairs.

    `None` stands for the trivial choice: sources and targets in order, edges in order, gates 1.
    """

    source: Int[Array, "chunk pair"] | None
    edge: Int[Array, " chunk"] | None
    gate: Float[Array, "chunk pair _"] | None
    target: Int[Array, "chunk pair"] | None
    shape: tuple[int, int] = eqx.field(static=True)

    def gathered(
        self, h: Float[Array, "instance row width"]
    ) -> Float[Array, "chunk pair row width"]:
        """Return the source activity of every pair."""
        if self.source is None:
            return h.reshape(*self.shape, *h.shape[1:])
        return h[self.source]

    def chosen(self, stack: Float[Array, "edge *shape"]) -> Float[Array, "chunk *shape"]:
        """Return the entry of every chunk's edge, of a stack over the edges of the bundle."""
        return stack if self.edge is None else stack[self.edge]

    def sent(
        self,
        stack: Float[Array, "edge out in"],
        h: Float[Array, "instance row in"],
        *,
        of_data: bool,
    ) -> Float[Array, "chunk pair row out"]:
        """Return the product of the weights and the source activity of every pair.

        To rounding the same in three orders. Where few units are sent to and most sources go to
        every edge, every edge is multiplied with every source, and the pairs are taken from the
        narrow results: gathers of activities and scatters of their gradients cost CPUs more than
        the products. Of `of_data`, wide inputs of no more rows than units, what is sent is
        transposed after the product: within it XLA multiplies batches by a plain loop, there and in
        the gradient (49 in place of 25 ms a step for a hundred 128 x 784 on one core).

        Args:
            stack: weights of the edges of the bundle.
            h: activities of the source class.
            of_data: whether they are inputs, into which no gradient need be fast.
        """
        weights = self.chosen(stack)
        chunk, pair = self.shape
        (out, width), sources = weights.shape[1:], h.shape[0]
        if (
            self.source is not None
            and self.edge is None
            and out < width
            and out * (sources - pair) <= _WORTH * pair
        ):
            every = _product("cts,irs->cirt", weights, h)
            place = sources * jnp.arange(chunk)[:, None] + self.source
            return every.reshape(chunk * sources, *every.shape[2:])[place]
        gathered = self.gathered(h)
        if of_data and width >= _WIDE and pair * h.shape[1] <= out:
            # The barrier keeps XLA from folding the transposition into the product.
            sent = jax.lax.optimization_barrier(_product("cts,cprs->ctpr", weights, gathered))
            return jnp.moveaxis(sent, 1, 3)
        return _product("cts,cprs->cprt", weights, gathered)

    def gated(
        self, sent: Float[Array, "chunk pair row width"]
    ) -> Float[Array, "chunk pair row width"]:
        """Multiply what every pair sends by its gate."""
        return sent if self.gate is None else sent * self.gate[..., None]

    def added(
        self, sent: Float[Array, "chunk pair row width"], count: int
    ) -> Float[Array, "instance row width"]:
        """Add up what the pairs send to each of `count` target activities."""
        flat = sent.reshape(-1, *sent.shape[2:])
        if self.target is None:
            return flat
        zero = jnp.zeros((count, *flat.shape[1:]), flat.dtype)
        return zero.at[self.target.reshape(-1)].add(flat)

    def pairs(self) -> ActivePairs:
        """Return the pairs in NumPy; those that only pad have gate 0."""
        size = self.shape[0] * self.shape[1]
        gate = np.ones(size) if self.gate is None else np.asarray(self.gate)[..., 0].ravel()
        edge = numbers(self.edge, self.shape[0])
        return ActivePairs(
            numbers(self.source, size),
            np.repeat(edge, self.shape[1]),
            gate,
            numbers(self.target, size),
        )


def _product(rule: str, weights: Array, h: Array) -> Array:
    # HIGHEST: GPUs would otherwise multiply float32 in reduced precision and differ from CPUs by
    # 1e-3.
    return jnp.einsum(rule, weights, h, precision=jax.lax.Precision.HIGHEST)


def numbers(index: Int[Array, "..."] | None, count: int) -> np.ndarray:
    """Return an index in NumPy, flat; None stands for all of `count` in order."""
    return np.arange(count) if index is None else np.asarray(index).ravel()


class Compared(eqx.Module):
    """Which distinct activities of a class are compared with targets; None: all, in order."""

    instance: Int[Array, " pair"] | None
    target: eqx.AbstractVar[Array]

    def predictions(self, h: Float[Array, "instance row width"]) -> Float[Array, "pair row width"]:
        """Return the activities that are compared, of all distinct ones."""
        return h if self.instance is None else h[self.instance]

    @property
    def instances(self) -> np.ndarray:
        """Numbers (pair,) of the activities that are compared, in NumPy."""
        return numbers(self.instance, len(self.target))


class OutputTable(Compared):
    """Where the outputs of one class of output nodes are compared with their targets.

    `node` numbers the output nodes within their class, `example` the rows in the original data.
    """

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

    _instead = Instead(
        model=MAKE_A_MODEL,
        data="packed data are arranged for a GatedNetwork; pass the GatedData themselves",
    )

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

    def with_arrays(
        self,
        inputs: Iterable[Array | None],
        target: Callable[[OutputTable, tuple[str, ...]], Array],
    ) -> "PackedData":
        """Return the same arrangement with other inputs and targets.

        Args:
            inputs: as `inputs`; rows and widths may differ from before.
            target: gives the new `target` of each table of outputs, reached or silent; called with
                the table and the names of the nodes of its class.
        """
        classes = list(self.graph.classes.values())
        tables = (
            tuple(
                None if t is None else eqx.tree_at(lambda t: t.target, t, target(t, names))
                for t, names in zip(side, classes, strict=True)
            )
            for side in (self.outputs, self.silent)
        )
        outputs, silent = tables
        return PackedData(
            self.graph, tuple(inputs), self.stages, outputs, silent, self.counts, self.num_examples
        )

    def __repr__(self) -> str:
        return (
            f"PackedData({self.num_examples} examples in blocks of {self.rows}, "
            f"{self.num_pairs} active edge products a pass, "
            f"{sum(self.counts)} distinct activities)"
        )
