"""The ensembles' module, for recipes that have no folder yet."""

from typing import Any

from gdln_jax.recipes._core.ensembles import (  # noqa: F401
    as_type,
    descend,
    first_below,
    gaps,
    keys,
    spacing,
)

SUM_NOTE = (
    "E19: H's loss sums over the examples; L here is loss_scale times the mean, and time is the "
    "learning rate of that loss times the number of steps (tau = 1), exactly."
)


def check_numbers(options: Any, whole: tuple[str, ...], positive: tuple[str, ...]) -> None:
    """Refuse whole numbers below 1 and numbers that are not positive and finite; None passes."""
    for name in whole:
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(options, name)}")
    for name in positive:
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{name} must be a number above 0, got {value}")
