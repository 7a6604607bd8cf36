"""The loss on classes of edges, with activities that the classes make equal computed once.

So a solution costs the same for 10 and for 10,000 domains. Merging is host code in NumPy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._graph import NodeClass
from gdln_jax._network.edges import by_store
from gdln_jax._reduction.classes import equal_rows
from gdln_jax._reduction.loss import ModeData

# Inputs that agree to this relative precision, or differ by less than rounding beside the other
# modes, are taken for equal.
_EQUAL, _NOISE = 1e-11, 1e-14


class Work(eqx.Module):
    """Products of one kind: gate * x[label] * (merged activity or given input), per pair.

    They are added to `target`: merged hidden activities, or with a `readout` the predictions of
    output group `group`.
    """

    label: Int[Array, " pair"]
    gate: Float[Array, "pair mode"]
    source: Int[Array, " pair"] | None
    given: Float[Array, "pair row mode"] | None
    target: Int[Array, " pair"]
    readout: Float[Array, "pair *width mode"] | None
    group: int = eqx.field(static=True)


class Program(eqx.Module):
    """The loss on classes: work in topological order, then targets and weights per group."""

    work: tuple[Work, ...]
    targets: tuple[Float[Array, "prediction row width"], ...]
    weights: tuple[Float[Array, "prediction row width"], ...]
    hidden: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    constant: Array
    fixed: bool = eqx.field(static=True, default=False)


def program_loss(x: Float[Array, "cls mode"], program: Program) -> Float[Array, ""]:
    """l on classes; O(modes x merged pairs)."""
    if program.fixed:
        x = jnp.concatenate([x, jnp.ones_like(x[:1])])
    h = jnp.zeros((program.hidden, program.rows, x.shape[1]))
    predictions = [jnp.zeros(target.shape) for target in program.targets]
    for work in program.work:
        before = work.given if work.source is None else h[work.source]
        assert before is not None
        sent = before * (work.gate * x[work.label])[:, None, :]
        if work.readout is None:
            h = h.at[work.target].add(sent)
            continue
        if work.readout.ndim == 2:
            sent = sent * work.readout[:, None, :]
        else:
            sent = jnp.einsum("pbm,pym->pby", sent, work.readout)
        predictions[work.group] = predictions[work.group].at[work.target].add(sent)
    loss = program.constant
    for prediction, target, weight in zip(
        predictions, program.targets, program.weights, strict=True
    ):
        loss = loss + 0.5 * jnp.sum(weight * jnp.square(target - prediction))
    return loss


class _Pairs(NamedTuple):
    """Active pairs of one bundle, flat, padding dropped; `given` (pair, row, mode): inputs."""

    bundle: int
    edge: np.ndarray
    source: np.ndarray
    gate: np.ndarray
    target: np.ndarray
    given: np.ndarray | None


class _Value(NamedTuple):
    """What decides the value that a pair sends, as numbers: equal for pairs that send the same.

    `source` numbers a merged activity, or the given inputs from -1 downwards; `readout` is -1 for
    pairs into hidden activities.
    """

    label: int
    gate: float
    mask: int
    readout: int
    source: int


class _Term(NamedTuple):
    """One pair among those that add up to an activity: its value, and its place in the tables."""

    value: _Value
    bundle: int
    pair: int


class _Merged(NamedTuple):
    """A merged activity: its terms, and its number among predictions or hidden activities."""

    terms: list[_Term]
    number: int
    is_output: bool


def _pairs(data: ModeData, k: int) -> _Pairs | None:
    stage = data.stages[k]
    if stage is None:
        return None
    source, edge, gate, target = stage.pairs()
    used = np.flatnonzero(gate)
    given = data.inputs[k]
    rows = None if given is None else np.asarray(given).reshape(-1, *given.shape[2:])[used]
    return _Pairs(k, edge[used], source[used], gate[used], target[used], rows)


class _Merger:
    """Numbers activities so that those which the classes make equal share a number.

    Classes of nodes are merged from the inputs on, since an activity is fixed by the numbers of
    those that it is made of: `number` maps each class done to (activity,) numbers.
    """

    def __init__(self, data: ModeData, labels: np.ndarray, masks: np.ndarray):
        self.data, self.graph = data, data.graph
        if data.wiring is None:
            self.labels = by_store(self.graph, labels, core=0)
            self.masks = by_store(self.graph, masks, core=1)
        else:
            # Frozen edges have a label of their own, whose strength is 1, and theirs as a mask.
            fixed = (
                np.zeros((0, masks.shape[1])) if data.frozen is None else np.asarray(data.frozen)
            )
            labels = np.concatenate([labels, np.full(len(fixed), labels.max() + 1)])
            masks, wiring = np.concatenate([masks, fixed]), [np.asarray(w) for w in data.wiring]
            self.labels = tuple(labels[rows] for rows in wiring)
            self.masks = tuple(masks[rows] for rows in wiring)
        self.hidden = 0
        self.number: dict[NodeClass, np.ndarray] = {}
        self.work: list[Work] = []

    def merge_class(self, node_class: NodeClass, count: int, group: int) -> int:
        """Number the `count` activities of a class; returns how many predictions are distinct."""
        every = [
            pairs
            for k, bundle in enumerate(self.graph.bundles)
            if bundle.target == node_class and (pairs := _pairs(self.data, k)) is not None
        ]
        terms, is_output = self._terms(every, count)
        merged: dict[tuple[bool, tuple[_Value, ...]], _Merged] = {}
        number, predictions = np.zeros(count, int), 0
        for i, (mine, output) in enumerate(zip(terms, is_output.tolist(), strict=True)):
            mine.sort(key=lambda term: term.value)
            key = (output, tuple(term.value for term in mine))
            if key not in merged:
                merged[key] = _Merged(mine, predictions if output else self.hidden, output)
                predictions += int(output)
                self.hidden += int(not output)
            number[i] = merged[key].number
        self.number[node_class] = number
        for pairs in every:
            for output in (False, True):
                chosen = [
                    (term.pair, activity.number)
                    for activity in merged.values()
                    for term in activity.terms
                    if term.bundle == pairs.bundle and activity.is_output == output
                ]
                if chosen:
                    self.work.append(self._work(pairs, chosen, output, group))
        return predictions

    def _terms(self, every: list[_Pairs], count: int) -> tuple[list[list[_Term]], np.ndarray]:
        """The terms of each activity, and whether it is a prediction (activity,)."""
        given = _labels([pairs.given for pairs in every])
        readouts = _labels([self.data.readouts[pairs.bundle] for pairs in every])
        masks = _labels([self.masks[pairs.bundle] for pairs in every])
        terms: list[list[_Term]] = [[] for _ in range(count)]
        is_output = np.zeros(count, bool)
        for pairs, inputs, shown, mask in zip(every, given, readouts, masks, strict=True):
            bundle = self.graph.bundles[pairs.bundle]
            ends = np.array(
                [not self.graph.outgoing[self.graph.edge(e).target] for e in bundle.edges]
            )
            output = ends[pairs.edge]
            is_output[pairs.target[output]] = True
            source = -1 - inputs if inputs is not None else self.number[bundle.source][pairs.source]
            readout = np.where(output, shown[pairs.edge], -1) if shown is not None else -1
            assert mask is not None
            columns = np.broadcast_arrays(
                self.labels[pairs.bundle][pairs.edge], pairs.gate, mask[pairs.edge], readout, source
            )
            for p, parts in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
                terms[pairs.target[p]].append(_Term(_Value(*parts), pairs.bundle, p))
        return terms, is_output

    def _work(self, pairs: _Pairs, chosen: list[tuple[int, int]], output: bool, group: int) -> Work:
        """The products of the `chosen` (pair, merged activity)."""
        p, target = np.array(chosen).T
        edge, k = pairs.edge[p], pairs.bundle
        before = None
        if pairs.given is None:
            before = jnp.asarray(self.number[self.graph.bundles[k].source][pairs.source[p]])
        readout = self.data.readouts[k]
        return Work(
            label=jnp.asarray(self.labels[k][edge]),
            gate=jnp.asarray(pairs.gate[p][:, None] * self.masks[k][edge]),
            source=before,
            given=None if pairs.given is None else jnp.asarray(pairs.given[p]),
            target=jnp.asarray(target),
            readout=readout[edge] if output and readout is not None else None,
            group=group,
        )


def merged(data: ModeData, labels: np.ndarray, masks: np.ndarray) -> Program:
    """Merge activities and predictions that are equal for class-constant strengths."""
    merger = _Merger(data, labels, masks)
    targets, weights, constant = [], [], float(data.constant)
    counts = dict(zip(data.graph.classes, data.counts, strict=True))
    rows = 1
    for node_class, table in zip(data.graph.classes, data.outputs, strict=True):
        predictions = merger.merge_class(node_class, counts[node_class], len(targets))
        if table is None:
            continue
        y, w = np.asarray(table.target, float), np.asarray(table.weight, float)
        w = np.broadcast_to(w, y.shape)
        where = merger.number[node_class][table.instances]
        weight = np.zeros((predictions, *y.shape[1:]))
        moment = np.zeros_like(weight)
        np.add.at(weight, where, w)
        np.add.at(moment, where, w * y)
        target = moment / np.where(weight > 0, weight, 1)
        # As squares: a difference of sums could fall below 0.
        constant += 0.5 * float(np.sum(w * np.square(y - target[where])))
        targets.append(jnp.asarray(target))
        weights.append(jnp.asarray(weight))
        rows = y.shape[1]
    return Program(
        work=tuple(merger.work),
        targets=tuple(targets),
        weights=tuple(weights),
        hidden=merger.hidden,
        rows=rows,
        constant=jnp.asarray(constant),
        fixed=data.frozen is not None,
    )


def _labels(tables: Sequence[Array | np.ndarray | None]) -> list[np.ndarray | None]:
    """Number the entries of several tables along their first axis, equal ones alike."""
    there = [np.asarray(t).reshape(len(t), -1) for t in tables if t is not None]
    if not there:
        return [None] * len(tables)
    labels = equal_rows(np.concatenate(there), _EQUAL, _NOISE)
    parts = iter(np.split(labels, np.cumsum([len(t) for t in there])[:-1]))
    return [None if t is None else next(parts) for t in tables]
