"""Options of recipes: `key=value` texts, checked against the fields of a frozen dataclass.

A wrong key, type or choice is an `OptionError` that says what is accepted. Imports nothing heavy.
"""

import contextlib
import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_BOOLS = {word: word in _TRUE for word in (*_TRUE, *_FALSE)}


class OptionError(ValueError):
    """Something that the user asked for and a recipe cannot take (exit code 2 of the command)."""


def closest(word: str, known: Iterable[str]) -> str:
    """Return the end of a message: `; did you mean 'x'?`, or what there is."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are: {', '.join(known)}" if known else "; there are none"


def parse(texts: Iterable[str]) -> dict[str, str]:
    """Split `key=value` texts."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise OptionError(f"--set {text!r} is not of the form key=value")
        if key in values:
            raise OptionError(f"--set {key} is given twice")
        values[key] = value.strip()
    return values


def with_values(options: type, values: Mapping[str, Any]) -> Any:
    """Make an instance of the dataclass `options` with `values` over its defaults.

    Texts are read as the type of their field: bool, int, float, str, Path, `Literal`, tuples
    (`1,2,3`), and any of these or None. Other values must have the type of the field. What the
    dataclass itself refuses (`__post_init__` raises ValueError) is an `OptionError` too.
    """
    hints = typing.get_type_hints(options)
    known = [field.name for field in dataclasses.fields(options)]
    read: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise OptionError(f"there is no option {key!r}{closest(key, known)}")
        try:
            read[key] = _as(value, hints[key])
        except (ValueError, TypeError, OverflowError, KeyError):
            kind = _name(hints[key])
            raise OptionError(f"option {key} takes {kind}, got {value!r}") from None
    try:
        return options(**read)
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(str(error)) from error


class Described(typing.NamedTuple):
    """An option as `gdln list NAME` shows it; range and about are empty where there are none."""

    name: str
    kind: str
    default: str
    range: str
    about: str


def describe(options: type) -> list[Described]:
    """Describe every option; every option of a recipe has a default."""
    defaults, hints, rows = options(), typing.get_type_hints(options), []
    for one in dataclasses.fields(options):
        default, more = repr(getattr(defaults, one.name)), one.metadata
        texts = (more.get("range", ""), more.get("about", ""))
        rows.append(Described(one.name, _name(hints[one.name]), default, *texts))
    return rows


def _name(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " | ".join(str(choice) for choice in arguments)
    if origin in (types.UnionType, typing.Union):
        return " | ".join(_name(argument) for argument in arguments)
    if origin is tuple:
        inner = ",".join(_name(argument) for argument in arguments if argument is not Ellipsis)
        return inner + (",..." if Ellipsis in arguments else "")
    return "none" if kind is type(None) else getattr(kind, "__name__", str(kind))


def _as(value: object, kind: Any) -> object:
    """`value` as a `kind`: a text is read, anything else must be of the kind already."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        for choice in arguments:
            if value in (choice, str(choice)):
                return choice
        raise ValueError(value)
    if origin in (types.UnionType, typing.Union):
        # None before all others, str after them.
        for one in sorted(arguments, key=lambda kind: (kind is str, kind is not type(None))):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                return _as(value, one)
        raise TypeError(value)
    if origin is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.strip("()[] ").split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise TypeError(value)
        kinds = arguments[:1] * len(value) if Ellipsis in arguments else arguments
        return tuple(_as(part, one) for part, one in zip(value, kinds, strict=True))
    if isinstance(value, str):
        return _READ[kind](value)
    number = kind is float and isinstance(value, int | float)
    if (isinstance(value, bool) and kind is not bool) or not (number or isinstance(value, kind)):
        raise TypeError(value)
    return value


def _as_int(text: str) -> int:
    number = float(text)  # 1e4 is a whole number, 1.5 is not
    if number != int(number):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdigit() else int(number)


_READ: dict[Any, Callable[[str], object]] = {
    bool: lambda text: _BOOLS[text.lower()],
    type(None): lambda text: {"": None, "none": None}[text.lower()],
    int: _as_int,
    float: float,
    str: str,
    Path: Path,
}
