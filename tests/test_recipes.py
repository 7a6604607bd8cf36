"""The recipe protocol, on a tiny recipe: options, checks, results written whole or not at all."""

import dataclasses
import errno
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import xarray
from matplotlib.figure import Figure
from recipe_runs import WRITTEN

from gdln_jax import recipes

# What every recipe is run by.
from gdln_jax.recipes import Check, OptionError, Result, _run


@dataclass(frozen=True)
class Options:
    seeds: int = 3
    rate: float = 0.5
    fast: bool = False
    kind: Literal["cyclic", "rows_only"] = "cyclic"
    widths: tuple[int, ...] = (4, 8)
    scale: float | None = None
    base: str | Path = "hierarchy"

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise ValueError(f"rate must be positive, got {self.rate}")


def result(value: float = 1e-9, figure: Any = Figure) -> Result:
    return Result(
        name="fake",
        data=xarray.Dataset({"loss": ("step", [1.0, 0.5])}, coords={"step": [0, 1]}),
        checks=(Check.below("error", value, 1e-8, "relative"), Check.near("ratio", 2.0, 2.0, 0.0)),
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
        ("rate=-1", "rate must be positive, got -1"),
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
    assert recipes.describe(Options)[0] == ("seeds", "int", "3", "", "")


# ------------------------------------------------------------------ checks
def test_checks():
    assert Check.below("e", 1e-9, 1e-8).passed
    assert not Check.below("e", 1e-8, 1e-8).passed
    assert Check.near("r", 2.6305, 2.63053924, 1e-4).passed
    assert not Check.between("m", 3.0, 0.0, 2.0).passed
    for check in (
        Check.below("e", math.nan, 1.0),
        Check.near("r", math.nan, 0.0, math.inf),
        Check.between("m", math.nan, -math.inf, math.inf),
    ):
        assert not check.passed
        assert check.as_dict()["value"] == "nan"


@pytest.mark.parametrize(
    "check",
    [
        Check.below("error", -math.inf, 1e-9),
        Check.below("error", -3.0, 1e-9),
        Check.between("ratio", math.inf, 1.0, math.inf),
        Check.between("ratio", -math.inf, -math.inf, 0.0),
        Check.near("number", math.inf, 0.0, math.inf),
        Check.outside("wrong", math.inf, 0.0, 1.0),
        Check.outside("wrong", 0.5, 0.0, 1.0),
    ],
)
def test_only_finite_values_pass_and_no_error_is_below_0(check):
    assert not check.passed


def test_one_limit_may_be_infinite():
    assert Check.between("ratio", 1e300, 1.0, math.inf).passed
    assert Check.outside("wrong", 0.5, 1.0, math.inf).passed
    assert Check.below("error", 0.0, 1e-9).passed


# ------------------------------------------------------------------ verdicts
def performed(name: str, checks: list[Check], options: Any = None, simulate: Any = None) -> Result:
    """A recipe of the catalogue whose runs are made up."""
    return _run.perform(
        name,
        options or Options(),
        recipes.silent,
        simulate or (lambda *_: None),
        lambda *_: (checks, {}),
        lambda *_: _run.Told(result().data, Figure, "It agrees.", text="| holds |"),
    )


def test_the_verdict_comes_from_the_catalogue_and_stands_only_if_all_checks_passed():
    good, bad = Check.below("error", 1e-9, 1e-8), Check.below("fit", math.nan, 1e-8)
    for name, entry in recipes.CATALOGUE.items():
        passed = performed(name, [good])
        assert passed.verdict == f"{entry.figure} {entry.standing}: It agrees."
        assert passed.text == "| holds |"
        failed = performed(name, [good, bad, bad])
        assert failed.verdict == "Checks failed (fit; fit): the numbers below establish nothing."
        assert failed.text == ""
    assert "(there are none)" in performed("xor", []).verdict


def test_no_recipe_makes_its_result_past_the_shared_code():
    for path in Path(recipes.__file__).parent.glob("*.py"):
        makes = re.search(r"\bResult\(", path.read_text(encoding="utf-8"))
        assert not makes or path.name in ("_run.py", "_recipe.py"), path


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
        performed("xor", [], Options(rate=3.0, widths=(5,)), simulate)
    assert str(refused.value).startswith("xor cannot run with rate=3.0, widths=(5,): ")
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is error
    # At the defaults or in the short setting it is a fault of the recipe's, shown as it is.
    for usual in (Options(), Options(seeds=4)):
        with pytest.raises(type(error)) as raised:
            performed("xor", [], usual, simulate)
        assert raised.value is error


def test_what_a_simulation_refuses_itself_stays_as_it_is():
    def simulate(*_: Any) -> None:
        raise OptionError("std is no small start")

    with pytest.raises(OptionError, match=r"^std is no small start$"):
        performed("xor", [], Options(rate=3.0), simulate)


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
    checks = tuple(Check.between(name, value, 0.0, 1.0) for name, value in values.items())
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
def test_the_catalogue_agrees_with_its_rooms():
    for name, entry in recipes.CATALOGUE.items():
        recipe = recipes.load(name)
        assert recipe.name == name == entry.name
        assert recipe.checks
        recipes.with_values(recipe.options, recipe.quick or {})


def test_an_unknown_recipe_is_refused():
    with pytest.raises(OptionError, match="no recipe 'nothing'"):
        recipes.load("nothing")
