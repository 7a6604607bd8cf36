"""The distinct activities of packed data, and what reaches each output by which last edge.

Read off the tables of `PackedData` once, on the host: frames, statistics of groups and the network
of modes are all made from it, and none of them lists paths.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph


class Seed(NamedTuple):
    """An input activity as an edge sees it: the edge, and which distinct activity of its source."""

    edge: int
    instance: int


class Part(NamedTuple):
    """One term of the sum that an activity is: gate times weights times another activity."""

    edge: int
    gate: float
    source_class: int
    source: int


class Links(NamedTuple):
    """The distinct activities of packed data and how they are made of one another.

    `incoming[class][instance]` lists the parts of an activity; input activities have none.
    """

    incoming: list[list[list[Part]]]
    inputs: list[np.ndarray | None]
    class_of: dict[str, int]


def links(data: PackedData) -> Links:
    """Read the network of distinct activities off the tables of `data`."""
    graph = data.graph
    number = {node_class: c for c, node_class in enumerate(graph.classes)}
    incoming: list[list[list[Part]]] = [[[] for _ in range(count)] for count in data.counts]
    for bundle, stage in zip(graph.bundles, data.stages, strict=True):
        if stage is None:
            continue
        index = [graph.edge_index[name] for name in bundle.edges]
        c, s = number[bundle.target], number[bundle.source]
        for a, e, g, i in zip(*(column.tolist() for column in stage.pairs()), strict=True):
            if g != 0:
                incoming[c][i].append(Part(index[e], g, s, a))
    inputs = [None if x is None else np.asarray(x, float) for x in data.inputs]
    class_of = {name: c for key, c in number.items() for name in graph.classes[key]}
    return Links(incoming, inputs, class_of)


class OutputMoments(NamedTuple):
    """What one output instance is asked for: `terms` lists (last edge, seed, coefficient)."""

    terms: list[tuple[int, Seed, np.ndarray]]
    target: np.ndarray
    weight: np.ndarray
    node_class: int


def output_moments(data: PackedData, found: Links, theta: np.ndarray) -> Iterator[OutputMoments]:
    """Per compared output: which seeds reach it by which last edge, with generic coefficients.

    `theta` (edge, draw) are the numbers on the edges; a coefficient is the sum over the paths
    between seed and last edge of the products of gates and numbers. O(activities x their seeds).
    """
    reach: list[list[dict[Seed, np.ndarray]]] = [[{} for _ in row] for row in found.incoming]
    for c, row in enumerate(found.incoming):
        for i, parts in enumerate(row):
            here = reach[c][i]
            for edge, gate, s, a in parts:
                for seed, value in _sent(found, reach, edge, s, a):
                    here[seed] = here.get(seed, 0) + gate * theta[edge] * value
    for c, table in enumerate(data.outputs):
        if table is None:
            continue
        targets, weights = np.asarray(table.target, float), np.asarray(table.weight, float)
        for p, i in enumerate(table.instances.tolist()):
            terms = [
                (edge, seed, gate * theta[edge] * value)
                for edge, gate, s, a in found.incoming[c][i]
                for seed, value in _sent(found, reach, edge, s, a)
            ]
            yield OutputMoments(terms, targets[p], weights[p], c)


def _sent(
    found: Links, reach: list[list[dict[Seed, np.ndarray]]], edge: int, s: int, a: int
) -> list[tuple[Seed, np.ndarray | float]]:
    if found.incoming[s][a]:
        return list(reach[s][a].items())
    return [(Seed(edge, a), 1.0)]


def input_rows(graph: Graph, found: Links, seed: Seed) -> np.ndarray:
    """The examples (row, width) behind a seed."""
    table = found.inputs[found.class_of[graph.edges[seed.edge].source]]
    assert table is not None
    return table[seed.instance]


def resolution(data: PackedData) -> float:
    """The relative rounding of the data's precision."""
    return float(np.finfo(next(x.dtype for x in data.inputs if x is not None)).eps)


def is_rounding(moment: np.ndarray, power: float, digits: float) -> bool:
    """Whether a cross moment is 0 up to rounding, beside `power`, the product of both variances.

    `digits`: the `resolution` of the data.
    """
    least = max(1e-12, 100 * digits)
    return bool(np.abs(moment).max(initial=0.0) <= least * np.sqrt(power))
