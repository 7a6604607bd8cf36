"""H Fig. 7 and App. A.1: a linear network learns a hierarchy, mode by mode."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    seeds: int = option(10, "number of random networks", least=1)
    seed: int = option(0, "seed of the first network")
    width: int = option(128, "hidden units, at least the 4 modes", least=4)
    std: float = option(1e-3, "standard deviation of the initial weights", above=0)
    learning_rate: float = option(0.02, "step of gradient descent, for L", above=0)
    duration: float = option(50.0, "duration in units of tau", above=0)
    loss_scale: float = option(1.0, "L / mean loss; 4 is H's sum over the items", above=0)

    @property
    def steps(self) -> int:
        """Number of steps of gradient descent."""
        return round(self.duration / self.learning_rate)

    def validate(self) -> None:
        """Refuse runs that are too long."""
        if not 2 <= self.steps <= 200_000:
            raise ValueError(f"duration / learning_rate is {self.steps} steps; 2 to 200000 are run")


_SMALL = "{small_width} of {width} hidden units; no effective amplitude"
_OVERLAP = "median over seeds; modes overlap in the hidden layer"
RECIPE = Recipe(
    package=__name__,
    order=70,
    figure="H Fig. 7",
    summary="A linear network learns a hierarchy, mode by mode, from any kind of start",
    claim="A deep linear network learns a hierarchy mode by mode, in closed form (Eq. 7)",
    standing="holds",
    proviso="with the effective a(0) of each mode and the corrected sign of the gradient",
    errata=("E19", "E20", "E21"),
    options=Options,
    quick={"seeds": 3},
    criteria=(
        exact("aligned", "aligned: gradient flow - H Eq. 7, modes", 1e-8),
        exact("unbalanced", "unbalanced: gradient flow - closed form, modes", 1e-8),
        exact("loss", "aligned: gradient flow - H Eq. 7, loss", 1e-8),
        exact("unaligned", "unaligned: gradient flow - matrix Riccati solution, map", 1e-8),
        exact("uneven", "uneven items: gradient flow - coupled reduction, map", 1e-8),
        statistical("residual", "uneven items: no common frames", 0.01, 1.0, "certificate"),
        exact("gradient", "E20: -gradient in modes - corrected equation", 1e-12),
        reference("modes", "modes at t = 10, relative", 1e-12),
        reference("loss_5", "loss at t = 5", 1e-12),
        reference("half", "half times (E21), relative", 1e-12),
        reference("half_unbalanced", "half time of the unbalanced mode 1", 1e-10),
        exact("small", "random: loss of wide - of small networks, / L(0)", 1e-10, detail=_SMALL),
        statistical("mean", "random: loss - closed form, mean / L(0)", 0.0, 0.01, _OVERLAP),
    ),
)
