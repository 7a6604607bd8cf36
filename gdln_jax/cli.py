"""The command `gdln`: list the recipes, make a figure of the papers, say what runs here.

Floor 7. Nothing heavy is imported until a command runs (`gdln --help` must stay quick).
Exit codes: 0 all checks passed, 1 a check failed, 2 the command was not understood.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdln_jax import __version__

if TYPE_CHECKING:
    from gdln_jax.recipes import Recipe, Result
else:  # not loaded here, and not checked at run time
    Recipe = Result = Any

app = typer.Typer(
    name="gdln",
    help="Gated deep linear networks: exact learning dynamics, simulation, and their comparison.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command."""
    # Error callbacks keep diffrax's programs out of the compilation cache. With "nan" a failure
    # inside them is NaN: `gradient_flow` reports status 2, and a check of NaN fails.
    os.environ.setdefault("EQX_ON_ERROR", "nan")
    app()


@app.command(name="list")
def list_recipes() -> None:
    """List the recipes: one for each figure of the papers that can be made."""
    from rich.console import Console
    from rich.table import Table

    from gdln_jax.recipes import CATALOGUE

    table = Table("recipe", "figure", "what it shows", "checks", box=None, pad_edge=False)
    for entry in CATALOGUE.values():
        table.add_row(entry.name, entry.figure, entry.summary, str(len(entry.checks)))
    Console().print(table)


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the recipe; see `gdln list`.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files [default: out/NAME].", metavar="DIR")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set an option of the recipe; repeatable."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="digits|FILE.npz", help="Base data; arrays x (n, d) and y (n, k)."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The short setting.")] = False,
) -> None:
    """Make a figure of the papers: numbers, checks and picture.

    Exits with 1 if a check fails.
    """
    from gdln_jax import recipes

    out = out or Path("out") / name
    try:
        recipe = recipes.load(name)
        options = _options(recipe, quick=quick, seeds=seeds, base=base, settings=settings or [])
        _check_folder(out)
        _prepare()
        with _progress_bar(name) as progress:
            result = recipe.run(options, progress)
    except recipes.OptionError as error:
        raise typer.BadParameter(str(error)) from error
    if result.options is None:
        result = dataclasses.replace(result, options=dataclasses.asdict(options))
    paths = recipes.write(result, out)
    _report(result, paths)
    if not result.passed:
        raise typer.Exit(1)


@app.command()
def info() -> None:
    """Say which versions, devices, precision and cache a recipe would use here."""
    import platform
    from importlib.metadata import version

    from rich.console import Console
    from rich.table import Table

    cache = _prepare()
    import jax

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("python", platform.python_version())
    table.add_row("gdln_jax", __version__)
    packages = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "xarray")
    for package in packages:
        table.add_row(package, version(package))
    table.add_row(
        "devices", ", ".join(f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices())
    )
    precision = "float64" if jax.config.values["jax_enable_x64"] else "float32"
    products = jax.config.values["jax_default_matmul_precision"]
    table.add_row("precision", f"{precision}, products {products}")
    table.add_row("compilation cache", str(cache) if cache else "off: its folder cannot be written")
    Console().print(table)


def _options(
    recipe: Recipe, *, quick: bool, seeds: int | None, base: str | None, settings: list[str]
) -> Any:
    """The options of `recipe`: its defaults, then --quick, then what was asked for."""
    from gdln_jax.recipes import OptionError
    from gdln_jax.recipes._options import parse, with_values

    if quick and recipe.quick is None:
        typer.echo(f"{recipe.name} has no shorter setting; it runs as it is", err=True)
    asked: dict[str, Any] = parse(settings)
    known = {field.name for field in dataclasses.fields(recipe.options)}
    for key, value in (("seeds", seeds), ("base", base)):
        if value is None:
            continue
        if key not in known:
            raise OptionError(f"the recipe {recipe.name!r} has no --{key}")
        if key in asked:
            raise OptionError(f"--{key} and --set {key} are given both")
        asked[key] = value
    start = dict(recipe.quick or {}) if quick else {}
    return with_values(recipe.options, {**start, **asked})


def _check_folder(out: Path) -> None:
    """Refuse, before a long run, a folder that cannot be written; make nothing yet."""
    from gdln_jax.recipes import OptionError

    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise OptionError(f"--out {out}: {nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK):
        raise OptionError(f"--out {out}: {nearest} cannot be written")


def _prepare() -> Path | None:
    """Set precision and the persistent compilation cache; return its folder, None if there is none.

    The library never flips these flags on import; the command does, before anything is compiled.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # no TF32 products (PITFALLS 13)
    cache = _cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(cache, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(cache))
    # Programs here are small and many: keep those that compile quickly, too.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return cache


def _cache_folder() -> Path:
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path("~/.cache").expanduser()) / "gdln_jax" / "compiled"


@contextmanager
def _progress_bar(name: str) -> Iterator[Callable[[float, str], None]]:
    """A bar on the error stream, so that the output stays clean."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=1.0)

        def progress(fraction: float, doing: str) -> None:
            bar.update(task, completed=fraction, description=f"{name}: {doing}")

        yield progress


def _report(result: Result, paths: list[Path]) -> None:
    """Print the checks as a table, the verdict, and where the files are."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table("check", "value", "limit", "", "", box=None, pad_edge=False)
    for check in result.checks:
        mark = "[green]passed[/]" if check.passed else "[bold red]FAILED[/]"
        row = (check.name, f"{check.value:.6g}", check.limit)
        table.add_row(*map(escape, row), mark, escape(check.detail))
    console.print(table)
    for note in result.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    console.print(result.verdict, markup=False, highlight=False)
    for path in paths:
        typer.echo(f"wrote {path}")
    if not result.passed:
        typer.echo("checks failed", err=True)
