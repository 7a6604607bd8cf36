"""What a recipe is and what it returns: options in, labelled data, checks and a picture out.

A check is an assertion with its tolerance; a result whose checks fail says so in its verdict, on
its picture and in the exit code of the command. Imports nothing heavy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import Dataset
else:  # not loaded here, and not checked at run time
    Figure = Dataset = Any

# What may be said of a paper's statement.
Standing = Literal["holds", "holds under conditions", "does not hold"]

# How a recipe tells how far it is: the fraction done, in [0, 1], and what it does now.
Progress = Callable[[float, str], None]


def silent(fraction: float, doing: str) -> None:
    """The progress report that reports nothing."""


@dataclass(frozen=True)
class Entry:
    """A line of the catalogue: what can be said of a recipe without importing it.

    Attributes:
        name: the recipe.
        figure: the figure or section of the paper.
        summary: what its picture shows.
        checks: what it checks, in words.
        room: the module that makes it.
        claim: the paper's statement that the figure is about.
        standing: what the checks establish of that statement; it is shown only where all of them
            passed. None: not judged.
        proviso: the conditions, or what is true instead.
        errata: the errata of the papers that the figure shows, for example `("E7", "E8")`.
    """

    name: str
    figure: str
    summary: str
    checks: tuple[str, ...]
    room: str
    claim: str = ""
    standing: Standing | None = None
    proviso: str = ""
    errata: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A figure that can be made: its line of the catalogue, its options, and how it is run.

    `quick` holds the option values of a short run, or is None where there is no shorter setting.
    """

    name: str
    figure: str
    summary: str
    checks: tuple[str, ...]
    options: type
    run: Callable[[Any, Progress], "Result"]
    quick: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Check:
    """A measured value held against its limit. Only finite values pass, and no error below 0."""

    name: str
    value: float
    limit: str
    passed: bool
    detail: str = ""

    @classmethod
    def below(cls, name: str, value: Any, limit: float, detail: str = "") -> "Check":
        """The check that `0 <= value < limit`, for an error: a distance below 0 is none."""
        value = float(value)
        return cls(name, value, f"< {limit:.4g}", 0 <= value < limit, detail)

    @classmethod
    def near(
        cls, name: str, value: Any, expected: float, tolerance: float, detail: str = ""
    ) -> "Check":
        """The check that `|value - expected| <= tolerance`, for a number that is known."""
        value = float(value)
        passed = math.isfinite(value) and abs(value - expected) <= tolerance
        return cls(name, value, f"{expected:.8g} ± {tolerance:.2g}", passed, detail)

    @classmethod
    def between(cls, name: str, value: Any, low: float, high: float, detail: str = "") -> "Check":
        """The check that `low <= value <= high`, for a statistic; one limit may be infinite."""
        value = float(value)
        passed = math.isfinite(value) and low <= value <= high
        return cls(name, value, f"{low:.4g} .. {high:.4g}", passed, detail)

    @classmethod
    def outside(cls, name: str, value: Any, low: float, high: float, detail: str = "") -> "Check":
        """The check that `value < low` or `value > high`, for a claim that is wrong."""
        value = float(value)
        passed = math.isfinite(value) and not low <= value <= high
        return cls(name, value, f"not {low:.4g} .. {high:.4g}", passed, detail)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a value that is not finite is "nan", "inf" or "-inf"."""
        value = self.value if math.isfinite(self.value) else str(float(self.value))
        return {
            "name": self.name,
            "value": value,
            "limit": self.limit,
            "passed": self.passed,
            "detail": self.detail,
        }


@dataclass(frozen=True)
class Result:
    """What a recipe found.

    Attributes:
        name: the recipe.
        data: every number behind the picture, labelled, with units in the attributes.
        checks: the assertions, all of them, passed or not.
        figure: the picture, or a function that draws it.
        verdict: one sentence: what the figure shows, with its number.
        notes: further remarks, for example on errata of the paper.
        options: the options that it was run with, as plain values.
        text: Markdown that stands between verdict and checks, for example a table of results.
    """

    name: str
    data: Dataset
    checks: tuple[Check, ...]
    figure: Figure | Callable[[], Figure]
    verdict: str
    notes: tuple[str, ...] = ()
    options: Mapping[str, Any] | None = None
    text: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check passed; a result without checks has not passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def __repr__(self) -> str:
        good = sum(check.passed for check in self.checks)
        sizes = ", ".join(f"{name}: {size}" for name, size in self.data.sizes.items())
        return (
            f"Result({self.name}: {good}/{len(self.checks)} checks passed; {sizes}; {self.verdict})"
        )
