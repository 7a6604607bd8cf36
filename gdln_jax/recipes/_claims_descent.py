"""Discrete training for the claims: momentum and step size, minibatches, and ReLU networks."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gdln_jax import GatedData, GatedNetwork, sweep, tasks, train
from gdln_jax.relu import ReLUNetwork, activation_patterns, as_gated, unit_power

# Views that always occur together, of rates (1, .8) per class; flow time per step eta/(1 - beta).
STRENGTHS, START = (1.0, 0.8), 0.1
_DURATION = 20.0


@dataclass(frozen=True)
class Momentum:
    """Final ratios loser/winner of two pathways' strengths s, over the flow's.

    - `betas`, `steps`: momentum and flow time per step, eta/(1 - beta).
    - `ratio` (beta, step, start): final s_2/s_1 over that of the flow from the same start.
    - `residual`: |1 - output| at the end, of the same shape.
    - `batch_steps`, `batch_ratio` (step, seed): the same for batches of one example of four.
    """

    betas: np.ndarray
    steps: np.ndarray
    ratio: np.ndarray
    residual: np.ndarray
    batch_steps: np.ndarray
    batch_ratio: np.ndarray


def sweep_momentum(
    betas: tuple[float, ...], steps: np.ndarray, starts: int, flow_ratio: Any, seed: int
) -> Momentum:
    """Race two views by heavy-ball descent; `flow_ratio(s0)` gives the end of the flow."""
    u0 = START * np.exp(0.1 * np.random.default_rng(seed).normal(size=(starts, 2)))
    task = tasks.multiview(1, 2, strengths=STRENGTHS, width=1)
    number = int(np.ceil(_DURATION / steps.min()))
    axes = {"beta": np.array(betas), "step": steps, "start": np.arange(starts)}
    ends = _descend(_aligned(task, u0), task.data, axes, number)[..., 0, :]
    flow = flow_ratio(u0 * np.sqrt(STRENGTHS))
    with np.errstate(invalid="ignore"):  # a run that a step above the stable one has thrown off
        ratio = np.sqrt(ends[..., 1] / ends[..., 0]) / flow
    batch_steps, batch_ratio = _minibatches(flow_ratio, starts, seed)
    residual = np.abs(1 - ends.sum(axis=-1))
    return Momentum(np.array(betas), steps, ratio, residual, batch_steps, batch_ratio)


def _minibatches(flow_ratio: Any, seeds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One example of four classes per step, momentum .9; rates are 1/4 as large per class."""
    task = tasks.multiview(4, 2, strengths=STRENGTHS, width=4)
    u0 = np.full((seeds, 2), START)
    steps = np.array([0.6, 0.2, 0.06, 0.02])
    number = int(np.ceil(4 * _DURATION / steps.min()))
    axes = {"beta": np.array([0.9]), "step": steps, "start": np.arange(seeds)}
    ends = _descend(_aligned(task, u0), task.data, axes, number, jax.random.key(seed))[0]
    s = np.sqrt(np.abs(ends))
    ratio = s[..., 1] / s[..., 0] / flow_ratio(u0 * np.sqrt(STRENGTHS))[:, None]
    return steps, ratio.reshape(len(steps), -1)


def _aligned(task: tasks.Task, u0: np.ndarray) -> GatedNetwork:
    """Networks (run, ...) whose pathway m has layers u0[:, m] times the identity."""
    which = {edge: m for m, path in enumerate(task.graph.paths()) for edge in path}
    stacks = [
        jnp.asarray(u0[:, [which[e] for e in bundle.edges], None, None] * np.eye(*bundle.shape))
        for bundle in task.graph.bundles
    ]
    return GatedNetwork.from_stacks(task.graph, tuple(stacks))


def _descend(
    nets: GatedNetwork,
    data: Any,
    axes: dict[str, np.ndarray],
    number: int,
    batches: jax.Array | None = None,
) -> np.ndarray:
    """Shares (beta, step, start, class, view) at the end; with a key, of batches of one example."""

    def one(key: Any, beta: Any, step: Any, start: Any) -> Any:
        end = train(
            jax.tree.map(lambda w: w[start], nets), data,
            optimizer=optax.sgd(step * (1 - beta), momentum=beta), steps=number,
            save_every=number, keep_models=False,
            key=None if batches is None else key, batch_size=None if batches is None else 1,
        ).final  # fmt: skip
        parts = [
            strength * jnp.diag(end.weights[path[1]] @ end.weights[path[0]])
            for strength, path in zip(STRENGTHS, end.graph.paths(), strict=True)
        ]
        return jnp.stack(parts, axis=-1)

    # A run that too large a step has thrown off is a result here: it comes back as NaN.
    key = jax.random.key(0) if batches is None else batches
    return sweep(one, axes, key=key, progress=False)["value"].values


# ------------------------------------------------------------------ ReLU networks
@dataclass(frozen=True)
class Gates:
    """ReLU networks against the gated networks that they were at the start; (size, seed, ...).

    - `identity`: largest |difference| of outputs to the gated network of the same weights, at the
      start and at the end of training.
    - `changed`: fraction of (unit, example) gates at the end that differ from the start's, and
      `changed_power`: the same with units weighted by their share of the output.
    - `losses`, `frozen`: (size, seed, time), over the initial loss.
    """

    task: str
    sizes: np.ndarray
    steps: np.ndarray
    identity: np.ndarray
    changed: np.ndarray
    changed_power: np.ndarray
    losses: np.ndarray
    frozen: np.ndarray


def train_relu(
    task: tasks.Task, sizes: np.ndarray, seeds: int, seed: int, rate: float, steps: int
) -> Gates:
    """Train ReLU networks of several initial weights, and each with its gates frozen at the start.

    `task` has no gates; `sizes` are standard deviations of the initial weights.
    """
    data = task.data
    assert isinstance(data, GatedData)
    keys = jax.random.split(jax.random.key(seed), seeds)
    save = max(1, steps // 100)

    def start(size: Any, key: Any) -> ReLUNetwork:
        return ReLUNetwork.init(task.graph, std=size, key=key)

    nets = jax.vmap(lambda size: jax.vmap(lambda key: start(size, key))(keys))(jnp.asarray(sizes))
    nets = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), nets)
    free = _train(nets, data, rate, steps, save)
    one_by_one = [jax.tree.map(lambda a, i=i: a[i], nets) for i in range(len(sizes) * seeds)]
    gated = [as_gated(net, data) for net in one_by_one]
    frozen_nets = jax.tree.map(lambda *a: jnp.stack(a), *[net for _, _, net in gated])
    frozen_data = jax.tree.map(lambda *a: jnp.stack(a), *[one for _, one, _ in gated])
    frozen = _train(frozen_nets, frozen_data, rate, steps, save)
    before, after = (
        np.asarray(jax.vmap(lambda net: activation_patterns(net, data))(some))
        for some in (nets, free.final)
    )
    power = np.abs(np.asarray(jax.vmap(lambda net: unit_power(net, data))(free.final)))
    flips = (before != after).mean(axis=-1)
    ends = [jax.tree.map(lambda a, i=i: a[i], free.final) for i in range(len(one_by_one))]
    off = [
        max(_difference(a, data), _difference(b, data))
        for a, b in zip(one_by_one, ends, strict=True)
    ]
    shape = (len(sizes), seeds)
    own, held = (
        (np.asarray(run.losses) / np.asarray(run.losses)[:, :1]).reshape(*shape, -1)
        for run in (free, frozen)
    )
    return Gates(
        task.name,
        np.asarray(sizes),
        np.asarray(free.ts[0]),
        np.array(off).reshape(shape),
        flips.mean(axis=-1).reshape(shape),
        ((flips * power).sum(axis=-1) / power.sum(axis=-1)).reshape(shape),
        own,
        held,
    )


def _difference(net: ReLUNetwork, data: GatedData) -> float:
    """Largest difference between a ReLU network and the gated network of the same weights."""
    _, gated_data, gated = as_gated(net, data)
    outputs = net(data)
    return max(float(jnp.abs(outputs[y] - gated(gated_data)[y]).max()) for y in outputs)


@eqx.filter_jit
def _train(nets: Any, data: Any, rate: Any, steps: int, save_every: int) -> Any:
    own_data = jax.tree.leaves(data)[0].ndim > 2

    def one(net: Any, its: Any) -> Any:
        return train(
            net, its, optimizer=optax.sgd(rate), steps=steps, save_every=save_every,
            keep_models=False,
        )  # fmt: skip

    return jax.vmap(one, in_axes=(0, 0 if own_data else None))(nets, data)
