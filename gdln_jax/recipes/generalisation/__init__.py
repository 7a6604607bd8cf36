"""N Fig. 5c: zero-shot error against the share of trained routes and their spectral gap."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    domains: tuple[int, ...] = option(
        (10, 20, 40), "numbers M of domains, even; Fig. 5c is drawn for the first", least=4
    )
    seeds: int = option(20, "networks, each with its own pattern, per K and kind", least=1)
    seed: int = option(0, "seed of the first network")
    fractions: tuple[float, ...] = option(
        (0.1, 0.15, 0.2, 0.25, 0.3, 0.5), "K/M of all M but the first", above=0, most=1
    )
    width: int = option(64, "hidden units N_h", least=1)
    gain: float = option(0.2, "gain of Xavier weights, sigma_0 of the paper", above=0)
    learning_rate: float = option(0.25, "step for M = 10; times (M/10)^0.65 for others", above=0)
    duration: float = option(12.0, "time of training in tau per domain", above=0)

    def validate(self) -> None:
        """Half of the domains make a block."""
        if not self.domains or any(m % 2 for m in self.domains):
            raise ValueError(f"domains must be even numbers of at least 4, got {self.domains}")


# Bands of the median of relative errors on untrained routes, which are heavy-tailed, by K.
BANDS = {1: (1.2, 2.2), 2: (0.4, 2.3), 4: (0.0, 5e-3), 5: (0.0, 5e-4)}
_MEDIANS = "medians over M: {blocks_text}; random patterns of the same K: {mixed}"
_GAP = "rank correlation of untrained error with the spectral gap"
_PAIRS = "at one K, error of cyclic (larger gap) / of random patterns, least"
_UNTRAINED = "untrained error, M = 10, K = {}, median"
_PAPER = {"basis": "reference, 10 seeds", "needs": "of_the_paper"}
CRITERIA = (
    exact("engine", "loss of the route maps - mse, value and gradient, relative", 1e-12),
    statistical("trained", "trained routes: error, worst median of a kind", 0, 0.02, "learned"),
    *(
        statistical(f"untrained_{k}", _UNTRAINED.format(k), *band, detail=f"{{of_{k}}}", **_PAPER)
        for k, band in BANDS.items()
    ),
    *(
        statistical(
            f"blocks_{k}", f"E10: disjoint blocks, {k} error", 0.3, 4, "E10", detail=_MEDIANS
        )
        for k in ("least", "largest")
    ),
    statistical("gap", _GAP, 0.8, 1, "order", detail="bootstraps {gap_low:.3f} to {gap_high:.3f}"),
    statistical("better", f"{_GAP} - with -K/M, lower 2.5 % of bootstraps", 0, 2, "better order"),
    statistical("pairs_least", _PAIRS, 1.2, float("inf"), "the gap counts", needs="pairs"),
)
RECIPE = Recipe(
    package=__name__,
    order=30,
    figure="N Fig. 5c",
    summary="Zero-shot error against K and against the spectral gap, which orders it",
    claim="From about 40 % of trained routes on, untrained ones are learned, too",
    standing="holds under conditions",
    proviso="for M = 10 and random patterns; what counts is the spectral gap of the trained routes",
    errata=("E7", "E10", "E11", "E12"),
    options=Options,
    quick={"domains": (10,), "seeds": 4},
    criteria=CRITERIA,
)
