"""Tasks: each holds the statistics, losses and closed forms that its docstring states."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import gdln_jax as gdln
from gdln_jax import tasks

# One program for each task: op by op, each compiles dozens.
mse = jax.jit(gdln.mse)
mse_and_gradient = jax.jit(jax.value_and_grad(gdln.mse))


def dense(task: tasks.Task) -> gdln.GatedData:
    assert isinstance(task.data, gdln.GatedData)
    return task.data


def statistics(task: tasks.Task) -> gdln.PathStatistics:
    return gdln.path_statistics(task.graph, dense(task))


def zero_loss(task: tasks.Task) -> float:
    zeros = {e.name: np.zeros(task.graph.shape(e.name)) for e in task.graph.edges}
    return float(mse(gdln.GatedNetwork(task.graph, zeros), task.data))


# ---------------------------------------------------------------- XoR


def test_xor_has_the_modes_of_n_a1():
    """Sigma^yx(p) has the one singular value sqrt(2)/4 and Sigma^x the variance 1/2 along it."""
    task = tasks.xor()
    stats = statistics(task)
    assert len(stats.paths) == 4
    for p in stats.paths:
        _, s, vt = np.linalg.svd(stats.yx[p])
        np.testing.assert_allclose(s[0], np.sqrt(2) / 4, rtol=1e-14)
        np.testing.assert_allclose(vt[0] @ stats.x[p, p] @ vt[0], 0.5, rtol=1e-14)
        for j in stats.paths:
            if j != p:
                assert not np.any(stats.x[j, p])
    assert task.meta["s"] == pytest.approx(np.sqrt(2) / 4, rel=1e-15)
    assert task.meta["d"] == 0.5
    assert zero_loss(task) == task.meta["initial_loss"] == 0.5


def test_xor_sign_convention_is_that_of_e13():
    """XoR is -1 at (1, 1); N A.1 prints XNOR."""
    for at_ones in (-1, 1):
        data = dense(tasks.xor(at_ones=at_ones))
        products = np.prod(data.inputs["x"], axis=1)
        np.testing.assert_array_equal(data.targets["y"][:, 0], at_ones * products)
    np.testing.assert_array_equal(dense(tasks.xor()).targets["y"][-1], [-1])


def test_xor_flow_reaches_the_reference_losses(reference):
    """L = 1/2 - sqrt(2) a + a^2 with N Eq. 21, from a0 = 2e-4 at tau = 2.5."""
    task = tasks.xor(width=2)
    expected = reference["exact"]["xor"]
    x, y = dense(task).inputs["x"], dense(task).targets["y"]
    hidden = np.array([1.0, 0.0])
    weights = {}
    for i in range(4):
        b = np.sqrt(2e-4)
        weights[f"x->h{i + 1}"] = b * np.outer(hidden, x[i] / np.sqrt(2))
        weights[f"h{i + 1}->y"] = b * np.outer(y[i], hidden)
    net = gdln.GatedNetwork(task.graph, weights)
    run = gdln.gradient_flow(net, task.data, jnp.array(expected["t"], float), tau=2.5)
    # 12 digits, less what the solver's relative tolerance of 1e-10 per weight leaves.
    np.testing.assert_allclose(run.losses[:2], expected["L"][:2], rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.losses[2], expected["L"][2], rtol=0, atol=5e-10)  # 9 digits


def test_xor_without_gates_has_nothing_for_a_linear_network():
    task = tasks.xor(gating="none")
    stats = statistics(task)
    assert not np.any(stats.yx[stats.paths[0]])
    assert task.graph.nodes == {"x": 2, "h1": 128, "y": 1}
    assert "s" not in task.meta


# ---------------------------------------------------------------- margin


@pytest.mark.parametrize("gating", ["linear", "xor"])
@pytest.mark.parametrize("delta", [0.3, 0.8164965809277260, 1.5])
def test_margin_modes_and_loss(gating: str, delta: float):
    """theory#xor: s, d of both gatings; the loss of equal amplitudes a is 1/2 - n s a + n d a^2/2.

    With E15's d the minimum is 0; with H's d = 1/8 + Delta^2/16 it would not be.
    """
    task = tasks.margin_xor(delta, gating=gating)
    stats = statistics(task)
    s, d = float(task.meta["s"]), float(task.meta["d"])
    for p in stats.paths:
        _, values, vt = np.linalg.svd(stats.yx[p])
        np.testing.assert_allclose(values[0], s, rtol=1e-13)
        np.testing.assert_allclose(vt[0] @ stats.x[p, p] @ vt[0], d, rtol=1e-13)
    n = len(stats.paths)
    a = s / d
    assert abs(0.5 - n * s * a + n * d * a**2 / 2) < 1e-14
    expected = {
        "linear": (delta / 2, delta**2 / 2),
        "xor": (np.sqrt(2 + delta**2) / 4, (2 + delta**2) / 4),
    }
    np.testing.assert_allclose((s, d), expected[gating], rtol=1e-14)
    assert zero_loss(task) == 0.5


def test_margin_rates_cross_at_the_root_of_two_thirds():
    at = tasks.margin_xor(0.0).meta["crossover"]
    linear, xor = (tasks.margin_xor(at, gating=g).meta["s"] for g in ("linear", "xor"))
    np.testing.assert_allclose(linear, xor, rtol=1e-14)


def test_margin_times_to_criterion_are_the_reference(reference):
    """Time to L = .2 at Delta = .4 from a0 = 2e-8, tau = 2.5, by N Eq. 21 with `meta`'s s, d."""
    expected = reference["exact"]["margin"]["t_L_0.2"]["delta_0.4"]
    for gating in ("linear", "xor"):
        meta = tasks.margin_xor(0.4, gating=gating).meta
        s, d = float(meta["s"]), float(meta["d"])
        # L = (1 - a d/s)^2 / 2 in both cases
        a = (1 - np.sqrt(0.4)) * s / d
        t = 2.5 / (2 * s) * np.log(a * (s - d * 2e-8) / (2e-8 * (s - d * a)))
        np.testing.assert_allclose(t, expected[gating], rtol=1e-12)


def test_margin_hidden_units_add_up_to_128():
    for gating, widths in (("linear", [64] * 2), ("xor", [32] * 4), ("none", [128])):
        graph = tasks.margin_xor(1.0, gating=gating).graph
        assert [graph.nodes[h] for h in graph.hidden] == widths


def test_margin_can_be_mapped_over_delta():
    def loss(delta):
        task = tasks.margin_xor(delta, gating="linear", width=1)
        net = gdln.GatedNetwork(task.graph, {e.name: jnp.ones(task.graph.shape(e.name)) for e in
                                             task.graph.edges})  # fmt: skip
        return gdln.mse(net, task.data)

    deltas = np.array([0.0, 0.5, 2.0])
    np.testing.assert_allclose(jax.jit(jax.vmap(loss))(deltas), [*map(jax.jit(loss), deltas)])


# ---------------------------------------------------------------- contextual classification


def test_contextual_population_moments_are_n_a2():
    """N Eq. 24-29."""
    free = tasks.contextual_classification(gating="none")
    stats = statistics(free)
    (p,) = stats.paths
    np.testing.assert_allclose(stats.yx[p], [[1 / 6, 1 / 6]], atol=1e-15)
    np.testing.assert_allclose(stats.x[p, p], np.eye(2) / 3, atol=1e-15)
    gated = tasks.contextual_classification()
    stats = statistics(gated)
    p, q = stats.paths
    np.testing.assert_allclose(stats.yx[p], [[1 / 6, 0]], atol=1e-15)
    np.testing.assert_allclose(stats.yx[q], [[0, 1 / 6]], atol=1e-15)
    np.testing.assert_allclose(stats.x[p, p], np.eye(2) / 6, atol=1e-15)
    np.testing.assert_allclose(stats.x[p, q], 0, atol=1e-15)
    for task in (free, gated):
        assert zero_loss(task) == pytest.approx(1 / 6, rel=1e-14)
        yx = np.asarray(statistics(task).yx[next(task.graph.paths())])
        assert np.linalg.norm(yx) == pytest.approx(task.meta["s"], rel=1e-14)


@pytest.mark.parametrize("context_input", [False, True])
@pytest.mark.parametrize("gating", ["none", "context"])
def test_contextual_flow_converges_to_the_limit(
    gating: str, context_input: bool, reference, key: jax.Array
):
    """A small start ends at the least-squares maps, with loss 1/12 or 0."""
    task = tasks.contextual_classification(gating=gating, context_input=context_input, width=3)
    net = gdln.GatedNetwork.init(task.graph, gdln.init.normal(1e-2), key=key)
    end = gdln.gradient_flow(net, task.data, jnp.array([0.0, 300.0])).final
    total = np.concatenate([end.weights[f"{h}->y"] @ end.weights[f"x->{h}"] for h in
                            task.graph.hidden])  # fmt: skip
    np.testing.assert_allclose(total[:, :2], task.meta["limit"], atol=1e-8)
    known = reference["exact"]["contextual_classification"]
    plain = known["linear_W"] if gating == "none" else known["gated_W"]
    np.testing.assert_allclose(task.meta["limit"].squeeze(), plain)
    assert float(mse(end, task.data)) == pytest.approx(task.meta["final_loss"], abs=1e-10)


def test_contextual_samples_approach_the_population(key: jax.Array):
    task = tasks.contextual_classification(20_000, key=key)
    assert dense(task).num_examples == 20_000
    p, q = (stats := statistics(task)).paths
    # Standard error of a mean of x^2 (sd .298) over 20,000 examples: .002.
    np.testing.assert_allclose(stats.yx[p], [[1 / 6, 0]], atol=0.01)
    assert not np.any(stats.x[p, q])


# ---------------------------------------------------------------- sharing

ALL_SHARES = (1, 4, 25, 100)


@pytest.mark.parametrize("p", ALL_SHARES)
def test_sharing_gradient_is_n_eq_16_17(p: int):
    """On aligned weights the velocity is sqrt(P)/M^2 B2 B3 (...) and P/M^2 B1 B3 (...)."""
    m, strength = 10, (0.7, 1.3, 0.6)
    task = tasks.pathway_sharing(m, p, width=2)
    x, y = task.meta["base"]
    u, values, vt = np.linalg.svd(y.T @ x / len(x))
    frame = {"x": vt[0], "h": np.array([0.6, 0.8]), "y": u[:, 0]}
    layer = {e.name: task.graph.level[e.source] for e in task.graph.edges}
    weights = {
        e.name: strength[layer[e.name]] * np.outer(frame[e.target[0]], frame[e.source[0]])
        for e in task.graph.edges
    }
    _, velocity = mse_and_gradient(gdln.GatedNetwork(task.graph, weights), task.data)
    rates = task.meta["rates"][p]
    assert rates == (np.sqrt(p) / m**2, p / m**2, np.sqrt(p) / m**2)
    error = values[0] - np.prod(strength) / 4
    for e in task.graph.edges:
        k = layer[e.name]
        expected = rates[k] * np.prod(strength) / strength[k] * error
        full = -np.asarray(velocity.weights[e.name])
        along = frame[e.target[0]] @ full @ frame[e.source[0]]
        np.testing.assert_allclose(along, expected, rtol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(full), abs(expected), rtol=1e-12)


def test_sharing_times_are_the_reference(reference):
    """t at which the product reaches s/(2d), from Eq. 16-17 with the task's rates, B(0) = .2."""
    for p in (1, 100):
        task = tasks.pathway_sharing(10, p, width=1)
        r1, r2, _ = task.meta["rates"][p]
        x, y = task.meta["base"]
        for s, expected in zip(
            np.linalg.svd(y.T @ x / len(x), compute_uv=False),
            reference["exact"]["sharing_M10"][f"P{p}"],
            strict=False,
        ):

            def flow(_, b, s=s, r1=r1, r2=r2):
                e = s - b[1] * b[0] ** 2 / 4
                return [r1 * b[0] * b[1] * e, r2 * b[0] ** 2 * e]

            def half(_, b, s=s):
                return b[0] ** 2 * b[1] - 2 * s

            half.terminal = True  # type: ignore[attr-defined]
            run = solve_ivp(flow, (0, 1e4), [0.2, 0.2], events=half, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(run.t_events[0][0], expected, rtol=1e-9)


@pytest.mark.parametrize("p", [1, (4, 1)])
def test_compact_sharing_is_the_same_task(p, key: jax.Array):
    plain = tasks.pathway_sharing(2, p, width=3)
    compact = tasks.pathway_sharing(2, p, width=3, compact=True)
    net = gdln.GatedNetwork.init(plain.graph, gdln.init.normal(0.5), key=key)
    one, other = (mse_and_gradient(net, t.data) for t in (plain, compact))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), one, other)
    assert zero_loss(plain) == plain.meta["initial_loss"] == 30.5


def test_fully_shared_is_routing(key: jax.Array):
    shared = tasks.pathway_sharing(3, 9, width=5)
    routing = tasks.routing(3, width=5)
    net = gdln.GatedNetwork.init(routing.graph, gdln.init.normal(0.5), key=key)
    names = {"h1": "h1_9_0_0", "h2": "h2_9_0_0"}
    same = gdln.GatedNetwork(
        shared.graph,
        {
            f"{names.get(e.source, e.source)}->{names.get(e.target, e.target)}": net.weights[e.name]
            for e in routing.graph.edges
        },
    )
    one, other = mse(net, routing.data), mse(same, shared.data)
    np.testing.assert_allclose(one, other, rtol=1e-14)


# ---------------------------------------------------------------- contexts


def test_contextual_task_is_the_reference(reference):
    """H Fig. 3-4 (SUM = loss_scale times the mean)."""
    known = reference["exact"]["contextual_task"]
    task = tasks.semantic_contexts(structures="different", width=2)
    meta = task.meta
    assert meta["x"].shape == (24, 11)
    assert meta["y"].shape == (24, 60)
    scale = meta["loss_scale"]
    assert scale == 24
    np.testing.assert_allclose(scale * meta["initial_loss"], known["L0"], rtol=1e-13)
    np.testing.assert_allclose(scale * zero_loss(task), known["L0"], rtol=1e-13)
    np.testing.assert_allclose(
        scale * meta["additive_loss"], known["L_after_additive_fit"], rtol=1e-13
    )
    np.testing.assert_allclose(
        scale * meta["singular_values"][:4], known["singular_values_YXT"], rtol=1e-12
    )
    assert meta["commutator"] == pytest.approx(0.047, abs=5e-4)


@pytest.mark.parametrize("c", [3, 4, 5])
def test_same_structures_have_the_losses_and_modes_of_science_6(c: int, reference):
    """L(0) = 96, 128, 160; after the common fit 17, 25.5, 34; S = sqrt((C-1)/C) sigma, D = C-1."""
    known = reference["exact"]["contexts"]
    task = tasks.semantic_contexts(c, width=2)
    n, meta = task.meta["loss_scale"], task.meta
    np.testing.assert_allclose(n * meta["initial_loss"], known["L0"][f"C{c}"], rtol=1e-13)
    np.testing.assert_allclose(n * meta["additive_loss"], known["L_after_common"][f"C{c}"])
    sigma = np.sqrt([7, 3, 3, 1, 1, 1, 1])
    np.testing.assert_allclose(n * meta["s"], np.sqrt((c - 1) / c) * sigma, rtol=1e-13)
    np.testing.assert_allclose(n * meta["d"], c - 1, rtol=1e-14)
    assert meta["commutator"] < 1e-13
    assert meta["x"].shape == (8 * c, 8 + c)
    assert meta["y"].shape == (8 * c, 15 * (c + 1))
    assert task.graph.num_paths == c + 1  # E18


@pytest.mark.parametrize("c", [3, 4, 5])
def test_residual_pathways_overlap_as_e16_says(c: int):
    """U_p^T U_j = -1/(C-1) on the learned modes and Sigma^x(j,p) = (C-2)/(C-1) Sigma^x(p,p)."""
    task = tasks.semantic_contexts(c, residual=True, width=2)
    assert task.graph.inputs == ("items",)
    stats = statistics(task)
    p = stats.paths[0]
    _, s, vt = np.linalg.svd(np.asarray(stats.yx[p]), full_matrices=False)
    v = vt[:7].T
    np.testing.assert_allclose(s[:7], task.meta["s"], rtol=1e-12)
    assert s[7] < 1e-14
    np.testing.assert_allclose(stats.x[p, p], task.meta["d"] * np.eye(8), atol=1e-15)
    modes = {q: np.asarray(stats.yx[q]) @ v / s[:7] for q in stats.paths}
    for q in stats.paths:
        np.testing.assert_allclose(modes[q].T @ modes[q], np.eye(7), atol=1e-12)
        if q != p:
            np.testing.assert_allclose(modes[p].T @ modes[q], -np.eye(7) / (c - 1), atol=1e-12)
            ratio = (c - 2) / (c - 1)
            np.testing.assert_allclose(stats.x[q, p], ratio * np.asarray(stats.x[p, p]), atol=1e-15)


def test_residual_contexts_follow_e17(reference):
    """The contextual pathways alone, aligned, stay equal and follow E17 (SUM: tau / 24)."""
    task = tasks.semantic_contexts(3, residual=True, width=7)
    stats = statistics(task)
    _, s, vt = np.linalg.svd(np.asarray(stats.yx[stats.paths[0]]), full_matrices=False)
    v, b0 = vt[:7].T, 1e-5
    weights = {}
    for first, second in stats.paths:
        u = np.asarray(stats.yx[first, second]) @ v / s[:7]
        weights[first] = np.sqrt(b0) * v.T
        weights[second] = np.sqrt(b0) * u
    net = gdln.GatedNetwork(task.graph, weights)
    end = gdln.gradient_flow(net, task.data, jnp.array([0.0, 4.0]), tau=1 / 24).final
    for first, second in stats.paths:
        u = np.asarray(stats.yx[first, second]) @ v / s[:7]
        b = np.diag(u.T @ (end.weights[second] @ end.weights[first]) @ v)
        np.testing.assert_allclose(b[[0, 1, 3]], reference["exact"]["contexts"]["C3"], rtol=1e-7)


@pytest.mark.parametrize(("c", "m"), list(itertools.product([3, 4, 5], [1, 2, 3])))
def test_residual_strength_depends_on_m_times_c_minus_m(c: int, m: int):
    """E23: sigma sqrt(m (C-m)/C), so m and C-m tie, and for C = 4 two of four beats three."""
    if m >= c:
        return
    word = {1: "single", 2: "double", 3: "triple"}[m]
    task = tasks.semantic_contexts(c, residual=True, pathways=word, width=2)
    stats = statistics(task)
    for p in stats.paths:
        s = np.linalg.svd(np.asarray(stats.yx[p]), compute_uv=False)[:7]
        expected = np.sqrt([7, 3, 3, 1, 1, 1, 1]) * np.sqrt(m * (c - m) / c) / (8 * c)
        np.testing.assert_allclose(s, expected, rtol=1e-12)
        np.testing.assert_allclose(task.meta["s"], expected, rtol=1e-12)


def test_pathway_words():
    def active(pathways, c=3, **options):
        return tasks.semantic_contexts(c, pathways=pathways, width=1, **options).meta["active"]

    default = tasks.semantic_contexts(3, width=1).meta["active"]
    assert active("common+double") == default
    assert default == {
        "common": (0, 1, 2),
        "in_0_1": (0, 1),
        "in_0_2": (0, 2),
        "in_1_2": (1, 2),
    }
    assert list(active("single")) == ["in_0", "in_1", "in_2"]
    assert len(active("all")) == 7
    assert len(active("common+single+double")) == 7
    assert len(active("common+most", 4)) == 5
    assert len(active("double", 4)) == 6
    task = tasks.semantic_contexts(pathways="none")
    assert task.graph.nodes == {"x": 11, "h1": 700, "y": 60}
    for name, contexts in default.items():
        gates = dense(tasks.semantic_contexts(3, width=1)).node_gates
        if name != "common":
            on = np.isin(task.meta["context"], contexts)
            np.testing.assert_array_equal(gates[name], on)


def test_structures_are_those_of_figure_3():
    ring, cross = tasks.structure("ring"), tasks.structure("cross")
    assert ring.shape == cross.shape == (15, 8)
    np.testing.assert_array_equal(ring[1], [0, 0.33, 0.66, 1, 1, 0.66, 0.33, 0])
    np.testing.assert_array_equal(ring[2], [0.33, 0.66, 1, 1, 0.66, 0.33, 0, 0])
    np.testing.assert_array_equal(np.flatnonzero(cross[4]), [1, 3])
    np.testing.assert_array_equal(tasks.structure("hierarchy")[:3].sum(axis=1), [8, 4, 4])


# ---------------------------------------------------------------- several views


def test_orthogonal_views_have_the_stated_moments():
    p, r, k = np.array([1.0, 0.7, 0.4]), np.array([1.0, 0.9, 2.0]), 5
    meta = tasks.multiview(k, 3, presence=p, strengths=r).meta
    np.testing.assert_allclose(meta["s"], r * p / k)
    d = np.outer(r * p, r * p) / k
    np.fill_diagonal(d, r**2 * p / k)
    np.testing.assert_allclose(meta["d"], d)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 1.0, -0.5])
def test_view_statistics_are_those_of_the_paths(correlation: float):
    """meta's s and d against the path statistics of the listed examples, mode by mode."""
    task = tasks.multiview(
        3, 3, correlation=correlation, presence=[1.0, 0.6, 0.3], strengths=[1, 0.8, 1.2], width=2
    )
    stats = statistics(task)
    for m, p in enumerate(stats.paths):
        np.testing.assert_allclose(stats.yx[p], task.meta["s"][m] * np.eye(3), atol=1e-14)
        for j, q in enumerate(stats.paths):
            np.testing.assert_allclose(stats.x[q, p], task.meta["d"][j, m] * np.eye(3), atol=1e-14)


def test_views_that_always_occur_together_give_the_summary_s_form():
    """theory#races: D_jm proportional to S_j S_m iff the views always occur together."""
    for presence, proportional in ((1.0, True), (0.9, False)):
        meta = tasks.multiview(4, 3, presence=presence, strengths=[1, 0.9, 0.8]).meta
        ratio = meta["d"] / np.outer(meta["s"], meta["s"])
        assert np.allclose(ratio, 4, rtol=1e-13) == proportional


def test_features_have_the_correlation_and_the_norms():
    task = tasks.multiview(2, 3, correlation=0.25, strengths=[1, 2, 3], gates="none")
    phi = task.meta["features"].reshape(6, 6)
    gram = phi @ phi.T
    r = np.array([1, 2, 3])
    block = np.outer(r, r) * (0.25 + 0.75 * np.eye(3))
    np.testing.assert_allclose(gram, np.kron(np.eye(2), block), atol=1e-14)
    shown = np.einsum(
        "nm,nmi->ni", task.meta["present"], phi.reshape(2, 3, 6)[task.meta["classes"]]
    )
    np.testing.assert_allclose(dense(task).inputs["x"], shown, atol=1e-14)


def test_view_pathways_read_x_along_their_view():
    options = {"correlation": 0.4, "presence": 0.5, "strengths": [1.0, 2.0]}
    whole = tasks.multiview(3, 2, gates="none", **options)
    parts = tasks.multiview(3, 2, gates="view", **options)
    v = whole.meta["features"] / np.array([1.0, 2.0])[:, None]
    for m in range(2):
        np.testing.assert_allclose(
            dense(parts).inputs[f"x{m}"], dense(whole).inputs["x"] @ v[:, m].T, atol=1e-14
        )


def test_listed_views_are_the_limit_of_samples(key: jax.Array):
    exact = tasks.multiview(2, 2, presence=[0.8, 0.3], width=1)
    drawn = tasks.multiview(2, 2, presence=[0.8, 0.3], width=1, num_samples=20_000, key=key)
    a, b = (statistics(t) for t in (exact, drawn))
    for pair in a.x:
        np.testing.assert_allclose(a.x[pair], b.x[pair], atol=0.015)  # 4 standard errors
    assert float(dense(exact).weights.sum()) == pytest.approx(1)
    assert dense(exact).num_examples == 8


def test_soft_labels():
    task = tasks.multiview(4, 2, soft_labels=0.2)
    np.testing.assert_allclose(task.meta["labels"], 0.8 * np.eye(4) + 0.05)
    teacher = np.array([[0.9, 0.1], [0.3, 0.7]])
    task = tasks.multiview(2, 2, soft_labels=teacher, gates="class")
    np.testing.assert_array_equal(dense(task).targets["y"], teacher[task.meta["classes"]])
    assert zero_loss(task) == pytest.approx(task.meta["initial_loss"])
    stats = statistics(task)
    assert all(np.linalg.matrix_rank(stats.yx[p]) == 1 for p in stats.paths)


def test_a_teacher_that_knows_the_views_grades_its_labels():
    """With f of the views present: f + (1 - f)/K on the class; linear in the views, so learnable.

    The map a = 1/M for each view reproduces the labels but for the uniform part, 1/K.
    """
    task = tasks.multiview(3, 2, presence=0.5, soft_labels="views", width=2)
    data, present = dense(task), task.meta["present"]
    known = present.mean(axis=1)
    own = np.asarray(data.targets["y"])[np.arange(12), task.meta["classes"]]
    np.testing.assert_allclose(own, known + (1 - known) / 3)
    np.testing.assert_allclose(data.targets["y"].sum(axis=1), 1)
    views = sum(np.asarray(data.inputs[f"x{m}"]) * present[:, m : m + 1] for m in range(2)) / 2
    np.testing.assert_allclose(data.targets["y"], views + (1 - known[:, None]) / 3, atol=1e-15)
    assert "s" not in task.meta


@pytest.mark.parametrize(("gates", "paths"), [("view", 3), ("class", 2), ("none", 1)])
def test_deeper_view_pathways_have_the_same_statistics(gates: str, paths: int):
    deep = tasks.multiview(2, 3, presence=0.7, gates=gates, width=4, hidden_layers=3)
    flat = tasks.multiview(2, 3, presence=0.7, gates=gates, width=4)
    assert {len(path) for path in deep.graph.paths()} == {4}
    assert deep.graph.num_paths == paths
    one, other = statistics(flat), statistics(deep)
    for p, q in zip(one.paths, other.paths, strict=True):
        np.testing.assert_allclose(one.yx[p], other.yx[q], atol=1e-15)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tasks.xor(gating="examples"), "did you mean 'example'"),
        (lambda: tasks.xor(at_ones=0), "at_ones is 0"),
        (lambda: tasks.xor(width=0), "width is 0"),
        (lambda: tasks.margin_xor(-0.1), "delta is -0.1"),
        (lambda: tasks.margin_xor(0.1, gating="XOR"), "gating is 'XOR'"),
        (lambda: tasks.contextual_classification(10), "pass key="),
        (lambda: tasks.contextual_classification(0), "num_samples is 0"),
        (lambda: tasks.pathway_sharing(10, 9), r"choose one of \[1, 4, 25, 100\]"),
        (lambda: tasks.pathway_sharing(10, 5), "sqrt"),
        (lambda: tasks.pathway_sharing(10, (4, 4)), "only once"),
        (lambda: tasks.pathway_sharing(400, 1), "compact=True"),
        (lambda: tasks.semantic_contexts(1), "num_contexts is 1"),
        (lambda: tasks.semantic_contexts(4, structures="different"), "3 structures"),
        (lambda: tasks.semantic_contexts(structures="rings"), "structures is 'rings'"),
        (lambda: tasks.semantic_contexts(num_items=6), "power of two"),
        (lambda: tasks.semantic_contexts(num_items=4, structures="different"), "for 8 items"),
        (lambda: tasks.semantic_contexts(pathways="commons+double"), "did you mean 'common'"),
        (lambda: tasks.semantic_contexts(pathways="triple"), "3 of 3 contexts"),
        (lambda: tasks.semantic_contexts(pathways="all+single"), "stand alone"),
        (lambda: tasks.semantic_contexts(pathways="common", residual=True), "nothing to learn"),
        (lambda: tasks.multiview(2, 3, correlation=-0.6), "between -0.5 and 1"),
        (lambda: tasks.multiview(2, 3, presence=0.0), "presence"),
        (lambda: tasks.multiview(2, 3, presence=[0.5, 0.5]), "one for each of the 3 views"),
        (lambda: tasks.multiview(2, 20, presence=0.5), "num_samples="),
        (lambda: tasks.multiview(2, 2, num_samples=5), "pass key="),
        (lambda: tasks.multiview(2, 2, soft_labels=[[1, 0], [1, 1]]), "sum 1"),
        (lambda: tasks.multiview(2, 2, gates="views"), "did you mean 'view'"),
        (lambda: tasks.multiview(2, 2, soft_labels="view"), "did you mean 'views'"),
        (lambda: tasks.multiview(2, 2, hidden_layers=0), "hidden_layers is 0"),
    ],
)
def test_refusals_name_the_culprit_and_the_cure(call: Callable, words: str):
    with pytest.raises(ValueError, match=words):
        call()
