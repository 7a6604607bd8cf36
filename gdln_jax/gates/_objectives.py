"""What gates are learned for: the time that learning takes, and the gap to another network.

Both are differentiable functions of a model and its data, through gradient flow, with the memory
of diffrax's checkpointed adjoint: it grows with the logarithm of the number of steps.
"""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from gdln_jax._checks import check_positive_if_known
from gdln_jax._data.gated import GatedData
from gdln_jax._flow import gradient_flow
from gdln_jax._network.losses import mse
from gdln_jax._ode import check_resolved, default_rtol, has_kinks, locate, settings

# Optimisation needs no more (and float32 has no more than 1e-5); many starts times many steps pay
# for each digit.
_RTOL = 1e-6
_MAX_STEPS = 4096


def learning_time(
    model: Any,
    data: Any,
    level: ArrayLike,
    *,
    t1: ArrayLike,
    loss: Callable[[Any, Any], Array] = mse,
    tau: ArrayLike = 1.0,
    rtol: ArrayLike | None = None,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int = _MAX_STEPS,
) -> Float[Array, ""]:
    r"""Return the time at which gradient flow from `model` first has the loss `level`.

    The time t* is located by an event; its derivative is that of the implicit function
    L(t*, gates) = level, $dt^* = -dL / \dot L$, exact, with dL by reverse mode through the flow up
    to t*. Where the level is not reached by `t1` the result is t1 L(t1)/level, which is continuous
    there and still says which way is faster: a result above `t1` is no time.

    **Arguments:**

    - `model`: any pytree whose inexact arrays learn; `data`: handed to `loss`, with gates that
      may be traced (`with_gates`).
    - `level`: between the loss at the end and that of the start; 0 if it is passed at the start.
    - `t1`: the end of the search, in the units of `tau`.
    - `rtol` (default 1e-6, float32 1e-5, with kinks 1e-4), `solver` (default `Tsit5`),
      `max_steps`: NaN where the solver gives up. The absolute tolerance is as in `gradient_flow`.

    **Raises:** `ValueError` for a `level`, `t1`, `tau` or `rtol` that is not above 0.
    """
    check_positive_if_known(level=level, t1=t1, tau=tau, rtol=rtol)
    moving, still = eqx.partition(model, eqx.is_inexact_array)
    dtype, rtol, solver = _accuracy(model, rtol, solver)
    level, end = jnp.asarray(level, dtype), jnp.asarray(t1, dtype)
    args = (data, jnp.asarray(tau, dtype))

    def value(_: Any, y: Any, args: Any) -> Array:
        return loss(eqx.combine(y, still), args[0])

    def velocity(t: Any, y: Any, args: Any) -> Any:
        return jax.tree.map(lambda g: -g / args[1], jax.grad(value, 1)(t, y, args))

    located, reached, failed = locate(
        velocity,
        value,
        level,
        moving,
        jnp.zeros_like(end),
        end,
        args,
        settings(dtype, rtol=rtol, solver=solver, max_steps=max_steps),
    )
    learned = value(None, moving, args) <= level
    until = jnp.where(reached & ~learned, located, jax.lax.stop_gradient(end))
    flow = gradient_flow(
        model, data, jnp.stack([jnp.zeros_like(until), until]), loss=loss, tau=tau, rtol=rtol,
        solver=solver, max_steps=max_steps, keep_models=False, throw=False,
    )  # fmt: skip
    last = flow.losses[-1]
    slope = jax.grad(value, 1)(None, eqx.filter(flow.final, eqx.is_inexact_array), args)
    speed = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(slope)) / args[1]
    # One Newton step from the located time: it corrects the interpolant, and carries derivatives.
    there = until + (last - level) / jax.lax.stop_gradient(speed)
    time = jnp.where(reached, there, until * last / level)
    return jnp.where(learned, 0.0, jnp.where(failed, jnp.nan, time))


def _accuracy(
    model: Any, rtol: ArrayLike | None, solver: diffrax.AbstractSolver | None
) -> tuple[Any, Array, diffrax.AbstractSolver]:
    """The precision of the weights, and tolerance and solver: as given, or the defaults."""
    weights = [leaf.dtype for leaf in jax.tree.leaves(model) if eqx.is_inexact_array(leaf)]
    dtype = jnp.result_type(*weights)
    if rtol is None:
        rtol = max(_RTOL, default_rtol(dtype, has_kinks(model)))
    check_resolved(rtol, dtype)
    return dtype, jnp.asarray(rtol, dtype), diffrax.Tsit5() if solver is None else solver


def output_gap(
    model: Any,
    data: GatedData,
    ts: Any,
    outputs: Any,
    *,
    loss: Callable[[Any, Any], Array] = mse,
    tau: ArrayLike = 1.0,
    rtol: ArrayLike | None = None,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int = _MAX_STEPS,
) -> Float[Array, ""]:
    r"""Return how far the outputs of `model` under gradient flow are from another network's.

    The mean over the times `ts` of $\langle \sum_v \|h_v - r_v\|^2 \rangle$ over that of
    $\langle \sum_v \|r_v\|^2 \rangle$: H's imitation, as a number, 1 for a network that predicts 0.

    **Arguments:**

    - `ts`: (time,), the first is where the flow starts. `outputs`: output node -> (time, n, |v|),
      what the other network, say a ReLU network, predicts at these times.
    - the rest as in `learning_time`.

    **Raises:** `ValueError` for outputs of another shape than the targets', at each time.
    """
    ts = jnp.asarray(ts)
    for name, target in data.targets.items():
        shape = (ts.shape[0], *target.shape)
        found = jnp.shape(outputs[name]) if name in outputs else None
        if found != shape:
            raise ValueError(
                f"outputs[{name!r}] has shape {found}; expected (time, n, |{name}|) = {shape}."
            )
    _, rtol, solver = _accuracy(model, rtol, solver)
    run = gradient_flow(
        model, data, ts, loss=loss, tau=tau, rtol=rtol, max_steps=max_steps, solver=solver,
        measure=lambda m: m(data), keep_models=False, throw=False,
    )  # fmt: skip

    def power(values: dict[str, Array]) -> Array:
        # Weights times values, not their squares: 0 times infinity would be NaN.
        return jnp.stack(
            [jnp.einsum("tnv,tnv->", data.weights[:, None] * v, v) for v in values.values()]
        ).sum()

    other = {name: jnp.asarray(outputs[name]) for name in data.targets}
    gap = power({name: run.measured[name] - r for name, r in other.items()}) / power(other)
    return jnp.where(run.status == 0, gap, jnp.nan)
