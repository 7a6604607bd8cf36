"""Errors by route: trained routes against those never seen in training (N Sec. 4.1, Fig. 4h, 5c).

All are relative errors ||y - h||^2 / ||y||^2, so that 1 is what a network
that predicts zero gets, averaged over routes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from gdln_jax._checks import Suggesting, dataset
from gdln_jax._checks.types import ArrayLike, Numbers
from gdln_jax._data.boundary import check_gated_data, check_predicts
from gdln_jax._data.gated import GatedData
from gdln_jax._linalg import quotient
from gdln_jax._network.gated import GatedNetwork, check_network


def relative_error(target: ArrayLike, prediction: ArrayLike) -> Float[Array, ""]:
    """Return ||target - prediction||_F^2 / ||target||_F^2 over all entries (theory#conventions).

    For a target that is 0 everywhere ||prediction||_F^2 itself: 0 if the prediction is 0 too.
    """
    target, prediction = jnp.asarray(target), jnp.asarray(prediction)
    missed = jnp.sum(jnp.square(target - prediction))
    return quotient(missed, jnp.sum(jnp.square(target)), at_zero=missed)


def input_output_maps(net: GatedNetwork) -> Float[Array, "input output y x"]:
    r"""Return the linear map from every input to every output node with all gates open.

    `maps[i, j]` (|y|, |x|) is the sum over all paths from `graph.inputs[i]` to
    `graph.outputs[j]` of the products of their weights; in the routing task, where a route opens
    exactly the paths between its two domains, it is what the network computes on route (i, j).
    Computed as the response to unit inputs; paths are not enumerated.

    Raises:
        ValueError: inputs of several widths, or outputs of several widths.
    """
    check_network(net)
    graph = net.graph
    for name, ends in (("input", graph.inputs), ("output", graph.outputs)):
        if len({graph.nodes[node] for node in ends}) > 1:
            raise ValueError(
                f"the {name} nodes have different widths "
                f"{sorted({graph.nodes[node] for node in ends})}, so their maps do not fit one "
                "array; use error_by_group(net, data, groups)."
            )
    m, width = len(graph.inputs), graph.nodes[graph.inputs[0]]
    unit = jnp.eye(m * width).reshape(m * width, m, width)
    zeros = {name: jnp.zeros((m * width, graph.nodes[name])) for name in graph.outputs}
    data = GatedData({name: unit[:, i] for i, name in enumerate(graph.inputs)}, zeros)
    response = jnp.stack(list(net(data).values()))  # (output, input * x, y)
    split = response.reshape(len(graph.outputs), m, width, -1)
    return jnp.einsum("jixy->ijyx", split)


def route_errors(
    net: GatedNetwork, x: Float[Numbers, "n x"], y: Float[Numbers, "n y"]
) -> Float[Array, "input output"]:
    """Return the relative error of every route (i, j) of a network on base examples `x`, `y`.

    Where `y` is 0 everywhere, as in `relative_error`. O(inputs x |x| x edges) for the maps and
    O(routes n |x| |y|) for the errors.

    Raises:
        ValueError: `x` or `y` of other widths than the network's, as when they are swapped.
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    maps = input_output_maps(net)
    sizes = maps.shape[:1:-1]
    if x.ndim != 2 or y.ndim != 2 or (x.shape[1], y.shape[1]) != sizes or len(x) != len(y):
        raise ValueError(
            f"x has shape {x.shape} and y {y.shape}; this network wants inputs (n, {sizes[0]}) "
            f"first and targets (n, {sizes[1]}) second."
        )
    prediction = jnp.einsum("ijyx,nx->ijny", maps, x)
    missed = jnp.sum(jnp.square(y[None, None] - prediction), axis=(2, 3))
    return quotient(missed, jnp.full_like(missed, jnp.sum(jnp.square(y))), at_zero=missed)


class ZeroShotError(NamedTuple):
    """Mean relative errors on the trained and on the untrained routes; unpacks as that pair."""

    trained: Float[Array, ""]
    untrained: Float[Array, ""]

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__


def zero_shot_error(
    net: GatedNetwork,
    x: Float[Numbers, "n x"],
    y: Float[Numbers, "n y"],
    pattern: ArrayLike,
) -> ZeroShotError:
    """Return the relative errors averaged over trained and over untrained routes of `pattern`.

    `pattern` is the 0/1 matrix (inputs, outputs) of trained routes, `task.meta["pattern"]`. With
    targets that no linear map reaches, pass the best linear prediction as `y`: then 0 means "as
    good as a network can be". An average over no route is NaN, with derivative 0.

    Raises:
        ValueError: as `route_errors`; a pattern of another shape than (inputs, outputs).
    """
    errors = route_errors(net, x, y)
    trained = jnp.asarray(pattern, errors.dtype)
    if trained.shape != errors.shape:
        raise ValueError(
            f"pattern has shape {trained.shape}; this network has (inputs, outputs) = "
            f"{errors.shape}."
        )

    def mean(chosen: Array) -> Array:
        return quotient(jnp.sum(errors * chosen), jnp.sum(chosen), at_zero=jnp.nan)

    return ZeroShotError(mean(trained), mean(1 - trained))


def error_by_group(
    model: PyTree, data: GatedData, groups: Int[Numbers, " n"], num_groups: int
) -> Float[Array, " group"]:
    """Return the relative error of a model on each group of examples, summed over output nodes.

    `groups` numbers the group (route, context, ...) of each example from 0; examples count with
    their weights. Where the targets of a group are all 0, the mean squared norm of its predictions;
    NaN, with derivative 0, for a group without weight.
    """
    check_predicts(model)
    check_gated_data(data)
    outputs = model(data)

    def total(per_example: Array) -> Array:
        return jax.ops.segment_sum(per_example, jnp.asarray(groups), num_segments=num_groups)

    def square(vectors: Callable[[str], Array]) -> Array:
        # Weights times values, not their squares: 0 times infinity would be NaN.
        parts = (data.weights[:, None] * vectors(k) * vectors(k) for k in data.targets)
        return total(sum((jnp.sum(part, axis=-1) for part in parts), jnp.zeros(())))

    missed, wanted = (
        square(lambda k: data.targets[k] - outputs[k]),
        square(data.targets.__getitem__),
    )
    mean = quotient(missed, total(data.weights), at_zero=jnp.nan)
    return quotient(missed, wanted, at_zero=mean)
