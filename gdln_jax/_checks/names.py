"""Misspelt names: what was probably meant, for arguments, attributes and namespaces alike."""

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType
from typing import ClassVar, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` when ``word`` is close to a known one, else ``""``."""
    names = {str(k).lower(): str(k) for k in known}
    close = [names[k] for k in difflib.get_close_matches(str(word).lower(), names, n=1)]
    return f" (did you mean {close[0]!r}?)" if close else ""


def answering(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Answer keywords that a function does not have, those given by position, and what is missing.

    Adds a frame: a warning of the function's that names its caller needs one more `stacklevel`.
    """
    parameters = inspect.signature(function).parameters
    by_name = [k for k, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
    places = len(parameters) - len(by_name)
    needed = [k for k, one in parameters.items() if one.default is one.empty]
    call = ", ".join(f"{k}=..." if k in by_name else k for k in needed)

    @functools.wraps(function)
    def answered(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        for word in kwargs:
            if word not in parameters:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {word!r}"
                    f"{suggest(word, parameters)}"
                )
        if len(args) > places:
            wanted = ", ".join(f"{name}=" for name in by_name[: len(args) - places])
            raise TypeError(
                f"{function.__name__}() takes {places} positional arguments but {len(args)} were "
                f"given: write the others by name, {wanted}"
            )
        if missing := [
            k for k in needed if k not in kwargs and k not in [*parameters][: len(args)]
        ]:
            raise TypeError(
                f"{function.__name__}() lacks {' and '.join(missing)}: {function.__name__}({call})"
            )
        return function(*args, **kwargs)

    return answered


class Suggesting:
    """Base of classes whose objects answer a misspelt attribute with the one that was meant.

    `_asked` maps attributes that people look for under another name to a text that says where.
    """

    _asked: ClassVar[Mapping[str, str]] = {}

    def __getattr__(self, name: str) -> object:
        """Raise `AttributeError`; called only for what is not there.

        Private names, which JAX, NumPy, copy and pickle look for all the time, get no suggestion.
        """
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if hasattr(type(self), name):  # a property that raised: its own message is the right one
            return object.__getattribute__(self, name)
        asked = getattr(type(self), "_asked", None)  # named tuples have none
        raise missing(f"{type(self).__name__!r} object", name, dir(self), asked)


def missing(
    owner: str, name: str, known: Iterable[str], asked: Mapping[str, str] | None = None
) -> AttributeError:
    """Return the error for an attribute that `owner` (text) does not have."""
    public = [one for one in known if not one.startswith("_") and one != name]
    hint = f": {asked[name]}" if asked and name in asked else suggest(name, public)
    # With `name` set and no object, Python adds no suggestion of its own to the message.
    return AttributeError(f"{owner} has no attribute {name!r}{hint}", name=name, obj=None)


def namespace(
    name: str, asked: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of the module called `name`, a public namespace.

    Public is what the module defines or, for a package, what it re-exports from this package; other
    imports and submodules are not shown. `asked` maps names that it had to a text that says where
    these are now.
    """
    module = sys.modules[name]

    def attribute(missed: str) -> object:
        if missed.startswith("_"):
            raise AttributeError(f"module {name!r} has no attribute {missed!r}")
        raise missing(f"module {name!r}", missed, names(), asked)

    def names() -> list[str]:
        shown = {k: v for k, v in vars(module).items() if not k.startswith("_")}
        belongs = _reexported if hasattr(module, "__path__") else _defined
        return sorted(k for k, v in shown.items() if belongs(v, name))

    return attribute, names


def _defined(value: object, module: str) -> bool:
    """Whether a name of a module is its own, and not imported there."""
    # Constants have no `__module__`.
    return not isinstance(value, ModuleType) and getattr(value, "__module__", module) == module


def _reexported(value: object, package: str) -> bool:
    """Whether a name of a package is of this library: all but its modules and other libraries'."""
    if isinstance(value, ModuleType):
        return False
    of_others = isinstance(value, type | FunctionType)
    return not of_others or value.__module__.partition(".")[0] == package.partition(".")[0]
