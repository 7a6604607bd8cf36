"""What the command prints: tables on the output, progress and refusals on the error stream.

Imports nothing heavy.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gdln_jax._cli.report import Outcome, State, duration
from gdln_jax.recipes import Recipe, Result, describe


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[float, str], None]]:
    """A bar on the error stream, so that the output stays clean."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from gdln_jax._progress import alone

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with alone(), Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=1.0)

        def progress(fraction: float, doing: str) -> None:
            if doing.startswith("estimate"):  # stays on the screen when the bar has gone
                bar.console.print(f"{name}: {doing}", markup=False, highlight=False)
            bar.update(task, completed=fraction, description=f"{name}: {doing}")

        yield progress


@contextmanager
def each_as_it_ends() -> Iterator[Callable[[list[Outcome]], None]]:
    """A function to call with the outcomes of all recipes so far, which prints those that are new.

    One line on the output for each recipe that has ended; on the error stream, which one runs.
    """
    printed: set[str] = set()
    console = Console(highlight=False)
    with Console(stderr=True).status("") as status:

        def changed(outcomes: list[Outcome]) -> None:
            for one in outcomes:
                name = one.entry.name
                if one.state is State.RUNNING:
                    status.update(f"{name} ({len(printed) + 1} of {len(outcomes)})")
                elif one.state is not State.WAITING and name not in printed:
                    printed.add(name)
                    console.print(_line(one))

        yield changed


def _line(one: Outcome) -> str:
    look = "green" if one.state is State.PASSED else "bold red"
    line = f"{one.entry.name:16} [{look}]{one.state.value}[/]"
    if one.record:
        line += f", {one.checks_passed} of {len(one.checks)} checks"
    if "seconds" in one.run:
        line += f", {duration(one.run['seconds'])}"
    if one.state is State.BROKE:
        line += f": {escape(one.trouble.splitlines()[0])}; see {escape(str(one.folder))}"
    return line


def print_result(result: Result, paths: Sequence[Path]) -> None:
    """Print the checks as a table, notes, the verdict, and where the files are."""
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
    print_paths(paths)
    if not result.passed:
        Console(stderr=True).print("checks failed")


def print_paths(paths: Sequence[Path]) -> None:
    """Say which files were written, one line each and never wrapped."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for path in paths:
        console.print(f"wrote {path}")


def print_catalogue(entries: Sequence[Recipe]) -> None:
    """One line per recipe."""
    table = Table(box=None, pad_edge=False)
    for title in ("recipe", "figure"):
        table.add_column(title, no_wrap=True)
    for title in ("what it shows", "the paper's statement"):
        table.add_column(title)
    for entry in entries:
        row = (entry.name, entry.figure, entry.summary, entry.standing)
        table.add_row(*map(escape, row))
    Console().print(table)


def print_recipe(entry: Recipe) -> None:
    """Print what a recipe shows and checks, and its options with range, default and help."""
    console = Console(highlight=False, markup=False)
    console.print(f"{entry.name} ({entry.figure}): {entry.summary}")
    console.print(f"statement: {entry.claim}")
    console.print(f"{entry.standing}{': ' if entry.proviso else ''}{entry.proviso}")
    if entry.errata:
        console.print(f"errata: {', '.join(entry.errata)}")
    for check in entry.checks:
        console.print(f"checks: {check}")
    table = Table("--set", "takes", "range", "default", "--quick", "", box=None, pad_edge=False)
    for one in describe(entry.options):
        short = repr(entry.quick[one.name]) if one.name in entry.quick else ""
        table.add_row(*map(escape, (one.name, one.kind, one.range, one.default, short, one.about)))
    console.print()
    console.print(table)


def print_facts(facts: Mapping[str, str]) -> None:
    """A table of two columns without borders, to be copied into a bug report."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, value in facts.items():
        table.add_row(escape(key), escape(value))
    Console().print(table)


def known_options(recipe: Recipe) -> set[str]:
    """The names of the options that a recipe has."""
    return {field.name for field in dataclasses.fields(recipe.options)}
