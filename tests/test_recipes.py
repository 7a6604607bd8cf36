"""The recipe protocol, on a tiny recipe: options, checks, results written whole or not at all."""

import dataclasses
import errno
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import xarray
from matplotlib.figure import Figure
from recipe_runs import WRITTEN
from tiny_recipes import RecipeOptions, check, exact, option, statistical

from gdln_jax import recipes
from gdln_jax.recipes import CATALOGUE, OptionError, Recipe, Result


@dataclass(frozen=True)
class Options(RecipeOptions):
    seeds: int = 3
    rate: float = option(0.5, "a rate", above=0)
    fast: bool = False
    kind: Literal["cyclic", "rows_only"] = "cyclic"
    widths: tuple[int, ...] = (4, 8)
    scale: float | None = None
    base: str | Path = "hierarchy"


def result(value: float = 1e-9, figure: Any = Figure) -> Result:
    return Result(
        name="fake",
        data=xarray.Dataset({"loss": ("step", [1.0, 0.5])}, coords={"step": [0, 1]}),
        checks=(check(value, "relative"), replace(check(0.0), name="ratio")),
        figure=figure,
        verdict="It agrees.",
        notes=("N Eq. 0 has no erratum.",),
        options={"base": Path("x.npz"), "seeds": 3},
    )


# ------------------------------------------------------------------ options
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seeds=5", 5),
        ("seeds=1e2", 100),
        ("rate=2", 2.0),
        ("fast=yes", True),
        ("fast=false", False),
        ("kind=rows_only", "rows_only"),
        ("widths=1,2,3", (1, 2, 3)),
        ("widths=(7,)", (7,)),
        ("scale=none", None),
        ("scale=.1", 0.1),
    ],
)
def test_texts_are_read_as_the_type_of_their_field(text, expected):
    options = recipes.with_values(Options, recipes.parse([text]))
    value = getattr(options, text.split("=")[0])
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sedes=5", "'sedes'.*did you mean 'seeds'"),
        ("zzz=5", "there are: seeds, rate"),
        ("seeds=1.5", "seeds takes int, got '1.5'"),
        ("seeds=inf", "seeds takes int"),
        ("rate=fast", "rate takes float"),
        ("fast=perhaps", "fast takes bool"),
        ("kind=random", r"kind takes cyclic \| rows_only"),
        ("widths=1,a", "widths takes int,..."),
        ("scale=big", r"scale takes float \| none"),
        ("rate=-1", "rate must be a number above 0, got -1"),
        ("seeds", "not of the form key=value"),
        ("=3", "not of the form key=value"),
    ],
)
def test_what_cannot_be_taken_says_what_can(text, message):
    with pytest.raises(OptionError, match=message):
        recipes.with_values(Options, recipes.parse([text]))


def test_the_same_key_twice_is_refused():
    with pytest.raises(OptionError, match="twice"):
        recipes.parse(["seeds=1", "seeds=2"])


def test_values_from_python_keep_their_type():
    assert recipes.with_values(Options, {"widths": [1, 2], "rate": 1}).widths == (1, 2)
    for wrong in (
        {"seeds": 1.5},
        {"seeds": True},
        {"kind": 3},
        {"widths": (1, 2.5)},
        {"scale": []},
    ):
        with pytest.raises(OptionError, match="takes"):
            recipes.with_values(Options, wrong)


def test_options_are_described():
    assert recipes.describe(Options)[:2] == [
        ("seeds", "int", "3", "", ""),
        ("rate", "float", "0.5", "above 0", "a rate"),
    ]


# ------------------------------------------------------------------ verdicts
FINE = {"error": 1e-9, "fit": 0.5}
CRITERIA = exact("error", "error", 1e-8), statistical("fit", "fit", 0.0, 1.0, "a band")


@dataclass(frozen=True)
class MadeUp(Recipe):
    """A recipe whose files are functions."""

    files: Mapping[str, Callable[..., Any]] = field(kw_only=True)

    def _module(self, name: str) -> Any:
        del name
        return SimpleNamespace(**self.files)

    def texts(self, numbers: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str, str]:
        del numbers
        return "It agrees.", (), "| a table |", "A caption."


def performed(
    recipe: Recipe = CATALOGUE["xor"],
    numbers: Mapping[str, float] = FINE,
    options: RecipeOptions = Options(),
    simulate: Callable[..., Any] | None = None,
) -> Result:
    """A recipe of the catalogue whose runs are made up."""
    files = {
        "simulate": simulate or (lambda *_: result().data),
        "measure": lambda *_: dict(numbers),
        "draw": lambda *_: Figure(),
    }
    known = {one.name: getattr(recipe, one.name) for one in dataclasses.fields(Recipe)}
    short = {"seeds": 4}
    said = {**known, "options": Options, "criteria": CRITERIA, "quick": short, "files": files}
    return MadeUp(**said).run(options)


def test_the_verdict_comes_from_the_catalogue_and_stands_only_if_all_checks_passed():
    for recipe in CATALOGUE.values():
        passed = performed(recipe)
        assert passed.verdict == f"{recipe.figure} {recipe.standing}: It agrees."
        assert passed.text == "| a table |"
        failed = performed(recipe, {"error": math.inf, "fit": math.nan})
        assert failed.verdict == "Checks failed (error; fit): the numbers below establish nothing."
        assert failed.text == ""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("ts[1] is inf;\n  pass finite times"),
        FloatingPointError("diverged"),
        RuntimeError("the solver gave up"),
    ],
)
def test_options_that_make_a_run_impossible_are_named(error):
    def simulate(*_: Any) -> None:
        raise error

    with pytest.raises(OptionError) as refused:
        performed(options=Options(rate=3.0, widths=(5,)), simulate=simulate)
    assert str(refused.value).startswith("xor cannot run with rate=3.0, widths=(5,): ")
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is error
    # At the defaults or in the short setting it is a fault of the recipe's, shown as it is.
    for usual in (Options(), Options(seeds=4)):
        with pytest.raises(type(error)) as raised:
            performed(options=usual, simulate=simulate)
        assert raised.value is error


def test_what_a_simulation_refuses_itself_stays_as_it_is():
    def simulate(*_: Any) -> None:
        raise OptionError("std is no small start")

    with pytest.raises(OptionError, match=r"^std is no small start$"):
        performed(options=Options(rate=3.0), simulate=simulate)


def test_a_result_without_checks_has_not_passed():
    bare = result()
    assert bare.passed
    assert not Result("fake", bare.data, (), Figure, "Nothing was checked.").passed
    assert "2/2 checks passed" in repr(bare)


# ------------------------------------------------------------------ files
def test_files(tmp_path):
    out = tmp_path / "a" / "b"
    paths = recipes.write(result(), out)
    assert sorted(path.suffix for path in paths) == WRITTEN
    assert sorted(out.iterdir()) == sorted(paths)
    assert (out / "fake.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "fake.pdf").read_bytes().startswith(b"%PDF")
    record = json.loads((out / "fake.json").read_text())
    assert record["passed"] is True
    assert record["options"] == {"base": "x.npz", "seeds": 3}
    with xarray.open_dataset(out / "fake.nc", engine="h5netcdf") as data:
        assert data["loss"].values.tolist() == [1.0, 0.5]
        assert json.loads(data.attrs["checks"])[0]["name"] == "error"
    assert "all checks passed" in (out / "fake.md").read_text()


def test_the_same_result_gives_the_same_bytes(tmp_path):
    first = recipes.write(result(), tmp_path / "1")
    second = recipes.write(result(), tmp_path / "2")
    for one, other in zip(first, second, strict=True):
        if one.suffix != ".nc":  # HDF5 keeps times of its own
            assert one.read_bytes() == other.read_bytes(), one.suffix


def test_a_failed_check_is_on_the_picture_and_in_the_files(tmp_path):
    figure = Figure()
    recipes.write(result(math.nan, figure), tmp_path)
    (banner,) = [text.get_text() for text in figure.texts]
    assert banner == "CHECKS FAILED: error"
    assert "CHECKS FAILED" in (tmp_path / "fake.md").read_text()
    assert json.loads((tmp_path / "fake.json").read_text())["passed"] is False


def test_an_error_leaves_nothing_behind_and_old_files_as_they_were(tmp_path, monkeypatch):
    old = tmp_path / "old"
    before = {path: path.read_bytes() for path in recipes.write(result(), old)}

    def full(_):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "fsync", full)  # the first of the files is written by then
    for out in (tmp_path / "new" / "folder", old):
        with pytest.raises(OSError, match="disk full"):
            recipes.write(result(), out)
    assert list(tmp_path.iterdir()) == [old]
    assert {path: path.read_bytes() for path in old.iterdir()} == before


def test_values_that_are_not_finite_are_kept_apart(tmp_path):
    """NaN, an overflow and a search without result are different findings."""
    values = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    checks = tuple(check(value) for value in values.values())
    options = {"stop": math.inf, "rates": (0.5, math.nan), "base": Path("x.npz")}
    one = dataclasses.replace(result(), checks=checks, options=options)
    recipes.write(one, tmp_path)
    record = json.loads((tmp_path / "fake.json").read_text())
    assert [check["value"] for check in record["checks"]] == list(values)
    assert record["options"] == {"stop": "inf", "rates": [0.5, "nan"], "base": "x.npz"}


def test_only_files_that_a_run_of_the_recipe_wrote_are_replaced(tmp_path):
    recipes.write(result(), tmp_path)
    assert len(recipes.write(result(), tmp_path)) == 6
    notes, data = tmp_path / "fake.md", tmp_path / "fake.nc"
    notes.write_text("my notes on the run")
    data.write_bytes(b"mine")
    with pytest.raises(OSError, match=r"fake.nc, .*fake.md: not written by gdln_jax"):
        recipes.write(result(), tmp_path)
    assert notes.read_text() == "my notes on the run"
    # The records of 0.1.0 do not list their files.
    record = json.loads((tmp_path / "fake.json").read_text())
    del record["files"]
    (tmp_path / "fake.json").write_text(json.dumps(record))
    assert len(recipes.write(result(), tmp_path)) == 6
    for strange in ('{"recipe": "xor"}', "[]", "{"):
        (tmp_path / "fake.json").write_text(strange)
        with pytest.raises(OSError, match=r"fake\.json"):
            recipes.write(result(), tmp_path)


# ------------------------------------------------------------------ catalogue
def test_the_catalogue_agrees_with_its_folders():
    for name, recipe in CATALOGUE.items():
        assert recipes.load(name) is recipe
        assert recipe.name == name
        assert recipe.checks
        recipes.with_values(recipe.options, recipe.quick)


def test_an_unknown_recipe_is_refused():
    with pytest.raises(OptionError, match="no recipe 'nothing'"):
        recipes.load("nothing")
