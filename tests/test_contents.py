"""The table of contents: every name resolves, lists agree, and the import costs nothing."""

import ast
import importlib
from pathlib import Path

import pytest

gdln = importlib.import_module("gdln_jax")  # as users see it, not as the type checker does

SOURCE = Path(str(gdln.__file__)).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", gdln.__all__)
def test_every_name_resolves(name):
    value = getattr(gdln, name)
    assert value is getattr(gdln, name)
    assert name in dir(gdln)
    assert value.__doc__, f"{name} has no docstring"


def test_the_type_checker_sees_the_same_names_in_the_same_order():
    branch = next(
        node
        for node in ast.parse(SOURCE).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen, rooms = [], {}
    for node in branch.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "an explicit re-export is `X as X`"
            seen.append(alias.name)
            room = "" if node.module == "gdln_jax" else str(node.module).removeprefix("gdln_jax.")
            rooms[alias.name] = room or alias.name
    assert sorted(seen) == sorted(gdln.__all__)
    assert rooms == gdln._ROOM_OF


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = gdln.no_such_name


def test_every_room_says_what_it_is():
    for path in sorted(Path(str(gdln.__file__)).parent.rglob("*.py")):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path.name


def test_a_name_wins_over_the_room_of_the_same_name(plain_python):
    # `sweep` is both a room and the function that it hands on; in either order of imports.
    snippet = (
        "import gdln_jax as gdln, gdln_jax.sweep, sys\n"
        "room = sys.modules['gdln_jax.sweep']\n"
        "room.sweep = len; gdln._ROOMS['sweep'] = ('sweep',)\n"
        "gdln.sweep = room  # what the import machinery does\n"
        "assert gdln.sweep is len"
    )
    done = plain_python(snippet)
    assert done.returncode == 0, done.stderr


def test_import_is_cheap_and_flips_no_flag(plain_python):
    snippet = (
        "import sys, gdln_jax\n"
        "heavy = {'jax', 'numpy', 'matplotlib', 'xarray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from gdln_jax import citation, recipes\n"
        "assert 'jax' not in sys.modules\n"
        "import jax; assert not jax.config.jax_enable_x64\n"
        "assert recipes.load and citation()"
    )
    done = plain_python(snippet, JAX_ENABLE_X64="0")
    assert done.returncode == 0, done.stderr


def test_citation():
    both = gdln.citation()
    assert "2207.10430" in both
    assert "2503.06181" in both
    assert gdln.citation("saxe2022") in both
    with pytest.raises(ValueError, match=r"saxe2023.*saxe2022"):
        gdln.citation("saxe2023")
