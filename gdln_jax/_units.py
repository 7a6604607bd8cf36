"""Data with every input and output node in units of its own size.

Frames, and whether a reduction is exact, do not depend on the units in which a node's activity is
measured; tolerances would. Floor 2: may import floors 0 and 1 and `_links`.
"""

import numpy as np

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


def _in_units(table: OutputTable, names: tuple[str, ...], sizes: dict[str, float]) -> OutputTable:
    scale = np.array([sizes[names[i]] for i in np.asarray(table.node).tolist()])
    target = table.target / scale[:, None, None]
    return OutputTable(table.instance, table.node, target, table.weight, table.example)
