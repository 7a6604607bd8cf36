"""Saddles: predictions, flows at three scales, and what they extrapolate to."""

import itertools
from collections.abc import Callable

import numpy as np
import xarray as xr

import gdln_jax as gdln
from gdln_jax import exact, tasks
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import labelled
from gdln_jax.recipes.saddles import CASES, FLIP, Options

S, D, STRENGTHS = 1.3, 0.7, (1.0, 0.6)
LATE = (1.0, 0.9, 0.8, 1.1)
# T* of routing with M = 3, by independent code.
REFERENCE = 1.78232241832
# With a stage whose time is a logarithm, which needs smaller scales.
LOGARITHMIC = ("chain-2", "fusion-3-2")


def chain(depth: int, c: list[float]) -> tuple[gdln.Reduction, dict[str, float]]:
    """One path of `depth` edges, and its start."""
    nodes = ["x", *(f"h{k}" for k in range(1, depth)), "y"]
    edges = list(itertools.pairwise(nodes))
    data = gdln.GatedData.from_moments({"x": 1}, {"y": 1}, xx=[[D]], yx=[[S]])
    reduction = gdln.reduce(gdln.Graph(dict.fromkeys(nodes, 1), edges), data)
    return reduction, dict(zip((f"{a}->{b}" for a, b in edges), c, strict=True))


def fusion(
    s: tuple[float, float], xx: tuple[float, float, float], depth: int = 2, separate: int = 2
) -> gdln.Reduction:
    """Two modalities with variances and covariance `xx`, and `separate` of `depth` layers each."""
    shared = [f"s{k}" for k in range(depth - separate)] + ["y"]
    lines = [[f"x{m}", *(f"h{m}{k}" for k in range(1, separate)), *shared] for m in "AB"]
    pairs = dict.fromkeys(p for line in lines for p in itertools.pairwise(line))
    nodes = dict.fromkeys((node for pair in pairs for node in pair), 1)
    moments = [[xx[0], xx[2]], [xx[2], xx[1]]]
    data = gdln.GatedData.from_moments({"xA": 1, "xB": 1}, {"y": 1}, xx=moments, yx=[list(s)])
    return gdln.reduce(gdln.Graph(nodes, list(pairs)), data)


def late(s: tuple[float, float], xx: tuple[float, float, float]) -> tuple[gdln.Reduction, dict]:
    """Late fusion of two layers, and its start."""
    edges = ("xA->hA1", "hA1->y", "xB->hB1", "hB1->y")
    return fusion(s, xx), dict(zip(edges, LATE, strict=True))


def deep(separate: int) -> tuple[gdln.Reduction, dict[str, float]]:
    """Two modalities in three layers, from an unbalanced start."""
    reduction = fusion(STRENGTHS, (1.0, 1.0, 0.3), 3, separate)
    names = [edge.name for edge in reduction.graph.edges]
    return reduction, {name: 1 + 0.1 * (k % 3) for k, name in enumerate(names)}


def routed() -> tuple[gdln.Reduction, dict[str, float]]:
    """Routing with three domains of one feature."""
    base = np.array([[np.sqrt(0.8)]]), np.array([[1.2 / np.sqrt(0.8)]])
    task = tasks.routing(3, 2, base=base, width=1)
    names = [edge.name for edge in task.graph.edges]
    return gdln.reduce(task.graph, task.data), {k: 1.1 if k == "h1->h2" else 0.9 for k in names}


def heads() -> tuple[gdln.Reduction, dict[str, float]]:
    """Two attention heads on components of their own; key, query and value start unequal."""
    task = tasks.linear_attention([1.0, 0.6], context=31)
    reduction = gdln.reduce(task.graph, task.data, **task.meta["reduce"])
    start = {"q": 1.0, "k": 0.8, "v": 1.2}
    return reduction, {name: start[name[0]] for name in reduction.graph.trainable}


BUILD: dict[str, Callable[[], tuple[gdln.Reduction, dict]]] = {
    "chain-2": lambda: chain(2, [1, -0.6]),
    "chain-3": lambda: chain(3, [1, -0.6, 1.7]),
    "chain-4": lambda: chain(4, [1, -0.6, 1.7, 0.8]),
    "fusion-3-3": lambda: deep(3),
    "fusion-3-2": lambda: deep(2),
    "routing": routed,
    "attention": heads,
}


def flows(
    reduction: gdln.Reduction, c: dict, staircase: gdln.Staircase, scales: tuple[float, ...]
) -> np.ndarray:
    """Times (scale, event) at which the flow has done half of each drop."""
    levels = np.array([(e.loss_before + e.loss_after) / 2 for e in staircase.events])
    times = []
    for eps in scales:
        t1 = 1.5 * float(staircase.times(eps).max()) + 50
        small = reduction.quotient({name: eps * value for name, value in c.items()})
        times.append(np.asarray(small.time_to(levels, t1=t1).time))
    return np.stack(times)


def late_times(
    s: tuple[float, float], xx: tuple[float, float, float], scales: tuple[float, ...]
) -> tuple[list[float], np.ndarray]:
    """Predicted theta, and times in the flow, of late fusion."""
    reduction, c = late(s, xx)
    staircase = gdln.saddles(reduction, c)
    return [event.theta for event in staircase.events], flows(reduction, c, staircase, scales)


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """All systems: predictions by `saddles`, and flows at three scales."""
    scan = [(STRENGTHS, (1.0, 1.0, d)) for d in o.covariances]
    scan += [((1.0, 0.3), (1.0, 1.0, FLIP)), (STRENGTHS, (4.0, 0.5, 0.3))]
    progress(0.0, "fusion of two modalities")
    thetas, measured = zip(*(late_times(*one, o.small) for one in scan), strict=True)
    reduction, c = late(STRENGTHS, (1.0, 1.0, 0.3))
    staircase = gdln.saddles(reduction, c)
    eps = o.small[0]
    ts = np.linspace(0, 1.4 * float(staircase.times(eps)[-1]), 241)
    run = reduction.solve({name: eps * value for name, value in c.items()}, ts, progress=False)
    levels = [staircase.events[0].loss_before, *(e.loss_after for e in staircase.events)]
    rows: list[tuple[str, float, float, np.ndarray, tuple[float, ...]]] = []
    for k, case in enumerate(o.cases):
        progress(0.4 + 0.6 * k / len(o.cases), CASES[case])
        reduction, c = BUILD[case]()
        found = gdln.saddles(reduction, c)
        scales = o.small if case in LOGARITHMIC else o.deep
        times = flows(reduction, c, found, scales)
        for j, event in enumerate(found.events):
            _, power, coefficient = event.stages[-1]
            # Stages of one block add up; blocks start at 0.
            gap = times[:, j] - (times[:, j - 1] if len(event.stages) > 1 else 0.0)
            rows.append((case, power, coefficient, gap, scales))
    names, powers, coefficients, gaps, scales = zip(*rows, strict=True)
    coords = {
        "time": ("time", ts, {"units": "tau"}),
        "event": [1, 2],
        "plateau": [0, 1, 2],
        "scan": np.arange(len(scan)),
        "row": np.arange(len(rows)),
        "case": ("row", list(names)),
        "scale": np.arange(3),
    }
    variables = {
        "loss": ("time", run.losses, "loss of the flow at the largest scale"),
        "steps": ("event", staircase.times(eps), "times of its events, predicted"),
        "levels": ("plateau", levels, "plateaus of its loss, predicted"),
        "s": (("scan", "event"), [s for s, _ in scan], "strengths of A and B"),
        "variance": (("scan", "event"), [xx[:2] for _, xx in scan], "variances of A and B"),
        "covariance": ("scan", [xx[2] for _, xx in scan], "covariance of A and B"),
        "theta": (("scan", "event"), np.array(thetas), "times over ln(1/eps), predicted"),
        "times": (("scan", "scale", "event"), np.stack(measured), "times in the flow"),
        "power": ("row", list(powers), "power of 1/eps of a stage; 0: its logarithm"),
        "coefficient": ("row", list(coefficients), "its coefficient, predicted"),
        "gap": (("row", "scale"), np.stack(gaps), "its duration in the flow"),
        "eps": (("row", "scale"), np.array(scales), "initial scale"),
    }
    return labelled("Saddles: times of learning from a small start", coords, variables)


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """Slopes and extrapolated coefficients beside predictions."""
    fold = np.log(o.small[1] / o.small[2])
    slopes = (data["times"][:, 2] - data["times"][:, 1]).values / fold
    theta, s = data["theta"].values, data["s"].values
    rest = s[:, 1] - s[:, 0] * data["covariance"].values / data["variance"].values[:, 0]
    corrected = 1 + (s[:, 0] - np.sign(rest) * s[:, 1]) / np.abs(rest)
    old = 1 + (s[:, 0] - s[:, 1]) / np.abs(rest)
    flips, ratio = rest < 0, slopes[:, 1] / slopes[:, 0]
    power, known = data["power"].values, data["coefficient"].values
    found = [
        _limit(*row) for row in zip(power, data["eps"].values, data["gap"].values, strict=True)
    ]
    off = np.abs(np.array(found) / known - 1)
    case = data["case"].values.tolist()
    chains = {k: row for row, k in enumerate(case) if k in ("chain-3", "chain-4")}
    starts = {"chain-3": [1, -0.6, 1.7], "chain-4": [1, -0.6, 1.7, 0.8]}
    closed = [
        float(exact.chain_blow_up(S, np.array(starts[k]))) / known[r] for k, r in chains.items()
    ]
    routing = known[case.index("routing")]
    arc = float(exact.chain_blow_up(1.2, np.array([0.9, 1.1, 0.9]), sizes=[3, 1, 3]))
    layers = power + np.array([name != "chain-2" for name in case])
    return {
        "closed": float(np.max(np.abs(np.array([*closed, arc / routing]) - 1))),
        "formula": float(np.max(np.abs(theta[:, 1] / theta[:, 0] - corrected))),
        "routing": abs(routing / REFERENCE - 1),
        "ratio": abs(ratio[-2] - 3.6),
        "flip": ratio[-2],
        "two_layers": float(np.max([*np.abs(slopes / theta - 1).ravel(), *off[layers == 0]])),
        "deeper": float(np.max(off[layers > 0])),
        "old": float(np.min((ratio / old)[flips])),
        "bias": ratio[-1],
        "slopes": ratio,
        "corrected": corrected,
        "uncorrected": old,
        "found": np.array(found),
        "off": off,
        "worst": CASES[case[int(np.argmax(off))]],
        "share": float(1 / (4.0 * 2)) / float(0.36 / (0.5 * 2)),
    }


def _limit(power: float, eps: np.ndarray, gap: np.ndarray) -> float:
    """The coefficient that durations at three scales tend to."""
    if power == 0:
        return float((gap[2] - gap[1]) / np.log(eps[1] / eps[2]))
    # Corrections are powers of eps^power.
    return float(np.polyfit(eps**power, gap * eps**power, 2)[-1])
