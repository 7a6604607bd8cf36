"""What a reduction shows of itself: its modes by the names in the data, a table, a data set."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import dataset, variable_name
from gdln_jax._checks.html import panel, table
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._graph import Graph

if TYPE_CHECKING:
    import xarray as xr

_NAMED = 3  # names per mode and side
_MODES = 8  # modes that are printed
_SHARE = 0.4  # names whose entry is below this share of the largest are left out


@runtime_checkable
class Reduced(Protocol):
    """What is read of a `Reduction`."""

    graph: Graph
    source: GatedData | PackedData
    modes: int

    @property
    def strengths(self) -> Mapping[tuple[str, str], Array | np.ndarray]: ...

    @property
    def frames(self) -> Mapping[str, tuple[Array, Array]]: ...


def named_modes(reduction: Reduced) -> list[tuple[str, str]]:
    """For each mode the names of what it reads and of what it writes, the largest entries first.

    Reads: the examples in which it is strongest, or without their names the features of the
    inputs. A minus marks an entry of the other sign. Empty where the data have no names.
    """
    data, graph = reduction.source, reduction.graph
    if not isinstance(data, GatedData) or all(n == (None, None) for n in data.names.values()):
        return []
    reads: list[list[tuple[str, float]]] = [[] for _ in range(reduction.modes)]
    writes: list[list[tuple[str, float]]] = [[] for _ in range(reduction.modes)]
    for node, names in data.names.items():
        edges = graph.outgoing[node] if node in data.inputs else graph.incoming[node]
        u, v = (np.asarray(part) for part in reduction.frames[edges[0].name])
        vectors, texts = (v, names.features) if node in data.inputs else (u, names.features)
        if node in data.inputs and names.items is not None:
            vectors, texts = np.asarray(data.inputs[node]) @ v, names.items
        side = reads if node in data.inputs else writes
        if texts is not None:
            for k in range(reduction.modes):
                side[k] += zip(texts, vectors[:, k].tolist(), strict=True)
    return [_signed(*sides) for sides in zip(reads, writes, strict=True)]


def _signed(reads: list[tuple[str, float]], writes: list[tuple[str, float]]) -> tuple[str, str]:
    """Both sides as text, with the sign that makes the largest entry of the reading one positive.

    A mode is free up to the sign of both sides together.
    """
    first = _ranked(reads or writes)
    turn = -1.0 if first and first[0][1] < 0 else 1.0
    return _listed(reads, turn), _listed(writes, turn)


def _listed(entries: list[tuple[str, float]], turn: float) -> str:
    ranked = _ranked(entries)
    kept = [(name, turn * x) for name, x in ranked if abs(x) > _SHARE * abs(ranked[0][1])]
    shown = [f"{'-' if x < 0 else ''}{name}" for name, x in kept[:_NAMED]]
    return ", ".join(shown) + (", ..." if len(kept) > _NAMED else "")


def _ranked(entries: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The largest first; those that differ by rounding only keep their order."""
    largest = max((abs(x) for _, x in entries), default=0.0) or 1.0
    return sorted(entries, key=lambda entry: -round(abs(entry[1]) / largest, 6))


def printed(reduction: Reduced) -> str:
    """The named modes as lines of text; empty without names."""
    lines = [
        f"\n  mode {k + 1}: {reads or '?'} -> {writes or '?'}"
        for k, (reads, writes) in enumerate(named_modes(reduction)[:_MODES])
    ]
    more = f"\n  ... ({reduction.modes} modes)" if lines and reduction.modes > _MODES else ""
    return "".join(lines) + more


def as_html(reduction: Reduced, title: str) -> str:
    """A table of modes: S per group of paths, and their names where the data have some."""
    names = named_modes(reduction)
    groups = list(reduction.strengths)[:4]
    header = ["mode", *(f"S, {start} to {end}" for start, end in groups)]
    header += ["strongest in", "writes"] if names else []
    rows = [
        [
            k + 1,
            *(f"{reduction.strengths[group][k]:.4g}" for group in groups),
            *(names[k] if names else ()),
        ]
        for k in range(reduction.modes)
    ]
    return panel(title, table(header, rows))


def as_dataset(reduction: Reduced) -> "xr.Dataset":
    """Statistics and the frames of input and output nodes, with the names of their units."""
    graph, data = reduction.graph, reduction.source
    shown = dataset(reduction)
    for edge in graph.edges:
        u, v = reduction.frames[edge.name]
        if edge.source in graph.inputs:
            shown = _with_frame(shown, f"V[{edge.name}]", edge.source, v, data)
        if edge.target in graph.outputs:
            shown = _with_frame(shown, f"U[{edge.name}]", edge.target, u, data)
    return shown


def _with_frame(
    shown: "xr.Dataset",
    name: str,
    node: str,
    frame: Float[Array, "unit column"],
    data: GatedData | PackedData,
) -> "xr.Dataset":
    unit = variable_name(f"unit of {node}")
    column = "mode" if frame.shape[-1] == shown.sizes["mode"] else "column"
    shown = shown.assign({variable_name(name): ((unit, column), np.asarray(frame))})
    features = data.names[node].features if isinstance(data, GatedData) else None
    return shown if features is None else shown.assign_coords({unit: list(features)})
