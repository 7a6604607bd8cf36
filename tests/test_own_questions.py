"""Questions to a training of which only the weights are known: its clock, its gates, its drops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gdln_jax as gdln
from gdln_jax import relu

# What `choose_k` compares with one run; its result has the gaps only.
from gdln_jax.relu._gates_choice import gated_outputs, smallest_good, stacked

X = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
XNOR = gdln.GatedData({"x": X}, {"y": np.array([1.0, -1, -1, 1])[:, None]})
NET = relu.ReLUNetwork.init([2, 24, 1], std=0.1, bias=True, key=jax.random.key(0))


def trained(optimizer, steps=400, every=20):
    run = gdln.train(
        NET, XNOR, optimizer=optimizer, steps=steps, save_every=every, keep_models=True
    )
    return relu.history(run)


@pytest.fixture(scope="module")
def descent():
    return trained(optax.sgd(0.05))


def test_the_clock_of_descent_is_read_off_the_weights(descent):
    """The rate of gradient descent to 1e-3, although units slide along kinks between checkpoints;
    with momentum rate/(1 - momentum), to the few steps that it takes to come up to it.
    """
    clock = relu.fit_clock(descent, XNOR)
    assert clock.rate == pytest.approx(0.05, rel=1e-3)
    assert clock.cosine > 0.999
    assert clock.conserved < 0.01
    assert not clock.reason
    momentum = relu.fit_clock(trained(optax.sgd(0.005, momentum=0.9)), XNOR)
    assert momentum.rate == pytest.approx(0.05, rel=0.03)
    assert not momentum.reason


def test_what_is_no_descent_is_called_so(descent):
    adam = relu.fit_clock(trained(optax.adam(0.003)), XNOR)
    assert adam.conserved > 0.05
    assert "what gradient flow conserves drifted" in adam.reason
    drop = optax.piecewise_constant_schedule(0.05, {60: 0.3})
    slower = relu.fit_clock(trained(optax.sgd(drop)), XNOR)
    assert "the learning rate changed on the way" in slower.reason
    other = gdln.GatedData({"x": X}, {"y": np.array([1.0, 1, -1, -1])[:, None]})
    assert relu.fit_clock(descent, other).reason
    with pytest.raises(ValueError, match="there is one checkpoint"):
        relu.fit_clock(relu.history(NET), XNOR)


def test_scores_beside_shuffled_gates():
    """Two kinds over 20 examples: shuffled, what they share is lost. Random gates share nothing."""
    rng = np.random.default_rng(0)
    kinds = np.arange(20)[None] < np.array([[10], [14]])
    on = np.repeat(kinds, 15, axis=0)
    on = np.stack([on, on])
    shots = relu.Snapshots(on, rng.random((2, 30)), np.zeros((2, 20, 1)))
    null = relu.null_gates(shots, k=2, shuffles=5)
    assert null.explained == pytest.approx(1)
    assert null.above
    assert null.null_explained.max() < 0.8
    assert null.null_agreement.max() < 0.95
    assert "above all 5 shuffles" in repr(null)
    chance = relu.Snapshots(rng.random((30, 20)) < 0.5, shots.power[0], np.zeros((20, 1)))
    assert not relu.null_gates(chance, k=2, shuffles=5).above


def test_gated_networks_beside_one_run_at_unequal_steps(descent):
    """Their outputs are those beside the same run at equal steps, at the times that both have."""
    run = descent.run(XNOR)
    whole = stacked(run)
    found = (relu.discover_gates(relu.snapshot(run.final, XNOR, threshold=0.1), k=2),)
    few = np.array([0, 1, 3, 20])
    part = relu.History(descent.steps[few], jax.tree.map(lambda a: a[few], descent.network))
    arguments = XNOR, found, 0.05, 0.1, jax.random.split(jax.random.key(1), 2), 8
    every = gated_outputs(whole, *arguments)
    assert every.shape == (1, 2, 21, 4, 1)
    some = gated_outputs(stacked(part.run(XNOR)), *arguments)
    np.testing.assert_allclose(some, every[:, :, few], rtol=1e-12)
    late = relu.History(np.array([0, 7, 20_011]), jax.tree.map(lambda a: a[:3], part.network))
    with pytest.raises(ValueError, match="grid of 1 only, more than 10000 points"):
        gated_outputs(stacked(late.run(XNOR)), *arguments)


def test_the_smallest_number_that_is_good():
    rule = smallest_good
    gap = np.array([[0.2, 0.2], [0.0021, 0.0019], [0.001, 0.001], [0.0011, 0.0009]])
    assert rule([1, 2, 3, 4], gap, 0.05)[0] == 2  # .001 is .5 % of the range
    assert rule([1, 2, 3, 4], gap + np.array([[0], [0.02], [0], [0]]), 0.05)[0] == 3
    assert rule([1, 2, 3, 4], gap + 0.06, 0.05)[0] is None
    noisy = np.array([[0.1, 0.1], [0.002, 0.02], [0.003, 0.007]])
    assert rule([1, 2, 3], noisy, 0.05)[0] == 2  # within one standard error
    with pytest.raises(ValueError, match="diverged"):
        rule([1], np.array([[np.nan]]), 0.05)


@pytest.fixture(scope="module")
def prediction():
    """XoR of weights 0.4, 0.2, 0.2, 0.2: drops at T = 1.7678 and 3.5355."""
    x, y = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]]), np.array([-1.0, 1, 1, -1])[:, None]
    weighted = gdln.GatedData({"x": x}, {"y": y}, weights=[0.4, 0.2, 0.2, 0.2])
    return relu.predict_gates(weighted, std=1e-6, units=24, stages=2)


def loss_curve(prediction, steps, drops, width=3):
    """A run of which only the losses matter: they fall at these steps."""
    levels = np.append(1.0, prediction.plateaus)
    losses = np.full(len(steps), levels[0])
    for k, at in enumerate(drops):
        losses -= (levels[k] - levels[k + 1]) / (1 + np.exp(-(steps - at) / width))
    losses = jnp.asarray(losses * prediction.initial_loss)
    final = relu.ReLUNetwork.init([2, 4, 1], std=0.1, key=jax.random.key(0))
    return gdln.Trajectory(jnp.asarray(steps), losses, jnp.asarray(0), {}, None, final, None)


def test_the_product_of_clock_and_scale_needs_a_second_drop(prediction):
    steps = np.arange(0, 1000, 5)
    found = relu.match_drops(prediction, loss_curve(prediction, steps, [200, 404]))
    assert found.steps_per_t == pytest.approx(200 / prediction.times[0], rel=1e-3)
    assert found.second == pytest.approx(404 / 400, abs=2e-3)
    assert not found.reason
    late = relu.match_drops(prediction, loss_curve(prediction, steps, [200, 460]))
    assert late.steps_per_t is None
    assert "the second drop comes at 1.15 times" in late.reason
    one = relu.match_drops(prediction, loss_curve(prediction, steps[:60], [200, 404]))
    assert "the second predicted drop is not seen" in one.reason
    rivals = eqx.tree_at(lambda p: p.separated, prediction, np.array([True, False]))
    again = relu.match_drops(rivals, loss_curve(prediction, steps, [200, 404]))
    assert "rival gates" in again.reason
