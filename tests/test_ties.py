"""Tied weights: `Graph(shared=, frozen=)`, networks, training, rules, conserved quantities.

Known answers: the key `tied` of reference_beyond.json (theory#ties); gradients of the same
network with all edges independent, summed over the uses of each array; laws of theory#ties along
flows, with signs and counts that are wrong as controls.
"""

import io
import pickle
from collections import Counter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, Graph, init, measures, rules

slope_of = eqx.filter_jit(eqx.filter_value_and_grad(gdln.mse))
gradient_of = eqx.filter_jit(eqx.filter_grad(gdln.mse))

CHAIN = {"x": 3, "h": 2, "y": 3}
TIED = Graph(CHAIN, [("x", "h"), ("h", "y")], shared={"W": ["x->h", "h->y^T"]})
# x -A-> h1 -B-> h2 -B'-> h3 -c-> y, with a frozen skip F from h1 to y.
FLIP = Graph(
    {"x": 2, "h1": 3, "h2": 4, "h3": 3, "y": 2},
    [("x", "h1"), ("h1", "h2"), ("h2", "h3"), ("h3", "y"), ("h1", "y")],
    shared={"B": ["h1->h2", "h2->h3^T"]},
    frozen=["h1->y"],
)


@pytest.fixture(scope="module")
def flip() -> tuple[GatedNetwork, GatedData]:
    """The set-up of `gradient_gated_frozen` in the reference."""
    draw = np.random.default_rng(21).standard_normal
    a, b, c, f = draw((3, 2)), draw((4, 3)), draw((2, 3)), draw((2, 3))
    x, y, gate = draw((6, 2)), draw((6, 2)), draw(6)
    net = GatedNetwork(FLIP, {"x->h1": a, "B": b, "h3->y": c, "h1->y": f})
    return net, GatedData({"x": x}, {"y": y}, edge_gates={"h2->h3": gate})


class TestGraph:
    def test_parameters_uses_and_orientation(self):
        assert dict(FLIP.parameters) == {
            "x->h1": (3, 2),
            "B": (4, 3),
            "h3->y": (2, 3),
            "h1->y": (2, 3),
        }
        assert FLIP.uses["B"] == (("h1->h2", False), ("h2->h3", True))
        assert FLIP.parameter_of["h2->h3"] == ("B", True)
        assert FLIP.parameter_of["x->h1"] == ("x->h1", False)
        assert (FLIP.frozen, FLIP.trainable) == (("h1->y",), ("x->h1", "B", "h3->y"))
        assert "shared B = [h1->h2, h2->h3^T], frozen 'h1->y'" in repr(FLIP)

    def test_a_class_of_transposes_alone_has_the_transposed_shape(self):
        graph = Graph(CHAIN, [("x", "h"), ("h", "y")], shared={"P": ["x->h^T"]})
        assert graph.parameters["P"] == (3, 2)
        net = GatedNetwork(graph, {"P": np.ones((3, 2)), "h->y": np.ones((3, 2))})
        assert net.weights["x->h"].shape == (2, 3)

    def test_graphs_are_equal_hashed_and_pickled_with_their_ties(self):
        edges = [("x", "h"), ("h", "y")]
        turned = Graph(CHAIN, edges, shared={"W": ["h->y^T", "x->h"]})
        assert turned == TIED
        assert hash(turned) == hash(TIED)
        untied, frozen = Graph(CHAIN, edges), Graph(CHAIN, edges, frozen=["x->h"])
        assert len({TIED, untied, frozen}) == 3
        assert pickle.loads(pickle.dumps(FLIP)) == FLIP
        assert set(untied.__getstate__()) == {"_nodes", "_edges"}
        old = Graph.__new__(Graph)  # as pickled before graphs had ties
        old.__dict__.update({"_nodes": untied._nodes, "_edges": untied._edges})
        assert old == untied
        assert not old.tied


def test_what_a_graph_refuses_of_ties(refused_plainly):
    refused_plainly("""
from gdln_jax import Graph
def g(nodes={"x": 3, "h": 2, "y": 3}, edges=[("x", "h"), ("h", "y")], **ties):
    return lambda: Graph(nodes, edges, **ties)
square = {"x": 2, "h": 2, "y": 2}
attempts = [
    (g(shared={"W": ["x->h", "h->y"]}), "'x->h' has (2, 3) and 'h->y' (3, 2)"),
    (g(shared={"W": ["x->h", "h->z"]}), "names 'h->z', which is no edge"),
    (g(shared={"W": ["x->h", "x->h"]}), "'x->h', which is used twice"),
    (g(shared={"V": ["x->h"], "W": ["x->h"]}), "in shared['V'] too"),
    (g(shared={"h->y": ["x->h"]}), "is also an edge outside of the class"),
    (g(shared={"W": []}), "at least one edge"),
    (g(shared={"W": "x->h"}), "pass a list of at least one edge"),
    (g(shared=["x->h"]), "pass a mapping"),
    (g(square, [("x", "h", "a^T"), ("h", "y")], shared={"W": ["h->y"]}), "'a^T' ends in '^T'"),
    (g(frozen=["x->z"]), "'x->z', which is no parameter"),
    (g(frozen="x->h"), "pass a list of parameters"),
    (g(shared={"W": ["x->h", "h->y^T"]}, frozen=["x->h"]), "freeze the class"),
    (g(frozen=["x->h", "h->y"]), "nothing to train"),
]
""")


class TestNetwork:
    def test_class_gradient_of_the_reference(self, reference_beyond):
        case = reference_beyond["tied"]["gradient_transposed"]
        c, a, p = (np.array(case[key]) for key in "CAP")
        joint = np.block([[c, a.T], [a, a @ np.linalg.inv(c) @ a.T + 0.1 * np.eye(3)]])
        rows = np.linalg.cholesky(joint).T * np.sqrt(6)
        net = GatedNetwork(TIED, {"W": p})
        data = GatedData({"x": rows[:, :3]}, {"y": rows[:, 3:]})
        loss, gradient = slope_of(net, data)
        assert abs(loss - case["L"]) < 1e-9
        np.testing.assert_allclose(gradient.parameters["W"], case["gradient"], atol=1e-9)
        np.testing.assert_array_equal(gradient.weights["h->y"], gradient.weights["x->h"].T)

    def test_gated_gradient_with_a_frozen_edge_of_the_reference(self, flip, reference_beyond):
        case = reference_beyond["tied"]["gradient_gated_frozen"]
        net, data = flip
        loss, gradient = slope_of(net, net.prepare(data))
        assert abs(loss - case["L"]) < 1e-7
        for key, name in (("dL/dB[0]", "B"), ("dL/dA[0]", "x->h1"), ("dL/dc[0]", "h3->y")):
            np.testing.assert_allclose(gradient.parameters[name][0], case[key], rtol=1e-9)
        assert not np.any(gradient.parameters["h1->y"])
        # By the sum over paths, keyed by parameter, and by dense evaluation.
        paths = gdln.path_sum_gradient(net, gdln.path_statistics(FLIP, data))
        dense = gradient_of(net, data)
        assert set(paths) == set(FLIP.parameters)
        for name, g in gradient.parameters.items():
            np.testing.assert_allclose(-paths[name], g, rtol=1e-11, atol=1e-11)
            np.testing.assert_allclose(dense.parameters[name], g, rtol=1e-12, atol=1e-12)

    def test_gradient_of_a_class_is_the_sum_over_its_uses(self):
        graph, net, data = gated_dag(0)
        tied = gradient_of(net, data)
        free_graph = Graph(graph.nodes, [(e.source, e.target, e.name) for e in graph.edges])
        free = gradient_of(GatedNetwork(free_graph, dict(net.weights)), data)
        for name, uses in graph.uses.items():
            parts = [free.weights[e].T if turned else free.weights[e] for e, turned in uses]
            total = 0 * parts[0] if name in graph.frozen else sum(parts)
            size = np.abs(total).max()
            np.testing.assert_allclose(tied.parameters[name], total, atol=1e-13 * size)

    def test_a_transpose_that_is_left_out_is_seen(self):
        # W'W and W W of square matrices are different networks.
        edges, nodes = [("x", "h"), ("h", "y")], dict.fromkeys("xhy", 3)
        w = np.random.default_rng(0).standard_normal((3, 3))
        data = GatedData({"x": np.eye(3)}, {"y": np.eye(3)})
        graphs = [
            Graph(nodes, edges, shared={"W": uses})
            for uses in (["x->h", "h->y^T"], ["x->h", "h->y"])
        ]
        losses = [float(slope_of(GatedNetwork(graph, {"W": w}), data)[0]) for graph in graphs]
        maps = [w.T @ w, w @ w]
        np.testing.assert_allclose(losses, [np.sum((np.eye(3) - m) ** 2) / 6 for m in maps])
        assert abs(losses[0] - losses[1]) > 0.1

    def test_with_weights_takes_the_class_or_an_edge_in_its_orientation(self, flip):
        net, _ = flip
        new = np.arange(12.0).reshape(4, 3)
        by_class, by_edge = net.with_weights({"B": new}), net.with_weights({"h2->h3": new.T})
        assert eqx.tree_equal(by_class, by_edge)
        np.testing.assert_array_equal(by_class.weights["h2->h3"], new.T)
        frozen = net.with_weights({"h1->y": np.ones((2, 3))})
        np.testing.assert_array_equal(frozen.weights["h1->y"], np.ones((2, 3)))
        assert eqx.tree_equal(GatedNetwork.from_stacks(FLIP, net.stacks, net.fixed), net)
        with pytest.raises(ValueError, match="different arrays"):
            net.with_weights({"h1->h2": new, "h2->h3": new.T + 1e-9})

    def test_traced_members_of_one_class_are_refused(self):
        def both(w):
            return GatedNetwork(TIED, {"x->h": w, "h->y": w.T}).stacks

        with pytest.raises(ValueError, match="cannot be compared"):
            jax.jit(both)(jnp.ones((2, 3)))
        assert both(jnp.ones((2, 3)))[0].shape == (1, 2, 3)

    def test_mappings(self, flip):
        net, _ = flip
        assert list(net.weights) == [e.name for e in FLIP.edges]
        assert list(net.parameters) == list(FLIP.parameters)
        assert "B" in net.parameters
        assert "B" not in net.weights
        assert net.weights["h2->h3"].shape == (3, 4)
        with pytest.raises(KeyError, match="no parameter is called 'h2->h3'"):
            net.parameters["h2->h3"]

    def test_serialisation(self, flip):
        net, _ = flip
        file = io.BytesIO()
        eqx.tree_serialise_leaves(file, net)
        file.seek(0)
        zeros = jax.tree.map(jnp.zeros_like, net)
        assert eqx.tree_equal(eqx.tree_deserialise_leaves(file, zeros), net)
        assert eqx.tree_equal(pickle.loads(pickle.dumps(net)), net)


def gated_dag(seed: int) -> tuple[Graph, GatedNetwork, GatedData]:
    """Two inputs, four hidden nodes, two outputs; three uses of B, one frozen edge."""
    rng = np.random.default_rng(seed)
    p, q = rng.integers(2, 5, size=2)
    nodes = {"x1": p, "x2": q, "h1": q, "h2": p, "h3": q, "h4": p, "y1": p, "y2": q}
    edges = [("x1", "h1"), ("x2", "h1"), ("h1", "h2"), ("h2", "h3"), ("h3", "h4"), ("h1", "h4")]
    edges += [("x2", "h3"), ("h4", "y1"), ("h4", "y2"), ("h2", "y1"), ("h3", "y2")]
    shared = {"B": ["h1->h2", "h2->h3^T", "h3->h4"], "C": ["x1->h1", "h4->y2"]}
    graph = Graph({k: int(v) for k, v in nodes.items()}, edges, shared=shared, frozen=["h2->y1"])
    n = 7
    data = GatedData(
        {k: rng.standard_normal((n, nodes[k])) for k in ("x1", "x2")},
        {k: rng.standard_normal((n, nodes[k])) for k in ("y1", "y2")},
        node_gates={"h3": (rng.random(n) < 0.6).astype(float)},
        edge_gates={"h2->h3": rng.standard_normal(n), "h1->h4": rng.random(n)},
        weights=rng.random(n),
    )
    arrays = {name: rng.standard_normal(shape) for name, shape in graph.parameters.items()}
    return graph, GatedNetwork(graph, arrays), data


class TestUntied:
    """Graphs without ties keep their program, their draws and their stacks."""

    def test_their_program_reads_stacks_and_no_tie(self):
        def steps(shared):
            edges = [("x", "h1"), ("x", "h2"), ("h1", "y"), ("h2", "y"), ("x", "y")]
            graph = Graph({"x": 2, "h1": 3, "h2": 3, "y": 2}, edges, shared=shared)
            net = GatedNetwork.init(graph, init.normal(0.1), key=jax.random.key(0))
            data = net.prepare(GatedData({"x": np.eye(2)}, {"y": np.ones((2, 2))}))
            slope = jax.grad(lambda s: gdln.mse(GatedNetwork(graph, s), data))
            assert net.fixed is None
            assert len(net.stacks) == len(graph.bundles)
            return Counter(one.primitive.name for one in jax.make_jaxpr(slope)(net.stacks).eqns)

        # Reading a tie and its derivative; all else is the same.
        assert steps({"A": ["x->h1", "x->h2"]}) - steps({}) == Counter({"jit": 2})
        assert not steps({}) - steps({"A": ["x->h1", "x->h2"]})

    def test_draws_are_kept(self):
        drawn = GatedNetwork.init(FLIP, init.normal(0.1), key=jax.random.key(3))
        free = Graph(FLIP.nodes, [(e.source, e.target) for e in FLIP.edges])
        before = GatedNetwork.init(free, init.normal(0.1), key=jax.random.key(3))
        for name in ("x->h1", "h3->y", "h1->y"):  # by name, whatever else there is
            np.testing.assert_array_equal(drawn.weights[name], before.weights[name])
        kept = GatedNetwork.init(
            FLIP, init.orthogonal(0.1), key=jax.random.key(3), frozen={"h1->y": np.ones((2, 3))}
        )
        np.testing.assert_array_equal(kept.weights["h1->y"], np.ones((2, 3)))
        np.testing.assert_allclose(
            kept.parameters["B"].T @ kept.parameters["B"], 0.01 * np.eye(3), atol=1e-15
        )
        scales = {"x->h1": 1.0, "B": 0.0, "h3->y": 1.0, "h1->y": 1.0}
        assert (
            not GatedNetwork.init(FLIP, init.normal(scales), key=jax.random.key(3))
            .weights["h2->h3"]
            .any()
        )


def first_update(optimizer: Any, gradient: GatedNetwork, net: GatedNetwork) -> GatedNetwork:
    """Of an optax optimiser, whose types do not know that modules are trees."""
    updates, _ = optimizer.update(gradient, optimizer.init(net), net)
    return updates


class TestLearning:
    def test_frozen_arrays_are_outside_of_the_optimiser(self, flip):
        net, data = flip
        adam = optax.adamw(1e-3, weight_decay=0.1)
        run = gdln.train(net, data, optimizer=adam, steps=5)
        np.testing.assert_array_equal(run.final.weights["h1->y"], net.weights["h1->y"])
        assert all(m.shape[0] == 6 for m in jax.tree.leaves(run.models))
        assert jax.vmap(gdln.mse, (0, None))(run.models, data).shape == (6,)
        assert len(jax.tree.leaves(run.optimizer_state)) == 1 + 2 * len(net.stacks)
        assert run.product(["x->h1", "h1->y"]).shape == (6, 2, 2)
        moved = measures.weight_movement(net, run.final)
        old, new = (np.concatenate([np.ravel(w) for w in m.stacks]) for m in (net, run.final))
        np.testing.assert_allclose(moved, np.linalg.norm(new - old) / np.linalg.norm(old))
        # Left in the optimiser's tree, the frozen array decays.
        gradient = jax.tree.map(jnp.zeros_like, net)
        updates = first_update(adam, gradient, net)
        assert np.abs(updates.weights["h1->y"]).max() > 5e-5

    def test_flow_moves_each_array_once(self, flip):
        net, data = flip
        small = eqx.tree_at(lambda n: n.stacks, net, jax.tree.map(lambda w: 0.3 * w, net.stacks))
        tau = {"x->h1": 1.0, "B": 2.0, "h3->y": 1.0}
        run = gdln.gradient_flow(small, data, [0.0, 1e-6], tau=tau)
        gradient = gradient_of(small, data)
        for name in FLIP.parameters:
            rate = (run.final.parameters[name] - small.parameters[name]) / 1e-6
            expected = -gradient.parameters[name] / tau.get(name, 1.0)
            np.testing.assert_allclose(rate, expected, rtol=1e-3, atol=1e-3)
        with pytest.raises(ValueError, match="'h1->h2', which is not a trainable parameter"):
            gdln.gradient_flow(small, data, [0.0, 1.0], tau={**tau, "h1->h2": 1.0})

    def test_names_of_uses_and_of_frozen_arrays_are_answered(self, flip):
        net, data = flip
        for names, words in (
            ({"h1->h2": None}, "that edge uses 'B', so name 'B'"),
            ({"h1->y": None}, "'h1->y', which is frozen: nothing moves it"),
        ):
            rule = rules.by_edge(names, default=optax.sgd(0.1))
            with pytest.raises(ValueError, match=words):
                gdln.train(net, data, optimizer=rule, steps=1)
        plain = Graph.chain([2, 3, 2])
        given = {"x->h": np.ones((3, 2))}
        with pytest.raises(ValueError, match=r"has none\. Declare what nothing may move"):
            GatedNetwork.init(plain, init.normal(0.1), key=jax.random.key(0), frozen=given)

    def test_partition_for_loops_of_ones_own(self, flip):
        net, _ = flip
        moving, still = eqx.partition(net, net.trainable)
        assert len(jax.tree.leaves(moving)) == len(net.stacks)
        assert eqx.tree_equal(eqx.combine(moving, still), net)

    def test_rules_see_each_array_once(self, flip):
        net, data = flip
        rate = {"x->h1": 0.0, "B": 1e-3, "h3->y": 0.0}
        run = gdln.train(net, data, optimizer=rules.sgd(rate), steps=1)
        gradient = gradient_of(net, data)
        for name in FLIP.trainable:
            step = net.parameters[name] - rate[name] * gradient.parameters[name]
            np.testing.assert_allclose(run.final.parameters[name], step, rtol=1e-12)
        # The polar factor is that of the class gradient, as of a network with that gradient.
        muon, chain = rules.muon(1e-3, momentum=0.0), Graph.chain([3, 4, 2])
        moved = gdln.train(net, data, optimizer=muon, steps=1).final
        alone = GatedNetwork(chain, {"x->h1": gradient.parameters["B"], "h1->y": np.zeros((2, 4))})
        step = first_update(muon, alone, alone).weights["x->h1"]
        np.testing.assert_allclose(moved.parameters["B"], net.parameters["B"] + step, rtol=1e-9)
        with pytest.raises(ValueError, match="lacks edge 'h3->y'"):
            rules.sgd({"x->h1": 0.0, "B": 1e-3}).init(net)


REPEATED = Graph(
    {"x": 3, "h1": 4, "h2": 4, "h3": 4, "y": 2},
    [("x", "h1", "A"), ("h1", "h2"), ("h2", "h3"), ("h3", "y", "C")],
    shared={"B": ["h1->h2", "h2->h3"]},
)
SIGNED = Graph(
    {"x": 3, "h1": 4, "h2": 5, "h3": 4, "y": 2},
    [("x", "h1", "A"), ("h1", "h2"), ("h2", "h3"), ("h3", "y", "C")],
    shared={"B": ["h1->h2", "h2->h3^T"]},
)
ENDS = Graph(
    {"x": 3, "h1": 4, "h2": 4, "y": 3},
    [("x", "h1"), ("h1", "h2", "B"), ("h2", "y")],
    shared={"W": ["x->h1", "h2->y^T"]},
)
RECURRENT = Graph(
    {"x1": 2, "x2": 2, "h1": 3, "h2": 3, "y1": 2, "y2": 2},
    [("x1", "h1"), ("x2", "h2"), ("h1", "h2", "Wh"), ("h1", "y1"), ("h2", "y2")],
    shared={"Wx": ["x1->h1", "x2->h2"], "Wy": ["h1->y1", "h2->y2"]},
)


class TestConserved:
    @pytest.mark.parametrize(
        ("graph", "node", "without"),
        [
            (REPEATED, "h1", ()),
            (SIGNED, "h1", ("h2",)),
            (ENDS, "h1", ()),
            (RECURRENT, "h2", ()),
        ],
        ids=["repeated layer", "sign flip", "tie across the ends", "recurrence"],
    )
    def test_laws(self, graph, node, without):
        """The rate of what is conserved, with the velocity -dL/dP, is 0 at any point."""
        rng = np.random.default_rng(5)
        data = GatedData(
            {k: rng.standard_normal((6, graph.nodes[k])) for k in graph.inputs},
            {k: rng.standard_normal((6, graph.nodes[k])) for k in graph.outputs},
        )
        net = GatedNetwork.init(graph, init.normal(0.5), key=jax.random.key(1))
        gradient = gradient_of(net, data).parameters
        laws = measures.conserved_laws(graph)
        assert tuple(v for nodes, _ in laws.without for v in nodes) == without
        (law,) = laws
        assert node in law.nodes

        def rate(terms):
            total = 0.0
            for name, product, sign in terms:
                p, v = np.asarray(net.parameters[name]), -np.asarray(gradient[name])
                moved = v @ p.T if product == "PP^T" else v.T @ p
                total = total + sign * (moved + moved.T)
            return float(np.abs(total).max())

        assert rate(law.terms) < 1e-12
        name, product, sign = law.terms[-1]
        assert rate((*law.terms[:-1], (name, product, -sign))) > 0.05
        if graph is REPEATED:  # B once for each of its uses, as the laws of the nodes add up
            inner = [term for term in law.terms if term.parameter == "B"]
            assert len(inner) == 2
            assert rate((*law.terms, *inner)) > 0.05

    def test_what_is_conserved_along_a_flow(self):
        rng = np.random.default_rng(5)
        data = GatedData({"x": rng.standard_normal((6, 3))}, {"y": rng.standard_normal((6, 2))})
        net = GatedNetwork.init(SIGNED, init.normal(0.5), key=jax.random.key(1))
        run = gdln.gradient_flow(net, data, [0.0, 1.0], rtol=1e-11, atol=1e-13)
        start, end = (measures.conserved(model, "h1") for model in (net, run.final))
        np.testing.assert_allclose(end, start, atol=1e-9)
        b, c = run.final.parameters["B"], run.final.parameters["C"]
        assert np.abs(b - net.parameters["B"]).max() > 0.05
        assert (
            np.abs(
                end - 2 * c.T @ c - start + 2 * net.parameters["C"].T @ net.parameters["C"]
            ).max()
            > 0.05
        )

    def test_coefficients(self, reference_beyond):
        (law,) = measures.conserved_laws(SIGNED)
        assert law.nodes == ("h1", "h3")
        assert law.terms == (("A", "PP^T", 1), ("B", "P^TP", -1), ("C", "P^TP", 1))
        coefficient = reference_beyond["tied"]["conserved_flip"]["coefficient"]
        assert law.terms[-1].sign == coefficient

    def test_a_frozen_multiple_of_a_rotation_carries_a_sum_across(self):
        """What `.without` says of x -A-> h -c O-> k -B-> y; with a general array it drifts."""
        rng = np.random.default_rng(6)
        graph = Graph(
            {"x": 3, "h": 4, "k": 4, "y": 2}, [("x", "h"), ("h", "k"), ("k", "y")], frozen=["h->k"]
        )
        data = GatedData({"x": rng.standard_normal((6, 3))}, {"y": rng.standard_normal((6, 2))})
        net = GatedNetwork.init(graph, init.normal(0.5), key=jax.random.key(1))
        o = np.linalg.qr(rng.standard_normal((4, 4)))[0]

        def rate(matrix, turn):
            here = net.with_weights({"h->k": matrix})
            moved = gradient_of(here, data).weights
            a = here.weights["x->h"] @ moved["x->h"].T
            b = here.weights["k->y"].T @ moved["k->y"]
            return np.abs(turn @ (a + a.T) @ turn.T - (b + b.T)).max()

        assert rate(1.7 * o, o) < 1e-12
        assert rate(1.7 * o, 1.7 * o) > 0.05
        assert rate(o @ np.diag([2.0, 1.0, 1.0, 0.5]), o) > 0.05
        for _, reason in measures.conserved_laws(graph).without:
            assert "Q_t + O Q_s O^T is conserved" in reason
        # Two frozen arrays at h: nothing is known to be conserved.
        two = Graph(
            graph.nodes, [("x", "h"), ("h", "k"), ("k", "y"), ("h", "y")], frozen=["h->k", "h->y"]
        )
        assert "orthogonal" not in repr(measures.conserved_laws(two))

    def test_nodes_without_a_law_are_named_with_the_reason(self):
        net = GatedNetwork.init(SIGNED, init.normal(0.5), key=jax.random.key(1))
        with pytest.raises(ValueError, match="'h2': ties join it with its own inverse transpose"):
            measures.conserved(net, "h2")
        with pytest.raises(ValueError, match="nothing is conserved at 'h2'"):
            measures.balancedness(net)
        repeated = GatedNetwork.init(REPEATED, init.normal(0.5), key=jax.random.key(1))
        assert 0 < float(measures.balancedness(repeated)["h1"]) <= 1
        row = Graph(dict.fromkeys("xhky", 3), [("x", "h"), ("h", "k"), ("k", "y")])
        shared = {"W": ["x->h", "h->k^T", "k->y"]}
        dual = Graph(row.nodes, [(e.source, e.target) for e in row.edges], shared=shared)
        assert not measures.conserved_laws(dual)
        ((_, reason),) = measures.conserved_laws(
            Graph(row.nodes, [(e.source, e.target) for e in row.edges], frozen=["h->k"])
        ).without[:1]
        assert "frozen" in reason
        assert "is a multiple of an orthogonal O" in reason
        joined = Graph(
            row.nodes, [(e.source, e.target) for e in row.edges], shared={"W": ["x->h", "h->k"]}
        )
        assert "input or output" in repr(measures.conserved_laws(joined))


def test_what_is_not_derived_is_refused(flip: tuple[GatedNetwork, GatedData]):
    net, data = flip
    free = gdln.reduce(
        Graph.chain([2, 3, 2]), GatedData({"x": np.eye(2)}, {"y": np.diag([2.0, 1.0])})
    )
    key = jax.random.key(0)
    routed = gdln.images.RoutedNetwork.init(2, 3, 2, width=4, key=key)
    attempts: dict[str, Any] = {
        "a RoutedNetwork": lambda: gdln.images.to_gated(routed, TIED),
        "reduce_width": lambda: gdln.reduce_width(net, data),
        "draw_width": lambda: gdln.draw_width(TIED, data, init.normal(1.0), key=key),
        "effective_initial": lambda: gdln.effective_initial(free, net),
        "learning gates": lambda: gdln.gates.learning_time(net, data, 1.0, t1=1.0),
        "a ReLU network": lambda: gdln.relu.ReLUNetwork.init(TIED, key=key),
        "init.balanced": lambda: GatedNetwork.init(TIED, init.balanced(), key=key),
    }
    for words, attempt in attempts.items():
        with pytest.raises(ValueError, match=words):
            attempt()


def test_tied_edges_look_tied():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.text import Annotation

    figure, ax = plt.subplots()
    gdln.plot.architecture(ax, FLIP)
    names = {text.get_text(): text for text in ax.texts}
    arrows = [t.arrow_patch for t in ax.texts if isinstance(t, Annotation) and t.arrow_patch]
    looks = [(arrow.get_edgecolor(), arrow.get_linestyle()) for arrow in arrows]
    # In the order of the edges: the class has one colour, the frozen edge is dashed.
    assert looks[1] == looks[2] != looks[0]
    assert [style for _, style in looks].count("--") == 1
    assert looks[4][1] == "--"
    assert {"B", "B\u1d40", "h1->y"} <= set(names)
    plt.close(figure)
