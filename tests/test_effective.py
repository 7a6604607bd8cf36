"""Effective initial amplitudes: what random weights behave as (E9, E14)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gdln_jax as gdln


@pytest.fixture(scope="module")
def one_mode():
    """A two-layer network with a single mode: y = 2 (u . y)(v . x)."""
    v = np.array([0.6, 0.8, 0.0])
    u = np.array([0.0, 1.0])
    graph = gdln.Graph.chain([3, 32, 2])
    data = gdln.GatedData({"x": np.eye(3)}, {"y": 3 * np.outer(v, 2 * u)})
    return gdln.reduce(graph, data), u, v


def test_projection_is_the_growing_combination_of_two_layers(one_mode):
    """a0 = |W2^T u + W1 v|^2 / 4, which grows as exp(2 s t / tau) (theory#initial-amplitude)."""
    reduction, u, v = one_mode
    for seed in range(5):
        net = gdln.GatedNetwork.init(
            reduction.graph, gdln.init.normal(1e-3), key=jax.random.key(seed)
        )
        w1, w2 = (np.asarray(net.weights[e]) for e in ("x->h1", "h1->y"))
        found = gdln.effective_initial(reduction, net)
        expected = np.sum((w2.T @ u + w1 @ v) ** 2) / 4
        np.testing.assert_allclose(found.amplitude**2, expected, rtol=1e-9)
        assert all(0 <= value <= 1 for value in found.misalignment.values())


def test_expected_initial_is_the_mean_over_random_networks(one_mode):
    """E a0 = n sd^2 / 2 with sd = sd^2 sqrt(n / 2): (sd^2/2) chi^2_n."""
    reduction, u, v = one_mode
    n, std, seeds = 32, 1e-3, 200

    def a0(key):
        net = gdln.GatedNetwork.init(reduction.graph, gdln.init.normal(std), key=key)
        grown = net.weights["h1->y"].T @ u + net.weights["x->h1"] @ v
        return jnp.sum(jnp.square(grown)) / 4

    drawn = np.asarray(jax.vmap(a0)(jax.random.split(jax.random.key(0), seeds)))
    mean, sd = gdln.expected_initial(n, std)
    assert abs(drawn.mean() - mean) < 4 * sd / np.sqrt(seeds)
    assert abs(drawn.std() / sd - 1) < 0.25  # 4 standard errors of a standard deviation


def test_relu_constant_gives_the_predicted_time_of_xor(reference):
    """E14: a0 = (N_h/4) kappa sigma_0^2 predicts t(L = .25) = 45.091 at sigma_0 = .0002."""
    a0, sd = gdln.expected_initial(128, 2e-4, layer="relu")
    crossing = gdln.time_to(0.25, curve=lambda t: gdln.exact.xor_loss(t, a0, tau=2.5))
    # The reference, 45.081, has kappa = .6636 as simulated, for .661699.
    later = 2.5 * np.log(0.6636 / 0.661699) / (2 * np.sqrt(2) / 4)
    predicted = reference["statistical"]["xor_relu"]["predicted"] + later
    assert float(crossing.time) == pytest.approx(predicted, abs=1e-3)
    assert a0 == pytest.approx(32 * 0.661699 * 4e-8, rel=1e-6)
    assert sd == 0


def test_aligned_start_is_read_exactly_and_the_fit_recovers_it():
    task = gdln.tasks.routing(3, 2, width=8)
    reduction = gdln.reduce(task.graph, task.data)
    ts = jnp.linspace(0.0, 12.0, 41)
    run = reduction.solve(0.15, ts)
    found = gdln.effective_initial(reduction, reduction.embed(0.15), curve=(ts, run.losses))
    np.testing.assert_allclose(found.amplitude, 0.15, rtol=1e-12)
    np.testing.assert_allclose(found.spread, 0, atol=1e-12)
    assert max(found.misalignment.values()) < 1e-12
    assert found.fit == pytest.approx(0.15, rel=1e-4)
    assert found.fit_rms is not None
    assert found.fit_rms < 1e-3
    assert "fit 0.15" in repr(found)


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        (([0.0, 1.0], [1.0, 0.5]), "length of at least 3"),
        (([0.0, 1.0, 1.0], [1.0, 0.5, 0.2]), "increasing"),
        (([0.0, 1.0, 2.0], [1.0, np.nan, 0.2]), "finite"),
    ],
)
def test_malformed_curves_are_refused(one_mode, curve, message):
    reduction, _, _ = one_mode
    with pytest.raises(ValueError, match=message):
        gdln.effective_initial(
            reduction, reduction.embed(0.1), curve=(np.array(curve[0]), np.array(curve[1]))
        )


@pytest.mark.parametrize("tau", [-1.0, 0.0, np.nan])
def test_a_time_constant_out_of_range_is_refused(one_mode, tau):
    reduction, _, _ = one_mode
    with pytest.raises(ValueError, match=r"tau is .*; it must be a finite number above 0"):
        gdln.effective_initial(reduction, reduction.embed(0.1), tau=tau)


def test_an_edge_of_weights_0_counts_in_the_mean_of_its_layer():
    """Only where a mode does not fit through an edge is there nothing to average."""
    task = gdln.tasks.routing(3, 3, width=8)
    reduction = gdln.reduce(task.graph, task.data)
    b0 = dict.fromkeys(reduction.frames, 0.3) | {"x0->h1": 0.0}
    found = gdln.effective_initial(reduction, reduction.embed(b0))
    # Layers of 3, 1 and 3 edges, of which one first edge is 0.
    np.testing.assert_allclose(found.amplitude, (0.2 + 0.3 + 0.3) / 3, rtol=1e-12)


def test_expected_initial_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="layer"):
        gdln.expected_initial(10, 0.1, layer="tanh")
    with pytest.raises(ValueError, match="std"):
        gdln.expected_initial(10, -0.1)
