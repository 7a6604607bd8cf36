"""The loss on classes of edges, with activities that the classes make equal computed once.

So a solution costs the same for 10 and for 10,000 domains. Merging is host code in NumPy.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._network.edges import by_bundle
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


def program_loss(x: Float[Array, "cls mode"], program: Program) -> Float[Array, ""]:
    """l on classes; O(modes x merged pairs)."""
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
    """Active pairs of one bundle, flat, padding dropped."""

    edge: np.ndarray
    source: np.ndarray
    gate: np.ndarray
    target: np.ndarray
    given: np.ndarray | None


def _pairs(data: ModeData, k: int) -> _Pairs | None:
    stage = data.stages[k]
    if stage is None:
        return None
    source, edge, gate, target = stage.pairs()
    used = np.flatnonzero(gate)
    given = data.inputs[k]
    rows = None if given is None else np.asarray(given).reshape(-1, *given.shape[2:])[used]
    return _Pairs(edge[used], source[used], gate[used], target[used], rows)


class _Merger:
    """Numbers activities so that those which the classes make equal share a number."""

    def __init__(self, data: ModeData, labels: np.ndarray, masks: np.ndarray):
        self.data, self.graph = data, data.graph
        self.labels = by_bundle(self.graph, labels, core=0)
        self.masks = by_bundle(self.graph, masks, core=1)
        self.hidden = 0
        self.number: dict[Any, np.ndarray] = {}
        self.work: list[Work] = []

    def merge_class(self, node_class: Any, count: int, group: int) -> int:
        """Number the activities of one class; returns how many predictions it has."""
        kinds = [
            (k, pairs)
            for k, bundle in enumerate(self.graph.bundles)
            if bundle.target == node_class and (pairs := _pairs(self.data, k)) is not None
        ]
        recipes, is_output = self._recipes(kinds, count)
        known: dict[tuple, int] = {}
        number, predictions = np.zeros(count, int), 0
        fresh: list[tuple[list[tuple], int, bool]] = []
        for i, recipe in enumerate(recipes):
            recipe.sort(key=lambda part: part[:5])
            key = (bool(is_output[i]), *(part[:5] for part in recipe))
            if key not in known:
                known[key] = predictions if is_output[i] else self.hidden
                fresh.append((recipe, known[key], bool(is_output[i])))
                predictions += int(is_output[i])
                self.hidden += int(not is_output[i])
            number[i] = known[key]
        self.number[node_class] = number
        for k, pairs in kinds:
            for out in (False, True):
                chosen = [
                    (part[6], target)
                    for recipe, target, output in fresh
                    for part in recipe
                    if part[5] == k and output == out
                ]
                if chosen:
                    self.work.append(self._work(k, pairs, chosen, out, group))
        return predictions

    def _recipes(
        self, kinds: list[tuple[int, _Pairs]], count: int
    ) -> tuple[list[list[tuple]], np.ndarray]:
        """How each activity is made: (label, gate, mask, readout, source, bundle, pair) per part.

        The first five decide its value; negative sources stand for given inputs.
        """
        given = _labels([pairs.given for _, pairs in kinds])
        readouts = _labels([self.data.readouts[k] for k, _ in kinds])
        masks = _labels([self.masks[k] for k, _ in kinds])
        recipes: list[list[tuple]] = [[] for _ in range(count)]
        is_output = np.zeros(count, bool)
        for n, (k, pairs) in enumerate(kinds):
            bundle = self.graph.bundles[k]
            ends = np.array([self.graph.edge(e).target in self.graph.outputs for e in bundle.edges])
            out = ends[pairs.edge]
            is_output[pairs.target[out]] = True
            number = self.number[bundle.source]
            before = number[pairs.source] if given[n] is None else -1 - given[n]
            shown = np.full(len(out), -1)
            if readouts[n] is not None:
                shown = np.where(out, readouts[n][pairs.edge], -1)
            columns = (
                self.labels[k][pairs.edge],
                pairs.gate,
                masks[n][pairs.edge],
                shown,
                before,
            )
            parts = zip(*(column.tolist() for column in columns), strict=True)
            for p, (i, part) in enumerate(zip(pairs.target.tolist(), parts, strict=True)):
                recipes[i].append((*part, k, p))
        return recipes, is_output

    def _work(
        self, k: int, pairs: _Pairs, chosen: list[tuple[int, int]], out: bool, group: int
    ) -> Work:
        p = np.array([a for a, _ in chosen])
        edge = pairs.edge[p]
        before = None
        if pairs.given is None:
            before = jnp.asarray(self.number[self.graph.bundles[k].source][pairs.source[p]])
        readout = self.data.readouts[k]
        return Work(
            jnp.asarray(self.labels[k][edge]),
            jnp.asarray(pairs.gate[p][:, None] * self.masks[k][edge]),
            before,
            None if pairs.given is None else jnp.asarray(pairs.given[p]),
            jnp.asarray(np.array([b for _, b in chosen])),
            readout[edge] if out and readout is not None else None,
            group,
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
        tuple(merger.work), tuple(targets), tuple(weights), merger.hidden, rows,
        jnp.asarray(constant),
    )  # fmt: skip


def _labels(tables: list[Any]) -> list[Any]:
    """Number the entries of several tables along their first axis, equal ones alike."""
    there = [np.asarray(t).reshape(len(t), -1) for t in tables if t is not None]
    if not there:
        return [None] * len(tables)
    labels = equal_rows(np.concatenate(there), _EQUAL, _NOISE)
    parts = iter(np.split(labels, np.cumsum([len(t) for t in there])[:-1]))
    return [None if t is None else next(parts) for t in tables]
