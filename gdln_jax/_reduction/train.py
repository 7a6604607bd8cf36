"""Discrete training in aligned coordinates, exact at any step size (theory#optimisers)."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from gdln_jax._checks import check_choice, check_integer, is_concrete
from gdln_jax._network.losses import check_loss, mse, one_number
from gdln_jax._progress import Progress, Reporter, reporting
from gdln_jax._reduction.class_rules import Merged, check_classes, check_rule_on_classes
from gdln_jax._reduction.curvature import Curved, warn_of_saddle
from gdln_jax._reduction.flow import ReducedTrajectory, Strengths
from gdln_jax._reduction.forms import (
    AsTheyAre,
    Classes,
    ClassLoss,
    CoupledLoss,
    Diagonals,
    Embedded,
    EmbeddedLoss,
    Form,
    ModeLoss,
    Optimizer,
    Reduced,
    Scaled,
)
from gdln_jax._reduction.refusal import check_finite, check_ties
from gdln_jax._reduction.rules import check_loss_inside, check_rule
from gdln_jax._scan import as_transformation, descend, initial_state, save_points
from gdln_jax._solution import DIVERGED, OK, check_resume, raise_if_failed
from gdln_jax.rules import Rule


class Descending(eqx.Module):
    """A loss of strengths, and the form in which an optimiser is shown them."""

    form: Form
    loss: Callable[[Any], Array]

    def value(self, tree: PyTree) -> Array:
        """The loss at what the optimiser acts on."""
        return one_number(self.loss(self.form.strengths(tree)))


def train_reduced(
    system: Descending,
    b0: Strengths,
    rule: Optimizer,
    steps: int,
    *,
    save_every: int,
    resume: ReducedTrajectory | None,
    throw: bool,
    progress: Progress,
) -> ReducedTrajectory:
    """Take `steps` steps of `rule` from `b0`, or on from the end of `resume`.

    Raises:
        ValueError: bad numbers, or a run that cannot be resumed.
        SolveError: the loss ceased to be finite, with `throw`.
    """
    steps = check_integer(steps, "steps", minimum=1)
    save_every = check_integer(save_every, "save_every", minimum=1)
    state, first = None, jnp.asarray(0)
    if resume is not None:
        restart = "from its strengths, train(run.final)"
        check_resume(resume, ReducedTrajectory, _needed(system, rule, b0), restart)
        b0, state, first = resume.final, resume.optimizer_state, resume.ts[-1]
    with reporting("reduced training", steps, "step", progress) as report:
        run = _train(system, b0, state, first, rule, steps, save_every, report)

    def reason() -> str:
        failed = int(run.ts[int(jnp.argmin(jnp.isfinite(run.losses)))])
        return (
            f"the loss was no longer finite at step {failed} of {int(run.ts[-1])}: the learning "
            "rate is too large (reduction.max_step(b, rule) says how large it may be at b); make "
            "it smaller, or pass throw=False to keep what there is."
        )

    if throw:
        raise_if_failed(run, reason)
    return run


@eqx.filter_jit
def _train(
    system: Descending,
    b0: Strengths,
    state: PyTree,
    first: Array,
    rule: Optimizer,
    steps: int,
    save_every: int,
    report: Reporter | None,
) -> ReducedTrajectory:
    run = descend(
        lambda tree, _: system.value(tree),
        system.form.tree(b0),
        system.form.optimizer(rule),  # made in here: another object would compile again
        steps,
        save_every=save_every,
        look=system.form.strengths,
        state=state,
        first=first,
        report=report,
    )
    fine = jnp.cumprod(jnp.isfinite(run.losses)).astype(bool)

    def kept(stack: Array) -> Array:
        return jnp.where(fine.reshape(-1, *(1,) * (stack.ndim - 1)), stack, jnp.nan)

    return ReducedTrajectory(
        ts=first + jnp.asarray(save_points(steps, save_every)),
        losses=jnp.where(fine, run.losses, jnp.nan),
        status=jnp.where(jnp.all(fine), OK, DIVERGED),
        stats={},
        b=jax.tree.map(kept, run.records),
        optimizer_state=run.state,
    )


def _needed(system: Descending, rule: Optimizer, b0: Strengths) -> Callable[..., dict]:
    """What `resume` is compared with, see `check_resume`."""
    optimizer = system.form.optimizer(rule)

    def pairs(resume: ReducedTrajectory) -> dict[str, tuple[PyTree, PyTree]]:
        state = jax.eval_shape(lambda b: initial_state(optimizer, system.form.tree(b)), b0)
        return {
            "reduction": (b0, resume.final),
            "rule": (state, resume.optimizer_state),
        }

    return pairs


@runtime_checkable
class Trained(Curved, Protocol):
    """What of a `Reduction` training reads."""

    untied_residual: Any


def train(
    reduction: Trained,
    b0: Any,
    *,
    rule: Optimizer | optax.MultiSteps,
    steps: int,
    loss: Callable[..., Array] | None,
    save_every: int,
    tol: float,
    on_inexact: str,
    check_end: bool,
    resume: ReducedTrajectory | None,
    throw: bool,
    progress: Progress,
) -> ReducedTrajectory:
    """Implement `Reduction.train`."""
    check_choice(on_inexact, ("raise", "embed"), "on_inexact")
    rule = as_transformation(rule, "rule")
    loss = None if loss is mse else loss
    if loss is not None:
        check_loss(loss)
    core, start = reduction.core, reduction.strengths_of(b0)
    check_finite(start)
    if core is None:
        check_ties(reduction.ties, reduction.untied_residual, start)
    else:
        start = core.read(core.start(start))
    full = _certified(reduction, rule, loss, tol, on_inexact)
    frames = (reduction.u, reduction.v) if core is None else (core.u, core.v)
    whole = Embedded(*frames, core is not None, reduction.fixed)
    if full:
        form: Form = whole
    elif core is not None:
        form = Reduced(core)
    else:
        form = AsTheyAre() if isinstance(rule, Rule) else Diagonals()
    if loss is not None:
        value = EmbeddedLoss(whole, reduction.source, loss)
    else:
        value = ModeLoss(reduction.mode_data) if core is None else CoupledLoss(core)
    run = train_reduced(
        Descending(form, value),
        start,
        rule,
        steps,
        save_every=save_every,
        resume=resume,
        throw=throw,
        progress=progress,
    )
    if check_end and loss is None and is_concrete(run) and int(np.max(run.status)) == OK:
        warn_of_saddle(reduction, run)
    return run


def _certified(
    reduction: Trained,
    rule: Optimizer,
    loss: Callable[..., Array] | None,
    tol: float,
    on_inexact: str,
) -> bool:
    """Check loss and rule as far as their values are known; whether to run on full shapes."""
    if not is_concrete(reduction):
        return on_inexact == "embed"
    try:
        with jax.ensure_compile_time_eval():
            if loss is not None:
                check_loss_inside(reduction, loss, tol=tol)
            return check_rule(
                reduction, rule, mse if loss is None else loss, tol=tol, on_inexact=on_inexact
            )
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        return on_inexact == "embed"  # rates that are traced


def train_classes(
    quotient: Merged,
    x0: Array,
    *,
    rule: Optimizer | optax.MultiSteps,
    steps: int,
    save_every: int,
    tol: float,
    resume: ReducedTrajectory | None,
    throw: bool,
    progress: Progress,
) -> ReducedTrajectory:
    """Implement `Quotient.train`."""
    rule = as_transformation(rule, "rule")
    start = quotient.by_edge(x0)
    form: Form = Classes() if isinstance(rule, Rule) else Scaled(start)
    if isinstance(rule, Rule):
        check_classes(quotient, rule)
    try:
        with jax.ensure_compile_time_eval():
            check_rule_on_classes(quotient, rule, form, tol=tol)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        pass  # rates that are traced
    return train_reduced(
        Descending(form, ClassLoss(quotient.program)),
        start,
        rule,
        steps,
        save_every=save_every,
        resume=resume,
        throw=throw,
        progress=progress,
    )
