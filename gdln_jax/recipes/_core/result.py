"""What a recipe returns: labelled data, checks with their values, text and picture.

Imports nothing heavy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import Dataset
else:  # not loaded by the catalogue, and not checked at run time
    Figure = Dataset = Any


def plain(value: object) -> object:
    """Return what JSON holds; numbers that are not finite, and all it does not know, as texts."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


@dataclass(frozen=True)
class Check:
    """A measured value and its interval; `Criterion` describes the fields."""

    name: str
    value: float
    limit: str
    passed: bool
    detail: str = ""
    id: str = ""
    kind: str = ""
    low: float = -math.inf
    high: float = math.inf
    basis: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; a number that is not finite is "nan", "inf" or "-inf"."""
        return {key: plain(value) for key, value in vars(self).items()}


def failed(checks: Sequence[Check]) -> str:
    """Return the names of the checks that failed, or that there are none; empty if all passed."""
    names = "; ".join(check.name for check in checks if not check.passed)
    return names if checks else "there are none"


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
        text: Markdown between verdict and checks, for example a table of results.
        caption: of the picture, panel by panel.
        numbers: what text and picture quote.
    """

    name: str
    data: Dataset
    checks: tuple[Check, ...]
    figure: Figure | Callable[[], Figure]
    verdict: str
    notes: tuple[str, ...] = ()
    options: Mapping[str, Any] | None = None
    text: str = ""
    caption: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)

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
