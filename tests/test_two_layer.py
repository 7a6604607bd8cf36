"""``exact.two_layer_flow`` against the flow itself, the mode formulas, and its own assumptions.

System: two layers, any weights, whitened input (tests/README), the Riccati solution of Fukumizu
(1998) and Braun et al. (2022). The ODE is solved at 1e-13, the maps compared to 1e-9.
"""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gdln_jax import GatedNetwork, Graph, exact, init

TIMES = np.array([0.0, 0.5, 3.0, 10.0, 40.0])


@functools.partial(jax.jit, static_argnames=("widths", "lam", "scale", "dtype"))
def balanced(key, widths, lam, scale=1.0, dtype=jnp.float64):
    """W1 and W2 with W2^T W2 - W1 W1^T = lam I; all singular values of W2 W1 are `scale`."""
    start = init.balanced(lam, scale=np.sqrt(scale))
    weights = GatedNetwork.init(Graph.chain(widths), start, key=key).weights
    return weights["x->h1"].astype(dtype), weights["h1->y"].astype(dtype)


@jax.jit
def simulate(w1, w2, sigma, sigma_x):
    def velocity(_, w, args):
        gap = args[0] - args[1] * w[1] @ w[0]
        return w[1].T @ gap, gap @ w[0].T

    ys = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Dopri8(),
        0.0,
        TIMES[-1],
        None,
        (w1, w2),
        (sigma, sigma_x),
        saveat=diffrax.SaveAt(ts=jnp.asarray(TIMES)),
        stepsize_controller=diffrax.PIDController(rtol=1e-13, atol=1e-16),
        max_steps=100_000,
    ).ys
    assert ys is not None
    return ys[1] @ ys[0]


# One program for each shape: op by op it is dozens, as other tests here have it.
flow = jax.jit(exact.two_layer_flow)


def possible(widths, lam):
    return lam == 0 or (widths[2] if lam > 0 else widths[0]) >= widths[1]


QUICK = [((3, 2, 5), 0.4), ((3, 2, 5), -0.4), ((2, 5, 3), 0.0)]
CASES = [
    pytest.param(widths, lam, marks=() if (widths, lam) in QUICK else pytest.mark.slow)
    for widths in [(3, 2, 5), (2, 5, 3), (5, 3, 2), (3, 3, 3)]  # each layer is each size once
    for lam in (-0.4, 0.0, 0.4)
    if possible(widths, lam)
]


@pytest.mark.parametrize(("widths", "lam"), CASES)
def test_follows_the_flow_from_balanced_weights(widths, lam, key):
    """Unaligned frames, bottlenecks, and large t, where the bottleneck keeps the largest modes."""
    w1, w2 = balanced(key, widths, lam, scale=0.02)
    sigma = np.random.default_rng(1).normal(size=(widths[2], widths[0]))
    got = np.asarray(flow(1.7 * TIMES, w1, w2, sigma, 1.7, sigma_x=0.7))
    np.testing.assert_allclose(got, simulate(w1, w2, sigma, 0.7), rtol=0, atol=1e-9)
    np.testing.assert_allclose(got[0], np.asarray(w2) @ np.asarray(w1), rtol=0, atol=1e-14)


def test_limit_is_the_best_map_that_fits_the_bottleneck(key):
    # Sizes, times and so programs of the test above.
    for widths in ((3, 2, 5), (2, 5, 3)):
        sigma = np.random.default_rng(0).normal(size=(widths[2], widths[0]))
        u, s, vt = np.linalg.svd(sigma, full_matrices=False)
        w1, w2 = balanced(key, widths, 0.0, scale=1e-3)
        best = (u * np.where(np.arange(len(s)) < widths[1], s, 0)) @ vt
        got = flow(np.full(len(TIMES), np.inf), w1, w2, sigma, 1.0, sigma_x=1.0)
        np.testing.assert_allclose(got[0], best, rtol=0, atol=1e-12)


@pytest.mark.parametrize("a0", [1e-3, 1e-30])
def test_is_the_mode_formula_on_deep_plateaus_and_at_100_half_times(a0):
    """Modes 1e30 apart in time do not contaminate each other; the slow one has s ten times less."""
    s = np.array([0.7, 0.07])
    root = np.sqrt(a0) * np.eye(2)
    t = np.array([0, 0.5, 1, 2, 100]) * np.log(s[1] / a0) / (2 * s[1])
    got = np.asarray(exact.two_layer_flow(t, root, root, np.diag(s)))
    wanted = np.stack([exact.linear_mode(t, s[i], 1.0, a0) for i in range(2)])
    np.testing.assert_allclose(got[:, [0, 1], [0, 1]].T, wanted, rtol=1e-10)
    assert not np.any(got[:, [0, 1], [1, 0]])


def test_is_the_unbalanced_mode_formula():
    w1, w2, s = np.array([[0.3]]), np.array([[-0.8]]), np.array([[0.7]])
    t = np.linspace(0, 12, 7)
    got = exact.two_layer_flow(t, w1, w2, s, sigma_x=0.4)
    np.testing.assert_allclose(
        got[:, 0, 0], exact.unbalanced_mode(t, 0.7, 0.4, 0.3, -0.8), rtol=0, atol=1e-12
    )


def test_saddle_is_not_left_by_rounding():
    """W2 = -W1^T with positive targets decays to the saddle at 0 and stays there."""
    root, sigma = np.diag([0.3, 0.2]), np.diag([0.7, 0.3])
    got = np.asarray(exact.two_layer_flow(np.array([5.0, 1e3]), root, -root, sigma))
    wanted = exact.linear_mode(5.0, np.array([0.7, 0.3]), 1.0, np.array([-0.09, -0.04]))
    np.testing.assert_allclose(np.diag(got[0]), wanted, rtol=1e-12)
    assert np.abs(got[1]).max() < 1e-100


@pytest.mark.slow
def test_gradients_survive_repeated_singular_values(key):
    """Sigma = identity is the worst case for a derivative through an SVD."""
    w1, w2 = balanced(key, (3, 4, 3), 0.0, scale=0.1)
    direction = jax.random.normal(jax.random.fold_in(key, 2), (3, 3))

    def f(x):
        # Everything moves; scaling both layers keeps the balance.
        sigma, grow = jnp.eye(3) + x * direction, 1 + 0.3 * x
        times, variance = 2.0 + x, 0.8 + x
        out = exact.two_layer_flow(
            times, grow * w1, grow * w2, sigma, 1.3, sigma_x=variance, steps=16
        )
        return jnp.sum(out * direction)

    plain, h = jax.jit(f), 1e-5
    wanted = (plain(h) - plain(-h)) / (2 * h)
    second = (plain(1e-3) - 2 * plain(0.0) + plain(-1e-3)) / 1e-6
    assert abs(jax.jit(jax.grad(f))(0.0) - wanted) < 1e-7
    curved, forward = jax.jit(jax.jacfwd(lambda x: (jax.jacfwd(f)(x),) * 2, has_aux=True))(0.0)
    assert abs(forward - wanted) < 1e-7
    assert abs(curved / second - 1) < 1e-4


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.slow)])
def test_finite_with_finite_gradients_at_any_time(dtype, key):
    w1, w2 = balanced(key, (3, 2, 4), 0.1, scale=1e-3, dtype=dtype)
    sigma = np.random.default_rng(0).normal(size=(4, 3)).astype(dtype)
    f = jax.jit(jax.value_and_grad(lambda *x: jnp.sum(exact.two_layer_flow(*x) ** 2), (0, 1, 2, 3)))
    for t in (0.0, 1.0, 100.0, 1e6, np.inf):
        value, gradient = f(dtype(t), w1, w2, sigma)
        assert value.dtype == dtype
        assert all(np.all(np.isfinite(leaf)) for leaf in (value, *gradient))


def test_more_steps_change_nothing(key):
    w1, w2 = balanced(key, (3, 2, 4), -0.1, scale=1e-2)
    sigma = np.random.default_rng(0).normal(size=(4, 3))
    runs = [exact.two_layer_flow(9.0, w1, w2, sigma, steps=n) for n in (32, 512)]
    np.testing.assert_allclose(runs[1], runs[0], rtol=0, atol=1e-11)


def test_refusals(key):
    w1, w2 = map(np.array, balanced(key, (3, 2, 5), 0.4, scale=0.02))
    sigma, apart = np.ones((5, 3)), w1 + 0.1 * (np.indices(w1.shape).sum(0) == 0)
    with pytest.raises(ValueError, match="not balanced"):
        exact.two_layer_flow(1.0, apart, w2, sigma)
    with pytest.raises(ValueError, match=r"\(hidden, in\), \(out, hidden\), \(out, in\)"):
        exact.two_layer_flow(1.0, w2, w1, sigma)
    with pytest.raises(ValueError, match="multiple of the identity"):
        exact.two_layer_flow(1.0, w1, w2, sigma, sigma_x=np.diag([1.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="sigma_x"):
        exact.two_layer_flow(1.0, w1, w2, sigma, sigma_x=0.0)
    with pytest.raises(ValueError, match="steps"):
        exact.two_layer_flow(1.0, w1, w2, sigma, steps=0)
    assert np.all(np.isnan(flow(TIMES, apart, w2, sigma, 1.0, sigma_x=1.0)))


# Independent values: W2 = (W1 W1^T + I/2)^(1/2).
FIRST = np.array(
    [
        [-0.240579427576, -0.397307698688, -0.074508486629],
        [0.12613357142, 0.340813959747, 0.032911919797],
        [-0.165794196161, -0.235434106603, 0.22462373122],
    ]
)
TASK_A = np.array([[1.0, 0.2, 0.0], [0.0, 0.7, 0.1], [0.3, 0.0, 0.4]])
TASK_B = np.array([[0.1, -0.5, 0.2], [0.6, 0.3, 0.0], [0.0, 0.4, -0.8]])
AFTER_A = [0.9823953792467196, 0.1938395786971389, 0.005937895591742961]  # rows of W2 W1
AFTER_B = [0.1743445092134127, -0.4597863988168498, 0.19661306416608693]
AFTER_ABA = [0.1969733330329513, 0.13971939721754018, -0.033398833642012155]


def root(gram):
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.sqrt(values)) @ vectors.T


def test_a_sequence_of_tasks_is_chained_through_q():
    second = root(FIRST @ FIRST.T + np.eye(3) / 2)
    ends, switches = np.array([3.0, 5.0, 6.0]), [3.0, 5.0]
    got = exact.two_layer_sequence(ends, FIRST, second, [TASK_A, TASK_B, TASK_A], switches)
    np.testing.assert_allclose(got[0][0], AFTER_A, rtol=0, atol=1e-9)
    np.testing.assert_allclose(got[1][0], AFTER_B, rtol=0, atol=1e-9)
    np.testing.assert_allclose(got[2][2], AFTER_ABA, rtol=0, atol=1e-9)
    # W2 W1 alone does not say how learning goes on: from balanced factors of it B ends elsewhere.
    u, s, vt = np.linalg.svd(got[0])
    other = exact.two_layer_flow(2.0, (vt.T * np.sqrt(s)).T, u * np.sqrt(s), TASK_B)
    assert np.abs(other - got[1]).max() == pytest.approx(0.47, abs=0.01)


def test_tasks_may_differ_in_the_variance_of_their_inputs():
    # One mode with b2^2 - b1^2 = 0.3 and d = v: the formula of one task, from each end.
    tasks, ends = [(1.0, 1.0), (-0.4, 2.0), (0.7, 0.5)], np.array([2.0, 3.5, 5.5])
    w1, w2 = 0.1, np.sqrt(0.31)
    first, second, wanted = np.array([[w1]]), np.array([[w2]]), []
    for (s, v), duration in zip(tasks, np.diff(ends, prepend=0.0), strict=True):
        wanted.append(float(exact.unbalanced_mode(duration, s, v, w1, w2)))
        w2 = np.sqrt((0.3 + np.hypot(0.3, 2 * wanted[-1])) / 2)
        w1 = wanted[-1] / w2
    sigmas, variances = [np.full((1, 1), s) for s, _ in tasks], [v for _, v in tasks]
    got = exact.two_layer_sequence(
        3 * ends, first, second, sigmas, 3 * ends[:2], 3.0, sigma_x=variances
    )
    np.testing.assert_allclose(np.ravel(got), wanted, rtol=0, atol=1e-9)


def test_a_sequence_is_differentiable_in_its_switches():
    # Independent values: A, B, A on [0, 5], [5, 9], [9, 14].
    weights = 0.1 * np.eye(2)
    sigmas = np.stack([np.diag(s) for s in ([1, 0.6], [0.2, 1.1], [1, 0.6])])

    def modes(times, end):
        return jnp.diag(exact.two_layer_sequence(end, weights, weights, sigmas, times))

    at = jnp.array([5.0, 9.0]), 14.0
    a, slope = jax.jvp(modes, at, (jnp.array([1.0, 0.0]), 0.0))
    np.testing.assert_allclose(a, [0.9998550444492188, 0.600676650871011], rtol=0, atol=1e-9)
    np.testing.assert_allclose(slope, [1.4727386351382e-05, -2.57543085979713e-07], rtol=1e-6)
    # All switches later by as much is A alone for longer: the term of B's velocity is missing.
    _, without = jax.jvp(modes, at, (jnp.ones(2), 1.0))
    assert np.all(np.abs(without / slope - 1) > 0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": [2.0, 1.0]}, "must increase from above 0"),
        ({"times": [2.0]}, r"\(3, 1, 1\) and times \(1,\)"),
        ({"sigma_x": [1.0, 2.0]}, r"sigma_x has shape \(2,\)"),
        ({"sigma_x": 0.0}, "above 0"),
        ({"w2": np.ones((2, 1))}, "hidden, in"),
    ],
)
def test_what_is_no_sequence_is_refused(change, message):
    given = {"ts": 1.0, "w1": np.eye(1), "w2": np.eye(1), "sigmas": np.ones((3, 1, 1))}
    with pytest.raises(ValueError, match=message):
        exact.two_layer_sequence(**{**given, "times": [1.0, 2.0], **change})
