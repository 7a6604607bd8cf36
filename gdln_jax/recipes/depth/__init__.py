"""H Fig. 6: two hidden layers. Is the first one linear, and which gates does the second take?"""

from dataclasses import dataclass

from gdln_jax.recipes._core.declare import RecipeOptions, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    seeds: int = option(8, "networks of each kind", least=1)
    seed: int = option(0, "seed of the first network")
    width: int = option(128, "units of a ReLU layer, and of the first gated one", least=24)
    pathway_width: int | None = option(None, "units of a pathway; none: width/2", least=1)
    std: float | None = option(None, "of initial weights; none: 6e-4 sqrt(420/width)", above=0)
    opens: float | None = option(None, "opening time of 'late'; none: as ReLU gates do", above=0)
    learning_rate: float = option(1e-3, "step, of loss_scale times the mean loss", above=0)
    steps: int = option(30_000, "steps of gradient descent", least=1)
    loss_scale: float | None = option(None, "factor of the mean loss; none: H's sum", above=0)


_PLATEAU = "{} plateau - best {} of rank {}, / L(0), median"
_CHANGE = "change of the output without the ReLU of layer {}, {}"
_ONE = "power of second-layer units of one context by majority, end"
CRITERIA = (
    reference("mode", "L(0) - s_1^2/(2 d_1), sum", 5e-3, needs="sums"),
    statistical("first", _PLATEAU.format("first", "map", 1), -1.5e-3, 1.5e-3, "next mode begins"),
    statistical("second", _PLATEAU.format("second", "map", 2), -0.02, 0.02, "a short plateau"),
    statistical("gated", _PLATEAU.format("gated", "gated fit", 1), -3e-3, 3e-3, "next mode begins"),
    # H: linear. E25: 11 to 18 % at the end, more in narrow networks; 77 to 130 %; 28 to 45 %.
    statistical("linear_first", _CHANGE.format(1, "first plateau"), 0.0, 0.02, "H"),
    statistical("linear_end", _CHANGE.format(1, "end"), 0.08, 0.28, "E25"),
    statistical("gates_end", _CHANGE.format(2, "end"), 0.6, 1.4, "E25"),
    statistical("one", _ONE, 0.15, 0.5, "E25"),
    statistical("learned", "final loss of ReLU networks / L(0), median", 0.0, 0.01, "learned"),
)
RECIPE = Recipe(
    package=__name__,
    order=110,
    figure="H Fig. 6",
    summary="Two hidden layers: plateaus, how linear the first is, gates of the second",
    claim="Of two hidden layers the first stays linear, the second gates on two contexts",
    standing="holds under conditions",
    proviso="the first is linear on the first plateau only; units of one context share the second",
    errata=("E19", "E25"),
    options=Options,
    quick={"seeds": 2, "width": 64},
    criteria=CRITERIA,
)
