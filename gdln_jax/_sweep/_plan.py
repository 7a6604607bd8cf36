"""The chunks of a sweep: which of them are left to do, and doing them one after another."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from gdln_jax import _machine as _distributed
from gdln_jax._checks import listed
from gdln_jax._sweep import _memory, _progress
from gdln_jax._sweep._axes import Grid
from gdln_jax._sweep._interrupt import between_chunks
from gdln_jax._sweep._program import Block, OutOfMemoryError, Program
from gdln_jax._sweep._status import RESERVED
from gdln_jax._sweep._store import Store


@dataclass
class Plan:
    """The chunks of a sweep, and the program of the group at hand.

    Chunk k of the whole grid belongs to shard k mod n, whatever is in the store already. What a
    shard has left to do is cut into chunks of the same size anew: of a store that grows, few.
    """

    fn: Callable[..., Any]
    grid: Grid
    key: jax.Array
    chunk: int
    batch: int | None
    mesh: Mesh | None
    store: Store | None
    shard: tuple[int, int]
    errors: list[Exception] = field(default_factory=list)

    def run(self, progress: bool | _progress.Report) -> list[tuple[np.ndarray, Block]]:
        """Results of this shard's points, and of all others that are in the store."""
        done = [] if self.store is None else stored(self.store, self.grid)
        there = mask(self.grid, done)
        owner = self._chunk_numbers()
        mine = owner % self.shard[1] == self.shard[0]
        program: Program | None = None
        at = None
        before, points = int(np.sum(mine & there)), int(np.sum(mine))
        with (
            between_chunks() as check_interrupt,
            _progress.reporting(progress, before, max(points, 1)) as ended,
        ):
            for group, numbers in self._pending(mine & ~there):
                if group != at:
                    at, program = group, None  # only one program is kept
                    program = self._compiled(int(numbers[0]))
                    _check_program(program, self.grid)
                if program is None:
                    # Not kept: to find it out again costs nothing.
                    done.append((numbers, Block.raised(len(numbers), self.errors[-1])))
                else:
                    program, block = self._finished(program, numbers)
                    done.append((numbers, block))
                    if self.store is not None and _distributed.is_first():
                        self.store.write(int(owner[numbers[0]]), block, self.grid.columns(numbers))
                ended(len(numbers))
                check_interrupt()
        return done

    def _chunk_numbers(self) -> np.ndarray:
        """The chunk that each point belongs to, (point,)."""
        count, size = self.grid.groups.shape
        inside, per_group = np.arange(size) // self.chunk, math.ceil(size / self.chunk)
        owner = np.empty(self.grid.size, int)
        owner[self.grid.groups] = np.arange(count)[:, None] * per_group + inside
        return owner

    def _pending(self, wanted: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """The wanted points, group by group, in pieces of at most a chunk."""
        for group, members in enumerate(self.grid.groups):
            left = members[wanted[members]]
            for start in range(0, len(left), self.chunk):
                yield group, left[start : start + self.chunk]

    def _compiled(self, number: int) -> Program | None:
        """The program of the group that a point belongs to; None if fn raises there."""
        wanted = min(self.chunk, self.batch or self.chunk, self.grid.groups.shape[1])
        try:
            if self.batch is not None:
                return self._program(number, self._devices() * math.ceil(wanted / self._devices()))
            local = jax.local_devices()
            device = local[0] if self.mesh is None else self.mesh.local_devices[0]
            limit = int(_distributed.agreed(np.asarray(_memory.budget(device), np.float32)))
            return _memory.fitted(
                lambda batch: self._program(number, batch), wanted, self._devices(), limit
            )
        except Exception as error:  # noqa: BLE001  whatever fn raises belongs to its points
            self.errors.append(error)
            return None

    def _program(self, number: int, batch: int) -> Program:
        return Program(self.fn, self.grid, number, self.key, batch, self.mesh)

    def _devices(self) -> int:
        return 1 if self.mesh is None else int(self.mesh.devices.size)

    def _finished(self, program: Program, numbers: np.ndarray) -> tuple[Program, Block]:
        """Run a chunk; halve a batch that nobody asked for and that does not fit after all."""
        while True:
            try:
                return program, program(numbers)
            except OutOfMemoryError:
                smaller = program.batch // 2 // self._devices() * self._devices()
                if self.batch is not None or smaller == 0:
                    raise
                program = self._program(int(numbers[0]), smaller)


def stored(store: Store, grid: Grid) -> list[tuple[np.ndarray, Block]]:
    """What a store holds of a grid: what process 0 sees, which all processes must see."""
    found = store.found(grid)
    there = mask(grid, found)
    wanted = _distributed.agreed(there)
    if np.any(wanted & ~there):
        raise RuntimeError(
            f"points in {store.folder} are seen by process 0 only; the store must be on a file "
            "system that all processes share."
        )
    kept = [(numbers, np.flatnonzero(wanted[numbers]), block) for numbers, block in found]
    return [(numbers[rows], block.rows(rows)) for numbers, rows, block in kept if len(rows)]


def mask(grid: Grid, results: Sequence[tuple[np.ndarray, Block]]) -> np.ndarray:
    """Which points of a grid have results, (point,)."""
    there = np.zeros(grid.size, bool)
    for numbers, _ in results:
        there[numbers] = True
    return there


def _check_program(program: Program | None, grid: Grid) -> None:
    if program is not None and program.generators:
        raise ValueError(
            f"fn makes keys of its own, of the type {listed(sorted(program.generators))}: under "
            "vmap their random numbers depend on the points that are computed together. Draw from "
            "the key that fn is given, or make keys by jax.random.key(seed, impl='threefry2x32')."
        )
    taken = [axis.name for axis in grid.axes] + list(RESERVED)
    for name in () if program is None else program.shapes:
        if name in taken:
            raise ValueError(
                f"fn returns an array named {name!r}, which is the name of an axis or of a "
                "variable that every sweep has; give it another one."
            )
