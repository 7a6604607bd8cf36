"""The README: its example runs as printed, its commands are those that CI runs."""

import json
import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_there_is_one_example_of_about_ten_lines():
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 12


@pytest.mark.parametrize("example", blocks("python"))
def test_the_example_runs_as_printed_and_agrees_with_theory(example, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), scope)
    printed = capsys.readouterr().out
    trained, theory = map(float, re.findall(r"mode 1: ([\d.]+), theory ([\d.]+)", printed)[0])
    # Random initial weights against an aligned start: the limit depends weakly on b(0).
    assert trained == pytest.approx(theory, rel=0.01)


def test_cells_of_the_first_notebook_are_short_and_draw_after_solve():
    text = (Path(__file__).parent.parent / "notebooks/1_first_hour.ipynb").read_text("utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert max(len(cell["source"]) for cell in cells) <= 12
    (solving,) = ["".join(c["source"]) for c in cells if "reduction.solve(" in "".join(c["source"])]
    assert re.search(r"reduction\.solve\(.*\)\nplot\.learning\(theory\)", solving)


def test_the_commands():
    main, tests = blocks("bash")
    assert ".venv/bin/gdln reproduce routing" in main
    assert ".venv/bin/python -m pytest" in tests


def test_links_to_files_exist():
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (root / target).exists(), target
