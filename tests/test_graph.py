"""The architecture: what a graph knows, and that every malformed one names its culprit."""

import copy
import pickle
from typing import Any

import pytest

from gdln_jax import Graph

WIDTHS = {"x": 4, "h": 8, "g": 8, "y": 7}
DIAMOND = [("x", "h"), ("x", "g"), ("h", "y"), ("g", "y")]


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ({"x": 0, "y": 1}, [("x", "y")], r"width of node 'x' is 0; .* at least 1"),
        ({"x": 1, "y": -3}, [("x", "y")], r"width of node 'y' is -3"),
        ({"x": 1, "y": True}, [("x", "y")], r"width of node 'y' is True"),
        ({"x": 1, "": 2}, [("x", "")], r"node name '' is not a non-empty string"),
        (WIDTHS, [], r"at least one edge"),
        (
            {"input": 1, "output": 1},
            [("input", "outputs")],
            r"edge 'input->outputs' uses node 'outputs'.*did you mean 'output'.*'input', 'output'",
        ),
        (WIDTHS, [*DIAMOND, ("x", "h")], r"edge name 'x->h' is used twice; give parallel edges"),
        (WIDTHS, [("x", "h", "a"), ("h", "y", "a"), ("x", "g")], r"edge name 'a' is used twice"),
        ({**WIDTHS, "lone": 3}, DIAMOND, r"node 'lone' has neither an incoming nor an outgoing"),
        ({"x": 1, "h": 1}, [("x", "h"), ("h", "h")], r"cycle: h -> h;"),
        (
            {"x": 1, "a": 1, "b": 1, "c": 1, "y": 1},
            [("x", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "y")],
            r"cycle: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c);",
        ),
    ],
)
def test_a_malformed_graph_names_its_culprit(nodes, edges, message):
    with pytest.raises(ValueError, match=message):
        Graph(nodes, edges)


def test_the_cycle_is_named_even_when_other_nodes_hang_on_it():
    # "late" cannot be ordered either, but lies on no cycle.
    edges = [("x", "a"), ("a", "b"), ("b", "a"), ("b", "late"), ("late", "y")]
    with pytest.raises(ValueError, match=r"cycle: (a -> b -> a|b -> a -> b);"):
        Graph(dict.fromkeys(["late", "y", "x", "a", "b"], 2), edges)


def test_ends_that_differ_from_the_declared_ones_are_refused():
    assert Graph(WIDTHS, DIAMOND, inputs=["x"], outputs=["y"]).outputs == ("y",)
    dead_end = [("x", "h"), ("x", "g"), ("h", "y")]
    with pytest.raises(ValueError, match=r"node 'g' has no outgoing edge .* outputs"):
        Graph(WIDTHS, dead_end, outputs=["y"])
    no_way_in = [("x", "h"), ("g", "y"), ("h", "y")]
    with pytest.raises(ValueError, match=r"node 'g' has no incoming edge .* inputs"):
        Graph(WIDTHS, no_way_in, inputs=["x"])
    with pytest.raises(ValueError, match=r"outputs declares 'z'.*'y'"):
        Graph(WIDTHS, DIAMOND, outputs=["y", "z"])


def test_errors_without_the_typing_hook(refused_plainly):
    # The run-time type checker fires first in tests; users see these.
    snippet = """
from gdln_jax import Graph
pair, edge = {"x": 1, "y": 1}, [("x", "y")]
bad = [
    (["x"], edge, {}, "nodes must be a mapping from node name to width, got list"),
    ({"x": 1.5, "y": 1}, edge, {}, "width of node 'x' is 1.5; it must be an integer"),
    ({"x": 1, 3: 1}, [("x", 3)], {}, "node name 3 is not a non-empty string"),
    (pair, None, {}, "edges must be a sequence of (source, target)"),
    (pair, "xy", {}, "edges must be a sequence of (source, target)"),
    (pair, 7, {}, "edges must be a sequence of (source, target)"),
    (pair, [7], {}, "edge 7 must be (source, target)"),
    (pair, ["xy"], {}, "edge 'xy' must be (source, target)"),
    (pair, [("x",)], {}, "edge ('x',) must be (source, target)"),
    (pair, [("x", "y", 3)], {}, "name of edge ('x', 'y', 3) is not a non-empty string"),
    (pair, [("x", ["y"])], {}, "uses node ['y'], which is not in nodes"),
    (pair, [("x", "Y")], {}, "edge 'x->Y' uses node 'Y', which is not in nodes (did you mean 'y'"),
    (pair, [("x", "y"), ("y", "x")], {}, "cycle: x -> y -> x"),
    (pair, edge, {"outputs": "y"}, "outputs is the string 'y'; pass a list"),
]
attempts = [
    (lambda nodes=nodes, edges=edges, declared=declared: Graph(nodes, edges, **declared), words)
    for nodes, edges, declared, words in bad
]
"""
    refused_plainly(snippet)


def test_nodes_and_edges_can_be_looked_up():
    graph = Graph(WIDTHS, [*DIAMOND, ("x", "y", "skip")])
    assert dict(graph.nodes) == WIDTHS
    assert (graph.inputs, graph.outputs, graph.hidden) == (("x",), ("y",), ("h", "g"))
    assert [e.name for e in graph.edges] == ["x->h", "x->g", "h->y", "g->y", "skip"]
    assert graph.shape("x->h") == (8, 4)
    assert graph.shape("skip") == (7, 4)
    assert [e.name for e in graph.incoming["y"]] == ["h->y", "g->y", "skip"]
    assert [e.name for e in graph.outgoing["x"]] == ["x->h", "x->g", "skip"]
    with pytest.raises(KeyError, match=r"no edge is called 'skip2' \(did you mean 'skip'"):
        graph.edge("skip2")
    assert "4 nodes [x:4, h:8, g:8, y:7], 5 edges, 3 paths" in repr(graph)


def test_a_graph_is_frozen_hashable_and_travels_between_processes():
    graph, same = Graph(WIDTHS, DIAMOND), Graph(dict(WIDTHS), [*DIAMOND])
    assert graph == same
    assert hash(graph) == hash(same)
    assert graph != Graph(WIDTHS, DIAMOND[::-1])
    assert graph != Graph({**WIDTHS, "h": 9}, DIAMOND)
    assert graph != "graph"
    with pytest.raises(AttributeError):
        graph._edges = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.nodes["x"] = 5  # type: ignore[index]
    for touch in (graph.nodes, graph.order, graph.bundles, graph.num_paths):
        assert touch
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert copy.deepcopy(graph) == graph


def test_a_pickled_graph_equals_its_twin_in_a_process_with_other_hashes(plain_python):
    make = "from gdln_jax import Graph; g = Graph({'x': 1, 'y': 2}, [('x', 'y')]); hash(g)\n"
    scope: dict[str, Any] = {}
    exec(make, scope)
    sent = pickle.dumps(scope["g"]).hex()
    check = f"import pickle; assert pickle.loads(bytes.fromhex('{sent}')) == g"
    done = plain_python(make + check, PYTHONHASHSEED="2")
    assert done.returncode == 0, done.stderr


def test_order_level_and_bundles():
    # level = longest path from an input; bundles join edges of one shape between two levels.
    nodes = {"y": 2, "b": 3, "a": 3, "x": 2, "z": 2}
    edges = [("a", "b"), ("b", "y"), ("x", "a"), ("z", "a"), ("x", "y", "s"), ("z", "y", "t")]
    graph = Graph(nodes, edges)
    place = {name: i for i, name in enumerate(graph.order)}
    assert all(place[e.source] < place[e.target] for e in graph.edges)
    assert dict(graph.level) == {"x": 0, "z": 0, "a": 1, "b": 2, "y": 3}
    assert [b.edges for b in graph.bundles] == [("x->a", "z->a"), ("a->b",), ("s", "t"), ("b->y",)]
    assert [b.shape for b in graph.bundles] == [(3, 2), (3, 3), (2, 2), (2, 3)]
    for edge in graph.edges:
        bundle, position = graph.slot[edge.name]
        assert graph.bundles[bundle].edges[position] == edge.name


def test_the_number_of_bundles_does_not_grow_with_the_number_of_modules():
    def fan(m: int) -> Graph:
        names = [f"x{i}" for i in range(m)]
        return Graph(
            {**dict.fromkeys(names, 4), "h": 8, "y": 2}, [*((n, "h") for n in names), ("h", "y")]
        )

    assert len(fan(3).bundles) == len(fan(50).bundles) == 2


def test_paths_run_from_inputs_to_outputs_and_are_counted_without_listing():
    graph = Graph(WIDTHS, [*DIAMOND, ("x", "y"), ("x", "y", "again")])
    assert list(graph.paths()) == [("x->h", "h->y"), ("x->g", "g->y"), ("x->y",), ("again",)]
    assert graph.num_paths == 4
    deep = Graph(
        {f"n{i}": 1 for i in range(101)},
        [(f"n{i}", f"n{i + 1}", f"{side}{i}") for i in range(100) for side in "ab"],
    )
    assert deep.num_paths == 2**100


def test_chain():
    graph = Graph.chain([4, 64, 32, 7])
    assert dict(graph.nodes) == {"x": 4, "h1": 64, "h2": 32, "y": 7}
    assert [e.name for e in graph.edges] == ["x->h1", "h1->h2", "h2->y"]
    assert Graph.chain([3, 2]).hidden == ()
    with pytest.raises(ValueError, match=r"at least 2 widths .* got \[4\]"):
        Graph.chain([4])
