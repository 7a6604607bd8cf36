"""What gates are learned for: the time that learning takes, and the gap to another network.

Both are differentiable functions of a model and its data, through gradient flow, with the memory
of diffrax's checkpointed adjoint: it grows with the logarithm of the number of steps.
"""

from collections.abc import Mapping

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import check_positive_if_known
from gdln_jax._checks.types import ArrayLike, Loss, Times, Tolerance
from gdln_jax._data.gated import GatedData
from gdln_jax._flow import gradient_flow
from gdln_jax._network.edges import check_untied
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._network.losses import mse
from gdln_jax._ode import Settings, Solver, default_rtol, has_kinks, locate, settings

# Optimisation needs no more (and float32 has no more than 1e-5); many starts times many steps pay
# for each digit.
_RTOL = 1e-6
_MAX_STEPS = 4096


def learning_time(
    model: PyTree,
    data: object,
    level: ArrayLike,
    *,
    t1: ArrayLike,
    loss: Loss = mse,
    tau: ArrayLike = 1.0,
    rtol: Tolerance = None,
    solver: Solver = None,
    max_steps: int = _MAX_STEPS,
) -> Float[Array, ""]:
    r"""Return the time at which gradient flow from `model` first has the loss `level`.

    The time t* is located by steps of the solver; its derivative is that of the implicit function
    L(t*, gates) = level, $dt^* = -dL / \dot L$, exact, with dL by reverse mode through the flow up
    to t*. Where the level is not reached by `t1` the result is t1 L(t1)/level, which is continuous
    there and still says which way is faster: a result above `t1` is no time.

    Args:
        model: any pytree whose inexact arrays learn.
        data: passed to `loss`, with gates that may be traced (`with_gates`).
        level: between the loss at the end and that of the start; 0 if it is passed at the start.
        t1: the end of the search, in the units of `tau`.
        loss: a function (model, data) -> number.
        tau: time constant of the flow.
        rtol: relative tolerance, default 1e-6, float32 1e-5, with kinks 1e-4. The absolute one is
            as in `gradient_flow`.
        solver: a diffrax solver, default `Tsit5`.
        max_steps: the result is NaN where the solver needs more.

    Raises:
        ValueError: for a `level`, `t1`, `tau` or `rtol` that is not above 0.
    """
    check_positive_if_known(level=level, t1=t1, tau=tau)
    accuracy = _accuracy(model, rtol, solver, max_steps)
    dtype = accuracy.rtol.dtype
    level, t1, tau = (jnp.asarray(number, dtype) for number in (level, t1, tau))
    return _learning_time(model, data, level, t1, loss, tau, accuracy)


@eqx.filter_jit  # as single operations a first gradient takes twice as long
def _learning_time(
    model: PyTree,
    data: object,
    level: Array,
    t1: Array,
    loss: Loss,
    tau: Array,
    accuracy: Settings,
) -> Float[Array, ""]:
    weights, rest = eqx.partition(model, eqx.is_inexact_array)
    args = data, tau

    def loss_of(_: Array | None, weights: PyTree, args: tuple) -> Array:
        return loss(eqx.combine(weights, rest), args[0])

    def velocity(t: Array, weights: PyTree, args: tuple) -> PyTree:
        return jax.tree.map(lambda g: -g / args[1], jax.grad(loss_of, 1)(t, weights, args))

    start = jnp.zeros_like(t1)
    until, end, reached, failed = locate(
        velocity, loss_of, level, weights, start, t1, args, accuracy
    )
    at_start = loss_of(None, weights, args) <= level
    there, slope = jax.value_and_grad(loss_of, 1)(None, end, args)
    # L(t*) = level by one Newton step from the located time, which has no derivatives, with
    # -dL/dt = |dL/dW|^2 / tau. The derivative of the step is -dL/(dL/dt).
    squares = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(slope))
    decay = jax.lax.stop_gradient(squares / tau)
    crossing = until + (there - level) / jnp.where(reached & ~at_start, decay, 1.0)
    not_reached = until * there / level
    return jnp.select([at_start, failed, reached], [0.0 * until, jnp.nan, crossing], not_reached)


def _accuracy(model: PyTree, rtol: Tolerance, solver: Solver, max_steps: int) -> Settings:
    """Tolerance and solver: as given, or the defaults for the precision of the weights."""
    if isinstance(model, GatedNetwork):
        check_untied(model.graph, "learning gates", "minimise a loss of your own over the gates")
    weights = [leaf.dtype for leaf in jax.tree.leaves(model) if eqx.is_inexact_array(leaf)]
    dtype = jnp.result_type(*weights)
    if rtol is None:
        rtol = max(_RTOL, default_rtol(dtype, has_kinks(model)))
    solver = diffrax.Tsit5() if solver is None else solver
    return settings(dtype, rtol=rtol, solver=solver, max_steps=max_steps)


def output_gap(
    model: PyTree,
    data: GatedData,
    ts: Times,
    outputs: Mapping[str, ArrayLike],
    *,
    loss: Loss = mse,
    tau: ArrayLike = 1.0,
    rtol: Tolerance = None,
    solver: Solver = None,
    max_steps: int = _MAX_STEPS,
) -> Float[Array, ""]:
    r"""Return how far the outputs of `model` under gradient flow are from another network's.

    The mean over the times `ts` of $\langle \sum_v \|h_v - r_v\|^2 \rangle$ over that of
    $\langle \sum_v \|r_v\|^2 \rangle$: H's imitation, as a number, 1 for a network that predicts 0.

    Args:
        model: a network whose inexact arrays learn.
        data: its data, with gates that may be traced.
        ts: (time,), the first is where the flow starts.
        outputs: output node -> (time, n, |v|), what the other network, say a ReLU network, predicts
            at these times.
        loss: as in `learning_time`, and so are the others.
        tau: time constant of the flow.
        rtol: relative tolerance.
        solver: a diffrax solver.
        max_steps: the result is NaN where the solver needs more.

    Raises:
        ValueError: for outputs of another shape than the targets', at each time.
    """
    ts = jnp.asarray(ts)
    for name, target in data.targets.items():
        shape = (ts.shape[0], *target.shape)
        given = jnp.shape(outputs[name]) if name in outputs else None
        if given != shape:
            raise ValueError(
                f"outputs[{name!r}] has shape {given}; expected (time, n, |{name}|) = {shape}."
            )
    accuracy = _accuracy(model, rtol, solver, max_steps)
    run = gradient_flow(
        model,
        data,
        ts,
        loss=loss,
        tau=tau,
        rtol=accuracy.rtol,
        solver=accuracy.solver,
        max_steps=max_steps,
        measure=lambda m: m(data),
        keep_models=False,
        throw=False,
    )

    def power(values: Mapping[str, Array]) -> Array:
        # Weights times values, not their squares: 0 times infinity would be NaN.
        return jnp.stack(
            [jnp.einsum("tnv,tnv->", data.weights[:, None] * v, v) for v in values.values()]
        ).sum()

    assert run.measured is not None
    other = {name: jnp.asarray(outputs[name]) for name in data.targets}
    gap = power({name: run.measured[name] - r for name, r in other.items()}) / power(other)
    return jnp.where(run.status == 0, gap, jnp.nan)
