"""Catalogue entries, checks and recipes of those that have no folder yet."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gdln_jax.recipes._core.declare import Progress, silent  # noqa: F401
from gdln_jax.recipes._core.recipe import Standing
from gdln_jax.recipes._core.result import Check as _Check
from gdln_jax.recipes._core.result import Result


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


class Check(_Check):
    """A measured value held against its limit. Only finite values pass, and no error below 0."""

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
