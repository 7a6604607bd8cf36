"""Losses (theory#conventions): weighted means over examples, summed over output nodes.

Each works for any model that maps data to `{output node: predictions}`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import is_concrete
from gdln_jax._data.boundary import check_gated_data, check_predicts
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.schedule import Schedule
from gdln_jax._network.model import AbstractModel, predicted_pairs


def mse(model: PyTree, data: GatedData | PackedData) -> Float[Array, ""]:
    r"""Return $L = \langle \frac12 \sum_{v \in Out} \|y_v - h_v\|^2 \rangle$ (N Eq. 1).

    A *half mean squared norm*: the weighted mean is over examples only; there is no mean over
    features and no other factor.
    """
    return _mean(model, data, _half_square)


def cross_entropy(model: PyTree, data: GatedData | PackedData) -> Float[Array, ""]:
    r"""Return the softmax cross-entropy of the outputs.

    It is $\langle -\sum_v \sum_k y_{vk} \log \mathrm{softmax}(h_v)_k \rangle$.

    Targets are probabilities or one-hot rows per output node; an output whose target row is 0
    does not count.
    """
    return _mean(model, data, _surprise)


def _half_square(h: Array, y: Array, w: Array) -> Array:
    return 0.5 * (w * (y - h)) * (y - h)


def _surprise(h: Array, y: Array, w: Array) -> Array:
    return -(w * y) * jax.nn.log_softmax(h, axis=-1)


def predictive_coding(model: PyTree, data: GatedData | PackedData) -> Float[Array, ""]:
    r"""Return the energy of predictive coding at its minimising activities, for linear chains.

    $L = \frac12 \langle r^T S^{-1} r \rangle$ with the error $r = y - W_L \cdots W_1 x$ and $S = 1
    + \sum_{l=2}^{L} (W_L \cdots W_l)(W_L \cdots W_l)^T$ (theory#predictive-coding; Innocenti et al.
    2024). The gradient of this loss is what predictive coding descends once its activities have
    settled.

    Args:
        model: a network whose graph is a chain, without parallel edges or skips.
        data: for `model`, without gates.

    Returns:
        One number. Cost beside `mse`: O(|y|^2 (|h| + |y|)) per layer.

    Raises:
        ValueError: for another graph, or data with gates, under which S would differ from example
            to example.
    """
    graph = getattr(model, "graph", None)
    if graph is None or graph.num_paths != 1 or len(graph.edges) != len(graph.nodes) - 1:
        raise ValueError(
            "predictive_coding is a loss for chains (gdln.Graph.chain): networks with one path."
        )
    if isinstance(data, PackedData):
        gated = any(stage is None or stage.gate is not None for stage in data.stages)
        gated |= any(table is not None for table in data.silent)
    else:
        check_gated_data(data)
        gated = bool(data.node_gates or data.edge_gates)
    if gated:
        raise ValueError(
            "predictive_coding takes data without gates, as GatedData; use gdln.mse for gated ones."
        )
    order = {name: k for k, name in enumerate(graph.order)}
    edges = sorted(graph.edges, key=lambda edge: -order[edge.target])
    with jax.default_matmul_precision("highest"):
        carried = jnp.eye(graph.nodes[graph.outputs[0]])
        spread = carried
        for edge in edges[:-1]:
            carried = carried @ model.weights[edge.name]
            spread += carried @ carried.T
        factor = jax.scipy.linalg.cho_factor(spread)

        def energy(h: Array, y: Array, w: Array) -> Array:
            r = y - h
            settled = jax.scipy.linalg.cho_solve(factor, r.reshape(-1, r.shape[-1]).T).T
            return 0.5 * (w * r) * settled.reshape(r.shape)

        return _traced_mean(model, data, energy)


def arranged(model: PyTree, data: PyTree, loss: Callable[..., Array]) -> PyTree:
    """Check data against a model of this package, and arrange them for `mse` and `cross_entropy`.

    Any other loss gets what the caller gave, of whatever type; and so does any other model.
    """
    if not isinstance(model, AbstractModel):
        return data
    ours = any(loss is known for known in (mse, cross_entropy))
    if isinstance(data, Schedule):
        model.validate(data)
        if ours:
            check_gated_data(data.data)
    elif ours:
        return model.prepare(data)
    elif isinstance(data, GatedData):
        model.validate(data)
    return data


def check_loss(loss: object) -> None:
    """Raise `ValueError` unless `loss` can be called."""
    if not callable(loss):
        raise ValueError(
            f"loss is {loss!r}; pass a function of model and data, such as gdln.mse, or your own."
        )


def one_number(value: object) -> Array:
    """Return what a loss returned; `ValueError`, while tracing, unless it is one real number."""
    what = f"a {type(value).__name__} that depends on neither"
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        if value.shape == () and jnp.issubdtype(value.dtype, jnp.floating):
            return jnp.asarray(value)
        what = f"an array of shape {value.shape} and type {value.dtype}"
    raise ValueError(
        f"loss(model, data) is {what}; it must be one real number, an array of shape (), such as "
        "jnp.mean(...) of an error."
    )


_Weighted = Callable[[Array, Array, Array], Array]


def _mean(model: PyTree, data: GatedData | PackedData, weighted: _Weighted) -> Float[Array, ""]:
    """Sum `weighted(prediction, target, weight)`; as one program where the data are known.

    Operation by operation a new shape would be some 60 programs, and for a gradient as many again.
    """
    if isinstance(model, AbstractModel) and is_concrete(data):
        check_predicts(model)
        return _compiled_mean(model, model.prepare(data), weighted)
    return _traced_mean(model, data, weighted)


def _traced_mean(
    model: PyTree, data: GatedData | PackedData, weighted: _Weighted
) -> Float[Array, ""]:
    """Sum `weighted(prediction, target, weight)`, entry by entry.

    The weight multiplies a factor that is finite, not a square that may overflow: where it is 0,
    0 times infinity would be NaN.
    """
    check_predicts(model)
    pairs = predicted_pairs(model, data)
    terms = [jnp.sum(weighted(h, y, w[..., None])) for h, y, w in pairs]
    return jnp.sum(jnp.stack(terms)) if terms else jnp.zeros(())


# Inlined: within other programs it leaves no trace.
_compiled_mean = eqx.filter_jit(_traced_mean, inline=True)  # type: ignore[call-overload]
