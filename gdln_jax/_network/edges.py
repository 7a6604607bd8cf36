"""One mapping edge -> array, whose arrays are stored as one stack per bundle of edges."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from gdln_jax._checks import Instead, check_keys, check_positive_if_known, is_concrete
from gdln_jax._data.arrays import ArrayMapping
from gdln_jax._graph import Graph

Stacks = tuple[Float[Array, "... _ _ _"], ...]
_Array = TypeVar("_Array", Array, np.ndarray)
_Own = TypeVar("_Own", bound="EdgeArrays")


class EdgeArrays(ArrayMapping[Array], eqx.Module):
    """One array per edge: a mapping edge -> array with any leading axes, and a pytree.

    Its leaves are `stacks`, one (..., edge, *shape) per bundle of the graph, so that neither trace
    nor compile time grows with the number of edges. `core` is the number of axes in `shape`.
    """

    graph: Graph = eqx.field(static=True)
    stacks: tuple[Array, ...]
    core: ClassVar[int] = 2

    @classmethod
    def from_flat(  # noqa: PYI019  the run-time checker refuses Self
        cls: type[_Own], graph: Graph, values: Array | np.ndarray
    ) -> _Own:
        """Make the mapping from one array (..., edge, *shape), edges in the order of bundles."""
        return cls(graph, by_bundle(graph, jnp.asarray(values), cls.core))

    def flat(self) -> Array:
        """Return one array (..., edge, *shape), edges in the order of bundles."""
        return jnp.concatenate(self.stacks, axis=-1 - self.core)

    def __getitem__(self, name: str) -> Array:
        """Return the array of one edge (..., *shape)."""
        self.graph.edge(name)
        bundle, position = self.graph.slot[name]
        stack = self.stacks[bundle]
        if not isinstance(stack, jax.Array | np.ndarray):
            raise ValueError(
                f"the array of {name!r} is cut out of a stack of several edges, so eqx.tree_at "
                "cannot put another in its place; of a network use network.with_weights({name: "
                "array})."
            )
        return jnp.take(stack, position, axis=stack.ndim - self.core - 1)

    def __contains__(self, name: object) -> bool:
        """Whether the graph has an edge of this name."""
        return name in self.graph.edge_index

    def __iter__(self) -> Iterator[str]:
        """Names of the edges, in the order of the graph."""
        return iter(self.graph.edge_index)

    def __len__(self) -> int:
        """Number of edges."""
        return len(self.graph.edges)

    def __repr__(self) -> str:
        shapes = (f"{name!r}: {self[name].shape}" for name in list(self)[:8])
        return "{" + ", ".join(shapes) + (", ...}" if len(self) > 8 else "}")


class EdgeWeights(EdgeArrays):
    """The weights (..., |target|, |source|) of a network by edge or parameter."""

    _instead = Instead(model="pass the network itself, not its .weights")


def per_edge(
    graph: Graph, values: Mapping[str, ArrayLike], name: str, core: int
) -> tuple[Array, ...]:
    """Return one array (edge, 1, ...) per bundle, with `core` axes of length 1, of numbers by edge.

    Raises:
        ValueError: an unknown or missing edge; a number that is not finite and above 0.
    """
    check_keys(values, graph.edge_index, name, "an edge of the graph")
    for edge in graph.edge_index:
        if edge not in values:
            raise ValueError(f"{name} lacks edge {edge!r}; give every edge a number above 0.")
        check_positive_if_known(**{f"{name}[{edge!r}]": values[edge]})
    known = is_concrete(values)  # in NumPy then: there may be thousands of edges

    def column(value: ArrayLike) -> Array | np.ndarray:
        array = np.asarray(value, float) if known else jnp.asarray(value, float)
        return array.reshape((1,) * core)

    return stacked(graph, {edge: column(value) for edge, value in values.items()})


def by_bundle(graph: Graph, values: _Array, core: int) -> tuple[_Array, ...]:
    """Split an array (..., edge, *shape), `core` axes in shape, edges in the order of bundles."""
    ends = np.cumsum([len(bundle.edges) for bundle in graph.bundles]).tolist()
    rest = (slice(None),) * core
    return tuple(
        values[..., slice(start, end), *rest] for start, end in zip([0, *ends], ends, strict=False)
    )


def stacked(graph: Graph, arrays: Mapping[str, Array | np.ndarray]) -> tuple[Array, ...]:
    """Stack the arrays of the edges of each bundle, in NumPy where all of them are known."""
    groups = [[arrays[name] for name in bundle.edges] for bundle in graph.bundles]
    known = all(isinstance(array, np.ndarray) for array in arrays.values())
    return tuple(jnp.asarray(np.stack(g)) if known else jnp.stack(g) for g in groups)
