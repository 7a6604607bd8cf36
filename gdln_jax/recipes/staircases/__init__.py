"""Staircases of tied networks: attention, recurrence, autoencoder, self-supervision."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    seeds: int = option(3, "random starts of each network", least=1)
    seed: int = option(0, "seed of the first", least=0)
    std: float = option(1e-5, "of the weights of two layers and recurrence", above=0, most=1e-3)
    scale: float = option(0.01, "of the weights of attention", above=0, most=0.01)


CRITERIA = (
    reference("flow", "recurrence, aligned: full network - aligned form, loss", 1e-9),
    exact("attention", "attention: loss on plateaus - closed form", 1e-3, "finite weights"),
    exact("recurrence", "recurrence: loss on plateaus - closed form", 1e-2, "finite weights"),
    exact("autoencoder", "autoencoder: loss on plateaus - closed form", 1e-2, "finite weights"),
    exact("ssl", "self-supervision: loss on plateaus - closed form", 1e-2, "finite weights"),
    reference("times", "recurrence: half times of the four inputs", 0.02, "times of the run"),
    statistical("late_first", "equal strengths: lag of x1 behind x4", 0.1, 0.5, "reference"),
    statistical("reversed", "large b(0): lag of x4 behind x1", 0.5, 0.7, "reference"),
    statistical("early", "strengths fall or rise over time: half times, ratio", 2.0, 5.0, "s_T"),
    reference("levels", "two poles: first two plateaus - those of one pole", 1e-2, "weights"),
    exact("two_poles", "two poles: loss of the full network at the end", 1e-6),
)
RECIPE = Recipe(
    package=__name__,
    order=175,
    figure="Staircases (new)",
    summary="Attention, recurrence, autoencoder and self-supervision learn in the same stages",
    claim="Tied linear networks learn one mode after another",
    standing="holds under conditions",
    proviso="small weights; a recurrent network with several poles leaves the diagonal form",
    options=Options,
    quick={"seeds": 1},
    criteria=CRITERIA,
)
