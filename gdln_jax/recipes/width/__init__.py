"""The exact small network behind a wide one, from any start (theory#width): sizes, losses, cost."""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    seed: int = option(0, "seed of the random weights")
    widths: tuple[int, ...] = option((64, 256, 1024), "hidden units, trained in full", least=16)
    drawn: tuple[int, ...] = option(
        (64, 256, 1024, 4096, 16384), "widths of direct draws of the small network", least=16
    )
    wide: int | None = option(4096, "width of a full run of ten steps; none: no such run", least=16)
    gains: tuple[float, ...] = option((0.1, 0.5, 1.0), "of normal weights, truncated", above=0)
    rounds: int = option(5, "rounds of the truncation, at most", least=1)

    def validate(self) -> None:
        """Each list needs an entry."""
        if not (self.widths and self.drawn and self.gains):
            raise ValueError("widths, drawn and gains need one or more numbers each")


SYSTEMS = ("chain", "gated graph", "two layers")
_SIZES = "chain {size_chain}, gated graph {size_gated_graph} at every width"
_FACTOR = "truncation: error estimate against the distance, worst factor"
CRITERIA = (
    *(exact(f"gap_{k.replace(' ', '_')}", f"{k}: loss, wide - small", 1e-12) for k in SYSTEMS),
    exact("sizes", "sizes of hidden nodes - formula, differences", 0, "exact", detail=_SIZES),
    exact("ten", "ten steps at the large width: loss, wide - small", 1e-12, needs="wide"),
    statistical(
        "fall", "truncation: least fall of the distance per round", 10, 1e6, "theory#truncation"
    ),
    # An estimate, |L_K - L_(K+1)|.
    statistical("factor", _FACTOR, 0, 1.5, "an estimate", detail="where it is above 1e-13"),
    # The leak certifies that a reduction is closed; it is no measure of the error.
    statistical("leak", "truncation: least leak", 0.1, 1, "no error", detail="distance {last:.0e}"),
    statistical("adam", "Adam: distance in 25 steps, over L(0)", 1e-3, 10, "Adam is not exact"),
    reference("reference_loss", "loss after 60 steps", 1e-10),
    reference("reference_sizes", "sizes 11 and 11, sum of differences", 0),
)
RECIPE = Recipe(
    package=__name__,
    order=150,
    figure="Width (new)",
    summary="A wide network learns exactly as a small one whose size depends on the data alone",
    claim="From any start a wide network is a small one, if its closure is small",
    standing="holds under conditions",
    proviso="orthogonal or framed hidden weights, or one hidden layer; normal hidden weights leave "
    "a truncation with an error estimate",
    options=Options,
    quick={"widths": (32,), "drawn": (64, 16384), "wide": None, "gains": (0.5,), "rounds": 3},
    criteria=CRITERIA,
)
