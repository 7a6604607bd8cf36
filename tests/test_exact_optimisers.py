"""Closed forms of discrete training and of optimisers, against integration (theory#optimisers)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from optimiser_systems import system_a
from scipy.integrate import solve_ivp

import gdln_jax as gdln
from gdln_jax import exact

RTOL = 1e-9  # the digits of the reference values


@pytest.fixture
def values(reference_beyond: dict[str, Any]) -> dict[str, Any]:
    return {case["name"]: case["values"] for case in reference_beyond["optimisers"]["cases"]}


@pytest.mark.parametrize(
    "depth", [1, 2, 3, *(pytest.param(depth, marks=pytest.mark.slow) for depth in (4, 5))]
)
def test_a_chain_of_any_depth_follows_its_curve(values: dict[str, Any], depth: int):
    """tau a' = L a^(2 - 2/L) (s - d a), from below and from above."""
    s, d, tau = 1.3, 0.7, 2.0
    wanted = values["chain_mode"][str(depth)]
    time = exact.chain_mode_time(1.0, s, d, 1e-3, depth)
    np.testing.assert_allclose(time, wanted, RTOL)
    below, above = values["chain_mode_at_t"][str(depth)]
    np.testing.assert_allclose(exact.chain_mode(0.9 * time, s, d, 1e-3, depth), below, RTOL)
    np.testing.assert_allclose(exact.chain_mode(0.7, s, d, 4.0, depth), above, RTOL)

    ts = np.array([0.0, 0.5, 1.0, 1.5]) * wanted * tau
    run = solve_ivp(
        lambda _, a: depth * a ** (2 - 2 / depth) * (s - d * a) / tau,
        (0.0, ts[-1]),
        [1e-3, 4.0],
        "DOP853",
        ts,
        rtol=1e-12,
        atol=1e-14,
    )
    np.testing.assert_allclose(
        exact.chain_mode(ts[:, None], s, d, np.array([1e-3, 4.0]), depth, tau), run.y.T, 1e-9
    )


@pytest.mark.slow
def test_a_chain_is_differentiable_and_ends_at_its_target():
    def mode(t: Any, s: Any, d: Any, a0: Any) -> Any:
        return exact.chain_mode(t, s, d, a0, 4)

    point = np.array([0.5, 1.3, 0.7, 0.2])
    slopes = jax.jit(jax.grad(lambda x: mode(*x)))(jnp.asarray(point))
    for k in range(4):
        step = 1e-6 * np.eye(4)[k]
        difference = (mode(*(point + step)) - mode(*(point - step))) / 2e-6
        np.testing.assert_allclose(slopes[k], difference, 1e-6)
    for depth in (1, 2, 3):
        ends = jax.value_and_grad(
            lambda d, depth=depth: exact.chain_mode(jnp.inf, 1.3, d, 0.1, depth)
        )(0.7)
        np.testing.assert_allclose(ends, (1.3 / 0.7, -1.3 / 0.49), 1e-12)
    assert exact.chain_mode(1.0, 1.3, 0.7, 1.3 / 0.7, 3) == 1.3 / 0.7
    assert exact.chain_mode_time(2.0, 1.3, 0.7, 0.1, 3) == np.inf
    assert np.isnan(exact.chain_mode(1.0, -1.3, 0.7, 0.1, 3))
    assert np.isnan(exact.chain_mode_time(1.0, 1.3, 0.0, 0.1, 3))


def test_the_two_cycle_is_one_and_attracts_where_it_says(values: dict[str, Any]):
    low, high, multiplier, transverse = exact.two_cycle(1.0, 0.5, 1.1)
    wanted = values["two_cycle"]
    np.testing.assert_allclose([low, high], wanted["w2"], RTOL)
    np.testing.assert_allclose(multiplier, wanted["multiplier"], RTOL)
    np.testing.assert_allclose(transverse, wanted["transverse"], RTOL)
    assert np.isnan(exact.two_cycle(1.0, 0.5, 0.9)[0])

    def end(eta: float, steps: int = 4000) -> np.ndarray:
        w, seen = 1.2, []
        for _ in range(steps):
            w += eta * w * (1.0 - 0.5 * w**2)
            seen.append(w**2)
        return np.sort(seen[-2:])

    for eta in (1.1, 1.2):  # stable below sqrt(5) - 1
        np.testing.assert_allclose(end(eta), exact.two_cycle(1.0, 0.5, eta)[:2], 1e-9)
    assert abs(end(1.25)[0] / exact.two_cycle(1.0, 0.5, 1.25)[0] - 1) > 0.01
    assert exact.two_cycle(1.0, 0.5, np.sqrt(5) - 1)[2] == pytest.approx(-1)


def test_descent_shrinks_the_imbalance_of_neighbours(values: dict[str, Any]):
    b, wanted = np.array([0.2, 0.9]), values["imbalance_law"]["c"]
    imbalance = b[0] ** 2 - b[1] ** 2
    for number in wanted:
        imbalance *= float(exact.imbalance_factor(1.0, 0.5, b, 0.6)[0])
        b = b + 0.6 * (1.0 - 0.5 * b.prod()) * b[::-1]
        np.testing.assert_allclose(imbalance, number, RTOL)
        np.testing.assert_allclose(b[0] ** 2 - b[1] ** 2, number, RTOL)
    deep = np.array([0.7, 0.4, 1.2])
    moved = deep + 0.3 * (1.0 - 0.5 * deep.prod()) * deep.prod() / deep
    np.testing.assert_allclose(
        np.diff(moved**2), exact.imbalance_factor(1.0, 0.5, deep, 0.3) * np.diff(deep**2), 1e-12
    )
    with pytest.raises(ValueError, match="at least two layers"):
        exact.imbalance_factor(1.0, 0.5, np.array([0.3]), 0.1)


def test_decay_has_a_fold_from_three_layers_on(values: dict[str, Any]):
    wanted = values["decay_logistic"]
    for depth in (3, 4):
        decay, product = exact.decay_fold(1.0, 0.5, depth)
        np.testing.assert_allclose([decay, product], wanted[f"fold_L{depth}"], RTOL)
        # a solves a^(1 - 2/L) (s - d a) = decay, whose left side is largest at the fold.
        pull = lambda a, n=depth: a ** (1 - 2 / n) * (1.0 - 0.5 * a)  # noqa: E731
        np.testing.assert_allclose(pull(product), decay, 1e-12)
        assert pull(0.99 * product) < decay > pull(1.01 * product)
    np.testing.assert_allclose(exact.linear_mode(5.0, 1.0 - 0.3, 0.5, 0.01), wanted["a5"], RTOL)
    with pytest.raises(ValueError, match="depth is 2"):
        exact.decay_fold(1.0, 0.5, 2)


def test_sign_flow_ends_where_the_products_meet_the_target(values: dict[str, Any]):
    """sum_paths prod (b + t) = p.

    The start of the reference's second path is (0.1, 0.2, 0.2): its shares are those of that start,
    and not of (0.2, 0.2, 0.2) as its set-up says.
    """
    b0 = np.array([[0.1, 0.1, 0.1], [0.1, 0.2, 0.2]])
    time, shares = exact.sign_time(b0, 2.0)
    np.testing.assert_allclose(time, values["sign_flow"]["time"], RTOL)
    np.testing.assert_allclose(shares, values["sign_flow"]["shares"], RTOL)
    alone, _ = exact.sign_time(np.array([[0.1, 0.4]]), 2.0)
    np.testing.assert_allclose(alone, values["sign_flow"]["time_L2"], RTOL)
    both, shares = jax.jit(exact.sign_time)(np.full((2, 3), 0.2), np.array([2.0, 1.0]))
    assert shares.shape == (2, 2)
    np.testing.assert_allclose(2 * (0.2 + both) ** 3, [2.0, 1.0], 1e-12)
    slope = jax.grad(lambda p: exact.sign_time(b0, p)[0])(2.0)
    change = exact.sign_time(b0, 2.0 + 1e-6)[0] - exact.sign_time(b0, 2.0 - 1e-6)[0]
    np.testing.assert_allclose(slope, change / 2e-6, 1e-6)
    assert np.isnan(exact.sign_time(np.ones((2, 2)), 1.0)[0])


@pytest.mark.parametrize("depth", [2, 3])
def test_adagrad_takes_the_steps_it_is_said_to_take(values: dict[str, Any], depth: int):
    end = 0.9 * 2 ** (1 / depth)
    formula = exact.adagrad_steps(end, 1.0, 0.5, 0.3, depth, 1e-3, 0.01)
    np.testing.assert_allclose(formula, values["adagrad"][f"L{depth}"], RTOL)
    errors = []
    for eta in (0.02, 0.01):
        b, total, steps = 0.3, 0.0, 0
        while b < end:
            g = -(1.0 - 0.5 * b**depth) * b ** (depth - 1)
            total += g**2
            b -= eta * g / np.sqrt(0.01 + total)
            steps += 1
        errors.append(steps / float(exact.adagrad_steps(end, 1.0, 0.5, 0.3, depth, eta, 0.01)) - 1)
    assert abs(errors[1]) < 0.02
    assert abs(errors[1]) < 0.6 * abs(errors[0])  # of first order in eta


def test_a_race_of_pathways_ends_as_its_flow_does(values: dict[str, Any]):
    race = jax.jit(exact.pathway_race, static_argnums=4)
    kappa, u0 = np.array([6 ** (-2 / 3), 1 / 18]), np.array([0.2, 0.2])
    p, shares = np.array([2.0, 1.0]), []
    clock, u = race(kappa, u0, p / 2, 0.5, 3)
    for m in range(2):
        wanted = values["race_gd_flow_C"][f"mode{m}"]
        np.testing.assert_allclose(np.asarray(clock)[m], wanted["clock"], RTOL)
        shares.append(np.asarray(u)[m] ** 3 / p[m])
        np.testing.assert_allclose(
            shares[-1], [wanted["shared_share"], wanted["dedicated_share"]], RTOL
        )
    error = sum(p**2 * np.array(shares)[:, 1] ** 2) / sum(p**2)
    np.testing.assert_allclose(error, values["race_gd_flow_C"]["zero_shot"], RTOL)

    clock, u = race(np.array([0.5, 0.2]), np.array([0.05, 0.05]), 1.0, 1.0, 2)
    np.testing.assert_allclose(clock, values["race_L2"]["clock"], RTOL)
    np.testing.assert_allclose(np.square(u), values["race_L2"]["shares"], RTOL)
    factors = np.array([100, 1]) ** (2 / 3) / 100
    clock, u = race(factors, np.array([0.1, 0.1]), 2.0, 1.0, 3)
    np.testing.assert_allclose(clock, values["race_blocks"]["clock"], RTOL)
    np.testing.assert_allclose(np.asarray(u) ** 3 / 2, values["race_blocks"]["shares"], RTOL)

    run = solve_ivp(
        lambda _, u: factors * u**2 * (2.0 - np.sum(u**3)),
        (0.0, 1e3),
        [0.1, 0.1],
        "DOP853",
        rtol=1e-11,
        atol=1e-12,
    )
    np.testing.assert_allclose(u, run.y[:, -1], 1e-8)
    clock_of = jax.jit(lambda k: race(k, u0, 1.0, 1.0, 3)[0])
    slope = jax.jit(jax.grad(clock_of))(kappa)
    step = 1e-6 * np.eye(2)[0]
    change = [clock_of(kappa + h) for h in (step, -step)]
    np.testing.assert_allclose(slope[0], (change[0] - change[1]) / 2e-6, 1e-6)


def test_momentum_is_later_than_its_clock(values: dict[str, Any]):
    s, wanted = np.sqrt(185) / 4, values["momentum_clock"]
    a = 1e-3 * s / 0.1
    error = exact.momentum_clock_error(s, 1e-3, 0.9)
    np.testing.assert_allclose((1 - error) * a, wanted["ln_z"], RTOL)
    small = exact.momentum_clock_error(1e-6 * s, 1e-3, 0.9) * 1e6
    np.testing.assert_allclose(small, wanted["first_order"], 1e-5)
    b = previous = 1.0
    m = 0.0
    for _ in range(400):
        previous, m = b, 0.9 * m + s * b
        b += 1e-3 * m
    np.testing.assert_allclose(np.log(b / previous), wanted["ln_z"], RTOL)
    assert np.isnan(exact.momentum_clock_error(0.0, 1e-3, 0.9))


def test_curvature_of_a_chain_is_that_of_its_hessian(values: dict[str, Any]):
    """Reduced and normal eigenvalues together are those of the full Hessian, 47 of 47."""
    b = np.array([[1.036746, 0.40108], [0.853028, 0.793], [0.582928, 0.692448]])
    d, s = np.array([0.6, 1.3]), np.array([1.1, 0.7])
    widths = (3, 4, 5, 3)
    reduced, normal = exact.chain_sharpness(b, s, d, widths=widths)
    wanted = values["curvature_depth3"]
    ends = [reduced.max(), reduced.min(), normal.max(), normal.min()]
    names = ("reduced_max", "reduced_min", "normal_max", "normal_min")
    np.testing.assert_allclose(ends, [wanted[name] for name in names], RTOL)

    graph = gdln.Graph.chain(widths)
    inputs, targets = np.zeros((3, 3)), np.zeros((3, 3))
    inputs[:2, :2], targets[:2, :2] = np.diag(np.sqrt(3 * d)), np.diag(np.sqrt(3) * s / np.sqrt(d))
    inputs[2, 2] = np.sqrt(3 * 0.2)
    data = gdln.GatedData({"x": inputs}, {"y": targets})
    start = {e.name: np.zeros(graph.shape(e.name)) for e in graph.edges}
    for edge, row in zip(graph.edges, b, strict=True):
        start[edge.name][:2, :2] = np.diag(row)
    flat, unravel = ravel_pytree(gdln.GatedNetwork(graph, start))
    hessian = jax.jit(jax.hessian(lambda w: gdln.mse(unravel(w), data)))
    full = np.linalg.eigvalsh(hessian(flat))
    reduced, normal = exact.chain_sharpness(b, s, d, widths=widths, empty_variance=0.2)
    np.testing.assert_allclose(np.sort(np.concatenate([reduced, normal])), full, atol=1e-12)

    for name, start in (
        ("curvature_A_start", system_a().b0.values()),
        ("curvature_A_point", ([1.2, 0.5], [0.8, 0.9])),
    ):
        reduced, normal = exact.chain_sharpness(
            np.stack([*start]), np.array([1.5, 0.6]), np.array([0.5, 1.0]), widths=(2, 3, 2)
        )
        np.testing.assert_allclose(reduced, values[name]["reduced"], RTOL)
        np.testing.assert_allclose(normal.max(), values[name]["normal_max"], RTOL)
        np.testing.assert_allclose(normal.min(), values[name]["normal_min"], RTOL)
    with pytest.raises(ValueError, match="one width of at least 2"):
        exact.chain_sharpness(b, s, d, widths=(3, 4))


@pytest.mark.slow
def test_predictive_coding_is_the_energy_at_its_minimum(values: dict[str, Any]):
    graph = gdln.Graph.chain([1, 1, 1, 1])
    weights = {e.name: np.array([[b]]) for e, b in zip(graph.edges, (0.6, 0.8, 1.1), strict=True)}
    net, x = gdln.GatedNetwork(graph, weights), np.sqrt(0.5)
    data = gdln.GatedData({"x": np.array([[x]])}, {"y": np.array([[1 / x]])})
    wanted = values["predictive_coding"]["loss"]
    np.testing.assert_allclose(gdln.predictive_coding(net, data), wanted, RTOL)
    np.testing.assert_allclose(gdln.predictive_coding(net, net.prepare(data)), wanted, RTOL)

    rng = np.random.default_rng(0)
    graph = gdln.Graph.chain([3, 3, 3, 2])
    w = [rng.normal(size=graph.shape(e.name)) for e in graph.edges]
    net = gdln.GatedNetwork(graph, {e.name: m for e, m in zip(graph.edges, w, strict=True)})
    x, y = rng.normal(size=3), rng.normal(size=2)
    # Energy |z1 - W1 x|^2/2 + |z2 - W2 z1|^2/2 + |y - W3 z2|^2/2 at the least-squares z1, z2.
    zero, one = np.zeros((3, 3)), np.eye(3)
    system = np.block([[one, zero], [-w[1], one], [np.zeros((2, 3)), w[2]]])
    given = np.concatenate([w[0] @ x, np.zeros(3), y])
    z = np.linalg.lstsq(system, given, rcond=None)[0]
    data = gdln.GatedData({"x": x[None]}, {"y": y[None]})
    np.testing.assert_allclose(
        gdln.predictive_coding(net, data), 0.5 * np.sum((system @ z - given) ** 2), 1e-12
    )


def test_predictive_coding_is_for_chains_without_gates():
    net = gdln.GatedNetwork.init(
        gdln.Graph({"x": 1, "h": 1, "y": 1}, [("x", "h"), ("h", "y"), ("x", "y")]),
        gdln.init.normal(1.0),
        key=jax.random.key(0),
    )
    one = np.ones((1, 1))
    data = gdln.GatedData({"x": one}, {"y": one})
    with pytest.raises(ValueError, match="a loss for chains"):
        gdln.predictive_coding(net, data)
    chain = gdln.GatedNetwork(gdln.Graph.chain([1, 1]), {"x->y": one})
    with pytest.raises(ValueError, match="without gates"):
        gdln.predictive_coding(chain, gdln.GatedData({"x": one}, {"y": one}, {"y": np.ones(1)}))
