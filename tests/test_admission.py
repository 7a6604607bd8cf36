"""What callers pass: arrays are checked and copied, mix-ups are answered in words."""

import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from jax.experimental import sparse

import gdln_jax as gdln
from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    ReLUNetwork,
    Schedule,
    cross_entropy,
    gates,
    images,
    init,
    measures,
    mse,
    pack,
    race,
    relu,
    tasks,
)

GRAPH = Graph({"x": 2, "h": 3, "y": 1}, [("x", "h"), ("h", "y")])
DATA = GatedData({"x": np.eye(2)}, {"y": [[1.0], [2.0]]})
NET = GatedNetwork(GRAPH, {"x->h": np.full((3, 2), 0.1), "h->y": np.full((1, 3), 0.2)})
RELU = ReLUNetwork([np.full((3, 2), 0.1), np.full((1, 3), 0.2)])


def aligned(values, dtype: Any = float):
    """An array at an address that is a multiple of 64: JAX takes over the memory of such ones."""
    array = np.array(values, dtype)
    buffer = np.zeros(array.nbytes + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    view = buffer[start : start + array.nbytes].view(dtype).reshape(array.shape)
    view[...] = array
    return view


def drawn(initialiser):
    return lambda: GatedNetwork.init(GRAPH, initialiser, key=jax.random.key(0))


# What is made of an array -> what to look at afterwards.
OF_ONE_ARRAY = {
    "inputs": ([[1.0, 0], [0, 1]], lambda a: GatedData({"x": a}, {"y": [[1.0], [2]]})),
    "targets": ([[1.0], [2]], lambda a: GatedData({"x": np.eye(2)}, {"y": a})),
    "gates": ([1.0, 2], lambda a: GatedData({"x": np.eye(2)}, {"y": [[1.0], [2]]}, {"h": a})),
    "with_gates": ([1.0, 2], lambda a: gates.with_gates(DATA, {"h": a})),
    "weights": ([[0.1, 0.2, 0.3]], lambda a: NET.with_weights({"h->y": a})),
    "ReLU": (np.ones((3, 2)), lambda a: ReLUNetwork([a, np.ones((1, 3))], [np.ones(3), [1.0]])),
    "switches": ([1.0], lambda a: Schedule([DATA, DATA], a)),
    "new switches": ([1.0], lambda a: Schedule([DATA, DATA], [2.0]).with_times(a)),
    "base": ([[1.0, 0], [0, 1]], lambda a: tasks.routing(2, base=(a, np.eye(2))).meta["base"]),
    "labels": (
        [[0.9, 0.1], [0.1, 0.9]],
        lambda a: tasks.multiview(2, 2, soft_labels=a).meta["labels"],
    ),
    "variables": ([0.5], lambda a: gates.LearnedGates(NET, ["h"], z=a)),
}


class TestCopies:
    """Whatever is written to an array later, what was made of it stays."""

    @pytest.mark.parametrize("what", OF_ONE_ARRAY)
    def test_of_arrays(self, what):
        values, make = OF_ONE_ARRAY[what]
        given = aligned(values)
        made = make(given)
        before = [np.array(leaf) for leaf in jax.tree.leaves(made)]
        given[...] = 7
        for leaf, kept in zip(jax.tree.leaves(made), before, strict=True):
            np.testing.assert_array_equal(leaf, kept)

    def test_single_precision(self):
        x, y = aligned(np.eye(2), np.float32), aligned([[1], [2]], np.float32)
        data = GatedData({"x": x}, {"y": y})
        x[:] = y[:] = 7
        np.testing.assert_array_equal(data.inputs["x"], np.eye(2))
        np.testing.assert_array_equal(data.targets["y"], [[1], [2]])

    def test_of_a_file_in_memory(self, tmp_path):
        file = np.memmap(tmp_path / "x", np.float64, "w+", shape=(2, 2))
        file[:] = np.eye(2)
        data = GatedData({"x": file}, {"y": [[1.0], [2.0]]})
        file[:] = 7
        np.testing.assert_array_equal(data.inputs["x"], np.eye(2))

    def test_of_images(self):
        pixels, labels = aligned(np.ones((2, 3, 3)), np.uint8), aligned([0, 1], np.int32)
        of_images = images.ImageSet(pixels, labels)
        pixels[:], labels[:] = 7, 7
        assert of_images.images.max() == 1
        np.testing.assert_array_equal(of_images.labels, [0, 1])

    @pytest.mark.parametrize(
        "initialiser",
        [init.normal, init.orthogonal, init.xavier, lambda a: init.balanced(scale=a)],
    )
    def test_of_the_scale_of_an_initialiser(self, initialiser):
        scale = aligned(0.5)
        draw = drawn(initialiser(scale))
        before = draw()
        scale[...] = 7
        assert all(jnp.array_equal(w, draw().weights[e]) for e, w in before.weights.items())

    def test_of_the_strengths_of_an_initialiser(self):
        scale = aligned([0.5])
        reduction = gdln.reduce(GRAPH, DATA)
        draw = drawn(init.decoupled(reduction, {"x->h": scale, "h->y": scale}))
        before = draw().weights["h->y"]
        scale[...] = 7
        np.testing.assert_array_equal(draw().weights["h->y"], before)


ITEMS = ["cat", "dog", "oak"]
X = pd.DataFrame(np.eye(3), index=ITEMS)
Y = pd.DataFrame(np.arange(3.0)[:, None], index=ITEMS)


class TestRowLabels:
    """Arrays are paired by position; labels that contradict this are refused."""

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            (Y.loc[["oak", "cat", "dog"]], r"targets\['y'\].*inputs\['x'\].*another order.*'oak'"),
            (Y.set_axis(["dog", "oak", "elm"]), "only some of the row labels"),
            (
                xr.DataArray(Y.to_numpy(), {"item": ["dog", "cat", "oak"]}, ("item", "feature")),
                r"another order \(row 0: 'dog' beside 'cat'\).*reindex_like",
            ),
        ],
    )
    def test_refused(self, other, words):
        with pytest.raises(ValueError, match=words):
            GatedData({"x": X}, {"y": other})

    def test_between_any_two_arrays(self):
        weights = pd.Series([1.0, 2, 3], index=["oak", "cat", "dog"])
        with pytest.raises(ValueError, match="weights and inputs"):
            GatedData({"x": X}, {"y": Y.to_numpy()}, weights=weights)
        # Rows shuffled on one side only, the other side numbered as pandas numbers rows.
        shuffled = pd.DataFrame(np.eye(3)).iloc[[2, 0, 1]]
        with pytest.raises(ValueError, match="another order"):
            GatedData({"x": shuffled}, {"y": pd.DataFrame(np.ones((3, 1)))})

    def test_of_images(self):
        pixels = xr.DataArray(np.ones((3, 2, 2), np.uint8), {"n": ITEMS}, ("n", "row", "column"))
        labels = pd.Series([0, 1, 2], index=ITEMS[::-1])
        with pytest.raises(ValueError, match="labels and images"):
            tasks.transformed_images(pixels, labels, num_domains=2, key=jax.random.key(0))
        masked = np.ma.masked_equal([0, 1, 9], 9)
        with pytest.raises(ValueError, match="labels has 1 masked"):
            images.ImageSet(pixels.to_numpy(), masked)

    def test_of_the_base_of_a_task(self):
        with pytest.raises(ValueError, match="base y and base x"):
            tasks.routing(2, base=(X, Y.iloc[::-1]))

    @pytest.mark.parametrize(
        "other",
        [
            Y,
            Y.set_axis(["feature"], axis=1),
            Y.iloc[::-1].to_numpy(),
            Y.set_axis(range(3)),
            Y.set_axis(["a", "b", "c"]),
            xr.DataArray(Y.to_numpy(), {"item": ITEMS}, ("item", "feature")),
            xr.DataArray(Y.to_numpy(), dims=("item", "feature")),
        ],
    )
    def test_accepted(self, other):
        data = GatedData({"x": X}, {"y": other})
        np.testing.assert_array_equal(data.targets["y"], np.asarray(other))
        part = pd.DataFrame(np.eye(4)).iloc[1:]  # rows 1, 2, 3 beside 0, 1, 2: not names
        assert GatedData({"x": part}, {"y": pd.DataFrame(np.ones((3, 1)))}).num_examples == 3


class TestArrays:
    @pytest.mark.parametrize(
        "hold",
        [
            dict,
            collections.UserDict,
            lambda arrays: collections.ChainMap({}, arrays),
            lambda arrays: {k: pd.DataFrame(v) for k, v in arrays.items()},
            lambda arrays: {k: xr.DataArray(v) for k, v in arrays.items()},
        ],
    )
    def test_float32_stays_float32_in_every_container(self, hold):
        x, y = np.eye(2, dtype=np.float32), np.ones((2, 1), np.float32)
        assert GatedData(hold({"x": x}), hold({"y": y})).weights.dtype == np.float32
        assert GatedData(hold({"x": x}), {"y": [[1.0], [2.0]]}).weights.dtype == np.float32
        assert GatedData(hold({"x": x}), {"y": y.astype(float)}).weights.dtype == np.float64

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            (scipy.sparse.eye_array(2).tocsr(), r"is sparse \(csr_array\).*array\.toarray\(\)"),
            (scipy.sparse.eye(2), r"is sparse.*array\.toarray\(\)"),
            (sparse.BCOO.fromdense(jnp.eye(2)), r"is sparse \(BCOO\).*array\.todense\(\)"),
            (np.ma.masked_equal(np.eye(2), 1), "has 2 masked entries.*filled"),
            ([np.ma.masked_equal([0, 1], 1), [1, 1]], "has 1 masked entries"),
            (np.eye(2, dtype=np.longdouble), r"float128.*beyond float64.*astype\(np\.float64\)"),
            (jnp.eye(2, dtype=jnp.bfloat16), "bfloat16; use float32 or float64"),
            (np.eye(2, dtype=">f2"), "use float32 or float64"),
            (np.eye(2) * 1j, "complex128; it must hold real numbers"),
            (pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 2]}), "missing values"),
        ],
    )
    def test_refused_with_the_true_reason(self, value, words):
        with pytest.raises(ValueError, match=rf"inputs\['x'\].*{words}"):
            GatedData({"x": value}, {"y": [[1.0], [2.0]]})

    @pytest.mark.parametrize(
        ("field", "name"), [("targets", "y"), ("node_gates", "h"), ("weights", None)]
    )
    def test_masks_are_refused_everywhere(self, field, name):
        shape = (2, 1) if field == "targets" else (2,)
        value = np.ma.array(np.full(shape, 9999.0), mask=np.eye(2)[0].reshape(shape))
        given: dict[str, Any] = {"inputs": {"x": np.eye(2)}, "targets": {"y": np.ones((2, 1))}}
        given |= {field: value if name is None else {name: value}}
        with pytest.raises(ValueError, match=f"{field}.*has 1 masked"):
            GatedData(**given)

    def test_what_is_masked_nowhere_or_of_other_byte_order_is_taken(self):
        for x in (np.ma.array([[1.0, 2], [3, 4]]), np.array([[1, 2], [3, 4]], ">f8")):
            data = GatedData({"x": x}, {"y": np.array([[1], [2]], ">i4")})
            np.testing.assert_array_equal(data.inputs["x"], [[1, 2], [3, 4]])
            np.testing.assert_array_equal(data.targets["y"], [[1], [2]])

    def test_two_axes_of_weights_are_not_answered_by_gates(self):
        with pytest.raises(ValueError, match=r"weights has shape \(2, 2\).*one weight per example"):
            GatedData({"x": np.eye(2)}, {"y": [[1.0], [2.0]]}, weights=np.ones((2, 2)))

    def test_traced_arrays_of_other_types(self):
        for dtype, words in ((complex, "real numbers"), (jnp.bfloat16, "use float32")):
            with pytest.raises(ValueError, match=words):
                jax.jit(lambda x: GatedData({"x": x}, {"y": np.ones((2, 1))}))(
                    jnp.eye(2, dtype=dtype)
                )

    def test_what_float32_cannot_hold_is_named(self):
        words = r"inputs\['x'\] is 1e\+300 at index \(0, 1\), which float32 cannot hold"
        with jax.enable_x64(False), pytest.raises(ValueError, match=words):
            GatedData({"x": [[1.0, 1e300]]}, {"y": [[1.0]]})


class TestWeightsOfNetworks:
    @pytest.mark.parametrize(
        ("bad", "words"),
        [
            (np.full((3, 2), np.nan), r"is not finite at index"),
            (jnp.full((3, 2), jnp.inf), "is not finite"),
            (np.ones((3, 2)) * 1j, "complex128; it must hold real"),
            (jnp.ones((3, 2), jnp.bfloat16), "bfloat16; use float32"),
            (np.ones((3, 2), np.float16), "float16; use float32"),
            (np.ma.masked_equal(np.eye(3, 2), 1), "masked"),
        ],
    )
    def test_refused(self, bad, words):
        with pytest.raises(ValueError, match=words):
            GatedNetwork(GRAPH, {"x->h": bad, "h->y": np.ones((1, 3))})
        with pytest.raises(ValueError, match=words):
            NET.with_weights({"x->h": bad})
        with pytest.raises(ValueError, match=rf"weights\[0\].*{words}"):
            ReLUNetwork([bad, np.ones((1, 3))])
        with pytest.raises(ValueError, match=rf"biases\[1\].*{words}"):
            ReLUNetwork(RELU.weights, [np.ones(3), bad[0, :1]])

    def test_whole_numbers_become_floats(self):
        network = ReLUNetwork([[[1, 0], [0, 1]], [[1, -1]]], [[0, 1], [0]])
        assert {leaf.dtype for leaf in jax.tree.leaves(network)} == {np.dtype(float)}

    @pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, complex])
    @pytest.mark.parametrize("network", [NET, RELU, {"a": jnp.ones(3)}])
    def test_networks_that_were_cast_are_refused_where_they_learn(self, network, dtype):
        import optax

        cast = jax.tree.map(lambda w: w.astype(dtype), network)
        for learn in (
            lambda: gdln.train(cast, DATA, optimizer=optax.sgd(0.1), steps=1),
            lambda: gdln.gradient_flow(cast, DATA, [0.0, 1.0]),
            lambda: mse(cast, DATA),
        ):
            with pytest.raises(ValueError, match=r"model.*has dtype"):
                learn()


class TestExamplesOfWeightZero:
    """A loss, its gradient and its flow do not depend on what weighs 0."""

    graph = Graph({"x": 2, "h": 3, "y": 2}, [("x", "h"), ("h", "y")])
    weights = (np.arange(6.0).reshape(3, 2) / 10, np.arange(6.0).reshape(2, 3) / 7)
    gated, rectified = (
        GatedNetwork(graph, dict(zip(("x->h", "h->y"), weights, strict=True))),
        ReLUNetwork(weights),
    )
    few = GatedData({"x": np.eye(2)}, {"y": [[1.0, 0], [0, 2]]})
    huge = GatedData(
        {"x": [[1.0, 0], [0, 1], [1e300, 1e300]]},
        {"y": [[1.0, 0], [0, 2], [-1e300, 1e300]]},
        weights=[1, 1, 0],
    )

    @pytest.mark.parametrize("network", [gated, rectified])
    @pytest.mark.parametrize("loss", [mse, cross_entropy])
    def test_however_large_they_are(self, network, loss):
        packed = [pack(self.graph, self.huge)] if network is self.gated else []
        for data in (self.huge, *packed):
            value, gradient = jax.value_and_grad(loss)(network, data)
            wanted, wanted_gradient = jax.value_and_grad(loss)(network, self.few)
            np.testing.assert_allclose(value, wanted, rtol=1e-14)
            for g, w in zip(*map(jax.tree.leaves, (gradient, wanted_gradient)), strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-13, atol=1e-16)

    def test_the_derivative_in_a_weight_of_zero(self):
        data = GatedData({"x": np.eye(2)}, {"y": [[1.0], [2.0]]}, weights=[1, 0])
        slope = jax.grad(lambda d: mse(NET, d))(data).weights
        np.testing.assert_allclose(slope[1], 0.5 * (2 - 0.06) ** 2, rtol=1e-14)

    def test_errors_of_groups(self):
        groups = np.array([0, 1, 0])
        found = measures.error_by_group(self.gated, self.huge, groups, 2)
        wanted = measures.error_by_group(self.gated, self.few, groups[:2], 2)
        np.testing.assert_allclose(found, wanted, rtol=1e-14)

    def test_power_of_units(self):
        power = relu.unit_power(self.rectified, self.huge)
        np.testing.assert_allclose(power, relu.unit_power(self.rectified, self.few), rtol=1e-14)

    def test_reductions_of_packed_data(self):
        # Gates and a silent output, so that blocks are padded and share activities.
        graph = Graph({"x": 2, "h": 3, "y": 2, "z": 2}, [("x", "h"), ("h", "y"), ("h", "z")])
        x, y = np.array([[1.0, 0], [0, 1], [1e300, 1e300], [1, 0]]), np.diag([1.0, 2, 3, 4])[:, :2]
        y[2] = 1e300
        gate = np.array([1.0, 1, 1, 0])

        def reduced(rows, weights=None):
            inputs, targets = {"x": x[rows]}, {"y": y[rows], "z": y[rows, ::-1]}
            gated = GatedData(inputs, targets, {"z": gate[rows]}, weights=weights)
            return gdln.reduce(graph, pack(graph, gated))

        wanted, found = reduced([0, 1, 3]), reduced(slice(None), [1, 1, 0, 1])
        assert found.residual < 1e-12
        np.testing.assert_allclose(found.loss(0.3), wanted.loss(0.3), rtol=1e-12)

    def test_only_such_examples_are_no_data(self):
        for index in ([2], np.array([2, 2]), [False, False, True]):
            with pytest.raises(ValueError, match="taken weigh 0 together"):
                self.huge.take(index)
        np.testing.assert_array_equal(self.huge.take([0, 2]).weights, [1, 0])

    def test_examples_that_do_not_exist(self):
        for index, words in (
            ([3], "names example 3, but there are 3"),
            ([-4], "names example -4"),
            (np.zeros((1, 1), int), r"shape \(1, 1\)"),
            (np.zeros(1), "float64"),
            ([], "shape"),
            ([True], "bool"),
        ):
            with pytest.raises(ValueError, match=words):
                self.huge.take(index)
        np.testing.assert_array_equal(self.huge.take([-2, 0]).inputs["x"], [[0, 1], [1, 0]])


class TestRaces:
    @pytest.mark.parametrize(
        ("bad", "words"),
        [
            (np.array([1, 2j]), "rates has dtype complex128; it must hold real"),
            (jnp.ones(2, jnp.bfloat16), "rates has dtype bfloat16"),
            (np.ma.masked_equal([1.0, 9], 9), "rates has 1 masked"),
        ],
    )
    def test_rates(self, bad, words):
        with pytest.raises(ValueError, match=words):
            race.LotkaVolterra(bad)

    def test_copies(self):
        rates = aligned([1.0, 2.0])
        made = race.LotkaVolterra(rates)
        rates[:] = 7
        np.testing.assert_array_equal(made.rates, [1, 2])


class TestLearnedGates:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"rate": 0.0}, "rate is 0.0; it must be above 0"),
            ({"rate": -1.0}, "rate is -1.0; it must be above 0"),
            ({"leak": -1e-3}, "leak is -0.001; it must be at least 0"),
            ({"rate": np.nan}, "rate is not finite"),
            ({"z": np.array([np.inf])}, "z is not finite"),
        ],
    )
    def test_rates(self, options, words):
        with pytest.raises(ValueError, match=words):
            gates.LearnedGates(NET, ["h"], **options)

    def test_traced_rates_pass(self):
        assert jax.jit(lambda r: gates.LearnedGates(NET, ["h"], rate=r).w)(-1.0).shape == (1,)


class TestSeveralArrays:
    """`==` and `np.asarray` of what holds several arrays: words, not NumPy's."""

    @pytest.mark.parametrize(
        "held",
        [
            NET,
            DATA,
            RELU,
            NET.weights,
            pack(GRAPH, DATA),
            Schedule([DATA], []),
            gates.LearnedGates(NET, ["h"]),
            gdln.reduce(GRAPH, DATA),
            gdln.reduce(GRAPH, DATA).frames,
            gdln.reduce(GRAPH, DATA).strengths_of(0.1),
            gdln.reduce(GRAPH, DATA).quotient(0.1),
            gdln.path_statistics(GRAPH, DATA),
            gdln.tasks.Task(GRAPH, DATA, "task", {}),
        ],
        ids=lambda held: type(held).__name__,
    )
    def test_are_no_array(self, held):
        for make in (np.asarray, jnp.asarray):
            with pytest.raises(
                TypeError, match=rf"a {type(held).__name__} holds several .*, (x|jax).*object"
            ):
                make(held)

    def test_arrays_of_objects_are_made_where_asked_for(self):
        nets = np.array([NET, NET], dtype=object)
        assert nets.shape == (2,)
        assert nets[0] is NET

    def test_mappings_of_arrays_are_not_compared(self):
        frames = gdln.reduce(GRAPH, DATA).frames
        for mapping in (NET.weights, frames):
            for compare in (lambda m: m == m, lambda m: m != dict(m)):  # noqa: PLR0124
                with pytest.raises(TypeError, match=r"array_equal\(a\[k\], b\[k\]\)"):
                    compare(mapping)


def test_mix_ups_are_answered_in_words(refused_plainly):
    """What was passed, and what to pass instead."""
    refused_plainly("""
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, optax
from gdln_jax import *
from gdln_jax import gates, images, init, measures, relu, tasks
task = tasks.hierarchy(2, (1, 1), width=2)
graph, data = task.graph, task.data
key = jax.random.key(0)
net = GatedNetwork.init(graph, init.orthogonal(0.1), key=key)
r = reduce(graph, data)
rectified = ReLUNetwork.init([2, 2, 3], key=key)
two = lambda model: jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), model)
sgd = optax.sgd(0.1)
run = train(net, data, optimizer=sgd, steps=1)
leaky = images.RoutedNetwork.init(2, 2, 2, width=2, slope=0.1, key=key)
shot = relu.snapshot(rectified, data)
attempts = [
    (lambda: effective_initial(net, data), "reduction is a GatedNetwork; the red"),
    (lambda: effective_initial(r, rectified), "net is a ReLUNetwork, not a GatedNetwork"),
    (lambda: r.project(data), "net is a GatedData, not a GatedNetwork"),
    (lambda: init.decoupled(net, 0.1), "reduction is a GatedNetwork; pass gdln.reduce"),
    (lambda: mse(data, net), "model is a GatedData; the model comes first, the data second"),
    (lambda: cross_entropy(task, data), "model is a Task; make a model for its .graph"),
    (lambda: mse(r, data), "model is a Reduction; it holds reduced equations, not weights"),
    (lambda: r.loss("small"), "b is 'small'; give one number, or one per mode"),
    (lambda: r.solve(None, [0.0, 1.0]), "b is None; give one number"),
    (lambda: r.solve(0.1, [[0.0, 1.0]]), "increasing"),
    (lambda: mse(net, task), "data is a Task, not GatedData: pass its .data"),
    (lambda: mse({"w": np.ones(2)}, data), "model is a dict, which cannot be called"),
    (lambda: gradient_flow(r, data, [0.0, 1.0]), "model is a Reduction; it holds"),
    (lambda: train(r, data, optimizer=sgd, steps=1), "model is a Reduction; it holds"),
    (lambda: mse(graph, data), "model is a Graph; the model comes first, the data second"),
    (lambda: mse(Schedule([data], []), data), "model is a Schedule; the model comes first"),
    (lambda: mse(net, Schedule([data], [])), "data is a Schedule, not GatedData: a Sch"),
    (lambda: mse(run, data), "model is a Trajectory; it is the result of a run"),
    (lambda: mse(r.quotient(0.1), data), "model is a Quotient; it holds reduced equations"),
    (lambda: mse(gates.LearnedGates(net, ["h1"]), pack(graph, data)), "pass the GatedData"),
    (lambda: pack(rectified, data), "graph is a ReLUNetwork, not a gdln.Graph: linear theory"),
    (lambda: reduce(graph, r), "data is a Reduction, not GatedData: pass its .data"),
    (lambda: mse(leaky, pack(graph, data)), "RoutedNetwork with a leaky ReLU has no loss here"),
    (lambda: mse(images.RoutedNetwork.init(2, 2, 2, width=2, key=key), data), "given GatedData"),
    (lambda: train(net.weights, data, optimizer=sgd, steps=1), "EdgeWeights; pass the network its"),
    (lambda: two(net)(data), "this GatedNetwork is a batch of shape (2,)"),
    (lambda: mse(two(net), data), "jax.vmap(mse, (0, None))(nets, data)"),
    (lambda: mse(net, two(data)), "this GatedData is a batch of shape (2,)"),
    (lambda: pack(graph, two(data)), "this GatedData is a batch of shape (2,)"),
    (lambda: reduce(graph, two(data)), "this GatedData is a batch of shape (2,)"),
    (lambda: Schedule(data, [1.0]), "datas is one GatedData; pass a list"),
    (lambda: two(rectified)(data), "this ReLUNetwork is a batch of shape (2,)"),
    (lambda: relu.snapshot(two(rectified), data), "this ReLUNetwork is a batch of shape (2,)"),
    (lambda: relu.snapshot(net, data), "model is a GatedNetwork; pass a gdln.ReLUNetwork"),
    (lambda: activation_patterns(data, rectified), "model is a GatedData; pass a gdln.ReLUNetwork"),
    (lambda: relu.choose_k(shot, data, learning_rate=0.1, std=0.1, key=key),
     "runs is a Snapshots; it must be a Trajectory"),
    (lambda: imitation_gap(net, data), "relu_trajectory is a GatedNetwork; pass what train"),
    (lambda: ReLUNetwork({"x->h": np.ones((3, 2))}), "weights is a dict; pass a sequence"),
    (lambda: ReLUNetwork(net), "weights is a GatedNetwork; pass a sequence of arrays"),
    (lambda: GatedNetwork.from_stacks(graph, tuple(np.nan * np.asarray(s) for s in net.stacks)),
     "stacks[0] is not finite at index (0, 0, 0)"),
    (lambda: GatedNetwork(graph, [np.ones((2, 2))]), "weights is a list; pass a mapping edge name"),
    (lambda: GatedNetwork(net.weights, graph), "graph is a EdgeWeights, not a gdln.Graph"),
    (lambda: GatedNetwork.init(graph, init.normal, key=key), "init.normal itself; call it first"),
    (lambda: pack(net, data), "graph is a GatedNetwork, not a gdln.Graph: pass its .graph"),
    (lambda: reduce(graph, net), "data is a GatedNetwork, not GatedData"),
    (lambda: jax.jit(lambda d: reduce(graph, d))(data), "reduce() looks at values"),
    (lambda: eqx.tree_at(lambda n: n.weights["x->h1"], net, np.ones((2, 2))),
     "use network.with_weights({name: array})"),
    (lambda: path_sum_gradient(net, data), "stats is a GatedData; pass gdln.path_statistics"),
    (lambda: path_sum_gradient(data, net), "net is a GatedData, not a GatedNetwork"),
    (lambda: gates.LearnedGates(r, ["h1"]), "network is a Reduction, not a GatedNetwork"),
    (lambda: gates.with_gates(net, {"h1": 1.0}), "data is a GatedNetwork, not GatedData"),
    (lambda: measures.balancedness(data), "net is a GatedData, not a GatedNetwork"),
    (lambda: measures.conserved(rectified, "h1"), "net is a ReLUNetwork, not a GatedNetwork"),
    (lambda: measures.empirical_ntk(data, net), "model is a GatedData; the model comes first"),
    (lambda: measures.error_by_group(net, task, [0, 1], 2), "data is a Task, not GatedData"),
    (lambda: control.extremals(net, 0.1, 1.0, beta=1.0), "dynamics is a GatedNetwork; pass a Red"),
    (lambda: gates.retention(net, data), "model is a GatedNetwork with nodes None; pass a network"),
]
""")
