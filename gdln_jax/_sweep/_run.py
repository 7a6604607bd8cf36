"""One sweep between its question and its results: what the store has, and computing the rest.

Points of one choice of static values are a group, which is one program. A group is computed in
chunks; with a store each chunk is kept before the next one begins.
"""

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from gdln_jax import _machine
from gdln_jax._checks import listed
from gdln_jax._sweep import _memory, _progress
from gdln_jax._sweep._axes import Axis, Fn, Grid
from gdln_jax._sweep._interrupt import between_chunks
from gdln_jax._sweep._processes import agreed, default_mesh
from gdln_jax._sweep._program import Block, OutOfMemoryError, Point, Program, points
from gdln_jax._sweep._spec import Spec, make_spec
from gdln_jax._sweep._static import check_labels, find_static, traced
from gdln_jax._sweep._status import RESERVED
from gdln_jax._sweep._store import Layout, Store, SweepStoreError

# With a store a kill costs at most a sixteenth of a group, or this many runs.
_PARTS, _LEAST = 16, 16
_log = logging.getLogger("gdln_jax.sweep")


@dataclass(frozen=True)
class Run:
    """What `sweep` was asked, checked; `shard` is None for all of it, `mesh` for one device.

    `errors` collects what fn raised while it was traced.
    """

    fn: Fn
    axes: tuple[Axis, ...]
    key: jax.Array
    key_axes: tuple[str, ...]
    static: tuple[str, ...]
    batch: int | None = None
    folder: Path | None = None
    shard: tuple[int, int] | None = None
    mesh: Mesh | None = None
    errors: list[Exception] = field(default_factory=list)

    # ------------------------------------------------------------------ what is there
    @cached_property
    def spec(self) -> Spec:
        """What a store of this sweep belongs to."""
        return make_spec(self.fn, self.axes, self.key_axes, self.key)

    @cached_property
    def store(self) -> Store | None:
        """The folder, as far as there is one."""
        return None if self.folder is None else Store(self.folder, self.spec, self.shard)

    @cached_property
    def _before(self) -> Layout | None:
        """What the store was asked for before this call."""
        return None if self.store is None else self.store.layout()

    @cached_property
    def grid(self) -> Grid:
        """The points, and which axes are static: as the store says, or found out by tracing.

        Raises:
            ValueError: a value that fn would see as another one.
        """
        if self._before is None:
            static = find_static(self.fn, self.axes, self.static, self.key)
        else:
            static = self._before.static
        check_labels(self.axes, static)
        return Grid(self.axes, static, self.key_axes)

    @cached_property
    def missing(self) -> int:
        """How many points were not in the store when this was first asked."""
        return self.grid.size - sum(len(block.numbers) for block in self._stored())

    def _stored(self) -> list[Block]:
        """What the store holds of the grid: what process 0 sees, which all processes must see."""
        if self.store is None:
            return []
        blocks = self.store.found(self.grid)
        there = points(blocks, self.grid.size)
        wanted = agreed(there)
        if np.any(wanted & ~there):
            raise RuntimeError(
                f"points in {self.folder} are seen by process 0 only; the store must be on a file "
                "system that all processes share."
            )
        kept = [block.rows(np.flatnonzero(wanted[block.numbers])) for block in blocks]
        return [block for block in kept if len(block.numbers)]

    def shapes(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        """What fn returns at the first point at which it can be traced; empty without one."""
        for shapes in map(self._traced, self.grid.groups):
            if not isinstance(shapes, Exception):
                return shapes
        return {}

    def _traced(self, numbers: np.ndarray) -> Mapping[str, jax.ShapeDtypeStruct] | Exception:
        return traced(self.fn, self.grid, int(numbers[0]), self.key)

    def log_changes(self) -> None:
        """Log how the axes differ from those that the store was last asked for."""
        changes = [] if self._before is None else self._before.changes(self.axes)
        if changes:
            size, left = self.grid.size, self.missing
            text = "store %s: %s. %d of %d points are there, %d are left to do."
            _log.warning(text, self.folder, "; ".join(changes), size - left, size, left)

    # ------------------------------------------------------------------ the rest
    @contextlib.contextmanager
    def held(self) -> Iterator[int]:
        """Hold the store, if there is one and it lacks points; yields the points per chunk."""
        size = self.grid.groups.shape[1]
        if self.store is None or not self.missing:
            yield self.batch or size
            return
        chunk = self.batch or min(size, max(_LEAST, math.ceil(size / _PARTS)))
        # Process 0 writes; the others learn from it how the points are divided.
        first = _machine.is_first()
        with self._locked(self.store) if first else contextlib.nullcontext(False) as may_write:
            if may_write:
                chunk = self.store.lay_out(self.axes, chunk, self.grid.static)
            yield int(agreed(np.asarray(chunk)))

    @contextlib.contextmanager
    def _locked(self, store: Store) -> Iterator[bool]:
        """Hold the store for writing; False where that fails, but nothing would be written.

        That is so if fn can be traced at none of the points that are missing.
        """
        with contextlib.ExitStack() as stack:
            try:
                lacks = f"{self.missing} of {self.grid.size} points are not in it"
                stack.enter_context(store.writing(lacks))
                may_write = True
            except SweepStoreError:
                there = points(store.found(self.grid), self.grid.size)
                left = [members[~there[members]] for members in self.grid.groups]
                tried = [self._traced(numbers) for numbers in left if len(numbers)]
                if not all(isinstance(outcome, Exception) for outcome in tried):
                    raise
                may_write = False
            yield may_write

    def compute(self, progress: bool | _progress.Report) -> list[Block]:
        """The results of this shard's points and of what is in the store.

        Chunk k of the whole grid belongs to shard k mod n, whatever is in the store already. What
        a shard has left to do is cut into chunks of the same size: of a store that grows, few.
        A store that has all points is read, and nothing else.
        """
        number, count = self.shard or (0, 1)
        with self.held() as chunk:
            done = self._stored()
            there = points(done, self.grid.size)
            owner = _chunk_numbers(self.grid, chunk)
            mine = owner % count == number
            already, asked = int(np.sum(mine & there)), max(int(np.sum(mine)), 1)
            with (
                between_chunks() as check_interrupt,
                _progress.reporting(progress, already, asked) as ended,
            ):
                for members in self.grid.groups:
                    left = members[(mine & ~there)[members]]
                    for block in self._results(left, chunk, owner) if len(left) else ():
                        done.append(block)
                        ended(len(block.numbers))
                        check_interrupt()
        return done

    def _results(self, numbers: np.ndarray, chunk: int, owner: np.ndarray) -> Iterator[Block]:
        """Compile the program of points of one group, and run and keep them chunk by chunk."""
        mesh = default_mesh() if self.mesh is None else self.mesh
        make = Maker(self, int(numbers[0]), mesh)
        try:
            program = make.first(min(chunk, self.batch or chunk, self.grid.groups.shape[1]))
        except Exception as error:  # noqa: BLE001  whatever fn raises belongs to its points
            self.errors.append(error)
            # Not kept: to find it out again costs nothing.
            yield Block.raised(numbers, error)
            return
        _check_program(program, self.grid)
        for start in range(0, len(numbers), chunk):
            piece = numbers[start : start + chunk]
            program, block = make.finished(program, piece)
            if self.store is not None and _machine.is_first():
                self.store.write(int(owner[piece[0]]), block, self.grid.columns(piece))
            yield block


@dataclass(frozen=True)
class Maker:
    """Makes programs for the group of a point, such that a batch fits into the memory."""

    run: Run
    number: int
    mesh: Mesh | None

    @property
    def devices(self) -> int:
        """How many share a batch."""
        return 1 if self.mesh is None else int(self.mesh.devices.size)

    @cached_property
    def _point(self) -> Point:
        return Point(self.run.fn, self.run.grid, self.number, self.run.key)

    def program(self, batch: int) -> Program:
        """For batches of this many points."""
        return Program(self._point, batch, self.mesh)

    def first(self, wanted: int) -> Program:
        """For a batch as the user asked for it, else as large as fits by the compiler's account.

        On a CPU no larger than the caches, and one batch at a time on each core.
        """
        if self.run.batch is not None:
            return self.program(self.devices * math.ceil(wanted / self.devices))
        local = jax.local_devices()
        device = local[0] if self.mesh is None else self.mesh.local_devices[0]
        limit = int(agreed(np.asarray(_memory.budget(device), np.float32)))
        on_cpu = device.platform == "cpu"
        if on_cpu and wanted > self.devices:
            wanted = _memory.in_cache(wanted, self.devices, self._point.own_bytes())
        program = _memory.fitted(self.program, wanted, self.devices, limit)
        if on_cpu and self.mesh is None and not program.calls_python:
            at_once = limit // max(program.bytes_needed(), 1)
            program.threads = max(1, min(_machine.cores(), at_once))
        return program

    def finished(self, program: Program, numbers: np.ndarray) -> tuple[Program, Block]:
        """Run a chunk; halve a batch that nobody asked for and that does not fit after all."""
        while True:
            try:
                return program, program(numbers)
            except OutOfMemoryError:
                smaller = program.batch // 2 // self.devices * self.devices
                if self.run.batch is not None or smaller == 0:
                    raise
                program = self.program(smaller)


def _chunk_numbers(grid: Grid, chunk: int) -> np.ndarray:
    """The chunk of the whole grid that each point belongs to, (point,)."""
    count, size = grid.groups.shape
    owner = np.empty(grid.size, int)
    owner[grid.groups] = np.arange(count)[:, None] * math.ceil(size / chunk) + (
        np.arange(size) // chunk
    )
    return owner


def _check_program(program: Program, grid: Grid) -> None:
    if program.generators:
        raise ValueError(
            f"fn makes keys of its own, of the type {listed(sorted(program.generators))}: under "
            "vmap their random numbers depend on the points that are computed together. Draw from "
            "the key that fn is given, or make keys by jax.random.key(seed, impl='threefry2x32')."
        )
    taken = {axis.name for axis in grid.axes} | set(RESERVED)
    for name in program.shapes:
        if name in taken:
            raise ValueError(
                f"fn returns an array named {name!r}, which is the name of an axis or of a "
                "variable that every sweep has; give it another one."
            )
