"""One recipe per figure of the papers: data, checks with tolerances, and a picture.

A recipe is a folder here and `CATALOGUE` the list of the folders; to load it imports neither JAX
nor matplotlib. `reproduce(name)` runs one, `redraw(file)` checks and draws a saved run again.
"""

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

from gdln_jax._checks import namespace as _namespace
from gdln_jax._version import __version__
from gdln_jax.recipes._core.declare import Criterion as Criterion
from gdln_jax.recipes._core.declare import Progress as Progress
from gdln_jax.recipes._core.declare import silent as silent
from gdln_jax.recipes._core.options import OptionError as OptionError
from gdln_jax.recipes._core.options import closest as _closest
from gdln_jax.recipes._core.options import describe as describe
from gdln_jax.recipes._core.options import parse as parse
from gdln_jax.recipes._core.options import with_values as with_values
from gdln_jax.recipes._core.recipe import Recipe as Recipe
from gdln_jax.recipes._core.recipe import Standing as Standing
from gdln_jax.recipes._core.result import Check as Check
from gdln_jax.recipes._core.result import Result as Result
from gdln_jax.recipes._core.write import foreign as foreign
from gdln_jax.recipes._core.write import read as _read
from gdln_jax.recipes._core.write import write as write


def catalogue() -> dict[str, Recipe]:
    """Return all recipes by name, in the order of the papers, from the folders that are here."""
    names = [one.name for one in pkgutil.iter_modules(__path__) if one.ispkg]
    folders = [importlib.import_module(f"{__name__}.{name}") for name in names if name[0] != "_"]
    every = [one.RECIPE for one in folders]
    return {one.name: one for one in sorted(every, key=lambda recipe: recipe.order)}


CATALOGUE = catalogue()


def load(name: str) -> Recipe:
    """Return the recipe called `name`; `OptionError`, with the nearest name, if there is none."""
    if name not in CATALOGUE:
        raise OptionError(f"there is no recipe {name!r}{_closest(name, CATALOGUE)}")
    return CATALOGUE[name]


def reproduce(
    name: str, *, quick: bool = False, progress: bool | Progress = True, **values: Any
) -> Result:
    """Run the recipe called `name` and return its `Result`; nothing is written.

    Args:
        name: one of `CATALOGUE`.
        quick: start from the recipe's short setting.
        progress: a bar in terminals and notebooks after two seconds; False: none; or a function,
            called as `progress(fraction, doing)` while the recipe runs.
        **values: option values by name, over the defaults (or the short setting).
    """
    from gdln_jax._progress import shown

    recipe = load(name)
    options = with_values(recipe.options, {**(recipe.quick if quick else {}), **values})
    with shown(name, progress) as report:
        return recipe.run(options, report or silent)


def redraw(file: Path | str) -> Result:
    """Measure, check and draw the run that is saved in `file` (NAME.nc) again, without running.

    Raises:
        OptionError: the file is not of a recipe, or of one whose options or data have changed
            since.
    """
    name, values, data = _read(file)
    recipe = load(name)
    options = with_values(recipe.options, values)
    try:
        return recipe.examine(options, data)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"does not fit: {error}"
        raise OptionError(
            f"{file} {what}. Either it was changed, or another version of {name!r} wrote it "
            f"({json.loads(data.attrs.get('versions', '{}')).get('gdln_jax', 'unknown')}; this is "
            f"{__version__}). Run it again: gdln reproduce {name}."
        ) from error


_ASKED = {
    "Entry": "the values of CATALOGUE are of the class Recipe",
    "entry": "recipes.load(name) returns the recipe",
}
__getattr__, __dir__ = _namespace(__name__, _ASKED)
