"""Baseline (d): JAX with one jitted step, seeds under `vmap`, and a Python loop over steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def make_loop(
    starts: Sequence[Mapping[str, np.ndarray]],
    routes: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    *,
    rate: float,
    steps: int,
    save_every: int,
    values: bool = True,
) -> Callable[[], tuple[np.ndarray, list]]:
    """Losses (seed, save) and singular values; the function returned keeps its compiled step."""
    inputs, outputs = routes.max(axis=0) + 1

    def stack(name: str, count: int) -> Any:
        return jnp.stack([jnp.stack([s[name.format(i)] for i in range(count)]) for s in starts])

    first = (stack("x{}->h1", inputs), stack("h1->h2", 1)[:, 0], stack("h2->y{}", outputs))
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def loss(weights: Any) -> Any:
        encoders, hidden, decoders = weights
        codes = jnp.einsum("gh,mhx,nx->mng", hidden, encoders, x, optimize="optimal")
        found = jnp.einsum("rng,ryg->rny", codes[routes[:, 0]], decoders[routes[:, 1]])
        return 0.5 * jnp.sum((y - found) ** 2) / (len(routes) * len(x))

    @jax.jit
    @jax.vmap
    def step(weights: Any) -> Any:
        now, slopes = jax.value_and_grad(loss)(weights)
        return now, jax.tree.map(lambda w, slope: w - rate * slope, weights, slopes)

    look = jax.jit(lambda weights: [jnp.linalg.svd(w, compute_uv=False) for w in weights])

    def run() -> tuple[np.ndarray, list]:
        weights, losses, measured = first, [], []
        for number in range(steps + 1):
            now, after = step(weights)
            if number % save_every == 0:
                losses.append(np.asarray(now))
                if values:
                    measured.append([np.asarray(part) for part in look(weights)])
            weights = after
        return np.stack(losses, axis=1), measured

    return run
