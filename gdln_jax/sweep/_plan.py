"""The chunks of a sweep: which of them are left to do, and doing them one after another."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from gdln_jax import _distributed
from gdln_jax.sweep import _memory, _progress
from gdln_jax.sweep._axes import Grid
from gdln_jax.sweep._interrupt import between_chunks
from gdln_jax.sweep._program import Block, OutOfMemoryError, Program
from gdln_jax.sweep._status import RAISED, RESERVED
from gdln_jax.sweep._store import Store


@dataclass
class Plan:
    """The chunks of a sweep, and the program of the group at hand."""

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
        """Results of this shard's chunks, and of all others that are in the store."""
        size = self.grid.groups.shape[1]
        chunks = [
            (group, members[start : start + self.chunk])
            for group, members in enumerate(self.grid.groups)
            for start in range(0, size, self.chunk)
        ]
        mine = range(self.shard[0], len(chunks), self.shard[1])
        done = self._stored(range(len(chunks)))
        pending = [k for k in mine if k not in done]
        points = sum(len(chunks[k][1]) for k in mine)
        before = points - sum(len(chunks[k][1]) for k in pending)
        program: Program | None = None
        at = None
        with (
            between_chunks() as check_interrupt,
            _progress.reporting(progress, before, max(points, 1)) as ended,
        ):
            for k in pending:
                group, numbers = chunks[k]
                if group != at:
                    at, program = group, None  # only one program is kept
                    program = self._compiled(int(numbers[0]))
                    _check_names(program, self.grid)
                if program is None:
                    # Not kept: to find it out again costs nothing.
                    done[k] = Block.raised(len(numbers), self.errors[-1])
                else:
                    program, done[k] = self._finished(program, numbers)
                    if self.store is not None and _distributed.is_first():
                        self.store.write(k, done[k], self.grid.columns(numbers))
                ended(len(numbers))
                check_interrupt()
        if done and all(np.all(block.status == RAISED) for block in done.values()):
            message = next(iter(done.values())).messages[0]
            cause = self.errors[0] if self.errors else None
            raise RuntimeError(f"fn raised at every point of the sweep: {message}") from cause
        return [(chunks[k][1], done[k]) for k in sorted(done)]

    def _stored(self, numbers: Sequence[int]) -> dict[int, Block]:
        if self.store is None:
            return {}
        found = {k: self.store.read(k) for k in numbers}
        # Processes of one program must agree on what is left to do.
        there = _distributed.agreed(np.array([found[k] is not None for k in numbers]))
        return {k: self._visible(k, found[k]) for k, is_there in enumerate(there) if is_there}

    def _visible(self, number: int, block: Block | None) -> Block:
        if block is None:
            assert self.store is not None
            raise RuntimeError(
                f"chunk {number} in {self.store.folder} is seen by process 0 only; the store must "
                "be on a file system that all processes share."
            )
        return block

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


def _check_names(program: Program | None, grid: Grid) -> None:
    taken = [axis.name for axis in grid.axes] + list(RESERVED)
    for name in () if program is None else program.shapes:
        if name in taken:
            raise ValueError(
                f"fn returns an array named {name!r}, which is the name of an axis or of a "
                "variable that every sweep has; give it another one."
            )
