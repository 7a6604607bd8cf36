"""The form of recipes: a toy one from the words of CONTRIBUTING.md, declarations, a saved run."""

import dataclasses
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from command_parts import main
from drawn_text import faults
from matplotlib.figure import Figure
from tiny_recipes import RecipeOptions, exact, option, statistical

from gdln_jax import plot, recipes
from gdln_jax.recipes import CATALOGUE, Criterion, OptionError, Recipe, describe

ROOT = Path(__file__).resolve().parent.parent
LINES, LARGE = 350, {"routing": 600, "claims": 600, "initialisation": 600}


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The recipe of CONTRIBUTING.md, in a folder of its own; the number of its lines."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^`toy/([\w.]+)`.*?^```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert [name for name, _ in blocks] == ["__init__.py", "simulate.py", "figure.py", "text.md"]
    folder = tmp_path / "more" / "toy"
    folder.mkdir(parents=True)
    for name, content in blocks:
        (folder / name).write_text(content, encoding="utf-8")
    monkeypatch.setattr(recipes, "__path__", [*recipes.__path__, str(folder.parent)])
    with monkeypatch.context() as patch:
        patch.setitem(CATALOGUE, "toy", recipes.catalogue()["toy"])
        yield sum(content.count("\n") for _, content in blocks)
    for name in [name for name in sys.modules if name.startswith("gdln_jax.recipes.toy")]:
        del sys.modules[name]


def test_a_toy_recipe_from_the_words_of_the_page(toy, command, tmp_path, monkeypatch):
    assert toy <= 120
    listed = command("list", "toy").stdout
    assert "initial amplitude b(0)" in listed
    assert "above 0" in listed
    done = command("reproduce", "toy", "--quick", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "toy.json").read_text())
    assert record["verdict"].startswith("H Eq. 7 holds: the loss agrees with the closed form to ")
    assert record["caption"] == (tmp_path / "toy.txt").read_text().strip()
    (check,) = record["checks"]
    assert (check["id"], check["kind"], check["low"], check["high"]) == ("gap", "exact", 0.0, 1e-8)
    # The saved run, checked and drawn again: the same, without a run.
    (tmp_path / "toy.png").unlink()
    prepared = []
    monkeypatch.setattr(main._machine, "prepare", lambda: prepared.append("float64"))
    done = command("redraw", str(tmp_path / "toy.nc"))
    assert done.exit_code == 0, done.output
    assert prepared
    again = json.loads((tmp_path / "toy.json").read_text())
    assert {**again, "files": 0} == {**record, "files": 0}
    assert (tmp_path / "toy.png").exists()
    assert not faults(recipes.redraw(tmp_path / "toy.nc").figure())  # type: ignore[operator]
    # With another loss it fails, and says nothing else.
    with xarray.open_dataset(tmp_path / "toy.nc") as opened:
        data = opened.load()
    data["loss"] = data["loss"] + 1e-3
    data.to_netcdf(tmp_path / "toy.nc", engine="h5netcdf")
    done = command("redraw", str(tmp_path / "toy.nc"), "--out", str(tmp_path / "changed"))
    assert done.exit_code == 1
    verdict = json.loads((tmp_path / "changed" / "toy.json").read_text())["verdict"]
    assert verdict.startswith("Checks failed (gradient flow - H Eq. 7, loss / L(0))")

    # Numbers that do not fit one another, and those that no axis can show, are refused.
    class Blank(Figure):
        def savefig(self, *_, **__):
            raise ValueError("Data cannot be log-scaled because all values are <= 0.")

    monkeypatch.setattr("gdln_jax.recipes.toy.figure.draw", lambda *_: Blank())
    done = command("redraw", str(tmp_path / "toy.nc"), "--out", str(tmp_path / "changed"))
    assert done.exit_code == 2
    assert "cannot be drawn: Data" in " ".join(done.output.replace("│", " ").split())
    data.isel(time=slice(0)).to_netcdf(tmp_path / "toy.nc", engine="h5netcdf")
    with pytest.raises(OptionError, match=r"toy.nc does not fit: .*Run it again: gdln reproduce"):
        recipes.redraw(tmp_path / "toy.nc")


def test_what_cannot_be_drawn_again_is_refused(tmp_path):
    with pytest.raises(OptionError, match="there is no file"):
        recipes.redraw(tmp_path / "none.nc")
    xarray.Dataset({"x": 1.0}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(OptionError, match="no data set of a recipe"):
        recipes.redraw(tmp_path / "other.nc")
    bare = xarray.Dataset({"x": 1.0}, attrs={"recipe": "attention", "options": "{}"})
    bare.to_netcdf(tmp_path / "bare.nc", engine="h5netcdf")
    with pytest.raises(OptionError, match=r"lacks '\w+'.*\(unknown; this is .*reproduce attention"):
        recipes.redraw(tmp_path / "bare.nc")


# ------------------------------------------------------------------ declarations
@pytest.mark.parametrize("recipe", CATALOGUE.values(), ids=lambda one: one.name)
def test_a_recipe_says_what_it_needs(recipe):
    folder = Path(recipes.__file__).parent / recipe.package.rpartition(".")[2]
    lines = {p.name: p.read_text("utf-8").count("\n") for p in folder.iterdir() if p.is_file()}
    assert sum(lines.values()) <= LARGE.get(recipe.name, LINES), lines
    assert all(one.about for one in describe(recipe.options))
    recipes.with_values(recipe.options, recipe.quick)
    text = (folder / "text.md").read_text("utf-8")
    finding, caption = text.split("\n\n")[0], text.partition("\n# Caption\n")[2]
    assert finding
    assert caption.strip()
    figure = (folder / "figure.py").read_text("utf-8")
    labels = "\n".join(re.findall(r'"[^"\n]*"', re.sub(r'""".*?"""', "", figure, flags=re.DOTALL)))
    assert not re.search(r"\bE\d+\b|\b[NHR] (?:Fig|Eq|App|A\.|Sec)", labels), (
        "belongs in the caption"
    )


def test_the_catalogue_is_light(plain_python):
    done = plain_python(
        "import sys, gdln_jax.recipes as recipes\n"
        "assert recipes.CATALOGUE\n"
        "print({'jax', 'numpy', 'matplotlib', 'xarray'} & set(sys.modules))"
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_ranges():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Options(RecipeOptions):
        share: float = option(0.5, "a share", above=0, most=1)
        rates: tuple[float, ...] = option((1.0, 2.0), "rates", least=0.5)
        stop: float | None = option(None, "end", above=0, below=10)

    assert describe(Options)[0] == ("share", "float", "0.5", "above 0 and at most 1", "a share")
    assert Options(share=1.0, stop=9.0).stop == 9.0
    for wrong in ({"share": 0.0}, {"share": 1.1}, {"rates": (1.0, 0.1)}, {"stop": math.inf}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a number"):
            Options(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rates must have at least one entry"):
        Options(rates=())


def test_lists_of_options_are_not_empty_unless_they_may_be():
    refused, allowed = set(), set()
    for recipe in CATALOGUE.values():
        for one in dataclasses.fields(recipe.options):
            if isinstance(one.default, tuple):
                try:
                    recipes.with_values(recipe.options, {one.name: ()})
                except OptionError:
                    refused.add((recipe.name, one.name))
                else:
                    allowed.add((recipe.name, one.name))
    assert len(refused) > 15
    assert allowed == {("predict", "deltas"), ("predict", "imitated")}


@pytest.mark.parametrize(
    ("criterion", "value", "passes"),
    [
        (exact("a", "distance", 1e-9), 0.0, True),
        (exact("a", "distance", 1e-9), 1e-9, True),
        (exact("a", "distance", 1e-9), -1e-12, False),
        (exact("a", "distance", 1e-9), math.nan, False),
        (statistical("a", "ratio", 1.0, math.inf, "sign"), 1e300, True),
        (statistical("a", "ratio", 1.0, math.inf, "sign"), math.inf, False),
        (statistical("a", "ratio", -0.1, 0.1, "sign"), 0.2, False),
    ],
)
def test_only_finite_values_inside_pass(criterion, value, passes):
    check = criterion.check({"a": value})
    assert check.passed is passes
    assert (check.id, check.kind) == ("a", criterion.kind)
    json.dumps(check.as_dict(), allow_nan=False)


def test_criteria_have_distinct_ids():
    first = CATALOGUE["xor"]
    twice: tuple[Criterion, ...] = (exact("a", "one", 1.0), exact("a", "other", 1.0))
    values: dict[str, Any] = {**vars(first), "criteria": twice}
    with pytest.raises(ValueError, match="distinct ids"):
        Recipe(**values)


# ------------------------------------------------------------------ texts of figures
def test_overlaps_cut_and_small_texts_are_seen():
    figure = plot.figure(2.0, 2.0)
    ax = figure.subplots()
    assert not faults(figure)
    ax.text(0.5, 0.5, "one")
    ax.text(0.52, 0.5, "other")
    ax.text(0.1, 0.1, "small", fontsize=5)
    ax.set_title("a title that is much wider than the figure")
    found = "; ".join(faults(figure))
    for fault in ("'one' and 'other' overlap", "'small': 5 pt", "is cut"):
        assert fault in found
    wide = plot.figure(3.0, 2.0)
    ax = wide.subplots()
    ax.plot(np.arange(3), label="a label somewhat wider than the axes")
    plot.legend_above(ax)
    assert "a legend is wider than its axes" in faults(wide)
    assert isinstance(wide, Figure)
