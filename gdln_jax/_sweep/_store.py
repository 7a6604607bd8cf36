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
import dataclasses
import errno
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from gdln_jax import _files
from gdln_jax._sweep._axes import Axis, Grid
from gdln_jax._sweep._locks import locked, turn
from gdln_jax._sweep._program import Block
from gdln_jax._sweep._spec import Spec, differences

_LAYOUT, _FORMAT = "layout.json", 2
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# The points of a file: their coordinates, and their results numbered from 0.
_Part = tuple[Mapping[str, np.ndarray], Block]


class SweepStoreError(RuntimeError):
    """The store cannot be used: it belongs to another sweep, or cannot be read or written."""


@dataclass(frozen=True)
class Layout:
    """What the latest call asked of a store: points per chunk, static axes, values by axis."""

    chunk: int
    static: frozenset[str]
    values: Mapping[str, list[str]]

    def changes(self, axes: tuple[Axis, ...]) -> list[str]:
        """How `axes` differ from those of the layout; nothing if they do not."""
        words = []
        for axis in axes:
            was, now = self.values[axis.name], _texts(axis)
            more, fewer = [v for v in now if v not in was], [v for v in was if v not in now]
            words += [f"axis {axis.name!r} gains {_few(more)}"] if more else []
            words += [f"axis {axis.name!r} loses {_few(fewer)}"] if fewer else []
            if [v for v in now if v in was] != [v for v in was if v in now]:
                words.append(f"axis {axis.name!r} is in another order")
        if list(self.values) != [axis.name for axis in axes]:
            words.append("the axes are in another order")
        return words


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
            ours = lambda path: path.suffix == ".lock" or _files.is_unfinished(path)  # noqa: E731
            strange = [path.name for path in folder.iterdir() if not ours(path)]
            if strange and not (folder / _LAYOUT).exists():  # another shard may just have made it
                raise SweepStoreError(
                    f"store={folder} holds other files ({min(strange)}) and no sweep; pass "
                    "an empty or a new folder."
                )

    # ------------------------------------------------------------------ reading
    def layout(self) -> Layout | None:
        """What the store was last asked for; None if it is new.

        Raises:
            SweepStoreError: it belongs to another spec or code version, with both hashes.
        """
        path = self.folder / _LAYOUT
        if not path.exists():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if (form := kept.get("format", 1)) != _FORMAT:
                raise SweepStoreError(
                    f"the store {self.folder} was written in another form (number {form}, this is "
                    f"{_FORMAT}), by gdln_jax {kept['code']['gdln_jax']}. Continue with that "
                    "version, or pass another folder, in which all points are computed again; "
                    "xarray.open_dataset reads the results in its files chunk-*.nc."
                )
            spec, code = self.spec.question, self.spec.code
            halves = (
                ("spec", kept["hash"], self.spec.hash, kept["spec"], spec),
                ("code version", kept["code hash"], self.spec.code_hash, kept["code"], code),
            )
            layout = Layout(kept["chunk"], frozenset(kept["static"]), kept["axes"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SweepStoreError(
                f"{path} is not what a sweep wrote ({error}); pass another folder."
            ) from error
        for kind, old, new, was, asked in halves:
            if old != new:
                raise SweepStoreError(
                    f"the store {self.folder} belongs to another {kind}: it has {old}, this sweep "
                    f"{new} ({differences(was, asked)}). Pass another folder, or what made it."
                )
        return layout

    def found(self, grid: Grid) -> list[Block]:
        """The results of all points of `grid` that are kept, each once."""
        there, results = np.zeros(grid.size, bool), []
        for path in sorted(self.folder.glob("chunk-*.nc")):
            if path.name not in self._parts:
                self._parts[path.name] = _read(path)
            part = self._parts[path.name]
            if part is None:
                continue
            columns, block = part
            numbers = grid.numbers(columns)
            rows = np.flatnonzero((numbers >= 0) & ~there[numbers])
            there[numbers[rows]] = True
            if len(rows):
                results.append(dataclasses.replace(block, numbers=numbers).rows(rows))
        return results

    # ------------------------------------------------------------------ writing
    @contextlib.contextmanager
    def writing(self, missing: str) -> Iterator[None]:
        """Hold the folder as the one sweep, or as one of its shards, that writes to it.

        Removes damaged files, and what a killed process of the same shard left unfinished.

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
            _files.remove_unfinished(self.folder, "*" if self.shard is None else self.mark)
            for name in [name for name, part in self._parts.items() if part is None]:
                (self.folder / name).unlink(missing_ok=True)
                del self._parts[name]
            yield

    def lay_out(self, axes: tuple[Axis, ...], chunk: int, static: frozenset[str]) -> int:
        """Write the layout for these axes; return the points per chunk, which another shard of the
        same call may have chosen before.
        """
        with turn(self.folder):
            known = self.layout()
            if known is not None and not known.changes(axes):
                return known.chunk
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
            self._write(_LAYOUT, json.dumps(layout, indent=1).encode())
            return chunk

    def write(self, number: int, block: Block, coordinates: Mapping[str, np.ndarray]) -> None:
        """Keep finished points: on the disk before this returns, whole or not at all.

        Raises:
            SweepStoreError: the disk is full or does not take it; what is there stays readable.
        """
        attrs = {"sweep_spec": self.spec.hash, "chunk": number}
        content = bytes(_packed(block, coordinates, attrs).to_netcdf(engine="h5netcdf"))
        self._write(f"chunk-{number:06d}-{hashlib.sha256(content).hexdigest()}.nc", content)

    def _write(self, name: str, content: bytes) -> None:
        try:
            _files.write(self.folder / name, content, by=self.mark)
        except OSError as error:
            done = len(list(self.folder.glob("chunk-*.nc")))
            why = "the disk is full" if error.errno in _FULL else f"it cannot be written ({error})"
            raise SweepStoreError(
                f"store {self.folder}: {why}. {done} chunks are stored and stay readable; make "
                "space and call the same sweep again, it resumes from there."
            ) from error


def _texts(axis: Axis) -> list[str]:
    return [repr(value) for value in axis.values]


def _few(texts: list[str], limit: int = 4) -> str:
    rest = f", ... ({len(texts)} values)" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + rest


def _read(path: Path) -> _Part | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # another shard has just removed it
        return None
    except OSError as error:
        raise SweepStoreError(f"{path} cannot be read ({error.strerror}).") from error
    whole = hashlib.sha256(content).hexdigest() == path.stem.rsplit("-", 1)[-1]
    return _unpacked(content) if whole else None


def _packed(
    block: Block, coordinates: Mapping[str, np.ndarray], attrs: Mapping[str, str | int]
) -> xr.Dataset:
    data = {
        name: (("point", *(f"{name}_dim_{k}" for k in range(array.ndim - 1))), array)
        for name, array in block.arrays.items()
    }
    data |= {"status": (("point",), block.status), "message": (("point",), block.messages)}
    coords = {name: ("point", column) for name, column in coordinates.items()}
    return xr.Dataset(data, coords, attrs)


def _unpacked(content: bytes) -> _Part:
    # Whole numbers and flags come back as they were; nothing is a date.
    with xr.open_dataset(
        io.BytesIO(content), engine="h5netcdf", decode_times=False, mask_and_scale=False
    ) as data:
        arrays = {str(k): np.asarray(v.values) for k, v in data.data_vars.items()}
        columns = {str(k): np.asarray(v.values) for k, v in data.coords.items()}
    status, messages = arrays.pop("status"), arrays.pop("message").astype(object)
    numbers = np.arange(len(status))
    return columns, Block(numbers, arrays, status.astype(np.int8), messages)
