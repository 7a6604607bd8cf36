"""Discrete training: any optax optimiser under one `lax.scan`, and its exact clock."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import answering, check_integer, is_concrete
from gdln_jax._checks.types import ArrayLike, Loss, Measure, Model, PRNGKeyArray
from gdln_jax._data.boundary import check_model, check_random_key
from gdln_jax._data.gated import GatedData
from gdln_jax._data.schedule import Schedule, at_time, is_function
from gdln_jax._network.gated import along_time, learning
from gdln_jax._network.losses import arranged, check_loss, mse, one_number
from gdln_jax._progress import Progress, Reporter, reporting
from gdln_jax._scan import (
    OptimizerLike,
    apply_gradient,
    as_transformation,
    descend,
    initial_state,
    save_points,
)
from gdln_jax._solution import (
    DIVERGED,
    OK,
    Trajectory,
    check_measure,
    check_resume,
    keeps_models,
    raise_if_failed,
    warn_of_plateau,
)


class LostUpdatesWarning(UserWarning):
    """Updates are so small beside the weights that rounding swallows them (pitfall 2)."""


def flow_time(
    steps: ArrayLike,
    learning_rate: ArrayLike | Callable[[Array], ArrayLike],
    tau: ArrayLike = 1.0,
    momentum: ArrayLike = 0.0,
) -> Float[Array, "..."]:
    r"""Return the flow time of gradient-descent steps: $t = \tau \sum_k \eta_k / (1 - \beta)$.

    Here beta is `momentum`; for one rate t = tau eta steps / (1 - beta). Plain gradient descent is
    the Euler discretisation of the flow with this clock, exactly; the difference is of first order
    in eta. With heavy-ball momentum the time is off by a share that does not vanish with the number
    of steps: for a mode of strength S about a (1 + beta)/(2 (1 - beta)), a = eta S/(1 - beta), and
    exactly `exact.momentum_clock_error(S, eta, beta)` (S = 3.4, eta = 0.001, beta = 0.9: 0.20).

    Args:
        steps: number of steps, an array of any shape, say `run.ts`.
        learning_rate: one number, or rates of several runs of shape (..., 1), which are spread over
            `steps`; a schedule of optax (a function of the step, from 0); or one rate per step,
            (step,), for at least as many steps as `steps` names. The rates of the steps are summed.

    A step is a call of the optimiser: `optax.MultiSteps(sgd, k)` moves the weights in every k-th
    only, by the mean gradient, so that its time is `flow_time(steps // k, learning_rate)`.

    Raises:
        ValueError: a momentum outside [0, 1); rates that are not positive (of a schedule:
            negative) or not finite, or fewer than the steps.
    """
    if is_concrete(momentum):
        value = np.asarray(momentum)
        if not np.all((value >= 0) & (value < 1)):
            raise ValueError(f"momentum is {momentum!r}; it must lie in [0, 1).")
    _check_above_zero(tau, "tau")
    _check_above_zero(steps, "steps", or_zero=True)
    steps = jnp.asarray(steps)
    scales = jnp.asarray(tau), jnp.asarray(momentum)
    if callable(learning_rate):
        if not is_concrete(steps):
            raise ValueError(
                "steps is traced, so it is not known for how many the schedule is asked; pass one "
                "rate per step, jax.vmap(schedule)(jnp.arange(n))."
            )
        count = int(np.ceil(np.max(np.asarray(steps), initial=0)))
        schedule = learning_rate
        learning_rate = jax.vmap(lambda k: jnp.asarray(schedule(k), float))(jnp.arange(count))
        summed = True
    else:
        learning_rate = jnp.asarray(learning_rate)
        summed = learning_rate.ndim == 1 and learning_rate.shape != (1,)
    # A schedule may begin or end at 0.
    _check_above_zero(learning_rate, "learning_rate", or_zero=summed)
    if not summed:
        return _time(*scales, learning_rate, steps)
    if is_concrete(steps) and np.max(np.asarray(steps), initial=0) > len(learning_rate):
        raise ValueError(
            f"learning_rate has {len(learning_rate)} entries, but steps go up to "
            f"{np.max(np.asarray(steps))}: give one rate for every step, not for every saved one "
            "(or the schedule itself, or rates of several runs of shape (run, 1))."
        )
    past = jnp.concatenate([jnp.zeros(1), jnp.cumsum(learning_rate)])
    return _time(*scales, 1, jnp.interp(steps, jnp.arange(len(past)), past))


@jax.jit  # one program: as single operations they would each be compiled
def _time(tau: Array, momentum: Array, rate: ArrayLike, steps: Array) -> Array:
    return tau / (1 - momentum) * rate * steps


def _check_above_zero(values: ArrayLike, name: str, or_zero: bool = False) -> None:
    if is_concrete(values):
        known = np.asarray(values)
        wrong = ~np.isfinite(known) | (known < 0 if or_zero else known <= 0)
        if np.any(wrong):
            place = f" at index {np.argmax(wrong)}" if known.ndim else ""
            least = "of at least 0" if or_zero else "above 0"
            raise ValueError(
                f"{name} is {known[wrong].flat[0]}{place}; it must be a finite number {least}."
            )


@answering
def train(
    model: Model,
    data: object,
    *,
    optimizer: OptimizerLike,
    steps: int,
    loss: Loss = mse,
    save_every: int = 1,
    batch_size: int | None = None,
    key: PRNGKeyArray | None = None,
    measure: Measure = None,
    keep_models: bool | None = None,
    throw: bool = True,
    resume: Trajectory | None = None,
    progress: Progress = True,
) -> Trajectory:
    """Train `model` for `steps` steps of `optimizer` on `loss(model, data)`.

    Args:
        model: any `eqx.Module` (or pytree); its inexact arrays are trained. Gates are in the data
            and are never touched.
        data: passed to `loss`; of any type for a loss of your own. For `mse` and `cross_entropy` of
            a `GatedNetwork` they are packed first (full batch). Of a `Schedule` (of `steps`) step k
            sees the data of step k. Or a function of step and key, `data(k, key)`, whose data are
            made for each step: label noise, resampling, replay, tasks that interleave. Its key
            is `jax.random.fold_in(key, k)`, and recorded losses are those of the step's data. Reuse
            one function object to reuse the compiled program; `jax.tree_util.Partial(f, x, y)`
            hands arrays to `f(x, y, k, key)` without baking them into it.
        optimizer: from optax, also those that ask for the value of the loss (`lbfgs`, `polyak_sgd`,
            `contrib.reduce_on_plateau`) and `MultiSteps`. One that is made again from the same
            numbers runs the same compiled program; with functions of your own (a schedule) it must
            be the same object. A learning rate that varies over runs can be a traced array when
            the optimiser is built inside the mapped function.
        save_every: a record at steps 0, save_every, 2 save_every, ... and at the last step.
        batch_size: draw that many examples without replacement at each step, uniformly; their
            weights are kept, times n / batch_size, so that the mean gradient over batches is the
            full one, whatever the weights. Needs `GatedData`. Recorded losses are of all the data.
        key: random key, for batches and for data that are a function.
        measure, keep_models: as in `gradient_flow`: by default models are kept if nothing is
            measured and they take less than 256 MB.
        throw: raise when the loss ceases to be finite; never under `jit` or `vmap`, where the
            member has status 1 and its losses from there on are NaN.
        resume: a trajectory of `train` to continue from, for `steps` more: its final model (that of
            `model` gives the structure only), optimiser state and number of steps. With the same
            optimiser, data and key the two runs are one to the last bit, batches included (under
            `vmap` to rounding).
        progress: as in `gradient_flow`, with the loss of the step (of its batch).

    Returns a `Trajectory` whose `ts` are numbers of steps, counted on in a resumed run;
    `flow_time` converts them.

    Raises:
        ValueError: a bad number of steps or batch size, an optimiser that cannot be used, or a run
            to resume whose model or optimiser is another.
        SolveError: training diverged; it names the step.

    Warns:
        LostUpdatesWarning: rounding would swallow most of the first update.
        PlateauWarning: the run ended before anything was learned (one run only, not under `jit` or
            `vmap`).
    """
    check_model(model)
    check_loss(loss)
    steps = check_integer(steps, "steps", minimum=1)
    save_every = check_integer(save_every, "save_every", minimum=1)
    optimizer = as_transformation(optimizer)
    check_measure(measure)
    if isinstance(data, Schedule):
        data.check_unit("steps", "train")
    if is_function(data):
        _check_function(data, model, loss, batch_size, key)
    elif batch_size is not None:
        _check_batch(batch_size, data, key)
    else:
        data = arranged(model, data, loss)
    if not any(eqx.is_inexact_array(w) for w in jax.tree.leaves(model)):
        raise ValueError("model has no floating-point array, so there is nothing to train.")
    start, state = jax.device_put(np.zeros((), int)), None
    if resume is None:
        _warn_of_lost_updates(model, at_time(data, 0, key), optimizer, loss)
    else:
        restart = "e.g. train(run.final, ...)"
        check_resume(resume, Trajectory, _needed(model, optimizer), restart)
        model, state, start = resume.final, resume.optimizer_state, resume.ts[-1]
    keep = keeps_models(keep_models, measure, model, len(save_points(steps, save_every)))
    settings = Settings(optimizer, loss, measure, steps, save_every, batch_size, keep)
    with reporting("training", steps, "step", progress) as report:
        trajectory = _train(model, data, key, state, start, settings, report)
    if throw:
        raise_if_failed(trajectory, lambda: _failure(trajectory))
    if not is_function(data):  # its losses are of other data each
        warn_of_plateau(trajectory, model, data, loss)
    return trajectory


def _failure(trajectory: Trajectory) -> str:
    step = int(trajectory.ts[int(jnp.argmin(jnp.isfinite(trajectory.losses)))])
    if step == int(trajectory.ts[0]):
        return (
            f"the loss is not finite at step {step}, before the first update: look for NaN or "
            "infinities in the model, the data or the loss."
        )
    return (
        f"the loss was no longer finite at step {step} of {int(trajectory.ts[-1])}: the "
        "learning rate is too large for these data (plain gradient descent needs eta < 2 / "
        "largest curvature); make it smaller, or pass throw=False to keep what there is."
    )


class Settings(NamedTuple):
    """What a run of `train` is compiled for."""

    optimizer: optax.GradientTransformation
    loss: Loss
    measure: Measure
    steps: int
    save_every: int
    batch_size: int | None
    keep: bool


@eqx.filter_jit
def _train(
    model: PyTree,
    data: object,
    key: PRNGKeyArray | None,
    state: PyTree,
    start: Array,
    settings: Settings,
    report: Reporter | None,
) -> Trajectory:
    moving, still = eqx.partition(model, learning(model))
    measure = settings.measure

    def value(y: PyTree, here: object) -> Array:
        return one_number(settings.loss(eqx.combine(y, still), here))

    def draw(number: Array) -> object:
        here = at_time(data, number, key)
        if settings.batch_size is None:
            return here
        assert key is not None
        return _batch(data, here, number, key, settings.batch_size)

    def of_all(y: PyTree, number: Array) -> Array:
        return value(y, at_time(data, number))

    def look(y: PyTree) -> tuple[PyTree, PyTree]:
        measured = None if measure is None else measure(eqx.combine(y, still))
        return measured, y if settings.keep else None

    run = descend(
        value,
        moving,
        settings.optimizer,
        settings.steps,
        draw=draw,
        save_every=settings.save_every,
        look=look,
        recorded=None if settings.batch_size is None else of_all,
        state=state,
        first=start,
        report=report,
    )
    measured, models = run.records
    count = jnp.arange(len(run.losses))
    fine = count < jnp.min(jnp.where(jnp.isfinite(run.losses), len(run.losses), count))
    return Trajectory(
        ts=start + jnp.asarray(save_points(settings.steps, settings.save_every)),
        losses=jnp.where(fine, run.losses, jnp.nan),
        status=jnp.where(jnp.all(fine), OK, DIVERGED),
        stats={},
        models=eqx.combine(models, along_time(still, len(fine))) if settings.keep else None,
        final=eqx.combine(run.final, still),
        measured=measured,
        optimizer_state=run.state,
    )


def _batch(data: object, here: GatedData, number: Array, key: PRNGKeyArray, size: int) -> GatedData:
    """Return `size` examples of `here`, the data of a step, weighted to have its mean gradient."""
    chosen = jax.random.permutation(jax.random.fold_in(key, number), here.num_examples)
    count = here.num_examples
    if isinstance(data, Schedule):  # of its examples, not of those that pad it
        count = data.counts[data.order[data.phase_at(number)]]
        chosen = chosen[jnp.argsort(chosen >= count, stable=True)]
    batch = jax.tree.map(lambda leaf: leaf[chosen[:size]], here)
    return eqx.tree_at(lambda b: b.weights, batch, batch.weights * (count / size))


def _needed(model: PyTree, optimizer: optax.GradientTransformation) -> Callable[..., dict]:
    """What `resume` is compared with, see `check_resume`."""
    moving = eqx.filter(model, learning(model))

    def pairs(resume: Trajectory) -> dict[str, tuple[PyTree, PyTree]]:
        state = jax.eval_shape(lambda y: initial_state(optimizer, y), moving)
        return {
            "model": (moving, eqx.filter(resume.final, learning(resume.final))),
            "optimizer": (state, resume.optimizer_state),
        }

    return pairs


def _check_function(
    data: object, model: Model, loss: Loss, batch_size: int | None, key: PRNGKeyArray | None
) -> None:
    """Raise `ValueError` unless `data(step, key)` makes data for the model; tried at step 0."""
    if batch_size is not None:
        raise ValueError(
            "batch_size draws from data that stay; a function of step and key draws its own: take "
            "rows of your arrays there, by jax.random.choice(key, n, (batch_size,))."
        )
    if key is None:
        raise ValueError(
            "data is a function of step and key: pass key=jax.random.key(seed), of which each step "
            "gets its own."
        )
    check_random_key(key)
    arranged(model, at_time(data, jnp.asarray(0), key), loss)


def _check_batch(batch_size: object, data: object, key: object) -> None:
    batch_size = check_integer(batch_size, "batch_size", minimum=1)
    if not isinstance(data, GatedData | Schedule):
        raise ValueError(
            f"batch_size needs GatedData to draw examples from, got {type(data).__name__}; "
            "pass the data unpacked, or leave batch_size out."
        )
    least = data.num_examples
    if isinstance(data, Schedule) and is_concrete(data.counts):
        least = int(np.min(np.asarray(data.counts)))
    if batch_size > least:
        raise ValueError(f"batch_size is {batch_size} but there are {least} examples.")
    if key is None:
        raise ValueError("batch_size needs key=jax.random.key(seed) to draw the examples with.")
    check_random_key(key)


def _warn_of_lost_updates(
    model: PyTree,
    data: object,
    optimizer: optax.GradientTransformation,
    loss: Loss,
) -> None:
    """Predict pitfall 2: an update below eps * |w| is rounded away, and learning never starts."""
    weights = [w for w in jax.tree.leaves(model) if eqx.is_inexact_array(w)]
    # In float64 it would take steps 1e-16 of the weights, and the check costs a compilation.
    low_precision = any(jnp.finfo(w.dtype).eps > 1e-10 for w in weights)
    if not (low_precision and is_concrete((model, data))):
        return
    try:
        lost = float(_lost_share(model, data, optimizer, loss))
    except jax.errors.ConcretizationTypeError:  # a traced learning rate: nothing to see
        return
    if lost > 0.5:
        raise_precision = (
            "train in float64 (jax.config.update('jax_enable_x64', True) before making arrays), "
            "or raise the learning rate or the initial weights"
        )
        warnings.warn(
            f"{lost:.0%} of the first update is lost to rounding: it is smaller than the spacing "
            f"of floating-point numbers beside the weights, so training may never start. Remedy: "
            f"{raise_precision}.",
            LostUpdatesWarning,
            stacklevel=4,  # past `answering`
        )


@eqx.filter_jit
def _lost_share(
    model: PyTree,
    data: object,
    optimizer: optax.GradientTransformation,
    loss: Loss,
) -> Array:
    moving, still = eqx.partition(model, learning(model))

    def value(y: PyTree) -> Array:
        return one_number(loss(eqx.combine(y, still), data))

    here, gradient = jax.value_and_grad(value)(moving)
    state = initial_state(optimizer, moving)
    updates, _ = apply_gradient(optimizer, gradient, state, moving, here, value)
    pairs = list(zip(jax.tree.leaves(moving), jax.tree.leaves(updates), strict=True))
    wanted = sum(jnp.sum(u != 0) for _, u in pairs)
    lost = sum(jnp.sum((u != 0) & (w + u == w)) for w, u in pairs)
    return lost / jnp.maximum(wanted, 1)
