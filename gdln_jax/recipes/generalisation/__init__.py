"""N Fig. 5c: zero-shot error against the number of trained routes, and against their spectral gap."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, statistical
from gdln_jax.recipes._core.recipe import Recipe

# Time per domain (tau) in which all modes of all trained routes are learned, and the step for M =
# 10, two thirds of the largest stable one; that grows about as M^0.65 (mode 1 of Eq. 13-14).
DURATION, RATE, GROWTH = 12.0, 0.25, 0.65


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
    learning_rate: float = option(RATE, "step for M = 10; times (M/10)^0.65 for others", above=0)
    duration: float = option(DURATION, "time of training in tau per domain", above=0)

    def validate(self) -> None:
        """Half of the domains make a block."""
        if not self.domains or any(m % 2 for m in self.domains):
            raise ValueError(f"domains must be even numbers of at least 4, got {self.domains}")

    def counts(self, m: int) -> tuple[int, ...]:
        """The K of M = m."""
        if m == self.domains[0]:
            return tuple(range(1, m + 1))
        return tuple(sorted({max(1, round(f * m)) for f in self.fractions}))

    def networks(self, m: int) -> int:
        """Seeds of M = m: the large ones cost far more; fewer of them, but at least two."""
        return max(2, self.seeds * self.domains[0] // m)

    def rate(self, m: int) -> float:
        """The learning rate of M = m."""
        return self.learning_rate * (m / 10) ** GROWTH


# Bands of the median of relative errors on untrained routes, which are heavy-tailed, by K.
BANDS = {1: (1.2, 2.2), 2: (0.4, 2.3), 4: (0.0, 5e-3), 5: (0.0, 5e-4)}
_BLOCKS = "E10: half of the routes in two disjoint blocks, untrained error, median"
_MIXED = "random patterns of the same K: {mixed:.2g}"
CRITERIA = (
    exact("engine", "loss of the route maps - mse, value and gradient, relative", 1e-12),
    statistical(
        "trained",
        "trained routes: relative error, worst median over M, K and kind",
        0,
        0.02,
        "all that was trained was learned",
    ),
    *(
        statistical(
            f"untrained_{k}",
            f"untrained error, M = 10, K = {k}, median",
            *band,
            "reference, 10 seeds",
            detail=f"10 to 90 %: {{spread_{k}}}",
            needs="of_the_paper",
        )
        for k, band in BANDS.items()
    ),
    statistical("blocks_least", f"{_BLOCKS}, least over M", 0.3, 4.0, "no transfer", detail=_MIXED),
    statistical("blocks_most", f"{_BLOCKS}, largest over M", 0.3, 4.0, "no transfer"),
    statistical(
        "rank_gap",
        "rank correlation of untrained error with the spectral gap",
        0.8,
        1.0,
        "the gap orders the errors",
        detail="95 % of bootstraps {gap_low:.3f} to {gap_high:.3f}",
    ),
    statistical(
        "better",
        "that minus the rank correlation with -K/M, lower 2.5 % of bootstraps",
        0.0,
        2.0,
        "K/M orders them less well",
        detail="{difference:.3f}; with -K/M {rank_count:.3f}",
    ),
    statistical(
        "pairs_least",
        "at one K, error of cyclic (larger gap) / of random patterns, least",
        1.2,
        float("inf"),
        "the gap counts where K does not",
        detail="{pairs} pairs of M and K",
        needs="pairs",
    ),
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
