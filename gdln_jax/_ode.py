"""The one set-up of ODEs that start on a plateau: tolerances, solver, location of events.

docs/tolerances.md lists the defaults.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, PyTree

from gdln_jax._checks import is_concrete

# A few digits above rounding for float64, so that theory and flow can be compared to 1e-8; for
# float32 what its 7 digits allow.
_RTOL = {np.dtype("float64"): 1e-10, np.dtype("float32"): 1e-5}
# Where ReLU units rest on their kinks the velocity jumps in every step, the number of steps is
# proportional to 1/rtol and a higher order gains nothing. Measured on XoR with 20 units: 3,000
# steps and 3e-4 of the loss; at 1e-6 more than 200,000 steps with any solver.
_RTOL_KINKS = 1e-4


def has_kinks(model: Any) -> bool:
    """Whether `model`, or a part of it, says `kinks = True`, as `ReLUNetwork` does."""
    parts = jax.tree.leaves(model, is_leaf=lambda part: hasattr(part, "kinks"))
    return any(getattr(part, "kinks", False) is True for part in parts)


def default_rtol(dtype: Any, kinks: bool = False) -> float:
    """The relative tolerance for states of `dtype`: 1e-10 or 1e-5, with kinks 1e-4."""
    return _RTOL_KINKS if kinks else _RTOL.get(np.dtype(dtype), 1e-5)


def default_solver(dtype: Any, kinks: bool = False) -> diffrax.AbstractSolver:
    """`Dopri8` for float64, `Tsit5` for float32, `Bosh3` for models with kinks."""
    if kinks:
        return diffrax.Bosh3()
    return diffrax.Dopri8() if np.dtype(dtype) == np.float64 else diffrax.Tsit5()


def smallest_scale(arrays: Iterable[Array]) -> Array:
    """Root mean square of the smallest matrix among `arrays` that is not zero, at most 1.

    The last two axes of an array are those of a matrix; an array with fewer axes counts as one.
    An absolute tolerance must lie below that size, or the plateau that small weights cause is
    left too late. Single entries are no measure of it: in rotated frames some are rounding.
    """
    return _smallest_scale([jax.lax.stop_gradient(jnp.asarray(w)) for w in arrays])


@jax.jit  # one program: as single operations they would each be compiled
def _smallest_scale(arrays: list[Array]) -> Array:
    scales = []
    for w in arrays:
        axes = tuple(range(max(w.ndim - 2, 0), w.ndim))
        # Divided by the largest entry, since squares of 1e-30 vanish in float32.
        most = jnp.max(jnp.abs(w), axis=axes, keepdims=True, initial=0)
        spread = jnp.sqrt(jnp.mean(jnp.square(w / jnp.where(most > 0, most, 1)), axis=axes))
        size = spread * jnp.reshape(most, spread.shape)
        scales.append(jnp.min(jnp.where(size > 0, size, jnp.inf), initial=jnp.inf))
    smallest = jnp.min(jnp.stack(scales))
    least = jnp.finfo(smallest.dtype).tiny / jnp.finfo(smallest.dtype).eps
    return jnp.where(jnp.isfinite(smallest), jnp.clip(smallest, least, 1.0), 1.0)


def check_increasing(ts: np.ndarray | Sequence[float], name: str = "ts") -> None:
    """Raise `ValueError`, naming the first culprit, unless times are finite and increase."""
    values = np.asarray(ts)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        what = f"{name}[{wrong[0]}] is {values[wrong[0]]}"
    else:
        back = np.flatnonzero(np.diff(values) <= 0)
        if not len(back):
            return
        i = int(back[0])
        what = f"{name}[{i + 1}] = {values[i + 1]:g} follows {name}[{i}] = {values[i]:g}"
    raise ValueError(
        f"{name} must be finite and strictly increasing, but {what}; pass for example "
        "jnp.linspace(0.0, 10.0, 101)."
    )


def check_resolved(rtol: Any, dtype: Any) -> None:
    """Raise `ValueError` for a known relative tolerance below 10 times the rounding of `dtype`."""
    least = 10 * float(jnp.finfo(dtype).eps)
    if rtol is not None and is_concrete(rtol) and float(rtol) < least:
        dtype = np.dtype(dtype)
        remedy = (
            "make the model in float64 (jax.config.update('jax_enable_x64', True) before making "
            "arrays), or loosen it"
            if dtype == np.float32
            else "loosen it"
        )
        raise ValueError(
            f"rtol is {float(rtol):g}, but {dtype} resolves no more than {least:.1g}: {remedy}."
        )


class Solve(eqx.Module):
    """What does not change between the two solves of an ODE; `gates.learning_time` has one too."""

    ode: Callable[..., PyTree]
    measure: Callable[..., Array]
    solver: diffrax.AbstractSolver
    controller: diffrax.AbstractStepSizeController
    adjoint: diffrax.AbstractAdjoint
    max_steps: int

    def __call__(
        self, t0: Array, t1: Array, y0: PyTree, args: Any, event: diffrax.Event | None
    ) -> diffrax.Solution:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(self.ode),
            self.solver,
            t0,
            t1,
            None,
            y0,
            args,
            saveat=diffrax.SaveAt(t1=True),
            stepsize_controller=self.controller,
            adjoint=self.adjoint,
            event=event,
            max_steps=self.max_steps,
            throw=False,
        )


def locate(
    solve: Solve, level: Array, y0: PyTree, args: Any, t0: Array, t1: Array
) -> tuple[Array, Array, Array]:
    """Return the event's time without derivatives: none may pass through its interpolant."""
    # Closed-over parameters become leaves, so that they too can be cut off.
    ode = eqx.filter_closure_convert(solve.ode, t0, y0, args)
    measure = eqx.filter_closure_convert(solve.measure, t0, y0, args)
    still = eqx.tree_at(lambda s: (s.ode, s.measure), solve, (ode, measure))
    still, level, y0, args, t0, t1 = jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf,
        (still, level, y0, args, t0, t1),
    )
    first = still.measure(t0, y0, args) - level
    side = jnp.where(first < 0, -1.0, 1.0)

    def condition(t: Array, y: PyTree, args: Any, **_: Any) -> Array:
        # In JAX's default float: diffrax compares it with a literal.
        return (side * (still.measure(t, y, args) - level)).astype(float)

    event = diffrax.Event(condition, _located(level.dtype))
    solution = still(t0, t1, y0, args, event)
    assert solution.ts is not None
    assert solution.event_mask is not None
    at_start = first == 0
    reached = solution.event_mask | at_start
    good = solution.result == diffrax.RESULTS.successful
    failed = ~reached & ~good
    return jnp.where(at_start, t0, solution.ts[-1]), reached, failed


def _located(dtype: Any) -> optx.Bisection:
    # The condition falls through 0 (flip), and at the end of the run so does the placeholder that
    # diffrax puts where no event happened. The tolerance follows the dtype: 1e-8 fails in float32.
    eps = float(jnp.finfo(dtype).eps)
    return optx.Bisection(rtol=8 * eps, atol=math.sqrt(eps), flip=True)
