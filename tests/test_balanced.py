"""``balanced_pair``: W2^T W2 - W1 W1^T = lambda I for every order of the widths that allows it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gdln_jax._linalg import balanced_pair

ORDERS = [*itertools.permutations((2, 3, 5)), (3, 3, 3), (2, 2, 5), (5, 2, 2), (2, 5, 2), (1, 1, 1)]


@pytest.mark.parametrize("widths", ORDERS)
@pytest.mark.parametrize("lam", [-1.3, -1e-12, 0.0, 1e-12, 1.3])
def test_balance_and_product_or_a_reason_why_not(widths, lam, key):
    d_in, hidden, out = widths
    if (lam > 0 and out < hidden) or (lam < 0 and d_in < hidden):
        side = "d_out" if lam > 0 else "d_in"
        with pytest.raises(ValueError, match=f"needs {side} >= d_hidden.*rank d_hidden = {hidden}"):
            balanced_pair(key, widths, lam, scale=0.2)
        return
    w1, w2 = balanced_pair(key, widths, lam, scale=0.2)
    assert w1.shape == (hidden, d_in)
    assert w2.shape == (out, hidden)
    np.testing.assert_allclose(w2.T @ w2 - w1 @ w1.T, lam * np.eye(hidden), rtol=0, atol=1e-14)
    strengths = np.linalg.svd(w2 @ w1, compute_uv=False)
    modes = min(widths)
    np.testing.assert_allclose(strengths[:modes], 0.2, rtol=1e-13)
    np.testing.assert_allclose(strengths[modes:], 0, atol=1e-14)


@pytest.mark.parametrize("widths", [(3, 2, 4), (3, 3, 3), (4, 2, 2)])
def test_continuous_through_lambda_0(widths, key):
    middle = balanced_pair(key, widths, 0.0, scale=0.1)
    for lam in (-1e-9, 1e-9):
        for w, w0 in zip(balanced_pair(key, widths, lam, scale=0.1), middle, strict=True):
            np.testing.assert_allclose(w, w0, rtol=0, atol=1e-8)
    # Where one sign only is possible, it is continuous from that side (as sqrt(lam)).
    one_sided = balanced_pair(key, (2, 3, 4), 1e-12, scale=0.1)
    for w, w0 in zip(one_sided, balanced_pair(key, (2, 3, 4), 0.0, scale=0.1), strict=True):
        np.testing.assert_allclose(w, w0, rtol=0, atol=2e-6)


@pytest.mark.parametrize("lam", [-0.5, 0.0, 0.5])
def test_starts_from_a_given_product(lam, key):
    product = jax.random.normal(key, (4, 3))
    w1, w2 = balanced_pair(key, (3, 3, 4), lam, product=product)
    np.testing.assert_allclose(w2 @ w1, product, rtol=0, atol=1e-14)
    np.testing.assert_allclose(w2.T @ w2 - w1 @ w1.T, lam * np.eye(3), rtol=0, atol=1e-13)
    zero = balanced_pair(key, (3, 3, 4), lam, product=jnp.zeros((4, 3)))
    np.testing.assert_allclose(zero[1] @ zero[0], 0, atol=1e-15)


def test_keys_decide_and_dtype_is_kept(key):
    first, again = (balanced_pair(key, (3, 2, 4), 0.1, dtype=jnp.float32) for _ in range(2))
    other = balanced_pair(jax.random.fold_in(key, 1), (3, 2, 4), 0.1)
    assert all(w.dtype == jnp.float32 for w in first)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.allclose(first[0], other[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"widths": (3, 2)}, "d_in, d_hidden, d_out"),
        ({"widths": (3, 0, 2)}, "d_hidden"),
        ({"widths": (3, 2, 4), "lam": float("nan")}, "lam"),
        ({"widths": (3, 2, 4), "scale": -1.0}, "scale"),
        ({"widths": (3, 2, 4), "product": np.ones((3, 4))}, "product has shape"),
        ({"widths": (3, 2, 4), "product": np.eye(4)[:, :3]}, "rank above d_hidden = 2"),
        ({"widths": (3, 2, 4), "product": np.ones((4, 3)), "scale": 1.0}, "one of them"),
    ],
)
def test_refusals(arguments, words, key):
    with pytest.raises(ValueError, match=words):
        balanced_pair(key, **arguments)
