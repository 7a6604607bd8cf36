"""The course that every recipe takes: simulate, check, tell.

A recipe says what is its own and hands it to `perform`, which alone writes whether the paper's
statement holds: from the catalogue, where all checks passed. Imports nothing heavy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from gdln_jax.recipes._options import OptionError
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
    """What a recipe makes of its runs, supposing that all checks passed.

    Attributes:
        data, figure, notes: the `Result`'s.
        finding: what was found, with its numbers; it goes on after "N Fig. 0 holds: " (in the words
            of the catalogue) and is dropped, as `text` is, if a check failed.
        settled: values that the run chose or worked out, over the options of the same name.
        text: the `Result`'s.
    """

    data: Dataset
    figure: Callable[[], Figure]
    finding: str
    notes: Iterable[str] = ()
    settled: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


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

    Raises:
        OptionError: `simulate` refused, or could not finish, what options led to that are neither
            the defaults nor those of the short setting; says which these are.
    """
    progress(0.0, "networks")
    runs = _simulated(name, options, progress, simulate)
    progress(0.95, "checks")
    checks, facts = check(options, runs)
    checks = tuple(checks)
    told = tell(options, runs, facts)
    progress(1.0, "picture")
    return Result(
        name=name,
        data=told.data,
        checks=checks,
        figure=told.figure,
        verdict=verdict(name, checks, told.finding),
        notes=tuple(told.notes),
        options={**plain_values(options), **told.settled},
        text=told.text if not _failed(checks) else "",
    )


def verdict(name: str, checks: Sequence[Check], finding: str) -> str:
    """What the recipe `name` says of the paper's statement: nothing unless every check passed."""
    from gdln_jax.recipes import entry

    if failed := _failed(checks):
        return f"Checks failed ({failed}): the numbers below establish nothing."
    line = entry(name)
    return f"{line.figure} {line.standing}: {finding}"


def _failed(checks: Sequence[Check]) -> str:
    """The names of the checks that failed; where nothing was checked, that."""
    return "; ".join(one.name for one in checks if not one.passed) or (
        "" if checks else "there are none"
    )


def _simulated(
    name: str,
    options: _Options,
    progress: Progress,
    simulate: Callable[[_Options, Progress], _Runs],
) -> _Runs:
    from gdln_jax.recipes import load

    try:
        return simulate(options, progress)
    except OptionError:
        raise
    except (ValueError, ArithmeticError, RuntimeError) as error:
        usual = plain_values(type(options)())
        known = [*usual.items(), *(load(name).quick or {}).items()]
        given = {key: x for key, x in plain_values(options).items() if (key, x) not in known}
        if not given:  # no option is to blame
            raise
        chosen = ", ".join(f"{key}={value!r}" for key, value in given.items())
        reason = " ".join(str(error).split())
        raise OptionError(f"{name} cannot run with {chosen}: {reason}") from error


def plain_values(options: Any) -> dict[str, Any]:
    """The options by name."""
    return {one.name: getattr(options, one.name) for one in fields(options)}
