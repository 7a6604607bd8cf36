"""`init.balanced(lam)`: W2^T W2 - W1 W1^T = lam I, and the exact flow that follows from it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gdln_jax as gdln

ORDERS = list(itertools.permutations((2, 3, 4)))


def drawn(widths, lam, scale=0.3):
    graph = gdln.Graph.chain(widths)
    init = gdln.init.balanced(lam, scale=scale)
    return gdln.GatedNetwork.init(graph, init, key=jax.random.key(1))


@pytest.mark.parametrize("widths", ORDERS)
@pytest.mark.parametrize("lam", [-0.7, 0.0, 0.7])
def test_lambda_holds_for_all_orders_of_the_widths_or_says_why_not(widths, lam):
    d_in, hidden, out = widths
    if (lam > 0 and out < hidden) or (lam < 0 and d_in < hidden):
        with pytest.raises(ValueError, match="rank"):
            drawn(widths, lam)
        return
    net = drawn(widths, lam)
    w1, w2 = net.weights["x->h1"], net.weights["h1->y"]
    np.testing.assert_allclose(w2.T @ w2 - w1 @ w1.T, lam * np.eye(hidden), atol=1e-14)
    values = np.linalg.svd(np.asarray(w2 @ w1), compute_uv=False)
    np.testing.assert_allclose(values[: min(widths)], 0.09, rtol=1e-12)


def test_continuous_through_zero():
    """At a fixed key the weights change by O(lam), so no branch is switched at 0."""
    at_zero = drawn((4, 3, 4), 0.0)
    for lam in (1e-9, -1e-9):
        for w, w0 in zip(drawn((4, 3, 4), lam).stacks, at_zero.stacks, strict=True):
            assert float(jnp.abs(w - w0).max()) < 1e-8


@pytest.mark.parametrize("lam", [-0.7, 0.0, 0.7])
def test_exact_solution_follows_gradient_flow(lam):
    """Fukumizu (1998), Braun et al. (2022): W2 W1 (t) for whitened input, Sigma^x = I / n."""
    y = np.random.default_rng(0).normal(size=(4, 4))
    data = gdln.GatedData({"x": 2 * np.eye(4)}, {"y": y})
    net = drawn((4, 3, 4), lam)
    ts = jnp.linspace(0.0, 4.0, 5)
    flow = gdln.gradient_flow(net, data, ts, rtol=1e-11)
    product = flow.models.weights["h1->y"] @ flow.models.weights["x->h1"]
    sigma_yx = y.T @ (2 * np.eye(4)) / 4
    exact = gdln.exact.two_layer_flow(
        ts, net.weights["x->h1"], net.weights["h1->y"], jnp.asarray(sigma_yx)
    )
    np.testing.assert_allclose(exact, product, atol=1e-9)


def test_deeper_graphs_refuse_lambda():
    with pytest.raises(ValueError, match="one hidden layer"):
        drawn((3, 3, 3, 3), 0.5)
