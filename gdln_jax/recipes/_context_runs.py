"""What the recipes on semantic contexts (H Fig. 3-6) share: networks, and what is read off them.

Precision is float32, which is enough for training here (SCIENCE 6); theory and its comparison
with flows are float64.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import GatedData, GatedNetwork, Trajectory, init, pack, relu, tasks
from gdln_jax.recipes import _ensembles as sim

FLOAT = jnp.float32


def train_relu(
    task: tasks.Task, std: float, keys: jax.Array, rate: float, steps: int, save_every: int
) -> Trajectory:
    """ReLU networks on the ungated task; measured: `groups`, `output`, `hidden` (see `look`)."""
    assert isinstance(task.data, GatedData)
    data = sim.as_type(task.data, FLOAT)
    shape = len(set(task.meta["context"].tolist())), -1
    nets = jax.vmap(lambda k: relu.ReLUNetwork.init(task.graph, std=std, key=k))(keys)

    def look(net: relu.ReLUNetwork) -> dict[str, Any]:
        z = net.pre_activations(data.inputs["x"])
        return {
            "groups": power_groups(net, data, shape),
            "output": z[-1],
            "hidden": jnp.maximum(z[net.depth - 1], 0),
        }

    return sim.descend(
        sim.as_type(nets, FLOAT), data, rate, steps, save_every, measure=look, what="ReLU network"
    )


def power_groups(net: relu.ReLUNetwork, data: GatedData, shape: tuple[int, int]) -> jax.Array:
    """Shares of the output, (2 + contexts + 1,), of units of the last hidden layer that are

    on for every example; on for all items of some contexts and for none of the others ("strictly
    consistent"); and on for the majority of the items of 0, 1, ..., C contexts.
    """
    on = relu.activation_patterns(net, data, layer=net.depth)
    power = relu.unit_power(net, data)
    counts = jnp.sum(on.reshape(len(on), *shape), axis=-1)
    items = on.shape[1] // shape[0]
    full, none = counts == items, counts == 0
    always = jnp.all(full, axis=1)
    strict = jnp.all(full | none, axis=1) & jnp.any(full, axis=1) & ~always
    majority = jnp.sum(2 * counts > items, axis=1)
    groups = [always, strict, *(majority == k for k in range(shape[0] + 1))]
    return jnp.stack([jnp.sum(power * group) for group in groups])


def pathways(graph: Any) -> dict[str, tuple[str, str, str]]:
    """Hidden node -> its input node, first edge and second edge, for parallel pathways."""
    return {
        h: (graph.incoming[h][0].source, graph.incoming[h][0].name, graph.outgoing[h][0].name)
        for h in graph.hidden
    }


def train_gated(
    task: tasks.Task,
    std: float,
    keys: jax.Array,
    rate: float,
    steps: int,
    save_every: int,
    *,
    scales: dict[str, float] | None = None,
    frames: dict[str, tuple[np.ndarray, np.ndarray]] | None = None,
) -> tuple[Trajectory, GatedNetwork]:
    """Gated networks from iid normal weights, and their initial weights.

    `scales` multiply the initial weights of a pathway, by its hidden node; 1 if not there.
    `frames`, hidden node -> (u (y, mode), v (x, mode)), are what strengths are read in. Measured:
    `strength` (pathway, mode), `output` (n, y), `hidden` (n, units of all pathways).
    """
    assert isinstance(task.data, GatedData)
    graph, factors = task.graph, scales or {}
    ways = pathways(graph)
    scale = {e: factors.get(h, 1.0) for h, (_, *edges) in ways.items() for e in edges}
    initial = init.normal(std)

    def start(key: Any) -> GatedNetwork:
        net = GatedNetwork.init(graph, initial, key=key)
        return GatedNetwork(graph, {e: scale[e] * w for e, w in net.weights.items()})

    nets = jax.vmap(start)(keys)
    data = sim.as_type(task.data, FLOAT)
    read = {h: frames[h] for h in ways} if frames else {}

    def look(net: GatedNetwork) -> dict[str, Any]:
        hidden, output = [], []
        for h, (source, first, second) in ways.items():
            gate = data.node_gates.get(h, jnp.ones(data.num_examples, FLOAT))
            hidden.append(gate[:, None] * (data.inputs[source] @ net.weights[first].T))
            output.append(hidden[-1] @ net.weights[second].T)
        strength = [
            jnp.sum((net.weights[ways[h][2]].T @ u) * (net.weights[ways[h][1]] @ v), axis=0)
            for h, (u, v) in read.items()
        ]
        return {
            "strength": jnp.stack(strength) if strength else jnp.zeros(0),
            "output": jnp.sum(jnp.stack(output), axis=0),
            "hidden": jnp.concatenate(hidden, axis=1),
        }

    run = sim.descend(
        sim.as_type(nets, FLOAT),
        sim.as_type(pack(graph, task.data), FLOAT),
        rate,
        steps,
        save_every,
        measure=look,
        what="gated network",
    )
    return run, nets


def late_error(curve: Any, reference: Any) -> float:
    """Mean over the second half of the times of |curve/reference - 1|."""
    curve, reference = np.asarray(curve), np.asarray(reference)
    half = len(curve) // 2
    return float(np.mean(np.abs(curve[half:] / reference[half:] - 1)))


def similarity_correlation(one: Any, other: Any) -> float:
    """Correlation of the dot products of all pairs of examples (n, unit) in two representations."""
    pairs = np.triu_indices(len(one))
    a, b = (np.asarray(h, float) @ np.asarray(h, float).T for h in (one, other))
    return float(np.corrcoef(a[pairs], b[pairs])[0, 1])
