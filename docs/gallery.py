"""Makes docs/gallery.md and its pictures from what `gdln reproduce all` leaves.

    python docs/gallery.py

runs all recipes in their default and in their short setting (into out/gallery) and writes the page.
With `--default DIR` and `--quick DIR`, or one of them, it takes the results that are there. Times
are those of a first run: the compilation cache is empty at the start.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from gdln_jax._cli.report import Outcome, State, duration, outcomes
from gdln_jax._files import write as save
from gdln_jax.recipes import CATALOGUE

DOCS = Path(__file__).parent
OUT = DOCS.parent / "out" / "gallery"
# Readers on a train load all pictures of the page.
MAX_BYTES = 150_000

PAPERS = (
    "N is *The Neural Race Reduction* (2022), H is *Make Haste Slowly* (2025), R a third party's "
    "summary of N; E1, E2, ... number the [errata](errata.md) that a figure shows. Verdicts are "
    "shown where all checks of the recipe passed."
)


def main() -> None:
    """Run what is asked for and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--default", type=Path, help="results of `gdln reproduce all`")
    parser.add_argument("--quick", type=Path, help="results of `gdln reproduce all --quick`")
    parser.add_argument("--remark", default="", help="a sentence for the top of the page")
    asked = parser.parse_args()
    if not (asked.default or asked.quick):
        asked.default, asked.quick = OUT / "default", OUT / "quick"
        reproduce(asked.quick, "--quick")
        reproduce(asked.default)
    page = write(asked.default, asked.quick, DOCS, remark=asked.remark)
    sys.stdout.write(f"wrote {page}\n")


def reproduce(out: Path, *options: str) -> None:
    """Run all recipes; one that fails is shown on the page as such."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        words = [sys.executable, "-m", "gdln_jax", "reproduce", "all", "--out", str(out)]
        done = subprocess.run([*words, *options], env=environment, check=False)  # noqa: S603
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)


def write(default: Path | None, quick: Path | None, docs: Path, *, remark: str = "") -> Path:
    """Write the page and the pictures; results of the default setting go before short ones."""
    full, short = (
        {one.entry.name: one for one in outcomes(folder)} if folder else {}
        for folder in (default, quick)
    )
    pictures = docs / "gallery"
    pairs = [[runs.get(name) for runs in (full, short)] for name in CATALOGUE]
    entries = list(CATALOGUE.values())
    shown = [
        # The first with a result; else how the first of them ended.
        next((one for one in pair if one and one.record), None)
        or next((one for one in pair if one), Outcome(entry, State.MISSING))
        for entry, pair in zip(entries, pairs, strict=True)
    ]
    for one in shown:
        if one.picture:
            save(pictures / f"{one.entry.name}.png", light(one.picture))
    cores = sorted({one.run["machine"]["cores"] for one in shown if "machine" in one.run})
    few = [one.entry.name for one in shown if one.run.get("quick")]
    which = "all recipes" if len(few) == len(shown) else ", ".join(few)
    text = [
        "# Gallery",
        "",
        "All figures that the recipes make, and the verdict on the statement of the paper.",
        f"`gdln reproduce NAME` makes one of them. {PAPERS}",
        "",
        *([f"**Short setting (`--quick`) so far: {which}.**", ""] if few else []),
        f"Times: wall-clock on {' or '.join(cores) or 'unknown'} CPU cores, compilation included. "
        + remark,
        "",
        "| recipe | figure | the paper's statement | errata | checks passed | time | `--quick` |",
        "|---|---|---|---|---|---|---|",
        *(row(one, pair) for one, pair in zip(shown, pairs, strict=True)),
        *(line for one in shown for line in section(one)),
        "",
        "---",
        "Made by `python docs/gallery.py`; changes to this page are lost.",
    ]
    return save(docs / "gallery.md", "\n".join(text) + "\n")


def passed(one: Outcome) -> str:
    """How many checks passed, or why none did."""
    return f"{one.checks_passed} of {len(one.checks)}" if one.record else one.state.value


def row(one: Outcome, pair: list[Outcome | None]) -> str:
    """The recipe's line in the table, with the times of both settings."""
    times = [duration(run.run.get("seconds")) if run and run.record else "–" for run in pair]
    name, figure = one.entry.name, one.entry.figure
    cells = [f"[{name}](#{name})", figure, one.standing, ", ".join(one.entry.errata), passed(one)]
    return f"| {' | '.join([*cells, *times])} |"


def section(one: Outcome) -> list[str]:
    """Picture, statement and verdict."""
    entry = one.entry
    lines = ["", f"## {entry.name}", "", f"{entry.figure}. {entry.summary}.", ""]
    if one.picture:
        lines += [f"![{entry.summary}](gallery/{entry.name}.png)", ""]
    if one.record.get("caption"):
        lines += [one.record["caption"], ""]
    proviso = f": {entry.proviso}" if entry.proviso else ""
    lines.append(f"> {entry.claim}. **{one.standing.capitalize()}**{proviso}.")
    if one.record:
        size = "short setting" if one.run.get("quick") else "default setting"
        lines += ["", f"{one.record['verdict']} ({passed(one)} checks, {size})"]
    return lines


def light(picture: Path) -> bytes:
    """The picture as a PNG of at most `MAX_BYTES`: fewer colours first, then fewer pixels."""
    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    for width in (1360, 1200, 1050, 900, 750, 600):
        small = image.copy()
        small.thumbnail((width, 10 * width), Image.Resampling.LANCZOS)
        for colours in (128, 64):
            file = BytesIO()
            small.quantize(colours, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
            if file.tell() <= MAX_BYTES:
                return file.getvalue()
    raise ValueError(f"{picture} cannot be made lighter than {MAX_BYTES} bytes")


if __name__ == "__main__":
    main()
