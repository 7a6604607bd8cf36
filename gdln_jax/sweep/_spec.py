"""What a stored sweep belongs to: its question (axes, key, precision) and the code that answers it.

Two hashes. A store is resumed only where both agree: chunks of different code are not one data set.
"""

import functools
import hashlib
import json
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import _machine
from gdln_jax.sweep._axes import Axis

# Rooms above this one: what they say cannot change a sweep's numbers (fn itself is looked at).
_ABOVE = {
    "recipes", "report", "plot", "cli.py", "__main__.py", "_console.py", "_drawing.py",
    "_citation.py",
}  # fmt: skip
_LONG = 24
# Where a function of a static field lies in memory says nothing about it.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Spec:
    """The question and the code of a sweep, as plain values that JSON can hold."""

    question: Mapping[str, Any]
    code: Mapping[str, str]

    @property
    def hash(self) -> str:
        """Of the question."""
        return _digest(self.question)

    @property
    def code_hash(self) -> str:
        """Of the code."""
        return _digest(self.code)


def make_spec(
    fn: Callable[..., Any], axes: tuple[Axis, ...], key_axes: tuple[str, ...], key: jax.Array
) -> Spec:
    """The spec of a sweep, equal in every process that asks the same of the same code."""
    question = {
        "fn": _name(fn),
        "axes": {a.name: [f"{v!r}" for v in a.values] for a in axes},
        "types": {a.name: str(a.dtype) for a in axes},
        "key": f"{jax.random.key_impl(key)} {key_text(key)}",
        "key_axes": sorted(key_axes),
        "precision": _precision(),
    }
    found = hashlib.sha256()
    _describe(fn, found, set())
    versions = _machine.versions()
    return Spec(
        question, {**versions, "gdln_jax source": _source_hash(), "fn": found.hexdigest()[:_LONG]}
    )


def key_text(key: jax.Array) -> str:
    """The bits of a key."""
    return np.asarray(jax.random.key_data(key)).tobytes().hex()


def _precision() -> str:
    values = jax.config.values
    return f"x64 {values['jax_enable_x64']}, products {values['jax_default_matmul_precision']}"


def differences(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Which entries differ, and how."""
    lines = []
    for name in sorted({*stored, *asked}):
        old, new = stored.get(name), asked.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            axes = [k for k in sorted({*old, *new}) if old.get(k) != new.get(k)]
            lines += [f"{name} of {', '.join(axes)}"] if axes else []
        elif old != new:
            lines.append(f"{name} {_short(old)} -> {_short(new)}")
    return "; ".join(lines)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 2 * _LONG else text[: 2 * _LONG] + "..."


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_LONG]


@functools.cache
def _source_hash() -> str:
    """Of the files of this package that stand below the sweep."""
    root, found = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root)
        if where.parts[0] not in _ABOVE:
            found.update(where.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:_LONG]


def _name(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__wrapped__", fn)
    room = str(getattr(fn, "__module__", ""))
    room = _script(room) if room in {"__main__", "__mp_main__"} else room
    return f"{room}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


def _script(room: str) -> str:
    """The name by which what runs as a script is imported: a worker process does so, and a notebook
    that collects what a cluster computed.
    """
    main = sys.modules.get(room)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # python -m NAME
        return str(spec.name)
    return Path(file).stem if file else "__main__"


def _describe(value: Any, into: Any, seen: set[int]) -> None:
    """Hash what a function does: its code, defaults, closure, and the data and functions of its own
    module that it names. Functions of other modules count by name, and packages by version.
    """
    if id(value) in seen:
        return
    if isinstance(value, np.ndarray | jax.Array):
        _describe_array(value, into)
    elif callable(value) or isinstance(value, types.ModuleType):
        _describe_callable(value, into, seen)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        into.update(repr(value).encode())
    elif isinstance(value, list | tuple | set | frozenset):
        items = value if isinstance(value, list | tuple) else sorted(value, key=repr)
        into.update(f"{type(value).__name__}{len(value)}".encode())
        for item in items:
            _describe(item, into, seen)
    elif isinstance(value, Mapping):
        for name in sorted(value, key=repr):
            into.update(repr(name).encode())
            _describe(value[name], into, seen)
    else:
        _describe_object(value, into, seen)


def _describe_callable(value: Any, into: Any, seen: set[int]) -> None:
    if isinstance(value, functools.partial):
        _describe([value.func, value.args, value.keywords], into, seen)
    elif isinstance(value, types.FunctionType):
        seen.add(id(value))
        _describe_function(value, into, seen)
    elif isinstance(value, types.MethodType):
        _describe([value.__func__, value.__self__], into, seen)
    elif isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
        into.update(_name(value).encode())
    elif hasattr(value, "__wrapped__"):  # jitted, for example
        _describe(value.__wrapped__, into, seen)
    else:
        _describe_object(value, into, seen)


def _describe_array(value: Any, into: Any) -> None:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    into.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())


def _describe_object(value: Any, into: Any, seen: set[int]) -> None:
    """Any other object by its type and its leaves: modules, graphs, dataclasses."""
    into.update(_name(type(value)).encode())
    seen.add(id(value))
    leaves, structure = jax.tree.flatten(value)
    if len(leaves) == 1 and leaves[0] is value:
        _describe(vars(value) if hasattr(value, "__dict__") else [], into, seen)
    else:
        into.update(_ADDRESS.sub("", str(structure)).encode())
        _describe(leaves, into, seen)


def _describe_function(fn: types.FunctionType, into: Any, seen: set[int]) -> None:
    into.update(fn.__qualname__.encode())
    _describe([fn.__defaults__, fn.__kwdefaults__], into, seen)
    for cell in fn.__closure__ or ():
        try:
            _describe(cell.cell_contents, into, seen)
        except ValueError:  # not filled yet
            into.update(b"empty")
    _describe_code(fn, fn.__code__, into, seen)


def _describe_code(fn: types.FunctionType, code: types.CodeType, into: Any, seen: set[int]) -> None:
    into.update(code.co_code + repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _describe_code(fn, constant, into, seen)
        else:
            into.update(repr(constant).encode())
    for name in code.co_names:
        there = fn.__globals__.get(name)
        is_function = isinstance(there, types.FunctionType) or hasattr(there, "__wrapped__")
        foreign = is_function and getattr(there, "__module__", None) != fn.__module__
        if not foreign and not isinstance(there, types.ModuleType | type | None):
            into.update(name.encode())
            _describe(there, into, seen)
