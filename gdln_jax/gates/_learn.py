"""Optimising gate variables for an objective, from many starts in one program."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import Result, check_integer, is_concrete
from gdln_jax._scan import as_transformation, descend


class Learned(Result, eqx.Module):
    """What `learn` found.

    - `variables`: the last gate variables, with the leading axis (start,).
    - `values`: the objective at every step, the start and the end included, (start, step).
    """

    variables: PyTree
    values: Float[Array, "start step"]

    @property
    def best(self) -> int:
        """The start with the smallest last objective; failed ones (NaN) do not count."""
        return int(np.nanargmin(np.asarray(self.values[:, -1])))

    def __repr__(self) -> str:
        starts, steps = self.values.shape
        shown = f"Learned({starts} starts, {steps - 1} steps"
        if is_concrete(self.values):
            last = np.asarray(self.values[:, -1])
            failed = int(np.sum(~np.isfinite(last)))
            shown += f", objective {np.nanmedian(last):.6g} (median), {np.nanmin(last):.6g} (best)"
            shown += f", {failed} failed" if failed else ""
        return shown + ")"


def learn(
    objective: Callable[..., Array],
    variables: PyTree,
    *,
    optimizer: optax.GradientTransformation | optax.MultiSteps,
    steps: int,
    args: tuple[object, ...] = (),
) -> Learned:
    """Minimise `objective(variables, *args)` from every start at once.

    Args:
        objective: differentiable, returns a number, e.g. the logarithm of `learning_time` of a
            network on `with_gates(data, jax.nn.sigmoid(...))`. Reuse one function object to reuse
            the compiled program, and pass arrays through `args`: closed over, they are baked into
            it.
        variables: any pytree of float arrays with a leading axis (start,): the random starts.
        optimizer: from optax, as in `train`; `steps`: of it.

    A start whose objective is not finite stays NaN and does not affect the others.

    Raises:
        ValueError: variables without a common leading axis, a bad number of steps, or something
            that is no optimiser.
    """
    steps = check_integer(steps, "steps", minimum=1)
    optimizer = as_transformation(optimizer)
    variables = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), variables)
    shapes = [leaf.shape for leaf in jax.tree.leaves(variables)]
    if not shapes or any(len(s) == 0 for s in shapes) or len({s[0] for s in shapes}) > 1:
        raise ValueError(
            f"variables has leaves of shapes {shapes}; all need the same leading axis (start,), "
            "for one start of length 1."
        )
    # As arrays, so that other numbers need no new program.
    args = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf, args)
    return _learn(objective, variables, optimizer, steps, args)


@eqx.filter_jit
def _learn(
    objective: Callable[..., Array],
    variables: PyTree,
    optimizer: optax.GradientTransformation,
    steps: int,
    args: tuple[object, ...],
) -> Learned:
    def one(start: PyTree) -> tuple[PyTree, Array]:
        run = descend(lambda here, _: objective(here, *args), start, optimizer, steps)
        return run.final, run.losses

    return Learned(*jax.vmap(one)(variables))
