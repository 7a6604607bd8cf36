"""One small system and runs of every kind from it, for tests of curves and pictures.

Two hidden layers side by side, each open in one of two contexts, with items that have names.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

import gdln_jax as gdln
from gdln_jax import init

TS = np.linspace(0.0, 6.0, 5)
STEPS: dict[str, Any] = {"optimizer": optax.sgd(0.1), "steps": 8, "save_every": 2}
START = {"x->h1": 0.3, "h1->y": -0.2, "x->h2": 0.1, "h2->y": 0.4}
ITEMS = ("canary", "salmon", "oak", "rose")


def two_pathways() -> tuple[gdln.Graph, gdln.GatedData]:
    """The graph and its data."""
    graph = gdln.Graph(
        {"x": 2, "h1": 3, "h2": 3, "y": 2}, [("x", "h1"), ("h1", "y"), ("x", "h2"), ("h2", "y")]
    )
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    x = np.tile(np.eye(2), (2, 1)) @ turn.T
    y = np.array([[2.0, 0], [0, 1], [1, 0], [0, 1]]) @ turn
    gates = {"h1": [1.0, 1, 0, 0], "h2": [0.0, 0, 1, 1]}
    return graph, gdln.GatedData({"x": pd.DataFrame(x, index=ITEMS)}, {"y": y}, gates)


def drawn(reduction: gdln.Reduction, data: gdln.GatedData) -> gdln.Trajectory:
    """Descent from weights drawn at random: two seeds, and a third whose rate is too large."""

    def one(key: jax.Array, rate: jax.Array) -> gdln.Trajectory:
        net = gdln.GatedNetwork.init(reduction.graph, init.normal(0.3), key=key)
        return gdln.train(net, data, **{**STEPS, "optimizer": optax.sgd(rate)})

    return jax.vmap(one)(jax.random.split(jax.random.key(0), 3), jnp.array([0.1, 0.1, 1e6]))


def swept(reduction: gdln.Reduction, data: gdln.GatedData) -> Any:
    """The data set of a sweep over scales and seeds, whose function returns a run."""

    def one(key: jax.Array, scale: jax.Array, seed: jax.Array) -> gdln.Trajectory:
        del seed
        net = gdln.GatedNetwork.init(reduction.graph, init.normal(scale), key=key)
        return gdln.train(net, data, optimizer=optax.adam(0.1), steps=8, save_every=2)

    axes = {"scale": [0.1, 0.3], "seed": [0, 1, 2]}
    return gdln.sweep(one, axes, key=jax.random.key(0), progress=False)
