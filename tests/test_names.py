"""Names of features and examples: kept beside the data, invisible to JAX, never wrong."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import xarray as xr

from gdln_jax import GatedData, GatedNetwork, Graph, Schedule, gates, init, mse, pack, train

ANIMALS, TRAITS = ("canary", "robin", "rose"), ("moves", "flies", "grows")
GRAPH = Graph.chain([3, 2, 3])
NET = GatedNetwork.init(GRAPH, init.orthogonal(0.5), key=jax.random.key(0))


def frame(items=ANIMALS, features=TRAITS):
    return pd.DataFrame(np.eye(3), index=items, columns=features)


def named(items=ANIMALS, features=TRAITS):
    return GatedData({"x": np.eye(3)}, {"y": frame(items, features)})


class TestWhereNamesComeFrom:
    def test_a_data_frame(self):
        data = named()
        assert data.names["y"].features == TRAITS
        assert data.names["y"].items == ANIMALS
        # Paired by position, so the examples of x are the same; its columns have no names.
        assert data.names["x"] == (None, ANIMALS)
        assert repr(data).endswith("names of x, y)")

    def test_a_data_array(self):
        array = xr.DataArray(
            np.eye(3), {"animal": list(ANIMALS), "trait": list(TRAITS)}, ("animal", "trait")
        )
        assert GatedData({"x": array}).names["x"] == (TRAITS, ANIMALS)
        assert GatedData({"x": array.drop_vars("animal")}).names["x"] == (TRAITS, None)
        assert GatedData({"x": array.drop_vars(["animal", "trait"])}).names["x"] == (None, None)

    def test_a_series_of_gates_names_the_examples(self):
        gate = pd.Series([1.0, 0.0, 1.0], index=ANIMALS)
        data = GatedData({"x": np.eye(3)}, {"y": np.eye(3)}, {"h1": gate})
        assert data.names["y"].items == ANIMALS

    def test_arrays_have_their_own_row_names_if_these_have_nothing_in_common(self):
        data = GatedData({"x": frame(("a", "b", "c"))}, {"y": frame()})
        assert data.names["x"].items == ("a", "b", "c")
        assert data.names["y"].items == ANIMALS

    def test_numbers_from_0_and_plain_arrays_are_no_names(self):
        data = GatedData({"x": pd.DataFrame(np.eye(3))}, {"y": jnp.eye(3)})
        assert data.names == {"x": (None, None), "y": (None, None)}
        assert "names" not in repr(data)

    def test_labels_of_other_types_are_written_as_text(self):
        index = pd.MultiIndex.from_product([["bird"], [1, 2, 3]])
        data = GatedData({"x": frame(index, [0.5, 1.5, 2.5])})
        assert data.names["x"] == (("0.5", "1.5", "2.5"), ("bird, 1", "bird, 2", "bird, 3"))


class TestNamesFollow:
    def test_take(self):
        taken = named().take([2, 0, -2])
        assert taken.names["y"] == (TRAITS, ("rose", "canary", "robin"))
        assert named().take([True, False, True]).names["x"].items == ("canary", "rose")

    def test_take_at_traced_numbers_keeps_features_only(self):
        seen = []

        @jax.jit
        def taken(index):
            seen.append(named().take(index).names["y"])
            return index

        taken(jnp.array([0, 2]))
        assert seen == [(TRAITS, None)]

    def test_pseudo_examples_have_no_names_and_their_features_do(self):
        assert named().compress().names["y"] == (TRAITS, None)

    def test_a_schedule(self):
        other = named(("oak", "daisy", "salmon"))
        schedule = Schedule([named(), other], times=[1.0])
        assert schedule.phase(1).names["y"] == (TRAITS, None)  # the examples differ by phase
        same = Schedule([named(), named()], times=[1.0])
        assert same.at(0.5).names["y"] == (TRAITS, ANIMALS)

    def test_other_gates(self):
        assert gates.with_gates(named(), {"h1": [1, 0, 1]}).names == named().names

    def test_copies(self):
        data = named()
        for again in (copy.copy(data), copy.deepcopy(data), pickle.loads(pickle.dumps(data))):
            assert again.names == data.names

    def test_an_operation_on_leaves_forgets_them(self):
        # It may have moved the rows: a wrong name would be worse than none.
        moved = jax.tree.map(lambda leaf: leaf[::-1], named())
        assert moved.names["y"] == (None, None)
        assert jax.jit(lambda data: data)(named()).names["y"] == (None, None)
        assert moved.with_names(named().take([2, 1, 0]).names).names["y"].items[0] == "rose"


class TestNamesAreNoPartOfThePrograms:
    def test_other_names_need_no_new_trace(self):
        traces = []

        def loss(model, data):
            traces.append(1)
            return mse(model, data)

        def run(data):
            return train(NET, data, optimizer=sgd, steps=8, loss=loss).losses

        sgd = optax.sgd(0.1)
        plain = GatedData({"x": np.eye(3)}, {"y": np.eye(3)})
        first = run(plain)
        count = len(traces)
        for data in (named(), named(("a", "b", "c")), named(features=("u", "v", "w"))):
            np.testing.assert_array_equal(run(data), first)
        assert len(traces) == count > 0

    def test_packed_data_have_none(self):
        one, other = (pack(GRAPH, data) for data in (named(), named(features=("u", "v", "w"))))
        assert jax.tree.structure(one) == jax.tree.structure(other)
        assert not hasattr(one, "names")


class TestRefusals:
    def test_features_in_another_order_in_another_phase(self):
        turned = GatedData({"x": np.eye(3)}, {"y": frame()[list(TRAITS[::-1])]})
        with pytest.raises(ValueError, match=r"datas\[1\] and datas\[0\].*feature 0: 'grows' bes"):
            Schedule([named(), turned], times=[1.0])

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            ({"z": (None, None)}, "names names 'z', which is not an input or output node of these"),
            ({"y": (("a", "b"), None)}, r"names\['y'\] has 2 features, but the data have 3"),
            ({"y": (None, "abcd")}, r"names\['y'\] has 4 items, but the data have 3"),
            ({"y": ("a", "b", "c")}, r"names\['y'\] is .*; pass a pair \(features, items\)"),
        ],
    )
    def test_names_that_do_not_fit(self, names, message):
        with pytest.raises(ValueError, match=message):
            named().with_names(names)
