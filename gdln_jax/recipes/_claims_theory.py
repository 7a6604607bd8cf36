"""What the exact laws of `race` say: the clock, phase portraits, winner maps, rules put to test."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import race
from gdln_jax.race import LotkaVolterra, Pathways, WinnerMap

# The example of SCIENCE 5.
RATES, START = (1.0, 0.9, 0.8), 0.01
DEPTHS = (2, 3, 4)
RULES = ("R: rate u0", "R, norm: rate u0^L", "rate u0^(L-2)")
SCALES = (1e-1, 1e-3, 1e-12)
# Initial layer strengths: scale times exp(spread z), or times |z|; rates are exp(.2 z).
DISTRIBUTIONS = ("log-normal .1", "log-normal .3", "log-normal 1", "half-normal")
_SPREADS = (0.1, 0.3, 1.0)
_RATE_SPREAD = 0.2


@dataclass(frozen=True)
class Clock:
    """R's equation for three pathways: T(t) (time,), strengths (time, pathway), their limits."""

    ts: np.ndarray
    clock: np.ndarray
    strengths: np.ndarray
    clock_limit: float
    limit: np.ndarray
    phases: tuple[float, float]


def clock_example() -> Clock:
    """The race of SCIENCE 5, from equal strengths .01."""
    model, s0 = LotkaVolterra(RATES), np.full(3, START)
    ts = np.linspace(0.0, 9.0, 181)
    phases = model.phases(s0)
    return Clock(
        ts,
        np.asarray(model.clock(s0, ts)),
        np.asarray(model.solve(s0, ts)),
        float(model.clock_limit(s0)),
        np.asarray(model.limit(s0)),
        (float(phases.exponential_end), float(phases.frozen_start)),
    )


@dataclass(frozen=True)
class Portrait:
    """Two pathways: velocities on a grid, trajectories (start, time, 2), and where they rest."""

    axis: np.ndarray
    velocity: np.ndarray
    paths: np.ndarray
    lines: np.ndarray
    rest: np.ndarray


def portraits(presence: float) -> tuple[Portrait, Portrait]:
    """R's equation (rates 1, .8), and views of these strengths that occur with a probability."""
    angle = np.linspace(0.06, np.pi / 2 - 0.06, 9)
    inner = 0.04 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    outer = 1.28 * np.stack([np.cos(angle), np.sin(angle)], axis=1)[1::2]
    starts = np.concatenate([inner, outer])
    ts = np.concatenate([[0.0], np.geomspace(0.03, 400.0, 90)])
    strengths = np.array([1.0, 0.8])
    together = LotkaVolterra(strengths)
    D = presence**2 * np.outer(strengths, strengths)
    np.fill_diagonal(D, presence * strengths**2)
    apart = Pathways(presence * strengths, D)
    arc = np.asarray(race.frozen_arc(1.0))
    lines, _ = race.nullclines(apart, 1.4)
    made = []
    for model, where, rest in ((together, arc[None], arc), (apart, lines, apart.limit()[None])):
        field = race.phase_field(model, 1.4, 15)
        paths = jax.vmap(lambda start, model=model: model.solve(start, ts))(starts)
        parts = (field.axis, field.velocity, paths, where, rest)
        made.append(Portrait(*(np.asarray(part) for part in parts)))
    return made[0], made[1]


def winner_maps(num: int, u0: float) -> dict[int, WinnerMap]:
    """The maps of depths 2, 3, 4 over ratios from 1/2 to 2, of rates and of layer strengths."""
    ratios = np.geomspace(0.5, 2.0, num)
    return {depth: race.winner_map(ratios, ratios, depth, u0=u0) for depth in DEPTHS}


def rule_accuracy(draws: int, seed: int) -> np.ndarray:
    """Fraction of races between three views whose winner a rule names.

    Returns (rule, depth, scale, distribution). The views always occur together; winners are exact.
    """
    rng = np.random.default_rng(seed)
    rates = np.exp(_RATE_SPREAD * rng.normal(size=(draws, 3)))
    z = rng.normal(size=(draws, 3))
    unit = np.stack([*(np.exp(spread * z) for spread in _SPREADS), np.abs(z)])
    u0 = np.array(SCALES)[:, None, None, None] * unit
    found = np.zeros((len(RULES), len(DEPTHS), len(SCALES), len(unit)))
    for k, depth in enumerate(DEPTHS):
        winner = np.asarray(race.frozen_shares(rates, u0, depth)).argmax(axis=-1)
        for i, power in enumerate((1, depth, depth - 2)):
            found[i, k] = ((rates * u0**power).argmax(axis=-1) == winner).mean(axis=-1)
    return found


def equal_rate_accuracy(draws: int, seed: int) -> float:
    """The same for R's rule among equal rates, two layers, half-normal strengths at .001."""
    u0 = 1e-3 * np.abs(np.random.default_rng(seed + 1).normal(size=(draws, 3)))
    winner = np.asarray(race.frozen_shares(np.ones(3), u0, 2)).argmax(axis=-1)
    return float((u0.argmax(axis=-1) == winner).mean())


def first_order_effect(strengths: Any, u0: float) -> float:
    """Relative change of the final s_2/s_1 per unit of kappa, for small kappa.

    Heavy-ball descent with flow time h = eta/(1 - beta) per step follows gradient flow of the loss
    L + kappa |grad L|^2/4, kappa = h (1 + beta)/(1 - beta) (Barrett and Dherin 2021 without
    momentum; Ghosh et al. 2023). Nothing is fitted.
    """
    r = jnp.asarray(strengths)

    def loss(w: Any) -> Any:
        return 0.5 * (1 - jnp.sum(r * w[0] * w[1])) ** 2

    def final(kappa: Any) -> Any:
        def modified(w: Any) -> Any:
            return loss(w) + kappa / 4 * jnp.sum(jax.grad(loss)(w) ** 2)

        def force(w: Any) -> Any:
            return -jax.grad(modified)(w)

        def step(w: Any, _: Any) -> tuple[Any, None]:  # classical Runge-Kutta, h = .02
            h = 0.02
            k1 = force(w)
            k2 = force(w + h / 2 * k1)
            k3 = force(w + h / 2 * k2)
            return w + h / 6 * (k1 + 2 * k2 + 2 * k3 + force(w + h * k3)), None

        end = jax.lax.scan(step, jnp.full((2, len(r)), u0), length=1500)[0]
        share = r * end[0] * end[1]
        return jnp.log(share[1] / share[0]) / 2

    return float(jax.jit(jax.grad(final))(0.0))


def depth_race() -> np.ndarray:
    """Final loser/winner at equal rates, u0 = .1 and .09, for depths 2, 3, 4 (SCIENCE 5)."""
    u0 = np.array([0.1, 0.09])
    shares = [np.asarray(race.frozen_shares(np.ones(2), u0, depth)) for depth in DEPTHS]
    return np.array([share[1] / share[0] for share in shares])


def summary_shares(model: Pathways, a0: np.ndarray, ts: Any) -> np.ndarray:
    """Shares s^2/s_max^2 (start, time, view) by R's equation with the rates of `model`.

    s_max is what it is where R's equation is exact, and the best in least squares elsewhere.
    """
    S, D = np.asarray(model.S), np.asarray(model.D)
    capacity = S @ D @ S / np.sum(S**2) ** 2
    equation = LotkaVolterra(S, capacity**-0.25)
    s0 = np.sqrt(np.sqrt(capacity) * S * a0)
    s = jax.vmap(lambda start: equation.solve(start, ts))(s0)
    return np.asarray(s) ** 2 * np.sqrt(capacity)
