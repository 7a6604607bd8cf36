"""All recipes together: each in its own process, how they ended, and the pages that show it.

The recipes are tiny and the command is a script that puts them into the catalogue, so that the
processes are real ones: an exception, a failed check and a kill happen as they would.
"""

import json
import math
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import xarray
from command_parts import main, report
from matplotlib.figure import Figure
from PIL import Image
from tiny_recipes import RecipeOptions, check, tiny
from typer.testing import CliRunner

from gdln_jax import recipes
from gdln_jax.recipes import Recipe, Result

State = report.State
NAMES = ("good", "breaks", "killed", "fails", "slow")

# A `gdln` whose catalogue is that of this file; what it needs of JAX is stubbed, so that it starts
# quickly. `slow` leaves a file when it runs and then waits to be killed.
SCRIPT = """
import os, pathlib, signal, sys, time
sys.path.insert(0, {tests!r})
import test_report as here
from gdln_jax import _machine
from gdln_jax._cli import main as cli
from gdln_jax.recipes import CATALOGUE
CATALOGUE.clear(); CATALOGUE.update(here.ENTRIES)
cli._machine.prepare = lambda: None
_machine.machine = lambda: {{"devices": "a thing", "cores": "2"}}
cli.main()
"""


@dataclass(frozen=True)
class Options(RecipeOptions):
    seeds: int = 2


def entry(name: str) -> Recipe:
    """A tiny recipe."""

    def run(options, progress):
        if name == "breaks":
            raise RuntimeError("a bug on purpose <&>")
        if name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "slow":
            Path("slow-runs").touch()
            time.sleep(60)
        data = xarray.Dataset({"loss": (("seed", "time"), [[9.0, 1.0], [9.0, 3.0]])})
        one = replace(check(1.0 if name == "fails" else 1e-9, "of <x>"), name="error | all")
        figure = Figure(figsize=(1, 1))
        return Result(name, data, (one,), figure, "It is *so*, `a < b`.", ("a note",), text="|a|")

    return tiny(
        name,
        run,
        Options,
        {"seeds": 1},
        summary=f"shows <{name}>",
        claim="Everything | holds",
        proviso="not for `x < 0`",
        errata=("E99",),
    )


ENTRIES = {name: entry(name) for name in NAMES}


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """What runs `gdln` with the tiny recipes."""
    script = tmp_path_factory.mktemp("command") / "gdln.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    return (sys.executable, str(script))


@pytest.fixture(scope="module")
def ran(command, tmp_path_factory):
    """The four that end, reproduced once; the outcomes at every change, and the folder."""
    out = tmp_path_factory.mktemp("all")
    seen = []
    entries = [ENTRIES[name] for name in NAMES if name != "slow"]

    def changed(outcomes):
        seen.append([one.state for one in outcomes])
        report.write_index(outcomes, out)

    ended = report.reproduce_all(
        entries, out, options=lambda _: ["--quick"], changed=changed, command=command
    )
    return ended, seen, out


# ------------------------------------------------------------------ one after the other
def test_an_exception_or_a_crash_does_not_stop_the_others(ran):
    ended, seen, out = ran
    assert [one.state for one in ended] == [
        State.PASSED, State.BROKE, State.BROKE, State.FAILED,
    ]  # fmt: skip
    assert "RuntimeError: a bug on purpose" in ended[1].trouble
    assert "exit code 1" in ended[1].trouble
    assert "SIGKILL" in ended[2].trouble
    assert ended[0].run["quick"] is True
    assert ended[0].run["seconds"] > 0
    assert ended[0].run["machine"] == {"devices": "a thing", "cores": "2"}
    assert "a bug on purpose" in (out / "breaks" / "breaks.log").read_text()
    # Before each one starts, and at the end.
    assert seen[0] == [State.RUNNING, State.WAITING, State.WAITING, State.WAITING]
    assert seen[2] == [State.PASSED, State.BROKE, State.RUNNING, State.WAITING]
    assert len(seen) == 5


def test_what_the_folder_says_is_what_was_returned(ran):
    ended, _, out = ran
    again = report.outcomes(out, [one.entry for one in ended])
    assert [one.state for one in again] == [one.state for one in ended]
    assert again[1].trouble == ended[1].trouble


def test_a_standing_is_shown_only_where_all_checks_passed(ran):
    ended, _, _ = ran
    assert ended[0].standing == "holds"
    for one in ended[1:]:
        assert one.standing == "not established by this run"


def test_old_files_do_not_count_in_a_new_run(command, tmp_path):
    entry = ENTRIES["good"]
    (ended,) = report.reproduce_all(
        [entry], tmp_path, options=lambda _: [], changed=lambda _: None, command=command
    )
    assert ended.state is State.PASSED
    assert (
        report.outcome(entry, tmp_path / "good", since=main._machine.moment()).state
        is State.MISSING
    )
    # The same recipe now breaks off: its older record is still there and must not be shown.
    broken = (sys.executable, "-c", "raise SystemExit(3)")
    (ended,) = report.reproduce_all(
        [entry], tmp_path, options=lambda _: [], changed=lambda _: None, command=broken
    )
    assert ended.state is State.BROKE
    assert "exit code 3" in ended.trouble
    assert report.outcome(entry, tmp_path / "good").state is State.BROKE
    assert ended.picture is None


def test_stop_leaves_the_rest_as_not_run(tmp_path):
    broken = (sys.executable, "-c", "raise SystemExit(3)")
    entries = [ENTRIES["breaks"], ENTRIES["good"]]
    ended = report.reproduce_all(
        entries,
        tmp_path,
        options=lambda _: [],
        changed=lambda _: None,
        keep_going=False,
        command=broken,
    )
    assert [one.state for one in ended] == [State.BROKE, State.MISSING]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_in_the_middle_leaves_a_readable_index(command, tmp_path, number):
    snippet = (
        "import sys, pathlib\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_report as here\nfrom gdln_jax._cli import report\n"
        "out = pathlib.Path('out')\n"
        "report.reproduce_all([here.ENTRIES['slow'], here.ENTRIES['good']], out,\n"
        "    options=lambda entry: [], changed=lambda told: report.write_index(told, out),\n"
        f"    command={command!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", snippet], cwd=tmp_path, process_group=0)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "slow-runs").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(30) == (143 if number == signal.SIGTERM else -number)
    finally:
        if number == signal.SIGKILL:  # its recipe is on its own then
            os.killpg(process.pid, signal.SIGKILL)
    index = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert index.rstrip().endswith("</html>")
    shown = "not run" if number == signal.SIGTERM else "if it stays like this, the run was killed"
    assert shown in " ".join(index.split())
    assert not list((tmp_path / "out").glob(".*.tmp-*"))


# ------------------------------------------------------------------ pages
class Page(HTMLParser):
    """Sources and links of a page, the order of its sections, and whether its tags close."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.sources, self.links, self.ids, self.open = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.sources += [found[key] for key in ("src", "srcset", "data") if key in found]
        self.links += [found["href"]] if "href" in found else []
        self.ids += [found["id"]] if "id" in found else []
        self.open += [tag] if tag not in self.VOID else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_report_needs_no_other_file(ran, tmp_path):
    ended, _, _ = ran
    text = report.write_report(ended, tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.sources) == 2  # good and fails have a picture
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert all(link.startswith("#") or link == "data:," for link in page.links)
    assert not re.search(r"url\(|@import|<script|https?://", text)
    assert 'name="viewport"' in text


def test_what_failed_is_at_the_top(ran, tmp_path):
    ended, _, out = ran
    missing = report.outcome(ENTRIES["slow"], out / "slow")
    text = report.write_report([*ended, missing], tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.ids == ["failures", "breaks", "killed", "fails", "slow", "good"]
    assert "4 of 5 recipes did not pass" in text
    assert "gdln reproduce slow" in text
    assert "error | all = 1, must be at most 1e-08" in text


def test_texts_are_escaped(ran, tmp_path):
    ended, _, _ = ran
    text = report.write_report(ended, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "a bug on purpose &lt;&amp;&gt;" in text
    assert "It is *so*, <code>a &lt; b</code>." in text
    assert "shows &lt;good&gt;" in text


def test_the_index_links_its_files_and_both_forms_say_the_same(ran):
    ended, _, out = ran
    page = Page((out / "index.html").read_text(encoding="utf-8"))
    assert page.sources == ["fails/fails.png", "good/good.png"]
    files = [link for link in page.links if not link.startswith(("#", "data:"))]
    assert len(files) > len(ended)
    assert all((out / link).is_file() for link in files)
    text = (out / "index.md").read_text(encoding="utf-8")
    assert text.index("## 3 of 4 recipes did not pass") < text.index("| recipe |")
    assert "![shows <good>](good/good.png)" in text
    assert "| error \\| all | 1e-09 | at most 1e-08 | passed |" in text
    assert text.index("## breaks") < text.index("## good")
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.rstrip().endswith("|"), line


def test_an_unreadable_record_is_seen(tmp_path):
    folder = tmp_path / "good"
    folder.mkdir()
    half = '{"passed": true, "verdict": "v", "notes": [], "options": {}, "versions": {}'
    for text in ("{", "[]", '{"a": 1}', '{"passed": true}', half + ', "checks": [{"name": "e"}]}'):
        (folder / "good.json").write_text(text)
        found = report.outcome(ENTRIES["good"], folder)
        assert found.state is State.BROKE
        assert "good.json" in found.trouble


def test_records_of_an_earlier_version_are_shown(tmp_path):
    """Without run, text and numbers, which records had not from the start."""
    folder = tmp_path / "good"
    folder.mkdir()
    record = {"passed": True, "verdict": "v", "checks": [], "notes": [], "options": {}}
    (folder / "good.json").write_text(json.dumps({**record, "versions": {"jax": "0.10"}}))
    found = report.outcome(ENTRIES["good"], folder)
    assert found.state is State.PASSED
    assert "jax 0.10" in report.write_report([found], tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("value", "shown"),
    [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (None, "not finite")],
)
def test_values_that_are_not_finite_are_shown(tmp_path, value, shown):
    """The records of 0.1.0 have null for all of them."""
    one = check(-1.0 if value is None else value).as_dict()
    one |= {"value": None} if value is None else {}
    record = {"passed": False, "verdict": "v", "checks": [one], "notes": [], "options": {}}
    (tmp_path / "good.json").write_text(json.dumps({**record, "versions": {}}, allow_nan=False))
    found = report.outcome(ENTRIES["good"], tmp_path)
    text = report.write_report([found], tmp_path / "r.html").read_text()
    assert f"error = {shown}, must be" in text
    report.write_index([found], tmp_path)
    assert f"| error | {shown} |" in (tmp_path / "index.md").read_text()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.26, "0.3 s"), (59.4, "59 s"), (185, "3 min 05 s"), (4321, "1 h 12 min")],
)
def test_durations(seconds, text):
    assert report.duration(seconds) == text


def test_numbers_and_their_spread():
    from recipe_parts import spread  # loads JAX, which the processes of this file do without

    nan = float("nan")
    data = xarray.Dataset(
        {
            "one": ("seed", [3.0, 1.0, nan, 2.0], {"long_name": "about it"}),
            "loss": (("seed", "flow_time"), [[9.0, 1.0], [9.0, 2.0], [9.0, 5.0], [9.0, 4.0]]),
            "pair": (("mode", "seed"), [[1.0, 1.0, 1.0, 1.0], [nan, nan, nan, nan]]),
            "curve": (("seed", "delta"), [[0.0] * 5] * 4),
            "same_for_all": ("mode", [1.0, 2.0]),
        }
    )
    rows = {row.pop("name"): row for row in spread.spread_over_seeds(data)}
    assert set(rows) == {"one", "loss", "pair[0]", "pair[1]"}
    assert rows["one"] == {"about": "about it", "median": 2.0, "low": 1.0, "high": 3.0, "seeds": 3}
    assert rows["loss"]["median"] == 3.0
    assert rows["loss"]["about"] == " (at the end)"
    assert rows["pair[1]"]["median"] is None


# ------------------------------------------------------------------ the command
@pytest.fixture
def gdln(monkeypatch, tmp_path, command):
    """The command in an empty folder, with two of the tiny recipes for a catalogue."""
    monkeypatch.setattr("gdln_jax._cli.report._all.GDLN", command)
    kept = {name: ENTRIES[name] for name in ("good", "fails")}
    for name in list(recipes.CATALOGUE):
        monkeypatch.delitem(recipes.CATALOGUE, name)
    for name, entry in kept.items():
        monkeypatch.setitem(recipes.CATALOGUE, name, entry)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main.app, list(words), env={"COLUMNS": "200"})


def test_reproduce_all_report_and_quick(gdln, tmp_path):
    done = gdln("report")
    assert done.exit_code == 2
    assert "gdln reproduce all" in done.output
    done = gdln("reproduce", "all", "--seeds", "3")
    assert done.exit_code == 1, done.output
    assert "good             passed, 1 of 1 checks" in done.stdout
    assert (tmp_path / "out" / "index.html").is_file()
    assert json.loads((tmp_path / "out/good/good.json").read_text())["options"] == {"seeds": 3}
    shutil.rmtree(tmp_path / "out" / "good")
    done = gdln("report", "--out", "r.html")
    assert done.exit_code == 1
    assert "fails (checks failed)" in done.output
    assert "good (not run)" in done.output
    (tmp_path / "out" / "fails").rename(tmp_path / "elsewhere")
    monkey = recipes.CATALOGUE.pop("fails")
    done = gdln("report", "--quick")
    recipes.CATALOGUE["fails"] = monkey
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out/good/good.json").read_text())["options"] == {"seeds": 1}
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("out/index.html", "reproduce all"),
        ("out/index.md", "reproduce all"),
        ("out/good/good.md", "reproduce all"),
        ("out/good/good.log", "reproduce all"),
        ("out/good/good.log", "report --quick --out page.html"),
        ("out/report.html", "report --quick"),
    ],
)
def test_files_of_the_user_are_refused_by_name(gdln, tmp_path, place, words):
    own = tmp_path / place
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    done = gdln(*words.split())
    assert done.exit_code == 2, done.output
    assert f"{place}: not written by gdln_jax" in " ".join(done.output.split())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [own]
    assert own.read_text() == "mine"


def test_files_of_an_earlier_run_are_replaced(ran, tmp_path):
    ended, _, out = ran
    entries = [one.entry for one in ended]
    assert report.foreign_files(entries, out) == []
    assert report.foreign_pages(report.index_files(out)) == []
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    for name in ("good", "breaks"):  # the logs of 0.1.0 began with what the recipe said
        (tmp_path / name / f"{name}.log").write_text("estimate: 3 s")
    assert report.foreign_files(entries, tmp_path) == []
    (tmp_path / "breaks" / "breaks.failed.json").unlink()
    assert report.foreign_files(entries, tmp_path) == [tmp_path / "breaks" / "breaks.log"]


def test_a_page_that_the_user_names_is_replaced(gdln, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "named.html").write_text("another page")
    assert gdln("report", "--out", "named.html").exit_code == 1
    assert "figures and checks" in (tmp_path / "named.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "all", "--set", "seeds=1"], "belong to one recipe"),
        (["reproduce", "al"], "no recipe 'al'"),
        (["report", "--out", "x.pdf"], "FILE.html"),
        (["report", "--from", "nowhere"], "no such folder"),
    ],
)
def test_what_is_not_understood_is_exit_code_2(gdln, tmp_path, words, message):
    done = gdln(*words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ the gallery
def test_the_gallery_has_light_pictures_and_says_what_is_missing(ran, tmp_path, monkeypatch):
    _, _, out = ran
    for name in list(recipes.CATALOGUE):
        monkeypatch.delitem(recipes.CATALOGUE, name)
    for name in ("good", "fails", "breaks"):
        monkeypatch.setitem(recipes.CATALOGUE, name, ENTRIES[name])
    gallery = runpy.run_path(str(Path(__file__).parent.parent / "docs" / "gallery.py"))
    noise = np.random.default_rng(0).integers(0, 256, (600, 1400, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    heavy = (tmp_path / "noise.png").stat().st_size
    assert len(gallery["light"](tmp_path / "noise.png")) <= gallery["MAX_BYTES"] < heavy
    text = gallery["write"](None, out, tmp_path).read_text(encoding="utf-8")
    assert sorted(path.name for path in (tmp_path / "gallery").iterdir()) == [
        "fails.png", "good.png",
    ]  # fmt: skip
    assert "so far: good, fails." in text
    assert (
        "| [breaks](#breaks) | N Fig. 0 | not established by this run | E99 | broke off | –" in text
    )
    assert "It is *so*, `a < b`. (0 of 1 checks, short setting)" in text
    assert "> Everything | holds. **Holds**: not for `x < 0`." in text


# ------------------------------------------------------------------ the catalogue
def test_every_recipe_says_what_it_makes_of_the_paper():
    for entry in recipes.CATALOGUE.values():
        assert entry.claim, f"{entry.name}: its catalogue entry needs claim="
        assert entry.standing, f"{entry.name}: its catalogue entry needs standing="
        if entry.standing != "holds":
            assert entry.proviso, f"{entry.name}: its catalogue entry needs proviso="
        assert all(re.fullmatch(r"E\d+", one) for one in entry.errata)
        assert not entry.claim.endswith(".")
        assert not entry.proviso.endswith(".")
