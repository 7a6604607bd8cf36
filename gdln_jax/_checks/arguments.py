"""Argument checks. They run before compilation and report the argument, the given value, what was
expected, and a remedy. Imports no JAX.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

from gdln_jax._checks.names import Suggesting, suggest

MAKE_A_MODEL = (
    "the model comes first, the data second: make one by gdln.GatedNetwork.init(graph, "
    "gdln.init.orthogonal(0.1), key=jax.random.key(0))"
)


class Instead(NamedTuple):
    """What to pass instead of an object, by kind of argument; empty where there is no advice."""

    model: str = ""
    data: str = ""
    graph: str = ""
    network: str = ""


class Mistakable(Suggesting):
    """Base of classes whose objects are sometimes passed as an argument of another type.

    What has a remedy for `model` is refused as a model.
    """

    _instead: ClassVar[Instead] = Instead()


def instead(given: object) -> Instead:
    """What to pass instead of `given`, as far as its class says so."""
    return given._instead if isinstance(given, Mistakable) else Instead()


def listed(names: Iterable[object], limit: int = 8) -> str:
    """Return names as a short readable list; a long one is cut and counted."""
    all_names = [repr(name) for name in names]
    if len(all_names) <= limit:
        return ", ".join(all_names)
    return ", ".join(all_names[:limit]) + f", ... ({len(all_names)} in all)"


def check_keys(given: Mapping[str, object], known: Iterable[str], what: str, kind: str) -> None:
    """Raise ``ValueError`` when ``given`` has a key that is not among ``known``."""
    known = list(known)
    names = set(known)
    for key in given:
        if key not in names:
            raise ValueError(
                f"{what} names {key!r}, which is not {kind}{suggest(key, known)}; "
                f"known: {listed(known)}."
            )


def check_choice(value: object, choices: Iterable[str], name: str) -> str:
    """Return ``value`` if it is one of ``choices``, else raise ``ValueError``."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{name} is {value!r}; it must be one of {listed(choices)}"
            f"{suggest(str(value), choices)}."
        )
    return value


def check_integer(value: object, name: str, *, minimum: int) -> int:
    """Return ``value`` as an ``int`` of at least ``minimum``, else raise ``ValueError``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise ValueError(f"{name} is {value!r}; it must be an integer of at least {minimum}.")
    return int(value)


def check_positive(value: Any, name: str) -> float:
    """Return a number, or an array of shape (), as a finite ``float`` above zero.

    Raises ``ValueError`` for anything else. Values may not be traced; see
    ``check_positive_if_known``.
    """
    array = hasattr(value, "dtype") and value.shape == () and value.dtype.kind in "fiu"
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (array or number) or not 0 < float(value) < math.inf:
        shown = value if array else repr(value)
        raise ValueError(f"{name} is {shown}; it must be a finite number above 0.")
    return float(value)


def is_concrete(tree: object) -> bool:
    """Whether no leaf of `tree` is being traced, so that its values are known."""
    jax = sys.modules.get("jax")  # where it is not loaded, nothing is traced
    return jax is None or not any(
        isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree)
    )


def check_positive_if_known(**values: object) -> None:
    """Raise `ValueError` for a value that is no finite number above 0; None and traced ones pass.

    For `tau`, `rtol`, `atol`: `check_positive_if_known(tau=tau, rtol=rtol, atol=atol)`.
    """
    for name, value in values.items():
        if value is not None and is_concrete(value):
            check_positive(value, name)
