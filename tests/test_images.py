"""Images: transformations, the stacked step against GatedNetwork, training, checkpoints."""

import gzip
import inspect
import os
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.ndimage
from image_parts import _checkpoint, _evaluate, _step, _training

import gdln_jax as gdln

# The step, what training keeps of permutations, and files half-written.

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def digits():
    return gdln.images.load("digits")


@pytest.fixture(scope="module")
def tiny():
    rng = np.random.default_rng(0)
    return gdln.images.ImageSet(rng.uniform(size=(9, 3, 3)), np.arange(9) % 4, 4, "tiny")


# ---------------------------------------------------------------- transformations
def test_rotations_are_those_of_scipy():
    image = np.random.default_rng(1).uniform(size=(2, 5, 5))
    t = gdln.images.make_transforms("rotation", 7, (5, 5), 10, key=KEY)
    ours = np.asarray(t.inputs(jnp.asarray(image.reshape(2, -1)))).reshape(7, 2, 5, 5)
    for i in range(7):
        theirs = scipy.ndimage.rotate(
            image, 180 * i / 7, axes=(2, 1), reshape=False, order=1, mode="grid-constant"
        )
        np.testing.assert_allclose(ours[i], theirs, atol=1e-11)


def test_colour_images_rotate_channel_by_channel():
    image = np.random.default_rng(2).uniform(size=(2, 4, 4, 3))
    colour = gdln.images.make_transforms("rotation", 3, (4, 4, 3), 10, key=KEY)
    grey = gdln.images.make_transforms("rotation", 3, (4, 4), 10, key=KEY)
    whole = np.asarray(colour.inputs(jnp.asarray(image.reshape(2, -1)))).reshape(3, 2, 4, 4, 3)
    for c in range(3):
        one = grey.inputs(jnp.asarray(image[..., c].reshape(2, -1)))
        np.testing.assert_allclose(whole[..., c].reshape(3, 2, -1), one, atol=1e-14)


def test_label_agreement_of_lexicographic_and_random_permutations():
    def agreement(m, how):
        t = gdln.images.make_transforms("permutation", m, (2, 2), 10, outputs=how, key=KEY)
        table = np.asarray(t.outputs)
        pairs = [np.mean(a == b) for x, a in enumerate(table) for b in table[:x]]
        assert t.label_agreement == pytest.approx(np.mean(pairs), abs=1e-12)
        return t.label_agreement

    assert 0.6 <= agreement(100, "lexicographic") <= 0.71
    assert 0.6 <= agreement(40, "lexicographic") <= 0.71
    assert agreement(100, "random") == pytest.approx(0.1, abs=0.02)


def test_more_domains_than_permutations_are_refused():
    with pytest.raises(ValueError, match="7 output domains need 7"):
        gdln.images.make_transforms("permutation", 7, (2, 2), 3, key=KEY)


# ---------------------------------------------------------------- the step = GatedNetwork
def plain(task, net):
    """The network in base coordinates of the labels, as the step has it."""
    last = _evaluate.take_outputs(net.decoders[-1], task.meta["transforms"].outputs)
    out = net.__class__(
        net.encoders, net.hidden, (*net.decoders[:-1], last), net.encoder_biases,
        net.hidden_biases, net.decoder_biases, net.slope,
    )  # fmt: skip
    if net.decoder_biases:
        row = _evaluate.take_outputs(
            net.decoder_biases[-1][..., None], task.meta["transforms"].outputs
        )
        out = out.__class__(
            out.encoders, out.hidden, out.decoders, out.encoder_biases, out.hidden_biases,
            (*net.decoder_biases[:-1], row[..., 0]), out.slope,
        )  # fmt: skip
    return out


def moved_apart(net):
    """The network with something added to each number."""
    return jax.tree.map(
        lambda w: jnp.asarray(w + 0.1 * np.cos(np.arange(w.size)).reshape(w.shape)),
        jax.tree.map(np.asarray, net),
    )


@pytest.mark.parametrize(
    ("loss", "kind", "bias", "layers"),
    [
        pytest.param("mse", "rotation", True, (2, 2, 2), marks=pytest.mark.slow),
        ("cross_entropy", "permutation", True, (1, 1, 1)),
        ("mse", "permutation", False, (1, 0, 1)),
    ],
)
def test_loss_and_gradient_are_those_of_the_gated_network(tiny, loss, kind, bias, layers):
    rows_only = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    task = gdln.tasks.transformed_images(
        tiny, num_domains=3, kind=kind, pattern=rows_only, key=KEY, width=5, layers=layers,
        bias=bias, compress=False,
    )  # fmt: skip
    t = task.meta["transforms"]
    net = gdln.images.RoutedNetwork.init(
        3, 9, 4, width=5, layers=layers, bias=bias, key=KEY, dtype="float64"
    )
    if bias:  # zero biases would hide errors
        net = moved_apart(net)
    gated = gdln.images.to_gated(net, task.graph)
    engine = gdln.mse if loss == "mse" else gdln.cross_entropy

    # One program each: op by op, each shape compiles dozens.
    @eqx.filter_jit
    def by_network(net, data):
        value, slope = jax.value_and_grad(engine)(net, data)
        slope = gdln.images.from_gated(slope.weights, 3, layers, bias=bias)
        return value, plain(task, slope)

    @eqx.filter_jit
    def by_step(net, x, labels):
        table = _step.route_table(rows_only)
        return _step.full_gradient(plain(task, net), t.inputs(x), labels, table, loss)

    value, theirs = by_network(gated, task.data)
    ours_value, ours = by_step(net, tiny.values(), tiny.labels)
    assert float(ours_value) == pytest.approx(float(value), rel=1e-12)
    assert float(jax.jit(engine)(net, task.data)) == float(value)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12 * np.abs(b).max())


@pytest.mark.parametrize(("loss", "same"), [("mse", True), ("cross_entropy", False)])
def test_routes_one_by_one_cost_what_all_of_them_masked_do(monkeypatch, loss, same):
    rng = np.random.default_rng(4)
    pattern = rng.permutation(np.eye(5, dtype=int)) | np.eye(5, k=1, dtype=int)
    net = gdln.images.RoutedNetwork.init(5, 6, 4, width=3, key=KEY, dtype="float64")
    x = jnp.asarray(rng.normal(size=(2, 6) if same else (5, 2, 6)))
    labels = jnp.asarray(rng.integers(4, size=(2,) if same else (5, 2)))
    found = []
    for many in (0, 5):
        monkeypatch.setattr(_step, "_WHOLE", many)
        # A function of its own, so that it is traced with this many.
        one = jax.jit(lambda net, x, y, table: _step.full_gradient(net, x, y, table, loss))
        found.append(one(net, x, labels, _step.route_table(pattern)))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-14)  # rounding of sums in another order


def test_momentum_steps_are_optax_steps(tiny):
    """With all images in every batch the trainer is full-batch SGD with momentum."""
    task = gdln.tasks.transformed_images(
        tiny, num_domains=2, trained_per_domain=1, key=KEY, width=4, compress=False
    )
    t = task.meta["transforms"]
    net = gdln.images.RoutedNetwork.init(2, 9, 4, width=4, bias=False, key=KEY, dtype="float64")
    run = gdln.train(
        gdln.images.to_gated(net, task.graph), task.data, steps=7,
        optimizer=optax.sgd(0.1, momentum=0.9),
    )  # fmt: skip
    inside = eqx.filter_jit(_training.inward)(net, t)
    velocity = jax.tree.map(lambda w: jnp.asarray(np.zeros_like(w)), inside)
    step = jax.jit(_step.step, static_argnums=6)
    for _ in range(7):
        inside, velocity, _ = step(
            inside, velocity, jnp.asarray(tiny.values()), jnp.asarray(tiny.labels),
            _step.route_table(task.meta["pattern"]), (0.1, 0.9, 1.0), "mse",
        )  # fmt: skip
    theirs = gdln.images.from_gated(run.final.weights, 2, bias=False)
    for a, b in zip(
        jax.tree.leaves(eqx.filter_jit(_training._outward)(inside, t)),
        jax.tree.leaves(theirs),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_absorbing_permutations_is_the_identity_there_and_back(tiny):
    t = gdln.images.make_transforms("permutation", 3, (3, 3), 4, key=KEY)
    net = gdln.images.RoutedNetwork.init(3, 9, 4, width=5, key=KEY, dtype="float64")
    for a, b in zip(
        jax.tree.leaves(_training._outward(_training.inward(net, t), t)),
        jax.tree.leaves(net),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    x = jnp.asarray(tiny.values())
    np.testing.assert_allclose(
        jnp.einsum("mhd,nd->mnh", t.to_base(net.encoders[0]), x),
        jnp.einsum("mhd,mnd->mnh", net.encoders[0], t.inputs(x)), atol=1e-13,
    )  # fmt: skip


# ---------------------------------------------------------------- the exact route
def test_compressed_images_have_the_loss_of_all(digits):
    images = digits[0].head(300)
    options = {"num_domains": 2, "trained_per_domain": 1, "kind": "rotation"}
    options |= {"key": KEY, "width": 6}
    whole, small = (
        gdln.tasks.transformed_images(images, compress=c, bias=True, **options)
        for c in (False, True)
    )
    assert small.data.num_examples <= 2 * (64 + 10 + 1)
    net = gdln.GatedNetwork.init(whole.graph, gdln.init.xavier(1.0), key=KEY)
    both = jax.jit(jax.value_and_grad(gdln.mse))
    (a, da), (b, db) = (both(net, task.data) for task in (whole, small))
    assert float(a) == pytest.approx(float(b), rel=1e-12)
    for x, y in zip(jax.tree.leaves(da), jax.tree.leaves(db), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-11)


@pytest.mark.slow
def test_certificate_refuses_raw_images_and_accepts_whitened_ones(digits):
    options = {"num_domains": 3, "trained_per_domain": 2, "key": KEY, "width": 12}
    raw, white = (
        gdln.tasks.transformed_images(digits[0], whiten=w, **options) for w in (False, True)
    )
    with pytest.raises(gdln.InexactReductionError):
        gdln.reduce(raw.graph, raw.data)
    reduction = gdln.reduce(white.graph, white.data)
    assert reduction.residual < 1e-8
    net = gdln.GatedNetwork.init(white.graph, gdln.init.decoupled(reduction, 0.3), key=KEY)
    ts = jnp.linspace(0, 30, 4)
    flow = gdln.gradient_flow(net, white.data, ts, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(reduction.solve(0.3, ts).losses, flow.losses, rtol=1e-6)


@pytest.mark.slow
def test_the_coupled_form_follows_training_on_raw_images(digits):
    images = gdln.images.ImageSet(digits[0].images[:, 2:6, 2:6], digits[0].labels)
    task = gdln.tasks.transformed_images(
        images, num_domains=3, trained_per_domain=2, key=KEY, width=12
    )
    reduction = gdln.reduce(task.graph, task.data, on_inexact="coupled")
    assert reduction.residual < 1e-10
    assert reduction.untied_residual > 0.1  # far from diagonal
    ts = jnp.linspace(0, 30, 3)
    flow = gdln.gradient_flow(reduction.embed(0.3), task.data, ts, rtol=1e-8, atol=1e-10)
    assert flow.losses[-1] < 0.9 * flow.losses[0]
    np.testing.assert_allclose(reduction.solve(0.3, ts).losses, flow.losses, rtol=1e-6)


# ---------------------------------------------------------------- training
def trained(digits, *, k=5, gain=0.1, rate=0.1, steps=2500, runs=(), **more):
    pattern = gdln.tasks.routing(8, k, pattern="random_biregular", key=jax.random.key(k))
    pattern = np.asarray(pattern.meta["pattern"])
    t = gdln.images.make_transforms("permutation", 8, (8, 8, 1), 10, key=KEY)
    net = gdln.images.RoutedNetwork.init(8, 64, 10, width=32, gain=gain, key=KEY)
    settings = gdln.images.Settings(learning_rate=rate, steps=steps, **more)
    return gdln.images.train_images(
        net, digits[0], t, pattern, settings, key=KEY, test=digits[1]
    ), (net, t, pattern)


@pytest.mark.slow
def test_transfer_above_the_gap_none_at_large_gain_none_with_one_route(digits):
    good, (_, t, _) = trained(digits)
    assert good.trained[-1] > 0.85
    assert good.untrained[-1] > good.trained[-1] - 0.03
    np.testing.assert_allclose(
        gdln.images.route_accuracy(good.net, t, digits[1], chunk=77), good.accuracy, atol=0.005
    )
    lone, _ = trained(digits, k=1)
    assert lone.trained[-1] > 0.85
    assert lone.untrained[-1] < 0.25
    lazy, _ = trained(digits, gain=10.0, rate=5e-5, steps=16_000)
    assert lazy.stopped == "steps"
    assert lazy.trained[-1] > 0.25
    assert lazy.untrained[-1] < 0.2


def test_a_resumed_run_is_the_undisturbed_one_and_specs_are_kept_apart(digits, tmp_path):
    whole, (net, t, pattern) = trained(digits, steps=40, evaluate_every=10)
    path = tmp_path / "run.ckpt"

    def go(steps, rate=0.1):
        return gdln.images.train_images(
            net, digits[0], t, pattern,
            gdln.images.Settings(learning_rate=rate, steps=steps, evaluate_every=10),
            key=KEY, test=digits[1], checkpoint=path,
        )  # fmt: skip

    go(20)
    resumed = go(40)
    np.testing.assert_array_equal(resumed.steps, whole.steps)
    np.testing.assert_array_equal(resumed.losses, whole.losses)
    for a, b in zip(jax.tree.leaves(resumed.net), jax.tree.leaves(whole.net), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="another training"):
        go(40, rate=0.2)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="no readable checkpoint"):
        go(40)
    path = "/proc/checkpoints/run.ckpt"
    with pytest.raises(OSError, match="/proc/checkpoints cannot be written"):
        go(40)


def test_a_checkpoint_survives_a_kill_at_any_moment(tmp_path):
    path = tmp_path / "state.ckpt"
    code = (
        "import numpy as np, sys\n"
        "from gdln_jax.images import _checkpoint as c\n"
        "n = 0\n"
        "while True:\n"
        f"    c.save({str(path)!r}, 's', {{'n': n}}, np.full(300_000, float(n))); n += 1\n"
    )
    rng = np.random.default_rng(0)
    worker = subprocess.Popen([sys.executable, "-c", code])
    while not path.exists():
        time.sleep(0.05)
        assert worker.poll() is None
    time.sleep(float(rng.uniform(0.1, 0.5)))
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    found = _checkpoint.restore(path, "s", np.zeros(300_000))
    assert found is not None
    record, state = found
    np.testing.assert_array_equal(state, record["n"])
    assert [p.name for p in tmp_path.iterdir()] == ["state.ckpt"]


def test_early_stops(digits):
    run, _ = trained(digits, k=8, steps=4000, evaluate_every=500, stop_at=0.8)
    assert run.stopped == "reached"
    assert run.steps[-1] < 4000
    run, _ = trained(digits, steps=4000, evaluate_every=2, patience=2, rate=1e-9)
    assert (run.stopped, run.steps[-1]) == ("no rise", 4)
    run, _ = trained(digits, steps=400, evaluate_every=100, rate=1e3)
    assert run.stopped == "diverged"


# ---------------------------------------------------------------- files
def idx(magic, array):
    shape = b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return magic.to_bytes(4, "big") + shape + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path):
    for part, n in (("train", 6), ("t10k", 4)):
        images = np.arange(n * 16).reshape(n, 4, 4)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(0x803, images))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(idx(0x801, np.arange(n)))
        )
    return tmp_path


def test_idx_files_are_read_gzipped_or_not(folder):
    train, test = gdln.images.load("mnist", folder)
    assert (len(train), len(test), train.shape) == (6, 4, (4, 4, 1))
    np.testing.assert_array_equal(train.flat[0], np.arange(16))
    np.testing.assert_allclose(train.values()[0], np.arange(16) / 255)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-images-idx3-ubyte", lambda b: b[:-3], "cut short: its header announces 6 x 4 x 4"),
        ("train-images-idx3-ubyte", lambda b: b + b"1", "too long"),
        ("train-images-idx3-ubyte", lambda _: idx(0x801, np.arange(6)), "swapped"),
        ("train-images-idx3-ubyte", lambda b: b[:2], "too few for an IDX header"),
        ("train-images-idx3-ubyte", lambda b: b"zzzz" + b[4:], "begins with 0x7a7a7a7a"),
        ("train-labels-idx1-ubyte.gz", lambda b: b[:-6], "damaged or cut short"),
        ("train-labels-idx1-ubyte.gz", lambda _: idx(0x801, np.arange(4)), "do not belong"),
        ("train-labels-idx1-ubyte.gz", lambda _: idx(0x801, np.full(6, 11)), "label 11 of image 0"),
    ],
)
def test_bad_idx_files_are_named(folder, name, change, message):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as error:
        gdln.images.load("mnist", folder)
    assert name in str(error.value)


def test_cifar_binary_and_python_and_what_is_refused(tmp_path):
    import pickle

    rows = np.random.default_rng(0).integers(0, 256, (3, 3072)).astype(np.uint8)
    record = np.concatenate([[[0], [1], [9]], rows], axis=1).astype(np.uint8)
    (tmp_path / "data_batch_1.bin").write_bytes(record.tobytes())
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": rows, b"labels": [0, 1, 9]}))
    train, test = gdln.images.load("cifar10", tmp_path)
    np.testing.assert_array_equal(train.images, test.images)
    assert train.images[1, 2, 3, 1] == rows[1, 1024 + 2 * 32 + 3]
    (tmp_path / "data_batch_1.bin").write_bytes(record.tobytes()[:-1])
    with pytest.raises(ValueError, match="no whole number of CIFAR-10 records"):
        gdln.images.load("cifar10", tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(record.tobytes())
    (tmp_path / "test_batch").write_bytes(pickle.dumps(os.getcwd))
    with pytest.raises(ValueError, match="refers to"):
        gdln.images.load("cifar10", tmp_path)


def test_openml_without_a_network(monkeypatch):
    import sklearn.datasets

    def fails(*args, **kwargs):
        raise OSError("no route")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fails)
    with pytest.raises(ValueError, match="could not be reached"):
        gdln.images.load("openml:mnist_784")


def test_the_shared_files(shared_data):
    train, test = gdln.images.load("mnist", shared_data)
    assert (len(train), len(test)) == (60_000, 10_000)
    assert np.bincount(train.labels).tolist()[:3] == [5923, 6742, 5958]
    assert train.flat[:2000].mean() / 255 == pytest.approx(0.13, abs=0.01)
    colour, _ = gdln.images.load("cifar10", shared_data)
    assert colour.shape == (32, 32, 3)


# ---------------------------------------------------------------- stable rates
def test_the_largest_stable_rate_is_that_of_the_hessian(tiny):
    t = gdln.images.make_transforms("rotation", 2, (3, 3), 4, key=KEY)
    pattern = np.array([[1, 0], [1, 1]])
    net = gdln.images.RoutedNetwork.init(2, 9, 4, width=3, gain=3, key=KEY, dtype="float64")
    settings = gdln.images.Settings(momentum=0.5)

    @jax.jit
    def hessian(values, labels):
        inside, unravel = jax.flatten_util.ravel_pytree(_training.inward(net, t))
        x, table = t.inputs(values), _step.route_table(pattern)

        def loss(flat):
            return _step.full_gradient(unravel(flat), x, labels, table, "mse")[0]

        return jax.hessian(loss)(inside)

    top = np.abs(np.linalg.eigvalsh(hessian(tiny.values(), tiny.labels))).max()
    rate = gdln.images.stable_rate(net, tiny, t, pattern, settings)
    assert float(rate) == pytest.approx(3 / float(top), rel=0.03)  # power iteration, 40 times
    summed = gdln.images.stable_rate(
        net, tiny, t, pattern, gdln.images.Settings(momentum=0.5, over="sum")
    )
    assert float(summed) == pytest.approx(float(rate) / 3, rel=1e-9)
    with pytest.raises(ValueError, match=r"pattern has shape \(3, 3\); expected \(2, 2\)"):
        gdln.images.stable_rate(net, tiny, t, np.ones((3, 3)), settings)


# ---------------------------------------------------------------- features
@pytest.mark.slow
def test_the_encoder_learns_the_classes_and_is_then_frozen(digits):
    encoded = eqx.filter_jit(lambda encoder, images: encoder(images))

    def read_out(encoder):
        parts = [np.asarray(encoded(encoder, jnp.asarray(part.images))) for part in digits]
        target = np.eye(10)[digits[0].labels]
        # Ridge of the size of float32's rounding: dead units make features dependent.
        gram = parts[0].T @ parts[0] + 1e-3 * np.eye(parts[0].shape[1])
        weights = np.linalg.solve(gram, parts[0].T @ target)
        return np.mean(np.argmax(parts[1] @ weights, axis=1) == digits[1].labels)

    learned = gdln.images.train_encoder(digits[0], channels=(4, 4), steps=200, key=KEY)
    raw = jax.tree.map(lambda w: jax.random.normal(KEY, w.shape, w.dtype) / w.size**0.5, learned)
    assert read_out(learned) > read_out(raw) + 0.03
    x = jnp.asarray(digits[0].images[:1000])
    features = np.asarray(encoded(learned, x))
    assert features.shape == (1000, 2 * 2 * 4)
    assert np.sum(features**2) / np.sum(np.square(x)) == pytest.approx(1, rel=1e-4)

    @eqx.filter_jit
    def by_layers(encoder, x):
        h = jnp.moveaxis(x, -1, 1)
        for layer in encoder.layers:
            h = jax.nn.relu(jax.vmap(layer)(h))
        return jnp.moveaxis(h, 1, -1).reshape(len(x), -1)

    np.testing.assert_allclose(learned.features(x[:5]), by_layers(learned, x[:5]), atol=1e-5)
    frozen = eqx.filter_jit(jax.grad(lambda e: jnp.sum(e(x[:3]))))(learned)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(frozen))
    t = gdln.images.make_transforms("rotation", 3, (8, 8, 1), 10, key=KEY, encode=learned)
    plain = gdln.images.make_transforms("rotation", 3, (8, 8, 1), 10, key=KEY)
    flat = x[:5].reshape(5, -1)
    np.testing.assert_allclose(
        t.inputs(flat)[2],
        encoded(learned, plain.inputs(flat)[2].reshape(5, 8, 8, 1)),
        rtol=1e-5,
        atol=1e-6,
    )


# ---------------------------------------------------------------- other implementations
def plain_leaky_training(net, x, labels, pattern, rate, momentum, steps):
    """Route by route, cross-entropy, leaky ReLU, optax: nothing of the trainer."""
    routes = np.argwhere(pattern)

    def bend(h):
        return jnp.maximum(h, 0) + 0.01 * jnp.minimum(h, 0)

    def loss(net):
        total = 0.0
        for i, j in routes:
            h = bend(x[i] @ net.encoders[0][i].T + net.encoder_biases[0][i])
            h = bend(h @ net.hidden[0].T + net.hidden_biases[0])
            out = h @ net.decoders[0][j].T + net.decoder_biases[0][j]
            each = optax.softmax_cross_entropy_with_integer_labels(out, labels[j])
            total += jnp.mean(each) / len(routes)
        return total

    optimizer = optax.sgd(rate, momentum=momentum)

    @jax.jit
    def step(net, state):
        updates, state = optimizer.update(jax.grad(loss)(net), state)
        return optax.apply_updates(net, updates), state

    state = jax.jit(optimizer.init)(net)
    for _ in range(steps):
        net, state = step(net, state)
    return net


def test_leaky_cross_entropy_training_is_that_of_a_plain_loop(monkeypatch, tiny):
    # Every batch is all images, so that the loop needs no random numbers.
    monkeypatch.setattr(jax.random, "randint", lambda *_: jnp.arange(9))
    pattern = np.array([[1, 1], [0, 1]])
    t = gdln.images.make_transforms("permutation", 2, (3, 3), 4, key=KEY)
    net = gdln.images.RoutedNetwork.init(
        2, 9, 4, width=5, gain=1.5, slope=0.01, key=KEY, dtype="float64"
    )
    net = moved_apart(net)
    run = gdln.images.train_images(
        net, tiny, t, pattern,
        gdln.images.Settings(loss="cross_entropy", learning_rate=0.3, batch_size=9, steps=20,
                             evaluate_every=20), key=KEY,
    )  # fmt: skip
    theirs = plain_leaky_training(
        net, t.inputs(jnp.asarray(tiny.values())), t.labels(jnp.asarray(tiny.labels)), pattern,
        0.3, 0.9, 20,
    )  # fmt: skip
    moved = 0.0
    for a, b, start in zip(*map(jax.tree.leaves, (run.net, theirs, net)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
        moved = max(moved, np.abs(np.asarray(a) - np.asarray(start)).max())
    assert moved > 0.1


TRAINING = """
import sys
import jax, numpy as np
import gdln_jax as gdln
rng = np.random.default_rng(0)
images = gdln.images.ImageSet(rng.uniform(size=(50, 4, 4)), np.arange(50) % 5, 5)
t = gdln.images.make_transforms("permutation", 3, (4, 4), 5, key=jax.random.key(0))
net = gdln.images.RoutedNetwork.init(3, 16, 5, width=6, key=jax.random.key(1))
settings = gdln.images.Settings(learning_rate=0.01, steps=2000, evaluate_every=5)
for path in sys.argv[1:]:
    run = gdln.images.train_images(
        net, images, t, np.eye(3), settings, key=jax.random.key(2), checkpoint=path
    )
    np.savez(path + ".npz", *jax.tree.leaves(run.net), steps=run.steps, losses=run.losses)
"""


@pytest.mark.slow
def test_a_killed_training_goes_on_as_if_nothing_had_been(tmp_path):
    whole, killed = tmp_path / "whole.ckpt", tmp_path / "killed.ckpt"
    command = [sys.executable, "-c", TRAINING, str(killed)]
    worker = subprocess.Popen(command)
    while worker.poll() is None and not killed.exists():
        time.sleep(0.005)
    time.sleep(float(np.random.default_rng(1).uniform(0, 0.05)))
    assert worker.poll() is None  # at any moment after it has begun to write
    worker.kill()
    worker.wait()
    assert subprocess.run([*command, str(whole)], check=False).returncode == 0
    with np.load(f"{whole}.npz") as one, np.load(f"{killed}.npz") as other:
        assert one["steps"][-1] == 2000
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name])


def arrays_within(jaxpr):
    """Shapes of all values that a program makes, those of its parts included."""
    for equation in jaxpr.eqns:
        yield from (v.aval.shape for v in equation.outvars)
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from arrays_within(inner)


def test_images_are_transformed_on_the_fly(monkeypatch):
    """No value in a step is as large as the images, let alone M times as large."""
    rng = np.random.default_rng(5)
    images = gdln.images.ImageSet(
        rng.integers(0, 255, size=(3000, 4, 4), dtype=np.uint8), np.arange(3000) % 3, 3, "many"
    )
    transforms = gdln.images.make_transforms("rotation", 6, (4, 4), 3, key=KEY)
    sizes = []

    def spied(fixed, state):
        program = eqx.filter_make_jaxpr(inspect.unwrap(real))(fixed, state)[0]
        sizes.extend(np.prod(shape, dtype=int) for shape in arrays_within(program.jaxpr))
        return real(fixed, state)

    real = _training._advance
    monkeypatch.setattr(_training, "_advance", spied)
    gdln.images.train_images(
        gdln.images.RoutedNetwork.init(6, 16, 3, width=5, key=KEY), images, transforms,
        np.ones((6, 6)), gdln.images.Settings(learning_rate=0.1, steps=4), key=KEY,
    )  # fmt: skip
    assert 6 * 8 * 16 <= max(sizes) < images.flat.size / 10  # a batch for each domain is there
