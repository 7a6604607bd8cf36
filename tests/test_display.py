"""What notebooks show of objects: well-formed, escaped, nothing drawn over anything else."""

import re
import xml.etree.ElementTree as ET

import pytest

from gdln_jax import Graph

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
        tuple(float(rect.get(k)) for k in ("x", "y", "width", "height"))
        for rect in tree.iter(f"{SVG}rect")
    ]


class TestGraph:
    @pytest.mark.parametrize("graph", [SKIPS, AWKWARD, WIDE, Graph.chain([3, 2])])
    def test_nodes_lie_inside_the_drawing_and_apart(self, graph):
        tree = parsed(graph)
        (drawing,) = tree.iter(f"{SVG}svg")
        width, height = float(drawing.get("width")), float(drawing.get("height"))
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
        ways = [p.get("d") for p in tree.iter(f"{SVG}path") if "H" in p.get("d")]
        levels = [float(re.search(r",([\d.]+)H", way).group(1)) for way in ways]
        assert len(set(levels)) == 2  # the two skips lie apart
        for x, y, w, h in boxes(tree):
            for way, at in zip(ways, levels, strict=True):
                end = float(re.search(r"H([\d.]+)", way).group(1))
                assert not (x < end <= x + w and y <= at <= y + h)

    def test_names_are_escaped(self):
        assert "in & <out>" in {text.text for text in parsed(AWKWARD).iter(f"{SVG}text")}

    def test_of_many_nodes_some_are_drawn_and_the_others_counted(self):
        tree = parsed(WIDE)
        assert len(boxes(tree)) == 8 + 2
        assert "and 22 more" in {text.text for text in tree.iter(f"{SVG}text")}
