"""`gdln.noise`: the formula against independent values, against draws, and at its limits.

Known answers: reference_beyond.json; the direct form of the formula (spikes outside the bulk,
signed densities) by adaptive quadrature; identities of second moments; singular values of drawn
matrices. A draw is of Sigma^yx = W + E, E iid N(0, sigma^2/P), which is exact for whitened inputs;
noise does not know the teacher's directions, so that these may be the first axes. Nine times and
few sizes throughout: each new shape is a new program.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.integrate import quad
from scipy.sparse.linalg import svds
from threadpoolctl import threadpool_limits

import gdln_jax as gdln
from gdln_jax import exact, noise

TIMES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 20.0])

# sbar; N3/N1, P/N1, sigma, a0. The second has a mode below its threshold (.795).
SETUPS = {
    "quiet": ([3.0, 2.0, 1.0], 0.5, 2, 0.3, 0.01),
    "hidden mode": ([3.0, 1.2, 0.5], 0.4, 1, 1.0, 0.01),
    "more outputs": ([4.0, 2.0], 2, 3, 1.0, 0.001),
    "square": ([4.0, 2.0, 1.0], 1, 1.5, 0.8, 0.01),
    "nearly square": ([4.0, 1.5], 1.01, 1.5, 0.8, 0.01),
}


def arguments(name, n1):
    sbar, ratio, per_input, sigma, a0 = SETUPS[name]
    return np.array(sbar), n1, round(ratio * n1), round(per_input * n1), sigma, a0


def amplitude(s, t, a0):
    """a(s, t) of theory#noise, in NumPy; s > 0."""
    z = -2 * s * t
    return a0 / (np.exp(z) - a0 * np.expm1(z) / s)


def drawn(count, seed, sbar, n1, n3, examples, sigma, a0, ts=TIMES):
    """Train and test errors (2, draw, time) of `count` draws."""
    rng, k = np.random.default_rng(seed), len(sbar)
    errors = []
    with threadpool_limits(1):
        for size in np.diff([*range(0, count, 100), count]):
            matrix = rng.normal(size=(size, n3, n1)) * sigma / np.sqrt(examples)
            matrix[:, range(k), range(k)] += sbar
            u, s, vt = np.linalg.svd(matrix, full_matrices=False)
            cross = np.einsum("nqi,q,niq->ni", u[:, :k], sbar, vt[:, :, :k])
            a = amplitude(s[:, None], ts[:, None], a0)
            train = ((s[:, None] - a) ** 2).sum(2) / 2
            test = (a**2).sum(2) / 2 - (a @ cross[..., None])[..., 0] + (sbar**2).sum() / 2
            errors.append([train + sigma**2 * n3 * (examples - n1) / (2 * examples), test])
    return np.concatenate(errors, axis=1)


def departure(found, curves):
    """|mean - formula| and the standard error, (train or test, time)."""
    formula = np.array([curves.train, curves.test])
    return abs(found.mean(1) - formula), found.std(1, ddof=1) / np.sqrt(found.shape[1])


# ---------------------------------------------------------------- the formula, independently
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_reference(reference_beyond, number):
    case = reference_beyond["noise"]["cases"][number]
    got = noise.learning_curves(*setting_of(case), [*case["ts"], 0, 0])
    np.testing.assert_allclose(got.train[:-2], case["train"], rtol=1e-8)
    np.testing.assert_allclose(got.test[:-2], case["test"], rtol=1e-8)
    above = np.array(case["above_threshold"])
    assert np.array_equal(got.above, above)
    spikes = np.array(case["spikes"], float)
    np.testing.assert_allclose(got.spikes[above], spikes[above], rtol=1e-8)
    np.testing.assert_allclose(got.left, case["overlap_left_squared"], rtol=1e-8)
    np.testing.assert_allclose(got.right, case["overlap_right_squared"], rtol=1e-8)
    np.testing.assert_allclose(got.edges, case["bulk_edges"], rtol=1e-8)
    np.testing.assert_allclose(got.chi_mass, case["chi_mass"], atol=1e-6)
    assert float(got.threshold) == pytest.approx(case["threshold"], rel=1e-8)
    assert float(got.end) == pytest.approx(case["end_test"], rel=1e-8)


def setting_of(case):
    s = case["setup"]
    assert s["tau"] == 1
    return s["sbar"], s["N1"], s["N3"], s["P"], s["sigma"], s["a0"]


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_the_best_time_of_the_reference(reference_beyond, number):
    case = reference_beyond["noise"]["cases"][number]
    time, test = noise.best_time(*setting_of(case))
    assert float(time) == pytest.approx(case["best_time_6_digits"], rel=5e-6)  # its digits
    assert float(test) == pytest.approx(case["best_test"], rel=1e-8)


def direct(sbar, n1, n3, examples, sigma, a0, t):
    """Train and test error by the direct form: spikes outside, signed densities inside the bulk."""
    a, v = n3 / n1, sigma**2 * n1 / examples
    c = np.sqrt(a) * v

    def s_of(theta):
        return np.sqrt(v * (1 - np.sqrt(a)) ** 2 + 4 * c * np.cos(theta / 2) ** 2)

    def integral(g):
        options = {"epsabs": 1e-13, "epsrel": 1e-12, "limit": 500}
        halves = ((0, np.pi / 2), (np.pi / 2, np.pi))
        return sum(quad(g, *half, **options)[0] for half in halves)

    def density(theta):
        m = 2 * n3 * v / np.pi * np.sin(theta) ** 2 / s_of(theta) ** 2
        chi = [
            (rho * np.cos(theta) - rho**2) / (1 - 2 * rho * np.cos(theta) + rho**2) / np.pi
            for rho in sbar**2 / c
        ]
        return m + sum(chi) - 1 / (2 * np.pi)

    def kappa(theta):
        return sum(
            2 * c / np.pi * rho * np.sin(theta) ** 2 / (1 - 2 * rho * np.cos(theta) + rho**2)
            for rho in sbar**2 / c
        )

    out = sbar[sbar**2 > c]
    spikes = np.sqrt((out**2 + v) * (out**2 + a * v)) / out

    def total(f):
        edges = (f(s_of(0.0)) + f(max(s_of(np.pi), 1e-300))) / 4
        return integral(lambda theta: density(theta) * f(s_of(theta))) + f(spikes).sum() + edges

    def learned(s):
        return amplitude(s, t, a0)

    cross = integral(lambda theta: kappa(theta) * learned(s_of(theta)) / s_of(theta))
    cross += ((1 - c**2 / out**4) * out**2 * learned(spikes) / spikes).sum()
    train = total(lambda s: (s - learned(s)) ** 2) / 2
    test = total(lambda s: learned(s) ** 2) / 2 - cross + (sbar**2).sum() / 2
    return train + sigma**2 * n3 * (examples - n1) / (2 * examples), test


@pytest.mark.parametrize("name", ["hidden mode", "square", "nearly square"])
def test_the_direct_form_by_adaptive_quadrature(name):
    # The contract allows 1e-5 for N3 = N1; with nodes good to rounding 1e-8 holds there too.
    got = noise.learning_curves(*arguments(name, 100), TIMES)
    for i in (1, 5):
        train, test = direct(*arguments(name, 100), TIMES[i])
        assert float(got.train[i]) == pytest.approx(train, rel=1e-8)
        assert float(got.test[i]) == pytest.approx(test, rel=1e-8)


def test_one_mode_is_the_closed_form_of_exact():
    s = jnp.array([0.0, 1e-9, 0.3, 0.4999, 0.5001, 2.0, 50.0])[:, None]
    t = jnp.array([0.0, 0.1, 0.5, 1.0, 7.0, 1e4, np.inf])
    a0, tau = jnp.array([1e-30, 0.3, 1e3])[:, None, None], jnp.asarray(1.3)

    @jax.jit
    def both(s):
        one = (jnp.ones_like(s),)
        got = jax.jvp(lambda s: noise._amplitude(s, t, a0, tau), (s,), one)
        return got, jax.jvp(lambda s: exact.linear_mode(t, s, 1.0, a0, tau), (s,), one)

    ((got, missing), (slope, _)), (wanted, wanted_slope) = both(s)
    np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-100)
    np.testing.assert_allclose(s - missing, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, wanted_slope, rtol=1e-11, atol=1e-100)


def test_masses_and_second_moments():
    # Exactly: min(N1, N3) singular values, sum s^2 = sum sbar^2 + sigma^2 N1 N3/P, and
    # sum s_i u_i^T W v_i = <Sigma, W> = sum sbar^2; int chi is -1 or 0, int kappa c/rho above.
    sigma, spectrum = 0.8, noise._spectrum
    for ratio, rho in ((0.5, 0.38), (1, 0.38), (1, 0.998), (2, 1.002), (0.3, 1.5), (1, 22.0)):
        sizes = noise._Sizes(100, round(100 * ratio), 150)
        v = sigma**2 * 100 / 150
        c = np.sqrt(sizes.ratio) * v
        square = np.array([rho * c, 9.0])
        found = spectrum(jnp.asarray(np.sqrt(square)), jnp.asarray(sigma), sizes, 400)
        got, facts = jax.tree.map(np.asarray, found)
        np.testing.assert_allclose(facts["chi_mass"], [-1.0 if rho > 1 else 0.0, -1.0], atol=1e-6)
        assert float(got.number.sum()) == pytest.approx(sizes.rank, abs=1e-6)
        everything = float(got.points**2 @ got.number)
        assert everything == pytest.approx(square.sum() + v * sizes.outputs, abs=1e-6)
        overlap = got.points * got.overlap
        assert float(overlap.sum()) == pytest.approx(square.sum(), abs=1e-6)
        inside = np.where(square > c, c**2 / square, square)
        assert float(overlap[:400].sum()) == pytest.approx(inside.sum(), abs=1e-6)


def test_at_the_threshold_the_errors_do_not_mind():
    n = (100, 50, 200, 1.0, 0.1, TIMES)
    theta = float(noise.learning_curves([3.0, 1.0, 0.0], *n).threshold)
    at, near = (noise.learning_curves([3.0, theta * (1 + x), 0.0], *n) for x in (0, 1e-7))
    assert float(at.chi_mass[1]) == pytest.approx(-0.5, abs=1e-6)
    np.testing.assert_allclose(at.test, near.test, rtol=1e-6)
    np.testing.assert_allclose(at.train, near.train, rtol=1e-6)


def test_without_noise_and_with_hardly_any():
    sizes, a0, ts = (50, 25, 100), 0.1, np.linspace(0, 5, 9)
    none, little = (noise.learning_curves([3.0, 1.0, 0.0], *sizes, x, a0, ts) for x in (0.0, 1e-6))
    np.testing.assert_allclose(none.test, little.test, atol=1e-5)
    np.testing.assert_allclose(none.train, little.train, atol=1e-5)
    # 23 modes at s = 0, each with a(0, t)^2/2 in both errors.
    idle = 23 * (a0 / (1 + 2 * a0 * ts)) ** 2 / 2
    wanted = idle + sum((x - amplitude(x, ts, a0)) ** 2 for x in (3.0, 1.0)) / 2
    np.testing.assert_allclose(none.test, wanted, rtol=1e-12)
    np.testing.assert_allclose(none.train, wanted, rtol=1e-12)
    assert wanted[0] == pytest.approx(4.725)
    assert np.allclose(none.spikes[:2], [3, 1])
    assert np.array_equal(none.above, [True, True, False])
    assert np.allclose([none.left, none.right], [1, 1, 0])


def test_modes_of_strength_0_are_left_out():
    sizes, a0, ts = (50, 25, 100), 0.1, np.linspace(0, 5, 9)
    for sigma in (0.0, 0.7):
        without = noise.learning_curves([3.0], *sizes, sigma, a0, ts)
        for tiny in (0.0, 1e-200):
            with_them = noise.learning_curves([3.0, tiny, 0.0], *sizes, sigma, a0, ts)
            np.testing.assert_allclose(with_them.test, without.test, rtol=1e-12)
            np.testing.assert_allclose(with_them.train, without.train, rtol=1e-12)
            assert not with_them.above[2]


@pytest.mark.parametrize("name", SETUPS)
def test_the_end_value(name):
    sbar, n1, n3, examples, sigma, a0 = arguments(name, 100)
    got = noise.learning_curves(sbar, n1, n3, examples, sigma, a0, [1e4] * 8 + [np.inf])
    end = sigma**2 * n1 * n3 / (2 * examples)
    assert float(got.end) == pytest.approx(end, rel=1e-14)
    np.testing.assert_allclose(got.test, end, rtol=1e-8)
    train = sigma**2 * n3 * (examples - n1) / (2 * examples)
    np.testing.assert_allclose(got.train, train, rtol=1e-8, atol=1e-9)


# ---------------------------------------------------------------- against draws
@pytest.mark.parametrize(
    ("name", "n1", "count"),
    [*((name, 100, 40) for name in SETUPS), ("more outputs", 200, 24)],
)
def test_the_mean_of_draws(name, n1, count):
    # 4 standard errors, and 1.5/N1 for the terms of the next order.
    setting = arguments(name, n1)
    found = drawn(count, 1, *setting)
    curves = noise.learning_curves(*setting, TIMES)
    gap, error = departure(found, curves)
    assert np.all(gap <= 4 * error + 1.5 / n1), (gap, error)
    # Control: the same without what a mode takes from the bulk.
    sbar, a0 = setting[0], setting[5]
    bulk = noise.learning_curves(np.zeros_like(sbar), *setting[1:], TIMES)
    train, test = np.array(bulk.train), np.array(bulk.test)
    for q in np.flatnonzero(curves.above):
        s, share = float(curves.spikes[q]), np.sqrt(float(curves.left[q] * curves.right[q]))
        a = amplitude(s, TIMES, a0)
        train += (s - a) ** 2 / 2
        test += a**2 / 2 - a * sbar[q] * share
    test += (sbar**2).sum() / 2
    assert np.any(abs(found.mean(1) - [train, test]) > 4 * error + 1.5 / n1)


@pytest.mark.slow
def test_the_systematic_gap_falls_as_1_over_n():
    # 4000 draws at N1 = 20 and 40, 2500 at 80, N3 = N1. Control: without the real-matrix term the
    # test error does not converge.
    gaps, errors, without = [], [], []
    for n1, count in ((20, 4000), (40, 4000), (80, 2500)):
        setting = arguments("square", n1)
        found = drawn(count, [7, n1], *setting)
        gap, error = departure(found, noise.learning_curves(*setting, TIMES))
        at = np.arange(2), gap.argmax(1)
        gaps.append(gap[at])
        errors.append(error[at])
        lacking = noise.learning_curves(*setting, TIMES).test - real_matrix_term(*setting)
        without.append(abs(found[1].mean(0) - lacking).max())
        assert np.all(gap < 1.8 / n1 + 3 * error), (n1, gap, error)
    gaps = np.array(gaps)
    assert np.all(gaps[2] < gaps[0] / 2), (gaps, errors)
    assert without[2] > 0.025, without


def real_matrix_term(sbar, n1, n3, examples, sigma, a0):
    """R[a^2]/2 of theory#learning-curves by adaptive quadrature, (time,), for N3 = N1."""
    assert n1 == n3
    edge = 2 * sigma * np.sqrt(n1 / examples)

    def one(t):
        def f(s):
            return amplitude(max(s, 1e-300), t, a0) ** 2

        mean = quad(lambda theta: f(edge * np.cos(theta / 2)), 0, np.pi)[0] / (2 * np.pi)
        return ((f(edge) + f(0.0)) / 4 - mean) / 2

    return np.array([one(t) for t in TIMES])


@pytest.mark.slow
def test_spikes_and_overlaps():
    sbar = np.array([3.0, 2.0, 1.3])
    n1, n3, examples = 1200, 600, 2400
    got = noise.learning_curves(sbar, n1, n3, examples, 1.0, 0.1, [0.0])
    assert float(got.threshold) == pytest.approx(0.5946, abs=1e-4)
    ratios = []
    for seed in range(3):
        rng = np.random.default_rng([9, seed])
        matrix = rng.normal(size=(n3, n1)) / np.sqrt(examples)
        matrix[range(3), range(3)] += sbar
        u, s, vt = svds(matrix, k=3, v0=np.ones(n3))  # the smallest first
        assert u is not None
        assert vt is not None
        left, right = np.diagonal(u[:, ::-1]) ** 2, np.diagonal(vt[::-1]) ** 2
        ratios.append([s[::-1] / got.spikes, left / got.left, right / got.right])
    assert np.all(abs(np.array(ratios) - 1) < 0.04)
    assert np.all(abs(np.mean(ratios, axis=0) - 1) < 0.02)


# ---------------------------------------------------------------- draws
DRAW = {"sbar": [2.0, 1.0], "inputs": 20, "outputs": 12, "examples": 40, "sigma": 0.5}


@pytest.fixture(scope="module")
def task(key):
    return noise.draw(**DRAW, key=key, hidden=15)


def test_a_draw_trained_by_descent_has_the_errors_of_its_singular_values(task):
    # One explicit data set and a real network: descent of rate 1e-3 to t = 2.
    a0, w = 0.05, np.asarray(task.meta["teacher"])
    net = task.meta["start"](a0)
    run = gdln.train(
        net, task.data, optimizer=optax.sgd(1e-3), steps=2000, save_every=500, keep_models=True
    )
    x, y = (np.asarray(z) for z in (task.data.inputs["x"], task.data.targets["y"]))
    u, s, vt = np.linalg.svd(y.T @ x / 40, full_matrices=False)
    outside = ((y - x @ (x.T @ y) / 40) ** 2).sum() / 80
    first, second = (np.asarray(run.models.weights[edge]) for edge in ("x->h", "h->y"))
    for i, step in enumerate(np.asarray(run.ts)):
        a = amplitude(s, 1e-3 * step, a0)
        test = ((second[i] @ first[i] - w) ** 2).sum() / 2
        assert test == pytest.approx((((u * a) @ vt - w) ** 2).sum() / 2, rel=1e-3)
        assert float(run.losses[i]) == pytest.approx(((s - a) ** 2).sum() / 2 + outside, rel=1e-3)


def test_a_draw_is_what_the_formula_assumes(task, key):
    assert task.graph.nodes == {"x": 20, "h": 15, "y": 12}
    assert noise.draw(**DRAW, key=key).graph.nodes["h"] == 12
    x, y = (np.asarray(z) for z in (task.data.inputs["x"], task.data.targets["y"]))
    w = np.asarray(task.meta["teacher"])
    assert float(task.meta["sigma"]) == 0.5
    np.testing.assert_allclose(x.T @ x / 40, np.eye(20), atol=1e-13)
    np.testing.assert_allclose(np.linalg.svd(w)[1][:3], [2, 1, 0], atol=1e-13)
    # Aligned and balanced, all amplitudes a0.
    net = task.meta["start"](0.04)
    first, second = (np.asarray(net.weights[edge]) for edge in ("x->h", "h->y"))
    np.testing.assert_allclose(second.T @ second, first @ first.T, atol=1e-13)
    u, _, vt = np.linalg.svd(y.T @ x / 40, full_matrices=False)
    np.testing.assert_allclose(second @ first, 0.04 * u @ vt, atol=1e-13)


@pytest.mark.slow
def test_many_draws_are_one_program_and_meet_the_formula(key):
    @jax.jit
    @jax.vmap
    def start(key):
        task = noise.draw(**DRAW, key=key)
        net, w = task.meta["start"](0.05), task.meta["teacher"]
        assert isinstance(task.data, gdln.GatedData)
        x, y = task.data.inputs["x"], task.data.targets["y"]
        test = jnp.sum((net.weights["h->y"] @ net.weights["x->h"] - w) ** 2) / 2
        return gdln.mse(net, task.data), test, y - x @ w.T, (y - x @ w.T).T @ x / 40, w

    *errors, z, e, w = map(np.asarray, start(jax.random.split(key, 200)))
    curves = noise.learning_curves(**DRAW, a0=0.05, ts=[0.0])
    gap, error = departure(np.array(errors)[..., None], curves)
    assert np.all(gap < 4 * error + 1.5 / 20)
    # Noise of variance sigma^2, and E of sigma^2/P: 96,000 and 48,000 independent numbers.
    assert abs(z.var() / 0.25 - 1) < 4 * np.sqrt(2 / z.size)
    assert abs(e.var() * 160 - 1) < 4 * np.sqrt(2 / e.size)
    # Teachers in random position: the mean of 200 is smaller by sqrt(200).
    assert np.linalg.norm(w.mean(0)) < 2 * np.sqrt(5 / 200)


# ---------------------------------------------------------------- derivatives
def errors_of(p):
    """Test and train errors (16,) of p = (sbar of two modes, sigma, a0, tau, shift of times)."""
    curves = noise.learning_curves(p[:2], 100, 50, 200, p[2], p[3], TIMES[1:] + p[5], tau=p[4])
    return jnp.concatenate([curves.test, curves.train])


ERRORS, SLOPES = jax.jit(errors_of), jax.jit(jax.jacfwd(errors_of))
THRESHOLD = np.sqrt(0.5) * 0.5**0.25  # of 100 x 50, P = 200, at sigma = 1


@pytest.mark.parametrize("rho", [0.5, 0.9, 0.999, 1 - 1e-6, 1.0, 1 + 1e-6, 1.001, 1.1, 2.0])
def test_derivatives_in_all_arguments_across_the_threshold(rho):
    p = np.array([3.0, THRESHOLD * np.sqrt(rho), 1.0, 0.01, 1.3, 0.0])
    slopes = SLOPES(p)
    for k, h in enumerate((1e-5, 1e-5, 1e-5, 1e-7, 1e-5, 1e-5)):
        step = h * np.eye(6)[k]
        wanted = (ERRORS(p + step) - ERRORS(p - step)) / (2 * h)
        np.testing.assert_allclose(slopes[:, k], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_reverse_mode_agrees():
    for rho in (0.9, 1.0, 2.0):
        p = np.array([3.0, THRESHOLD * np.sqrt(rho), 1.0, 0.01, 1.3, 0.0])
        backward = jax.grad(lambda p: ERRORS(p)[3])(p)
        np.testing.assert_allclose(backward, SLOPES(p)[3], rtol=1e-9, atol=1e-8)


def test_derivatives_where_noise_or_a_mode_vanishes():
    # The bulk grows with sigma, so that the derivative at 0 is one-sided, and not 0; in sbar all
    # depends on the square.
    p, h = np.array([3.0, 1.0, 0.0, 0.1, 1.0, 0.0]), 1e-6
    slope = SLOPES(p)[:, 2]
    np.testing.assert_allclose(
        slope, (ERRORS(p + h * np.eye(6)[2]) - ERRORS(p)) / h, rtol=1e-4, atol=1e-4
    )
    assert slope[1] > 0.1
    for sigma in (0.0, 0.7):
        assert np.array_equal(
            SLOPES(np.array([3.0, 0.0, sigma, 0.1, 1.0, 0.0]))[:, 1], np.zeros(16)
        )


# ---------------------------------------------------------------- the best time
def best_of(p):
    """(time, test) of p = (sbar of three modes, sigma, a0, tau)."""
    return jnp.stack(noise.best_time(p[:3], 100, 50, 200, p[3], p[4], tau=p[5]))


BEST_SLOPES = jax.jit(jax.jacfwd(best_of))


def test_the_best_time_is_the_minimum_and_its_derivative_is_right():
    p = np.array([3.0, 2.0, 1.0, 0.3, 0.01, 2.0])
    time, test = best_of(p)
    around = float(time) * (1 + 1e-3 * np.arange(-4, 5))
    curve = noise.learning_curves(p[:3], 100, 50, 200, p[3], p[4], around, tau=p[5]).test
    assert np.argmin(curve) == 4
    assert float(test) == pytest.approx(float(curve[4]), rel=1e-12)
    slopes = BEST_SLOPES(p)
    for k, step in enumerate(1e-4 * np.diag(p)):
        wanted = (best_of(p + step) - best_of(p - step)) / (2 * step[k])
        np.testing.assert_allclose(slopes[:, k], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("p", "time", "test"),
    [
        ([3, 1, 0, 0.3, 1.0, 1], np.inf, 1.125),
        ([3, 1, 0, 0.0, 0.01, 1], np.inf, 0.0),
        ([0.1, 0, 0, 1.0, 0.01, 1], 0.0, 0.00736929),
        ([0, 0, 0, 1.0, 0.01, 1], 0.0, 0.0025),  # pure noise: 50 a0^2/2
        ([0, 0, 0, 0.0, 0.01, 1], np.inf, 0.0),
    ],
)
def test_training_that_never_harms_or_never_helps(p, time, test):
    p = np.array(p, float)
    found = best_of(p)
    assert float(found[0]) == time
    assert float(found[1]) == pytest.approx(test, abs=1e-8)
    assert np.array_equal(BEST_SLOPES(p)[0], np.zeros(6))


@pytest.mark.slow
def test_the_best_time_is_no_worse_than_a_search():
    # Modes above and below the threshold, tiny and large starts; one program under vmap.
    rng = np.random.default_rng(0)
    sbar = np.exp(rng.uniform(-3, 2.5, (30, 3)))
    sigma, a0 = np.exp(rng.uniform(-4, 1, 30)), np.exp(rng.uniform(-12, 1.5, 30))
    sbar[0], sigma[0], a0[0] = 0.01, 1.0, 0.01  # where training never helps
    n = (100, 50, 200)
    over = jax.jit(jax.vmap(lambda *p: noise.best_time(p[0], *n, *p[1:])))
    time, test = map(np.asarray, over(sbar, sigma, a0))
    ts = np.append(0, np.geomspace(1e-3, 1e6, 999)) / np.maximum(sbar.max(1), sigma)[:, None]
    curves = jax.jit(jax.vmap(lambda *p: noise.learning_curves(p[0], *n, *p[1:]).test))
    end = sigma**2 * 100 * 50 / 400
    found = np.minimum(np.asarray(curves(sbar, sigma, a0, ts)).min(1), end)
    assert np.all(test <= found * (1 + 1e-6))
    np.testing.assert_allclose(test[np.isinf(time)], end[np.isinf(time)], rtol=1e-14)
    kinds = [np.isinf(time), time == 0, np.isfinite(time) & (time > 0)]
    assert all(kind.any() for kind in kinds)


# ---------------------------------------------------------------- at the edge of what is allowed
@pytest.mark.parametrize("name", ["hidden mode", "square"])
def test_single_precision(name):
    sbar, n1, n3, examples, *others = arguments(name, 100)
    single = [np.asarray(x, np.float32) for x in (sbar, *others, TIMES)]
    single = noise.learning_curves(single[0], n1, n3, examples, *single[1:4])
    double = noise.learning_curves(*arguments(name, 100), TIMES)
    assert single.test.dtype == np.float32
    np.testing.assert_allclose(single.test, double.test, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(single.train, double.train, rtol=1e-5, atol=1e-5)


def test_what_would_be_refused_is_nan_where_it_is_traced():
    good = np.array([3.0, 2.0, 1.0, 0.3, 0.01, 2.0])
    p = np.array([good, *(good * np.where(np.arange(6) == k, -1, 1) for k in range(1, 6))])
    curves = jax.jit(
        jax.vmap(
            lambda p: noise.learning_curves(p[:3], 100, 50, 200, p[3], p[4], TIMES, tau=p[5]).test
        )
    )(p)
    assert np.array_equal(np.isnan(curves[:, 1]), [False] + [True] * 5)
    assert np.all(np.isnan(jax.jit(best_of)(p[3])))


def test_what_has_no_square_is_refused():
    for change, name in ((([1e200],), "sbar"), (([1.0], 60, 30, 120, 1e200), "sigma")):
        arguments = [[1.0], 60, 30, 120, 1.0, 0.1, [0.0, 1.0]]
        arguments[: len(change)] = change
        with pytest.raises(ValueError, match=rf"{name}.* is 1e\+200; .*squares? that .* finite"):
            noise.learning_curves(*arguments)
    largest = noise.learning_curves([1e150], 60, 30, 120, 1e149, 1e148, [0.0, 1.0, np.inf])
    assert np.isfinite(largest.test).all()
    assert np.isfinite(largest.train).all()
    with pytest.raises(ValueError, match=r"sbar\[0\] is 1.0\d*e\+20"):
        noise.best_time(np.array([1e20], np.float32), 60, 30, 120, np.float32(1), np.float32(0.1))


def test_refusals(refused_plainly):
    refused_plainly("""
import jax, jax.numpy as jnp, numpy as np
import gdln_jax as gdln
curves, best, draw = gdln.noise.learning_curves, gdln.noise.best_time, gdln.noise.draw
good = dict(sbar=[3.0, 1.0], inputs=20, outputs=10, examples=40, sigma=0.3)
key = jax.random.key(0)
task = draw(**good, key=key)
start = task.meta["start"]
wrong = {
    "examples is 19, fewer than inputs = 20": dict(examples=19),
    "inputs is 20.0": dict(inputs=20.0),
    "outputs is 0": dict(outputs=0),
    "examples is True": dict(examples=True),
    "sigma is -0.1": dict(sigma=-0.1),
    "sigma is nan": dict(sigma=np.nan),
    "sigma has shape (2,)": dict(sigma=[0.1, 0.2]),
    "sigma is None": dict(sigma=None),
    "sbar[1] is -1.0": dict(sbar=[3.0, -1.0]),
    "sbar[0] is inf": dict(sbar=[np.inf]),
    "sbar has shape ()": dict(sbar=3.0),
    "sbar has shape (10, 20)": dict(sbar=np.ones((10, 20))),
    "sbar has 11 modes": dict(sbar=np.ones(11)),
    "sbar has 0 modes": dict(sbar=[]),
    "sbar is a Task": dict(sbar=task),
    "sbar is a list; it must be": dict(sbar=[[1.0], [2.0, 3.0]]),
    "sbar is a list of complex": dict(sbar=[3j]),
}
attempts = []
for words, change in wrong.items():
    asked = {**good, **change}
    attempts += [
        (lambda a=asked: curves(**a, a0=0.01, ts=[0.0, 1.0]), words),
        (lambda a=asked: best(**a, a0=0.01), words),
        (lambda a=asked: draw(**a, key=key), words),
    ]
for words, a0 in (
    ("a0 is 0.0", 0.0), ("a0 is -0.1", -0.1), ("a0 is inf", np.inf),
    ("a0 has shape (2,); it must have no axis: one number above 0 with a square", [0.1, 0.2]),
    ("a0 is '0.1'", "0.1"),
):
    attempts += [
        (lambda a0=a0: curves(**good, a0=a0, ts=[0.0]), words),
        (lambda a0=a0: best(**good, a0=a0), words),
        (lambda a0=a0: start(a0), words),
    ]
attempts += [
    (lambda: curves(**good, a0=0.1, ts=1.0), "ts has shape ()"),
    (lambda: curves(**good, a0=0.1, ts=[0.0, -1.0]), "ts[1] is -1.0"),
    (lambda: curves(**good, a0=0.1, ts=[np.nan]), "ts[0] is nan"),
    (lambda: curves(**good, a0=0.1, ts=[0.0], tau=0.0), "tau is 0.0"),
    (lambda: best(**good, a0=0.1, tau=-1.0), "tau is -1.0"),
    (lambda: curves(**good, a0=0.1, ts=[0.0], nodes=1), "nodes is 1"),
    (lambda: draw(**good, key=key, hidden=9), "hidden is 9, fewer than min(inputs, outputs) = 10"),
    (lambda: draw(**good, key=0), "key is 0; pass a JAX random key"),
]
""")


def test_the_summary_of_the_result():
    curves = noise.learning_curves([3.0, 0.1, 0.0], 100, 50, 200, 0.3, 0.01, TIMES)
    assert repr(curves).startswith("LearningCurves(9 times, 3 modes, 1 above the threshold 0.1784")
    assert "test error 4.477 -> 0.04932 at t = 1.5 -> 1.125 at the end" in repr(curves)
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), curves)  # as vmap returns it
    assert repr(batch) == "LearningCurves(9 times, 3 modes)"
