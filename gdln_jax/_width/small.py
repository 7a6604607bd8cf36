"""The small network and its data: frames padded to common sizes, weights and examples in them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.packing import pack_blocks
from gdln_jax._graph import Graph
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._width.examples import Table, blocks_of, live_rows


class Frames(NamedTuple):
    """Node -> R_v of each seed, (seed, width, size), zero columns where a seed has fewer."""

    columns: dict[str, np.ndarray]
    sizes: dict[str, np.ndarray]


def small_graph(graph: Graph, sizes: Mapping[str, Sequence[int] | np.ndarray]) -> Graph:
    """The graph with small widths: of each node class the largest, over seeds too, and at least 1.

    Classes stay together, so that the small network has no more bundles than the wide one.
    """
    width = {
        name: max(1, *(int(np.max(sizes[v])) for v in names))
        for names in graph.classes.values()
        for name in names
    }
    return Graph(
        {name: width[name] for name in graph.nodes},
        [(e.source, e.target, e.name) for e in graph.edges],
        inputs=graph.inputs,
        outputs=graph.outputs,
    )


def padded(graph: Graph, frames: Sequence[Mapping[str, np.ndarray]]) -> Frames:
    """Stack the frames of several seeds at the sizes of the small graph."""
    columns, sizes = {}, {}
    for name in frames[0]:
        size, wide = graph.nodes[name], frames[0][name].shape[0]
        columns[name] = np.zeros((len(frames), wide, size))
        for i, one in enumerate(frames):
            columns[name][i, :, : one[name].shape[1]] = one[name]
        sizes[name] = np.array([one[name].shape[1] for one in frames])
    return Frames(columns, sizes)


def small_net(
    graph: Graph, weights: Sequence[Mapping[str, np.ndarray]], dtype: np.dtype
) -> GatedNetwork:
    """Networks of several seeds, (seed, ...), from weights without padding."""
    stacks = []
    for bundle in graph.bundles:
        stack = np.zeros((len(weights), len(bundle.edges), *bundle.shape))
        for i, one in enumerate(weights):
            for j, name in enumerate(bundle.edges):
                rows, columns = one[name].shape
                stack[i, j, :rows, :columns] = one[name]
        stacks.append(jnp.asarray(stack, dtype))
    return GatedNetwork.from_stacks(graph, tuple(stacks))


def small_data(
    wide: Graph,
    small: Graph,
    data: GatedData | PackedData,
    tables: Sequence[Table],
    frames: Mapping[str, np.ndarray],
    span: bool,
) -> GatedData | PackedData:
    """Inputs R^T x and, where outputs are spans, targets R^T y, in the frames of one seed.

    An example that does not reach an output node has no gradient there: its target becomes
    |y| e_1, which keeps the constant in the loss.
    """
    mapped = [_mapped(wide, small, table, frames, span) for table in tables]
    if isinstance(data, GatedData):
        ((inputs, targets),) = mapped
        kept = {k: np.asarray(v, data.weights.dtype) for k, v in (inputs | targets).items()}
        return GatedData(
            {k: kept[k] for k in inputs},
            {k: kept[k] for k in targets},
            data.node_gates,
            data.edge_gates,
            data.weights,
        )
    blocks = [
        block._replace(inputs=inputs, targets=targets)
        for block, (inputs, targets) in zip(blocks_of(data), mapped, strict=True)
    ]
    dtype = next(leaf.dtype for leaf in jax.tree.leaves(data) if leaf.dtype.kind == "f")
    return pack_blocks(small, blocks, data.num_examples, dtype)


def _mapped(
    wide: Graph, small: Graph, table: Table, frames: Mapping[str, np.ndarray], span: bool
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    inputs = {name: x @ frames[name] for name, x in table.inputs.items()}
    if not span:
        return inputs, dict(table.targets)
    _, reached = live_rows(wide, table)
    targets = {}
    for name, y in table.targets.items():
        idle = np.zeros((len(y), small.nodes[name]))
        idle[:, 0] = np.linalg.norm(y, axis=1)
        targets[name] = np.where(reached[name][:, None], y @ frames[name], idle)
    return inputs, targets


def stacked_data(every: Sequence[GatedData | PackedData]) -> GatedData | PackedData:
    """Data of several seeds, which differ in their targets only, with an axis in front."""
    return jax.tree.map(_stack, *every)


def _stack(*leaves: Array) -> Array:
    return jnp.stack(leaves)
