"""What a function accepts as graph, data, model and random key, checked before anything runs.

Duck typing would answer a mix-up with an AttributeError from deep inside; these checks say what
was handed in and what to hand in instead.
"""

from numbers import Integral
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._data.arrays import check_real
from gdln_jax._data.gated import GatedData
from gdln_jax._data.schedule import Schedule
from gdln_jax._graph import Graph


def check_graph(graph: Any) -> None:
    """Raise `ValueError` unless `graph` is a `Graph`."""
    if isinstance(graph, Graph):
        return
    if isinstance(getattr(graph, "graph", None), Graph):
        cure = "pass its .graph"
    elif hasattr(graph, "pre_activations"):
        cure = (
            "linear theory does not hold for a network that makes its own gates. Find gates that "
            "imitate it (gdln.discover_gates, gdln.build_gated) and pass the graph and the data "
            "of those"
        )
    else:
        cure = "pass gdln.Graph(nodes, edges); the graph comes first, the data second"
    raise ValueError(f"graph is a {type(graph).__name__}, not a gdln.Graph: {cure}.")


def check_gated_data(data: Any) -> None:
    """Raise `ValueError` unless `data` are `GatedData`."""
    if isinstance(data, GatedData):
        return
    if isinstance(data, Schedule):
        cure = (
            "a Schedule changes with time, so only gradient_flow and train take it; pass one "
            "phase, schedule.phase(0)"
        )
    elif hasattr(data, "graph") and hasattr(data, "data"):
        cure = "pass its .data"
    elif isinstance(getattr(data, "graph", None), Graph) and callable(data):
        cure = (
            "a network is called on data. If labels of optax.multi_transform are a network, hand "
            "them over as a function, lambda _: labels, since optax calls whatever can be called"
        )
    else:
        cure = (
            "wrap the arrays by node name, gdln.GatedData({'x': inputs}, {'y': targets}), each "
            "(examples, features)"
        )
    raise ValueError(f"data is a {type(data).__name__}, not GatedData: {cure}.")


# What of this package is no model, although a model stands in its place now and then.
_MAKE_ONE = (
    "the model comes first, the data second: make one by gdln.GatedNetwork.init(graph, "
    "gdln.init.orthogonal(0.1), key=jax.random.key(0))"
)
_REDUCED = (
    "it holds reduced equations, not weights: solve those, reduction.solve(b0, ts), or pass the "
    "network that they stand for, reduction.embed(b0)"
)
_RESULT = "it is the result of a run: pass the network of it that you mean, say run.final"
_NO_MODELS = {
    **dict.fromkeys(("Graph", "GatedData", "PackedData", "Schedule", "ImageSet"), _MAKE_ONE),
    "Task": "make a model for its .graph, by gdln.GatedNetwork.init(task.graph, "
    "gdln.init.orthogonal(0.1), key=jax.random.key(0)), and pass its .data second",
    **dict.fromkeys(("Reduction", "Quotient"), _REDUCED),
    **dict.fromkeys(("Trajectory", "ReducedTrajectory"), _RESULT),
    "EdgeView": "pass the network itself, not its .weights",
}


def check_model(model: Any) -> None:
    """Raise `ValueError` for what is no model, and for weights that no training can use.

    Any pytree with floating-point arrays may be one. Complex weights have no gradient flow here,
    and precisions below float32 lose small updates.
    """
    kind = type(model)
    if kind.__module__.startswith("gdln_jax") and kind.__name__ in _NO_MODELS:
        raise ValueError(f"model is a {kind.__name__}; {_NO_MODELS[kind.__name__]}.")
    for path, leaf in jax.tree_util.tree_leaves_with_path(model):
        if eqx.is_inexact_array(leaf):
            check_real(leaf.dtype, f"model{jax.tree_util.keystr(path)}")


def check_predicts(model: Any) -> None:
    """Raise `ValueError` unless `model` is one that can be called on data."""
    check_model(model)
    if not callable(model):
        raise ValueError(
            f"model is a {type(model).__name__}, which cannot be called: pass a model that maps "
            "data to {output node: predictions}, such as a gdln.GatedNetwork. Other pytrees learn "
            "by a loss of your own, loss(model, data)."
        )


def check_single(one: Any, batch: tuple[int, ...]) -> None:
    """Raise `ValueError` for a batch of models or data, of leading shape `batch`."""
    if batch:
        raise ValueError(
            f"this {type(one).__name__} is a batch of shape {batch}, and a single one is wanted: "
            "map over the batch, say jax.vmap(mse, (0, None))(nets, data), or take one of it, "
            "jax.tree.map(lambda leaf: leaf[0], batch)."
        )


def check_random_key(key: Any, name: str = "key") -> None:
    """Raise `ValueError` unless `key` is one JAX random key, of the new or of the old style."""
    if isinstance(key, jax.Array | np.ndarray):
        typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        if key.ndim == (0 if typed else 1) and (typed or key.dtype == np.uint32):
            return
        if typed or (key.dtype == np.uint32 and key.ndim > 1):
            batch = key.shape if typed else key.shape[:-1]
            raise ValueError(
                f"{name} is a batch of keys of shape {batch}; pass one of them, or map over them "
                "with jax.vmap."
            )
    seed = key if isinstance(key, Integral) and not isinstance(key, bool) else "seed"
    kind = repr(key) if isinstance(key, Integral) or key is None else f"a {type(key).__name__}"
    raise ValueError(f"{name} is {kind}; pass a JAX random key, jax.random.key({seed}).")
