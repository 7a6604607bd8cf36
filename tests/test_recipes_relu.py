"""What the recipes on H share: the start of contextual modes, times of crossing, keys.

Known answers: H's closed forms with E15-E21 corrected, tests/reference.json.
"""

import jax
import numpy as np
import pytest
from recipe_parts import ensembles as sim

from gdln_jax import SolveError, exact, relu, tasks

STD = 7.142857e-6


# ------------------------------------------------------------------ initial values of contexts
def common_phase(c: int, n: int = 8) -> tuple[np.ndarray, ...]:
    """Arguments of `head_start` for one contextual pathway of H's task with equal structures."""
    task = tasks.semantic_contexts(c, width=1, num_items=n)
    x, y = task.meta["x"], task.meta["y"]
    u, s, vt = np.linalg.svd(y.T @ x, full_matrices=False)
    kept = s > 1e-9 * s[0]
    u, s, v = u[:, kept], s[kept], vt[kept].T
    d = np.sum((x @ v) ** 2, axis=0)
    items = x[:, :n] * (task.meta["context"] != 0)[:, None]
    taken = np.einsum("k,yk,xk,xz->kyz", s / d, u, v, x.T @ items)
    return y.T @ items, taken, s, d


def test_the_head_start_has_the_digits_of_the_reference():
    """Reference values: sd 7.142857e-6, h = 100, C = 3, modes 1, 2, 4; from whole matrices."""
    own, taken, s, d = common_phase(3)
    found = relu.head_start(own, taken, s, d, np.full(len(s), 100 * STD**2 / 2))
    start = np.asarray(found.expected(100, STD))
    counts = [1, 2, 4]
    wanted = np.repeat([2.0159755e-5, 1.6510201e-5, 1.2743653e-5], counts)
    np.testing.assert_allclose(start, wanted, rtol=5e-8)
    np.testing.assert_allclose(found.s**2, 2 / 3 * np.repeat([7.0, 3.0, 1.0], counts), rtol=1e-12)


def referred_by_rk4(rate: float, g: np.ndarray, end: float) -> np.ndarray:
    """Row of x' = g y0 + S y1, y0' = g x, y1' = S x that picks (x + y1)/2 exp(-S t) at the end.

    `g` at the ends and the middles of the steps.
    """
    z, h = np.eye(3), 2 * end / (len(g) - 1)

    def slope(k: int, z: np.ndarray) -> np.ndarray:
        return np.array([[0, g[k], rate], [g[k], 0, 0], [rate, 0, 0]]) @ z - rate * z

    for k in range(0, len(g) - 1, 2):
        k1 = slope(k, z)
        k2 = slope(k + 1, z + h / 2 * k1)
        k3 = slope(k + 1, z + h / 2 * k2)
        z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(k + 2, z + h * k3))
    return (z[0] + z[2]) / 2


@pytest.mark.parametrize("c", [4, 5])
def test_the_head_start_is_a_linear_ode_per_mode(c: int):
    """What whole matrices give is the three-dimensional system of each mode."""
    own, taken, s, d = common_phase(c)
    a0 = 100 * STD**2 / 2
    found = relu.head_start(own, taken, s, d, np.full(len(s), a0))
    for m, sigma in ((0, 7**0.5), (3, 1.0)):
        rate, strength = np.sqrt((c - 1) / c) * sigma, sigma * np.sqrt(c * c + c)
        end = 22 / strength + np.log(strength / c / a0) / (2 * strength)
        learned = np.asarray(exact.linear_mode(np.linspace(0, end, 4001), strength, c, a0))
        row = referred_by_rk4(rate, (c - 1) * (strength / c - learned), end)
        assert float(found.gain[m]) == pytest.approx(2 * row @ row, rel=1e-6)


def test_without_another_pathway_the_start_is_the_usual_one(key: jax.Array):
    """|W2^T u + W1 v|^2/4, expected n std^2/2: no head start."""
    own = np.diag([3.0, 2.0])[:, :2]
    none = relu.head_start(own, np.zeros((0, 2, 2)), *np.zeros((3, 0)))
    np.testing.assert_allclose(none.gain, 1, rtol=1e-14)
    np.testing.assert_allclose(none.expected(8, 0.1), 8 * 0.01 / 2, rtol=1e-14)
    w1, w2 = np.asarray(jax.random.normal(key, (2, 5, 2)))
    usual = np.sum((w2 @ np.asarray(none.u) + w1 @ np.asarray(none.v)) ** 2, axis=0) / 4
    np.testing.assert_allclose(none.of(w1, w2.T), usual, rtol=1e-12)
    assert "2 modes" in repr(none)


def test_a_pathway_beside_another_starts_where_its_weights_say():
    """The expectation over weights is the mean of `of`, and both are the simulated growth's."""
    own, taken, s, d = common_phase(3)
    found = relu.head_start(own, taken, s, d, np.full(len(s), 100 * STD**2 / 2))
    rng = np.random.default_rng(0)
    draws = [
        found.of(STD * rng.normal(size=(100, 8)), STD * rng.normal(size=(60, 100)))
        for _ in range(60)
    ]
    mean, start = np.mean(draws, axis=0), np.asarray(found.expected(100, STD))
    # A chi-squared mean of about 100 values: relative sd .14, over 60 draws .018.
    np.testing.assert_allclose(mean, start, rtol=0.08)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"taken": np.zeros((2, 2, 3))}, "expected"),
        ({"a0": np.array([2.0])}, "a0 must lie between"),
        ({"a0": np.array([0.0])}, "a0 must lie between"),
        ({"taken": np.eye(2)[None]}, "leaves nothing"),
        ({"own": np.full((2, 2), np.nan)}, "not finite"),
    ],
)
def test_bad_arguments_of_the_head_start(change: dict, words: str):
    good = {"own": np.eye(2), "taken": 0.5 * np.eye(2)[None], "s": np.ones(1), "d": np.ones(1),
            "a0": np.array([0.1])}  # fmt: skip
    with pytest.raises(ValueError, match=words):
        relu.head_start(**{**good, **change})


def test_a_head_start_that_takes_too_many_steps_is_refused_in_words(monkeypatch):
    # No other test has five inputs: the program with few steps stays here.
    monkeypatch.setattr("gdln_jax.relu._head_start._MAX_STEPS", 30)
    taken = np.zeros((1, 2, 5))
    taken[0, 0, 0] = 0.5
    words = r"mode 1 was not found: the ODE solver gave up after .* tau, within 30 steps"
    given = (1e3 * np.eye(2, 5), taken, np.ones(1), np.ones(1), np.array([1e-8]))
    with pytest.raises(SolveError, match=words):
        relu.head_start(*given)
    left = relu.head_start(*given, throw=False)
    assert np.isfinite(left.s).all()
    assert np.isnan(left.on_output[1]).all()
    assert np.isnan(left.gain[1])


# ------------------------------------------------------------------ what the recipes share
def test_times_of_crossing():
    t = np.linspace(0, 5, 51)
    found = sim.first_below(np.stack([np.exp(-t), np.exp(-2 * t), np.ones_like(t)]), t, 0.1)
    np.testing.assert_allclose(found, [np.log(10), np.log(10) / 2, np.inf], rtol=1e-12)
    assert np.isfinite(sim.first_below(np.array([[1.0, 0.0]]), [0.0, 1.0], 0.5)).all()


def test_keys_do_not_depend_on_their_number():
    few, many = (jax.random.key_data(sim.keys(3, n)) for n in (2, 5))
    np.testing.assert_array_equal(few, many[:2])
