"""Checkpoints that survive a kill at any moment: written beside, synced, renamed.

One file per training: a line of JSON (what was trained, how far) and then the arrays, serialised
by Equinox. A reader sees the old one or the new one, never a part.
"""

import glob
import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._files import mark, written_whole

# What was measured so far, as JSON has it.
Record = dict[str, Any]
State = TypeVar("State")

_FORMAT = "gdln_jax images 1"


def spec_hash(*parts: object) -> str:
    """Hash plain values and arrays: what a checkpoint must have been made for."""
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(parts, is_leaf=lambda p: p is None):
        is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        part = jax.random.key_data(leaf) if is_key else leaf
        if hasattr(part, "shape"):
            array = np.asarray(part)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        else:
            digest.update(repr(part).encode())
        digest.update(b"|")
    return digest.hexdigest()


def save(path: str | Path, spec: str, record: Record, state: object) -> None:
    """Write a checkpoint; `record` holds plain values, `state` is a pytree of arrays."""
    head = json.dumps({"format": _FORMAT, "spec": spec, "record": record})
    with written_whole(Path(path)) as (beside,), beside.open("wb") as file:
        file.write(head.encode() + b"\n")
        eqx.tree_serialise_leaves(file, state)
        # Detects a file that was damaged later; writing itself is atomic.
        file.write(b"end\n")


def restore(path: str | Path, spec: str, like: State) -> tuple[Record, State] | None:
    """Return the record and the state of a checkpoint, or None if there is none.

    Leftovers of writers that were killed are removed.

    Raises:
        ValueError: for a damaged file or one of another training, with both hashes.
    """
    path = Path(path)
    for left in path.parent.glob(f"{glob.escape(mark(path))}*"):
        left.unlink(missing_ok=True)
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline())
            if head["format"] != _FORMAT:
                raise ValueError(head["format"])
            if head["spec"] != spec:
                raise ValueError(
                    f"{path} is the checkpoint of another training (spec {head['spec'][:12]}, "
                    f"this one is {spec[:12]}): network, data, routes or settings differ. Use "
                    "another path, or remove it."
                )
            state = eqx.tree_deserialise_leaves(file, like)
            if file.read() != b"end\n":
                raise ValueError("its end is missing")
    except ValueError as error:
        if "another training" in str(error):
            raise
        raise ValueError(f"{path} is no readable checkpoint ({error}); remove it.") from None
    except (KeyError, TypeError, EOFError, RuntimeError, OSError) as error:
        raise ValueError(f"{path} is no readable checkpoint ({error}); remove it.") from None
    return head["record"], state
