"""Finding gates, choosing their number, building and judging the gated network (H App. B, 3.1)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from recipe_parts import ensembles as sim

import gdln_jax as gdln
from gdln_jax import GatedData, Graph, relu, tasks

STD = 7.142857e-6


def trained(task, std, rate, steps, every, seeds, threshold=0.0):
    """ReLU networks in float32, with snapshots."""
    data = sim.as_type(plain(task), jnp.float32)
    nets = jax.vmap(lambda k: relu.ReLUNetwork.init(task.graph, std=std, key=k))(sim.keys(0, seeds))
    return sim.descend(
        sim.as_type(nets, jnp.float32), data, rate, steps, every,
        measure=lambda net: relu.snapshot(net, data, threshold=threshold),
    )  # fmt: skip


def plain(task) -> GatedData:
    """The data of an ungated task, unpacked."""
    assert isinstance(task.data, GatedData)
    return task.data


def contexts(c, structures="same", width=700):
    return tasks.semantic_contexts(c, structures=structures, pathways="none", width=width)


@pytest.fixture(scope="module")
def task():
    return contexts(3, "different")


@pytest.fixture(scope="module")
def runs(task):
    """H's main task at four times H's step, which moves the curves by less than a seed does."""
    return trained(task, STD, 96e-3, 2000, 25, 12)


def some(runs, count):
    return jax.tree.map(lambda a: a[:count], runs)


def words(modules, task):
    return {"".join(map(str, row)) for row in modules.by_group(task.meta["context"])}


DOUBLES = {"111", "110", "101", "011"}


def one(runs, s):
    return jax.tree.map(lambda a: a[s], runs.measured)


@pytest.mark.slow
def test_defaults_find_the_gates_of_h_in_every_run(runs, task):
    """Known: {111, 110, 101, 011} by block majority in 12 of 12 runs, H's way in 10 or 11."""
    found = [relu.discover_gates(one(runs, s), k=4) for s in range(12)]
    assert [words(modules, task) for modules in found] == [DOUBLES] * 12
    as_h = [relu.discover_gates(one(runs, s), k=4, weight=None, drop_dead=False) for s in range(12)]
    assert 9 <= sum(words(modules, task) == DOUBLES for modules in as_h) <= 11
    last = [jax.tree.map(lambda a, s=s: a[s, -1], runs.measured) for s in range(12)]
    assert all(words(relu.discover_gates(m, k=4), task) == DOUBLES for m in last)


@pytest.mark.slow
def test_modules_add_up(runs, task):
    modules = relu.discover_gates(runs.measured, k=4)
    assert words(modules, task) == DOUBLES
    assert modules.shares.sum() == pytest.approx(1, abs=1e-5)  # power is float32
    assert np.all(np.diff(modules.shares) <= 0)
    np.testing.assert_array_equal(modules.gates, modules.centroids > 0.5)
    agreed = np.abs(2 * modules.centroids - 1)
    assert np.all(modules.confidence <= agreed)
    assert 0.1 < modules.on_threshold < 1 / 3  # .2: too little to be warned of
    shots = eqx.tree_at(lambda s: s.near, runs.measured, None)
    np.testing.assert_allclose(relu.discover_gates(shots, k=4).confidence, agreed)
    on = np.asarray(runs.measured.on)
    assert modules.members.shape == (12, 81, 4)
    np.testing.assert_array_equal(modules.members.sum(-1), on.any(-1).sum(-1))
    np.testing.assert_array_equal(modules.labels == -1, ~on.any(-1))
    assert 0.3 < modules.explained < 0.6
    assert 0.75 < modules.agreement < 1
    assert "4 modules" in repr(modules)


@pytest.mark.slow
def test_permutations_and_copies(runs):
    """Units, examples, runs: permuted in, permuted out; twice the runs change nothing."""
    shots = jax.tree.map(lambda a: np.asarray(a[:2]), runs.measured)
    before = relu.discover_gates(shots, k=4)
    rng = np.random.default_rng(0)
    units, examples = rng.permutation(700), rng.permutation(24)
    other = relu.Snapshots(
        shots.on[..., units, :][..., examples], shots.power[..., units],
        shots.output[..., examples, :],
    )  # fmt: skip
    moved = relu.discover_gates(other, k=4)
    np.testing.assert_allclose(moved.centroids, before.centroids[:, examples], atol=1e-6)
    np.testing.assert_array_equal(moved.labels, before.labels[..., units])
    twice = relu.discover_gates(jax.tree.map(lambda a: np.concatenate([a, a[::-1]]), shots), k=4)
    np.testing.assert_allclose(twice.centroids, before.centroids, atol=1e-9)
    np.testing.assert_allclose(twice.shares, before.shares, atol=1e-9)


def made(on, power):
    return relu.Snapshots(
        np.asarray(on, bool),
        np.asarray(power, float),
        np.zeros((*np.shape(on)[:-2], np.shape(on)[-1], 1)),
    )


def test_weights_by_hand():
    """Two kinds and a dead unit: shares, agreement and a variance that is all explained."""
    shots = made([[1, 1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]], [0.3, 0.3, 0.4, 0.0])
    found = relu.discover_gates(shots, k=2)
    np.testing.assert_array_equal(found.gates, [[1, 1, 0], [0, 1, 1]])
    np.testing.assert_allclose(found.shares, [0.6, 0.4])
    np.testing.assert_array_equal(found.labels, [0, 0, 1, -1])
    assert (found.explained, found.agreement) == (pytest.approx(1), pytest.approx(1))
    merged = relu.discover_gates(shots, k=1)
    np.testing.assert_allclose(merged.centroids, [[0.6, 1, 0.4]])
    assert merged.explained == pytest.approx(0)
    assert merged.agreement == pytest.approx(0.6 + 0.4 / 3)
    dead = relu.discover_gates(shots, k=3, weight=None, drop_dead=False)
    assert [0, 0, 0] in dead.gates.tolist()


def test_units_on_their_threshold_are_said_and_do_not_count_as_agreement():
    """XoR with inputs +-1: units end at 0 on two of the four examples, where the sign is chance."""
    task = tasks.xor(gating="none", width=32)
    assert isinstance(task.data, GatedData)
    net = relu.ReLUNetwork.init(task.graph, std=0.01, key=jax.random.key(0))
    run = gdln.train(net, task.data, optimizer=optax.sgd(0.4), steps=60, keep_models=False)
    shot = relu.snapshot(run.final, task.data)
    assert np.asarray(shot.near).sum(axis=1).tolist() == [2] * 32
    with pytest.warns(UserWarning, match=r"on their threshold for 50% .* threshold=0.1"):
        found = relu.discover_gates(shot, k=2)
    assert found.on_threshold == pytest.approx(0.5)
    assert found.confidence.mean() <= 0.5
    assert "on their threshold 50%" in repr(found)
    clear = relu.discover_gates(relu.snapshot(run.final, task.data, threshold=0.1), k=4)
    assert sorted(clear.gates.tolist()) == sorted(np.eye(4, dtype=int).tolist())
    assert (clear.on_threshold, clear.agreement) == pytest.approx((0, 1))
    np.testing.assert_allclose(clear.confidence, 1)
    power = relu.pattern_power(run.final, task.data)
    assert power.on_threshold == pytest.approx(0.5)
    assert "on their threshold: 50%" in repr(power)
    # By hand: the gate of the strong unit is right where something is at stake, and only there.
    shots = relu.Snapshots(
        np.array([[1, 1, 0], [1, 0, 0]], bool),
        np.array([0.9, 0.1]),
        np.ones((3, 1)),
        np.array([[0, 0, 0], [0, 1, 1]], bool),
    )
    assert relu.discover_gates(shots, k=1).agreement == pytest.approx(1)


def test_a_moment_without_output_does_not_count():
    shots = made([[[1, 0], [0, 1]]] * 2, [[0.6, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(relu.discover_gates(shots, k=2).shares, [0.6, 0.4])
    with pytest.raises(ValueError, match="the outputs are 0"):
        relu.discover_gates(made([[1, 0], [0, 1]], [0.0, 0.0]), k=1)


def xnor(**options):
    """XNOR on inputs 0 and 1, which no network without biases can learn, and trained networks."""
    data = GatedData({"x": [[0, 0], [1, 0], [0, 1], [1, 1]]}, {"y": [[1], [0], [0], [1]]})
    nets = jax.vmap(lambda k: relu.ReLUNetwork.init([2, 64, 1], std=0.05, key=k, **options))(
        jax.random.split(jax.random.key(0), 2)
    )

    def run(net):
        return gdln.train(
            net,
            data,
            optimizer=optax.sgd(0.3),
            steps=1000,
            save_every=50,
            keep_models=False,
            measure=lambda net: relu.snapshot(net, data),
        )

    return data, jax.vmap(run)(nets)


HOW = {"learning_rate": 0.3, "std": 0.05, "key": jax.random.key(0)}


@pytest.mark.slow
def test_biases_and_slopes_go_into_the_imitation():
    """With the constant as a third input the answer is k = 2, too, with a gap of .002 to .007."""
    data, runs = xnor(bias=True, slope=0.1)
    choice = relu.choose_k(runs, data, ks=(1, 2), **HOW)
    assert choice.k == 2
    one, two = choice.gap.mean(axis=1)
    assert two < 0.02
    assert one > 0.2
    graph, gated, net = gdln.build_gated(choice.chosen, data, std=0.05, key=jax.random.key(0))
    assert {edge.name for edge in graph.outgoing["1"]} == {"1->m1", "1->m2", "1->y"}
    assert all(not np.any(net.weights[edge.name]) for edge in graph.outgoing["1"])
    np.testing.assert_array_equal(gated.inputs["1"], np.ones((4, 1)))
    gates = np.stack([gated.node_gates["m1"], gated.node_gates["m2"]])
    np.testing.assert_allclose(gates, np.where(choice.chosen.gates, 1, 0.1))


def test_hidden_layers_are_not_left_out_in_silence():
    data = plain(tasks.xor(gating="none"))
    net = relu.ReLUNetwork.init([2, 6, 6, 1], key=jax.random.key(0))
    modules = relu.discover_gates(relu.snapshot(net, data, threshold=0.1), k=1)
    with pytest.raises(ValueError, match=r"2 hidden layers.*as_gated"):
        gdln.build_gated(modules, data, std=0.1, key=jax.random.key(0))
    run = jax.vmap(
        lambda net: gdln.train(
            net,
            data,
            optimizer=optax.sgd(0.1),
            steps=1,
            measure=lambda net: relu.snapshot(net, data, threshold=0.1),
        )
    )(jax.tree.map(lambda w: w[None], net))
    for fit in (
        lambda: relu.choose_k(run, data, ks=(1,), **HOW),
        lambda: relu.fit_scales(modules, run, data, **HOW),
    ):
        with pytest.raises(ValueError, match="2 hidden layers"):
            fit()


def test_refusals_of_discover_gates():
    shots = made([[1, 0], [0, 1]], [0.5, 0.5])
    with pytest.raises(ValueError, match="only 2 different patterns"):
        relu.discover_gates(shots, k=3)
    with pytest.raises(ValueError, match="not finite"):
        relu.discover_gates(made([[1, 0], [0, 1]], [np.nan, 0.5]), k=1)
    with pytest.raises(ValueError, match="outside of jit"):
        eqx.filter_jit(lambda s: relu.discover_gates(s, k=1))(jax.tree.map(jnp.asarray, shots))
    with pytest.raises(ValueError, match="groups has shape"):
        relu.discover_gates(shots, k=1).by_group([0, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("c", [3, 4])
def test_k_is_c_plus_1_for_equal_structures(c):
    task = contexts(c, width=300)
    runs = trained(task, STD, 4e-3 * task.meta["loss_scale"], 2000, 50, 2)
    choice = chosen(runs, task, 4e-3 * task.meta["loss_scale"], range(c, c + 3))
    assert choice.k == c + 1
    full = {"1" * c, *("1" * k + "0" + "1" * (c - 1 - k) for k in range(c))}
    assert words(choice.chosen, task) == full


def chosen(runs, task, rate, ks, std=STD):
    return relu.choose_k(
        runs, plain(task), learning_rate=rate, std=std, key=jax.random.key(5), ks=tuple(ks)
    )


@pytest.mark.slow
def test_k_of_h(runs, task):
    """Known: best at 4 (.81e-3) to 5 (.80e-3), 10.97e-3 at 1, as mean squares."""
    few = some(runs, 3)
    choice = chosen(few, task, 96e-3, (1, 3, 4, 5))
    assert choice.k == 4
    assert words(choice.chosen, task) == DOUBLES
    mean_square = choice.gap.mean(1) * np.mean(np.asarray(few.measured.output) ** 2)
    np.testing.assert_allclose(mean_square[[0, 2]], [10.97e-3, 0.81e-3], rtol=0.15)
    assert choice.spread < 0.001
    assert choice.stability[2] > 0.5


@pytest.mark.slow
def test_k_of_xor_and_of_random_labels():
    task = tasks.xor(gating="none")
    choice = chosen(trained(task, 2e-4, 0.4, 120, 2, 3, 0.1), task, 0.4, (3, 4, 5), 2e-4)
    assert choice.k == 4
    np.testing.assert_array_equal(np.sort(choice.chosen.gates.argmax(1)), range(4))
    rng = np.random.default_rng(0)
    data = GatedData({"x": rng.normal(size=(128, 8))}, {"y": rng.choice([-1.0, 1], (128, 8))})
    noise = tasks.Task(Graph.chain([8, 128, 8]), data, "random labels", {})
    choice = chosen(trained(noise, 0.02, 0.1, 1500, 50, 2), noise, 0.1, (1, 3), 0.02)
    assert choice.k is None
    assert choice.gap.mean(1).min() > 0.3  # .42, against .01 where a gated network imitates
    assert "no small gated network imitates this one" in choice.reason
    with pytest.raises(ValueError, match="no modules to choose"):
        _ = choice.chosen


def test_build_gated():
    data = plain(tasks.xor(gating="none"))
    shots = made(np.eye(4), [0.4, 0.3, 0.2, 0.1])
    shots = made(np.repeat(shots.on, 30, 0), np.repeat(shots.power / 30, 30))
    modules = relu.discover_gates(shots, k=4)
    graph, gated, net = gdln.build_gated(modules, data, std=0.1, key=jax.random.key(0))
    assert [graph.nodes[h] for h in graph.hidden] == [30] * 4
    np.testing.assert_array_equal(np.stack([gated.node_gates[h] for h in graph.hidden]), np.eye(4))
    x, gates, weights = jax.tree.map(
        np.asarray, (data.inputs["x"], gated.node_gates, dict(net.weights))
    )
    out = sum(
        gates[h][:, None] * (x @ weights[f"x->{h}"].T @ weights[f"{h}->y"].T) for h in graph.hidden
    )
    np.testing.assert_allclose(eqx.filter_jit(type(net).__call__)(net, gated)["y"], out, atol=1e-14)
    keys = jax.random.split(jax.random.key(0), 3)
    stds = {}
    for scales in ("units", "turning", "equal", 2.0):
        *_, many = gdln.build_gated(modules, data, std=0.1, key=keys, width=400, scales=scales)
        assert many.weights["x->m1"].shape == (3, 400, 2)
        stds[scales] = float(np.std(many.weights["x->m1"]))
    assert stds["equal"] == pytest.approx(0.1, rel=0.05)
    assert stds[2.0] / stds["equal"] == pytest.approx(2)
    assert stds["units"] / stds["equal"] == pytest.approx(np.sqrt(30 / 400))
    assert stds["turning"] / stds["units"] == pytest.approx(np.sqrt(2 * 0.661699))
    with pytest.raises(ValueError, match="one per module"):
        gdln.build_gated(modules, data, std=0.1, key=keys, scales=[1.0, 2.0])
    with pytest.raises(ValueError, match="the data have"):
        gdln.build_gated(modules, data.take(np.arange(3)), std=0.1, key=keys)
    off = relu.discover_gates(made(np.zeros((2, 4)), [0.5, 0.5]), k=1, drop_dead=False)
    with pytest.raises(ValueError, match="every module is off"):
        gdln.build_gated(off, data, std=0.1, key=keys)


def test_turning_units_match_the_early_growth_of_xor():
    """E14: with kappa the gated network is on time, with n std^2/2 it is late by ln(2 kappa)/2s."""
    task = tasks.xor(gating="none")
    runs = trained(task, 2e-4, 0.04, 900, 10, 6, 0.1)
    modules = relu.discover_gates(runs.measured, k=4)
    data = plain(task)
    half = {}
    for scales in ("units", "turning"):
        graph, gated, nets = gdln.build_gated(
            modules, data, std=2e-4, key=sim.keys(1, 24), width=64, scales=scales
        )
        run = sim.descend(nets, gdln.pack(graph, gated), 0.04, 900, 10)
        half[scales] = np.mean(sim.first_below(run.losses, 0.04 * run.ts[0], 0.25))
    relus = np.mean(sim.first_below(runs.losses, 0.04 * runs.ts[0], 0.25))
    late = np.log(2 * 0.661699) / (2 * np.sqrt(2) / 4)
    assert half["units"] - half["turning"] == pytest.approx(late, rel=0.05)
    assert abs(half["turning"] - relus) < 0.5 * late


@pytest.mark.slow
def test_a_fit_finds_the_turning_units_of_xor_and_says_that_it_is_one():
    """E14: a(0) = n kappa std^2, so that each factor of std is sqrt(2 kappa) = 1.152.

    Near the flow, and up to the scatter of four pathways of some 30 units in 6 networks; at five
    times this step the factors come out at .89.
    """
    task = tasks.xor(gating="none")
    runs = trained(task, 2e-4, 0.08, 600, 10, 6, 0.1)
    modules = relu.discover_gates(runs.measured, k=4)
    how = {"learning_rate": 0.08, "std": 2e-4, "key": jax.random.key(3), "width": 256}
    fit = relu.fit_scales(modules, runs, plain(task), evaluations=40, **how)
    assert fit.gap < fit.gap_before
    assert np.exp(np.log(fit.factors).mean()) == pytest.approx(np.sqrt(2 * 0.661699), rel=0.1)
    assert "FITTED" in repr(fit)
    # What build_gated makes of it starts there.
    _, _, net = gdln.build_gated(
        modules, plain(task), std=2e-4, key=jax.random.key(0), width=256, scales=fit.scales
    )
    found = [float(np.std(net.weights[f"x->m{m + 1}"])) for m in range(4)]
    np.testing.assert_allclose(found, 2e-4 * fit.scales, rtol=0.15)
    with pytest.raises(ValueError, match="evaluations"):
        relu.fit_scales(modules, runs, plain(task), evaluations=1, **how)


def test_imitation_gap_by_hand():
    def run(losses, output):
        n = len(losses)
        ts, status = jnp.tile(jnp.arange(4), (n, 1)), jnp.zeros(n, int)
        measured = {"output": jnp.asarray(output)}
        return gdln.Trajectory(ts, jnp.asarray(losses), status, {}, None, None, measured)

    base = np.tile([4.0, 3.0, 2.0, 1.0], (2, 1))
    output = np.ones((2, 4, 3, 2))
    one, other = run(base, output), run(base + np.array([[0], [1]]), output + 0.5)
    gap = gdln.imitation_gap(one, other)
    np.testing.assert_allclose(gap.loss, [[0] * 4, [0.25] * 4])
    np.testing.assert_allclose(gap.output, 0.25)
    np.testing.assert_allclose(gap.late, [0, (1 / 2 + 1) / 2])
    np.testing.assert_allclose(gap.mean_output, 0.25)
    assert gap.late_spread == 0
    yard = gdln.imitation_gap(other, one)
    np.testing.assert_allclose(yard.loss_spread, 1 / 4.5)
    assert "2 seeds" in repr(gap)
    # Two ReLU networks, losses 4 and 12, are 8 apart: once their mean loss, in either order.
    pair = [run(base * np.array([[1], [factor]]), output) for factor in (3, 1 / 3)]
    for both in pair:
        yard = gdln.imitation_gap(both, both)
        np.testing.assert_allclose(yard.loss_spread[0], 1)
        assert yard.late_spread == pytest.approx(1)
        assert yard.in_spreads.tolist() == [0, 0]
    silent = run(base, 0 * output)
    with pytest.raises(ValueError, match="outputs are 0"):
        gdln.imitation_gap(silent, one)
    with pytest.raises(ValueError, match="as many of both"):
        gdln.imitation_gap(one, run(np.tile(base, (2, 1))[:3], np.ones((3, 4, 3, 2))))
    with pytest.raises(ValueError, match="has no outputs"):
        gdln.imitation_gap(one, eqx.tree_at(lambda r: r.measured, one, {"loss": jnp.ones(3)}))


def test_a_network_imitates_itself():
    """From the public functions alone, as the page in the docs does it."""
    task = tasks.xor(gating="none", width=16)
    net = relu.ReLUNetwork.init(task.graph, std=0.01, key=jax.random.key(0))
    run = gdln.train(
        net, task.data, optimizer=optax.sgd(0.4), steps=40, save_every=10,
        measure=lambda net: relu.snapshot(net, plain(task)),
    )  # fmt: skip
    gap = gdln.imitation_gap(run, run)
    assert (gap.max_loss, gap.max_output, gap.late) == (0, 0, 0)
    assert np.isnan(gap.late_spread)
