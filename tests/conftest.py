"""What all tests share: float64, one hypothesis profile, the reference values, the data folder."""

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_enable_x64", True)
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


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled programs in a folder of this run, for all of its workers.

    Most of the time goes into compiling, and the same programs are needed in many files. Processes
    that tests start do without: they may be killed while they write.
    """
    shared = getattr(config, "workerinput", {}).get("programs")
    folder = shared or tempfile.mkdtemp(prefix="gdln-programs-")
    config.stash[_FOLDER], config.stash[_OWN] = folder, not shared
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # Half-written by the other worker: then the program is compiled.
    config.addinivalue_line("filterwarnings", "ignore:Error reading persistent compilation cache")
    config.addinivalue_line("filterwarnings", "ignore:Error writing persistent compilation cache")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist the folder."""
    node.workerinput["programs"] = node.config.stash[_FOLDER]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder, in the process that made it."""
    if config.stash.get(_OWN, False):
        shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notebooks cannot carry a marker themselves, and all take more than a few seconds."""
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker("slow")


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
    """The same for what goes beyond the papers: `noise`."""
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


@pytest.fixture(scope="session")
def plain_python() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a snippet in a fresh interpreter: float64, without the run-time shape checks.

    For error messages as users see them (PITFALLS 14) and for what an import costs.
    """

    def run(snippet: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", snippet],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=CHECKOUT,
            env={**os.environ, "JAX_ENABLE_X64": "1", **environment},
        )

    return run


@pytest.fixture(scope="session")
def refused_plainly(plain_python: Any) -> Callable[[str], None]:
    """Runs a snippet that lists `attempts`, (function, words): each must raise a ValueError that
    says the words, without the run-time shape checks.
    """
    loop = """
for attempt, words in attempts:
    try:
        attempt()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print(len(attempts), "refused")
"""

    def check(snippet: str) -> None:
        done = plain_python(snippet + loop)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[-2]) > 0

    return check
