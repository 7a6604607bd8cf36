"""Frozen arrays of a reduction, and paths of frozen edges alone, whose predictions never change."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import check_keys
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


def without_frozen_paths(
    graph: Graph, data: GatedData | PackedData, arrays: Mapping[str, np.ndarray]
) -> GatedData | PackedData:
    """Take what frozen edges from inputs to outputs predict off the targets, and shut them.

    Raises:
        ValueError: for a longer path of frozen edges alone, or for packed data.
    """
    matrices = frozen_matrices(graph, arrays)
    for path in _frozen_paths(graph, set(matrices)):
        if len(path) > 1:
            raise ValueError(
                f"the edges {' and '.join(map(repr, path))} are all frozen, a path whose "
                "predictions reduce() takes for fixed only where it is one edge: replace it by one "
                "frozen edge with the product of its arrays."
            )
    direct = [path[0] for path in _frozen_paths(graph, set(matrices))]
    if not direct:
        return data
    if isinstance(data, PackedData):
        raise ValueError(
            f"the frozen edge {direct[0]!r} leads from an input to an output: pass GatedData, from "
            "whose targets its predictions are taken."
        )
    data.validate(graph)
    targets = {name: np.asarray(y, float) for name, y in data.targets.items()}
    shut = {}
    for name in direct:
        edge = graph.edge(name)
        gate = np.ones(data.num_examples)
        for gates, key in ((data.edge_gates, name), (data.node_gates, edge.target)):
            gate = gate * np.asarray(gates[key]) if key in gates else gate
        sent = np.asarray(data.inputs[edge.source]) @ matrices[graph.edge_index[name]].T
        targets[edge.target] = targets[edge.target] - gate[:, None] * sent
        shut[name] = np.zeros(data.num_examples)
    return GatedData(
        {k: np.asarray(v) for k, v in data.inputs.items()},
        targets,
        {k: np.asarray(v) for k, v in data.node_gates.items()},
        {**{k: np.asarray(v) for k, v in data.edge_gates.items()}, **shut},
        np.asarray(data.weights),
    )


def _frozen_paths(graph: Graph, frozen: set[int]) -> list[tuple[str, ...]]:
    """Paths from an input to an output along frozen edges alone."""
    done, paths = [], [((), name) for name in graph.inputs]
    while paths:
        walked, node = paths.pop()
        if walked and node in graph.outputs:
            done.append(walked)
        on = (edge for edge in graph.outgoing[node] if graph.edge_index[edge.name] in frozen)
        paths += [((*walked, edge.name), edge.target) for edge in on]
    return done
