"""Which category in noisy data is learned as one: a block against its noise (theory#coherence)."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import Suggesting, dataset, is_concrete
from gdln_jax._checks.types import ArrayLike


class Coherence(NamedTuple):
    """How a category of some strength shows in noisy data.

    - `threshold`: the strength above which its mode stands out of the noise.
    - `seen`: the singular value of the data there; below the threshold the edge of the noise.
    - `item_overlap`, `feature_overlap`: squared overlap of the singular vectors with the category's
      own over items and over features; 0 below the threshold.
    """

    threshold: Float[Array, "..."]
    seen: Float[Array, "..."]
    item_overlap: Float[Array, "..."]
    feature_overlap: Float[Array, "..."]

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__


def coherence(strength: ArrayLike, items: ArrayLike, features: ArrayLike) -> Coherence:
    """Return how a category shows in Sigma^yx = strength u v^T plus noise of variance 1/features.

    Limit of large numbers (Benaych-Georges and Nadakuditi 2012; Saxe, McClelland and Ganguli 2019,
    category coherence). The two overlaps differ, and are easily interchanged.

    Args:
        strength: theta, the singular value of the category without noise.
        items: number of items N_o, the length of v.
        features: number of features N_f, the length of u.

    Raises:
        ValueError: numbers that are not above 0.
    """
    for name, given in (("strength", strength), ("items", items), ("features", features)):
        if is_concrete(given) and not np.all(np.asarray(given) > 0):
            raise ValueError(f"{name} is {given}; it must be above 0.")
    power = jnp.square(jnp.asarray(strength, float))
    ratio = jnp.asarray(items, float) / jnp.asarray(features, float)
    stands_out = power**2 > ratio
    # At the threshold the seen value is the edge, and both overlaps are 0.
    there = jnp.where(stands_out, power, jnp.sqrt(ratio))
    seen = jnp.sqrt((1 + there) * (ratio + there) / there)
    item = 1 - ratio * (1 + there) / (there * (there + ratio))
    feature = 1 - (ratio + there) / (there * (there + 1))
    outside = [jnp.where(stands_out, overlap, 0.0) for overlap in (item, feature)]
    return Coherence(jnp.broadcast_to(ratio**0.25, there.shape), seen, *outside)
