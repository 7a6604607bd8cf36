"""What a page shows: equations, what sliders move, curves, and drawn architectures."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gdln_jax import Graph, plot
from gdln_jax._live.equations import Equations, System

Number = float | int
COLOURS = plot.COLOURS
# Colours of pathways, in turn.
CYCLE = tuple(COLOURS[name] for name in ("trained", "untrained", "random", "other", "shared"))
_MOST_MODES = 4


@dataclass(frozen=True)
class Effect:
    """One array of the equations: its entries `at` go as (plus + value^power)^to."""

    on: str
    at: Sequence[int]
    power: Number = 1.0
    to: Number = 1.0
    plus: Number = 0.0


@dataclass(frozen=True)
class Parameter:
    """A slider: its value at first, the value `base` at which the equations hold as they are, its
    range, and what it moves. With `log` its steps are factors; `options` are all that it may be.
    """

    key: str
    label: str
    value: Number
    low: Number
    high: Number
    effects: Sequence[Effect]
    base: Number = 1.0
    step: Number = 0.01
    log: bool = False
    options: Sequence[Number] = ()


@dataclass(frozen=True)
class Curve:
    """A line or an area: the terms that it adds up, its colour and width."""

    label: str
    colour: str
    terms: Sequence[int]
    width: Number = 2.5


Edge = tuple[str, str, Sequence[int], str]
"""Source, target, unknowns whose strength it has, colour."""


@dataclass(frozen=True)
class Picture:
    """An architecture drawn: nodes (x, y, label), edges, and the values for which it is this."""

    nodes: Mapping[str, tuple[float, float, str]]
    edges: Sequence[Edge]
    when: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """All that a page holds. `try_this` is one sentence on what to try."""

    title: str
    try_this: str
    system: System
    parameters: Sequence[Parameter]
    losses: Sequence[tuple[str, str]]
    curves: Sequence[Curve]
    shares: Sequence[Curve]
    pictures: Sequence[Picture]


def columns(names: Sequence[Sequence[str]], labelled: Sequence[bool] = ()) -> dict:
    """Places of nodes that stand in columns, of which the labelled ones show their names."""
    places = {}
    for x, column in enumerate(names):
        shown = labelled[x] if labelled else True
        half = min(1.0, 0.28 * (len(column) - 1))
        ys = np.linspace(half, -half, len(column))
        for name, y in zip(column, ys, strict=True):
            places[name] = (float(x), float(y), name if shown else "")
    return places


def levels(graph: Graph) -> list[list[str]]:
    """Nodes by column: inputs first, all outputs last."""
    last = max(graph.level.values())
    found: list[list[str]] = [[] for _ in range(last + 1)]
    for name in graph.nodes:
        found[last if name in graph.outputs else graph.level[name]].append(name)
    return found


def entries(system: System, terms: Sequence[int], *, both: bool) -> list[int]:
    """Entries of D between `terms`, or (not `both`) between one of them and another term."""
    inside = set(terms)
    wanted = 2 if both else 1
    return [
        k
        for k, pair in enumerate(zip(system.row, system.column, strict=True))
        if sum(i in inside for i in pair) == wanted
    ]


def mode_groups(eq: Equations) -> list[list[int]]:
    """Modes that obey the same equations from the same start, strongest first."""
    rows: dict[tuple, list[int]] = {}
    size = np.abs(eq.S).max()
    for mode in range(eq.modes):
        mine = [k for k, (_, m) in enumerate(eq.terms) if m == mode]
        if mine:
            start = [v for v, (_, m) in zip(eq.x0, eq.of, strict=True) if m == mode]
            key = np.concatenate([eq.S[mine] / size, eq.D[np.ix_(mine, mine)].ravel(), start])
            paths = tuple(eq.terms[k][0] for k in mine)
            rows.setdefault((paths, *np.round(key, 9).tolist()), []).append(mode)
    strength = {
        m: sum(abs(eq.S[k]) for k, t in enumerate(eq.terms) if t[1] == m) for m in range(eq.modes)
    }
    return sorted(rows.values(), key=lambda modes: -strength[modes[0]])


def mode_name(modes: Sequence[int], k: int, groups: Sequence[Sequence[int]]) -> str:
    """`mode 1`, or `modes 3-5` of modes that are learned alike, counted from the strongest."""
    first = 1 + sum(len(group) for group in groups[:k])
    return f"mode {first}" if len(modes) == 1 else f"modes {first}-{first + len(modes) - 1}"


def strength_parameters(eq: Equations) -> list[Parameter]:
    """The strengths of modes in the targets, relative to those of the data."""
    groups = mode_groups(eq)
    apart = len(eq.parts) > 2  # else l0 has one part for all modes
    if not apart or len(groups) > _MOST_MODES:
        groups = [[mode for group in groups for mode in group]]
    found = []
    for k, modes in enumerate(groups):
        terms = [i for i, (_, mode) in enumerate(eq.terms) if mode in modes]
        name = mode_name(modes, k, groups) if len(groups) > 1 else "all modes"
        effects = [Effect("S", terms), Effect("parts", modes if apart else [0], to=2.0)]
        found.append(Parameter(f"s{k + 1}", f"strength of {name}, ×", 1.0, 0.0, 3.0, effects))
    return found


def presence(eq: Equations, system: System) -> Parameter:
    """The share of examples in which the gates of a pathway are open, independently of others."""
    same, other = [], []
    for k, (i, j) in enumerate(zip(system.row, system.column, strict=True)):
        (same if eq.terms[i][0] == eq.terms[j][0] else other).append(k)
    effects = [Effect("S", range(len(eq.S))), Effect("D", same), Effect("D", other, to=2.0)]
    return Parameter("p", "share of examples on which a pathway is on", 1.0, 0.05, 1.0, effects)


def curves_of(eq: Equations, names: Sequence[str]) -> tuple[list[Curve], list[Curve], list[str]]:
    """Curves of products and of shares, and the colour of each pathway, under their names."""
    groups, count = mode_groups(eq), len(eq.pathways)
    index = {pair: k for k, pair in enumerate(eq.terms)}
    colours = [CYCLE[p % len(CYCLE)] for p in range(count)]
    hues = [_hex(colour) for colour in plot.mode_colours(len(groups))]
    shown = groups[: _MOST_MODES if count > 1 else 8]
    curves = []
    for p in range(count):
        for k, modes in enumerate(shown):
            if (p, modes[0]) in index:
                mode, terms = mode_name(modes, k, groups), [index[p, modes[0]]]
                label = f"{names[p]}, {mode}" if len(groups) > 1 else names[p]
                curves.append(
                    Curve(mode, hues[k], terms)
                    if count == 1
                    else Curve(label, colours[p], terms, thickness(k))
                )
    parts = (
        [(names[p], colours[p], [p], range(eq.modes)) for p in range(count)]
        if count > 1
        else [(mode_name(m, k, groups), hues[k], [0], m) for k, m in enumerate(groups)]
    )
    shares = [
        Curve(label, colour, [k for k, (p, m) in enumerate(eq.terms) if p in paths and m in modes])
        for label, colour, paths, modes in parts
    ]
    return curves, shares, colours


def _hex(colour: Sequence[float]) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in colour[:3])


def thickness(k: int) -> float:
    """Of the line of the k-th mode, thick to thin."""
    return max(3.4 - 0.8 * k, 1.0)


def parameter_data(parameter: Parameter) -> dict[str, object]:
    """A parameter as JSON takes it."""
    effects = [{**dataclasses.asdict(e), "at": list(e.at)} for e in parameter.effects]
    return {**dataclasses.asdict(parameter), "effects": effects}
