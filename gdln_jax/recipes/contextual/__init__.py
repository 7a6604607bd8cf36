"""N A.2: contextual classification by a linear and by a gated network."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    seeds: int = option(10, "number of random networks, and of samples", least=1)
    seed: int = option(0, "seed of the first network")
    width: int = option(16, "hidden units of a pathway", least=1)
    std: float = option(0.05, "standard deviation of the initial weights", above=0)
    samples: int = option(1000, "examples of each sample", least=8)
    learning_rate: float = option(0.2, "step of gradient descent", above=0)
    duration: float = option(100.0, "duration in units of tau", above=0)


KINDS = {"linear": "none", "gated": "context"}
_REST = "what a mode of rate 1/3 has left at the end, e^-30"
_BEST = "total weights - least squares of the sample"
_FIT = "least squares is within {%s_away:.3g} of the population's"
CRITERIA = (
    *(
        criterion
        for kind in KINDS
        for criterion in (
            exact(f"{kind}_flow", f"{kind}: gradient flow - closed form, total weights", 1e-10),
            reference(f"{kind}_limit", f"{kind}, population: final total weights", 1e-6, _REST),
            reference(f"{kind}_loss", f"{kind}, population: final loss", 1e-10),
            exact(f"{kind}_fit", f"{kind}, samples: {_BEST}", 1e-6, _REST, detail=_FIT % kind),
            exact(f"{kind}_moments", f"{kind}: loss by second moments - by examples", 1e-12),
        )
    ),
    statistical(
        "mean",
        "linear, samples: mean loss - 1/12, in standard errors",
        0.0,
        4.0,
        "standard errors of a fit with two parameters",
        detail="{sample_loss:.5f} over {seeds} samples of {samples}",
    ),
)
RECIPE = Recipe(
    package=__name__,
    order=60,
    figure="N A.2",
    summary="The context says which input counts: linear networks average, gated ones choose",
    claim="Gated by context the network learns [1 0] and [0 1]; a linear one [1/2 1/2]",
    standing="holds",
    proviso="N Eq. 7-8 fail here, and the reduction is exact all the same",
    errata=("E4",),
    options=Options,
    quick={"seeds": 4, "samples": 200},
    criteria=CRITERIA,
)
