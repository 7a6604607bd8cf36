"""Quick runs of recipes, each made once, and what becomes of them when their data are changed."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import jax
from drawn_text import faults
from matplotlib.figure import Figure

from gdln_jax import recipes
from gdln_jax.recipes import Result

# Recipes of thousands of steps, which take longer than LLVM's optimisation. Half the CPU time goes
# in `claims`, `depth`, `contexts` and `images`, a third in `gates`, a tenth in the others.
LONG = {
    *("claims", "contexts", "depth", "gates", "generalisation", "images", "learned-gates"),
    *("margin", "more-contexts", "routing"),
}
# Endings of the files that the command writes for a recipe, sorted.
WRITTEN = [".json", ".md", ".nc", ".pdf", ".png", ".txt"]


@contextmanager
def optimised() -> Iterator[None]:
    """Compiles with LLVM's optimisation: for runs that take longer than that (see conftest.py)."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


@cache
def quick(name: str, **values: Any) -> Result:
    """The result of a recipe in its short setting."""
    with optimised() if name in LONG else nullcontext():
        return recipes.reproduce(name, quick=True, **values)


def failed(result: Result, **changes: Any) -> set[str]:
    """Ids of the checks that fail once variables are replaced; a change is an array or a function.

    The measured numbers, the checks and the text are made again from the changed data set.
    """
    recipe = recipes.load(result.name)
    data = result.data.copy(deep=True)
    for name, change in changes.items():
        values = data[name].values
        data[name] = data[name].copy(data=change(values) if callable(change) else change)
    options = recipes.with_values(recipe.options, result.options or {})
    return {check.id for check in recipe.examine(options, data).checks if not check.passed}


def check_sound(result: Result) -> None:
    """All checks pass, criteria that apply have their numbers, and the picture can be read."""
    assert result.passed, [check for check in result.checks if not check.passed]
    recipe = recipes.load(result.name)
    applied = [one for one in recipe.criteria if not one.needs or result.numbers[one.needs]]
    assert {one.id for one in applied} <= set(result.numbers)
    assert result.verdict.startswith(f"{recipe.figure} {recipe.standing}: ")
    assert all("long_name" in result.data[name].attrs for name in result.data.data_vars)
    assert callable(result.figure)
    figure = result.figure()
    assert isinstance(figure, Figure)
    assert not faults(figure)
    panels = {text.get_text() for ax in figure.axes for text in ax.texts}
    for letter in panels & set("abcdefghij"):
        assert f"**{letter}**" in result.caption, letter
