"""Gated deep linear networks as pytrees (N Sec. 2): one stack of weights per bundle of edges.

The forward pass runs over bundles of same-shape edges, never over single edges, so its trace
does not grow with the number of modules. Gates live in the data: no optimiser can touch them.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import check_keys, instead, is_concrete, listed
from gdln_jax._checks.html import panel
from gdln_jax._checks.types import PRNGKeyArray
from gdln_jax._data.arrays import check_real, weight_array
from gdln_jax._data.boundary import (
    check_gated_data,
    check_graph,
    check_single,
    for_prediction,
)
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import OutputTable, PackedData, Stage
from gdln_jax._data.packing import pack, unpacked
from gdln_jax._data.runs import Activity, Level, carried
from gdln_jax._data.schedule import Schedule
from gdln_jax._data.state import Orientation
from gdln_jax._graph import Graph
from gdln_jax._graph.drawing import draw
from gdln_jax._network.edges import (
    EdgeWeights,
    ParameterArrays,
    Stacks,
    matrices,
    stacked,
)
from gdln_jax._network.model import AbstractModel, Pairs, pairs_by_node
from gdln_jax._network.state import edge_weights


class GatedNetwork(AbstractModel):
    r"""A gated deep linear network: $h_v = g_v \sum_{q: t(q)=v} g_q W_q h_{s(q)}$.

    The network is a pytree whose leaves are `stacks`, the parameters of each bundle of same-shape
    edges, and `fixed`, the frozen ones; `weights[edge]` reads the matrix of an edge,
    `parameters[name]` the array that learns. The gradient of a loss is again a `GatedNetwork`, and
    leading axes (seeds, times) may stand before all leaves. Of tied edges (`Graph(shared=)`) it
    holds the class gradient, the sum over the uses of the array, and 0 for frozen arrays.

    Calling it on `GatedData` (or `PackedData`) returns output node -> predictions (n, |v|). The
    data need no targets; where nothing is gated, a mapping of inputs will do: `net({"x": x})`.

    Args:
        graph: the architecture.
        weights: parameter name -> array (|target|, |source|), one for each of `graph.parameters`,
            where an edge may stand for its class, in the edge's orientation; or one stack
            (parameter, |target|, |source|) per `graph.stores`, as `from_stacks`.

    Raises:
        ValueError: missing, unknown or wrongly shaped weights, weights that are not finite,
            complex, or of a precision below float32, and two edges of one class that are not equal
            to the bit; the message names the edge.
    """

    _reads = "x.weights[name]"

    graph: Graph = eqx.field(static=True)
    stacks: Stacks
    fixed: Stacks | None = None

    def __init__(self, graph: Graph, weights: Mapping[str, object] | Stacks):
        check_graph(graph)
        self.graph = graph
        count = sum(not store.frozen for store in graph.stores)
        if isinstance(weights, tuple):
            every = _checked_stacks(graph, weights)
            self.stacks, self.fixed = every[:count], every[count:] or None
            return
        arrays = _checked_weights(graph, weights)
        for name, shape in graph.parameters.items():
            if name not in arrays:
                raise ValueError(f"weights lacks edge {name!r}, expected shape {shape}.")
            if arrays[name].shape != shape:
                raise ValueError(
                    f"weights[{name!r}] has shape {arrays[name].shape}; expected (|target|, "
                    f"|source|) = {shape}."
                )
        every = stacked(graph, arrays)
        self.stacks, self.fixed = every[:count], every[count:] or None

    @classmethod
    def from_stacks(
        cls, graph: Graph, stacks: Stacks, fixed: Stacks | None = None
    ) -> "GatedNetwork":
        """Make a network from one stack (parameter, |target|, |source|) per `graph.stores`.

        `stacks` are those of the trainable stores, without ties one per `graph.bundles`, and
        `fixed` those of the frozen ones.
        """
        return cls(graph, (*stacks, *(fixed or ())))

    @classmethod
    def from_state_dict(
        cls,
        graph: Graph,
        source: object,
        *,
        names: Mapping[str, str] | None = None,
        orientation: Orientation | None = None,
    ) -> "GatedNetwork":
        """Read the weights from what another program saved.

        Args:
            graph: the architecture.
            source: a mapping name -> array (of NumPy, JAX or torch), a PyTorch or Equinox module,
                or the path of a `.npz`, `.safetensors` or PyTorch file (`ReLUNetwork`'s method of
                this name says what is read). `np.savez(path, **net.weights)` writes one.
            names: edge -> name in the source, for every edge. Default: the edges' own names.
            orientation: `"out_in"`, arrays (|target|, |source|) as PyTorch and Equinox have them,
                or `"in_out"` as Flax and Keras do. Default: what fits the graph, and the package's
                own (|target|, |source|) without `names`.

        Raises:
            ValueError: a name that is not there, an array that does not fit its edge, a square one
                without `orientation`, and what cannot be read.
        """
        return cls(graph, edge_weights(graph, source, names, orientation))

    @classmethod
    def init(
        cls,
        graph: Graph,
        init: Callable[[Graph, PRNGKeyArray], Mapping[str, object] | Stacks],
        *,
        key: PRNGKeyArray,
        frozen: Mapping[str, object] | None = None,
    ) -> "GatedNetwork":
        """Draw initial weights; `init` is one of `gdln.init`, e.g. `init.normal(1e-3)`.

        Every parameter has a key of its own, derived from `key` and its name: adding an edge leaves
        the weights of the others as they were. Frozen parameters are drawn too, unless `frozen`
        gives them, parameter name -> array.
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
        net = cls(graph, init(graph, key))
        if frozen is None:
            return net
        if not isinstance(frozen, Mapping) or not graph.frozen:
            raise ValueError(
                f"frozen is {frozen!r}; it maps the names of frozen parameters to their arrays, "
                f"and the graph has {listed(graph.frozen) or 'none'}. Declare what nothing may "
                'move in the graph, as in Graph(nodes, edges, frozen=["x->h"]).'
            )
        check_keys(frozen, graph.frozen, "frozen", "a frozen parameter of the graph")
        return net.with_weights(frozen)

    @property
    def weights(self) -> EdgeWeights:
        """Edge name -> weights (..., |target|, |source|)."""
        return EdgeWeights(self.graph, self._stores)

    @property
    def parameters(self) -> EdgeWeights:
        """Parameter name -> array (..., *shape), for each of `graph.parameters`.

        Of a gradient, the derivative by each parameter. An edge without ties is a parameter of its
        own.
        """
        return ParameterArrays(self.graph, self._stores)

    @property
    def trainable(self) -> "GatedNetwork":
        """Booleans in the structure of the network: False for frozen arrays.

        For loops of your own: `moving, still = eqx.partition(net, net.trainable)`.
        """
        flags = [True] * len(self.stacks) + [False] * len(self.fixed or ())
        return jax.tree.unflatten(jax.tree.structure(self), flags)

    @property
    def _stores(self) -> Stacks:
        """The stacks of all stores; no gradient passes into frozen ones."""
        if not self.fixed:
            return self.stacks
        stop = jax.lax.stop_gradient
        return (*self.stacks, *(stop(w) if isinstance(w, jax.Array) else w for w in self.fixed))

    def with_weights(self, weights: Mapping[str, object]) -> "GatedNetwork":
        """Return a copy in which the named edges have new weights, in the network's precision.

        A class of tied edges goes by its own name, or by one of its edges in the orientation of
        that edge; all its edges change. The way to replace weights: `eqx.tree_at` sees whole stacks
        of edges only.
        """
        stacks = [*self.stacks, *(self.fixed or ())]
        for name, array in _checked_weights(self.graph, weights).items():
            shape = self.graph.parameters[name]
            if array.shape[-2:] != shape:
                raise ValueError(f"weights[{name!r}] has shape {array.shape}; expected {shape}.")
            store, position, _ = self.graph.place[name]
            stack = stacks[store]
            stacks[store] = stack.at[..., position, :, :].set(array.astype(stack.dtype))
        return GatedNetwork(self.graph, tuple(stacks))

    def validate(self, data: GatedData | Schedule) -> None:
        """Check data against the graph (see `GatedData.validate`)."""
        data.validate(self.graph)

    def prepare(self, data: GatedData | PackedData) -> PackedData:
        """Arrange data for repeated evaluation: packed where values are known."""
        if not isinstance(data, PackedData):
            check_gated_data(data)
        if isinstance(data, PackedData) or is_concrete(data):
            return pack(self.graph, data)
        return unpacked(self.graph, data)

    def __call__(
        self, data: GatedData | PackedData | Mapping[str, object]
    ) -> dict[str, Float[Array, "n width"]]:
        """Return output node -> predictions (n, |v|).

        A mapping input node -> array (n, |v|) stands for `GatedData(inputs)`, with all gates 1.

        `GatedData` are evaluated with every edge for every example, which also works on traced
        data; `PackedData` cost only their active edges. Floating-point sums differ in the last
        digits between the two.
        """
        if not isinstance(data, PackedData):
            data = unpacked(self.graph, for_prediction(data))
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

    def activity(
        self, data: GatedData | Mapping[str, object]
    ) -> dict[str, Float[Array, "n width"]]:
        """Return the activity (n, |v|) of every node, for data as in a call."""
        found = self._activities(unpacked(self.graph, for_prediction(data)), every=True)
        activity = {}
        for names, h in zip(self.graph.classes.values(), found, strict=True):
            assert h is not None
            activity.update({name: h[i] for i, name in enumerate(names)})
        return {name: activity[name] for name in self.graph.nodes}

    def pairs(self, data: GatedData | PackedData) -> Pairs:
        """Return (prediction, target, weight) arrays that together hold every example once."""
        if not isinstance(data, PackedData):
            return pairs_by_node(self(data), data)
        pairs = []
        for table, h in zip(data.outputs, self._activities(data), strict=True):
            if table is not None:
                assert h is not None
                pairs.append((table.predictions(h), table.target, table.weight))
        pairs += [
            (jnp.zeros_like(table.target), table.target, table.weight)
            for table in data.silent
            if table is not None
        ]
        return pairs

    def _activities(self, data: PackedData, *, every: bool = False) -> list[Array | None]:
        check_single(self, self.stacks[0].shape[:-3])
        return propagate(data, self._stores, every=every)

    def _repr_html_(self) -> str:
        return panel(repr(self), draw(self.graph))

    def __repr__(self) -> str:
        stores = self.graph.stores
        shapes = ", ".join(
            f"{len(s.names)} x {s.shape[0]}x{s.shape[1]}{' frozen' if s.frozen else ''}"
            for s in stores[:6]
        )
        more = ", ..." if len(stores) > 6 else ""
        lead = self.stacks[0].shape[:-3] if hasattr(self.stacks[0], "shape") else ()
        batch = f", batch {lead}" if lead else ""
        tied = f", {len(self.graph.parameters)} parameters" if self.graph.tied else ""
        return f"GatedNetwork({len(self.graph.edges)} edges{tied} [{shapes}{more}]{batch})"


def learning(model: PyTree) -> PyTree:
    """Booleans in the structure of any model: True for arrays of floats that are not frozen."""

    def part(here: PyTree) -> PyTree:
        if not isinstance(here, GatedNetwork):
            return eqx.is_inexact_array(here)
        return jax.tree.map(lambda on, w: on and eqx.is_inexact_array(w), here.trainable, here)

    return jax.tree.map(part, model, is_leaf=lambda here: isinstance(here, GatedNetwork))


def along_time(still: PyTree, times: int) -> PyTree:
    """What training does not move beside models at all times: arrays of floats once for each."""

    def repeated(leaf: PyTree) -> PyTree:
        return jnp.broadcast_to(leaf, (times, *leaf.shape)) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(repeated, still)


def check_network(net: object, name: str = "net") -> None:
    """Raise `ValueError` unless `net` is a `GatedNetwork`."""
    if isinstance(net, GatedNetwork):
        return
    remedy = (
        "make one by gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), "
        "key=jax.random.key(0))"
    )
    remedy = instead(net).network or remedy
    if isinstance(getattr(net, "network", None), GatedNetwork):
        remedy = "pass its .network"
    raise ValueError(f"{name} is a {type(net).__name__}, not a GatedNetwork: {remedy}.")


def _checked_weights(graph: Graph, weights: Mapping[str, object]) -> dict[str, Array]:
    """Weights of some parameters as arrays of ours, of any shape.

    An edge of a class stands for the class.
    """
    if not isinstance(weights, Mapping):
        raise ValueError(
            f"weights is a {type(weights).__name__}; pass a mapping edge name -> array "
            "(|target|, |source|)."
        )
    known = {**graph.edge_index, **graph.parameters}
    check_keys(weights, known, "weights", "an edge of the graph")
    arrays = {name: weight_array(value, f"weights[{name!r}]") for name, value in weights.items()}
    if not graph.tied:
        return arrays
    by_parameter: dict[str, tuple[str, Array]] = {}
    for given, array in arrays.items():
        name, transposed = (
            (given, False) if given in graph.parameters else graph.parameter_of[given]
        )
        own = array.swapaxes(-1, -2) if transposed and array.ndim > 1 else array
        first, before = by_parameter.setdefault(name, (given, own))
        if first != given and not (is_concrete((before, own)) and np.array_equal(before, own)):
            raise ValueError(
                f"weights gives {first!r} and {given!r}, which share the parameter {name!r}, "
                f"different arrays (or traced ones, which cannot be compared): give {name!r} once."
            )
    return {name: array for name, (_, array) in by_parameter.items()}


def _checked_stacks(graph: Graph, stacks: Stacks) -> Stacks:
    wanted = [(len(store.names), *store.shape) for store in graph.stores]
    if [np.shape(stack)[-3:] for stack in stacks] != wanted:
        kinds = "store of the graph, trainable ones first" if graph.tied else "bundle of the graph"
        raise ValueError(
            f"stacks have shapes {[np.shape(stack) for stack in stacks]}; expected {wanted}, one "
            f"per {kinds}."
        )
    names = [f"stacks[{k}]" for k in range(len(stacks))]
    for stack, name in zip(stacks, names, strict=True):
        check_real(stack.dtype, name)
    return tuple(
        weight_array(stack, name) if isinstance(stack, np.ndarray) else stack
        for stack, name in zip(stacks, names, strict=True)
    )


def propagate(data: PackedData, stores: Stacks, *, every: bool = False) -> list[Array | None]:
    """Carry activities through the graph; returns them per node class (instance, row, width).

    `stores` are the weights (parameter, |target|, |source|) of all stores, without ties those of
    each bundle. O(active pairs) products (`Stage.sent`), O(bundles) traced operations, where levels
    that share all weights count once: what is within those is returned if `every`.
    """
    graph = data.graph
    counts = dict(zip(graph.classes, data.counts, strict=True))

    def step(
        level: Level, stages: Sequence[Stage | None], _: object, activity: Activity
    ) -> Array | None:
        total = None
        for k, stage in zip(level, stages, strict=True):
            if stage is None:
                continue
            bundle = graph.bundles[k]
            h = activity[bundle.source]
            assert h is not None
            sent = stage.sent(matrices(graph, stores, k), h, of_data=bundle.source[0] == 0)
            got = stage.added(stage.gated(sent), counts[bundle.target])
            total = got if total is None else total + got
        return total

    inputs = dict(zip(graph.classes, data.inputs, strict=True))
    found = carried(graph, data.stages, data.counts, inputs, step, every=every)
    return list(found.values())


def _read_out(names: tuple[str, ...], table: OutputTable, h: Array, n: int) -> dict[str, Array]:
    # One more row takes the padding (example -1).
    blank = jnp.zeros((len(names), n + 1, h.shape[-1]), h.dtype)
    place = jnp.asarray(table.node)[:, None], jnp.asarray(table.example)
    filled = blank.at[place].set(table.predictions(h))
    return {name: filled[i, :n] for i, name in enumerate(names)}
