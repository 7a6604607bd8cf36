"""H Fig. 5: the same hierarchy in 3, 4, 5 or any number of contexts, in closed form."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    contexts: tuple[int, ...] = option((3, 4, 5), "numbers C of contexts", least=3)
    seeds: int = option(5, "networks of each kind", least=1)
    seed: int = option(0, "seed of the first network")
    width: int = option(100, "units of a pathway, at least its 8 modes", least=8)
    relu_width: int = option(700, "units of the ReLU network", least=1)
    std: float = option(7.142857e-6, "standard deviation of the initial weights", above=0)
    learning_rate: float = option(1e-3, "step, of loss_scale times the mean loss", above=0)
    steps: int = option(8000, "steps of gradient descent", least=1)
    loss_scale: float | None = option(None, "factor of the mean loss; none: H's sum", above=0)

    def validate(self) -> None:
        """Every number of contexts once."""
        if not self.contexts or len(set(self.contexts)) < len(self.contexts):
            raise ValueError(f"contexts must be different numbers from 3, got {self.contexts}")


_RANDOM = "random weights"
CRITERIA = (
    reference("modes", "contextual modes at t = 4, C = 3, relative", 1e-12),
    reference("initial", "loss at the start, sum, all C", 1e-9),
    reference("additive", "loss after the common fit, sum, all C", 1e-9),
    # Half a unit of the last of the eight digits given.
    reference("start", "initial values of contextual modes, C = 3", 5e-8, needs="of_the_paper"),
    exact("residual", "residual: flow - closed form, strengths, all C", 1e-8, "solver"),
    exact("overlap", "U_p^T U_j + 1/(C-1) on the contextual modes, all C (E16)", 1e-12),
    statistical("whole", "output along common modes - H Eq. 7, mean / final", 0.0, 0.01, _RANDOM),
    # 0.1 % in the mean over many seeds; the median of a few has 0.3 %.
    statistical("gated", "gated networks - closed form, mean loss gap", 0.0, 0.003, _RANDOM),
    statistical("relu", "ReLU networks - closed form, mean loss gap", 0.0, 0.04, _RANDOM),
    reference("majority", "number of contexts with most power - known one", 0, needs="known"),
    # Two or three seeds scatter by 0.05, as does the number of units.
    reference("e26", "C = 5: power of units on in 3 and in 4 contexts", 0.1, "E26", needs="five"),
)
RECIPE = Recipe(
    package=__name__,
    order=100,
    figure="H Fig. 5",
    summary="Any number of contexts in closed form, with initial values that are not free",
    claim="For any number C of contexts ReLU units gate on C - 1 of them, in closed form",
    standing="holds under conditions",
    proviso="in the corrected closed form; with 5 contexts most power is on in C - 2 for inputs "
    "as printed, in C - 1 for those of the public code",
    errata=("E16", "E17", "E18", "E19", "E23", "E24", "E26", "E27", "E28"),
    options=Options,
    quick={"seeds": 2, "contexts": (3, 4)},
    criteria=CRITERIA,
)
