"""Closed forms against the ODEs they solve, the reference values, their inverses and their limits.

Systems: chain mode, unbalanced mode, XoR, margin, contexts, routing and sharing of tests/README.
Tolerance of values: 1e-9 absolute against an ODE solved at 1e-13; of derivatives: 1e-6 relative to
1 + |derivative| against central differences, whose own error is about 1e-9.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gdln_jax import exact


def solve(velocity: Callable[[Any, Any], Any], y0: Any, t: Any, args: Any) -> Any:
    """Return y(t) of y' = velocity(y, args), with t scaled to 1 so that one program fits all."""
    ys = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda _, y, p: t * velocity(y, p)),
        diffrax.Dopri8(),
        0.0,
        1.0,
        None,
        y0,
        args,
        stepsize_controller=diffrax.PIDController(rtol=1e-13, atol=1e-15),
        max_steps=100_000,
    ).ys
    assert ys is not None
    return ys[-1]


def differences(f: Callable[..., Any], cases: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return central differences of f at each case (row) in each argument (column).

    Where ``ends`` is set the argument is at the end of its domain: second-order forward ones.
    """
    slopes = np.zeros_like(cases)
    for i in range(cases.shape[1]):
        h = 1e-5 * np.maximum(1, np.abs(cases[:, i]))
        values = {}
        for k in (-1, 0, 1, 2):
            moved = cases.copy()
            moved[:, i] += h * np.where(ends[:, i], max(k, 0), k)
            values[k] = np.asarray(f(*moved.T))
        forward = (-3 * values[0] + 4 * values[1] - values[2]) / (2 * h)
        slopes[:, i] = np.where(ends[:, i], forward, (values[1] - values[-1]) / (2 * h))
    return slopes


@cache
def slopes_of(f: Callable[..., Any], count: int, modes: tuple[Any, ...] = (jax.grad,)) -> Any:
    """Derivatives in all of `count` arguments, for rows of them; one program for tests of `f`."""

    def slopes(*x: Any) -> Any:
        return [mode(f, tuple(range(count)))(*x) for mode in modes]

    return jax.jit(jax.vmap(slopes))


def assert_gradients(
    f: Callable[..., Any], cases: Any, zero_ends: tuple[int, ...] = (), *, forward: bool = False
) -> None:
    """Compare reverse (and forward) mode with differences; 0 ends the domain of ``zero_ends``.

    All derivatives of these functions are given in forward mode (``jax.custom_jvp``), of which JAX
    makes reverse mode; `forward` compares both.
    """
    cases = np.array(cases, float)
    every = tuple(range(cases.shape[1]))
    ends = np.isin(every, zero_ends) & (cases == 0)
    modes = (jax.grad, jax.jacfwd) if forward else (jax.grad,)
    found = slopes_of(f, cases.shape[1], modes)(*cases.T)
    backward, *rest = (np.array(slopes).T for slopes in found)
    for other in rest:
        np.testing.assert_allclose(backward, other, rtol=1e-10, atol=1e-11)
    wanted = differences(jax.jit(jax.vmap(f)), cases, ends)
    assert np.max(np.abs(backward - wanted) / (1 + np.abs(wanted))) < 1e-6


def random_modes(seed: int, count: int = 12) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    t, s, d = rng.uniform(0, 6, count), rng.normal(size=count), rng.uniform(0, 2, count)
    return [t, s, d]


# ------------------------------------------------------------------ linear mode


def test_linear_mode_solves_its_ode_for_all_signs_decaying_or_growing():
    t, s, d = random_modes(0)
    a0 = np.random.default_rng(1).normal(size=12)
    s[:3], d[:2] = 0.0, 0.0

    def velocity(a, p):
        return 2 * jnp.abs(a) * (p[0] - p[1] * a) / 1.7

    d[3:] += 0.05
    wanted = jax.vmap(partial(solve, velocity))(jnp.array(a0), jnp.array(t), (s, d))
    np.testing.assert_allclose(exact.linear_mode(t, s, d, a0, 1.7), wanted, rtol=0, atol=1e-9)


def test_linear_mode_reference(reference):
    entry = reference["exact"]["linear_hierarchy"]
    s = np.sqrt([7, 3, 1, 1]) / 4
    np.testing.assert_allclose(exact.linear_mode(10.0, s, 0.25, 1e-3), entry["pi_10"], rtol=1e-13)
    times = exact.linear_mode_time(2 * s[:3], s[:3], 0.25, 1e-3)
    np.testing.assert_allclose(times, entry["half_times"], rtol=1e-13)
    loss = jnp.sum((s - 0.25 * exact.linear_mode(5.0, s, 0.25, 1e-3)) ** 2) / (2 * 0.25)
    np.testing.assert_allclose(loss, entry["L_5"], rtol=1e-12)


def test_linear_mode_gradients():
    cases = [
        (3.0, 0.7, 0.25, 0.01, 1.3),
        (0.0, 0.7, 0.25, 0.01, 1.0),
        (3.0, 0.7, 0.25, 5.0, 1.0),
        (3.0, -0.7, 0.25, 0.2, 1.0),
        (3.0, 0.7, 0.25, -0.2, 1.0),
        (3.0, 0.0, 0.25, 0.2, 1.0),
        (3.0, 0.0, 0.0, 0.2, 1.0),
        (3.0, 0.5, 0.0, 0.2, 1.0),
        (-1.0, 0.5, 0.3, 0.2, 1.0),
        (30.0, 0.7, 0.25, 1e-3, 1.0),
    ]
    assert_gradients(exact.linear_mode, cases, zero_ends=(2,), forward=True)


def test_linear_mode_limits_and_rest():
    s, d = np.array([0.7, 0.7, -0.7, 0.0, 0.0]), np.array([0.25, 0.25, 0.25, 0.0, 0.5])
    a0 = np.array([1e-3, 9.0, 0.3, 0.3, 0.3])
    np.testing.assert_allclose(exact.linear_mode(0.0, s, d, a0), a0, rtol=1e-14)
    np.testing.assert_allclose(
        exact.linear_mode(jnp.inf, s, d, a0), [2.8, 2.8, 0, 0.3, 0], rtol=1e-14, atol=1e-12
    )
    # a0 = 0 is a fixed point, which the slightest positive start leaves at rate s.
    assert exact.linear_mode(4.0, 0.7, 0.25, 0.0) == 0
    slope = jax.grad(exact.linear_mode, argnums=3)(4.0, 0.7, 0.25, 0.0)
    np.testing.assert_allclose(slope, np.exp(2 * 0.7 * 4), rtol=1e-12)


# In float32, whose range is the smaller: exponentials overflow and differences vanish there first.
def test_closed_forms_are_finite_at_100_half_times_with_finite_gradients():
    dtype = jnp.float32
    a0 = np.array([[1e-3], [1e-14], [1e-30]])
    half_times = np.array([0, 0.5, 1, 2, 20, 100, np.inf])
    half = np.asarray(exact.linear_mode_time(1.4, 0.7, 0.25, a0))
    t = jnp.asarray((half * np.where(half_times == np.inf, 0, half_times)), dtype)
    t = jnp.where(half_times == np.inf, jnp.inf, t).ravel()
    start = jnp.repeat(jnp.asarray(a0, dtype).ravel(), len(half_times))
    s, d, three = (jnp.full_like(t, x) for x in (0.7, 0.25, 3))
    root = jnp.sqrt(start)
    for f, arguments in [
        (exact.linear_mode, (t, s, d, start)),
        (exact.context_mode, (t, s, d, start, three)),
        (exact.unbalanced_mode, (t, s, d, root, root)),
        (exact.xor_loss, (t, start)),
        (partial(exact.margin_loss, gating="linear"), (t, d, start)),
        (partial(exact.margin_loss, gating="xor"), (t, d, start)),
    ]:
        args = (*arguments, jnp.ones_like(t))  # tau
        both = jax.jit(jax.vmap(jax.value_and_grad(f, tuple(range(len(args))))))
        value, gradient = both(*args)
        assert value.dtype == dtype
        assert np.all(np.isfinite(np.array([value, *gradient])))


def test_linear_time_inverts_the_mode():
    rng = np.random.default_rng(0)
    s = rng.choice([-1, 1], 200) * rng.uniform(1e-3, 2, 200)
    d, t = rng.uniform(0.05, 2, 200), rng.uniform(0, 5, 200)
    a0 = np.where(rng.random(200) < 0.5, rng.uniform(0, 3, 200), 10 ** rng.uniform(-12, 0, 200))
    a = np.asarray(exact.linear_mode(t, s, d, a0))
    # The inverse is as well conditioned as the mode moves: dt = da / (2 a (s - d a)).
    speed = np.abs(2 * a * (s - d * a))
    error = np.abs(np.asarray(exact.linear_mode_time(a, s, d, a0)) - t)
    assert np.all((error < 1e-9) | (error * speed < 1e-13 * (1 + a)))


def test_linear_time_never_reached_is_inf_with_gradient_0():
    for args in [(3.0, 0.7, 0.25, 0.1), (-0.1, 0.7, 0.25, 0.1), (0.2, 0.0, 0.0, 0.1)]:
        assert exact.linear_mode_time(*args) == jnp.inf
        assert not np.any(jax.grad(exact.linear_mode_time, argnums=(0, 1, 2, 3))(*args))
    assert exact.linear_mode_time(2.8, 0.7, 0.25, 2.8) == 0
    assert exact.linear_mode_time(0.05, 0.7, 0.25, 0.1) < 0
    cases = [(0.3, 0.7, 0.25, 0.01, 1.3), (0.3, 0.0, 0.25, 0.7, 1.0), (0.3, -0.8, 0.25, 0.7, 1.0)]
    assert_gradients(exact.linear_mode_time, cases)


@pytest.mark.slow
def test_second_derivatives_are_right():
    """The Hessian times one direction, against differences of the gradient along it."""
    point, along = np.array([3.0, 0.7, 0.25, 0.01]), np.array([0.6, -0.5, 0.4, 0.3])

    def slope(x: Any) -> Any:
        return jax.grad(lambda x: exact.linear_mode(*x))(x)

    gradient, both = jax.jit(slope), jax.jit(lambda x, v: jax.jvp(slope, (x,), (v,))[1])
    h = 1e-5
    wanted = (gradient(point + h * along) - gradient(point - h * along)) / (2 * h)
    assert np.max(np.abs(both(point, along) - wanted) / (1 + np.abs(wanted))) < 1e-6


# ------------------------------------------------------------------ unbalanced and contextual modes


def test_unbalanced_mode_solves_the_ode_of_both_weights():
    t, s, d = random_modes(2)
    rng = np.random.default_rng(3)
    w1, w2 = rng.normal(size=(2, 12))
    s[0], w1[1], w2[2], w1[3], w1[4] = 0.0, 0.0, 0.0, -w2[3], w2[4]

    def velocity(w, p):
        gap = p[0] - p[1] * w[0] * w[1]
        return jnp.array([w[1], w[0]]) * gap

    start = jnp.stack([jnp.array(w1), jnp.array(w2)], axis=1)
    wanted = jax.jit(jax.vmap(partial(solve, velocity)))(start, jnp.array(t), (s, d))
    got = jax.jit(exact.unbalanced_mode)(t * 1.7, s, d, w1, w2, 1.7)
    np.testing.assert_allclose(got, wanted[:, 0] * wanted[:, 1], rtol=0, atol=1e-9)
    moving = np.abs(got - s / d) > 1e-6  # else its time is lost in the rounding of w
    error = np.abs(exact.unbalanced_mode_time(got, s, d, w1, w2) - t)[moving]
    assert moving.sum() >= 10
    assert error.max() < 1e-8


def test_unbalanced_mode_reference_and_balanced_limit(reference):
    half_time = reference["exact"]["unbalanced_mode"]["t"]
    s = np.sqrt(7) / 4
    assert abs(exact.unbalanced_mode_time(2 * s, s, 0.25, 1e-3, 0.5) - half_time) < 1e-13
    assert abs(exact.unbalanced_mode(half_time, s, 0.25, 1e-3, 0.5) - 2 * s) < 1e-13
    t = np.linspace(0, 40, 9)
    for scale in (1e-2, 1e-15):
        np.testing.assert_allclose(
            exact.unbalanced_mode(t, s, 0.25, scale, scale),
            exact.linear_mode(t, s, 0.25, scale**2),
            rtol=1e-11,
        )


def test_unbalanced_mode_gradients():
    cases = [
        (3.0, 0.7, 0.25, 0.01, 0.3, 1.3),
        (3.0, -0.7, 0.25, 0.01, 0.3, 1.0),
        (3.0, 0.7, 0.25, -0.3, 0.3, 1.0),
        (1.0, 0.0, 0.25, 0.3, 0.3, 1.0),
        (1.0, 0.0, 0.0, 0.3, 0.3, 1.0),
        (0.0, 0.7, 0.25, 0.3, -0.2, 1.0),
    ]
    assert_gradients(exact.unbalanced_mode, cases, zero_ends=(2,))


def test_unbalanced_time_gradients_and_levels_never_reached():
    cases = [
        (0.3, 0.7, 0.25, 0.01, 0.3),
        (0.3, 0.7, 0.25, -0.5, 0.3),
        (-1.0, -0.7, 0.25, 0.2, 0.3),
    ]
    assert_gradients(exact.unbalanced_mode_time, cases, forward=True)
    never = [(3.0, 0.7, 0.25, 0.1, 0.2), (0.1, 0.7, 0.25, -0.2, 0.2), (0.1, 0.7, 0.25, 0.0, 0.0)]
    for args in never:
        assert exact.unbalanced_mode_time(*args) == jnp.inf
        assert not np.any(jax.grad(exact.unbalanced_mode_time, argnums=(0, 1, 2))(*args))


def test_context_mode_reference_and_e17(reference):
    s = np.sqrt(2 / 3) * np.sqrt([7, 3, 1])
    got = exact.context_mode(4.0, s, 2.0, 1e-5, 3)
    np.testing.assert_allclose(got, reference["exact"]["contexts"]["C3"], rtol=1e-13)
    for c in (2, 4, 5):
        limit = (c - 1) * s / 2.0
        formula = limit / (1 - (1 - limit / 1e-2) * np.exp(-2 * s * 1.5))
        np.testing.assert_allclose(exact.context_mode(1.5, s, 2.0, 1e-2, c), formula, rtol=1e-13)
    assert_gradients(exact.context_mode, [(3.0, 0.7, 0.25, 0.01, 4.0, 1.2)])


# ------------------------------------------------------------------ XoR and margin


def test_xor_reference(reference):
    entry = reference["exact"]["xor"]
    got = exact.xor_loss(np.array(entry["t"], float), 2e-4, 2.5)
    np.testing.assert_allclose(got, entry["L"], rtol=0, atol=1e-9)
    a = exact.linear_mode(7.0, np.sqrt(2) / 4, 0.5, 0.1)
    np.testing.assert_allclose(
        exact.xor_loss(7.0, 0.1), 0.5 - np.sqrt(2) * a + a**2, rtol=0, atol=1e-15
    )
    assert_gradients(exact.xor_loss, [(7.0, 0.1, 1.4)])


@pytest.mark.parametrize("gating", ["linear", "xor"])
def test_margin_loss_is_the_loss_of_the_task_itself(gating):
    """theory#xor and E15, from the data: four examples, gates, half mean squared error."""
    delta, t, a0 = 0.6, 9.0, 0.02
    x = np.array([[-1, 1, -1, 1], [-1, -1, 1, 1], [-delta, delta, delta, -delta]])
    y = np.array([-1, 1, 1, -1.0])
    gates = np.eye(4) if gating == "xor" else np.array([y > 0, y < 0], float)

    def loss(weights):
        first, second = weights[:, :3], weights[:, 3]
        output = jnp.einsum("pi,p,pn,in->n", first, second, gates, x)
        return jnp.mean((output - y) ** 2) / 2

    sigma = (gates * y) @ x.T / 4
    frames = sigma / np.linalg.norm(sigma, axis=1, keepdims=True)
    start = np.sqrt(a0) * np.concatenate([frames, np.ones((len(gates), 1))], axis=1)
    weights = solve(lambda w, _: -jax.grad(loss)(w), jnp.array(start), t, None)
    got = exact.margin_loss(t, delta, a0, gating=gating)
    assert abs(got - loss(weights)) < 1e-10
    cases = [(t, delta, a0, 1.3), (t, 0.0, a0, 1.3)]
    assert_gradients(lambda t, x, *rest: exact.margin_loss(t, x, *rest, gating=gating), cases)
    if gating == "linear":
        assert exact.margin_loss(t, 0.0, a0, gating=gating) == 0.5


def test_margin_reference_times(reference):
    entry = reference["exact"]["margin"]["t_L_0.2"]["delta_0.4"]
    for gating, wanted in entry.items():
        got = exact.margin_time(0.2, 0.4, 2e-8, 2.5, gating=gating)
        np.testing.assert_allclose(got, wanted, rtol=1e-13)
        np.testing.assert_allclose(
            exact.margin_loss(got, 0.4, 2e-8, 2.5, gating=gating), 0.2, rtol=1e-12
        )
        assert_gradients(partial(exact.margin_time, gating=gating), [(0.2, 0.4, 1e-2, 1.3)])
    assert exact.margin_time(0.2, 0.0, 1e-3, gating="linear") == jnp.inf


def test_margin_crossover(reference):
    entry = reference["exact"]["margin"]["crossover_equal_a0_at_L_0.2"]
    limit = np.sqrt(2 / 3)
    a0 = np.array([1e-3, 1e-8, 1e-30, 1e-100, 1e-300])
    found = np.asarray(exact.margin_crossover(np.append(a0, 4e-8)))
    np.testing.assert_allclose(found[1], entry["a0_1e-8"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[-1], entry["a0_4e-8"], rtol=0, atol=1e-10)
    gap = found[:-1] - limit
    assert np.all(np.diff(gap) < 0)
    # The approach is logarithmic: gap * ln(1/a0) tends to a constant.
    assert abs(gap[-1] * np.log(1e300) / (gap[-2] * np.log(1e100)) - 1) < 0.01
    levels = np.array([0.4, 0.2, 0.01])
    equal = exact.margin_crossover(a0[:, None], levels, equal="total_units")
    np.testing.assert_allclose(equal, limit, rtol=0, atol=1e-14)
    assert np.isnan(exact.margin_crossover(0.3, 0.3))


@pytest.mark.slow
def test_margin_crossover_gradients():
    f = jax.jit(jax.value_and_grad(exact.margin_crossover, argnums=(0, 1)))
    x = np.array([1e-3, 0.2])
    for got, step in zip(f(*x)[1], np.diag([1e-7, 1e-6]), strict=True):
        wanted = (f(*(x + step))[0] - f(*(x - step))[0]) / (2 * step.max())
        assert abs(got - wanted) < 1e-6 * (1 + abs(wanted))


# ------------------------------------------------------------------ routing and sharing

ROUTING = {
    # t, s, d, b0, M, c
    "grows": (5.0, 0.7, 0.25, 0.2, 7.0, 0.24),
    "grows, C = 0": (20.0, 0.7, 0.25, 0.2, 7.0, 0.0),
    "grows, C < 0": (20.0, 0.7, 0.25, 0.2, 7.0, -0.03),
    "grows from 0": (3.0, 0.7, 0.25, 0.0, 3.0, 0.3),
    "starts at 0 with s = 0": (3.0, 0.0, 0.25, 0.0, 3.0, 0.3),
    "converged": (60.0, 0.7, 0.25, 0.2, 7.0, 0.24),
    "decays": (5.0, 0.7, 0.25, 4.0, 3.0, 0.24),
    "decays, C = 0": (5.0, 0.7, 0.25, 4.0, 3.0, 0.0),
    "decays, C < 0": (5.0, 0.7, 0.25, 4.0, 3.0, -5.0),
    "decays from far": (0.5, 1e-3, 0.25, 100.0, 3.0, 0.1),
    "against s, C = 0": (5.0, -0.7, 0.25, 0.4, 3.0, 0.0),
    "against s, C < 0": (5.0, -0.7, 0.25, 0.4, 3.0, -0.1),
    "against s, C > 0, before 0": (1.0, -0.7, 0.25, 0.4, 3.0, 0.3),
    "against s, C > 0, past 0": (9.0, -0.7, 0.25, 0.4, 3.0, 0.3),
    "negative start": (9.0, 0.7, 0.25, -0.4, 3.0, 0.3),
    "s = 0, C > 0": (5.0, 0.0, 0.25, 2.0, 3.0, 0.3),
    "s = 0, C = 0": (5.0, 0.0, 0.25, 2.0, 3.0, 0.0),
    "s = 0, C < 0": (5.0, 0.0, 0.25, 2.0, 3.0, -1.0),
    "s = d = 0": (5.0, 0.0, 0.0, 2.0, 3.0, -1.0),
    "d = 0": (0.5, 0.7, 0.0, 0.5, 3.0, 1.0),
    "d = 0, C = 0": (0.5, 0.7, 0.0, 0.5, 3.0, 0.0),
    "d = 0, C < 0": (0.2, 0.7, 0.0, 2.0, 3.0, -1.0),
    "d = 0, against s": (9.0, -0.7, 0.0, 0.4, 3.0, 0.3),
    "t = 0": (0.0, 0.7, 0.25, 0.2, 7.0, 0.24),
    "M = 1": (5.0, 0.7, 0.25, 0.2, 1.0, 0.1),
}
_routing = jax.jit(exact.routing_mode)


def routing(t: Any, s: Any, d: Any, b0: Any, m: Any, c: Any, tau: Any = 1.0) -> Any:
    """`exact.routing_mode` by one program for all of these tests, of 25 rows where that will do."""
    return _routing(t, s, d, b0, m, tau, c=c)


routing_inverse = jax.jit(lambda b, s, d, b0, m, c: exact.routing_time(b, s, d, b0, m, c=c))


def routing_velocity(x, p):
    s, d, m, c = p
    return (x**2 + c) * (s - d / m * x * (x**2 + c)) / m


def test_modes_known_to_grow_are_solved_without_the_rest_to_the_same_values():
    # Rows: two signs, a shift, a start at 0, one that decays with a shift through 0. The last row
    # makes it all regimes; both programs give one value, also at -1, 0 and inf.
    t = np.array([-1.0, 0.0, 0.3, 4.0, 30.0, np.inf])
    rows = np.array([[3, 0.1, 0], [-3, -0.1, 0.2], [2, 0, 0.1], [-2, 0, 0.3], [-2, 0.1, 0.3]])
    s, b0, c = rows.T[..., None]
    full = np.asarray(routing(t, s, 1.0, b0, 7.0, c))
    grown = exact.routing_mode(t, s[:4], 1.0, b0[:4], 7.0, c=c[:4])
    np.testing.assert_allclose(grown, full[:4], rtol=1e-13, atol=1e-14)
    every = exact.routing_mode(t, s, 1.0, b0, 7.0, c=c)
    np.testing.assert_allclose(every, full, rtol=1e-13, atol=1e-14)
    assert np.all(np.isnan(full) == (t < 0))


def test_routing_mode_solves_eq_15_in_every_regime():
    t, s, d, b0, m, c = np.array(list(ROUTING.values())).T
    solved = jax.jit(jax.vmap(partial(solve, routing_velocity)))
    wanted = solved(jnp.array(b0), jnp.array(t), (s, d, m, c))
    got = routing(1.7 * t, s, d, b0, m, c, 1.7)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_routing_gradients_in_every_regime():
    # At b0 = 0 the domain of c ends at 0; where it does not, differences from above do as well.
    assert_gradients(routing, list(ROUTING.values()), zero_ends=(0, 2, 5))


def test_routing_time_inverts_the_mode():
    t, *rest = np.array(list(ROUTING.values())).T
    b = routing(t, *rest)
    moved = (b != rest[2]) & ~np.isin(list(ROUTING), ["converged", "s = d = 0"])
    assert moved.sum() >= len(ROUTING) - 5
    np.testing.assert_allclose(routing_inverse(b, *rest)[moved], t[moved], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_routing_time_gradients():
    names = ["grows", "decays", "negative start", "against s, C < 0", "d = 0, C < 0"]
    cases = np.array([ROUTING[name] for name in names])
    # Early, where the level still moves: near the limit differences of the time are worthless.
    cases[:, 0] = routing(0.1 * cases[:, 0], *cases[:, 1:].T)
    assert_gradients(routing_inverse, cases, zero_ends=(2,))


def test_routing_time_is_the_sum_over_roots_of_science_4():
    """T = sum over the roots r of q of M/q'(r) ln((B2 - r)/(b0 - r)), in complex arithmetic."""
    for s, d, b0, m, c, b in [
        (0.7, 0.25, 0.2, 7, 0.24, 2.0),
        (0.7, 0.25, 0.2, 7, -0.03, 2.0),
        (0.7, 0.25, 4.0, 3, 0.24, 2.5),
        (0.7, 0.25, -0.4, 3, 0.3, 1.0),
    ]:
        square = np.polynomial.Polynomial([c, 0, 1])
        q = square * (s - d / m * np.polynomial.Polynomial([0, 1]) * square)
        roots = q.roots().astype(complex)
        terms = m / q.deriv()(roots) * (np.log(b - roots) - np.log(b0 - roots))
        # ln(b - r) - ln(b0 - r) takes the branch that is continuous for b from b0 on the real line.
        assert abs(exact.routing_time(b, s, d, b0, m, c=c) - np.sum(terms).real) < 1e-9


HALF_TRACE = {"half_trace": 30.5}


@pytest.mark.slow
def test_routing_reference(reference):
    entry = reference["exact"]["routing_M7_B0_0.2"]
    s = np.array([np.sqrt(185), np.sqrt(41), 3, 3]) / 4
    one, three = entry["mode_1_B2"], entry["mode_3_B2"]
    t = np.array([*one["t"], *three["t"], np.inf])
    strengths = np.repeat(s[[0, 2, 0]], [len(one["t"]), len(three["t"]), 1])
    *found, b2 = np.asarray(routing(t, strengths, 0.25, 0.2, 7.0, 0.24))
    np.testing.assert_allclose(found, [*one["B2"], *three["B2"]], rtol=0, atol=2e-11)
    times, fractions = entry["loss"]["t"], entry["time_to_fraction_of_L0"]
    t = np.array([*times, *fractions.values()], float)

    @jax.jit
    def losses(t: Any) -> Any:
        # All of the target is explained: half its variance is the default.
        return [exact.routing_loss(t, s, 0.25, 0.2, 7, c=0.24, **k) for k in ({}, HALF_TRACE)]

    loss, given = losses(t)
    np.testing.assert_allclose(loss[: len(times)], entry["loss"]["L"], rtol=0, atol=5e-11)
    np.testing.assert_allclose(loss[len(times) :] / loss[0], [*map(float, fractions)], rtol=1e-6)
    np.testing.assert_allclose(given, loss, rtol=0, atol=1e-12)
    ratio = b2 / np.sqrt((b2**2 + 0.24) / 7)
    np.testing.assert_allclose(ratio, entry["final_ratio_B2_B1_mode_1"], rtol=1e-8)
    levels = [reference["exact"]["routing_C0"][f"t_B2_{n}"] for n in (1, 4)]
    got = routing_inverse(np.array([1.0, 4.0]), s[0], 0.25, 0.2, 7.0, 0.0)
    np.testing.assert_allclose(got, levels, rtol=1e-8)


@pytest.mark.slow
def test_routing_is_finite_at_100_half_times_with_finite_gradients():
    dtype = jnp.float32
    b0 = np.repeat([1e-8, 1e-3, 0.2], 2)
    c = np.array([0, 6] * 3) * b0**2
    rest = [jnp.asarray(x, dtype) for x in np.broadcast_arrays(0.7, 0.25, b0, 7.0, c)]
    half = routing_inverse(jnp.full(6, 1.3, dtype), *rest)
    gradients = jax.jit(jax.vmap(jax.grad(routing, tuple(range(6)))))
    for factor in (0, 0.5, 1, 2, 10, 100, np.inf):
        t = jnp.full(6, jnp.inf, dtype) if factor == np.inf else half * dtype(factor)
        value = routing(t, *rest)
        assert value.dtype == dtype
        assert np.all(np.isfinite(np.array([value, *gradients(t, *rest)])))
    product = value * (value**2 + rest[4]) / 7
    np.testing.assert_allclose(product, 2.8, rtol=20 * float(jnp.finfo(dtype).eps))
    # At rest: decay to 0 with s = 0 and against s, and from 0, where rates are 0/0.
    late = [
        (1e5, 0, 1, 0.5, 1, 0.3),
        (jnp.inf, 0, 1, -0.5, 4, 1),
        (jnp.inf, -1, 1, 0.5, 4, 0),
        (jnp.inf, 1, 0, -0.5, 4, 0),
        (jnp.inf, 1, 1, 0, 4, 0),
        (1, 0, 1, 0, 4, 0.3),
    ]
    columns = [jnp.asarray(x, dtype) for x in zip(*late, strict=True)]
    np.testing.assert_allclose(routing(*columns), 0, atol=1e-9)
    assert np.isfinite(gradients(*columns)).all()


@pytest.mark.slow
def test_routing_second_derivative_in_the_start():
    def f(b0):
        return routing(5.0, 0.7, 0.25, b0, 7.0, 0.24)

    slopes = jax.jit(jax.value_and_grad(jax.grad(f)))
    wanted = (slopes(0.2 + 1e-5)[0] - slopes(0.2 - 1e-5)[0]) / 2e-5
    np.testing.assert_allclose(slopes(0.2)[1], wanted, rtol=1e-7)


def test_routing_never_reached():
    never = np.array(
        [
            (5.0, 0.7, 0.25, 0.2, 7.0, 0.24),
            (1.0, 0.7, 0.25, 4.0, 3.0, 0.24),
            (-0.1, -0.7, 0.25, 0.4, 3.0, 0.0),
            (0.2, -0.7, 0.25, 0.4, 3.0, -0.1),
            (0.3, 0.7, 0.25, 0.0, 3.0, 0.0),
        ]
    )
    rows = np.resize(never, (len(ROUTING), 6)).T
    np.testing.assert_array_equal(routing_inverse(*rows), np.inf)
    np.testing.assert_array_equal(slopes_of(routing_inverse, 6)(*never.T), 0)
    outside = [
        (-1.0, 0.7, 0.25, 0.2, 7.0, 0.0),
        (1.0, 0.7, 0.25, 0.2, 7.0, -1.0),
        (1e3, 0.7, 0.0, 0.5, 3.0, 1.0),
    ]
    found = np.asarray(routing(*np.resize(outside, (len(ROUTING), 6)).T))
    np.testing.assert_array_equal(found[:3], [np.nan, np.nan, np.inf])


@pytest.mark.slow
def test_routing_vmap_equals_broadcast_equals_loop():
    t, b0 = np.linspace(0, 20, 5), np.array([0.1, 0.2, 0.3, 2.0, 3.0])
    table = routing(t[:, None], 0.7, 0.25, b0, 7.0, 0.1)
    rows = [np.ravel(x) for x in np.broadcast_arrays(t[:, None], 0.7, 0.25, b0, 7.0, 0.1)]
    for same in (routing(*rows), jax.jit(jax.vmap(routing))(*rows)):
        np.testing.assert_allclose(same.reshape(5, 5), table, rtol=1e-14)
    loop = [routing(*(float(x[k]) for x in rows)) for k in (1, 9, 18, 24)]
    np.testing.assert_allclose(loop, table.ravel()[np.array([1, 9, 18, 24])], rtol=1e-13)


def test_sharing_solves_eq_16_17_and_meets_the_reference(reference):
    m, p, s, d, b0, t = 10.0, 4.0, 0.9, 0.25, 0.2, 60.0

    def velocity(b, _):
        gap = s - b[1] * b[0] ** 2 * d
        return jnp.array([2.0 / m**2 * b[1] * b[0] * gap, p / m**2 * b[0] ** 2 * gap])

    wanted = jax.jit(lambda t: solve(velocity, jnp.array([b0, b0]), t, None))(t)
    sharing = jax.jit(exact.sharing_mode)
    b1, b2 = sharing(np.full(3, 1.7 * t), np.full(3, s), d, b0, 10.0, 4.0, 1.7)
    np.testing.assert_allclose([b1[0], b2[0]], wanted, rtol=0, atol=1e-10)
    strengths = np.array([np.sqrt(185), np.sqrt(41), 3]) / 4
    for paths in (1.0, 100.0):
        times = np.array(reference["exact"]["sharing_M10"][f"P{paths:.0f}"])
        mode = sharing(times, strengths, 0.25, 0.2, 10.0, paths, 1.0)
        np.testing.assert_allclose(mode.product, 2 * strengths, rtol=1e-10)


@pytest.mark.slow
def test_sharing_gradients():
    case = (60.0, 0.9, 0.25, 0.2, 10.0, 4.0, 1.2)
    # Where B1 is a root of 0: a mode that starts at 0, and one that has decayed to 0.
    rows = jnp.array([case, (2, 1, 1, 0, 4, 4, 1), (jnp.inf, -1, 1, 0.5, 4, 1, 1)])

    def parts(x: Any) -> Any:
        mode = exact.sharing_mode(*x)
        return jnp.stack([mode.product, mode.b1])

    slopes = np.asarray(jax.jit(jax.vmap(jax.jacrev(parts)))(rows))
    assert np.isfinite(slopes).all()
    product = jax.jit(jax.vmap(lambda *x: exact.sharing_mode(*x).product))
    wanted = differences(product, np.array([case]), np.zeros((1, 7), bool))[0]
    assert np.max(np.abs(slopes[0, 0] - wanted) / (1 + np.abs(wanted))) < 1e-6


def test_sharing_times_go_as_paths_to_minus_two_thirds_when_balanced():
    """Same initial product, B2^2 = sqrt(P) B1^2: sharing is routing with M = sqrt(P), C = 0."""
    product0, s, d, m = 1e-3, 0.9, 0.25, 10
    times = []
    for p in (1, 4, 25, 100):
        root = np.sqrt(p)
        b0, end = np.cbrt(product0 * root), np.cbrt(s / (2 * d) * root)
        times.append(exact.routing_time(end, s, d, b0, root, m**2 / p))
    slopes = np.log(np.array(times[1:]) / times[0]) / np.log([4, 25, 100])
    np.testing.assert_allclose(slopes, -2 / 3, rtol=1e-12)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: exact.linear_mode(1.0, 1.0, 1.0, 0.1, -1.0), "tau is -1.0"),
        (lambda: exact.xor_loss(1.0, 0.1, np.array([1.0, np.inf])), "tau is inf"),
        (lambda: exact.two_layer_flow(1.0, np.eye(2), np.eye(2), np.eye(2), 0.0), "tau is 0.0"),
        (
            lambda: exact.margin_loss(1.0, 0.5, 0.1, gating="lineal"),
            "gating.*did you mean 'linear'",
        ),
        (lambda: exact.margin_loss(1.0, -0.5, 0.1, gating="xor"), "delta is -0.5"),
        (lambda: exact.margin_crossover(1e-3, equal="weights"), "equal"),
        (lambda: exact.margin_crossover(1e-3, 0.5), "level is 0.5"),
        (lambda: exact.margin_crossover(0.0), "a0 is 0.0"),
        (lambda: exact.context_mode(1.0, 1.0, 1.0, 0.1, 1), "num_contexts is 1"),
        (lambda: exact.routing_mode(1.0, 1.0, 1.0, 0.1, 0), "num_domains is 0"),
        (lambda: exact.routing_mode(1.0, 1.0, 1.0, 0.1, 3, c=-1.0), "c is below -b0"),
        (lambda: exact.sharing_mode(1.0, 1.0, 1.0, 0.1, 10, 9), "square root must be an integer"),
        (lambda: exact.sharing_mode(1.0, 1.0, 1.0, 0.1, 10, 5), "square root must be an integer"),
    ],
)
def test_refusals_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_float32_without_x64(plainly):
    said = plainly(
        "import jax\nfrom gdln_jax import exact\n"
        "with jax.enable_x64(False):\n"
        "    print(exact.linear_mode(5.0, 0.7, 0.25, 1e-3).dtype)\n"
        "    print(exact.routing_mode(5.0, 0.7, 0.25, 0.2, 7).dtype)"
    )
    assert said.split() == ["float32", "float32"]


def test_what_is_no_number_and_no_array_is_named(refused_plainly):
    """Without the run-time checks, which would speak first."""
    snippet = """
from gdln_jax import exact
attempts = [
    (lambda: exact.linear_mode([0.0, 1.0], 1.0, 1.0, 0.1), "[0.0, 1.0] is none: pass an array"),
    (lambda: exact.linear_mode("1", 1.0, 1.0, 0.1), "pass a number"),
    (lambda: exact.two_layer_flow([0.0], 1.0, 1.0, 1.0), "[0.0] is none: pass an array"),
    (lambda: exact.two_layer_sequence([0.0], 1.0, 1.0, [], []), "[0.0] is none: pass an array"),
]
"""
    refused_plainly(snippet)
