"""Recipes of one function, in place of a folder, for tests of what surrounds recipes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gdln_jax.recipes import Check, Recipe, Result, silent

# What a recipe of the package is declared with; tests take it from here.
from gdln_jax.recipes._core.declare import (
    RecipeOptions,
    exact,
    option,
    statistical,
)

__all__ = ["RecipeOptions", "check", "exact", "option", "statistical", "tiny"]

CRITERION = exact("error", "error", 1e-8)


def check(value: float, detail: str = "") -> Check:
    """The check that an error is at most 1e-8."""
    return exact("error", "error", 1e-8, detail=detail).check({"error": value})


@dataclass(frozen=True)
class Tiny(Recipe):
    """A recipe whose run is `made(options, progress)`, which returns the result."""

    made: Callable[..., Result] = field(kw_only=True)

    def run(
        self, options: RecipeOptions, progress: Callable[..., None] = silent, **_: object
    ) -> Result:
        """The result that `made` returns."""
        return self.made(options, progress)


def tiny(
    name: str,
    made: Callable[..., Result],
    options: type[RecipeOptions],
    quick: Mapping[str, Any] | None = None,
    **said: Any,
) -> Tiny:
    """A line of the catalogue; what a test does not look at is made up."""
    known = {"summary": "nothing at all", "claim": "Nothing", "standing": "holds", **said}
    shown = {"order": 0, "figure": "N Fig. 0", "criteria": (CRITERION,), **known}
    return Tiny(name, options=options, quick=quick or {}, made=made, **shown)
