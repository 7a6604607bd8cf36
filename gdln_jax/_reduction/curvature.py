"""Curvature of the full loss at an aligned point: along the manifold, normal to it, and in all.

The Hessian maps the manifold to itself and its complement to itself (theory#curvature), so each
part has a spectrum of its own, whose ends Lanczos' method finds from products with vectors.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from gdln_jax._checks import check_choice, check_positive, is_concrete
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._network.losses import mse
from gdln_jax._reduction.flow import ReducedTrajectory
from gdln_jax._reduction.forms import Embedded
from gdln_jax._reduction.rules import Certified
from gdln_jax._reduction.strengths import ClassStrengths, MatrixStrengths, ModeStrengths
from gdln_jax.rules import Rule

_PARTS = ("full", "reduced", "normal")
_VECTORS = 100  # of Lanczos' method at most; the ends of a spectrum need fewer
_SADDLE = 1e-6  # negative curvature above this share of the largest is rounding
# What is left to descend, gradient over strength, makes negative curvature of 1 to 6 times its own
# size normal to the manifold, which ends with it (XoR, ten random systems); settled saddles have 40
# times and more.
_ON_ITS_WAY = 10


class SaddleWarning(UserWarning):
    """Reduced training ended in a saddle of the full loss, which the network would leave."""


@runtime_checkable
class Curved(Certified, Protocol):
    """What of a `Reduction` is read here."""

    def strengths_of(self, b: Any) -> ModeStrengths | MatrixStrengths:
        """Strengths in the form of the dynamics."""
        ...


class _Point(eqx.Module):
    """The frames and the loss of a reduction."""

    form: Embedded
    masks: tuple[Array, ...] | None
    data: Any

    def loss(self, net: GatedNetwork) -> Array:
        """The loss of the full network."""
        return mse(net, self.data)

    def onto(self, net: GatedNetwork) -> GatedNetwork:
        """The part of weights along the manifold."""
        along = self.form.strengths(net)
        if self.masks is not None:
            parts = zip(along.stacks, self.masks, strict=True)
            along = ModeStrengths(along.graph, tuple(x * mask for x, mask in parts))
        return self.form.tree(along)


def _point(reduction: Curved) -> _Point:
    core = reduction.core
    u, v = (reduction.u, reduction.v) if core is None else (core.u, core.v)
    masks = reduction.mode_data.masks if core is None else None
    return _Point(Embedded(u, v, core is not None, reduction.fixed), masks, reduction.data)


def _sizes(reduction: Curved) -> tuple[int, int]:
    """Number of weights, and dimension of the manifold."""
    full = sum(math.prod(reduction.graph.parameters[name]) for name in reduction.graph.moving)
    core = reduction.core
    if core is None:
        return full, int(sum(np.sum(np.asarray(mask)) for mask in reduction.mode_data.masks))
    ends = zip(core.u, core.v, strict=True)
    ranks = [[np.sum(np.asarray(x) ** 2, axis=(1, 2)) for x in pair] for pair in ends]
    return full, round(sum(float(np.sum(t * s)) for t, s in ranks))


def sharpness(
    reduction: Curved, b: Any, *, part: str = "full", smallest: bool = False
) -> Float[Array, ""]:
    """Implement `Reduction.sharpness`."""
    check_choice(part, _PARTS, "part")
    low, high = _ends(reduction, _as_matrices(reduction, b), part)
    return low if smallest else high


def _as_matrices(reduction: Curved, b: Any) -> ModeStrengths | MatrixStrengths:
    """Strengths; of a coupled reduction always matrices."""
    b = reduction.strengths_of(b)
    core = reduction.core
    return b if core is None else core.read(core.start(b))


def _ends(reduction: Curved, b: ModeStrengths | MatrixStrengths, part: str) -> tuple[Array, Array]:
    full, along = _sizes(reduction)
    size = {"full": full, "reduced": along, "normal": full - along}[part]
    if size == 0:
        raise ValueError(f"there is no direction {part!r}: the manifold holds all weights.")
    return _lanczos_ends(_point(reduction), b, part, min(size, _VECTORS))


def _parted(net: GatedNetwork) -> tuple[GatedNetwork, GatedNetwork]:
    """The network without its frozen arrays, and these alone."""
    return eqx.partition(net, net.trainable)


@eqx.filter_jit
def _lanczos_ends(
    point: _Point, b: ModeStrengths | MatrixStrengths, part: str, vectors: int
) -> tuple[Array, Array]:
    net, still = _parted(point.form.tree(b))
    flat, unravel = ravel_pytree(net)

    def loss(net: GatedNetwork) -> Array:
        return point.loss(eqx.combine(net, still))

    def inside(v: Array) -> Array:
        if part == "full":
            return v
        along = ravel_pytree(_parted(point.onto(unravel(v)))[0])[0]
        return along if part == "reduced" else v - along

    def times(v: Array) -> GatedNetwork:
        return jax.jvp(jax.grad(loss), (net,), (unravel(v),))[1]

    def hessian(v: Array) -> Array:
        return inside(ravel_pytree(times(v))[0])

    values = _ritz_values(hessian, inside, flat, vectors)
    return values[0], values[-1]


def _ritz_values(
    product: Callable[[Array], Array], inside: Callable[[Array], Array], like: Array, count: int
) -> Array:
    """Ritz values, ascending, of a symmetric operator on the subspace that `inside` projects to.

    Every vector is made orthogonal to all before it, twice. Where they span an invariant subspace,
    a random vector begins another.
    """
    draws = jax.random.normal(jax.random.key(0), (count + 1, like.size), like.dtype)

    def fresh(v: Array, known: Array) -> Array:
        for _ in range(2):
            v = inside(v)
            v = v - known.T @ (known @ v)
        return v

    first = inside(draws[0])
    basis = jnp.zeros((count, like.size), like.dtype).at[0].set(first / jnp.linalg.norm(first))

    def step(
        state: tuple[Array, Array], k: Array
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        basis, scale = state
        moved = product(basis[k])
        diagonal = basis[k] @ moved
        scale = jnp.maximum(scale, jnp.linalg.norm(moved))
        rest = fresh(moved, basis)
        size = jnp.linalg.norm(rest)
        closed = size <= 1e-10 * scale
        other = fresh(draws[k + 1], basis)
        following = jnp.where(closed, other / jnp.linalg.norm(other), rest / size)
        basis = basis.at[k + 1].set(following, mode="drop")
        return (basis, scale), (diagonal, jnp.where(closed, 0.0, size))

    _, (diagonal, beside) = jax.lax.scan(
        step, (basis, jnp.zeros((), like.dtype)), jnp.arange(count)
    )
    off = jnp.diag(beside[:-1], 1)
    return jnp.linalg.eigvalsh(jnp.diag(diagonal) + off + off.T)


def warn_of_saddle(reduction: Curved, run: ReducedTrajectory) -> None:
    """Warn where a run ends with negative curvature off the manifold and none along it.

    Negative curvature along it, or as small as what is left to descend, means that the run is
    still on its way. Only where values are known.
    """
    full, along = _sizes(reduction)
    if full == along or run.losses.ndim != 1 or not is_concrete((reduction, run)):
        return
    final = run.final
    assert not isinstance(final, ClassStrengths)
    low, high = (float(x) for x in _ends(reduction, final, "normal"))
    if low >= -_SADDLE * max(high, -low):
        return
    if -low <= _ON_ITS_WAY * _left(reduction, final):
        return
    along_low, along_high = (float(x) for x in _ends(reduction, final, "reduced"))
    if along_low > -_SADDLE * max(along_high, high):
        warnings.warn(
            f"reduced training ended in a saddle of the full loss: normal to the aligned manifold "
            f"the smallest curvature is {low:.3g} (the largest {high:.3g}). In exact arithmetic "
            "the network stays there; rounding, or weights that are not quite aligned, leave it "
            "in time. check_end=False does without this check.",
            SaddleWarning,
            stacklevel=4,
        )


def _left(reduction: Curved, b: ModeStrengths | MatrixStrengths) -> float:
    """Largest entry of the gradient over the largest strength."""
    point = _point(reduction)
    gradient = jax.grad(lambda b: point.loss(point.form.tree(b)))(b)
    of_gradient, of_strengths = (
        max(float(jnp.abs(x).max()) for x in jax.tree.leaves(tree)) for tree in (gradient, b)
    )
    return of_gradient / of_strengths if of_strengths else 0.0


def max_step(reduction: Curved, b: Any, rule: Rule) -> Float[Array, ""]:
    """Implement `Reduction.max_step`."""
    kind, settings = _known(rule, "max_step")
    if kind == "sam":
        inner, rho = settings["inner"], settings["rho"]
        bound = max_step(reduction, b, inner)
        sharp = sharpness(reduction, b)
        size = _gradient_norms(reduction, b)[0]
        return bound / (1 + jnp.maximum(sharp, 0.0) * rho / size)
    if kind in ("per_matrix", "by_edge"):
        raise ValueError(
            "max_step is derived for sgd, muon, normalized, shampoo and sam; the response of "
            f"rules.{kind} to a small gradient is not known."
        )
    if kind == "sgd":
        beta = jnp.asarray(settings["momentum"])
        sharp = sharpness(reduction, b) + settings["weight_decay"]
        widened = 1 + 2 * beta if settings["nesterov"] else 1.0
        return jnp.where(sharp > 0, 2 * (1 + beta) / (widened * sharp), jnp.inf)
    if kind == "shampoo":
        sharp = sharpness(reduction, b)
        return jnp.where(sharp > 0, 2 * jnp.sqrt(settings["eps"]) / sharp, jnp.inf)
    # Of degree 0: the update answers a small change of the gradient by up to this much.
    _, smallest_matrix, smallest_mode = _gradient_norms(reduction, b)
    if kind == "normalized":
        answer = 1 / smallest_matrix
    elif settings["method"] == "polar":
        answer = 1 / smallest_mode
    else:
        slopes = np.broadcast_to(np.asarray(settings["ns_coeffs"]), (settings["ns_steps"], 3))
        answer = float(np.prod(slopes[:, 0])) / smallest_matrix
    sharp = sharpness(reduction, b, part="normal")
    return jnp.where(sharp > 0, 2 / (answer * sharp), jnp.inf)


def _known(rule: object, asks: str) -> tuple[str, Any]:
    if not isinstance(rule, Rule):
        raise ValueError(
            f"{asks} reads the settings of a rule of gdln.rules; an optimiser of optax is a pair "
            f"of functions without settings. Pass for example gdln.rules.sgd(0.1); got "
            f"{type(rule).__name__}."
        )
    return rule.kind, rule.settings


def _gradient_norms(reduction: Curved, b: Any) -> tuple[Array, Array, Array]:
    """Norm of the gradient over all edges, of its smallest matrix, and its smallest mode."""
    core, start = reduction.core, reduction.strengths_of(b)
    if core is not None:
        start = core.read(core.start(start))
    point = _point(reduction)
    gradient = jax.grad(lambda b: point.loss(point.form.tree(b)))(start)
    if isinstance(gradient, MatrixStrengths):
        stacks = [jnp.linalg.svd(g, compute_uv=False) for g in gradient.stacks]
    else:
        stacks = list(gradient.stacks)
    squares = [jnp.sum(jnp.square(g), axis=-1) for g in stacks]
    total = jnp.sqrt(sum(jnp.sum(s) for s in squares))
    matrix = jnp.sqrt(jnp.min(jnp.concatenate(squares)))
    masks = reduction.mode_data.masks
    modes = [jnp.where(m > 0, jnp.abs(g), jnp.inf) for g, m in zip(stacks, masks, strict=True)]
    return total, matrix, jnp.min(jnp.concatenate([g.ravel() for g in modes]))


def horizon(
    reduction: Curved, run: ReducedTrajectory, rule: Rule, *, tol: float = 1e-6
) -> int | None:
    """Implement `Reduction.horizon`."""
    kind, settings = _known(rule, "horizon")
    tol = check_positive(tol, "tol")
    if kind != "sgd":
        raise ValueError(
            f"horizon is known for rules.sgd only, not for rules.{kind}: how other rules answer a "
            "small normal perturbation depends on their state (docs/theory.md#step-limits)."
        )
    if run.losses.ndim != 1 or not is_concrete((reduction, run)):
        raise ValueError("horizon takes one run whose values can be seen, not a batch.")
    point, (full, along) = _point(reduction), _sizes(reduction)
    if full == along:
        return None
    vectors = min(full - along, _VECTORS)
    ends = jax.lax.map(lambda b: _lanczos_ends(point, b, "normal", vectors), run.b)
    steps = np.arange(int(run.ts[0]), int(run.ts[-1]))
    nu = np.stack([np.interp(steps, np.asarray(run.ts), np.asarray(end)) for end in ends])
    rate = settings["learning_rate"]
    if isinstance(rate, Mapping):
        raise ValueError("horizon takes a rule with one rate for all edges.")
    eta = np.array([rate(n) for n in steps], float) if callable(rate) else np.asarray(rate, float)
    growth = _growth(eta * (nu + float(settings["weight_decay"])), settings).max(axis=0)
    size = np.log(np.finfo(np.asarray(run.losses).dtype).eps) + np.cumsum(np.maximum(growth, 0.0))
    beyond = np.flatnonzero(size > np.log(tol))
    return int(steps[beyond[0]]) + 1 if len(beyond) else None


def _growth(step: np.ndarray, settings: Any) -> np.ndarray:
    """Logarithm of the factor per step of a perturbation, from eta times the curvature."""
    beta = float(settings["momentum"])
    a = (1 + beta) * (1 - step) if settings["nesterov"] else 1 + beta - step
    c = beta * (1 - step) if settings["nesterov"] else beta + 0 * step
    root = np.sqrt((a**2 - 4 * c).astype(complex))
    return np.log(np.maximum(np.abs(a + root), np.abs(a - root)) / 2 + 1e-300)
