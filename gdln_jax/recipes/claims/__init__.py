"""The claims of R (a third party's summary of N), each with experiments, numbers and a verdict."""

from dataclasses import dataclass
from importlib.resources import files
from math import inf

from gdln_jax.recipes._core.declare import RecipeOptions, exact, option, reference, statistical
from gdln_jax.recipes._core.recipe import Recipe


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe."""

    seeds: int = option(24, "initial networks per set-up, starts per momentum", least=2)
    seed: int = option(0, "seed of everything random")
    draws: int = option(4000, "races by the exact law, for the winner rules", least=100)
    relu_seeds: int = option(8, "ReLU networks per size of the initial weights", least=2)
    relu_steps: int = option(5000, "steps of their training", least=500)
    grid: int = option(81, "points of the winner maps along each axis", least=5)
    smallest_step: float = option(1e-3, "smallest flow time of a step", least=1e-5, most=0.01)


def _rows() -> list[tuple[str, str, str, float, float, bool, str]]:
    """Id, claim, number, limits between which R is right, whether it is, and where, by text.md."""
    lines, found = (files(__name__) / "text.md").read_text("utf-8").splitlines(), []
    for claim, *_, parts in (x.strip("| ").split(" | ") for x in lines if " :: " in x):
        own = []
        for number, limits, places in (part.split(" :: ") for part in parts.split("<br>")):
            low, high = (float(x) for x in limits.split(" to "))
            own += [(number, low, high, x[0] == "+", x[1:]) for x in places.split("; ")]
        found += [(f"{claim}_{k}", claim, *x) for k, x in enumerate(own, 1)]
    return found


ROWS, DEPTHS, TASKS = _rows(), (2, 3, 4), ("multiview", "xor")
_FLOW, _SMALL = "tolerance 1e-8 a step, amplified by plateaus", "initial strengths 0.001"
_SIDE = "median, or fraction of races with two standard errors, on this side of the limit"
CRITERIA = (
    reference("clock_end", "limit of the clock", 5e-9),
    reference("frozen", "frozen strengths", 5e-8),
    reference("exact_depth", "loser/winner at L = 2, 3 and 4", 1.1e-8, "digits, L = 3 rounded up"),
    *(exact(f"law_{n}", f"L = {n}: shares - law of the pathways", 1e-5, _FLOW) for n in DEPTHS),
    exact("summary", "L = 2, views together: shares - R's equation", 1e-5, _FLOW),
    exact("decay", "L = 2, aligned: largest relative decay of a share", 1e-5, _FLOW),
    exact("drift", "L = 2, equal rates: drift of the ratios of shares", 1e-5, _FLOW),
    exact("all_views", "presence below 1: learned views of M - 1, median", 1e-3, "end of the run"),
    statistical("rule_at_L3", "R's rule at L = 3: fraction right", 0.98, 1, _SMALL),
    *(statistical(f"rule_at_L{n}", f"R's rule at L = {n}", 0, 0.95, _SMALL) for n in (2, 4)),
    statistical("depth_rule", "argmax S u0^(L-2) at L = 3 and 4, worst", 0.98, 1, _SMALL),
    statistical("forgotten", "argmax S at L = 2: from 1e-12 - from 0.001", 0.02, 1, "u0 to 0"),
    exact("clocks", "cross-entropy: clocks of the views, relative difference", 1e-5, _FLOW),
    statistical("small_step", "momentum: effect at the smallest step", 0, 0.05, "order 1"),
    statistical("first_order", "its effect / first order - 1", 0, 0.2, "second order: kappa < 0.1"),
    statistical("reversed", "beta = 0.99, step 0.3: loser/winner", 1, inf, "order reversed"),
    statistical("soft", "views / M, smoothed - hard labels", 0, 0.05, "the same shares"),
    statistical("one_view", "L = 4, aligned: views / M - 1/M", 0, 0.03, "small starts"),
    *(statistical(f"gates_{x}", f"ReLU, {x}: gates changed", 0.1, 1, "small sd") for x in TASKS),
    *(statistical(key, f"{key}: margin", 0, inf, _SIDE, f"{{{key}_text}}") for key, *_ in ROWS),
)
RECIPE = Recipe(
    package=__name__,
    order=140,
    figure="R (summary of N)",
    summary="A third party's race equation and claims: experiment, numbers and verdict for each",
    claim="R's race equation, and what R says of winners, depth, momentum, cross-entropy",
    standing="holds under conditions",
    proviso="each claim has a verdict of its own in the table",
    options=Options,
    quick={"seeds": 4, "draws": 1000, "relu_seeds": 3, "relu_steps": 4000}
    | {"grid": 41, "smallest_step": 0.005},
    criteria=CRITERIA,
)
