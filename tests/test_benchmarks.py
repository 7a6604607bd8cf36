"""The benchmarks at tiny sizes: tables are well formed, and the baselines compute what we do.

No time is asserted: a test that fails on a slow machine says nothing about the code.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import gdln_jax as gdln
from benchmarks import __main__ as command
from benchmarks import programs, scaling, ties
from benchmarks.jax_loop import make_loop
from benchmarks.rows import JOBS, reduced_row
from benchmarks.table import Row, as_json, markdown

CHECKOUT = Path(__file__).resolve().parent.parent
NO_TORCH = "the PyTorch baselines need the extra `bench`"


def test_ratios_and_goals_of_a_row():
    row = Row("a", "b", "c", cold=2.0, warm=0.5, other=30.0, goal=40, cold_goal=5, floor=0.05)
    assert (row.ratio, row.cold_ratio, row.fraction) == (60.0, 15.0, 0.1)
    assert row.reached
    assert not Row("a", "b", "c", 2.0, 0.5, 30.0, goal=61).reached
    assert not Row("a", "b", "c", 10.0, 0.5, 30.0, goal=40, cold_goal=5).reached
    assert Row("a", "b", "", None, 0.4, limit=0.5).reached
    assert Row("a", "b", "", None, 0.4).reached is None


def test_the_table_has_every_row_and_its_notes():
    rows = [
        Row("a", "b", "c", 2.0, 0.5, 30.0, goal=40, note="first"),
        Row("d", "e", "", None, 0.6, limit=0.5, note="second"),
    ]
    lines = markdown(rows).splitlines()
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert "60x" in lines[2]
    assert "40x: yes" in lines[2]
    assert "NO" in lines[3]
    assert lines[-2:] == ["1. first", "2. second"]
    record = json.loads(as_json(rows))
    assert [r["reached"] for r in record["rows"]] == [True, False]
    assert record["machine"]["jax"]


@pytest.fixture(scope="module")
def small():
    """Two seeds of a small routing network, ours after six steps."""
    task = gdln.tasks.routing(3, 2, width=8)
    setting = {"rate": 0.05, "steps": 6, "save_every": 2}
    work = programs.training(task, (0.3,), 2, values=True, **setting)
    losses, values = work.run()
    x, y = task.meta["base"]
    given = {"routes": task.meta["routes"], "x": x, "y": y, **setting}
    return work, np.asarray(losses), [np.asarray(v) for v in values], given


def test_the_loop_over_steps_computes_what_we_do(small):
    work, losses, values, given = small
    found, seen = make_loop(work.starts, **given)()
    # Baselines are in float32, ours here in float64: rounding of some 1e-7 a step.
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    np.testing.assert_allclose(seen[-1][1], values[1][:, -1, 0], atol=1e-5)


@pytest.mark.parametrize("once", [False, True])
def test_pytorch_modules_compute_what_we_do(small, once):
    pytest.importorskip("torch", reason=NO_TORCH)
    from benchmarks.torch_modules import train_modules

    work, losses, values, given = small
    found, seen = train_modules(work.starts, **given, once=once)
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    np.testing.assert_allclose(np.array(seen[1][-1][:3]), values[0][1, -1], atol=1e-5)


def test_pytorch_vmap_computes_what_we_do(small):
    pytest.importorskip("torch", reason=NO_TORCH)
    from benchmarks.torch_vmap import train_vmap

    work, losses, values, given = small
    found, seen = train_vmap(work.starts, **given)
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    np.testing.assert_allclose(seen[-1][2], values[2][:, -1], atol=1e-5)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("trainer", [False, True])
def test_image_steps_with_momentum_are_the_same(grouped, trainer):
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    from benchmarks.torch_modules import ImageModules, train_images

    rng = np.random.default_rng(0)
    batches = rng.normal(size=(3, 4, 5, 6)).astype(np.float32)
    labels = rng.integers(10, size=(3, 5))
    targets = np.repeat(np.eye(10, dtype=np.float32)[labels][:, None], 4, axis=1)
    setting = {"width": 7, "rate": 0.01, "momentum": 0.9}
    if trainer:
        work = programs.trainer_steps(4, 2, batches, labels, **setting)
    else:
        work = programs.image_steps(4, 2, batches, targets, **setting)
    routes = gdln.tasks.routing(4, 2).meta["routes"]
    model = ImageModules(work.starts[0], routes, grouped=grouped)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = list(zip(torch.tensor(batches), torch.tensor(targets), strict=True))
    losses = np.asarray(work.run())
    assert losses[-1] != losses[0]
    np.testing.assert_allclose(train_images(model, optimizer, data), losses, rtol=1e-5)


def test_both_ways_of_taking_image_steps_count_the_same_cost():
    batches, labels = np.zeros((3, 4, 5, 6)), np.zeros((3, 5), int)
    setting = {"width": 7, "rate": 0.01, "momentum": 0.9}
    trainer = programs.trainer_steps(4, 2, batches, labels, **setting)
    engine = programs.image_steps(4, 2, batches, np.zeros((3, 4, 5, 10)), **setting)
    assert trainer.flops == engine.flops


def test_counted_products_are_those_of_the_layers():
    # M = 3 encoders of 4 -> 8 over 4 rows (no gradient of the data: two products), one hidden
    # product per input, one decoder product per route, three products each.
    task = gdln.tasks.routing(3, 2, width=8)
    packed = gdln.pack(task.graph, task.data)
    n, x, h, y = 4, 4, 8, task.meta["base"][1].shape[1]
    wanted = 2 * n * (2 * 3 * h * x + 3 * 3 * h * h + 3 * 6 * y * h)
    assert programs.product_flops(packed) == wanted


@pytest.mark.slow
def test_scipy_over_path_pairs_solves_the_same_equation():
    for row in reduced_row(quick=True):
        # Both solvers hold rtol 1e-8 per step over some 60 steps.
        assert row.gap is not None
        assert row.gap < 1e-5, row.what


def test_steps_without_ties_are_those_written_by_hand():
    untied, tied = ties.measure(quick=True)
    assert untied.gap is not None
    assert untied.gap < 1e-6
    assert tied.other == untied.warm  # the same run is the baseline


def test_exponent_of_a_power_law_over_the_upper_half():
    x = [1, 2, 4, 8, 16, 32]
    series = scaling.Series("step", "M", "s", x, [1e-3 + 1e-5 * i**2 for i in x], "", "2")
    assert 0.5 < series.exponent < 2
    series = scaling.Series("step", "M", "s", x, [5.0, 5.0, 5.0, 64.0, 256.0, 1024.0], "", "2")
    assert series.exponent == pytest.approx(2)
    assert "5e+03 ms" in scaling.markdown([series])


def test_the_command_writes_one_table(tmp_path, capsys, monkeypatch):
    asked = []

    def measured(name, *, quick):
        asked.append((name, quick))
        return [Row(name, "tiny", "c", 2.0, 0.5, 30.0)]

    monkeypatch.setattr(command, "measured", measured)
    command.main(["--rows", "routing", "reduced", "--quick", "--out", str(tmp_path / "new")])
    assert asked == [("routing", True), ("reduced", True)]
    text = (tmp_path / "new" / "benchmarks.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() == text.strip()
    assert len(json.loads((tmp_path / "new" / "benchmarks.json").read_text())["rows"]) == 2
    for wrong in (["--rows", "no-such-row"], ["--out", "/proc/table"]):
        with pytest.raises(SystemExit, match="2"):
            command.main(wrong)
    assert len(asked) == 2  # nothing is measured before the folder is known to be good


def test_a_row_that_fails_leaves_the_others(monkeypatch, tmp_path, capsys):
    def measured(name, *, quick):
        if name == "routing":
            raise RuntimeError("the row 'routing' failed")
        return [Row(name, "tiny", "c", 2.0, 0.5, 30.0)]

    monkeypatch.setattr(command, "measured", measured)
    monkeypatch.setattr(command, "find_spec", lambda _: True)
    with pytest.raises(SystemExit, match="without the rows that failed: routing"):
        command.main(["--rows", "start", "routing", "reduced", "--out", str(tmp_path)])
    kept = json.loads((tmp_path / "benchmarks.json").read_text())["rows"]
    assert [row["what"] for row in kept] == ["start", "reduced"]
    assert "the row 'routing' failed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_row_runs_in_a_process_of_its_own_without_goals_when_quick():
    (*rows,) = command.measured("initialisation", quick=True)
    assert rows
    for row in rows:
        assert row.goal is None
        assert row.gap is not None
        assert row.gap < 1e-4  # float32 over 20 steps
        assert row.floor is not None
        assert row.floor > 0
    others = {"routing", "reduced", "image", "gradient", "width", "start", "predict", "rules"}
    plain = {"routing_vmap", "initialisation_vmap"}  # on one device of the CPU
    assert set(JOBS) == {"initialisation", "ties", *others, *plain}
    assert {name for name, job in JOBS.items() if job.devices == 1} == plain


def test_the_page_takes_the_tables_of_a_run(tmp_path, monkeypatch):
    """docs/benchmarks.py fills its four places and leaves what is written by hand."""
    spec = importlib.util.spec_from_file_location("page", CHECKOUT / "docs" / "benchmarks.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    written = tmp_path / "docs"
    written.mkdir()
    (written / "benchmarks.md").write_text((CHECKOUT / "docs" / "benchmarks.md").read_text())
    row = Row("a job", "small", "theirs", 0.5, 0.1, other=0.3, goal=40, floor=0.05, floor_of="x")
    series = {"what": "step", "size": "M", "x": [1, 9], "setting": "here", "exponent": 1.05,
              "expected": "1"}  # fmt: skip
    (tmp_path / "benchmarks.json").write_text(as_json([row]))
    (tmp_path / "scaling.json").write_text(json.dumps({"series": [series]}))
    (tmp_path / "scaling.png").write_bytes(b"a picture")
    (tmp_path / "sweep.md").write_text("a table of runs")
    monkeypatch.setattr(page, "DOCS", written)
    monkeypatch.setattr("sys.argv", ["benchmarks.py", str(tmp_path)])
    page.main()
    text = (written / "benchmarks.md").read_text()
    assert (
        "| theirs | 100 ms (500 ms) | 300 ms | 3x (0.6x) | 40x: **not reached** | 50% of x |"
        in text
    )
    assert "| step | M, 1 to 9 | here | 1.05 | 1 |" in text
    assert "a table of runs" in text
    assert "## What falls short, and why" in text
    assert (written / "benchmarks.png").read_bytes() == b"a picture"
