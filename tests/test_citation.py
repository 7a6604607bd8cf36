"""`gdln.citation`: the works behind a result, and one list of them in the bib, CFF and docs."""

import functools
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import optax
import pytest
from small_runs import two_pathways

import gdln_jax as gdln
from gdln_jax import recipes

ROOT = Path(__file__).resolve().parent.parent
GRAPH, DATA = two_pathways()
NET = gdln.GatedNetwork.init(GRAPH, gdln.init.orthogonal(0.5), key=jax.random.key(0))
# What every computation rests on.
BASE = {"saxe2022neural", "jax2018github", "kidger2021equinox"}


def keys(*given):
    """The keys of the entries, which are each there once."""
    found = re.findall(r"^@\w+\{([^,]+),", gdln.citation(*given), flags=re.MULTILINE)
    assert len(set(found)) == len(found)
    return set(found)


@functools.cache
def reduction():
    return gdln.reduce(GRAPH, DATA)


def bib():
    text = (ROOT / "gdln_jax/works.bib").read_text("utf-8")
    return dict(re.findall(r"^@\w+\{([^,]+),\n(.*?)^\}$", text, flags=re.DOTALL | re.MULTILINE))


def test_by_key():
    assert keys() == {"saxe2022neural", "jarvis2025make"}
    assert keys("saxe2022", "zhang") == {
        "saxe2022neural",
        "zhang2024understanding",
        "zhang2025training",
    }
    with pytest.raises(ValueError, match=r"'saxe2023'.*'saxe2022neural'"):
        gdln.citation("saxe2023")
    with pytest.raises(ValueError, match="unknown work ''"):
        gdln.citation("")


def flow(dtype=jnp.float64, final: Any = NET):
    """What `gradient_flow` returns, with nothing solved."""
    ts, losses = jnp.array([0.0, 0.1]), jnp.array([1.0, 0.9], dtype)
    return gdln.Trajectory(ts, losses, jnp.array(0), {}, None, final, None)


def test_a_flow_by_its_solver():
    assert keys(flow()) == BASE | {"kidger2021on", "prince1981high"}
    assert keys(flow(jnp.float32)) == BASE | {"kidger2021on", "tsitouras2011runge"}
    bent = gdln.ReLUNetwork.init([2, 3, 1], std=0.1, key=jax.random.key(0))
    assert keys(flow(final=bent)) == {*BASE, "kidger2021on", "bogacki1989pair", "jarvis2025make"}
    assert keys(flow(), diffrax.Kvaerno5()) == BASE | {"kidger2021on", "kvaerno2004singly"}
    assert keys(diffrax.Euler()) == {"kidger2021on"}
    assert keys(gdln.race.Solution) == BASE | {"kidger2021on", "virtanen2020scipy"}


def test_a_reduced_flow():
    solved = reduction().solve(0.1, [0.0, 1.0])
    assert keys(reduction()) == BASE | {"cardoso1996jacobi"}
    assert keys(solved) == keys(reduction()) | {"kidger2021on", "prince1981high"}
    assert keys(reduction(), solved) == keys(solved)


@pytest.mark.parametrize(
    ("optimizer", "work"),
    [
        (optax.adam(0.1), "kingma2015adam"),
        (gdln.rules.muon(0.1), "jordan2024muon"),
        (gdln.rules.sgd(0.1), None),
    ],
)
def test_training_by_the_state_of_its_optimiser(optimizer, work):
    run = gdln.train(NET, DATA, optimizer=optimizer, steps=1)
    assert keys(run) == BASE | {"deepmind2020jax"} | ({work} if work else set())


def test_rules_say_what_is_inside():
    rules = gdln.rules
    inner = rules.by_edge({"x->h1": rules.sam(rules.shampoo(0.1, eps=1.0), rho=0.1)}, default=None)
    assert {"foret2021sharpness", "gupta2018shampoo"} <= keys(inner)
    assert "jordan2024muon" not in keys(inner)
    assert keys(optax.sgd(0.1)) == {"deepmind2020jax"}


@pytest.mark.parametrize(
    ("one", "more"),
    [
        (gdln.tasks.linear_ssl([1.0, 0.5], 3), {"simon2023stepwise"}),
        (gdln.tasks.linear_rnn, {"proca2025learning"}),
        (gdln.rules.muon, {"jordan2024muon", "deepmind2020jax"}),
        (gdln.exact.attention_time, {"zhang2025training"}),
        (gdln.exact.context_mode, {"saxe2014exact", "jarvis2025make"}),
        (gdln.noise, {"lampinen2019analytic", "benaych2012singular", "virtanen2020scipy"}),
        (gdln.relu.change_points, {"jarvis2025make", "truong2020selective"}),
        (gdln.WidthRun, set()),
        (gdln.Staircase, {"zhang2024understanding"}),
        (gdln.init.normal(0.1), set()),
        (GRAPH, set()),
    ],
)
def test_tasks_functions_classes_and_namespaces(one, more):
    assert keys(one) >= BASE | more
    if not more:
        assert keys(one) == BASE


def test_recipes_and_their_data_sets():
    recipe = recipes.load("more-contexts")
    assert {"jarvis2025make", "hoyer2017xarray"} <= keys(recipe)
    data = reduction().solve(0.1, [0.0, 1.0]).to_xarray()
    assert keys(data) == BASE
    assert "hoyer2017xarray" in keys(data.assign_attrs(sweep_spec="0"))
    assert "saxe2019mathematical" in keys(data.assign_attrs(recipe="semantic"))


@pytest.mark.parametrize("one", [3, [NET], jnp.ones(2), object()])
def test_what_the_package_did_not_make_is_refused(one):
    with pytest.raises(TypeError, match=r"neither made nor used.*a solver of diffrax"):
        gdln.citation(one)


def test_the_table_names_what_exists():
    text = (ROOT / "gdln_jax/_citation.py").read_text(encoding="utf-8")
    table = re.findall(r'^    "([\w.-]+)": [(_]', text, flags=re.MULTILINE)
    assert len(table) >= 70
    assert set(bib()) == {key for key in bib() if f'"{key}"' in text}
    for name in table:
        head, _, last = name.rpartition(".")
        if name in ("train", "optax", "diffrax") or name.startswith("flow"):
            continue
        if head == "gdln_jax.recipes":
            assert last in recipes.CATALOGUE, name
        elif head in ("gdln_jax.rules", "gdln_jax.tasks") and not last.startswith("_"):
            assert last in dir(importlib.import_module(head)), name
        else:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                getattr(importlib.import_module(head), last)


LIBRARIES = {
    "optax": "deepmind2020jax",
    "optimistix": "rader2024optimistix",
    "ruptures": "truong2020selective",
    "scipy": "virtanen2020scipy",
    "sklearn": "pedregosa2011scikit",
}
# They hand on what they are given, and results name it.
ON = ("gdln_jax._ode", "gdln_jax._reduction.", "gdln_jax._train", "gdln_jax._width")


def test_what_a_module_imports_is_cited_by_what_it_offers():
    spaces = [gdln, *(getattr(gdln, n) for n in dir(gdln) if inspect.ismodule(getattr(gdln, n)))]
    offered = {}
    for one in (getattr(space, name) for space in spaces for name in dir(space)):
        name = getattr(one, "__module__", "") or ""
        if name.startswith("gdln_jax.") and not name.startswith(ON):
            offered.setdefault(name, []).append(one)
    offered |= {f"gdln_jax.recipes.{one.name}": [one] for one in recipes.CATALOGUE.values()}
    seen = set()
    for name, ones in offered.items():
        path = ROOT.joinpath(*name.replace("-", "_").split("."))
        for file in path.glob("*.py") if path.is_dir() else [path.with_suffix(".py")]:
            text = file.read_text(encoding="utf-8")
            found = set(re.findall(r"^ *(?:from|import) (\w+)", text, re.MULTILINE))
            needed = {LIBRARIES[library] for library in found & set(LIBRARIES)}
            assert not needed or needed <= set().union(*map(keys, ones)), file
            seen |= needed
    assert seen == set(LIBRARIES.values())


def plain(title):
    """A title without braces and TeX."""
    return re.sub(r"[{}\\]", "", title).replace("--", "\N{EN DASH}")


def test_one_list_in_bib_cff_and_docs():
    entries = bib()
    titles = {
        plain(t) for text in entries.values() for t in re.findall(r" title = \{(.*)\},", text)
    }
    cff = (ROOT / "CITATION.cff").read_text(encoding="utf-8").split("references:")[1]
    assert set(re.findall(r'^    title: "(.*)"', cff, flags=re.MULTILINE)) == titles
    assert cff.count("- type:") == len(entries)
    for key, text in entries.items():
        (year,) = re.findall(r"year = \{(\d+)\}", text)
        assert year in key
    page = (ROOT / "docs/cite.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` ", page, flags=re.MULTILINE)) == set(entries)


def test_every_paper_named_in_docs_and_docstrings_is_listed():
    listed = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    files = [*(ROOT / "docs").glob("*.md"), *(ROOT / "gdln_jax").rglob("*.py")]
    files += (ROOT / "gdln_jax/recipes").rglob("text.md")
    named = {
        number
        for path in files
        for number in re.findall(r"\b\d{4}\.\d{4,5}\b", path.read_text(encoding="utf-8"))
        if re.search(
            rf"arXiv[ :]*(?:\n\s*)?{number}|arxiv.org/abs/{number}", path.read_text("utf-8")
        )
    }
    # Compared with, in docs/comparison.md, and not used.
    assert {number for number in named if number not in listed} <= {"2605.04115"}
    assert len(named) >= 8
