"""Order and times of learning from a small start, without a differential equation in time."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe

# Systems, and what they are called in figure and table.
CASES = {
    "chain-2": "chain, L = 2",
    "chain-3": "chain, L = 3",
    "chain-4": "chain, L = 4",
    "fusion-3-3": "late fusion, L = 3",
    "fusion-3-2": "fusion after 2 of 3",
    "routing": "routing, M = 3",
    "attention": "attention heads",
}
FLIP = 0.8  # covariance of the case (s = 1 and 0.3) whose times are 3.6 apart


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    covariances: tuple[float, ...] = option(
        (0.1, 0.2, 0.3, 0.4, 0.8, 0.9), "of two modalities", least=0, below=1
    )
    small: tuple[float, ...] = option((1e-3, 1e-5, 1e-7), "scales, two layers", above=0, below=0.1)
    deep: tuple[float, ...] = option((0.03, 0.01, 0.003), "scales, deeper", above=0, below=0.2)
    cases: tuple[str, ...] = option(tuple(CASES), "systems; routing always")

    def validate(self) -> None:
        """Three falling scales extrapolate; names are known."""
        for name in ("small", "deep"):
            scales = getattr(self, name)
            if len(scales) != 3 or list(scales) != sorted(set(scales), reverse=True):
                raise ValueError(f"{name} must be three falling numbers, got {scales}")
        if not {"routing"} <= set(self.cases) <= set(CASES):
            raise ValueError(f"cases must be of {', '.join(CASES)}, with routing")


CRITERIA = (
    exact("closed", "T* of chains and routing by saddles - closed form, relative", 1e-7),
    exact("formula", "late fusion: t_B/t_A by saddles - corrected formula", 1e-8),
    reference("routing", "T* of routing, M = 3, relative", 1e-7),
    # The flow between the two smallest scales; corrections fall as eps^(2 (1 - k)).
    reference("ratio", "flow of the case whose sign flips: t_B/t_A - 3.6", 1e-4),
    exact("two_layers", "two layers: slope of the flow / theta - 1, largest", 2e-3, "finite scale"),
    exact("deeper", "deeper: extrapolated flow / prediction - 1, largest", 5e-3, "finite scale"),
    statistical("old", "flips: flow over the formula without correction", 1.2, 10.0, "3.6 : 2.4"),
    statistical("bias", "A first, though B lowers the loss more: t_B/t_A", 1.5, 10.0, "s_A > s_B"),
)
RECIPE = Recipe(
    package=__name__,
    order=170,
    figure="Saddles (new)",
    summary="Order and times of learning from a small start, predicted and simulated",
    claim="From a small start a network learns in steps whose times need no simulation",
    standing="holds under conditions",
    proviso="as the initial scale goes to 0; near events and slow arrivals need very small scales",
    options=Options,
    quick={"covariances": (0.3,), "cases": ("routing",)},
    criteria=CRITERIA,
)
