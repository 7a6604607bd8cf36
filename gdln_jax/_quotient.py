r"""Quotient by symmetry: one variable per class of edges that move together (SCIENCE 3).

Edges that start equal and always receive equal gradients share one variable, which obeys
$\tau |c| \dot x_c = -\partial l/\partial x_c$. Every rate factor of the papers is such a
1/|class|. Activities that the classes make equal are merged as well, so that a solution costs the
same for 10 and for 10,000 domains. Floor 3, below the reduction: may import floors 0 to 2.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from gdln_jax._certificate import flat_gradient
from gdln_jax._classes import refine, renumbered
from gdln_jax._frames import stage_table
from gdln_jax._graph import Graph
from gdln_jax._modes import ModeData, ModeStrengths
from gdln_jax._reduced_flow import ReducedTrajectory, solve_reduced

# Values that agree to this relative precision are taken for equal when activities are merged.
_DIGITS = 11


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


class Quotient(eqx.Module):
    """Dynamics on one variable per class and mode; made by `Reduction.quotient`.

    - `classes`: tuple of tuples of edge names; edges of a class start equal and stay equal.
    - `rates`: 1/|class|, in the same order: tau dx_c/dt = -rates[c] dl/dx_c.
    - `x0`: (class, mode) strengths at the start.
    """

    graph: Graph = eqx.field(static=True)
    classes: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    labels: np.ndarray
    x0: Float[Array, "cls mode"]
    program: Program

    @property
    def rates(self) -> Float[np.ndarray, " cls"]:
        """1/|class| per class."""
        return 1.0 / np.bincount(self.labels)

    def loss(self, x: Float[Array, "cls mode"]) -> Float[Array, ""]:
        """l at strengths x of the classes."""
        return program_loss(x, self.program)

    def expand(self, x: Float[Array, "*batch cls mode"]) -> ModeStrengths:
        """Strengths of all edges from those of the classes (leading axes allowed)."""
        bounds = np.cumsum([len(bundle.edges) for bundle in self.graph.bundles])[:-1]
        every = jnp.asarray(x)[..., self.labels, :]
        return ModeStrengths(self.graph, tuple(jnp.split(every, bounds, axis=-2)))

    def solve(
        self, ts: ArrayLike, *, tau: ArrayLike = 1.0, x0: Any = None, **options: Any
    ) -> ReducedTrajectory:
        """Solve from `x0` (class, mode), default the b0 the quotient was made for.

        The trajectory's `b` is an array (time, class, mode); `expand` gives it per edge. Cost
        does not depend on the number of edges. `options` as in `Reduction.solve`.
        """
        start = self.x0 if x0 is None else jnp.broadcast_to(jnp.asarray(x0), self.x0.shape)
        rates = jnp.asarray(self.rates)[:, None]
        return solve_reduced(start, program_loss, self.program, ts, tau, rates=rates, **options)

    def __repr__(self) -> str:
        sizes = ", ".join(str(len(c)) for c in self.classes[:8])
        more = ", ..." if len(self.classes) > 8 else ""
        return f"Quotient({len(self.classes)} classes of {len(self.labels)} edges: {sizes}{more})"


def make_quotient(data: ModeData, b0: ModeStrengths, *, seed: int) -> Quotient:
    """Find the coarsest invariant partition that `b0` allows, and the loss on its classes."""
    graph = data.graph
    start = np.concatenate([np.asarray(stack) for stack in b0.stacks])
    masks = np.concatenate([np.asarray(mask) for mask in data.masks])
    size = np.abs(start).max(initial=0.0)
    rounded = np.round(start / (size or 1.0), 12) + 0.0
    _, labels = np.unique(np.concatenate([rounded, masks], axis=1), axis=0, return_inverse=True)
    scale = np.where(np.abs(start).max(axis=0) > 0, np.abs(start).max(axis=0), 1.0)
    # Gradients are compared where the modes matter, not on the plateau where b0 may lie.
    scale = np.maximum(scale, 0.3)
    labels = refine(
        flat_gradient(data), renumbered(labels.ravel()), start.shape[1], scale, seed=seed
    )
    names = [name for bundle in graph.bundles for name in bundle.edges]
    classes: list[list[str]] = [[] for _ in range(labels.max() + 1)]
    for name, label in zip(names, labels.tolist(), strict=True):
        classes[label].append(name)
    first = np.array([np.flatnonzero(labels == c)[0] for c in range(len(classes))])
    return Quotient(
        graph,
        tuple(tuple(c) for c in classes),
        labels,
        jnp.asarray(start[first]),
        _merged(data, labels, masks),
    )


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
    source, edge, gate, target = stage_table(stage)
    used = np.flatnonzero(gate)
    given = data.inputs[k]
    rows = None if given is None else np.asarray(given).reshape(-1, *given.shape[2:])[used]
    return _Pairs(edge[used], source[used], gate[used], target[used], rows)


class _Merger:
    """Numbers activities so that those which the classes make equal share a number."""

    def __init__(self, data: ModeData, labels: np.ndarray, masks: np.ndarray):
        self.data, self.graph = data, data.graph
        bounds = np.cumsum([len(bundle.edges) for bundle in self.graph.bundles])[:-1]
        self.labels = np.split(labels, bounds)
        self.masks = np.split(masks, bounds)
        sizes = [np.abs(np.asarray(x)).max(initial=0.0) for x in data.inputs if x is not None]
        self.size = max(sizes, default=1.0) or 1.0
        self.interned: dict[bytes, int] = {}
        self.hidden = 0
        self.number: dict[Any, np.ndarray] = {}
        self.work: list[Work] = []

    def intern(self, row: np.ndarray) -> int:
        return self.interned.setdefault(
            (np.round(row, _DIGITS) + 0.0).tobytes(), len(self.interned)
        )

    def merge_class(self, node_class: Any, count: int, group: int) -> int:
        """Number the activities of one class; returns how many predictions it has."""
        kinds = [
            (k, pairs)
            for k, bundle in enumerate(self.graph.bundles)
            if bundle.target == node_class and (pairs := _pairs(self.data, k)) is not None
        ]
        recipes: list[list[tuple]] = [[] for _ in range(count)]
        is_output = np.zeros(count, bool)
        for k, pairs in kinds:
            bundle, readout = self.graph.bundles[k], self.data.readouts[k]
            ends = np.array([self.graph.edge(n).target in self.graph.outputs for n in bundle.edges])
            shown = None if readout is None else np.asarray(readout)
            kept = [self.intern(m) for m in self.masks[k]]
            signs = None if shown is None else [self.intern(r) for r in shown]
            for p, (e, i) in enumerate(
                zip(pairs.edge.tolist(), pairs.target.tolist(), strict=True)
            ):
                out = bool(ends[e])
                is_output[i] |= out
                before = (
                    self.number[bundle.source][pairs.source[p]]
                    if pairs.given is None
                    else -1 - self.intern(pairs.given[p] / self.size)
                )
                sign = signs[e] if out and signs is not None else -1
                recipes[i].append(
                    (int(self.labels[k][e]), float(pairs.gate[p]), kept[e], sign, int(before), k, p)
                )
        merged: dict[tuple, int] = {}
        number, predictions = np.zeros(count, int), 0
        fresh: list[tuple[list[tuple], int, bool]] = []
        for i, recipe in enumerate(recipes):
            recipe.sort(key=lambda part: part[:5])
            key = (bool(is_output[i]), *(part[:5] for part in recipe))
            if key not in merged:
                merged[key] = predictions if is_output[i] else self.hidden
                fresh.append((recipe, merged[key], bool(is_output[i])))
                predictions += int(is_output[i])
                self.hidden += int(not is_output[i])
            number[i] = merged[key]
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


def _merged(data: ModeData, labels: np.ndarray, masks: np.ndarray) -> Program:
    """Merge activities and predictions that are equal for class-constant strengths."""
    merger = _Merger(data, labels, masks)
    targets, weights, constant = [], [], float(data.constant)
    counts = dict(zip(data.graph.classes, data.counts, strict=True))
    rows = 1
    for node_class, table in zip(data.graph.classes, data.outputs, strict=True):
        predictions = merger.merge_class(node_class, counts[node_class], len(targets))
        if table is None:
            continue
        y, w = np.asarray(table.target), np.asarray(table.weight)
        w = np.broadcast_to(w if w.ndim == 3 else w[..., None], y.shape)
        count = counts[node_class]
        instance = np.arange(count) if table.instance is None else np.asarray(table.instance)
        where = merger.number[node_class][instance]
        weight = np.zeros((predictions, *y.shape[1:]))
        moment = np.zeros_like(weight)
        np.add.at(weight, where, w)
        np.add.at(moment, where, w * y)
        target = moment / np.where(weight > 0, weight, 1)
        constant += 0.5 * float(np.sum(w * y**2) - np.sum(weight * target**2))
        targets.append(jnp.asarray(target))
        weights.append(jnp.asarray(weight))
        rows = y.shape[1]
    return Program(
        tuple(merger.work), tuple(targets), tuple(weights), merger.hidden, rows,
        jnp.asarray(constant),
    )  # fmt: skip
