"""Version 0.1: its names, keywords and files, as today's version takes or refuses them.

`public_0_1.json` holds the public names of 0.1 (commit 95ca1d8) with the parameters of functions
and methods, and under "" the other attributes of a class.
"""

import dataclasses
import importlib
import inspect
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
from test_docs import run

import gdln_jax as gdln
from gdln_jax import recipes

NAMES = json.loads(Path(__file__).with_name("public_0_1.json").read_text(encoding="utf-8"))
# What went, and what the error says instead.
GONE = {"recipes.Entry": "class Recipe", "recipes.entry": r"recipes.load\(name\)"}
GONE_MODULES = {"losses": "gdln.mse", "report": "gdln report", "cli": "gdln"}
GONE_ATTRIBUTES = {
    "GatedNetwork": {"output_pairs"},
    "ReLUNetwork": {"output_pairs"},
    "ReducedTrajectory": {"steps"},
    # For recipes of the package only: criteria took their place.
    "Check": {"below", "between", "near"},
}
# By position as in 0.1, axes and matrix; by keyword ax=.
OTHER_ARGUMENTS = {"plot.similarity": {"matrix"}}


def look_up(name):
    space, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"gdln_jax.{space}") if space else gdln, last)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_of_0_1(name):
    if name in GONE:
        with pytest.raises(AttributeError, match=GONE[name]):
            look_up(name)
        return
    value, known = look_up(name), NAMES[name]
    if isinstance(known, list):
        accepted = set(inspect.signature(value).parameters)
        assert set(known) - OTHER_ARGUMENTS.get(name, set()) <= accepted
        return
    fields = (
        {one.name for one in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else ()
    )
    there = {*dir(value), *fields, *getattr(value, "_fields", ())}
    assert set(known) | set(known[""]) <= there | GONE_ATTRIBUTES.get(
        name.rpartition(".")[2], set()
    ) | {""}
    for method in set(known) & there - {"run"}:  # a recipe's `run` is a method now
        assert set(known[method]) <= set(inspect.signature(getattr(value, method)).parameters)


@pytest.mark.parametrize("name", GONE_MODULES)
def test_a_module_of_0_1(name):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': .*{GONE_MODULES[name]}"):
        getattr(gdln, name)


def test_attributes_of_0_1_name_the_new_ones():
    task = gdln.tasks.hierarchy(width=6)
    net = gdln.GatedNetwork.init(task.graph, gdln.init.normal(0.1), key=jax.random.key(0))
    with pytest.raises(AttributeError, match=r"'output_pairs': it is \.pairs\(data\)"):
        _ = net.output_pairs
    relu = gdln.ReLUNetwork.init([2, 3, 1], std=0.1, key=jax.random.key(0))
    with pytest.raises(AttributeError, match=r"'output_pairs': it is \.pairs\(data\)"):
        _ = relu.output_pairs


def test_the_page(capsys):
    scope = run("upgrade")
    words = capsys.readouterr().out.split()
    assert words[0] == "ok"
    assert int(words[2]) > 5
    assert scope["by_class"].shape[:2] == (9, len(scope["quotient"].classes))
    with pytest.raises(AttributeError, match=r"'steps': .*\.stats\['num_steps'\]"):
        _ = scope["run"].steps
    for schedule, other in (("flow", "steps"), ("steps", "times")):
        kept = getattr(scope[schedule], f"with_{other}")([7.0 if other == "times" else 7])
        assert kept.switches[0] == 7


# `layout.json` as 0.1 wrote it, without a part of the versions.
LAYOUT_0_1 = {
    "hash": "2dbf34ca129fc651702004c5",
    "code hash": "e96c0ec42260459ee94259f4",
    "spec": {
        "fn": "store_fn.fn",
        "axes": {"gain": ["0.1", "0.2"], "seed": ["0", "1"]},
        "types": {"gain": "float64", "seed": "int64"},
        "key": "threefry2x32 0000000000000000",
        "key_axes": ["gain", "seed"],
        "precision": "x64 False, products None",
    },
    "code": {"python": "3.11.7", "gdln_jax": "0.1.0", "jax": "0.10.2", "fn": "6ee52bca08c8f2cf"},
    "chunk": 4,
    "static": [],
}


def gained(key, gain):
    return gain * jax.random.normal(key)


def test_a_store_of_0_1_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "layout.json").write_text(json.dumps(LAYOUT_0_1), encoding="utf-8")
    (tmp_path / "layout.lock").touch()
    with pytest.raises(
        gdln.SweepStoreError, match=r"by gdln_jax 0\.1\.0.*pass another folder.*open_d"
    ):
        gdln.sweep(gained, {"gain": [0.1]}, key=jax.random.key(0), store=tmp_path)
    assert json.loads((tmp_path / "layout.json").read_text()) == LAYOUT_0_1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layout.json", "layout.lock"]


def test_a_data_set_of_a_recipe_of_0_1(tmp_path):
    """Its options are still options; its numbers are not all there."""
    options = {"domains": 2, "trained": 1, "width": 8, "seeds": 2, "seed": 0, "pattern": "cyclic"}
    attributes = {"recipe": "routing", "options": json.dumps(options)}
    attributes["versions"] = json.dumps({"gdln_jax": "0.1.0"})
    data = xarray.Dataset({"time": ("time", np.arange(3.0))}, attrs=attributes)
    data.to_netcdf(tmp_path / "routing.nc", engine="h5netcdf")
    with pytest.raises(recipes.OptionError, match=r"lacks .*0\.1\.0.*gdln reproduce routing"):
        recipes.redraw(tmp_path / "routing.nc")
