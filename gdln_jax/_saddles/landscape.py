r"""The loss of a reduction in coordinates in which its flow is a plain gradient flow, and blocks.

With $y_c = \sqrt{|c|}\, x_c$ the flow $|c| \dot x_c = -\partial l/\partial x_c$ of classes of edges
is $\dot y = -\nabla l$. Derivatives beyond the gradient are products with vectors.
"""

import functools
import itertools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
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

    def __init__(self, land: Landscape):
        self.structure = jax.tree.structure(land)
        self.known = hash(self.structure)

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


@functools.cache
def chebyshev(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev nodes, and the map from values there to coefficients of a polynomial, ascending."""
    nodes = np.cos((np.arange(degree) + 0.5) * np.pi / degree)
    return nodes, np.linalg.inv(np.vander(nodes, increasing=True))


class Block:
    """Variables that meet in the loss, as a landscape of their own in NumPy.

    - `index`: their places among all. `degree`: the loss is a polynomial of at most this degree.
    """

    def __init__(self, land: Landscape, index: np.ndarray):
        self.land, self.index = land, index
        self.degree = 2 * max(land.graph.level[name] for name in land.graph.outputs)
        self._leaves, self._form = jax.tree.leaves(land), _Form(land)

    def whole(self, y: np.ndarray) -> np.ndarray:
        """Vectors (..., n) among all variables, 0 elsewhere."""
        out = np.zeros((*y.shape[:-1], self.land.root.size))
        out[..., self.index] = y
        return out

    def slope(self, y: Vector) -> tuple[float, Vector]:
        """Loss and gradient."""
        losses, slopes = self._slopes(np.broadcast_to(y, (self.degree, len(y))))
        return float(losses[0]), slopes[0]

    def _slopes(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losses and gradients at `degree` points, always as many, for one program."""
        losses, slopes = _slopes(self._form, self._leaves, self.whole(y))
        return np.asarray(losses), np.asarray(slopes)[:, self.index]

    def curvature(self, y: Vector) -> np.ndarray:
        """Hessian (n, n), by products with the unit vectors."""
        at, units = self.whole(y), self.whole(np.eye(len(y)))
        size = min(1 << (len(y) - 1).bit_length(), _VECTORS)
        parts = []
        for start in range(0, len(y), size):
            some = units[start : start + size]
            padded = np.concatenate([some, np.zeros((size - len(some), units.shape[1]))])
            parts.append(np.asarray(_products(self._form, self._leaves, at, padded))[: len(some)])
        found = np.concatenate(parts)[:, self.index]
        return (found + found.T) / 2

    def taylor(self, y: Vector, unit: Vector) -> np.ndarray:
        """Coefficients (order, n) of the gradient at y + t unit, a polynomial in t.

        Exact up to rounding for vectors of length 1, by values at `degree` nodes.
        """
        nodes, inverse = chebyshev(self.degree)
        return inverse @ self._slopes(y + nodes[:, None] * unit)[1]

    def curvature_taylor(self, y: Vector, unit: Vector, order: int) -> np.ndarray:
        """The coefficient (n, n) of t^order in the Hessian at y + t unit."""
        nodes, inverse = chebyshev(self.degree)
        values = [self.curvature(y + t * unit) for t in nodes]
        return np.tensordot(inverse[order], np.stack(values), axes=1)

    def derivative(self, y: Vector, *v: Vector) -> np.ndarray:
        """The derivative of the gradient (n,) along two or three vectors, by polarisation."""
        order = len(v)
        total = np.zeros(len(y))
        for signs in itertools.product((1, -1), repeat=order - 1):
            along = v[0] + sum(sign * one for sign, one in zip(signs, v[1:], strict=True))
            size = float(np.linalg.norm(along))
            if size > NOISE:
                total += math.prod(signs) * size**order * self.taylor(y, along / size)[order]
        return total / 2 ** (order - 1)


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
