"""Data with every input and output node in units of its own size, and what weighs 0 left out.

Frames, and whether a reduction is exact, do not depend on the units in which a node's activity is
measured; tolerances would. Floor 2: may import floors 0 and 1 and `_links`.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._graph import NodeClass
from gdln_jax._links import links
from gdln_jax._plan import OutputTable, PackedData


def input_owners(packed: PackedData, c: int) -> dict[int, str]:
    """Which input node each distinct input activity of class `c` belongs to."""
    edges = packed.graph.edges
    return {
        a: edges[edge].source
        for row in links(packed).incoming
        for parts in row
        for edge, _, s, a in parts
        if s == c
    }


def unit_nodes(packed: PackedData) -> tuple[PackedData, dict[str, float]]:
    """Divide inputs and targets by the largest norm that they have at their node.

    Returns the data and the sizes (1 where a node is silent). O(size of the data).
    """
    graph = packed.graph
    sizes = dict.fromkeys(graph.nodes, 0.0)
    owners: list[dict[int, str]] = []
    for c, x in enumerate(packed.inputs):
        owners.append({} if x is None else input_owners(packed, c))
        if x is not None:
            norms = np.linalg.norm(np.asarray(x), axis=2).max(axis=1)
            for a, name in owners[c].items():
                sizes[name] = max(sizes[name], float(norms[a]))
    for tables in (packed.outputs, packed.silent):
        for names, table in zip(graph.classes.values(), tables, strict=True):
            if table is not None:
                norms = np.linalg.norm(np.asarray(table.target), axis=2).max(axis=1)
                for i, norm in zip(np.asarray(table.node).tolist(), norms, strict=True):
                    sizes[names[i]] = max(sizes[names[i]], float(norm))
    sizes = {name: size or 1.0 for name, size in sizes.items()}
    inputs = []
    for x, owner in zip(packed.inputs, owners, strict=True):
        if x is None:
            inputs.append(None)
            continue
        scale = np.array([sizes[owner[a]] if a in owner else 1.0 for a in range(len(x))])
        inputs.append(x / scale[:, None, None])
    outputs, silent = (
        tuple(
            None if table is None else _in_units(table, names, sizes)
            for names, table in zip(graph.classes.values(), tables, strict=True)
        )
        for tables in (packed.outputs, packed.silent)
    )
    data = PackedData(
        graph, tuple(inputs), packed.stages, outputs, silent, packed.counts, packed.num_examples
    )
    return data, sizes


def without_weightless(data: PackedData) -> PackedData:
    """The same data with inputs and targets 0 where an example weighs 0, so that none is seen.

    Cost: one pass over the active pairs on the host, if there is such an example.
    """
    tables = [table for table in (*data.outputs, *data.silent) if table is not None]
    if not any(np.any((np.asarray(t.weight) == 0) & (t.example >= 0)) for t in tables):
        return data
    live = _live(data)
    inputs = (
        None if x is None else jnp.where(jnp.asarray(live[c])[..., None], x, 0)
        for c, x in zip(data.graph.classes, data.inputs, strict=True)
    )
    outputs, silent = (
        tuple(
            t
            and eqx.tree_at(lambda t: t.target, t, jnp.where(t.weight[..., None] > 0, t.target, 0))
            for t in tables
        )
        for tables in (data.outputs, data.silent)
    )
    parts = (tuple(inputs), outputs, silent)
    return eqx.tree_at(
        lambda d: (d.inputs, d.outputs, d.silent), data, parts, is_leaf=lambda x: x is None
    )


def _live(data: PackedData) -> dict[NodeClass, np.ndarray]:
    """Whether any output of positive weight depends on an activity, (instance, row) per class."""
    graph = data.graph
    live = {
        c: np.zeros((n, data.rows), bool) for c, n in zip(graph.classes, data.counts, strict=True)
    }
    for c, table in zip(graph.classes, data.outputs, strict=True):
        if table is not None:
            weighs = np.asarray(table.weight) > 0
            np.logical_or.at(live[c], _numbers(table.instance, len(weighs)), weighs)
    for bundle, stage in reversed(list(zip(graph.bundles, data.stages, strict=True))):
        if stage is not None:
            size = stage.shape[0] * stage.shape[1]
            sent = live[bundle.target][_numbers(stage.target, size)]
            if stage.gate is not None:
                sent = sent & (np.asarray(stage.gate).reshape(size, -1) != 0)
            np.logical_or.at(live[bundle.source], _numbers(stage.source, size), sent)
    return live


def _numbers(index: Array | None, count: int) -> np.ndarray:
    return np.arange(count) if index is None else np.asarray(index).ravel()


def _in_units(table: OutputTable, names: tuple[str, ...], sizes: dict[str, float]) -> OutputTable:
    scale = np.array([sizes[names[i]] for i in np.asarray(table.node).tolist()])
    target = table.target / scale[:, None, None]
    return OutputTable(table.instance, table.node, target, table.weight, table.example)
