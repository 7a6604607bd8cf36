"""`draw_width`: a random wide start, drawn directly in the small spaces (theory#wide-starts).

A block of r columns of a random N-row matrix enters only through its triangular factor, whose law
is known (Bartlett), so that no array has the wide width.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gdln_jax import init as initialisers
from gdln_jax._checks import check_integer, is_concrete
from gdln_jax._checks.types import PRNGKeyArray
from gdln_jax._data.boundary import check_gated_data, check_graph, check_random_key
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.packing import in_blocks
from gdln_jax._graph import Edge, Graph
from gdln_jax._network.edges import check_untied
from gdln_jax._width.examples import TOLERANCES, Table, basis, look
from gdln_jax._width.reduction import WidthReduction
from gdln_jax._width.sizes import component_sums, components, spanning_tree
from gdln_jax._width.small import padded, small_data, small_graph, small_net

Matrix = Float[np.ndarray, "_ _"]


def bartlett(rng: np.random.Generator, rows: int, columns: int) -> Float[np.ndarray, "_ columns"]:
    """The triangular QR factor of a Gaussian (rows, columns) matrix, min(rows, columns) rows."""
    upper = np.triu(rng.standard_normal((min(rows, columns), columns)), 1)
    freedom = rows - np.arange(len(upper))
    upper[np.arange(len(upper)), np.arange(len(upper))] = np.sqrt(rng.chisquare(freedom))
    return upper


def draw_width(
    graph: Graph,
    data: GatedData | PackedData,
    init: Callable[..., Any],
    *,
    key: PRNGKeyArray,
    rounds: int | None = None,
) -> WidthReduction:
    """Draw a random wide network directly as its small one, without an array of the wide width.

    The law is that of `reduce_width(GatedNetwork.init(graph, init, key=...), data)`, outputs
    complete; the draws themselves differ. A million units take as long as a hundred.

    Args:
        graph: the wide graph.
        data: the wide data, as for `reduce_width`.
        init: `init.orthogonal(gain)`, where hidden nodes that are joined have one width and form
            no cycle, and no input or output node next to them is wider; or `init.normal(std)` or
            `init.xavier(gain)` on any graph.
        key: a JAX random key.
        rounds: for normal weights on edges between hidden nodes, where no small network is exact:
            how often directions are sent through the network, as in `reduce_width`.

    Returns:
        A `WidthReduction` without the wide network: `lift`, `rest` and measures of all weights are
        refused.

    Raises:
        ValueError: for another initialiser, for a graph on which the law is not known, or for
            `rounds` that are missing or have no meaning.
    """
    check_graph(graph)
    check_untied(graph, "draw_width", "draw the wide network itself, GatedNetwork.init")
    check_random_key(key)
    if not isinstance(data, PackedData):
        check_gated_data(data)
        data.validate(graph)
    if not is_concrete((data, key)):
        raise ValueError("draw_width looks at the data and cannot run under jit, grad or vmap.")
    data = in_blocks(data)
    if not isinstance(init, initialisers.RandomInitialiser) or not is_concrete(init.scale):
        raise ValueError(
            f"init is {init!r}; the laws that are known in the small spaces are those of "
            "gdln.init.orthogonal(gain), normal(std) and xavier(gain). For another start draw the "
            "wide network and pass it to reduce_width."
        )
    dtype = np.dtype(jnp.zeros(()).dtype)
    tol = TOLERANCES[dtype]
    seen, tables = look(graph, data, tol)
    inputs = {name: basis(x, tol) for name, x in seen.inputs.items()}
    draw = _Draw(graph, seen.live, inputs, init, _generator(key))
    rounds = _checked_rounds(draw, rounds)
    if init.kind == "orthogonal":
        draw.orthogonal()
        return _assembled(draw, data, tables, dtype, 0, None)
    # With one round more, of which the network asked for is a part: the two belong to one wide
    # network, as `defect` needs it.
    sizes = draw.normal(rounds + 1 if draw.inner else 0)
    finer = _assembled(draw, data, tables, dtype, rounds + 1, None)
    if not draw.inner or sizes[rounds] == sizes[-1]:
        return dataclasses.replace(finer, rounds=rounds, closed=True, leak=0.0)
    draw.keep(sizes[rounds])
    return _assembled(draw, data, tables, dtype, rounds, finer)


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = np.asarray(jax.random.key_data(key) if typed else key)
    return np.random.default_rng(words.ravel().tolist())


class _Draw:
    """Weights between directions of the nodes, while they are drawn.

    `sizes` counts the directions of each node; `weights[edge]` has the entries between those of
    its ends, NaN where not yet drawn.
    """

    def __init__(
        self,
        graph: Graph,
        used: frozenset[str],
        inputs: dict[str, Matrix],
        init: initialisers.RandomInitialiser,
        rng: np.random.Generator,
    ):
        self.graph, self.rng, self.kind = graph, rng, init.kind
        self.scale = {e.name: float(init.scale_of(graph, e.name)) for e in graph.edges}
        self.inputs = inputs
        live = [edge for edge in graph.edges if edge.name in used]
        hidden = set(graph.hidden)
        self.inner = [e for e in live if {e.source, e.target} <= hidden]
        self.first = [e for e in live if e.source in graph.inputs and e.target in hidden]
        self.last = [e for e in live if e.source in hidden and e.target in graph.outputs]
        self.sizes = {
            **dict.fromkeys(graph.nodes, 0),
            **{k: frame.shape[1] for k, frame in self.inputs.items()},
            **{k: graph.nodes[k] for k in graph.outputs},
        }
        seeds = dict.fromkeys(graph.nodes, 0)
        for edge in self.first:
            seeds[edge.target] += self.sizes[edge.source]
        for edge in self.last:
            seeds[edge.source] += self.sizes[edge.target]
        self.seeds, self.sums = seeds, component_sums(seeds, self.inner)
        self.weights: dict[str, Matrix] = {}

    # ---------------------------------------------------------------- orthogonal forests
    def orthogonal(self) -> None:
        """Ends of a tree are independent uniform frames at its root, wherever they stand."""
        self._check_forest()
        of = components(self.inner)
        groups: dict[str, list[Edge]] = {}
        for edge in (*self.first, *self.last):
            hidden = edge.target if edge in self.first else edge.source
            groups.setdefault(of.get(hidden, hidden), []).append(edge)
        for edge in self.graph.edges:
            self.weights[edge.name] = np.zeros((0, 0))
        for node in self.graph.hidden:
            self.sizes[node] = min(self.graph.nodes[node], self.sums[node])
        for name, edges in groups.items():
            columns = [self._columns(edge) for edge in edges]
            table = bartlett(self.rng, self.graph.nodes[name], sum(columns))
            blocks = np.split(table, np.cumsum(columns)[:-1], axis=1)
            for edge, block in zip(edges, blocks, strict=True):
                left, _, right = np.linalg.svd(block, full_matrices=False)
                frame = self.scale[edge.name] * left @ right
                self.weights[edge.name] = frame if edge in self.first else frame.T
        for edge in self.inner:
            self.weights[edge.name] = self.scale[edge.name] * np.eye(self.sizes[edge.source])
        self._direct()

    def _columns(self, edge: Edge) -> int:
        return self.sizes[edge.source if edge in self.first else edge.target]

    def _check_forest(self) -> None:
        nodes = self.graph.nodes
        for edge in self.inner:
            if nodes[edge.source] != nodes[edge.target]:
                raise ValueError(
                    f"edge {edge.name!r} joins hidden nodes of widths {nodes[edge.source]} and "
                    f"{nodes[edge.target]}; the law of orthogonal weights is known for hidden "
                    "nodes of one width. Draw the wide network and pass it to reduce_width."
                )
        extra = spanning_tree(self.inner)[1]
        if extra:
            raise ValueError(
                f"edge {extra[0].name!r} closes a cycle of hidden nodes, around which independent "
                "orthogonal weights fill the width; use init.normal with rounds=, or a graph "
                "without such a cycle."
            )
        for edge in (*self.first, *self.last):
            end, node = (
                (edge.source, edge.target) if edge in self.first else (edge.target, edge.source)
            )
            if nodes[end] > nodes[node]:
                raise ValueError(
                    f"node {end!r} has {nodes[end]} units, more than {node!r} with {nodes[node]}; "
                    "the law of orthogonal weights is known for ends that are no wider than the "
                    "hidden nodes. Draw the wide network and pass it to reduce_width."
                )

    def _direct(self) -> None:
        """Edges from input to output nodes, which have their own size, and edges never used."""
        for edge in self.graph.edges:
            shape = self.sizes[edge.target], self.sizes[edge.source]
            if edge.source in self.graph.inputs and edge.target in self.graph.outputs:
                wide = self.rng.standard_normal(self.graph.shape(edge.name))
                if self.kind == "orthogonal":
                    left, _, right = np.linalg.svd(wide, full_matrices=False)
                    wide = left @ right
                self.weights[edge.name] = self.scale[edge.name] * wide @ self.inputs[edge.source]
            elif self.weights[edge.name].shape != shape:
                self.weights[edge.name] = np.zeros(shape)

    # ---------------------------------------------------------------- normal weights, any graph
    def normal(self, rounds: int) -> list[dict[str, int]]:
        """Send directions through matrices that are drawn as they are met; sizes by round."""
        for edge in self.graph.edges:
            shape = self.sizes[edge.target], self.sizes[edge.source]
            self.weights[edge.name] = np.full(shape, np.nan)
        # (edge, whether by the transpose) -> directions of one end that are mapped to the other
        self.met: dict[tuple[str, bool], int] = {}
        for edge in self.first:
            self._map(edge, back=False)
        for edge in self.last:
            self._map(edge, back=True)
        sizes = [dict(self.sizes)]
        for _ in range(rounds):
            ends = dict(self.sizes)
            for edge in self.inner:
                self._map(edge, back=False, upto=ends[edge.source])
                self._map(edge, back=True, upto=ends[edge.target])
            sizes.append(dict(self.sizes))
        for name, w in self.weights.items():
            drawn = self.scale[name] * self.rng.standard_normal(w.shape)
            self.weights[name] = np.where(np.isnan(w), drawn, w)
        self._direct()
        return sizes

    def _map(self, edge: Edge, *, back: bool, upto: int | None = None) -> None:
        """Map the directions of one end that this edge has not met, and add what is new."""
        name, scale = edge.name, self.scale[edge.name]
        here, there = (edge.target, edge.source) if back else (edge.source, edge.target)
        start = self.met.get((name, back), 0)
        end = self.sizes[here] if upto is None else upto
        self.met[name, back] = end
        count = end - start
        if not count:
            return
        known = self._oriented(name, back)[:, start:end]
        drawn = scale * self.rng.standard_normal(known.shape)
        known[:] = np.where(np.isnan(known), drawn, known)
        left = self.graph.nodes[there] - self.sizes[there]
        if left:
            outside = scale * bartlett(self.rng, left, count)
            self._add(there, len(outside))
            self._oriented(name, back)[-len(outside) :, start:end] = outside

    def _oriented(self, name: str, back: bool) -> Matrix:
        """The weights as a map from the end whose directions are sent; a view."""
        return self.weights[name].T if back else self.weights[name]

    def _add(self, node: str, count: int) -> None:
        """Add directions to a node.

        They are orthogonal to all that was mapped to the node before, through whichever edge: the
        entries with what was mapped are 0, all others are unknown.
        """
        self.sizes[node] += count
        for back, edges in ((False, self.graph.incoming[node]), (True, self.graph.outgoing[node])):
            for edge in edges:
                w = self._oriented(edge.name, back)
                new = np.full((count, w.shape[1]), np.nan)
                new[:, : self.met_before(edge.name, back)] = 0.0
                grown = np.vstack([w, new])
                self.weights[edge.name] = grown.T if back else grown

    def met_before(self, name: str, back: bool) -> int:
        """Number of directions that were mapped through an edge to the node at its other end."""
        return self.met.get((name, back), 0)

    def keep(self, sizes: Mapping[str, int]) -> None:
        """Restrict everything to the first directions of each node."""
        self.sizes = dict(sizes)
        for edge in self.graph.edges:
            w = self.weights[edge.name]
            self.weights[edge.name] = w[: sizes[edge.target], : sizes[edge.source]]


def _checked_rounds(draw: _Draw, rounds: int | None) -> int:
    if draw.kind == "orthogonal" or not draw.inner:
        if rounds is not None:
            raise ValueError(
                "rounds is for normal weights between hidden nodes; this start is exact without."
            )
        return 0
    if rounds is None:
        raise ValueError(
            f"normal weights on edge {draw.inner[0].name!r} between hidden nodes leave no small "
            "space closed; pass rounds= for an approximation with an error estimate (.defect), or "
            "draw orthogonal weights."
        )
    return check_integer(rounds, "rounds", minimum=0)


def _assembled(
    draw: _Draw,
    data: GatedData | PackedData,
    tables: Sequence[Table],
    dtype: np.dtype,
    rounds: int,
    finer: WidthReduction | None,
) -> WidthReduction:
    graph, closed = draw.graph, finer is None and (draw.kind == "orthogonal" or not draw.inner)
    small = small_graph(graph, {name: [size] for name, size in draw.sizes.items()})
    ends = {**draw.inputs, **{name: np.eye(graph.nodes[name]) for name in graph.outputs}}
    columns = padded(small, [ends]).columns
    frames = {name: columns[name][0] for name in ends}
    net = small_net(small, [draw.weights], dtype)

    def refine() -> WidthReduction:
        if finer is None:
            raise ValueError(
                "a draw has one round more than asked for, and this is it; draw with more rounds."
            )
        return finer

    return WidthReduction(
        net=jax.tree.map(lambda leaf: leaf[0], net),
        data=small_data(graph, small, data, tables, frames, span=False),
        sizes=dict(draw.sizes),
        frames={name: jnp.asarray(frame, dtype) for name, frame in frames.items()},
        closed=closed,
        leak=0.0 if closed else float("nan"),
        leaks={},
        rounds=rounds,
        expected={
            name: size if closed or name in ends else None for name, size in draw.sizes.items()
        },
        outputs="complete",
        _source=data,
        _wide=None,
        _refine=refine,
    )
