"""How far a sweep is: points that have ended, of all."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gdln_jax._progress import Progress, Report, shown


@contextmanager
def reporting(progress: Progress, done: int, points: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of points that have just ended.

    `progress`: True for a bar (in terminals and notebooks), False for none, or a function to call.
    `done`: points that came from the store.
    """
    ended = done

    def tell(report: Report, count: int) -> None:
        nonlocal ended
        ended += count
        report(ended / points, f"{ended} of {points} points")

    with shown("sweep", progress, delay=0.0) as report:
        if report is None:
            yield lambda _: None
            return
        tell(report, 0)
        yield lambda count: tell(report, count)
