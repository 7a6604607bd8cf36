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

from gdln_jax._checks import check_positive
from gdln_jax._data import GatedData, is_concrete
from gdln_jax._flow import gradient_flow
from gdln_jax._times import time_to
from gdln_jax.losses import mse

# Optimisation needs no more; many starts times many steps pay for each digit.
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
    rtol: float = _RTOL,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int = _MAX_STEPS,
) -> Float[Array, ""]:
    r"""Return the time at which gradient flow from `model` first has the loss `level`.

    The time t* is located by `time_to`; its derivative is that of the implicit function
    L(t*, gates) = level, $dt^* = -dL / \dot L$, exact, with dL by reverse mode through the flow up
    to t*. Where the level is not reached by `t1` the result is t1 L(t1)/level, which is continuous
    there and still says which way is faster.

    **Arguments:**

    - `model`: any pytree whose inexact arrays learn; `data`: handed to `loss`, with gates that
      may be traced (`with_gates`).
    - `level`: between the loss at the end and that of the start.
    - `t1`: the end of the search, in the units of `tau`.
    - `rtol`, `solver` (default `Tsit5`), `max_steps`: NaN where the solver gives up.

    **Raises:** `ValueError` for a `level` that is not above 0.
    """
    if is_concrete(level):
        check_positive(level, "level")
    level = jnp.asarray(level, float)
    moving, still = eqx.partition(model, eqx.is_inexact_array)

    def value(y: Any, args: Any) -> Array:
        return loss(eqx.combine(y, still), args[0])

    def velocity(_: Any, y: Any, args: Any) -> Any:
        return jax.tree.map(lambda g: -g / args[1], jax.grad(value)(y, args))

    args = (data, jnp.asarray(tau, float))
    fixed_start, fixed_args, fixed_level = jax.lax.stop_gradient((moving, args, level))
    crossing = time_to(
        fixed_level, ode=velocity, y0=fixed_start, measure=lambda _, y, args: value(y, args),
        args=fixed_args, t1=t1, rtol=rtol, solver=solver or diffrax.Tsit5(), max_steps=max_steps,
        throw=False,
    )  # fmt: skip
    end = jnp.where(crossing.reached, crossing.time, jnp.asarray(t1, float))
    # A level that holds at the start is reached at time 0, which is no interval.
    end = jax.lax.stop_gradient(jnp.maximum(end, 1e-12 * jnp.asarray(t1, float)))
    run = gradient_flow(
        model, data, jnp.stack([jnp.zeros_like(end), end]), loss=loss, tau=tau, rtol=rtol,
        solver=solver or diffrax.Tsit5(), max_steps=max_steps, keep_models=False, throw=False,
    )  # fmt: skip
    last = run.losses[-1]
    slope = jax.grad(value)(eqx.filter(run.final, eqx.is_inexact_array), args)
    speed = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(slope)) / args[1]
    moved = (last - level - jax.lax.stop_gradient(last - level)) / jax.lax.stop_gradient(speed)
    return jnp.where(crossing.reached, end + moved, end * last / level)


def output_gap(
    model: Any,
    data: GatedData,
    ts: Any,
    outputs: Any,
    *,
    loss: Callable[[Any, Any], Array] = mse,
    tau: ArrayLike = 1.0,
    rtol: float = _RTOL,
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
    run = gradient_flow(
        model, data, ts, loss=loss, tau=tau, rtol=rtol, solver=solver or diffrax.Tsit5(),
        max_steps=max_steps, measure=lambda m: m(data), keep_models=False, throw=False,
    )  # fmt: skip

    def power(values: dict[str, Array]) -> Array:
        return jnp.stack(
            [jnp.einsum("tnv,n->", jnp.square(v), data.weights) for v in values.values()]
        ).sum()

    other = {name: jnp.asarray(outputs[name]) for name in data.targets}
    gap = power({name: run.measured[name] - r for name, r in other.items()}) / power(other)
    return jnp.where(run.status == 0, gap, jnp.nan)
