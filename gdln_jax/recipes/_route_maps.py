"""The routing task through the maps of its routes: what mse is there, at a fraction of the cost.

For base inputs that are one-hot, all M^2 maps W3_j W2 W1_i are the outputs, so a step needs three
products and no examples. Networks are stacks (first (M, N_h, x), hidden (1, N_h, N_h), third
(M, y, N_h)), as `GatedNetwork.stacks` has them. Shared by `generalisation` and `initialisation`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gdln_jax import GatedNetwork, init, mse, tasks


def maps(stacks: Any) -> Any:
    """(input, output, y, x) maps of all routes."""
    first, hidden, third = stacks
    inner = jnp.einsum("gh,ihx->igx", hidden[0], first)
    return jnp.einsum("jyg,igx->ijyx", third, inner)


def loss(stacks: Any, pattern: Any, y: Any) -> Any:
    """What mse is on the trained routes of the 0/1 `pattern`, for targets `y` (feature, item)."""
    missed = jnp.sum((y - maps(stacks)) ** 2, axis=(2, 3))
    return jnp.sum(pattern * missed) / (2 * y.shape[1] * jnp.sum(pattern))


def errors(stacks: Any, y: Any) -> Any:
    """Relative errors (input, output) of all routes."""
    return jnp.sum((y - maps(stacks)) ** 2, axis=(2, 3)) / jnp.sum(y**2)


def against_engine(seed: int) -> float:
    """Loss and gradient of `loss` against the package's mse of the task, relative, one network."""
    task = tasks.routing(4, 2, width=8)
    net = GatedNetwork.init(task.graph, init.xavier(1.0), key=jax.random.key(seed))
    y = jnp.asarray(tasks.hierarchy_features())
    pattern = jnp.asarray(task.meta["pattern"], float)
    ours = jax.value_and_grad(partial(loss, pattern=pattern, y=y))(net.stacks)
    theirs = jax.value_and_grad(mse)(net, net.prepare(task.data))
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b)) for a, b in pairs)
