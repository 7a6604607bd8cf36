"""The forms in which an optimiser is shown strengths, and the loss of strengths.

Rules of `gdln.rules` act on strengths as they are. Any other optimiser of optax is shown matrices:
diag(b_e) of every edge, the matrices of a coupled reduction, or weights of full shape. A quotient
has one row per class of |c| equal edges, where a rule must see the gradient of one edge
(theory#rules-on-classes).
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from gdln_jax._network.gated import GatedNetwork
from gdln_jax._reduction.coupled import Coupled, coupled_loss
from gdln_jax._reduction.loss import ModeData, mode_loss
from gdln_jax._reduction.merging import Program, program_loss
from gdln_jax._reduction.strengths import ClassStrengths, MatrixStrengths, ModeStrengths

Stacks = tuple[Array, ...]
Optimizer = optax.GradientTransformation


@runtime_checkable
class Form(Protocol):
    """How strengths are shown to an optimiser; `strengths(tree(b))` is b, leading axes kept."""

    def tree(self, b: Any) -> PyTree:
        """The tree that the optimiser acts on."""
        ...

    def strengths(self, tree: Any) -> Any:
        """Strengths of (a stack of) such trees."""
        ...

    def optimizer(self, rule: Optimizer) -> Optimizer:
        """The optimiser that acts on the tree, given plain gradients."""
        ...


class AsTheyAre(eqx.Module):
    """Strengths as they are."""

    def tree(self, b: PyTree) -> PyTree:
        """b."""
        return b

    def strengths(self, tree: PyTree) -> PyTree:
        """The same."""
        return tree

    def optimizer(self, rule: Optimizer) -> Optimizer:
        """The rule itself."""
        return rule


class Diagonals(AsTheyAre):
    """Diagonal matrices diag(b_e)."""

    def tree(self, b: ModeStrengths) -> MatrixStrengths:
        """Matrices (edge, mode, mode)."""
        return MatrixStrengths(b.graph, tuple(diagonal_matrices(stack) for stack in b.stacks))

    def strengths(self, tree: MatrixStrengths) -> ModeStrengths:
        """Their diagonals."""
        return ModeStrengths(tree.graph, tuple(map(diagonals, tree.stacks)))


class Reduced(AsTheyAre):
    """The weights of a coupled reduction, in bases of the spans that its dynamics reach."""

    coupled: Coupled

    def tree(self, b: ModeStrengths | MatrixStrengths) -> MatrixStrengths:
        """Reduced weights (edge, reduced |target|, reduced |source|)."""
        return MatrixStrengths(b.graph, self.coupled.start(b))

    def strengths(self, tree: MatrixStrengths) -> MatrixStrengths:
        """Matrices U_e^T W_e V_e."""
        return self.coupled.read(tree.stacks)


class Embedded(AsTheyAre):
    """Weights of full shape, U_e diag(b_e) V_e^T or U_e M_e V_e^T."""

    u: Stacks
    v: Stacks
    matrices: bool = eqx.field(static=True)
    fixed: Stacks | None = None

    def tree(self, b: ModeStrengths | MatrixStrengths) -> GatedNetwork:
        """The network."""
        pattern = "etm,emn,esn->ets" if self.matrices else "etm,em,esm->ets"
        parts = zip(self.u, b.stacks, self.v, strict=True)
        weights = tuple(jnp.einsum(pattern, u, x, v) for u, x, v in parts)
        return GatedNetwork.from_stacks(b.graph, weights, self.fixed)

    def strengths(self, tree: GatedNetwork) -> ModeStrengths | MatrixStrengths:
        """U_e^T W_e V_e, or its diagonal."""
        pattern = "etm,...ets,esn->...emn" if self.matrices else "etm,...ets,esm->...em"
        parts = zip(self.u, tree.stacks, self.v, strict=True)
        kind = MatrixStrengths if self.matrices else ModeStrengths
        return kind(tree.graph, tuple(jnp.einsum(pattern, u, w, v) for u, w, v in parts))


class Classes(AsTheyAre):
    """One row per class of edges, with the gradient of one edge."""

    def optimizer(self, rule: Optimizer) -> Optimizer:
        """The rule, given dl/dx_c / |c|."""
        inner = optax.with_extra_args_support(rule)

        def per_edge(gradient: Any) -> Any:
            return jax.tree.map(lambda g: g / class_sizes(gradient)[:, None], gradient)

        def update(
            updates: Any, state: PyTree, params: Any = None, **extra: Any
        ) -> tuple[PyTree, PyTree]:
            extra["grad"] = per_edge(extra["grad"])
            grad_fn = extra["grad_fn"]
            extra["grad_fn"] = lambda x, *more: per_edge(grad_fn(x, *more))
            return inner.update(per_edge(updates), state, params, **extra)

        return optax.GradientTransformationExtraArgs(inner.init, update)


class Scaled(AsTheyAre):
    """Matrices diag(y_c) with y_c = sqrt(|c|) x_c: norms over them are norms over edges."""

    like: ClassStrengths

    def tree(self, b: ClassStrengths) -> Array:
        """(class, mode, mode)."""
        return diagonal_matrices(b.x * jnp.sqrt(class_sizes(b))[:, None])

    def strengths(self, tree: Array) -> ClassStrengths:
        """Strengths by class."""
        x = diagonals(tree) / jnp.sqrt(class_sizes(self.like))[:, None]
        return eqx.tree_at(lambda b: b.stacks, self.like, (x,))


def class_sizes(b: ClassStrengths) -> np.ndarray:
    """Number of edges (class,) of every class."""
    return np.array([float(len(names)) for names in b.classes])


def diagonal_matrices(stack: Array) -> Array:
    """(..., mode, mode) of (..., mode)."""
    return stack[..., None] * jnp.eye(stack.shape[-1], dtype=stack.dtype)


def diagonals(stack: Array) -> Array:
    """(..., mode) of (..., mode, mode)."""
    return jnp.diagonal(stack, axis1=-2, axis2=-1)


class ModeLoss(eqx.Module):
    """l(b) of strengths."""

    data: ModeData

    def __call__(self, b: ModeStrengths) -> Array:
        """The loss."""
        return mode_loss(b, self.data)


class CoupledLoss(eqx.Module):
    """The loss of the matrices of a coupled reduction."""

    coupled: Coupled

    def __call__(self, b: ModeStrengths | MatrixStrengths) -> Array:
        """The loss."""
        return coupled_loss(self.coupled.start(b), self.coupled.data)


class ClassLoss(eqx.Module):
    """The loss of strengths by class."""

    program: Program

    def __call__(self, b: ClassStrengths) -> Array:
        """The loss."""
        return program_loss(b.x, self.program)


class EmbeddedLoss(eqx.Module):
    """Any loss of the embedded network."""

    form: Embedded
    data: PyTree
    loss: Callable[..., Array] = eqx.field(static=True)

    def __call__(self, b: ModeStrengths | MatrixStrengths) -> Array:
        """The loss."""
        return self.loss(self.form.tree(b), self.data)
