"""A task: an architecture and gated data that fit each other; what several families share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import Instead
from gdln_jax._checks.html import panel
from gdln_jax._checks.types import PRNGKeyArray
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.boundary import check_random_key
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import Block, PackedData
from gdln_jax._data.packing import pack_blocks
from gdln_jax._graph import Graph

# Above this size the dense arrays of a task are refused in favour of compact=True.
_DENSE_BYTES = 2 * 2**30

Meta = dict[str, Any]


class Task(SeveralArrays, eqx.Module):
    """A graph with gated data for it, ready for every function that takes both.

    Attributes:
        graph, data: the architecture and the examples.
        name: what it is.
        meta: facts about it that are not in the arrays (plain Python values and arrays, in
            `noise.draw` also a function); each task's docstring lists them.
    """

    _instead = Instead(
        model="make a model for its .graph, by gdln.GatedNetwork.init(task.graph, "
        "gdln.init.orthogonal(0.1), key=jax.random.key(0)), and pass its .data second",
        data="pass its .data",
    )

    graph: Graph = eqx.field(static=True)
    data: GatedData | PackedData
    name: str = eqx.field(static=True)
    meta: Mapping[str, Any]

    def __check_init__(self) -> None:
        if isinstance(self.data, GatedData):
            self.data.validate(self.graph)

    def _repr_html_(self) -> str:
        meta = f"{self.name}, meta: {', '.join(self.meta)}"
        data = self.data
        shown = panel(repr(data)) if isinstance(data, PackedData) else data._repr_html_()
        return panel(meta, self.graph._repr_html_(), shown)

    def __repr__(self) -> str:
        return f"Task({self.name!r}, {self.graph!r}, {self.data!r}, meta: {', '.join(self.meta)})"


def random_key(key: PRNGKeyArray | None, what: str) -> PRNGKeyArray:
    """Return `key`; raise `ValueError` if there is none for `what` is random, or if it is none."""
    if key is None:
        raise ValueError(f"{what} random: pass key=jax.random.key(seed).")
    check_random_key(key)
    return key


def parallel_graph(inputs: int, hidden: Sequence[str], width: int, outputs: int) -> Graph:
    """Return a graph in which all hidden nodes lie between `x` and `y`."""
    nodes = {"x": inputs, **dict.fromkeys(hidden, width), "y": outputs}
    return Graph(nodes, [*(("x", h) for h in hidden), *((h, "y") for h in hidden)])


def check_dense_size(size: int) -> None:
    """Raise `ValueError` for dense arrays of too many bytes."""
    if size > _DENSE_BYTES:
        raise ValueError(
            f"the dense arrays of this task would take {size / 2**30:.1f} GiB; pass "
            "compact=True (for networks and reductions) or compress the base data first."
        )


def packed_routes(
    graph: Graph,
    routes: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    edges: Callable[[int, int], Sequence[str]],
) -> PackedData:
    """Pack all base examples (x, y) for each route (i, j), from `x{i}` to `y{j}`.

    `edges(i, j)`: names of the edges that are on for the route.
    """
    n, count = len(x), len(routes)
    dtype = np.dtype(jnp.result_type(float))
    x, y = x.astype(dtype), y.astype(dtype)
    weights = np.full(n, 1 / (n * count), dtype)
    blocks = [
        Block(
            {f"x{i}": x},
            {f"y{j}": y},
            dict.fromkeys(edges(i, j), 1.0),
            weights,
            np.arange(r * n, (r + 1) * n),
        )
        for r, (i, j) in enumerate(routes.tolist())
    ]
    return pack_blocks(graph, blocks, count * n, dtype)
