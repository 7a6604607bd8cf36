"""Semantic development: progressive differentiation, illusory correlations, category coherence."""

from dataclasses import dataclass
from pathlib import Path

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    csv: Path | None = option(None, "own data: a row per item, its name first, features as header")
    amplitude: float = option(1e-3, "initial strength a(0) of a mode", above=0)
    points: int = option(201, "times shown", least=11)
    seeds: int = option(8, "noisy data sets for category coherence", least=4)
    seed: int = option(1, "seed of the first")


CRITERIA = (
    exact("predictions", "gradient flow - closed form, all predictions", 1e-8),
    exact("distances", "gradient flow - closed form, hidden distances of all items", 1e-8),
    reference("half_times", "times at which modes are half learned", 1e-8, needs="built_in"),
    reference(
        "illusory", "fly for salmon and oak: largest value and its time", 1e-6, needs="built_in"
    ),
    reference("apart_half", "canary and oak, canary and salmon half apart", 1e-8, needs="built_in"),
    exact(
        "rule", "illusory by the order of modes, but not seen, or seen only", 0.0, needs="built_in"
    ),
    # Three standard errors; limit of large numbers at 240 features and 160 items.
    reference("coherence", "category coherence: overlaps - limit, standard errors", 3.0),
)
RECIPE = Recipe(
    package=__name__,
    order=190,
    figure="Semantic development",
    summary="Broad categories are learned before narrow ones, with illusions on the way",
    claim="A deep linear network differentiates categories progressively, broad ones first",
    standing="holds",
    proviso="from aligned, balanced initial weights",
    errata=(),
    options=Options,
    criteria=CRITERIA,
    quick={"points": 101},
)
