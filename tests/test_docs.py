"""The pages of the docs: their code runs as printed, in order, and says what the text says; what
they name exists; and every public name has its place in the reference.
"""

import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from printed import differs, shown

import gdln_jax as gdln
from gdln_jax import recipes

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def run(page):
    """Execute the Python blocks of a page, which print what it shows; returns what they defined."""
    return shown(DOCS / f"{page}.md")


@pytest.mark.parametrize(
    ("page", "printed", "same"),
    [
        ("loss 0.98 and [ 1.  -2.5]", "loss 0.9871 and [1. -2.5]\n", False),
        ("loss 0.98 and [ 1.  -2.5]", "loss 0.984 and [1. -2.5]", True),
        ("residual 2.1e-16", "residual 0.0", True),
        ("residual 2.1e-16", "residual 2.1e-06", False),
        ("4 modes", "5 modes", False),
        ("y0->h1 in 3 steps", "y0->h2 in 3 steps", False),
        ("after ... steps", "after 12 steps", True),
        ("two lines\nhere", "two lines", False),
    ],
)
def test_what_counts_as_the_output_shown(page, printed, same):
    assert (not differs(page, printed)) == same


def test_a_page_whose_output_is_another_is_refused(tmp_path):
    page = tmp_path / "page.md"
    for output in ("\n\n```text\n1.25\n```", ""):
        page.write_text(f"```python\nprint(1.26)\n```{output}\n")
        with pytest.raises(AssertionError, match="block 1: "):
            shown(page)


def test_the_drawing_of_the_reduction_page():
    text = (DOCS / "reduction.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    drawn = tomllib.loads(block)
    graph = gdln.Graph(drawn["nodes"], [tuple(edge) for edge in drawn["edges"]])
    (python,) = re.findall(r"gdln\.Graph\(.*?\n\)", text, flags=re.DOTALL)
    assert graph == eval(python, {"gdln": gdln})
    assert {name for path in drawn["paths"] for name in path} <= {e.name for e in graph.edges}


def test_concepts_page(capsys):
    scope = run("concepts")
    printed = capsys.readouterr().out
    assert "mode 1: canary, robin, rose, ... -> grows" in printed
    assert "unit of y" in printed
    assert scope["data"].take([2, 0]).names["x"].items == ("rose", "canary")
    assert scope["net"]({"x": np.eye(4)})["y"].shape == (4, 7)


@pytest.mark.slow
def test_sequences_page(capsys):
    scope = run("sequences")
    printed = capsys.readouterr().out
    assert "savings=0.833759" in printed
    assert printed.count("minimum") == 2
    assert abs(scope["at"][0] - 2.1340145949) < 1e-8
    assert scope["run"].losses.shape == (201,)


@pytest.mark.slow
def test_optimisers_page(capsys):
    scope = run("optimisers")
    printed = capsys.readouterr().out
    assert np.max(np.abs(scope["small"].losses - scope["full"].losses)) < 1e-12
    assert "leaves the aligned manifold" in printed
    assert "rounding shows at step None" in printed
    assert "3 classes" in printed or "2 classes" in printed
    assert scope["shared"].losses[-1] < 1e-3 * scope["shared"].losses[0]
    # Which optimiser finds shared structure: the pathways' race, and none between equal steps.
    errors = list(scope["zero_shot"].values())
    assert max(errors[:2]) < 1e-4
    assert np.abs(np.array(errors[2:]) - 0.25).max() < 1e-3
    assert "law of the sign flow: 0.25" in printed
    assert "kept: [2.4 1.4 0.4 0. ]" in printed
    assert "lost beyond decay 0.4725, from 0.25" in printed
    assert scope["late"] == pytest.approx(scope["law"], abs=0.01)
    assert "half learned after 93 steps, the flow says 79" in printed


@pytest.mark.slow
def test_reduction_page(capsys):
    scope = run("reduction")
    printed = capsys.readouterr().out
    assert "Reduction(4 modes, 3 path groups, diagonal, residual " in printed
    assert scope["reduction"].residual < 1e-12
    # Who learns which mode: the direct edge the weak ones, the shared layer the strong one.
    direct, shared = (
        scope["pathways"][name][-1] for name in ("eye->response", "eye->shared->response")
    )
    share = direct / (direct + shared)
    assert np.all(share[2:] > 0.9)
    assert share[0] < 0.5
    gaps = [float(g) for g in re.findall(r"largest difference ([\d.]+)", printed)]
    assert gaps[1] < 0.6 * gaps[0]
    assert all(scope["after"][edge] < 0.1 < scope["before"][edge] for edge in scope["after"])
    assert "2 classes of 15 edges" in printed
    assert "leaves the aligned manifold" in printed
    assert np.abs(scope["exact"].losses - scope["flow"].losses).max() < 1e-9
    assert np.abs(scope["again"].losses - scope["exact"].losses[20:]).max() < 1e-9
    assert max(scope["outside"].values()) < 1e-6


def test_quickstart(capsys):
    scope = run("index")
    assert "Reduction(4 modes, 1 path groups, diagonal, residual " in capsys.readouterr().out
    # First order in the step: eta times the rates of the modes, in units of the initial loss.
    assert 0 < scope["gap"] < 0.05 * scope["theory"].losses[0]
    assert scope["theory"].losses[-1] < 1e-3 * scope["theory"].losses[0]


def test_claims_page():
    scope = run("claims")
    assert not scope["model"].coincides_with_lotka_volterra()
    assert scope["reduction"].residual < 1e-12


@pytest.mark.slow
def test_gates_page(capsys):
    scope = run("gates")
    assert scope["clustered"].k == scope["modules"].k == 4
    assert capsys.readouterr().out.count("loss gap / L(0): mean 0.01") == 2


@pytest.mark.slow
def test_images_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the checkpoint is written
    scope = run("images")
    assert (tmp_path / "run.ckpt").exists()
    assert scope["pattern"].sum() == 50


def test_progress_page(capsys):
    scope = run("progress")
    assert re.search(r"\(0.98, 'step 392 of 400, loss [\d.e-]+'\)", capsys.readouterr().out)
    assert len(scope["log"]) <= 60


def test_certificate_page(capsys):
    scope = run("certificate")
    printed = capsys.readouterr().out
    assert "off-diagonal" in printed
    assert "on_inexact='coupled'" in printed
    assert scope["gap"] < 1e-8


def test_whitening_page(capsys):
    scope = run("whiten")
    printed = capsys.readouterr().out
    assert "as they are: no common frames" in printed
    assert scope["reduction"].residual < 1e-10


def test_tolerances_page(capsys):
    run("tolerances")
    default, loose = map(float, re.findall(r"half time, ([\d.]+)", capsys.readouterr().out))
    assert default == pytest.approx(0.5, abs=1e-6)
    assert 1e-6 < abs(loose - 0.5) < 0.1


@pytest.mark.slow
def test_noise_page(capsys):
    scope = run("noise")
    printed = capsys.readouterr().out
    assert scope["test"] < min(scope["curves"].test) + 1e-9 < scope["curves"].end
    # One draw: the scatter of a sum of 1800 squares, and of the three modes.
    assert max(map(float, re.findall(r"within ([\d.]+) of the mean", printed))) < 0.15
    moved = re.findall(r"stop ([\d.-]+) (?:earlier|later)", printed)
    assert len(moved) == 2
    assert min(map(float, moved)) > 0


@pytest.mark.slow
def test_width_page(capsys):
    scope = run("width")
    printed = capsys.readouterr().out
    assert "WidthReduction(closed, sizes [x:4, h1:11, h2:11, y:7]" in printed
    assert scope["gap"] < 1e-13
    assert "this optimizer is not exact" in printed
    assert "('h1->h2',)" in printed
    assert 1 / 1.5 < scope["estimate"] / scope["true"] < 1.5
    assert scope["drawn"].sizes["h2"] == 11


def test_attention_page(capsys):
    scope = run("attention")
    assert scope["reduction"].residual < 1e-12
    np.testing.assert_allclose(scope["times"], (44, 142, 477), atol=0.5)
    strengths = scope["strengths"]
    closed = gdln.exact.rnn_loss(strengths, 0.3 * np.ones(2), 0.5, 0.4)
    np.testing.assert_allclose(scope["aligned"].loss(scope["b"]), closed, rtol=1e-12)
    assert "attained=array([ True,  True])" in capsys.readouterr().out


@pytest.mark.slow
def test_tied_page(capsys):
    scope = run("tied")
    printed = capsys.readouterr().out
    assert "{'W': (3, 5)}" in printed
    assert scope["distance"] < 1e-6
    assert scope["gap"] < 1e-8
    assert scope["certified"].residual < 1e-12
    assert "h: none, ties join it with its own inverse transpose" in printed
    assert "h1: + [A][A]^T - [B]^T[B]" in printed


@pytest.mark.slow
def test_saddles_page(capsys):
    scope = run("saddles")
    assert "2.333 ln(1/eps) - 3.183" in capsys.readouterr().out
    assert len(scope["staircase"].events) == 2


@pytest.mark.slow
def test_answers_page(capsys):
    run("answers")
    assert float(capsys.readouterr().out.split()[-1]) < 0.01


def test_names_on_the_answers_page_exist():
    text = (DOCS / "answers.md").read_text(encoding="utf-8").split("```python")[0]
    heads = "gdln|control|exact|gates|images|init|measures|noise|plot|race|relu|rules|tasks"
    named = set(re.findall(rf"`((?:{heads})(?:\.\w+)+)", text))
    assert len(named) > 40
    for name in named:
        value = gdln
        for part in name.removeprefix("gdln.").split("."):
            value = getattr(value, part)
    for owner, name in re.findall(r"`(reduction|net|run|ReLUNetwork)\.(\w+)", text):
        owners = {"reduction": gdln.Reduction, "net": gdln.GatedNetwork, "run": gdln.Trajectory}
        assert hasattr(owners.get(owner, gdln.ReLUNetwork), name), (owner, name)


@pytest.mark.slow
def test_conventions_page(capsys):
    run("conventions")
    printed = capsys.readouterr().out
    assert "loss: 0.400000 times ours, c = 0.4" in printed
    descent, scaled, same = (float(n) for n in re.findall(r": (\de-\d+)\n", printed))
    assert max(descent, scaled) < 1e-12
    assert same > 1e-3


@pytest.mark.slow
def test_own_loss_page(capsys):
    scope = run("own_loss")
    assert "equal: True" in capsys.readouterr().out
    for name in ("run", "batches", "other", "flow", "pair"):
        losses = scope[name].losses
        assert losses[-1] < 0.2 * losses[0], name
    # The second task begins at step 150, so the loss at step 200 is that of another one.
    before, after = scope["schedule"].losses[1:3]
    assert after > before


def test_citation_page(capsys):
    run("cite")
    printed = capsys.readouterr().out
    for key in ("saxe2022neural", "cardoso1996", "prince1981", "zhang2025", "jordan2024", "jarvis"):
        assert f"{{{key}" in printed
    assert "tsitouras" not in printed  # pages run in float64


@pytest.mark.slow
def test_page_of_ones_own_network(capsys):
    scope = run("own_network")
    found = scope["found"]
    assert found.k == 2
    assert {"".join(map(str, gate)) for gate in found.gates.gates} == {"0101", "0011"}
    assert found.choice.gap[1].mean() < 0.01
    assert found.rate == pytest.approx(0.05, rel=1e-3)
    assert "gap of outputs 0.00" in capsys.readouterr().out
    assert scope["state"]["fc1.weight"].shape == (64, 2)
    assert "masks" in repr(scope["two"])


def test_missing_entries_page(capsys):
    scope = run("missing_entries")
    known, missing = map(float, re.findall(r"(?:entries|ones) ([\d.e-]+)", capsys.readouterr().out))
    assert known < 1e-4
    assert missing < 1e-2
    assert 0.2 < (~scope["known"]).mean() < 0.4


@pytest.mark.slow
def test_page_of_ones_own_sweep(tmp_path):
    """Two processes, more seeds from the store, and the picture, in the folder of the scripts."""
    text = (DOCS / "own_sweep.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(*words):
        how = {"cwd": tmp_path, "env": environment, "timeout": 300, "text": True}
        command = [sys.executable, *words]
        return subprocess.run(command, **how, check=True, stdout=subprocess.PIPE).stdout

    (shown,) = re.findall(r"^```text\n(.*?)\n", text, flags=re.MULTILINE)
    assert not differs(shown, start("study.py", "4"))
    chunks = {path: path.stat().st_mtime_ns for path in (tmp_path / "study").rglob("*.nc")}
    assert chunks
    start("picture.py")
    assert (tmp_path / "study.png").is_file()
    assert len(list((tmp_path / "study").rglob("*.nc"))) > len(chunks)
    assert all(path.stat().st_mtime_ns == before for path, before in chunks.items())


# ---------------------------------------------------------------- what pages name
def test_every_erratum_is_listed_with_tests_and_recipes_that_exist():
    text = (DOCS / "errata.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (E\d+) \|(.*)\|$", text, flags=re.MULTILINE)
    assert [name for name, _ in rows] == [f"E{k}" for k in range(1, 29)]
    for name, row in rows:
        shown = row.split(" | ")[-1]
        tests = re.findall(r"`(tests/\w+\.py)::(\w+)`", shown)
        made = re.findall(r"`gdln reproduce ([\w-]+)`", shown)
        assert len(tests) + len(made) == shown.count("`") // 2 > 0, name
        for file, test in tests:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{name}: {test}"
        assert set(made) <= set(recipes.CATALOGUE), name


def test_errata_that_recipes_claim_are_those_of_the_page():
    text = (DOCS / "errata.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (E\d+) \|", text, flags=re.MULTILINE))
    for entry in recipes.CATALOGUE.values():
        assert set(entry.errata) <= listed, entry.name


@pytest.fixture(scope="module")
def pages():
    """The hooks of the site, as a module."""
    for needed in ("mkdocs", "latex2mathml"):
        pytest.importorskip(needed, reason="the site needs the extra docs: pip install '.[docs]'")
    spec = importlib.util.spec_from_file_location("pages", DOCS / "hooks" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_reference(pages):
    gdln = importlib.import_module("gdln_jax")
    listed = set(re.findall(r"^::: ([\w.]+)$", "\n".join(pages.api_pages().values()), re.MULTILINE))
    for name in set(dir(gdln)) - {"__version__"}:
        assert f"gdln_jax.{name}" in listed, name
    for space in pages.namespaces():
        namespace = getattr(gdln, space)
        assert pages.members(space)
        for name, value in vars(namespace).items():
            ours = getattr(value, "__module__", "").startswith(f"gdln_jax.{space}")
            if ours and not name.startswith("_"):
                assert f"gdln_jax.{space}.{name}" in listed, f"{space}.{name}"


# Settings, and figures with pages of their own.
NO_PICTURE = {"check_text", "style", "figure", "explanation", "explore"}


def test_every_function_has_an_example_and_plots_a_picture(pages):
    found = pages.examples()
    functions = [
        f"{space}.{name}"
        for space in pages.namespaces()
        for name in pages.members(space)
        if space != "recipes" and inspect.isfunction(getattr(getattr(gdln, space), name))
    ]
    functions += [name for name in dir(gdln) if inspect.isfunction(getattr(gdln, name))]
    missing = {n for n in functions if n not in found and n.rpartition(".")[2] not in found}
    assert not missing
    without = {
        name.removeprefix("plot.")
        for name in functions
        if name.startswith("plot.") and "](../examples/" not in found[name]
    }
    assert without <= NO_PICTURE


def test_the_reference_is_in_the_order_of_the_workflow(pages):
    sections = pages.sections()
    assert [name for names in sections.values() for name in names] == [
        name for name in pages.top_level() if name in dir(gdln) or name == "__version__"
    ]
    overview = pages.api_pages()["api/index.md"]
    titles = re.findall(r"^## (.*)$", overview, re.MULTILINE)
    assert titles == list(sections)
    assert overview.index("`Graph`") < overview.index("`reduce`") < overview.index("`sweep`")
    assert all(pages.summary(name) for name in pages.top_level() if name != "STATUS")


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((DOCS / "examples").glob("*.md")), ids=lambda p: p.stem)
def test_examples_of_the_reference(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown(path)
    named = set(re.findall(r"!\[\]\((\w+\.\w+)\)", path.read_text(encoding="utf-8")))
    assert named == {drawn.name for drawn in tmp_path.iterdir()}
    assert all((DOCS / "examples" / name).is_file() for name in named)


def _content(pages, content, url="api/exact.html"):
    return pages.on_page_content(content, SimpleNamespace(url=url))


def test_formulas_become_mathml(pages):
    html = _content(pages, r'a <span class="arithmatex">\(\tau &lt; b_e\)</span> c')
    assert html.startswith("a <math")
    assert "arithmatex" not in html
    assert "&#x003C4;" in html


def test_citations_become_links(pages):
    html = _content(pages, "<p>(theory#classes; E4), <code>theory#classes E4</code>, E = 0</p>")
    assert '<a href="../theory.html#classes">theory#classes</a>' in html
    assert '<a href="../errata.html#e4">E4</a>' in html
    assert html.count("<a ") == 2
    assert _content(pages, "<td>E4</td>", "errata.html") == '<td id="e4">E4</td>'


def test_the_site_has_its_font_and_its_scripts(pages):
    """Nothing is fetched: what the settings and the style sheet name lies in the folder."""
    assets = DOCS / "assets"
    style = (assets / "site.css").read_text(encoding="utf-8")
    (font,) = re.findall(r'url\("([^"]+)"\)', style)
    assert (assets / font).stat().st_size < 500_000
    assert "SIL OPEN FONT LICENSE" in (assets / "stix-two-math-LICENSE.txt").read_text()
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"assets/[\w.-]+", settings)
    assert len(named) == 2
    assert all((DOCS / name).is_file() for name in named)


def test_the_gallery_begins_with_thumbnails_that_lead_to_their_entries(pages):
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    grid, _, rest = pages.thumbnails(text).partition("</div>")
    linked = re.findall(r"\[!\[\]\(gallery/([\w-]+)\.png\)\*\*\1\*\* [^\]]+\]\(#\1\)", grid)
    assert linked == [path for path in recipes.CATALOGUE if (DOCS / f"gallery/{path}.png").exists()]
    assert all(f"\n## {name}\n" in rest for name in linked)


def test_notebooks_are_in_the_order_of_their_numbers(pages):
    numbers = [int(re.findall(r"\d+", path)[0]) for path in pages.notebook_pages()]
    assert numbers == list(range(1, len(numbers) + 1))
    listed = re.findall(
        r"^\| \[(\d+)\. .*\]\(\.\./notebooks/\1_\w+\.ipynb\) \| .+ \| (?:\d+ s|–) \|$",
        (DOCS / "notebooks.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert list(map(int, listed)) == numbers


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_notebook_installs_first_and_has_a_solution_below_every_exercise(path, pages):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    assert "%pip install -q gdln_jax-*.whl" in sources[1]
    assert "find_spec" not in "".join(sources[2:])
    solved = [k for k, c in enumerate(cells) if "solution" in c["metadata"].get("tags", ())]
    start = next((k for k, text in enumerate(sources) if "## Exercise" in text), len(cells))
    asked = [
        k
        for k in range(start, len(cells))
        if re.search(r"^(\d+\. |## Exercise$)", sources[k], re.MULTILINE)
    ]
    assert len(asked) == len(solved)
    assert asked
    for number, (exercise, solution) in enumerate(zip(asked, solved, strict=True), 1):
        assert exercise < solution < ([*asked, len(cells)])[number]
        # Folded in Jupyter and in Colab; run by nbmake as every cell is.
        assert cells[solution]["metadata"]["jupyter"]["source_hidden"]
        assert sources[solution].startswith(f"# @title Solution {number}\n")
        assert "\nassert " in sources[solution] or "print(" in sources[solution]
    page = pages.notebook_pages()[f"notebooks/{path.stem}.md"]
    assert page.count("<details markdown>") == len(solved)


def test_the_install_cell_is_one_for_all():
    cells = {
        "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][1]["source"])
        for path in (ROOT / "notebooks").glob("*.ipynb")
    }
    assert len(cells) == 1


@pytest.mark.slow
def test_pictures_page(tmp_path, monkeypatch, capsys):
    """The pictures of the page are those that its blocks draw, run in docs/pictures."""
    monkeypatch.chdir(tmp_path)
    scope = run("pictures")
    assert "Pathways(1 pathways x 101 times x 8 modes, batch (8,), projected" in (
        capsys.readouterr().out
    )
    assert scope["swept"].attrs["failed_points"] == 0
    text = (DOCS / "pictures.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\(pictures/(\w+\.png)\)", text))
    assert named == {path.name for path in tmp_path.glob("*.png")}
    assert named == {path.name for path in (DOCS / "pictures").glob("*.png")}
