"""Path statistics and the gradient as a sum over paths (N Eq. 3-6, with errata E1 and E2).

For analysis and as the independent check of the engine, which never enumerates paths.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax._checks import Result
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.boundary import check_gated_data, check_graph
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph
from gdln_jax._network.gated import GatedNetwork, check_network

Path = tuple[str, ...]

# More numbers than this in all Sigma^x(j, p) together are refused (2 GiB in float64).
_MAX_NUMBERS = 2**28


class PathStatistics(Result, SeveralArrays, eqx.Module):
    """Second moments of the data as each path sees them.

    - `paths`: all paths from an input to an output node, as tuples of edge names.
    - `yx[p]`: `< g_p y_{t(p)} x_{s(p)}^T >`, shape (|t(p)|, |s(p)|).
    - `x[j, p]`: `< g_j x_{s(j)} x_{s(p)}^T g_p >`, shape (|s(j)|, |s(p)|), for paths that end at
      the same node.

    g_p is the product of the edge gates of p and of the node gates of every node after its
    source (E2).
    """

    _keys: ClassVar = {"yx": "path", "x": "pair"}

    graph: Graph = eqx.field(static=True)
    paths: tuple[Path, ...] = eqx.field(static=True)
    yx: Mapping[Path, Float[Array, "target source"]]
    x: Mapping[tuple[Path, Path], Float[Array, "source1 source2"]]

    def __repr__(self) -> str:
        return f"PathStatistics({len(self.paths)} paths, {len(self.x)} pairs with a common end)"


def path_statistics(graph: Graph, data: GatedData, *, max_pairs: int = 250_000) -> PathStatistics:
    """Collect Sigma^yx(p) and Sigma^x(j, p) of N Eq. 5-6 for every path of `graph`.

    Cost O(n x pairs x |x|^2); the number of pairs is the square of the number of paths per
    output node.

    Raises:
        ValueError: with the counts, before anything is allocated, when there are more than
            `max_pairs` pairs of paths, or when their statistics would take over 2 GiB; `reduce` and
            the networks themselves need no enumeration.
    """
    check_graph(graph)
    check_gated_data(data)
    data.validate(graph)
    pairs = sum(count**2 for count in _at_outputs(graph, lambda _: 1))
    if pairs > max_pairs:
        raise ValueError(
            f"the graph has {graph.num_paths} paths and {pairs} pairs of paths with a common "
            f"output, more than max_pairs = {max_pairs}. Gradients (jax.grad of mse), reduce() "
            "and path-free dynamics do not need them; raise max_pairs if you do."
        )
    numbers = sum(width**2 for width in _at_outputs(graph, lambda name: graph.nodes[name]))
    if numbers > _MAX_NUMBERS:
        raise ValueError(
            f"the statistics of {pairs} pairs of paths hold {numbers} numbers, "
            f"{numbers * data.weights.dtype.itemsize / 2**30:.1f} GiB: condense the inputs first "
            "(fewer features), or use reduce() or jax.grad of mse, which need no paths."
        )
    paths = tuple(graph.paths())
    ends = {p: (graph.edge(p[0]).source, graph.edge(p[-1]).target) for p in paths}
    gated = {p: data.inputs[ends[p][0]] * path_gate(graph, data, p)[:, None] for p in paths}
    weighted = {p: data.weights[:, None] * x for p, x in gated.items()}
    yx = {p: data.targets[ends[p][1]].T @ weighted[p] for p in paths}
    groups: dict[str, list[Path]] = {}
    for p in paths:
        groups.setdefault(ends[p][1], []).append(p)
    x = {
        (j, p): gated[j].T @ weighted[p]
        for group in groups.values()
        for j, p in itertools.product(group, group)
    }
    return PathStatistics(graph, paths, yx, x)


def path_gate(graph: Graph, data: GatedData, path: Path) -> Float[Array, " n"]:
    """Gate of a path per example: edge gates times node gates after the source node (E2)."""
    gate = jnp.ones_like(data.weights)
    for name in path:
        if name in data.edge_gates:
            gate = gate * data.edge_gates[name]
        target = graph.edge(name).target
        if target in data.node_gates:
            gate = gate * data.node_gates[target]
    return gate


def path_sum_gradient(
    net: GatedNetwork, stats: PathStatistics
) -> dict[str, Float[Array, "target source"]]:
    r"""Return the right-hand side of N Eq. 3-4 for every edge, that is $-dL/dW_e$:

    $\sum_{p \ni e} W_{\bar t(p,e)}^T [\Sigma^{yx}(p) - \sum_j W_j \Sigma^x(j,p)]
    W_{\bar s(p,e)}^T$.

    Of tied edges the result is keyed by parameter: the sum over the uses of its array, transposed
    where it is used transposed, and 0 for frozen ones (theory#ties).

    Raises:
        ValueError: when `net` and `stats` belong to different graphs.
    """
    check_network(net)
    if not isinstance(stats, PathStatistics):
        raise ValueError(
            f"stats is a {type(stats).__name__}; pass gdln.path_statistics(net.graph, data)."
        )
    if net.graph != stats.graph:
        raise ValueError("the statistics were collected for another graph than the network's.")
    weights = dict(net.weights)
    maps = {p: _product([weights[name] for name in p]) for p in stats.paths}
    error = dict(stats.yx)
    for j, p in stats.x:
        error[p] = error[p] - maps[j] @ stats.x[j, p]
    gradient = {name: jnp.zeros_like(w) for name, w in weights.items()}
    for p in stats.paths:
        for i, name in enumerate(p):
            term = error[p]
            if i + 1 < len(p):
                term = _product([weights[later] for later in p[i + 1 :]]).T @ term
            if i > 0:
                term = term @ _product([weights[earlier] for earlier in p[:i]]).T
            gradient[name] = gradient[name] + term
    if not net.graph.tied:
        return gradient
    total = {name: jnp.zeros_like(w) for name, w in net.parameters.items()}
    for name in net.graph.trainable:
        for edge, transposed in net.graph.uses[name]:
            total[name] += gradient[edge].T if transposed else gradient[edge]
    return total


def _product(matrices: list[Array]) -> Array:
    product = matrices[0]
    for matrix in matrices[1:]:
        product = matrix @ product
    return product


def _at_outputs(graph: Graph, start: Callable[[str], int]) -> list[int]:
    """Sum of `start(source node)` over the paths into each output node, without listing them."""
    total = {name: start(name) if name in graph.inputs else 0 for name in graph.order}
    for name in graph.order:
        total[name] += sum(total[edge.source] for edge in graph.incoming[name])
    return [total[name] for name in graph.outputs]
