"""The pages of recipes: tasks whose sizes are parameters of the equations.

On a quotient the number of domains is a number of edges in a class, which divides its rate, so a
slider moves it and nothing is reduced again.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

import gdln_jax as gdln
from gdln_jax import tasks
from gdln_jax._live import setup as s
from gdln_jax._live.equations import Equations, equations, system
from gdln_jax._live.setup import COLOURS, Curve, Effect, Parameter, Picture, Setup

_LOSS = [("loss", COLOURS["theory"])]


def _equations(task: tasks.Task, kind: Callable[[str], int]) -> Equations:
    """Of a task with one class for each kind of its edges; all unknowns start at 1."""
    reduction = gdln.reduce(task.graph, task.data)
    # Edges of other kinds start apart, so that no class joins them.
    quotient = reduction.quotient({e.name: 0.3 + 0.1 * kind(e.name) for e in task.graph.edges})
    eq = equations(quotient)
    return dataclasses.replace(eq, x0=np.ones_like(eq.x0))


def _unknowns(eq: Equations, test: Callable[[str], bool]) -> list[int]:
    """The unknowns of the classes whose edges pass the test."""
    return [k for k, (label, _) in enumerate(eq.of) if test(eq.classes[label][0])]


def _start(
    key: str, label: str, value: float, at: Sequence[int], low: float = 1e-3, to: float = 1.0
) -> Parameter:
    effects = [Effect("x0", at, to=to)]
    return Parameter(key, label, value, low, 1.0, effects, step=0.02, log=True)


def routing() -> Setup:
    """N Fig. 4: M input and M output domains, one shared hidden pathway."""
    most = 12
    eq = _equations(tasks.routing(2, width=4), lambda e: int(e == "h1->h2"))
    outer = _unknowns(eq, lambda e: e != "h1->h2")
    hidden = _unknowns(eq, lambda e: e == "h1->h2")
    curves, shares, _ = s.curves_of(eq, ["shared"])
    pictures = []
    for m in range(1, most + 1):
        names = [[f"x{i}" for i in range(m)], ["h1"], ["h2"], [f"y{i}" for i in range(m)]]
        ends = [pair for i in range(m) for pair in ((f"x{i}", "h1"), ("h2", f"y{i}"))]
        edges = [(a, b, outer, COLOURS["trained"]) for a, b in ends]
        edges.append(("h1", "h2", hidden, COLOURS["shared"]))
        pictures.append(Picture(s.columns(names), edges, {"M": m}))
    domains = [Effect("rates", outer, power=-1.0)]
    parameters = [
        Parameter("M", "M, domains that share the pathway", 7, 1, most, domains, 2, 1.0),
        _start("b1", "initial amplitude, layers of a domain", 0.2, outer),
        _start("b2", "initial amplitude, shared layer", 0.2, hidden),
        *s.strength_parameters(eq),
    ]
    return Setup(
        "Routing: one pathway, shared by M domains (N Fig. 4)",
        "Drag M: with more domains the shared layer (green) ends √M times as strong as each "
        "domain's own layers (blue).",
        *(system([eq]), parameters, _LOSS, curves, shares, pictures),
    )


def sharing() -> Setup:
    """N Fig. 5: shared and dedicated pathways of all routes between 4 domains, in one network."""
    domains, sides, base = 4, (1, 2, 4), 2

    def kind(edge: str) -> int:
        """0: dedicated; 1, 2: first and third, or hidden layer of the shared pathways."""
        shared = edge.split("_")[1] == str(base**2)
        return shared * (1 + edge.startswith("h1_"))

    eq = _equations(tasks.pathway_sharing(domains, (base**2, 1), width=4), kind)
    own, outer, hidden = (_unknowns(eq, lambda e, k=k: kind(e) == k) for k in range(3))
    groups, curves, shares = s.mode_groups(eq), [], []
    for name, one, colour in (
        ("shared", outer[0], COLOURS["shared"]),
        ("dedicated", own[0], COLOURS["untrained"]),
    ):
        path = next(p for p, labels in enumerate(eq.pathways) if eq.of[one][0] in labels)
        shares.append(Curve(name, colour, [k for k, t in enumerate(eq.terms) if t[0] == path]))
        for k, modes in enumerate(groups):
            label = f"{name}, {s.mode_name(modes, k, groups)}"
            term = eq.terms.index((path, modes[0]))
            curves.append(Curve(label, colour, [term], s.thickness(k)))
    together = [Effect("rates", outer), Effect("rates", hidden, to=2.0)]
    parameters = [
        Parameter(
            "q", "input domains that share a pathway", 4, 1, 4, together, base, 1.0, options=sides
        ),
        _start("shared", "initial amplitude, shared", 0.2, [*outer, *hidden]),
        _start("own", "initial amplitude, dedicated", 0.2, own),
        *s.strength_parameters(eq),
    ]
    pictures = [_blocks(domains, side, outer, hidden, own) for side in sides]
    return Setup(
        "Sharing: shared against dedicated pathways (N Fig. 5)",
        "Drag the number of domains that share a pathway: alone (1) both kinds tie, together (4) "
        "the shared one learns nearly all.",
        *(system([eq]), parameters, _LOSS, curves, shares, pictures),
    )


def _blocks(
    m: int, side: int, outer: Sequence[int], hidden: Sequence[int], own: Sequence[int]
) -> Picture:
    """The network of `sharing`: shared pathways of `side` domains above, dedicated ones below."""
    names: list[list[str]] = [[f"x{i}" for i in range(m)], [], [], [f"y{i}" for i in range(m)]]
    edges: list[s.Edge] = []
    for mark, q, outside, inside, colour in (
        ("s", side, outer, hidden, COLOURS["shared"]),
        ("d", 1, own, own, COLOURS["untrained"]),
    ):
        for a, b in itertools.product(range(m // q), repeat=2):
            one, two = f"{mark}1_{a}_{b}", f"{mark}2_{a}_{b}"
            names[1].append(one)
            names[2].append(two)
            edges.append((one, two, inside, colour))
            for k in range(q):
                edges.append((f"x{a * q + k}", one, outside, colour))
                edges.append((two, f"y{b * q + k}", outside, colour))
    return Picture(s.columns(names, (True, False, False, True)), edges, {"q": side})


def margin() -> Setup:
    """H Fig. 2: XoR with a margin, once with linear gates and once with XoR gates."""
    kinds = {"linear": ("linear gates", 2, "trained"), "xor": ("XoR gates", 4, "untrained")}
    eqs = [_equations(tasks.margin_xor(1.0, gating=g, width=1), lambda _: 0) for g in kinds]
    arrays, edges, starts, curves = system(eqs), [], [], []
    names: list[list[str]] = [[], [], []]
    grown: list[Effect] = []
    first = unknown = 0
    for eq, (gating, (label, count, colour)) in zip(eqs, kinds.items(), strict=True):
        terms = list(range(first, first + len(eq.S)))
        mine = list(range(unknown, unknown + len(eq.x0)))
        # Of Delta: S ~ Delta and D ~ Delta^2, or S ~ (2 + Delta^2)^(1/2) and D ~ S^2.
        plus, power, to = (0.0, 1.0, 1.0) if gating == "linear" else (2.0, 2.0, 0.5)
        grown += [
            Effect("S", terms, power, to, plus),
            Effect("D", s.entries(arrays, terms, both=True), power, 2 * to, plus),
        ]
        value = 1e-8 / (count / 2)
        text = f"a(0) of a pathway, {label}"
        starts.append(_start(gating, text, value, mine, 1e-12, 0.5))
        curves.append(Curve(label, COLOURS[colour], terms[:1]))
        x, y = f"x{gating}", f"y{gating}"
        names[0].append(x)
        names[1] += [f"{gating}{k}" for k in range(count)]
        names[2].append(y)
        for k in range(count):
            edges += [(x, f"{gating}{k}", mine, COLOURS[colour])]
            edges += [(f"{gating}{k}", y, mine, COLOURS[colour])]
        first, unknown = first + len(eq.S), unknown + len(eq.x0)
    delta = Parameter("delta", "Δ, half the margin", 0.5, 0.05, 2.0, grown)
    places = s.columns(names, (False, False, False))
    return Setup(
        "XoR with a margin: which gates learn first (H Fig. 2)",
        "Drag Δ: below √(2/3) = 0.816 XoR gates are faster, above it linear ones.",
        *(arrays, [delta, *starts], [(c.label, c.colour) for c in curves], curves, []),
        [Picture(places, edges)],
    )


def _view(edge: str) -> int:
    """The number of a view, from 1, of x0->h0 or h0->y."""
    return 1 + int(edge.split("->", maxsplit=1)[0].strip("xh"))


def claims() -> Setup:
    """The summary's race: views of one target, which occur together or also alone."""
    views, base, depths = 3, 2, (2, 3, 4)
    task = tasks.multiview(4, views, width=4)
    eq = _equations(task, _view)
    arrays = system([eq])
    modes = s.mode_groups(eq)[0]
    depth = [
        Effect("powers", range(len(arrays.powers))),
        Effect("rates", range(len(eq.x0)), to=-1.0),
    ]
    parameters = [
        dataclasses.replace(s.presence(eq, arrays), label="p, share of examples that show a view"),
        Parameter("L", "L, layers of weights", 2, 2, 4, depth, base, 1.0),
    ]
    curves, shares, at = [], [], {}
    for view in range(1, views + 1):
        at[view] = _unknowns(eq, lambda e, v=view: _view(e) == v)
        path = next(p for p, labels in enumerate(eq.pathways) if eq.of[at[view][0]][0] in labels)
        terms = [k for k, t in enumerate(eq.terms) if t[0] == path]
        colour = s.CYCLE[view - 1]
        curves.append(Curve(f"view {view}", colour, [eq.terms.index((path, modes[0]))]))
        shares.append(Curve(f"view {view}", colour, terms))
        effects = [
            Effect("S", terms),
            Effect("D", s.entries(arrays, terms, both=True), to=2.0),
            Effect("D", s.entries(arrays, terms, both=False)),
        ]
        strength = (1.0, 0.9, 0.8)[view - 1]
        parameters.append(
            Parameter(f"s{view}", f"strength of view {view}", strength, 0.2, 2.0, effects)
        )
    for view in range(1, views + 1):
        text = f"u(0), initial strength of a layer, view {view}"
        parameters.append(_start(f"u{view}", text, 0.1, at[view]))
    pictures = []
    for layers in depths:
        names = [[f"{n}{v}" for v in range(1, views + 1)] for n in ("x", *"hij"[: layers - 1])]
        edges = [
            (a, b, at[v], s.CYCLE[v - 1])
            for v in range(1, views + 1)
            for a, b in itertools.pairwise([*(column[v - 1] for column in names), "y"])
        ]
        labelled = (True, *[False] * (layers - 1), True)
        pictures.append(Picture(s.columns([*names, ["y"]], labelled), edges, {"L": layers}))
    return Setup(
        "The race of the summary: three views of one target",
        "Drag p below 1: views that also occur alone are all learned, whatever their strength; "
        "with p = 1 and more layers the winner takes nearly all.",
        *(arrays, parameters, _LOSS, curves, shares, pictures),
    )


FAMILIES: dict[str, Callable[[], Setup]] = {
    "routing": routing,
    "sharing": sharing,
    "margin": margin,
    "claims": claims,
}
