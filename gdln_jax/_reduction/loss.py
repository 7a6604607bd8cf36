"""The loss in aligned coordinates, l(b) = L(U_e diag(b_e) V_e^T) (theory#reduction).

`ModeStrengths` holds the b_e, `ModeData` the data as the modes see them. Evaluating l costs
O(modes x active edges), without paths; where modes do not meet in the loss the examples of a
block collapse to one.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax._data.packed import Compared, Stage
from gdln_jax._data.runs import Activity, Given, Level, carried
from gdln_jax._graph import Graph, NodeClass
from gdln_jax._reduction.strengths import ModeStrengths


class ModeTable(Compared):
    """What the predictions of one class of output nodes are compared with.

    The last axis is the modes, or the width of the output where its frames differ between paths.
    """

    target: Float[Array, "pair row mode"]
    weight: Float[Array, "pair row _"]


class ModeData(eqx.Module):
    """What the modes see of the data.

    - `inputs`: per bundle that leaves input nodes V_e^T x of each active pair (chunk, pair, row,
      mode), else None.
    - `stages`, `counts`: as in `PackedData`.
    - `masks`: per store (parameter, mode): 0 where a mode does not fit through.
    - `readouts`: per bundle into output nodes how a mode shows in the output: signs (edge, mode)
      beside a frame that the edges share which are active together in a prediction, or full
      frames (edge, width, mode) where there is none (H's overlap terms).
    - `outputs`: targets and weights in the same coordinates.
    - `constant`: what of the loss no mode can change.
    - `wiring`: of tied edges per bundle (edge,) the row of each edge's strengths among those of all
      trainable parameters followed by `frozen` (frozen edge, mode); None without ties.
    """

    graph: Graph = eqx.field(static=True)
    inputs: tuple[Array | None, ...]
    stages: tuple[Stage | None, ...]
    counts: tuple[int, ...] = eqx.field(static=True)
    masks: tuple[Array, ...]
    readouts: tuple[Array | None, ...]
    outputs: tuple[ModeTable | None, ...]
    constant: Array
    wiring: tuple[Array, ...] | None = None
    frozen: Array | None = None


def mode_loss(b: ModeStrengths, data: ModeData) -> Float[Array, ""]:
    """l(b); the same number as `mse` of the embedded network. O(modes x active edges)."""
    graph = data.graph
    classes = list(graph.classes)
    counts = dict(zip(classes, data.counts, strict=True))
    # The predictions of an output node live in other coordinates than what it might send on, so
    # they are kept apart from the hidden activities of the same class.
    predicted: dict[NodeClass, Array | None] = dict.fromkeys(classes)
    every = None if data.wiring is None else _all_strengths(b, data)
    sending = {bundle.source for bundle in graph.bundles}

    def step(
        level: Level, stages: Sequence[Stage | None], given: Given, activity: Activity
    ) -> Array | None:
        total = None
        for k, stage, seen in zip(level, stages, given, strict=True):
            if stage is None:
                continue
            bundle = graph.bundles[k]
            if every is None or data.wiring is None:
                strength = stage.chosen(b.stacks[k] * data.masks[k])
            else:
                strength = stage.chosen(every[data.wiring[k]])
            if seen is None:
                source = activity[bundle.source]
                assert source is not None
                sent = stage.gathered(source) * strength[:, None, None, :]
            else:
                sent = seen * strength[:, None, None, :]
            sent = stage.gated(sent)
            readout = data.readouts[k]
            if readout is not None:
                shown = stage.added(_shown(sent, stage.chosen(readout)), counts[bundle.target])
                predicted[bundle.target] = _plus(predicted[bundle.target], shown)
            if bundle.target in sending:
                total = _plus(total, stage.added(sent, counts[bundle.target]))
        return total

    none = dict.fromkeys(classes)
    carried(graph, data.stages, data.counts, none, step, given=data.inputs, frozen=False)
    loss = data.constant
    for node_class, table in zip(classes, data.outputs, strict=True):
        if table is not None:
            h = predicted[node_class]
            assert h is not None
            error = table.target - table.predictions(h)
            loss = loss + 0.5 * jnp.sum(table.weight * jnp.square(error))
    return loss


def _all_strengths(b: ModeStrengths, data: ModeData) -> Array:
    """Strengths of all parameters (row, mode), then those of frozen edges; see `wiring`."""
    rows = [x * mask for x, mask in zip(b.stacks, data.masks, strict=True)]
    return jnp.concatenate(rows if data.frozen is None else [*rows, data.frozen])


def _shown(
    sent: Float[Array, "chunk pair row mode"], readout: Float[Array, "chunk *shape"]
) -> Float[Array, "chunk pair row _"]:
    """What modes that are sent show in an output, by signs or by full frames."""
    if readout.ndim == 2:
        return sent * readout[:, None, None, :]
    return jnp.einsum("cpbm,cym->cpby", sent, readout)


def _plus(total: Array | None, more: Array) -> Array:
    return more if total is None else total + more
