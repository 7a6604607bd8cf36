"""The loss in aligned coordinates, l(b) = L(U_e diag(b_e) V_e^T) (theory#reduction).

`ModeStrengths` holds the b_e, `ModeData` the data as the modes see them. Evaluating l costs
O(modes x active edges), without paths; where modes do not meet in the loss the examples of a
block collapse to one.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

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


class Products(eqx.Module):
    """The predictions of a class summed over all that share an edge and the activity it reads.

    With strengths c of the edges and activities h, predictions are g c h, where g is gate times
    sign. `s` and `d` (mode, edge, activity) are the sums of w g y and w g^2 over weights w and
    targets y, `best` is s/d, `rest` is what of the loss remains where c h is that, and `whole`
    the loss where it is 0.
    """

    s: Array
    d: Array
    best: Array
    rest: Array
    whole: Array

    def loss(self, c: Float[Array, "edge mode"], h: Float[Array, "activity mode"]) -> Array:
        """The loss of these predictions: its value from squares, its derivatives from sums.

        The sums of N Eq. 10 cost a quarter, but the value would be a difference of large numbers.
        """
        gap = self.best - c.T[:, :, None] * h.T[:, None, :]
        squares = self.rest + 0.5 * jnp.sum(self.d * jnp.square(gap))
        asked = jnp.einsum("mea,am->em", self.s, h)
        reached = jnp.einsum("mea,am->em", self.d, jnp.square(h))
        sums = self.whole + 0.5 * jnp.sum(jnp.square(c) * reached) - jnp.sum(c * asked)
        return jax.lax.stop_gradient(squares) + (sums - jax.lax.stop_gradient(sums))


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
    - `dense`: the bundles into outputs whose pairs of edge and activity are so many that
      products of matrices are faster than gathers; `products` of these, see `with_products`.
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
    dense: tuple[int, ...] = eqx.field(static=True, default=())
    products: tuple[Products, ...] | None = None


def with_products(data: PyTree) -> PyTree:
    """`ModeData` with sums over predictions where these are `dense`; other data as they are.

    Values of `mode_loss` stay the same, and derivatives cost less: 4,000 routes between 100 inputs
    and 100 outputs take two products with (mode, 100, 100) in place of gathers and scatters of
    every route. To be called once in a program that takes many derivatives.
    """
    if not isinstance(data, ModeData) or not data.dense:
        return data
    products = tuple(_products(data, k) for k in data.dense)
    return dataclasses.replace(data, products=products)


def _products(data: ModeData, k: int) -> Products:
    """The sums over the predictions that bundle `k` makes, each from one edge and one activity."""
    bundle, stage, readout = data.graph.bundles[k], data.stages[k], data.readouts[k]
    classes = list(data.graph.classes)
    table = data.outputs[classes.index(bundle.target)]
    assert stage is not None
    assert table is not None
    assert readout is not None
    chunks, size = stage.shape
    target, weight = table.target[:, 0], jnp.broadcast_to(table.weight, table.target.shape)[:, 0]
    count = data.counts[classes.index(bundle.target)]
    instance = _listed(table.instance, count)
    zero = jnp.zeros((count, target.shape[-1]), target.dtype)
    asked = zero.at[instance].add(weight * target)
    weighed = zero.at[instance].add(weight)
    edge = jnp.repeat(_listed(stage.edge, chunks), size)
    activity, prediction = (_listed(side, chunks * size) for side in (stage.source, stage.target))
    gate = 1.0 if stage.gate is None else stage.gate.reshape(-1, 1)
    sign = gate * readout[edge]
    shape = zero.shape[-1], len(bundle.edges), data.counts[classes.index(bundle.source)]
    empty = jnp.zeros(shape, target.dtype)
    s = empty.at[:, edge, activity].add((sign * asked[prediction]).T)
    d = empty.at[:, edge, activity].add((jnp.square(sign) * weighed[prediction]).T)
    best = jnp.where(d > 0, s / jnp.where(d > 0, d, 1), 0)
    reached = zero.at[prediction].add(sign * best[:, edge, activity].T)[instance]
    rest, whole = (0.5 * jnp.sum(weight * jnp.square(target - y)) for y in (reached, 0.0))
    return Products(s, d, best, rest, whole)


def _listed(index: Array | None, count: int) -> Array:
    """An index as one row; None stands for all of `count` in order."""
    return jnp.arange(count) if index is None else index.reshape(-1)


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
    products = dict(zip(data.dense, data.products or (), strict=False))
    summed: list[Array] = []

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
            if k in products:
                source = activity[bundle.source]
                assert source is not None
                c = b.stacks[k] * data.masks[k]
                summed.append(products[k].loss(c, source[:, 0]))
            elif readout is not None:
                shown = stage.added(_shown(sent, stage.chosen(readout)), counts[bundle.target])
                predicted[bundle.target] = _plus(predicted[bundle.target], shown)
            if bundle.target in sending:
                total = _plus(total, stage.added(sent, counts[bundle.target]))
        return total

    none = dict.fromkeys(classes)
    carried(graph, data.stages, data.counts, none, step, given=data.inputs, frozen=False)
    ends = {graph.bundles[k].target for k in products}
    return sum([*summed, *_squares(data, predicted, ends)], data.constant)


def _squares(
    data: ModeData, predicted: Mapping[NodeClass, Array | None], done: Collection[NodeClass]
) -> Iterator[Array]:
    """The loss of each class of predictions that is not `done` by sums."""
    for node_class, table in zip(data.graph.classes, data.outputs, strict=True):
        if table is not None and node_class not in done:
            h = predicted[node_class]
            assert h is not None
            error = table.target - table.predictions(h)
            yield 0.5 * jnp.sum(table.weight * jnp.square(error))


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
