"""Tied autoencoders, linear self-supervision, moments and folded gates (theory#autoencoders).

Known answers: reference_beyond.json, key `tied`; the gated network itself for folded gates; the
projector on principal components for the end of a tied autoencoder.
"""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_ties import gated_dag

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, Graph, exact, init, tasks

mse = eqx.filter_jit(gdln.mse)
LAM = (2.0, 1.2, 0.7, 0.3, 0.1)


@pytest.fixture(scope="module")
def tied(reference_beyond):
    return reference_beyond["tied"]


def test_modes_of_the_reference(tied):
    b0 = np.array([0.03, 0.02, 0.01])
    for t, a in tied["autoencoder"]["a"].items():
        found = exact.autoencoder_mode(float(t), np.array(LAM[:3]), b0**2)
        np.testing.assert_allclose(found, a, rtol=1e-9)
    half = exact.autoencoder_mode(tied["autoencoder"]["half_time_mode_1"], LAM[0], b0[0] ** 2)
    np.testing.assert_allclose(half, 0.5, rtol=1e-9)
    gamma = np.array([2.0, 1.0, 0.5])
    np.testing.assert_allclose(
        exact.ssl_mode(3.0, gamma, gamma * b0**2, 3), tied["ssl"]["a"], rtol=1e-9
    )
    np.testing.assert_allclose(
        exact.ssl_mode(3.0, -0.3, -0.3 * 0.25, 3), tied["ssl"]["a_negative"], rtol=1e-9
    )
    assert exact.autoencoder_mode(np.inf, 2.0, 1e-4) == 1
    assert exact.ssl_mode(np.inf, -0.3, -0.1, 3) == 0


def test_white_inputs_from_any_start(tied):
    for name, solution in (
        ("autoencoder_white", exact.autoencoder_white),
        ("ssl_white", exact.ssl_white),
    ):
        w0 = np.array(tied["autoencoder_white"]["W0"])
        np.testing.assert_allclose(solution(0.5, w0, 0.8), tied[name]["W"], rtol=1e-9)
        # Half the exponent is another curve.
        assert np.abs(np.asarray(solution(0.25, w0, 0.8)) - tied[name]["W"]).max() > 0.05
        later = solution(np.array([0.5, 1e4]), w0, 0.8)
        factor = 0.8 if name == "ssl_white" else 1.0
        np.testing.assert_allclose(factor * later[1] @ later[1].T, np.eye(2), atol=1e-12)
    # Derivatives where singular values repeat: that of the largest entry, by differences.
    start, step = jnp.eye(2, 4), np.zeros((2, 4))
    step[0, 2] = 1e-6
    slope = jax.jacobian(lambda w: exact.autoencoder_white(0.5, w, 0.8))(start)[:, :, 0, 2]
    ends = [exact.autoencoder_white(0.5, start + sign * step, 0.8) for sign in (1, -1)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, atol=1e-8)
    assert np.abs(exact.ssl_white(1e5, start, -0.8)).max() < 1e-12


def test_tasks_of_the_reference(tied):
    w = np.diag([0.03, 0.02, 0.01]) @ np.eye(3, 5)
    task = tasks.tied_autoencoder(LAM, 3)
    net = GatedNetwork(task.graph, {"W": w})
    np.testing.assert_allclose(mse(net, task.data), tied["autoencoder"]["L"]["0"], rtol=1e-9)
    np.testing.assert_allclose(task.meta["eigenvalues"], LAM, rtol=1e-12)
    gamma = [2.0, 1.0, 0.5, -0.3, 0.2]
    ssl = tasks.linear_ssl(gamma, 3)
    net = GatedNetwork(ssl.graph, {"W": w, **ssl.meta["frozen"]})
    np.testing.assert_allclose(mse(net, ssl.data), tied["ssl"]["L"]["0"], rtol=1e-9)
    assert ssl.graph.frozen == ("Gamma",)
    targets = np.array([[1.0, 0.5], [-0.5, 1.0]])
    general = tasks.tied_autoencoder([1.0, 1.0], 2, targets=targets)
    net = GatedNetwork(general.graph, {"W": np.eye(2)})
    # The loss above its minimum: |yx xx^+ - W'W| at unit covariance.
    np.testing.assert_allclose(mse(net, general.data), np.sum((targets - np.eye(2)) ** 2) / 2)


def ends(task, starts, t1):
    """W at time `t1` of flows from several starts, one compiled program."""

    def end(w0):
        net = GatedNetwork(task.graph, {"W": w0, **task.meta.get("frozen", {})})
        run = gdln.gradient_flow(net, task.data, [0.0, t1], keep_models=False)
        return run.final.parameters["W"]

    return jax.jit(jax.vmap(end))(starts)


def test_principal_components_are_learned():
    """From random weights of 1e-3, W'W tends to the projector (theory#autoencoders)."""
    starts = 1e-3 * jax.random.normal(jax.random.key(0), (5, 3, 5))
    w = ends(tasks.tied_autoencoder(LAM, 3), starts, 60.0)
    projector = np.diag([1.0, 1.0, 1.0, 0.0, 0.0])
    assert np.abs(jnp.swapaxes(w, 1, 2) @ w - projector).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("following", "slope"), [(0.2, 0.6), (0.1, 0.8)])
def test_self_supervision_ends_near_the_leading_modes_only(tied, following, slope):
    """With k < d the end differs by eps^(1 - gamma_(k+1)/gamma_k) from the leading eigenvectors."""
    task = tasks.linear_ssl([2.0, 1.0, 0.5, following, -0.3], 3)
    eps, first = 10.0 ** -np.arange(2, 7), np.eye(3, 5)
    first[2, 3] = 1  # one entry of M (3 x 2), beside the identity
    w = ends(task, eps[:, None, None] * first, 600.0)
    leading = np.diag([0.5, 1.0, 2.0, 0.0, 0.0])
    left = np.linalg.norm(jnp.swapaxes(w, 1, 2) @ w - leading, axis=(1, 2))
    if following == 0.2:
        np.testing.assert_allclose(left, tied["ssl_leftover"]["value"], rtol=1e-4)
    np.testing.assert_allclose(-np.diff(np.log10(left)), slope, atol=0.005)


class TestMoments:
    def test_any_data_with_gates(self):
        rng = np.random.default_rng(3)
        x, y = rng.standard_normal((40, 3)), rng.standard_normal((40, 2))
        gate = np.repeat([0.0, 1.0], [10, 30])
        x[:, 2] *= 1e-8
        parts = [gate == g for g in (0.0, 1.0)]
        moments = [
            np.stack([a[p].T @ b[p] / p.sum() for p in parts]) for a, b in ((x, x), (y, x), (y, y))
        ]
        data = GatedData.from_moments(
            {"x": 2, "z": 1},
            {"y": 2},
            *moments,
            edge_gates={"z->y": np.array([0.0, 1.0])},
            weights=[1 / 4, 3 / 4],
        )
        given = GatedData({"x": x[:, :2], "z": x[:, 2:]}, {"y": y}, edge_gates={"z->y": gate})
        graph = Graph({"x": 2, "z": 1, "y": 2}, [("x", "y"), ("z", "y")])
        net = GatedNetwork(graph, {"x->y": np.ones((2, 2)), "z->y": np.full((2, 1), 3e7)})
        assert data.num_examples == 10
        np.testing.assert_allclose(mse(net, data), mse(net, given), rtol=1e-12)

    def test_what_no_data_have_is_refused(self, refused_plainly, tied):
        assert tied["moments_refused"]["value"] < -1e-3
        refused_plainly("""
import numpy as np
from gdln_jax import GatedData
def g(xx, yx, yy=None, **more):
    return lambda: GatedData.from_moments({"x": len(xx)}, {"y": len(yx)}, xx, yx, yy, **more)
one = np.eye(2)
attempts = [
    (g(one, [[1.0, 0.0]], [[0.99]]), "smallest eigenvalue of [[xx, xy], [yx, yy]], in units"),
    (g([[1e-12]], [[3e-6]], [[1.0]]), "is -2 "),
    (g(np.diag([1.0, 0.0]), [[0.0, 1.0]]), "yx leaves the range of xx"),
    (g(np.triu(np.ones((2, 2))), [[1.0, 0.0]]), "xx is not symmetric"),
    (g(one, [[1.0, 0.0, 0.0]]), "expected (1, 2)"),
    (g(one, [[1.0, 0.0]], node_gates={"h": [1.0, 0.0]}), "one matrix for each gate pattern"),
    (lambda: GatedData.from_moments({}, {"y": 1}, one, one), "pass a mapping node -> width"),
]
""")


class TestFolding:
    def test_loss_and_class_gradients_are_those_of_the_gated_network(self):
        graph, net, data = gated_dag(1)
        folded, small = gdln.fold_gates(graph, data)
        other = GatedNetwork(folded, dict(net.parameters))
        assert not small.node_gates
        assert all(np.ptp(gate) == 0 for gate in small.edge_gates.values())
        assert set(folded.parameters) == set(graph.parameters)
        assert (folded.outputs, folded.frozen) == (graph.outputs, graph.frozen)
        of = eqx.filter_jit(eqx.filter_value_and_grad(gdln.mse))
        (loss, gradient), (again, folded_gradient) = of(net, data), of(other, small)
        np.testing.assert_allclose(again, loss, rtol=1e-12)
        for name, g in gradient.parameters.items():
            size = np.abs(g).max()
            np.testing.assert_allclose(folded_gradient.parameters[name], g, atol=1e-12 * size)

    def test_a_context_as_real_gates_leaves_few_pseudo_examples(self, tied):
        """One attention head: X_i = beta_i x, shared query, 200 sampled contexts."""
        d, rng = 3, np.random.default_rng(0)
        names = [f"a{i}" for i in range(d)]
        edges = [("x", a) for a in names] + [(a, "c") for a in names] + [("c", "y")]
        graph = Graph(
            {"x": d, **dict.fromkeys(names, 1), "c": 1, "y": 1},
            edges,
            shared={"q": [f"x->{a}" for a in names]},
        )
        beta, x, y = (rng.standard_normal((200, k)) for k in (d, d, 1))
        data = GatedData({"x": x}, {"y": y}, dict(zip(names, beta.T, strict=True)))
        with pytest.warns(UserWarning, match="200 examples have 200 gate patterns: fold the real"):
            assert data.compress().num_examples == tied["counts"]["gated"]
        folded, small = gdln.fold_gates(graph, data)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            small = small.compress()
        assert small.num_examples == tied["counts"]["folded"]
        net = GatedNetwork.init(graph, init.normal(1.0), key=jax.random.key(0))
        other = GatedNetwork(folded, dict(net.parameters))
        np.testing.assert_allclose(mse(other, small), mse(net, data), rtol=1e-13)
        with pytest.raises(ValueError, match="more than max_nodes = 5"):
            gdln.fold_gates(graph, data, max_nodes=5)

    def test_what_all_gates_shut_keeps_an_edge(self):
        graph = Graph(
            {"x": 2, "z": 2, "h": 3, "k": 3, "y": 1},
            [("x", "h"), ("z", "k"), ("h", "y"), ("k", "y")],
        )
        data = GatedData(
            {"x": np.eye(2), "z": np.eye(2)},
            {"y": np.ones((2, 1))},
            {"h": np.array([1.0, -2.0]), "k": np.zeros(2)},
        )
        folded, small = gdln.fold_gates(graph, data)
        assert set(folded.parameters) == set(graph.parameters)
        net = GatedNetwork.init(graph, init.normal(1.0), key=jax.random.key(0))
        other = GatedNetwork(folded, dict(net.parameters))
        np.testing.assert_allclose(mse(other, small), mse(net, data), rtol=1e-13)
