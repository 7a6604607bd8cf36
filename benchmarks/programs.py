"""Our side of the comparisons: what users of gdln_jax would write, with its counted cost."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import gdln_jax as gdln
from benchmarks.measuring import over_devices
from gdln_jax.images import RoutedNetwork
from gdln_jax.images._step import route_table, step


@dataclasses.dataclass(frozen=True)
class Work:
    """A program that can be called again, and what it has to do at least.

    - `run`: does it. `flops`: of its matrix products. `traffic`: bytes that must be moved.
    - `starts`: initial weights per run, edge -> array, for the baselines.
    """

    run: Callable[[], Any]
    flops: float
    traffic: float
    starts: Sequence[dict[str, np.ndarray]]


def product_flops(packed: gdln.PackedData) -> float:
    """FLOP of the products of one loss and gradient: three each, two where the input is data."""
    total = 0.0
    for bundle, stage in zip(packed.graph.bundles, packed.stages, strict=True):
        if stage is not None:
            pairs = stage.shape[0] * stage.shape[1]
            passes = 2 if bundle.source[0] == 0 else 3
            total += 2.0 * passes * pairs * packed.rows * bundle.shape[0] * bundle.shape[1]
    return total


def training(
    task: Any,
    scales: Sequence[float],
    seeds: int,
    *,
    rate: float,
    steps: int,
    save_every: int,
    values: bool,
) -> Work:
    """Networks of all scales and seeds trained in one program, shared out over the devices.

    Returns (losses (run, save), singular values per stack (run, save, edge, value) or None).
    """
    packed = gdln.pack(task.graph, task.data)
    nets = [
        gdln.GatedNetwork.init(task.graph, gdln.init.orthogonal(scale), key=jax.random.key(seed))
        for scale in scales
        for seed in range(seeds)
    ]
    starts = [{name: np.asarray(w) for name, w in net.weights.items()} for net in nets]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)
    optimizer = optax.sgd(rate)

    def look(net: gdln.GatedNetwork) -> Any:
        return [gdln.measures.singular_values(w) for w in net.stacks]

    def run(net: gdln.GatedNetwork, data: gdln.PackedData) -> Any:
        result = gdln.train(
            net,
            data,
            optimizer=optimizer,
            steps=steps,
            save_every=save_every,
            measure=look if values else None,
            keep_models=False,
        )
        return result.losses, result.measured

    every = jax.vmap(run, in_axes=(0, None))
    program = jax.jit(over_devices(every, len(nets), shared=1))
    flops = product_flops(packed) * steps * len(nets)
    return Work(lambda: program(stacked, packed), flops, 0.0, starts)


def image_task(num_domains: int, trained: int, examples: int, pixels: int, width: int) -> Any:
    """The routing task of N Sec. 5 on random images; its cost does not depend on the values."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(examples, pixels))
    y = np.eye(10)[rng.integers(10, size=examples)]
    return gdln.tasks.routing(num_domains, trained, base=(x, y), width=width, compact=True)


def image_steps(
    num_domains: int, trained: int, batches: np.ndarray, targets: np.ndarray, *, width: int,
    rate: float, momentum: float,
) -> Work:  # fmt: skip
    """Mini-batch steps: batches (step, domain, example, pixel), targets (step, domain, ...).

    Only inputs and targets change between steps; the arrangement stays. Returns the losses before
    each step. Traffic: weights are read forwards, gradients, momentum and weights written, the
    last two also read.
    """
    task = image_task(num_domains, trained, batches.shape[2], batches.shape[3], width)
    packed = task.data
    init = gdln.init.xavier(1.0)
    net = gdln.GatedNetwork.init(task.graph, init, key=jax.random.key(0))
    optimizer = optax.sgd(rate, momentum=momentum)
    node = jnp.asarray(packed.outputs[-1].node)

    def step(carry: Any, batch: Any) -> Any:
        net, state = carry
        x, y = batch
        data = eqx.tree_at(lambda d: (d.inputs[0], d.outputs[-1].target), packed, (x, y[node]))
        loss, gradient = jax.value_and_grad(gdln.mse)(net, data)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(net, updates), state), loss

    program = jax.jit(lambda carry, data: jax.lax.scan(step, carry, data), donate_argnums=0)
    carry = [(net, optimizer.init(net))]
    data = jnp.asarray(batches, jnp.float32), jnp.asarray(targets, jnp.float32)

    def run() -> Any:
        carry[0], losses = program(carry[0], data)
        return losses

    size = sum(stack.nbytes for stack in net.stacks)
    start = {name: np.asarray(w) for name, w in net.weights.items()}
    return Work(run, product_flops(packed) * len(batches), 6.0 * size * len(batches), [start])


def trainer_steps(
    num_domains: int, trained: int, batches: np.ndarray, labels: np.ndarray, *, width: int,
    rate: float, momentum: float,
) -> Work:  # fmt: skip
    """Steps of `gdln.images.train_images`: batches (step, domain, example, pixel), labels
    (step, example). Returns and counts as `image_steps` does.
    """
    m, pixels = num_domains, batches.shape[3]
    net = RoutedNetwork.init(m, pixels, 10, width=width, bias=False, key=jax.random.key(0))
    pattern = np.zeros((m, m), int)
    pattern[tuple(gdln.tasks.routing(m, trained, width=1, compact=True).meta["routes"].T)] = 1
    table = route_table(pattern)
    rates = jnp.float32(rate), jnp.float32(momentum), jnp.float32(1)

    def one(carry: Any, batch: Any) -> Any:
        *carry, loss = step(*carry, *batch, table, rates, "mse")
        return tuple(carry), loss

    program = jax.jit(lambda carry, data: jax.lax.scan(one, carry, data), donate_argnums=0)
    (encoders,), (hidden,), (decoders,) = net.encoders, net.hidden, net.decoders
    start = {"h1->h2": np.asarray(hidden)}
    start |= {f"x{i}->h1": np.asarray(w) for i, w in enumerate(encoders)}
    start |= {f"h2->y{j}": np.asarray(w) for j, w in enumerate(decoders)}
    carry = [(net, jax.tree.map(jnp.zeros_like, net))]
    data = jnp.asarray(batches, jnp.float32), jnp.asarray(labels)

    def run() -> Any:
        carry[0], losses = program(carry[0], data)
        return losses

    # Products of one example per route, as the layers have them; the first layer is not sent back.
    per = 2 * m * pixels * width + 3 * m * width**2 + 3 * m * trained * 10 * width
    flops = 2.0 * per * batches.shape[2] * len(batches)
    size = sum(w.nbytes for w in start.values())
    return Work(run, flops, 6.0 * size * len(batches), [start])
