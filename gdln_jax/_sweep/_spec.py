"""What a stored sweep belongs to: its question (names of axes, key, precision) and the code that
answers it.

Two hashes. A store is resumed only where both agree: chunks of different code are not one data set.
The values of the axes are no part of it: keys, and so results, depend on a point's values alone,
and a store holds points.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from gdln_jax import _machine
from gdln_jax._sweep._axes import Axis, Fn
from gdln_jax._sweep._fingerprint import ABOVE, LONG, fingerprint, name_of

# What JAX must be set to for the same numbers, here and in worker processes.
FLAGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
)


@dataclass(frozen=True)
class Spec:
    """The question and the code of a sweep, as plain values that JSON can hold."""

    question: Mapping[str, object]
    code: Mapping[str, str]

    @property
    def hash(self) -> str:
        """Of the question."""
        return _digest(self.question)

    @property
    def code_hash(self) -> str:
        """Of the code."""
        return _digest(self.code)


def make_spec(fn: Fn, axes: tuple[Axis, ...], key_axes: tuple[str, ...], key: jax.Array) -> Spec:
    """The spec of a sweep, equal in every process that asks the same of the same code."""
    question = {
        "fn": name_of(fn),
        **{f"axis {a.name}": a.kind for a in axes},
        "key": f"{jax.random.key_impl(key)} {key_text(key)}",
        "key_axes": sorted(key_axes),
        **flags(),
    }
    code = {"gdln_jax source": _source_hash(), "fn": fingerprint(fn)}
    return Spec(question, {**_machine.versions(), **code})


def key_text(key: jax.Array) -> str:
    """The bits of a key."""
    return np.asarray(jax.random.key_data(key)).tobytes().hex()


def flags() -> dict[str, object]:
    """What JAX is set to now."""
    return {name: jax.config.values[name] for name in FLAGS}


def differences(stored: Mapping[str, object], asked: Mapping[str, object]) -> str:
    """Which entries differ, and how."""
    pairs = [(k, stored.get(k, "none"), asked.get(k, "none")) for k in sorted({*stored, *asked})]
    return "; ".join(f"{k} {_short(was)} -> {_short(new)}" for k, was, new in pairs if was != new)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 2 * LONG else text[: 2 * LONG] + "..."


def _digest(value: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:LONG]


@functools.cache
def _source_hash() -> str:
    """Of the files of this package that stand below the sweep."""
    root, found = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root)
        if where.parts[0].removesuffix(".py") not in ABOVE:
            found.update(where.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:LONG]
