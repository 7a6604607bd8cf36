"""N Fig. 5a-b: the routing task through pathways that share more or less, and their race."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    domains: int = option(10, "number M of input and of output domains", least=2)
    amplitude: float = option(0.2, "initial strength B(0) of all layers", above=0)
    width: int = option(5, "units of each hidden node, at least the 4 modes", least=4)
    times: int = option(41, "times at which each run is recorded", least=3)

    @property
    def shares(self) -> tuple[int, ...]:
        """All P: squares of the divisors of M."""
        return tuple(k**2 for k in range(1, self.domains + 1) if self.domains % k == 0)


RECIPE = Recipe(
    package=__name__,
    order=20,
    figure="N Fig. 5a-b",
    summary="Pathways that share more learn faster; shared and dedicated ones race in one network",
    claim="The more a pathway shares, the faster it learns (Eq. 16-17): it wins the race",
    standing="holds",
    proviso="what the loser keeps has an exact law, and the race gives no threshold in K",
    errata=("E5", "E11"),
    options=Options,
    quick={"domains": 2, "times": 21},
    criteria=(
        exact("flow", "gradient flow of all networks - Eq. 16-17, B1 and B2, all edges", 1e-9),
        exact("reduced", "reduction (quotient) - Eq. 16-17, B1 and B2, all P", 1e-9),
        exact("ratio", "E5: balanced B2/B1 / P^(1/4) - 1, all times", 1e-9, detail="{ends}"),
        exact("exponent", "balanced, equal product: exponent of the half times + 2/3", 1e-10),
        exact("clock", "balanced: products of all P at t P^(2/3), difference / (s/d)", 1e-9),
        reference("half", "times to half, M = 10, P = 1 and 100, relative", 1e-10),
        exact("race", "race: gradient flow - reduction, B1 and B2, all edges", 1e-9),
        exact("kept_error", "race: share that the loser keeps - exact law", 1e-6, "end of the run"),
        exact("decrease", "race: largest decrease of the loser's B2 between records", 1e-9),
    ),
)
