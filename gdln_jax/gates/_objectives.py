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
import optimistix as optx
from jaxtyping import Array, ArrayLike, Float

from gdln_jax._checks import check_positive
from gdln_jax._data import GatedData, is_concrete
from gdln_jax._flow import gradient_flow
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

    The time t* is located by an event; its derivative is that of the implicit function
    L(t*, gates) = level, $dt^* = -dL / \dot L$, exact, with dL by reverse mode through the flow up
    to t*. Where the level is not reached by `t1` the result is t1 L(t1)/level, which is continuous
    there and still says which way is faster.

    **Arguments:**

    - `model`: any pytree whose inexact arrays learn; `data`: handed to `loss`, with gates that
      may be traced (`with_gates`).
    - `level`: between the loss at the end and that of the start; 0 if it is passed at the start.
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
    solver = diffrax.Tsit5() if solver is None else solver
    start, reached, located = _locate(
        value, velocity, *jax.lax.stop_gradient((moving, args, level, jnp.asarray(t1, float))),
        rtol, solver, max_steps,
    )  # fmt: skip
    run = gradient_flow(
        model, data, jnp.stack([jnp.zeros_like(located), located]), loss=loss, tau=tau, rtol=rtol,
        solver=solver, max_steps=max_steps, keep_models=False, throw=False,
    )  # fmt: skip
    last = run.losses[-1]
    slope = jax.grad(value)(eqx.filter(run.final, eqx.is_inexact_array), args)
    speed = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(slope)) / args[1]
    # One Newton step from the located time: it corrects the interpolant, and carries derivatives.
    there = located + (last - level) / jax.lax.stop_gradient(speed)
    time = jnp.where(reached, there, located * last / level)
    return jnp.where(start <= level, 0.0, time)


def _locate(
    value: Callable[[Any, Any], Array],
    velocity: Callable[[Any, Any, Any], Any],
    y0: Any,
    args: Any,
    level: Array,
    t1: Array,
    rtol: float,
    solver: diffrax.AbstractSolver,
    max_steps: int,
) -> tuple[Array, Array, Array]:
    """Return the loss at the start, whether it falls to `level`, and when, or else `t1`."""
    # Closed-over parameters become leaves, so that they too can be cut off.
    value, velocity = jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf,
        (
            eqx.filter_closure_convert(value, y0, args),
            eqx.filter_closure_convert(velocity, t1, y0, args),
        ),
    )

    def above(t: Any, y: Any, args: Any, **_: Any) -> Array:
        del t  # diffrax passes it by name
        return (value(y, args) - level).astype(float)  # diffrax compares it with a literal

    # As in `time_to`: the condition falls through 0, which `flip` says.
    finder = optx.Bisection(rtol=1e-9, atol=1e-9, flip=True)
    sizes = [jnp.sqrt(jnp.mean(jnp.square(leaf))) for leaf in jax.tree.leaves(y0)]
    smallest = jnp.min(jnp.stack(sizes))
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        solver,
        jnp.zeros_like(t1),
        t1,
        None,
        y0,
        args,
        saveat=diffrax.SaveAt(t1=True),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * smallest),
        event=diffrax.Event(above, finder),
        max_steps=max_steps,
        throw=False,
    )
    assert solution.ts is not None
    assert solution.event_mask is not None
    start = value(y0, args)
    reached = solution.event_mask & (start > level)
    time = jnp.where(reached, solution.ts[-1], t1)
    # A solver that gave up knows neither.
    fine = reached | (solution.result == diffrax.RESULTS.successful)
    return start, reached, jax.lax.stop_gradient(jnp.where(fine, time, jnp.nan))


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
        model, data, ts, loss=loss, tau=tau, rtol=rtol, max_steps=max_steps,
        solver=diffrax.Tsit5() if solver is None else solver, measure=lambda m: m(data),
        keep_models=False, throw=False,
    )  # fmt: skip

    def power(values: dict[str, Array]) -> Array:
        return jnp.stack(
            [jnp.einsum("tnv,n->", jnp.square(v), data.weights) for v in values.values()]
        ).sum()

    other = {name: jnp.asarray(outputs[name]) for name in data.targets}
    gap = power({name: run.measured[name] - r for name, r in other.items()}) / power(other)
    return jnp.where(run.status == 0, gap, jnp.nan)
