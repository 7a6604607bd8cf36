"""What a reduction refuses, and the advice that it gives then."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from gdln_jax._checks import is_concrete, listed
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.packed import PackedData
from gdln_jax._network.edges import EdgeArrays
from gdln_jax._reduction.statistics import GroupStatistics

# A certificate in float32 is rounding alone below this.
_FLOAT32 = 1e-4


class InexactReductionError(ValueError):
    """The data are not diagonal in any common frames, and the caller asked for exactness.

    `phases`: of a schedule the numbers of those that have none, each alone or two of them together.
    """

    phases: tuple[int, ...] = ()


class InexactReductionWarning(UserWarning):
    """The reduction is an approximation; its certificate says how good."""


def check_finite(b: EdgeArrays) -> None:
    """Raise for strengths that are known and not finite."""
    if is_concrete(b) and not all(np.all(np.isfinite(np.asarray(stack))) for stack in b.stacks):
        raise ValueError("b0 holds values that are not finite.")


def check_ties(
    ties: tuple[tuple[str, ...], ...] | None, untied_residual: Any, b: EdgeArrays
) -> None:
    """Raise where `b` breaks the ties under which a reduction is exact."""
    if ties is None or not is_concrete(b):
        return
    for tied in ties:
        values = np.stack([np.asarray(b[name]) for name in tied])
        if np.any(np.ptp(values, axis=0) > 1e-12 * np.abs(values).max(axis=0)):
            raise ValueError(
                f"this reduction is exact only while the edges {listed(tied, 4)} have equal "
                f"strengths (elsewhere its residual is {untied_residual:.1e}), but b0 "
                "gives them different ones: start them equal, or give the full network "
                "(reduction.embed(b0)) to gradient_flow."
            )


def check_tied_clock(
    ties: tuple[tuple[str, ...], ...] | None, tau: Mapping[str, ArrayLike]
) -> None:
    """Raise where edges that must stay equal have different time constants."""
    for tied in ties or ():
        values = [tau[name] for name in tied if name in tau]
        if is_concrete(values) and len(np.unique(np.asarray(values))) > 1:
            raise ValueError(
                f"this reduction is exact only while the edges {listed(tied, 4)} are equal, but "
                "tau gives them different time constants: give them one, or integrate the full "
                "network, gradient_flow(reduction.embed(b0), ..., tau=tau)."
            )


def advice(residual: float, tol: float, statistics: GroupStatistics, packed: PackedData) -> str:
    """Which statistics are to blame for a residual above `tol`, and what can be done."""
    dtype = jax.tree.leaves(packed.inputs)[0].dtype
    if dtype == np.float32 and residual < _FLOAT32:
        return (
            f"in float32 the certificate, {residual:.1e}, cannot tell an exact reduction from one "
            f"that is inexact at tol {tol:.0e}: use float64 (jax.config.update('jax_enable_x64', "
            f"True) before making arrays), or pass tol={_FLOAT32:.0e}."
        )
    causes = _causes(residual, statistics)
    cause = "no common frames diagonalise the statistics"
    if list(causes) == ["overlaps"]:
        cause = (
            "every statistic is diagonal, but groups of paths that are active together have "
            "output frames that overlap without being equal"
        )
    remedies = []
    if "x" in causes:
        remedies.append("whiten the inputs")
    if "overlaps" in causes:
        remedies.append(
            "give these groups targets with equal singular vectors, or output nodes of their own"
        )
    if len(statistics.strengths) > 1:
        remedies.append(
            "regroup the paths (give groups that are never active together hidden nodes of their "
            "own)"
        )
    remedies.append(
        "pass on_inexact='coupled' to keep the couplings (exact, larger), or 'warn' to take the "
        "diagonal approximation"
    )
    worst = "; ".join(causes.values()) or "no single one"
    text = "; or ".join(remedies)
    return (
        f"{cause}: {residual:.1e} of the gradient leaves the aligned manifold (tol {tol:.0e}). "
        f"Worst: {worst}. {text[0].upper()}{text[1:]}."
    )


def _causes(residual: float, statistics: GroupStatistics) -> dict[str, str]:
    """The worst statistic of each kind, as text, the worst kind first.

    None that is small beside the residual.
    """
    causes = []
    for kind, text, found in (
        ("yx", "Sigma^yx of {what} is {share} off-diagonal", statistics.yx_off),
        ("x", "Sigma^x of {what} is {share} off-diagonal", statistics.x_off),
        ("overlaps", "output frames of {what} differ by {share}", statistics.overlaps),
    ):
        # Of shares that are equal up to rounding, the first.
        what, share = max(found.items(), key=lambda item: round(item[1], 9), default=("", 0.0))
        if share > 0.01 * residual:
            percent = float(f"{100 * share:.2g}")  # 100, not 1e+02
            causes.append((share, kind, text.format(what=what, share=f"{percent:g}%")))
    return {kind: text for _, kind, text in sorted(causes, reverse=True)}
