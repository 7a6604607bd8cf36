"""Mappings edge or parameter -> array, whose arrays are stored as one stack per store of the graph.

Without ties there is one store per bundle of edges. With ties (`Graph(shared=, frozen=)`) a store
holds the parameters that are at home in a bundle, and an edge reads its parameter.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import (
    Instead,
    check_positive_if_known,
    is_concrete,
    listed,
    suggest,
)
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.arrays import ArrayMapping
from gdln_jax._graph import Graph, Home, check_trainable

Stacks = tuple[Float[Array, "... _ _ _"], ...]
_Array = TypeVar("_Array", Array, np.ndarray)
_Own = TypeVar("_Own", bound="EdgeArrays")


class EdgeArrays(ArrayMapping[Array], eqx.Module):
    """One array per trainable parameter, with any leading axes: a mapping, and a pytree.

    Its leaves are `stacks`, one (..., parameter, *shape) per trainable store of the graph, so that
    neither trace nor compile time grows with the number of edges. `core` is the number of axes in
    `shape`. Reads by parameter; an edge that is none reads the array of its class, transposed where
    it uses the transpose.
    """

    graph: Graph = eqx.field(static=True)
    stacks: tuple[Array, ...]
    core: ClassVar[int] = 2

    @classmethod
    def from_flat(  # noqa: PYI019  the run-time checker refuses Self
        cls: type[_Own], graph: Graph, values: Array | np.ndarray
    ) -> _Own:
        """Make the mapping from one array (..., parameter, *shape), in the order of stores."""
        if isinstance(values, np.ndarray):  # cut in NumPy: in JAX every cut is a program
            return cls(graph, jax.device_put(by_store(graph, values, cls.core)))
        return cls(graph, by_store(graph, values, cls.core))

    def flat(self) -> Array:
        """Return one array (..., parameter, *shape), in the order of stores."""
        return jnp.concatenate(self.stacks, axis=-1 - self.core)

    def _names(self) -> Sequence[str] | Mapping[str, object]:
        return self.graph.trainable

    def _home(self, name: str) -> Home:
        graph = self.graph
        if name not in graph.parameters:
            graph.edge(name)
        home = graph.place[name] if name in graph.parameters else graph.home[name]
        if graph.stores[home.store].frozen:
            raise KeyError(
                f"{name!r} is frozen: it has no strength and no frames here. Its matrix is that of "
                f"the network, reduction.embed(b).weights[{name!r}]."
            )
        return home

    def __getitem__(self, name: str) -> Array:
        """Return the array of one edge or parameter (..., *shape)."""
        array = self.in_place(name)
        return jnp.swapaxes(array, -1, -2) if self.core == 2 and self.turned(name) else array

    def turned(self, name: str) -> bool:
        """Whether an edge uses the transpose of its array."""
        return self._home(name).transposed

    def in_place(self, name: str) -> Array:
        """Return the array as it is stored."""
        home = self._home(name)
        stack = self.stacks[home.store]
        if not isinstance(stack, jax.Array | np.ndarray):
            raise ValueError(
                f"the array of {name!r} is cut out of a stack of several edges, so eqx.tree_at "
                "cannot put another in its place; of a network use network.with_weights({name: "
                "array})."
            )
        return jnp.take(stack, home.position, axis=stack.ndim - self.core - 1)

    def __contains__(self, name: object) -> bool:
        """Whether there is an array of this name."""
        try:
            self._home(name)  # type: ignore[arg-type]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        """Names, in the order of the graph."""
        return iter(self._names())

    def __len__(self) -> int:
        """Number of arrays."""
        return len(self._names())

    def __repr__(self) -> str:
        shapes = (f"{name!r}: {self[name].shape}" for name in list(self)[:8])
        return "{" + ", ".join(shapes) + (", ...}" if len(self) > 8 else "}")


class EdgeWeights(EdgeArrays):
    """The weights (..., |target|, |source|) of a network by edge.

    `stacks` are those of all stores, frozen ones last.
    """

    _instead = Instead(model="pass the network itself, not its .weights")

    def _names(self) -> Mapping[str, object]:
        return self.graph.edge_index

    def _home(self, name: str) -> Home:
        return self.graph.home[self.graph.edge(name).name]


class ParameterArrays(EdgeWeights):
    """The arrays of a network by parameter: each class of tied edges once, frozen ones too."""

    _instead = Instead(model="pass the network itself, not its .parameters")

    def _names(self) -> Mapping[str, object]:
        return self.graph.parameters

    def _home(self, name: str) -> Home:
        if name not in self.graph.place:
            known = self.graph.parameters
            raise KeyError(
                f"no parameter is called {name!r}{suggest(name, known)}; parameters: "
                f"{listed(known)}"
            )
        return self.graph.place[name]


def per_parameter(
    graph: Graph, values: Mapping[str, ArrayLike], name: str, core: int
) -> tuple[Array, ...]:
    """Return one array (parameter, 1, ...) per trainable store, with `core` axes of length 1.

    Raises:
        ValueError: an unknown or missing parameter; a number that is not finite and above 0.
    """
    check_trainable(graph, values, name)
    for edge in graph.trainable:
        if edge not in values:
            raise ValueError(f"{name} lacks edge {edge!r}; give every edge a number above 0.")
        check_positive_if_known(**{f"{name}[{edge!r}]": values[edge]})
    known = is_concrete(values)  # in NumPy then: there may be thousands of edges

    def column(value: ArrayLike) -> Array | np.ndarray:
        array = np.asarray(value, float) if known else jnp.asarray(value, float)
        return array.reshape((1,) * core)

    return stacked(graph, {edge: column(value) for edge, value in values.items()})


def check_untied(graph: Graph, what: str, remedy: str) -> None:
    """Raise `ValueError` for a graph with tied or frozen edges, for which `what` is not derived."""
    if graph.tied:
        raise ValueError(f"{what} is not derived for tied or frozen edges ({graph!r}): {remedy}.")


def by_store(graph: Graph, values: _Array, core: int) -> tuple[_Array, ...]:
    """Split an array (..., parameter, *shape), `core` axes in shape, in the order of stores."""
    ends = np.cumsum([len(s.names) for s in graph.stores if not s.frozen]).tolist()
    rest = (slice(None),) * core
    return tuple(
        values[..., slice(start, end), *rest] for start, end in zip([0, *ends], ends, strict=False)
    )


def stacked(graph: Graph, arrays: Mapping[str, Array | np.ndarray]) -> tuple[Array, ...]:
    """Stack the arrays of the parameters of each store, in NumPy where all of them are known.

    Frozen stores are left out where `arrays` lacks them.
    """
    stores = [store for store in graph.stores if not store.frozen or store.names[0] in arrays]
    groups = [[arrays[name] for name in store.names] for store in stores]
    known = all(isinstance(array, np.ndarray) for array in arrays.values())
    return tuple(jax.device_put(np.stack(g)) if known else jnp.stack(g) for g in groups)


def matrices(graph: Graph, stores: Sequence[Array], k: int) -> Array:
    """The matrices (..., edge, |target|, |source|) of bundle k, from the stacks of all stores.

    Without ties this is a stack as it is. A bundle whose edges do not all lie in order in one store
    costs one gather for each store and orientation.
    """
    return _gathered(graph, stores, graph.bundles[k].edges) if graph.tied else stores[k]


def _gathered(graph: Graph, stores: Sequence[Array], edges: tuple[str, ...]) -> Array:
    homes = [graph.home[edge] for edge in edges]
    groups: dict[tuple[int, bool], list[int]] = {}
    for i, home in enumerate(homes):
        groups.setdefault((home.store, home.transposed), []).append(i)
    parts = []
    for (store, transposed), members in groups.items():
        part, positions = stores[store], [homes[i].position for i in members]
        if positions != list(range(part.shape[-3])):
            part = jnp.take(part, np.array(positions), axis=part.ndim - 3)
        parts.append(jnp.swapaxes(part, -1, -2) if transposed else part)
    if len(parts) == 1:
        return parts[0]
    order = np.argsort([i for members in groups.values() for i in members])
    joined = jnp.concatenate(parts, axis=-3)
    return jnp.take(joined, order, axis=joined.ndim - 3)
