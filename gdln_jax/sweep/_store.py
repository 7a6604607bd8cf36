"""Finished chunks on disk: a folder with one netCDF file per chunk and a layout.

netCDF, since a chunk is then one file: `os.replace` makes it appear whole or not at all, and
xarray, R or ncdump can read it without this package. (A Zarr array and an Orbax checkpoint are
folders of many files, which no file system moves into place file by file at once over NFS, and
which need another dependency.) The name carries the SHA-256 of the content: a torn, truncated or
damaged file does not match its name, and is computed again.

    DIR/layout.json                       spec, code, chunk size: what the store belongs to
    DIR/chunk-000012-<sha256>.nc          results of one chunk
    DIR/sweep.lock, shard-0-of-4.lock     see `_locks`
"""

import errno
import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gdln_jax.sweep._locks import turn
from gdln_jax.sweep._program import Block
from gdln_jax.sweep._spec import Spec, differences

_LAYOUT = "layout.json"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class SweepStoreError(RuntimeError):
    """The store cannot be used: it belongs to another sweep, or cannot be written."""


class Store:
    """The folder of one sweep. Make it, then hold `_locks.locked` while writing."""

    def __init__(self, folder: Path, spec: Spec, shard: tuple[int, int] | None) -> None:
        self.folder, self.spec = folder, spec
        self.mark = "all" if shard is None else f"{shard[0]}of{shard[1]}"
        if folder.exists() and not folder.is_dir():
            raise SweepStoreError(f"store={folder} is a file; pass a folder.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SweepStoreError(f"store={folder} cannot be made: {error.strerror}.") from error
        if not (folder / _LAYOUT).exists():
            strange = [p.name for p in folder.iterdir() if not p.name.endswith((".lock", ".tmp"))]
            if strange and not (folder / _LAYOUT).exists():  # another shard may just have made it
                raise SweepStoreError(
                    f"store={folder} holds other files ({min(strange)}) and no sweep; pass "
                    "an empty or a new folder."
                )

    def layout(self, proposed: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """What the store was laid out as; `proposed` if it is new, None if nothing is proposed.

        Raises:
            SweepStoreError: it belongs to another spec or code version, with both hashes.
        """
        with turn(self.folder):
            path = self.folder / _LAYOUT
            if path.exists():
                return self._checked(path)
            if proposed is None:
                return None
            known = {"hash": self.spec.hash, "code hash": self.spec.code_hash}
            full = {
                **known, "spec": self.spec.question, "code": self.spec.code, **proposed,
            }  # fmt: skip
            self._write(path, json.dumps(full, indent=1).encode())
            return full

    def _checked(self, path: Path) -> dict[str, Any]:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            stored = found["hash"], found["code hash"]
            parts = found["spec"], found["code"]
        except (ValueError, KeyError, TypeError) as error:
            raise SweepStoreError(
                f"{path} is not what a sweep wrote ({error}); pass another folder."
            ) from error
        kinds = ("spec", "code version")
        ours = (self.spec.hash, self.spec.code_hash), (self.spec.question, self.spec.code)
        for kind, old, new, was, asked in zip(kinds, stored, ours[0], parts, ours[1], strict=True):
            if old != new:
                raise SweepStoreError(
                    f"the store {self.folder} belongs to another {kind}: it has {old}, this sweep "
                    f"{new} ({differences(was, asked)}). Pass another folder, or what made it."
                )
        return found

    def sweep_up(self) -> None:
        """Remove what a killed process of the same shard left half-written."""
        for path in self.folder.glob("*.tmp" if self.mark == "all" else f"*.{self.mark}.tmp"):
            path.unlink(missing_ok=True)

    def _paths(self, number: int) -> list[Path]:
        return sorted(self.folder.glob(f"chunk-{number:06d}-*.nc"))

    def read(self, number: int) -> Block | None:
        """A finished chunk; None if there is none that is whole. A damaged one is removed."""
        for path in self._paths(number):
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # another shard has just removed it
                continue
            if hashlib.sha256(content).hexdigest() == path.stem.rsplit("-", 1)[-1]:
                return _unpacked(content)
            path.unlink(missing_ok=True)
        return None

    def write(self, number: int, block: Block, coordinates: Mapping[str, np.ndarray]) -> None:
        """Keep a finished chunk: on the disk before this returns, whole or not at all.

        Raises:
            SweepStoreError: the disk is full or does not take it; what is there stays readable.
        """
        content = _packed(block, coordinates, {"sweep_spec": self.spec.hash, "chunk": number})
        name = f"chunk-{number:06d}-{hashlib.sha256(content).hexdigest()}.nc"
        self._write(self.folder / name, content)

    def _write(self, path: Path, content: bytes) -> None:
        unfinished = path.with_name(f"{path.stem[:16]}.{self.mark}.tmp")
        try:
            try:
                with unfinished.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(path)
                _sync(self.folder)
            finally:
                unfinished.unlink(missing_ok=True)
        except OSError as error:
            done = len(list(self.folder.glob("chunk-*.nc")))
            why = "the disk is full" if error.errno in _FULL else f"it cannot be written ({error})"
            raise SweepStoreError(
                f"store {self.folder}: {why}. {done} chunks are stored and stay readable; make "
                "room and call the same sweep again, it goes on from there."
            ) from error


def _sync(folder: Path) -> None:
    """Make a renaming last through a loss of power, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _packed(block: Block, coordinates: Mapping[str, np.ndarray], attrs: dict[str, Any]) -> bytes:
    import xarray as xr

    rows = lambda name, a: (("point", *(f"{name}_dim_{k}" for k in range(a.ndim - 1))), a)  # noqa: E731
    data = {name: rows(name, array) for name, array in block.arrays.items()}
    data |= {"status": ("point", block.status), "message": ("point", block.messages)}
    coords = {name: ("point", column) for name, column in coordinates.items()}
    return bytes(xr.Dataset(data, coords, attrs).to_netcdf(engine="h5netcdf"))


def _unpacked(content: bytes) -> Block:
    import xarray as xr

    # Whole numbers and flags come back as they were; nothing is a date.
    with xr.open_dataset(
        io.BytesIO(content), engine="h5netcdf", decode_times=False, mask_and_scale=False
    ) as data:
        arrays = {str(k): np.asarray(v.values) for k, v in data.data_vars.items()}
    status, messages = arrays.pop("status"), arrays.pop("message").astype(object)
    return Block(arrays, status.astype(np.int8), messages)
