"""The routing task by the maps of its routes: what `mse` is there, at a fraction of the cost.

Base inputs are one-hot, so that the M^2 maps W3_j W2 W1_i are all outputs, and a step needs three
products and no examples. Shared by `generalisation` and `initialisation`.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from gdln_jax import GatedNetwork, init, mse, tasks

# (M, N_h, x), (1, N_h, N_h) and (M, y, N_h), as `GatedNetwork.stacks` has them.
Stacks = tuple[Array, ...]


def maps(stacks: Stacks) -> Array:
    """(input, output, y, x) maps of all routes."""
    first, hidden, third = stacks
    inner = jnp.einsum("gh,ihx->igx", hidden[0], first)
    return jnp.einsum("jyg,igx->ijyx", third, inner)


def loss(stacks: Stacks, pattern: Array, y: Array) -> Array:
    """What mse is on the trained routes of the 0/1 `pattern`, for targets `y` (feature, item)."""
    missed = jnp.sum((y - maps(stacks)) ** 2, axis=(2, 3))
    return jnp.sum(pattern * missed) / (2 * y.shape[1] * jnp.sum(pattern))


def errors(stacks: Stacks, y: Array) -> Array:
    """Relative errors (input, output) of all routes."""
    return jnp.sum((y - maps(stacks)) ** 2, axis=(2, 3)) / jnp.sum(y**2)


def against_engine(seed: int) -> float:
    """Loss and gradient of `loss` against the package's mse of the task, relative, one network."""
    task = tasks.routing(4, 2, width=8)
    net = GatedNetwork.init(task.graph, init.xavier(1.0), key=jax.random.key(seed))
    y = jnp.asarray(tasks.hierarchy_features())
    pattern = jnp.asarray(task.meta["pattern"], float)
    ours = jax.jit(jax.value_and_grad(partial(loss, pattern=pattern, y=y)))(net.stacks)
    theirs = eqx.filter_jit(jax.value_and_grad(mse))(net, net.prepare(task.data))
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b)) for a, b in pairs)
