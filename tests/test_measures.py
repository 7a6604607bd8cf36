"""Measures, on cases whose answers are known by hand or in closed form."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gdln_jax as gdln
from gdln_jax import measures

# One program a shape each: op by op it is dozens.
PROGRAMS = SimpleNamespace(
    **{
        name: eqx.filter_jit(getattr(measures, name))
        for name in (
            *("balancedness", "conserved", "domain_alignment", "empirical_ntk", "error_by_group"),
            *("frame_distance", "input_output_maps", "kernel_alignment", "kernel_distance"),
            *("kernel_movement", "mode_strengths", "representational_similarity", "richness"),
            *(
                "route_errors",
                "shared_strengths",
                "singular_vector_alignment",
                "subspace_alignment",
            ),
            *("weight_movement", "zero_shot_error"),
        )
    }
)


def arrays(tree):
    """`tree` with arrays of NumPy: what is expected is computed without programs."""
    return jax.tree.map(np.asarray, tree)


def random_net(graph, key, scale=1.0):
    return gdln.GatedNetwork.init(graph, gdln.init.normal(scale), key=key)


@pytest.fixture
def routing():
    return gdln.tasks.routing(3, 2, width=5)


# ------------------------------------------------------------------ errors by route
def test_relative_error_is_1_for_zero_and_0_for_the_target():
    y = jnp.arange(6.0).reshape(2, 3)
    assert measures.relative_error(y, jnp.zeros_like(y)) == 1
    assert measures.relative_error(y, y) == 0
    assert measures.relative_error(y, 1.5 * y) == pytest.approx(0.25)


def test_maps_are_the_products_of_weights_along_each_path(routing, key):
    net = random_net(routing.graph, key)
    maps = PROGRAMS.input_output_maps(net)
    w = arrays(dict(net.weights))
    for i in range(3):
        for j in range(3):
            product = w[f"h2->y{j}"] @ w["h1->h2"] @ w[f"x{i}->h1"]
            np.testing.assert_allclose(np.asarray(maps)[i, j], product, atol=1e-12)


def test_maps_sum_over_parallel_paths_and_skips(key):
    graph = gdln.Graph(
        {"x": 2, "h": 3, "y": 2}, [("x", "h", "a"), ("x", "h", "b"), ("h", "y"), ("x", "y")]
    )
    net = random_net(graph, key)
    w = arrays(dict(net.weights))
    expected = w["h->y"] @ (w["a"] + w["b"]) + w["x->y"]
    found = np.asarray(PROGRAMS.input_output_maps(net))
    np.testing.assert_allclose(found[0, 0], expected, atol=1e-12)


def test_maps_of_unequal_widths_are_refused(key):
    graph = gdln.Graph({"x": 2, "z": 3, "y": 2}, [("x", "y"), ("z", "y")])
    with pytest.raises(ValueError, match=r"input nodes have different widths \[2, 3\]"):
        measures.input_output_maps(random_net(graph, key))


def test_zero_shot_error_by_hand(routing, key):
    # A network that is right on all routes but into y2, where it predicts zero.
    x, y = routing.meta["base"]
    w1 = np.eye(5, 4)
    w3 = y.T @ np.eye(4, 5)
    weights = {f"x{i}->h1": w1 for i in range(3)} | {"h1->h2": np.eye(5)}
    weights |= {"h2->y0": w3, "h2->y1": w3, "h2->y2": 0 * w3}
    net = gdln.GatedNetwork(routing.graph, weights)
    errors = PROGRAMS.route_errors(net, x, y)
    np.testing.assert_allclose(errors, [[0, 0, 1]] * 3, atol=1e-12)
    # Cyclic, K = 2: trained are (0,0) (0,1) (1,1) (1,2) (2,2) (2,0).
    trained, untrained = PROGRAMS.zero_shot_error(net, x, y, routing.meta["pattern"])
    assert trained == pytest.approx(2 / 6)
    assert untrained == pytest.approx(1 / 3)
    batch = jax.tree.map(lambda leaf: jnp.asarray(np.stack([leaf, np.zeros_like(leaf)])), net)
    both = jax.jit(jax.vmap(lambda n: measures.route_errors(n, x, y)))(batch)
    np.testing.assert_allclose(both, [errors, np.ones((3, 3))], atol=1e-12)


def test_error_by_group_agrees_with_the_errors_of_the_routes(routing, key):
    net = random_net(routing.graph, key)
    x, y = routing.meta["base"]
    routes = routing.meta["routes"]
    groups = np.repeat(np.arange(len(routes)), len(x))
    found = PROGRAMS.error_by_group(net, routing.data, groups, len(routes))
    expected = np.asarray(PROGRAMS.route_errors(net, x, y))[routes[:, 0], routes[:, 1]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# ------------------------------------------------------------------ modes
def test_strengths_and_distance_in_frames():
    u, v = np.eye(4, 2), np.eye(3, 2)
    w = u @ np.diag([3.0, -1.0]) @ v.T
    np.testing.assert_allclose(PROGRAMS.mode_strengths(w, u, v), [3, -1])
    assert PROGRAMS.frame_distance(w, u, v) == 0
    off = w.copy()
    off[3, 2], off[0, 1] = 4.0, 3.0
    np.testing.assert_allclose(PROGRAMS.mode_strengths(off, u, v), [3, -1])
    assert PROGRAMS.frame_distance(off, u, v) == pytest.approx(5)
    assert PROGRAMS.frame_distance(w, u, v, np.array([3.0, 1.0])) == pytest.approx(2)
    stack, frames = np.stack([w, off]), (np.stack([u, u]), np.stack([v, v]))
    np.testing.assert_allclose(PROGRAMS.frame_distance(stack, *frames), [0, 5])


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4), (0, 2, 3)])
def test_singular_values_alone_under_jit_and_in_a_batch(shape):
    w = np.random.default_rng(0).normal(size=(6, *shape))
    truth = np.linalg.svd(w, compute_uv=False)
    np.testing.assert_allclose(measures.singular_values(w), truth, atol=1e-13)
    together = jax.jit(jax.vmap(measures.singular_values))(w)
    np.testing.assert_allclose(together, truth, atol=1e-13)


def test_singular_values_of_a_vector_are_refused(refused_plainly):
    refused_plainly("""
import numpy as np
import optax
from gdln_jax import measures
attempts = [(lambda: measures.singular_values(np.ones(3)), "w has shape (3,); give matrices")]
""")


@pytest.mark.slow
def test_singular_values_of_many_runs_do_not_stand_still(plain_python):
    """With jaxlib's own batches, three of 500 a device never end with two devices on two cores."""
    snippet = """
import jax
from gdln_jax import measures
spec = jax.sharding.PartitionSpec("run")
mesh = jax.make_mesh((2,), ("run",), axis_types=(jax.sharding.AxisType.Auto,))
look = jax.vmap(lambda *a: [measures.singular_values(w) for w in a])
split = jax.jit(jax.shard_map(look, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
keys = jax.random.split(jax.random.key(0), 3)
w = [jax.random.normal(key, (1000, 64, 64 - i)) for i, key in enumerate(keys)]
for _ in range(3):
    found = jax.block_until_ready(split(*w))
print([len(s) for s in found])
"""
    done = plain_python(snippet, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert done.stdout.strip() == "[1000, 1000, 1000]", done.stderr


def test_singular_vector_alignment():
    u, v = np.eye(3, 2), np.eye(2)
    left, right = PROGRAMS.singular_vector_alignment(u @ np.diag([2.0, 1.0]), u, v)
    np.testing.assert_allclose([left, right], 1)
    # A shear: W v2 = u1 + u2 is at 45 degrees, and so is W^T u1 = v1 + v2.
    w = np.array([[1.0, 1.0], [0, 1.0], [0, 0]])
    left, right = PROGRAMS.singular_vector_alignment(w, u, v)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(left, [1, half], atol=1e-12)
    np.testing.assert_allclose(right, [half, 1], atol=1e-12)
    # Repeated singular values, and W = 0, have finite derivatives.
    left = jax.jit(jax.grad(lambda w: jnp.sum(measures.singular_vector_alignment(w, u, v)[0])))
    for point in (u @ np.eye(2), np.zeros((3, 2))):
        assert np.all(np.isfinite(left(point)))


def test_subspace_alignment_knows_no_basis(key):
    q = np.asarray(jax.random.orthogonal(key, 6))
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    assert PROGRAMS.subspace_alignment(q[:, :2], q[:, :2] @ turn) == pytest.approx(1)
    assert PROGRAMS.subspace_alignment(q[:, :2], q[:, 2:4]) == pytest.approx(0, abs=1e-12)
    assert PROGRAMS.subspace_alignment(q[:, :2], q[:, 1:3]) == pytest.approx(0.5)


def test_shared_strengths_of_aligned_weights_are_b1_b2_b3():
    rng = np.random.default_rng(0)
    u, q, p, v = (np.linalg.qr(rng.normal(size=(n, n)))[0][:, :2] for n in (4, 6, 5, 3))
    b1, b2, b3 = np.array([0.3, 0.2]), np.array([-0.5, 0.6]), np.array([0.7, 0.1])
    # What differs between domains and averages out does not count.
    extra = rng.normal(size=(1, 5, 3))
    first = (p * b1) @ v.T + np.concatenate([extra, -extra])
    found = PROGRAMS.shared_strengths(first, (q * b2) @ p.T, ((u * b3) @ q.T)[None], u, v)
    for got, expected in zip(found, (b1, b2, b3), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-12)


def test_conserved_is_conserved_and_balancedness_is_0_when_balanced(routing, key):
    balanced = gdln.GatedNetwork.init(routing.graph, gdln.init.balanced(scale=0.3), key=key)
    for value in PROGRAMS.balancedness(balanced).values():
        assert value == pytest.approx(0, abs=1e-12)
    net = random_net(routing.graph, key, 0.3)
    run = gdln.gradient_flow(net, routing.data, np.linspace(0.0, 4.0, 3))
    assert float(run.losses[-1]) < 0.7 * float(run.losses[0])
    for node in ("h1", "h2"):
        before, after = (PROGRAMS.conserved(n, node) for n in (net, run.final))
        np.testing.assert_allclose(before, after, atol=1e-7)
        assert 0 < PROGRAMS.balancedness(net)[node] < 1
    with pytest.raises(ValueError, match="no hidden node"):
        measures.conserved(net, "x0")


# ------------------------------------------------------------------ kernels
def test_ntk_of_a_two_layer_linear_network_in_closed_form(key):
    # y = W2 W1 x: Theta_ab = (x_a . x_b) W2 W2^T + (W1 x_a . W1 x_b) I.
    graph = gdln.Graph.chain([3, 4, 2])
    net = random_net(graph, key)
    x = np.random.default_rng(0).normal(size=(5, 3))
    data = gdln.GatedData({"x": x}, {"y": np.zeros((5, 2))})
    w1, w2 = (np.asarray(net.weights[edge]) for edge in ("x->h1", "h1->y"))
    h = x @ w1.T
    expected = np.einsum("ab,kl->akbl", x @ x.T, w2 @ w2.T)
    expected += np.einsum("ab,kl->akbl", h @ h.T, np.eye(2))
    for block in (1, 3, 100):
        theta = PROGRAMS.empirical_ntk(net, data, block=block)
        np.testing.assert_allclose(theta, expected, atol=1e-12)
    part = PROGRAMS.empirical_ntk(net, data, readout=lambda out: out["y"][:, :1])
    np.testing.assert_allclose(part, expected[:, :1, :, :1], atol=1e-12)
    jitted = jax.jit(jax.vmap(lambda n: measures.empirical_ntk(n, data)))
    batch = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[None]), net)
    np.testing.assert_allclose(jitted(batch)[0], expected, atol=1e-12)
    with pytest.raises(ValueError, match="after readout"):
        measures.empirical_ntk(net, data, readout=lambda out: out["y"][0])


def test_ntk_of_a_gated_network_sees_the_gates(routing, key):
    net = random_net(routing.graph, key)
    theta = PROGRAMS.empirical_ntk(
        net, routing.data, readout=lambda out: jnp.stack([*out.values()]).sum(0)
    )
    jacobian = arrays(jax.jit(jax.jacrev(lambda n: sum(n(routing.data).values())))(net))
    flat = np.concatenate([j.reshape(*j.shape[:2], -1) for j in jax.tree.leaves(jacobian)], 2)
    np.testing.assert_allclose(theta, np.einsum("akp,blp->akbl", flat, flat), atol=1e-10)


def test_the_memory_of_the_ntk_is_bounded(key):
    # Memory beyond the kernel is `block` times the weights, not (examples x outputs) times.
    graph = gdln.Graph.chain([2, 40, 40, 3])
    net = random_net(graph, key)
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(net))

    def scratch(n, block):
        data = gdln.GatedData({"x": jnp.ones((n, 2))}, {"y": jnp.zeros((n, 3))})
        program = jax.jit(lambda m: measures.empirical_ntk(m, data, block=block))
        memory = program.lower(net).compile().memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes

    few, many = scratch(8, 4), scratch(64, 4)
    kernel = (64 * 3) ** 2 * 8
    # The Jacobian of 64 examples alone would be 192 times the weights.
    assert many < 3 * kernel + 30 * weights
    assert many - few < 3 * kernel + 5 * weights
    assert scratch(64, 64) - many > 30 * weights


def test_ntk_of_any_module(key):
    model = eqx.nn.Linear(3, 2, use_bias=False, key=key)
    x = jnp.eye(3)
    theta = PROGRAMS.empirical_ntk(lambda_of(model), x)
    np.testing.assert_allclose(theta, np.einsum("ab,kl->akbl", np.eye(3), np.eye(2)))


class lambda_of(eqx.Module):  # noqa: N801
    model: eqx.nn.Linear

    def __call__(self, x):
        return jax.vmap(self.model)(x)


def test_kernels_that_differ_by_a_factor_are_aligned():
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    assert PROGRAMS.kernel_alignment(a, 5 * a) == pytest.approx(1)
    assert PROGRAMS.kernel_distance(a, a) == pytest.approx(0, abs=1e-12)
    assert PROGRAMS.kernel_distance(np.diag(a), np.array([-3.0, 2.0])) == pytest.approx(1)
    change, alignment = PROGRAMS.kernel_movement(a, 3 * a)
    assert change == pytest.approx(2)
    assert alignment == pytest.approx(1)


def test_weight_movement(routing, key):
    net = random_net(routing.graph, key)
    moved = jax.tree.map(lambda leaf: jnp.asarray(1.25 * np.asarray(leaf)), net)
    assert PROGRAMS.weight_movement(net, moved) == pytest.approx(0.25)


# ------------------------------------------------------------------ representations
def test_similarity_across_domains(routing, key):
    net = random_net(routing.graph, key)
    first = np.asarray(net.weights["x0->h1"])
    same = net.with_weights({f"x{i}->h1": (i + 1) * first for i in range(3)})
    data = gdln.tasks.routing(3, pattern=np.eye(3, dtype=int), width=5).data
    assert isinstance(data, gdln.GatedData)
    matrix = PROGRAMS.representational_similarity(same, data, "h1")
    factor = np.arange(1.0, 4)
    np.testing.assert_allclose(matrix, np.kron(np.outer(factor, factor), first.T @ first))
    assert PROGRAMS.domain_alignment(matrix, 3) == pytest.approx(1)
    cosine = PROGRAMS.representational_similarity(same, data, "h1", cosine=True)
    np.testing.assert_allclose(np.diagonal(cosine), 1)
    assert PROGRAMS.domain_alignment(cosine, 3) == pytest.approx(1)
    with pytest.raises(ValueError, match="no node 'h9'"):
        measures.representational_similarity(net, data, "h9")


def test_codes_of_their_own_are_not_aligned():
    assert PROGRAMS.domain_alignment(np.eye(6), 3) == 0
    with pytest.raises(ValueError, match="6 rows"):
        measures.domain_alignment(np.eye(6), 4)


def test_mds_keeps_distances_and_embeds_all_times_together():
    # A square that grows, in a plane turned into three dimensions: nothing is lost in two.
    square = np.array([[1.0, 1], [1, -1], [-1, -1], [-1, 1]])
    turn = np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 2 + np.eye(3))[0][:, :2]
    points = np.stack([scale * square @ turn.T for scale in (0.5, 1.0, 2.0)])
    flat = measures.mds(points)
    assert flat.shape == (3, 4, 2)

    def distances(p):
        p = p.reshape(12, -1)
        return np.linalg.norm(p[:, None] - p[None], axis=-1)

    np.testing.assert_allclose(distances(flat), distances(points), atol=1e-6)
    np.testing.assert_array_equal(flat, measures.mds(points))
    with pytest.raises(ValueError, match=r"expected \(time, item, feature\)"):
        measures.mds(points[0])


# ------------------------------------------------------------------ rich or lazy
def test_richness_is_the_movement_of_kernel_and_weights_of_a_run(key):
    graph = gdln.Graph.chain([3, 4, 2])
    net = random_net(graph, key, 0.3)
    data = gdln.GatedData({"x": np.eye(3)}, {"y": np.eye(3, 2)})
    run = gdln.train(net, data, optimizer=optax.sgd(0.1), steps=3)
    found = PROGRAMS.richness(run, data, block=4)
    before, after = (PROGRAMS.empirical_ntk(n, data) for n in (net, run.final))
    change, alignment = PROGRAMS.kernel_movement(before, after)
    assert found.kernel_change == pytest.approx(float(change), rel=1e-12)
    assert found.kernel_alignment == pytest.approx(float(alignment), rel=1e-12)
    assert found.weight_change == pytest.approx(float(PROGRAMS.weight_movement(net, run.final)))
    short = eqx.tree_at(lambda r: r.models, run, None)
    again = PROGRAMS.richness(short, data, start=net, block=4)
    np.testing.assert_allclose(again, found, rtol=1e-12)
    both = jax.tree.map(lambda leaf: jnp.asarray(np.stack([leaf, leaf])), run)
    mapped = jax.jit(jax.vmap(lambda r: measures.richness(r, data)))(both)
    np.testing.assert_allclose(mapped.kernel_change, 2 * [found.kernel_change], rtol=1e-12)
    assert "batch" not in repr(found)
    with pytest.raises(ValueError, match="of a batch, compare"):
        _ = mapped.regime


def test_the_words_rich_between_and_lazy_are_those_of_the_recipe():
    """Medians of recipe `initialisation`: sigma_0 = 0.6 and 1 at 64 units, 4 at 512."""
    rich, between, lazy = (
        measures.Richness(*map(jnp.asarray, row))
        for row in ((172.8, 0.57, 1.49), (22.3, 0.59, 0.83), (0.0545, 0.9987, 0.07))
    )
    assert [one.regime for one in (rich, between, lazy)] == ["rich", "between", "lazy"]
    assert "rich: kernel change 173 (lazy below 0.2, rich above 100)" in repr(rich)
    turned = lazy._replace(kernel_alignment=jnp.asarray(0.97))
    assert turned.regime == "between"


def test_small_weights_are_rich_and_wide_large_ones_lazy(key):
    graph = gdln.Graph.chain([2, 200, 1])
    data = gdln.GatedData({"x": np.eye(2)}, {"y": np.array([[1.0], [-0.5]])})
    for scale, rate, word in ((0.001, 0.3, "rich"), (0.5, 0.005, "lazy")):
        net = random_net(graph, key, scale)
        run = gdln.train(net, data, optimizer=optax.sgd(rate), steps=200)
        assert run.losses[-1] < 1e-9
        assert measures.richness(run, data).regime == word


def test_pairs_have_names(routing, key):
    x, y = routing.meta["base"]
    errors = measures.zero_shot_error(random_net(routing.graph, key), x, y, routing.meta["pattern"])
    assert errors == (errors.trained, errors.untrained)
    moved = measures.kernel_movement(jnp.eye(2), 3 * jnp.eye(2))
    assert moved == (moved.change, moved.alignment)
    cosines = measures.singular_vector_alignment(jnp.eye(2), jnp.eye(2), jnp.eye(2))
    assert cosines[1] is cosines.right


def test_swapped_arguments_are_refused(refused_plainly):
    refused_plainly("""
import jax, numpy as np, optax, gdln_jax as gdln
from gdln_jax import measures as m
task = gdln.tasks.routing(3, 2, width=5)
(x, y), pattern = task.meta["base"], task.meta["pattern"]
net = gdln.GatedNetwork.init(task.graph, gdln.init.normal(0.3), key=jax.random.key(0))
run = gdln.train(net, task.data, optimizer=optax.sgd(0.1), steps=2, keep_models=False)
two = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), run)
w, u, v = np.ones((5, 3)), np.eye(5, 2), np.eye(3, 2)
attempts = [
    (lambda: m.richness(task.data, run), "run is a GatedData; pass what gdln.train"),
    (lambda: m.richness(net, task.data), "run is a GatedNetwork"),
    (lambda: m.richness(run, run), "data is a Trajectory"),
    (lambda: m.richness(run, task.data), "pass start="),
    (lambda: m.richness(two, task.data, start=net), "map over it"),
    (lambda: m.zero_shot_error(net, y, x, pattern), "inputs (n, 4) first and targets (n, 7)"),
    (lambda: m.route_errors(net, x, y[:2]), "y (2, 7)"),
    (lambda: m.zero_shot_error(net, x, y, pattern[:2]), "pattern has shape (2, 3)"),
    (lambda: m.mode_strengths(w, v, u), "u is (target, mode) and comes first"),
    (lambda: m.frame_distance(u, v, w), "u is (target, mode) and comes first"),
    (lambda: m.singular_vector_alignment(w, v, u), "u is (target, mode) and comes first"),
    (lambda: m.mode_strengths(w, u[:, :1], v), "u has 1 modes and v has 2"),
    (lambda: m.kernel_movement(np.eye(2), np.eye(3)), "before has shape (2, 2) and after (3, 3)"),
    (lambda: m.weight_movement(net, run), "before (GatedNetwork) and after (Trajectory) differ"),
]
""")
