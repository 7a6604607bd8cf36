"""A picture of a user's architecture, from a small TOML file or from Python (`gdln draw`).

TOML: `edges` is a list of `["source", "target"]` or `["source", "target", "name"]`, `[nodes]` maps
names to widths. May follow: `paths` (lists of edge names to highlight), `[gates]` (node or edge to
number; those that are 0 are drawn as closed), `[labels]` (node to text), `horizontal`, `strengths`
(a list of numbers: of the modes that `gdln explore` teaches). A Python
file defines `graph`, a `Graph`, and the same optional names.
"""

import itertools
import math
import re
import runpy
import tomllib
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import Graph, plot
from gdln_jax._checks import listed, suggest
from gdln_jax._files import written_whole
from gdln_jax.recipes import OptionError

FORMATS = ("png", "svg", "pdf")
# Every picture names its maker, and nothing that differs from one drawing to the next.
_MAKER = "gdln_jax"
_METADATA = {
    "png": {"Software": _MAKER},
    "svg": {"Creator": _MAKER, "Date": None},
    "pdf": {"Creator": _MAKER, "CreationDate": None},
}
_OPTIONAL = ("paths", "gates", "labels", "horizontal", "strengths")


@dataclass(frozen=True)
class Drawing:
    """What is drawn: the graph, the pathways to highlight, the gates that are closed, texts; and
    the strengths of modes, for `gdln explore`.
    """

    graph: Graph
    paths: Sequence[Sequence[str]] = ()
    gates: Mapping[str, float | int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    horizontal: bool = True
    strengths: Sequence[float | int] = ()


def read_drawing(file: Path) -> Drawing:
    """Read the specification in `file`, whose ending says whether it is TOML or Python.

    Raises:
        OptionError: names the file, the entry at fault, and its line.
    """
    if file.suffix not in (".toml", ".py"):
        raise OptionError(f"{file}: a specification ends in .toml or .py")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{file} cannot be read: {error}") from error
    try:
        if file.suffix == ".py":
            return _checked(_python(file))
        return _checked(_toml(text))
    except _RefusalError as refusal:
        line = refusal.line or _line_of(text, refusal)
        where = f"{file}, line {line}" if line else str(file)
        raise OptionError(f"{where}: {refusal}") from refusal


def draw(drawing: Drawing, out: Path) -> Path:
    """Write the picture to `out`, whole or not at all; its ending is one of `FORMATS`, and its
    folder is made if need be.
    """
    graph = drawing.graph
    levels = max(graph.level.values()) + 1
    # Inches: labels stand beside nodes, so that levels need more space if they are columns.
    step = 1.5 if drawing.horizontal else 1.0
    crowd = max(list(graph.level.values()).count(level) for level in range(levels))
    long, across = step * levels + 0.5, min(max(0.45 * crowd, 2.0), 4.5)
    with plot.style():
        figure = plot.figure(*((long, across) if drawing.horizontal else (across, long)))
        ax = plot.architecture(
            figure.add_subplot(),
            graph,
            paths=drawing.paths,
            closed=[name for name, gate in drawing.gates.items() if gate == 0],
            labels={name: drawing.labels.get(name, name) for name in graph.nodes},
            horizontal=drawing.horizontal,
        )
        _widen_for_bends(figure, ax, 1 if drawing.horizontal else 0)
        kind = check_format(out)
        with written_whole(out) as (beside,):
            figure.savefig(beside, format=kind, dpi=200, metadata=_METADATA[kind])
    return out


def is_foreign(picture: Path) -> bool:
    """Whether a PNG is there that this module did not write."""
    try:
        return f"Software\0{_MAKER}".encode() not in picture.read_bytes()[:1000]
    except FileNotFoundError:
        return False


def _widen_for_bends(figure: Figure, ax: Axes, axis: int) -> None:
    """Widen picture and axes along `axis`, at the same scale: edges that skip levels bend out."""
    figure.draw_without_rendering()
    size = figure.bbox.size[axis]
    bends = [
        arrow.get_window_extent()
        for text in ax.texts
        if (arrow := getattr(text, "arrow_patch", None)) is not None
    ]
    over = max((max(-b.min[axis], b.max[axis] - size) for b in bends), default=0.0)
    if over <= 0:
        return
    factor = 1 + 2 * over / size + 0.04
    sizes = [float(inches) for inches in figure.get_size_inches()]
    sizes[axis] *= factor
    figure.set_size_inches((sizes[0], sizes[1]))
    limits = (ax.get_xlim(), ax.get_ylim())[axis]
    (ax.set_xlim, ax.set_ylim)[axis](limits[0] * factor, limits[1] * factor)


def check_format(out: Path) -> str:
    """The format that the ending of `out` names, or an `OptionError`."""
    kind = out.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise OptionError(f"--out {out}: the ending must be one of .{', .'.join(FORMATS)}")
    return kind


class _RefusalError(ValueError):
    """A specification that cannot be drawn, with the words at fault, which follow one another.

    They are the words of one edge, brackets included, if `edge` is true.
    """

    def __init__(self, message: str, *words: object, edge: bool = False, line: int = 0):
        super().__init__(message)
        between = r"""["']?\s*,\s*["']?"""
        pattern = between.join(re.escape(str(word)) for word in words)
        if edge:
            pattern = rf"""\[\s*["']?{pattern}["']?\s*\]"""
        self.pattern = rf"(?<![\w>-]){pattern}(?![\w>-])" if words else ""
        self.line = line


def _line_of(text: str, refusal: _RefusalError) -> int:
    """The line where the words at fault stand last, or 0; comments do not count."""
    bare = "\n".join(line.split("#")[0] for line in text.splitlines())
    found = list(re.finditer(refusal.pattern, bare)) if refusal.pattern else []
    return bare.count("\n", 0, found[-1].start()) + 1 if found else 0


def _toml(text: str) -> dict[str, Any]:
    try:
        spec = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        raise _RefusalError(str(error), line=int(found[1]) if found else 0) from error
    known = ("nodes", "edges", "shared", "frozen", *_OPTIONAL)
    for key in spec:
        if key not in known:
            raise _RefusalError(f"{key!r} is not known{suggest(key, known)}: {listed(known)}", key)
    for key in ("nodes", "edges"):
        if key not in spec:
            hint = " (keys after a [table] belong to that table: put edges above)"
            raise _RefusalError(f"there is no {key!r}{hint if key == 'edges' else ''}")
    _check_edges(spec["edges"])
    nodes = spec.pop("nodes")
    if not isinstance(nodes, dict):
        raise _RefusalError("nodes must be a table from name to width", "nodes")
    ties = {key: spec.pop(key) for key in ("shared", "frozen") if key in spec}
    return {**_graph(nodes, spec.pop("edges"), ties), **spec}


def _check_edges(edges: object) -> None:
    """What `Graph` would refuse anyway, here with the words of the edge at fault."""
    if not isinstance(edges, list):
        raise _RefusalError('edges must be a list of ["source", "target"]', "edges")
    for number, edge in enumerate(edges, 1):
        good = isinstance(edge, list) and len(edge) in (2, 3)
        if not good or not all(isinstance(word, str) for word in edge):
            words = edge if isinstance(edge, list) else [edge]
            raise _RefusalError(
                f'edge {number}, {edge!r}, must be ["source", "target"] or '
                '["source", "target", "name"]',
                *words,
                edge=isinstance(edge, list),
            )


def _graph(nodes: dict[str, Any], edges: list[list[str]], ties: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"graph": Graph(nodes, [tuple(edge) for edge in edges], **ties)}  # type: ignore[misc]
    except ValueError as error:
        message = str(error)
        if message.startswith(("shared", "frozen", "the class name")):
            raise _RefusalError(
                message, "frozen" if "frozen" in message[:6] else "shared"
            ) from error
        # The last one: of two edges of one name it is the second that is one too many.
        for edge in reversed(edges):
            name = edge[2] if len(edge) == 3 else f"{edge[0]}->{edge[1]}"
            if f"{name!r}" in message or f"{edge[0]} -> {edge[1]}" in message:
                raise _RefusalError(message, *edge, edge=True) from error
        named = [name for name in nodes if f"{name!r}" in message]
        raise _RefusalError(message, *named[:1]) from error


def _python(file: Path) -> dict[str, Any]:
    try:
        scope = runpy.run_path(str(file))
    except (Exception, SystemExit) as error:
        lines = [
            at.lineno
            for at in traceback.extract_tb(error.__traceback__)
            if at.filename == str(file)
        ]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [0])[-1]
        raise _RefusalError(f"{type(error).__name__}: {error}", line=line or 0) from error
    if not isinstance(scope.get("graph"), Graph):
        raise _RefusalError("it defines no `graph = gdln_jax.Graph(...)`", "graph")
    return {key: scope[key] for key in ("graph", *_OPTIONAL) if key in scope}


def _checked(spec: dict[str, Any]) -> Drawing:
    graph: Graph = spec["graph"]
    _check_paths(graph, spec.get("paths", []))
    _check_gates(graph, spec.get("gates", {}))
    labels = spec.get("labels", {})
    if not isinstance(labels, Mapping):
        raise _RefusalError("labels must be a table from node to text", "labels")
    _check_known(labels, list(graph.nodes), "labels", "a node")
    for name, label in labels.items():
        if not isinstance(label, str):
            raise _RefusalError(f"labels: {name!r} must be a text, got {label!r}", name)
        _check_text(label, f"labels: {name!r}", name)
    for name in graph.nodes:
        if name not in labels:
            _check_text(name, "a node's name", name)
    if not isinstance(spec.get("horizontal", True), bool):
        raise _RefusalError("horizontal must be true or false", "horizontal")
    strengths = spec.get("strengths", ())
    if not isinstance(strengths, list | tuple) or not all(
        isinstance(s, int | float) and not isinstance(s, bool) and 0 < s < math.inf
        for s in strengths
    ):
        raise _RefusalError("strengths must be a list of numbers above 0, [1, 0.6]", "strengths")
    return Drawing(**spec)


def _check_text(text: str, what: str, word: str) -> None:
    try:
        plot.check_text(text, what)
    except ValueError as error:
        raise _RefusalError(str(error), word) from error


def _check_paths(graph: Graph, paths: object) -> None:
    if not isinstance(paths, list | tuple) or not all(isinstance(p, list | tuple) for p in paths):
        raise _RefusalError('paths must be lists of edge names, [["x->h", "h->y"]]', "paths")
    for path in paths:
        _check_known(path, list(graph.edge_index), "paths", "an edge")
        for first, second in itertools.pairwise(path):
            if graph.edge(first).target != graph.edge(second).source:
                raise _RefusalError(
                    f"paths: edge {second!r} does not start where {first!r} ends", first, second
                )


def _check_gates(graph: Graph, gates: object) -> None:
    if not isinstance(gates, Mapping):
        raise _RefusalError("gates must be a table from node or edge to number", "gates")
    _check_known(gates, [*graph.nodes, *graph.edge_index], "gates", "a node or an edge")
    for name, gate in gates.items():
        if isinstance(gate, bool) or not isinstance(gate, int | float):
            raise _RefusalError(f"gates: {name!r} must be a number, got {gate!r}", name)
        if name in graph.inputs:  # E2
            raise _RefusalError(
                f"gates: {name!r} is an input node, which has no gate; gate its edges", name
            )


def _check_known(names: Iterable[object], known: list[str], key: str, kind: str) -> None:
    for name in names:
        if name not in known:
            raise _RefusalError(
                f"{key}: {name!r} is not {kind}{suggest(str(name), known)}; {listed(known)}", name
            )
