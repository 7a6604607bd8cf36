"""`gdln explore`: a page that integrates reduced dynamics in the browser while one drags."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gdln_jax import _machine
from gdln_jax._checks import suggest
from gdln_jax._cli import console
from gdln_jax._files import UnwritableError, expanded, refuse_foreign, writable
from gdln_jax.recipes import OptionError

if TYPE_CHECKING:
    import gdln_jax as gdln

# What the network of a file learns where it names no `strengths`.
_STRENGTHS = (1.0, 0.6, 0.3)
# With more parameters than this, those that start equal may share an unknown.
_MOST_APART = 16


def explore(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RECIPE",
            help="FILE.toml or FILE.py as for `gdln draw`; or routing, sharing, margin, claims.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", metavar="PAGE.html", show_default="NAME.html"),
    ] = None,
    b0: Annotated[
        float, typer.Option(metavar="NUMBER", help="FILE: initial amplitude of each edge.")
    ] = 0.05,
) -> None:
    r"""Write a page to explore the race of pathways: sliders, play, scrub; no server, no network.

    FILE: each pair of an input and an output node that a path joins learns modes of the
    strengths in the file, strengths = \[1, 0.6, 0.3]; inputs are white and independent.
    """
    from gdln_jax import _live

    try:
        is_file = name not in _live.RECIPES
        file = expanded(name)
        if is_file and file.suffix not in (".toml", ".py"):
            raise OptionError(
                f"{name} has no page{suggest(name, _live.RECIPES)}: pass one of "
                f"{', '.join(_live.RECIPES)}, or an architecture, FILE.toml or FILE.py"
            )
        page = expanded(out or (file.with_suffix(".html") if is_file else Path(f"{name}.html")))
        if page.suffix.lower() not in (".html", ".htm"):
            raise OptionError(f"--out {page}: the page is a file PAGE.html")
        if page.is_dir():
            raise OptionError(f"--out {page} is a folder; the page is a file PAGE.html")
        if out is None and page.exists() and not _live.is_page(page):
            refuse_foreign([page], "name the page with --out")
        _machine.prepare()
        with writable(page.parent):
            if is_file:
                _write_own(file, page, b0)
            else:
                _live.recipe_page(name, page)
    except (ValueError, UnwritableError) as error:
        raise typer.BadParameter(str(error)) from error
    console.print_paths([page])


def _write_own(file: Path, page: Path, b0: float) -> None:
    """The page of an architecture, which learns modes of given strengths on every route."""
    import gdln_jax as gdln
    from gdln_jax import _live
    from gdln_jax._cli import drawing as drawn

    if not b0 > 0:
        raise OptionError(f"--b0 {b0:g}: the initial amplitude must be above 0")
    drawing = drawn.read_drawing(file)
    graph = drawing.graph
    most = min(graph.nodes.values())
    strengths = drawing.strengths or _STRENGTHS[:most]
    if len(strengths) > most:
        narrow = min(graph.nodes, key=lambda node: graph.nodes[node])
        raise OptionError(
            f"{file}: {len(strengths)} strengths, but node {narrow!r} has width {most}: a mode "
            "needs a unit in every node"
        )
    if graph.frozen:
        raise OptionError(
            f"{file}: frozen edges have weights, which a file does not hold; in Python: "
            "gdln.live_page(gdln.reduce(graph, data, frozen=...), 'page.html')"
        )
    names = graph.moving
    apart = len(names) <= _MOST_APART
    try:
        reduction = gdln.reduce(graph, _white(graph, drawing.gates, strengths))
        # Starts that differ, though by nothing that could be seen, are unknowns of their own.
        start = {name: b0 * (1 + 1e-9 * k * apart) for k, name in enumerate(names)}
        _live.live_page(reduction, page, b0=start, title=file.stem, labels=drawing.labels)
    except ValueError as error:
        raise OptionError(f"{file}: {error}") from error


def _white(
    graph: "gdln.Graph", gates: Mapping[str, float | int], strengths: Sequence[float | int]
) -> "gdln.GatedData":
    """One example for each mode of each input node, alone; all outputs learn that mode."""
    import numpy as np

    import gdln_jax as gdln

    modes, count = len(strengths), len(strengths) * len(graph.inputs)
    size = np.sqrt(count)  # the mean over examples leaves inputs white
    inputs = {node: np.zeros((count, graph.nodes[node])) for node in graph.inputs}
    targets = {node: np.zeros((count, graph.nodes[node])) for node in graph.outputs}
    for k, node in enumerate(graph.inputs):
        for mode, strength in enumerate(strengths):
            inputs[node][k * modes + mode, mode] = size
            for target in targets.values():
                target[k * modes + mode, mode] = size * strength
    held = {name: np.full(count, float(gate)) for name, gate in gates.items()}
    return gdln.GatedData(inputs, targets, held)
