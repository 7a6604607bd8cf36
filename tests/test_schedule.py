"""Data that change at given times, in flow and descent; change points of a ReLU network's gates."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, Graph, Schedule

# Two pathways into one output, correlated inputs: the second pathway is closed in the first phase.
GRAPH = Graph({"x": 3, "a": 2, "b": 2, "y": 2}, [("x", "a"), ("x", "b"), ("a", "y"), ("b", "y")])
RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 3))
Y = X @ RNG.normal(size=(3, 2)) + 0.3 * RNG.normal(size=(6, 2))
CLOSED = GatedData({"x": X}, {"y": Y}, {"b": np.zeros(6)})
OPEN = GatedData({"x": X}, {"y": Y}, {"b": np.array([1.0, 1, 1, 0.5, 0, 0])})
OTHER = GatedData({"x": X}, {"y": -Y[::-1]})
NET = GatedNetwork.init(GRAPH, gdln.init.normal(0.3), key=jax.random.key(1))
TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-13}


def leaves(model):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])


@pytest.fixture(scope="module")
def scheduled():
    """Three phases, the last one with other targets; 2.0 is a saved time, 3.1 is not."""
    schedule = Schedule([CLOSED, OPEN, OTHER], [2.0, 3.1])
    return gdln.gradient_flow(NET, schedule, np.linspace(0, 5, 6), **TIGHT)


def relabelled(x, y, step, key):
    """Targets with noise of their own in every step."""
    del step
    return GatedData({"x": x}, {"y": y + 0.1 * jax.random.normal(key, y.shape)})


class TestFunctions:
    """Data made for each step from its number and a key."""

    noisy = staticmethod(jax.tree_util.Partial(relabelled, X, Y))
    options: ClassVar = {"optimizer": optax.sgd(0.1), "key": jax.random.key(7)}

    def test_label_noise_is_drawn_anew_in_each_step(self):
        run = gdln.train(NET, self.noisy, steps=4, **self.options)
        net, slope = NET, eqx.filter_jit(eqx.filter_value_and_grad(gdln.mse))
        for k in range(4):
            key = jax.random.fold_in(self.options["key"], k)
            loss, gradient = slope(net, relabelled(X, Y, k, key))
            np.testing.assert_allclose(run.losses[k], loss, rtol=1e-12)
            net = jax.tree.map(lambda w, g: w - 0.1 * g, net, gradient)
        np.testing.assert_allclose(leaves(run.final), leaves(net), rtol=1e-12)
        half = gdln.train(NET, self.noisy, steps=2, **self.options)
        whole = gdln.train(NET, self.noisy, steps=2, resume=half, **self.options)
        np.testing.assert_array_equal(leaves(whole.final), leaves(run.final))

    def test_interleaved_tasks_are_those_of_a_schedule(self):
        both = Schedule([CLOSED, OPEN], steps=[1, 2, 3], order=[0, 1, 0, 1])

        @jax.jit
        def turns(step, key):
            return both.phase(step % 2)

        found, wanted = (gdln.train(NET, data, steps=4, **self.options) for data in (turns, both))
        np.testing.assert_allclose(leaves(found.final), leaves(wanted.final), rtol=1e-13)
        assert abs(found.losses[1] - wanted.losses[1]) < 1e-13

    def test_a_network_as_data_of_a_loss_of_ones_own_is_no_function(self):
        def apart(model, teacher):
            return gdln.mse(model, GatedData({"x": X}, {"y": teacher(OPEN)["y"]}))

        run = gdln.train(NET, NET, loss=apart, steps=1, optimizer=optax.sgd(0.1))
        assert run.losses[0] > 0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"key": None}, "pass key=jax.random.key"),
            ({"batch_size": 2}, "draws its own"),
            ({"data": lambda *_: GatedData({"z": X}, {"y": Y})}, "'z'"),
        ],
    )
    def test_what_makes_no_data_is_refused(self, options, message):
        given = {"data": self.noisy, "steps": 1, **self.options, **options}
        with pytest.raises(ValueError, match=message):
            gdln.train(NET, **given)

    def test_gradient_flow_has_no_steps(self):
        with pytest.raises(ValueError, match=r"data is a function.*gradient flow has no steps"):
            gdln.gradient_flow(NET, self.noisy, [0.0, 1.0])


class TestNumbersOfExamples:
    """Phases with fewer examples are padded, and padding counts nowhere."""

    few = GatedData({"x": X[:2]}, {"y": Y[:2]}, {"b": np.array([1.0, 0.5])})
    both = Schedule([CLOSED, few], steps=[1])

    def test_padding_changes_no_loss(self):
        assert self.both.counts.tolist() == [6, 2]
        assert self.both.phase(1).num_examples == 6
        for k, data in enumerate((CLOSED, self.few)):
            assert float(gdln.mse(NET, self.both.phase(k)) - gdln.mse(NET, data)) == 0

    def test_batches_are_of_the_real_examples(self):
        # All of a phase in one batch: the full gradient, however it is padded.
        options = {"optimizer": optax.sgd(0.1), "key": jax.random.key(0), "steps": 1}
        second = Schedule([CLOSED, self.few], steps=[0])
        batch = gdln.train(NET, second, batch_size=2, **options)
        np.testing.assert_allclose(
            leaves(batch.final), leaves(gdln.train(NET, self.few, **options).final), rtol=1e-12
        )
        with pytest.raises(ValueError, match="batch_size is 3 but there are 2"):
            gdln.train(NET, second, batch_size=3, **options)


class TestFlow:
    def test_equals_flows_one_after_the_other(self, scheduled):
        ts = np.linspace(0, 5, 6)
        one = gdln.gradient_flow(NET, CLOSED, ts[:3], **TIGHT)
        two = gdln.gradient_flow(one.final, OPEN, np.array([2, 3, 3.1]), **TIGHT)
        three = gdln.gradient_flow(two.final, OTHER, np.array([3.1, 4, 5]), **TIGHT)
        pieces = [one.model(0), one.model(1), one.model(2), two.model(1), three.model(1)]
        for k, model in enumerate([*pieces, three.final]):
            np.testing.assert_allclose(leaves(scheduled.model(k)), leaves(model), atol=1e-10)
        # At a switch the new data hold.
        mse = jax.jit(gdln.mse)
        assert abs(float(scheduled.losses[2]) - float(mse(one.final, OPEN))) < 1e-10
        assert abs(float(scheduled.losses[2]) - float(mse(one.final, CLOSED))) > 1e-2
        assert int(scheduled.status) == 0

    def test_a_closed_pathway_rests_until_it_is_opened(self, scheduled):
        weights = scheduled.models.weights["x->b"]
        # Up to the rounding of the interpolation at a saved time.
        np.testing.assert_allclose(weights[:3], np.tile(weights[:1], (3, 1, 1)), atol=1e-15)
        assert np.abs(weights[3] - weights[2]).max() > 1e-3

    @pytest.mark.slow
    def test_the_derivative_in_a_switching_time(self):
        # d/dt_1 of the last loss, against central differences, and across saved times.
        ts = np.array([0, 0.7, 1.5, 2.5])

        @jax.jit
        def last(time):
            schedule = Schedule([CLOSED, OPEN], jnp.stack([time]))
            return gdln.gradient_flow(NET, schedule, ts, **TIGHT).losses[-1]

        slope, h = jax.grad(last)(1.1), 1e-4
        assert abs(slope) > 1e-3
        # Truncation h^2 and rounding 1e-12/h.
        difference = (last(1.1 + h) - last(1.1 - h)) / (2 * h)
        np.testing.assert_allclose(slope, difference, rtol=1e-6)

    def test_other_times_take_the_same_program(self):
        traces = []

        def loss(net, data):
            traces.append(net)
            return gdln.mse(net, data)

        schedule = Schedule([CLOSED, OPEN, OTHER], [2.0, 3.1])
        ts = np.linspace(0, 5, 6)
        gdln.gradient_flow(NET, schedule.with_times([1.0, 4.5]), ts, loss=loss)
        before = len(traces)
        assert before > 0
        gdln.gradient_flow(NET, schedule.with_times([0.5, 9.5]), ts, loss=loss)
        assert len(traces) == before


class TestDescent:
    def test_equals_training_one_after_the_other(self):
        # Plain descent has no state, so 20 steps are 12 and 8.
        sgd = optax.sgd(0.05)
        schedule = Schedule([CLOSED, OPEN], steps=[12])
        run = gdln.train(NET, schedule, optimizer=sgd, steps=20, save_every=7)
        one = gdln.train(NET, CLOSED, optimizer=sgd, steps=12, save_every=7)
        two = gdln.train(one.final, OPEN, optimizer=sgd, steps=8, save_every=2)
        np.testing.assert_allclose(leaves(run.final), leaves(two.final), atol=1e-14)
        # Records at steps 0, 7, 14, 20.
        np.testing.assert_allclose(run.losses[:2], one.losses[:2], atol=1e-14)
        np.testing.assert_allclose(run.losses[2:], two.losses[np.array([1, 4])], atol=1e-14)

    def test_any_model(self):
        # A ReLU network on two tasks that take turns.
        net = gdln.ReLUNetwork.init([3, 4, 2], std=0.4, key=jax.random.key(0))
        plain, swapped = GatedData({"x": X}, {"y": Y}), GatedData({"x": X}, {"y": -Y})
        turns = Schedule([plain, swapped], steps=[4, 8], order=[0, 1, 0])
        some: dict[str, Any] = {"optimizer": optax.sgd(0.05), "save_every": 4}
        run = gdln.train(net, turns, steps=12, **some)
        for data in (plain, swapped, plain):
            net = gdln.train(net, data, steps=4, **some).final
        np.testing.assert_allclose(leaves(run.final), leaves(net), atol=1e-14)

    def test_batches_are_drawn_from_the_data_of_the_step(self):
        # All six examples as one batch is the full batch.
        schedule = Schedule([CLOSED, OPEN], steps=[3])
        some: dict[str, Any] = {"optimizer": optax.sgd(0.05), "steps": 6, "save_every": 6}
        whole = gdln.train(NET, schedule, **some)
        batch = gdln.train(NET, schedule, **some, batch_size=6, key=jax.random.key(0))
        np.testing.assert_allclose(batch.losses, whole.losses, atol=1e-14)


class TestSchedule:
    def test_which_data_hold_when(self):
        turns = Schedule([CLOSED, OTHER], [1.0, 2.0, 3.0], order=np.arange(4) % 2)
        gates = [float(turns.at(t).node_gates["b"][0]) for t in (-1, 0.9, 1.0, 2.5, 3.0, 99)]
        assert gates == [0, 0, 1, 0, 1, 1]  # OTHER has no gate there, which is a gate of 1
        np.testing.assert_array_equal(turns.phase(3).targets["y"], OTHER.targets["y"])
        assert turns.num_examples == 6
        assert repr(turns) == "Schedule(4 phases, switches at 1, 2, 3, 6 examples)"

    def test_the_unit_belongs_to_the_schedule(self, scheduled):
        sgd, ts, eta = optax.sgd(0.1), np.linspace(0, 5, 6), 0.1
        datas = [CLOSED, OPEN, OTHER]
        in_time, in_steps = Schedule(datas, [2.0, 3.1]), Schedule(datas, steps=[20, 31])
        assert repr(in_steps) == "Schedule(3 phases, switches at steps 20, 31, 6 examples)"
        np.testing.assert_allclose(
            in_steps.with_times(eta * in_steps.switches).switches, in_time.switches
        )
        converted = in_time.with_steps(np.rint(in_time.switches / eta))
        np.testing.assert_array_equal(converted.switches, in_steps.switches)
        # A step lasts eta: the same run, up to an error of first order in eta.
        run = gdln.train(NET, converted, optimizer=sgd, steps=50, save_every=10)
        np.testing.assert_allclose(run.losses, scheduled.losses, rtol=0.2)
        with pytest.raises(
            ValueError, match=r"switches at times, but train counts steps: .*with_steps\(np\.rint"
        ):
            gdln.train(NET, in_time, optimizer=sgd, steps=4)
        with pytest.raises(
            ValueError, match=r"switches at steps, but gradient_flow counts times.*tau \* learning"
        ):
            gdln.gradient_flow(NET, in_steps, ts)

    @pytest.mark.parametrize(
        ("switches", "words"),
        [
            ({}, "exactly one of times"),
            ({"times": [1.0], "steps": [1]}, "exactly one of times"),
            ({"steps": [2.5]}, "steps must be whole numbers from 0"),
            ({"steps": [-1]}, "steps must be whole numbers from 0"),
            ({"steps": [np.nan]}, "steps must be finite"),
            ({"steps": 3}, r"steps has shape \(\)"),
        ],
    )
    def test_switches_that_are_none(self, switches, words):
        with pytest.raises(ValueError, match=words):
            Schedule([CLOSED, OPEN], **switches)
        if "steps" in switches and "times" not in switches:
            with pytest.raises(ValueError, match=words):
                Schedule([CLOSED, OPEN], [1.0]).with_steps(switches["steps"])

    def test_traced_switches(self):
        @jax.jit
        def of(switch):
            return Schedule([CLOSED, OPEN], steps=jnp.stack([switch])).at(3).node_gates["b"]

        np.testing.assert_array_equal(of(4), CLOSED.node_gates["b"])
        np.testing.assert_array_equal(of(3), OPEN.node_gates["b"])
        with pytest.raises(ValueError, match="traced steps must be integers"):
            of(3.0)

    @pytest.mark.parametrize("unit", ["times", "steps"])
    def test_a_run_that_ends_on_the_plateau_says_so(self, unit):
        tiny = jax.tree.map(lambda w: 1e-12 * w, NET)

        def run(net):
            schedule = Schedule([CLOSED, OPEN, OTHER], **{unit: [2, 3]})
            if unit == "times":
                return gdln.gradient_flow(net, schedule, np.linspace(0, 5, 6), **TIGHT)
            return gdln.train(net, schedule, optimizer=optax.sgd(0.1), steps=10, save_every=5)

        with pytest.warns(gdln.PlateauWarning, match="nothing was learned"):
            run(tiny)
        run(NET)  # no alarm

    def test_refusals(self):
        with pytest.raises(ValueError, match="n phases need n - 1"):
            Schedule([CLOSED, OPEN], [1.0, 2.0])
        with pytest.raises(ValueError, match="strictly increasing"):
            Schedule([CLOSED, OPEN, OTHER], [2.0, 1.0])
        with pytest.raises(ValueError, match="order must number the 2 data sets"):
            Schedule([CLOSED, OPEN], [1.0], order=[0, 2])
        narrow = GatedData({"x": X}, {"y": Y[:, :1]})
        with pytest.raises(ValueError, match=r"datas\[1\] does not fit"):
            Schedule([CLOSED, narrow], [1.0])
        with pytest.raises(ValueError, match="expected \\(1,\\)"):
            Schedule([CLOSED, OPEN], [1.0]).with_times([1.0, 2.0])
        wrong = GatedData({"x": X}, {"y": Y}, {"nowhere": np.ones(6)})
        with pytest.raises(ValueError, match="nowhere"):
            gdln.gradient_flow(NET, Schedule([CLOSED, wrong], [1.0]), [0.0, 1.0])
        with pytest.raises(ValueError, match="nowhere"):
            gdln.train(NET, Schedule([CLOSED, wrong], steps=[1]), optimizer=optax.sgd(0.1), steps=2)

    def test_refuses_what_is_no_gated_data(self, refused_plainly):
        refused_plainly("""
import gdln_jax as gdln
words = "datas needs one or more GatedData, got dict"
attempts = [(lambda: gdln.Schedule([{}], []), words)]
""")


class TestChangePoints:
    def test_the_times_of_made_up_phases(self):
        # Levels (0,0), (1,1), (3,0) from snapshots 20 and 35 on, noise .05 (seed 0).
        levels = np.repeat([[0.0, 0], [1, 1], [3, 0]], [20, 15, 10], axis=0)
        signal = levels + 0.05 * np.random.default_rng(0).normal(size=levels.shape)
        ts = 10.0 * np.arange(45)
        np.testing.assert_allclose(gdln.relu.change_points(ts, signal), [195, 345])
        np.testing.assert_allclose(gdln.relu.change_points(ts, 1e-6 * signal), [195, 345])
        np.testing.assert_allclose(gdln.relu.change_points(ts, signal, changes=1), [345])
        # The first change explains 8 % of what is left to explain, the second the most.
        assert len(gdln.relu.change_points(ts, signal, least_share=0.5)) == 1
        assert len(gdln.relu.change_points(ts, np.ones((45, 2, 2)))) == 0
        assert len(gdln.relu.change_points(ts, signal - levels, least_share=0.2)) == 0

    def test_the_segmentation_is_the_best_one(self):
        # Against all places for two changes.
        signal = np.random.default_rng(1).normal(size=(12, 3)).cumsum(axis=0)

        def cost(a, b):
            parts = signal[:a], signal[a:b], signal[b:]
            return sum(np.sum((part - part.mean(axis=0)) ** 2) for part in parts)

        pairs = [(a, b) for a in range(1, 11) for b in range(a + 1, 12)]
        best = min(pairs, key=lambda pair: cost(*pair))
        found = gdln.relu.change_points(np.arange(12), signal, changes=2)
        np.testing.assert_allclose(found, np.array(best) - 0.5)

    def test_coactivation(self):
        # Unit 1 is on for x > 0, unit 2 for x < 0; they send on 2 and -1: energies 4 and 1.
        net = gdln.ReLUNetwork([[[1.0], [-1.0]], [[2.0, -1.0]]])
        x = np.array([[1.0], [-1.0], [1.0], [-1.0]])
        shared = gdln.relu.coactivation(net, x)
        on = np.array([[1, 0, 1, 0], [0, 1, 0, 1]])
        np.testing.assert_allclose(
            shared, 0.8 * np.outer(on[0], on[0]) + 0.2 * np.outer(on[1], on[1])
        )
        grouped = gdln.relu.coactivation(net, x, groups=np.array([0, 0, 1, 1]))
        np.testing.assert_allclose(grouped, np.full((2, 2), 0.25), atol=1e-15)
        # At a tenth of its largest pre-activation a unit is off: the third example is on for none.
        near = np.array([[1.0], [-1.0], [0.05], [-1.0]])
        clear = gdln.relu.coactivation(net, near, threshold=0.1)
        np.testing.assert_array_equal(np.diag(clear) > 0, [True, True, False, True])

    def test_refusals(self):
        change = gdln.relu.change_points
        with pytest.raises(ValueError, match="at least two times"):
            change([0.0, 1.0], np.zeros(3))
        with pytest.raises(ValueError, match="increasing"):
            change([1.0, 0.0], np.zeros(2))
        with pytest.raises(ValueError, match="not finite at time 1"):
            change([0.0, 1.0], np.array([0, np.nan]))
        with pytest.raises(ValueError, match="least_share is 2"):
            change([0.0, 1.0], np.zeros(2), least_share=2.0)
        with pytest.raises(ValueError, match="only 2 snapshots"):
            change([0.0, 1.0], np.arange(2.0), changes=2)
