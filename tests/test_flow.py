"""Gradient flow against closed forms; its clock, tolerances, derivatives, failures and memory."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, Graph, gradient_flow, mse

# One mode: ds/dt = 2 s (sigma - s), s = w2 w1, sigma = 3, d = 1.
CHAIN = Graph.chain([1, 1, 1])
SIGMA = 3.0
DATA = GatedData({"x": np.ones((1, 1))}, {"y": np.full((1, 1), SIGMA)})


def mode(s0) -> GatedNetwork:
    w = jnp.sqrt(jnp.asarray(s0)) * jnp.ones((1, 1))
    return GatedNetwork(CHAIN, {"x->h1": w, "h1->y": w})


def strength(network):
    return (network.weights["h1->y"] @ network.weights["x->h1"])[..., 0, 0]


def closed_form(t, s0):
    """a(t) = (s/d) / (1 - (1 - s/(d a0)) exp(-2 s t/tau)) with d = 1."""
    return SIGMA / (1 - (1 - SIGMA / s0) * np.exp(-2 * SIGMA * np.asarray(t)))


def half_time(s0):
    return np.log((SIGMA - s0) / s0) / (2 * SIGMA)


def float32(tree):
    return jax.tree.map(lambda leaf: leaf.astype(np.float32), tree)


class TestAccuracy:
    def test_the_plateau_of_small_initial_weights_is_resolved(self):
        # Half time ln((sigma - s0)/s0)/(2 sigma) at default tolerances
        for s0 in (1e-3, 1e-6, 5e-9, 1e-14, 1e-20, 1e-30):
            t_half = half_time(s0)
            ts = t_half * np.array([0, 0.5, 1.0, 2.0])
            run = gradient_flow(mode(s0), DATA, ts)
            at_half = float(strength(run.models)[2])
            delay = (SIGMA / 2 - at_half) / (2 * (SIGMA / 2) ** 2)  # first order in the slope
            assert abs(delay) < 1e-6 * t_half
            assert np.all(np.asarray(strength(run.models)) > 0)
            np.testing.assert_allclose(strength(run.models), closed_form(ts, s0), rtol=1e-7)
            assert int(run.status) == 0

    def test_values_between_steps_are_as_good(self):
        ts = np.linspace(0, 3, 301)
        run = gradient_flow(mode(1e-3), DATA, ts)
        wanted = closed_form(ts, 1e-3)
        np.testing.assert_allclose(strength(run.models), wanted, rtol=1e-8)
        np.testing.assert_allclose(run.losses, (SIGMA - wanted) ** 2 / 2, rtol=0, atol=1e-8)
        np.testing.assert_allclose(run.ts, ts)

    def test_float32(self):
        for s0 in (1e-3, 1e-12):
            ts = np.array([0, 0.5, 1.0, 2.0]) * half_time(s0)
            run = gradient_flow(float32(mode(s0)), float32(DATA), ts)
            assert run.losses.dtype == np.float32
            # Growth by exp(2 sigma t) turns the step's 1e-5 into some 1e-4 of s.
            np.testing.assert_allclose(strength(run.models), closed_form(ts, s0), rtol=1e-3)

    def test_time_is_in_units_of_tau(self):
        # tau dW/dt = -dL/dW: W(t; tau) = W(t / tau; 1)
        ts = np.linspace(0, 2, 4)
        one = gradient_flow(mode(1e-3), DATA, ts)
        slow = gradient_flow(mode(1e-3), DATA, 2.5 * ts, tau=2.5)
        np.testing.assert_allclose(slow.losses, one.losses, rtol=0, atol=1e-9)
        shifted = gradient_flow(mode(1e-3), DATA, ts + 10)
        np.testing.assert_allclose(shifted.losses, one.losses, rtol=0, atol=1e-9)

    def test_any_module_and_any_loss(self):
        # dx/dt = -A x with A = diag(1, 3): x_i(t) = x_i(0) exp(-A_ii t)
        class Point(eqx.Module):
            x: Any
            label: str
            count: Any

        def quadratic(point, a):
            return jnp.sum(a * jnp.square(point.x)) / 2

        start = Point(jnp.array([1.0, -2.0]), "a", jnp.array(7))
        run = gradient_flow(start, jnp.array([1.0, 3.0]), [0.0, 0.5], loss=quadratic)
        np.testing.assert_allclose(run.final.x, np.array([1, -2]) * np.exp([-0.5, -1.5]), rtol=1e-8)
        assert run.final.label == "a"
        assert int(run.final.count) == 7


class TestDerivatives:
    """d/ds0 of s(t) = s(t)^2 / s0^2 exp(-2 sigma t), since 1/s - 1/sigma ~ exp(-2 sigma t)."""

    @staticmethod
    def final(s0, **options):
        run = gradient_flow(mode(s0), DATA, [0.0, 1.0], keep_models=False, **options)
        return strength(run.final)

    @staticmethod
    def slope(s0):
        return closed_form(1.0, s0) ** 2 / s0**2 * np.exp(-2 * SIGMA)

    def test_reverse_mode(self):
        got = jax.jit(jax.grad(self.final))(0.01)
        assert float(got) == pytest.approx(self.slope(0.01), rel=1e-7)

    def test_forward_mode(self):
        got = jax.jit(jax.jacfwd(lambda s0: self.final(s0, adjoint=diffrax.ForwardMode())))(0.01)
        assert float(got) == pytest.approx(self.slope(0.01), rel=1e-7)

    @pytest.mark.slow
    def test_both_modes_of_the_direct_adjoint(self):
        def direct(s0):
            return self.final(s0, adjoint=diffrax.DirectAdjoint(), max_steps=200)

        assert float(jax.grad(direct)(0.01)) == pytest.approx(self.slope(0.01), rel=1e-6)
        assert float(jax.jacfwd(direct)(0.01)) == pytest.approx(self.slope(0.01), rel=1e-6)


class TestFailures:
    def test_one_bad_member_of_a_batch_spoils_no_other(self):
        starts = jnp.array([1e-3, jnp.nan, 1e-2])
        ts = np.array([0.0, 1.0, 2.0])
        batch = jax.jit(jax.vmap(lambda s0: gradient_flow(mode(s0), DATA, ts)))(starts)
        assert batch.status.tolist() == [0, 2, 0]
        assert np.all(np.isnan(batch.losses[1]))
        assert not np.any(np.isfinite(strength(batch.final)[1]))
        for i in (0, 2):
            wanted = closed_form(ts, float(starts[i]))
            np.testing.assert_allclose(strength(batch.models)[i], wanted, rtol=1e-7)
        # The batch did not wait for the bad member to use up all its steps.
        assert int(batch.stats["num_rejected_steps"].max()) < 200
        assert "2 x ok, 1 x the solver gave up" in repr(batch)

    def test_a_solver_that_runs_out_of_steps_says_why_and_where(self):
        with pytest.raises(RuntimeError, match=r"used up max_steps = 5 at time 0\.\d+ of 2 .*rtol"):
            gradient_flow(mode(0.1), DATA, [0.0, 1.0, 2.0], max_steps=5)
        run = gradient_flow(mode(0.1), DATA, [0.0, 1.0, 2.0], max_steps=5, throw=False)
        assert int(run.status) == 2
        assert np.isfinite(run.losses[0])
        assert np.isnan(run.losses[-1])
        assert np.isnan(strength(run.models)[-1])
        assert np.isnan(strength(run.final))

    def test_a_flow_to_infinity_stops_there_and_says_so(self):
        # dw/dt = 4 w^3 from w0: 1/w^2 = 1/w0^2 - 8 t, at infinity at t = 1/(8 w0^2) = 1.25. The
        # steps shrink to the rounding of t, which clipping to saved times must be allowed to do
        # as well: it is max_steps that ends the run.
        def unbounded(network, data):
            return -jnp.sum(jnp.stack([jnp.sum(stack**4) for stack in network.stacks]))

        with pytest.raises(RuntimeError, match=r"max_steps = 2000 at time 1\.25 of 10 .*infinity"):
            gradient_flow(mode(0.1), DATA, [0.0, 1.0, 10.0], loss=unbounded, max_steps=2000)

    def test_a_loss_that_is_not_finite_is_no_result(self):
        def broken(network, data):
            return mse(network, data) * jnp.nan

        with pytest.raises(RuntimeError, match=r"at time 0 of 2 .*not finite"):
            gradient_flow(mode(0.1), DATA, [0.0, 2.0], loss=broken)
        with pytest.raises(RuntimeError, match=r"the initial weights are not finite"):
            gradient_flow(jax.tree.map(lambda w: w * np.nan, mode(1.0)), DATA, [0.0, 1.0])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"ts": [0.0]}, r"ts has shape \(1,\); pass at least two increasing times"),
            ({"ts": np.zeros((2, 2))}, r"ts has shape \(2, 2\)"),
            ({"ts": [0.0, 1.0, 1.0]}, r"ts must be finite and strictly increasing"),
            ({"ts": [1.0, 0.0]}, r"strictly increasing"),
            ({"ts": [0.0, np.inf]}, r"ts must be finite"),
            ({"tau": 0.0}, r"tau is 0\.0; it must be a finite number above 0"),
            ({"tau": np.ones(2)}, r"tau is array"),
            ({"rtol": -1e-3}, r"rtol is -0\.001"),
            ({"atol": np.nan}, r"atol is nan"),
            ({"rtol": -1}, r"rtol is -1; it must be a finite number above 0"),
            ({"tau": jnp.asarray(-1.0)}, r"tau is -1.0; it must be a finite"),
            ({"tau": np.ones(2)}, r"tau is array.*; it must be a finite"),
            ({"rtol": 1e-17}, r"rtol is 1e-17, but float64 resolves no more than 2e-15"),
        ],
    )
    def test_bad_arguments(self, options, message):
        with pytest.raises(ValueError, match=message):
            gradient_flow(mode(0.1), DATA, **{"ts": [0.0, 1.0], **options})

    def test_a_tolerance_beyond_float32_is_explained(self):
        with pytest.raises(ValueError, match=r"float32 resolves no more than 1e-06: .*enable_x64"):
            gradient_flow(float32(mode(0.1)), float32(DATA), [0.0, 1.0], rtol=1e-8)

    def test_a_model_without_weights_is_refused(self):
        with pytest.raises(ValueError, match=r"no floating-point array"):
            gradient_flow(eqx.nn.Identity(), DATA, [0.0, 1.0])

    def test_errors_without_the_typing_hook(self, refused_plainly):
        refused_plainly("""
import numpy as np
from gdln_jax import GatedData, GatedNetwork, Graph, gradient_flow
graph = Graph.chain([1, 1])
data = GatedData({"x": np.ones((1, 1))}, {"y": np.ones((1, 1))})
network = GatedNetwork(graph, {"x->y": [[0.5]]})
wrong = GatedData({"z": np.ones((1, 1))}, {"y": np.ones((1, 1))})
attempts = [
    (lambda: gradient_flow(network, data, 3.0), "ts has shape ()"),
    (lambda: gradient_flow(network, data, [0, 1], tau="fast"), "tau is 'fast'"),
    (lambda: gradient_flow(network, wrong, [0, 1]), "inputs names 'z', which is not an input node"),
]
run = gradient_flow(network, data, [0, 1])  # whole numbers are times too
assert abs(float(run.final.weights["x->y"][0, 0]) - (1 - 0.5 * np.exp(-1))) < 1e-9
""")


class TestCompilationAndMemory:
    def test_new_numbers_do_not_retrace(self):
        # Weights, data, times, tau and tolerances are arrays, whatever their type
        traces = []

        def loss(network, data):
            traces.append(1)
            return mse(network, data)

        data = GatedData({"x": np.ones((2, 1))}, {"y": np.ones((2, 1))})
        gradient_flow(mode(0.1), data, [0.0, 1.0], loss=loss)
        first = len(traces)
        assert first > 0
        other = GatedData({"x": 2 * np.ones((2, 1))}, {"y": 3 * np.ones((2, 1))})
        gradient_flow(mode(0.3), other, [0.0, 2.0], loss=loss, tau=2.0, rtol=1e-7, atol=1e-12)
        gradient_flow(mode(0.3), other, np.array([1, 2]), loss=loss, tau=jnp.asarray(3.0))
        assert len(traces) == first

    def test_what_is_kept(self):
        # Summaries if asked for, models only where they are small or asked for
        ts = np.linspace(0, 1, 4)
        run = gradient_flow(mode(0.1), DATA, ts)
        assert strength(run.models).shape == (4,)
        assert float(strength(run.model(3))) == pytest.approx(float(strength(run.final)), rel=1e-14)
        measured = gradient_flow(mode(0.1), DATA, ts, measure=lambda n: {"s": strength(n)})
        assert measured.models is None
        np.testing.assert_allclose(measured.measured["s"], strength(run.models), rtol=1e-12)
        with pytest.raises(ValueError, match=r"not kept .* keep_models=True, or measure="):
            measured.model(0)
        assert "final model kept" in repr(measured)

    def test_big_trajectories_are_not_kept_by_default(self):
        # 2 x 128 x 128 weights x 2,000 times in float64 are 524 MB
        graph = Graph.chain([128, 128, 128])
        square = np.zeros((128, 128))
        network = GatedNetwork(graph, {"x->h1": square, "h1->y": square})
        ones = np.ones((1, 128))
        data = GatedData({"x": ones}, {"y": ones})

        def shapes(**options):
            ts = jnp.linspace(0, 1, 2000)
            return eqx.filter_eval_shape(lambda n: gradient_flow(n, data, ts, **options), network)

        assert shapes().models is None
        assert shapes(keep_models=True).models is not None
        assert shapes().losses.shape == (2000,)


@pytest.mark.slow
def test_saved_times_that_leave_a_step_of_rounding_size_do_not_stop_the_solver():
    """Clipping to ts leaves steps of some 1e-15; a least step above that once gave up here."""
    task = gdln.tasks.routing(2, 1, width=4)
    reduction = gdln.reduce(task.graph, task.data)
    for times in (105, 161):
        run = gdln.gradient_flow(
            reduction.embed(0.2),
            task.data,
            np.linspace(0, 80, times),
            measure=lambda net: net.weights["h1->h2"][0, 0],
        )
        assert int(run.status) == 0
