"""Finished points on disk: a folder of netCDF files, one for each chunk, and a layout.

netCDF, since a chunk is then one file: `os.replace` makes it appear whole or not at all, and
xarray, R or ncdump can read it without this package. (A Zarr array and an Orbax checkpoint are
folders of many files, which no file system moves into place file by file at once over NFS, and
which need another dependency.) The name carries the SHA-256 of the content: a torn, truncated or
damaged file does not match its name, and is computed again. Each file holds the coordinates of its
points: they are found by value, whatever axes they were computed for.

    DIR/layout.json                       spec, code; axes and chunk size of the latest call
    DIR/chunk-000012-<sha256>.nc          results of one chunk
    DIR/sweep.lock, shard-0-of-4.lock     see `_locks`
"""

import contextlib
import errno
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gdln_jax._sweep._axes import Axis, Grid
from gdln_jax._sweep._locks import locked, turn
from gdln_jax._sweep._program import Block
from gdln_jax._sweep._spec import Spec, differences

_LAYOUT, _FORMAT = "layout.json", 2
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_Part = tuple[Mapping[str, np.ndarray], Block]


class SweepStoreError(RuntimeError):
    """The store cannot be used: it belongs to another sweep, or cannot be read or written."""


class Store:
    """The folder of one sweep. It is written to inside of `writing` only."""

    def __init__(self, folder: Path, spec: Spec, shard: tuple[int, int] | None) -> None:
        self.folder, self.spec, self.shard = folder, spec, shard
        self.mark = "all" if shard is None else f"{shard[0]}of{shard[1]}"
        # What the files hold by their names; nothing for a damaged one.
        self._parts: dict[str, _Part | None] = {}
        if folder.exists() and not folder.is_dir():
            raise SweepStoreError(f"store={folder} is a file; pass a folder.")
        if folder.exists() and not (folder / _LAYOUT).exists():
            strange = [p.name for p in folder.iterdir() if not p.name.endswith((".lock", ".tmp"))]
            if strange and not (folder / _LAYOUT).exists():  # another shard may just have made it
                raise SweepStoreError(
                    f"store={folder} holds other files ({min(strange)}) and no sweep; pass "
                    "an empty or a new folder."
                )

    # ------------------------------------------------------------------ reading
    def layout(self) -> dict[str, Any] | None:
        """What the store belongs to and was last asked for; None if it is new.

        Raises:
            SweepStoreError: it belongs to another spec or code version, with both hashes.
        """
        path = self.folder / _LAYOUT
        if not path.exists():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            stored = found["hash"], found["code hash"]
            parts = found["spec"], found["code"]
            form, wrote = found.get("format", 1), found["code"]["gdln_jax"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SweepStoreError(
                f"{path} is not what a sweep wrote ({error}); pass another folder."
            ) from error
        if form != _FORMAT:
            raise SweepStoreError(
                f"the store {self.folder} was written in another form (number {form}, this is "
                f"{_FORMAT}), by gdln_jax {wrote}. Go on with that version, or pass another "
                "folder; xarray.open_dataset reads its files chunk-*.nc."
            )
        kinds = ("spec", "code version")
        ours = (self.spec.hash, self.spec.code_hash), (self.spec.question, self.spec.code)
        for kind, old, new, was, asked in zip(kinds, stored, ours[0], parts, ours[1], strict=True):
            if old != new:
                raise SweepStoreError(
                    f"the store {self.folder} belongs to another {kind}: it has {old}, this sweep "
                    f"{new} ({differences(was, asked)}). Pass another folder, or what made it."
                )
        return found

    def found(self, grid: Grid) -> list[tuple[np.ndarray, Block]]:
        """The results of all points of `grid` that are kept, with their numbers, each once."""
        there, results = np.zeros(grid.size, bool), []
        for path in sorted(self.folder.glob("chunk-*.nc")):
            if path.name not in self._parts:
                self._parts[path.name] = _read(path)
            part = self._parts[path.name]
            if part is None:
                continue
            numbers = grid.numbers(part[0])
            rows = np.flatnonzero((numbers >= 0) & ~there[numbers])
            there[numbers[rows]] = True
            if len(rows):
                results.append((numbers[rows], part[1].rows(rows)))
        return results

    # ------------------------------------------------------------------ writing
    @contextlib.contextmanager
    def writing(self, missing: str) -> Iterator[None]:
        """Hold the folder as the one sweep, or as one of its shards, that writes to it.

        Raises:
            SweepLockedError: another sweep holds it.
            SweepStoreError: it cannot be written to; `missing` says what would have been written.
        """
        with contextlib.ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.folder, self.shard))
            except OSError as error:
                raise SweepStoreError(
                    f"store={self.folder} cannot be written to ({error.strerror}), and {missing}: "
                    "pass a folder that you may write to, or a copy of this one."
                ) from error
            self._sweep_up()
            yield

    def lay_out(self, axes: tuple[Axis, ...], chunk: int, static: frozenset[str]) -> dict[str, Any]:
        """The layout for these axes: that of another shard of the same call, else this one's."""
        with turn(self.folder):
            known = self.layout()
            if known is not None and not changes(known, axes):
                return known
            layout = {
                "format": _FORMAT,
                "hash": self.spec.hash,
                "code hash": self.spec.code_hash,
                "spec": self.spec.question,
                "code": self.spec.code,
                "chunk": chunk,
                "static": sorted(static),
                "axes": {a.name: _texts(a) for a in axes},
            }
            self._write(self.folder / _LAYOUT, json.dumps(layout, indent=1).encode())
            return layout

    def _sweep_up(self) -> None:
        """Remove damaged files, and what a killed process of the same shard left half-written."""
        for path in self.folder.glob("*.tmp" if self.shard is None else f"*.{self.mark}.tmp"):
            path.unlink(missing_ok=True)
        for name in [name for name, part in self._parts.items() if part is None]:
            (self.folder / name).unlink(missing_ok=True)
            del self._parts[name]

    def write(self, number: int, block: Block, coordinates: Mapping[str, np.ndarray]) -> None:
        """Keep finished points: on the disk before this returns, whole or not at all.

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
                "space and call the same sweep again, it goes on from there."
            ) from error


def changes(layout: Mapping[str, Any], axes: tuple[Axis, ...]) -> list[str]:
    """How the axes differ from those of the latest call, in words; nothing if they do not."""
    words = []
    for axis in axes:
        was, now = layout["axes"][axis.name], _texts(axis)
        old, new = set(was), set(now)
        more, fewer = [v for v in now if v not in old], [v for v in was if v not in new]
        words += [f"axis {axis.name!r} gains {_few(more)}"] if more else []
        words += [f"axis {axis.name!r} loses {_few(fewer)}"] if fewer else []
        if [v for v in now if v in old] != [v for v in was if v in new]:
            words.append(f"axis {axis.name!r} is in another order")
    if list(layout["axes"]) != [axis.name for axis in axes]:
        words.append("the axes are in another order")
    return words


def _texts(axis: Axis) -> list[str]:
    return [repr(value) for value in axis.values]


def _few(texts: list[str], limit: int = 4) -> str:
    rest = f", ... ({len(texts)} values)" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + rest


def _sync(folder: Path) -> None:
    """Make a renaming last through a loss of power, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read(path: Path) -> _Part | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # another shard has just removed it
        return None
    except OSError as error:
        raise SweepStoreError(f"{path} cannot be read ({error.strerror}).") from error
    whole = hashlib.sha256(content).hexdigest() == path.stem.rsplit("-", 1)[-1]
    return _unpacked(content) if whole else None


def _packed(block: Block, coordinates: Mapping[str, np.ndarray], attrs: dict[str, Any]) -> bytes:
    rows = lambda name, a: (("point", *(f"{name}_dim_{k}" for k in range(a.ndim - 1))), a)  # noqa: E731
    data = {name: rows(name, array) for name, array in block.arrays.items()}
    data |= {"status": ("point", block.status), "message": ("point", block.messages)}
    coords = {name: ("point", column) for name, column in coordinates.items()}
    return bytes(xr.Dataset(data, coords, attrs).to_netcdf(engine="h5netcdf"))


def _unpacked(content: bytes) -> _Part:
    # Whole numbers and flags come back as they were; nothing is a date.
    with xr.open_dataset(
        io.BytesIO(content), engine="h5netcdf", decode_times=False, mask_and_scale=False
    ) as data:
        arrays = {str(k): np.asarray(v.values) for k, v in data.data_vars.items()}
        columns = {str(k): np.asarray(v.values) for k, v in data.coords.items()}
    status, messages = arrays.pop("status"), arrays.pop("message").astype(object)
    return columns, Block(arrays, status.astype(np.int8), messages)
