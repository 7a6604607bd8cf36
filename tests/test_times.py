"""``time_to``: crossings from closed forms and from ODEs, their derivatives, and what fools them.

Systems: chain mode (half times from 1e-3 to 1e-30), XoR and its margin (tests/README).
"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gdln_jax import Crossing, exact, time_to, unlearned, until_learned

S, D = 0.7, 0.25


def velocity(_, a, args):
    s, d = args
    return 2 * a * (s - d * a)


@eqx.filter_jit
def flow_time(level, a0, s, d, t1=1e3, **options):
    return time_to(
        level, ode=velocity, y0=a0, args=(s, d), measure=lambda _, a, __: a, t1=t1, **options
    )


def curve_time(level, a0, s, d):
    return time_to(level, curve=lambda t: exact.linear_mode(t, s, d, a0))


def inverse(level, a0, s, d):
    return exact.linear_mode_time(level, s, d, a0)


# ------------------------------------------------------------------ from closed forms


def test_curve_reference_times(reference):
    entry = reference["exact"]["xor"]
    got = time_to(jnp.array([0.25, 0.01, 0.6]), curve=lambda t: exact.xor_loss(t, 2e-4, 2.5))
    np.testing.assert_allclose(
        got.time[:2], [entry["t_at_L_0.25"], entry["t_at_L_0.01"]], rtol=1e-11
    )
    assert got.time[2] == jnp.inf
    assert got.reached.tolist() == [True, True, False]
    assert "reached 2 of 3" in repr(got)


CURVES = np.array([(1.0, 1e-3, S, D), (1.0, 1e-8, S, D), (1.0, 1e-30, S, D), (3.0, 9.0, S, D)])
EVERY = (0, 1, 2, 3)
BOTH = (jax.grad, jax.jacfwd)


def test_curve_times_and_derivatives_are_those_of_the_inverse():
    def time(*x):
        return curve_time(*x).time

    def read(f):
        return jax.jit(jax.vmap(lambda *x: [g(*x) for g in (f, *(t(f, EVERY) for t in BOTH))]))

    (got, *slopes), (wanted, *theirs) = read(time)(*CURVES.T), read(inverse)(*CURVES.T)
    np.testing.assert_allclose(got, wanted, rtol=1e-14)
    for ours, known in zip(slopes, theirs, strict=True):
        np.testing.assert_allclose(ours, known, rtol=1e-9)


@pytest.mark.slow
def test_curve_second_derivatives_are_those_of_the_inverse():
    def hessian(f):
        blocks = np.array(jax.jit(jax.vmap(jax.hessian(f, EVERY)))(*CURVES.T))
        # In logarithms of the parameters: entries of 1e60 and 1 stand side by side otherwise.
        return np.moveaxis(blocks, 2, 0) * CURVES[:, :, None] * CURVES[:, None, :]

    got, wanted = hessian(lambda *x: curve_time(*x).time), hessian(inverse)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_curve_derivative_is_the_same_for_args_as_for_closed_over():
    def f(p):
        return time_to(1.0, curve=lambda t, p: exact.linear_mode(t, p[1], D, p[0]), args=p).time

    def closed_over(p):
        return curve_time(1.0, p[0], p[1], D).time

    ours, theirs = jax.jit(lambda p: [jax.grad(one)(p) for one in (f, closed_over)])((1e-3, S))
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_curve_vmap():
    a0 = jnp.array([1e-3, 1e-8, 5.0])
    got = jax.vmap(lambda a: curve_time(1.0, a, S, D))(a0)
    np.testing.assert_allclose(got.time, exact.linear_mode_time(1.0, S, D, a0), rtol=1e-13)
    assert got.reached.tolist() == [True, True, False]


def test_margin_time_in_delta():
    for gating in ("linear", "xor"):

        def f(x, g=gating):
            return time_to(0.2, curve=lambda t: exact.margin_loss(t, x, 1e-8, gating=g)).time

        both = jax.jit(jax.value_and_grad(f))
        wanted = (both(0.4 + 1e-5)[0] - both(0.4 - 1e-5)[0]) / 2e-5
        assert abs(both(0.4)[1] / wanted - 1) < 1e-8


@pytest.mark.slow
def test_crossover_of_the_gatings_found_by_differentiating_times(reference):
    """H Fig. 2: Newton's method in Delta on the difference of two crossing times."""

    def lead(delta, a0):
        times = [
            time_to(0.2, curve=lambda t, g=g: exact.margin_loss(t, delta, a0, gating=g)).time
            for g in ("linear", "xor")
        ]
        return times[0] - times[1]

    newton = jax.jit(lambda x, a0: x - lead(x, a0) / jax.grad(lead)(x, a0))
    found = []
    for a0 in (1e-3, 1e-8, 1e-30, 1e-100):
        delta = 0.85
        for _ in range(6):
            delta = newton(delta, a0)
        found.append(float(delta))
    entry = reference["exact"]["margin"]["crossover_equal_a0_at_L_0.2"]
    assert abs(found[1] - entry["a0_1e-8"]) < 1e-10
    gaps = np.array(found) - np.sqrt(2 / 3)
    assert np.all(np.diff(gaps) < 0)
    assert 0 < gaps[-1] < 0.004
    # As a function of a0, by the implicit function theorem.
    slope = -jax.grad(lead, 1)(found[1], 1e-8) / jax.grad(lead, 0)(found[1], 1e-8)
    np.testing.assert_allclose(slope, jax.grad(exact.margin_crossover)(1e-8), rtol=1e-7)


def test_never_reached_is_inf_without_nan():
    time = jax.jit(jax.value_and_grad(lambda a: curve_time(3.0, a, S, D).time))
    got, gradient = time(1e-3)
    assert got == jnp.inf
    assert gradient == 0
    # Exactly the limit is not reached either, and a loss above L(0) never was there.
    assert not time_to(0.51, curve=lambda t: exact.xor_loss(t, 1e-3)).reached


def test_start_end_and_search():
    curve = jnp.sin
    assert time_to(0.0, curve=curve).time == 0
    assert time_to(np.sin(1.0), curve=curve, t0=1.0).time == 1.0
    np.testing.assert_allclose(time_to(0.5, curve=curve, t1=1.0).time, np.pi / 6, rtol=1e-14)
    assert not time_to(0.5, curve=curve, t1=0.5).reached
    late = time_to(0.5, curve=curve, search=np.linspace(2, 4, 5))
    np.testing.assert_allclose(late.time, 5 * np.pi / 6, rtol=1e-14)
    np.testing.assert_allclose(
        time_to(-0.5, curve=curve, t0=0.1, search=np.linspace(0.1, 6, 50)).time, 7 * np.pi / 6
    )


def test_float32_curve_is_solved_to_its_own_rounding():
    half = time_to(
        np.float32(1.0), curve=lambda t: exact.linear_mode(t, np.float32(S), np.float32(D), 1e-30)
    )
    assert half.time.dtype == jnp.float32
    assert abs(half.time / exact.linear_mode_time(1.0, S, D, 1e-30) - 1) < 4e-7


# ------------------------------------------------------------------ from ODEs


@pytest.mark.parametrize("a0", [1e-3, 1e-14, 1e-30])
def test_ode_half_times_from_any_plateau_at_default_tolerances(a0):
    """With an absolute tolerance above a0 this is late by up to 25 %."""
    level = S / D / 2
    got = flow_time(level, a0, S, D)
    wanted = exact.linear_mode_time(level, S, D, a0)
    assert got.reached
    assert abs(got.time / wanted - 1) < 1e-9


def test_ode_derivatives_in_everything():
    """A boolean event would give 0."""
    every, args = (0, 1, 2, 3), (1.0, 1e-9, S, D)
    theirs = jax.jit(jax.grad(inverse, every))(*args)
    got = jax.grad(lambda *x: flow_time(*x).time, every)(*args)
    np.testing.assert_allclose(got, theirs, rtol=1e-8)


@pytest.mark.slow
def test_ode_derivative_in_closed_over_parameters_and_forward_mode():
    def f(s, adjoint=None):
        return time_to(
            1.0, ode=lambda _, a, __: 2 * a * (s - D * a), y0=1e-3,
            measure=lambda _, a, __: a, t1=50.0, adjoint=adjoint,
        ).time  # fmt: skip

    wanted = jax.grad(exact.linear_mode_time, 1)(1.0, S, D, 1e-3)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(S), wanted, rtol=1e-9)
    forward = jax.jit(jax.jacfwd(lambda s: f(s, diffrax.ForwardMode())))
    np.testing.assert_allclose(forward(S), wanted, rtol=1e-9)


@pytest.mark.slow
def test_ode_second_derivatives():
    def f(a0, s):
        return flow_time(1.0, a0, s, D, 50.0, adjoint=diffrax.DirectAdjoint(), max_steps=1000).time

    theirs = jax.hessian(lambda a0, s: exact.linear_mode_time(1.0, s, D, a0), (0, 1))(1e-3, S)
    np.testing.assert_allclose(jax.hessian(f, (0, 1))(1e-3, S), theirs, rtol=1e-7)


def test_ode_never_reached_and_batches():
    levels = np.array([0.5, 1.0, 9.0, 1e-3])
    got = flow_time(levels, 1e-3, S, D)
    assert got.reached.tolist() == [True, True, False, True]
    wanted = exact.linear_mode_time(levels[:2], S, D, 1e-3)
    np.testing.assert_allclose(got.time[:2], wanted, rtol=1e-10)
    assert got.time[2] == jnp.inf
    assert got.time[3] == 0
    # In all arguments, as above: one program.
    slopes = jax.grad(lambda *x: flow_time(*x).time, EVERY)(9.0, 1e-3, S, D)
    assert not np.any(slopes)
    mapped = jax.vmap(lambda a0: flow_time(1.0, a0, S, D))(np.array([1e-3, 5.0]))
    assert mapped.reached.tolist() == [True, False]
    assert isinstance(mapped, Crossing)


def test_ode_of_a_pytree_watching_a_tiny_loss():
    """A loss level of 1e-18 is below every absolute tolerance one would write down."""

    def ode(_, w, args):
        gap = args - w["a"] * w["b"]
        return {"a": gap * w["b"], "b": gap * w["a"]}

    def loss(_, w, args):
        return (args - w["a"] * w["b"]) ** 2 / 2

    got = time_to(
        1e-18, ode=ode, y0={"a": 1e-3, "b": 1e-3}, args=1.0, measure=loss, t1=100.0, rtol=1e-13
    )
    wanted = exact.linear_mode_time(1 - np.sqrt(2e-18), 1.0, 1.0, 1e-6)
    assert abs(got.time - wanted) < 1e-5


def test_ode_rounding_in_an_entry_sets_no_tolerance():
    """A chain in rotated frames: with an absolute tolerance of 1e-10 times 1e-18 it gives up."""
    turn = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])

    def ode(_, y, args):
        gap = args - y["b"] @ y["a"]
        return {"a": y["b"].T @ gap, "b": gap @ y["a"].T}

    got = time_to(
        1.2, ode=ode, y0={"a": np.array([[0.1, 1e-18], [0, 0.1]]), "b": 0.1 * turn},
        args=turn @ np.diag([3.0, 1.0]), t1=50.0, max_steps=2000,
        measure=lambda _, y, args: args[0, 0] / turn[0, 0] - (turn.T @ y["b"] @ y["a"])[0, 0],
    )  # fmt: skip
    # In its frames the first mode grows alone, tau da/dt = 2 a (3 - a).
    np.testing.assert_allclose(got.time, exact.linear_mode_time(1.8, 3.0, 1.0, 0.01), rtol=1e-9)


def test_ode_failure_is_told_apart_from_never():
    with pytest.raises(RuntimeError, match="max_steps = 5"):
        time_to(
            1.0,
            ode=velocity,
            y0=1e-3,
            args=(S, D),
            measure=lambda _, a, __: a,
            t1=50.0,
            max_steps=5,
        )
    silent = flow_time(1.0, 1e-3, S, D, 50.0, max_steps=5)
    assert np.isnan(silent.time)
    assert not silent.reached


def test_float32_ode_with_and_without_x64(plainly):
    got = flow_time(np.float32(1.0), np.float32(1e-3), np.float32(S), np.float32(D), 50.0)
    wanted = exact.linear_mode_time(1.0, S, D, 1e-3)
    assert got.time.dtype == jnp.float32
    assert abs(got.time / wanted - 1) < 1e-5
    said = plainly(
        "import jax\nfrom gdln_jax import time_to\n"
        "f = lambda a: time_to(1.0, ode=lambda t, a, _: 2*a*(.7 - .25*a), y0=a,"
        " measure=lambda _, a, __: a, t1=50.).time\n"
        "with jax.enable_x64(False):\n    print(*jax.value_and_grad(f)(1e-3))"
    )
    time, slope = map(float, said.split())
    assert abs(time / wanted - 1) < 1e-5
    assert abs(slope / jax.grad(exact.linear_mode_time, 3)(1.0, S, D, 1e-3) - 1) < 1e-3


# ------------------------------------------------------------------ stopping


def test_until_learned_is_not_fooled_by_the_plateau_nor_by_a_slow_mode():
    """Start s0 = 1e-9 (a steady state at t = 0) and strengths 100 and 1."""
    s, d = jnp.array([100.0, 1.0]), jnp.ones(2)

    def run(event):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(velocity), diffrax.Tsit5(), 0.0, 100.0, None,
            jnp.full(2, 1e-9), (s, d), event=event, max_steps=100_000,
            stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-18),
        )  # fmt: skip

    done = run(until_learned(lambda _, a, args: unlearned(a, *args), 0.01))
    assert done.ts is not None
    assert bool(done.event_mask)
    assert abs(done.ts[-1] - exact.linear_mode_time(0.99, 1.0, 1.0, 1e-9)) < 1e-6
    # What it replaces: diffrax's steady state, with usual tolerances, stops at the start.
    fooled = run(diffrax.Event(diffrax.steady_state_event(rtol=1e-6, atol=1e-6)))
    assert fooled.ts is not None
    assert fooled.ts[-1] < 0.1


def test_unlearned_counts_what_is_left():
    np.testing.assert_allclose(unlearned(np.array([0.0, 1.4, 2.8]), S, D), [1, 0.5, 0], atol=1e-15)
    assert unlearned(0.0, 0.0, D) == 0


ODE = {"ode": velocity, "y0": 1e-3, "args": (S, D), "measure": lambda _, a, __: a, "t1": 50.0}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "exactly one of curve"),
        ({"curve": jnp.sin, "ode": velocity}, "exactly one of curve"),
        ({"curve": jnp.sin, "y0": 1.0}, "y0 belong to ode"),
        ({"ode": velocity, "y0": 1.0}, "ode also needs measure, t1"),
        ({"curve": lambda t: jnp.array([t, t])}, "must return a number"),
        ({"curve": jnp.sin, "t0": 60.0, "t1": 10.0}, r"t1 is 10\.0 and t0 is 60\.0; .*forwards"),
        ({"curve": jnp.sin, "t0": np.nan}, "t0 is nan"),
        ({"curve": jnp.sin, "search": np.array([2.0, 1.0])}, "search must be .*increasing"),
        ({"curve": lambda t: jnp.log(t - 1)}, r"curve is NaN at t = 0, .*pass t1 or search"),
        ({**ODE, "t1": -1.0}, r"t1 is -1\.0 and t0 is 0\.0"),
        ({**ODE, "rtol": -1}, "rtol is -1; it must be a finite number above 0"),
        ({**ODE, "rtol": 1e-17}, "float64 resolves no more than"),
        ({**ODE, "atol": np.nan}, "atol is nan"),
        ({**ODE, "max_steps": 0}, "max_steps is 0"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(ValueError, match=words):
        time_to(1.0, **arguments)
    with pytest.raises(ValueError, match="above 0"):
        until_learned(lambda *_: jnp.ones(2), 0.0)


def test_a_level_that_is_nan_is_refused_and_not_called_unreached():
    with pytest.raises(ValueError, match="level is nan"):
        time_to(jnp.nan, curve=jnp.sin)
    traced = jax.jit(lambda level: time_to(level, curve=jnp.sin))(jnp.nan)
    assert np.isnan(traced.time)
    assert not traced.reached
