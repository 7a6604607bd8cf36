"""Frozen arrays of a reduction, and paths of frozen edges alone, whose predictions never change."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import check_keys, listed
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.arrays import real_array
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph
from gdln_jax._network.edges import Stacks


def frozen_arrays(graph: Graph, given: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """Frozen parameter -> array.

    Raises:
        ValueError: a missing or unknown one, or a wrong shape.
    """
    check_keys(given, graph.frozen, "frozen", "a frozen parameter of the graph")
    arrays = {}
    for name in graph.frozen:
        shape = graph.parameters[name]
        if name not in given:
            raise ValueError(
                f"frozen lacks {name!r}, expected shape {shape}: a reduction holds for one array, "
                "frozen={name: array}."
            )
        arrays[name] = np.asarray(real_array(given[name], f"frozen[{name!r}]"), float)
        if arrays[name].shape != shape:
            raise ValueError(f"frozen[{name!r}] has shape {arrays[name].shape}; expected {shape}.")
    return arrays


def frozen_stacks(graph: Graph, arrays: Mapping[str, np.ndarray]) -> Stacks | None:
    """The frozen stacks of a network; None where nothing is frozen."""
    stores = (store.names for store in graph.stores if store.frozen)
    return tuple(jnp.asarray(np.stack([arrays[n] for n in names])) for names in stores) or None


def frozen_matrices(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """Position of each frozen edge -> its matrix."""
    found = {}
    for k, edge in enumerate(graph.edges):
        name, transposed = graph.parameter_of[edge.name]
        if name in graph.frozen:
            found[k] = arrays[name].T if transposed else arrays[name]
    return found


def constant_edges(graph: Graph) -> set[str]:
    """Frozen edges all of whose paths, from any input to any output, are of frozen edges alone."""
    frozen = {edge.name for edge in graph.edges if graph.parameter_of[edge.name][0] in graph.frozen}
    before, after = {}, {}
    for node in graph.order:
        into = graph.incoming[node]
        before[node] = all(edge.name in frozen and before[edge.source] for edge in into)
    for node in reversed(graph.order):
        out = graph.outgoing[node]
        after[node] = all(edge.name in frozen and after[edge.target] for edge in out)
    return {
        edge.name
        for edge in graph.edges
        if edge.name in frozen and before[edge.source] and after[edge.target]
    }


def without_frozen_paths(
    graph: Graph, data: GatedData | PackedData, arrays: Mapping[str, np.ndarray]
) -> GatedData | PackedData:
    """Take what frozen edges alone predict off the targets, and shut their constant edges.

    Raises:
        ValueError: for a path of frozen edges each of which other paths use too, or packed data.
    """
    constant, matrices = constant_edges(graph), frozen_matrices(graph, arrays)
    _check_paths(graph, constant, set(matrices))
    if not constant:
        return data
    if isinstance(data, PackedData):
        raise ValueError(
            f"the frozen edges {listed(sorted(constant))} lie on paths from an input to an output "
            "along which nothing learns: pass GatedData, from whose targets their predictions are "
            "taken."
        )
    data.validate(graph)
    one = np.ones(data.num_examples)
    targets = {name: np.asarray(y, float) for name, y in data.targets.items()}
    sent = {name: np.asarray(x, float) for name, x in data.inputs.items()}
    for node in graph.order:
        into = [edge for edge in graph.incoming[node] if graph.edge_index[edge.name] in matrices]
        arrived = [
            np.asarray(data.edge_gates.get(edge.name, one))[:, None]
            * (sent[edge.source] @ matrices[graph.edge_index[edge.name]].T)
            for edge in into
            if edge.source in sent
        ]
        if arrived:
            sent[node] = np.asarray(data.node_gates.get(node, one))[:, None] * sum(arrived)
            if node in targets:
                targets[node] = targets[node] - sent[node]
    return GatedData(
        {k: np.asarray(v) for k, v in data.inputs.items()},
        targets,
        {k: np.asarray(v) for k, v in data.node_gates.items()},
        {
            **{k: np.asarray(v) for k, v in data.edge_gates.items()},
            **dict.fromkeys(sorted(constant), np.zeros(data.num_examples)),
        },
        np.asarray(data.weights),
    )


def _check_paths(graph: Graph, constant: set[str], frozen: set[int]) -> None:
    """Raise `ValueError` for a path of frozen edges of which none is constant."""
    reached: dict[str, tuple[str, ...]] = dict.fromkeys(graph.inputs, ())
    for node in graph.order:
        for edge in graph.incoming[node]:
            others = graph.edge_index[edge.name] in frozen and edge.name not in constant
            if others and edge.source in reached:
                reached[node] = (*reached[edge.source], edge.name)
    for node in graph.outputs:
        if node in reached:
            raise ValueError(
                f"the edges {' and '.join(map(repr, reached[node]))} are all frozen, and paths "
                "that learn use each of them too, so that reduce() cannot take the prediction of "
                "this path off the targets: split its nodes into copies, so that it has an edge of "
                "its own, and tie the arrays of the copies by Graph(shared=)."
            )
