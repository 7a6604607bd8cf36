"""The rules, each a chain of steps that act per weight matrix or with norms over all edges."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int
from typing_extensions import TypeAliasType

from gdln_jax._checks import check_choice, check_integer, check_positive_if_known, is_concrete
from gdln_jax._linalg import quotient
from gdln_jax.rules._rows import (
    Rows,
    beside,
    check_rates,
    global_norm,
    map_stacks,
    rate_of,
    shape_factors,
)
from gdln_jax.rules._rule import Rule, check_transformation, make_rule
from gdln_jax.rules._spectral import inverse_fourth_root, newton_schulz, polar, unit_norm

Number = TypeAliasType("Number", float | int | Array)
Rate = Number | optax.Schedule
LearningRate = TypeAliasType("LearningRate", Rate | Mapping[str, Rate])
Coefficients = TypeAliasType("Coefficients", Sequence[float] | Sequence[Sequence[float]])
MUON = (3.4445, -4.7750, 2.0315)


def sgd(
    learning_rate: LearningRate,
    *,
    momentum: Number = 0.0,
    nesterov: bool = False,
    weight_decay: Number = 0.0,
    clip: Number | None = None,
) -> Rule:
    r"""Make gradient descent, with momentum, weight decay and a bound on the gradient's norm.

    The gradient plus `weight_decay` times the weights is scaled down to a norm of at most `clip`,
    then $m \leftarrow g + \beta m$ and $W \leftarrow W - \eta m$ (`nesterov`: $W - \eta (g +
    \beta m)$), as in `optax.sgd`. For another order pass an `optax.chain`.

    Args:
        learning_rate: a number, a schedule (a function of the step, from 0), or a mapping edge ->
            either, with an entry for every edge. A number may be traced.
        momentum: beta of the heavy ball or of Nesterov's step, in [0, 1).
        nesterov: look ahead with the gradient. With `momentum=0.` it changes nothing.
        weight_decay: added to the gradient before it is clipped.
        clip: largest norm of the gradient over all edges; None: unbounded.

    Returns:
        A `Rule`, an optax transformation of networks and of mode strengths.

    Raises:
        ValueError: for numbers out of range; when training starts, for a mapping that lacks an
            edge.
    """
    _check_rate(learning_rate)
    _check_momentum(momentum)
    _check_not_negative(weight_decay=weight_decay)
    check_positive_if_known(clip=clip)
    steps = []
    if not _is_zero(weight_decay):
        steps.append(optax.add_decayed_weights(weight_decay))
    if clip is not None:
        steps.append(optax.stateless(lambda updates, _: _bounded(updates, clip)))
    if not _is_zero(momentum):
        steps.append(optax.trace(momentum, nesterov))
    settings = {
        "learning_rate": learning_rate,
        "momentum": momentum,
        "nesterov": nesterov,
        "weight_decay": weight_decay,
        "clip": clip,
    }
    return make_rule("sgd", settings, optax.chain(*steps, _step_size(learning_rate)))


def muon(
    learning_rate: LearningRate,
    *,
    method: str = "newton_schulz",
    momentum: Number = 0.95,
    nesterov: bool = True,
    ns_coeffs: Coefficients = MUON,
    ns_steps: int = 5,
    eps: float = 1e-8,
    cutoff: float = 1e-9,
    shape_factor: str | float | None = None,
    weight_decay: Number = 0.0,
) -> Rule:
    r"""Make Muon: momentum whose singular values are brought near 1, for every weight matrix.

    `optax.contrib.muon` sends every array that has not two axes to AdamW, hence the stacks of a
    `GatedNetwork`; this rule acts on each matrix of a stack. The step is $W \leftarrow W - \eta
    (\varphi\, O(m) + \lambda W)$ with the momentum m of `optax.contrib.scale_by_muon` (an average
    with both bias corrections), the orthogonalisation O and the shape factor phi.

    Args:
        learning_rate: as in `sgd`.
        method: `"newton_schulz"`, polynomial steps as in Muon; or `"polar"`, the exact limit U V^T
            of the singular value decomposition, as a partial isometry.
        momentum: decay of the average; 0: the gradient itself.
        nesterov: average once more with the gradient, as in Muon.
        ns_coeffs: (a, b, c) of x <- a x + b x x^T x + c x x^T x x^T x, or one such row per step.
        ns_steps: number of Newton-Schulz steps.
        eps: added to the Frobenius norm by which a matrix is divided first.
        cutoff: `"polar"`: singular values of at most this share of the largest give 0.
        shape_factor: None: 1; `"width"`: sqrt(max(1, |t|/|s|)), Muon's own; a number c:
            c sqrt(max(|t|, |s|)), a consistent root mean square. |t| is the width of the edge's
            target, |s| of its source, in the full network also when strengths are trained.
        weight_decay: decoupled, times the learning rate, as in optax.

    Returns:
        A `Rule`. Its update of a mode has the size of the rate whatever the gradient's: use rates
        that fall to 0, or small ones (theory#step-limits).

    Raises:
        ValueError: as `sgd`; for an unknown method.
    """
    _check_rate(learning_rate)
    _check_momentum(momentum)
    check_choice(method, ("newton_schulz", "polar"), "method")
    ns_steps = check_integer(ns_steps, "ns_steps", minimum=1)
    _check_not_negative(weight_decay=weight_decay, cutoff=cutoff)
    check_positive_if_known(eps=eps)
    coefficients = _per_step(ns_coeffs, ns_steps)
    if shape_factor is not None and shape_factor != "width":
        if isinstance(shape_factor, str):
            check_choice(shape_factor, ("width",), "shape_factor")
        check_positive_if_known(shape_factor=shape_factor)

    def orthogonal(stack: Array, row: Rows) -> Array:
        matrices = stack.ndim == 3
        if method == "polar":
            turned = polar(stack, matrices, cutoff)
        else:
            turned = newton_schulz(stack, matrices, coefficients, eps)
        return turned * beside(shape_factors(row.shapes, shape_factor), turned)

    steps = [] if _is_zero(momentum) else [_corrected_average(momentum, nesterov)]
    steps.append(optax.stateless(lambda updates, _: map_stacks(orthogonal, updates)))
    settings = {
        "learning_rate": learning_rate,
        "method": method,
        "momentum": momentum,
        "nesterov": nesterov,
        "ns_coeffs": ns_coeffs,
        "ns_steps": ns_steps,
        "eps": eps,
        "cutoff": cutoff,
        "shape_factor": shape_factor,
        "weight_decay": weight_decay,
    }
    return make_rule("muon", settings, _decoupled(steps, weight_decay, learning_rate))


def normalized(
    learning_rate: LearningRate, *, momentum: Number = 0.0, weight_decay: Number = 0.0
) -> Rule:
    r"""Make descent with the gradient of every matrix over its Frobenius norm, 0 where it is 0.

    The step is $W \leftarrow W - \eta (m/\|m\|_F + \lambda W)$ with $m \leftarrow g + \beta m$.

    Args:
        learning_rate: as in `sgd`.
        momentum: beta, in [0, 1).
        weight_decay: decoupled lambda.

    Returns:
        A `Rule`. Every matrix moves by the rate in each step, however small its gradient.

    Raises:
        ValueError: as `sgd`.
    """
    _check_rate(learning_rate)
    _check_momentum(momentum)
    _check_not_negative(weight_decay=weight_decay)
    steps = [] if _is_zero(momentum) else [optax.trace(momentum)]
    steps.append(
        optax.stateless(
            lambda updates, _: map_stacks(lambda g, _: unit_norm(g, g.ndim == 3), updates)
        )
    )
    settings = {
        "learning_rate": learning_rate,
        "momentum": momentum,
        "weight_decay": weight_decay,
    }
    return make_rule("normalized", settings, _decoupled(steps, weight_decay, learning_rate))


class ShampooState(NamedTuple):
    """Sums of G G^T (`left`) and G^T G (`right`) per matrix; of g^2 per mode, in both."""

    left: tuple[Array, ...]
    right: tuple[Array, ...]


def shampoo(learning_rate: LearningRate, *, eps: Number, decay: Number | None = None) -> Rule:
    r"""Make Shampoo: $W \leftarrow W - \eta (L + \epsilon)^{-1/4} G (R + \epsilon)^{-1/4}$.

    L and R sum $G G^T$ and $G^T G$ of every matrix. On a mode that is Adagrad,
    $g/\sqrt{\epsilon + \sum g^2}$.

    Args:
        learning_rate: as in `sgd`.
        eps: epsilon > 0. No default: beside gradients of this size squared it sets the speed.
        decay: None: sums; a number in (0, 1): averages, L <- decay L + (1 - decay) G G^T.

    Returns:
        A `Rule`. On matrices it has no derivative where eigenvalues of L or R are equal. Cost of a
        step O(|t|^3 + |s|^3) per matrix.

    Raises:
        ValueError: as `sgd`; for eps that is not above 0, a decay outside (0, 1).
    """
    _check_rate(learning_rate)
    check_positive_if_known(eps=eps, decay=decay)
    if decay is not None and is_concrete(decay) and float(decay) >= 1:
        raise ValueError(f"decay is {decay!r}; it must lie in (0, 1), or be None for sums.")
    keep, take = (1.0, 1.0) if decay is None else (decay, 1 - decay)

    def squares(g: Array, left: bool) -> Array:
        if g.ndim == 2:
            return jnp.square(g)
        pattern = "eij,ekj->eik" if left else "eji,ejk->eik"
        return jnp.einsum(pattern, g, g, precision=jax.lax.Precision.HIGHEST)

    def init(params: optax.Params) -> ShampooState:
        stacks = jax.tree.leaves(params)
        return ShampooState(
            *(tuple(0 * squares(g, left) for g in stacks) for left in (True, False))
        )

    def update(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, ShampooState]:
        del params
        stacks, structure = jax.tree.flatten(updates)
        sums = [
            tuple(keep * a + take * squares(g, left) for a, g in zip(kept, stacks, strict=True))
            for kept, left in ((state.left, True), (state.right, False))
        ]
        moved = [_preconditioned(g, a, b, eps) for g, a, b in zip(stacks, *sums, strict=True)]
        return structure.unflatten(moved), ShampooState(*sums)

    settings = {"learning_rate": learning_rate, "eps": eps, "decay": decay}
    chained = optax.chain(optax.GradientTransformation(init, update), _step_size(learning_rate))
    return make_rule("shampoo", settings, chained)


def _preconditioned(g: Array, left: Array, right: Array, eps: Number) -> Array:
    if g.ndim == 2:
        return g / jnp.sqrt(eps + left)
    roots = inverse_fourth_root(left, eps), inverse_fourth_root(right, eps)
    return jnp.einsum(
        "eij,ejk,ekl->eil", roots[0], g, roots[1], precision=jax.lax.Precision.HIGHEST
    )


def sam(inner: optax.GradientTransformation, *, rho: Number) -> Rule:
    r"""Make sharpness-aware minimisation: `inner` with the gradient at $W + \rho\, G/\|G\|$.

    The norm is over all edges. The state of `inner` sees that second gradient only. It costs a
    second gradient per step, by the extra argument `grad_fn(params, *_)` of optax, which
    `gdln.train` and `Reduction.train` pass.

    Args:
        inner: a rule, or any optax transformation.
        rho: distance at which the gradient is taken, above 0.

    Returns:
        A `Rule`; it needs a certificate where `inner` does.

    Raises:
        ValueError: for rho that is not above 0; in an update without `grad_fn`.
    """
    check_positive_if_known(rho=rho)
    wrapped = optax.with_extra_args_support(check_transformation(inner, "inner"))

    def update(
        updates: optax.Updates,
        state: optax.OptState,
        params: optax.Params | None = None,
        *,
        grad_fn: Callable[..., optax.Updates] | None = None,
        **extra: Any,
    ) -> tuple[optax.Updates, optax.OptState]:
        if grad_fn is None:
            raise ValueError(
                "rules.sam takes a second gradient: pass update(..., grad_fn=f) with f(params) the "
                "gradient of the loss, or train by gdln.train or Reduction.train."
            )
        size = global_norm(updates)
        ahead = jax.tree.map(
            lambda w, g: w + rho * quotient(g, jnp.broadcast_to(size, g.shape)), params, updates
        )
        there = grad_fn(ahead)
        extra = {**extra, "grad": there} if "grad" in extra else extra
        return wrapped.update(there, state, params, grad_fn=grad_fn, **extra)

    equivariant = isinstance(inner, Rule) and inner.equivariant
    chained = optax.GradientTransformationExtraArgs(wrapped.init, update)
    return make_rule("sam", {"inner": inner, "rho": rho}, chained, equivariant=equivariant)


def per_matrix(transformation: optax.GradientTransformation) -> Rule:
    """Make any optax transformation act on each weight matrix alone, with a state of its own.

    optax sees a stack of matrices as one array, so that a norm per array (LARS, block clipping) is
    one per stack. Here the transformation is mapped over the stack. Strengths (edge, mode) are
    shown to it as diagonal matrices. A norm over all parameters becomes one per matrix too.

    Args:
        transformation: from optax; of the extra arguments it is given the loss, `value`.

    Returns:
        A `Rule`, which needs a certificate: the transformation may not act on singular values.
    """
    inner = optax.with_extra_args_support(check_transformation(transformation, "transformation"))

    def init(params: optax.Params) -> tuple[optax.OptState, ...]:
        return tuple(jax.vmap(inner.init)(_as_matrices(w)) for w in jax.tree.leaves(params))

    def update(
        updates: optax.Updates,
        state: Any,
        params: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[optax.Updates, tuple[optax.OptState, ...]]:
        known = {"value": extra["value"]} if "value" in extra else {}
        stacks, structure = jax.tree.flatten(updates)
        weights = [None] * len(stacks) if params is None else jax.tree.leaves(params)
        moved, states = [], []
        for g, s, w in zip(stacks, state, weights, strict=True):
            one = functools.partial(inner.update, **known)
            shown = None if w is None else _as_matrices(w)
            step, new = jax.vmap(one, in_axes=(0, 0, None if w is None else 0))(
                _as_matrices(g), s, shown
            )
            moved.append(
                step if g.ndim == 3 else jnp.diagonal(jnp.asarray(step), axis1=-2, axis2=-1)
            )
            states.append(new)
        return structure.unflatten(moved), tuple(states)

    chained = optax.GradientTransformationExtraArgs(init, update)
    settings = {"transformation": transformation}
    return make_rule("per_matrix", settings, chained, equivariant=False)


def _as_matrices(stack: Array) -> Array:
    return stack if stack.ndim == 3 else jax.vmap(jnp.diag)(stack)


class StepState(NamedTuple):
    """The number of the step."""

    steps: Int[Array, ""]


class AverageState(NamedTuple):
    """Number of steps, and the running average of gradients."""

    steps: Int[Array, ""]
    average: optax.Updates


def _step_size(learning_rate: LearningRate) -> optax.GradientTransformation:
    """Multiply by minus the rate of each edge at this step."""

    def at(rate: Rate, count: Array) -> Array:
        return jnp.asarray(rate(count) if callable(rate) else rate)

    def init(params: optax.Params) -> StepState:
        check_rates(params, learning_rate)
        return StepState(jnp.zeros((), jnp.int32))

    def update(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, StepState]:
        del params

        def scaled(stack: Array, row: Rows) -> Array:
            if not isinstance(learning_rate, Mapping):
                return -at(learning_rate, state.steps).astype(stack.dtype) * stack
            rates = [at(rate_of(learning_rate, name), state.steps) for name in row.names]
            return -beside(jnp.stack(rates), stack) * stack

        return map_stacks(scaled, updates), StepState(_one_more(state))

    return optax.GradientTransformation(init, update)


def _one_more(state: StepState | AverageState) -> Array:
    return jnp.asarray(optax.safe_increment(state.steps))


def _decoupled(
    steps: list[optax.GradientTransformation], weight_decay: Number, learning_rate: LearningRate
) -> optax.GradientTransformationExtraArgs:
    decay = [] if _is_zero(weight_decay) else [optax.add_decayed_weights(weight_decay)]
    return optax.chain(*steps, *decay, _step_size(learning_rate))


def _corrected_average(decay: Number, nesterov: bool) -> optax.GradientTransformation:
    """The momentum of `optax.contrib.scale_by_muon`: an average with both bias corrections."""

    def init(params: optax.Params) -> AverageState:
        return AverageState(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params))

    def update(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, AverageState]:
        del params
        average = optax.tree.update_moment(updates, state.average, decay, 1)
        count = _one_more(state)
        if nesterov:
            ahead = optax.tree.bias_correction(average, decay, count + 1)
            now = optax.tree.bias_correction(updates, decay, count)
            moved = jax.tree.map(lambda m, g: decay * m + (1 - decay) * g, ahead, now)
        else:
            moved = optax.tree.bias_correction(average, decay, count)
        return moved, AverageState(count, average)

    return optax.GradientTransformation(init, update)


def _bounded(updates: optax.Updates, largest: Number) -> optax.Updates:
    size = global_norm(updates)
    share = jnp.where(size > largest, largest / jnp.where(size > largest, size, 1.0), 1.0)
    return jax.tree.map(lambda g: share * g, updates)


def _per_step(coefficients: Coefficients, steps: int) -> tuple[tuple[float, ...], ...]:
    table = np.asarray(coefficients, float)
    if table.shape not in ((3,), (steps, 3)):
        raise ValueError(
            f"ns_coeffs has shape {table.shape}; give (a, b, c), or one such row for each of the "
            f"{steps} steps."
        )
    return tuple(map(tuple, np.broadcast_to(table, (steps, 3)).tolist()))


def _check_rate(learning_rate: LearningRate) -> None:
    several = isinstance(learning_rate, Mapping)
    for name, rate in learning_rate.items() if several else [("", learning_rate)]:
        if not callable(rate):
            _check_not_negative(
                **{f"learning_rate[{name!r}]" if several else "learning_rate": rate}
            )


def _check_momentum(momentum: Number) -> None:
    _check_not_negative(momentum=momentum)
    if is_concrete(momentum) and float(momentum) >= 1:
        raise ValueError(f"momentum is {momentum!r}; it must lie in [0, 1).")


def _check_not_negative(**values: Number) -> None:
    for name, value in values.items():
        if not is_concrete(value):
            continue
        number = np.asarray(value)
        if number.shape or number.dtype.kind not in "fiu" or not 0 <= number < np.inf:
            raise ValueError(f"{name} is {value!r}; it must be a finite number of at least 0.")


def _is_zero(value: Number) -> bool:
    return is_concrete(value) and float(value) == 0
