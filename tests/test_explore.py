"""`plot.explore` without a browser: sliders are set from Python, curves are read off the axes."""

import sys

import numpy as np
import pytest
from test_lowering import compiled

import gdln_jax as gdln
from gdln_jax import plot

TASK = gdln.tasks.routing(2, 2)
TS = np.linspace(0.0, 2.0, 12)


@pytest.fixture(scope="module")
def explored():
    reduction = gdln.reduce(TASK.graph, TASK.data)
    return reduction, plot.explore(reduction, 0.3, TS)


def changed(reduction, amplitude=1.0, strength=1.0, gate=1.0, closed=0.0):
    """The reduction of data changed by hand, and the start."""
    data = TASK.data
    assert isinstance(data, gdln.GatedData)
    targets = {}
    for name, y in data.targets.items():
        u = np.asarray(reduction.frames[f"h2->{name}"][0])[:, :1]  # of mode 1
        targets[name] = y + (strength - 1) * y @ u @ u.T
    gates = {name: np.where(g == 0, closed, g) for name, g in data.edge_gates.items()}
    gates["x0->h1"] = np.where(data.edge_gates["x0->h1"] == 0, closed, gate)
    nodes = {name: np.where(g == 0, closed, g) for name, g in data.node_gates.items()}
    new = gdln.GatedData(data.inputs, targets, nodes, gates, data.weights)
    b0 = {e.name: 0.3 if e.name == "h1->h2" else 0.3 * amplitude for e in TASK.graph.edges}
    return gdln.reduce(TASK.graph, new, like=reduction), b0


def test_curves_are_those_of_solve_and_all_values_have_one_program(explored):
    reduction, explorer = explored
    sliders = explorer.sliders
    settings = (
        {},
        {"amplitude": 10.0, "closed": 1.0},
        {"amplitude": 0.01, "rate": 10.0, "strength": 3.0},
        {"gate": 0.0, "strength": 0.0, "closed": 0.4, "rate": 0.1},
    )
    named = {
        "amplitude": "amplitude x0->h1 (+3)",
        "rate": "rate h1->h2",
        "strength": "strength of mode 1",
        "gate": "gate x0->h1",
        "closed": "closed gates",
    }
    left, right = explorer.figure.axes
    picture = explorer.picture
    for values in settings:
        with compiled() as names:
            for name in named:
                start = 0.0 if name == "closed" else 1.0
                sliders[named[name]].value = values.get(name, start)
        assert names == []
        other, b0 = changed(reduction, **{k: v for k, v in values.items() if k != "rate"})
        tau = {e.name: 1.0 for e in TASK.graph.edges}
        tau["h1->h2"] = 1.0 / values.get("rate", 1.0)
        run = other.solve(b0, TS, tau=tau)
        scale = float(run.losses[0])
        np.testing.assert_allclose(left.lines[0].get_ydata(), run.losses, atol=1e-8 * scale)
        strengths = run.pathways().strengths  # (path, time, mode)
        for k, line in enumerate(right.lines[: 4 * strengths.shape[-1]]):
            curve = strengths[k // strengths.shape[-1], :, k % strengths.shape[-1]]
            size = max(1.0, float(np.max(np.abs(curve))))
            np.testing.assert_allclose(line.get_ydata(), curve, atol=1e-8 * size)
        low, high = right.get_ylim()
        assert low <= np.min(strengths)
        assert np.max(strengths) <= high
        assert explorer.picture.startswith(b"\x89PNG")
        assert explorer.picture != picture or not values
        picture = explorer.picture


def test_gates_are_offered_where_the_frames_hold_for_all_their_values():
    graph = gdln.Graph.chain([2, 3, 2])
    x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    y = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    data = gdln.GatedData({"x": x}, {"y": y}, {"h1": [1.0, 1.0, 0.0]})
    explorer = plot.explore(gdln.reduce(graph, data), 0.1, TS)
    # Opened, the third example would turn the modes.
    assert "gate h1" in explorer.sliders
    assert "closed gates" not in explorer.sliders


def test_what_cannot_be_explored(explored, monkeypatch):
    reduction, _ = explored
    big = gdln.tasks.routing(8, 2)
    with pytest.raises(ValueError, match=r"unknowns, and explore draws at most 60"):
        plot.explore(gdln.reduce(big.graph, big.data), 0.1, TS)
    rng = np.random.default_rng(0)
    skewed = gdln.GatedData({"x": rng.normal(size=(6, 3))}, {"y": rng.normal(size=(6, 3))})
    coupled = gdln.reduce(gdln.Graph.chain([3, 3, 3]), skewed, on_inexact="coupled")
    with pytest.raises(ValueError, match="explore draws diagonal reductions"):
        plot.explore(coupled, 0.1, TS)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ImportError, match=r"pip install 'gdln_jax\[live\]'"):
        plot.explore(reduction, 0.3, TS)
