"""Gated deep linear networks as pytrees (N Sec. 2): one stack of weights per bundle of edges.

The forward pass runs over bundles of same-shape edges, never over single edges, so its trace
does not grow with the number of modules. Gates live in the data: no optimiser can touch them.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from gdln_jax._checks import check_keys, is_concrete
from gdln_jax._data.arrays import SeveralArrays, check_real, weight_array
from gdln_jax._data.boundary import check_gated_data, check_graph, check_single
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import OutputTable, PackedData, Stage
from gdln_jax._data.packing import pack, unpacked
from gdln_jax._graph import Graph
from gdln_jax._network.edges import EdgeView, Stacks


class GatedNetwork(SeveralArrays, eqx.Module):
    r"""A gated deep linear network: $h_v = g_v \sum_{q: t(q)=v} g_q W_q h_{s(q)}$.

    **Arguments:**

    - `graph`: the architecture.
    - `weights`: edge name -> array (|target|, |source|), one for every edge.

    The network is a pytree whose only leaves are `stacks`, the weights of each bundle of
    same-shape edges; `weights[edge]` reads one matrix. The gradient of a loss is again a
    `GatedNetwork`, and leading axes (seeds, times) may stand before all leaves.

    Calling it on `GatedData` (or `PackedData`) returns output node -> predictions (n, |v|).

    **Raises:** `ValueError` that names the edge for missing, unknown or wrongly shaped weights,
    weights that are not finite, complex, or of a precision below float32.
    """

    _reads = "x.weights[name]"

    graph: Graph = eqx.field(static=True)
    stacks: Stacks

    def __init__(self, graph: Graph, weights: Mapping[str, Any]):
        check_graph(graph)
        _check_mapping(weights)
        check_keys(weights, graph.edge_index, "weights", "an edge of the graph")
        arrays = {}
        for edge in graph.edges:
            if edge.name not in weights:
                raise ValueError(
                    f"weights lacks edge {edge.name!r}, expected shape {graph.shape(edge.name)}."
                )
            array = weight_array(weights[edge.name], f"weights[{edge.name!r}]")
            if array.shape != graph.shape(edge.name):
                raise ValueError(
                    f"weights[{edge.name!r}] has shape {array.shape}; expected (|target|, "
                    f"|source|) = {graph.shape(edge.name)}."
                )
            arrays[edge.name] = array
        self.graph = graph
        self.stacks = tuple(
            jnp.stack([arrays[name] for name in bundle.edges]) for bundle in graph.bundles
        )

    @classmethod
    def from_stacks(cls, graph: Graph, stacks: Stacks) -> "GatedNetwork":
        """Make a network from one stack (edge, |target|, |source|) per `graph.bundles`."""
        wanted = [(len(bundle.edges), *bundle.shape) for bundle in graph.bundles]
        if [stack.shape[-3:] for stack in stacks] != wanted:
            raise ValueError(
                f"stacks have shapes {[s.shape for s in stacks]}; expected {wanted}, one per "
                "bundle of the graph."
            )
        stacks = tuple(
            weight_array(stack, f"stacks[{k}]") if isinstance(stack, np.ndarray) else stack
            for k, stack in enumerate(stacks)
        )
        for k, stack in enumerate(stacks):
            check_real(stack.dtype, f"stacks[{k}]")
        network = object.__new__(cls)
        object.__setattr__(network, "graph", graph)
        object.__setattr__(network, "stacks", stacks)
        return network

    @classmethod
    def init(
        cls,
        graph: Graph,
        init: Callable[[Graph, PRNGKeyArray], Mapping[str, Any] | Stacks],
        *,
        key: PRNGKeyArray,
    ) -> "GatedNetwork":
        """Draw initial weights; `init` is one of `gdln.init`, e.g. `init.normal(1e-3)`.

        Every edge has a key of its own, derived from `key` and the edge's name: adding an edge
        leaves the weights of the others as they were.
        """
        if not callable(init):
            raise ValueError(
                f"init is {init!r}; pass an initialiser such as gdln.init.orthogonal(0.1)."
            )
        own = inspect.isfunction(init) and init.__module__ == "gdln_jax.init"
        if own and "." not in init.__qualname__:
            raise ValueError(
                f"init is gdln.init.{init.__name__} itself; call it first, as in "
                f"gdln.init.{init.__name__}(0.1)."
            )
        check_graph(graph)
        weights = init(graph, key)
        if isinstance(weights, tuple):
            return cls.from_stacks(graph, weights)
        return cls(graph, weights)

    @property
    def weights(self) -> EdgeView:
        """Edge name -> weights (..., |target|, |source|)."""
        return EdgeView(self.graph, self.stacks)

    def with_weights(self, weights: Mapping[str, Any]) -> "GatedNetwork":
        """Return a copy in which the named edges have new weights, in the network's precision.

        The way to replace weights: `eqx.tree_at` sees whole stacks of edges only.
        """
        _check_mapping(weights)
        check_keys(weights, self.graph.edge_index, "weights", "an edge of the graph")
        stacks = list(self.stacks)
        for name, value in weights.items():
            array = weight_array(value, f"weights[{name!r}]")
            if array.shape[-2:] != self.graph.shape(name):
                raise ValueError(
                    f"weights[{name!r}] has shape {array.shape}; expected {self.graph.shape(name)}."
                )
            bundle, position = self.graph.slot[name]
            stack = stacks[bundle]
            stacks[bundle] = stack.at[..., position, :, :].set(array.astype(stack.dtype))
        return GatedNetwork.from_stacks(self.graph, tuple(stacks))

    def prepare(self, data: GatedData | PackedData) -> PackedData:
        """Arrange data for repeated evaluation: packed where values can be seen."""
        if not isinstance(data, PackedData):
            check_gated_data(data)
        if isinstance(data, PackedData) or is_concrete(data):
            return pack(self.graph, data)
        return unpacked(self.graph, data)

    def __call__(self, data: GatedData | PackedData) -> dict[str, Float[Array, "n width"]]:
        """Return output node -> predictions (n, |v|).

        `GatedData` are evaluated with every edge for every example, which also works on traced
        data; `PackedData` cost only their active edges. Floating-point sums differ in the last
        digits between the two.
        """
        if not isinstance(data, PackedData):
            check_gated_data(data)
            data = unpacked(self.graph, data)
        classes = list(self.graph.classes.values())
        outputs = {}
        for names, table, h in zip(classes, data.outputs, self._activities(data), strict=True):
            if table is not None and h is not None:
                outputs.update(_read_out(names, table, h, data.num_examples))
        for name in self.graph.outputs:
            if name not in outputs:
                shape = (data.num_examples, self.graph.nodes[name])
                outputs[name] = jnp.zeros(shape, self.stacks[0].dtype)
        return {name: outputs[name] for name in self.graph.outputs}

    def activity(self, data: GatedData) -> dict[str, Float[Array, "n width"]]:
        """Return the activity (n, |v|) of every node, inputs and outputs included."""
        check_gated_data(data)
        every = self._activities(unpacked(self.graph, data))
        activity = {}
        for names, h in zip(self.graph.classes.values(), every, strict=True):
            assert h is not None
            activity.update({name: h[i] for i, name in enumerate(names)})
        return {name: activity[name] for name in self.graph.nodes}

    def output_pairs(self, data: PackedData) -> list[tuple[Array, Array, Array]]:
        """Return (prediction, target, weight) arrays that together hold every example once.

        Shapes (pair, row, width), (pair, row, width), (pair, row); rows that only pad have
        weight 0. This is what losses are sums over.
        """
        pairs = []
        for table, h in zip(data.outputs, self._activities(data), strict=True):
            if table is not None:
                assert h is not None
                prediction = h if table.instance is None else h[table.instance]
                pairs.append((prediction, table.target, table.weight))
        pairs += [
            (jnp.zeros_like(table.target), table.target, table.weight)
            for table in data.silent
            if table is not None
        ]
        return pairs

    def _activities(self, data: PackedData) -> list[Array | None]:
        check_single(self, self.stacks[0].shape[:-3])

        def product(k: int, edges: Array | None, x: Array) -> Array:
            stack = self.stacks[k] if edges is None else self.stacks[k][edges]
            # HIGHEST: GPUs would otherwise multiply float32 in reduced precision and differ
            # from CPUs by 1e-3.
            return jnp.einsum("cts,cprs->cprt", stack, x, precision=jax.lax.Precision.HIGHEST)

        return propagate(data, product)

    def __repr__(self) -> str:
        bundles = self.graph.bundles
        shapes = ", ".join(f"{len(b.edges)} x {b.shape[0]}x{b.shape[1]}" for b in bundles[:6])
        more = ", ..." if len(bundles) > 6 else ""
        lead = self.stacks[0].shape[:-3] if hasattr(self.stacks[0], "shape") else ()
        batch = f", batch {lead}" if lead else ""
        return f"GatedNetwork({len(self.graph.edges)} edges [{shapes}{more}]{batch})"


def check_network(net: Any, name: str = "net") -> None:
    """Raise `ValueError` unless `net` is a `GatedNetwork`."""
    if isinstance(net, GatedNetwork):
        return
    if isinstance(getattr(net, "network", None), GatedNetwork):
        remedy = "pass its .network"
    elif hasattr(net, "pre_activations"):
        remedy = (
            "find gates that imitate a ReLU network (gdln.discover_gates, gdln.build_gated) and "
            "pass the network of those"
        )
    else:
        remedy = (
            "make one by gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), "
            "key=jax.random.key(0))"
        )
    raise ValueError(f"{name} is a {type(net).__name__}, not a GatedNetwork: {remedy}.")


def _check_mapping(weights: Any) -> None:
    if not isinstance(weights, Mapping):
        raise ValueError(
            f"weights is a {type(weights).__name__}; pass a mapping edge name -> array "
            "(|target|, |source|)."
        )


def propagate(
    data: PackedData, product: Callable[[int, Array | None, Array], Array]
) -> list[Array | None]:
    """Carry activities through the graph; returns them per node class (instance, row, width).

    `product(bundle, edges, x)` applies the edges (`None`: all, in order) to x (chunk, pair, row,
    source width). O(active pairs) calls' worth of work, O(bundles) traced operations.
    """
    graph = data.graph
    activity = dict(zip(graph.classes, data.inputs, strict=True))
    counts = dict(zip(graph.classes, data.counts, strict=True))
    for k, (bundle, stage) in enumerate(zip(graph.bundles, data.stages, strict=True)):
        if stage is None:
            continue
        h = activity[bundle.source]
        assert h is not None
        sent = product(k, stage.edge, gather(stage, h))
        if stage.gate is not None:
            sent = sent * stage.gate[..., None]
        got = scatter(stage, sent, counts[bundle.target])
        before = activity[bundle.target]
        activity[bundle.target] = got if before is None else before + got
    return list(activity.values())


def gather(stage: Stage, h: Array) -> Array:
    if stage.source is None:
        return h.reshape(*stage.shape, *h.shape[1:])
    return h[stage.source]


def scatter(stage: Stage, sent: Array, count: int) -> Array:
    flat = sent.reshape(-1, *sent.shape[2:])
    if stage.target is None:
        return flat
    zero = jnp.zeros((count, *flat.shape[1:]), flat.dtype)
    return zero.at[stage.target.reshape(-1)].add(flat)


def _read_out(names: tuple[str, ...], table: OutputTable, h: Array, n: int) -> dict[str, Array]:
    chosen = h if table.instance is None else h[table.instance]
    # One more row takes the padding (example -1).
    blank = jnp.zeros((len(names), n + 1, h.shape[-1]), h.dtype)
    filled = blank.at[jnp.asarray(table.node)[:, None], jnp.asarray(table.example)].set(chosen)
    return {name: filled[i, :n] for i, name in enumerate(names)}
