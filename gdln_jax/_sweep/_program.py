"""One compiled program: fn over a batch of points that share their static values.

`jax.vmap`, and with a mesh `jax.shard_map` around it: each device solves its own points, with no
collective inside (sharding by annotation would put an all-reduce into every solver step). A batch
that is not full is filled up with its last point, so that a group needs one compilation.
"""

import functools
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from gdln_jax._sweep._axes import WORDS, Fn, Grid
from gdln_jax._sweep._jaxpr import calls_python, depend_on_batch, step_bytes
from gdln_jax._sweep._processes import whole
from gdln_jax._sweep._status import RAISED, labelled

# Key, words of the points (point, WORDS) and their values (point,) by axis; in NumPy, and placed.
_Known = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]
_Arguments = tuple[jax.Array, jax.Array, dict[str, jax.Array]]


@dataclass(frozen=True)
class Block:
    """Results of some points: their numbers (point,), arrays (point, ...) by name, status and
    message (point,).

    Without arrays where fn could not even be traced.
    """

    numbers: np.ndarray
    arrays: Mapping[str, np.ndarray]
    status: np.ndarray
    messages: np.ndarray

    @classmethod
    def raised(
        cls,
        numbers: np.ndarray,
        error: Exception,
        shapes: Mapping[str, jax.ShapeDtypeStruct] | None = None,
    ) -> "Block":
        """Points at which fn raised; `shapes` are those of a batch of results, if it has any."""
        count = len(numbers)
        arrays = {name: _blank(count, like) for name, like in (shapes or {}).items()}
        messages = np.full(count, _in_a_line(error), dtype=object)
        return cls(numbers, arrays, np.full(count, RAISED, np.int8), messages)

    def rows(self, rows: np.ndarray) -> "Block":
        """Some of the points; `rows` increase."""
        if len(rows) == len(self.status):
            return self  # large arrays are not copied
        arrays = {name: array[rows] for name, array in self.arrays.items()}
        return Block(self.numbers[rows], arrays, self.status[rows], self.messages[rows])

    @classmethod
    def joined(cls, blocks: list["Block"]) -> "Block":
        """One after another."""
        if len(blocks) == 1:
            return blocks[0]
        arrays = {k: np.concatenate([b.arrays[k] for b in blocks]) for k in blocks[0].arrays}
        columns = zip(*((b.numbers, b.status, b.messages) for b in blocks), strict=True)
        numbers, status, messages = (np.concatenate(column) for column in columns)
        return cls(numbers, arrays, status, messages)


def _in_a_line(error: Exception) -> str:
    """The error as text; of one from inside a program only what was raised there."""
    text = f"{type(error).__name__}: {error}".strip()
    if isinstance(error, jax.errors.JaxRuntimeError) and "EquinoxRuntimeError: " in text:
        return text.split("EquinoxRuntimeError: ", 1)[1].splitlines()[0]
    return text


def _blank(count: int, like: jax.ShapeDtypeStruct) -> np.ndarray:
    fill = np.nan if jnp.issubdtype(like.dtype, jnp.floating) else 0
    return np.full((count, *like.shape[1:]), fill, like.dtype)


class OutOfMemoryError(RuntimeError):
    """The device could not hold a batch."""


class Point:
    """fn at a point of the group of `number`, traced once for batches of all sizes."""

    def __init__(self, fn: Fn, grid: Grid, number: int, key: jax.Array) -> None:
        self.grid = grid
        self.key_data = np.asarray(jax.random.key_data(key))
        fixed, impl = grid.static_values(number), jax.random.key_impl(key)

        @functools.partial(jax.jit, inline=True)
        def one(
            key: jax.Array, words: jax.Array, values: dict[str, jax.Array]
        ) -> tuple[dict[str, jax.Array], jax.Array]:
            for k in range(WORDS):
                key = jax.random.fold_in(key, words[k])
            return labelled(fn(key, **fixed, **values))

        def many(
            key_data: jax.Array, words: jax.Array, values: dict[str, jax.Array]
        ) -> tuple[dict[str, jax.Array], jax.Array]:
            key = jax.random.wrap_key_data(key_data, impl=impl)
            return jax.vmap(one, in_axes=(None, 0, 0))(key, words, values)

        self.many = many

    def own_bytes(self) -> int:
        """Bytes by which one more point adds to a step of the largest loop, see `step_bytes`."""
        numbers = self.grid.groups.flat[:1]
        one, two = (
            step_bytes(jax.make_jaxpr(self.many)(*self.arguments(numbers, count)))
            for count in (1, 2)
        )
        return two - one

    def arguments(self, numbers: np.ndarray, batch: int) -> _Known:
        """What `many` takes for these points, filled up to a batch."""
        full = np.concatenate([numbers, np.repeat(numbers[-1:], batch - len(numbers))])
        columns = self.grid.columns(full)
        values = {
            a.name: columns[a.name].astype(jax.dtypes.canonicalize_dtype(a.dtype))
            for a in self.grid.traced
        }
        return self.key_data, self.grid.words(full), values


class Program:
    """fn over `batch` points of one group, compiled on construction.

    `threads`: how many batches may run at once. A program whose loops are small keeps one core
    busy.
    """

    threads = 1

    def __init__(self, point: Point, batch: int, mesh: Mesh | None) -> None:
        self.point, self.grid, self.batch = point, point.grid, batch
        self.placed: tuple[NamedSharding, NamedSharding] | None = None
        if mesh is None:
            jitted = jax.jit(point.many)
        else:
            # Automatic axes whatever the mesh was made with: explicit ones do not go through vmap.
            mesh = Mesh(mesh.devices, mesh.axis_names)
            split = P(mesh.axis_names)
            of_all, of_points = NamedSharding(mesh, P()), NamedSharding(mesh, split)
            self.placed = of_all, of_points
            specs = {"in_specs": (P(), split, split), "out_specs": split}
            mapped = jax.shard_map(point.many, mesh=mesh, check_vma=False, **specs)
            jitted = jax.jit(mapped, in_shardings=(of_all, of_points, of_points))
        traced = jitted.trace(*self._arguments(self.grid.groups.flat[:1]))
        self.generators = depend_on_batch(traced.jaxpr)
        self.calls_python = calls_python(traced.jaxpr)
        lowered = traced.lower()
        self.shapes: Mapping[str, jax.ShapeDtypeStruct] = lowered.out_info[0]
        self.compiled = lowered.compile()

    def bytes_needed(self) -> int:
        """Memory of one batch on one device, in bytes; 0 if the backend does not report it."""
        found = self.compiled.memory_analysis()
        if found is None:
            return 0
        parts = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
        return sum(int(getattr(found, part, 0)) for part in parts)

    def flops(self) -> float:
        """Floating-point operations of a batch as the compiler counts them, loop bodies once."""
        cost = self.compiled.cost_analysis()
        return float((cost or {}).get("flops", 0.0))

    def __call__(self, numbers: np.ndarray) -> Block:
        """Run points of the group, any number of them.

        A batch in which fn raises fails as a whole: it is cut in two until each of its points has
        a result or an error of its own.
        """
        batches = [numbers[s : s + self.batch] for s in range(0, len(numbers), self.batch)]
        # Made here: settings of JAX such as `jax.enable_x64` hold for one thread.
        given = [self._arguments(batch) for batch in batches]
        if self.threads == 1:
            outcomes = list(map(self._attempt, batches, given))
        else:
            pool = ThreadPoolExecutor(self.threads)
            try:
                outcomes = list(pool.map(self._attempt, batches, given))
            finally:
                pool.shutdown(cancel_futures=True)
        pairs = zip(batches, outcomes, strict=True)
        return Block.joined([block for pair in pairs for block in self._settled(*pair)])

    def _attempt(self, numbers: np.ndarray, arguments: _Arguments) -> Block | RuntimeError:
        try:
            return self._run(numbers, arguments)
        except jax.errors.JaxRuntimeError as error:
            self._check_alone(error)
            return error

    def _settled(self, numbers: np.ndarray, outcome: Block | RuntimeError) -> list[Block]:
        if isinstance(outcome, Block):
            return [outcome]
        if len(numbers) == 1:
            return [Block.raised(numbers, outcome, self.shapes)]
        halves = np.array_split(numbers, 2)
        tried = [(half, self._attempt(half, self._arguments(half))) for half in halves]
        return [block for pair in tried for block in self._settled(*pair)]

    def _check_alone(self, error: Exception) -> None:
        """Raise what is no error of a single point."""
        if "RESOURCE_EXHAUSTED" in str(error):
            raise OutOfMemoryError(
                f"the device ran out of memory on a batch of {self.batch} points: pass a "
                f"smaller batch=, for example {max(1, self.batch // 2)}."
            ) from error
        if jax.process_count() > 1:
            raise error  # the other processes wait in this very batch

    def _run(self, numbers: np.ndarray, arguments: _Arguments) -> Block:
        arrays, status = self.compiled(*arguments)
        count = len(numbers)
        return Block(
            numbers,
            {name: whole(array)[:count] for name, array in arrays.items()},
            whole(status)[:count],
            np.full(count, "", dtype=object),
        )

    def _arguments(self, numbers: np.ndarray) -> _Arguments:
        """What the program takes for these points, on its devices."""
        key_data, words, values = self.point.arguments(numbers, self.batch)
        if self.placed is None:
            return jax.device_put((key_data, words, values))
        of_all, of_points = self.placed
        return (
            _placed(key_data, of_all),
            _placed(words, of_points),
            {name: _placed(value, of_points) for name, value in values.items()},
        )


def _placed(array: np.ndarray, where: NamedSharding) -> jax.Array:
    """A global array; each process puts its own part on its devices."""
    return jax.make_array_from_callback(array.shape, where, lambda index: array[index])


def points(blocks: Iterable[Block], size: int) -> np.ndarray:
    """Which points of a grid of `size` have results, (point,)."""
    there = np.zeros(size, bool)
    for block in blocks:
        there[block.numbers] = True
    return there
