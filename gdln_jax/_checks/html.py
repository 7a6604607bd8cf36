"""Pieces of HTML that notebooks show: tables, drawings and their captions, as text.

Colours are those of the page around (`currentColor`), light or dark.
"""

import html
import math
from collections.abc import Iterable, Sequence

_CELL = "text-align:left;padding:1px 10px 1px 0;vertical-align:top"
_ROWS = 12


def panel(title: str, *parts: str) -> str:
    """Return parts of HTML one below the other, under a title (text)."""
    return f"<div><div><b>{html.escape(title)}</b></div>{''.join(parts)}</div>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of text; one of many rows is cut and counted."""
    rows = list(rows)
    shown = rows if len(rows) <= _ROWS else rows[: _ROWS - 1]
    lines = [_row("th", header), *(_row("td", row) for row in shown)]
    if len(shown) < len(rows):
        lines.append(_row("td", [f"... ({len(rows)} in all)"]))
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>'


def curve(
    xs: Sequence[float | int], ys: Sequence[float | int], width: int = 260, height: int = 70
) -> str:
    """Return a small SVG line through the points with finite values, without axes."""
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y)]
    if len(points) < 2:
        return ""
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
    across, up = (width - 4) / ((right - left) or 1), (height - 4) / ((high - low) or 1)
    line = " ".join(f"{2 + (x - left) * across:.1f},{2 + (high - y) * up:.1f}" for x, y in points)
    return svg(width, height, [f'<polyline points="{line}" fill="none" stroke="currentColor"/>'])


def svg(width: float | int, height: float | int, shapes: Iterable[str]) -> str:
    """Return an SVG drawing of this size in pixels."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" '
        f'style="max-width:100%">{"".join(shapes)}</svg>'
    )


def _row(tag: str, cells: Iterable[object]) -> str:
    texts = (f'<{tag} style="{_CELL}">{html.escape(str(cell))}</{tag}>' for cell in cells)
    return f"<tr>{''.join(texts)}</tr>"
