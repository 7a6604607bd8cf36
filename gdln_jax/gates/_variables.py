r"""Gates that learn beside the weights: fast, bounded and leaky variables.

The idea, and the two regimes in blocks of tasks, are those of Sandbrink et al. 2024 (Flexible task
abstractions emerge in linear networks with fast and bounded units); here for any gated network.

A gate variable z obeys $\tau \dot z = -r \, \partial L/\partial z - \lambda z$ while weights obey
$\tau \dot W = -\partial L/\partial W$; the gates are bounded functions of z. When tasks take turns
in blocks there are two regimes: fast gates switch and the weights keep the solutions of all tasks
(flexible), or slow gates stay and the weights are overwritten in every block (forgetful).
"""

from collections.abc import Callable, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import check_choice, check_keys, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.arrays import weight_array
from gdln_jax._data.boundary import check_gated_data, for_prediction
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.schedule import Schedule
from gdln_jax._network.gated import GatedNetwork, check_network
from gdln_jax._network.losses import mse
from gdln_jax._network.model import AbstractModel, Pairs, pairs_by_node
from gdln_jax.gates._with_gates import with_gates

_BOUNDS = ("softmax", "sigmoid")


class LearnedGates(AbstractModel):
    """A gated network some of whose node gates are variables, the same for all examples.

    Train it like any model, with `gradient_flow` or `train`, on the loss `leaky(mse)`.

    Args:
        network: the weights.
        nodes: the hidden or output nodes whose gates learn.
        rate: r, how much faster than weights the variables learn; may be traced.
        leak: lambda, in units of 1/tau, the rate at which they forget, towards equal gates; may be
            traced.
        bound: `"softmax"`: gates are positive and sum to 1, so that pathways compete; `"sigmoid"`:
            each lies between 0 and 1.
        z: (node,) initial variables; default 0.

    Gradient flow in w = z / sqrt(r) with the weights' time constant is flow at rate r in z: `w` is
    what is stored and learns. `rate` and `leak` get no gradient. A gate that the data give the
    same node is replaced.

    Raises:
        ValueError: what is no `GatedNetwork`, unknown or input nodes, another number of variables,
            a known rate that is not above 0, or a known leak below 0.
    """

    network: GatedNetwork
    w: Float[Array, "*batch node"]
    rate: Float[Array, "*batch"]
    leak: Float[Array, "*batch"]
    nodes: tuple[str, ...] = eqx.field(static=True)
    bound: str = eqx.field(static=True)

    def __init__(
        self,
        network: GatedNetwork,
        nodes: Sequence[str],
        *,
        rate: ArrayLike = 1.0,
        leak: ArrayLike = 0.0,
        bound: str = "softmax",
        z: ArrayLike | None = None,
    ):
        check_network(network, "network")
        graph = network.graph
        self.nodes = tuple(nodes)
        gated = [name for name in graph.nodes if name not in graph.inputs]
        check_keys(dict.fromkeys(self.nodes), gated, "nodes", "a hidden or output node")
        if not self.nodes or len(set(self.nodes)) < len(self.nodes):
            raise ValueError(f"nodes is {self.nodes}; name at least one node, and each once.")
        self.bound = check_choice(bound, _BOUNDS, "bound")
        self.network = network
        self.rate, self.leak = _rate(rate, "rate", "above 0"), _rate(leak, "leak", "at least 0")
        z = jnp.zeros(len(self.nodes)) if z is None else weight_array(z, "z").astype(float)
        if z.shape != (len(self.nodes),):
            raise ValueError(f"z has shape {z.shape}; expected ({len(self.nodes)},).")
        self.w = z / jnp.sqrt(self.rate)

    @property
    def gates(self) -> Float[Array, "*batch node"]:
        """The gates, in the order of `nodes`."""
        z = self.w * jnp.sqrt(jax.lax.stop_gradient(self.rate))[..., None]
        return jax.nn.softmax(z, axis=-1) if self.bound == "softmax" else jax.nn.sigmoid(z)

    def __call__(
        self, data: GatedData | Mapping[str, object]
    ) -> dict[str, Float[Array, "n width"]]:
        """Return output node -> predictions (n, |v|)."""
        gates = dict(zip(self.nodes, self.gates, strict=True))
        return self.network(with_gates(for_prediction(data), gates))

    def validate(self, data: GatedData | Schedule) -> None:
        """Check data against the graph (see `GatedData.validate`)."""
        self.network.validate(data)

    def prepare(self, data: GatedData | PackedData) -> GatedData:
        """Check data against the graph; they are evaluated as they are, since gates change."""
        data = check_gated_data(data)
        self.validate(data)
        return data

    def pairs(self, data: GatedData | PackedData) -> Pairs:
        """Return (prediction, target, weight) of each output node."""
        data = check_gated_data(data)
        return pairs_by_node(self(data), data)

    def __repr__(self) -> str:
        return f"LearnedGates({len(self.nodes)} {self.bound} gates, {self.network!r})"


def _rate(value: ArrayLike, name: str, wanted: str) -> Float[Array, "*batch"]:
    array = weight_array(value, name).astype(float)
    if is_concrete(array):
        numbers = np.asarray(array)
        if not np.all(numbers > 0 if wanted == "above 0" else numbers >= 0):
            raise ValueError(f"{name} is {value!r}; it must be {wanted}.")
    return array


def leaky(loss: Callable[[PyTree, PyTree], Array] = mse) -> Callable[[LearnedGates, PyTree], Array]:
    """Return `loss` plus leak |w|^2/2, whose gradient lets the variables forget at rate `leak`."""
    return _LEAKY.setdefault(loss, _with_leak(loss))


def _with_leak(loss: Callable[[PyTree, PyTree], Array]) -> Callable[[LearnedGates, PyTree], Array]:
    def total(model: LearnedGates, data: PyTree) -> Array:
        leak = jax.lax.stop_gradient(model.leak)
        return loss(model, data) + leak * jnp.sum(jnp.square(model.w)) / 2

    return total


# One function object per loss, so that programs are compiled once.
_LEAKY: dict[Callable, Callable] = {}


def gate_share(
    model: LearnedGates, data: PyTree, loss: Callable[[PyTree, PyTree], Array] = mse
) -> Array:
    """Return the share of the gates in the present fall of the loss, between 0 and 1.

    -dL/dt is the squared norm of the gradient, of which the variables hold one part and the
    weights the other. Integrated over late blocks this is what the switching is done by.
    """
    gradient = eqx.filter_grad(loss)(model, data)
    of_gates = jnp.sum(jnp.square(gradient.w))
    every = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradient.network))
    return of_gates / jnp.maximum(of_gates + every, np.finfo(float).tiny)


def retention(
    model: LearnedGates | GatedNetwork, data: GatedData, nodes: Sequence[str] | None = None
) -> Float[Array, ""]:
    """Return how much of a task the weights hold: 1 - L/L_0 under the best gates for it.

    L is the least loss over all real gates of the nodes with the weights as they are, and L_0 that
    with all of them closed, for `mse`. Measured for the task that was *not* trained last: near 1
    the weights keep its solution and gates alone bring it back (flexible), near 0 it has to be
    learned again (forgetful). Of all tasks at once it is the capacity that is kept.

    Args:
        model: a `LearnedGates`, or a network.
        data: the task. Gates that it gives these nodes are replaced, by one for all examples each;
            others stay.
        nodes: of a network, names of the hidden or output nodes whose gates may be chosen.

    Raises:
        ValueError: a network without names of its nodes, or names beside a `LearnedGates`; a path
            passes two of the nodes: the loss is not quadratic in the gates then.
    """
    if isinstance(model, GatedNetwork) and nodes is not None:
        model = LearnedGates(model, nodes)
    elif not isinstance(model, LearnedGates) or nodes is not None:
        raise ValueError(
            f"model is a {type(model).__name__} with nodes {nodes!r}; pass a network with the "
            "names of the nodes whose gates may be chosen, retention(net, data, nodes), or a "
            "LearnedGates alone."
        )
    network, names = model.network, model.nodes
    _check_parallel(model)

    def error(gates: Array) -> Array:
        gated = with_gates(data, {name: gates[i] for i, name in enumerate(names)})
        outputs = network(gated)
        scale = jnp.sqrt(data.weights)[:, None]
        return jnp.concatenate(
            [jnp.ravel(scale * (y - outputs[name])) for name, y in data.targets.items()]
        )

    rest = error(jnp.zeros(len(names)))
    parts = rest - jax.vmap(error)(jnp.eye(len(names)))
    best, *_ = jnp.linalg.lstsq(parts.T, rest)
    return 1 - jnp.sum(jnp.square(rest - best @ parts)) / jnp.sum(jnp.square(rest))


def _check_parallel(model: LearnedGates) -> None:
    graph = model.network.graph
    for name in model.nodes:
        ahead, seen = [e.target for e in graph.outgoing[name]], set()
        while ahead:
            node = ahead.pop()
            if node in model.nodes:
                raise ValueError(
                    f"a path passes {name!r} and {node!r}, so the loss is not quadratic in their "
                    "gates; retention() needs learned gates on parallel pathways."
                )
            if node not in seen:
                seen.add(node)
                ahead += [e.target for e in graph.outgoing[node]]
