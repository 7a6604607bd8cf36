"""Networks, initial weights and losses against loops in NumPy; cost, keys, leaves as promised."""

from typing import Any

import chex
import equinox as eqx
import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_systems import BruteForce, random_arrays, random_graph, random_system, random_weights

from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    ModeStrengths,
    ReLUNetwork,
    Schedule,
    cross_entropy,
    gates,
    gradient_flow,
    init,
    mse,
    pack,
    tasks,
    train,
)

DRAFT = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def compiled(function, *args):
    """Run once, compiled without optimisation: for many small programs that run once."""
    return jax.jit(function).lower(*args).compile(compiler_options=DRAFT)(*args)


def close(got, wanted, tol=1e-12):
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tol * max(1.0, np.abs(wanted).max()))


class TestAgainstBruteForce:
    """h_v = g_v sum g_q W_q h_s(q); L = < 1/2 sum ||y - h||^2 > (theory#conventions)."""

    # Seeds 7, 9 and 25 hold hidden and output nodes of one level and width.
    @pytest.mark.parametrize("seed", [0, 1, 2, 3, 7, 9, 25, 31])
    def test_packed_unpacked_and_loop_agree(self, seed):
        graph, data, weights = random_system(seed)
        loop = BruteForce(graph, data, weights)
        network = GatedNetwork(graph, weights)

        def everything(network, data, packed):
            both = [(jax.value_and_grad(mse)(network, d), network(d)) for d in (data, packed)]
            return both, network.activity(data)

        both, activity = compiled(everything, network, data, pack(graph, data))
        wanted = loop.gradient()
        for (value, gradient), outputs in both:
            close(value, loop.loss())
            assert set(outputs) == set(graph.outputs)
            for name, output in outputs.items():
                close(output, loop.activity(name))
            for name, w in wanted.items():
                close(gradient.weights[name], w)
        assert set(activity) == set(graph.nodes)
        for name, h in activity.items():
            close(h, loop.activity(name))

    def test_outputs_that_no_active_path_reaches(self):
        graph = Graph({"x": 2, "a": 2, "b": 2}, [("x", "a"), ("x", "b")])
        x, y = np.ones((3, 2)), np.full((3, 2), 2.0)
        data = GatedData({"x": x}, {"a": y, "b": y}, {"b": np.zeros(3)}, {"x->a": [1, 0, 0]})
        network = GatedNetwork(graph, {"x->a": np.eye(2), "x->b": np.eye(2)})
        packed = pack(graph, data)
        # mean over 3 examples of 1/2 sum: (1 + 4) + (4 + 4) + (4 + 4) over 3
        for form in (data, packed):
            loss, found = compiled(lambda net, data: (mse(net, data), net(data)), network, form)
            close(loss, 7.0)
            close(found["a"], [[1, 1], [0, 0], [0, 0]])
            close(found["b"], np.zeros((3, 2)))
        assert packed.num_pairs == 1

    def test_all_zero_data(self):
        graph = Graph.chain([2, 3, 1])
        data = GatedData({"x": np.zeros((4, 2))}, {"y": np.zeros((4, 1))})
        network = GatedNetwork.init(graph, init.normal(), key=jax.random.key(0))
        packed = pack(graph, data)
        (value, gradient), found = compiled(
            lambda net, data: (jax.value_and_grad(mse)(net, data), net(data)), network, packed
        )
        assert float(value) == 0
        assert not any(np.any(s) for s in gradient.stacks)
        close(found["y"], np.zeros((4, 1)))
        assert "0 active edge products" in repr(packed)

    @pytest.mark.parametrize("seed", [0, 7])
    def test_cross_entropy(self, seed):
        # < - sum_v sum_k y_vk log softmax(h_v)_k > with soft targets and example weights
        graph, data, weights = random_system(seed)
        soft = {
            k: np.exp(v) / np.exp(v).sum(axis=1, keepdims=True) for k, v in data.targets.items()
        }
        data = GatedData(data.inputs, soft, data.node_gates, data.edge_gates, data.weights)
        loop = BruteForce(graph, data, weights)
        wanted = 0.0
        for name, y in soft.items():
            h = loop.activity(name)
            log_softmax = h - np.log(np.exp(h).sum(axis=1, keepdims=True))
            wanted -= np.sum(loop.example_weights[:, None] * y * log_softmax)
        network = GatedNetwork(graph, weights)
        packed = pack(graph, data)
        one, two = compiled(
            lambda net, d, p: (cross_entropy(net, d), cross_entropy(net, p)), network, data, packed
        )
        close(one, wanted)
        close(two, wanted)

    def test_losses_take_any_model_that_maps_data_to_outputs(self):
        class Bias(eqx.Module):
            b: Any

            def __call__(self, data):
                return {"y": jnp.broadcast_to(self.b, data.targets["y"].shape)}

        data = GatedData({"x": np.ones((2, 1))}, {"y": [[1.0, 2.0], [3.0, 4.0]]}, weights=[1, 3])
        value, gradient = jax.value_and_grad(mse)(Bias(jnp.zeros(2)), data)
        close(value, 0.25 * 2.5 + 0.75 * 12.5)
        close(gradient.b, [-2.5, -3.5])
        packed = pack(Graph({"x": 1, "y": 2}, [("x", "y")]), data)
        with pytest.raises(ValueError, match=r"Bias cannot read PackedData"):
            mse(Bias(jnp.zeros(2)), packed)

    def test_models_of_ones_own_are_not_asked_for_what_those_of_the_package_have(self):
        """`graph`, `prepare` and `pairs` are no protocol: names are the user's."""

        class Own(eqx.Module):
            b: Any
            graph: str = "a picture"

            def prepare(self, _):
                raise AssertionError

            pairs = validate = prepare

            def __call__(self, data):
                return {"y": jnp.broadcast_to(self.b, data.targets["y"].shape)}

        data = GatedData({"x": np.ones((2, 1))}, {"y": [[1.0, 2.0], [3.0, 4.0]]})
        run = train(Own(jnp.zeros(2)), data, optimizer=optax.sgd(1.0), steps=1)
        close(run.final.b, [2.0, 3.0])

    def test_data_are_checked_against_every_model_of_the_package(self):
        graph = Graph({"x": 1, "h": 2, "y": 1}, [("x", "h"), ("h", "y")])
        net = GatedNetwork.init(graph, init.normal(0.1), key=jax.random.key(0))
        wide = GatedData({"x": np.ones((2, 3))}, {"y": np.ones((2, 1))})
        relu = ReLUNetwork.init([1, 2, 1], key=jax.random.key(0))
        for model in (net, gates.LearnedGates(net, ["h"]), relu):
            for data in (wide, Schedule([wide, wide], [0.5])):
                for loss in (mse, lambda model, data: jnp.sum(model(data)["y"])):
                    with pytest.raises(ValueError, match=r"inputs\['x'\] has shape \(2, 3\)"):
                        gradient_flow(model, data, [0.0, 1.0], loss=loss)


class TestCost:
    """A step costs in proportion to the active edges; compile time does not grow with modules."""

    def test_active_edge_products(self):
        def work(m, k, n=4):
            packed = tasks.routing(m, k).data
            packed = pack(tasks.routing(m, k).graph, packed)
            return packed.num_pairs * packed.rows / n

        # Cyclic routing: M encodings, M passes of h1 -> h2, M K read-outs.
        assert work(7, 4) == 7 + 7 + 28
        assert work(8, 3) == 8 + 8 + 24
        assert work(16, 3) == 2 * work(8, 3)

    def test_an_input_is_encoded_once_for_all_its_routes(self):
        task = tasks.routing(6, 5)
        packed = pack(task.graph, task.data)
        encode, carry, read = packed.stages
        assert encode is not None
        assert carry is not None
        assert read is not None
        assert (encode.shape[0] * encode.shape[1], carry.shape[0] * carry.shape[1]) == (6, 6)
        assert read.shape[0] * read.shape[1] == 30

    def test_the_jaxpr_does_not_grow_with_the_number_of_domains(self):
        def equations(m, k=3):
            task = tasks.routing(m, k, compact=True, width=8)
            stacks = tuple(jnp.zeros((len(b.edges), *b.shape)) for b in task.graph.bundles)
            network = GatedNetwork.from_stacks(task.graph, stacks)
            return count(jax.make_jaxpr(jax.grad(mse))(network, task.data).jaxpr)

        def count(jaxpr):
            inner = [
                p.jaxpr
                for equation in jaxpr.eqns
                for p in equation.params.values()
                if isinstance(p, jax.extend.core.ClosedJaxpr)
            ]
            return len(jaxpr.eqns) + sum(map(count, inner))

        assert equations(10) == equations(40) == equations(200)
        # Half of all pairs are active: every decoder is multiplied with every code.
        assert equations(6) == equations(18, 9) != equations(10)

    # Pairs of decoders and codes: few units and most codes; most codes but many units; few codes.
    # Data: wide with few rows; with many rows; narrow.
    @pytest.mark.parametrize(
        ("out", "width", "sources", "rows", "of_data", "order"),
        [
            (3, 70, 4, 2, False, "every"), (90, 70, 4, 2, False, "plain"),
            (3, 70, 40, 2, False, "plain"), (6, 64, 10, 3, True, "turned"),
            (6, 64, 10, 4, True, "plain"), (6, 63, 10, 3, True, "plain"),
        ],
    )  # fmt: skip
    def test_products_are_taken_in_the_order_that_costs_least(
        self, out, width, sources, rows, of_data, order
    ):
        random = np.random.default_rng(0)
        table = np.arange(10).reshape(5, 2)  # of data: two blocks of examples for each edge
        if not of_data:
            table = np.stack([random.choice(sources, 2, replace=False) for _ in range(5)])
        task = tasks.routing(2, 1, width=2)
        stage_of: Any = type(pack(task.graph, task.data).stages[0])
        stage = stage_of(None if of_data else jnp.asarray(table), None, None, None, table.shape)
        weights = jnp.asarray(random.normal(size=(5, out, width)))
        h = jnp.asarray(random.normal(size=(sources, rows, width)))

        def sent(weights, h):
            return stage.sent(weights, h, of_data=of_data)

        wanted = np.einsum("cts,cprs->cprt", weights, np.asarray(h)[table])
        found, back = jax.vjp(sent, weights, h)
        close(found, wanted)
        of_weights, of_h = back(found)
        close(of_weights, np.einsum("cprt,cprs->cts", wanted, np.asarray(h)[table]))
        sums = np.zeros(h.shape)
        np.add.at(sums, table, np.einsum("cprt,cts->cprs", wanted, weights))
        close(of_h, sums)
        program = jax.make_jaxpr(sent)(weights, h).jaxpr
        names = [equation.primitive.name for equation in program.eqns]
        assert ("optimization_barrier" in names) == (order == "turned")
        product = program.eqns[names.index("dot_general")].outvars[0].aval
        assert product.size == 5 * (sources if order == "every" else 2) * rows * out

    def test_new_values_of_the_same_shape_do_not_retrace(self):
        graph, data, weights = random_system(3)

        @jax.jit
        @chex.assert_max_traces(n=1)
        def loss(network, data):
            return mse(network, data)

        for scale in (1.0, 2.0, 3.0):
            network = GatedNetwork(graph, {k: scale * w for k, w in weights.items()})
            loss(network, jax.tree.map(lambda a, s=scale: a * s, data))

    def test_packing_for_another_graph_is_refused(self):
        graph, data, _ = random_system(0)
        packed = pack(graph, data)
        assert pack(graph, packed) is packed
        with pytest.raises(ValueError, match="made for another graph"):
            pack(Graph.chain([2, 2]), packed)


class TestLeaves:
    """One leaf per weight; gates are data."""

    def test_the_only_leaves_are_the_weights_each_once(self):
        graph, data, weights = random_system(1)
        network = GatedNetwork(graph, weights)
        leaves = jax.tree.leaves(network)
        assert len(leaves) == len(graph.bundles)
        assert sum(leaf.size for leaf in leaves) == sum(w.size for w in weights.values())
        assert data.node_gates

    def test_an_optimiser_leaves_gates_alone_and_keeps_no_state_for_them(self):
        graph, data, weights = random_system(1)
        before = jax.tree.map(np.array, data)
        network = GatedNetwork(graph, weights)
        optimizer = optax.adam(0.1)
        state = optimizer.init(network)  # type: ignore[arg-type]
        momenta = [leaf for leaf in jax.tree.leaves(state) if jnp.ndim(leaf) > 0]
        assert sum(leaf.size for leaf in momenta) == 2 * sum(w.size for w in weights.values())
        run = train(network, data, optimizer=optimizer, steps=3)
        assert float(run.losses[-1]) < float(run.losses[0])
        chex.assert_trees_all_equal(data, before)

    def test_weights_are_read_by_edge(self):
        graph, _, weights = random_system(2)
        network = GatedNetwork(graph, weights)
        assert list(network.weights) == [e.name for e in graph.edges]
        assert len(network.weights) == len(graph.edges)
        for name, w in weights.items():
            close(network.weights[name], w, 0)
        with pytest.raises(KeyError, match=r"no edge is called .* edges: "):
            network.weights["nowhere"]
        stacked = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), network)
        name = graph.edges[0].name
        close(stacked.weights[name], np.stack([weights[name], 2 * weights[name]]), 0)
        assert "batch (2,)" in repr(stacked)

    def test_with_weights(self):
        graph, _, weights = random_system(2)
        network = GatedNetwork(graph, weights)
        name, other = graph.edges[0].name, graph.edges[1].name
        changed = network.with_weights({name: np.zeros(graph.shape(name), np.float32)})
        assert not jnp.any(changed.weights[name])
        assert changed.weights[name].dtype == np.dtype("float64")
        close(changed.weights[other], weights[other], 0)
        close(network.weights[name], weights[name], 0)
        with pytest.raises(ValueError, match=r"weights names 'no', which is not an edge"):
            network.with_weights({"no": np.zeros((1, 1))})
        with pytest.raises(ValueError, match=r"weights\[.*\] has shape \(9, 9\); expected"):
            network.with_weights({name: np.zeros((9, 9))})

    def test_malformed_weights_name_the_edge(self):
        graph = Graph.chain([2, 3, 1])
        good = {"x->h1": np.ones((3, 2)), "h1->y": np.ones((1, 3))}
        with pytest.raises(
            ValueError, match=r"weights lacks edge 'h1->y', expected shape \(1, 3\)"
        ):
            GatedNetwork(graph, {"x->h1": good["x->h1"]})
        with pytest.raises(ValueError, match=r"names 'x->h', which is not an edge.*mean 'x->h1'"):
            GatedNetwork(graph, {**good, "x->h": np.ones((3, 2))})
        message = (
            r"weights\['x->h1'\] has shape \(2, 3\); expected \(\|target\|, \|source\|\) = \(3, 2"
        )
        with pytest.raises(ValueError, match=message):
            GatedNetwork(graph, {**good, "x->h1": np.ones((2, 3))})
        whole = GatedNetwork(graph, {"x->h1": [[1, 0], [0, 1], [1, 1]], "h1->y": [[1, 2, 3]]})
        assert {s.dtype for s in whole.stacks} == {np.dtype("float64")}


class TestInitialWeights:
    def test_keys_belong_to_edge_names(self):
        # Adding an edge leaves the others' weights; no two edges, no two seeds share.
        edges = [("x", "h", "a"), ("x", "h", "b"), ("h", "y", "c")]
        small = Graph({"x": 4, "h": 4, "y": 4}, edges)
        large = Graph({"x": 4, "h": 4, "y": 4}, [("x", "y", "new"), *edges[::-1]])
        for sampler in (init.normal(1.0), init.xavier(1.0), init.orthogonal(1.0)):
            one = GatedNetwork.init(small, sampler, key=jax.random.key(5))
            two = GatedNetwork.init(large, sampler, key=jax.random.key(5))
            seed = GatedNetwork.init(small, sampler, key=jax.random.key(6))
            for name in "abc":
                close(two.weights[name], one.weights[name], 0)
            every = [np.asarray(w) for net in (two, seed) for w in net.weights.values()]
            entries = np.concatenate([w.ravel() for w in every])
            assert len(np.unique(entries)) == entries.size

    def test_the_same_in_every_process(self, plain_python):
        # Python's own hash of a name is salted; ours must not be.
        code = (
            "import jax; from gdln_jax import Graph, GatedNetwork, init\n"
            "g = Graph.chain([1, 1, 1])\n"
            "n = GatedNetwork.init(g, init.normal(1.0), key=jax.random.key(0))\n"
            "print(repr([float(w[0, 0]) for w in n.weights.values()]))"
        )
        network = GatedNetwork.init(Graph.chain([1, 1, 1]), init.normal(1.0), key=jax.random.key(0))
        done = plain_python(code, PYTHONHASHSEED="7")
        assert done.stdout.strip() == repr([float(w[0, 0]) for w in network.weights.values()])

    def test_orthogonal_gives_every_singular_value_the_gain(self):
        graph = Graph(
            {"x": 5, "h": 16, "y": 3}, [("x", "h"), ("h", "y"), ("x", "y"), ("h", "y", "2")]
        )
        network = GatedNetwork.init(graph, init.orthogonal(0.2), key=jax.random.key(1))
        for w in network.weights.values():
            close(np.linalg.svd(np.asarray(w), compute_uv=False), np.full(min(w.shape), 0.2))

    def test_normal_and_xavier_have_the_stated_standard_deviation(self):
        graph = Graph.chain([100, 300, 50])
        key = jax.random.key(2)
        for name in ("x->h1", "h1->y"):
            size = sum(graph.shape(name))
            normal = np.asarray(GatedNetwork.init(graph, init.normal(0.3), key=key).weights[name])
            glorot = np.asarray(GatedNetwork.init(graph, init.xavier(0.3), key=key).weights[name])
            # std over 15,000 entries or more: relative standard error below 1 / sqrt(30,000)
            assert normal.std() == pytest.approx(0.3, rel=0.03)
            assert glorot.std() == pytest.approx(0.3 * np.sqrt(2 / size), rel=0.03)
            assert abs(normal.mean()) < 4 * 0.3 / np.sqrt(normal.size)

    @pytest.mark.parametrize("seed", [1, 7])
    def test_balanced_starts_with_the_conserved_quantity_at_zero(self, seed):
        # sum_in W W^T - sum_out W^T W = 0 at every hidden node (E8)
        graph = random_system(seed)[0]
        network = GatedNetwork.init(graph, init.balanced(scale=0.3), key=jax.random.key(0))
        w = {k: np.asarray(v) for k, v in network.weights.items()}
        for node in graph.hidden:
            into = sum(w[e.name] @ w[e.name].T for e in graph.incoming[node])
            out = sum(w[e.name].T @ w[e.name] for e in graph.outgoing[node])
            close(into, out)
        smallest = min(np.linalg.norm(m, 2) for m in w.values())
        assert smallest == pytest.approx(0.3)

    def test_balanced_routing_has_its_shared_edge_sqrt_m_above(self):
        # N's balanced start: B2 = sqrt(M) B1, C = M B1^2 - B2^2 = 0
        graph = tasks.routing(4, width=8).graph
        network = GatedNetwork.init(graph, init.balanced(scale=0.1), key=jax.random.key(0))
        for name, value in (("x2->h1", 0.1), ("h1->h2", 0.2), ("h2->y0", 0.1)):
            s = np.linalg.svd(np.asarray(network.weights[name]), compute_uv=False)[:4]
            close(s, np.full(4, value))

    def test_vmap_over_seeds_and_traced_gains(self):
        graph = Graph.chain([3, 4, 2])
        keys = jax.random.split(jax.random.key(0), 3)
        gains = jnp.array([0.1, 1.0])
        makers = (
            init.orthogonal,
            init.normal,
            init.xavier,
            lambda gain: init.balanced(scale=gain),
        )

        def draw(key, gain):
            return [GatedNetwork.init(graph, make(gain), key=key) for make in makers]

        grids = compiled(jax.vmap(jax.vmap(draw, (None, 0)), (0, None)), keys, gains)
        for grid, one in zip(grids, compiled(draw, keys[2], gains[0]), strict=True):
            assert grid.weights["x->h1"].shape == (3, 2, 4, 3)
            for name in ("x->h1", "h1->y"):
                close(grid.weights[name][2, 0], one.weights[name])

    @pytest.mark.parametrize("bits", [64, 32])
    def test_known_and_traced_keys_draw_the_same(self, bits):
        # Matrices of known keys are orthonormal by NumPy, under a transformation by JAX.
        nodes = {"x": 5, "h": 6, "y": 2}
        graph = Graph(nodes, [("x", "h"), ("h", "y"), ("x", "y"), ("h", "y", "2")])
        makers = (init.orthogonal(0.3), init.normal(dict.fromkeys(graph.edge_index, 0.3)))

        def draw(key):
            return [GatedNetwork.init(graph, make, key=key).stacks for make in makers]

        with jax.enable_x64(bits == 64):
            for key in (jax.random.key(2**40 + 3), jax.random.key(3, impl="rbg")):
                both = map(jax.tree.leaves, (draw(key), compiled(draw, key)))
                for one, two in zip(*both, strict=True):
                    assert one.dtype == two.dtype == f"float{bits}"
                    close(one, two, 4 * np.finfo(one.dtype).eps)

    def test_an_initialiser_can_be_any_function(self):
        graph = Graph.chain([2, 3, 1])

        def ones(graph, key):
            return {e.name: jnp.ones(graph.shape(e.name)) for e in graph.edges}

        network = GatedNetwork.init(graph, ones, key=jax.random.key(0))
        assert float(network.weights["h1->y"].sum()) == 3
        with pytest.raises(ValueError, match=r"stacks have shapes .* one per bundle"):
            GatedNetwork.from_stacks(graph, (jnp.ones((1, 2, 3)), jnp.ones((1, 1, 3))))

    def test_errors_without_the_typing_hook(self, refused_plainly):
        refused_plainly("""
import jax
from gdln_jax import Graph, GatedNetwork
chain, key = Graph.chain([1, 1]), jax.random.key(0)
words = "init is 'orthogonal'; pass an initialiser such as gdln.init.orthogonal"
attempts = [(lambda: GatedNetwork.init(chain, "orthogonal", key=key), words)]
""")


class TestParameters:
    """What learns has a place of its own: today one parameter per edge, one leaf per bundle."""

    graph = Graph(
        {"x": 2, "h": 3, "y": 1}, [("x", "h", "a"), ("x", "h", "b"), ("h", "y"), ("x", "y")]
    )

    def test_every_edge_is_a_parameter(self):
        shapes = {"a": (3, 2), "b": (3, 2), "h->y": (1, 3), "x->y": (1, 2)}
        assert dict(self.graph.parameters) == shapes
        data = GatedData({"x": np.ones((1, 2))}, {"y": np.ones((1, 1))})
        net = GatedNetwork.init(self.graph, init.normal(0.3), key=jax.random.key(0))
        gradient = compiled(jax.grad(mse), net, data)
        both = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), net, gradient)
        for held, lead in ((net, ()), (gradient, ()), (both, (2,))):
            assert {k: v.shape for k, v in held.parameters.items()} == {
                k: (*lead, *shape) for k, shape in shapes.items()
            }
        close(both.parameters["h->y"][1], gradient.weights["h->y"], 0)
        assert np.abs(gradient.parameters["b"]).max() > 0

    def test_optimisers_see_one_leaf_per_bundle(self):
        net = GatedNetwork.init(self.graph, init.normal(0.3), key=jax.random.key(0))
        count = len(self.graph.bundles)
        assert len(jax.tree.leaves(net)) == count == 3
        state = optax.adam(0.1).init(eqx.filter(net, eqx.is_array))
        assert len(jax.tree.leaves(state)) == 2 * count + 1
        k, i = self.graph.slot["b"]
        new = eqx.tree_at(lambda n: n.stacks[k], net, net.stacks[k].at[i].set(7.0))
        close(new.parameters["b"], np.full((3, 2), 7.0), 0)
        for given in (new.stacks, new.parameters):
            again = GatedNetwork(self.graph, given)
            assert eqx.tree_equal(again, new)

    def test_the_mapping_is_a_pytree_and_has_a_flat_form(self):
        net = GatedNetwork.init(self.graph, init.normal(0.3), key=jax.random.key(0))
        zero = jax.tree.map(jnp.zeros_like, net.weights)
        assert list(zero) == list(zero.keys()) == ["a", "b", "h->y", "x->y"]
        assert "c" not in zero
        assert zero.get("c") is None
        assert not np.any([w.any() for w in zero.values()])
        stacks = [i * jnp.ones((5, len(b.edges), 2)) for i, b in enumerate(self.graph.bundles)]
        modes = ModeStrengths(self.graph, tuple(stacks))
        assert modes.flat().shape == (5, 4, 2)
        assert eqx.tree_equal(ModeStrengths.from_flat(self.graph, modes.flat()), modes)
        assert modes["x->y"].shape == (5, 2)


def test_other_inputs_and_targets_in_the_same_arrangement():
    graph, data, weights = random_system(3)
    packed = pack(graph, data)
    net = GatedNetwork(graph, weights)
    doubled = packed.with_arrays(
        (None if x is None else 2 * x for x in packed.inputs), lambda table, _: 2 * table.target
    )
    value, four = compiled(lambda n, a, b: (mse(n, a), mse(n, b)), net, packed, doubled)
    close(four, 4 * value)


class TestTracedData:
    def test_gradients_with_respect_to_gates(self):
        # dL/dg by central differences; data are traced, so nothing can be packed.
        graph = random_graph(np.random.default_rng(4))
        rng = np.random.default_rng(0)
        arrays, weights = random_arrays(graph, rng, 3, gated=1), random_weights(graph, rng)
        network, name = GatedNetwork(graph, weights), graph.edges[0].name

        @jax.jit
        def loss(gate):
            edge_gates = {**arrays["edge_gates"], name: gate}
            return mse(network, GatedData(**{**arrays, "edge_gates": edge_gates}))

        gate, step = jnp.asarray(arrays["edge_gates"][name]), 1e-5 * np.eye(3)
        slope = [(loss(gate + e) - loss(gate - e)) / 2e-5 for e in step]
        np.testing.assert_allclose(jax.grad(loss)(gate), slope, rtol=1e-7, atol=1e-8)

    def test_strict_promotion_in_both_precisions(self):
        graph, data, weights = random_system(7)
        network = GatedNetwork(graph, weights)
        with jax.numpy_dtype_promotion("strict"):
            for dtype in (np.float64, np.float32):
                net, d = jax.tree.map(lambda a, t=dtype: a.astype(t), (network, data))
                for form in (d, pack(graph, d)):
                    assert jax.eval_shape(mse, net, form).dtype == dtype
                    outputs = jax.eval_shape(lambda n, f: n(f), net, form)
                    assert {o.dtype for o in outputs.values()} == {np.dtype(dtype)}
