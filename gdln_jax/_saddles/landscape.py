r"""The loss of a reduction in coordinates in which its flow is a plain gradient flow, and blocks.

With $y_c = \sqrt{|c|}\, x_c$ the flow $|c| \dot x_c = -\partial l/\partial x_c$ of classes of edges
is $\dot y = -\nabla l$. Derivatives beyond the gradient are products with vectors.
"""

import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.sparse.csgraph import connected_components

from gdln_jax._graph import Graph
from gdln_jax._reduction.loss import ModeData, mode_loss
from gdln_jax._reduction.merging import Program, program_loss
from gdln_jax._reduction.strengths import ModeStrengths

# Vectors in one call of a program at most.
_VECTORS = 64
# Below this share of the largest an entry of a derivative is rounding.
NOISE = 1e-9

Vector = Float[np.ndarray, " n"]
Rows = Float[np.ndarray, "row n"]


class ClassLoss(eqx.Module):
    """l of strengths by class of edges."""

    program: Program

    def __call__(self, x: Array) -> Array:
        """The loss at x (class, mode)."""
        return program_loss(x, self.program)


class EdgeLoss(eqx.Module):
    """l of strengths by edge."""

    data: ModeData

    def __call__(self, x: Array) -> Array:
        """The loss at x (edge, mode)."""
        return mode_loss(ModeStrengths.from_flat(self.data.graph, x), self.data)


class Landscape(eqx.Module):
    """A loss in the coordinates y = root * x, flat.

    - `loss`: of x (row, mode). `root`: (row, mode), square roots of the sizes of classes.
    - `labels`: the row of each trainable parameter, in the order of the graph's stores.
    """

    loss: ClassLoss | EdgeLoss
    root: Float[Array, "row mode"]
    graph: Graph = eqx.field(static=True)
    labels: tuple[int, ...] = eqx.field(static=True)

    @property
    def modes(self) -> int:
        """Number of modes."""
        return self.root.shape[1]

    def at(self, y: Array) -> Array:
        """The loss."""
        return self.loss(jnp.reshape(y, self.root.shape) / self.root)

    def strengths(self, y: np.ndarray) -> ModeStrengths:
        """The strengths of all edges."""
        x = jnp.reshape(y, self.root.shape) / self.root
        return ModeStrengths.from_flat(self.graph, x[np.asarray(self.labels)])


class _Form:
    """The structure of a landscape, whose hash is known: programs are called thousands of times."""

    def __init__(self, structure: jax.tree_util.PyTreeDef):
        self.structure, self.known = structure, hash(structure)

    def __hash__(self) -> int:
        return self.known

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Form) and self.structure == other.structure)

    def loss(self, leaves: list[Array]) -> Callable[[Array], Array]:
        """The loss of a landscape with these arrays."""
        return jax.tree.unflatten(self.structure, leaves).at


@functools.partial(jax.jit, static_argnums=0)
def _slopes(form: _Form, leaves: list[Array], y: Array) -> tuple[Array, Array]:
    return jax.vmap(jax.value_and_grad(form.loss(leaves)))(y)


@functools.partial(jax.jit, static_argnums=0)
def _products(form: _Form, leaves: list[Array], y: Array, v: Array) -> Array:
    slope = jax.grad(form.loss(leaves))
    return jax.vmap(lambda v: jax.jvp(slope, (y,), (v,))[1])(v)


@functools.partial(jax.jit, static_argnums=0)
def _higher(
    form: _Form, leaves: list[Array], y: Array, u: Array, v: Array, w: Array
) -> tuple[Array, Array]:
    slope = jax.grad(form.loss(leaves))

    def second(y: Array, u: Array) -> Array:
        return jax.jvp(slope, (y,), (u,))[1]

    def third(y: Array, u: Array, v: Array) -> Array:
        return jax.jvp(lambda z: second(z, u), (y,), (v,))[1]

    def both(u: Array, v: Array, w: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda z: third(z, u, v), (y,), (w,))

    return jax.vmap(both)(u, v, w)


class Block:
    """Variables that meet in the loss, as a landscape of their own in NumPy.

    - `index`: their places among all. `degree`: the loss is a polynomial of at most this degree.
    """

    def __init__(self, land: Landscape, index: np.ndarray):
        self.land, self.index = land, index
        self.degree = 2 * max(land.graph.level[name] for name in land.graph.outputs)
        self._leaves, structure = jax.tree.flatten(land)
        self._form = _Form(structure)

    def whole(self, y: np.ndarray) -> np.ndarray:
        """Vectors (..., n) among all variables, 0 elsewhere."""
        out = np.zeros((*y.shape[:-1], self.land.root.size))
        out[..., self.index] = y
        return out

    def slope(self, y: Vector) -> tuple[float, Vector]:
        """Loss and gradient."""
        losses, slopes = self.slopes(y[None])
        return float(losses[0]), slopes[0]

    def slopes(self, y: Rows) -> tuple[np.ndarray, Rows]:
        """Losses and gradients at several points."""
        losses, slopes = _slopes(self._form, self._leaves, self.whole(y))
        return np.asarray(losses), np.asarray(slopes)[:, self.index]

    def curvature(self, y: Vector) -> Float[np.ndarray, "n n"]:
        """Hessian, by products with the unit vectors."""
        at = self.whole(y)

        def products(v: np.ndarray) -> list[Array]:
            return [_products(self._form, self._leaves, at, v)]

        found = _in_parts(products, self.whole(np.eye(len(y))))[0][:, self.index]
        return (found + found.T) / 2

    def higher(self, y: Vector, u: Rows, v: Rows, w: Rows) -> tuple[Rows, Rows]:
        """Third derivatives applied to rows (u, v), fourth ones to (u, v, w)."""
        at = self.whole(y)

        def both(*rows: np.ndarray) -> tuple[Array, Array]:
            return _higher(self._form, self._leaves, at, *rows)

        third, fourth = _in_parts(both, *map(self.whole, (u, v, w)))
        return third[:, self.index], fourth[:, self.index]


def _in_parts(program: Callable[..., Sequence[Array]], *rows: np.ndarray) -> list[np.ndarray]:
    """Call a program of several rows in parts, filled up with zeros to a power of 2."""
    count, parts = len(rows[0]), []
    size = min(1 << (count - 1).bit_length(), _VECTORS)
    for start in range(0, count, size):
        some = [r[start : start + size] for r in rows]
        padded = [np.pad(r, ((0, size - len(r)), (0, 0))) for r in some]
        parts.append([np.asarray(out) for out in program(*padded)])
    return [np.concatenate(out)[:count] for out in zip(*parts, strict=True)]


def blocks(land: Landscape) -> list[Block]:
    """Part the variables into sets that do not meet in the loss; those it ignores are left out.

    Where the Hessian at a generic point has an entry, two variables meet. The loss is a
    polynomial, so that one point tells.
    """
    size = land.root.size
    every = Block(land, np.arange(size))
    point = np.random.default_rng(0).uniform(0.5, 1.5, size=size)
    curvature = np.abs(every.curvature(point))
    meets = curvature > 1e-3 * NOISE * curvature.max(initial=0.0)
    _, label = connected_components(meets, directed=False)
    seen = np.any(meets, axis=1)
    parts = (np.flatnonzero(seen & (label == k)) for k in range(label.max(initial=-1) + 1))
    return [Block(land, index) for index in parts if len(index)]
