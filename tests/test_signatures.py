"""`help()` is readable: signatures of public callables are short, through named types."""

import importlib
import inspect
import types

import pytest
from jaxtyping import TypeCheckError

import gdln_jax as gdln

LONGEST = 400
SPACES = [
    gdln,
    *(
        importlib.import_module(f"gdln_jax.{name}")
        for name in dir(gdln)
        if isinstance(getattr(gdln, name), types.ModuleType)
    ),
]


def callables():
    """Name -> public function, method, or class that users make objects of.

    Not the classes of results, which functions make: their signatures list the fields.
    """
    found = {}
    for space in SPACES:
        for name in dir(space):
            value = getattr(space, name)
            if inspect.isclass(value):
                methods = {one: getattr(value, one) for one in dir(value) if one[0] != "_"}
                found |= {f"{name}.{one}": method for one, method in methods.items()}
                if not hasattr(value, "to_xarray"):
                    found[name] = value
            else:
                found[name] = value
    return {name: value for name, value in found.items() if callable(value)}


def signature(one):
    try:
        return str(inspect.signature(one))
    except ValueError:  # of a type of Python's or NumPy's
        return ""


def test_no_signature_is_long():
    lengths = {name: len(signature(one)) for name, one in callables().items()}
    assert len(lengths) > 300
    assert "reduce" in lengths
    assert "Reduction.solve" in lengths
    assert not {name: size for name, size in lengths.items() if size > LONGEST}


@pytest.mark.parametrize(
    ("function", "parameter", "shown"),
    [
        (gdln.time_to, "level", "level: ArrayLike"),
        (gdln.gradient_flow, "ts", "ts: Times"),
        (gdln.gradient_flow, "tau", "tau: PerEdge = 1.0"),
        (gdln.gradient_flow, "rtol", "rtol: Tolerance = None"),
        (gdln.sweep, "key", "key: Key"),
    ],
)
def test_a_named_type_prints_its_name(function, parameter, shown):
    assert str(inspect.signature(function).parameters[parameter]) == shown


def test_a_named_type_is_checked_like_its_members():
    # The run-time checks of the tests see through it.
    with pytest.raises(TypeCheckError, match="ArrayLike"):
        gdln.exact.linear_mode(0.0, "one", 1.0, 0.1)  # pyright: ignore[reportArgumentType]
