"""M views of one set of images (N App. D): rotations or pixel permutations, permuted labels.

All are linear maps of the pixels, kept as indices (and four weights a pixel for rotations), so
that memory grows with M x pixels and never with M x images.
"""

import itertools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike, Float, Int

from gdln_jax._checks import Suggesting, check_choice, check_integer
from gdln_jax._checks.types import PRNGKeyArray

_KINDS = ("permutation", "rotation")
_OUTPUTS = ("random", "lexicographic")


class Transforms(Suggesting, eqx.Module):
    """M input transformations and M permutations of the labels; made by `make_transforms`.

    Attributes:
        kind: `"permutation"` or `"rotation"`.
        shape: (height, width, channel) of an image.
        index, weight: value p of view i is the sum over taps t of weight[i, p, t] * image[index[i,
            p, t]]; one tap and no weight for permutations. Over positions for rotations, which act
            on every channel alike; over all values for permutations.
        outputs: (M, class) label c becomes outputs[j, c] in output domain j.
        encode: a frozen map of images (n, height, width, channel) to features (n, d) that is
            applied after the transformation; None for the pixels themselves.
    """

    kind: str = eqx.field(static=True)
    shape: tuple[int, int, int] = eqx.field(static=True)
    index: Int[Array, "domain position tap"]
    weight: Float[Array, "domain position tap"] | None
    outputs: Int[Array, "domain label"]
    encode: Callable[[Array], Array] | None
    width: int = eqx.field(static=True)

    @property
    def num_domains(self) -> int:
        """M."""
        return self.index.shape[0]

    @property
    def linear(self) -> bool:
        """Whether inputs are linear in the images (no `encode`)."""
        return self.encode is None

    def inputs(self, x: Float[Array, "*domain n pixel"]) -> Float[Array, "domain n width"]:
        """Return what input domains see of the same rows (n, pixel) or their own (M, n, pixel)."""
        own = 0 if x.ndim == 3 else None
        views = jax.vmap(self._view, in_axes=(0, 0, own))(self.index, self.weight, x)
        if self.encode is None:
            return views
        flat = views.reshape(-1, *self.shape)
        return self.encode(flat).reshape(*views.shape[:2], -1)

    def view(self, i: int | Array, x: Float[Array, "n pixel"]) -> Float[Array, "n width"]:
        """Return what input domain `i` sees of the rows `x`."""
        rows = self._view(self.index[i], None if self.weight is None else self.weight[i], x)
        return rows if self.encode is None else self.encode(rows.reshape(-1, *self.shape))

    def _view(self, index: Array, weight: Array | None, x: Array) -> Array:
        if weight is None:
            return x[:, index[:, 0]]
        planes = x.reshape(len(x), -1, self.shape[2])
        weight = weight.astype(x.dtype)
        taps = (planes[:, index[:, t]] * weight[:, t, None] for t in range(index.shape[1]))
        total = next(taps)
        for tap in taps:
            total = total + tap
        return total.reshape(len(x), -1)

    def labels(self, labels: Int[Array, " n"]) -> Int[Array, "domain n"]:
        """Return the labels (M, n) of every output domain."""
        return self.outputs[:, labels]

    def to_base(self, encoders: Float[Array, "... domain hidden width"]) -> Array:
        """Absorb pixel permutations: encoders that act on the images themselves.

        W_i Pi_i = W_i with permuted columns, exactly; gradient descent, momentum and flow commute
        with it, so a network can be trained on one copy of the images and read back by `to_views`.
        """
        return self._columns(encoders, jnp.argsort(self.index[:, :, 0], axis=1))

    def to_views(self, encoders: Float[Array, "... domain hidden width"]) -> Array:
        """Undo `to_base`."""
        return self._columns(encoders, self.index[:, :, 0])

    def _columns(self, encoders: Array, order: Array) -> Array:
        if not self.absorbs:
            raise ValueError("only pixel permutations without features can be absorbed.")
        index = order[:, None, :]
        lead = (1,) * (encoders.ndim - index.ndim)
        return jnp.take_along_axis(encoders, index.reshape(*lead, *index.shape), axis=-1)

    @property
    def absorbs(self) -> bool:
        """Whether `to_base` exists."""
        return self.kind == "permutation" and self.linear

    @property
    def label_agreement(self) -> float:
        """Share of labels on which two different output domains agree, mean over pairs.

        1/classes in the mean for random permutations; what an untrained route would get right
        with the decoder of another output domain.
        """
        m, k = self.outputs.shape
        table = np.asarray(self.outputs)
        if m < 2:
            return 1.0
        # Per class: how often two domains send it to the same label.
        counts = np.stack([np.bincount(table[:, c], minlength=k) for c in range(k)])
        return float((counts * (counts - 1)).sum() / (m * (m - 1) * k))

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        features = "" if self.linear else f" through {self.width} features"
        return (
            f"Transforms({self.num_domains} x {self.kind} of {shape}{features}, outputs agree on "
            f"{self.label_agreement:.1%} of labels)"
        )


def make_transforms(
    kind: str,
    num_domains: int,
    shape: tuple[int, ...],
    classes: int,
    *,
    outputs: str = "random",
    key: PRNGKeyArray,
    encode: Callable[[Array], Array] | None = None,
) -> Transforms:
    """Draw M input transformations and M label permutations.

    Args:
        kind: `"permutation"`: random pixel permutations; `"rotation"`: by 180 i/M degrees about the
            centre, bilinear, 0 outside.
        num_domains: M.
        shape: (height, width[, channel]) of an image.
        classes: number of labels.
        outputs: `"random"` permutations of the labels, all different while there are enough;
            `"lexicographic"`: the first M in that order, as the field's script has it. Those leave
            the first labels where they are, so that output domains agree on most labels (60-71 % of
            them for M = 40 to 100) and untrained routes look good without any transfer.
        key: JAX random key.
        encode: see `Transforms`.

    Raises:
        ValueError: for an unknown kind, or fewer than M permutations of the classes.
    """
    check_choice(kind, _KINDS, "kind")
    check_choice(outputs, _OUTPUTS, "outputs")
    m = check_integer(num_domains, "num_domains", minimum=1)
    classes = check_integer(classes, "classes", minimum=2)
    shape = (*shape, 1)[:3]
    if classes < 13 and math.factorial(classes) < m:
        raise ValueError(
            f"{m} output domains need {m} different permutations, but {classes} classes have "
            f"only {math.factorial(classes)}."
        )
    rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), jnp.uint32)))
    height, width, channel = shape
    size = height * width * channel
    if kind == "permutation":
        index = np.stack([rng.permutation(size) for _ in range(m)])[..., None]
        weight = None
    else:
        index, weight = rotation_taps(m, height, width)
        weight = jnp.asarray(weight)
    table = _random_orders(rng, m, classes) if outputs == "random" else _first_orders(m, classes)
    features = size
    if encode is not None:
        probe = jax.eval_shape(encode, jax.ShapeDtypeStruct((1, *shape), jnp.float32))
        if len(probe.shape) != 2 or probe.shape[0] != 1:
            raise ValueError(
                f"encode maps (1, {', '.join(map(str, shape))}) to {probe.shape}; expected (1, d)."
            )
        features = probe.shape[1]
    return Transforms(
        kind,
        (height, width, channel),
        jnp.asarray(index, jnp.int32),
        weight,
        jnp.asarray(table, jnp.int32),
        encode,
        features,
    )


def rotation_taps(num_domains: int, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and weights (M, pixel, 4) of bilinear rotations by 180 i/M degrees.

    The same as `scipy.ndimage.rotate(image, 180 i/M, reshape=False, order=1,
    mode="grid-constant")`: counter-clockwise about the centre, 0 outside of the image.
    """
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    centre = (height - 1) / 2, (width - 1) / 2
    y, x = rows.ravel() - centre[0], columns.ravel() - centre[1]
    angle = np.pi * np.arange(num_domains)[:, None] / num_domains
    c, s = np.cos(angle), np.sin(angle)
    # Where each pixel of the rotated image comes from.
    from_y = c * y + s * x + centre[0]
    from_x = -s * y + c * x + centre[1]
    # Sums of rounding size away from a whole number would read a neighbour with weight 1e-16.
    from_y, from_x = np.round(from_y, 12), np.round(from_x, 12)
    low_y, low_x = np.floor(from_y).astype(int), np.floor(from_x).astype(int)
    index, weight = [], []
    for dy, dx in itertools.product((0, 1), (0, 1)):
        tap_y, tap_x = low_y + dy, low_x + dx
        share = (1 - np.abs(from_y - tap_y)) * (1 - np.abs(from_x - tap_x))
        there = (tap_y >= 0) & (tap_y < height) & (tap_x >= 0) & (tap_x < width)
        index.append(np.where(there, tap_y * width + tap_x, 0))
        weight.append(np.where(there, share, 0.0))
    return np.stack(index, axis=-1), np.stack(weight, axis=-1)


def _random_orders(rng: np.random.Generator, count: int, classes: int) -> np.ndarray:
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        found[tuple(rng.permutation(classes).tolist())] = None
    return np.array(list(found))


def _first_orders(count: int, classes: int) -> np.ndarray:
    # An iterator: the list of all 10! permutations is not needed for the first hundred.
    return np.array(list(itertools.islice(itertools.permutations(range(classes)), count)))


def linear_maps(transforms: Transforms, dtype: DTypeLike = np.float64) -> np.ndarray:
    """Return the transformations as matrices (M, width, pixel); O(M pixels^2) memory."""
    eye = jnp.eye(math.prod(transforms.shape), dtype=dtype)
    return np.asarray(jnp.swapaxes(transforms.inputs(eye), 1, 2))
