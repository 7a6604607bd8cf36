"""What is measured for the claims, and between which limits a number has to lie for R to be right.

`LIMITS` is the only thing that is stated; everything else is measured.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gdln_jax.recipes._claims_descent import Gates, Momentum
from gdln_jax.recipes._claims_networks import CLASSES, VIEWS, Races

_NO = np.inf
# claim -> between which limits the numbers of R's set-ups have to lie.
LIMITS: dict[str, tuple[float, float]] = {
    "equation": (0.0, 1e-3),  # shares agree
    "exponential": (0.95, 1.05),  # rate over sigma
    "constant rate": (0.9, 1.1),
    "losers": (0.0, 0.05),  # "decay to zero"
    "ratio": (0.9, 1.1),  # decay rate over the difference of sigmas
    "ratio equal": (0.0, 0.9),
    "rule": (0.8, _NO),  # R: "accuracy > 80 %"
    "seeds": (-_NO, 0.9),  # no view wins nearly always
    "coverage": (0.3, 0.4),  # 1/M for M = 3, within a fifth
    "separate": (0.0, 0.4),
    "shared": (0.9, 1.0 + 1e-9),
    "winner takes all": (0.0, 0.05),
    "no competition": (0.9, _NO),
    "no late competition": (0.99, _NO),
    "momentum": (1.1, _NO),  # "equalises": losers a tenth stronger at least
    "depth": (0.0, 0.9),
    "identity": (0.0, 1e-10),
    "gates": (0.0, 0.05),  # "hardly change"
    "frozen": (0.0, 0.05),
}
# Where a race counts as over: total output over the target.
DONE = 0.99


@dataclass(frozen=True)
class Measured:
    """All experiments. `races`: hidden layers -> networks under squared error."""

    races: dict[int, Races]
    entropy: Races
    momentum: Momentum
    gates: tuple[Gates, ...]
    accuracy: np.ndarray
    equal_accuracy: float
    draws: int
    depth_race: np.ndarray
    first_order: float


def views_learned(share: np.ndarray) -> Any:
    """Effective number of views, (sum c)^2 / sum c^2, as a fraction of M: 1/M if one took all."""
    return share.sum(axis=-1) ** 2 / np.sum(share**2, axis=-1) / share.shape[-1]


def loser_to_winner(share: np.ndarray) -> Any:
    """Smallest over largest share, over the last axis."""
    return share.min(axis=-1) / share.max(axis=-1)


def networks_of(found: Measured) -> str:
    seeds = found.races[1].share.shape[1]
    return (
        f"gated networks, K = {CLASSES} classes, M = {VIEWS} views, one pathway of 16 units per "
        f"view and hidden layer, gradient flow, {seeds} seeds"
    )
