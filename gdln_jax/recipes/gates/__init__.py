"""H Fig. 8-9: the gates of ReLU networks by k-means, how many, and how well they imitate.

H leaves the number of modules, the distance and the robustness open: here they are measured, over
seeds.
"""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    seeds: int = option(12, "number of ReLU networks", least=1)
    seed: int = option(0, "seed of the first network")
    elbow_seeds: int = option(4, "of them, compared with gated networks", least=1)
    relu_width: int = option(700, "hidden units of a ReLU network", least=1)
    std: float = option(7.142857e-6, "standard deviation of the initial weights", above=0)
    learning_rate: float = option(1e-3, "step, for the loss summed over examples", above=0)
    steps: int = option(8000, "steps of gradient descent", least=2)
    snapshots: int = option(80, "records of the units over the run", least=2)

    def validate(self) -> None:
        """The numbers of networks and of records have upper bounds."""
        if self.elbow_seeds > self.seeds:
            raise ValueError(f"elbow_seeds must be 1 to seeds = {self.seeds}")
        if self.snapshots > self.steps:
            raise ValueError(f"snapshots must be 2 to steps = {self.steps}")


# k-means on each run alone, with these settings of `discover_gates`.
SETTINGS = {
    "plain (H)": {"weight": None, "drop_dead": False},
    "no dead units": {"weight": None, "drop_dead": True},
    "output power": {},
}
SHOWN = (2, 3, 4)  # numbers of modules that are drawn
# Independent values of mean squared differences of outputs, by number of modules.
REFERENCE_GAP = {1: 10.97e-3, 4: 0.81e-3}
_GAPS = "mean squared differences {square_4:.2e} and {square_1:.2e}"
CRITERIA = (
    statistical(
        "missed", "runs in which the defaults miss the four gates", 0, 0, "12 of 12", "of {seeds}"
    ),
    # 10 or 11 of 12 in the reference; other seeds scatter by a binomial sd of 0.1.
    statistical(
        "plain", "H's plain k-means: share of runs", 0.6, 1, "binomial", "{found[0]} of {seeds}"
    ),
    statistical("together", "gates of the compared runs together, right ones", 4, 4, "all four"),
    statistical(
        "chosen", "number of modules chosen without looking", 4, 4, "outputs", detail="{reason}"
    ),
    statistical("ratio", "output gap of four modules / of one", 0, 0.12, "reference", detail=_GAPS),
    statistical(
        "mean_loss",
        "imitation: mean loss gap / L(0)",
        0,
        0.03,
        "E24",
        detail="nothing fitted; at most {max_loss:.1%}",
    ),
    *(
        # The reference's widths and initial scales are not known.
        reference(
            f"reference_{k}",
            f"mean squared output difference at k = {k} / reference - 1",
            0.15,
            "other widths and initial scales",
            needs="of_the_paper",
        )
        for k in REFERENCE_GAP
    ),
)
RECIPE = Recipe(
    package=__name__,
    order=120,
    figure="H Fig. 8-9",
    summary="Gates of ReLU networks by clustering, how many modules, and how well they imitate",
    claim="k-means on activation patterns finds the modules of a ReLU network",
    standing="holds under conditions",
    proviso="in all runs only if units are weighted by output power; the gated network then "
    "imitates, it is not identical",
    errata=("E19", "E24"),
    options=Options,
    quick={"seeds": 6, "elbow_seeds": 2, "learning_rate": 4e-3, "steps": 2000},
    criteria=CRITERIA,
)
