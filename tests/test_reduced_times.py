"""Learning times of a reduction: `time_to` against closed forms, in value and derivative."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gdln_jax as gdln
from gdln_jax import exact, tasks

PATH = ["x->h1", "h1->y"]
B0 = 1e-3


@pytest.fixture(scope="module")
def hierarchy():
    task = tasks.hierarchy(width=8)
    reduction = gdln.reduce(task.graph, task.data)
    (s,) = reduction.strengths.values()
    (d,) = reduction.variances.values()
    return reduction, jnp.asarray(s), jnp.asarray(d)


def closed_form(b0, s, d):
    """Time at which a mode of two layers is half learned (theory#one-mode), from a0 = b0^2."""
    return exact.linear_mode_time(0.5 * s / d, s, d, b0**2)


def test_modes_of_a_path_are_half_learned_when_theory_says(hierarchy):
    reduction, s, d = hierarchy
    for solved in (reduction, reduction.quotient(B0)):
        start = () if solved is not reduction else (B0,)
        found = solved.time_to(0.5 * s / d, *start, t1=50.0, path=PATH)
        np.testing.assert_allclose(found.time, closed_form(B0, s, d), rtol=1e-8)
        assert bool(jnp.all(found.reached))


def test_the_clock_scales_with_tau_and_a_level_may_not_be_reached(hierarchy):
    reduction, s, d = hierarchy
    levels = jnp.where(jnp.arange(len(s)) == 0, 2.0, 0.5) * s / d
    found = reduction.time_to(levels, B0, t1=150.0, path=PATH, tau=3.0)
    np.testing.assert_allclose(found.time[1:], 3 * closed_form(B0, s, d)[1:], rtol=1e-8)
    assert (float(found.time[0]), bool(found.reached[0])) == (np.inf, False)


def test_the_loss_is_at_its_level_there(hierarchy):
    reduction, _, _ = hierarchy
    first = float(reduction.loss(B0))
    levels = np.array([0.9, 0.5]) * first
    found = reduction.time_to(levels, B0, t1=50.0)
    run = reduction.solve(B0, np.append(0.0, found.time))
    np.testing.assert_allclose(run.losses[1:], levels, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("derivative", "adjoint"), [(jax.jacrev, None), (jax.jacfwd, diffrax.ForwardMode())]
)
def test_derivatives_in_both_modes(hierarchy, derivative, adjoint):
    reduction, s, d = hierarchy

    def times(b0):
        return reduction.time_to(0.5 * s / d, b0, t1=50.0, path=PATH, adjoint=adjoint).time

    theory = jax.jit(jax.jacfwd(lambda b0: closed_form(b0, s, d)))(B0)
    np.testing.assert_allclose(jax.jit(derivative(times))(B0), theory, rtol=1e-7)


@pytest.mark.slow
def test_matrices_of_a_coupled_reduction_are_read_on_the_diagonal(hierarchy):
    _, s, d = hierarchy
    task = tasks.hierarchy(width=8)
    coupled = gdln.reduce(task.graph, task.data, on_inexact="coupled", tol=1e-30)
    assert coupled.core is not None
    level = jnp.pad(0.5 * s / d, (0, coupled.core.size - len(s)), constant_values=0.5)
    found = coupled.time_to(level, B0, t1=50.0, path=PATH).time[: len(s)]
    np.testing.assert_allclose(found, closed_form(B0, s, d), rtol=1e-7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"level": np.array([0.1, 0.2]), "path": PATH},
            r"level has shape \(2,\); give one",
        ),
        ({"level": np.nan}, "level is nan"),
        ({"level": 0.1, "path": PATH[::-1]}, "path is broken"),
        ({"level": 0.1, "t1": -1.0}, "t1 is -1"),
    ],
)
def test_refusals(hierarchy, options, words):
    reduction, _, _ = hierarchy
    with pytest.raises(ValueError, match=words):
        reduction.time_to(b0=B0, **{"t1": 10.0, **options})


def test_a_solver_that_gives_up(hierarchy):
    reduction, _, _ = hierarchy
    with pytest.raises(gdln.SolveError, match="gave up before t1 = 50"):
        reduction.time_to(1.0, B0, t1=50.0, max_steps=3)
    found = reduction.time_to(1.0, B0, t1=50.0, max_steps=3, throw=False)
    assert np.isnan(found.time)
