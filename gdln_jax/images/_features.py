"""Features of a small convolutional encoder, trained on the base images' classes and then frozen.

N feeds CIFAR-10 through the first blocks of a ResNet-18 that was pre-trained elsewhere; here
nothing is fetched, so the encoder is trained on the spot, and is much smaller.
"""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from gdln_jax._checks import Suggesting, check_integer
from gdln_jax._checks.types import PRNGKeyArray
from gdln_jax._scan import descend
from gdln_jax.images._evaluate import pixels
from gdln_jax.images._sets import ImageSet

_BATCH = 64
_RATE = 2e-3
_SAMPLE = 1000


class ConvEncoder(Suggesting, eqx.Module):
    """Two strided convolutions with ReLUs: images (n, height, width, channel) to rows (n, d).

    Features are divided by `scale`, so that their mean squared norm on the base images is that of
    the pixels, and rates need not follow the encoder.
    """

    layers: tuple[eqx.nn.Conv2d, ...]
    scale: Float[Array, ""]

    def __call__(self, images: Float[Array, "n height width channel"]) -> Float[Array, "n feature"]:
        # Frozen: training the routed network does not reach it.
        rows = self.features(images.astype(self.scale.dtype)) / self.scale
        return jax.lax.stop_gradient(rows.astype(images.dtype))

    def features(self, images: Float[Array, "n height width channel"]) -> Float[Array, "n feature"]:
        """Return the features before they are scaled, trainable."""
        h = images
        for layer in self.layers:
            h = jax.nn.relu(_convolve(layer, h))
        return h.reshape(len(h), -1)


def _convolve(layer: eqx.nn.Conv2d, x: Array) -> Array:
    # One product of patches: XLA's own convolutions are many times slower within loops on CPUs.
    height, width = (math.ceil(n / 2) for n in x.shape[1:3])
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [
        padded[:, i : i + 2 * height - 1 : 2, j : j + 2 * width - 1 : 2]
        for i, j in itertools.product(range(3), range(3))
    ]
    kernel = jnp.moveaxis(layer.weight, (2, 3), (0, 1)).reshape(9, *layer.weight.shape[:2])
    highest = jax.lax.Precision.HIGHEST
    out = jnp.einsum("tnhwc,toc->nhwo", jnp.stack(taps), kernel, precision=highest)
    return out if layer.bias is None else out + layer.bias[:, 0, 0]


def train_encoder(
    images: ImageSet, *, channels: tuple[int, int] = (16, 32), steps: int = 1000, key: PRNGKeyArray
) -> ConvEncoder:
    """Train a `ConvEncoder` and a linear read-out on the classes of `images`; return the encoder.

    Cross-entropy, Adam, batches of 64; both convolutions are 3 x 3 with stride 2, so that 32 x 32
    colour images become 8 x 8 x 32 = 2048 features. Pass it as `encode` to `make_transforms`.

    Raises:
        ValueError: images below 4 x 4 or steps below 1.
    """
    steps = check_integer(steps, "steps", minimum=1)
    height, width, depth = images.shape
    if min(height, width) < 4:
        raise ValueError(f"images are {height} x {width}; the encoder needs at least 4 x 4.")
    keys = jax.random.split(key, 4)
    layers = tuple(
        eqx.nn.Conv2d(a, b, 3, stride=2, padding=1, key=k)
        for a, b, k in zip((depth, *channels), channels, keys, strict=False)
    )
    features = math.ceil(math.ceil(height / 2) / 2) * math.ceil(math.ceil(width / 2) / 2)
    head = eqx.nn.Linear(features * channels[1], images.classes, key=keys[2])
    model = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32), (ConvEncoder(layers, jnp.ones(())), head)
    )
    encoder = _fit(model, jnp.asarray(images.images), jnp.asarray(images.labels), keys[3], steps)
    x = pixels(images.head(_SAMPLE).images, jnp.float32)
    ratio = jnp.sum(encoder(x) ** 2) / jnp.sum(x**2)
    return eqx.tree_at(lambda e: e.scale, encoder, jnp.sqrt(ratio))


@eqx.filter_jit
def _fit(
    model: tuple[ConvEncoder, eqx.nn.Linear],
    images: Array,
    labels: Int[Array, " n"],
    key: PRNGKeyArray,
    steps: int,
) -> ConvEncoder:
    def loss(model: tuple[ConvEncoder, eqx.nn.Linear], chosen: Array) -> Array:
        encoder, head = model
        out = jax.vmap(head)(encoder.features(pixels(images[chosen], jnp.float32)))
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(out, labels[chosen]))

    def draw(number: Array) -> Array:
        return jax.random.randint(jax.random.fold_in(key, number), (_BATCH,), 0, len(labels))

    run = descend(loss, model, optax.adam(_RATE), steps, draw=draw, save_every=steps)
    return run.final[0]
