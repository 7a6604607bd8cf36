"""The empirical neural tangent kernel and how far it moves: rich or lazy, as a number.

The Jacobian (outputs x weights) is never held: rows of the kernel are made a block at a time by
one transposed and one forward linearised pass.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import Suggesting, dataset
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.boundary import check_predicts
from gdln_jax._linalg import norm, quotient
from gdln_jax._network.gated import learning


def empirical_ntk(
    model: PyTree,
    data: PyTree,
    *,
    readout: Callable[[PyTree], Array] | None = None,
    block: int = 16,
) -> Float[Array, "n k n k"]:
    r"""Return the empirical neural tangent kernel $\Theta = J J^T$, J the Jacobian in the weights.

    `theta[a, k, b, l]` is the inner product of the gradients of output k on example a and output
    l on example b; under gradient flow on the mean loss, $\tau \dot h_a = -\frac1n \sum_b
    \Theta_{ab} (h_b - y_b)$ where all outputs have targets.

    Args:
        model: any `eqx.Module` that maps `data` to an array (n, k) or to a dictionary of such,
            which are put side by side in the order of the dictionary.
        readout: function from what the model returns to an array (n, k), to look at part of it; for
            the routing task, where one output domain is open, the sum over output nodes.
        block: rows of the kernel made at a time. Memory is the kernel, (n k)^2 numbers, and `block`
            times the weights; the cost is 2 n k passes through the network.
    """
    row, unit = _kernel_rows(model, data, readout)
    kernel = jax.lax.map(row, unit, batch_size=block)
    return kernel.reshape(*unit.shape[1:], *unit.shape[1:])


def _kernel_rows(
    model: PyTree, data: PyTree, readout: Callable[[PyTree], Array] | None
) -> tuple[Callable[[Array], Array], Array]:
    """A row (n, k) of the kernel for a direction (n, k) of outputs, and all unit directions."""
    check_predicts(model)
    moving, still = eqx.partition(model, learning(model))
    read = _side_by_side if readout is None else readout

    def outputs(weights: PyTree) -> Array:
        return read(eqx.combine(weights, still)(data))

    value, forward = jax.linearize(outputs, moving)
    if value.ndim != 2:
        raise ValueError(
            f"the model's outputs have shape {value.shape} after readout; expected (examples, "
            "outputs)."
        )
    backward = jax.linear_transpose(forward, moving)

    def row(direction: Array) -> Array:
        (gradient,) = backward(direction)
        return forward(gradient)

    return row, jnp.eye(value.size, dtype=value.dtype).reshape(value.size, *value.shape)


def _side_by_side(outputs: PyTree) -> Array:
    if isinstance(outputs, dict):
        return jnp.concatenate(list(outputs.values()), axis=-1)
    return outputs


def kernel_alignment(a: ArrayLike, b: ArrayLike) -> Float[Array, ""]:
    """Return the cosine <A, B>_F / (||A||_F ||B||_F) of two kernels; 1 for A = c B, c > 0.

    0, with derivative 0, if one of them is 0.
    """
    a, b = (jnp.asarray(kernel).ravel() for kernel in (a, b))
    return jnp.sum(_direction(a) * _direction(b))


def _direction(a: Array) -> Array:
    return quotient(a, jnp.broadcast_to(norm(a, keepdims=True), a.shape))


def kernel_distance(a: ArrayLike, b: ArrayLike) -> Float[Array, ""]:
    """Return 1 - `kernel_alignment` (Fort et al. 2020): 0 where kernels differ by a factor only.

    1 if one of them is 0.
    """
    return 1 - kernel_alignment(a, b)


class KernelMovement(NamedTuple):
    """How far a kernel moved; unpacks as (change, alignment).

    - `change`: ||after - before||_F / ||before||_F, which counts growth.
    - `alignment`: cosine of both kernels, which counts rotation only.
    """

    change: Float[Array, ""]
    alignment: Float[Array, ""]

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__


def kernel_movement(before: ArrayLike, after: ArrayLike) -> KernelMovement:
    """Return how far a kernel moved: relative Frobenius change, and alignment with the start.

    Lazy training leaves the first at 0; rich training makes it large. From a kernel that is 0 the
    change is ||after||_F itself. Where nothing has moved the derivative of the change is 0. The
    change is not symmetric, so name the arguments; `richness(run, data)` takes both from a run.

    Raises:
        ValueError: kernels of different shapes.
    """
    before, after = jnp.asarray(before), jnp.asarray(after)
    if before.shape != after.shape:
        raise ValueError(
            f"before has shape {before.shape} and after {after.shape}; compare kernels of the same "
            "examples and outputs."
        )
    change = norm(after - before)
    relative = quotient(change, norm(before), at_zero=change)
    return KernelMovement(relative, kernel_alignment(before, after))


def weight_movement(before: PyTree, after: PyTree) -> Float[Array, ""]:
    """Return ||W(t) - W(0)|| / ||W(0)|| over all weights of a model (any pytree).

    From weights that are all 0 it is ||W(t)|| itself. At the start it is 0 with derivative 0. It is
    not symmetric, so name the arguments; `richness(run, data)` takes both from a run.

    Raises:
        ValueError: models of different structure or shapes.
    """

    def size(tree: PyTree) -> Array:
        return norm(jnp.stack([norm(leaf) for leaf in jax.tree.leaves(tree)]))

    old, new = (eqx.filter(tree, learning(tree)) for tree in (before, after))
    kinds = [
        (jax.tree.structure(tree), [w.shape for w in jax.tree.leaves(tree)]) for tree in (old, new)
    ]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"before ({type(before).__name__}) and after ({type(after).__name__}) differ in "
            "structure or shapes; compare one model at two times."
        )
    moved = size(jax.tree.map(jnp.subtract, new, old))
    return quotient(moved, size(old), at_zero=moved)
