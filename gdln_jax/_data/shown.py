"""Data as notebooks show them: arrays with shapes and names, gates with their patterns."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array

from gdln_jax._checks import is_concrete, listed
from gdln_jax._checks.html import panel, table
from gdln_jax._data.names import UNNAMED, Names
from gdln_jax._data.patterns import Patterns

_NAMES = 4
_PATTERNS = 8


@runtime_checkable
class Gated(Protocol):
    """What is shown of `GatedData`."""

    inputs: dict[str, Array]
    targets: dict[str, Array]
    node_gates: dict[str, Array]
    edge_gates: dict[str, Array]
    weights: Array

    @property
    def names(self) -> dict[str, Names]: ...
    def patterns(self) -> Patterns:
        """The distinct gate vectors."""
        ...


def as_html(data: Gated, title: str) -> str:
    """Tables of arrays and of gate patterns; of traced or stacked data the arrays only."""
    rows = [
        (kind, node, tuple(array.shape), _shown(names.features), _shown(names.items))
        for kind, arrays in (("inputs", data.inputs), ("targets", data.targets))
        for node, array in arrays.items()
        for names in (data.names[node],)
    ]
    columns = 5 if any(name != UNNAMED for name in data.names.values()) else 3
    header = ("", "node", "shape", "features", "examples")
    arrays = table(header[:columns], [row[:columns] for row in rows])
    gated = data.node_gates or data.edge_gates
    if not gated or data.weights.ndim != 1 or not is_concrete((data.node_gates, data.edge_gates)):
        return panel(title, arrays)
    return panel(title, arrays, _gates(data.patterns()))


def _gates(patterns: Patterns) -> str:
    counts = np.bincount(patterns.index, minlength=patterns.count)
    columns = range(min(patterns.count, _PATTERNS))
    more = ["..."] if patterns.count > _PATTERNS else []
    header = ["gate", *(f"pattern {k}" for k in columns), *more]
    rows = [["examples", *(counts[k] for k in columns), *more]]
    for gates in (patterns.node_gates, patterns.edge_gates):
        rows += [[name, *_values(gates, name, columns), *more] for name in gates]
    return table(header, rows)


def _values(gates: Mapping[str, np.ndarray], name: str, columns: range) -> list[str]:
    return [f"{gates[name][k]:g}" for k in columns]


def _shown(names: tuple[str, ...] | None) -> str:
    return "" if names is None else listed(names, _NAMES).replace("'", "")
