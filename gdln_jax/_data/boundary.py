"""Type checks of graphs, data, models and keys, with an explanation of common mistakes."""

from collections.abc import Mapping
from numbers import Integral

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import instead
from gdln_jax._data.arrays import check_real
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph


def check_graph(graph: object) -> None:
    """Raise `ValueError` unless `graph` is a `Graph`."""
    if isinstance(graph, Graph):
        return
    remedy = "pass gdln.Graph(nodes, edges); the graph comes first, the data second"
    remedy = instead(graph).graph or remedy
    if isinstance(getattr(graph, "graph", None), Graph):
        remedy = "pass its .graph"
    raise ValueError(f"graph is a {type(graph).__name__}, not a gdln.Graph: {remedy}.")


def check_gated_data(data: object) -> GatedData:
    """Return `data`, or raise `ValueError` unless they are `GatedData` with targets."""
    data = check_inputs(data)
    if not data.targets:
        raise ValueError(
            "the data have no targets, so a network can predict from them, net(data), and nothing "
            "else: losses, training, reductions and measures of errors need GatedData(inputs, "
            "targets, ...)."
        )
    return data


def for_prediction(data: object) -> GatedData:
    """Return what a network is called on: `GatedData`, also those of a mapping of inputs alone."""
    if isinstance(data, Mapping) and not isinstance(data, GatedData):
        return GatedData(data)
    return check_inputs(data)


def check_inputs(data: object) -> GatedData:
    """Return `data`, or raise `ValueError` unless they are `GatedData`, with targets or without."""
    if isinstance(data, GatedData):
        return data
    remedy = (
        "wrap the arrays by node name, gdln.GatedData({'x': inputs}, {'y': targets}), each "
        "(examples, features)"
    )
    remedy = instead(data).data or remedy
    raise ValueError(f"data is a {type(data).__name__}, not GatedData: {remedy}.")


def check_model(model: object) -> None:
    """Raise `ValueError` for what is no model, and for weights that no training can use.

    Any pytree with floating-point arrays may be one. Complex weights have no gradient flow here,
    and precisions below float32 lose small updates.
    """
    remedy = instead(model).model
    if remedy:
        raise ValueError(f"model is a {type(model).__name__}; {remedy}.")
    for path, leaf in jax.tree_util.tree_leaves_with_path(model):
        if eqx.is_inexact_array(leaf):
            check_real(leaf.dtype, f"model{jax.tree_util.keystr(path)}")


def check_predicts(model: object) -> None:
    """Raise `ValueError` unless `model` is one that can be called on data."""
    check_model(model)
    if not callable(model):
        raise ValueError(
            f"model is a {type(model).__name__}, which cannot be called: pass a model that maps "
            "data to {output node: predictions}, such as a gdln.GatedNetwork. Other pytrees learn "
            "by a loss of your own, loss(model, data)."
        )


def check_single(one: object, batch: tuple[int, ...]) -> None:
    """Raise `ValueError` for a batch of models or data, of leading shape `batch`."""
    if batch:
        raise ValueError(
            f"this {type(one).__name__} is a batch of shape {batch}, and a single one is wanted: "
            "map over the batch, say jax.vmap(mse, (0, None))(nets, data), or take one of it, "
            "jax.tree.map(lambda leaf: leaf[0], batch)."
        )


def check_random_key(key: object, name: str = "key") -> None:
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
