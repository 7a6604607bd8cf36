"""Jobs of a first day as short scripts (docs/jobs): each runs, says what its text says, has no loop
over times or seeds, and fits into 25 lines.
"""

import ast
import re
import runpy
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

JOBS = Path(__file__).parent.parent / "docs" / "jobs"
SCRIPTS = sorted(path.stem for path in JOBS.glob("*.py"))


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the script defines; its pictures go to `folder`."""
    monkeypatch.chdir(folder)
    return runpy.run_path(str(JOBS / f"{name}.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_short_and_have_no_loops(name):
    text = (JOBS / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    loops = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.For | ast.While)]
    assert not loops


@pytest.mark.slow
def test_two_pathways(tmp_path, monkeypatch, capsys):
    found = run("two_pathways", tmp_path, monkeypatch)
    assert found["pathways"].how == "read"
    shared, own = (b[-1] for b in found["pathways"].values())
    # What both contexts have in common is shared, what differs is learned by its own pathway.
    np.testing.assert_allclose(np.sort(shared), [1, 2, 3], atol=0.05)
    np.testing.assert_allclose(np.sort(own), [0, 0, 3], atol=0.1)
    assert "Pathways(2 pathways x 201 times x 3 modes, read" in capsys.readouterr().out
    assert (tmp_path / "two_pathways.png").stat().st_size > 5000


@pytest.mark.slow
def test_differentiation(tmp_path, monkeypatch):
    found = run("differentiation", tmp_path, monkeypatch)
    assert float(found["run"].losses[-1]) < 1e-2 * float(found["run"].losses[0])
    assert (tmp_path / "differentiation.png").stat().st_size > 5000


@pytest.mark.slow
def test_learning_times(tmp_path, monkeypatch):
    found = run("learning_times", tmp_path, monkeypatch)
    assert found["found"].success
    assert np.abs(found["too_late"](found["found"].x)).max() < 1e-8


@pytest.mark.slow
def test_aba(tmp_path, monkeypatch, capsys):
    run("aba", tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    found = re.findall(r"A at t = ([\d.]+), .* B ([\d.]+), A again within ([\d.]+)", printed)
    (first, lost, again), (_, kept, at_once) = [tuple(map(float, row)) for row in found]
    assert lost > 1
    assert again > first  # what B left has to be unlearned
    assert (kept, at_once) == (0, 0)


@pytest.mark.slow
def test_grown_sweep(tmp_path, monkeypatch, capsys):
    # As in a terminal; where the tests run in the background SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found = run("grown_sweep", tmp_path, monkeypatch)
    finally:
        signal.signal(signal.SIGINT, before)
    went_on = capsys.readouterr().out.splitlines()
    assert went_on[0] == "0.5 4 of 8 points"
    assert "0.5 8 of 16 points" in went_on
    more = found["more"]
    assert more.sizes["seed"] == 8
    assert found["same"].equals(more.sel(seed=found["same"].seed))


@pytest.mark.slow
def test_rich_or_lazy(tmp_path, monkeypatch, capsys):
    run("rich_or_lazy", tmp_path, monkeypatch)
    words = re.findall(r"Richness\((\w+):", capsys.readouterr().out)
    assert words == ["rich", "between", "lazy"]
