"""Architecture graphs: which node feeds which, along which edges (N Sec. 2).

A `Graph` is frozen, hashable and free of arrays, so it can be static structure of any pytree.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from gdln_jax._checks import MAKE_A_MODEL, Instead, Mistakable, check_integer, listed, suggest
from gdln_jax._checks.html import panel
from gdln_jax._graph.drawing import draw
from gdln_jax._graph.ties import Classes, Use, checked_classes, checked_frozen


@dataclasses.dataclass(frozen=True)
class Edge:
    """One weight matrix: it maps the activity of ``source`` to ``target``."""

    name: str
    source: str
    target: str


NodeClass = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Edges that share source class, target class and hence shape: one stack of weights."""

    source: NodeClass
    target: NodeClass
    edges: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (|target|, |source|) of each weight matrix in the bundle."""
        return self.target[1], self.source[1]


@dataclasses.dataclass(frozen=True)
class Store:
    """Parameters of one shape that are kept as one stack, all trainable or all frozen."""

    names: tuple[str, ...]
    shape: tuple[int, int]
    frozen: bool = False


class Home(NamedTuple):
    """Where an array is kept: the store, the position in its stack, whether its transpose is."""

    store: int
    position: int
    transposed: bool


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class Graph(Mistakable):
    """A directed acyclic graph of layers: the architecture of a gated deep linear network.

    Args:
        nodes: mapping node name -> width (number of units).
        edges: sequence of `(source, target)` or `(source, target, name)`. The default name is
            `"source->target"`; parallel edges need names of their own.
        inputs: the input nodes, an optional declaration that is checked against the edges.
        outputs: the output nodes, likewise.
        shared: tied weights: class name -> the edges that share one array P, each `"e"` (its matrix
            is P) or `"e^T"` (its matrix is the transpose of P). The orientation matters for square
            matrices too.
        frozen: parameters (classes, or edges outside of all classes) that training never moves.

    Input nodes are those without an incoming edge, output nodes those without an outgoing one,
    all others are hidden. Skip connections and parallel edges are allowed. A hidden node that
    lost its way out would silently count as an output: declare `outputs` (or `inputs`) and it is
    refused instead; undeclared, it is refused as soon as data without a target for it arrive.

    Raises:
        ValueError: that names the node or edge for a cycle, an unknown node, a width below 1, a
            name used twice, a node without any edge, a self-loop, a graph without edges, or ends
            that differ from the declared ones; for tied edges whose shapes differ, an edge in two
            classes, an unknown one, a name that stands for two things, or nothing left to train.

    ```python
    Graph({"x": 4, "h": 64, "y": 7}, [("x", "h"), ("h", "y")])
    Graph({"x": 4, "h": 2, "y": 4}, [("x", "h"), ("h", "y")], shared={"W": ["x->h", "h->y^T"]})
    ```
    """

    _instead = Instead(model=MAKE_A_MODEL)

    _nodes: tuple[tuple[str, int], ...]
    _edges: tuple[Edge, ...]
    # Defaults of the class, so that pickles of graphs without them load.
    _shared: Classes = ()
    _frozen: tuple[str, ...] = ()

    def __init__(
        self,
        nodes: Mapping[str, int],
        edges: Sequence[tuple[str, str] | tuple[str, str, str]],
        *,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        shared: Mapping[str, Sequence[str]] | None = None,
        frozen: Sequence[str] = (),
    ):
        if not isinstance(nodes, Mapping):
            raise ValueError(
                f"nodes must be a mapping from node name to width, got {type(nodes).__name__}."
            )
        checked_nodes = []
        for name, width in nodes.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"node name {name!r} is not a non-empty string.")
            checked_nodes.append((name, check_integer(width, f"width of node {name!r}", minimum=1)))
        if isinstance(edges, str | Mapping) or not isinstance(edges, Iterable):
            raise ValueError(
                f"edges must be a sequence of (source, target) or (source, target, name), got "
                f"{type(edges).__name__}."
            )
        checked_edges = tuple(_checked_edge(edge, nodes) for edge in edges)
        _check_names(checked_edges)
        _check_connected(nodes, checked_edges)
        object.__setattr__(self, "_nodes", tuple(checked_nodes))
        object.__setattr__(self, "_edges", checked_edges)
        _topological_order(tuple(nodes), checked_edges)
        _check_declared(inputs, self.inputs, "inputs", "incoming")
        _check_declared(outputs, self.outputs, "outputs", "outgoing")
        if shared:
            object.__setattr__(self, "_shared", checked_classes(self._shapes, shared))
        if frozen:
            names = checked_frozen(self.parameters, self.parameter_of, frozen)
            object.__setattr__(self, "_frozen", names)

    @property
    def _shapes(self) -> dict[str, tuple[int, int]]:
        return {edge.name: self.shape(edge.name) for edge in self._edges}

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self._nodes, self._edges, self._shared, self._frozen))

    def __hash__(self) -> int:
        # Large graphs are hashed at every compiled call: once is enough.
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Graph) or self._hash != other._hash:
            return False
        return self.__getstate__() == other.__getstate__()

    def __getstate__(self) -> dict[str, object]:
        # Not the cached views: they cannot be pickled, and hashes differ between processes.
        # Nor fields that are empty: graphs without ties are pickled as they always were.
        state = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in state.items() if value}

    @classmethod
    def chain(cls, widths: Sequence[int]) -> "Graph":
        """Return the graph of an ordinary deep linear network, nodes `x, h1, ..., y`.

        `widths` has one entry per layer, at least two: `Graph.chain([4, 64, 7])`.
        """
        widths = list(widths)
        if len(widths) < 2:
            raise ValueError(f"a chain needs at least 2 widths (input and output), got {widths}.")
        names = ["x", *(f"h{i}" for i in range(1, len(widths) - 1)), "y"]
        return cls(dict(zip(names, widths, strict=True)), list(itertools.pairwise(names)))

    @functools.cached_property
    def nodes(self) -> Mapping[str, int]:
        """Node name -> width, in the order given."""
        return MappingProxyType(dict(self._nodes))

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges in the order given; each has `.name`, `.source`, `.target`."""
        return self._edges

    @functools.cached_property
    def edge_index(self) -> Mapping[str, int]:
        """Edge name -> position in `.edges`."""
        return MappingProxyType({edge.name: i for i, edge in enumerate(self._edges)})

    @functools.cached_property
    def parameters(self) -> Mapping[str, tuple[int, int]]:
        """Parameter name -> shape of its array: what initialisers draw and training moves.

        A parameter is a class of tied edges, or an edge outside of all classes, of the same name.
        They come in the order of their first edges.
        """
        shapes: dict[str, tuple[int, int]] = {}
        for edge in self._edges:
            name, transposed = self.parameter_of[edge.name]
            target, source = self.shape(edge.name)
            shapes.setdefault(name, (source, target) if transposed else (target, source))
        return MappingProxyType(shapes)

    @functools.cached_property
    def parameter_of(self) -> Mapping[str, tuple[str, bool]]:
        """Edge name -> (parameter, whether the edge's matrix is the transpose of its array)."""
        own = {edge.name: (edge.name, False) for edge in self._edges}
        own |= {use.edge: (name, use.transposed) for name, uses in self._shared for use in uses}
        return MappingProxyType(own)

    def ends(self, parameter: str) -> tuple[str, str]:
        """Return the nodes at the left and right side of a parameter's array, in its first use."""
        (name, transposed), *_ = self.uses[parameter]
        edge = self.edge(name)
        return (edge.source, edge.target) if transposed else (edge.target, edge.source)

    @functools.cached_property
    def uses(self) -> Mapping[str, tuple[Use, ...]]:
        """Parameter name -> its uses, each (edge, transposed), in the order of the edges."""
        groups: dict[str, list[Use]] = {}
        for edge, (name, transposed) in self.parameter_of.items():
            groups.setdefault(name, []).append(Use(edge, transposed))
        return MappingProxyType({name: tuple(uses) for name, uses in groups.items()})

    @property
    def frozen(self) -> tuple[str, ...]:
        """Parameters that training never moves, in the order of `parameters`."""
        return self._frozen

    @functools.cached_property
    def trainable(self) -> tuple[str, ...]:
        """The other parameters."""
        return tuple(name for name in self.parameters if name not in self._frozen)

    @functools.cached_property
    def moving(self) -> tuple[str, ...]:
        """Trainable parameters in the order of `stores`: without ties, edges by bundle."""
        return tuple(name for store in self.stores if not store.frozen for name in store.names)

    @property
    def tied(self) -> bool:
        """Whether any class of edges is shared, or any parameter frozen."""
        return bool(self._shared or self._frozen)

    @functools.cached_property
    def stores(self) -> tuple[Store, ...]:
        """Parameters that are kept as one stack: all trainable stores, then the frozen ones.

        A parameter lies with the bundle of its first plain use (of its first use, if all are
        transposed). Without ties there is one store per bundle, of the same edges.
        """
        if not self.tied:
            return tuple(Store(bundle.edges, bundle.shape) for bundle in self.bundles)
        homes = {}
        for name, uses in self.uses.items():
            edge = next((use.edge for use in uses if not use.transposed), uses[0].edge)
            homes[edge] = name
        groups: dict[tuple[bool, int, tuple[int, int]], list[str]] = {}
        for k, bundle in enumerate(self.bundles):
            for name in (homes[edge] for edge in bundle.edges if edge in homes):
                key = (name in self._frozen, k, self.parameters[name])
                groups.setdefault(key, []).append(name)
        order = sorted(groups, key=lambda key: key[:2])
        return tuple(Store(tuple(groups[key]), key[2], key[0]) for key in order)

    @functools.cached_property
    def place(self) -> Mapping[str, Home]:
        """Parameter name -> where its array is kept."""
        return MappingProxyType(
            {
                name: Home(k, i, False)
                for k, store in enumerate(self.stores)
                for i, name in enumerate(store.names)
            }
        )

    @functools.cached_property
    def home(self) -> Mapping[str, Home]:
        """Edge name -> where its matrix, or the transpose of it, is kept."""
        return MappingProxyType(
            {
                edge: self.place[name]._replace(transposed=transposed)
                for edge, (name, transposed) in self.parameter_of.items()
            }
        )

    def edge(self, name: str) -> Edge:
        """Return the edge called `name`; `KeyError` with the known names when there is none."""
        if name not in self.edge_index:
            raise KeyError(
                f"no edge is called {name!r}{suggest(name, self.edge_index)}; "
                f"edges: {listed(self.edge_index)}"
            )
        return self._edges[self.edge_index[name]]

    def walk(self, path: Sequence[str]) -> tuple[str, ...]:
        """Return the names of edges that follow one another; `ValueError` unless they do."""
        if isinstance(path, str) or not isinstance(path, Sequence) or not len(path):
            raise ValueError(
                f"path is {path!r}; pass the names of its edges in order, such as ['x->h', 'h->y']."
            )
        edges = [self.edge(name) for name in path]
        for before, after in itertools.pairwise(edges):
            if before.target != after.source:
                raise ValueError(
                    f"path is broken: {before.name!r} ends at {before.target!r}, and "
                    f"{after.name!r} begins at {after.source!r}."
                )
        return tuple(edge.name for edge in edges)

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape (|target|, |source|) of the weight matrix of edge `name`."""
        edge = self.edge(name)
        return self.nodes[edge.target], self.nodes[edge.source]

    @functools.cached_property
    def incoming(self) -> Mapping[str, tuple[Edge, ...]]:
        """Node name -> edges that end there."""
        return MappingProxyType(_grouped(self._edges, self.nodes, "target"))

    @functools.cached_property
    def outgoing(self) -> Mapping[str, tuple[Edge, ...]]:
        """Node name -> edges that start there."""
        return MappingProxyType(_grouped(self._edges, self.nodes, "source"))

    @functools.cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the nodes without an incoming edge."""
        return tuple(name for name in self.nodes if not self.incoming[name])

    @functools.cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the nodes without an outgoing edge."""
        return tuple(name for name in self.nodes if not self.outgoing[name])

    @functools.cached_property
    def hidden(self) -> tuple[str, ...]:
        """Names of all other nodes."""
        ends = {*self.inputs, *self.outputs}
        return tuple(name for name in self.nodes if name not in ends)

    @functools.cached_property
    def order(self) -> tuple[str, ...]:
        """All nodes in a topological order: every edge points forward."""
        return _topological_order(tuple(self.nodes), self._edges)

    @functools.cached_property
    def level(self) -> Mapping[str, int]:
        """Node name -> length of the longest path from an input node (inputs have 0)."""
        level: dict[str, int] = {}
        for name in self.order:
            level[name] = 1 + max((level[e.source] for e in self.incoming[name]), default=-1)
        return MappingProxyType(level)

    @functools.cached_property
    def bundles(self) -> tuple[Bundle, ...]:
        """Edges of one shape between the same two levels, in the order of computation.

        Their weights are used as one stack, so that neither trace nor compile time grows with
        the number of modules.
        """
        groups: dict[tuple[NodeClass, NodeClass], list[str]] = {}
        for edge in self._edges:
            ends = (self.node_class(edge.source), self.node_class(edge.target))
            groups.setdefault(ends, []).append(edge.name)
        ordered = sorted(groups, key=lambda ends: (ends[1], ends[0]))
        return tuple(Bundle(*ends, tuple(groups[ends])) for ends in ordered)

    def node_class(self, name: str) -> NodeClass:
        """Return (level, width) of a node; nodes of one class are computed together."""
        return self.level[name], self.nodes[name]

    @functools.cached_property
    def classes(self) -> Mapping[NodeClass, tuple[str, ...]]:
        """Node class -> names of its nodes, by level."""
        groups: dict[NodeClass, list[str]] = {}
        for name in self.nodes:
            groups.setdefault(self.node_class(name), []).append(name)
        return MappingProxyType({key: tuple(groups[key]) for key in sorted(groups)})

    @functools.cached_property
    def slot(self) -> Mapping[str, tuple[int, int]]:
        """Edge name -> (bundle, position in the bundle)."""
        return MappingProxyType(
            {
                name: (k, i)
                for k, bundle in enumerate(self.bundles)
                for i, name in enumerate(bundle.edges)
            }
        )

    @functools.cached_property
    def num_paths(self) -> int:
        """Number of paths from an input node to an output node, counted without listing them."""
        count = {name: int(name in self.inputs) for name in self.order}
        for name in self.order:
            count[name] += sum(count[edge.source] for edge in self.incoming[name])
        return sum(count[name] for name in self.outputs)

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Yield every path from an input to an output node as a tuple of edge names.

        These are N's T(v) with erratum E1: all paths *from an input node* that end at v. The
        number grows exponentially with depth; see `num_paths` before collecting them.
        """
        for name in self.inputs:
            yield from self._paths_from(name, ())

    def _paths_from(self, node: str, walked: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for edge in self.outgoing[node]:
            here = (*walked, edge.name)
            if self.outgoing[edge.target]:
                yield from self._paths_from(edge.target, here)
            else:
                yield here

    def _repr_html_(self: "Graph") -> str:
        return panel(repr(self), draw(self))

    def __repr__(self) -> str:
        shown = listed([f"{n}:{w}" for n, w in self._nodes]).replace("'", "")
        return (
            f"Graph({len(self._nodes)} nodes [{shown}], {len(self._edges)} edges, "
            f"{self.num_paths} paths{self._described_ties()})"
        )

    def _described_ties(self) -> str:
        uses = {name: listed([f"{e}^T" if t else e for e, t in u]) for name, u in self._shared}
        classes = [f"{name} = [{shown}]".replace("'", "") for name, shown in uses.items()]
        shared = f", shared {', '.join(classes)}" if classes else ""
        return shared + (f", frozen {listed(self._frozen)}" if self._frozen else "")


def _checked_edge(edge: Sequence[str], nodes: Mapping[str, int]) -> Edge:
    if isinstance(edge, str) or not isinstance(edge, Sequence) or len(edge) not in (2, 3):
        raise ValueError(
            f"edge {edge!r} must be (source, target) or (source, target, name), e.g. ('x', 'h')."
        )
    source, target = edge[0], edge[1]
    name = edge[2] if len(edge) == 3 else f"{source}->{target}"
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of edge {edge!r} is not a non-empty string.")
    for node in (source, target):
        if not isinstance(node, str) or node not in nodes:
            raise ValueError(
                f"edge {name!r} uses node {node!r}, which is not in nodes"
                f"{suggest(str(node), nodes)}; nodes: {listed(nodes)}."
            )
    return Edge(name, source, target)


def _check_names(edges: tuple[Edge, ...]) -> None:
    if not edges:
        raise ValueError("a graph needs at least one edge.")
    seen: set[str] = set()
    for edge in edges:
        if edge.name in seen:
            raise ValueError(
                f"edge name {edge.name!r} is used twice; give parallel edges names of their own: "
                f"({edge.source!r}, {edge.target!r}, 'another name')."
            )
        seen.add(edge.name)


def _check_connected(nodes: Mapping[str, int], edges: tuple[Edge, ...]) -> None:
    touched = {edge.source for edge in edges} | {edge.target for edge in edges}
    for name in nodes:
        if name not in touched:
            raise ValueError(
                f"node {name!r} has neither an incoming nor an outgoing edge; connect or drop it."
            )


def _check_declared(
    declared: Sequence[str] | None, found: tuple[str, ...], name: str, direction: str
) -> None:
    if isinstance(declared, str):
        raise ValueError(f"{name} is the string {declared!r}; pass a list of node names.")
    if declared is None or set(declared) == set(found):
        return
    for node in found:
        if node not in declared:
            raise ValueError(
                f"node {node!r} has no {direction} edge but is not declared in {name}: give it "
                f"an {direction} edge, or add it to {name}."
            )
    odd = next(node for node in declared if node not in found)
    raise ValueError(
        f"{name} declares {odd!r}, which has an {direction} edge or is no node; {name} of this "
        f"graph: {listed(found)}."
    )


def _topological_order(nodes: tuple[str, ...], edges: tuple[Edge, ...]) -> tuple[str, ...]:
    waiting = dict.fromkeys(nodes, 0)
    outgoing: dict[str, list[str]] = {name: [] for name in nodes}
    for edge in edges:
        waiting[edge.target] += 1
        outgoing[edge.source].append(edge.target)
    ready = [name for name in nodes if waiting[name] == 0]
    order = []
    while len(order) < len(ready):
        name = ready[len(order)]
        order.append(name)
        for target in outgoing[name]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    if len(order) < len(nodes):
        cycle = _find_cycle([name for name in nodes if waiting[name] > 0], outgoing, set(order))
        raise ValueError(
            f"the graph has a cycle: {' -> '.join(cycle)}; gated deep linear networks are "
            "feed-forward, remove one of these edges."
        )
    return tuple(order)


def _find_cycle(rest: list[str], outgoing: dict[str, list[str]], done: set[str]) -> list[str]:
    # A node left over may merely lie behind a cycle, so walk backwards: every left-over node
    # has a left-over predecessor, and such a walk must close.
    before = {
        target: source for source in rest for target in outgoing[source] if target not in done
    }
    walk = [rest[0]]
    while walk[-1] not in walk[:-1]:
        walk.append(before[walk[-1]])
    start = walk.index(walk[-1])
    return walk[start:][::-1]


def _grouped(edges: tuple[Edge, ...], nodes: Mapping[str, int], end: str) -> dict:
    groups: dict[str, list[Edge]] = {name: [] for name in nodes}
    for edge in edges:
        groups[getattr(edge, end)].append(edge)
    return {name: tuple(group) for name, group in groups.items()}
