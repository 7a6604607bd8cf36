"""Gated data with other gates, which may be traced: what gates are learned through."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from gdln_jax._data.arrays import own_copy, real_array
from gdln_jax._data.boundary import check_inputs
from gdln_jax._data.gated import GatedData


def with_gates(
    data: GatedData,
    node_gates: Mapping[str, object] | None = None,
    edge_gates: Mapping[str, object] | None = None,
    *,
    groups: Int[Array, " n"] | Int[np.ndarray, " n"] | None = None,
) -> GatedData:
    """Return `data` with the named gates replaced, by values that may be traced.

    Args:
        node_gates: name -> one gate per example (n,); with `groups` one per group of examples
            (group,); or one number for all examples. Gates that are not named stay.
        edge_gates: the same for edges.
        groups: (n,) the group of each example, say its context.

    `data` may be stacked along leading axes (see `ModeNetworks`), which share the gates.

    Raises:
        ValueError: a gate of another shape, or that holds no finite real numbers; the message names
            it.
    """
    check_inputs(data)

    def spread(gates: Mapping[str, object] | None, kind: str) -> dict[str, Array]:
        filled = {}
        for name, value in (gates or {}).items():
            given = f"{kind}[{name!r}]"
            gate = own_copy(real_array(value, given), data.weights.dtype, given)
            if groups is not None and gate.ndim == 1:
                gate = gate[groups]
            if gate.shape != data.weights.shape[data.weights.ndim - gate.ndim :]:
                wanted = "(group,)" if groups is not None else f"({data.num_examples},)"
                raise ValueError(f"{kind}[{name!r}] has shape {gate.shape}; expected {wanted}.")
            filled[name] = jnp.broadcast_to(gate, data.weights.shape)
        return filled

    gates = (
        data.node_gates | spread(node_gates, "node_gates"),
        data.edge_gates | spread(edge_gates, "edge_gates"),
    )
    gated = eqx.tree_at(lambda d: (d.node_gates, d.edge_gates), data, gates)
    return gated.with_names(data.names)
