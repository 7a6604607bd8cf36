"""Finding frames that all phases of a schedule share, and naming the phases that do not (12.1)."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import is_concrete
from gdln_jax._data.gated import GatedData
from gdln_jax._data.schedule import Schedule
from gdln_jax._graph import Graph
from gdln_jax._reduction.certificate import named_classes, tied_classes
from gdln_jax._reduction.frames import find_frames
from gdln_jax._reduction.refusal import advice
from gdln_jax._reduction.schedule import ReducedSchedule
from gdln_jax._reduction.statistics import path_moments, unit_nodes, with_shared_errors
from gdln_jax._reduction.view import (
    Options,
    View,
    answer_inexact,
    check_modes,
    packed_for,
    view,
)


def reduce_schedule(graph: Graph, schedule: Schedule, options: Options) -> ReducedSchedule:
    """`reduce` for a `Schedule`: one set of frames, and a certificate for each data set."""
    tol, on_inexact, seed = options
    if not is_concrete(schedule):
        raise ValueError(
            "reduce() looks at values and cannot run under jit, grad or vmap: call it outside, and "
            "pass traced switches to .with_times(times)."
        )
    order = tuple(int(number) for number in schedule.order)
    datas = [
        jax.tree.map(lambda leaf, k=k: leaf[k], schedule.data)._with(schedule.data._labels)
        for k in range(len(schedule.counts))
    ]
    seen = _views(graph, datas, seed)
    untied = [one.residual(None, seed) for one in seen]
    residuals, ties = untied, None
    if max(untied) > tol:
        typical = np.max([one.typical for one in seen], axis=0)
        labels = tied_classes([one.mode_data for one in seen], typical, seed=seed)
        tied = [one.residual(labels, seed) for one in seen]
        if max(tied) <= tol:
            residuals, ties = tied, named_classes(graph, labels)
        elif on_inexact != "coupled":
            phases, message = _disagreement(graph, datas, order, seen, untied, options)
            answer_inexact(on_inexact, message, phases)
    cores = [None] * len(seen)
    if max(residuals) > tol and on_inexact == "coupled":
        every = packed_for(graph, _together(datas, seed))
        cores, residuals = zip(*(one.coupled(seed, every) for one in seen), strict=True)
    parts = (
        one.reduction(residual, without, ties, core)
        for one, residual, without, core in zip(seen, residuals, untied, cores, strict=True)
    )
    assert schedule.times is not None
    return ReducedSchedule(tuple(parts), schedule.times, order)


def _views(graph: Graph, datas: Sequence[GatedData], seed: int) -> list[View]:
    """All data sets, seen in the frames of generic combinations of their statistics."""
    every = packed_for(graph, _together(datas, seed))
    frames = find_frames(unit_nodes(every)[0], seed=seed)
    check_modes(frames)
    frames = with_shared_errors(path_moments(every), frames)
    seen = []
    for data in datas:
        packed = packed_for(graph, data)
        seen.append(view(graph, data, packed, unit_nodes(packed), path_moments(packed), frames))
    return seen


def _together(datas: Sequence[GatedData], seed: int) -> GatedData:
    """One data set whose statistics are generic combinations of those of all."""
    shares = np.random.default_rng(seed + 3).uniform(0.5, 1.5, size=len(datas))
    shares /= shares.sum()
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *datas)
    weights = jnp.concatenate([s * one.weights for s, one in zip(shares, datas, strict=True)])
    return eqx.tree_at(lambda d: d.weights, joined, weights)._with(datas[0]._labels)


def _disagreement(
    graph: Graph,
    datas: Sequence[GatedData],
    order: tuple[int, ...],
    seen: Sequence[View],
    untied: Sequence[float],
    options: Options,
) -> tuple[tuple[int, ...], str]:
    """The phases that fail, each alone, else the first two that fail together; and what to say."""
    tol, _, seed = options

    def residuals(chosen: Sequence[int]) -> list[float]:
        views = _views(graph, [datas[k] for k in chosen], seed)
        return [one.residual(None, seed) for one in views]

    alone = {k: residuals([k])[0] for k in range(len(datas))}
    failed = [k for k, residual in alone.items() if residual > tol]
    if failed:
        worst = max(failed, key=alone.__getitem__)
        phases = tuple(k for k, number in enumerate(order) if number in failed)
        own = _views(graph, [datas[worst]], seed)[0]
        reason = advice(alone[worst], tol, own.statistics, own.packed)
        return phases, f"phases {phases} have no frames of their own: {reason}"
    pairs = itertools.combinations(range(len(datas)), 2)
    pair = next((p for p in pairs if max(residuals(p)) > tol), tuple(range(len(datas))))
    phases = tuple(order.index(k) for k in pair if k in order)
    shown = f"phases {phases} have no frames in common, though each has its own: "
    worst = int(np.argmax(untied))
    return phases, shown + advice(untied[worst], tol, seen[worst].statistics, seen[worst].packed)
