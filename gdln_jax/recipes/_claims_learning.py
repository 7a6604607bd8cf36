"""The claims of R about what is learned: representations, losses, optimisers, depth, ReLU."""

import numpy as np

from gdln_jax.recipes._claims_measured import (
    DONE,
    LIMITS,
    Measured,
    loser_to_winner,
    networks_of,
    views_learned,
)
from gdln_jax.recipes._claims_networks import Races
from gdln_jax.recipes._claims_table import Case, Claim, number


def coverage(found: Measured) -> Claim:
    """Views learned per class."""
    cases = [
        Case.of(text, views_learned(found.races[layers].end(name)), LIMITS["coverage"], one_view)
        for layers, name, text, one_view in (
            (1, "equal", "L = 2, together, random weights", False),
            (2, "equal", "L = 3, together, random weights", False),
            (3, "equal", "L = 4, together, random weights", False),
            (3, "aligned, equal", "L = 4, together, aligned u0 ≈ .1", True),
            (1, "p = .8", "L = 2, p = .8, random weights", False),
            (1, "p = .5", "L = 2, p = .5, random weights", False),
        )
    ]
    alone = found.races[1].alone[found.races[1].index("equal")].mean()
    return Claim(
        "coverage",
        "About one view per class is learned: coverage 1/M + O(1/sqrt K).",
        f"{networks_of(found)}, equal rates.",
        "effective number of views per class, (sum c)²/sum c² of the shares c, over M = 3",
        tuple(cases),
        f"Two layers learn nearly all views ({cases[0].value:.2f} of M; and name {alone:.0%} of "
        "classes from a single view). Depth concentrates the shares, and 1/M is the limit of deep "
        f"pathways with small starts ({cases[3].value:.3f} for L = 4). Views that also occur alone "
        "(p < 1) are all learned: the limit is then the one least-squares solution.",
    )


def shared(found: Measured) -> Claim:
    """Shared and separate representations; soft labels."""
    one, deep = found.races[1], found.races[3]
    few, all_ = LIMITS["separate"], LIMITS["shared"]
    cases = tuple(
        Case.of(text, views_learned(races.end(name)), limits, right)
        for races, name, text, limits, right in (
            (one, "unequal, small", "hard labels, together, L = 2: separate", few, False),
            (deep, "aligned", "hard labels, together, L = 4: separate", few, True),
            (one, "p = .8", "hard labels, p = .8, L = 2: separate", few, False),
            (one, "smooth", "smoothed labels (.3), together, L = 2: shared", all_, False),
            (one, "teacher", "teacher of all views, together, L = 2: shared", all_, False),
            (one, "teacher, p = .8", "teacher of all views, p = .8, L = 2: shared", all_, True),
        )
    )
    return Claim(
        "shared",
        "Hard labels make representations separate (one view); a teacher's soft labels, shared.",
        f"{networks_of(found)}; view strengths 1, .9, .8 where views always occur together, else "
        "equal; the teacher's confidence is the fraction of views present.",
        "effective number of views per class over M = 3",
        cases,
        "What decides is whether views occur alone, not how soft the labels are. Together, labels "
        "enter every S alike and the shares are the same ("
        f"{cases[0].value:.3f} of M hard, {cases[3].value:.3f} smoothed, {cases[4].value:.3f} by "
        f"the teacher); with p = .8 all are learned from hard labels too ({cases[2].value:.3f}). "
        "No capacity is competed for: the law does not contain the width.",
    )


def frozen_at(races: Races, name: str) -> np.ndarray:
    """First time (seed,) at which the first class has 99 % of its output."""
    total = races.of(name)[:, 0].sum(axis=-1)
    return races.ts[(total > DONE).argmax(axis=1)]


def entropy(found: Measured) -> Claim:
    """Squared error against cross-entropy."""
    squared = found.races[1].of("aligned")[:, 0]
    cross = found.entropy.of("aligned")[:, 0]
    when = frozen_at(found.races[1], "aligned")
    start = np.searchsorted(found.entropy.ts, when)
    ratio = cross[..., 2] / cross[..., 0]
    late = ratio[:, -1] / ratio[np.arange(len(ratio)), start]
    end = squared[:, -1, 2] / squared[:, -1, 0]
    last = found.entropy.ts[-1]
    cases = (
        Case.of("squared error: loser/winner at the end", end, LIMITS["winner takes all"], False),
        Case.of("cross-entropy: loser/winner at the end over t = 0", ratio[:, -1] / ratio[:, 0],
                LIMITS["no competition"], False),
        Case.of("cross-entropy: loser/winner at the end over when squared error froze", late,
                LIMITS["no late competition"], False),
    )  # fmt: skip
    return Claim(
        "entropy",
        "Squared error saturates and makes pathways compete; cross-entropy does not.",
        f"{networks_of(found)}, L = 2, views always together, strengths 1, .9, .8, the same "
        f"aligned starts for both losses, to t = {last:g} tau.",
        "shares of the view of strength .8 over that of strength 1",
        cases,
        "The common clock exists under both losses. Squared error stops it, so its losers survive; "
        "under cross-entropy it goes on like log log t, and the losers' part goes on falling (by "
        f"another {1 - float(np.median(late)):.0%} up to t = {last:g}). Saturation ends the "
        "competition; it does not cause it.",
    )


def momentum(found: Measured) -> Claim:
    """Gradient flow against descent with momentum."""
    m = found.momentum
    rows = {
        f"beta = {beta:g}": m.ratio[int(np.flatnonzero(m.betas == beta)[0])] for beta in (0.9, 0.99)
    }
    rows["beta = 0.9, batches of 1 of 4"] = m.batch_ratio
    cases = [
        Case.of(f"{name}, {size} step", row[k], LIMITS["momentum"], k == 0)
        for name, row in rows.items()
        for k, size in ((0, "largest"), (-1, "smallest"))
    ]
    ends = [f"{steps[0]:.2g} .. {steps[-1]:.2g}" for steps in (m.steps, m.batch_steps)]
    return Claim(
        "momentum",
        "Discrete SGD with momentum equalises the pathways; gradient flow does not.",
        f"two views that always occur together, strengths 1 and .8, L = 2, aligned starts, "
        f"heavy-ball descent, {m.ratio.shape[-1]} starts; batches: 4 classes, one example a step.",
        "final s_loser/s_winner over that of gradient flow; steps as flow time eta/(1 - beta), "
        f"{ends[0]}, of batches {ends[1]}",
        tuple(cases),
        "A finite step weakens the order, and a long memory of large steps can reverse it (times "
        f"{cases[2].value:.2f} here). It is the drift of the discrete map: the effect is "
        f"{found.first_order:.3f} kappa for small kappa = eta (1 + beta)/(1 - beta)², without "
        "momentum too, and vanishes with the step. Momentum as such does not equalise.",
    )


def depth(found: Measured) -> Claim:
    """Depth and winner-take-all."""
    cases = []
    race = found.depth_race
    for k in (1, 2):
        text = f"exact, equal rates, u0 = .1 and .09: L = {k + 2} over L = {k + 1}"
        cases.append(Case.of(text, race[k] / race[k - 1], LIMITS["depth"], True))
    for name, text in (("aligned, equal", "aligned u0 ≈ .1"), ("equal", "random weights")):
        ends = [loser_to_winner(found.races[k].end(name)) for k in (1, 2, 3)]
        cases += [
            Case.of(f"networks, {text}: L = {k + 2} over L = {k + 1}",
                    ends[k] / np.median(ends[k - 1]), LIMITS["depth"], True)
            for k in (1, 2)
        ]  # fmt: skip
    return Claim(
        "depth",
        "Deeper networks have stronger winner-take-all.",
        f"{networks_of(found)}, views always together, equal rates.",
        "loser/winner of the final shares at one depth over the (median) ratio at the depth before",
        tuple(cases),
        f"Yes: loser/winner {number(race[0])}, {number(race[1])}, {number(race[2])} for L = 2, 3, "
        "4 in the exact example. u^(2-L) falls linearly on the common clock, so a head start grows "
        "with depth; it is complete only as u0 → 0 or L → ∞.",
    )


def relu(found: Measured) -> Claim:
    """ReLU networks as gated linear networks."""
    first = found.gates[0]
    cases = [
        Case.of("gated network of the same weights: largest difference of outputs",
                np.concatenate([g.identity.ravel() for g in found.gates]), LIMITS["identity"], True)
    ]  # fmt: skip
    gaps = [np.abs(g.losses - g.frozen).max(axis=-1) for g in found.gates]
    for g, gap in zip(found.gates, gaps, strict=True):
        for k in (0, -1):
            where, lazy = f"{g.task}, initial sd {g.sizes[k]:g}", k == -1
            cases += [
                Case.of(f"{where}: gates changed", g.changed_power[k], LIMITS["gates"], lazy),
                Case.of(
                    f"{where}: |loss - loss of frozen gates| / L(0)", gap[k], LIMITS["frozen"], lazy
                ),
            ]
    return Claim(
        "relu",
        "ReLU networks are gated linear networks whose gates hardly change in training.",
        f"one hidden layer of 64 ReLUs, gradient descent, {first.losses.shape[1]} seeds: 3 "
        "classes of 2 views with p = .6, and XoR; each beside the gated network frozen at its "
        "initial gates.",
        "as stated; gates: fraction of (unit, example), units weighted by their part of the output",
        tuple(cases),
        "At given weights they are one function (identity). In training, small initial weights "
        "(feature learning) change the gates of the units that carry the output in "
        + " and ".join(f"{np.median(g.changed_power[0]):.0%} ({g.task})" for g in found.gates)
        + " of cases, and the network frozen at its initial gates learns on another curve. Gates "
        "stay only where weights start large (lazy learning).",
    )
