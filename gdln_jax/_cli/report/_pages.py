"""Pages that show outcomes: an index with links to the files, or one file with all inside.

The templates are in the folder `templates`. Texts of recipes are escaped; the Markdown in them is
code spans, and tables where a recipe has a text of its own.
"""

import base64
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import Markup

from gdln_jax._cli.report._outcome import Outcome, State
from gdln_jax._files import write
from gdln_jax._machine import cores, moment
from gdln_jax._version import __version__

INDEX = "index.html"
_TITLE = b"Gated deep linear networks: figures and checks"


def write_index(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Write `index.html` and `index.md` into `folder`; pictures and files are linked, relatively.

    Each file is replaced as a whole, so that it can be read, or this process be killed, at any
    time.
    """
    page, text = index_files(folder)
    write(page, _render("page.html", outcomes, folder=folder, embedded=False))
    write(text, _render("index.md", outcomes, folder=folder, embedded=False))
    return [page, text]


def index_files(folder: Path) -> list[Path]:
    """What `write_index` writes."""
    return [folder / INDEX, folder / "index.md"]


def foreign_pages(pages: Iterable[Path]) -> list[Path]:
    """Those that are there and are no pages of this package; each of its own has the same title."""
    return [
        page
        for page in pages
        if os.path.lexists(page) and not (page.is_file() and _TITLE in page.read_bytes()[:20_000])
    ]


def write_report(outcomes: Sequence[Outcome], file: Path) -> Path:
    """Write one HTML file that needs no other: pictures are inside as data URIs, no link leads out.

    About 4/3 of the pictures' size, some 5 MB for all recipes.
    """
    return write(file, _render("page.html", outcomes, folder=file.parent, embedded=True))


def _render(template: str, outcomes: Sequence[Outcome], *, folder: Path, embedded: bool) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gdln_jax._cli.report", "templates"),
        autoescape=jinja2.select_autoescape(["html.jinja"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "code": _with_code,
        "prose": _as_html,
        "cell": _as_cell,
        "number": _as_number,
        "duration": duration,
    }

    def source(outcome: Outcome) -> str:
        """Where the picture is: beside the page, or inside it."""
        picture = outcome.picture
        if picture is None:
            return ""
        if not embedded:
            return link(outcome, "png")
        return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode("ascii")

    def link(outcome: Outcome, ending: str) -> str:
        """A file of the recipe, relative to the page; empty inside a report."""
        path = outcome.folder / f"{outcome.entry.name}.{ending}"
        if embedded or not path.is_file():
            return ""
        return path.absolute().relative_to(folder.absolute()).as_posix()

    return environment.get_template(f"{template}.jinja").render(
        outcomes=sorted(outcomes, key=lambda one: not one.state.bad),
        in_order=outcomes,
        bad=[one for one in outcomes if one.state.bad],
        unfinished=[one for one in outcomes if one.state in (State.RUNNING, State.WAITING)],
        counts=_counts(outcomes),
        seconds=sum(one.run.get("seconds", 0.0) for one in outcomes),
        settings=_settings(outcomes),
        versions=_common(one.record["versions"] for one in outcomes if one.record),
        machines=_common(one.run["machine"] for one in outcomes if "machine" in one.run),
        here=f"gdln_jax {__version__}, {platform.system()}, {cores()} cores",
        moment=moment()[:16].replace("T", " "),
        source=source,
        link=link,
        State=State,
    )


def _counts(outcomes: Iterable[Outcome]) -> list[tuple[State, int]]:
    states = [one.state for one in outcomes]
    return [(state, states.count(state)) for state in State if state in states]


def _settings(outcomes: Iterable[Outcome]) -> str:
    """Whether the recipes ran in their default or in their short setting."""
    quick = {bool(one.run.get("quick")) for one in outcomes if one.record}
    if not quick:
        return "nothing has run"
    if len(quick) > 1:
        return "default and short settings, see each recipe"
    return "short settings (--quick)" if quick.pop() else "default settings"


def _common(records: Iterable[dict[str, str]]) -> dict[str, str]:
    """Every key with all the values that occur: one where all runs agree."""
    values: dict[str, dict[str, None]] = {}
    for record in records:
        for key, value in record.items():
            values.setdefault(key, {})[str(value)] = None
    return {key: "; ".join(found) for key, found in values.items()}


def _with_code(text: str) -> Markup:
    """One line in which `code` is set as code and nothing else is special."""
    from markdown_it import MarkdownIt

    return Markup(MarkdownIt("zero").enable("backticks").renderInline(text))  # noqa: S704


def _as_html(text: str) -> Markup:
    """Markdown with tables, without HTML of its own."""
    from markdown_it import MarkdownIt

    return Markup(  # noqa: S704 (the renderer escapes: its html option is off)
        MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text)
    )


def _as_cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(str(text).replace("|", "\\|").split())


def _as_number(value: float | int | str | None) -> str:
    if value is None:  # the records of 0.1.0, and a median of nothing
        return "not finite"
    return value if isinstance(value, str) else f"{value:.4g}"


def duration(seconds: float | int | None) -> str:
    """Seconds as people say them: `7 s`, `3 min 05 s`, `1 h 12 min`; nothing for None."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
