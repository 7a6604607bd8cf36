"""One mapping edge -> array, cut out of the stacks of a network."""

from collections.abc import Iterator

import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax._data.arrays import ArrayMapping
from gdln_jax._graph import Graph

Stacks = tuple[Float[Array, "... _ _ _"], ...]


class EdgeView(ArrayMapping[Array]):
    """Read-only mapping edge name -> weights, cut out of the stacks when asked for."""

    def __init__(self, graph: Graph, stacks: tuple[Array, ...], core: int = 2):
        self.graph, self._stacks, self.core = graph, stacks, core

    def __getitem__(self, name: str) -> Array:
        self.graph.edge(name)
        bundle, position = self.graph.slot[name]
        stack = self._stacks[bundle]
        if not hasattr(stack, "ndim"):
            raise ValueError(
                f"the weights of {name!r} are cut out of a stack of several edges, so eqx.tree_at "
                "cannot put others in their place: use network.with_weights({name: array})."
            )
        return jnp.take(stack, position, axis=stack.ndim - self.core - 1)

    def __iter__(self) -> Iterator[str]:
        return (edge.name for edge in self.graph.edges)

    def __len__(self) -> int:
        return len(self.graph.edges)

    def __repr__(self) -> str:
        shapes = (f"{name!r}: {self[name].shape}" for name in list(self)[:8])
        return "{" + ", ".join(shapes) + (", ...}" if len(self) > 8 else "}")
