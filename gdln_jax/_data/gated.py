"""Gated data: weighted examples that fix inputs, targets and every gate (theory#conventions).

`GatedData` is a pytree of arrays. `patterns()` finds the distinct gate vectors and `compress()`
replaces the examples of each by a few weighted pseudo-examples with the same second moments,
which is exact for squared error and gated linear maps.
"""

import copy
import warnings
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.core
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import MAKE_A_MODEL, Instead, check_keys, is_concrete, listed
from gdln_jax._checks.types import ArrayLike, Rows
from gdln_jax._data.arrays import (
    SeveralArrays,
    common_dtype,
    own_copy,
    real_array,
)
from gdln_jax._data.moments import checked_moments, checked_widths, factor, split_by_node
from gdln_jax._data.names import (
    UNNAMED,
    Labels,
    Names,
    NamesLike,
    check_row_labels,
    checked_labels,
    labels_of,
    of_examples,
)
from gdln_jax._data.patterns import Patterns, distinct_rows
from gdln_jax._data.pseudo_examples import pseudo_examples
from gdln_jax._data.shown import as_html
from gdln_jax._graph import Graph

# (wanted, given) number of axes -> what to do about it.
_SHAPE_HINTS = {
    (2, 1): ": array[None] for one example, array[:, None] for examples of one feature",
    (1, 0): ": one gate per example, e.g. np.full(n, gate)",
    (1, 2): ": a gate is one number per example, for all units of a node or edge alike",
}
_WEIGHTS_HINT = ": one weight per example, for all its inputs and outputs alike"


class GatedData(SeveralArrays, eqx.Module):
    """`n` weighted examples; each fixes inputs, targets and gates.

    Args:
        inputs: input node -> array (n, |v|).
        targets: output node -> array (n, |v|). Data without targets are for predictions,
            `net(data)`; losses, training and reductions refuse them.
        node_gates: hidden or output node -> array (n,) of real gates; missing ones are 1. An input
            node has no node gate (E2): gate the edges that leave it.
        edge_gates: edge -> array (n,) of real gates; missing ones are 1.
        weights: array (n,) of non-negative example weights; they are scaled to sum 1. Default 1/n
            each.

    Arrays may be of NumPy, JAX, pandas or xarray, or lists, and the mappings of any kind. They are
    copied: what is written to them later does not change the data. All are stored in one
    precision: float32 if every floating-point array given is float32, else JAX's default float
    (float64 if `jax_enable_x64` is set). Integers, booleans and lists follow the others.

    Examples are paired by position. Row labels (the index of a DataFrame or Series, the
    coordinates of the first dimension of a DataArray) are compared: two arrays that name the same
    rows in another order are refused. `names` keeps the labels of rows and columns.

    An example of weight 0 counts nowhere, whatever its values; a network still predicts it.

    Raises:
        ValueError: wrong lengths, wrong number of axes, values that are no finite numbers, sparse
            or masked arrays, precisions below float32, contradicting row labels, negative weights
            or weights that sum to 0; the message names the array. What depends on the graph is
            checked by `validate`, which every function that takes both calls.
    """

    _reads = "x.inputs[name]"
    _instead = Instead(model=MAKE_A_MODEL)

    inputs: dict[str, Float[Array, "n _"]]
    targets: dict[str, Float[Array, "n _"]]
    node_gates: dict[str, Float[Array, " n"]]
    edge_gates: dict[str, Float[Array, " n"]]
    weights: Float[Array, " n"]
    _labels: Labels

    def __init__(
        self,
        inputs: Mapping[str, object],
        targets: Mapping[str, object] | None = None,
        node_gates: Mapping[str, object] | None = None,
        edge_gates: Mapping[str, object] | None = None,
        weights: object = None,
    ):
        for name, value in (("inputs", inputs), ("targets", targets)):
            if name == "targets" and value is None:
                continue
            if not isinstance(value, Mapping) or not value:
                hint = "; leave targets out for predictions" if name == "targets" else ""
                raise ValueError(
                    f"{name} must be a non-empty mapping from node name to an array "
                    f"(examples, features), got {type(value).__name__}{hint}."
                )
        targets = {} if targets is None else targets
        node_gates = {} if node_gates is None else node_gates
        edge_gates = {} if edge_gates is None else edge_gates
        for name, value in (("node_gates", node_gates), ("edge_gates", edge_gates)):
            if not isinstance(value, Mapping):
                raise ValueError(
                    f"{name} must be a mapping from name to an array (examples,), got "
                    f"{type(value).__name__}."
                )
        fields = {
            "inputs": inputs,
            "targets": targets,
            "node_gates": node_gates,
            "edge_gates": edge_gates,
        }
        given = {f"{f}[{k!r}]": v for f, arrays in fields.items() for k, v in arrays.items()}
        if weights is not None:
            given["weights"] = weights
        raw = {name: real_array(value, name) for name, value in given.items()}
        check_row_labels(given)
        dtype = common_dtype([(given[name], raw[name]) for name in given])
        self.inputs, self.targets, self.node_gates, self.edge_gates = (
            {k: _placed(raw[f"{f}[{k!r}]"], f"{f}[{k!r}]", ndim, dtype) for k in fields[f]}
            for f, ndim in zip(fields, (2, 2, 1, 1), strict=True)
        )
        first = next(iter(self.inputs))
        n = self.inputs[first].shape[0]
        if n == 0:
            raise ValueError(f"inputs[{first!r}] has no examples.")
        for field in ("inputs", "targets", "node_gates", "edge_gates"):
            for k, v in getattr(self, field).items():
                if v.shape[0] != n:
                    raise ValueError(
                        f"{field}[{k!r}] has {v.shape[0]} examples but inputs[{first!r}] has "
                        f"{n}; all arrays need the same leading length"
                        f"{_transposed(v, n)}."
                    )
        self.weights = _weights(raw.get("weights"), n, first, dtype)
        self._labels = labels_of({**inputs, **targets}, given.values())

    @classmethod
    def from_moments(
        cls,
        inputs: Mapping[str, int],
        targets: Mapping[str, int],
        xx: Rows,
        yx: Rows,
        yy: Rows | None = None,
        *,
        node_gates: Mapping[str, object] | None = None,
        edge_gates: Mapping[str, object] | None = None,
        weights: Rows | None = None,
        tol: float = 1e-10,
    ) -> "GatedData":
        r"""Make pseudo-examples with given second moments: population data, without sampling.

        Squared error sees of the examples of one gate pattern only $\langle x x^T \rangle$,
        $\langle y x^T \rangle$ and $\langle y y^T \rangle$ (theory#moments); here at most |x|+|y|
        examples have them.

        Args:
            inputs, targets: node -> width, in the order of the blocks of the moments.
            xx, yx, yy: moments (dx, dx), (dy, dx), (dy, dy) over all nodes side by side; with gates
                (pattern, _, _), the means within each pattern. Without `yy` the loss is that above
                its minimum, yy = yx xx^+ yx^T.
            node_gates, edge_gates: name -> (pattern,) the gate in each pattern.
            weights: (pattern,) probability of each pattern, default equal.
            tol: an eigenvalue of the joint moment below -tol times the largest is refused.

        Raises:
            ValueError: moments that no data have, or a wrong shape; it gives the number.
        """
        widths_x, widths_y = checked_widths(inputs, "inputs"), checked_widths(targets, "targets")
        gates = {**(node_gates or {}), **(edge_gates or {})}
        first = next(iter(gates.values()), weights)
        count = None if first is None else len(np.asarray(first))
        dx, dy = sum(widths_x.values()), sum(widths_y.values())
        moments = checked_moments(dx, dy, {"xx": xx, "yx": yx, "yy": yy}, count)
        widths = tuple(widths_x.values()), tuple(widths_y.values())
        parts = [factor(moments, p, widths, tol) for p in range(len(moments.xx))]
        counts = [len(x) for x, _ in parts]
        pattern = np.repeat(np.arange(len(parts)), counts)
        share = np.ones(len(parts)) if weights is None else np.asarray(weights, float)

        def spread(gates: Mapping[str, object] | None) -> dict[str, np.ndarray]:
            return {name: np.asarray(gate)[pattern] for name, gate in (gates or {}).items()}

        return cls(
            split_by_node(np.concatenate([x for x, _ in parts]), widths_x),
            split_by_node(np.concatenate([y for _, y in parts]), widths_y),
            spread(node_gates),
            spread(edge_gates),
            share[pattern] / np.array(counts)[pattern],
        )

    @property
    def num_examples(self) -> int:
        """Number of examples n."""
        return self.weights.shape[-1]

    @property
    def names(self) -> dict[str, Names]:
        """Input or output node -> `Names`, of its features and of the examples.

        `data.names["x"].features` and `data.names["x"].items` are tuples of text, or None where
        there are no names: for arrays of NumPy or JAX, and for rows and columns that are only
        numbered. Examples of a node without row names are called as in the first array that has
        some. Names are kept by `take` and in the data of a `Schedule`, features by `compress`. Any
        operation on leaves (`jax.tree.map`, `eqx.tree_at`, `jit`) returns data without names;
        `with_names` adds them again.
        """
        return {k: self._labels.by_node.get(k, UNNAMED) for k in (*self.inputs, *self.targets)}

    def with_names(self, names: Mapping[str, NamesLike]) -> "GatedData":
        """Return the same data with other names, such as `names` of those they were made of.

        Args:
            names: input or output node -> `Names`; a pair (features, items) will do. Nodes left
                out have no names.

        Raises:
            ValueError: an unknown node, or not one name per feature or example.
        """
        widths = {k: v.shape[-1] for k, v in (self.inputs | self.targets).items()}
        return self._with(checked_labels(names, widths, self.num_examples))

    def _with(self, labels: Labels) -> "GatedData":
        new = copy.copy(self)
        object.__setattr__(new, "_labels", labels)
        return new

    def validate(self, graph: Graph) -> None:
        """Check the data against an architecture; costs no array work.

        Data without targets may be called by a network, so they pass.

        Raises:
            ValueError: a missing or unknown input, target or gate, a wrong width, or a node gate on
                an input node; the message names node, edge, array and expected shape.
        """
        _check_nodes(self.inputs, graph.inputs, graph, "inputs", "an input node", "incoming")
        if self.targets:
            _check_nodes(
                self.targets, graph.outputs, graph, "targets", "an output node", "outgoing"
            )
        for name in self.node_gates:
            if name in graph.inputs:
                raise ValueError(
                    f"node_gates names the input node {name!r}; input nodes have no node gate. "
                    f"Gate its edges instead: edge_gates="
                    f"{{{graph.outgoing[name][0].name!r}: ...}}."
                )
            if name in graph.edge_index:
                raise ValueError(
                    f"node_gates names the edge {name!r}; pass it in edge_gates, the fourth "
                    "argument."
                )
        for name in self.edge_gates:
            if name in graph.nodes and name not in graph.edge_index:
                raise ValueError(
                    f"edge_gates names the node {name!r}; pass it in node_gates, the third "
                    "argument."
                )
        check_keys(self.node_gates, graph.nodes, "node_gates", "a node of the graph")
        check_keys(self.edge_gates, graph.edge_index, "edge_gates", "an edge of the graph")

    def take(self, index: ArrayLike | Sequence[int]) -> "GatedData":
        """Return the examples at `index` (repeats allowed), their weights scaled to sum 1.

        `index` numbers examples from 0 (from -1 backwards), or says for each whether to take it.

        Raises:
            ValueError: an example that does not exist, or examples that all weigh 0 (of traced
                numbers and weights NaN is taken instead).
        """
        index = _known_index(index, self.num_examples)
        picked = jax.tree.map(lambda leaf: leaf[index], self)
        total = picked.weights.sum()
        if is_concrete(total) and not total > 0:
            raise ValueError(
                f"the {picked.weights.size} examples taken weigh 0 together, so no mean over "
                "them exists; take some that count, or give them weights: "
                "GatedData(data.inputs, data.targets, data.node_gates, data.edge_gates, weights)."
            )
        known = np.asarray(index) if is_concrete(index) else None
        picked = eqx.tree_at(lambda data: data.weights, picked, picked.weights / total)
        return picked._with(of_examples(self._labels, known))

    def patterns(self) -> Patterns:
        """Find the distinct gate vectors, exactly as given (no rounding).

        Looks at values, so it cannot run on traced arrays. Cost O(n x gates).
        """
        if not is_concrete((self.node_gates, self.edge_gates)):
            raise ValueError(
                "patterns() has to look at the gates' values and cannot run under jit, grad or "
                "vmap over the data; call it outside."
            )
        columns = [np.asarray(g) for g in (*self.node_gates.values(), *self.edge_gates.values())]
        index, first = distinct_rows(columns, self.num_examples)
        return Patterns(
            index,
            {k: np.asarray(v)[first] for k, v in self.node_gates.items()},
            {k: np.asarray(v)[first] for k, v in self.edge_gates.items()},
            len(first),
        )

    def compress(self) -> "GatedData":
        r"""Replace the examples of each gate pattern by at most |x|+|y| pseudo-examples.

        For squared error and gated linear maps the examples of one pattern enter only through
        their joint second moment, here replaced by its triangular factor: with weighted inputs
        $X = Q R$ the pseudo-examples are the rows of $[R, Q^T Y]$ and, with zero input, a
        triangular factor of $Y - Q Q^T Y$, which adds the constant part of the loss. `mse` and
        its gradients are unchanged for every `GatedNetwork`; not so for ReLU networks or
        cross-entropy. Weights sum to 1 still, equal within a pattern.

        Where real gates differ from example to example nothing can be merged: `fold_gates` moves
        them into the inputs first.

        Looks at values: call it outside of jit. Cost O(n (|x|+|y|)^2), in float64.
        """
        if not is_concrete(self):
            raise ValueError("compress() looks at values; call it outside of jit, grad and vmap.")
        if not self.targets:
            raise ValueError(
                "compress() keeps the second moments of inputs and targets, for losses, and these "
                "data have no targets; data for predictions cannot be compressed."
            )
        patterns = self.patterns()
        weights = np.asarray(self.weights, dtype=np.float64)
        order = np.argsort(patterns.index, kind="stable")
        bounds = np.searchsorted(patterns.index[order], np.arange(patterns.count + 1))
        x = np.concatenate([np.asarray(v, np.float64) for v in self.inputs.values()], axis=1)
        y = np.concatenate([np.asarray(v, np.float64) for v in self.targets.values()], axis=1)
        # Patterns that present the same inputs get the very same factor, bit for bit, so that a
        # packed network still encodes them once.
        factors: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
        pieces, members = [], []
        for p in range(patterns.count):
            rows = order[bounds[p] : bounds[p + 1]]
            rows = rows[weights[rows] > 0]
            if len(rows):
                pieces.append(pseudo_examples(x[rows], y[rows], weights[rows], factors))
                members.append(p)
        _warn_of_real_gates(patterns, len(weights), x.shape[1] + y.shape[1])
        counts = [len(w) for _, _, w in pieces]
        pattern_of = np.repeat(members, counts)
        new_x = np.concatenate([piece[0] for piece in pieces])
        new_y = np.concatenate([piece[1] for piece in pieces])
        dtype = self.weights.dtype
        return GatedData(
            _split(new_x, self.inputs, dtype),
            _split(new_y, self.targets, dtype),
            {k: v[pattern_of].astype(dtype) for k, v in patterns.node_gates.items()},
            {k: v[pattern_of].astype(dtype) for k, v in patterns.edge_gates.items()},
            np.concatenate([piece[2] for piece in pieces]).astype(dtype),
        )._with(of_examples(self._labels, None))

    def _repr_html_(self) -> str:
        return as_html(self, repr(self))

    def __repr__(self) -> str:
        def widths(d: Mapping[str, Array]) -> str:
            return listed([f"{k}:{v.shape[-1]}" for k, v in d.items()], 4).replace("'", "")

        targets = f"targets [{widths(self.targets)}]" if self.targets else "no targets"
        named = f", names of {', '.join(self._labels.by_node)}" if self._labels.by_node else ""
        return (
            f"GatedData({self.num_examples} examples, inputs [{widths(self.inputs)}], {targets}, "
            f"{len(self.node_gates)} node gates, {len(self.edge_gates)} edge gates, "
            f"{self.weights.dtype}{named})"
        )


def _warn_of_real_gates(patterns: Patterns, examples: int, widths: int) -> None:
    """Warn where gates that differ from example to example leave nothing to merge."""
    gates = [*patterns.node_gates.values(), *patterns.edge_gates.values()]
    real = any(np.any((gate != 0) & (gate != 1)) for gate in gates)
    if real and 2 * patterns.count > examples > widths:
        warnings.warn(
            f"compress() merges examples of equal gates, and {examples} examples have "
            f"{patterns.count} gate patterns: fold the real gates into the inputs first, graph, "
            f"data = gdln.fold_gates(graph, data); then at most |x| + |y| examples are left.",
            UserWarning,
            stacklevel=3,
        )


def _placed(raw: Array | np.ndarray, name: str, ndim: int, dtype: np.dtype) -> Array:
    """Our own copy of an array that has passed `real_array`, if its number of axes is right."""
    if raw.ndim != ndim:
        wanted = "(examples, features)" if ndim == 2 else "(examples,)"
        hint = _WEIGHTS_HINT if name == "weights" else _SHAPE_HINTS.get((ndim, raw.ndim), "")
        raise ValueError(f"{name} has shape {raw.shape}; expected {wanted}{hint}.")
    return own_copy(raw, dtype, name)


def _transposed(array: Array, n: int) -> str:
    """A hint for features by examples, the papers' way round."""
    if array.ndim == 2 and array.shape[1] == n:
        return ". Arrays are (examples, features): pass its transpose, array.T"
    return ""


def _weights(raw: Array | np.ndarray | None, n: int, first: str, dtype: np.dtype) -> Array:
    if raw is None:
        return jax.device_put(np.full(n, 1 / n, dtype))
    array = _placed(raw, "weights", 1, dtype)
    if array.shape[0] != n:
        raise ValueError(
            f"weights has {array.shape[0]} entries but inputs[{first!r}] has {n} examples."
        )
    if isinstance(array, jax.core.Tracer):
        return array / array.sum()
    known = np.asarray(array)  # in NumPy: nothing to compile
    if (known < 0).any():
        worst = int(np.argmin(known))
        raise ValueError(f"weights[{worst}] is {float(known[worst])}; weights must be >= 0.")
    if known.sum() <= 0:
        raise ValueError("weights sum to 0; at least one example needs a positive weight.")
    return jax.device_put(known / known.sum())


def _known_index(index: ArrayLike | Sequence[int], n: int) -> Array | np.ndarray:
    """`index` as an array, checked where it can be seen: JAX would take the last example for n."""
    if isinstance(index, jax.core.Tracer):
        return index
    index = np.asarray(index)
    if index.dtype == bool and index.shape == (n,):
        return np.flatnonzero(index)
    if index.ndim != 1 or index.dtype.kind not in "iu" or not index.size:
        raise ValueError(
            f"index has shape {index.shape} and dtype {index.dtype}; pass the numbers of the "
            f"examples to take, (m,) whole numbers, or a mask ({n},) of booleans."
        )
    outside = index[(index < -n) | (index >= n)]
    if outside.size:
        raise ValueError(f"index names example {outside[0]}, but there are {n}, numbered from 0.")
    return index


def _check_nodes(
    given: Mapping[str, Array],
    wanted: tuple[str, ...],
    graph: Graph,
    what: str,
    kind: str,
    direction: str,
) -> None:
    check_keys(given, wanted, what, f"{kind} of the graph")
    for name in wanted:
        width = graph.nodes[name]
        if name not in given:
            raise ValueError(
                f"{what} lacks {name!r}, expected an array (n, {width}); it is {kind} because it "
                f"has no {direction} edge."
            )
        if given[name].shape[-1] != width:
            raise ValueError(
                f"{what}[{name!r}] has shape {given[name].shape}; node {name!r} has width "
                f"{width}, expected (n, {width})."
            )


def _split(table: np.ndarray, like: Mapping[str, Array], dtype: np.dtype) -> dict[str, np.ndarray]:
    bounds = np.cumsum([v.shape[1] for v in like.values()])[:-1]
    parts = np.split(table, bounds, axis=1)
    return {k: part.astype(dtype) for k, part in zip(like, parts, strict=True)}
