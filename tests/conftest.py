"""What all tests share: float64, one hypothesis profile, the reference values, the data folder."""

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Read when JAX and equinox are imported; processes that tests start inherit them. Programs that
# cannot call back (equinox's checks of diffrax's arguments do) can be kept on disk. Most programs
# run once, so that XLA is to compile fast: by its older emitters and without LLVM's optimisation,
# which `optimised` of recipe_runs.py turns on for runs that take long. Measured against level 1
# (CPU time): 10 to 20 % less in files of recipes, 9 % in that of images, 23 % in test_ties.py.
# jaxlib 0.10 knows the emitters' flag; one that is not known ends the process.
os.environ.setdefault("EQX_ON_ERROR", "nan")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=2"
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10."),
)

import jax
import pytest
from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

# Bytecode is kept even where the environment says not to, as containers do: the tests' own is made
# by pytest, and the package's by jaxtyping, in 11 s (CPU) a process.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
jax.config.update("jax_default_matmul_precision", "highest")

# The same examples in every run; no deadline, since the first example of a shape compiles.
settings.register_profile(
    "gdln",
    derandomize=True,
    deadline=None,
    max_examples=25,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("gdln")

CHECKOUT = Path(__file__).resolve().parent.parent


# ---------------------------------------------------------------- compiled programs
_FOLDER, _OWN = pytest.StashKey[str](), pytest.StashKey[bool]()


def stored_programs(folder: str) -> dict[str, str]:
    """Environment of a process that takes its programs from `folder`, and leaves them there."""
    return {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled programs in a folder of this run, for all of its workers.

    Most of the time goes into compiling, and the same programs are needed in many files. So do
    notebooks and `plain_python`; other processes that tests start do without: they may be killed
    while they write.
    """
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    shared = given or getattr(config, "workerinput", {}).get("programs")
    folder = shared or tempfile.mkdtemp(prefix="gdln-programs-")
    config.stash[_FOLDER], config.stash[_OWN] = folder, not shared
    if not given:
        for name, value in stored_programs(folder).items():
            number = name.startswith("JAX_PERSISTENT")
            jax.config.update(name.lower(), int(value) if number else value)
    # Half-written by the other worker: then the program is compiled.
    config.addinivalue_line("filterwarnings", "ignore:Error reading persistent compilation cache")
    config.addinivalue_line("filterwarnings", "ignore:Error writing persistent compilation cache")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A notebook's kernel takes its programs from the folder, too."""
    if item.path.suffix != ".ipynb":
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in stored_programs(item.config.stash[_FOLDER]).items():
            patch.setenv(name, value)
        patch.setenv("TTY_INTERACTIVE", "0")  # no bars among the outputs
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist the folder."""
    node.workerinput["programs"] = node.config.stash[_FOLDER]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder, in the process that made it."""
    if config.stash.get(_OWN, False):
        shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)


_A_NOTEBOOK = 5  # slow tests take about as long as one


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark notebooks, which cannot carry a marker themselves, and begin with files that take long.

    Those are the files with most slow tests: quick ones at the end let workers end together.
    """
    slow: Counter[Path] = Counter()
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker("slow")
            slow[item.path] += _A_NOTEBOOK
        slow[item.path] += item.get_closest_marker("slow") is not None
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish() -> None:
    """What was imported stays, so that the garbage collector need not go through it, and tracing
    makes many objects that live on, so that looking often is in vain: 4 % of the time of a file.
    """
    gc.freeze()
    gc.set_threshold(20_000)


# Every compiled program maps memory, and Linux ends a process at 65,530 maps (vm.max_map_count).
# A test file adds 5,000 to 12,000, so the programs of earlier files are dropped well before.
_MAPS = Path("/proc/self/maps")
_MAX_MAPS = 20_000


@pytest.fixture(autouse=True, scope="module")
def drop_compiled_programs() -> Iterator[None]:
    """Without this the process is killed by a segmentation fault after some 800 tests."""
    yield
    if _MAPS.exists() and _MAPS.read_text(encoding="utf-8").count("\n") > _MAX_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def reference() -> dict[str, Any]:
    """Values computed independently of this package; `_about` in the file states their origin."""
    return json.loads((CHECKOUT / "tests" / "reference.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def reference_beyond() -> dict[str, Any]:
    """The same for what goes beyond the papers: `noise`, `optimisers`, `tied`."""
    path = CHECKOUT / "tests" / "reference_beyond.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with MNIST and CIFAR-10 in their standard formats, where it exists."""
    folder = CHECKOUT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs MNIST or CIFAR-10 in ../shared/data, which a plain clone does not have")
    return folder


@pytest.fixture(scope="session")
def key() -> jax.Array:
    """The key from which a test that needs randomness starts."""
    return jax.random.key(20220721)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the command in this process, so that it can be given runs that there are already."""
    from command_parts import main as cli

    monkeypatch.setattr(cli._machine, "prepare", lambda: None)  # JAX's flags stay alone
    return lambda *words: CliRunner().invoke(cli.app, [*words], env={"COLUMNS": "250"})


def plain_environment(config: pytest.Config) -> dict[str, str]:
    """Float64, without the run-time shape checks (equinox raises, which is its default)."""
    return {
        **{name: value for name, value in os.environ.items() if name != "EQX_ON_ERROR"},
        **stored_programs(config.stash[_FOLDER]),
        "JAX_ENABLE_X64": "1",
    }


@pytest.fixture(scope="session")
def plain_python(pytestconfig: pytest.Config) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a snippet in a fresh interpreter: float64, without the run-time shape checks.

    For error messages as users see them and for what an import costs.
    """
    known = plain_environment(pytestconfig)

    def run(snippet: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", snippet],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=CHECKOUT,
            env={**known, **environment},
        )

    return run


# Reads snippets, one a line, and answers each by what it printed and the error that it ended with.
_SNIPPETS = """
import contextlib, io, json, sys, traceback
for line in sys.stdin:
    error, said = "", io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(json.loads(line), {})
        except BaseException:
            error = traceback.format_exc()
    print(json.dumps([said.getvalue(), error]), flush=True)
"""


@pytest.fixture(scope="session")
def plainly(pytestconfig: pytest.Config) -> Iterator[Callable[[str], str]]:
    """Runs a snippet as `plain_python` does and returns what it printed.

    One interpreter runs them all, each in a namespace of its own: imports take longer than most
    snippets. What must be the first of its process, or sets flags, needs `plain_python`.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _SNIPPETS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env=plain_environment(pytestconfig),
    ) as worker:
        snippets, answers = worker.stdin, worker.stdout
        assert snippets is not None
        assert answers is not None

        def run(snippet: str) -> str:
            snippets.write(json.dumps(snippet) + "\n")
            snippets.flush()
            said, error = json.loads(answers.readline())
            assert not error, error
            return said

        yield run


@pytest.fixture(scope="session")
def refused_plainly(plainly: Callable[[str], str]) -> Callable[[str], None]:
    """Runs a snippet that lists `attempts`, (function, words): each must raise a ValueError that
    says the words, without the run-time shape checks.
    """
    loop = """
assert attempts
for attempt, words in attempts:
    try:
        attempt()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
"""

    def check(snippet: str) -> None:
        plainly(snippet + loop)

    return check
