"""What the recipes on items in contexts (H Fig. 3-6) share: networks, and what is read off them.

Precision is float32, which is enough for training here; theory and its comparison
with flows are float64.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from gdln_jax import GatedData, GatedNetwork, Graph, Trajectory, init, pack, relu, tasks
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.declare import Numbers
from gdln_jax.recipes._core.labelled import Variables

FLOAT = jnp.float32
# Kinds of ReLU units, see `power_groups`, for three contexts: name of the number, label.
GROUPS = {"always": "all examples", "strict": "strictly consistent"}
GROUPS |= {k: f"majority in {m}" for m, k in enumerate(("none", "one", "two", "three"))}
Frames = Mapping[str, tuple[np.ndarray, np.ndarray]]


class ReLULook(eqx.Module):
    """Measured of ReLU networks: `groups` (see `power_groups`), `output`, `hidden`."""

    data: GatedData
    context: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, net: relu.ReLUNetwork) -> dict[str, Array]:
        z = net.pre_activations(self.data.inputs["x"])
        hidden = jnp.maximum(z[net.depth - 1], 0)
        groups = power_groups(net, self.data, len(set(self.context)))
        return {"groups": groups, "output": z[-1], "hidden": hidden}


@dataclass(frozen=True)
class Descent:
    """Gradient descent from iid normal weights on `scale` times the mean loss.

    `rate` is that of the scaled loss, so that tau = 1; about `records` records are made.
    """

    seed: int
    seeds: int
    std: float
    scale: float
    rate: float
    steps: int
    records: int

    @property
    def step(self) -> np.ndarray:
        """(time,) steps of the records."""
        save_every = sim.spacing(self.steps, self.records)
        return np.append(np.arange(0, self.steps, save_every), self.steps)

    def coords(self) -> dict[str, Any]:
        """Coordinates time, step and seed."""
        time = "time", self.rate * self.step, {"units": "tau"}
        return {"time": time, "step": ("time", self.step), "seed": np.arange(self.seeds)}

    def losses(self, runs: Mapping[str, Trajectory]) -> Variables:
        """Scaled losses (seed, time) as `loss_` and the run's name."""
        losses = {kind: self.scale * np.asarray(one.losses, float) for kind, one in runs.items()}
        return {f"loss_{k}": (("seed", "time"), x, f"loss, {k}") for k, x in losses.items()}

    def train(
        self, start: Callable[[PRNGKeyArray], PyTree], data: PyTree, look: sim.Measure, what: str
    ) -> Trajectory:
        """Train the network `start(key)` of each key, and measure `look(network)`."""
        nets = jax.vmap(start)(sim.keys(self.seed, self.seeds))
        nets, data = (sim.as_type(one, FLOAT) for one in (nets, data))
        often = self.rate * self.scale, self.steps, sim.spacing(self.steps, self.records)
        # A module's arrays are arguments: tasks of equal shapes share one program.
        return sim.descend(nets, data, *often, measure=look, what=f"{what} network")

    def relu(self, task: tasks.Task, *widths: int, look: type[ReLULook] = ReLULook) -> Trajectory:
        """Train ReLU networks with hidden layers of `widths` on the examples of an ungated task."""
        data, meta = gated_data(task), task.meta
        layers = [meta["x"].shape[1], *widths, meta["y"].shape[1]]

        def start(key: PRNGKeyArray) -> relu.ReLUNetwork:
            return relu.ReLUNetwork.init(layers, std=self.std, key=key)

        seen = look(sim.as_type(data, FLOAT), tuple(meta["context"].tolist()))
        return self.train(start, data, seen, "ReLU")

    def gated(
        self, task: tasks.Task, frames: Frames, scales: Mapping[str, float] | None = None
    ) -> Trajectory:
        """Train gated networks; `scales` multiply a pathway's initial weights, by hidden node."""
        ways, own = pathways(task.graph).items(), scales or {}

        def start(key: PRNGKeyArray) -> GatedNetwork:
            w = GatedNetwork.init(task.graph, init.normal(self.std), key=key).weights
            scaled = {e: own.get(h, 1.0) * w[e] for h, (_, *way) in ways for e in way}
            return GatedNetwork(task.graph, scaled)

        look = GatedLook(sim.as_type(gated_data(task), FLOAT), frames)
        return self.train(start, pack(task.graph, task.data), look, "gated")


class GatedLook(eqx.Module):
    """Measured of gated networks with parallel pathways.

    `strength` (pathway, mode), read in `frames`, hidden node -> (u (y, mode), v (x, mode));
    `output` (n, y); `hidden` (n, units of all pathways).
    """

    data: GatedData
    frames: Frames

    def __call__(self, net: GatedNetwork) -> dict[str, Array]:
        hidden, output, strength = [], [], []
        for h, (source, first, second) in pathways(net.graph).items():
            w1, w2 = net.weights[first], net.weights[second]
            gate = self.data.node_gates.get(h, jnp.ones(self.data.num_examples, FLOAT))
            hidden.append(gate[:, None] * (self.data.inputs[source] @ w1.T))
            output.append(hidden[-1] @ w2.T)
            u, v = self.frames[h]
            strength.append(jnp.sum((w2.T @ u) * (w1 @ v), axis=0))
        return {
            "strength": jnp.stack(strength),
            "output": jnp.sum(jnp.stack(output), axis=0),
            "hidden": jnp.concatenate(hidden, axis=1),
        }


def different(pathways: str = "none", width: int = 1) -> tasks.Task:
    """H's task of three contexts with different structures: hierarchy, ring and cross."""
    return tasks.semantic_contexts(3, structures="different", pathways=pathways, width=width)


def gated_data(task: tasks.Task) -> GatedData:
    """The examples of a task."""
    assert isinstance(task.data, GatedData)
    return task.data


def power_groups(net: relu.ReLUNetwork, data: GatedData, contexts: int) -> Array:
    """Shares of the output of three kinds of units of the last hidden layer, (2 + contexts + 1,).

    Those on for every example; on for all items of some contexts and for none of the others
    ("strictly consistent"); on for the majority of the items of 0, 1, ..., C contexts.
    """
    on = relu.activation_patterns(net, data, layer=net.depth)
    power = relu.unit_power(net, data)
    counts = jnp.sum(on.reshape(len(on), contexts, -1), axis=-1)
    items = on.shape[1] // contexts
    full, none = counts == items, counts == 0
    always = jnp.all(full, axis=1)
    strict = jnp.all(full | none, axis=1) & jnp.any(full, axis=1) & ~always
    majority = jnp.sum(2 * counts > items, axis=1)
    groups = [always, strict, *(majority == k for k in range(contexts + 1))]
    return jnp.stack([jnp.sum(power * group) for group in groups])


def pathways(graph: Graph) -> dict[str, tuple[str, str, str]]:
    """Hidden node -> its input node, first edge and second edge, for parallel pathways."""
    return {
        h: (graph.incoming[h][0].source, graph.incoming[h][0].name, graph.outgoing[h][0].name)
        for h in graph.hidden
    }


def pathway_maps(task: tasks.Task) -> dict[str, np.ndarray]:
    """Y X^T (sums) that each pathway has to learn: of the data, or of what `common` leaves."""
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    items = x[:, : task.graph.nodes["items"]]
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    maps = {}
    for name, active in task.meta["active"].items():
        on = np.isin(context, active)
        maps[name] = y.T @ x if name == "common" else rest[on].T @ items[on]
    return maps


def distances(name: str, curve: np.ndarray, reference: np.ndarray) -> Numbers:
    """Mean and largest gap over L(0), and mean relative error in the second half of the times."""
    mean, most = sim.gaps(curve, reference, reference[0])
    half = len(curve) // 2
    late = float(np.mean(np.abs(curve[half:] / reference[half:] - 1)))
    return {name: mean, f"{name}_most": most, f"{name}_late": late}
