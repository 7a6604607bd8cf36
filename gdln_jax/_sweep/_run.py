"""One sweep between its question and its results: what is in the store, and what is left to do."""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from gdln_jax import _machine as _distributed
from gdln_jax._sweep import _progress
from gdln_jax._sweep._axes import Axis, Grid
from gdln_jax._sweep._plan import Plan, mask, stored
from gdln_jax._sweep._program import Block
from gdln_jax._sweep._spec import Spec, make_spec
from gdln_jax._sweep._static import check_labels, find_static, trouble
from gdln_jax._sweep._store import Store, SweepStoreError, changes

# With a store a kill costs at most a sixteenth of a group, or this many runs.
_PARTS, _LEAST = 16, 16
_log = logging.getLogger("gdln_jax.sweep")


@dataclass(frozen=True)
class Run:
    """What `sweep` was asked, checked; `shard` is None for all of it."""

    fn: Callable[..., Any]
    axes: tuple[Axis, ...]
    key: jax.Array
    key_axes: tuple[str, ...]
    static: tuple[str, ...]
    batch: int | None = None
    folder: Path | None = None
    shard: tuple[int, int] | None = None
    mesh: Mesh | None = None
    errors: list[Exception] = field(default_factory=list)

    @cached_property
    def spec(self) -> Spec:
        """What a store of this sweep belongs to."""
        return make_spec(self.fn, self.axes, self.key_axes, self.key)

    @cached_property
    def store(self) -> Store | None:
        """The folder, as far as there is one."""
        return None if self.folder is None else Store(self.folder, self.spec, self.shard)

    @cached_property
    def _layout(self) -> dict[str, Any] | None:
        """What the store was laid out for before this call."""
        return None if self.store is None else self.store.layout()

    @cached_property
    def grid(self) -> Grid:
        """The points, and which axes are static: as the store says, or found out by tracing.

        Raises:
            ValueError: a value that fn would see as another one.
        """
        static = (
            frozenset(self._layout["static"])
            if self._layout
            else find_static(self.fn, self.axes, self.static, self.key)
        )
        check_labels(self.axes, static)
        return Grid(self.axes, static, self.key_axes)

    @cached_property
    def missing(self) -> int:
        """How many points were not in the store when this was first asked."""
        done = [] if self.store is None else stored(self.store, self.grid)
        return self.grid.size - sum(len(numbers) for numbers, _ in done)

    def say_changes(self) -> None:
        """Log how the axes differ from those that the store was last asked for."""
        words = changes(self._layout, self.axes) if self._layout else []
        if words:
            size = self.grid.size
            _log.warning(
                "store %s: %s. %d of %d points are there, %d are left to do.",
                self.folder,
                "; ".join(words),
                size - self.missing,
                size,
                self.missing,
            )

    def compute(self, progress: bool | _progress.Report) -> list[tuple[np.ndarray, Block]]:
        """The results of this shard's points and of what is in the store, by numbers of points.

        A store that has all points is read, and nothing else.
        """
        with contextlib.ExitStack() as held:
            chunk = held.enter_context(self.laid_out())
            mesh = _distributed.default_mesh() if self.mesh is None else self.mesh
            plan = Plan(
                self.fn,
                self.grid,
                self.key,
                chunk,
                self.batch,
                mesh,
                self.store,
                self.shard or (0, 1),
                self.errors,
            )
            return plan.run(progress)

    def _may_write(self, held: contextlib.ExitStack, store: Store) -> bool:
        """Hold the store, or let it be where nothing would be written: at the points that it lacks
        fn cannot be traced, which is not kept.
        """
        try:
            lacks = f"{self.missing} of {self.grid.size} points are not in it"
            held.enter_context(store.writing(lacks))
        except SweepStoreError:
            there = mask(self.grid, store.found(self.grid))
            for members in self.grid.groups:
                left = members[~there[members]]
                if len(left) and trouble(self.fn, self.grid, int(left[0]), self.key) is None:
                    raise
            return False
        return True

    @contextlib.contextmanager
    def laid_out(self) -> Iterator[int]:
        """Hold the store, if there is one and it lacks points; yields the points per chunk."""
        points = self.grid.groups.shape[1]
        chunk = self.batch or points
        if self.store is None or not self.missing:
            yield chunk
            return
        chunk = self.batch or min(points, max(_LEAST, math.ceil(points / _PARTS)))
        with contextlib.ExitStack() as held:
            if _distributed.is_first() and self._may_write(held, self.store):
                chunk = self.store.lay_out(self.axes, chunk, self.grid.static)["chunk"]
            yield int(_distributed.agreed(np.asarray(chunk)))
