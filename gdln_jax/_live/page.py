"""The page itself: figures and sliders of Bokeh around the two scripts, in one file.

Imported when a page is written: Bokeh is an optional dependency.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jinja2
from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.layouts import column, row
from bokeh.models import (
    Button,
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    DataRange1d,
    LayoutDOM,
    Range,
    Range1d,
    Slider,
    Span,
)
from bokeh.plotting import figure
from bokeh.resources import Resources

from gdln_jax._files import write
from gdln_jax._live.setup import COLOURS, Curve, Parameter, Picture, Setup, parameter_data
from gdln_jax._version import __version__

_FONT, _HEIGHT = "13px", 250
# Pixels: a figure on a telephone. Letters: of a node's label.
_NARROW, _LONGEST = 360, 14
_SCRIPTS = "reduced", "page"
# Letters of sliders, long ones in lines, and a ring around the handle that the keys move.
_FOCUS = (
    f".bk-slider-title {{font-size: {_FONT}; white-space: normal; overflow-wrap: anywhere;}} "
    ".noUi-handle:focus {outline: 3px solid #E69F00;}"
)


class _Panel(NamedTuple):
    """A part of the page: where it stands, its heading, its legend, and what Bokeh draws."""

    name: str
    title: str
    legend: Sequence[Curve]
    root: LayoutDOM


def write_setup(setup: Setup, path: Path) -> Path:
    """Write the page of a set-up, whole or not at all."""
    return write(path, _html(setup))


def _html(setup: Setup) -> str:
    panels, document, source = _panels(setup), Document(), files("gdln_jax._live")
    for panel in panels:
        document.add_root(panel.root)
    begin = "live.begin(Bokeh.documents[Bokeh.documents.length - 1])"
    document.js_on_event("document_ready", CustomJS(code=begin))
    variables = {
        "panels": panels,
        "wide": bool(setup.shares),
        "try_this": setup.try_this,
        "version": __version__,
        "scripts": [source.joinpath(f"{name}.js").read_text("utf-8") for name in _SCRIPTS],
        "setup": json.dumps(_data(setup)).replace("</", "<\\/"),
    }
    return file_html(
        document,
        Resources(mode="inline", minified=True),
        title=setup.title,
        template=jinja2.Template(source.joinpath("page.html").read_text("utf-8")),
        template_variables=variables,
    )


def _data(setup: Setup) -> dict[str, object]:
    """What the scripts read."""
    return {
        "system": dataclasses.asdict(setup.system),
        "parameters": [parameter_data(p) for p in setup.parameters],
        "losses": [{"colour": colour} for _, colour in setup.losses],
        "curves": [_curve(curve) for curve in setup.curves],
        "shares": [_curve(curve) for curve in setup.shares],
        "pictures": [
            {"when": picture.when, "nodes": _nodes(picture), "edges": _edges(picture)}
            for picture in setup.pictures
        ],
    }


def _curve(curve: Curve) -> dict[str, object]:
    return {"terms": list(curve.terms), "colour": curve.colour}


# ------------------------------------------------------------------ figures
def _panels(setup: Setup) -> list[_Panel]:
    time = Range1d(start=0, end=1, name="range")
    losses = [Curve(label, colour, ()) for label, colour in setup.losses]
    parts = [
        _Panel("graph", "Architecture, edges as thick as they are strong", (), _graph(setup)),
        _Panel("loss", "Loss", losses[1:] and losses, _lines("loss", losses, time, "L")),
        _Panel("time", "Time t/τ = ", (), _clock()),
        _Panel("controls", "Set-up", (), _controls(setup)),
    ]
    if setup.shares:
        heading = "Shares of the target that are learned"
        parts.append(_Panel("shares", heading, setup.shares, _areas(setup.shares, time)))
    heading = "Strengths of pathways, products over their edges"
    curves = _lines("modes", setup.curves, time, "strength")
    return [*parts, _Panel("modes", heading, setup.curves, curves)]


def _figure(name: str, x: Range, y: Range, xlabel: str = "", ylabel: str = "") -> figure:
    made = figure(
        name=name,
        x_range=x,
        y_range=y,
        x_axis_label=xlabel,
        y_axis_label=ylabel,
        height=_HEIGHT,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        min_border=5,
        outline_line_color=None,
    )
    made.grid.visible = False
    made.axis.major_label_text_font_size = _FONT
    made.axis.axis_label_text_font_size = _FONT
    made.axis.axis_label_text_font_style = "normal"
    made.axis.minor_tick_line_color = None
    return made


def _source(name: str, columns: Iterable[str]) -> ColumnDataSource:
    """Empty columns, which the script fills."""
    source = ColumnDataSource(name=name)
    for key in columns:
        source.add([], key)
    return source


def _lines(name: str, curves: Sequence[Curve], time: Range, ylabel: str) -> figure:
    """Curves over time, in front of those of the page's own set-up."""
    made = _figure(name, time, DataRange1d(start=0), "t/τ", ylabel)
    columns = ["t", *(f"y{k}" for k in range(len(curves)))]
    for which in ("old", "data"):
        source = _source(f"{which}.{name}", columns)
        for k, curve in enumerate(curves):
            colour = COLOURS["faint"] if which == "old" else curve.colour
            made.line("t", f"y{k}", source=source, color=colour, line_width=float(curve.width))
    _now(made, name)
    dots = _source(f"at.{name}", ("t", "y", "colour"))
    made.scatter("t", "y", source=dots, fill_color="colour", line_color="white", size=10)
    return made


def _areas(curves: Sequence[Curve], time: Range) -> figure:
    """Shares on top of one another; dotted: where they were."""
    made = _figure("shares", time, Range1d(start=0, end=1.02), "t/τ", "share")
    names = [f"{end}{k}" for k in range(len(curves)) for end in ("low", "high")]
    source, old = (_source(f"{which}.shares", ["t", *names]) for which in ("data", "old"))
    for k, curve in enumerate(curves):
        made.varea("t", f"low{k}", f"high{k}", source=source, color=curve.colour, alpha=0.8)
        made.line("t", f"high{k}", source=old, color="#404040", line_dash="dotted")
    _now(made, "shares")
    return made


def _now(made: figure, name: str) -> None:
    """The line at the time that is shown."""
    line = Span(dimension="height", location=0, line_color="#404040", name=f"now.{name}")
    made.add_layout(line)


def _graph(setup: Setup) -> figure:
    first = setup.pictures[0]
    left, right = _margins(setup.pictures)
    made = _figure("graph", Range1d(start=-left, end=1 + right), Range1d(start=-1.3, end=1.3))
    made.axis.visible = False
    edges = _source("data.edges", [*_edges(first), "width"])
    made.quadratic(
        *("x0", "y0", "x1", "y1", "cx", "cy"),
        source=edges,
        line_color="colour",
        line_width="width",
        line_dash="dash",
        line_alpha=0.85,
        line_cap="round",
    )
    nodes = _source("data.nodes", _nodes(first))
    made.rect(
        *("x", "y", 0.03, "tall"),
        source=nodes,
        fill_color="white",
        line_color="#404040",
    )
    made.text(
        *("x", "y", "label"),
        source=nodes,
        x_offset="shift",
        y_offset="lift",
        text_align="align",
        text_baseline="middle",
        text_font_size=_FONT,
    )
    return made


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}\u2026"


def _margins(pictures: Sequence[Picture]) -> tuple[float, float]:
    """Space for the labels of inputs and outputs on the narrowest page, with the graph 1 wide."""
    parts = []
    for end in (0.0, 1.0):
        longest = max(
            len(_short(label))
            for picture in pictures
            for x, _, label in picture.nodes.values()
            if x / _last(picture) == end
        )
        parts.append((20 + 8 * longest) / _NARROW)
    return parts[0] / (1 - sum(parts)), parts[1] / (1 - sum(parts))


def _nodes(picture: Picture) -> dict[str, list]:
    rows, last = [], _last(picture)
    for x, y, label in picture.nodes.values():
        beside = [place for place in picture.nodes.values() if place[0] == x]
        tall = min(0.3, 1.5 / len(beside))
        # Labels of hidden nodes stand above them.
        shift, align = (-12, "right") if x == 0 else (12, "left") if x == last else (0, "center")
        rows.append(
            (x / last, y, label, tall, shift, 0 if shift else -round(10 + 50 * tall), align)
        )
    names = "x", "y", "label", "tall", "shift", "lift", "align"
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _last(picture: Picture) -> float:
    """The place of the last column, which is drawn at 1."""
    return max(x for x, _, _ in picture.nodes.values())


def _edges(picture: Picture) -> dict[str, list]:
    """Arcs; those of several edges between two nodes, or past a column, bend."""
    rows, drawn, last = [], dict[tuple[str, str], int](), _last(picture)
    for source, target, unknowns, colour in picture.edges:
        (x0, y0, _), (x1, y1, _) = picture.nodes[source], picture.nodes[target]
        number = drawn[source, target] = drawn.get((source, target), -1) + 1
        bend = 0.0 if number == 0 and abs(x1 - x0) <= 1 else (0.7 + 0.4 * number) * (-1) ** number
        dash = "solid" if len(unknowns) else "dotted"
        middle = (x0 + x1) / 2 / last, (y0 + y1) / 2 + bend
        rows.append((x0 / last, y0, x1 / last, y1, *middle, list(unknowns), colour, dash))
    names = "x0", "y0", "x1", "y1", "cx", "cy", "unknowns", "colour", "dash"
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


# ------------------------------------------------------------------ sliders
def _clock() -> LayoutDOM:
    """Play, and the time that is shown."""
    play = Button(label="Play", width=90, name="play", button_type="primary")
    play.js_on_event("button_click", CustomJS(code="live.play()"))
    time = Slider(
        start=0,
        end=1,
        value=1,
        step=1 / 180,
        name="clock",
        show_value=False,
        tooltips=False,
        sizing_mode="stretch_width",
        stylesheets=[_FOCUS],
        bar_color=COLOURS["trained"],
    )
    time.js_on_change("value", CustomJS(code="live.draw()"))
    return row(play, time, name="time", sizing_mode="stretch_width")


def _controls(setup: Setup) -> LayoutDOM:
    """A slider for each parameter, and a way back."""
    sliders = [_slider(p) for p in setup.parameters]
    reset = Button(label="Back to the start")
    reset.js_on_event("button_click", CustomJS(code="live.reset()"))
    return column(*sliders, reset, name="controls", sizing_mode="stretch_width")


def _slider(p: Parameter) -> Slider:
    """Of its value, the logarithm of it, or its number among the options."""
    code = "return String(Number((10 ** tick).toPrecision(2)))"
    start, end, value, step = p.low, p.high, p.value, p.step
    if p.options:
        code = f"return String({list(p.options)}[tick])"
        start, end, value, step = 0, len(p.options) - 1, p.options.index(p.value), 1
    elif p.log:
        start, end, value = (math.log10(x) for x in (p.low, p.high, p.value))
    else:
        code = "return String(Number(tick.toFixed(3)))"
    slider = Slider(
        start=start,
        end=end,
        value=value,
        step=step,
        title=p.label,
        name=f"p.{p.key}",
        tooltips=False,
        format=CustomJSTickFormatter(code=code),
        sizing_mode="stretch_width",
        stylesheets=[_FOCUS],
        bar_color=COLOURS["trained"],
    )
    slider.js_on_change("value", CustomJS(code="live.changed()"))
    return slider
