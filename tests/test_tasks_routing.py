"""The hierarchy and the routing task: data as in the reference, patterns, gaps, random starts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_systems import BruteForce, random_weights

from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    PackedData,
    init,
    measures,
    mse,
    reduce,
    tasks,
    train,
)


def dense(task: tasks.Task) -> GatedData:
    assert isinstance(task.data, GatedData)
    return task.data


class TestHierarchy:
    def test_features_modes_and_trace_of_the_reference(self, reference):
        known = reference["hierarchy_fig4"]
        task = tasks.hierarchy()
        np.testing.assert_array_equal(dense(task).targets["y"].T, known["Y_rows_7x4"])
        np.testing.assert_array_equal(dense(task).inputs["x"], np.eye(4))
        # s of Sigma^yx: sqrt(185)/4, sqrt(41)/4, 3/4, 3/4; Sigma^x = d I; 1/2 trace Sigma^yy
        s = [np.sqrt(185) / 4, np.sqrt(41) / 4, 0.75, 0.75]
        np.testing.assert_allclose(task.meta["s"], s, rtol=1e-14)
        assert task.meta["d"] == known["d"]
        zero = GatedNetwork.init(task.graph, init.normal(0.0), key=jax.random.key(0))
        assert float(jax.jit(mse)(zero, task.data)) == pytest.approx(known["half_trace_Sigma_yy"])

    def test_the_hierarchy_of_h(self):
        # H Fig. 7: s = sqrt7/4, sqrt3/4, 1/4, 1/4, d = 1/4, L(0) = 1.5
        task = tasks.hierarchy(3, 1, width=8, hidden_layers=2)
        np.testing.assert_allclose(task.meta["s"], np.sqrt([7, 3, 1, 1]) / 4, rtol=1e-14)
        assert dict(task.graph.nodes) == {"x": 4, "h1": 8, "h2": 8, "y": 7}
        zero = GatedNetwork.init(task.graph, init.normal(0.0), key=jax.random.key(0))
        assert float(jax.jit(mse)(zero, task.data)) == pytest.approx(1.5)

    def test_bad_arguments(self):
        with pytest.raises(ValueError, match=r"values has 2 entries for 3 levels"):
            tasks.hierarchy(3, (6, 4))
        with pytest.raises(ValueError, match=r"levels is 0"):
            tasks.hierarchy(0)
        with pytest.raises(ValueError, match=r"hidden_layers is -1"):
            tasks.hierarchy(hidden_layers=-1)
        with pytest.raises(ValueError, match=r"width of node 'h1' is 0"):
            tasks.hierarchy(width=0)


class TestPatterns:
    def test_cyclic(self):
        task = tasks.routing(5, 2, width=3)
        wanted = np.eye(5, dtype=int) + np.roll(np.eye(5, dtype=int), 1, axis=1)
        np.testing.assert_array_equal(task.meta["pattern"], wanted)
        assert task.meta["trained_per_domain"] == 2
        assert task.meta["biregular"]
        # sigma_2/sigma_1 = |1 + e^{2 pi i/5}| / 2 = cos(pi/5)
        assert task.meta["spectral_gap"] == pytest.approx(np.cos(np.pi / 5))

    @pytest.mark.parametrize("seed", range(4))
    def test_random_biregular(self, seed):
        key = jax.random.key(seed)
        task = tasks.routing(9, 3, pattern="random_biregular", key=key, width=2)
        pattern = task.meta["pattern"]
        assert pattern.sum(0).tolist() == pattern.sum(1).tolist() == [3] * 9
        assert task.meta["biregular"]
        again = tasks.routing(9, 3, pattern="random_biregular", key=key, width=2)
        np.testing.assert_array_equal(again.meta["pattern"], pattern)
        other = tasks.routing(9, 3, pattern="random_biregular", key=jax.random.key(99), width=2)
        assert not np.array_equal(other.meta["pattern"], pattern)

    def test_random_biregular_is_uniform_where_it_can_be_counted(self):
        # K = 1: the patterns are the permutations; each of the 6 of M = 3 is as likely.
        seen: dict[bytes, int] = {}
        for seed in range(300):
            task = tasks.routing(
                3, 1, base=ONE, pattern="random_biregular", key=jax.random.key(seed), width=1
            )
            pattern = task.meta["pattern"].tobytes()
            seen[pattern] = seen.get(pattern, 0) + 1
        assert len(seen) == 6
        # chi squared with 5 degrees of freedom: below 20.5 with probability .999
        assert sum((n - 50) ** 2 / 50 for n in seen.values()) < 20.5

    def test_rows_only(self):
        key = jax.random.key(0)
        task = tasks.routing(9, 3, pattern="rows_only", key=key, width=2)
        assert task.meta["pattern"].sum(1).tolist() == [3] * 9
        assert not task.meta["biregular"]
        assert task.meta["trained_per_domain"] == 3

    def test_a_given_matrix(self):
        blocks = np.kron(np.eye(2, dtype=int), np.ones((2, 2), dtype=int))
        task = tasks.routing(4, pattern=blocks, width=2)
        np.testing.assert_array_equal(task.meta["pattern"], blocks)
        assert task.meta["trained_per_domain"] == 2
        assert task.meta["spectral_gap"] == pytest.approx(1)  # disjoint blocks (E10)
        uneven = np.array([[1, 1], [0, 1]])
        task = tasks.routing(2, pattern=uneven, width=2)
        assert task.meta["trained_per_domain"] is None
        assert not task.meta["biregular"]
        assert task.data.num_examples == 12

    def test_dedicated_pathways_serve_their_own_route_only(self):
        task = tasks.routing(3, 2, base=(np.eye(2), np.eye(2)), width=4, dedicated=3)
        plain = tasks.routing(3, 2, base=(np.eye(2), np.eye(2)), width=4)
        assert len(task.graph.edges) == len(plain.graph.edges) + 3 * 6
        assert task.graph.nodes["p0_1"] == task.graph.nodes["q0_1"] == 3
        # With the shared pathway off, what is left is the dedicated one of each trained route.
        weights = {e.name: np.ones(task.graph.shape(e.name)) for e in task.graph.edges}
        weights["h1->h2"] = np.zeros((4, 4))
        maps = measures.input_output_maps(GatedNetwork(task.graph, weights))
        own = task.meta["pattern"][..., None, None] * np.full((2, 2), 9.0)  # 3 x 3 paths
        np.testing.assert_array_equal(maps, own)
        reduction = reduce(task.graph, task.data)
        assert len(reduction.quotient(0.3).classes) == 3  # outer and middle shared, dedicated
        with pytest.raises(ValueError, match=r"compact data have no dedicated pathways"):
            tasks.routing(3, 2, dedicated=1, compact=True)
        with pytest.raises(ValueError, match=r"dedicated is -1"):
            tasks.routing(3, 2, dedicated=-1)

    def test_all_routes_have_no_gap_left(self):
        assert tasks.spectral_gap(np.ones((5, 5))) == pytest.approx(0, abs=1e-15)
        assert tasks.spectral_gap(np.ones((1, 1))) == 0

    @pytest.mark.parametrize(
        ("arguments", "options", "message"),
        [
            ((4, 5), {}, r"trained_per_domain is 5, but there are only 4 output domains; K must"),
            ((4, 0), {}, r"trained_per_domain is 0"),
            ((0,), {}, r"num_domains is 0"),
            ((4, 2), {"pattern": "cyclical"}, r"pattern is 'cyclical'.*did you mean 'cyclic'"),
            ((4, 2), {"pattern": "rows_only"}, r"'rows_only' is random: pass key="),
            ((2, 1), {"pattern": np.eye(2)}, r"trained_per_domain is read off a given pattern"),
            ((2,), {"pattern": np.eye(3)}, r"pattern has shape \(3, 3\); expected .* \(2, 2\)"),
            ((2,), {"pattern": 2 * np.eye(2)}, r"only 0 \(not trained\) and 1"),
            ((2,), {"pattern": np.zeros((2, 2))}, r"trains no route"),
            ((2,), {"base": (np.eye(3), np.eye(2))}, r"base x has 3 examples but base y has 2"),
            ((2,), {"base": (np.eye(3), np.ones(3))}, r"base y has shape \(3,\); expected"),
            (
                (2,),
                {"base": (np.eye(1) * np.nan, np.eye(1))},
                r"base x is not finite at index",
            ),
            ((1000,), {}, r"dense arrays of this task would take .* GiB; pass compact=True"),
        ],
    )
    def test_bad_arguments(self, arguments, options, message):
        with pytest.raises(ValueError, match=message):
            tasks.routing(*arguments, **options)


ONE = (np.ones((1, 1)), np.ones((1, 1)))


class TestData:
    def test_an_example_is_a_trained_route_with_a_base_example(self):
        x = np.array([[1.0, 2.0], [3.0, 4.0]])
        y = np.array([[5.0], [6.0]])
        task = tasks.routing(2, pattern=np.array([[0, 1], [1, 1]]), base=(x, y), width=3)
        data = dense(task)
        zero = np.zeros_like(x)
        np.testing.assert_array_equal(task.meta["routes"], [[0, 1], [1, 0], [1, 1]])
        np.testing.assert_array_equal(data.inputs["x0"], np.concatenate([x, zero, zero]))
        np.testing.assert_array_equal(data.inputs["x1"], np.concatenate([zero, x, x]))
        np.testing.assert_array_equal(data.targets["y0"].ravel(), [0, 0, 5, 6, 0, 0])
        np.testing.assert_array_equal(data.node_gates["y1"], [1, 1, 0, 0, 1, 1])
        np.testing.assert_array_equal(data.edge_gates["x0->h1"], [1, 1, 0, 0, 0, 0])
        np.testing.assert_allclose(data.weights, 1 / 6)
        assert list(task.graph.nodes) == ["x0", "x1", "h1", "h2", "y0", "y1"]

    @pytest.mark.parametrize(("m", "k"), [(1, None), (1, 1), (4, 4), (5, 2)])
    def test_compact_equals_dense_and_the_loop(self, m, k):
        task = tasks.routing(m, k, width=3)
        compact = tasks.routing(m, k, width=3, compact=True)
        assert isinstance(compact.data, PackedData)
        weights = random_weights(task.graph, np.random.default_rng(0))
        network = GatedNetwork(task.graph, weights)
        loop = BruteForce(task.graph, dense(task), weights)
        wanted = loop.gradient()
        both = jax.jit(jax.value_and_grad(mse))
        for data in (network.prepare(task.data), compact.data):
            value, gradient = both(network, data)
            assert float(value) == pytest.approx(loop.loss(), rel=1e-13)
            for name, w in wanted.items():
                atol = 1e-12 * np.abs(w).max()
                np.testing.assert_allclose(gradient.weights[name], w, rtol=0, atol=atol)

    def test_two_hundred_domains(self):
        task = tasks.routing(200, 3, compact=True)
        assert isinstance(task.data, PackedData)
        assert task.data.num_examples == 200 * 3 * 4
        assert task.data.num_pairs * task.data.rows == 4 * (200 + 200 + 600)
        zero = GatedNetwork.from_stacks(
            task.graph,
            tuple(jnp.asarray(np.zeros((len(b.edges), *b.shape))) for b in task.graph.bundles),
        )
        assert float(jax.jit(mse)(zero, task.data)) == pytest.approx(30.5)
        assert 0 < task.meta["spectral_gap"] < 1

    def test_a_task_checks_that_its_data_fit(self):
        data = GatedData({"x": np.ones((1, 2))}, {"y": np.ones((1, 1))})
        with pytest.raises(ValueError, match=r"inputs\['x'\] has shape \(1, 2\)"):
            tasks.Task(Graph.chain([3, 1]), data, "wrong", {})
        assert "Task('routing', Graph(6 nodes" in repr(tasks.routing(2, width=2))


def test_random_networks_learn_as_in_the_reference(reference):
    # N Fig. 4e: orthogonal gain .2, full-batch gradient descent, 10 networks in one program.
    known = reference["statistical"]["fig4_random_init"]["loss_x8_at_step"]
    task = tasks.routing(7, 4)

    def losses(key):
        network = GatedNetwork.init(task.graph, init.orthogonal(0.2), key=key)
        run = train(network, task.data, optimizer=optax.sgd(0.16), steps=499, keep_models=False)
        return run.losses

    runs = np.asarray(jax.jit(jax.vmap(losses))(jax.random.split(jax.random.key(0), 10)))
    medians = 8 * np.median(runs, axis=0)
    for step, (mean, sd) in known.items():
        # A median of 10 strays by .4 sd, the reference's own mean by .3 sd: 2 sd are 4 sigma.
        assert medians[int(step)] == pytest.approx(mean, abs=2 * sd), step


def test_the_matrix_of_routes_alone_is_that_of_the_task(key):
    for pattern in ("cyclic", "random_biregular", np.eye(4)):
        k = 2 if isinstance(pattern, str) else None
        alone = tasks.route_matrix(4, k, pattern=pattern, key=key)
        task = tasks.routing(4, k, pattern=pattern, key=key, width=2)
        np.testing.assert_array_equal(alone, task.meta["pattern"])
    with pytest.raises(ValueError, match="trained_per_domain is 5"):
        tasks.route_matrix(4, 5)
