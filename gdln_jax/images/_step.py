"""One step of SGD with momentum on the trained routes: the inner loop of image training.

An input is encoded once for its K outputs. Where few of the routes are trained only these are
decoded; else all are, in one large product, and the loss is masked. The first layer holds nearly
all weights, so its gradient (an outer product of B rows) is left out of the differentiation and
summed right into the momentum: a step moves little more than weights and momentum.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._checks.types import ArrayLike
from gdln_jax.images._network import RoutedNetwork, first_layer

# All M^2 routes in one product cost as much as M / 4 per input, one by one (measured on a core of a
# CPU with M = 100, width 128, 10 classes, batch 8).
_WHOLE = 4

LOSSES = ("mse", "cross_entropy")


class RouteTable(eqx.Module):
    """The trained routes as indices, from both sides; made by `route_table`.

    A route has a *slot* among the routes of its output domain, and a *place* among those of its
    input domain. Where a domain has fewer routes than another, indices are padded by 0.

    Attributes:
        sources: (M, slot), input domain of the route in each slot of an output domain.
        filled: (M, slot), 1 where the slot has a route, 0 where it is padding.
        targets: (M, place), for each route of an input domain the number of its slot when those of
            all output domains are counted through, output * slots + slot.
        used: (M, place), 1 for a route, 0 for padding.
        pattern: (M, M), 1 for trained routes (input, output).
    """

    sources: Int[Array, "*run output slot"]
    filled: Float[Array, "*run output slot"]
    targets: Int[Array, "*run input place"]
    used: Float[Array, "*run input place"]
    pattern: Float[Array, "*run input output"]


def route_table(pattern: ArrayLike) -> RouteTable:
    """Read a 0/1 matrix (input, output) of trained routes; leading axes are runs."""
    pattern = np.asarray(pattern)
    if pattern.ndim < 2 or pattern.shape[-1] != pattern.shape[-2]:
        raise ValueError(f"pattern has shape {pattern.shape}; expected (M, M), inputs x outputs.")
    if not np.all((pattern == 0) | (pattern == 1)) or not pattern.any(axis=(-1, -2)).all():
        raise ValueError("pattern must hold 0 and 1 and train at least one route.")
    runs = pattern.reshape(-1, *pattern.shape[-2:]).astype(int)
    run, source, target = np.nonzero(runs)
    # How many routes of the same output (input) come before.
    slot = runs.cumsum(axis=1)[run, source, target] - 1
    place = runs.cumsum(axis=2)[run, source, target] - 1
    slots, places = int(slot.max()) + 1, int(place.max()) + 1

    def table(
        domain: np.ndarray, column: np.ndarray, values: ArrayLike, columns: int
    ) -> np.ndarray:
        padded = np.zeros((len(runs), runs.shape[1], columns), int)
        padded[run, domain, column] = values
        return padded.reshape(*pattern.shape[:-1], columns)

    return RouteTable(
        sources=jnp.asarray(table(target, slot, source, slots), jnp.int32),
        filled=jnp.asarray(table(target, slot, 1, slots), jnp.float32),
        targets=jnp.asarray(table(source, place, target * slots + slot, places), jnp.int32),
        used=jnp.asarray(table(source, place, 1, places), jnp.float32),
        pattern=jnp.asarray(pattern, jnp.float32),
    )


@jax.custom_vjp
def to_routes(
    h: Float[Array, "input n hidden"], table: RouteTable
) -> Float[Array, "output slot n hidden"]:
    """Return the activity of every trained route's input, by output domain."""
    return h[table.sources]


def _to_routes(h: Array, table: RouteTable) -> tuple[Array, RouteTable]:
    return h[table.sources], table


def _from_routes(table: RouteTable, g: Array) -> tuple[Array, None]:
    # A gather from the input's side: adding up by scatter is a serial loop on CPUs.
    flat = g.reshape(-1, *g.shape[2:])
    return jnp.einsum("irnd,ir->ind", flat[table.targets], table.used.astype(g.dtype)), None


to_routes.defvjp(_to_routes, _from_routes)


def route_losses(
    net: RoutedNetwork,
    a: Float[Array, "domain n width"],
    labels: Int[Array, "*own n"],
    table: RouteTable,
    loss: str,
) -> Float[Array, ""]:
    """Return the mean loss over trained routes and rows, given the first layer's sums.

    `labels` are base labels and decoders in base order (rows `Transforms.outputs`); (n,) where all
    input domains see the same images, else (M, n). `loss` is `"mse"`, half the squared norm
    (theory#conventions), or `"cross_entropy"`.
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
    wanted = labels if labels.ndim == 1 else labels[table.sources]
    each = _losses(out.reshape(m, -1, n, out.shape[-1]), wanted, loss)
    filled = table.filled.astype(h.dtype)
    return jnp.sum(filled[..., None] * each) / (n * jnp.sum(filled))


def _whole(net: RoutedNetwork, table: RouteTable) -> bool:
    # Deep decoders: all M^2 routes would need more memory than the trained ones.
    m, slots = table.sources.shape[-2:]
    return len(net.decoders) == 1 and _WHOLE * slots >= m


def _losses(out: Array, labels: Array, loss: str) -> Array:
    """Return the loss of every output (..., class), given labels that broadcast."""
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

    def of_sums(rest: RoutedNetwork, a: Array) -> Array:
        return route_losses(_with_first(rest, net.encoders[0]), a, labels, table, loss)

    value, (g, delta) = jax.value_and_grad(of_sums, argnums=(0, 1))(
        _with_first(net, None), first_layer(net, x)
    )
    if net.encoder_biases:
        g = eqx.tree_at(lambda w: w.encoder_biases[0], g, jnp.sum(delta, axis=1))
    return value, g, delta


def _with_first(net: RoutedNetwork, weights: Array | None) -> RoutedNetwork:
    """Replace the first layer's weights; None leaves them out of the tree."""
    return eqx.tree_at(lambda w: w.encoders[0], net, weights, is_leaf=lambda leaf: leaf is None)


@functools.partial(jax.named_call, name="image_step")
def step(
    net: RoutedNetwork,
    velocity: RoutedNetwork,
    x: Float[Array, "*domain n width"],
    labels: Int[Array, "*own n"],
    table: RouteTable,
    rates: tuple[Array | float, Array | float, Array | float],
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
    rest = jax.tree.map(lambda v, leaf: momentum * v + leaf, _with_first(velocity, None), g)
    velocity = _with_first(rest, first)
    return jax.tree.map(lambda w, v: w - rate * v, net, velocity), velocity, value


def _with_outer(start: Array, delta: Array, x: Array) -> Array:
    """`start` (M, hidden, width) plus the sum over rows of delta x^T."""
    rule = "mbh,bd->mhd" if x.ndim == 2 else "mbh,mbd->mhd"
    return start + jnp.einsum(rule, delta, x, precision=jax.lax.Precision.HIGHEST)


def full_gradient(
    net: RoutedNetwork, x: Array, labels: Array, table: RouteTable, loss: str
) -> tuple[Float[Array, ""], RoutedNetwork]:
    """Return the loss and its whole gradient, as a network."""
    value, g, delta = gradient(net, x, labels, table, loss)
    first = _with_outer(jnp.zeros_like(net.encoders[0]), delta, x)
    return value, _with_first(g, first)
