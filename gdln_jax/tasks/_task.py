"""A task: an architecture and gated data that fit each other."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from gdln_jax._checks import Instead
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph


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

    def __repr__(self) -> str:
        return f"Task({self.name!r}, {self.graph!r}, {self.data!r}, meta: {', '.join(self.meta)})"
