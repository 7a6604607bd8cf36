"""Flow, reduction and races share the set-up of their solver (`_ode`): SciPy's DOP853 checks it.

SciPy solves dy/dt = velocity(y) with its own step control, from the same right-hand side; what is
compared is the solution at all saved times, relative to its largest entry.
"""

import diffrax
import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import gdln_jax as gdln
from gdln_jax import init, race, tasks

TS = np.array([0.0, 0.7, 2.0, 3.0, 7.0, 15.0])


def by_scipy(velocity, start, ts=TS):
    """States (time, ...) at `ts`, flat."""
    flat, unflatten = jax.flatten_util.ravel_pytree(start)
    slope = jax.jit(lambda y: jax.flatten_util.ravel_pytree(velocity(unflatten(y)))[0])
    done = solve_ivp(
        lambda _, y: np.asarray(slope(y)),
        (ts[0], ts[-1]),
        np.asarray(flat),
        method="DOP853",
        t_eval=ts,
        rtol=1e-12,
        atol=1e-16,
    )
    assert done.success, done.message
    return done.y.T


def flat_rows(tree):
    """A stack of states as rows (time, entry)."""
    return np.asarray(jax.vmap(lambda one: jax.flatten_util.ravel_pytree(one)[0])(tree))


def agree(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8 * np.abs(theirs).max())


def test_gradient_flow_of_a_gated_network():
    task = tasks.routing(2, 1, width=3)
    net = gdln.GatedNetwork.init(task.graph, init.normal(0.1), key=jax.random.key(3))
    data = net.prepare(task.data)
    ours = gdln.gradient_flow(net, task.data, TS, keep_models=True)
    velocity = lambda w: jax.tree.map(jnp.negative, eqx.filter_grad(gdln.mse)(w, data))  # noqa: E731
    agree(flat_rows(ours.models), by_scipy(velocity, net))


def test_gradient_flow_across_a_switch():
    one, other = (tasks.hierarchy(width=3).data for _ in range(2))
    assert isinstance(one, gdln.GatedData)
    assert isinstance(other, gdln.GatedData)
    other = gdln.GatedData(other.inputs, {"y": -other.targets["y"]})
    net = gdln.GatedNetwork.init(
        tasks.hierarchy(width=3).graph, init.normal(0.1), key=jax.random.key(3)
    )
    ours = gdln.gradient_flow(net, gdln.Schedule([one, other], times=[2.0]), TS[:5])
    flat, unflatten = jax.flatten_util.ravel_pytree(net)
    rows = [np.asarray(flat)]
    for data, ts in ((one, TS[:3]), (other, TS[2:5])):
        velocity = lambda w, d=data: jax.tree.map(jnp.negative, eqx.filter_grad(gdln.mse)(w, d))  # noqa: E731
        rows.extend(by_scipy(velocity, unflatten(jnp.asarray(rows[-1])), ts)[1:])
    agree(flat_rows(ours.models), np.stack(rows))


@pytest.mark.parametrize("small", [0.1, 1e-9])
def test_the_reduction(small):
    task = tasks.routing(3, 2, width=4)
    reduction = gdln.reduce(task.graph, task.data)
    ts = TS if small == 0.1 else TS * 10
    start = reduction.strengths_of(small)
    ours = reduction.solve(small, ts)
    agree(
        flat_rows(ours.b),
        by_scipy(lambda b: jax.tree.map(jnp.negative, jax.grad(reduction.loss)(b)), start, ts),
    )


def test_a_race():
    pathways = race.Pathways([1.0, 0.7, 0.8], [[1, 0.5, 0.2], [0.5, 1, 0.4], [0.2, 0.4, 1]], 3)
    start = jnp.array([1e-3, 2e-3, 1e-3])
    agree(np.asarray(pathways.solve(start, TS)), by_scipy(pathways.velocity, start))


def test_the_loop_takes_the_steps_of_diffrax():
    # Saved times unevenly spaced, so that most steps are cut short at one.
    task = tasks.routing(2, 1, width=3)
    reduction = gdln.reduce(task.graph, task.data)
    start = reduction.strengths_of(0.05)
    ours = reduction.solve(start, TS)
    slope, times = jax.grad(reduction.loss), jnp.asarray(TS)
    theirs = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda _, b, __: jax.tree.map(jnp.negative, slope(b))),
        diffrax.Dopri8(),
        *(TS[0], TS[-1], None),
        start,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.ClipStepSizeController(
            diffrax.PIDController(rtol=1e-10, atol=5e-12), step_ts=times
        ),
    )
    b, of_diffrax = flat_rows(ours.b), flat_rows(theirs.ys)
    np.testing.assert_allclose(b[1:], of_diffrax[1:], rtol=1e-12)
    # One more, of no length, looks at the start.
    assert int(ours.stats["num_steps"]) == int(theirs.stats["num_steps"]) + 1


def test_another_adjoint_is_refused():
    task = tasks.routing(2, 1, width=3)
    reduction = gdln.reduce(task.graph, task.data)
    with pytest.raises(ValueError, match=r"adjoint is BacksolveAdjoint.*ForwardMode\(\)"):
        reduction.solve(0.1, TS, adjoint=diffrax.BacksolveAdjoint())


# Counted in an interpreter that checks as a user's does: by callbacks, where there are any.
SMALL = """
import jax, numpy as np
import gdln_jax as gdln
graph = gdln.Graph.chain([1, 1, 1])
data = gdln.GatedData({"x": [[1.0]]}, {"y": [[2.0]]})
reduction, ts = gdln.reduce(graph, data), np.linspace(0, 3, 4)
solve = lambda b: reduction.solve(b, ts).losses
time = lambda b: reduction.time_to(0.1, b, t1=3.0).time
flow = lambda net: gdln.gradient_flow(net, data, ts).losses
for f, start in ((solve, .1), (time, .1), (flow, reduction.embed(.1)), (jax.grad(time), .1)):
    text = str(jax.make_jaxpr(f)(start))
    assert "callback" not in text
    print(text.count(" = "))
"""


def test_programs_of_the_solver_are_small_and_call_nothing_back(plainly):
    counts = map(int, plainly(SMALL).split())
    # By diffeqsolve, which interpolates and checks: about 1600, 2700, 1600 and 5100 operations.
    for count, limit in zip(counts, (800, 1200, 800, 4500), strict=True):
        assert count < limit
