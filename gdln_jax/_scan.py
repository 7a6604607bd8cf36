"""Optimisers of optax: which are accepted, and one call for all their signatures."""

import inspect
from collections.abc import Callable
from typing import Any

import optax
from jaxtyping import Array


def as_transformation(optimizer: Any) -> optax.GradientTransformation:
    """The optimiser itself, or what an `optax.MultiSteps` stands for; refuse anything else."""
    if isinstance(optimizer, optax.MultiSteps):
        return optimizer.gradient_transformation()
    if not isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(
            f"optimizer is {optimizer!r}; pass an optax optimiser, e.g. optax.sgd(0.1)."
        )
    return optimizer


def initial_state(optimizer: optax.GradientTransformation, params: Any) -> Any:
    """The optimiser's state for `params`; its complaints in words."""
    try:
        return optimizer.init(params)
    except (AttributeError, TypeError) as error:
        raise _unusable("init", error) from error


def apply_gradient(
    optimizer: optax.GradientTransformation,
    gradient: Any,
    state: Any,
    params: Any,
    value: Array,
    value_fn: Callable[[Any], Array],
) -> tuple[Any, Any]:
    """Return updates and the new state.

    `value`, `grad` and `value_fn` are the extra arguments of optax, which line searches and
    plateau rules ask for; each optimiser is given those that it names.
    """
    named = inspect.signature(optimizer.update).parameters.values()
    extra = {"value": value, "grad": gradient, "value_fn": value_fn}
    if not any(one.kind is one.VAR_KEYWORD for one in named):
        extra = {one.name: extra[one.name] for one in named if one.name in extra}
    try:
        return optimizer.update(gradient, state, params, **extra)
    except (AttributeError, TypeError) as error:
        raise _unusable("update", error) from error


def _unusable(stage: str, error: Exception) -> ValueError:
    return ValueError(
        f"optimizer cannot be used: its {stage} raised {type(error).__name__}: {error}. It gets "
        "gradient, state and parameters, and value=, grad=, value_fn= where it names them. One "
        "that needs more (optax.lookahead: pairs of parameters; optax.contrib.sam with "
        "opaque_mode: grad_fn) needs a loop of your own. Labels of optax.multi_transform that are "
        "a network must be handed over as a function, lambda _: labels, since optax calls whatever "
        "can be called."
    )
