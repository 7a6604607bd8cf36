"""The claims of R about races one by one: numbers, and what is true instead."""

import numpy as np

from gdln_jax.recipes import _claims_theory as theory
from gdln_jax.recipes._claims_measured import (
    DONE,
    LIMITS,
    Measured,
    loser_to_winner,
    networks_of,
)
from gdln_jax.recipes._claims_networks import CLASSES, VIEWS, Races, pathways_of
from gdln_jax.recipes._claims_table import Case, Claim, number

# Where growth counts as early: total output between these fractions of the target.
_EARLY = (5e-3, 5e-2)


def equation_error(races: Races, name: str) -> np.ndarray:
    """Largest difference (seed,) of an aligned set-up's shares to R's equation."""
    k = races.index(name)
    model = pathways_of(races.setups[k], races.layers)
    equation = theory.summary_shares(model, races.u0[k] ** (races.layers + 1), races.ts)
    return np.abs(races.share[k] - equation[:, None]).max(axis=(1, 2, 3))


def equation(found: Measured) -> Claim:
    """R's governing equation."""
    one, two = found.races[1], found.races[2]
    limits = LIMITS["equation"]
    cases = (
        Case.of("L = 2, views always together", equation_error(one, "aligned"), limits, True),
        Case.of(
            "L = 2, views present with p = .8",
            equation_error(one, "aligned, p = .8"),
            limits,
            False,
        ),
        Case.of("L = 3, views always together", equation_error(two, "aligned"), limits, False),
    )
    return Claim(
        "equation",
        "Pathway strengths follow ds/dt = sigma s (1 - sum s²/s_max²).",
        f"{networks_of(found)}, aligned starts, view strengths 1, .9, .8; R's equation with the "
        "same rates and starts, s² read as the share of the output.",
        "largest difference of shares over views and time",
        cases,
        "The equation is not in the paper. It is the exact law of two weight layers on views that "
        f"always occur together (D = c S Sᵀ; here to {number(cases[0].value)}). Otherwise "
        "da_m/dt = 2 a_m (S_m - sum_j D_jm a_j), and u_m^(L-1) in place of u_m for L layers.",
    )


def _growth(races: Races, name: str) -> np.ndarray:
    """Early rates d ln(share)/dt (seed, class, view) by a straight line through ln(share)."""
    share = races.of(name)
    rates = np.full((*share.shape[:2], VIEWS), np.nan)
    for i in range(share.shape[0]):
        for k in range(CLASSES):
            total = share[i, k].sum(axis=-1)
            early = (total > _EARLY[0]) & (total < _EARLY[1])
            rates[i, k] = np.polyfit(races.ts[early], np.log(share[i, k, early]), 1)[0]
    return rates


def _change_of_rate(races: Races) -> np.ndarray:
    """Growth rate at the end of the early phase over that at t = 0 (seed, view), aligned start."""
    share = races.of("aligned, equal")[:, 0]
    rate = np.gradient(np.log(share), races.ts, axis=1)
    last = (share.sum(axis=-1) < _EARLY[1]).sum(axis=1) - 1
    return rate[np.arange(len(share)), last] / rate[:, 0]


def exponential(found: Measured) -> Claim:
    """Exponential early growth."""
    one = found.races[1]
    sigma = np.array(one.setups[one.index("unequal, small")].strengths) / CLASSES
    growth = _growth(one, "unequal, small")
    cases = (
        Case.of("L = 2, random weights: rate of sqrt(‖P‖) / sigma", growth / (2 * sigma),
                LIMITS["exponential"], True),
        Case.of("L = 2, random weights: rate of ‖P‖_F / sigma", growth / sigma,
                LIMITS["exponential"], False),
        *(
            Case.of(f"L = {layers + 1}, aligned: rate at 5 % over rate at t = 0",
                    _change_of_rate(found.races[layers]), LIMITS["constant rate"], False)
            for layers in (2, 3)
        ),
    )  # fmt: skip
    return Claim(
        "exponential",
        "Early on strengths grow as s(0) exp(sigma t).",
        f"{networks_of(found)}, view strengths 1, .9, .8; Xavier weights × .01, or aligned u0 ≈ "
        ".1; early: .5-5 % of the output.",
        "growth rate d ln s/dt, as stated in the set-up; 1 where R is right",
        cases,
        "For two layers, of layer strengths s = sqrt(‖P‖) once they are aligned (measured "
        f"{number(cases[0].value)} sigma); the pathway itself grows at 2 sigma. Deeper pathways do "
        "not grow exponentially: d ln u/dt = S u^(L-2), so the rate itself rises "
        f"({number(cases[2].value)} and {number(cases[3].value)} times for L = 3, 4).",
    )


def losers(found: Measured) -> Claim:
    """Winner-take-all, with losers decaying to zero."""
    cases = []
    for layers, name, text in (
        (1, "equal", "L = 2, equal rates"),
        (1, "unequal, small", "L = 2, rates 1 : .9 : .8"),
        (2, "unequal", "L = 3, rates 1 : .9 : .8"),
        (3, "unequal", "L = 4, rates 1 : .9 : .8"),
    ):
        share = found.races[layers].of(name)
        loser = share[:, :, -1].argmin(axis=-1)[:, :, None, None]
        path = np.take_along_axis(share, loser, axis=-1)[..., 0]
        cases.append(Case.of(text, path[:, :, -1] / path.max(axis=-1), LIMITS["losers"], False))
    left = number(float(np.median(loser_to_winner(found.races[1].end("equal")))))
    return Claim(
        "losers",
        "Winner-take-all: one pathway saturates, all others decay to zero.",
        f"{networks_of(found)}, views always together, random weights.",
        "final share of the weakest view over its largest share at any time",
        tuple(cases),
        "Every pathway grows and then freezes where the output is explained: the fixed points are "
        "the whole arc sum s² = s_max², not its corners. Losers keep what they have (equal rates, "
        f"L = 2: weakest/strongest view {left} in the median). In deep networks from random "
        "weights some weak pathways lose a part of their share while they align.",
    )


def ratio(found: Measured) -> Claim:
    """The ratio of loser to winner."""
    one = found.races[1]
    share = one.of("unequal, small")
    sigma = np.array(one.setups[one.index("unequal, small")].strengths) / CLASSES
    growth = _growth(one, "unequal, small") / 2
    early = (growth[..., :1] - growth[..., 1:]) / (sigma[0] - sigma[1:])
    late = np.full_like(early, np.nan)
    for i in range(share.shape[0]):
        for k in range(CLASSES):
            done = share[i, k].sum(axis=-1) > DONE
            decay = np.log(share[i, k, done, 1:] / share[i, k, done, :1]) / 2
            late[i, k] = -np.polyfit(one.ts[done], decay, 1)[0] / (sigma[0] - sigma[1:])
    same = one.of("aligned, equal")
    kept = loser_to_winner(same[:, :, -1]) / loser_to_winner(same[:, :, 0])
    total = np.exp(np.log(share[:, :, -1, 2] / share[:, :, -1, 0]) / 2)
    cases = (
        Case.of("rates 1 : .9 : .8, while .5-5 % are explained", early, LIMITS["ratio"], True),
        Case.of("the same, once 99 % are explained", late, LIMITS["ratio"], False),
        Case.of(
            "equal rates: ratio at the end over ratio at t = 0", kept, LIMITS["ratio equal"], False
        ),
    )
    return Claim(
        "ratio",
        "The ratio of loser to winner strength decays exponentially.",
        f"{networks_of(found)}, L = 2, views always together, Xavier weights × .01 (equal rates: "
        "aligned starts).",
        "decay rate of s_loser/s_winner over sigma_winner - sigma_loser, or as stated",
        cases,
        "It decays as exp(-(sigma_w - sigma_l) T(t)) on the common clock T, dT/dt = 1 - sum "
        "s²/s_max², which stops: exponentially while little is explained, not at all later. The "
        f"total decay is finite (s ratio of rates .8 : 1 at the end {number(np.median(total))}), "
        "and equal rates keep their ratio for ever.",
    )


def rule(found: Measured) -> Claim:
    """The winner rule."""
    cases, limits = [], LIMITS["rule"]
    for k, depth in enumerate(theory.DEPTHS):
        for d in (0, 2):
            text = f"L = {depth}, exact, u0 = .001 × {theory.DISTRIBUTIONS[d]}"
            hit = float(found.accuracy[0, k, 1, d])
            error = np.sqrt(hit * (1 - hit) / found.draws)
            right = (depth, d) != (2, 2)  # for L = 2 the larger rate wins, as u0 -> 0
            cases.append(Case.fraction(text, hit, error, limits, found.draws, right))
    hit, text = found.equal_accuracy, "L = 2, exact, equal rates, u0 = .001 × half-normal"
    cases.append(Case.fraction(text, hit, 0.0, limits, found.draws, True))
    for layers, races in found.races.items():
        winner = races.end("unequal").argmax(axis=-1)
        guess = races.advantage[races.index("unequal")].argmax(axis=-1)
        hits = (winner == guess).mean(axis=1)
        mean, error = hits.mean(), hits.std() / np.sqrt(len(hits))
        text = f"L = {layers + 1}, networks from random weights, s(0) = ‖P(0)‖"
        cases.append(Case.fraction(text, mean, error, limits, winner.size, False))
    own = found.accuracy[2].min(axis=-1)
    return Claim(
        "rule",
        "The winner is argmax sigma s(0), right in more than 80 % of races.",
        f"{found.draws} races of 3 views that always occur together, rates exp(.2 z), exact frozen "
        f"state; and {networks_of(found)}, view strengths 1, .9, .8, R's s(0) taken literally.",
        "fraction of races whose winner the rule names (± standard error)",
        tuple(cases),
        "For small layer strengths u0 the winner is argmax S u0^(L-2): R's rule (s read as u0) for "
        "L = 3 only, the largest rate for L = 2, the largest start for deep pathways. At u0 = .001 "
        f"that is right in at least {own[1, 1]:.1%} and {own[2, 1]:.1%} of races for L = 3 and 4, "
        f"whatever the distribution. For L = 2 the start is forgotten only logarithmically "
        f"({own[0, 1]:.0%} at .001, {own[0, 2]:.0%} at 1e-12), and the exact rule is argmax "
        "[ln s(0) + sigma T_inf].",
    )


def seeds(found: Measured) -> Claim:
    """Winners and random seeds."""
    cases = []
    for layers, name, text, differ in (
        (1, "equal", "L = 2, equal rates", True),
        (1, "unequal", "L = 2, rates 1 : .9 : .8, Xavier × .1", True),
        (1, "unequal, small", "L = 2, rates 1 : .9 : .8, Xavier × .01", False),
        (3, "unequal", "L = 4, rates 1 : .9 : .8, Xavier × .1", True),
    ):
        winner = found.races[layers].end(name).argmax(axis=-1)
        counts = np.stack([(winner == m).mean(axis=1) for m in range(VIEWS)])
        best = counts.mean(axis=1).argmax()
        mean, error = counts[best].mean(), counts[best].std() / np.sqrt(winner.shape[0])
        cases.append(Case.fraction(text, mean, error, LIMITS["seeds"], winner.size, differ))
    return Claim(
        "seeds",
        "Different random seeds produce different winners.",
        f"{networks_of(found)}, views always together.",
        "fraction of (seed, class) races that the most frequent winner wins (± standard error)",
        tuple(cases),
        "For equal rates, yes. For two layers a difference in rates decides as the initial weights "
        f"shrink: the strongest view wins {cases[1].value:.0%} of races at Xavier × .1 and "
        f"{cases[2].value:.0%} at × .01. Deep pathways do not forget their start.",
    )
