"""What notebooks show of objects: well-formed, escaped, nothing drawn over anything else."""

import re
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    Schedule,
    Trajectory,
    init,
    reduce,
    tasks,
    train,
)

SVG = "{http://www.w3.org/2000/svg}"
SKIPS = Graph(
    {"x": 4, "c": 3, "a": 8, "b": 8, "y": 7, "z": 2},
    [
        *(("x", "a"), ("x", "b"), ("c", "b"), ("a", "y"), ("b", "y"), ("b", "z")),
        *(("x", "y", "skip"), ("x", "y", "second skip"), ("a", "y", "parallel")),
    ],
)
AWKWARD = Graph({"in & <out>": 4, "h": 2, 'y"': 1}, [("in & <out>", "h"), ("h", 'y"')])
WIDE = Graph(
    {"x": 2, **{f"h{i}": 3 for i in range(30)}, "y": 1},
    [edge for i in range(30) for edge in (("x", f"h{i}"), (f"h{i}", "y"))],
)


def parsed(one):
    """The HTML of an object, which must be well-formed."""
    return ET.fromstring(one._repr_html_())


def boxes(tree):
    return [
        tuple(float(rect.get(k) or "nan") for k in ("x", "y", "width", "height"))
        for rect in tree.iter(f"{SVG}rect")
    ]


class TestGraph:
    @pytest.mark.parametrize("graph", [SKIPS, AWKWARD, WIDE, Graph.chain([3, 2])])
    def test_nodes_lie_inside_the_drawing_and_apart(self, graph):
        tree = parsed(graph)
        (drawing,) = tree.iter(f"{SVG}svg")
        width, height = (float(drawing.get(k) or "nan") for k in ("width", "height"))
        found = boxes(tree)
        for i, (x, y, w, h) in enumerate(found):
            assert x >= 0
            assert y >= 0
            assert x + w <= width
            assert y + h <= height
            for u, v, s, t in found[:i]:
                assert x >= u + s or u >= x + w or y >= v + t or v >= y + h

    def test_every_node_and_edge_has_its_title(self):
        titles = {title.text for title in parsed(SKIPS).iter(f"{SVG}title")}
        assert "skip: 7 x 4" in titles
        assert "x: input node, 4 units" in titles
        assert len(titles) == len(SKIPS.nodes) + len(SKIPS.edges)

    def test_an_edge_that_skips_a_level_passes_between_its_nodes(self):
        tree = parsed(SKIPS)
        drawn = [path.get("d") or "" for path in tree.iter(f"{SVG}path")]
        ways = [way for way in drawn if "H" in way]
        levels = [float(re.findall(r",([\d.]+)H", way)[0]) for way in ways]
        assert len(set(levels)) == 2  # the two skips lie apart
        for x, y, w, h in boxes(tree):
            for way, at in zip(ways, levels, strict=True):
                end = float(re.findall(r"H([\d.]+)", way)[0])
                assert not (x < end <= x + w and y <= at <= y + h)

    def test_tied_and_frozen_edges_are_marked(self):
        edges = [("x", "h"), ("h", "k", "F"), ("k", "y"), ("x", "y", "skip")]
        nodes = {"x": 4, "h": 3, "k": 3, "y": 4}
        tied = parsed(Graph(nodes, edges, shared={"W": ["x->h", "k->y^T"]}, frozen=["F"]))
        texts = [text.text for text in tied.iter(f"{SVG}text")]
        assert [texts.count(name) for name in ("W", "W\u1d40", "F", "skip")] == [1, 1, 1, 0]
        paths = list(tied.iter(f"{SVG}path"))
        assert [path.get("stroke-dasharray") is not None for path in paths] == [0, 1, 0, 0]
        titles = [path[0].text for path in paths]
        assert titles == [
            *("x->h: 3 x 4, array W", "F: 3 x 3, array F, frozen"),
            *("k->y: 4 x 3, array W\u1d40", "skip: 4 x 4"),
        ]

    def test_names_are_escaped(self):
        assert "in & <out>" in {text.text for text in parsed(AWKWARD).iter(f"{SVG}text")}

    def test_of_many_nodes_some_are_drawn_and_the_others_counted(self):
        tree = parsed(WIDE)
        assert len(boxes(tree)) == 8 + 2
        assert "and 22 more" in {text.text for text in tree.iter(f"{SVG}text")}


TASK = tasks.xor()
NAMED = GatedData(
    {"x": np.eye(2)},
    {"y": pd.DataFrame([[2.0, 0.0], [0.0, 1.0]], index=["oak <", "elm"], columns=["a", "b"])},
)


def cells(one):
    return [[cell.text or "" for cell in row] for row in parsed(one).iter("tr")]


class TestData:
    def test_arrays_have_shapes_and_names(self):
        assert cells(NAMED)[1:] == [
            ["inputs", "x", "(2, 2)", "", "oak <, elm"],
            ["targets", "y", "(2, 2)", "a, b", "oak <, elm"],
        ]

    def test_gates_are_listed_by_pattern(self):
        table = cells(TASK.data)
        assert ["inputs", "x", "(4, 2)"] in table
        assert ["examples", "1", "1", "1", "1"] in table
        assert ["h2", "0", "1", "0", "0"] in table

    def test_of_many_patterns_some_are_shown(self):
        gate = np.arange(20.0)
        data = GatedData({"x": np.ones((20, 1))}, node_gates={"h": gate})
        (row,) = [row for row in cells(data) if row[0] == "h"]
        assert row == ["h", *"01234567", "..."]

    def test_a_schedule_and_a_task(self):
        assert isinstance(TASK.data, GatedData)
        schedule = Schedule([TASK.data, TASK.data], times=[2.5])
        assert ["1", "2.5", "1"] in cells(schedule)
        assert len(boxes(parsed(TASK))) == len(TASK.graph.nodes)

    def test_stacked_and_traced_data_are_shown_without_gates(self):
        stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), TASK.data)
        assert not [row for row in cells(stacked) if row[0] == "h2"]
        seen = []
        jax.jit(lambda data: (seen.append(cells(data)), 0)[1])(TASK.data)
        assert ["inputs", "x", "(4, 2)"] in seen[0]


class TestResults:
    def test_a_reduction(self):
        table = cells(reduce(Graph.chain([2, 2, 2]), NAMED))
        assert table[0] == ["mode", "S, x to y", "strongest in", "writes"]
        assert table[1] == ["1", "1", "oak <", "a"]

    def test_a_run(self):
        net = GatedNetwork.init(TASK.graph, init.orthogonal(0.5), key=jax.random.key(0))
        run = train(net, TASK.data, optimizer=optax.sgd(0.1), steps=3)
        assert ["steps", "0 to 3"] in cells(run)
        (line,) = parsed(run).iter(f"{SVG}polyline")
        assert len((line.get("points") or "").split()) == len(run.losses)
        assert len(boxes(parsed(net))) == len(TASK.graph.nodes)

    def test_a_run_that_failed_and_a_batch(self):
        run = Trajectory(
            ts=jnp.arange(3.0),
            losses=jnp.array([1.0, jnp.nan, jnp.nan]),
            status=jnp.array(2),
            stats={},
            models=None,
            final=None,
            measured=None,
        )
        assert ["status", "the solver gave up"] in cells(run)
        assert not list(parsed(run).iter(f"{SVG}polyline"))
        batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), run)
        assert cells(batch) == []
