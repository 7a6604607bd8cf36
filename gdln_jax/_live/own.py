"""The page of any reduction: starts and rates by class, strengths by mode, gates, its own graph."""

import itertools
from collections.abc import Mapping, Sequence

from gdln_jax import Graph, Reduction
from gdln_jax._live import setup as s
from gdln_jax._live.equations import Equations, equations, system
from gdln_jax._live.setup import COLOURS, Effect, Parameter, Picture, Setup
from gdln_jax._reduction.reduction import StrengthsLike

# With more pathways, or layers, than this their sliders are left out: one moves them all.
_MOST_SLIDERS = 6


def of_reduction(
    reduction: Reduction,
    b0: StrengthsLike,
    *,
    title: str,
    labels: Mapping[str, str],
    tau: Mapping[str, float | int] | None = None,
) -> Setup:
    """Return what the page of a reduction shows.

    Raises:
        ValueError: as `Reduction.quotient`; more unknowns than a page integrates.
    """
    eq = equations(reduction.quotient(b0, tau=tau))
    arrays, graph = system([eq]), reduction.graph
    names = [_pathway_name(graph, eq, path, k) for k, path in enumerate(eq.pathways)]
    curves, shares, colours = s.curves_of(eq, names)
    if len(eq.pathways) > 1:
        groups = {
            name: [k for k, (c, _) in enumerate(eq.of) if c in path]
            for name, path in zip(names, eq.pathways, strict=True)
        }
    else:
        groups = {
            _class_name(edges): [k for k, (c, _) in enumerate(eq.of) if c == label]
            for label, edges in enumerate(eq.classes)
        }
    parameters = [
        *_starts(eq),
        *_factors(eq, groups, "b0", "initial amplitude", "x0", 0.01),
        *s.strength_parameters(eq),
        *_factors(eq, groups, "rate", "rate", "rates", 0.1),
    ]
    if eq.overlap:
        parameters.append(s.presence(eq, arrays))
    try_this = "Drag a slider: grey curves are those that the page opened with."
    picture = _picture(graph, eq, colours, labels)
    losses = [("loss", COLOURS["theory"])]
    return Setup(title, try_this, arrays, parameters, losses, curves, shares, [picture])


def _starts(eq: Equations) -> list[Parameter]:
    """One slider for all starts."""
    sizes = [abs(x) for x in eq.x0.tolist() if x]
    if not sizes:
        return []
    effects, value = [Effect("x0", range(len(eq.x0)))], sizes[0]
    low, high = min(1e-4, value / 10), max(1.0, 3 * value)
    label = "initial amplitude, all"
    return [Parameter("b0", label, value, low, high, effects, value, 0.02, log=True)]


def _factors(
    eq: Equations,
    groups: Mapping[str, Sequence[int]],
    key: str,
    what: str,
    on: str,
    low: float,
) -> list[Parameter]:
    """A factor for each group of unknowns that moves, if there are several and not too many."""
    used = {name: at for name, at in groups.items() if any(eq.x0[k] for k in at)}
    if not 1 < len(used) <= _MOST_SLIDERS:
        return []
    return [
        Parameter(
            f"{key}.{k + 1}",
            f"{what} of {name}, \u00d7",
            1.0,
            low,
            1 / low,
            [Effect(on, at)],
            step=0.02,
            log=True,
        )
        for k, (name, at) in enumerate(used.items())
    ]


def _class_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _pathway_name(graph: Graph, eq: Equations, path: Sequence[int], number: int) -> str:
    """Its nodes, where its classes have its own edges alone, else its number."""
    names = [name for label in dict.fromkeys(path) for name in eq.classes[label]]
    edges = sorted(
        (graph.edge(graph.uses[name][0].edge) for name in names),
        key=lambda edge: graph.level[edge.source],
    )
    chained = all(a.target == b.source for a, b in itertools.pairwise(edges))
    if len(edges) != len(path) or not chained or graph.tied:
        return f"pathway {number + 1}"
    return "\u2192".join([edges[0].source, *(edge.target for edge in edges)])


def _picture(
    graph: Graph,
    eq: Equations,
    colours: Sequence[str],
    labels: Mapping[str, str],
) -> Picture:
    """The graph; an edge has the colour of its pathway, green where pathways share it."""
    unknowns = [[k for k, (c, _) in enumerate(eq.of) if c == c0] for c0 in range(len(eq.classes))]
    label_of = {name: c for c, names in enumerate(eq.classes) for name in names}
    edges: list[s.Edge] = []
    for edge in graph.edges:
        label = label_of.get(graph.parameter_of[edge.name][0], -1)
        mine = [p for p, path in enumerate(eq.pathways) if label in path]
        colour = COLOURS["faint"]
        if mine:
            colour = colours[mine[0]] if len(mine) == 1 else COLOURS["shared"]
        edges.append((edge.source, edge.target, unknowns[label] if mine else (), colour))
    places = s.columns(s.levels(graph)).items()
    return Picture({name: (x, y, labels.get(name, name)) for name, (x, y, _) in places}, edges)
