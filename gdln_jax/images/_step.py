"""One step of SGD with momentum on the trained routes: the inner loop of image training.

An input is encoded once for its K outputs. Where few of the routes are trained only these are
decoded; else all are, in one large product, and the loss is masked. The first layer holds nearly
all weights, so its gradient (an outer product of B rows) is left out of the differentiation and
summed right into the momentum: a step moves little more than weights and momentum.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax.images._network import RoutedNetwork, first_layer

# All M^2 routes in one product cost as much as M / 4 per input, one by one (measured on a core of a
# CPU with M = 100, width 128, 10 classes, batch 8).
_WHOLE = 4

LOSSES = ("mse", "cross_entropy")


class RouteTable(eqx.Module):
    """The trained routes, from both sides; made by `route_table`.

    - `inputs`: (M, slot) the inputs of each output domain; `open`: 1 for real slots, else 0.
    - `slots`: (M, route) for each input domain its places output * slots + slot among them;
      `used`: 1 for real ones.
    - `pattern`: (M, M) 1 for trained routes (input, output).
    """

    inputs: Int[Array, "*run output slot"]
    open: Float[Array, "*run output slot"]
    slots: Int[Array, "*run input route"]
    used: Float[Array, "*run input route"]
    pattern: Float[Array, "*run input output"]


def route_table(pattern: Any) -> RouteTable:
    """Read a 0/1 matrix (inputs, outputs) of trained routes; leading axes are runs."""
    pattern = np.asarray(pattern)
    if pattern.ndim < 2 or pattern.shape[-1] != pattern.shape[-2]:
        raise ValueError(f"pattern has shape {pattern.shape}; expected (M, M), inputs x outputs.")
    if not np.all((pattern == 0) | (pattern == 1)) or not pattern.any(axis=(-1, -2)).all():
        raise ValueError("pattern must hold 0 and 1 and train at least one route.")
    runs = pattern.reshape(-1, *pattern.shape[-2:])
    m = runs.shape[-1]
    fan_in, fan_out = int(runs.sum(axis=1).max()), int(runs.sum(axis=2).max())
    inputs, is_open = np.zeros((len(runs), m, fan_in), int), np.zeros((len(runs), m, fan_in))
    slots, used = np.zeros((len(runs), m, fan_out), int), np.zeros((len(runs), m, fan_out))
    for r, one in enumerate(runs):
        filled = np.zeros(m, int)
        for j in range(m):
            sources = np.flatnonzero(one[:, j])
            inputs[r, j, : len(sources)] = sources
            is_open[r, j, : len(sources)] = 1
            slots[r, sources, filled[sources]] = j * fan_in + np.arange(len(sources))
            used[r, sources, filled[sources]] = 1
            filled[sources] += 1
    lead = pattern.shape[:-2]
    return RouteTable(
        jnp.asarray(inputs.reshape(*lead, m, fan_in), jnp.int32),
        jnp.asarray(is_open.reshape(*lead, m, fan_in), jnp.float32),
        jnp.asarray(slots.reshape(*lead, m, fan_out), jnp.int32),
        jnp.asarray(used.reshape(*lead, m, fan_out), jnp.float32),
        jnp.asarray(pattern, jnp.float32),
    )


@jax.custom_vjp
def to_routes(
    h: Float[Array, "input n hidden"], table: RouteTable
) -> Float[Array, "output slot n hidden"]:
    """Activity of every trained route's input, by output domain."""
    return h[table.inputs]


def _to_routes(h: Array, table: RouteTable) -> tuple[Array, RouteTable]:
    return h[table.inputs], table


def _from_routes(table: RouteTable, g: Array) -> tuple[Array, None]:
    # A gather from the input's side: adding up by scatter is a serial loop on CPUs.
    flat = g.reshape(-1, *g.shape[2:])
    return jnp.einsum("irnd,ir->ind", flat[table.slots], table.used.astype(g.dtype)), None


to_routes.defvjp(_to_routes, _from_routes)


def route_losses(
    net: RoutedNetwork,
    a: Float[Array, "domain n width"],
    labels: Int[Array, "*own n"],
    table: RouteTable,
    loss: str,
) -> Float[Array, ""]:
    """Mean loss over trained routes and rows, given the first layer's sums.

    `labels` are base labels and decoders in base order (rows
    `Transforms.outputs`); (n,) where all
    input domains see the same images, else (M, n). `loss` is `"mse"`, half the squared norm
    (SCIENCE 1), or `"cross_entropy"`.
    """
    h = net.after_first(a)
    if _whole(net, table):
        target = labels[..., None] if labels.ndim == 2 else labels[:, None]
        each = _losses(net.decode_all(h), target, loss)  # (input, n, output)
        return jnp.sum(table.pattern.astype(h.dtype)[:, None] * each) / (
            h.shape[1] * jnp.sum(table.pattern)
        )
    m, n = h.shape[:2]
    routed = to_routes(h, table)
    out = net.decode(routed.reshape(m, -1, h.shape[-1]))
    wanted = labels if labels.ndim == 1 else labels[table.inputs]
    each = _losses(out.reshape(m, -1, n, out.shape[-1]), wanted, loss)
    open_ = table.open.astype(h.dtype)
    return jnp.sum(open_[..., None] * each) / (n * jnp.sum(open_))


def _whole(net: RoutedNetwork, table: RouteTable) -> bool:
    # Deep decoders: all M^2 routes would need more memory than the trained ones.
    m, slots = table.inputs.shape[-2:]
    return len(net.decoders) == 1 and _WHOLE * slots >= m


def _losses(out: Array, labels: Array, loss: str) -> Array:
    """Loss of every output (..., class), given labels that broadcast."""
    target = jax.nn.one_hot(labels, out.shape[-1], dtype=out.dtype)
    if loss == "mse":
        return 0.5 * jnp.sum(jnp.square(target - out), axis=-1)
    return -jnp.sum(target * jax.nn.log_softmax(out, axis=-1), axis=-1)


def gradient(
    net: RoutedNetwork,
    x: Float[Array, "*domain n width"],
    labels: Int[Array, "*own n"],
    table: RouteTable,
    loss: str,
) -> tuple[Float[Array, ""], RoutedNetwork, Float[Array, "domain n hidden"]]:
    """Loss, gradient without the first layer's weights (0 there), and what makes that one.

    The gradient of `encoders[0][i]` is the sum over rows of delta[i, n] x[i, n]^T, with `delta`
    the third value.
    """
    rest = eqx.tree_at(lambda w: w.encoders[0], net, None)
    a = first_layer(net, x)
    (value, (g, delta)) = jax.value_and_grad(
        lambda r, a: route_losses(
            eqx.tree_at(
                lambda w: w.encoders[0], r, net.encoders[0], is_leaf=lambda leaf: leaf is None
            ),
            a, labels, table, loss,
        ),
        argnums=(0, 1),
    )(rest, a)  # fmt: skip
    if net.encoder_biases:
        g = eqx.tree_at(lambda w: w.encoder_biases[0], g, jnp.sum(delta, axis=1))
    return value, g, delta


@functools.partial(jax.named_call, name="image_step")
def step(
    net: RoutedNetwork,
    velocity: RoutedNetwork,
    x: Float[Array, "*domain n width"],
    labels: Int[Array, "*own n"],
    table: RouteTable,
    rates: tuple[Any, Any, Any],
    loss: str,
) -> tuple[RoutedNetwork, RoutedNetwork, Float[Array, ""]]:
    """One step v <- momentum v + gradient, w <- w - rate v; `rates` = (rate, momentum, scale).

    `scale` multiplies the loss (e.g. the number of routes, for a sum over them). Returns network,
    velocity and the loss before the step, unscaled.
    """
    rate, momentum, scale = rates
    value, g, delta = gradient(net, x, labels, table, loss)
    g = jax.tree.map(lambda leaf: scale * leaf, g)
    first = _with_outer(momentum * velocity.encoders[0], scale * delta, x)
    others = jax.tree.map(
        lambda v, leaf: momentum * v + leaf,
        eqx.tree_at(lambda w: w.encoders[0], velocity, None), g,
    )  # fmt: skip
    velocity = eqx.tree_at(
        lambda w: w.encoders[0], others, first, is_leaf=lambda leaf: leaf is None
    )
    return jax.tree.map(lambda w, v: w - rate * v, net, velocity), velocity, value


def _with_outer(start: Array, delta: Array, x: Array) -> Array:
    """`start` (M, hidden, width) plus the sum over rows of delta x^T."""
    rule = "mbh,bd->mhd" if x.ndim == 2 else "mbh,mbd->mhd"
    return start + jnp.einsum(rule, delta, x, precision=jax.lax.Precision.HIGHEST)


def full_gradient(
    net: RoutedNetwork, x: Array, labels: Array, table: RouteTable, loss: str
) -> tuple[Float[Array, ""], RoutedNetwork]:
    """Loss and its whole gradient, as a network."""
    value, g, delta = gradient(net, x, labels, table, loss)
    first = _with_outer(jnp.zeros_like(net.encoders[0]), delta, x)
    g = eqx.tree_at(lambda w: w.encoders[0], g, first, is_leaf=lambda leaf: leaf is None)
    return value, g
