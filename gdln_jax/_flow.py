"""Gradient flow tau dW/dt = -dL/dW of any pytree and any loss, by diffrax (theory#conventions)."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import answering, check_positive_if_known
from gdln_jax._checks.types import ArrayLike, Loss, Measure, Model, PerEdge, Times, Tolerance
from gdln_jax._data.boundary import check_model
from gdln_jax._data.schedule import Schedule, at_time, is_function
from gdln_jax._network.edges import per_parameter
from gdln_jax._network.gated import GatedNetwork, along_time, learning
from gdln_jax._network.losses import arranged, check_loss, mse, one_number
from gdln_jax._ode import (
    MAX_STEPS,
    Adjoint,
    Settings,
    Solver,
    checked_times,
    end_reported,
    first_of,
    has_kinks,
    loss_reported,
    padded,
    settings,
    solve,
)
from gdln_jax._progress import Progress, Reporter, reporting
from gdln_jax._solution import (
    DIVERGED,
    GAVE_UP,
    OK,
    Trajectory,
    check_measure,
    keeps_models,
    raise_if_failed,
    warn_of_plateau,
)


@answering
def gradient_flow(
    model: Model,
    data: object,
    ts: Times,
    *,
    loss: Loss = mse,
    tau: PerEdge = 1.0,
    solver: Solver = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    measure: Measure = None,
    keep_models: bool | None = None,
    max_steps: int = MAX_STEPS,
    adjoint: Adjoint = None,
    throw: bool = True,
    progress: Progress = True,
) -> Trajectory:
    r"""Solve $\tau \, dW/dt = -dL/dW$ from `model`, with the result at the times `ts`.

    Args:
        model: any `eqx.Module` (or pytree); its inexact arrays are what learns.
        data: passed to `loss(model, data)`; of any type for a loss of your own. For `mse` and
            `cross_entropy` of a `GatedNetwork` they are packed first. With a `Schedule` (of
            `times`) the loss gets the data of the time, and no step crosses a switch.
        ts: increasing times (time,); the run starts at `ts[0]`.
        tau: time constant; in units of it one step of plain gradient descent with learning rate eta
            on the same loss lasts tau * eta (see `flow_time`). For a `GatedNetwork` also a mapping
            edge -> time constant, in the units of `ts`: what is conserved at a hidden node is then
            $\sum_{in} \tau_e W W^T - \sum_{out} \tau_e W^T W$ (`measures.conserved`).
        solver: a diffrax solver; default `Dopri8` in float64 and `Tsit5` in float32.
        rtol, atol: tolerances of the adaptive step; default 1e-10 (float64) or 1e-5 (float32), and
            `rtol` times the root mean square of the smallest weight matrix that is not zero, so
            that the plateau that small initial weights cause is resolved however long it is.
        measure: function of the model whose value at every `ts` is kept in `measured`.
        keep_models: whether to keep the model at every `ts`; default: if nothing is measured and
            they take less than 256 MB.
        adjoint: how to differentiate through the flow: default
            `diffrax.RecursiveCheckpointAdjoint()` (reverse mode, bounded memory); for forward mode
            pass `diffrax.ForwardMode()`, for both `diffrax.DirectAdjoint()`.
        throw: raise when the solver gives up. Under `jit` or `vmap` nothing is ever raised: the
            failed member has status 2 and NaN in everything it could not reach.
        progress: a bar in terminals and notebooks after two seconds (docs/progress.md); False:
            none; a function: call it with the fraction done and a text.

    For models with kinks (`ReLUNetwork`, and models with an attribute `kinks = True`) the defaults
    are `Bosh3` and `rtol` 1e-4. Units come to rest on their kinks, where the velocity jumps in
    every step; the number of steps is then proportional to 1/rtol, and the loss is found to about
    5 `rtol` of its first value. Deep ReLU networks also amplify rounding: two runs that differ in
    the last digit can part.

    Raises:
        ValueError: times that do not increase or bad tolerances.
        SolveError: the solver gave up; it says why, and the time reached.

    Warns:
        PlateauWarning: the run ended before anything was learned (one run only, not under `jit` or
            `vmap`).
    """
    check_model(model)
    check_loss(loss)
    check_measure(measure)
    times = checked_times(ts)
    clock = _clock(model, tau)
    if isinstance(data, Schedule):
        data.check_unit("times", "gradient_flow")
    if is_function(data):
        raise ValueError(
            "data is a function, which train calls with step and key at each step; gradient flow "
            "has no steps. Pass the data themselves, or a Schedule of times for data that change; "
            "with new data in every step pass their mean moments, GatedData.from_moments."
        )
    data = arranged(model, data, loss)
    weights = [w for w in jax.tree.leaves(model) if eqx.is_inexact_array(w)]
    if not weights:
        raise ValueError("model has no floating-point array, so there is nothing to learn.")
    dtype = np.result_type(*(w.dtype for w in weights))
    setup = settings(
        dtype,
        rtol=rtol,
        atol=atol,
        solver=solver,
        adjoint=adjoint,
        max_steps=max_steps,
        kinks=has_kinks(model),
    )
    keep = keeps_models(keep_models, measure, model, times.shape[0])
    with reporting("gradient flow", times[-1] - times[0], "t", progress) as report:
        trajectory, reached = _solve(
            model,
            data,
            jnp.asarray(padded(times, weights), dtype),
            jax.tree.map(lambda t: jnp.asarray(t, dtype), clock),
            setup,
            loss,
            measure,
            keep,
            report,
        )
    trajectory = _first_times(trajectory, times.shape[0])
    if throw:
        raise_if_failed(trajectory, lambda: _failure(trajectory, float(reached), setup))
    warn_of_plateau(trajectory, model, data, loss)
    return trajectory


def _clock(model: PyTree, tau: PerEdge) -> ArrayLike | tuple[Array, ...]:
    """One time constant, or one per edge in the shape that divides the stacks of the network."""
    if not isinstance(tau, Mapping):
        check_positive_if_known(tau=tau)
        return tau
    if not isinstance(model, GatedNetwork):
        raise ValueError(
            f"tau is a mapping, which needs a GatedNetwork with edges, and model is a "
            f"{type(model).__name__}; pass one number."
        )
    return per_parameter(model.graph, tau, "tau", core=2)


@eqx.filter_jit
def _solve(
    model: PyTree,
    data: object,
    ts: Float[Array, " time"],
    tau: Array | tuple[Array, ...],
    setup: Settings,
    loss: Loss,
    measure: Measure,
    keep: bool,
    report: Reporter | None,
) -> tuple[Trajectory, Array]:
    moving, still = eqx.partition(model, learning(model))

    def value(here: PyTree, data: object, t: Array) -> Array:
        return one_number(loss(here, at_time(data, t)))

    def velocity(t: Array, y: PyTree, args: tuple[object, PyTree]) -> PyTree:
        data, clock = args
        gradient = jax.grad(lambda y: value(eqx.combine(y, still), data, t))(y)
        leaves, structure = jax.tree.flatten(gradient)
        clocks = clock if isinstance(clock, tuple) else (clock,) * len(leaves)
        return structure.unflatten([-g / t for g, t in zip(leaves, clocks, strict=True)])

    def look(
        t: Array, y: PyTree, args: tuple[object, Array | tuple[Array, ...]]
    ) -> tuple[PyTree, ...]:
        here = eqx.combine(y, still)
        measured = None if measure is None else measure(here)
        loss = value(here, args[0], t)
        loss_reported(report, ts, t, loss)
        return loss, measured, y if keep else None

    jumps = data.switches.astype(ts.dtype) if isinstance(data, Schedule) else None
    run = solve(velocity, moving, ts, (data, tau), setup, look=look, jumps=jumps, report=report)
    losses, measured, models = run.saved
    end_reported(report, ts, run, losses[-1])
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.nan)
    status = jnp.where(run.complete, OK, GAVE_UP)
    status = jnp.where(run.complete & ~jnp.all(jnp.isfinite(losses)), DIVERGED, status)
    trajectory = Trajectory(
        ts=ts,
        losses=losses,
        status=status,
        stats={k: run.stats[k] for k in ("num_accepted_steps", "num_rejected_steps")},
        models=eqx.combine(models, along_time(still, len(ts))) if keep else None,
        final=eqx.combine(run.final, still),
        measured=measured,
    )
    return trajectory, run.reached


def _first_times(run: Trajectory, count: int) -> Trajectory:
    """The run at its first `count` times; arrays of models that hold no floats have no times."""
    models, constant = eqx.partition(run.models, eqx.is_inexact_array)
    over_time = first_of((run.ts, run.losses, run.measured, models), count)
    return eqx.tree_at(
        lambda run: (run.ts, run.losses, run.measured, run.models),
        run,
        (*over_time[:3], eqx.combine(over_time[3], constant)),
        is_leaf=lambda part: part is None,
    )


def _failure(trajectory: Trajectory, reached: float, setup: Settings) -> str:
    if not np.isfinite(reached):
        return "the initial weights are not finite, so there is no gradient flow from them."
    steps = {k: int(v) for k, v in trajectory.stats.items()}
    taken = steps["num_accepted_steps"] + steps["num_rejected_steps"]
    end = float(trajectory.ts[-1])
    if int(trajectory.status) == DIVERGED:
        return (
            f"the loss along the gradient flow is not finite somewhere before {end:.6g}: the flow "
            "cannot increase a finite loss, so look for NaN or infinities in the model, the data "
            "or the loss."
        )
    if taken >= setup.max_steps:
        used = (
            f"the gradient flow used up max_steps = {setup.max_steps} at time {reached:.6g} of "
            f"{end:.6g} ({steps})"
        )
        if has_kinks(trajectory.final):
            return (
                f"{used}: most steps go into kinks, where ReLU units switch and the velocity "
                "jumps. Their number is proportional to 1/rtol: loosen rtol (the default for "
                "models with kinks is 1e-4, with the solver Bosh3), or raise max_steps."
            )
        jumps = (
            " Most steps were rejected, as at kinks (of ReLU units, or of |error| as a loss): "
            "rtol=1e-4 with solver=diffrax.Bosh3() gets through those."
        )
        return (
            f"{used}: loosen rtol, pass a stiff solver such as diffrax.Kvaerno5(), raise "
            "max_steps, or whiten the inputs. A loss without a lower bound runs to infinity in "
            f"finite time.{jumps if 2 * steps['num_rejected_steps'] > taken else ''}"
        )
    return (
        f"the solver gave up at time {reached:.6g} of {end:.6g} ({steps}): no step was small "
        "enough, since a value is not finite (check the model, the data and the loss for NaN) or "
        "the flow runs to infinity there (a loss without lower bound)."
    )
