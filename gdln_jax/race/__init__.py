"""Races between pathways: the summary's equation, the true system, and data for pictures.

R (a third party's summary of N; N does not contain the equation) claims that pathway strengths
follow a Lotka-Volterra law and that one of them takes all. `LotkaVolterra` is that equation with
its exact solution, `Pathways` is what gradient flow really does, and the functions below give the
curves and maps in which the two are compared (theory#races). `gdln reproduce claims` tests R's
claims one by one; docs/claims.md has the verdicts and the errata.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.race._arguments import Solution
from gdln_jax.race._lotka_volterra import LotkaVolterra, Phases
from gdln_jax.race._pathways import Pathways
from gdln_jax.race._portraits import (
    PhaseField,
    WinnerMap,
    depth_rule,
    frozen_arc,
    frozen_shares,
    nullclines,
    phase_field,
    summary_rule,
    winner_map,
)

__all__ = [
    "LotkaVolterra",
    "Pathways",
    "PhaseField",
    "Phases",
    "Solution",
    "WinnerMap",
    "depth_rule",
    "frozen_arc",
    "frozen_shares",
    "nullclines",
    "phase_field",
    "summary_rule",
    "winner_map",
]

__getattr__, __dir__ = _namespace(__name__)
