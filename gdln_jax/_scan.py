"""Descent by an optimiser of optax: the one loop over steps, one call for all signatures."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree
from typing_extensions import TypeAliasType

from gdln_jax._checks.types import ArrayLike
from gdln_jax._progress import REPORTS, Reporter

Optimizer = optax.GradientTransformation
# What users pass: `as_transformation` makes an `Optimizer` of it.
OptimizerLike = TypeAliasType("OptimizerLike", Optimizer | optax.MultiSteps)


class Descent(NamedTuple):
    """What `descend` returns.

    - `losses`, `records`: at the steps of `save_points`, stacked.
    - `final`, `state`: parameters and optimiser state after the last step.
    """

    losses: Float[Array, " save"]
    records: PyTree
    final: PyTree
    state: PyTree


def save_points(steps: int, save_every: int) -> np.ndarray:
    """Steps at which `descend` keeps a record: every `save_every` steps, and the last."""
    return np.append(np.arange(0, steps, save_every), steps)


def descend(
    value: Callable[[PyTree, PyTree], Array],
    start: PyTree,
    optimizer: Optimizer,
    steps: int,
    *,
    draw: Callable[[Array], PyTree] = lambda number: number,
    save_every: int = 1,
    look: Callable[[PyTree], PyTree] = lambda _: None,
    recorded: Callable[[PyTree, Array], Array] | None = None,
    state: PyTree = None,
    first: ArrayLike = 0,
    report: Reporter | None = None,
) -> Descent:
    """Take `steps` steps of `optimizer` down `value(parameters, draw(step))`, by `lax.scan`.

    Args:
        value: the loss to descend.
        start: parameters, a pytree of floating-point arrays.
        optimizer: from `as_transformation`.
        steps: how many, at least 1.
        draw: the data of a step; by default its number.
        save_every: steps between two records.
        look: what to record of the parameters beside the loss.
        recorded: the loss to record, `recorded(parameters, step)`, where that is not `value`, as
            with batches. `value` comes with the gradient; this costs an evaluation per record.
        state: optimiser state to continue from; by default that of a start.
        first: number of the first step.
        report: called with the steps taken and the loss, about `REPORTS` times.
    """
    every = max(1, steps // REPORTS)

    def step(carry: tuple[PyTree, PyTree], number: Array) -> tuple[tuple[PyTree, PyTree], Array]:
        here, state = carry
        data = draw(number)
        loss, gradient = jax.value_and_grad(value)(here, data)
        if report is not None:
            taken = number - first
            report(taken % every == 0, taken, loss)
        updates, state = apply_gradient(
            optimizer, gradient, state, here, loss, lambda there: value(there, data)
        )
        return (optax.apply_updates(here, updates), state), loss

    def segment(
        carry: tuple[PyTree, PyTree], numbers: Array
    ) -> tuple[tuple[PyTree, PyTree], tuple[Array, PyTree]]:
        here = carry[0]
        seen = look(here)
        loss = None if recorded is None else recorded(here, numbers[0])
        carry, losses = jax.lax.scan(step, carry, numbers)
        return carry, (losses[0] if loss is None else loss, seen)

    carry = (start, initial_state(optimizer, start) if state is None else state)
    whole, rest = divmod(steps, save_every)
    numbers = jnp.asarray(first) + jnp.arange(steps)
    pieces = []
    if whole:
        grid = numbers[: whole * save_every].reshape(whole, save_every)
        carry, piece = jax.lax.scan(segment, carry, grid)
        pieces.append(piece)
    if rest:
        carry, piece = segment(carry, numbers[whole * save_every :])
        pieces.append(jax.tree.map(lambda leaf: leaf[None], piece))
    final, state = carry
    end = jnp.asarray(first) + steps
    loss = value(final, draw(end)) if recorded is None else recorded(final, end)
    last = loss, look(final)
    pieces.append(jax.tree.map(lambda leaf: leaf[None], last))
    losses, records = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pieces)
    return Descent(losses, records, final, state)


def as_transformation(optimizer: object, name: str = "optimizer") -> Optimizer:
    """The optimiser itself, or what an `optax.MultiSteps` stands for; refuse anything else."""
    if isinstance(optimizer, optax.MultiSteps):
        optimizer = optimizer.gradient_transformation()
    if not isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(f"{name} is {optimizer!r}; pass an optax optimiser, e.g. optax.sgd(0.1).")
    return jax.tree.map(_comparable, optimizer)


def _comparable(part: object) -> object:
    """A function, or a dataclass around one as in `gdln_jax.rules`, that is equal to its like."""
    if isinstance(part, FunctionType | MethodType):
        return _Made(part)
    function = getattr(part, "function", None)
    if dataclasses.is_dataclass(part) and isinstance(function, FunctionType):
        return dataclasses.replace(part, function=_Made(function))  # type: ignore[type-var]
    return part


class _Made:
    """A function that equals any other that the same code made from the same values.

    `optax.sgd(0.1)` makes new functions in every call, and JAX would compile a run again for each.
    Functions of other packages than optax and this one equal themselves only: what they read when
    they run is not known.
    """

    def __init__(self, function: Callable[..., PyTree]) -> None:
        functools.update_wrapper(self, function)  # so that `inspect.signature` finds its arguments
        self._function = function
        try:
            self._made_from = _made_from(function)
        except RecursionError:  # a closure that names itself
            self._made_from = (_Same(function),)

    def __call__(self, *args: object, **kwargs: object) -> PyTree:
        return self._function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Made) and self._made_from == other._made_from

    def __hash__(self) -> int:
        return hash(self._made_from)


def _made_from(value: object) -> tuple[object, ...]:
    """Code and values that a function was made from, as far as they cannot change.

    Of what can change, a copy: a later change makes another program, as it should.
    """
    if isinstance(value, tuple | list):
        return type(value), *map(_made_from, value)
    if isinstance(value, dict):
        return dict, *((_made_from(key), _made_from(one)) for key, one in value.items())
    if value is None or isinstance(value, bool | int | float | str):
        return type(value), value
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        return np.ndarray, value.dtype, value.shape, value.tobytes()
    if dataclasses.is_dataclass(value) and _is_known(type(value)):
        held = (getattr(value, field.name) for field in dataclasses.fields(value))
        return type(value), *map(_made_from, held)
    if isinstance(value, FunctionType) and _is_known(value):
        cells = tuple(map(_contents, value.__closure__ or ()))
        defaults = value.__defaults__, *(value.__kwdefaults__ or {}).items()
        return value.__module__, value.__code__, *map(_made_from, (*defaults, cells))
    if isinstance(value, MethodType) and _is_known(value.__func__):
        return type(value.__self__), *map(_made_from, (value.__func__, vars(value.__self__)))
    return (_Same(value),)


def _contents(cell: CellType) -> object:
    """What a closure holds; of a variable that was never set the class `CellType`."""
    try:
        return cell.cell_contents
    except ValueError:
        return CellType


def _is_known(function: Callable[..., object]) -> bool:
    """Whether what it reads beside its arguments are its closure and its module's constants."""
    return (function.__module__ or "").partition(".")[0] in ("optax", __package__)


class _Same:
    """Equals itself; holds what it stands for, so that nothing else gets its `id`."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def initial_state(optimizer: Optimizer, params: PyTree) -> PyTree:
    """The optimiser's state for `params`; its errors with their remedy."""
    try:
        return optimizer.init(params)
    except (AttributeError, TypeError) as error:
        raise _unusable("init", error) from error


def apply_gradient(
    optimizer: Optimizer,
    gradient: PyTree,
    state: PyTree,
    params: PyTree,
    value: Array,
    value_fn: Callable[[PyTree], Array],
) -> tuple[PyTree, PyTree]:
    """Return updates and the new state.

    `value`, `grad`, `value_fn` and `grad_fn` are the extra arguments of optax, which line searches,
    plateau rules and sharpness-aware minimisation ask for; each optimiser is given those that it
    names. `grad_fn(params, *_)` ignores what follows the parameters.
    """
    named = inspect.signature(optimizer.update).parameters.values()

    def value_alone(there: PyTree, grad_fn: object = None) -> Array:
        # A line search of optax passes unknown keywords on to the value.
        del grad_fn
        return value_fn(there)

    extra = {
        "value": value,
        "grad": gradient,
        "value_fn": value_alone,
        "grad_fn": lambda there, *_: jax.grad(value_fn)(there),
    }
    if not any(one.kind is one.VAR_KEYWORD for one in named):
        extra = {one.name: extra[one.name] for one in named if one.name in extra}
    try:
        return optimizer.update(gradient, state, params, **extra)
    except (AttributeError, TypeError) as error:
        raise _unusable("update", error) from error


def _unusable(stage: str, error: Exception) -> ValueError:
    return ValueError(
        f"optimizer cannot be used: its {stage} raised {type(error).__name__}: {error}. It gets "
        "gradient, state and parameters, and value=, grad=, value_fn=, grad_fn= where it names "
        "them. One that needs more (optax.lookahead: pairs of parameters) needs a loop of your "
        "own. Labels of optax.multi_transform that are a network must be passed as a "
        "function, lambda _: labels, since optax calls whatever can be called."
    )
