"""One compiled program: fn over a batch of points that share their static values.

`jax.vmap`, and with a mesh `jax.shard_map` around it: each device solves its own points, with no
collective inside (sharding by annotation would put an all-reduce into every solver step). A batch
that is not full is filled up with its last point, so that a group needs one compilation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from gdln_jax._machine import whole
from gdln_jax._sweep._axes import WORDS, Grid
from gdln_jax._sweep._status import RAISED, labelled

# Primitives that draw random numbers, and the type of keys that vmap keeps apart.
_DRAWING, _SAFE = {"random_bits", "random_gamma"}, "key<fry>"


@dataclass(frozen=True)
class Block:
    """Results of some points: arrays (point, ...) by name, status and message (point,).

    Without arrays where fn could not even be traced.
    """

    arrays: dict[str, np.ndarray]
    status: np.ndarray
    messages: np.ndarray

    @classmethod
    def raised(cls, count: int, error: Exception, shapes: Any = None) -> "Block":
        """Points at which fn raised."""
        arrays = {} if shapes is None else {k: _blank(count, shapes[k]) for k in shapes}
        messages = np.full(count, _in_a_line(error), dtype=object)
        return cls(arrays, np.full(count, RAISED, np.int8), messages)

    def rows(self, rows: np.ndarray) -> "Block":
        """Some of the points."""
        if len(rows) == len(self.status):
            return self
        arrays = {name: array[rows] for name, array in self.arrays.items()}
        return Block(arrays, self.status[rows], self.messages[rows])

    @classmethod
    def joined(cls, blocks: list["Block"]) -> "Block":
        """One after another."""
        if len(blocks) == 1:
            return blocks[0]
        names = blocks[0].arrays
        return cls(
            {k: np.concatenate([b.arrays[k] for b in blocks]) for k in names},
            np.concatenate([b.status for b in blocks]),
            np.concatenate([b.messages for b in blocks]),
        )


def _in_a_line(error: Exception) -> str:
    """The error as text; of one from inside a program only what was raised there."""
    text = f"{type(error).__name__}: {error}".strip()
    if isinstance(error, jax.errors.JaxRuntimeError) and "EquinoxRuntimeError: " in text:
        return text.split("EquinoxRuntimeError: ", 1)[1].splitlines()[0]
    return text


def _blank(count: int, like: Any) -> np.ndarray:
    fill = np.nan if jnp.issubdtype(like.dtype, jnp.floating) else 0
    return np.full((count, *like.shape[1:]), fill, like.dtype)


class OutOfMemoryError(RuntimeError):
    """The device could not hold a batch."""


class Program:
    """fn over `batch` points of the group of `number`, compiled on construction."""

    def __init__(
        self,
        fn: Callable[..., Any],
        grid: Grid,
        number: int,
        key: jax.Array,
        batch: int,
        mesh: Mesh | None,
    ) -> None:
        self.grid, self.batch, self.mesh = grid, batch, mesh
        self.key_data = np.asarray(jax.random.key_data(key))
        fixed, impl = grid.static_values(number), jax.random.key_impl(key)

        def one(key: jax.Array, words: jax.Array, values: dict[str, jax.Array]) -> Any:
            for k in range(WORDS):
                key = jax.random.fold_in(key, words[k])
            return labelled(fn(key, **fixed, **values))

        def many(key_data: jax.Array, words: jax.Array, values: dict[str, jax.Array]) -> Any:
            key = jax.random.wrap_key_data(key_data, impl=impl)
            return jax.vmap(one, in_axes=(None, 0, 0))(key, words, values)

        mapped, placed = many, None
        if mesh is not None:
            # Automatic axes whatever the mesh was made with: explicit ones do not go through vmap.
            self.mesh = Mesh(mesh.devices, mesh.axis_names)
            split = P(mesh.axis_names)
            self.split, self.same = NamedSharding(self.mesh, split), NamedSharding(self.mesh, P())
            mapped = jax.shard_map(
                many, mesh=self.mesh, in_specs=(P(), split, split), out_specs=split,
                check_vma=False,
            )  # fmt: skip
            placed = self.same, self.split, self.split
        jitted = jax.jit(mapped) if placed is None else jax.jit(mapped, in_shardings=placed)
        traced = jitted.trace(*self._arguments(grid.groups.flat[:1]))
        self.generators = _depend_on_batch(traced.jaxpr)
        lowered = traced.lower()
        self.shapes = lowered.out_info[0]
        self.compiled = lowered.compile()

    def bytes_needed(self) -> int:
        """Arguments, results and temporaries of a batch on one device; 0 if the backend is mute."""
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
        """Run points of the group, any number of them."""
        starts = range(0, len(numbers), self.batch)
        return Block.joined([self._attempt(numbers[s : s + self.batch]) for s in starts])

    def _attempt(self, numbers: np.ndarray) -> Block:
        try:
            return self._run(numbers)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise OutOfMemoryError(
                    f"the device ran out of memory on a batch of {self.batch} points: pass a "
                    f"smaller batch=, for example {max(1, self.batch // 2)}."
                ) from error
            if jax.process_count() > 1:
                raise  # the other processes are waiting in this very batch
            if len(numbers) == 1:
                return Block.raised(1, error, self.shapes)
        # A check inside fn raised for everyone: find out for whom.
        half = len(numbers) // 2
        return Block.joined([self._attempt(numbers[:half]), self._attempt(numbers[half:])])

    def _run(self, numbers: np.ndarray) -> Block:
        arrays, status = self.compiled(*self._arguments(numbers))
        count = len(numbers)
        return Block(
            {name: whole(array)[:count] for name, array in arrays.items()},
            whole(status)[:count],
            np.full(count, "", dtype=object),
        )

    def _arguments(self, numbers: np.ndarray) -> tuple[Any, Any, dict[str, Any]]:
        full = np.concatenate([numbers, np.repeat(numbers[-1:], self.batch - len(numbers))])
        columns = self.grid.columns(full)
        values = {
            a.name: columns[a.name].astype(jax.dtypes.canonicalize_dtype(a.dtype))
            for a in self.grid.traced
        }
        arguments = self.key_data, self.grid.words(full), values
        if self.mesh is None:
            return arguments
        key_data, words, values = arguments
        return (
            _placed(key_data, self.same),
            _placed(words, self.split),
            {name: _placed(value, self.split) for name, value in values.items()},
        )


def _depend_on_batch(program: Any) -> set[str]:
    """The random generators of a program that give a point other numbers in another batch: all but
    threefry, where they are asked for many keys at once.
    """
    found: set[str] = set()
    inside = [program]
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
