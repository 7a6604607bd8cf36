"""The largest stable rate of SGD with momentum, from the curvature where training starts.

Large initial weights need it: the curvature of three layers grows as gain^4, and with the images'
mean squared norm, so that no single rate works for all gains and data sets.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks.types import ArrayLike
from gdln_jax.images._evaluate import pixels
from gdln_jax.images._network import RoutedNetwork
from gdln_jax.images._sets import ImageSet
from gdln_jax.images._step import RouteTable, full_gradient, route_table
from gdln_jax.images._training import Settings, check_fit, inward
from gdln_jax.images._transforms import Transforms

# Images of the sample: the top curvature of 8 and of 256 images differs by 1 to 20 %.
_SAMPLE = 64
# Power iterations: the estimate is then within a few percent, from below.
_ITERATIONS = 40


def stable_rate(
    net: RoutedNetwork,
    images: ImageSet,
    transforms: Transforms,
    pattern: ArrayLike,
    settings: Settings,
) -> Float[np.ndarray, "*run"]:
    """Return the rate 2 (1 + momentum) / lambda above which heavy-ball descent diverges from `net`.

    `lambda` is the largest eigenvalue (in size) of the Hessian of `settings`' loss on a few images,
    by power iteration; O(40 gradients). Training needs a smaller rate;
    `settings.learning_rate` is not read.

    Raises:
        ValueError: for images, transforms or a pattern that do not fit the network.
    """
    runs = net.encoders[0].ndim - 3
    check_fit(net, images, images, transforms, np.asarray(pattern), runs)
    table = route_table(pattern)
    sample = images.head(_SAMPLE)
    start = inward(net, transforms)
    x = pixels(sample.flat, net.encoders[0].dtype)
    x = x if transforms.absorbs else transforms.inputs(x)
    top = _top(start, x, jnp.asarray(sample.labels), table, settings.loss, runs)
    routes = np.asarray(pattern).sum(axis=(-1, -2)) if settings.over == "sum" else 1.0
    return np.asarray(2 * (1 + settings.momentum) / (np.asarray(top, float) * routes))


@eqx.filter_jit
def _top(
    net: RoutedNetwork, x: Array, labels: Array, table: RouteTable, loss: str, runs: int
) -> Array:
    def one(net: RoutedNetwork, table: RouteTable) -> Array:
        def grad(at: RoutedNetwork) -> RoutedNetwork:
            return full_gradient(at, x, labels, table, loss)[1]

        def again(v: RoutedNetwork, _: None) -> tuple[RoutedNetwork, Array]:
            size = _norm(v)
            v = jax.tree.map(lambda leaf: leaf / size, v)
            product = jax.jvp(grad, (net,), (v,))[1]
            return product, _norm(product)

        # The gradient has a part along the top direction; the weights, one along every layer.
        begin = jax.tree.map(jnp.add, grad(net), net)
        return jax.lax.scan(again, begin, None, length=_ITERATIONS)[1][-1]

    return jax.vmap(one)(net, table) if runs else one(net, table)


def _norm(tree: RoutedNetwork) -> Array:
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree)))
