"""Linear algebra: norms and quotients at 0, orthogonal draws, balanced pairs of layers.

- Wherever nothing has moved yet, a unit is silent or modes are aligned, plain norms and quotients
  give NaN. Each case states the value that its docstring promises.
- Random orthogonal matrices: JAX's own draws, in a batch of any size, on a machine of any size.
- `balanced_pair`: W2^T W2 - W1 W1^T = lambda I for every order of the widths that allows it.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gdln_jax as gdln
from gdln_jax import exact, measures, race, relu

# Defined values where the functions that use them would hide which one gave NaN.
from gdln_jax._linalg import balanced_pair, norm, quotient, random_orthogonal

# ---------------------------------------------------------------- norms and quotients
EYE = jnp.eye(2)
CHAIN = gdln.Graph.chain([2, 2, 2])
ONES = gdln.GatedNetwork(CHAIN, {"x->h1": EYE, "h1->y": 2 * EYE})
ZEROS = jax.tree.map(jnp.zeros_like, ONES)
DATA = gdln.GatedData({"x": EYE}, {"y": 3 * EYE})
HALF = jnp.diag(jnp.array([1.0, 0.0]))
XOR = gdln.tasks.xor(gating="none", width=4)


def at_rest(model):
    return relu.unit_power(model, XOR.data)


def alignments(net):
    return jnp.stack(measures.singular_vector_alignment(net.weights["x->h1"], EYE, EYE))


def shared(net):
    w = net.weights["x->h1"]
    return jnp.stack(measures.shared_strengths(w[None], w, w[None], EYE, EYE))


def similarity(net):
    return measures.representational_similarity(net, DATA, "h1", cosine=True)


def zero_line(D):
    points, meets = race.nullclines(race.Pathways(jnp.array([1.0, 0.0]), D), 2.0, 3)
    return jnp.where(meets[:, None, None], points, 0.0)[1]


# name: (function, point, value that its docstring states)
CASES = {
    "frame_distance": (lambda w: measures.frame_distance(w, EYE, EYE), HALF, 0),
    "weight_movement": (lambda net: measures.weight_movement(ONES, net), ONES, 0),
    "from zeros": (lambda net: measures.weight_movement(ZEROS, net), ONES, np.sqrt(10)),
    "to zeros": (lambda net: measures.weight_movement(net, net), ZEROS, 0),
    "kernel_movement": (lambda k: measures.kernel_movement(EYE, k)[0], EYE, 0),
    "kernel from 0": (lambda k: measures.kernel_movement(0 * EYE, k)[0], 2 * EYE, np.sqrt(8)),
    "kernel_alignment": (lambda k: measures.kernel_alignment(k, EYE), 0 * EYE, 0),
    "kernel_distance": (lambda k: measures.kernel_distance(k, k), 0 * EYE, 1),
    "relative_error": (lambda y: measures.relative_error(0 * EYE, y), 0 * EYE, 0),
    "error of a target 0": (lambda y: measures.relative_error(0 * EYE, y), EYE, 2),
    "route_errors": (lambda net: measures.route_errors(net, EYE, 0 * EYE), ONES, 8),
    "all routes trained": (
        lambda net: measures.zero_shot_error(net, EYE, EYE, np.ones((1, 1)))[0],
        ONES,
        1,
    ),
    "a group without targets": (
        lambda net: measures.error_by_group(
            net, gdln.GatedData({"x": EYE}, {"y": 3 * HALF}), np.arange(2), 2
        ),
        ONES,
        [1 / 9, 4],
    ),
    "balancedness": (lambda net: measures.balancedness(net)["h1"], ZEROS, 0),
    "balanced": (
        lambda w: measures.balancedness(ONES.with_weights({"x->h1": w, "h1->y": w}))["h1"],
        EYE,
        0,
    ),
    "representational_similarity": (similarity, ZEROS, np.zeros((2, 2))),
    "domain_alignment": (
        lambda x: measures.domain_alignment(x @ x.T, 2),
        jnp.array([[1.0, 0], [0, 0], [1, 0], [0, 1]]),
        0.5,
    ),
    "singular_vector_alignment": (alignments, ZEROS, np.zeros((2, 2))),
    "shared_strengths": (shared, ZEROS, np.zeros((3, 2))),
    "unit_power": (
        at_rest,
        jax.tree.map(jnp.zeros_like, relu.ReLUNetwork.init(XOR.graph, key=jax.random.key(0))),
        np.zeros(4),
    ),
    "contributions": (lambda S: race.Pathways(S, EYE).contributions(EYE[0]), 0 * EYE[0], [0, 0]),
    "nullclines": (zero_line, HALF, np.zeros((3, 2))),
    "linear_mode at inf": (
        lambda d: exact.linear_mode(jnp.array([1.0, jnp.inf]), 1.0, d, 0.1)[0],
        jnp.zeros(()),
        0.1 * np.exp(2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_defined_at_0(name):
    function, point, value = CASES[name]
    found, slopes = jax.jit(lambda x: (function(x), jax.jacrev(function)(x)))(point)
    np.testing.assert_allclose(jnp.stack(jax.tree.leaves(found)).squeeze(), value, atol=1e-9)
    assert all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes))


def test_norm_and_quotient_by_hand():
    a = jnp.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(norm(a, axis=1), [5, 0])
    np.testing.assert_allclose(jax.grad(lambda a: norm(a, axis=1).sum())(a), [[0.6, 0.8], [0, 0]])
    for scale in (1e-200, 1e200):  # whose squares are 0 or infinite
        assert norm(scale * a) == pytest.approx(5 * scale)
    np.testing.assert_allclose(norm(a, axis=(0, 1), keepdims=True), [[5]])
    b = jnp.array([2.0, 0.0])
    np.testing.assert_allclose(quotient(a[0], b, 7.0), [1.5, 7])
    slopes = jax.grad(lambda a, b: quotient(a, b, 7.0).sum(), (0, 1))(a[0], b)
    np.testing.assert_allclose(slopes, [[0.5, 0], [-0.75, 0]])


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
def test_singular_values_have_first_derivatives(shape, key):
    """d sum(sigma) = <U V^T, dW>, one matrix or many, in reverse and in forward mode."""
    w, dw = jax.random.normal(key, (2, 5, *shape))
    u, _, vt = np.linalg.svd(w, full_matrices=False)

    def total(w):
        return measures.singular_values(w).sum()

    for backward in (jax.grad(total), jax.jit(jax.vmap(jax.grad(total)))):
        np.testing.assert_allclose(backward(w), u @ vt, atol=1e-12)
    moved = jnp.einsum("nti,nts,nis->ni", u, dw, vt)
    forward = jax.jit(jax.vmap(lambda w, dw: jax.jvp(measures.singular_values, (w,), (dw,))[1]))
    np.testing.assert_allclose(forward(w, dw), moved, atol=1e-12)


def test_singular_values_that_are_equal_or_0_have_finite_derivatives():
    for w in (jnp.eye(3, 2), jnp.zeros((3, 2))):
        slope = jax.jacrev(measures.singular_values)(w)
        np.testing.assert_allclose(jnp.linalg.norm(slope, axis=(1, 2)), 1)
    with pytest.raises(ValueError, match="first derivatives only"):
        jax.hessian(lambda w: measures.singular_values(w).sum())(jnp.eye(2))


# ---------------------------------------------------------------- orthogonal draws
@pytest.mark.parametrize("shape", [(5, 5), (6, 2), (1, 1)])
def test_the_draws_of_jax_and_orthonormal(key, shape):
    found = random_orthogonal(key, *shape)
    np.testing.assert_array_equal(found, jax.random.orthogonal(key, shape[0], m=shape[1]))
    np.testing.assert_allclose(found.T @ found, np.eye(shape[1]), atol=1e-14)


def test_one_draw_per_key_in_a_batch(key):
    keys = jax.random.split(key, 3)
    together = jax.vmap(lambda k: random_orthogonal(k, 4))(keys)
    np.testing.assert_array_equal(together, jnp.stack([random_orthogonal(k, 4) for k in keys]))


@pytest.mark.slow
def test_a_large_batch_of_networks_does_not_stand_still(plain_python):
    """With jaxlib's own batches 256 networks of three layers never end on two cores."""
    snippet = """
import jax
import gdln_jax as gdln
graph = gdln.Graph.chain([64, 64, 63, 62])
start = lambda key: gdln.GatedNetwork.init(graph, gdln.init.orthogonal(), key=key)
nets = jax.jit(jax.vmap(start))(jax.random.split(jax.random.key(0), 256))
print(len(jax.block_until_ready(nets.weights["h2->y"])))
"""
    done = plain_python(snippet)
    assert done.stdout.split() == ["256"], done.stderr


# ---------------------------------------------------------------- balanced pairs
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
def test_refusals_of_balanced_pairs(arguments, words, key):
    with pytest.raises(ValueError, match=words):
        balanced_pair(key, **arguments)
