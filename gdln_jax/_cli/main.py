"""The command `gdln`: make the figures of the papers, all of them, a report, a drawing.

Neither JAX nor matplotlib is imported until a command runs (`gdln --help` must stay quick).
Exit codes: see `_EXIT_CODES`.
"""

import contextlib
import dataclasses
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from gdln_jax import _machine, recipes
from gdln_jax._cli import console, report, signals
from gdln_jax._cli.explore import explore
from gdln_jax._cli.inspect import inspect
from gdln_jax._files import UnwritableError, expanded, refuse_foreign, writable
from gdln_jax._version import __version__
from gdln_jax.recipes import OptionError, Recipe

ALL = "all"
_EXIT_CODES = (
    "Exit codes: 0 done, and all checks passed; 1 a check or a recipe failed; "
    "2 the request was not understood; 130 interrupted (143 by SIGTERM)."
)

app = typer.Typer(
    name="gdln",
    help="Gated deep linear networks: exact learning dynamics, simulation, and their comparison.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command; SIGINT and SIGTERM end it with 130 and 143 once files are cleaned up."""
    # Error callbacks keep programs out of the compilation cache. Without them a failure is NaN, and
    # a check of NaN fails.
    if "EQX_ON_ERROR" not in os.environ:
        _machine.configure(error_callbacks=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that does not know every character
            stream.reconfigure(errors="replace")
    with signals.leaving():
        try:
            app(prog_name="gdln")
        except OSError as error:  # a full disk, or an output that is gone
            with contextlib.suppress(OSError):
                typer.echo(f"gdln: {error}", err=True)
            signals.leave(1)


def _recipe_names(incomplete: str) -> list[str]:
    """What the shell offers for NAME."""
    return [name for name in (*recipes.CATALOGUE, ALL) if name.startswith(incomplete)]


def _print_version(asked: bool) -> bool:
    if asked:
        typer.echo(f"gdln_jax {__version__}")
        raise typer.Exit
    return asked


_Quick = Annotated[bool, typer.Option("--quick", help="The short setting.")]


@app.callback()
def _gdln(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version


@app.command(name="list")
def list_recipes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A recipe: what it checks, and its options.",
            autocompletion=_recipe_names,
        ),
    ] = None,
) -> None:
    """List the recipes, one for each figure of the papers, or the options of one."""
    if name is None:
        console.print_catalogue(list(recipes.CATALOGUE.values()))
        return
    with _understood():
        console.print_recipe(recipes.load(name))


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|all",
            help="Name of the recipe, or all of them; see `gdln list`.",
            autocompletion=_recipe_names,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the files.", metavar="DIR", show_default="out/NAME, or out"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set an option (`gdln list NAME`); repeatable."
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="digits|FILE.npz", help="Base data; arrays x (n, d) and y (n, k)."),
    ] = None,
    quick: _Quick = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going/--stop", help="all: continue after a recipe that failed.")
    ] = True,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="One of several processes of one program (docs/sweep.md)."
        ),
    ] = False,
) -> None:
    """Make a figure of the papers (numbers, checks, picture), or all of them with an index.

    `all` runs each recipe in a process of its own and keeps DIR/index.html and index.md up to date.
    Exits with 1 if a check fails.
    """
    with _understood():
        out = out and expanded(out)
        if distributed:
            _join(name)
        if name == ALL:
            if settings or base:
                raise OptionError("--set and --base belong to one recipe: gdln reproduce NAME")
            ended = _reproduce_all(out or Path("out"), quick, seeds, keep_going)
            failed = any(one.state.bad for one in ended)
        else:
            failed = not _reproduce_one(
                name, out or Path("out", name), seeds, settings or [], base, quick
            )
    if failed:
        raise typer.Exit(1)


@app.command()
def redraw(
    file: Annotated[Path, typer.Argument(metavar="NAME.nc", help="The data of a run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the files.", metavar="DIR", show_default="that of NAME.nc"),
    ] = None,
) -> None:
    """Check and draw a saved run again, without running it.

    Exits with 1 if a check fails.
    """
    with _understood():
        file = expanded(file)
        out = expanded(out or file.parent)
        _machine.prepare()  # in the precision of the run
        result = recipes.redraw(file)
        refuse_foreign(recipes.foreign(result.name, out))
        with writable(out):
            run = json.loads(result.data.attrs.get("run", "{}"))
            try:
                paths = recipes.write(result, out, run=run)
            except ValueError as error:  # of matplotlib: nothing finite for an axis
                raise OptionError(f"the numbers in {file} cannot be drawn: {error}") from error
    console.print_result(result, paths)
    if not result.passed:
        raise typer.Exit(1)


def _join(name: str) -> None:
    """Join the other processes, before JAX is used."""
    if name == ALL:
        raise OptionError("--distributed belongs to one recipe: gdln reproduce NAME --distributed")
    try:
        _machine.join()
    except ValueError as error:
        raise OptionError(str(error)) from error


def _reproduce_one(
    name: str, out: Path, seeds: int | None, settings: list[str], base: str | None, quick: bool
) -> bool:
    """Run a recipe, write and print its result; whether all checks passed."""
    recipe = recipes.load(name)
    options = _options(recipe, quick=quick, seeds=seeds, base=base, settings=settings)
    refuse_foreign(recipes.foreign(name, out))
    start = time.monotonic()
    _machine.prepare()
    with writable(out), console.progress_bar(name) as progress:
        result = recipe.run(options, progress)
        if result.options is None:
            result = dataclasses.replace(result, options=dataclasses.asdict(options))
        if not _machine.is_first():
            return result.passed  # process 0 writes and prints
        progress(1.0, "picture and files")
        run = {
            "ended": _machine.moment(),
            "seconds": round(time.monotonic() - start, 3),
            "quick": quick,
            "machine": _machine.machine(),
        }
        paths = recipes.write(result, out, run=run)
    console.print_result(result, paths)
    return result.passed


def _reproduce_all(
    out: Path, quick: bool, seeds: int | None, keep_going: bool, only: list[Recipe] | None = None
) -> list[report.Outcome]:
    """Run recipes into `out`; all of them (and write the index), or those in `only`."""
    entries = list(recipes.CATALOGUE.values()) if only is None else only
    pages = report.index_files(out) if only is None else []

    def options(recipe: Recipe) -> list[str]:
        words = ["--quick"] if quick else []
        if seeds and "seeds" in console.known_options(recipe):
            words += ["--seeds", str(seeds)]
        return words

    with writable(out), console.each_as_it_ends() as say:
        refuse_foreign([*report.foreign_pages(pages), *report.foreign_files(entries, out)])

        def changed(outcomes: list[report.Outcome]) -> None:
            if only is None:
                report.write_index(outcomes, out)
            say(outcomes)

        ended = report.reproduce_all(
            entries, out, options=options, changed=changed, keep_going=keep_going
        )
    console.print_paths(pages)
    return ended


@app.command(name="report")
def write_report(
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", metavar="FILE.html", show_default="DIR/report.html"),
    ] = None,
    source: Annotated[
        Path, typer.Option("--from", help="Folder with the files of the recipes.", metavar="DIR")
    ] = Path("out"),
    quick: Annotated[
        bool, typer.Option("--quick", help="First make what is missing, in the short setting.")
    ] = False,
) -> None:
    """Write one self-contained HTML page of all recipes that ran here.

    Failed and missing recipes are listed first, and give exit code 1.
    """
    with _understood():
        source = expanded(source)
        page = expanded(out or source / "report.html")
        if page.suffix.lower() not in (".html", ".htm"):
            raise OptionError(f"--out {page}: the page is a file FILE.html")
        if out is None:
            refuse_foreign(report.foreign_pages([page]), "name the page with --out")
        if not quick and not source.is_dir():
            raise OptionError(
                f"--from {source}: there is no such folder; `gdln reproduce all` makes one"
            )
        with writable(page.parent):
            if page.is_dir():
                raise OptionError(f"--out {page} is a folder; the page is a file FILE.html")
            if quick:
                before = report.outcomes(source)
                missing = [one.entry for one in before if one.state is report.State.MISSING]
                _reproduce_all(source, True, None, True, only=missing)
            found = report.outcomes(source)
            console.print_paths([report.write_report(found, page)])
    bad = [f"{one.entry.name} ({one.state.value})" for one in found if one.state.bad]
    if bad:
        typer.echo(f"not passed: {', '.join(bad)}", err=True)
        raise typer.Exit(1)


app.command()(inspect)
app.command()(explore)


@app.command()
def draw(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="FILE.toml or FILE.py.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The picture, .png, .svg or .pdf.", metavar="PICTURE", show_default="FILE.png"
        ),
    ] = None,
) -> None:
    r"""Draw an architecture: nodes, edges, closed gates, highlighted pathways.

    The picture is FILE.png beside FILE, unless --out is given.

    TOML: edges = \[["x", "h"], ["h", "y"]], then \[nodes] with x = 4 and so on; optional are
    paths = \[["x->h", "h->y"]], \[gates], \[labels], and of tied weights frozen = \["x->h"] and
    \[shared] with W = ["x->h", "h->y^T"]. Python: graph = gdln_jax.Graph(...).
    """
    from gdln_jax._cli import drawing as drawn  # it imports matplotlib

    with _understood():
        file = expanded(file)
        picture = expanded(out or file.with_suffix(".png"))
        drawn.check_format(picture)
        drawing = drawn.read_drawing(file)
        if out is None and drawn.is_foreign(picture):
            refuse_foreign([picture], "name the picture with --out")
        with writable(picture.parent):
            console.print_paths([drawn.draw(drawing, picture)])


@app.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
def bench(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENTS]")] = None,
) -> None:
    """Run the benchmarks of a checkout; all arguments are passed on (try `gdln bench --help`)."""
    import runpy

    # The benchmarks are not in the wheel: they belong to the checkout that this package is
    # installed from (pip install -e), or to the one that the command is called in.
    places = (Path(__file__).parent.parent, Path.cwd())
    checkout = next((p for p in places if (p / "benchmarks" / "__main__.py").is_file()), None)
    if checkout is None:
        raise typer.BadParameter(
            "there are no benchmarks here; they come with a checkout of the repository, not with "
            "the installed package. Call it in the folder of the checkout"
        )
    sys.path.insert(0, str(checkout))
    sys.argv = ["gdln bench", *(arguments or [])]
    runpy.run_module("benchmarks", run_name="__main__", alter_sys=False)


@app.command()
def info() -> None:
    """Print versions, devices, precision and cache settings (for bug reports)."""
    cache = _machine.prepare()
    facts = {**_machine.versions(), **_machine.machine(), "compilation cache": cache}
    facts["memory maps per process"] = _machine.map_limit()
    facts |= _machine.environment()
    console.print_facts(facts)


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """What cannot be taken is exit code 2 and a message, not a traceback."""
    try:
        yield
    except (OptionError, UnwritableError) as error:
        raise typer.BadParameter(str(error)) from error


def _options(
    recipe: Recipe,
    *,
    quick: bool,
    seeds: int | None,
    base: str | None,
    settings: list[str],
) -> Any:
    """The options of `recipe`: its defaults, then --quick, then what was asked for."""
    if quick and not recipe.quick:
        typer.echo(f"{recipe.name} has no shorter setting; it runs as it is", err=True)
    asked: dict[str, object] = {**recipes.parse(settings)}
    known = console.known_options(recipe)
    for key, value in (("seeds", seeds), ("base", base)):
        if value is None:
            continue
        if key not in known:
            raise OptionError(f"the recipe {recipe.name!r} has no --{key}")
        if key in asked:
            raise OptionError(f"--{key} and --set {key} are given both")
        asked[key] = value
    start = dict(recipe.quick) if quick else {}
    return recipes.with_values(recipe.options, {**start, **asked})
