"""Gates that are learned: by differentiating through the dynamics, and beside the weights."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    starts: int = option(24, "random starts of each problem", least=1)
    seed: int = option(0, "seed of the random starts")
    seeds: int = option(6, "networks that learn two tasks in blocks", least=1)
    recovery: bool = option(True, "also routing and contexts, which take most of the time")


_CROSSOVER = "crossover {crossover:.3f}, sqrt(2/3) as a0 -> 0"
# Most starts end in a local optimum: over keys 1 of 16 to 8 of 24 share one pathway.
_RECOVERY = (
    ("routing", "routing: the fastest start has one shared pathway", 1, ""),
    ("routing_rate", "routing: share of starts that do", 0.05, "of {starts}"),
    ("contexts", "contexts: pathways of the fastest start are on in all but one", 1, ""),
    ("contexts_rate", "contexts: share of starts that do", 0.2, "of {starts}"),
    ("fastest", "contexts: fastest of all families of subsets", 1, "next: {second:.0%} slower"),
)
CRITERIA = (
    exact("pure", "margin: time at pure gates / closed form - 1", 1e-3, "rtol 1e-4 of the flow"),
    statistical("wrong", "margins at which the fastest start errs", 0, 0, "starts", _CROSSOVER),
    statistical("slow", "blocks, slow gates: share held of the idle task", 0, 0.2, "forgetful"),
    statistical("fast", "blocks, fast leaky gates: the same", 0.85, 1, "flexible"),
    *(statistical(*row[:3], 1, "other keys", row[3], "recovery") for row in _RECOVERY),
)
RECIPE = Recipe(
    package=__name__,
    order=125,
    figure="Learned gates (new)",
    summary="Gates learned through the dynamics, from random starts, and beside the weights",
    claim="The gates that learn fastest can be learned, from random ones",
    standing="holds under conditions",
    proviso="by the fastest of many starts: most end in a local optimum",
    errata=("E15", "E23"),
    options=Options,
    quick={"recovery": False},
    criteria=CRITERIA,
)
