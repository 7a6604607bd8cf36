"""Networks that others trained: reading checkpoints of any program, and writing them back."""

import re
import sys
import types
from collections import OrderedDict

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import gdln_jax as gdln
from gdln_jax import relu

RNG = np.random.default_rng(43)
W = [RNG.normal(size=shape) for shape in ((5, 2), (4, 5), (3, 4))]
B = [RNG.normal(size=len(w)) for w in W]
X = RNG.normal(size=(6, 2))
PLAIN = relu.ReLUNetwork(W, B)


def named(weight="{}.weight", bias="{}.bias", names=("0", "2", "4"), turned=False):
    arrays = {}
    for name, w, b in zip(names, W, B, strict=True):
        arrays[weight.format(name)] = w.T if turned else w
        arrays[bias.format(name)] = b
    return arrays


def nested():
    flat = zip(("Dense_0", "Dense_1", "Dense_2"), W, B, strict=True)
    return {"params": {name: {"bias": b, "kernel": w.T} for name, w, b in flat}}


SOURCES = {
    "sequential": named(),
    "fc": named(names=("fc1", "fc2", "fc3")),
    "layers": named(names=("layers.0", "layers.1", "layers.2")),
    "compiled and parallel": named(names=("_orig_mod.module.l1", "_orig_mod.module.l2",
                                          "_orig_mod.module.l10")),
    "flax": nested(),
    "flax, flat names": named("params/{}/kernel", "params/{}/bias", ("a0", "a1", "a2"), True),
    "numpy": named("W{}", "b{}", ("1", "2", "3")),
    "numpy, transposed": named("W{}", "b{}", ("1", "2", "3"), True),
    "order by shape": dict(reversed(named(names=("encoder", "middle", "readout")).items())),
    "training script": {"epoch": 7, "model_state_dict": OrderedDict(named()),
                        "optimizer_state_dict": {"state": {0: {"exp_avg": W[0]}}, "lr": 0.1}},
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_layers_are_read_whatever_their_names(source):
    net = relu.ReLUNetwork.from_state_dict(source)
    np.testing.assert_allclose(net(X), PLAIN(X), rtol=1e-12)
    assert net.biases is not None


def test_modules_and_tensors():
    """Equinox modules by their fields; PyTorch's by `state_dict`, here of a stand-in."""

    class Tensor:
        def __init__(self, array):
            self.array, self.dtype = array, f"torch.{array.dtype}"

        detach = cpu = lambda self: self

        def float(self):
            return Tensor(self.array.astype(np.float32))

        def numpy(self):
            return self.array

    module = types.SimpleNamespace(
        state_dict=lambda: OrderedDict(
            (k, Tensor(v.astype(np.float16))) for k, v in named().items()
        )
    )
    read = relu.ReLUNetwork.from_state_dict(module)
    assert read.weights[0].dtype == np.float32
    np.testing.assert_allclose(read.weights[0], W[0].astype(np.float16))
    mlp = eqx.nn.MLP(2, 3, 5, 2, key=jax.random.key(0))
    net = relu.ReLUNetwork.from_state_dict(mlp)
    both = eqx.filter_jit(lambda net, mlp, x: (net(x), jax.vmap(mlp)(x)))
    np.testing.assert_allclose(*both(net, mlp, X), rtol=1e-12)


def test_some_layers_have_biases_and_the_slope_is_given():
    arrays = named()
    del arrays["4.bias"]
    net = relu.ReLUNetwork.from_state_dict(arrays, slope=0.1)
    assert net.slope == 0.1
    assert net.biases is not None
    np.testing.assert_array_equal(net.biases[2], np.zeros(3))
    for name in ("0.bias", "2.bias"):
        del arrays[name]
    assert relu.ReLUNetwork.from_state_dict(arrays).biases is None


def test_square_layers_need_their_layout():
    square = {"fc1.weight": np.arange(9.0).reshape(3, 3), "fc2.weight": np.eye(3)}
    with pytest.raises(ValueError, match=r"fc1.weight .* fit each other in both layouts.*in_out"):
        relu.ReLUNetwork.from_state_dict(square)
    as_torch = relu.ReLUNetwork.from_state_dict(square, orientation="out_in")
    as_flax = relu.ReLUNetwork.from_state_dict(square, orientation="in_out")
    np.testing.assert_array_equal(as_torch.weights[0], square["fc1.weight"])
    np.testing.assert_array_equal(as_flax.weights[0], square["fc1.weight"].T)


GOOD = named()
NAN = {**GOOD, "2.weight": np.where(np.arange(5) == 3, np.nan, W[1])}
REFUSED = {
    "missing layer": ({k: v for k, v in GOOD.items() if k[0] != "2"},
                      r"4.weight of the checkpoint has shape \(3, 4\).* before it makes 5"),
    "not finite": (NAN, r"^2.weight of the checkpoint is nan at index \(0, 3\)"),
    "other layout": ({f"{i}.weight": w.T for i, w in enumerate(W)},
                     r"0.weight of the checkpoint has shape \(2, 5\).*orientation='in_out'"),
    "bias of another size": ({**GOOD, "2.bias": B[0]}, r"2.weight .* but 2.bias has shape \(5,\)"),
    "bias alone": ({**GOOD, "6.bias": B[0]}, r"has 6.bias, but no weights of the layer '6'"),
    "one layer": ({"fc.weight": W[0]}, "only the layer 'fc'"),
    "no layer": ({"step": 3}, "no arrays by name"),
    "convolution": ({"conv1.weight": np.zeros((4, 1, 3, 3)), **GOOD},
                    r"conv1.weight .* convolutional.*layers=\['0', '2', '4'\]"),
    "normalisation": ({"0.weight": W[0], "1.weight": B[0], "1.running_mean": B[0],
                       "2.weight": W[1], "4.weight": W[2]},
                      r"1.weight .* a normalisation.*layers=\['2', '4'\]"),
    "flax norm": ({**nested()["params"], "LayerNorm_0": {"scale": B[0], "bias": B[0]}},
                  "LayerNorm_0/scale .* a normalisation"),
    "recurrent": ({"rnn.weight_ih_l0": W[0], **GOOD}, "rnn.weight_ih_l0 .* not known here"),
    "order unknown": ({"a.weight": W[0], "b.weight": np.eye(5), "c.weight": 2 * np.eye(5),
                       "out.weight": RNG.normal(size=(3, 5))}, r"2 orders: pass layers="),
    "no mapping": ([W[0], W[1]], "a list holds no arrays by name"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_such_network_is_refused_in_one_line(source, words):
    with pytest.raises(ValueError, match=words) as refusal:
        relu.ReLUNetwork.from_state_dict(source)
    assert "\n" not in str(refusal.value)


def test_the_last_layers_behind_a_frozen_part():
    arrays = {"conv1.weight": np.zeros((4, 1, 3, 3)), "bn.running_mean": B[0], **GOOD}
    net = relu.ReLUNetwork.from_state_dict(arrays, layers=["0", "2", "4"])
    np.testing.assert_allclose(net(X), PLAIN(X), rtol=1e-12)
    with pytest.raises(ValueError, match=r"layers names 'fc'.*it has 'conv1', '0', '2', '4'"):
        relu.ReLUNetwork.from_state_dict(arrays, layers=["fc", "4"])


# ---------------------------------------------------------------- files
def test_there_and_back(tmp_path):
    as_torch = PLAIN.save(tmp_path / "net.npz")
    as_flax = PLAIN.save(tmp_path / "flax.npz", ["a", "b", "c"], orientation="in_out")
    for file in (as_torch, as_flax):
        assert eqx.tree_equal(relu.ReLUNetwork.from_state_dict(file), PLAIN)
    assert list(PLAIN.to_state_dict()) == list(named())
    assert list(PLAIN.to_state_dict(["a", "b", "c"], orientation="in_out"))[:2] == [
        "a/kernel",
        "a/bias",
    ]
    with pytest.raises(ValueError, match="names has 1 entries for 3 layers"):
        PLAIN.to_state_dict(["a"])
    with pytest.raises(ValueError, match=r"net.pkl must end in \.npz or \.safetensors"):
        PLAIN.save(tmp_path / "net.pkl")


def test_safetensors(tmp_path):
    pytest.importorskip("safetensors", reason="needs the extra checkpoints")
    file = PLAIN.save(tmp_path / "net.safetensors")
    assert eqx.tree_equal(relu.ReLUNetwork.from_state_dict(file), PLAIN)
    file.write_bytes(b"no such file")
    with pytest.raises(ValueError, match=r"net.safetensors cannot be read as safetensors"):
        relu.ReLUNetwork.from_state_dict(str(file))


class Trap:
    """What would run if a file were unpickled."""

    def __reduce__(self):
        return (sys.exit, ("executed",))


def test_nothing_in_a_file_is_executed(tmp_path):
    file = tmp_path / "net.npz"
    np.savez(file, **{"0.weight": np.array([Trap()], dtype=object), "2.weight": W[1]})
    with pytest.raises(ValueError, match=r"net.npz cannot be read .*allow_pickle=False"):
        relu.ReLUNetwork.from_state_dict(file)
    file.write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(ValueError, match=r"net.npz cannot be read"):
        relu.ReLUNetwork.from_state_dict(file)
    for name, words in (("net.pkl", "must end in one of"), ("no.npz", "there is no file")):
        with pytest.raises(ValueError, match=words):
            relu.ReLUNetwork.from_state_dict(tmp_path / name)


def test_torch_files_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    file = tmp_path / "net.pt"
    file.write_bytes(b"")
    with pytest.raises(ValueError, match=r"net.pt is read by torch.*not installed here.*np.savez"):
        relu.ReLUNetwork.from_state_dict(file)


def test_torch_files(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensors = {k: torch.from_numpy(v) for k, v in named().items()}
    torch.save({"epoch": 3, "state_dict": tensors}, tmp_path / "net.pt")
    assert eqx.tree_equal(relu.ReLUNetwork.from_state_dict(tmp_path / "net.pt"), PLAIN)
    layers = [torch.nn.Linear(2, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1)]
    model = torch.nn.Sequential(*layers).double()
    expected = model(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(relu.ReLUNetwork.from_state_dict(model)(X), expected, rtol=1e-12)
    torch.save({"state_dict": tensors, "trap": Trap()}, tmp_path / "bad.pt")
    with pytest.raises(ValueError, match=r"bad.pt holds more than arrays"):
        relu.ReLUNetwork.from_state_dict(tmp_path / "bad.pt")


# ---------------------------------------------------------------- gated networks
def test_a_gated_network_from_names(tmp_path):
    graph = gdln.Graph({"x": 2, "h": 5, "y": 4}, [("x", "h"), ("h", "y")])
    names = {"x->h": "enc.weight", "h->y": "dec.weight"}
    arrays = {"enc.weight": W[0], "dec.weight": W[1]}
    net = gdln.GatedNetwork.from_state_dict(graph, arrays, names=names)
    np.testing.assert_array_equal(net.weights["h->y"], W[1])
    turned = {k: v.T for k, v in arrays.items()}
    assert eqx.tree_equal(gdln.GatedNetwork.from_state_dict(graph, turned, names=names), net)
    np.savez(tmp_path / "net.npz", **dict(net.weights))  # type: ignore[arg-type]
    assert eqx.tree_equal(gdln.GatedNetwork.from_state_dict(graph, tmp_path / "net.npz"), net)
    square = gdln.Graph({"x": 2, "y": 2}, [("x", "y")])
    one = {"w": np.array([[1.0, 2], [3, 4]])}
    for wrong, words in (
        ((graph, arrays, {"x->h": "enc.weight"}), r"names lacks 'h->y'"),
        ((graph, arrays, {**names, "x->y": "no"}), r"names names 'x->y', which is not an edge"),
        ((graph, arrays, {**names, "h->y": "dec.weights"}), r"did you mean 'dec.weight'"),
        ((graph, {**arrays, "dec.weight": W[2]}, names), r"dec.weight of .* has shape \(3, 4\)"),
        ((square, one, {"x->y": "w"}), r"square.*orientation="),
    ):
        with pytest.raises(ValueError, match=words):
            gdln.GatedNetwork.from_state_dict(*wrong[:2], names=wrong[2])
    read = gdln.GatedNetwork.from_state_dict(square, one, names={"x->y": "w"}, orientation="in_out")
    np.testing.assert_array_equal(read.weights["x->y"], one["w"].T)


# ---------------------------------------------------------------- masks
def test_two_encoders_are_two_networks():
    """Units that see one modality each: outputs and gradients are those of two networks added."""
    mask = relu.block_mask([3, 3], [2, 4], [[0], [1]])
    assert mask.shape == (6, 6)
    assert (mask[:3, :2].all(), mask[:3, 2:].any(), mask[3:, 2:].all()) == (True, False, True)
    key = jax.random.key(1)
    net = relu.ReLUNetwork.init([6, 6, 2], std=0.5, masks=[mask, None], key=key)
    assert net.kind.masked
    x = RNG.normal(size=(5, 6))
    data = gdln.GatedData({"x": x}, {"y": RNG.normal(size=(5, 2))})
    w1, w2 = map(np.asarray, net.weights)
    one = relu.ReLUNetwork([w1[:3, :2], w2[:, :3]])
    other = relu.ReLUNetwork([w1[3:, 2:], w2[:, 3:]])
    call = eqx.filter_jit(lambda net, x: net(x))
    parts = np.asarray(call(one, x[:, :2])) + np.asarray(call(other, x[:, 2:]))
    np.testing.assert_allclose(call(net, x), parts, rtol=1e-12)
    gradient = jax.jit(jax.grad(gdln.mse))(net, data)
    assert np.all(np.asarray(gradient.weights[0])[~mask] == 0)
    assert np.all(np.asarray(gradient.weights[0])[mask] != 0)
    run = gdln.train(net, data, optimizer=optax.adamw(0.05), steps=5)
    assert np.all(np.asarray(run.final.weights[0])[~mask] == 0)
    assert np.any(np.asarray(run.final.weights[0]) != np.asarray(net.weights[0]))
    _, gated, frozen = relu.as_gated(run.final, data)
    np.testing.assert_allclose(call(frozen, gated)["y"], call(run.final, data)["y"], rtol=1e-12)
    again = relu.ReLUNetwork.from_state_dict(net.to_state_dict(), masks=[mask, None])
    assert eqx.tree_equal(again, net)
    weights = [np.stack([w, 2 * np.asarray(w)]) for w in net.weights]
    stacked = relu.ReLUNetwork(weights, masks=[mask, None])
    every = eqx.filter_jit(eqx.filter_vmap(lambda n: n(x)))(stacked)
    np.testing.assert_allclose(every[0], call(net, x), rtol=1e-12)


def test_masks_that_do_not_fit(refused_plainly):
    mask = np.eye(5, 2)
    with pytest.raises(ValueError, match="masks has 1 entries for 3 layers"):
        relu.ReLUNetwork(W, masks=[mask])
    for bad in (np.ones((2, 5)), 0.5 * mask):
        with pytest.raises(ValueError, match=r"masks\[0\] has shape .* expected 0 and 1"):
            relu.ReLUNetwork(W, masks=[bad, None, None])
    assert relu.ReLUNetwork(W, masks=[None, None, None]).masks is None
    net = relu.ReLUNetwork([W[0], RNG.normal(size=(1, 5))], masks=[mask, None])
    data = gdln.GatedData({"x": X}, {"y": X[:, :1]})
    found = relu.discover_gates(relu.snapshot(net, data), k=1)
    with pytest.raises(ValueError, match=r"masks.*see the whole input"):
        relu.build_gated(found, data, std=0.1, key=jax.random.key(0))
    for sizes, words in ((([[0]],), "blocks has 1"), (([[0], [2]],), "names group 2 of 2")):
        with pytest.raises(ValueError, match=words):
            relu.block_mask([1, 1], [1, 1], *sizes)
    assert re.search("masks", repr(net))


# ---------------------------------------------------------------- the course of a training
def over_time(count=4):
    return [{k: (1 + t) * v for k, v in named().items()} for t in range(count)]


def test_histories_are_the_same_from_files_lists_and_stacks(tmp_path):
    every = over_time()
    for step, arrays in zip((0, 5, 20, 100), every, strict=True):
        np.savez(tmp_path / f"run3_step{step}.npz", **arrays)
    (tmp_path / "notes.txt").write_text("no checkpoint")
    folder = relu.history(tmp_path)
    assert folder.steps.tolist() == [0, 5, 20, 100]
    assert "read run3_step0.npz to run3_step100.npz: layers 0, 2, 4" in folder.notes[0]
    assert len(folder) == 4
    np.testing.assert_allclose(folder.at(2)(X), relu.ReLUNetwork.from_state_dict(every[2])(X))
    stack = {k: np.stack([arrays[k] for arrays in every]) for k in every[0]}
    steps = [0, 5, 20, 100]
    inside = [{"step": n, "model": arrays} for n, arrays in zip(steps, every, strict=True)]
    for same in (
        relu.history(every, steps=steps),
        relu.history(stack, steps=steps),
        relu.history(inside),
        relu.history(folder.network, steps=steps),
    ):
        assert same.steps.tolist() == [0, 5, 20, 100]
        assert eqx.tree_equal(same.network, folder.network)
    numbered = relu.history(every)
    assert numbered.steps.tolist() == [0, 1, 2, 3]
    assert "assumed: the checkpoints are equally far apart" in numbered.notes[-1]
    one = relu.history(every[0])
    assert one.steps.tolist() == [0]
    assert eqx.tree_equal(one.at(0), PLAIN)


def test_histories_that_are_none_are_refused(tmp_path):
    np.savez(tmp_path / "first.npz", **named())
    (tmp_path / "empty").mkdir()
    assert len(relu.history(tmp_path)) == 1
    np.savez(tmp_path / "last.npz", **named())
    every = over_time(2)
    other = {k: v for k, v in every[1].items() if k != "2.bias"}
    for source, steps, words in (
        (tmp_path, None, r"first.npz has no number in its name.*pass a list"),
        (tmp_path / "empty", None, r"has no file that ends in one of"),
        ([], None, r"the list of checkpoints is empty"),
        ([every[0], other], None, r"the checkpoint has no 2.bias"),
        (every, [3, 3], r"the steps do not increase: 3 and then 3"),
        (every, [1], r"one whole number for each of 2 checkpoints"),
    ):
        with pytest.raises(ValueError, match=words):
            relu.history(source, steps=steps)


def test_a_history_of_a_run_here(tmp_path):
    """Checkpoints of a run give the gates, powers and losses that the run itself recorded."""
    x = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    data = gdln.GatedData({"x": x}, {"y": np.array([1.0, -1, -1, 1])[:, None]})
    net = relu.ReLUNetwork.init([2, 12, 1], std=0.1, bias=True, key=jax.random.key(2))
    sgd = optax.sgd(0.05)
    run = gdln.train(
        net, data, optimizer=sgd, steps=40, save_every=10, keep_models=True,
        measure=lambda net: relu.snapshot(net, data),
    )  # fmt: skip
    files = [
        run.model(i).save(tmp_path / f"{step}.npz") for i, step in enumerate(np.asarray(run.ts))
    ]
    read = relu.history(files).run(data)
    assert eqx.tree_equal(read.ts, run.ts)
    np.testing.assert_allclose(read.losses, run.losses, rtol=1e-12)
    np.testing.assert_array_equal(read.measured.on, run.measured.on)
    np.testing.assert_allclose(read.measured.power, run.measured.power, atol=1e-12)
    assert read.measured.kind == run.measured.kind
    assert eqx.tree_equal(relu.history(run).network, run.models)
    with pytest.raises(ValueError, match=r"expected \(\.\.\., 2\)|shape \(4, 1\)"):
        relu.history(files).snapshots(gdln.GatedData({"x": x[:, :1]}, data.targets))
