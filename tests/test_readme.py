"""The README: its example runs as printed, its commands are those that CI runs."""

import json
import re
import runpy
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from printed import shown

import gdln_jax as gdln

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FILM = runpy.run_path(str(ROOT / "docs" / "film.py"))


def blocks(language: str) -> list[str]:
    """The fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_three_lines_and_ten():
    short, example = blocks("python")
    lines = [line for line in example.splitlines() if line.strip()]
    assert len([line for line in short.splitlines() if line]) == 4  # the first imports
    assert len(lines) <= 12
    assert lines[1].startswith("gdln.configure(cache=True")


def test_the_examples_print_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Where `gdln.configure(cache=True)` keeps programs: in the folder of this run.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.values["jax_compilation_cache_dir"])
    scope = shown(ROOT / "README.md")
    printed = capsys.readouterr().out
    trained, theory = map(float, re.findall(r"mode 1: ([\d.]+), theory ([\d.]+)", printed)[0])
    # Random initial weights against an aligned start: the limit depends weakly on b(0).
    assert trained == pytest.approx(theory, rel=0.01)
    at = np.asarray(gdln.flow_time(scope["run"].ts, 0.02))
    theory = np.interp(at, scope["theory"].ts, scope["theory"].losses)
    assert np.median(np.abs(theory - scope["run"].losses)) < 1e-3 * scope["run"].losses[0]
    with Image.open("both.png") as drawn, Image.open(ROOT / "docs/both.png") as picture:
        assert drawn.size == picture.size


def test_the_first_picture_moves_and_is_light():
    path = ROOT / "docs/film.gif"
    assert "docs/film.gif" in "\n".join(README.splitlines()[:10])
    assert path.stat().st_size < 1_500_000
    with Image.open(path) as film:
        assert getattr(film, "n_frames", 1) == FILM["FRAMES"]
        assert film.size[0] >= 800


def test_the_film_is_of_theory_and_training_that_agree():
    """The caption's number: theory from the initial strengths, descent of all weight matrices."""
    task, reduction, b0 = FILM["system"]()
    theory, run = FILM["runs"](task, reduction, b0, measure=None)
    at = np.asarray(gdln.flow_time(run.ts, FILM["RATE"]))
    theory = np.interp(at, theory.ts, theory.losses)
    gap = np.abs(theory - run.losses).max() / run.losses[0]
    (written,) = re.findall(r"at most ([\d.]+) % of the initial loss", README)
    assert f"{100 * gap:.1f}" == written
    assert f"all {len(task.graph.edges)} weight matrices" in README


def test_cells_of_the_first_notebook_are_short_and_draw_after_solve():
    text = (ROOT / "notebooks/1_first_hour.ipynb").read_text("utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    shown = [cell for cell in cells if "solution" not in cell["metadata"].get("tags", [])]
    assert max(len(cell["source"]) for cell in shown) <= 12
    (solving,) = ["".join(c["source"]) for c in shown if "reduction.solve(" in "".join(c["source"])]
    assert re.search(r"reduction\.solve\(.*\)\nplot\.learning\(theory\)", solving)


def test_the_commands():
    main, tests = blocks("bash")[:2]
    assert ".venv/bin/gdln reproduce routing" in main
    assert ".venv/bin/python -m pytest" in tests


def test_links_to_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)|src=\"([^\"]+)\"", README):
        path = "".join(target)
        if not path.startswith("http"):
            assert (ROOT / path).exists(), path
