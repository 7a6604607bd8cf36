"""A claim, the set-ups in which it is put to the test, and a verdict that the numbers decide."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gdln_jax.recipes._recipe import Check

HOLDS, SOMETIMES, FAILS = "holds", "holds under conditions", "does not hold"


@dataclass(frozen=True)
class Case:
    """One set-up: the number measured there, its spread, and the limits between which R is right.

    `value` is the median over runs, `spread` the quartiles (equal to it where there is one run).
    Of a fraction of races, `error` is the standard error and `spread` one of these on either side.
    Not-a-number is outside of all limits. `expected`: whether R is right here by SCIENCE 5.
    """

    setup: str
    value: float
    spread: tuple[float, float]
    limits: tuple[float, float]
    runs: int
    expected: bool
    error: float = 0.0

    @classmethod
    def of(cls, setup: str, values: Any, limits: tuple[float, float], expected: bool) -> "Case":
        """The case of some runs' `values`, of any shape."""
        values = np.asarray(values, float).ravel()
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
        return cls(setup, float(median), (float(low), float(high)), limits, len(values), expected)

    @classmethod
    def fraction(
        cls,
        setup: str,
        value: float,
        error: float,
        limits: tuple[float, float],
        runs: int,
        expected: bool,
    ) -> "Case":
        """The case of a fraction `value` of `runs` races, with its standard error."""
        value, error = float(value), float(error)
        return cls(setup, value, (value - error, value + error), limits, runs, expected, error)

    @property
    def holds(self) -> bool:
        """Whether the number is as the claim has it."""
        return bool(self.limits[0] <= self.value <= self.limits[1])

    def check(self, claim: str) -> Check:
        """The check that the claim called `claim` holds here, or does not, as expected.

        Two standard errors on the wrong side of a limit are chance.
        """
        (low, high), near = self.limits, 2 * self.error
        spread = f"{self.runs} runs, {number(self.spread[0])} .. {number(self.spread[1])}"
        if self.expected:
            name = f"verdict: {claim} holds, {self.setup}"
            return Check.between(name, self.value, low - near, high + near, spread)
        name = f"verdict: {claim} does not hold, {self.setup}"
        return Check.outside(name, self.value, low + near, high - near, spread)


@dataclass(frozen=True)
class Claim:
    """One claim of R.

    Attributes:
        key: short name.
        claim: what R says.
        experiment: what was done, with seeds.
        measure: what the number is.
        cases: the set-ups.
        corrected: what is true instead.
    """

    key: str
    claim: str
    experiment: str
    measure: str
    cases: tuple[Case, ...]
    corrected: str

    @property
    def fraction(self) -> float:
        """Fraction of the set-ups in which the claim holds."""
        return sum(case.holds for case in self.cases) / len(self.cases)

    @property
    def verdict(self) -> str:
        """The claim holds in all set-ups, in some, or in none."""
        return HOLDS if self.fraction == 1 else SOMETIMES if self.fraction > 0 else FAILS


def number(value: float) -> str:
    """A number for reading: four digits, small ones in powers of ten."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.1e}"


def _limits(low: float, high: float) -> str:
    if np.isinf(high):
        return f"≥ {number(low)}"
    return f"≤ {number(high)}" if np.isinf(low) or low == 0 else f"{number(low)} … {number(high)}"


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table, in which a bar would end it."""
    return text.replace("|", "\\|")


def markdown(claims: Iterable[Claim]) -> str:
    """The table of verdicts, then each claim with its set-ups and numbers."""
    claims = list(claims)
    lines = ["## Verdicts", "", "| | claim of R | verdict | what is true |", "|---|---|---|---|"]
    for k, one in enumerate(claims, 1):
        lines.append(f"| {k} | {one.claim} | **{one.verdict}** | {one.corrected} |")
    for k, one in enumerate(claims, 1):
        held = sum(case.holds for case in one.cases)
        lines += [
            "",
            f"## {k}. {one.claim}",
            "",
            f"**{one.verdict.capitalize()}** ({held} of {len(one.cases)} set-ups).",
            "",
            f"Experiment: {one.experiment}",
            "",
            f"Number: {one.measure}",
            "",
            "| set-up | median (quartiles) | runs | the claim asks | holds |",
            "|---|---|---|---|---|",
        ]
        for case in one.cases:
            spread = f" ({number(case.spread[0])}, {number(case.spread[1])})" * (case.runs > 1)
            lines.append(
                f"| {_cell(case.setup)} | {number(case.value)}{spread} | {case.runs} |"
                f" {_limits(*case.limits)} | {'yes' if case.holds else 'no'} |"
            )
        lines += ["", f"What is true: {one.corrected}"]
    return "\n".join(lines) + "\n"
