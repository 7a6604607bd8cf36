"""The course that every recipe takes: simulate, check, tell.

A recipe says what is its own and hands it to `perform`. Imports nothing heavy.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from gdln_jax.recipes._recipe import Check, Progress, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import Dataset
else:  # not loaded here, and not checked at run time
    Figure = Dataset = Any

Facts = dict[str, Any]
_Options = TypeVar("_Options")
_Runs = TypeVar("_Runs")


@dataclass(frozen=True)
class Told:
    """What a recipe makes of its runs; `data`, `figure`, `verdict`, `notes` are the `Result`'s.

    `settled`: values that the run chose or worked out, over the options of the same name.
    """

    data: Dataset
    figure: Callable[[], Figure]
    verdict: str
    notes: Iterable[str] = ()
    settled: Mapping[str, Any] = field(default_factory=dict)


def perform(
    name: str,
    options: _Options,
    progress: Progress,
    simulate: Callable[[_Options, Progress], _Runs],
    check: Callable[[_Options, _Runs], tuple[Iterable[Check], Facts]],
    tell: Callable[[_Options, _Runs, Facts], Told],
) -> Result:
    """Run the recipe `name`.

    Args:
        name: of the catalogue.
        options: an instance of the recipe's dataclass.
        progress: told how far the run is.
        simulate: all that costs time; it may report progress itself.
        check: all assertions, and the numbers that text and picture quote.
        tell: data set, picture and text from the runs and those numbers.
    """
    progress(0.0, "networks")
    runs = simulate(options, progress)
    progress(0.95, "checks")
    checks, facts = check(options, runs)
    told = tell(options, runs, facts)
    progress(1.0, "picture")
    return Result(
        name=name,
        data=told.data,
        checks=tuple(checks),
        figure=told.figure,
        verdict=told.verdict,
        notes=tuple(told.notes),
        options={**plain_values(options), **told.settled},
    )


def plain_values(options: Any) -> dict[str, Any]:
    """The options by name."""
    return {one.name: getattr(options, one.name) for one in fields(options)}
