"""What a recipe returns: labelled data, checks with their values, text and picture.

Imports nothing heavy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import Dataset
else:  # not loaded by the catalogue, and not checked at run time
    Figure = Dataset = Any


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
        """Plain values for JSON; a number that is not finite is "nan", "inf" or "-inf"."""
        return {
            key: value if not isinstance(value, float) or math.isfinite(value) else str(value)
            for key, value in vars(self).items()
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
