"""N Fig. 5c: zero-shot error against the number K of trained outputs per input, and beside it the
same error against the spectral gap of the trained routes, which N does not have.

Random, cyclic and block patterns of the same K differ in their gap; rank correlations say which
of the two orders the results. Errata: E7, E10-E12.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.stats import rankdata

from gdln_jax import GatedNetwork, init, sweep, tasks, train
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes import _route_maps
from gdln_jax.recipes._generalisation_figure import dataset, draw
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform

# tests/reference.json, `fig5c_M10_biregular_gain0.2_xavier`: mean and sd over 10 networks of the
# relative error on untrained routes. Medians are held against bands: errors are heavy-tailed.
REFERENCE = {1: (1.69, 0.17), 2: (1.35, 0.49), 4: (0.00022, 0.00047), 5: (3.3e-5, 0.0)}
BANDS = {1: (1.2, 2.2), 2: (0.4, 2.3), 4: (0.0, 5e-3), 5: (0.0, 5e-4)}
KINDS = ("random", "cyclic", "blocks")
# Gaps of random and cyclic patterns that differ by less say nothing about the errors.
_APART = 0.05
# Time per domain (tau) in which all modes of all trained routes are learned, and the step for M =
# 10, two thirds of the largest stable one; that grows about as M^.65 (mode 1 of Eq. 13-14).
_DURATION, _RATE, _GROWTH = 12.0, 0.25, 0.65
_BOOTSTRAPS = 400


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        domains: the numbers M; Fig. 5c is drawn for the first. seeds, seed: networks, each with a
            pattern of its own, per M, K and kind of pattern.
        fractions: K/M of the other M. width: N_h. gain: of Xavier weights, N's sigma_0.
        learning_rate: of gradient descent for M = 10, for others times (M/10)^.65.
        duration: in tau per domain.
    """

    domains: tuple[int, ...] = (10, 20, 40)
    seeds: int = 20
    seed: int = 0
    fractions: tuple[float, ...] = (0.1, 0.15, 0.2, 0.25, 0.3, 0.5)
    width: int = 64
    gain: float = 0.2
    learning_rate: float = _RATE
    duration: float = _DURATION

    def __post_init__(self) -> None:
        sim.check_numbers(self, ("seeds", "width"), ("gain", "learning_rate", "duration"))
        if not self.domains or min(self.domains) < 4 or any(m % 2 for m in self.domains):
            raise ValueError(f"domains must be even numbers of at least 4, got {self.domains}")
        if not all(0 < f <= 1 for f in self.fractions):
            raise ValueError(f"fractions must lie between 0 and 1, got {self.fractions}")

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
        return self.learning_rate * (m / 10) ** _GROWTH


QUICK = {"domains": (10,), "seeds": 4}


@dataclass(frozen=True)
class Runs:
    """One row per network."""

    m: np.ndarray
    k: np.ndarray
    kind: np.ndarray  # number in KINDS
    seed: np.ndarray
    gap: np.ndarray
    trained: np.ndarray  # relative errors; NaN without such routes
    untrained: np.ndarray
    engine: float  # largest relative difference of loss and gradient from the package's mse

    def cell(self, m: int, k: int, kind: str = "random") -> np.ndarray:
        """Which rows have this M, K and kind."""
        return (self.m == m) & (self.k == k) & (self.kind == KINDS.index(kind))


def run(options: Options, progress: Progress = silent) -> Result:
    """Make N Fig. 5c and what orders it."""
    return perform("generalisation", options, progress, simulate, check, _tell)


def _tell(options: Options, runs: Runs, facts: dict[str, Any]) -> Told:
    data = dataset(options, runs)
    return Told(data, partial(draw, data, facts), _finding(facts), _notes(options, facts))


# ------------------------------------------------------------------ the runs
def simulate(options: Options, progress: Progress = silent) -> Runs:
    """All patterns and seeds of one M are one program."""
    o, rows = options, []
    cost = np.cumsum([0.0, *(float(m) ** 3 for m in o.domains)])
    for n, m in enumerate(o.domains):
        labels, patterns = _patterns(o, m)
        progress(0.95 * cost[n] / cost[-1], f"M = {m}: {len(labels)} networks")
        errors = _train(o, m, labels[:, 2], patterns)
        with np.errstate(invalid="ignore"):
            trained, untrained = (
                np.sum(errors * chosen, axis=(1, 2)) / np.sum(chosen, axis=(1, 2))
                for chosen in (patterns, 1 - patterns)
            )
        gaps = np.array([tasks.spectral_gap(p) for p in patterns])
        rows.append(np.column_stack([np.full(len(labels), m), labels, gaps, trained, untrained]))
    table = np.concatenate(rows)
    whole = [table[:, c].astype(int) for c in range(4)]
    return Runs(
        *whole, *(table[:, c] for c in range(4, 7)), engine=_route_maps.against_engine(o.seed)
    )


def _patterns(options: Options, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels (run, 3): K, kind, seed, and 0/1 patterns (run, M, M)."""
    o, labels, patterns = options, [], []
    key = jax.random.fold_in(jax.random.key(o.seed), m)
    half = np.kron(np.eye(2), np.ones((m // 2, m // 2)))
    for k in o.counts(m):
        for seed in range(o.networks(m)):
            for kind, name in enumerate(KINDS):
                if name == "blocks":
                    if k != m // 2:
                        continue
                    pattern = half
                elif name == "cyclic" and (k in (1, m) or seed % 2):
                    continue  # as random ones, up to names; one pattern needs fewer networks
                else:
                    one = jax.random.fold_in(jax.random.fold_in(key, k), seed)
                    kind_of = "cyclic" if kind else "random_biregular"
                    pattern = tasks.route_matrix(m, k, pattern=kind_of, key=one)
                labels.append((k, kind, seed))
                patterns.append(pattern)
    return np.array(labels), np.stack(patterns)


def _train(options: Options, m: int, seeds: np.ndarray, patterns: np.ndarray) -> np.ndarray:
    """Relative errors (run, input, output) after training, float32."""
    o = options
    y = jnp.asarray(tasks.hierarchy_features(), jnp.float32)
    graph = tasks.routing(m, 1, width=o.width, compact=True).graph
    steps = round(o.duration * m / o.rate(m))
    if not 2 <= steps <= 100_000:
        raise OptionError(f"M = {m} takes {steps} steps; change duration or learning_rate")
    # Networks of different K share their initial weights: only the pattern differs.
    keys = jax.vmap(lambda s: jax.random.fold_in(jax.random.key(o.seed + 1), s))(jnp.asarray(seeds))

    chosen = jnp.asarray(patterns, jnp.float32)
    rate = jnp.asarray(o.rate(m), jnp.float32)

    def one(_: Any, network: Any) -> dict[str, Any]:
        net = GatedNetwork.init(graph, init.xavier(o.gain), key=keys[network])
        stacks = tuple(w.astype(jnp.float32) for w in net.stacks)
        out = train(
            stacks, chosen[network], optimizer=optax.sgd(rate), steps=steps, save_every=steps,
            loss=lambda w, p: _route_maps.loss(w, p, y), keep_models=False,
        )  # fmt: skip
        return {"errors": _route_maps.errors(out.final, y), "status": out.status}

    axes = {"network": np.arange(len(patterns))}
    # The key of the sweep is not used: see above.
    found = sweep(one, axes, key=jax.random.key(o.seed + 1), progress=False)
    errors, status = found["errors"].values, found["status"].values
    bad = np.flatnonzero(status != 0)
    if len(bad):
        raise OptionError(f"M = {m}, network {bad[0]} diverged; use a smaller learning_rate")
    return np.asarray(errors, float)


# ------------------------------------------------------------------ checks
def correlations(
    runs: Runs, options: Options, kinds: tuple[int, ...] = (0, 1, 2)
) -> dict[str, tuple[float, float, float]]:
    """Rank correlation of the untrained error with the gap, with -K/M, and their difference.

    Each with the 2.5 and 97.5 % quantiles over bootstrap samples of the networks.
    """
    there = np.isfinite(runs.untrained) & np.isin(runs.kind, kinds)
    values = np.stack([runs.untrained, runs.gap, -runs.k / runs.m])[:, there]
    rng = np.random.default_rng(options.seed)
    picks = rng.integers(values.shape[1], size=(_BOOTSTRAPS, values.shape[1]))
    samples = np.concatenate([values[:, None], values[:, picks]], axis=1)
    ranks = rankdata(samples, axis=-1)
    ranks = ranks - ranks.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # of a constant: NaN, which fails
        ranks = ranks / np.linalg.norm(ranks, axis=-1, keepdims=True)
    gap, count = np.einsum("sn,csn->cs", ranks[0], ranks[1:])
    found = {"gap": gap, "count": count, "difference": gap - count}
    quantiles = {name: np.quantile(v[1:], (0.025, 0.975)) for name, v in found.items()}
    return {
        name: (float(v[0]), float(quantiles[name][0]), float(quantiles[name][1]))
        for name, v in found.items()
    }


def same_count(runs: Runs) -> np.ndarray:
    """(cell, 6): M, K, median untrained errors and gaps, random and cyclic each.

    For the M and K at which the gaps differ, and are not both close to 1, where nothing works.
    """
    rows = []
    for m, k in sorted(set(zip(runs.m.tolist(), runs.k.tolist(), strict=True))):
        pair = [runs.cell(m, k, kind) for kind in ("random", "cyclic")]
        if not all(p.any() for p in pair) or k == m:
            continue
        gaps, errors = ([float(np.median(v[p])) for p in pair] for v in (runs.gap, runs.untrained))
        if gaps[0] + _APART < gaps[1] < 0.95:
            rows.append((m, k, *errors, *gaps))
    return np.array(rows).reshape(-1, 6)


def check(options: Options, runs: Runs) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    o, m = options, options.domains[0]
    rho = correlations(runs, o)
    pairs = same_count(runs)
    checks = [
        Check.below(
            "loss of the route maps - package's mse, value and gradient, relative", runs.engine,
            1e-12,
        ),
        Check.below(
            "trained routes: relative error, worst median over M, K and kind",
            max(np.median(runs.trained[runs.cell(int(a), int(b), KINDS[int(c)])]) for a, b, c in
                {(*x,) for x in zip(runs.m, runs.k, runs.kind, strict=True)}),
            0.02, "all that was trained was learned",
        ),
        *_reference_checks(o, runs),
        *_block_checks(runs),
        Check.between(
            "finding: rank correlation of untrained error with the spectral gap", rho["gap"][0],
            0.8, 1.0, f"95 % of bootstraps {rho['gap'][1]:.3f} .. {rho['gap'][2]:.3f}",
        ),
        Check.between(
            "finding: that minus the rank correlation with -K/M, lower 2.5 % of bootstraps",
            rho["difference"][1], 0.0, 2.0,
            f"{rho['difference'][0]:.3f}; with -K/M {rho['count'][0]:.3f}",
        ),
    ]  # fmt: skip
    if len(pairs):
        worst = float(np.min(pairs[:, 3] / pairs[:, 2]))
        checks.append(
            Check.between(
                "finding: at one K, error of cyclic (larger gap) / of random patterns, least",
                worst, 1.2, np.inf, f"medians, {len(pairs)} pairs of M and K",
            )
        )  # fmt: skip
    forty = runs.cell(m, round(0.4 * m))
    threshold = {int(x): _threshold(runs, int(x)) for x in o.domains}
    facts = {
        "m": m,
        "rho": rho,
        "rho_mixed": correlations(runs, o, (0, 1)),
        "pairs": pairs,
        "at_40": tuple(float(q) for q in np.quantile(runs.untrained[forty], (0.5, 0.1, 0.9))),
        "threshold": threshold,
        "blocks": float(np.median(runs.untrained[runs.kind == 2])),
        "count": int(np.isfinite(runs.untrained).sum()),
    }
    return checks, facts


def _threshold(runs: Runs, m: int) -> float:
    """Smallest K/M of random patterns whose median untrained error is below .1; NaN if none."""
    counts = [k for k in sorted(set(runs.k[runs.m == m].tolist())) if k < m]
    good = [k for k in counts if np.median(runs.untrained[runs.cell(m, k)]) < 0.1]
    return min(good) / m if good else float("nan")


def _reference_checks(options: Options, runs: Runs) -> Iterator[Check]:
    o = options
    if (o.domains[0], o.width, o.gain) != (10, 64, 0.2):
        return
    for k, (low, high) in BANDS.items():
        errors = runs.untrained[runs.cell(10, k)]
        q = np.quantile(errors, (0.1, 0.9))
        yield Check.between(
            f"reference: untrained error, M = 10, K = {k}, median", np.median(errors), low, high,
            f"{len(errors)} seeds, 10 .. 90 %: {q[0]:.2g} .. {q[1]:.2g}; reference "
            f"{REFERENCE[k][0]:.2g}",
        )  # fmt: skip


def _block_checks(runs: Runs) -> Iterator[Check]:
    for m in sorted(set(runs.m.tolist())):
        blocks, mixed = (runs.untrained[runs.cell(m, m // 2, x)] for x in ("blocks", "random"))
        if len(blocks) and len(mixed):
            yield Check.between(
                f"E10: M = {m}, half of the routes in two disjoint blocks, untrained error, median",
                np.median(blocks), 0.3, 4.0,
                f"a random pattern of the same K: {np.median(mixed):.2g}",
            )  # fmt: skip


# ------------------------------------------------------------------ in words
def _finding(facts: dict[str, Any]) -> str:
    rho = facts["rho"]
    middle, low, high = facts["at_40"]
    return (
        f"for M = {facts['m']} with 40 % trained the untrained error is {middle:.1g} "
        f"(10 to 90 %: {low:.1g} .. {high:.1g}), but 40 % is no law: the "
        f"spectral gap orders the errors (rank correlation {rho['gap'][0]:.3f}) better "
        f"than K/M ({rho['count'][0]:.3f})."
    )


def _notes(options: Options, facts: dict[str, Any]) -> Iterator[str]:
    rho = facts["rho"]
    yield (
        "A finding that N does not have (E10-E12): over all networks of all M and kinds of pattern "
        f"({facts['count']}) the rank correlation of the untrained error with sigma_2/sigma_1 of "
        "the trained routes is {:.3f} (95 % of bootstraps {:.3f} .. {:.3f}), with -K/M {:.3f} "
        "({:.3f} .. {:.3f}), the difference {:.3f} ({:.3f} .. {:.3f}). Resampled are networks, "
        "not the choice of M, K and patterns, on which these numbers depend.".format(
            *rho["gap"], *rho["count"], *rho["difference"]
        )
    )
    mixed = facts["rho_mixed"]
    yield (
        "Without the disjoint blocks it is {:.3f} ({:.3f} .. {:.3f}) with the gap and {:.3f} "
        "({:.3f} .. {:.3f}) with -K/M.".format(*mixed["gap"], *mixed["count"])
    )
    for m, k, random, cyclic, g1, g2 in facts["pairs"]:
        yield (
            f"M = {m:.0f}, K = {k:.0f}: random patterns (gap {g1:.2f}) err by {random:.2g} on "
            f"untrained routes, cyclic ones (gap {g2:.2f}) by {cyclic:.2g}, medians."
        )
    yield (
        "Smallest K/M at which random patterns err by less than .1 (median): "
        + ", ".join(f"{f:.3g} for M = {m}" for m, f in facts["threshold"].items())
        + f". Two disjoint blocks train half of all routes and err by {facts['blocks']:.2g}."
    )
    yield (
        "E7: all patterns are biregular. Near the threshold errors are heavy-tailed, hence medians "
        f"and quantiles. Networks: Xavier weights times {options.gain:g}, {options.width} units."
    )
