"""What is handed out: wheel and sdist build, hold what they must, and work from there."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import CHECKOUT

pytestmark = pytest.mark.slow

USER_PROGRAM = '''"""What a user writes, with the types that it relies on."""

from typing import assert_type

import jax
import numpy as np
import optax

import gdln_jax as gdln

graph = gdln.Graph.chain([4, 16, 7])
data = gdln.GatedData({"x": np.eye(4)}, {"y": np.ones((4, 7))}, {"h1": [1, 1, 0, 1]})
net = gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), key=jax.random.key(0))
run = gdln.train(net, data, optimizer=optax.sgd(0.1), steps=10)
flow = gdln.gradient_flow(net, data, np.linspace(0.0, 1.0, 3))
assert_type(run, gdln.Trajectory)
assert_type(flow, gdln.Trajectory)
reduction = gdln.reduce(graph, data)
assert_type(reduction, gdln.Reduction)
assert_type(reduction.solve(0.1, [0.0, 1.0]), gdln.ReducedTrajectory)
assert_type(reduction.quotient(0.1), gdln.Quotient)
assert_type(gdln.time_to(0.25, curve=lambda t: gdln.exact.xor_loss(t, 1e-3)), gdln.Crossing)
time: jax.Array = gdln.flow_time(run.ts, 0.1)
'''

WRONG_PROGRAM = """
import gdln_jax as gdln

gdln.Graph.chain("4, 16, 7", 3)
gdln.no_such_name
"""

IMPORTS = """
import importlib, json, pkgutil, warnings
import gdln_jax

for name in gdln_jax.__all__:
    getattr(gdln_jax, name)
assert "saxe2022neural" in gdln_jax.citation()
for module in pkgutil.walk_packages(gdln_jax.__path__, "gdln_jax."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(json.dumps([gdln_jax.__file__, gdln_jax.__version__]))
"""


def finished(*command, cwd, **environment):
    """Run a command to its end."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    done = finished(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", out, CHECKOUT, cwd=out
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A folder that holds the wheel's contents alone, as pip lays them out."""
    target = tmp_path_factory.mktemp("installed")
    done = finished(
        *(sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-index"),
        *("--target", target, built[1]),
        cwd=target,
    )
    assert done.returncode == 0, done.stderr
    return target


def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = zipfile.ZipFile(built[1]).namelist()
    assert "gdln_jax/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"gdln_jax"}
    source = {
        path.relative_to(CHECKOUT).as_posix()
        for path in (CHECKOUT / "gdln_jax").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert source <= set(names), "templates and data files travel too"
    assert not [name for name in names if name.endswith((".png", ".ipynb", ".nc"))]
    assert built[1].stat().st_size < 1.5e6


def test_the_sdist_holds_what_its_readme_links_to(built):
    with tarfile.open(built[0]) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    for needed in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        assert needed in names
    for needed in ("CONTRIBUTING.md", "docs/routing.png", "docs/sweep.md", "tests/conftest.py"):
        assert needed in names
    made = [name for name in names if name.startswith(("tests/", "benchmarks/", "out/"))]
    assert not [name for name in made if name.endswith((".png", ".pdf", ".nc", ".npz"))]
    assert built[0].stat().st_size < 10e6


def test_every_name_and_room_imports_from_the_wheel(installed):
    done = finished(sys.executable, "-c", IMPORTS, cwd=installed, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    where, version = json.loads(done.stdout.splitlines()[-1])
    assert where.startswith(str(installed))
    assert (installed / f"gdln_jax-{version}.dist-info").is_dir()


def test_the_command_runs_from_the_wheel(installed):
    done = finished(
        sys.executable, "-m", "gdln_jax", "list", cwd=installed, PYTHONPATH=str(installed)
    )
    assert done.returncode == 0, done.stderr
    assert "routing" in done.stdout


@pytest.mark.parametrize(
    ("program", "errors"),
    [(USER_PROGRAM, []), (WRONG_PROGRAM, ["reportCallIssue", "reportAttributeAccessIssue"])],
    ids=["right", "wrong"],
)
def test_a_user_program_is_type_checked_against_the_wheel(installed, tmp_path, program, errors):
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    settings = {"extraPaths": [str(installed)], "include": ["program.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = finished(
        *(sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable),
        cwd=tmp_path,
        PYRIGHT_PYTHON_IGNORE_WARNINGS="1",
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    rules = [one.get("rule") for one in found if one["severity"] == "error"]
    assert set(errors) <= set(rules), done.stdout
    assert bool(rules) == bool(errors), done.stdout
