"""Changes of the coefficients of times with strengths and start, to first order, in JAX."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._graph import Graph
from gdln_jax._reduction.loss import ModeData, mode_loss
from gdln_jax._reduction.reduction import Reduction, StrengthsLike
from gdln_jax._reduction.statistics import Group
from gdln_jax._reduction.strengths import ModeStrengths
from gdln_jax._saddles.functional import Functional
from gdln_jax._saddles.landscape import Block, Landscape

_AT_ONCE = 256  # points whose losses are computed together

StrengthsByGroup = Mapping[Group, ArrayLike]


class Probes(NamedTuple):
    """Functionals of several numbers: of the loss l at points y, with vectors a and b.

    - `of` (point,): the number to which factors (point, 3) of l, its derivative along a, and its
      second derivative along a and b are added. `start` (number, n): factors of the start.
    """

    of: Array
    y: Float[Array, "point n"]
    a: Float[Array, "point n"]
    b: Float[Array, "point n"]
    factors: Float[Array, "point 3"]
    start: Float[Array, "number n"]


def probes(parts: Sequence[tuple[Block, Functional]], size: int) -> Probes:
    """Put functionals of blocks together, among all variables."""
    starts = np.zeros((len(parts), size))
    rows: list[tuple[np.ndarray, ...]] = []
    for number, (block, one) in enumerate(parts):
        starts[number, block.index] = one.start
        for y, factors, a in one.firsts:
            whole = [block.whole(v) for v in (y, a, 0 * a)]
            each = np.stack([factors, np.ones(len(y)), np.zeros(len(y))], axis=1)
            rows.append((np.full(len(y), number), *whole, each))
        for y, a, b in one.seconds:
            each = np.tile([0.0, 0.0, 1.0], (len(y), 1))
            whole = [block.whole(v) for v in (y, a, b)]
            rows.append((np.full(len(y), number), *whole, each))
    count = sum(len(row[0]) for row in rows)
    # Rounded up, so that similar systems share a program.
    padding = _AT_ONCE * (1 << max(0, (count - 1) // _AT_ONCE).bit_length()) - count
    vectors = np.zeros((padding, size))
    rows.append((np.zeros(padding, int), vectors, vectors, vectors, np.zeros((padding, 3))))
    of, y, a, b, factors = (
        jnp.asarray(np.concatenate(column)) for column in zip(*rows, strict=True)
    )
    return Probes(of, y, a, b, factors, jnp.asarray(starts))


@functools.partial(jax.jit, static_argnums=0)
def _measured(
    form: tuple[Graph, tuple[int, ...]], data: ModeData, root: Array, probes: Probes
) -> Float[Array, " number"]:
    """The functionals of the loss with these data."""
    graph, labels = form

    def loss(y: Array) -> Array:
        x = jnp.reshape(y, root.shape) / root
        return mode_loss(ModeStrengths.from_flat(graph, x[np.asarray(labels)]), data)

    def at(row: tuple[Array, Array, Array, Array]) -> Array:
        y, a, b, factors = row

        def along(y: Array) -> tuple[Array, Array]:
            return jax.jvp(loss, (y,), (a,))

        (value, slope), (_, second) = jax.jvp(along, (y,), (b,))
        return factors @ jnp.stack([value, slope, second])

    rows = probes.y, probes.a, probes.b, probes.factors
    values = jax.lax.map(at, rows, batch_size=_AT_ONCE)
    return jax.ops.segment_sum(values, probes.of, len(probes.start))


def changed(land: Landscape, probes: Probes, old: ModeData, new: ModeData) -> Array:
    """Changes (number,) with the loss of `new` in place of `old`."""
    form = (land.graph, land.labels)
    # Side by side in one program, so that no change is 0 exactly.
    before, fixed = eqx.partition(old, eqx.is_inexact_array)
    after, _ = eqx.partition(new, eqx.is_inexact_array)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), before, after)
    values = jax.vmap(lambda data: _measured(form, eqx.combine(data, fixed), land.root, probes))(
        both
    )
    return values[1] - values[0]


def start_of(land: Landscape, reduction: Reduction, c: StrengthsLike) -> Array:
    """The start in the coordinates of the landscape, means over classes."""
    b = reduction.strengths_of(c)
    assert isinstance(b, ModeStrengths)
    labels = np.asarray(land.labels)
    sums = jax.ops.segment_sum(b.flat(), labels, len(land.root))
    return jnp.ravel(land.root * sums / np.bincount(labels)[:, None])


def with_strengths(
    reduction: Reduction, inverse: Float[Array, "target strength"], strengths: StrengthsByGroup
) -> ModeData:
    """The data with these S of groups, by the least change of targets; see `targets_by_strengths`.

    Raises:
        ValueError: an unknown group, or a number of entries that is neither 1 nor that of modes.
    """
    known = ", ".join(map(str, reduction.strengths))
    if not isinstance(strengths, Mapping):
        raise ValueError(f"strengths is {strengths!r}; give a mapping group -> S, of {known}.")
    for name, value in strengths.items():
        if name not in reduction.strengths:
            raise ValueError(f"strengths names the group {name}; those of the reduction: {known}.")
        if is_concrete(value) and not np.all(np.isfinite(np.asarray(value, float))):
            raise ValueError(f"strengths[{name}] is {value}; it must be finite.")
    change = []
    for name, old in reduction.strengths.items():
        new = jnp.asarray(strengths.get(name, old), float)
        if new.shape not in ((), old.shape):
            raise ValueError(
                f"strengths[{name}] has shape {new.shape}; give one number, or one per mode, "
                f"{old.shape}."
            )
        change.append(jnp.broadcast_to(new, old.shape) - old)
    flat = _targets(reduction.mode_data) + inverse @ jnp.concatenate(change)
    return _with_targets(reduction.mode_data, flat)


def targets_by_strengths(reduction: Reduction) -> Float[np.ndarray, "target strength"]:
    """The least change of all targets that changes S of a group and mode by 1, and no other.

    Raises:
        ValueError: strengths that are no sums over paths, one per path.
    """
    names = tuple(reduction.strengths)
    slope = np.asarray(_strengths_by_targets(names, reduction.mode_data))
    known = np.concatenate([np.asarray(reduction.strengths[name]) for name in names])
    error = np.abs(slope @ np.asarray(_targets(reduction.mode_data)) - known)
    if np.any(error > 1e-9 * np.abs(known).max(initial=0.0)):
        raise ValueError(
            "strengths: those of this reduction are not sums over the targets of paths, as with "
            "tied or frozen edges. Pass a reduction with other mode_data instead."
        )
    return np.linalg.pinv(slope, rcond=1e-10)


def _targets(data: ModeData) -> Array:
    return jnp.concatenate([table.target.ravel() for table in data.outputs if table is not None])


def _with_targets(data: ModeData, flat: Array) -> ModeData:
    outputs, done = [], 0
    for old in data.outputs:
        new = old
        if old is not None:
            size = old.target.size
            target = flat[done : done + size].reshape(old.target.shape)
            new, done = eqx.tree_at(lambda table: table.target, old, target), done + size
        outputs.append(new)
    return eqx.tree_at(lambda data: data.outputs, data, tuple(outputs))


@eqx.filter_jit
def _strengths_by_targets(
    names: tuple[Group, ...], data: ModeData
) -> Float[Array, "strength target"]:
    """Derivative of S (group * mode) by targets.

    The loss has -S times the product of a path. So S is minus its derivative by the strengths of
    the first and the last edge, at strengths 1, without the part of D, which has no targets.
    """
    graph, modes = data.graph, data.masks[0].shape[1]
    ones = jnp.ones((len(graph.moving), modes))
    row = {name: k for k, name in enumerate(graph.moving)}

    def read(flat: Array) -> Array:
        def slope(b: Array) -> Array:
            strengths = ModeStrengths.from_flat(graph, b)
            return jax.grad(mode_loss)(strengths, _with_targets(data, flat)).flat()

        every = [jnp.zeros(modes) for _ in names]
        for k, (begin, end) in enumerate(names):
            for e in (e for e in graph.edges if begin in (e.source, e.name)):
                for f in (f for f in graph.edges if end in (f.target, f.name)):
                    one, two = (row.get(graph.parameter_of[x.name][0]) for x in (e, f))
                    if one is None or two is None:
                        continue
                    unit = jnp.zeros_like(ones).at[two].set(1.0)
                    by_both = slope(ones) if e == f else jax.jvp(slope, (ones,), (unit,))[1]
                    every[k] -= by_both[one]
        return jnp.concatenate(every)

    return jax.jacfwd(read)(_targets(data))
