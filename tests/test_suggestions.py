"""Misspelt names are answered with the one that was meant, by one mechanism everywhere."""

import copy
import dataclasses
import importlib
import inspect
import pickle
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gdln_jax as gdln

NAMESPACES = [name for name in dir(gdln) if isinstance(getattr(gdln, name), types.ModuleType)]
TASK = gdln.tasks.hierarchy(width=6)
NET = gdln.GatedNetwork.init(TASK.graph, gdln.init.orthogonal(0.5), key=jax.random.key(0))
RUN = gdln.train(NET, TASK.data, optimizer=optax.sgd(0.05), steps=2)


class TestNamespaces:
    @pytest.mark.parametrize("name", NAMESPACES)
    def test_dir_shows_public_names_only(self, name):
        module = importlib.import_module(f"gdln_jax.{name}")
        names = dir(module)
        assert names
        for one in names:
            assert not one.startswith("_")
            value = getattr(module, one)
            assert not isinstance(value, types.ModuleType)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert value.__module__.startswith("gdln_jax")
        if hasattr(module, "__all__"):
            assert set(names) == set(module.__all__)

    def test_nothing_public_is_hidden(self):
        # What an `__init__` hands on by `from ... import name as name`, read from its text.
        for name in set(NAMESPACES) - {"init", "noise"}:
            module = importlib.import_module(f"gdln_jax.{name}")
            text = inspect.getsource(module)
            handed = {one for one in vars(module) if f" import {one} as {one}\n" in text}
            assert handed <= set(dir(module)), name
        assert {"orthogonal", "normal", "xavier"} <= set(dir(gdln.init))
        assert "Graph" not in dir(gdln.noise)

    def test_of_the_package(self):
        assert {"Graph", "tasks", "__version__"} <= set(dir(gdln))
        assert not [name for name in dir(gdln) if name[0] == "_" and name != "__version__"]

    @pytest.mark.parametrize(
        ("namespace", "given", "meant"),
        [
            (gdln, "grahp", "Graph"),
            (gdln.tasks, "hierarchx", "hierarchy"),
            (gdln.init, "orthogonl", "orthogonal"),
            (gdln.noise, "learning_curve", "learning_curves"),
            (gdln.recipes, "reproduc", "reproduce"),
            (gdln.race, "winners_map", "winner_map"),
        ],
    )
    def test_a_misspelt_name(self, namespace, given, meant):
        with pytest.raises(AttributeError, match=rf"{given}.*did you mean '{meant}'") as caught:
            getattr(namespace, given)
        assert caught.value.obj is None  # so that Python does not add the same a second time

    def test_a_private_name_gets_no_suggestion(self):
        with pytest.raises(AttributeError, match=r"no attribute '_hierarchie'$"):
            _ = gdln.tasks._hierarchie


class TestObjects:
    @pytest.mark.parametrize(
        ("one", "given", "said"),
        [
            (RUN, "loss", "did you mean 'losses'"),
            (RUN, "weights", r"at the end is .final, those at all times are .models"),
            (RUN, "times", "the times are .ts"),
            (TASK, "grph", "did you mean 'graph'"),
            (TASK.graph, "node", "did you mean 'nodes'"),
            (TASK.data, "input", "did you mean 'inputs'"),
            (NET, "weightz", "did you mean 'weights'"),
            (
                gdln.exact.SharingMode(jnp.ones(2), jnp.ones(2)),
                "productt",
                "did you mean 'product'",
            ),
        ],
    )
    def test_a_misspelt_attribute(self, one, given, said):
        with pytest.raises(AttributeError, match=f"no attribute '{given}'.*{said}"):
            getattr(one, given)

    def test_hasattr_and_getattr_with_a_default(self):
        assert not hasattr(RUN, "loss")
        assert getattr(RUN, "loss", None) is None

    def test_a_property_that_raises_keeps_its_own_message(self):
        run = gdln.reduce(TASK.graph, TASK.data).solve(0.1, [0.0, 0.1])
        with pytest.raises(AttributeError, match="x holds strengths by class"):
            _ = run.x

    def test_private_names_are_not_looked_up(self, monkeypatch):
        # NumPy, JAX, copy, pickle and IPython ask for many.
        def slow(*_, **__):
            raise AssertionError("a suggestion was looked for")

        monkeypatch.setattr("difflib.get_close_matches", slow)
        assert getattr(NET, "__array_interface__", None) is None
        assert getattr(NET, "_ipython_display_", None) is None
        with pytest.raises(AssertionError):
            getattr(NET, "weightz", None)

    def test_copies_and_transformations(self):
        for again in (copy.copy(RUN), copy.deepcopy(RUN), pickle.loads(pickle.dumps(RUN))):
            np.testing.assert_array_equal(again.losses, RUN.losses)
        assert jax.jit(lambda run: run.losses[0])(RUN) == RUN.losses[0]
        stacked = eqx.filter_vmap(lambda run: run, axis_size=2, in_axes=None)(RUN)
        assert stacked.losses.shape == (2, *RUN.losses.shape)
        moved = eqx.tree_at(lambda run: run.losses, RUN, RUN.losses + 1)
        np.testing.assert_array_equal(moved.losses, RUN.losses + 1)

    def test_an_object_that_is_not_made_yet(self):
        empty = object.__new__(type(RUN))
        with pytest.raises(AttributeError, match=r"no attribute 'losses'"):
            _ = empty.losses


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (gdln.measures.richness, (RUN,), r"lacks data: richness\(run, data\)"),
        (gdln.rules.by_edge, (optax.sgd(0.1), {}), "takes 1 .*by name, default="),
        (gdln.train, (NET,), r"lacks data and optimizer and steps: .*optimizer=\.\.\., steps="),
    ],
)
def test_arguments_that_are_missing_or_too_many(function, given, said):
    with pytest.raises(TypeError, match=said):
        function(*given)


def public_classes():
    spaces = [gdln, *(importlib.import_module(f"gdln_jax.{name}") for name in NAMESPACES)]
    found = [getattr(space, name) for space in spaces for name in dir(space)]
    classes = {one for one in found if inspect.isclass(one)}
    return sorted(classes, key=lambda one: one.__name__)


def test_every_public_class_with_fields_answers():
    silent = [
        kind.__qualname__
        for kind in public_classes()
        if (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"))
        and not kind.__module__.startswith("gdln_jax.recipes")  # which use public names only
        and not hasattr(kind, "__getattr__")
    ]
    assert not silent
