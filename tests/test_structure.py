"""The structure of the package: its units, how few imports join them, and in which direction.

A unit is a direct child of `gdln_jax`. The layers themselves are a contract of `lint-imports`
(pyproject.toml); here the numbers are counted that a contract cannot hold.
"""

import ast
import functools
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "gdln_jax"

# Every unit, lowest layer first. A new one gets its name here and its line in the contract.
UNITS = [
    *("_checks", "_citation", "_files", "_machine", "_progress"),
    *("_graph", "_linalg"),
    *("_ode", "_scan"),
    "_data",
    *("_network", "init"),
    *("_paths", "_solution", "rules"),
    *("_flow", "_reduction", "_times", "_train", "exact"),
    *("images", "measures"),
    *("_saddles", "_width", "gates", "race", "relu", "tasks"),
    *("_sweep", "control", "noise", "plot"),
    *("_live", "recipes"),
    "_cli",
]
# What holds the package together and is no idea of its own.
FRAME = {"__init__", "__main__", "_version"}
MOST_UNITS = 35  # 28, `control`, `noise`, `rules`, `_saddles`, `_width`, `_progress`, `_live`
MOST_EDGES_PER_UNIT = 2.5

ANY_PER_1000_LINES = 10
ANY_IN_A_FILE = 9
LONG_FUNCTION, MOST_LONG = 50, 4  # lines of a body, without its docstring
# Public functions alone, whose signatures are a contract; none that is private.
MANY_PARAMETERS = 12
WITH_MANY = {"gradient_flow", "inspect", "sweep", "time_to", "train", "transformed_images"}
MOST_PRIVATE = 10  # import statements of tests, each with its reason beside it


def _unit(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def _edges(of: Path) -> set[tuple[str, str]]:
    """(importer, imported) among units, counted once, imports inside functions included.

    `from gdln_jax import name` of a public name is the interface that users have, and no edge; nor
    is `from gdln_jax.relu import name` in recipes and the command, which are users.
    """
    found = set()
    for path in of.rglob("*.py"):
        module = ".".join((of.name, *path.relative_to(of).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == of.name:
                names = [alias.name for alias in node.names if alias.name.startswith("_")]
                top = node.module == of.name
                for whole in [f"{of.name}.{name}" for name in names] if top else [node.module]:
                    if _unit(module) not in ("recipes", "_cli") or "._" in str(whole):
                        found.add((_unit(module), _unit(str(whole))))
    return {(a, b) for a, b in found if a != b and not {a, b} & FRAME}


def _levels(edges: set[tuple[str, str]], units: set[str]) -> list[set[str]]:
    """The units from the bottom up; raises if some import one another in a circle."""
    levels, rest = [], set(units)
    while rest:
        free = {u for u in rest if not any(a == u and b in rest for a, b in edges)}
        if not free:
            raise ValueError(f"these import one another in a circle: {sorted(rest)}")
        levels.append(free)
        rest -= free
    return levels


def test_every_unit_is_named():
    found = {p.stem for p in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/*.py")}
    assert found - FRAME == set(UNITS)
    assert len(UNITS) <= MOST_UNITS


def test_few_imports_join_the_units_and_none_in_a_circle():
    edges = _edges(PACKAGE)
    # What every entry asks: whether its arguments are right, and whether somebody looks on.
    assert sum(b not in ("_checks", "_progress") for _, b in edges) <= MOST_EDGES_PER_UNIT * len(
        UNITS
    )
    assert len(_levels(edges, set(UNITS))) <= 12


def test_a_circle_is_seen():
    with pytest.raises(ValueError, match=r"circle.*'a', 'b'"):
        _levels({("a", "b"), ("b", "a"), ("c", "a")}, {"a", "b", "c"})


FILES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}


@functools.cache  # not where the file is imported: each worker of xdist imports all
def _trees() -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in FILES.items()}


@functools.cache
def _functions() -> dict[str, ast.FunctionDef]:
    return {
        f"{name}:{node.lineno} {node.name}": node
        for name, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


def _lines(function: ast.FunctionDef) -> int:
    body = function.body[ast.get_docstring(function) is not None :]
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def _parameters(function: ast.FunctionDef) -> int:
    arguments = function.args
    named = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
    return named + (arguments.vararg is not None) + (arguments.kwarg is not None)


def test_types_are_real_ones():
    uses = {
        name: sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))
        for name, tree in _trees().items()
    }
    lines = sum(text.count("\n") for text in FILES.values())
    assert sum(uses.values()) <= ANY_PER_1000_LINES * lines / 1000
    assert not {name: count for name, count in uses.items() if count > ANY_IN_A_FILE}


def test_tests_use_public_names():
    private = [
        (path.name, node.module)
        for path in Path(__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE.name
        for names in [[*str(node.module).split("."), *(alias.name for alias in node.names)]]
        if any(name.startswith("_") and name != "__version__" for name in names)
    ]
    assert len(private) <= MOST_PRIVATE, private


def test_the_formatter_has_no_exception():
    assert not [name for name, text in FILES.items() if "fmt: " in text]


def test_docstrings_have_one_form():
    marks = "**Arguments", "**Raises", "**Returns", ":param ", "Parameters\n    ---"
    assert not [name for name, text in FILES.items() if any(mark in text for mark in marks)]


def test_functions_are_short_and_take_few_parameters():
    long = {name: _lines(f) for name, f in _functions().items() if _lines(f) > LONG_FUNCTION}
    assert len(long) <= MOST_LONG, long
    assert {f.name for f in _functions().values() if _parameters(f) > MANY_PARAMETERS} <= WITH_MANY
    many = [name for name, f in _functions().items() if _parameters(f) > MANY_PARAMETERS]
    assert len(many) <= len(WITH_MANY), many


def test_long_functions_and_many_parameters_are_counted():
    text = "def f(a, /, b, *c, d, **e):\n    'Two lines.'\n    x = 1\n    return x\n"
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert (_lines(function), _parameters(function)) == (2, 5)
