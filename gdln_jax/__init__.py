"""gdln_jax: gated deep linear networks in JAX.

The public names stand in `__init__.pyi`, in the order of the workflow: for type checkers as they
are, and read below for a run. A module is imported when one of its names is first used (PEP 562),
so that `import gdln_jax` loads neither JAX nor anything else of the package.
"""

import ast
import importlib
from pathlib import Path

from gdln_jax._version import __version__ as __version__

# name -> the module that has it; a namespace such as `exact` has itself.
_MODULE_OF = {
    alias.name: statement.module if statement.module != __name__ else f"{__name__}.{alias.name}"
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(statement, ast.ImportFrom) and statement.module
    for alias in statement.names
    if alias.name != "__version__"
}
__all__ = list(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]
# Modules of 0.1, and where their names are.
_ASKED = {
    "losses": "its functions are gdln.mse and gdln.cross_entropy",
    "report": "the command gdln report writes the page",
    "cli": "the command is gdln, or python -m gdln_jax",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        from gdln_jax._checks import missing

        raise missing(f"module {__name__!r}", name, __all__, _ASKED)
    module = importlib.import_module(_MODULE_OF[name])
    value = module if _MODULE_OF[name] == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
