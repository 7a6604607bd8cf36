"""The command: exit codes, messages, what it writes, and that it starts quickly."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import xarray
from command_parts import main as cli
from matplotlib.figure import Figure
from tiny_recipes import RecipeOptions, check, tiny
from typer.testing import CliRunner

from gdln_jax import recipes
from gdln_jax.recipes import OptionError, Result

RUNS = []  # the options of every run


@dataclass(frozen=True)
class Options(RecipeOptions):
    seeds: int = 3
    error: float = 1e-9
    refuse: bool = False
    interrupt: bool = False


def run(options, progress):
    progress(0.5, "half way")
    RUNS.append(options)
    if options.interrupt:
        raise KeyboardInterrupt
    if options.refuse:
        raise OptionError("base.npz has no array 'x'")
    data = xarray.Dataset({"number": ("seed", list(range(options.seeds)))})
    checks = (check(options.error, "[relative]"),)
    return Result("fake", data, checks, Figure, "It agrees.", ("a note",))


@pytest.fixture
def gdln(monkeypatch, tmp_path):
    """Runs the command in an empty folder, with one tiny recipe, and leaves JAX's flags alone."""
    monkeypatch.setitem(recipes.CATALOGUE, "fake", tiny("fake", run, Options, {"seeds": 1}))
    monkeypatch.setattr(cli._machine, "prepare", lambda: None)
    monkeypatch.chdir(tmp_path)
    RUNS.clear()
    return lambda *words: CliRunner().invoke(cli.app, list(words), env={"COLUMNS": "200"})


def test_list(gdln):
    done = gdln("list")
    assert done.exit_code == 0
    assert "nothing at all" in done.stdout


def test_list_of_one_recipe_names_its_options(gdln):
    done = gdln("list", "fake")
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["seeds", "int", "3", "1"] in rows  # takes, default, short setting
    assert ["refuse", "bool", "False"] in rows
    done = gdln("list", "fak")
    assert done.exit_code == 2
    assert "did you mean 'fake'" in done.output


def test_names_are_completed(gdln):
    assert cli._recipe_names("fa") == ["fake"]
    assert "all" in cli._recipe_names("")


def test_reproduce_writes_and_reports(gdln, tmp_path):
    done = gdln("reproduce", "fake", "--seeds", "2")
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "out" / "fake" / "fake.json").read_text())
    assert record["run"]["seconds"] >= 0
    assert record["run"]["quick"] is False
    assert "cpu" in record["run"]["machine"]["devices"]
    assert [row["name"] for row in record["numbers"]] == ["number"]
    assert "passed" in done.stdout
    assert "[relative]" in done.stdout
    assert "It agrees." in done.stdout
    assert len(list((tmp_path / "out" / "fake").iterdir())) == 6
    with xarray.open_dataset(tmp_path / "out" / "fake" / "fake.nc", engine="h5netcdf") as data:
        assert data.sizes == {"seed": 2}
        assert '"seeds": 2' in data.attrs["options"]


def test_quick_is_a_start_that_settings_override(gdln, tmp_path):
    for words, seeds in ((["--quick"], 1), (["--quick", "--set", "seeds=4"], 4)):
        assert gdln("reproduce", "fake", "--out", "x", *words).exit_code == 0
        with xarray.open_dataset(tmp_path / "x" / "fake.nc", engine="h5netcdf") as data:
            assert data.sizes == {"seed": seeds}


def test_a_failed_check_is_exit_code_1(gdln, tmp_path):
    done = gdln("reproduce", "fake", "--set", "error=1")
    assert done.exit_code == 1
    assert "FAILED" in done.stdout
    assert (tmp_path / "out" / "fake" / "fake.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fak"], "did you mean 'fake'"),
        (["fake", "--set", "seed=1"], "did you mean 'seeds'"),
        (["fake", "--set", "seeds=many"], "seeds takes int"),
        (["fake", "--set", "seeds"], "key=value"),
        (["fake", "--seeds", "1", "--set", "seeds=2"], "both"),
        (["fake", "--seeds", "0"], "--seeds"),
        (["fake", "--base", "digits"], "no --base"),
        (["fake", "--out", "a_file"], "is a file"),
        (["fake", "--set", "refuse=true"], "no array 'x'"),
        (["fake", "--no-such"], "No such option"),
        ([], "NAME"),
    ],
)
def test_what_is_not_understood_is_exit_code_2_and_leaves_nothing(gdln, tmp_path, words, message):
    (tmp_path / "a_file").touch()
    done = gdln("reproduce", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["a_file"]


def test_an_interruption_is_exit_code_130_and_leaves_nothing(gdln, tmp_path):
    assert gdln("reproduce", "fake", "--set", "interrupt=yes").exit_code == 130
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ signals
# XLA compiles for a minute in a thread of its own while a signal comes.
COMPILES = """
import pathlib, signal, sys
sys.path.insert(0, {tests!r})
from tiny_recipes import RecipeOptions, tiny
from command_parts import main as cli
from gdln_jax import recipes

signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background

def run(options, progress):
    import jax
    def program(x):
        for k in range(1500):
            x = jax.numpy.sin(x @ x + k)
        return x
    traced = jax.jit(program).lower(jax.numpy.ones((8, 8)))
    pathlib.Path("compiles").touch()
    traced.compile()

recipes.CATALOGUE["slow"] = tiny("slow", run, RecipeOptions)
sys.argv = ["gdln", "reproduce", "slow"]
cli.main()
"""


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
        ([signal.SIGINT, signal.SIGTERM, signal.SIGINT], 130),  # as from `reproduce all`
    ],
)
def test_a_signal_while_xla_compiles_neither_crashes_nor_leaves_anything(tmp_path, numbers, code):
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    work = tmp_path / "work"
    work.mkdir()
    script = COMPILES.format(tests=str(Path(__file__).parent))
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=work, env=environment, stderr=subprocess.PIPE
    )
    while not (work / "compiles").exists():
        assert process.poll() is None
        time.sleep(0.02)
    for number in numbers:
        process.send_signal(number)
    said = process.communicate(timeout=30)[1].decode()
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert [path.name for path in work.iterdir()] == ["compiles"]


def test_a_signal_during_the_imports_is_as_one_that_comes_later(plain_python):
    snippet = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import runpy; runpy.run_module('gdln_jax', run_name='__main__')"
    )
    done = plain_python(snippet)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")


def test_an_interruption_is_not_lost(plain_python, tmp_path):
    """In callbacks of the garbage collector and in destructors Python only prints exceptions; and
    an entry of JAX's cache that breaks off would be refused by every later run.
    """
    snippet = f"""
import gc, pathlib, signal, time
from gdln_jax._cli import signals as _signals
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupted(act):
    try:
        with _signals.raised():
            act()
            time.sleep(10)
    except KeyboardInterrupt:
        print("interrupted")

def collects():
    def callback(*_):
        gc.callbacks.remove(callback)
        signal.raise_signal(signal.SIGINT)
    gc.callbacks.append(callback)
    gc.collect()

class Thing:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

interrupted(collects)
interrupted(Thing)

from jax._src.lru_cache import LRUCache
write = pathlib.Path.write_bytes
def halves(path, content):
    signal.raise_signal(signal.SIGINT)
    return write(path, content)
pathlib.Path.write_bytes = halves
interrupted(lambda: LRUCache({str(tmp_path)!r}, max_size=-1).put("program", b"whole"))
"""
    done = plain_python(snippet)
    assert done.stdout.splitlines() == ["interrupted"] * 3, done.stderr
    assert not done.stderr
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


# ------------------------------------------------------------------ places
def _gone(folder, monkeypatch):
    """A working folder that somebody else removes."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()


@pytest.mark.parametrize("command", ["reproduce fake", "reproduce all", "report --quick", "draw"])
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("/proc/gdln", "cannot be written: No such file"),
        ("{long}/x", "cannot be written: File name too long"),
        ("a_file/x", "a part of it is a file"),
        ("gone", "cannot be written: No such file"),
        ("full", "cannot be written: No space left"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_first(
    gdln, tmp_path, monkeypatch, command, place, message
):
    (tmp_path / "a_file").touch()
    specification = tmp_path / "net.toml"
    specification.write_text('edges = [["x", "y"]]\n[nodes]\nx = 1\ny = 1\n')
    before = sorted(tmp_path.iterdir())
    if place == "gone":
        _gone(tmp_path / "gone", monkeypatch)
    if place == "full":
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "wb"))  # noqa: PTH123, SIM115
    name = {"report --quick": "page.html", "draw": "net.svg"}.get(command, "folder")
    words = [*command.split(), *([str(specification)] if command == "draw" else [])]
    done = gdln(*words, "--out", f"{place.format(long='x' * 300)}/{name}")
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.replace("│", " ").split())
    assert not RUNS
    assert sorted(tmp_path.iterdir()) == before


def test_a_disk_that_is_full_at_the_end_is_one_line(plain_python, tmp_path):
    """And an output that takes nothing."""
    specification = tmp_path / "net.toml"
    specification.write_text('edges = [["x", "y"]]\n[nodes]\nx = 1\ny = 1\n')
    snippet = (
        "import errno, os, sys\nfrom gdln_jax._cli.main import main\n"
        "def full(_): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "os.fsync = full\nsys.argv = ['gdln', 'draw', {!r}]\nmain()"
    )
    done = plain_python(snippet.format(str(specification)))
    assert done.returncode == 1
    assert done.stderr == f"gdln: [Errno 28] No space left on device: '{tmp_path / 'net.png'}'\n"
    assert [path.name for path in tmp_path.iterdir()] == ["net.toml"]
    with Path("/dev/full").open("wb") as output:
        words = [sys.executable, "-m", "gdln_jax", "list"]
        done = subprocess.run(words, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "gdln: [Errno 28] No space left on device\n")


def test_a_terminal_without_the_characters_shows_others(plain_python, tmp_path):
    specification = tmp_path / "hé.toml"
    specification.write_text('edges = [["x", "y"]]\n[nodes]\nx = 1\ny = 1\n')
    snippet = (
        "import sys\nfrom gdln_jax._cli.main import main\n"
        f"sys.argv = ['gdln', 'draw', {str(specification)!r}]\nmain()"
    )
    done = plain_python(snippet, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "h?.png" in done.stdout
    assert specification.with_suffix(".png").exists()


def test_files_of_the_user_are_refused_by_name(gdln, tmp_path):
    own = tmp_path / "existing" / "fake.md"
    own.parent.mkdir()
    own.write_text("my notes")
    done = gdln("reproduce", "fake", "--out", "existing")
    assert done.exit_code == 2
    assert "existing/fake.md: not written by gdln_jax" in " ".join(done.output.split())
    assert (list(own.parent.iterdir()), own.read_text()) == ([own], "my notes")
    assert not RUNS
    own.unlink()
    for _ in range(2):  # those of an earlier run are replaced
        assert gdln("reproduce", "fake", "--out", "existing").exit_code == 0


def test_commands_are_suggested_and_exit_codes_are_in_the_help(gdln):
    done = gdln("reprduce")
    assert done.exit_code == 2
    assert "Did you mean 'reproduce'?" in done.output
    shown = " ".join(gdln("--help").output.split())
    assert "1 a check or a recipe failed" in shown
    for command in ("list", "reproduce", "report", "draw", "bench", "info"):
        assert command in shown
    assert gdln("--version").output.startswith("gdln_jax ")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("draw", ('edges = [["x", "h"], ["h", "y"]], then [nodes] with', "[gates], [labels]")),
        ("draw", ("[default: (FILE.png)]",)),
        ("report", ("[default: (DIR/report.html)]",)),
        ("reproduce", ("[default: (out/NAME, or out)]",)),
    ],
)
def test_the_help_shows_what_stands_in_brackets(gdln, monkeypatch, command, said):
    """Brackets are markup to rich: unless escaped, they and their content disappear."""
    monkeypatch.setenv("COLUMNS", "200")
    shown = " ".join(gdln(command, "--help").output.split())
    for text in said:
        assert text in shown


def test_bench_hands_on_its_arguments(gdln, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "gdln_jax" / "cli.py"))
    done = gdln("bench")
    assert done.exit_code == 2
    assert "checkout" in done.output
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text("import sys; print(sys.argv[1:]); sys.exit(7)")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "argv", sys.argv)
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    done = gdln("bench", "core", "--quick", "--help")
    assert "['core', '--quick', '--help']" in done.output
    assert done.exit_code == 7


def test_help_imports_nothing_heavy_and_starts_quickly(plain_python):
    snippet = (
        "import sys; sys.argv = ['gdln', '--help']\n"
        "from gdln_jax._cli.main import main\n"
        "try: main()\nexcept SystemExit as stop: assert not stop.code\n"
        "assert not {'jax', 'numpy', 'matplotlib', 'xarray', 'pandas'} & set(sys.modules)"
    )
    seconds = []
    for _ in range(3):
        start = sum(os.times()[2:4])
        done = plain_python(snippet)
        seconds.append(sum(os.times()[2:4]) - start)
        assert done.returncode == 0, done.stderr
        assert "reproduce" in done.stdout
    # Of the processor, so that a busy machine counts as an idle one; a quarter on an idle one.
    assert min(seconds) < 1.0


def test_info_sets_precision_and_cache(plain_python, tmp_path):
    snippet = (
        "import sys; sys.argv = ['gdln', 'info']\n"
        "from gdln_jax._cli.main import main\n"
        "try: main()\nexcept SystemExit as stop: assert not stop.code\n"
    )
    done = plain_python(
        snippet,
        JAX_ENABLE_X64="0",
        XDG_CACHE_HOME=str(tmp_path),
        JAX_COMPILATION_CACHE_DIR="",
        COLUMNS="300",
    )
    assert done.returncode == 0, done.stderr
    assert "float64" in done.stdout
    for fact in ("python", "jaxlib", "diffrax", "platform", "cores", "devices", "memory maps"):
        assert fact in done.stdout
    assert "XDG" not in done.stdout  # only what changes JAX or the command
    assert str(tmp_path / "gdln_jax" / "compiled") in done.stdout
    assert (tmp_path / "gdln_jax" / "compiled").is_dir()


def test_without_a_folder_for_the_cache_it_runs_all_the_same(plain_python, tmp_path):
    (tmp_path / "file").touch()
    snippet = "from gdln_jax._cli import main as cli; print(cli._machine.prepare())"
    done = plain_python(
        snippet, XDG_CACHE_HOME=str(tmp_path / "file"), JAX_COMPILATION_CACHE_DIR=""
    )
    assert done.stdout.startswith("off: "), done.stderr


def test_without_a_home_folder_it_runs_all_the_same(plain_python, tmp_path):
    """A container's user id without an account: no HOME, and no entry that says it."""
    snippet = (
        "import os, pwd, sys\n"
        "def nobody(number): raise KeyError(number)\n"
        "pwd.getpwuid = nobody\nos.environ.pop('HOME', None)\n"
        "from gdln_jax import plot\nfrom gdln_jax._cli.main import main\n"
        "sys.argv = ['gdln', 'info']\nmain()"
    )
    unset = {"XDG_CACHE_HOME": "", "JAX_COMPILATION_CACHE_DIR": "", "COLUMNS": "200"}
    done = plain_python(snippet, **unset, MPLCONFIGDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "off: this user has no home folder; set JAX_COMPILATION_CACHE_DIR" in done.stdout


@pytest.mark.parametrize("address", ["gs://bucket/programs", "s3://bucket"])
def test_a_cache_at_an_address_is_passed_on_or_refused(monkeypatch, tmp_path, address):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", address)
    monkeypatch.setattr("gdln_jax._machine.find_spec", lambda _: None)
    assert "etils" in cli._machine.cache_folder()[1]
    monkeypatch.setattr("gdln_jax._machine.find_spec", lambda name: name)
    assert cli._machine.cache_folder() == (address, "")
    assert list(tmp_path.iterdir()) == []


def test_places_may_start_at_home(gdln, monkeypatch, tmp_path):
    """No shell expands `--out=~/x`."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "~/programs")
    assert cli._machine.cache_folder() == (str(tmp_path / "home" / "programs"), "")
    assert gdln("reproduce", "fake", "--out=~/results").exit_code == 0
    assert (tmp_path / "home" / "results" / "fake.md").is_file()
    done = gdln("reproduce", "fake", "--out=~nobody-of-this-name/x")
    assert done.exit_code == 2
    assert "this user has no home folder" in " ".join(done.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
