"""Predictions need no targets; whatever needs targets says so before it computes."""

import jax
import numpy as np
import pytest

from gdln_jax import GatedData, GatedNetwork, Graph, ReLUNetwork, gates, init, mse

GRAPH = Graph(
    {"x": 3, "h": 2, "g": 2, "y": 2, "z": 2}, [("x", "h"), ("x", "g"), ("h", "y"), ("g", "z")]
)
KEY = jax.random.key(0)
NET = GatedNetwork.init(GRAPH, init.normal(1.0), key=KEY)
X = np.arange(12.0).reshape(4, 3)
TARGETS = {"y": np.ones((4, 2)), "z": np.ones((4, 2))}
GATE = np.array([1.0, 0.0, 1.0, 0.5])


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


class TestPredictions:
    @pytest.mark.parametrize("given", [{}, {"node_gates": {"h": GATE}}])
    def test_targets_change_nothing(self, given):
        data = GatedData({"x": X}, **given)
        assert "no targets" in repr(data)
        same(NET(data), NET(GatedData({"x": X}, TARGETS, **given)))
        same(NET.activity(data), NET.activity(GatedData({"x": X}, TARGETS, **given)))

    def test_inputs_alone(self):
        same(NET({"x": X}), NET(GatedData({"x": X}, TARGETS)))
        jitted = jax.jit(lambda net, data: net(data))
        same(jitted(NET, {"x": X}), jitted(NET, GatedData({"x": X})))
        # An activity by hand: the forward pass, not only two calls that agree.
        w = NET.weights
        np.testing.assert_allclose(NET({"x": X})["y"], X @ w["x->h"].T @ w["h->y"].T, rtol=1e-6)

    def test_inputs_alone_are_checked_as_data_are(self):
        with pytest.raises(ValueError, match=r"inputs\['x'\] has shape \(4, 2\).*width 3"):
            NET({"x": X[:, :2]})
        with pytest.raises(ValueError, match="inputs names 'h'"):
            NET({"x": X, "h": X})
        with pytest.raises(ValueError, match=r"inputs\['x'\] is not finite"):
            NET({"x": X * np.nan})

    def test_of_a_batch_of_networks(self):
        nets = jax.vmap(lambda key: GatedNetwork.init(GRAPH, init.normal(1.0), key=key))(
            jax.random.split(KEY, 2)
        )
        assert jax.vmap(lambda net: net({"x": X}))(nets)["y"].shape == (2, 4, 2)

    def test_relu(self):
        relu = ReLUNetwork.init([3, 4, 2], std=1.0, key=KEY)
        wanted = {"y": relu(X)}
        same(relu(GatedData({"x": X})), wanted)
        same(relu({"x": X}), wanted)
        same(relu(GatedData({"x": X}, {"out": np.ones((4, 2))})), {"out": wanted["y"]})

    def test_learned_gates(self):
        model = gates.LearnedGates(NET, ["h"])
        same(model({"x": X}), model(GatedData({"x": X}, TARGETS)))

    def test_examples_are_taken_without_targets(self):
        same(NET(GatedData({"x": X}).take([2])), NET({"x": X[[2]]}))


SNIPPET = """
import jax, numpy as np, optax
import gdln_jax as gdln
x, y = np.ones((4, 2)), np.ones((4, 1))
graph = gdln.Graph.chain([2, 3, 1])
key = jax.random.key(0)
net = gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), key=key)
relu = gdln.ReLUNetwork.init([2, 3, 1], std=0.1, key=key)
learned = gdln.gates.LearnedGates(net, ["h1"])
data = gdln.GatedData({"x": x})
sgd, ts = optax.sgd(0.1), np.array([0.0, 1.0])
turns = gdln.Schedule([data, data], steps=[1])
flows = turns.with_times([0.5])
words = "the data have no targets"
attempts = [
    (lambda: gdln.mse(net, data), words),
    (lambda: jax.jit(gdln.mse)(net, data), words),
    (lambda: gdln.mse(relu, data), words),
    (lambda: gdln.mse(learned, data), words),
    (lambda: gdln.mse(lambda d: {"y": d.inputs["x"]}, data), words),
    (lambda: net.pairs(data), words),
    (lambda: net.prepare(data), words),
    (lambda: jax.jit(lambda d: net.prepare(d))(data), words),
    (lambda: gdln.cross_entropy(net, data), words),
    (lambda: gdln.predictive_coding(net, data), words),
    (lambda: gdln.pack(graph, data), words),
    (lambda: gdln.train(net, data, optimizer=sgd, steps=1), words),
    (lambda: gdln.train(relu, data, optimizer=sgd, steps=1), words),
    (lambda: gdln.train(learned, data, optimizer=sgd, steps=1), words),
    (lambda: gdln.train(net, turns, optimizer=sgd, steps=2), words),
    (lambda: gdln.gradient_flow(net, data, ts), words),
    (lambda: gdln.gradient_flow(net, flows, ts), words),
    (lambda: gdln.reduce(graph, data), words),
    (lambda: gdln.reduce_width(net, data), words),
    (lambda: gdln.draw_width(graph, data, gdln.init.orthogonal(1.0), key=key), words),
    (lambda: gdln.path_statistics(graph, data), words),
    (lambda: gdln.measures.error_by_group(net, data, [0, 0, 1, 1], 2), words),
    (lambda: gdln.relu.predict_gates(data), "one output node"),
    (data.compress, "these data have no targets"),
    (lambda: gdln.GatedData({"x": x}, {}), "leave targets out for predictions"),
    (lambda: gdln.GatedData({"x": x}).with_names({"x": "ab"}), "pass a pair (features, items)"),
    (lambda: net([x]), "wrap the arrays by node name"),
    (lambda: net({"x": x, "h": y}), "inputs names 'h'"),
    (lambda: net({}), "inputs must be a non-empty mapping"),
]
"""


def test_what_needs_targets_says_so(refused_plainly):
    refused_plainly(SNIPPET)


def test_a_loss_of_ones_own_needs_no_targets():
    import jax.numpy as jnp
    import optax

    from gdln_jax import train

    def size(model, data):
        return jnp.mean(model(data)["y"] ** 2)

    run = train(NET, GatedData({"x": X / 10}), optimizer=optax.sgd(0.1), steps=3, loss=size)
    assert float(run.losses[-1]) < float(run.losses[0])
    with pytest.raises(ValueError, match="no targets"):
        mse(run.final, GatedData({"x": X}))
