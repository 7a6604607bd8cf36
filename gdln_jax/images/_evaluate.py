"""Accuracy and error of all M^2 routes, in chunks of images, so that memory stays bounded."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float, Int

from gdln_jax._checks.types import ArrayLike
from gdln_jax.images._network import RoutedNetwork, first_layer
from gdln_jax.images._sets import ImageSet
from gdln_jax.images._transforms import Transforms

# Outputs of all routes of one chunk of images take about this many bytes.
_CHUNK_BYTES = 64 * 2**20


def route_accuracy(
    net: RoutedNetwork, transforms: Transforms, images: ImageSet, *, chunk: int | None = None
) -> Float[np.ndarray, "*run input output"]:
    """Return the share of `images` that each of M^2 routes classifies as its output domain asks.

    `net` acts on what input domains see and answers in the labels of output domains (as trained
    networks are returned); it may have a leading axis of runs. Cost O(n M^2 (hidden x classes))
    beside the encoders'; `chunk` images at a time, by default as many as 64 MB hold.
    """
    runs = net.encoders[0].ndim - 3
    return accuracy_in_base(reordered(net, transforms.outputs), transforms, images, chunk, runs)


def reordered(net: RoutedNetwork, order: Int[Array, "domain class"]) -> RoutedNetwork:
    """Reorder the outputs of every decoder: `Transforms.outputs` brings them to base labels."""
    net = eqx.tree_at(lambda n: n.decoders[-1], net, take_outputs(net.decoders[-1], order))
    if net.decoder_biases:
        row = take_outputs(net.decoder_biases[-1][..., None], order)[..., 0]
        net = eqx.tree_at(lambda n: n.decoder_biases[-1], net, row)
    return net


def take_outputs(
    decoders: Float[Array, "... domain class width"], order: Array
) -> Float[Array, "... domain class width"]:
    """Reorder the output units of every output domain; `order` is (M, class)."""
    index = order[..., None]
    lead = (1,) * (decoders.ndim - index.ndim)
    return jnp.take_along_axis(decoders, index.reshape(*lead, *index.shape), axis=-2)


def accuracy_in_base(
    net: RoutedNetwork,
    transforms: Transforms,
    images: ImageSet,
    chunk: int | None,
    runs: int,
    *,
    absorbed: bool = False,
) -> Float[np.ndarray, "*run input output"]:
    """`route_accuracy` of a network whose decoders answer in base labels.

    With `absorbed` its encoders act on the images themselves, too (`Transforms.to_base`).
    """
    m, classes = net.num_domains, net.decoders[-1].shape[-2]
    count = int(np.prod(net.encoders[0].shape[:runs], dtype=int))
    if chunk is None:
        widest = max(classes * m, transforms.width, net.encoders[0].shape[-2])
        chunk = max(1, _CHUNK_BYTES // (4 * count * m * widest))
    chunk = min(chunk, len(images))
    right = np.zeros((*net.encoders[0].shape[:runs], m, m))
    flat, labels = images.flat, images.labels
    for start in range(0, len(images), chunk):
        rows, wanted = flat[start : start + chunk], labels[start : start + chunk]
        pad = chunk - len(rows)
        # Padding has label -1, which no output answers.
        rows = np.pad(rows, [(0, pad), (0, 0)])
        wanted = np.pad(wanted, (0, pad), constant_values=-1)
        right += np.asarray(_hits(net, transforms, rows, wanted, runs, absorbed))
    return right / len(images)


@eqx.filter_jit
def _hits(
    net: RoutedNetwork,
    transforms: Transforms,
    rows: ArrayLike,
    labels: ArrayLike,
    runs: int,
    absorbed: bool,
) -> Array:
    x = pixels(rows, net.encoders[0].dtype)
    x = x if absorbed else transforms.inputs(x)

    def one(net: RoutedNetwork) -> Array:
        out = net.decode_all(net.after_first(first_layer(net, x)))
        return jnp.sum(jnp.argmax(out, axis=-1) == jnp.asarray(labels)[:, None], axis=1)

    return jax.vmap(one)(net) if runs else one(net)


def pixels(rows: ArrayLike, dtype: DTypeLike) -> Array:
    """Return stored pixels as networks see them (`ImageSet.values`), traced."""
    rows = jnp.asarray(rows)
    scale = 255 if rows.dtype == jnp.uint8 else 1
    return rows.astype(dtype) / jnp.asarray(scale, dtype)


def trained_and_untrained(
    accuracy: Float[np.ndarray, "*run input output"], pattern: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Return means over trained and over untrained routes, per run; NaN where there are none."""
    accuracy, pattern = np.asarray(accuracy), np.asarray(pattern, float)
    with np.errstate(invalid="ignore"):
        means = [
            np.sum(accuracy * chosen, axis=(-1, -2)) / np.sum(chosen, axis=(-1, -2))
            for chosen in (pattern, 1 - pattern)
        ]
    return np.asarray(means[0]), np.asarray(means[1])
