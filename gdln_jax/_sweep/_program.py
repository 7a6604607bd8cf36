"""One compiled program: fn over a batch of points that share their static values.

`jax.vmap`, and with a mesh `jax.shard_map` around it: each device solves its own points, with no
collective inside (sharding by annotation would put an all-reduce into every solver step). A batch
that is not full is filled up with its last point, so that a group needs one compilation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from gdln_jax._sweep._axes import WORDS, Fn, Grid
from gdln_jax._sweep._processes import whole
from gdln_jax._sweep._status import RAISED, labelled

# Primitives that draw random numbers, and the type of keys that vmap keeps apart.
_DRAWING, _SAFE = {"random_bits", "random_gamma"}, "key<fry>"


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


class Program:
    """fn over `batch` points of the group of `number`, compiled on construction."""

    def __init__(
        self, fn: Fn, grid: Grid, number: int, key: jax.Array, batch: int, mesh: Mesh | None
    ) -> None:
        self.grid, self.batch = grid, batch
        self.key_data = np.asarray(jax.random.key_data(key))
        fixed, impl = grid.static_values(number), jax.random.key_impl(key)

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

        self.placed: tuple[NamedSharding, NamedSharding] | None = None
        if mesh is None:
            jitted = jax.jit(many)
        else:
            # Automatic axes whatever the mesh was made with: explicit ones do not go through vmap.
            mesh = Mesh(mesh.devices, mesh.axis_names)
            split = P(mesh.axis_names)
            of_all, of_points = NamedSharding(mesh, P()), NamedSharding(mesh, split)
            self.placed = of_all, of_points
            specs = {"in_specs": (P(), split, split), "out_specs": split}
            mapped = jax.shard_map(many, mesh=mesh, check_vma=False, **specs)
            jitted = jax.jit(mapped, in_shardings=(of_all, of_points, of_points))
        traced = jitted.trace(*self._arguments(grid.groups.flat[:1]))
        self.generators = _depend_on_batch(traced.jaxpr)
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
        waiting = [numbers[s : s + self.batch] for s in range(0, len(numbers), self.batch)]
        done = []
        while waiting:
            batch = waiting.pop(0)
            try:
                done.append(self._run(batch))
            except jax.errors.JaxRuntimeError as error:
                self._check_alone(error)
                if len(batch) == 1:
                    done.append(Block.raised(batch, error, self.shapes))
                else:
                    waiting[:0] = np.array_split(batch, 2)
        return Block.joined(done)

    def _check_alone(self, error: Exception) -> None:
        """Raise what is no error of a single point."""
        if "RESOURCE_EXHAUSTED" in str(error):
            raise OutOfMemoryError(
                f"the device ran out of memory on a batch of {self.batch} points: pass a "
                f"smaller batch=, for example {max(1, self.batch // 2)}."
            ) from error
        if jax.process_count() > 1:
            raise error  # the other processes wait in this very batch

    def _run(self, numbers: np.ndarray) -> Block:
        arrays, status = self.compiled(*self._arguments(numbers))
        count = len(numbers)
        return Block(
            numbers,
            {name: whole(array)[:count] for name, array in arrays.items()},
            whole(status)[:count],
            np.full(count, "", dtype=object),
        )

    def _arguments(self, numbers: np.ndarray) -> tuple:
        """Key, words of the points and their values, for a full batch, on the devices."""
        full = np.concatenate([numbers, np.repeat(numbers[-1:], self.batch - len(numbers))])
        columns = self.grid.columns(full)
        values = {
            a.name: columns[a.name].astype(jax.dtypes.canonicalize_dtype(a.dtype))
            for a in self.grid.traced
        }
        if self.placed is None:
            return self.key_data, self.grid.words(full), values
        of_all, of_points = self.placed
        return (
            _placed(self.key_data, of_all),
            _placed(self.grid.words(full), of_points),
            {name: _placed(value, of_points) for name, value in values.items()},
        )


def _depend_on_batch(program: ClosedJaxpr) -> set[str]:
    """The random generators of a program that give a point other numbers in another batch: all but
    threefry, where they are asked for many keys at once.
    """
    found: set[str] = set()
    inside: list[object] = [program]
    while inside:
        one = inside.pop()
        if isinstance(one, list | tuple):
            inside += one
        elif isinstance(one, ClosedJaxpr):
            inside.append(one.jaxpr)
        elif isinstance(one, Jaxpr):
            for equation in one.eqns:
                inside += equation.params.values()
                if equation.primitive.name in _DRAWING:
                    keys: Any = equation.invars[0].aval
                    found |= {str(keys.dtype)} if keys.ndim else set()
    return found - {_SAFE}


def _placed(array: np.ndarray, where: NamedSharding) -> jax.Array:
    """A global array; each process puts its own part on its devices."""
    return jax.make_array_from_callback(array.shape, where, lambda index: array[index])


def points(blocks: Iterable[Block], size: int) -> np.ndarray:
    """Which points of a grid of `size` have results, (point,)."""
    there = np.zeros(size, bool)
    for block in blocks:
        there[block.numbers] = True
    return there
