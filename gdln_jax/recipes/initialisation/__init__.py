"""N Fig. 6: from rich to lazy. The same routing networks from small and from large weights."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    domains: int = option(7, "number M of input and of output domains", least=2)
    trained: int = option(4, "trained outputs per input K, cyclic", least=1)
    seeds: int = option(10, "networks per scale at the first width; fewer of wider ones", least=1)
    seed: int = option(0, "seed of the first network")
    widths: tuple[int, ...] = option((64, 512, 4096, 16384), "hidden units N_h", least=1)
    scales: tuple[float, ...] = option(
        (0.05, 0.1, 0.2, 0.4, 0.6, 1.0, 1.5, 2.0, 3.0), "sigma_0 at the first width", above=0
    )
    wide_scales: tuple[float, ...] = option((1.0, 2.0, 3.0, 4.0), "sigma_0 at the others", above=0)
    init: Literal["orthogonal", "xavier"] = option("orthogonal", "weights of scale sigma_0")
    steps: int = option(4000, "steps of gradient descent at the first width", least=2)
    wide_steps: int = option(1000, "steps at the others", least=2)
    safety: float = option(0.7, "step times curvature at the end of learning", above=0)

    def validate(self) -> None:
        """Some route is not trained; widths and scales grow."""
        if self.trained >= self.domains:
            raise ValueError(f"trained must be below domains, got {self.trained} of {self.domains}")
        for name in ("widths", "scales", "wide_scales"):
            values = getattr(self, name)
            if len(values) < 2 or sorted({*values}) != [*values]:
                raise ValueError(f"{name} must be at least two, growing, got {values}")


# tests/reference.json, `fig6_M7_K4_zero_shot`: sigma_0 -> mean relative error on untrained routes,
# and the factor within which ours is: 2 (other seeds), 4 where it still falls at the end.
REFERENCE = {0.2: (2.1e-5, 4), 0.6: (0.00134, 2), 1.0: (0.0165, 2), 2.0: (0.339, 2)}
SMALL = 0.2  # scales that count as small: there the untrained error has an exponent
_KNOWN = "untrained error at sigma_0 = {:g}, median / reference or its inverse"
_MEAN, _LAZY = "mean over ln t, nothing fitted", "sigma_0 = {scale_lazy:g}, N_h = {width_lazy}"
_RICH = "sigma_0 = {scale_rich:g}, kernel alignment {kernel_alignment_rich:.2f}"
_RACE = "rich: loss - N Eq. 15 from the projected b(0), over L(0)"
_FIXED = "lazy: loss - linear theory of the kernel at t = 0, over L(0)"
_SPREAD = "95 % of bootstraps {slopes[1]:.2f} to {slopes[2]:.2f}"
CRITERIA = (
    exact("engine", "loss of the route maps - mse, value and gradient, relative", 1e-12),
    exact("kernel", "closed-form kernel - measures.empirical_ntk, relative", 1e-12),
    *(
        reference(f"untrained_{k}", _KNOWN.format(x), by, "seeds", f"{{of_{k}}}", f"has_{k}")
        for k, (x, (_, by)) in enumerate(REFERENCE.items())
    ),
    statistical("learned", "trained routes: error, worst median", 0, 1e-3, "all is learned"),
    statistical("stability", "step times largest curvature at the end", 0, 1, "2 is unstable"),
    # A step that is too large lets it rise; float32 rounding alone does not.
    statistical("rise", "largest rise of the loss, over L(0)", 0, 1e-5, "rounding"),
    statistical(
        "halved", "half the step: distance of the loss, over L(0)", 0, 5e-3, "mean over ln t"
    ),
    # Of three layers 6 as sigma_0 vanishes, approached from below.
    statistical("exponent", "untrained error, exponent in small sigma_0", 5, 6, "limit 6", _SPREAD),
    statistical("race", _RACE, 0, 0.03, _MEAN, _RICH),
    statistical("linear", _FIXED, 0, 0.03, _MEAN, _LAZY),
    statistical("not_lazy", "sigma_0 = 1: that distance / the lazy one", 3, inf, "not fixed"),
    # Cosines and correlations are at most 1 but for rounding.
    statistical("alignment_rich", "rich: cosine of the code across domains", 0.97, inf, "shared"),
    statistical("alignment_lazy", "lazy: cosine of the code across domains", -0.1, 0.1, "random"),
    statistical("kernel_change_rich", "rich: kernel, relative change", 1e3, inf, "new", _RICH),
    statistical("kernel_change_lazy", "lazy: kernel, relative change", 0, 0.2, "fixed kernel"),
    statistical("kernel_turn", "lazy: kernel, 1 - alignment", 0, 0.02, "fixed kernel"),
    statistical("lazy_ratio", "lazy: untrained error / (1 + power at t = 0)", 0.8, 1.05, "near 1"),
    statistical("order", "untrained error, rank correlation with sigma_0", 0.999, inf, "it grows"),
)
RECIPE = Recipe(
    package=__name__,
    order=40,
    figure="N Fig. 6",
    summary="From small to large initial weights: a shared code and transfer, or neither",
    claim="Small initial weights learn by the race and transfer; large ones are NTK-like",
    standing="holds under conditions",
    proviso="from the effective b(0); at the paper's width the largest scale still moves its "
    "kernel by a quarter, and width alone does not make it lazy",
    errata=("E9",),
    options=Options,
    quick={"seeds": 3, "widths": (64, 256), "scales": (0.05, 0.1, 0.2, 0.6, 1.0, 2.0, 3.0)},
    criteria=CRITERIA,
)
