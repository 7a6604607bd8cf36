"""What a store takes for other code: all that fn reaches in the user's own modules."""

import functools
import importlib
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import xarray as xr
from sweep_parts import _fingerprint

import gdln_jax as gdln

fingerprint = _fingerprint.fingerprint

STUDY = """
import functools, equinox as eqx, jax, study_helpers, study_package.deep
from study_helpers import scaled, Net, Base, rule
from study_helpers import scaled as other_name

def of_a_module(key, x): return study_helpers.scaled(x)
def of_a_package(key, x): return study_package.deep.scaled(x)
def imported(key, x): return scaled(x)
def under_another_name(key, x): return other_name(x)
def imported_late(key, x):
    from study_late import scaled
    return scaled(x)
def submodule_imported_late(key, x):
    from study_package import late
    return late.scaled(x)
def made_inside(key, x): return Net(x)(key, 1.0)
def has_a_rule(key, x): return rule(x)
jitted = jax.jit(imported)
part = functools.partial(of_a_module, x=1.0)
wrapped = functools.update_wrapper(functools.partial(of_a_module, x=1.0), imported)

class Plain:
    def __call__(self, key, x): return 2 * x
class Inherits(Base):
    pass
class Uses:
    def __call__(self, key, x): return self.inner(x)
    def inner(self, x): return scaled(x)
class Outer(eqx.Module):
    net: Net
    def __call__(self, key, x): return self.net(key, x)
plain, inherits, uses, module, outer = Plain(), Inherits(), Uses(), Net(1.0), Outer(Net(1.0))
method = uses.__call__
"""
HELPERS = """
import jax, equinox as eqx
def scaled(x): return 2 * x
@jax.custom_jvp
def rule(x): return x
@rule.defjvp
def derivative(primals, tangents): return primals[0], 2 * tangents[0]
class Base:
    def __call__(self, key, x): return 2 * x
class Net(eqx.Module):
    w: float
    def __call__(self, key, x): return self._inner(x)
    def _inner(self, x): return self.w * x * 2
"""
SCALED = "def scaled(x): return 2 * x\n"
FILES = {
    "study.py": STUDY,
    "study_helpers.py": HELPERS,
    "study_late.py": SCALED,
    "study_package/__init__.py": "",
    "study_package/deep.py": SCALED,
    "study_package/late.py": SCALED,
}
REACHED = {
    "of_a_module": "study_helpers.py",
    "of_a_package": "study_package/deep.py",
    "imported": "study_helpers.py",
    "under_another_name": "study_helpers.py",
    "imported_late": "study_late.py",
    "submodule_imported_late": "study_package/late.py",
    "made_inside": "study_helpers.py",
    "has_a_rule": "study_helpers.py",
    "jitted": "study_helpers.py",
    "part": "study_helpers.py",
    "wrapped": "study_helpers.py",
    "plain": "study.py",
    "inherits": "study_helpers.py",
    "uses": "study_helpers.py",
    "module": "study_helpers.py",
    "outer": "study_helpers.py",
    "method": "study_helpers.py",
}


def imported(folder, edited):
    """The study, imported afresh; in the file `edited` each 2 is a 4."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text.replace("2", "4") if name == edited else text)
    for name in [name for name in sys.modules if name.startswith("study")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return importlib.import_module("study")


@pytest.fixture(scope="module")
def hashes(tmp_path_factory):
    """Of all functions of the study, as it stands and with each file edited."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setattr(sys, "dont_write_bytecode", True)
        out = {}
        for edited in (None, *FILES):
            study = imported(folder, edited)
            out[edited] = {name: fingerprint(getattr(study, name)) for name in REACHED}
        for name in [name for name in sys.modules if name.startswith("study")]:
            del sys.modules[name]
    return out


@pytest.mark.parametrize(("name", "file"), REACHED.items())
def test_an_edit_of_what_fn_reaches_is_seen_in_every_file(hashes, name, file):
    assert hashes[file][name] != hashes[None][name]


@pytest.mark.parametrize("name", REACHED)
def test_an_import_anew_and_an_edit_elsewhere_change_nothing(hashes, name):
    # An empty file has nothing to edit; `study_late` is reached by one function alone.
    assert hashes["study_package/__init__.py"][name] == hashes[None][name]
    assert (hashes["study_late.py"][name] == hashes[None][name]) == (name != "imported_late")


class Slots:
    __slots__ = ("rate",)

    def __init__(self, rate):
        self.rate = rate


class Lazy:
    def __init__(self, rate):
        self.rate = rate

    @functools.cached_property
    def double(self):
        return 2 * self.rate


class Net(eqx.Module):
    w: jax.Array
    activation: Any = eqx.field(static=True)


def relu(x):
    return jnp.maximum(x, 0)


def leaky(x):
    return jnp.maximum(x, 0.1 * x)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: n,
        np.float32,
        str,
        Slots,
        Lazy,
        lambda n: {"a": [n]},
        lambda n: {n, 5},
        jnp.arange,
        jax.random.key,
        lambda n: np.array([str(n)], object),
        lambda n: pd.DataFrame({"a": [n]}),
        lambda n: xr.Dataset({"a": ("x", [n])}),
        lambda n: xr.DataArray([n], attrs={"units": n}),
        optax.sgd,
        slice,
        lambda n: Net(jnp.ones(1), relu if n == 1 else leaky),
        lambda n: eqx.nn.MLP(1, 1, n, 1, key=jax.random.key(0)),
        lambda n: gdln.tasks.routing(2, 1, width=n),
        lambda n: functools.partial(relu, n),
        np.random.default_rng,
        lambda n: [[n], n][n % 2 :],
    ],
)
def test_data_of_any_kind_is_seen(make):
    def hash_of(value):
        return fingerprint(lambda: value)

    assert hash_of(make(1)) == hash_of(make(1))
    assert hash_of(make(1)) != hash_of(make(2))


def test_the_package_of_fn_is_looked_at_wherever_it_is_installed(monkeypatch):
    found = []
    for factor in (2, 3):
        module = ModuleType("lab.runs")
        module.__file__ = f"{sysconfig.get_path('purelib')}/lab/runs.py"
        monkeypatch.setitem(sys.modules, "lab.runs", module)
        exec(f"def scale(x): return {factor} * x\ndef fn(key, x): return scale(x)", vars(module))
        found.append((fingerprint(module.fn), fingerprint(lambda fn=module.fn: fn)))
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]  # of another package it counts by name


def test_what_is_the_same_in_another_process_has_the_same_hash():
    lazy = Lazy(1.0)
    before = fingerprint(lambda: lazy.rate)
    assert lazy.double == 2.0
    assert fingerprint(lambda: lazy.rate) == before  # what it has kept is no news

    def fn(key, x):
        return x if x in {"a", "b"} else key

    # The order of a set of texts differs from process to process; here that of two numbers does.
    sets = frozenset([0, 8]), frozenset([8, 0])
    assert repr(sets[0]) != repr(sets[1])
    codes = [
        fn.__code__.replace(
            co_consts=tuple(s if isinstance(c, frozenset) else c for c in fn.__code__.co_consts)
        )
        for s in sets
    ]
    found = []
    for code in codes:
        fn.__code__ = code
        found.append(fingerprint(fn))
    assert found[0] == found[1]


def test_loops_in_code_and_data_end():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    knot: list[Any] = [1]
    knot.append(knot)
    assert fingerprint(lambda: even(knot)) == fingerprint(lambda: even(knot))


def test_what_stands_above_the_sweep_are_modules_of_the_package():
    package = Path(gdln.__file__).parent
    assert {path.stem for path in package.iterdir()} >= _fingerprint.ABOVE
