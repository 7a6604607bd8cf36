"""Runs of like levels: an unrolled recurrence, or a layer that is used again and again.

Levels that apply the same parameters in the same way are one `lax.scan`, so that neither trace nor
compile time grows with their number. A graph without ties has no such run.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array

from gdln_jax._data.packed import Stage
from gdln_jax._graph import Graph, NodeClass

# Below this number of levels a scan is no shorter than the levels themselves.
_SHORTEST = 3

# Numbers of the bundles that end at one node class, and for a run those of each of its levels.
Level = tuple[int, ...]
Activity = Mapping[NodeClass, Array | None]
Given = Sequence[Array | None]
# (bundles of a level, stage of each, what is given to each, activities so far) -> activity.
Step = Callable[[Level, Sequence[Stage | None], Given, Activity], Array | None]


def carried(
    graph: Graph,
    stages: Sequence[Stage | None],
    counts: Sequence[int],
    activity: Activity,
    step: Step,
    *,
    given: Given | None = None,
    frozen: bool = True,
    every: bool = False,
) -> dict[NodeClass, Array | None]:
    """Carry activities through the graph, one node class after another, like ones by a scan.

    Args:
        graph, stages, counts: as in `PackedData`.
        activity: of every node class; None where `step` makes it.
        step: the activity of one node class.
        given: an array per bundle for `step`, with the chunks of the stage first.
        frozen: whether frozen edges are the same to `step` in all levels that use them.
        every: whether to return activities within a run that no other level reads.

    Returns:
        Activities by node class, None where they are not returned.
    """
    activity = dict(activity)
    given = [None] * len(stages) if given is None else given
    for run in _runs(graph, stages, dict(zip(graph.classes, counts, strict=True)), frozen):
        ends = [graph.bundles[level[0]].target for level in run]
        if len(run) == 1:
            (level,) = run
            parts = [stages[k] for k in level], [given[k] for k in level]
            activity[ends[0]] = step(level, *parts, activity)
        else:
            inside = {k for level in run for k in level}
            read = {b.source for k, b in enumerate(graph.bundles) if k not in inside}
            wanted = [end for end in ends[:-1] if every or end in read]
            parts = [[(stages[k], given[k]) for k in level] for level in run]
            activity |= _scanned(run[0], parts, ends, wanted, activity, step)
    return activity


def _scanned(
    level: Level,
    parts: Sequence[Sequence[tuple[Stage | None, Array | None]]],
    ends: Sequence[NodeClass],
    wanted: Sequence[NodeClass],
    activity: Activity,
    step: Step,
) -> dict[NodeClass, Array | None]:
    """Activities of the levels of a run that begins with `level`, by one scan over their `parts`.

    Returns that of the last level, and those that are `wanted`.
    """
    source = _before(ends[0])

    def one(h: Array, parts: Sequence[tuple]) -> tuple[Array, Array | None]:
        stages, given = [stage for stage, _ in parts], [more for _, more in parts]
        new = step(level, stages, given, {**activity, source: h})
        assert new is not None
        return new, new if wanted else None

    # Joined along the chunks, which come first: to stack them would be one operation a level.
    joined = jax.tree.map(
        lambda *x: jnp.concatenate(x).reshape(len(parts), *x[0].shape), *map(list, parts)
    )
    start = activity[source]
    assert start is not None
    kind = jax.eval_shape(one, start, list(parts[0]))[0].dtype
    last, seen = jax.lax.scan(one, start.astype(kind), joined)
    every = {} if seen is None else {end: seen[ends.index(end)] for end in wanted}
    return {**dict.fromkeys(ends), **every, ends[-1]: last}


def _runs(
    graph: Graph,
    stages: Sequence[Stage | None],
    counts: Mapping[NodeClass, int],
    frozen: bool,
) -> list[list[Level]]:
    """Bundles by node class, classes that make a run together, in an order of computation."""
    numbered = itertools.groupby(enumerate(graph.bundles), lambda pair: pair[1].target)
    levels = {end: tuple(k for k, _ in group) for end, group in numbered}
    if not graph.tied:
        return [[level] for level in levels.values()]
    kind = {end: _kind(graph, end, levels[end], stages, counts, frozen) for end in levels}
    runs: dict[NodeClass, list[Level]] = {}
    first = {}  # class -> the class with which its run begins
    for end, level in levels.items():
        alike = kind[end] is not None and kind.get(_before(end)) == kind[end]
        first[end] = first[_before(end)] if alike else end
        runs.setdefault(first[end], []).append(level)
    return [
        part
        for run in runs.values()
        for part in ([run] if len(run) >= _SHORTEST else [[level] for level in run])
    ]


def _before(end: NodeClass) -> NodeClass:
    level, width = end
    return level - 1, width


def _kind(
    graph: Graph,
    end: NodeClass,
    level: Level,
    stages: Sequence[Stage | None],
    counts: Mapping[NodeClass, int],
    frozen: bool,
) -> tuple | None:
    """What a level shares with those that are one run with it; None for one that is in no run.

    Levels of hidden nodes alone, fed by input nodes and by the hidden nodes of the level before.
    """
    if _before(end) not in counts or _before(end)[0] == 0:
        return None
    bundles = [graph.bundles[k] for k in level]
    before = [bundle.source == _before(end) for bundle in bundles]
    known = all(here or bundle.source[0] == 0 for here, bundle in zip(before, bundles, strict=True))
    hidden = not set(graph.classes[end]) & set(graph.outputs)
    reached = any(before) and all(stages[k] is not None for k in level)
    if not (known and hidden and reached and counts[end] == counts[_before(end)]):
        return None
    homes = [[graph.home[edge] for edge in bundle.edges] for bundle in bundles]
    if not frozen and any(graph.stores[home.store].frozen for edges in homes for home in edges):
        return None
    return tuple(
        (tuple(edges), here or bundle.source, _form(stages[k]))
        for k, edges, here, bundle in zip(level, homes, before, bundles, strict=True)
    )


def _form(stage: Stage | None) -> tuple:
    """Form of a stage: which of its arrays there are, and their shapes."""
    leaves, structure = jax.tree.flatten(stage)
    return structure, tuple((x.shape, x.dtype) for x in leaves)
