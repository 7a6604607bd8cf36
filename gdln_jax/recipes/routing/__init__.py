"""N Fig. 4: M input and M output domains learn through one shared hidden pathway."""

from dataclasses import dataclass
from typing import Literal

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe; where they are None the data decide."""

    domains: int = option(7, "number M of input and of output domains", least=1)
    trained: int = option(4, "number K of outputs that each input is trained with", least=1)
    width: int = option(64, "units of each hidden layer", least=1)
    seeds: int = option(10, "number of random networks", least=1)
    seed: int = option(0, "seed of these networks and of random patterns")
    pattern: Literal["cyclic", "random_biregular", "rows_only"] = option("cyclic", "trained routes")
    init: Literal["xavier", "orthogonal", "normal"] = option("xavier", "random initial weights")
    init_scale: float | None = option(None, "their scale; none: 0.2 in proportion", above=0)
    amplitude: float | None = option(None, "decoupled b(0); none: 0.2 in proportion", above=0)
    learning_rate: float | None = option(None, "step of descent; none: a stable one", above=0)
    duration: float | None = option(None, "in units of tau; none: until learned", above=0)
    base: str = option("hierarchy", "hierarchy, digits, or FILE.npz with x (n, d) and y (n, k)")
    whiten: bool | None = option(None, "whiten inputs; none: all but the hierarchy's")
    unequal: bool = option(True, "also solve a pattern with unequal inputs per output (E7)")

    def validate(self) -> None:
        """No input has more than M outputs."""
        if self.trained > self.domains:
            raise ValueError(
                f"trained is {self.trained}, but there are only {self.domains} domains"
            )


_SOLVER = "tolerance of the solver"
_RATIO = "{ratio_low:.8g} to {ratio_high:.8g}; sqrt(M) = {root:.8g} is the limit"
_SEEDS = "{seeds} seeds, quartiles {low:.1e} to {high:.1e}; trained routes {error_trained:.1e}"
_DESCENT = "decoupled: gradient descent - trained quotient (Eq. 13-14)"
_TRANSFER = "random: relative error of untrained routes, median"
CRITERIA = (
    exact("flow", "decoupled: gradient flow - Eq. 15, weights of all edges", 1e-8, _SOLVER),
    exact("descent", f"{_DESCENT}, weights of all edges", 1e-10),
    exact("descent_loss", f"{_DESCENT}, loss / L(0)", 1e-10),
    exact("conserved", "decoupled: change of the matrices of E8, relative", 1e-8, _SOLVER),
    exact("ratio", "decoupled: final B2/B1 / theory - 1, all modes", 1e-8, _SOLVER, _RATIO),
    reference("final_ratio", "final B2/B1 of mode 1", 5e-9, needs="of_the_paper"),
    reference("eq15", "loss by Eq. 15 at 6 times, relative", 1e-10, needs="of_the_paper"),
    reference("steps", "loss of descent at 6 steps, relative", 1e-10, needs="steps_of_the_paper"),
    exact("reduced", "reduction - Eq. 15, strengths of all edges", 1e-8, _SOLVER),
    exact("reduced_loss", "reduction - gradient flow, loss / L(0)", 1e-8, _SOLVER),
    exact("quotient_loss", "quotient - reduction, loss / L(0)", 1e-8, _SOLVER),
    exact("classes_off", "quotient: classes of edges - min(2, M)", 0, detail="{edges} edges"),
    exact("rates_off", "quotient: rates - (1/M, 1, 1/M)", 1e-12),
    # 1 for gradient flow; of first order in the step.
    statistical("growth", "random: E8, growth of hidden / first layers", 0.99, 1.01, "order 1"),
    statistical("untrained", _TRANSFER, 0, 1e-3, "gap below 0.7", _SEEDS, "generalises"),
)
RECIPE = Recipe(
    package=__name__,
    order=10,
    figure="N Fig. 4",
    summary="M input and M output domains learn through one shared pathway, and generalise",
    claim="Learning is one race of all routes (Eq. 13-15); untrained routes come along",
    standing="holds under conditions",
    proviso="every input has K outputs and every output K inputs, trained routes have a "
    "spectral gap, and b(0) is not the init scale",
    errata=("E7", "E8", "E9", "E10", "E12"),
    options=Options,
    quick={"seeds": 3, "unequal": False},
    criteria=CRITERIA,
)
