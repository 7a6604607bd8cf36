"""The page of any reduction: starts and rates by class, strengths by mode, gates, its own graph."""

from collections.abc import Mapping, Sequence

from gdln_jax import Graph, Reduction
from gdln_jax._live import setup as s
from gdln_jax._live.equations import Equations, equations, system
from gdln_jax._live.setup import Effect, Parameter, Picture, Setup
from gdln_jax._reduction.reduction import StrengthsLike
from gdln_jax.plot import COLOURS

# With more classes than this their sliders are left out: one moves them all.
_MOST_SLIDERS = 6


def of_reduction(
    reduction: Reduction,
    b0: StrengthsLike,
    *,
    title: str,
    labels: Mapping[str, str],
    tau: Mapping[str, float] | None = None,
) -> Setup:
    """Return what the page of a reduction shows; edges that start equal may share a slider.

    Raises:
        ValueError: as `Reduction.quotient`; more unknowns than a page integrates.
    """
    eq = equations(reduction.quotient(b0, tau=tau))
    arrays, count = system([eq]), len(eq.classes)
    unknowns = [[k for k, (c, _) in enumerate(eq.of) if c == label] for label in range(count)]
    curves, shares, colours = s.curves_of(eq)
    parameters = [*_starts(eq, unknowns), *s.strength_parameters(eq), *_rates(eq, unknowns)]
    if eq.overlap:
        parameters.append(s.presence(eq, arrays))
    return Setup(
        title,
        "Drag a slider: thin grey curves are those that the page opened with.",
        arrays,
        parameters,
        [("loss", COLOURS["theory"])],
        curves,
        shares,
        [_picture(reduction.graph, eq, unknowns, colours, labels)],
    )


def _starts(eq: Equations, unknowns: Sequence[Sequence[int]]) -> list[Parameter]:
    """One slider for all starts, and one for each class beside the others."""
    sizes = [abs(x) for x in eq.x0.tolist() if x]
    if not sizes:
        return []
    everything, value = [Effect("x0", range(len(eq.x0)))], sizes[0]
    low, high = min(1e-4, value / 10), max(1.0, 3 * value)
    common = Parameter(
        "b0", "initial amplitude, all", value, low, high, everything, value, 0.02, log=True
    )
    return [common, *_by_class(eq, unknowns, "b0", "initial amplitude", "x0", 0.01)]


def _rates(eq: Equations, unknowns: Sequence[Sequence[int]]) -> list[Parameter]:
    return _by_class(eq, unknowns, "rate", "rate", "rates", 0.1)


def _by_class(
    eq: Equations,
    unknowns: Sequence[Sequence[int]],
    key: str,
    what: str,
    on: str,
    low: float,
) -> list[Parameter]:
    """A factor for each class that moves, if there are several and not too many."""
    used = [c for c, at in enumerate(unknowns) if any(eq.x0[k] for k in at)]
    if not 1 < len(used) <= _MOST_SLIDERS:
        return []
    return [
        Parameter(
            f"{key}.{c + 1}",
            f"{what} of {_class_name(eq.classes[c])}, ×",
            1.0,
            low,
            1 / low,
            [Effect(on, unknowns[c])],
            step=0.02,
            log=True,
        )
        for c in used
    ]


def _class_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _picture(
    graph: Graph,
    eq: Equations,
    unknowns: Sequence[Sequence[int]],
    colours: Sequence[str],
    labels: Mapping[str, str],
) -> Picture:
    """The graph; an edge has the colour of its pathway, green where pathways share it."""
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
