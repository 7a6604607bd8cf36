"""Small networks side by side, one per mode: dynamics in frames that hold whatever the gates are.

Where all gates leave the same frames (they multiply whole groups of examples, each with the same
modes), the full network on aligned weights is a sum of small ones, exactly, for every value of the
gates; what is reduced once can then be differentiated in the gates.
"""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from gdln_jax._checks import Suggesting
from gdln_jax._data.gated import GatedData
from gdln_jax._network.gated import GatedNetwork


class ModeNetworks(Suggesting, eqx.Module):
    """Networks of one architecture that learn side by side, each from data of its own.

    Args:
        network: a `GatedNetwork` whose stacks have a leading axis (mode,).

    Called on `GatedData` stacked in the same way it returns output node -> (mode, n, |v|), so that
    `mse` is the sum of the modes' losses.
    """

    network: GatedNetwork

    def __call__(self, data: GatedData) -> dict[str, Float[Array, "mode n width"]]:
        """Return output node -> predictions (mode, n, |v|)."""
        return jax.vmap(_apply)(self.network, data)


def _apply(network: GatedNetwork, data: GatedData) -> dict[str, Array]:
    return network(data)
