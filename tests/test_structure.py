"""The structure of the package: its units, how few imports join them, and in which direction.

A unit is a direct child of `gdln_jax`. The layers themselves are a contract of `lint-imports`
(pyproject.toml); here the numbers are counted that a contract cannot hold.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "gdln_jax"

# Every unit, lowest layer first. A new one gets its name here and its line in the contract.
UNITS = [
    *("_checks", "_citation", "_files", "_machine"),
    *("_graph", "_linalg"),
    *("_ode", "_scan"),
    "_data",
    *("_network", "init"),
    *("_paths", "_solution", "rules"),
    *("_flow", "_reduction", "_times", "_train", "exact"),
    *("images", "measures"),
    *("_width", "gates", "race", "relu", "tasks"),
    *("_sweep", "noise", "plot"),
    "recipes",
    "_cli",
]
# What holds the package together and is no idea of its own.
FRAME = {"__init__", "__main__", "_version"}
MOST_UNITS = 31  # 28, `noise`, `rules` and `_width`; 33 with all that is planned
MOST_EDGES_PER_UNIT = 2.6  # 2.5, and _reduction to rules and _scan


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
    assert sum(b != "_checks" for _, b in edges) <= MOST_EDGES_PER_UNIT * len(UNITS)
    assert len(_levels(edges, set(UNITS))) <= 12


def test_a_circle_is_seen():
    with pytest.raises(ValueError, match=r"circle.*'a', 'b'"):
        _levels({("a", "b"), ("b", "a"), ("c", "a")}, {"a", "b", "c"})
