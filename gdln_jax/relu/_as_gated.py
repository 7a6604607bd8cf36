"""The gated linear network that a ReLU network is at its present weights (H Sec. 3)."""

import itertools

import jax.numpy as jnp
import numpy as np

from gdln_jax import Graph
from gdln_jax._checks import is_concrete
from gdln_jax._data.gated import GatedData
from gdln_jax._network.gated import GatedNetwork
from gdln_jax.relu._network import ONE, ReLUNetwork


def as_gated(
    model: ReLUNetwork, data: GatedData, *, merge: bool = False
) -> tuple[Graph, GatedData, GatedNetwork]:
    """Return graph, gated data and network with the same outputs as `model` on `data`.

    Every hidden unit becomes a node of width 1, `h1.0`, `h1.1`, ..., whose gate is step(z) of its
    pre-activation z on each example (0 at z = 0), or 1 and `slope` for a leaky network. Biases
    become the weights of an input node `1` that is always 1. H Sec. 3: always possible, and
    equal to rounding. It is an identity *at these weights*: trained further, the gates stay
    frozen while those of the ReLU network move, so the two part (E24; on N's XoR the network
    frozen at its initial gates is done long before the ReLU network).

    Args:
        model: one network, not a batch.
        data: one input, one output, no gates.
        merge: give all units of a layer with the same gates one node `h1.p0`, `h1.p1`, ... The same
            function and the same dynamics, with as many nodes as there are patterns.

    Cost O(product of neighbouring layers' nodes) in the size of the graph: prefer `merge` for
    wide networks with several hidden layers.

    Raises:
        ValueError: for data with gates or with several inputs or outputs, for a batched model, and
            under `jit`.
    """
    x, output = model.ends(data)
    if not is_concrete((model, data)):
        raise ValueError("as_gated() looks at the signs of activities; call it outside of jit.")
    if model.weights[0].ndim != 2:
        raise ValueError("model is batched; pick one member of the batch first.")
    (source,) = data.inputs
    if ONE in (source, output):
        raise ValueError(f"a node is called {ONE!r}, which is kept for the biases; rename it.")
    layers, gates = [[(source, np.arange(x.shape[1]))]], {}
    for number, z in enumerate(model.pre_activations(x)[:-1], 1):
        gate = np.where(np.asarray(z) > 0, 1.0, model.slope)
        groups = _groups(gate, merge)
        letter = "p" if merge else ""
        layers.append([(f"h{number}.{letter}{i}", units) for i, units in enumerate(groups)])
        gates |= {name: gate[:, units[0]] for name, units in layers[-1]}
    layers.append([(output, np.arange(model.weights[-1].shape[0]))])
    nodes, edges, weights = {}, [], {}
    for w, (here, there) in zip(model.weights, itertools.pairwise(layers), strict=True):
        for (s, from_units), (t, to_units) in itertools.product(here, there):
            edges.append((s, t))
            weights[f"{s}->{t}"] = w[to_units][:, from_units]
            nodes.setdefault(s, weights[f"{s}->{t}"].shape[1])
            nodes[t] = weights[f"{s}->{t}"].shape[0]
    inputs = dict(data.inputs)
    if model.biases is not None:
        nodes[ONE] = 1
        inputs[ONE] = jnp.ones((data.num_examples, 1), x.dtype)
        for bias, there in zip(model.biases, layers[1:], strict=True):
            for t, units in there:
                edges.append((ONE, t))
                weights[f"{ONE}->{t}"] = bias[units][:, None]
    graph = Graph(nodes, edges)
    gated = GatedData(inputs, data.targets or None, gates, weights=data.weights)
    return graph, gated.with_names(data.names), GatedNetwork(graph, weights)


def _groups(gate: np.ndarray, merge: bool) -> list[np.ndarray]:
    """Return units (their numbers) per node, in order of the first of each."""
    if not merge:
        return [np.array([i]) for i in range(gate.shape[1])]
    members: dict[bytes, list[int]] = {}
    for i, column in enumerate(gate.T):
        members.setdefault(column.tobytes(), []).append(i)
    return [np.array(units) for units in members.values()]
