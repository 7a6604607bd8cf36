"""The weight matrices of a parameter tree: one row per edge, or class of tied ones, of each stack.

Rules act on trees with a `graph` and one stack per leaf: matrices (edge, |target|, |source|) of a
network or of a coupled reduction, or strengths (edge, mode), which stand for diag(b_e). A tree with
`classes` has one row per class of equal edges instead, and the gradient of one edge in it; norms
over edges count a class as often as it has edges.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from gdln_jax._graph import Graph, check_trainable
from gdln_jax._linalg import root

Tree = TypeVar("Tree")


class Rows(NamedTuple):
    """The rows of one stack: an edge for each, its full shape, and how many edges it stands for."""

    names: tuple[str, ...]
    shapes: Num[np.ndarray, "row 2"]
    counts: Num[np.ndarray, " row"]


class Part(eqx.Module):
    """Some rows of a tree, with stacks of their own: a tree that a rule acts on."""

    stacks: tuple[Array, ...]
    graph: Graph = eqx.field(static=True)
    names: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    counts: tuple[tuple[int, ...], ...] = eqx.field(static=True)


def rows(tree: Any) -> tuple[Rows, ...]:
    """Return the rows of each stack.

    Raises:
        ValueError: for a tree that is no network and no strengths, or a batch of them.
    """
    graph, stacks = getattr(tree, "graph", None), getattr(tree, "stacks", None)
    if not isinstance(graph, Graph) or not isinstance(stacks, tuple):
        raise ValueError(
            f"gdln.rules act on the weights of a GatedNetwork or on mode strengths, not on a "
            f"{type(tree).__name__}; use an optimiser of optax for it."
        )
    if any(np.ndim(stack) not in (2, 3) for stack in stacks):
        raise ValueError(
            f"the parameters have stacks of shapes {[np.shape(s) for s in stacks]}, a batch: map "
            "the training over it with jax.vmap."
        )
    if isinstance(tree, Part):
        return tuple(_rows(graph, *row) for row in zip(tree.names, tree.counts, strict=True))
    classes = getattr(tree, "classes", None)
    if classes is not None:
        return (_rows(graph, tuple(names[0] for names in classes), tuple(map(len, classes))),)
    stores = (store.names for store in graph.stores if not store.frozen)
    return tuple(_rows(graph, names, (1,) * len(names)) for names in stores)


def _rows(graph: Graph, names: tuple[str, ...], counts: tuple[int, ...]) -> Rows:
    return Rows(names, np.array([graph.parameters[name] for name in names]), np.array(counts))


def map_stacks(function: Callable[..., Array], tree: Tree, *others: Any) -> Tree:
    """Apply `function(stack, rows, *others)` to every stack."""
    leaves, structure = jax.tree.flatten(tree)
    rest = [jax.tree.leaves(other) for other in others]
    return structure.unflatten(
        [function(*group) for group in zip(leaves, rows(tree), *rest, strict=True)]
    )


def global_norm(tree: Any) -> Float[Array, ""]:
    """Root of the sum of squares over all edges."""
    total = [
        jnp.sum(jnp.square(stack) * beside(row.counts, stack))
        for stack, row in zip(jax.tree.leaves(tree), rows(tree), strict=True)
    ]
    return root(jnp.sum(jnp.stack(total)))


def beside(values: np.ndarray | Array, stack: Array) -> Array:
    """One value per row, in the shape and precision that multiplies a stack."""
    return jnp.asarray(values, stack.dtype).reshape(-1, *(1,) * (stack.ndim - 1))


def check_rates(tree: Any, learning_rate: Any) -> None:
    """Raise `ValueError` unless a mapping of rates has every edge and no other."""
    if not isinstance(learning_rate, Mapping):
        return
    graph = tree.graph
    check_trainable(graph, learning_rate, "learning_rate")
    for name in sum(tree.names, ()) if isinstance(tree, Part) else graph.trainable:
        if name not in learning_rate:
            raise ValueError(
                f"learning_rate lacks edge {name!r}; give it a number or a schedule of the step."
            )


def rate_of(learning_rate: Any, name: str) -> Any:
    """The rate of an edge: a number, or a schedule."""
    return learning_rate[name] if isinstance(learning_rate, Mapping) else learning_rate


def shape_factors(shapes: np.ndarray, shape_factor: float | str | None) -> np.ndarray:
    """Factor of each matrix (row,) from its full shape (row, 2) = (|target|, |source|)."""
    target, source = shapes.T
    if shape_factor is None:
        return np.ones(len(shapes))
    if shape_factor == "width":
        return np.sqrt(np.maximum(1.0, target / source))
    return shape_factor * np.sqrt(np.maximum(target, source))


def per_edge_columns(
    graph: Graph, names: Sequence[str], learning_rate: Any, shape_factor: Any
) -> np.ndarray:
    """Rate and shape factor of the edges `names`, (edge, 2).

    Schedules are numbered; two edges share a number when they have the same function.
    """
    rates = [rate_of(learning_rate, name) for name in names]
    if isinstance(learning_rate, Mapping):
        schedules = list({id(rate): rate for rate in rates if callable(rate)})
        numbers = [
            float(-1 - schedules.index(id(rate)) if callable(rate) else rate) for rate in rates
        ]
    else:
        numbers = [0.0] * len(rates)  # one for all, which may be traced
    shapes = np.array([graph.parameters[name] for name in names])
    return np.stack([np.array(numbers), shape_factors(shapes, shape_factor)], axis=1)
