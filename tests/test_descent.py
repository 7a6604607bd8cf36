"""Discrete training against loops in NumPy and against the flow: clock, batches, warnings."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_systems import BruteForce, random_system

from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    LostUpdatesWarning,
    Schedule,
    SolveError,
    flow_time,
    gradient_flow,
    init,
    mse,
    tasks,
    train,
)

# Private: no public function shows which optimisers count as one.

GRAPH, DATA, WEIGHTS = random_system(3)
SMALL = {k: 0.3 * w for k, w in WEIGHTS.items()}
NETWORK = GatedNetwork(GRAPH, SMALL)
SGD = optax.sgd(0.05)


def loop(steps, rate, momentum=0.0, weights=SMALL):
    """W <- W - rate v, v <- momentum v + dL/dW, one edge at a time."""
    weights = dict(weights)
    velocity = {k: np.zeros_like(w) for k, w in weights.items()}
    losses, last = [], weights
    for _ in range(steps + 1):
        here = BruteForce(GRAPH, DATA, weights)
        losses.append(here.loss())
        gradient = here.gradient()
        velocity = {k: momentum * velocity[k] + gradient[k] for k in weights}
        last, weights = weights, {k: weights[k] - rate * velocity[k] for k in weights}
    return np.array(losses), last


class TestAgainstALoop:
    def test_plain_descent(self):
        losses, weights = loop(11, 0.05)
        run = train(NETWORK, DATA, optimizer=SGD, steps=11)
        np.testing.assert_allclose(run.losses, losses, rtol=1e-12)
        assert run.ts.tolist() == list(range(12))
        for name, w in weights.items():
            np.testing.assert_allclose(run.final.weights[name], w, rtol=0, atol=1e-12)
            np.testing.assert_allclose(run.model(11).weights[name], w, rtol=0, atol=1e-12)
            np.testing.assert_allclose(run.model(0).weights[name], SMALL[name], rtol=0, atol=0)

    def test_heavy_ball(self):
        losses, _ = loop(11, 0.05, momentum=0.5)
        run = train(NETWORK, DATA, optimizer=optax.sgd(0.05, momentum=0.5), steps=11)
        np.testing.assert_allclose(run.losses, losses, rtol=1e-12)

    @pytest.mark.parametrize(
        ("steps", "save_every", "ts"),
        [(11, 4, [0, 4, 8, 11]), (8, 4, [0, 4, 8]), (3, 10, [0, 3]), (1, 1, [0, 1])],
    )
    def test_records_at_zero_every_save_every_and_the_last_step(self, steps, save_every, ts):
        losses, _ = loop(11, 0.05)
        run = train(NETWORK, DATA, optimizer=SGD, steps=steps, save_every=save_every)
        assert run.ts.tolist() == ts
        np.testing.assert_allclose(run.losses, losses[ts], rtol=1e-12)
        assert run.models.stacks[0].shape[0] == len(ts)

    def test_measure_instead_of_models(self):
        name = GRAPH.edges[0].name
        run = train(
            NETWORK,
            DATA,
            optimizer=SGD,
            steps=5,
            save_every=2,
            measure=lambda n: jnp.linalg.norm(n.weights[name]),
        )
        assert run.models is None
        assert run.measured.shape == (4,)
        assert float(run.measured[0]) == pytest.approx(np.linalg.norm(SMALL[name]))
        assert float(run.measured[-1]) == pytest.approx(
            float(jnp.linalg.norm(run.final.weights[name]))
        )

    def test_any_module_and_any_loss(self):
        # x <- (1 - eta a) x
        layer = eqx.nn.Linear(1, 1, use_bias=False, key=jax.random.key(0))
        start = float(layer.weight[0, 0])
        run = train(
            layer,
            jnp.array(2.0),
            loss=lambda m, a: a * jnp.sum(m.weight**2) / 2,
            optimizer=optax.sgd(0.1),
            steps=3,
        )
        assert float(run.final.weight[0, 0]) == pytest.approx(start * 0.8**3)


class TestClock:
    def test_flow_time(self):
        # t = tau eta steps / (1 - momentum)
        assert float(flow_time(100, 0.02)) == pytest.approx(2.0)
        assert float(flow_time(100, 0.02, tau=2.5, momentum=0.9)) == pytest.approx(50.0)
        np.testing.assert_allclose(flow_time(np.arange(3), 0.1), [0, 0.1, 0.2])
        for momentum in (1.0, -0.1):
            with pytest.raises(ValueError, match=r"momentum is .* must lie in \[0, 1\)"):
                flow_time(1, 0.1, momentum=momentum)
        # Several runs: shape (run, 1).
        np.testing.assert_allclose(
            flow_time(np.arange(3), np.array([[0.1], [0.2]])), [[0, 0.1, 0.2], [0, 0.2, 0.4]]
        )

    def test_flow_time_of_a_schedule_is_the_sum_of_its_rates(self):
        # Warm-up from 0: rates 0, .02, .04, .06, .08, .1, .1, ...
        warm = optax.linear_schedule(0.0, 0.1, 5)
        rates = np.array([0.02 * min(k, 5) for k in range(20)])
        for ts in (np.arange(21), np.array([0, 5, 20]), 20):
            wanted = np.concatenate([[0], np.cumsum(rates)])[ts] * 2.5 / 0.5
            for given in (warm, rates, lambda k: warm(k)):  # noqa: PLW0108
                np.testing.assert_allclose(flow_time(ts, given, 2.5, 0.5), wanted, rtol=1e-12)
        np.testing.assert_allclose(jax.jit(flow_time)(np.arange(21), rates)[-1], rates.sum())

    def test_the_clock_of_a_schedule_is_that_of_training(self):
        # dw/dt = -w: flow over the summed time and descent differ at second order in the rates.
        warm = optax.linear_schedule(0.0, 0.02, 100)
        run = train(
            jnp.ones(1), None, loss=lambda w, _: jnp.sum(w**2) / 2, optimizer=optax.sgd(warm),
            steps=150, save_every=50,
        )  # fmt: skip
        wanted = np.exp(-2 * np.asarray(flow_time(run.ts, warm))) / 2
        np.testing.assert_allclose(run.losses, wanted, rtol=0.04)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((10, -0.1), r"learning_rate is -0\.1; it must be a finite number above 0"),
            ((10, np.nan), "learning_rate is nan"),
            ((10, 0.0), r"learning_rate is 0\.0"),
            ((2, np.array([0.1, -0.2])), r"learning_rate is -0\.2 at index 1"),
            ((20, lambda k: jnp.where(k < 3, 0.1, jnp.inf)), "learning_rate is inf at index 3"),
            ((np.array([0, 10, 20]), np.ones(3)), "3 entries, but steps go up to 20: .*every step"),
            ((10, 0.1, -1.0), r"tau is -1\.0"),
            ((-10, 0.1), "steps is -10"),
        ],
    )
    def test_flow_time_refuses(self, arguments, words):
        with pytest.raises(ValueError, match=words):
            flow_time(*arguments)
        if callable(arguments[1]):
            with pytest.raises(ValueError, match="steps is traced"):
                jax.jit(lambda n: flow_time(n, arguments[1]))(3)

    def test_the_half_time_is_late_by_a_first_order_in_the_step(self):
        # For the weights: w <- w + eta w (sigma - w^2) from w^2 = 1e-3 against
        # ln((sigma - s0)/s0)/(2 sigma) = 1.334. Nothing to be fitted.
        graph = Graph.chain([1, 1, 1])
        data = GatedData({"x": np.ones((1, 1))}, {"y": np.full((1, 1), 3.0)})
        start = GatedNetwork(graph, {e.name: np.full((1, 1), 1e-3**0.5) for e in graph.edges})
        truth = np.log((3 - 1e-3) / 1e-3) / 6
        late = {}
        for eta, steps in ((0.1, 20), (0.02, 80), (0.002, 1000)):
            run = train(start, data, optimizer=optax.sgd(eta), steps=steps, keep_models=False)
            w = [1e-3**0.5]
            for _ in range(steps):
                w.append(w[-1] + eta * w[-1] * (3 - w[-1] ** 2))
            np.testing.assert_allclose(run.losses, (3 - np.square(w)) ** 2 / 2, rtol=1e-9)
            at = np.interp(1.5, np.square(w), np.arange(steps + 1))
            late[eta] = float(flow_time(at, eta)) - truth
        assert late[0.1] > 0.1
        assert late[0.02] / late[0.002] == pytest.approx(10, rel=0.1)

    @staticmethod
    def slope(task, seed, t_end, rates, momentum=0.0):
        """Slope of log max |W_descent - W_flow| at t_end against log of the step."""
        network = GatedNetwork.init(task.graph, init.orthogonal(0.5), key=jax.random.key(seed))
        flow = gradient_flow(network, task.data, [0.0, t_end]).final
        gaps = []
        for rate in rates:
            steps = round(t_end * (1 - momentum) / rate)
            assert float(flow_time(steps, rate, momentum=momentum)) == pytest.approx(t_end)
            optimizer = optax.sgd(rate, momentum=momentum or None)
            run = train(network, task.data, optimizer=optimizer, steps=steps, keep_models=False)
            gap = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), run.final, flow)
            gaps.append(max(float(g) for g in gap.stacks))
        return np.polyfit(np.log(rates), np.log(gaps), 1)[0]

    def test_descent_converges_to_the_flow_at_first_order_on_a_gated_xor(self):
        # One path per example through a layer whose node gate picks it (N Fig. 3).
        x = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]]) / np.sqrt(2)
        graph = Graph(
            {"x": 2, **{f"h{i}": 3 for i in range(4)}, "y": 1},
            [*(("x", f"h{i}") for i in range(4)), *((f"h{i}", "y") for i in range(4))],
        )
        gates = {f"h{i}": np.eye(4)[i] for i in range(4)}
        data = GatedData({"x": x}, {"y": [[-1.0], [1], [1], [-1]]}, gates)
        task = tasks.Task(graph, data, "xor", {})
        assert self.slope(task, 0, 4.0, [0.02, 0.01]) == pytest.approx(1, abs=0.15)

    def test_descent_converges_to_the_flow_at_first_order_on_routing(self):
        task = tasks.routing(3, 2, width=6)
        assert self.slope(task, 1, 1.0, [0.01, 0.005]) == pytest.approx(1, abs=0.15)

    @pytest.mark.slow
    def test_heavy_ball_keeps_the_same_clock(self):
        # Momentum .5 doubles the effective step: still first order, from the same start.
        task = tasks.routing(3, 2, width=6)
        rates = [0.002, 0.001, 0.0005]
        assert self.slope(task, 1, 1.0, rates, momentum=0.5) == pytest.approx(1, abs=0.15)


class TestBatches:
    KEY = jax.random.key(11)

    def test_the_key_alone_decides(self):
        options = {"optimizer": SGD, "steps": 4, "batch_size": 2}
        one = train(NETWORK, DATA, key=self.KEY, **options)
        two = train(NETWORK, DATA, key=self.KEY, **options)
        other = train(NETWORK, DATA, key=jax.random.key(12), **options)
        np.testing.assert_array_equal(one.losses, two.losses)
        assert not np.array_equal(one.losses[1:], other.losses[1:])
        # Losses are of all the data, not of the batch.
        assert float(one.losses[0]) == pytest.approx(BruteForce(GRAPH, DATA, SMALL).loss())

    def test_the_whole_set_as_a_batch_is_full_batch(self):
        run = train(NETWORK, DATA, optimizer=SGD, steps=4, batch_size=7, key=self.KEY)
        np.testing.assert_allclose(run.losses, loop(4, 0.05)[0], rtol=1e-12)

    def test_the_mean_step_is_the_full_step_for_unequal_weights(self):
        # E[step] = full step: batches of 3 of 7 examples with weights, one of them 0
        def moved(key, size):
            run = train(NETWORK, DATA, optimizer=SGD, steps=1, batch_size=size, key=key)
            return jax.tree.map(lambda a, b: a - b, run.final, NETWORK)

        draws = jax.jit(jax.vmap(lambda key: moved(key, 3)))(jax.random.split(self.KEY, 8000))
        full = train(NETWORK, DATA, optimizer=SGD, steps=1).final
        for stack, whole, start in zip(draws.stacks, full.stacks, NETWORK.stacks, strict=True):
            error = np.asarray(stack.mean(0) - (whole - start))
            standard_error = np.asarray(stack.std(0)) / np.sqrt(8000)
            assert np.all(np.abs(error) <= 5 * standard_error + 1e-12)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"steps": 0}, r"steps is 0; .*at least 1"),
            ({"save_every": 0}, r"save_every is 0"),
            ({"batch_size": 0}, r"batch_size is 0"),
            ({"batch_size": 8}, r"batch_size is 8 but there are 7 examples"),
            ({"batch_size": 2, "key": None}, r"batch_size needs key=jax\.random\.key"),
        ],
    )
    def test_bad_arguments(self, options, message):
        options = {"optimizer": SGD, "steps": 2, "key": self.KEY, **options}
        with pytest.raises(ValueError, match=message):
            train(NETWORK, DATA, **options)

    def test_packed_data_have_no_examples_to_draw(self):
        packed = NETWORK.prepare(DATA)
        with pytest.raises(ValueError, match=r"batch_size needs GatedData .*got PackedData"):
            train(NETWORK, packed, optimizer=SGD, steps=1, batch_size=2, key=self.KEY)

    def test_errors_without_the_typing_hook(self, refused_plainly):
        snippet = """
import jax, numpy as np, optax
from gdln_jax import GatedData, GatedNetwork, Graph, train
data = GatedData({"x": np.ones((2, 1))}, {"y": np.ones((2, 1))})
network = GatedNetwork(Graph.chain([1, 1]), {"x->y": [[0.5]]})
labels = jax.tree.map(lambda _: "all", network)
bad = [
    ({"optimizer": 0.1, "steps": 3}, "optimizer is 0.1; pass an optax optimiser"),
    ({"optimizer": optax.sgd, "steps": 3}, "pass an optax optimiser"),
    ({"optimizer": optax.sgd(0.1), "steps": 2.5}, "steps is 2.5; it must be an integer"),
    ({"optimizer": optax.sgd(0.1), "steps": 2, "batch_size": 1}, "batch_size needs key"),
    ({"optimizer": optax.sgd(0.1), "steps": 2, "resume": network}, "resume is GatedNetwork, w"),
    ({"optimizer": optax.multi_transform({"all": optax.sgd(0.1)}, labels), "steps": 2},
     "pass them as a function, lambda _: labels"),
]
attempts = [
    (lambda named=named: train(network, data, **named), words)
    for named, words in bad
] + [
    (lambda: train(network, (1, 2), **bad[-1][0]), "data is a tuple, not GatedData"),
]
"""
        refused_plainly(snippet)


def squared(network, data):
    """`mse`, as a user writes it: it reads targets and weights off the data."""
    outputs = network(data)
    errors = [jnp.sum((y - outputs[name]) ** 2, axis=1) for name, y in data.targets.items()]
    return jnp.sum(data.weights * sum(errors)) / 2


class TestOwnLoss:
    @pytest.mark.parametrize("options", [{}, {"batch_size": 3, "key": jax.random.key(2)}])
    def test_on_gated_data(self, options):
        options = {"optimizer": SGD, "steps": 6, **options}
        own = train(NETWORK, DATA, loss=squared, **options)
        np.testing.assert_allclose(own.losses, train(NETWORK, DATA, **options).losses, rtol=1e-11)

    def test_flow(self):
        # dw/dt = 1 - w
        network = GatedNetwork(Graph.chain([1, 1]), {"x->y": [[0.5]]})
        data = GatedData({"x": [[1.0]]}, {"y": [[1.0]]})
        run = gradient_flow(network, data, [0.0, 1.0], loss=squared, keep_models=False)
        assert float(run.losses[-1]) == pytest.approx(0.125 * np.exp(-2), rel=1e-8)

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (0.0, "is a float that depends on neither"),
            (jnp.ones((2, 3)), r"is an array of shape \(2, 3\)"),
            (jnp.array(1), r"of shape \(\) and type int"),
        ],
    )
    def test_what_is_no_loss_is_refused(self, value, words):
        def loss(network, data):
            del network, data
            return value

        with pytest.raises(ValueError, match=words):
            train(NETWORK, DATA, loss=loss, optimizer=SGD, steps=3)
        with pytest.raises(ValueError, match=words):
            gradient_flow(NETWORK, DATA, [0.0, 1.0], loss=loss)

    def test_a_loss_that_is_never_finite_is_no_matter_of_the_rate(self):
        with pytest.raises(SolveError, match="at step 0, before the first update"):
            train(
                NETWORK,
                None,
                loss=lambda net, _: jnp.nan * net.stacks[0].sum(),
                optimizer=SGD,
                steps=3,
            )

    def test_data_of_any_type(self):
        def loss(network, data):
            wanted = {tuple: lambda: data[0], type(None): lambda: 3.0}.get(type(data), data)()
            return jnp.sum((network.stacks[0] - wanted) ** 2)

        for data in ((3.0, "label"), None, lambda: 3.0):
            run = train(NETWORK, data, loss=loss, optimizer=SGD, steps=3)
            assert float(run.losses[1] / run.losses[0]) == pytest.approx(0.81)
        run = gradient_flow(NETWORK, (3.0, "label"), [0.0, 1.0], loss=loss, keep_models=False)
        assert float(run.losses[-1] / run.losses[0]) == pytest.approx(np.exp(-4), rel=1e-8)


# Small, since every optimiser is a program of its own.
PAIRS = GatedData({"x": np.eye(2)}, {"y": np.array([[2.0, 1], [0, 1]])})
NET = GatedNetwork.init(Graph.chain([2, 2, 2]), init.orthogonal(0.5), key=jax.random.key(0))


class TestOptimisers:
    """All signatures of optax."""

    @pytest.mark.parametrize(
        "optimizer",
        [
            optax.lbfgs(),
            optax.polyak_sgd(),
            optax.chain(SGD, optax.contrib.reduce_on_plateau()),
            optax.contrib.sam(SGD, optax.sgd(0.01)),
        ],
        ids=["value_fn", "value", "chain", "plain"],
    )
    def test_that_ask_for_more_than_the_gradient(self, optimizer):
        run = train(NET, PAIRS, optimizer=optimizer, steps=12, save_every=12)
        assert float(run.losses[-1]) < float(run.losses[0])

    def test_multi_steps_is_the_mean_gradient_of_its_steps(self):
        # Full batch: every third step is one of plain descent.
        several = optax.MultiSteps(SGD, 3, accumulator_dtype=np.float64)
        run = train(NET, PAIRS, optimizer=several, steps=9, save_every=3)
        plain = train(NET, PAIRS, optimizer=SGD, steps=3)
        np.testing.assert_allclose(run.losses, plain.losses, rtol=1e-11)

    def test_others_are_refused_in_words(self):
        def update(updates, state, params=None, *, hessian):
            del params, hessian
            return updates, state

        unlike: Any = update
        needy = optax.GradientTransformation(SGD.init, unlike)
        for optimizer, words in (
            (optax.lookahead(SGD, 5, 0.5), "no attribute 'fast'.*lookahead: pairs of parameters"),
            (needy, "its update raised TypeError: .*'hessian'"),
        ):
            with pytest.raises(ValueError, match=f"optimizer cannot be used: .*{words}"):
                train(NET, PAIRS, optimizer=optimizer, steps=2)


class TestResume:
    ADAM = optax.adam(0.01)

    @pytest.mark.slow
    def test_two_halves_are_the_whole(self, plain_python):
        # As users compile: the tests' flags let programs of other lengths differ in the last bit.
        run = plain_python(
            """
import equinox as eqx, jax, numpy as np, optax
from gdln_jax import GatedData, GatedNetwork, Graph, init, train
data = GatedData({"x": np.eye(2)}, {"y": np.array([[2.0, 1], [0, 1]])})
net = GatedNetwork.init(Graph.chain([2, 2, 2]), init.orthogonal(0.5), key=jax.random.key(0))
options = {"optimizer": optax.adam(0.01), "save_every": 2, "batch_size": 1}
options["key"] = jax.random.key(4)
whole = train(net, data, steps=12, **options)
half = train(net, data, steps=5, **options)
rest = train(net, data, steps=7, resume=half, **options)
assert rest.ts[0] == 5 and rest.ts[-1] == 12
assert eqx.tree_equal(rest.final, whole.final)
assert eqx.tree_equal(rest.optimizer_state, whole.optimizer_state)
assert whole.losses[-1] == rest.losses[-1]
print("equal")
""",
            XLA_FLAGS="",
            JAX_DISABLE_MOST_OPTIMIZATIONS="0",
        )
        assert run.stdout == "equal\n", run.stderr

    def test_a_schedule_counts_on(self):
        # Step 7 is the first on the second data, also where the run began at step 5.
        other = GatedData({"x": 2 * np.eye(2)}, PAIRS.targets)
        schedule = Schedule([PAIRS, other], steps=[7])
        options = {"optimizer": SGD, "save_every": 5}
        whole = train(NET, schedule, steps=10, **options)
        half = train(NET, schedule, steps=5, **options)
        rest = train(NET, schedule, steps=5, resume=half, **options)
        assert eqx.tree_equal(rest.final, whole.final)

    @pytest.mark.slow
    def test_a_batch_of_runs(self):
        nets = jax.tree.map(lambda w: jnp.stack([w, 0.5 * w]), NET)

        def run(net, steps, resume=None):
            return train(net, PAIRS, optimizer=SGD, steps=steps, resume=resume, save_every=5)

        whole, half = (jax.vmap(lambda net, n=n: run(net, n))(nets) for n in (10, 5))
        rest = jax.vmap(lambda net, half: run(net, 5, half))(nets, half)
        np.testing.assert_allclose(rest.losses[:, -1], whole.losses[:, -1], rtol=1e-12)
        with pytest.raises(ValueError, match=r"resume is a batch of runs, of shape \(2,\)"):
            run(NET, 5, half)

    def test_refusals(self):
        half = train(NET, PAIRS, optimizer=self.ADAM, steps=5, save_every=5)
        smaller = GatedNetwork(Graph.chain([2, 2]), {"x->y": np.eye(2)})
        flow = eqx.tree_at(lambda r: r.optimizer_state, half, None)
        lost = eqx.tree_at(lambda r: r.status, half, 1)
        for model, given, optimizer, resume, words in (
            (NET, PAIRS, SGD, half, "resume is a run of another optimizer"),
            (smaller, PAIRS, self.ADAM, half, "resume is a run of another model"),
            (NET, PAIRS, self.ADAM, flow, "resume is a gradient flow, without the state"),
            (NET, PAIRS, self.ADAM, lost, "resume is a run that diverged"),
        ):
            with pytest.raises(ValueError, match=words):
                train(model, given, optimizer=optimizer, steps=2, resume=resume)


@pytest.mark.filterwarnings("ignore:nothing was learned")  # few steps, on purpose
class TestLostUpdates:
    """In float32 an update below eps |w| is rounded away: eta sigma w0 < eps."""

    GRAPH = Graph.chain([1, 1, 1, 1])
    DATA = GatedData({"x": np.ones((1, 1))}, {"y": np.full((1, 1), 3.0)})

    def start(self, w0, dtype):
        network = GatedNetwork(self.GRAPH, {e.name: np.full((1, 1), w0) for e in self.GRAPH.edges})
        return jax.tree.map(lambda leaf: leaf.astype(dtype), (network, self.DATA))

    def test_float32_is_warned_of_and_does_not_move(self):
        network, data = self.start(1e-5, np.float32)
        with pytest.warns(LostUpdatesWarning, match=r"100% of the first update .* float64"):
            run = train(network, data, optimizer=optax.sgd(1e-3), steps=2000, save_every=2000)
        assert float(run.losses[-1]) == float(run.losses[0])

    def test_float64_is_not_and_does(self):
        network, data = self.start(1e-5, np.float64)
        run = train(network, data, optimizer=optax.sgd(1e-3), steps=2000, save_every=2000)
        name = self.GRAPH.edges[0].name
        # dw/dt = 3 w^2 while small: after t = 2, 1e-5 (1 + 6e-5)
        grown = float(run.final.weights[name][0, 0]) / 1e-5 - 1
        assert grown == pytest.approx(6e-5, rel=1e-3)

    def test_float32_from_larger_weights_is_fine(self):
        network, data = self.start(0.1, np.float32)
        run = train(network, data, optimizer=optax.sgd(1e-2), steps=10)
        assert run.losses.dtype == np.float32
        assert float(run.losses[-1]) < float(run.losses[0])

    def test_a_traced_learning_rate_in_float32(self):
        network, data = self.start(0.1, np.float32)

        def final(rate):
            return train(network, data, optimizer=optax.sgd(rate), steps=3).losses[-1]

        rates = jnp.array([0.01, 0.02], np.float32)
        losses = jax.vmap(final)(rates)
        assert float(losses[1]) < float(losses[0])


class TestBatchesOfRuns:
    def test_traced_learning_rates_equal_single_runs(self):
        rates = jnp.array([0.01, 0.05])

        @jax.jit
        def runs(rates):
            return jax.vmap(lambda rate: train(NETWORK, DATA, optimizer=optax.sgd(rate), steps=5))(
                rates
            )

        batch = runs(rates)
        assert batch.losses.shape == (2, 6)
        np.testing.assert_allclose(batch.losses[0], loop(5, 0.01)[0], rtol=1e-12)
        np.testing.assert_allclose(batch.losses[1], loop(5, 0.05)[0], rtol=1e-12)

    def test_one_diverging_member_spoils_no_other(self):
        rates = jnp.array([0.05, 1e6])

        def run(rate):
            return train(NETWORK, DATA, optimizer=optax.sgd(rate), steps=40)

        batch = jax.jit(jax.vmap(run))(rates)
        assert batch.status.tolist() == [0, 1]
        np.testing.assert_allclose(batch.losses[0], loop(40, 0.05)[0], rtol=1e-11)
        bad = np.isnan(batch.losses[1])
        assert bad.any()
        assert np.all(bad[np.argmax(bad) :])  # NaN from there on
        assert "1 x ok, 1 x diverged" in repr(batch)

    def test_divergence_is_an_error_that_names_the_step(self):
        with pytest.raises(SolveError, match=r"no longer finite at step \d+ of 40: .*rate"):
            train(NETWORK, DATA, optimizer=optax.sgd(1e6), steps=40)
        run = train(NETWORK, DATA, optimizer=optax.sgd(1e6), steps=40, throw=False)
        assert int(run.status) == 1

    def test_new_data_and_weights_do_not_retrace(self):
        # With one optimiser object
        traces = []

        def loss(network, data):
            traces.append(1)
            return mse(network, data)

        train(NETWORK, DATA, optimizer=SGD, steps=3, loss=loss)
        first = len(traces)
        assert 0 < first <= 3
        for scale in (1.5, 2.0):  # smaller ones learn nothing, which costs a check
            network, data = jax.tree.map(lambda a, s=scale: a * s, (NETWORK, DATA))
            train(network, data, optimizer=SGD, steps=3, loss=loss)
        assert len(traces) == first

    def test_strict_promotion(self):
        # Plain SGD obeys it, in both precisions
        with jax.numpy_dtype_promotion("strict"), warnings.catch_warnings():
            for dtype in (np.float64, np.float32):
                network, data = jax.tree.map(lambda a, t=dtype: a.astype(t), (NETWORK, DATA))
                run = train(network, data, optimizer=SGD, steps=2)
                assert run.losses.dtype == dtype
                assert {s.dtype for s in run.final.stacks} == {np.dtype(dtype)}

    def test_a_model_without_weights_is_refused(self):
        with pytest.raises(ValueError, match=r"no floating-point array"):
            train(eqx.nn.Identity(), DATA, optimizer=SGD, steps=1)


def new_programs(first, second):
    """How often training by `second` traces its measure after training by `first` did."""
    traces = []

    def measure(network):
        traces.append(1)
        return network.stacks[0].sum()

    def run(optimizer):
        return train(NETWORK, DATA, optimizer=optimizer, steps=2, measure=measure).losses

    jax.eval_shape(lambda: run(first))  # nothing is compiled
    before = len(traces)
    jax.eval_shape(lambda: run(second))
    return len(traces) - before


class TestProgramsAreKept:
    """An optimiser made anew from the same numbers runs the program that there is."""

    def test_by_numbers_and_not_by_identity(self):
        traces = []

        def counted(model, data):
            traces.append(1)
            return mse(model, data)

        def run(optimizer):
            before = len(traces)
            train(NETWORK, DATA, optimizer=optimizer, steps=2, loss=counted)
            return len(traces) - before

        first = run(optax.sgd(0.05))
        # What is left are the checks before the run, which trace the loss outside of it.
        assert run(optax.sgd(0.05)) < first
        assert run(optax.sgd(0.06)) == first

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (lambda: optax.adamw(1e-3), lambda: optax.adamw(1e-3, b1=0.8)),
            (
                lambda: optax.chain(optax.clip(1.0), optax.sgd(0.1)),
                lambda: optax.chain(optax.clip(2.0), optax.sgd(0.1)),
            ),
            (
                lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 100)),
                lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 101)),
            ),
            (
                lambda: optax.sgd(optax.exponential_decay(0.1, 10, 0.9)),
                lambda: optax.sgd(optax.exponential_decay(0.1, 10, 0.8)),
            ),
            (
                lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=0.1),
                lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=0.2),
            ),
            (lambda: optax.contrib.muon(0.1), lambda: optax.contrib.muon(0.1, ns_steps=4)),
            (
                lambda: optax.MultiSteps(optax.sgd(0.1), 2),
                lambda: optax.MultiSteps(optax.sgd(0.1), 3),
            ),
        ],
    )
    def test_what_is_equal(self, one, other):
        assert not new_programs(one(), one())
        assert new_programs(one(), other())

    def test_rules_by_numbers(self, plainly):
        # Run-time shape checks make new code in every call.
        plainly("""
import gdln_jax as gdln, jax
from gdln_jax import rules
task, seen = gdln.tasks.routing(2, 2), []
graph = gdln.Graph({"x": 2, "h": 2, "y": 2}, [("x", "h"), ("h", "y")])
net = gdln.GatedNetwork.init(graph, gdln.init.normal(0.1), key=jax.random.key(0))
data = gdln.GatedData({"x": jax.numpy.eye(2)}, {"y": jax.numpy.eye(2)})

def traces(rule, loss):
    before = len(seen)
    jax.eval_shape(lambda: gdln.train(net, data, optimizer=rule, steps=2, measure=loss).losses)
    return len(seen) - before

RATES = {"x->h": 0.1, "h->y": 0.1}
PAIRS = [
    (lambda: rules.sgd(0.1, momentum=0.9), lambda: rules.sgd(0.1, momentum=0.8)),
    (lambda: rules.muon(0.1), lambda: rules.muon(0.1, ns_steps=4)),
    (lambda: rules.sgd(RATES), lambda: rules.sgd(RATES | {"x->h": 0.2})),
    (
        lambda: rules.by_edge({"x->h": rules.sgd(0.1)}, default=None),
        lambda: rules.by_edge({"x->h": rules.sgd(0.2)}, default=None),
    ),
]
for one, other in PAIRS:
    def measure(network):
        seen.append(1)
        return network.stacks[0].sum()
    assert [traces(rule(), measure) > 0 for rule in (one, one, other)] == [True, False, True]
reduction = gdln.reduce(task.graph, task.data)
listen = lambda event, _, **more: seen.append(str(more.get("fun_name")))
jax.monitoring.register_event_duration_secs_listener(listen)
for _ in range(2):
    seen.clear()
    reduction.train(0.1, rule=rules.sgd(0.02), steps=2, check_end=False)
assert not any("_train" in name for name in seen), seen
""")

    def test_a_measure_with_arrays_of_its_own(self):
        # docs/startup.md: a function of the module, and its arrays beside it
        traces, counts = [], []

        def distance(target, network):
            traces.append(1)
            return jnp.sum((network.stacks[0] - target) ** 2)

        for size in (1.0, 2.0):
            target = jnp.full(NETWORK.stacks[0].shape, size)
            measure = jax.tree_util.Partial(distance, target)
            run = train(NETWORK, DATA, optimizer=SGD, steps=2, measure=measure)
            first = jnp.sum((NETWORK.stacks[0] - size) ** 2)
            assert float(run.measured[0]) == pytest.approx(float(first))
            counts.append(len(traces))
        assert counts[0] == counts[1]

    def test_what_may_change_is_equal_to_itself_only(self):
        rate = {"now": 0.1}

        def made():
            return optax.sgd(lambda _: rate["now"])

        assert new_programs(made(), made())

        def from_a_page():  # compiled from text, as blocks of pages are: of no module
            scope = {"optax": optax, "__name__": None}
            exec("made = lambda: optax.sgd(lambda count: 0.1)", scope)
            return scope["made"]()

        assert new_programs(from_a_page(), from_a_page())
        same = made()
        assert not new_programs(same, same)
