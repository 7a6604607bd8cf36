"""N Fig. 5a-b: the routing task through pathways that share more or less, and their race.

N Eq. 16-17 for every P with integer sqrt(P) dividing M, against full networks with those gatings
and against the reduction; the P^(-2/3) law; and one network in which a shared and dedicated
pathways race from equal starts, with an exact law for what the loser keeps. Errata: E5, E11.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import exact, gradient_flow, reduce, tasks
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform
from gdln_jax.recipes._sharing_figure import dataset, draw

# tests/reference.json, `sharing_M10`: times to half of modes 1-3 at M = 10, B(0) = .2.
REFERENCE_HALF = {
    1: (136.524547146, 283.548898429, 587.17270759),
    100: (5.63287800484, 11.6632775838, 24.0462050526),
}
REFERENCE_MAP = np.sqrt([185.0, 41.0, 9.0])  # s/d of these modes, d = 1/4
# Relative tolerance of the flows, whose strengths are held to 1e-9.
_RTOL = 1e-12
# Initial amplitudes at which the race is also run, and those of the theory's curve.
_STARTS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        domains: M. amplitude: B(0) of all layers. width: units of each hidden node.
        times: how many times each run is looked at.
    """

    domains: int = 10
    amplitude: float = 0.2
    width: int = 5
    times: int = 41

    def __post_init__(self) -> None:
        sim.check_numbers(self, ("domains",), ("amplitude",))
        if self.domains < 2:
            raise ValueError(f"domains must be at least 2, got {self.domains}")
        if self.width < 4:
            raise ValueError(f"width must be at least 4, the number of modes, got {self.width}")
        if self.times < 3:
            raise ValueError(f"times must be at least 3, got {self.times}")

    @property
    def shares(self) -> tuple[int, ...]:
        """All P: squares of the divisors of M."""
        return tuple(k**2 for k in range(1, self.domains + 1) if self.domains % k == 0)


QUICK = {"domains": 2, "times": 21}


@dataclass(frozen=True)
class Network:
    """One gating: strengths (time, mode) of a full network, of the reduction, and Eq. 16-17."""

    ts: np.ndarray
    flow: tuple[np.ndarray, np.ndarray]
    spread: float  # over edges of a layer, and off the frames
    reduced: tuple[np.ndarray, np.ndarray]
    theory: tuple[np.ndarray, np.ndarray]
    balanced: tuple[np.ndarray, np.ndarray]  # the reduction from B2 = P^(1/4) B1


@dataclass(frozen=True)
class Race:
    """The combined network: strengths (time, pathway, mode), pathways shared and dedicated."""

    ts: np.ndarray
    b1: np.ndarray
    b2: np.ndarray
    spread: float
    reduced: tuple[np.ndarray, np.ndarray]
    starts: np.ndarray
    kept: np.ndarray  # (start, mode) share of the dedicated pathways at the end
    kept_theory: np.ndarray
    kept_here: np.ndarray  # (mode,) the same by theory at the amplitude of the options


@dataclass(frozen=True)
class Runs:
    """Everything; s and d of the base data, strongest mode first."""

    s: np.ndarray
    d: np.ndarray
    networks: dict[int, Network]
    half: np.ndarray  # (P, mode) times to half by Eq. 16-17
    half_balanced: np.ndarray
    race: Race


def run(options: Options, progress: Progress = silent) -> Result:
    """Make N Fig. 5a-b."""
    return perform("sharing", options, progress, simulate, check, _tell)


def _tell(options: Options, runs: Runs, facts: dict[str, Any]) -> Told:
    data = dataset(options, runs)
    return Told(data, partial(draw, data, facts), _finding(options, facts), _notes(facts))


# ------------------------------------------------------------------ the runs
def simulate(options: Options, progress: Progress = silent) -> Runs:
    """One network for each P, then the race between the most and the least shared one."""
    o, networks = options, {}
    s, d = _base_modes()
    half = half_times(s, d, o.amplitude, o.domains, np.array(o.shares))
    if not np.all((half > 0) & (half < np.inf)):
        raise ValueError("the start is too large, or too small, for each mode to pass half its end")
    b1 = balanced_start(o.amplitude, np.array(o.shares))
    half_balanced = half_times(s, d, b1, o.domains, np.array(o.shares), balanced=True)
    for k, p in enumerate(o.shares):
        progress(0.7 * k / len(o.shares), f"P = {p}")
        networks[p] = _network(o, p, s, d, 1.6 * half[k, 2])
    progress(0.7, "race")
    race = _race(o, s, d, 3 * half[-1, 2])
    return Runs(s, d, networks, half, half_balanced, race)


def _base_modes() -> tuple[np.ndarray, np.ndarray]:
    features = tasks.hierarchy_features()
    s = np.linalg.svd(features, compute_uv=False) / features.shape[1]
    return s, np.full_like(s, 1 / features.shape[1])


def balanced_start(amplitude: float, paths: np.ndarray) -> np.ndarray:
    """B1(0) with the same product B2 B1^2 = amplitude^3, when B2 = P^(1/4) B1."""
    return amplitude * paths ** (-1 / 12)


def half_times(
    s: np.ndarray, d: np.ndarray, b1: Any, domains: int, paths: np.ndarray, balanced: bool = False
) -> np.ndarray:
    """(P, mode) time at which B2 B1^2 = s/(2 d), by Eq. 16-17 integrated.

    From B1(0) = B2(0) = b1, or balanced from B2(0) = P^(1/4) B1(0).
    """
    root = np.sqrt(paths)[:, None]
    b1 = np.broadcast_to(np.asarray(b1, float).reshape(-1, 1), root.shape)
    b2 = b1 * root**0.5 if balanced else b1
    c = root * b1**2 - b2**2
    c = np.where(np.abs(c) < 1e-12 * b2**2, 0.0, c)
    wanted = root * s / (2 * d)  # x (x^2 + C) there
    x = np.broadcast_to(np.cbrt(wanted), np.broadcast_shapes(wanted.shape, c.shape))
    for _ in range(60):  # Newton on a convex function from the right: converges always
        x = x - (x * (x**2 + c) - wanted) / (3 * x**2 + c)
    tau = domains**2 / paths[:, None]
    return np.asarray(exact.routing_time(x, s, d, b2, root, tau, c=c))


def _network(options: Options, p: int, s: np.ndarray, d: np.ndarray, end: float) -> Network:
    o = options
    task = tasks.pathway_sharing(o.domains, p, width=o.width, compact=True)
    reduction = reduce(task.graph, task.data)
    ts = _times(o, end)
    order = _order(reduction)
    flow = gradient_flow(
        reduction.embed(o.amplitude), task.data, ts, rtol=_RTOL, measure=_Look(reduction, (p,))
    )
    b1, b2, spread = (np.asarray(a) for a in flow.measured)
    quotient = reduction.quotient(o.amplitude)
    start = balanced_start(o.amplitude, np.array([p]))[0]
    # One start per class; at P = 1 all edges are one class, and balanced means equal.
    hidden = np.array([c[0].startswith("h1") for c in quotient.classes])[:, None]
    first = np.where(hidden & (p > 1), start * p**0.25, start)
    solved, balanced = (
        _of_layers(quotient, quotient.solve(ts, x0=x0, rtol=_RTOL).b, p)
        for x0 in (np.full_like(first, o.amplitude), first)
    )
    theory = exact.sharing_mode(ts[:, None], s, d, o.amplitude, o.domains, p)
    return Network(
        ts,
        (b1[:, 0, order], b2[:, 0, order]),
        float(spread.max()),
        (solved[0][:, order], solved[1][:, order]),
        (np.asarray(theory.b1), np.asarray(theory.b2)),
        (balanced[0][:, order], balanced[1][:, order]),
    )


def _times(options: Options, end: float) -> np.ndarray:
    """0 and then equally spaced in the logarithm: modes are learned at very different times."""
    return np.append(0.0, np.geomspace(end / 60, end, options.times - 1))


def _order(reduction: Any) -> np.ndarray:
    """The reduction's modes, strongest first."""
    strength = next(iter(reduction.strengths.values()))
    return np.argsort(-np.abs(strength), kind="stable")


def _of_layers(quotient: Any, b: Any, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Strengths of first and hidden layer of a block, (..., mode)."""
    every = quotient.expand(b)
    return (
        np.asarray(every[f"x0->h1_{p}_0_0"]),
        np.asarray(every[f"h1_{p}_0_0->h2_{p}_0_0"]),
    )


class _Look:
    """Reads B1 and B2 of each kind of pathway off a full network: (pathway, mode) each.

    Beside them the largest deviation from that: of any edge of the layer, of the third layer from
    the first, and off the frames.
    """

    def __init__(self, reduction: Any, paths: tuple[int, ...]):
        self.u, self.v = reduction.u, reduction.v
        bundles = [bundle.edges for bundle in reduction.graph.bundles]
        self.groups = [
            [
                [
                    (k, np.array(rows))
                    for k, edges in enumerate(bundles)
                    if (rows := [i for i, e in enumerate(edges) if self._is(e, p, hidden)])
                ]
                for p in paths
            ]
            for hidden in (False, True)
        ]

    @staticmethod
    def _is(edge: str, p: int, hidden: bool) -> bool:
        source, target = edge.split("->")
        inner = source.startswith("h") and target.startswith("h")
        block = source if source.startswith("h") else target
        return inner == hidden and block.split("_")[1] == str(p)

    def __call__(self, net: Any) -> tuple[Any, Any, Any]:
        """(B1, B2, deviation)."""
        b, off = [], jnp.zeros(())
        for u, w, v in zip(self.u, net.stacks, self.v, strict=True):
            here = jnp.einsum("etm,ets,esm->em", u, w, v)
            off = jnp.maximum(off, jnp.max(jnp.abs(w - jnp.einsum("etm,em,esm->ets", u, here, v))))
            b.append(here)
        layers = []
        for kinds in self.groups:
            rows = [jnp.concatenate([b[k][i] for k, i in parts]) for parts in kinds]
            layers.append(jnp.stack([row[0] for row in rows]))
            for row in rows:
                off = jnp.maximum(off, jnp.max(jnp.abs(row - row[0])))
        return layers[0], layers[1], off


def _race(options: Options, s: np.ndarray, d: np.ndarray, end: float) -> Race:
    o = options
    pair = (o.domains**2, 1)
    task = tasks.pathway_sharing(o.domains, pair, width=o.width, compact=True)
    reduction = reduce(task.graph, task.data)
    order = _order(reduction)
    ts = _times(o, end)
    flow = gradient_flow(
        reduction.embed(o.amplitude), task.data, ts, rtol=_RTOL, measure=_Look(reduction, pair)
    )
    b1, b2, spread = (np.asarray(a) for a in flow.measured)
    quotient = reduction.quotient(o.amplitude)
    starts = np.append(_STARTS, o.amplitude)
    # The last start is the flow's own, on its times; the others run until they have learned.
    grid = np.append(3 * np.maximum(1, o.amplitude / _STARTS), 1)[:, None] * ts

    def solve(x0: Any, ts: Any) -> Any:
        return quotient.solve(ts, x0=x0, rtol=_RTOL).b

    solved = jax.vmap(solve)(jnp.asarray(starts), jnp.asarray(grid))
    found = [_of_layers(quotient, solved, p) for p in pair]
    first, hidden = (np.stack([f[k] for f in found], axis=2)[..., order] for k in range(2))
    end_product = first[:-1, -1] ** 2 * hidden[:-1, -1]  # (start, pathway, mode)
    kept = end_product[:, 1] / end_product.sum(axis=1)
    curve = np.geomspace(_STARTS[0], _STARTS[-1], 41)
    theory = loser_keeps(np.append(curve, _STARTS), s / d, o.domains)
    return Race(
        ts,
        b1[..., order],
        b2[..., order],
        float(spread.max()),
        (first[-1], hidden[-1]),
        curve,
        kept,
        theory,
        loser_keeps(np.array([o.amplitude]), s / d, o.domains)[0],
    )


def loser_keeps(starts: np.ndarray, final: np.ndarray, domains: int) -> np.ndarray:
    r"""(start, mode) final share of dedicated pathways that race with a fully shared one.

    Both see the same error e(t) of a mode: tau dB1/dt = (sqrt(P)/M^2) B2 B1 e, tau dB2/dt =
    (P/M^2) B1^2 e. On the clock dT = e dt each pathway runs as if alone and without saturation
    (Eq. 16-17 with s = 1, d = 0), and the race ends when the products add up to s/d: an exact law
    for equal starts b. Found by bisection on the shared pathway's B2.
    """
    b = starts[:, None] + np.zeros_like(final)
    shared = float(domains)
    c = (shared - 1) * b**2
    low, high = b.copy(), np.cbrt(shared * final) + b

    def dedicated(x: np.ndarray) -> np.ndarray:
        clock = exact.routing_time(x, 1.0, 0.0, b, shared, 1.0, c=c)
        return np.asarray(exact.routing_mode(clock, 1.0, 0.0, b, 1.0, float(domains) ** 2)) ** 3

    for _ in range(52):  # to rounding
        middle = (low + high) / 2
        over = middle * (middle**2 + c) / shared + dedicated(middle) > final
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return dedicated(low) / final


# ------------------------------------------------------------------ checks
def check(options: Options, runs: Runs) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    o, race = options, runs.race
    checks: list[Check] = []
    for p, one in runs.networks.items():
        gap = max(np.abs(a - b).max() for a, b in zip(one.flow, one.theory, strict=True))
        checks.append(
            Check.below(
                f"P = {p}: flow of the full network - Eq. 16-17, B1 and B2",
                max(gap, one.spread), 1e-9, "all edges, and off the frames",
            )
        )  # fmt: skip
    everyone = runs.networks.items()
    gap = max(
        np.abs(a - b).max() for _, n in everyone for a, b in zip(n.reduced, n.theory, strict=True)
    )
    checks.append(Check.below("reduction (quotient) - Eq. 16-17, B1 and B2", gap, 1e-9, "all P"))
    ratio = max(np.abs(n.balanced[1] / n.balanced[0] / p**0.25 - 1).max() for p, n in everyone)
    final = {p: float(n.flow[1][-1, 0] / n.flow[0][-1, 0]) for p, n in everyone}
    checks.append(
        Check.below(
            "E5: balanced B2/B1 - P^(1/4), relative, all times", ratio, 1e-9,
            "from equal starts mode 1 ends at "
            + ", ".join(f"{final[p]:.3f} ({p**0.25:.3f})" for p in final),
        )
    )  # fmt: skip
    paths = np.log(np.array(o.shares, float))[:, None]
    # Every two neighbours, every mode: a power law, not a fit of one.
    slopes = np.diff(np.log(runs.half_balanced), axis=0) / np.diff(paths, axis=0)
    unbalanced = np.diff(np.log(runs.half), axis=0) / np.diff(paths, axis=0)
    checks.append(
        Check.below(
            "balanced, equal product: exponent of the times to half in P + 2/3, worst",
            np.abs(slopes + 2 / 3).max(), 1e-10,
            f"from equal layers it is {unbalanced.min():.3f} .. {unbalanced.max():.3f}",
        )
    )  # fmt: skip
    measured = _simulated_exponent(o, runs)
    checks.append(
        Check.below(
            "balanced: products of all P on the clock t P^(2/3), largest difference / s/d",
            measured, 1e-9, "reduction",
        )
    )  # fmt: skip
    checks += _reference_checks()
    checks += _race_checks(race)
    facts = {
        "final": final,
        "kept": race.kept_here,
        "exponents": (float(unbalanced.min()), float(unbalanced.max())),
        "speedup": float(runs.half[0, 0] / runs.half[-1, 0]),
        "domains": o.domains,
        "amplitude": o.amplitude,
        "all_kept": (float(race.kept[0, 0]), float(race.kept[-1, 0])),
    }
    return checks, facts


def _simulated_exponent(options: Options, runs: Runs) -> float:
    """How far the balanced products of all P are from P = 1's closed form at time t P^(2/3)."""
    worst = 0.0
    for p, one in runs.networks.items():
        t = one.ts[:, None] * p ** (2 / 3)
        alone = exact.sharing_mode(t, runs.s, runs.d, options.amplitude, options.domains, 1)
        product = one.balanced[0] ** 2 * one.balanced[1]
        gap = np.abs(product - np.asarray(alone.product)) * runs.d / runs.s
        worst = max(worst, float(gap.max()))
    return worst


def _reference_checks() -> Iterator[Check]:
    found = half_times(REFERENCE_MAP / 4, np.full(3, 0.25), 0.2, 10, np.array([1, 100]))
    for row, (p, wanted) in zip(found, REFERENCE_HALF.items(), strict=True):
        # Tolerance: the digits given.
        yield Check.below(
            f"reference: times to half, M = 10, P = {p}", np.abs(row / wanted - 1).max(), 1e-10,
            "relative",
        )  # fmt: skip


def _race_checks(race: Race) -> Iterator[Check]:
    gap = max(np.abs(race.b1 - race.reduced[0]).max(), np.abs(race.b2 - race.reduced[1]).max())
    yield Check.below(
        "race: flow of the combined network - reduction, B1 and B2",
        max(gap, race.spread), 1e-9, "shared and dedicated pathways side by side, equal starts",
    )  # fmt: skip
    predicted = race.kept_theory[-len(race.kept) :]
    # What the run still lacks of s/d at its end, and the solver's error.
    yield Check.below(
        "race: share that the loser keeps - exact law, worst",
        np.abs(race.kept - predicted).max(), 1e-6,
        f"B(0) = {_STARTS[0]:g} .. {_STARTS[-1]:g}, all modes",
    )  # fmt: skip
    grown = np.min(np.diff(race.b2[:, 1], axis=0))
    yield Check.between(
        "race: least increase of the loser's B2 per time (it freezes, it does not decay)",
        grown, -1e-9, np.inf,
    )  # fmt: skip


# ------------------------------------------------------------------ in words
def _finding(options: Options, facts: dict[str, Any]) -> str:
    m = options.domains
    return (
        f"sharing all M^2 = {m**2} paths is {facts['speedup']:.1f} times faster "
        "than sharing none (mode 1), as Eq. 16-17 say to 1e-9; in one network dedicated pathways "
        f"keep {facts['kept'][0]:.2%} of mode 1 from equal starts of {options.amplitude:g}."
    )


def _notes(facts: dict[str, Any]) -> Iterator[str]:
    low, high = facts["exponents"]
    yield (
        "P^(-2/3) is exact for balanced starts of the same product B2 B1^2, for every mode. From "
        f"equal layers the exponent between neighbouring P is {low:.3f} .. {high:.3f}, because "
        "the conserved C = sqrt(P) B1^2 - B2^2 > 0 then helps the more the more is shared."
    )
    yield (
        "E5: the balanced ratio B2/B1 is P^(1/4); the root in N Eq. 55 is over P only. From equal "
        "starts mode 1 ends near it: "
        + ", ".join(f"{r:.3f} for P = {p} ({p**0.25:.3f})" for p, r in facts["final"].items())
        + "; the difference is the conserved sqrt(P) B1^2 - B2^2."
    )
    yield (
        "The race has an exact law that N does not give: all pathways see the same error, so that "
        "on the clock dT = e dt each runs as if alone and without saturation, until the products "
        "add up to s/d. The loser freezes, it does not decay; from B(0) = "
        f"{_STARTS[0]:g} it keeps {facts['all_kept'][0]:.2%} of mode 1, from {_STARTS[-1]:g} "
        f"{facts['all_kept'][1]:.2%}."
    )
    yield (
        "E11: this race is run with all routes trained, where sharing is favoured most. It decides "
        "between gatings that are given, and is no threshold in K: see the recipe generalisation."
    )
