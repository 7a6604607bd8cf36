"""How far a sweep is: a bar with an estimate on the error stream, nothing where nobody looks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

# Called with the fraction done, in [0, 1], and what is done now: as recipes report.
Report = Callable[[float, str], None]


@contextmanager
def reporting(progress: bool | Report, done: int, points: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of points that have just ended.

    `progress`: True for a bar (on a terminal only), False for none, or a function to call.
    `done`: points that came from the store.
    """
    ended = done

    if callable(progress):
        progress(ended / points, f"{ended} of {points} points")

        def tell(count: int) -> None:
            nonlocal ended
            ended += count
            progress(ended / points, f"{ended} of {points} points")

        yield tell
        return
    console = Console(stderr=True)
    if not (progress and console.is_terminal):
        yield lambda _: None
        return
    from rich.progress import (  # noqa: PLC0415  a quarter of the import, for terminals only
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("sweep"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # Few chunks, each of them long: the estimate is of all that ended, not of the last seconds.
    with Progress(*columns, console=console, speed_estimate_period=1e9) as bar:
        task = bar.add_task("sweep", total=points, completed=done)
        yield lambda count: bar.advance(task, count)
