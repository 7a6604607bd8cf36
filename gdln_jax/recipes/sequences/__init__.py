"""Tasks in turn: forgetting, critical periods and the effort of learning, in closed form."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    amplitude: float = option(0.01, "initial strength a(0) of a mode", above=0, most=0.02)
    overlaps: int = option(9, "tasks B, from no overlap with A to 0.9", least=2)
    rate: float = option(10.0, "rate of fast gates, beside that of weights", above=0)
    starts: int = option(9, "times at which a gate closes", least=2)
    steps: int = option(100, "steps over which effort is optimised", least=20)


CRITERIA = (
    exact("sequence", "A, B, A: reduction - chained closed form, strengths", 1e-9),
    reference("savings_reference", "savings, transfer and times", 1e-8, needs="of_the_reference"),
    # Fast gates keep both tasks, measured 0.999; those 100 times slower do not, measured 0.10.
    statistical("fast", "weights of A after B without overlap, fast gates", 0.8, 1.0, "flexible"),
    exact("period", "critical period: reduction - closed form, final share", 1e-9),
    exact("never", "gate never closed: share - 1/2", 1e-12),
    # Of first order in the step: the residual halves, 1.78 to 1.98 on five graphs.
    statistical(
        "law_low", "law of effort: residual at half the steps / at all", 1.7, 2.1, "order 1"
    ),
    statistical("law_high", "the same, largest of both networks", 1.7, 2.1, "order 1"),
    statistical("wrong", "residual of the law with beta for beta/2", 0.5, 2.0, "must fail"),
)
RECIPE = Recipe(
    package=__name__,
    order=180,
    figure="Sequences",
    summary="Tasks in turn: forgetting, a critical period, and the best effort over time",
    claim="What a linear network forgets, and what it saves, follows from its reduction",
    standing="holds",
    proviso="for tasks with common frames, from aligned weights",
    errata=(),
    options=Options,
    criteria=CRITERIA,
    quick={"overlaps": 3, "starts": 5, "steps": 60},
)
