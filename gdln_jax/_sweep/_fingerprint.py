"""What a function does, as a hash: its code and its data, followed through the user's own modules.

Own are the package of fn, and all modules but the standard library, what is installed in
site-packages, and the part of this package that the code version of a store counts anyway; what
those hold counts by name.
"""

import contextlib
import dis
import functools
import hashlib
import importlib
import importlib.util
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import _machine

# Modules of this package above this one: what they say cannot change a sweep's numbers, unless fn
# reaches it.
ABOVE = {"recipes", "plot", "_cli", "__main__", "_citation"}
LONG = 24
_MAIN = {"__main__", "__mp_main__"}
_PLAIN = bool | int | float | complex | str | bytes | None | types.EllipsisType
_BY_NAME = types.ModuleType | types.BuiltinFunctionType
_STANDARD = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
# Where an object lies in memory says nothing about it.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint(fn: object) -> str:
    """The hash of what `fn` does, equal in every process that runs the same code on the same data.

    It follows functions, classes and modules of the user's own, closures, defaults, attributes and
    module-level data. It does not see files and variables of the system that fn reads, code that
    fn looks up by a string, and what is installed.
    """
    return _Walk(name_of(fn).partition(".")[0]).of(fn)[:LONG]


def name_of(fn: object) -> str:
    """Module and name of a function or class, or of the class of another object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__wrapped__", fn)
    module = str(getattr(fn, "__module__", ""))
    module = _script(module) if module in _MAIN else module
    return f"{module}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


def _script(module: str) -> str:
    """The name by which what runs as a script is imported: a worker process does so, and a notebook
    that collects what a cluster computed.
    """
    main = sys.modules.get(module)
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # python -m NAME
        return str(spec.name)
    return Path(file).stem if file else "__main__"


def _is_own(module: str, home: str) -> bool:
    """Whether a module is the user's own; `home` is the package of fn, wherever it is installed."""
    top, _, rest = module.partition(".")
    if top == "gdln_jax":
        return rest.partition(".")[0] in ABOVE
    if top in _machine.PACKAGES:
        return False
    # `exec` makes what is in no module.
    if top == home or top in _MAIN or module not in sys.modules:
        return True
    file = getattr(sys.modules[module], "__file__", None)
    return file is not None and _is_own_file(file)


@functools.cache
def _is_own_file(file: str) -> bool:
    path = Path(file)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not installed and not any(path.is_relative_to(folder) for folder in _STANDARD)


class _Walk:
    """Hashes of all that has been met, by identity. It keeps what it met: an identity that is free
    again would be taken for known.
    """

    def __init__(self, home: str) -> None:
        self.home = home
        self.known: dict[int, tuple[str, object]] = {}

    def of(self, value: object) -> str:
        """The hash of any object, text for plain values; of one inside itself that it is so."""
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}"
        if id(value) not in self.known:
            self.known[id(value)] = "inside itself", value
            text = "\0".join(self._parts(value))
            self.known[id(value)] = hashlib.sha256(text.encode()).hexdigest(), value
        return self.known[id(value)][0]

    def _parts(self, value: object) -> list[str]:
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            return _array(value)
        if isinstance(value, types.CodeType):
            return self._code(value, {})
        if isinstance(value, _BY_NAME) or _is_installed(value, self.home):
            return ["name", name_of(value)]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        kind = self.of(type(value))
        if isinstance(value, Mapping):
            return [kind, *(self.of(x) for k in sorted(value, key=repr) for x in (k, value[k]))]
        if isinstance(value, list | tuple):
            return [kind, *map(self.of, value)]
        if isinstance(value, set | frozenset):
            return [kind, *sorted(map(self.of, value))]
        return [kind, *self._object(value)]

    def _object(self, value: Any) -> list[str]:
        if isinstance(value, functools.partial):
            return [self.of(value.func), self.of(value.args), self.of(value.keywords)]
        if isinstance(value, types.MethodType | staticmethod | classmethod):
            return [self.of(value.__func__), self.of(getattr(value, "__self__", None))]
        if isinstance(value, property):
            return [self.of(one) for one in (value.fget, value.fset)]
        if isinstance(value, functools.cached_property):
            return [self.of(value.func)]
        if hasattr(value, "__wrapped__"):  # jitted, or with a derivative of its own
            own = vars(value) if hasattr(value, "__dict__") else {}
            return [self.of(value.__wrapped__), *(self.of(f) for f in own.values() if callable(f))]
        flat = jax.tree_util.default_registry.flatten_one_level(value)
        if flat is not None:
            return [self.of(list(flat[0])), self.of(flat[1])]
        try:
            state = value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001  it cannot be pickled, for a reason of its own
            return [_ADDRESS.sub("", repr(value))]
        return [self.of(_uncached(value, part)) for part in state]

    def _function(self, fn: types.FunctionType) -> list[str]:
        own = _is_own(fn.__globals__.get("__name__", ""), self.home)
        scope = fn.__globals__ if own else {}
        parts = [fn.__qualname__, self.of(fn.__defaults__), self.of(fn.__kwdefaults__)]
        for cell in fn.__closure__ or ():
            try:
                parts.append(self.of(cell.cell_contents))
            except ValueError:  # not filled yet
                parts.append("empty")
        return [*parts, *self._code(fn.__code__, scope)]

    def _class(self, cls: type) -> list[str]:
        members = [
            (name, member)
            for name, member in sorted(vars(cls).items())
            if not (name.startswith("__") and name.endswith("__")) or _is_code(member)
        ]
        return [
            name_of(cls),
            *map(self.of, cls.__bases__),
            *(text for name, member in members for text in (name, self.of(member))),
        ]

    def _code(self, code: types.CodeType, scope: Mapping[str, object]) -> list[str]:
        """Of code, and what it names in `scope`, the globals of a module of the user's own."""
        parts = [code.co_code.hex(), repr((code.co_names, code.co_varnames))]
        for one in code.co_consts:
            nested = isinstance(one, types.CodeType)
            parts += self._code(one, scope) if nested else [self.of(one)]
        for name in code.co_names:
            if name in scope:
                parts += [name, *self._named(scope[name], code.co_names, ())]
        for module in _imports(code, scope) if scope else ():
            parts += self._named(module, code.co_names, ())
        return parts

    def _named(self, value: object, names: tuple[str, ...], above: tuple[object, ...]) -> list[str]:
        """Of a module only what the code names: `helpers.scale`, `package.helpers.scale`."""
        if not isinstance(value, types.ModuleType):
            return [self.of(value)]
        if value in above or not _is_own(value.__name__, self.home):
            return []
        inside, above = vars(value), (*above, value)
        found = [
            (name, self._named(inside[name], names, above)) for name in names if name in inside
        ]
        return [text for name, parts in found for text in (name, *parts)]


def _array(value: object) -> list[str]:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.dtype.hasobject:
        return [f"{array.shape}", repr(array.tolist())]
    return [f"{array.dtype}{array.shape}", hashlib.sha256(array.tobytes()).hexdigest()]


def _is_installed(value: object, home: str) -> bool:
    """Whether `value` is what a module that is not the user's own calls by that name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or _is_own(module, home):
        return False
    found: object = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value or isinstance(value, type)


def _is_code(member: object) -> bool:
    return isinstance(member, types.FunctionType | property | staticmethod | classmethod)


def _uncached(value: object, state: object) -> object:
    """The state of an object without what it has computed from the rest and kept."""
    if not isinstance(state, dict):
        return list(state) if isinstance(state, Iterator) else state
    cached = functools.cached_property
    return {
        k: v for k, v in state.items() if not isinstance(getattr(type(value), str(k), 0), cached)
    }


def _imports(code: types.CodeType, scope: Mapping[str, object]) -> Iterator[types.ModuleType]:
    """The modules of the user's own that the code imports while it runs."""
    constants: list[Any] = []
    for one in dis.get_instructions(code):
        if one.opname.startswith("LOAD_"):
            constants.append(one.argval)
        if one.opname != "IMPORT_NAME":
            continue
        level, members = constants[-2:]
        base = "." * level + str(one.argval)
        for relative in (base, *(f"{base}.{member}" for member in members or ())):
            with contextlib.suppress(Exception):  # fn itself meets it when it is traced
                name = importlib.util.resolve_name(relative, str(scope.get("__package__") or ""))
                spec = importlib.util.find_spec(name)
                if spec is not None and spec.origin is not None and _is_own_file(spec.origin):
                    yield importlib.import_module(name)
