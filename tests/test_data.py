"""Gated data: every malformed set names its array; patterns are found; compress() is exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_systems import BruteForce, random_arrays, random_graph, random_system, random_weights

from gdln_jax import GatedData, GatedNetwork, Graph, mse, pack

GRAPH = Graph({"x": 2, "h": 3, "y": 1}, [("x", "h"), ("h", "y")])
GOOD = {
    "inputs": {"x": np.ones((4, 2))},
    "targets": {"y": np.ones((4, 1))},
    "node_gates": {"h": np.array([0, 1, 1, 0])},
    "edge_gates": {"h->y": np.array([0.0, 1.0, 0.5, -1.0])},
    "weights": np.array([1.0, 0.0, 2.0, 1.0]),
}


def altered(field, name, value):
    arrays = {k: dict(v) if isinstance(v, dict) else v for k, v in GOOD.items()}
    if name is None:
        arrays[field] = value
    else:
        arrays[field][name] = value
    return arrays


class TestRefusals:
    """At construction, or where data meet a graph: a `ValueError` that names the array."""

    @pytest.mark.parametrize(
        ("field", "name", "value", "message"),
        [
            ("inputs", None, {}, r"inputs must be a non-empty mapping"),
            ("targets", None, {}, r"targets must be a non-empty mapping"),
            ("inputs", "x", np.ones(4), r"inputs\['x'\] has shape \(4,\); expected \(examples, f"),
            ("inputs", "x", np.ones((0, 2)), r"inputs\['x'\] has no examples"),
            ("inputs", "x", [[1, 2], [3]], r"inputs\['x'\] is no array: its rows differ"),
            (
                "inputs",
                "x",
                np.full((4, 2), np.nan),
                r"inputs\['x'\] is not finite at index \(0, 0",
            ),
            ("inputs", "x", np.ones((4, 2), complex), r"inputs\['x'\] has dtype complex128"),
            ("inputs", "x", None, r"inputs\['x'\] has dtype object; it must hold real numbers"),
            ("targets", "y", np.ones((3, 1)), r"targets\['y'\] has 3 examples but inputs\['x'\] h"),
            ("targets", "y", np.ones((4, 1, 1)), r"targets\['y'\] has shape \(4, 1, 1\)"),
            ("targets", "y", [[0], [0], [np.inf], [0]], r"targets\['y'\] .* index \(2, 0\) .*inf"),
            ("targets", "y", np.ones((4, 1), np.float16), r"targets\['y'\] has dtype float16; use"),
            ("node_gates", "h", np.ones((4, 1)), r"node_gates\['h'\] has shape \(4, 1\); expected"),
            (
                "node_gates",
                "h",
                ["on", "off", "on", "on"],
                r"node_gates\['h'\] has dtype <U3; .*gate",
            ),
            ("node_gates", "h", np.ones(5), r"node_gates\['h'\] has 5 examples"),
            (
                "edge_gates",
                "h->y",
                1.0,
                r"edge_gates\['h->y'\] has shape \(\); expected \(examples",
            ),
            ("edge_gates", "h->y", [0, 1, np.nan, 1], r"edge_gates\['h->y'\] .* index \(2,\)"),
            ("weights", None, np.ones(3), r"weights has 3 entries but inputs\['x'\] has 4"),
            ("weights", None, np.ones((4, 1)), r"weights has shape \(4, 1\)"),
            ("weights", None, [1, 2, -1, 1], r"weights\[2\] is -1\.0; weights must be >= 0"),
            ("weights", None, np.zeros(4), r"weights sum to 0"),
            ("weights", None, [1, np.inf, 1, 1], r"weights is not finite at index \(1,\)"),
        ],
    )
    def test_arrays(self, field, name, value, message):
        with pytest.raises(ValueError, match=message):
            GatedData(**altered(field, name, value))

    @pytest.mark.parametrize(
        ("field", "name", "value", "message"),
        [
            ("inputs", None, {"X": np.ones((4, 2))}, r"inputs names 'X'.*input node.*mean 'x'"),
            ("inputs", "h", np.ones((4, 3)), r"inputs names 'h', which is not an input node"),
            (
                "inputs",
                "x",
                np.ones((4, 3)),
                r"inputs\['x'\] has shape \(4, 3\); .*width 2.*\(n, 2",
            ),
            ("targets", None, {"h": np.ones((4, 3))}, r"targets names 'h', which is not an output"),
            ("targets", "y", np.ones((4, 2)), r"targets\['y'\] has shape \(4, 2\); .*width 1"),
            ("node_gates", "x", np.ones(4), r"input node 'x'; .*edge_gates=\{'x->h': \.\.\.\}"),
            ("node_gates", "hh", np.ones(4), r"node_gates names 'hh'.*did you mean 'h'"),
            ("edge_gates", "h-y", np.ones(4), r"edge_gates names 'h-y'.*did you mean 'h->y'"),
        ],
    )
    def test_data_that_do_not_fit_the_graph(self, field, name, value, message):
        data = GatedData(**altered(field, name, value))
        network = GatedNetwork(GRAPH, {"x->h": np.ones((3, 2)), "h->y": np.ones((1, 3))})
        for use in (
            lambda: data.validate(GRAPH),
            lambda: network(data),
            lambda: pack(GRAPH, data),
        ):
            with pytest.raises(ValueError, match=message):
                use()

    def test_a_hidden_node_without_a_way_out_is_refused_when_data_arrive(self):
        graph = Graph({"x": 2, "h": 3, "dead": 3, "y": 1}, [("x", "h"), ("h", "y"), ("x", "dead")])
        with pytest.raises(
            ValueError, match=r"targets lacks 'dead', expected an array \(n, 3\).*n"
        ):
            GatedData(**GOOD).validate(graph)

    def test_a_missing_input_is_named(self):
        graph = Graph({"x": 2, "z": 5, "h": 3, "y": 1}, [("x", "h"), ("z", "h"), ("h", "y")])
        with pytest.raises(ValueError, match=r"inputs lacks 'z', expected an array \(n, 5\)"):
            GatedData(**GOOD).validate(graph)

    def test_what_looks_at_values_says_so_under_jit(self):
        data = GatedData(**GOOD)
        for name in ("patterns", "compress"):
            with pytest.raises(ValueError, match=rf"{name}\(\).*outside"):
                jax.jit(lambda d, name=name: (getattr(d, name)(), 0)[1])(data)
        with pytest.raises(ValueError, match=r"pack\(\).*outside"):
            jax.jit(lambda d: (pack(GRAPH, d), 0)[1])(data)

    def test_without_the_typing_hook(self, refused_plainly):
        snippet = """
import numpy as np
from gdln_jax import GatedData
x, y = np.ones((4, 2)), np.ones((4, 1))
bad = [
    ((x, {"y": y}), {}, "inputs must be a non-empty mapping from node name to an array"),
    ((None, {"y": y}), {}, "inputs must be a non-empty mapping"),
    (({"x": x}, [y]), {}, "targets must be a non-empty mapping"),
    (({"x": x}, {"y": y}), {"node_gates": [np.ones(4)]}, "node_gates must be a mapping"),
    (({"x": x}, {"y": y}), {"edge_gates": np.ones(4)}, "edge_gates must be a mapping"),
    (({"x": x[0]}, {"y": y}), {}, "inputs['x'] has shape (2,); expected (examples, features): a"),
    (({"x": x}, {"y": y[:2]}), {}, "targets['y'] has 2 examples but inputs['x'] has 4"),
    (({"x": x}, {"y": y}), {"node_gates": {"h": "on"}}, "node_gates['h'] has dtype <U2"),
    (({"x": x}, {"y": y}), {"weights": "w"}, "weights has dtype <U1"),
    (({"x": x}, {"y": y}), {"weights": 1.0}, "weights has shape ()"),
    (({"x": [["a", "b"]]}, {"y": y}), {}, "inputs['x'] has dtype <U1; it must hold real numbers"),
    (({"x": x * np.nan}, {"y": y}), {}, "inputs['x'] is not finite at index (0, 0)"),
]
attempts = [
    (lambda positional=positional, named=named: GatedData(*positional, **named), words)
    for positional, named, words in bad
]
"""
        refused_plainly(snippet)


class TestPrecision:
    def test_one_precision_for_all_arrays(self):
        data = GatedData(**GOOD)
        assert {leaf.dtype for leaf in jax.tree.leaves(data)} == {np.dtype("float64")}
        single = altered("inputs", "x", np.ones((4, 2), np.float32))
        single["targets"] = {"y": np.ones((4, 1), np.float32)}
        single["edge_gates"] = {"h->y": [0, 1, 1, 0]}
        single["weights"] = None
        data = GatedData(**single)
        assert {leaf.dtype for leaf in jax.tree.leaves(data)} == {np.dtype("float32")}
        data = GatedData(**altered("inputs", "x", np.ones((4, 2), np.float32)))
        assert {leaf.dtype for leaf in jax.tree.leaves(data)} == {np.dtype("float64")}

    def test_weights_are_scaled_to_sum_one(self):
        np.testing.assert_allclose(GatedData(**GOOD).weights, [0.25, 0, 0.5, 0.25])
        np.testing.assert_allclose(GatedData(**altered("weights", None, None)).weights, 0.25)

    def test_data_can_be_made_of_traced_arrays(self):
        def loss(gate):
            data = GatedData(**altered("edge_gates", "h->y", gate))
            return jnp.sum(data.edge_gates["h->y"] * data.weights)

        np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.ones(4)), [0.25, 0, 0.5, 0.25])

    def test_take(self):
        taken = GatedData(**GOOD).take(np.array([2, 2, 0]))
        np.testing.assert_allclose(taken.weights, [0.4, 0.4, 0.2])
        np.testing.assert_allclose(taken.edge_gates["h->y"], [0.5, 0.5, 0.0])


class TestPatterns:
    def test_distinct_gate_vectors_in_order_of_appearance(self):
        arrays = {
            "inputs": {"x": np.ones((5, 2))},
            "targets": {"y": np.ones((5, 1))},
            "node_gates": {"h": [1, 0, 1, -0.0, 1]},
            "edge_gates": {"h->y": [0.5, 0.0, 0.5, 0.0, 0.25]},
        }
        found = GatedData(**arrays).patterns()
        assert found.count == 3
        assert found.index.tolist() == [0, 1, 0, 1, 2]
        assert found.node_gates["h"].tolist() == [1, 0, 1]
        assert found.edge_gates["h->y"].tolist() == [0.5, 0, 0.25]
        assert repr(found) == "Patterns(3 gate patterns over 5 examples)"

    def test_without_gates_there_is_one(self):
        data = GatedData({"x": np.ones((5, 2))}, {"y": np.ones((5, 1))})
        assert data.patterns().count == 1

    @pytest.mark.parametrize("seed", range(5))
    def test_against_a_set_of_tuples(self, seed):
        _, data, _ = random_system(seed, n=20)
        gates = [np.asarray(g) for g in (*data.node_gates.values(), *data.edge_gates.values())]
        rows = [tuple(g[i] for g in gates) for i in range(20)]
        found = data.patterns()
        assert found.count == len(set(rows))
        assert [list(dict.fromkeys(rows)).index(row) for row in rows] == found.index.tolist()


def same_loss_and_gradient(graph, one, other, weights, tol=1e-10):
    first, second = BruteForce(graph, one, weights), BruteForce(graph, other, weights)
    a, b = first.gradient(), second.gradient()
    scale = max(1.0, *(np.abs(g).max() for g in a.values()))
    assert abs(first.loss() - second.loss()) <= tol * max(1.0, first.loss())
    for name, gradient in a.items():
        np.testing.assert_allclose(b[name], gradient, rtol=0, atol=tol * scale)


class TestCompress:
    """mse and its gradients depend on a pattern's examples by their second moments only."""

    @given(seed=st.integers(0, 10_000), few=st.booleans(), rank=st.sampled_from([1, 2, None]))
    def test_loss_and_gradient_are_unchanged(self, seed, few, rank):
        rng = np.random.default_rng(seed)
        graph, n = random_graph(rng), 30
        arrays = random_arrays(graph, rng, n)
        patterns = rng.integers(0, 2 if few else 6, size=n)
        for gates in (arrays["node_gates"], arrays["edge_gates"]):
            for name in gates:  # as many patterns as `patterns` has values
                gates[name] = gates[name][patterns]
        if rank is not None:  # rank-deficient inputs, and one column of zeros
            for name, x in arrays["inputs"].items():
                mix = rng.normal(size=(rank, x.shape[1]))
                mix[:, 0] = 0
                arrays["inputs"][name] = rng.normal(size=(n, rank)) @ mix
        data = GatedData(**arrays)
        small = data.compress()
        width = sum(graph.nodes[v] for v in (*graph.inputs, *graph.outputs))
        assert small.num_examples <= min(n, width * data.patterns().count)
        assert float(small.weights.sum()) == pytest.approx(1)
        same_loss_and_gradient(graph, data, small, random_weights(graph, rng))
        again = small.compress()
        assert again.num_examples <= small.num_examples

    def test_sixty_thousand_examples_become_at_most_74(self):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(60_000, 64)), rng.normal(size=(60_000, 10))
        weights = rng.random(60_000)
        data = GatedData({"x": x}, {"y": y}, weights=weights)
        small = data.compress()
        assert small.num_examples <= 74
        w = rng.normal(size=(10, 64)) / 8
        weights = weights / weights.sum()
        exact = 0.5 * np.sum(weights * np.sum((y - x @ w.T) ** 2, axis=1))
        sx, sy = (np.asarray(a) for a in (small.inputs["x"], small.targets["y"]))
        error = sy - sx @ w.T
        p = np.asarray(small.weights)
        assert 0.5 * np.sum(p * np.sum(error**2, axis=1)) == pytest.approx(exact, rel=1e-12)
        gradient = -((y - x @ w.T) * weights[:, None]).T @ x
        np.testing.assert_allclose(-(error * p[:, None]).T @ sx, gradient, atol=1e-11)

    def test_patterns_with_the_same_inputs_keep_one_factor(self):
        # So that a packed network still encodes an input once for all its outputs.
        rng = np.random.default_rng(1)
        x = rng.normal(size=(50, 3))
        graph = Graph({"x": 3, "h": 4, "a": 2, "b": 2}, [("x", "h"), ("h", "a"), ("h", "b")])
        y = {name: rng.normal(size=(100, 2)) for name in "ab"}
        gates = {"a": np.repeat([1, 0], 50), "b": np.repeat([0, 1], 50)}
        y["a"][50:], y["b"][:50] = 0, 0
        data = GatedData({"x": np.concatenate([x, x])}, y, gates)
        small = data.compress()
        assert small.num_examples == 2 * (3 + 2)
        packed = pack(graph, small)
        assert packed.stages[0] is not None
        shared = packed.stages[0].shape[0] * packed.stages[0].shape[1] * packed.rows
        assert shared < small.num_examples

    def test_all_zero_data(self):
        data = GatedData({"x": np.zeros((9, 2))}, {"y": np.zeros((9, 1))})
        small = data.compress()
        assert small.num_examples == 1
        assert not jnp.any(small.inputs["x"])

    def test_precision_is_kept(self):
        rng = np.random.default_rng(2)
        arrays = {k: rng.normal(size=(40, 2)).astype(np.float32) for k in "xy"}
        small = GatedData({"x": arrays["x"]}, {"y": arrays["y"]}).compress()
        assert {leaf.dtype for leaf in jax.tree.leaves(small)} == {np.dtype("float32")}


# One graph, so that the property test below compiles once per number of examples.
SYSTEM = random_system(3, n=6)
_loss_and_gradient = jax.jit(jax.value_and_grad(mse))


class TestSymmetries:
    """The loss is a weighted mean over examples and knows no names."""

    def loss_and_gradient(self, graph, data, weights):
        value, gradient = _loss_and_gradient(GatedNetwork(graph, weights), data)
        return float(value), {k: np.asarray(v) for k, v in gradient.weights.items()}

    def same(self, one, other, rename=lambda name: name):
        assert one[0] == pytest.approx(other[0], rel=1e-12)
        for name, gradient in one[1].items():
            np.testing.assert_allclose(other[1][rename(name)], gradient, rtol=0, atol=1e-11)

    @given(seed=st.integers(0, 10_000))
    def test_permutation_and_splitting_of_examples(self, seed):
        rng = np.random.default_rng(seed)
        graph, weights = SYSTEM[0], random_weights(SYSTEM[0], rng)
        data = GatedData(**random_arrays(graph, rng, 6, gated=1))
        base = self.loss_and_gradient(graph, data, weights)
        self.same(base, self.loss_and_gradient(graph, data.take(rng.permutation(6)), weights))
        # Example i in two halves: listed twice, each with half its weight.
        i = int(rng.integers(6))
        index = np.append(np.arange(6), i)
        halves = {
            field: {k: np.asarray(v)[index] for k, v in getattr(data, field).items()}
            for field in ("inputs", "targets", "node_gates", "edge_gates")
        }
        shares = np.asarray(data.weights)[index]
        shares[[i, -1]] /= 2
        split = GatedData(**halves, weights=shares)
        self.same(base, self.loss_and_gradient(graph, split, weights))

    @pytest.mark.parametrize("seed", range(2))
    def test_relabelling_of_nodes_and_edges(self, seed):
        rng = np.random.default_rng(seed)
        graph, data, weights = random_system(seed)
        names = [*graph.nodes]
        node = dict(zip(names, [f"n{i}" for i in rng.permutation(len(names))], strict=True))
        edge = {e.name: f"q{i}" for i, e in enumerate(graph.edges)}
        order = rng.permutation(len(graph.edges))
        renamed = Graph(
            {node[v]: graph.nodes[v] for v in sorted(names, key=lambda v: node[v])},
            [
                (
                    node[graph.edges[i].source],
                    node[graph.edges[i].target],
                    edge[graph.edges[i].name],
                )
                for i in order
            ],
        )
        new = GatedData(
            {node[k]: v for k, v in data.inputs.items()},
            {node[k]: v for k, v in data.targets.items()},
            {node[k]: v for k, v in data.node_gates.items()},
            {edge[k]: v for k, v in data.edge_gates.items()},
            data.weights,
        )
        moved = {edge[k]: w for k, w in weights.items()}
        self.same(
            self.loss_and_gradient(graph, data, weights),
            self.loss_and_gradient(renamed, new, moved),
            edge.__getitem__,
        )
