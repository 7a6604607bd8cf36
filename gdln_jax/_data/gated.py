"""Gated data: weighted examples that fix inputs, targets and every gate (SCIENCE 1).

`GatedData` is a pytree of arrays. `patterns()` finds the distinct gate vectors and `compress()`
replaces the examples of each by a few weighted pseudo-examples with the same second moments,
which is exact for squared error and gated linear maps.
"""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from gdln_jax._checks import MAKE_A_MODEL, Instead, check_keys, is_concrete, listed
from gdln_jax._data.arrays import (
    SeveralArrays,
    check_row_labels,
    common_dtype,
    own_copy,
    real_array,
)
from gdln_jax._graph import Graph

# (wanted, given) number of axes -> what to do about it.
_SHAPE_HINTS = {
    (2, 1): ", e.g. array[:, None]",
    (1, 0): ": one gate per example, e.g. np.full(n, gate)",
    (1, 2): ": a gate is one number per example, for all units of a node or edge alike",
}
_WEIGHTS_HINT = ": one weight per example, for all its inputs and outputs alike"


class Patterns(eqx.Module):
    """The distinct gate vectors of a data set.

    - `index`: for each example the number of its pattern, in order of first appearance.
    - `node_gates`, `edge_gates`: name -> the gate's value in each pattern.
    """

    index: Int[np.ndarray, " n"]
    node_gates: dict[str, Float[np.ndarray, " pattern"]]
    edge_gates: dict[str, Float[np.ndarray, " pattern"]]
    count: int

    def __repr__(self) -> str:
        return f"Patterns({self.count} gate patterns over {self.index.shape[0]} examples)"


class GatedData(SeveralArrays, eqx.Module):
    """`n` weighted examples; each fixes inputs, targets and gates.

    Args:
        inputs: input node -> array (n, |v|).
        targets: output node -> array (n, |v|).
        node_gates: hidden or output node -> array (n,) of real gates; missing ones are 1. An input
            node has no node gate (SCIENCE, E2): gate the edges that leave it.
        edge_gates: edge -> array (n,) of real gates; missing ones are 1.
        weights: array (n,) of non-negative example weights; they are scaled to sum 1. Default 1/n
            each.

    Arrays may be of NumPy, JAX, pandas or xarray, or lists, and the mappings of any kind. They are
    copied: what is written to them later does not change the data. All are stored in one
    precision: float32 if every floating-point array given is float32, else JAX's default float
    (float64 if `jax_enable_x64` is set). Integers, booleans and lists follow the others.

    Examples are paired by position. Row labels (the index of a DataFrame or Series, the
    coordinates of the first dimension of a DataArray) are not kept, but compared: two arrays that
    name the same rows in another order are refused. Labels of features are ignored.

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

    def __init__(
        self,
        inputs: Mapping[str, object],
        targets: Mapping[str, object],
        node_gates: Mapping[str, object] | None = None,
        edge_gates: Mapping[str, object] | None = None,
        weights: object = None,
    ):
        for name, value in (("inputs", inputs), ("targets", targets)):
            if not isinstance(value, Mapping) or not value:
                raise ValueError(
                    f"{name} must be a non-empty mapping from node name to an array "
                    f"(examples, features), got {type(value).__name__}."
                )
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

    @property
    def num_examples(self) -> int:
        """Number of examples n."""
        return self.weights.shape[-1]

    def validate(self, graph: Graph) -> None:
        """Check the data against an architecture; costs no array work.

        Raises:
            ValueError: a missing or unknown input, target or gate, a wrong width, or a node gate on
                an input node; the message names node, edge, array and expected shape.
        """
        _check_nodes(self.inputs, graph.inputs, graph, "inputs", "an input node", "incoming")
        _check_nodes(self.targets, graph.outputs, graph, "targets", "an output node", "outgoing")
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
        return eqx.tree_at(lambda data: data.weights, picked, picked.weights / total)

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
        index, first = _distinct_rows(columns, self.num_examples)
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

        Looks at values: call it outside of jit. Cost O(n (|x|+|y|)^2), in float64.
        """
        if not is_concrete(self):
            raise ValueError("compress() looks at values; call it outside of jit, grad and vmap.")
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
                pieces.append(_pseudo_examples(x[rows], y[rows], weights[rows], factors))
                members.append(p)
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
        )

    def __repr__(self) -> str:
        def widths(d: Mapping[str, Array]) -> str:
            return listed([f"{k}:{v.shape[-1]}" for k, v in d.items()], 4).replace("'", "")

        return (
            f"GatedData({self.num_examples} examples, inputs [{widths(self.inputs)}], targets "
            f"[{widths(self.targets)}], {len(self.node_gates)} node gates, "
            f"{len(self.edge_gates)} edge gates, {self.weights.dtype})"
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
        return jnp.full((n,), 1 / n, dtype=dtype)
    array = _placed(raw, "weights", 1, dtype)
    if array.shape[0] != n:
        raise ValueError(
            f"weights has {array.shape[0]} entries but inputs[{first!r}] has {n} examples."
        )
    if not isinstance(array, jax.core.Tracer):
        if bool((array < 0).any()):
            worst = int(jnp.argmin(array))
            raise ValueError(f"weights[{worst}] is {float(array[worst])}; weights must be >= 0.")
        if float(array.sum()) <= 0:
            raise ValueError("weights sum to 0; at least one example needs a positive weight.")
    return array / array.sum()


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


def _distinct_rows(columns: list[np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct rows in order of first appearance; also each one's first example."""
    if not columns:
        return np.zeros(n, dtype=np.int64), np.zeros(1, dtype=np.int64)
    table = np.ascontiguousarray(np.stack(columns, axis=1).astype(np.float64)) + 0.0
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(first))
    return rank[inverse.ravel()], first[by_appearance]


def _pseudo_examples(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    factors: dict[bytes, tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    used_x, used_y = np.any(x != 0, axis=0), np.any(y != 0, axis=0)
    total = weights.sum()
    if len(x) <= used_x.sum():
        return x, y, weights
    scale = np.sqrt(weights)[:, None]
    scaled_x, scaled_y = x[:, used_x] * scale, y[:, used_y] * scale
    key = used_x.tobytes() + scaled_x.tobytes()
    if key not in factors:
        factors[key] = _triangular(scaled_x)
    q, r = factors[key]
    along = q.T @ scaled_y
    rest = _triangular(scaled_y - q @ along)[1]
    rest = rest[np.any(np.abs(rest) > 1e-14 * max(np.abs(scaled_y).max(initial=0), 1e-300), axis=1)]
    count = len(r) + len(rest)
    if count >= len(x):
        return x, y, weights
    new_x, new_y = np.zeros((count, x.shape[1])), np.zeros((count, y.shape[1]))
    new_x[np.ix_(range(len(r)), used_x)] = r
    new_y[np.ix_(range(len(r)), used_y)] = along
    new_y[np.ix_(range(len(r), count), used_y)] = rest
    share = total / max(count, 1)
    if count == 0:
        return np.zeros((1, x.shape[1])), np.zeros((1, y.shape[1])), np.array([total])
    return new_x / np.sqrt(share), new_y / np.sqrt(share), np.full(count, share)


def _triangular(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """QR with a non-negative diagonal, so that the factor is a function of the moments."""
    q, r = np.linalg.qr(a)
    sign = np.where(np.diagonal(r) < 0, -1.0, 1.0)
    return q * sign, r * sign[:, None]


def _split(table: np.ndarray, like: Mapping[str, Array], dtype: np.dtype) -> dict[str, np.ndarray]:
    bounds = np.cumsum([v.shape[1] for v in like.values()])[:-1]
    parts = np.split(table, bounds, axis=1)
    return {k: part.astype(dtype) for k, part in zip(like, parts, strict=True)}
