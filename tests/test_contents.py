"""The public names: each resolves and is in the stub, and the import costs nothing."""

import ast
import importlib
from pathlib import Path

import pytest

gdln = importlib.import_module("gdln_jax")  # as users see it, not as the type checker does

STUB = Path(str(gdln.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", gdln.__all__)
def test_every_name_resolves(name):
    value = getattr(gdln, name)
    assert value is getattr(gdln, name)
    assert name in dir(gdln)
    assert value.__doc__, f"{name} has no docstring"
    assert name == "STATUS" or "saxe2022neural" in gdln.citation(value)


def test_the_stub_names_everything_once_by_its_module():
    seen = []
    for node in ast.parse(STUB).body[1:]:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "an explicit re-export is `X as X`"
            seen.append(alias.name)
    assert sorted(seen) == sorted({*gdln.__all__, "__version__"})


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = gdln.no_such_name
    with pytest.raises(AttributeError, match=r"redcue.*did you mean 'reduce'"):
        _ = gdln.redcue


def test_every_module_says_what_it_is():
    for path in sorted(Path(str(gdln.__file__)).parent.rglob("*.py")):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path.name


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
