"""In-context regression by linear attention: a staircase over components, and a race of heads."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    context: int = option(20, "N, labelled examples in a context", least=1)
    noise: float = option(0.1, "variance of the noise of labels", least=0)
    heads: tuple[int, ...] = option((3, 5), "numbers of heads that are drawn", least=3)
    seeds: int = option(3, "random starts of each", least=1)
    seed: int = option(0, "seed of the first", least=0)
    scales: tuple[float, ...] = option((0.03, 0.01, 0.001), "of the weights", above=0, most=0.03)
    contexts: tuple[int, ...] = option((2, 5, 20, 100), "context lengths of panel d", least=1)
    points: int = option(1500, "times of a run", least=200)

    def validate(self) -> None:
        """Scales fall, and the last is small enough for a staircase."""
        if list(self.scales) != sorted(set(self.scales), reverse=True) or self.scales[-1] > 0.01:
            raise ValueError(f"scales must fall to 0.01 or below, got {self.scales}")


CRITERIA = (
    exact("reduced", "aligned: full network - reduction, loss / L(0)", 1e-9),
    exact("difference", "race: 1/b_h - 1/b_g over time - at the start", 1e-7, "solver"),
    reference("ends", "race: strengths at the end", 1e-8, needs="of_the_reference"),
    reference("limits", "random: limits of scale x time, relative", 1e-5, needs="of_the_reference"),
    exact("plateaus", "random: loss on plateaus - closed form (half, at 0.03)", 1e-3, "scale"),
    exact("times", "random: (scale x time / limit - 1) / scale", 20.0, "order 1: 2 % at 0.001"),
    statistical("winners", "random: share of heads on the component predicted", 1.0, 1.0, "scale"),
    exact("merged", "merged, white: flow - closed form, loss", 1e-8),
    exact("same_end", "merged, not white: loss at the end - last plateau", 1e-6),
    exact("context_gap", "contexts and noise: loss at the end - closed form", 1e-6),
    statistical("spread", "gradient flow: last drop / first, time", 10.0, 1e3, "ratios of S"),
    statistical("muon", "Muon: last drop / first, time", 1.0, 4.0, "equal steps"),
)
RECIPE = Recipe(
    package=__name__,
    order=170,
    figure="Attention (new)",
    summary="In-context regression by linear attention as a gated race of heads",
    claim="Linear attention learns one component of the inputs after another",
    standing="holds under conditions",
    proviso="heads of rank 1, gradient flow from small weights; merged heads learn all at once",
    options=Options,
    quick={"heads": (3,), "seeds": 1, "scales": (0.03, 0.01), "contexts": (5, 20), "points": 500},
    criteria=CRITERIA,
)
