"""Mode strengths b_e of every edge, numbers or matrices, and frames U_e, V_e as a mapping."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._checks import check_keys, is_concrete
from gdln_jax._data.arrays import ArrayMapping
from gdln_jax._graph import Graph
from gdln_jax._network.edges import EdgeArrays, Stacks, stacked


class ModeStrengths(EdgeArrays):
    """Mode strengths b_e of every edge; reads like a mapping edge -> (..., mode)."""

    core: ClassVar[int] = 1

    @classmethod
    def make(cls, graph: Graph, modes: int, b: Any, *, name: str = "b") -> "ModeStrengths":
        """Make strengths from one number, one per mode, or edge -> either.

        Messages call them `name`.

        Raises:
            ValueError: missing or unknown edges, a number of entries that is neither 1 nor the
                number of modes, or strengths of another graph; the message names the edge.
        """
        if isinstance(b, ClassStrengths):
            b = b.expanded()
        if isinstance(b, ModeStrengths):
            _check_fit(b, graph, (modes,))
            return b
        dtype = jnp.result_type(float)
        if not isinstance(b, Mapping):
            row = jnp.asarray(_row(b, modes, name, dtype))
            stores = (store for store in graph.stores if not store.frozen)
            return cls(graph, tuple(jnp.tile(row, (len(s.names), 1)) for s in stores))
        given = _by_parameter(graph, b, name)
        for edge in graph.trainable:
            if edge not in given:
                raise ValueError(
                    f"{name} lacks edge {edge!r}; give it a number or an array ({modes},)."
                )
        rows = {e: _row(given[e], modes, f"{name}[{e!r}]", dtype) for e in graph.trainable}
        return cls(graph, stacked(graph, rows))

    def masked(self, masks: tuple[Array, ...]) -> "ModeStrengths":
        """Return these strengths, with 0 where a mask (edge, mode) is."""
        return ModeStrengths(
            self.graph,
            tuple(
                x if is_concrete(mask) and np.asarray(mask).all() else x * mask
                for x, mask in zip(self.stacks, masks, strict=True)
            ),
        )

    def __repr__(self) -> str:
        stack = self.stacks[0]
        if not hasattr(stack, "ndim"):  # of jax.tree.map(np.shape, b)
            return f"ModeStrengths({self.stacks})"
        batch = f", batch {stack.shape[:-2]}" if stack.ndim > 2 else ""
        return f"ModeStrengths({len(self)} edges x {stack.shape[-1]} modes{batch})"


def _upright(graph: Graph, b: Mapping[str, Any]) -> dict[str, Any]:
    """Matrices by parameter: those of edges that use a transpose are turned back."""
    turned = {
        name: np.swapaxes(value, -1, -2)
        if name in graph.edge_index
        and name not in graph.parameters
        and graph.parameter_of[name][1]
        and _is_matrix(value)
        else value
        for name, value in b.items()
    }
    return _by_parameter(graph, turned)


def _by_parameter(graph: Graph, b: Mapping[str, object], what: str = "b") -> dict[str, object]:
    """Strengths keyed by parameter; an edge may stand for its class, if it says the same.

    Raises:
        ValueError: an unknown or a frozen one; two edges of a class that differ.
    """
    if not graph.tied:
        check_keys(b, graph.edge_index, what, "an edge of the graph")
        return dict(b)
    check_keys(b, {**graph.parameters, **graph.edge_index}, what, "an edge of the graph")
    given: dict[str, object] = {}
    for name, value in b.items():
        parameter = name if name in graph.parameters else graph.parameter_of[name][0]
        if parameter in graph.frozen:
            raise ValueError(f"{what} gives strengths to {name!r}, which is frozen: leave it out.")
        before = given.setdefault(parameter, value)
        if before is not value and not np.array_equal(np.asarray(before), np.asarray(value)):
            raise ValueError(
                f"{what} gives edges of the class {parameter!r} different strengths: give "
                f"{parameter!r} once."
            )
    return given


class MatrixStrengths(EdgeArrays):
    """Mode matrices U_e^T W_e V_e of every edge; a mapping edge -> (..., mode, mode)."""

    core: ClassVar[int] = 2

    @classmethod
    def make(cls, graph: Graph, size: int, modes: int, b: Any) -> "MatrixStrengths":
        """Make matrices (size, size) from edge -> matrix, or strengths for the diagonal.

        Raises:
            ValueError: as `ModeStrengths.make`.
        """
        if isinstance(b, MatrixStrengths):
            _check_fit(b, graph, (size, size))
            return b
        if graph.tied:
            b = _upright(graph, b)
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
            stacked(graph, {name: matrix(name) for name in graph.trainable}),
        )

    def __repr__(self) -> str:
        stack = self.stacks[0]
        if not hasattr(stack, "ndim"):
            return f"MatrixStrengths({self.stacks})"
        batch = f", batch {stack.shape[:-3]}" if stack.ndim > 3 else ""
        return f"MatrixStrengths({len(self)} edges x {stack.shape[-2:]}{batch})"


@dataclass(frozen=True)
class Sharing:
    """Which edges share a variable: an object of its own, since equinox lists the entries of tuples
    whenever a module that holds them is made.

    - `classes`: names of the edges of each class.
    - `labels`: the class of each parameter, in the order of the graph's stores (without ties, of
      each edge, by bundle).
    """

    classes: tuple[tuple[str, ...], ...]
    labels: tuple[int, ...]


class Shares:
    """What an object with `sharing` tells of it."""

    sharing: Sharing

    @property
    def classes(self) -> tuple[tuple[str, ...], ...]:
        """Names of the edges of each class."""
        return self.sharing.classes

    @property
    def labels(self) -> tuple[int, ...]:
        """The class of each parameter."""
        return self.sharing.labels


class ClassStrengths(Shares, EdgeArrays):
    """Strengths of edges that share one variable per class, looked up when an edge is asked for.

    `x`: (..., class, mode). `classes`, `labels`: see `Sharing`.
    """

    core: ClassVar[int] = 1
    sharing: Sharing = eqx.field(static=True)

    @property
    def x(self) -> Array:
        """Strengths by class, (..., class, mode)."""
        return self.stacks[0]

    def __getitem__(self, name: str) -> Array:
        """The strengths of one edge, (..., mode)."""
        self._home(name)  # refuses what has no strength
        parameter, _ = self.graph.parameter_of.get(name, (name, False))
        return self.x[..., self.labels[self.graph.moving.index(parameter)], :]

    def expanded(self) -> ModeStrengths:
        """The same strengths, held edge by edge."""
        return ModeStrengths.from_flat(self.graph, self.x[..., np.asarray(self.labels), :])

    def __repr__(self) -> str:
        if not hasattr(self.stacks[0], "ndim"):
            return f"ClassStrengths({self.stacks})"
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


_Strengths = TypeVar("_Strengths", bound=ModeStrengths | MatrixStrengths)


class FrameView(ArrayMapping[tuple[Array, Array]]):
    """Read-only mapping edge or trainable parameter -> (U, V), in the orientation of the name."""

    def __init__(self, graph: Graph, u: tuple[Array, ...], v: tuple[Array, ...]):
        self._u, self._v = EdgeArrays(graph, u), EdgeArrays(graph, v)

    def __getitem__(self, name: str) -> tuple[Array, Array]:
        u, v = (arrays.in_place(name) for arrays in (self._u, self._v))
        return (v, u) if self._u.turned(name) else (u, v)

    def __iter__(self) -> Iterator[str]:
        return iter(self._u)

    def __len__(self) -> int:
        return len(self._u)


# Rules of einsum between strengths and weights, by the number of axes of one edge's strengths;
# leading axes are kept.
_EMBED = {1: "etm,...em,esm->...ets", 2: "etm,...emn,esn->...ets"}
_READ = {1: "etm,...ets,esm->...em", 2: "etm,...ets,esn->...emn"}


def embedded(
    u: tuple[Array, ...], b: ModeStrengths | MatrixStrengths, v: tuple[Array, ...]
) -> Stacks:
    """Weights U_e diag(b_e) V_e^T or U_e b_e V_e^T, one stack per trainable store.

    Frames may have more columns than there are modes: the first ones are taken.
    """
    modes = b.stacks[0].shape[-1]
    return tuple(
        jnp.einsum(_EMBED[b.core], uk[..., :modes], x, vk[..., :modes])
        for uk, x, vk in zip(u, b.stacks, v, strict=True)
    )


def in_frames(
    kind: type[_Strengths],
    graph: Graph,
    u: tuple[Array, ...],
    weights: Stacks,
    v: tuple[Array, ...],
) -> _Strengths:
    """Strengths diag(U_e^T W_e V_e), or the whole matrices, of one stack of weights per store."""
    parts = zip(u, weights, v, strict=True)
    return kind(graph, tuple(jnp.einsum(_READ[kind.core], *part) for part in parts))


def _check_fit(b: EdgeArrays, graph: Graph, shape: tuple[int, ...]) -> None:
    """Raise `ValueError` unless `b` is one array of `shape` for each edge of `graph`."""
    if b.graph != graph:
        raise ValueError("b holds the strengths of another graph than the reduction's.")
    found = b.stacks[0].shape
    if found[-1] != shape[-1]:
        raise ValueError(f"b has {found[-1]} modes per edge, the reduction has {shape[-1]}.")
    batch = found[: len(found) - 1 - len(shape)]
    if batch:
        raise ValueError(
            f"b holds a batch or a run of shape {batch}; pass one of them, for example the "
            "last one: jax.tree.map(lambda x: x[-1], b)."
        )


def _row(value: Any, modes: int, name: str, dtype: np.dtype) -> np.ndarray | Array:
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
    row = row.astype(dtype)
    if row.shape == (modes,):
        return row
    return np.broadcast_to(row, (modes,)) if known else jnp.broadcast_to(row, (modes,))
