"""Mode strengths b_e of every edge, numbers or matrices, and frames U_e, V_e as a mapping."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._checks import check_keys, is_concrete
from gdln_jax._data.arrays import ArrayMapping, SeveralArrays
from gdln_jax._graph import Graph
from gdln_jax._network.edges import EdgeView


class EdgeArrays(SeveralArrays, eqx.Module):
    """One array per edge, read like a mapping edge -> array with any leading axes.

    The leaves are one stack (edge, ...) per bundle of the graph, so that compile time does not
    grow with the number of edges.
    """

    _reads = "x[name]"

    graph: Graph = eqx.field(static=True)
    stacks: tuple[Array, ...]
    core: ClassVar[int]

    def __getitem__(self, name: str) -> Array:
        """The array of one edge."""
        return EdgeView(self.graph, self.stacks, core=self.core)[name]

    def __iter__(self) -> Iterator[str]:
        return (edge.name for edge in self.graph.edges)

    def __len__(self) -> int:
        return len(self.graph.edges)

    def __contains__(self, name: object) -> bool:
        return name in self.graph.edge_index

    def get(self, name: str, default: Any = None) -> Any:
        """The array of one edge, or `default` if the graph has no such edge."""
        return self[name] if name in self.graph.edge_index else default

    def keys(self) -> list[str]:
        """Names of the edges."""
        return list(self)

    def values(self) -> list[Array]:
        """Arrays in the order of `keys`."""
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, Array]]:
        """Pairs (edge, array)."""
        return [(name, self[name]) for name in self]

    def _check(self, graph: Graph, shape: tuple[int, ...]) -> None:
        """Raise `ValueError` unless these are one array of `shape` for each edge of `graph`."""
        if self.graph != graph:
            raise ValueError("b holds the strengths of another graph than the reduction's.")
        found = self.stacks[0].shape
        if found[-1] != shape[-1]:
            raise ValueError(f"b has {found[-1]} modes per edge, the reduction has {shape[-1]}.")
        batch = found[: len(found) - 1 - len(shape)]
        if batch:
            raise ValueError(
                f"b holds a batch or a run of shape {batch}; pass one of them, for example the "
                "last one: jax.tree.map(lambda x: x[-1], b)."
            )


Mapping.register(EdgeArrays)  # type: ignore[attr-defined]


class ModeStrengths(EdgeArrays):
    """Mode strengths b_e of every edge; reads like a mapping edge -> (..., mode)."""

    core: ClassVar[int] = 1

    @classmethod
    def make(cls, graph: Graph, modes: int, b: Any) -> "ModeStrengths":
        """Make strengths from one number, one per mode, or edge -> either.

        **Raises:** `ValueError` that names the edge for missing or unknown edges or a number of
        entries that is neither 1 nor the number of modes, or for strengths of another graph.
        """
        if isinstance(b, ClassStrengths):
            b = b.expanded()
        if isinstance(b, ModeStrengths):
            b._check(graph, (modes,))
            return b
        if not isinstance(b, Mapping):
            row = jnp.asarray(_row(b, modes, "b"))
            return cls(graph, tuple(jnp.tile(row, (len(k.edges), 1)) for k in graph.bundles))
        check_keys(b, graph.edge_index, "b", "an edge of the graph")
        for edge in graph.edges:
            if edge.name not in b:
                raise ValueError(
                    f"b lacks edge {edge.name!r}; give it a number or an array ({modes},)."
                )
        return cls(
            graph,
            tuple(
                _stack([_row(b[name], modes, f"b[{name!r}]") for name in bundle.edges])
                for bundle in graph.bundles
            ),
        )

    def __repr__(self) -> str:
        stack = self.stacks[0]
        batch = f", batch {stack.shape[:-2]}" if stack.ndim > 2 else ""
        return f"ModeStrengths({len(self)} edges x {stack.shape[-1]} modes{batch})"


class MatrixStrengths(EdgeArrays):
    """Mode matrices U_e^T W_e V_e of every edge; a mapping edge -> (..., mode, mode)."""

    core: ClassVar[int] = 2

    @classmethod
    def make(cls, graph: Graph, size: int, modes: int, b: Any) -> "MatrixStrengths":
        """Make matrices (size, size) from edge -> matrix, or strengths for the diagonal.

        **Raises:** `ValueError` that names the edge, as `ModeStrengths.make`.
        """
        if isinstance(b, MatrixStrengths):
            b._check(graph, (size, size))
            return b
        full = {name: value for name, value in b.items() if _is_matrix(value)}
        for name, value in full.items():
            if np.shape(value) != (size, size):
                raise ValueError(
                    f"b[{name!r}] has shape {np.shape(value)}; a matrix U_e^T W_e V_e in the "
                    f"frames of this reduction is ({size}, {size}), without time or batch axes."
                )
        flat = ModeStrengths.make(graph, modes, {**b, **dict.fromkeys(full, 0.0)})
        dtype = jnp.result_type(float)

        def matrix(name: str) -> Array:
            if name in full:
                return jnp.asarray(full[name], dtype)
            return jnp.diag(jnp.pad(flat[name], (0, size - modes)))

        return cls(
            graph,
            tuple(jnp.stack([matrix(name) for name in bundle.edges]) for bundle in graph.bundles),
        )

    def __repr__(self) -> str:
        stack = self.stacks[0]
        batch = f", batch {stack.shape[:-3]}" if stack.ndim > 3 else ""
        return f"MatrixStrengths({len(self)} edges x {stack.shape[-2:]}{batch})"


class ClassStrengths(EdgeArrays):
    """Strengths of edges that share one variable per class, looked up when an edge is asked for.

    - `x`: (..., class, mode). `classes`: names of the edges of each class.
    - `labels`: the class of each edge, in the order of the graph's bundles.
    """

    core: ClassVar[int] = 1
    classes: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    labels: tuple[int, ...] = eqx.field(static=True)

    @property
    def x(self) -> Array:
        """Strengths by class, (..., class, mode)."""
        return self.stacks[0]

    def __getitem__(self, name: str) -> Array:
        """The strengths of one edge, (..., mode)."""
        self.graph.edge(name)
        bundle, position = self.graph.slot[name]
        before = sum(len(other.edges) for other in self.graph.bundles[:bundle])
        return self.x[..., self.labels[before + position], :]

    def expanded(self) -> ModeStrengths:
        """The same strengths, held edge by edge."""
        bounds = np.cumsum([len(bundle.edges) for bundle in self.graph.bundles])[:-1]
        every = self.x[..., np.asarray(self.labels), :]
        return ModeStrengths(self.graph, tuple(jnp.split(every, bounds, axis=-2)))

    def __repr__(self) -> str:
        batch = f", batch {self.x.shape[:-2]}" if self.x.ndim > 2 else ""
        classes, modes = self.x.shape[-2:]
        return f"ClassStrengths({classes} classes of {len(self)} edges x {modes} modes{batch})"


def holds_matrices(b: Any) -> bool:
    """Whether strengths are given as matrices for some edge."""
    if isinstance(b, MatrixStrengths):
        return True
    is_mapping = isinstance(b, Mapping) and not isinstance(b, ModeStrengths | ClassStrengths)
    return is_mapping and any(_is_matrix(value) for value in b.values())


def _is_matrix(value: Any) -> bool:
    try:
        return np.ndim(value) >= 2
    except ValueError:  # rows of unequal length
        return False


class FrameView(ArrayMapping[tuple[Array, Array]]):
    """Read-only mapping edge -> (U_e, V_e)."""

    def __init__(self, graph: Graph, u: tuple[Array, ...], v: tuple[Array, ...]):
        self._graph, self._u, self._v = graph, u, v

    def __getitem__(self, name: str) -> tuple[Array, Array]:
        self._graph.edge(name)
        bundle, position = self._graph.slot[name]
        return self._u[bundle][position], self._v[bundle][position]

    def __iter__(self) -> Iterator[str]:
        return (edge.name for edge in self._graph.edges)

    def __len__(self) -> int:
        return len(self._graph.edges)


def _row(value: Any, modes: int, name: str) -> np.ndarray | Array:
    # NumPy where values are known: thousands of edges are stacked below.
    known = is_concrete(value)
    try:
        row = np.asarray(value) if known else jnp.asarray(value)
    except (TypeError, ValueError):
        row = np.asarray(None)
    if row.dtype.kind not in "biuf":
        raise ValueError(f"{name} is {value!r}; give one number, or one per mode: ({modes},).")
    if row.shape not in ((), (1,), (modes,)):
        raise ValueError(
            f"{name} has shape {row.shape}; give one number, or one per mode: ({modes},)."
        )
    row = row.astype(jnp.result_type(float))
    return np.broadcast_to(row, (modes,)) if known else jnp.broadcast_to(row, (modes,))


def _stack(rows: list[np.ndarray | Array]) -> Array:
    if all(isinstance(row, np.ndarray) for row in rows):
        return jnp.asarray(np.stack(rows))
    return jnp.stack(rows)
