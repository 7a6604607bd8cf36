"""Shared against dedicated pathways under several optimisers, and the edge of stability."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe

# Laws of the error for small random weights; of Adam, where widths of shared and dedicated pathways
# are 8 and 3, or 5 and 5. That of gradient descent and momentum goes to 0 as scale^6.
LAWS = dict.fromkeys(("descent", "momentum"), 0.0)
LAWS |= dict.fromkeys(("polar", "newton-schulz", "normalized"), 0.25)
LAWS |= {"adam": (9 / 73) ** 2, "adam-equal": 0.25}


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    domains: int = option(7, "M, input and output domains", least=3)
    trained: int = option(4, "K, outputs that every input is trained with", least=1)
    scales: tuple[float, ...] = option((0.3, 0.1, 0.03, 0.01, 0.003), "of the weights", above=0)
    seeds: int = option(8, "networks of each scale", least=2)
    seed: int = option(0, "seed of the first network", least=0)
    steps: int = option(1000, "where rates fall to 0; descent and momentum: 4 times", least=100)
    level: float = option(1e-5, "trained loss / L(0) at which errors are read", above=0, below=0.1)
    optimisers: tuple[str, ...] = option(tuple(LAWS), "which are run; descent and polar always")

    def validate(self) -> None:
        """Some routes stay untrained, two scales give a slope, names are known."""
        if self.trained >= self.domains:
            raise ValueError(f"trained = {self.trained} must be below domains = {self.domains}")
        if self.steps % 100:
            raise ValueError(f"steps must be a multiple of 100, got {self.steps}")
        if len(self.scales) < 2 or list(self.scales) != sorted(set(self.scales), reverse=True):
            raise ValueError(f"scales must be at least two falling numbers, got {self.scales}")
        if not {"descent", "polar"} <= set(self.optimisers) <= set(LAWS):
            raise ValueError(f"optimisers must be of {', '.join(LAWS)}, with descent and polar")


_FINITE = "finite weights and steps"
CRITERIA = (
    exact("network", "exact: full network - reduction or quotient, loss / L(0)", 1e-12),
    reference("laws", "aligned: laws of the race and of the sign flow, error", 1e-8),
    reference("descent_c", "aligned: descent at step 0.3, error", 2e-3),
    exact("sign_c", "aligned: polar factor - law of the sign flow, error", 1e-4, "finite steps"),
    *(
        statistical(f"{name}_law", f"random: {name}, error / law", 0.9, 1.6, _FINITE, needs=name)
        for name in tuple(LAWS)[2:]
    ),
    statistical("ratio", "random: error of the polar factor / descent", 1e3, 1e12, "both laws"),
    statistical("slope", "random: descent, exponent of the error in the scale", 5.3, 6.4, _FINITE),
    exact("cycle_gap", "two-cycle: strength in the network - closed form", 1e-9),
    exact("sharp", "largest curvature of the full loss along a run - closed form", 1e-8),
    statistical("left", "step at which rounding has left the manifold", 25.0, 60.0, "rounding"),
)
_FEW = {"domains": 5, "trained": 3, "scales": (0.1, 0.01), "seeds": 3, "steps": 400}
RECIPE = Recipe(
    package=__name__,
    order=165,
    figure="Optimisers (new)",
    summary="Which optimiser finds shared structure, and where training leaves the theory",
    claim="Gradient descent learns what is shared; rules that divide by the gradient do not",
    standing="holds under conditions",
    proviso="small weights and steps; exact for aligned starts, measured for random ones",
    options=Options,
    quick={**_FEW, "optimisers": ("descent", "polar", "adam")},
    criteria=CRITERIA,
)
