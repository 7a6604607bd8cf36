"""How quickly things start: help, import, and the first figure without and with a warm cache."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.table import Row

# What gdln_jax names in its dependencies, as modules.
_DEPENDENCIES = (
    "jax", "equinox", "diffrax", "optax", "optimistix", "lineax", "jaxtyping", "numpy", "scipy",
    "matplotlib", "xarray", "h5netcdf", "h5py", "sklearn", "typer", "rich",
)  # fmt: skip
_EVERYTHING = "import gdln_jax\nfor name in gdln_jax.__all__: getattr(gdln_jax, name)\n"
# Scripts after their imports.
_SCRIPTS = {
    "reduce, solve, flow": """
task = gdln.tasks.routing(4, 2)
reduction = gdln.reduce(task.graph, task.data)
net = gdln.GatedNetwork.init(task.graph, gdln.init.orthogonal(0.1), key=jax.random.key(0))
b0, ts = gdln.effective_initial(reduction, net).strengths, jnp.linspace(0, 20, 51)
reduction.solve(b0, ts), gdln.gradient_flow(net, task.data, ts)
""",
    "gradient of a learning time": """
task = gdln.tasks.routing(4, 2)
reduction = gdln.reduce(task.graph, task.data)
b0 = reduction.strengths_of(0.1)
time = lambda s: reduction.time_to(10.0, jax.tree.map(lambda x: s * x, b0), t1=50.0).time
print(jax.grad(time)(1.0))
""",
}
# As multiples of the imports: cold, and in the second process.
_GOALS = {"README's ten lines": (2.5, 1.4), "reduce, solve, flow": (None, 1.6)}
_MEASURED = """
import sys, time
import gdln_jax as gdln
gdln.configure(cache=True, error_callbacks=False)
import diffrax, jax, jax.numpy as jnp, lineax, matplotlib.pyplot, numpy, optax, optimistix, scipy
for name in gdln.__all__: getattr(gdln, name)
jax.config.update("jax_enable_x64", True)
imports = time.process_time()
exec(sys.argv[1], dict(globals()))
print(imports, time.process_time())
"""
_HELP = "import sys; sys.argv = ['gdln', '--help']\nfrom gdln_jax._cli.main import main\nmain()\n"


def measure(quick: bool) -> list[Row]:
    """Rows of whole processes, interpreter and all; the median of those after the first."""
    repeats = 2 if quick else 5
    rows = [_limited("gdln --help", "a process", _HELP, 0.5, repeats)]
    rows += _import_rows(repeats)
    if not quick:
        rows += _first_minute() + _first_figure()
    return rows


def _first_minute() -> list[Row]:
    """Whole scripts against their imports, in processor time, without and with kept programs."""
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    ten = readme.split("## Ten lines")[1].split("```python\n")[1].split("```")[0]
    rows = []
    for what, script in {"README's ten lines": ten, **_SCRIPTS}.items():
        with tempfile.TemporaryDirectory() as folder:
            given = {"MPLBACKEND": "agg", "JAX_COMPILATION_CACHE_DIR": folder}
            code = script.replace("both.png", f"{folder}/both.png")
            printed = [_run([sys.executable, "-c", _MEASURED, code], given) for _ in range(2)]
        (_, cold), (imports, warm) = [map(float, text.split()[-2:]) for text in printed]
        goals = [None if goal is None else 1 / goal for goal in _GOALS.get(what, (None, None))]
        rows.append(
            Row(what, "processor time", "the imports", cold, warm, imports,
                goal=goals[1], cold_goal=goals[0])
        )  # fmt: skip
    return rows


def _limited(what: str, sizes: str, code: str, limit: float, repeats: int) -> Row:
    taken = [_process(code) for _ in range(repeats + 1)]
    return Row(what, sizes, "", taken[0], float(np.median(taken[1:])), limit=limit)


def _import_rows(repeats: int) -> list[Row]:
    """`import gdln_jax` and all of its modules, against the modules of other packages they load."""
    listing = _EVERYTHING + (
        f"import sys; known = {_DEPENDENCIES!r}\n"
        "print(*sorted(m for m in sys.modules if m.split('.')[0] in known))"
    )
    modules = _run([sys.executable, "-c", listing], {}).split()
    # The top of every package, then whatever else of it is loaded, as a reader of its docs would.
    alone = "\n".join(f"import {m}" for m in modules if not _private(m))
    _process(alone)
    first = _process(_EVERYTHING), _process("import gdln_jax")
    runs = [[_process(c) for c in (_EVERYTHING, "import gdln_jax", alone)] for _ in range(repeats)]
    every, bare, theirs = np.median(np.array(runs), axis=0).tolist()
    packages = sorted({m.split(".")[0] for m in modules})
    baseline = f"import of {', '.join(packages)}"
    return [
        Row(
            "import gdln_jax", "a process", baseline, first[1], bare, theirs,
            goal=round(1 / 1.1, 3), note="Names load when they are first used.",
        ),
        Row("import of every public name", "a process", baseline, first[0], every, theirs),
    ]  # fmt: skip


def _private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))


def _first_figure() -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {"XDG_CACHE_HOME": folder, "JAX_COMPILATION_CACHE_DIR": ""}
        code = (
            "import sys; from gdln_jax._cli.main import main\n"
            f"sys.argv = ['gdln', 'reproduce', 'routing', '--out', {str(Path(folder) / 'out')!r}]\n"
            "main()\n"
        )
        for what, limit in (("without a cache", 60.0), ("with a warm cache", 30.0)):
            taken = _process(code, environment)
            rows.append(
                Row(f"first figure (gdln reproduce routing), {what}", "2 cores", "", None, taken,
                    limit=limit)
            )  # fmt: skip
    return rows


def _process(code: str, environment: dict[str, str] | None = None) -> float:
    start = time.perf_counter()
    _run([sys.executable, "-c", code], environment or {})
    return time.perf_counter() - start


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode:
        raise RuntimeError(f"{command[-1]!r} failed:\n{done.stderr[-2000:]}")
    return done.stdout
