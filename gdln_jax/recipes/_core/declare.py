"""Options of a recipe with help and ranges, and its criteria. Imports nothing heavy."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import ge, gt, le, lt
from typing import Any, Literal, TypeVar

from gdln_jax.recipes._core.result import Check

Kind = Literal["exact", "reference", "statistical"]
# A recipe reports the fraction done, in [0, 1], and what it does now.
Progress = Callable[[float, str], None]
# What checks, text and figure quote: numbers, texts, and arrays for the figure.
Numbers = dict[str, Any]
_Value = TypeVar("_Value")
_Number = float | int


def silent(fraction: float, doing: str) -> None:
    """Report no progress."""


# ------------------------------------------------------------------ options
# Limit -> its words in the help, and what holds of a value inside.
_LIMITS = {
    "least": ("at least", ge),
    "above": ("above", gt),
    "most": ("at most", le),
    "below": ("below", lt),
}


def option(default: _Value, about: str, *, empty: bool = False, **limits: _Number) -> _Value:
    """Declare a field of an options class: its default, what it is about, and its range.

    Limits are `least`, `above`, `most` and `below`. They hold for each entry of a tuple, and None
    is always allowed where the type has it. A tuple has at least one entry, unless `empty`.
    """
    every = [(*_LIMITS[name], limit) for name, limit in limits.items()]
    text = " and ".join(f"{words} {limit:g}" for words, _, limit in every)
    return field(
        default=default, metadata={"about": about, "range": text, "limits": every, "empty": empty}
    )


@dataclass(frozen=True)
class RecipeOptions:
    """The base of the options of a recipe; checks ranges, in which a value must be finite."""

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            limits, value = one.metadata.get("limits", ()), getattr(self, one.name)
            if value == () and not one.metadata.get("empty", True):
                raise ValueError(f"{one.name} must have at least one entry")
            for number in value if isinstance(value, tuple) else (value,):
                if not limits or not isinstance(number, int | float):
                    continue
                if not (math.isfinite(number) and all(holds(number, x) for _, holds, x in limits)):
                    limit = one.metadata["range"]
                    raise ValueError(f"{one.name} must be a number {limit}, got {number}")
        self.validate()

    def validate(self) -> None:
        """Refuse what ranges cannot express, by ValueError."""


# ------------------------------------------------------------------ criteria
@dataclass(frozen=True)
class Criterion:
    """An assertion on the measured number of the same name; only finite values can pass.

    Attributes:
        id: stable name in tests and records; the key of the number.
        kind: "exact" (an identity; the tolerance is that of rounding and solver), "reference" (an
            independent value; the tolerance is its digits or standard error), "statistical" (an
            interval for random networks).
        name: what is compared.
        low, high: the interval, both ends included; one may be infinite.
        basis: why this interval.
        detail: a format string over the numbers.
        needs: the key of a number; the criterion applies only where that is true.
    """

    id: str
    kind: Kind
    name: str
    low: _Number
    high: _Number
    basis: str
    detail: str = ""
    needs: str = ""

    @property
    def limit(self) -> str:
        """The interval as text."""
        if math.isinf(self.high):
            return f"at least {self.low:.6g}"
        if self.low == 0:
            return f"at most {self.high:.4g}"
        return f"{self.low:.6g} to {self.high:.6g}"

    def check(self, numbers: Numbers) -> Check:
        """Apply the criterion to the number of its name."""
        value = float(numbers[self.id])
        passed = math.isfinite(value) and self.low <= value <= self.high
        low, high, detail = float(self.low), float(self.high), self.detail.format_map(numbers)
        known = (self.id, self.kind, low, high, self.basis)
        return Check(self.name, value, self.limit, passed, detail, *known)


def exact(
    key: str, name: str, limit: _Number, basis: str = "rounding", detail: str = "", needs: str = ""
) -> Criterion:
    """Declare an identity: a distance, never negative, of at most `limit`."""
    return Criterion(key, "exact", name, 0.0, limit, basis, detail, needs)


def reference(
    key: str, name: str, limit: _Number, basis: str = "digits", detail: str = "", needs: str = ""
) -> Criterion:
    """Declare a distance from an independent value, of at most `limit`."""
    return Criterion(key, "reference", name, 0.0, limit, basis, detail, needs)


def statistical(
    key: str, name: str, low: _Number, high: _Number, basis: str, detail: str = "", needs: str = ""
) -> Criterion:
    """Declare an interval for a number of random networks."""
    return Criterion(key, "statistical", name, low, high, basis, detail, needs)
