"""The declaration of a recipe and its course: simulate, measure, check, write text, draw.

Imports nothing heavy.
"""

import dataclasses
import importlib
import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from gdln_jax.recipes._core.declare import Criterion, Numbers, Progress, RecipeOptions, silent
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes._core.result import Dataset, Result, failed

# What may be said of a paper's statement.
Standing = Literal["holds", "holds under conditions", "does not hold"]
_CAPTION = "\n# Caption\n"


@dataclass(frozen=True)
class Recipe:
    """A figure of a paper: what it shows, its options and its criteria.

    The rest is in other files of its folder: `simulate.py` has `simulate(options, progress)`, which
    returns a labelled data set, and `measure(options, data)`, which returns the numbers;
    `figure.py` has `draw(data, numbers)`; `text.md` has the verdict, notes and the caption.

    Attributes:
        package: the folder as a package: `__name__`.
        order: recipes are listed by it.
        figure: figure or section of the paper.
        summary: what the picture shows.
        claim: the paper's statement that the figure is about.
        standing: what the criteria establish of it, shown only if all of them are met.
        proviso: the conditions, or what is true instead.
        errata: errata of the papers that the figure shows, such as `("E7", "E8")`.
        options: the class of the options.
        criteria: all assertions.
        quick: option values of a short run; empty if there is none.
    """

    package: str
    order: int
    figure: str
    summary: str
    claim: str
    standing: Standing
    options: type[RecipeOptions]
    criteria: tuple[Criterion, ...]
    proviso: str = ""
    errata: tuple[str, ...] = ()
    quick: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [one.id for one in self.criteria]
        if not ids or len(set(ids)) < len(ids):
            raise ValueError(f"recipe {self.name}: criteria need distinct ids, got {ids}")

    @property
    def name(self) -> str:
        """The name by which it is called: that of its folder, with hyphens."""
        return self.package.rpartition(".")[2].replace("_", "-")

    @property
    def checks(self) -> tuple[str, ...]:
        """What is checked, as texts."""
        return tuple(f"{one.name}: {one.limit}" for one in self.criteria)

    def run(self, options: RecipeOptions, progress: Progress = silent, **inputs: object) -> Result:
        """Make the figure; `inputs` are what `simulate` takes beside the options, if any.

        Raises:
            OptionError: `simulate` refused the options or could not finish with them, and some are
                neither defaults nor those of the short setting; the message names these.
        """
        progress(0.0, "networks")
        data = self._simulated(options, progress, inputs)
        progress(0.95, "checks")
        return self.examine(options, data)

    def examine(self, options: RecipeOptions, data: Dataset) -> Result:
        """Measure, check, describe and draw a data set that was made with `options`."""
        given = dataclasses.asdict(options)
        numbers = {**given, **self._module("simulate").measure(options, data)}
        checks = tuple(
            one.check(numbers) for one in self.criteria if not one.needs or numbers[one.needs]
        )
        finding, notes, text, caption = self.texts(numbers)
        failures = failed(checks)
        verdict = f"Checks failed ({failures}): the numbers below establish nothing."
        return Result(
            name=self.name,
            data=data,
            checks=checks,
            figure=partial(self._module("figure").draw, data, numbers),
            verdict=verdict if failures else f"{self.figure} {self.standing}: {finding}",
            notes=notes,
            options=given,
            text="" if failures else text,
            caption=caption,
            numbers=numbers,
        )

    def texts(self, numbers: Numbers) -> tuple[str, tuple[str, ...], str, str]:
        """Return finding, notes, tables and caption of `text.md`, with `numbers` inserted.

        A paragraph that is one number in braces, `{table}`, or begins with `|` is a table; one that
        begins with `[key]` appears only where that number is true.
        """
        file = importlib.resources.files(self.package) / "text.md"
        body, _, caption = file.read_text(encoding="utf-8").partition(_CAPTION)
        found = [re.match(r"(?:\[(\w+)\] )?(.*)", x.strip(), re.DOTALL) for x in body.split("\n\n")]
        parts = [one[2] for one in found if one and one[2] and (not one[1] or numbers[one[1]])]
        tables = [part for part in parts if re.match(r"\||\{\w+\}$", part)]
        first, *notes = (" ".join(part.split()) for part in parts if part not in tables)
        return (
            first.format_map(numbers),
            tuple(note.format_map(numbers) for note in notes),
            "\n\n".join(table.format_map(numbers) for table in tables),
            " ".join(caption.split()).format_map(numbers),
        )

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"{self.package}.{name}")

    def _simulated(
        self, options: RecipeOptions, progress: Progress, inputs: Mapping[str, object]
    ) -> Dataset:
        try:
            return self._module("simulate").simulate(options, progress, **inputs)
        except OptionError:
            raise
        except (ValueError, ArithmeticError, RuntimeError) as error:
            known = [*dataclasses.asdict(self.options()).items(), *self.quick.items()]
            given = {
                key: x for key, x in dataclasses.asdict(options).items() if (key, x) not in known
            }
            if not given:  # a fault of the recipe's
                raise
            chosen = ", ".join(f"{key}={value!r}" for key, value in given.items())
            reason = " ".join(str(error).split())
            raise OptionError(f"{self.name} cannot run with {chosen}: {reason}") from error
