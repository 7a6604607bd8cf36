"""Puts the numbers of a run of the benchmarks into docs/benchmarks.md, and their picture beside it.

    python -m benchmarks --out DIR && python -m benchmarks.scaling --out DIR
    python -m benchmarks.sweep > DIR/sweep.md
    python docs/benchmarks.py DIR

What stands outside of the markers is written by hand: read it again against the new numbers.
"""

import json
import re
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from gdln_jax._files import write

DOCS = Path(__file__).parent


def main() -> None:
    """Fill the page from the folder that is named."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    source = Path(sys.argv[1])
    found = json.loads((source / "benchmarks.json").read_text("utf-8"))
    grown = json.loads((source / "scaling.json").read_text("utf-8"))
    where = ", ".join(f"{key} {value}" for key, value in found["machine"].items())
    page = DOCS / "benchmarks.md"
    text = page.read_text("utf-8")
    for name, part in (
        ("machine", f"{where}."),
        ("rows", "\n".join(rows(found["rows"]))),
        ("scaling", "\n".join(scaling(grown["series"]))),
        ("sweep", _table(source / "sweep.md")),
    ):
        marked = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        text, count = marked.subn(lambda m, part=part: f"{m[1]}\n{part}\n{m[2]}", text)
        if count != 1:
            raise SystemExit(f"docs/benchmarks.md has {count} places for {name!r}, expected one")
    write(page, text)
    write(DOCS / "benchmarks.png", (source / "scaling.png").read_bytes())


def rows(records: Iterable[dict[str, Any]]) -> Iterable[str]:
    """A table per job, without the columns that only matter while measuring."""
    for (what, sizes), group in groupby(records, key=lambda r: (r["what"], r["sizes"])):
        yield from ("", f"**{what}** ({sizes})", "")
        yield "| against | ours, warm (cold) | theirs | ratio | asked | of the floor |"
        yield "|---|---|---|---|---|---|"
        yield from map(_row, group)


def _row(r: dict[str, Any]) -> str:
    wanted = [f"{r['goal']:g}x"] if r["goal"] is not None else []
    wanted += [f"{r['cold_goal']:g}x cold"] if r["cold_goal"] is not None else []
    wanted += [f"below {r['limit']:g} s"] if r["limit"] is not None else []
    asked = ", ".join(wanted) + ("" if r["reached"] is not False else ": **not reached**")
    cold = "" if r["cold"] is None else f" ({_seconds(r['cold'])})"
    ratio = ""
    if r["ratio"] is not None:
        ratio = f"{r['ratio']:.3g}x" + (f" ({r['cold_ratio']:.3g}x)" if r["cold_ratio"] else "")
    floor = "" if r["fraction"] is None else f"{r['fraction']:.0%} of {r['floor_of']}"
    cells = (
        r["baseline"], _seconds(r["warm"]) + cold, _seconds(r["other"]), ratio, asked, floor,
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def scaling(records: Iterable[dict[str, Any]]) -> Iterable[str]:
    """The exponents."""
    yield "| cost | against | setting | exponent | expected |"
    yield "|---|---|---|---|---|"
    for r in records:
        cells = (r["what"], f"{r['size']}, {r['x'][0]} to {r['x'][-1]}", r["setting"],
                 f"{r['exponent']:.2f}", r["expected"])  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


def _table(path: Path) -> str:
    return path.read_text("utf-8").strip()


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


if __name__ == "__main__":
    main()
