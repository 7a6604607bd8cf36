"""Weights of a gated network from the names that another program gave them."""

from collections.abc import Mapping

import numpy as np

from gdln_jax._checks import check_keys, listed, suggest
from gdln_jax._data.state import Orientation, check_orientation, read_arrays
from gdln_jax._graph import Graph


def edge_weights(
    graph: Graph,
    source: object,
    names: Mapping[str, str] | None,
    orientation: Orientation | None,
) -> dict[str, np.ndarray]:
    """Edge -> weights (|target|, |source|), read from `source`; see `GatedNetwork.from_state_dict`.

    Raises:
        ValueError: as `GatedNetwork.from_state_dict`.
    """
    check_orientation(orientation)
    if names is not None:
        kind = "a parameter of the graph" if graph.tied else "an edge of the graph"
        check_keys(names, graph.parameters, "names", kind)
        if missing := [edge for edge in graph.parameters if edge not in names]:
            raise ValueError(f"names lacks {listed(missing)}; give a name for every edge.")
    read = read_arrays(source)
    weights = {}
    for edge, shape in graph.parameters.items():
        name = edge if names is None else names[edge]
        if name not in read.arrays:
            known = list(read.arrays)
            raise ValueError(
                f"{read.where} has no {name!r} for the edge {edge!r}{suggest(name, known)}; it "
                f"has {listed(known)}."
            )
        array = read.arrays[name]
        turned = orientation == "in_out"
        if orientation is None and names is not None:
            if shape[0] == shape[1] and array.shape == shape:
                raise ValueError(
                    f"{name} of {read.where} is square, so that its shape does not show which "
                    "axis is the output: pass orientation='out_in' (PyTorch, Equinox) or "
                    "orientation='in_out' (Flax, Keras)."
                )
            turned = array.shape == shape[::-1] and shape[0] != shape[1]
        if array.shape != (shape[::-1] if turned else shape):
            raise ValueError(
                f"{name} of {read.where} has shape {array.shape}; the edge {edge!r} has (|target|, "
                f"|source|) = {shape}{', given as (|source|, |target|)' if turned else ''}."
            )
        weights[edge] = array.T if turned else array
    return weights
