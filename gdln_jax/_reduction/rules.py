"""The certificate of an optimiser: whether training in aligned coordinates is training the network.

Two residuals (theory#optimisers): the share of an update outside the manifold, and the distance of
the update to that of the same optimiser on reduced weights. Both at random points of the manifold
in randomly turned hidden frames: in coordinate frames Adam would pass.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from gdln_jax._checks import Suggesting, check_integer, check_positive, dataset, is_concrete
from gdln_jax._graph import Graph
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._network.losses import mse
from gdln_jax._reduction.coupled import Coupled
from gdln_jax._reduction.forms import (
    AsTheyAre,
    Diagonals,
    Embedded,
    Form,
    Optimizer,
    Reduced,
    Stacks,
)
from gdln_jax._reduction.loss import ModeData
from gdln_jax._reduction.refusal import InexactReductionError
from gdln_jax._reduction.strengths import ClassStrengths, MatrixStrengths, ModeStrengths
from gdln_jax._reduction.tied_frames import Sides
from gdln_jax._scan import apply_gradient, as_transformation, initial_state
from gdln_jax.rules import InexactRuleError, Rule

Strengths = ModeStrengths | MatrixStrengths | ClassStrengths

# Sizes of the points beside that at which modes are learned; at the large ones gradients are much
# larger, so that a bound on entries of the gradient is felt.
_SIZES = (1.0, 0.5, 3.0)
_LONGEST = 64  # steps without any update after which an optimiser is not tested further
# Rounding of an update in float32: the slope of Newton-Schulz at 0 is 485.
_FLOAT32 = 1e-3


@runtime_checkable
class Certified(Protocol):
    """What of a `Reduction` is read here."""

    graph: Graph
    data: Any
    source: Any
    modes: int
    u: Stacks
    v: Stacks
    mode_data: ModeData
    typical: np.ndarray
    ties: tuple[tuple[str, ...], ...] | None
    core: Coupled | None
    fixed: Stacks | None


class RuleResidual(NamedTuple):
    """How far an optimiser is from being exact in aligned coordinates, at worst.

    - `tangent`: share of an update of the full network outside the manifold.
    - `same`: distance between that update and the embedded one of the same optimiser on reduced
      weights, relative to the update.
    - `edge`, `step`: where the larger of the two was measured.
    """

    tangent: float
    same: float
    edge: str
    step: int

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__


def rule_residual(
    reduction: Certified,
    rule: Optimizer | optax.MultiSteps,
    *,
    steps: Sequence[int] = (1, 4),
    points: int = 3,
    seed: int = 0,
) -> RuleResidual:
    """Measure how far an optimiser is from being exact on the manifold of a reduction.

    At random strengths of both signs and several sizes, in turned hidden frames, one after the
    other: the optimiser's state is kept, since it matters. Rules of `gdln.rules` other than
    `per_matrix` need no certificate.

    Args:
        reduction: from `gdln.reduce`, also a coupled one.
        rule: any optimiser of optax, or a rule.
        steps: updates at which the residuals are taken, counted from 1.
        points: number of sequences of points, each in frames of its own.
        seed: of the points and frames.

    Returns:
        A `RuleResidual`; an optimiser is exact when both residuals are rounding. Host code; costs
        2 x points x max(steps) gradients of the full network, and one compilation.

    Raises:
        ValueError: for an optimiser that cannot be used, or under jit and vmap.
    """
    return residual_of(reduction, rule, mse, steps=steps, points=points, seed=seed)


class Space(eqx.Module):
    """The manifold on which an optimiser is probed, and the form in which it is shown strengths.

    - `masks`: per bundle (edge, mode), 0 where a mode does not fit; None with matrices.
    - `labels`: class of each edge in bundle order, where edges are kept equal; else None.
    """

    form: Form
    masks: Stacks | None
    labels: tuple[int, ...] | None = eqx.field(static=True)

    def inside(self, frames: Embedded, update: GatedNetwork) -> Stacks:
        """The part of an update along the manifold."""
        along = frames.strengths(update)
        if self.masks is not None:
            stacks = tuple(x * mask for x, mask in zip(along.stacks, self.masks, strict=True))
            along = ModeStrengths(along.graph, stacks)
            if self.labels is not None:
                along = class_means(along, np.array(self.labels))
        return frames.tree(along).stacks


def class_means(b: ModeStrengths, labels: np.ndarray) -> ModeStrengths:
    """Every edge with the mean strengths of its class; `labels` (edge,) in bundle order."""
    flat = b.flat()
    sums = jnp.zeros((labels.max() + 1, flat.shape[1]), flat.dtype).at[labels].add(flat)
    return ModeStrengths.from_flat(b.graph, (sums / np.bincount(labels)[:, None])[labels])


class _OfNetwork(eqx.Module):
    """The loss of the network that a reduction was made for."""

    data: PyTree
    loss: Callable[..., Array] = eqx.field(static=True)

    def __call__(self, net: GatedNetwork, _: Embedded) -> Array:
        return self.loss(net, self.data)


def residual_of(
    reduction: Certified,
    rule: Optimizer | optax.MultiSteps,
    loss: Callable[..., Array],
    *,
    steps: Sequence[int] = (1, 4),
    points: int = 3,
    seed: int = 0,
) -> RuleResidual:
    """`rule_residual` for the gradients of any loss that the reduction certifies."""
    rule = as_transformation(rule, "rule")
    points = check_integer(points, "points", minimum=1)
    if not is_concrete(reduction):
        raise ValueError(
            "the certificate of an optimiser looks at values and cannot run under jit or vmap: "
            "certify before, by gdln.rule_residual(reduction, rule)."
        )
    graph, core = reduction.graph, reduction.core
    if core is not None:
        frames, form, masks = (core.u, core.v), Reduced(core), None
    else:
        frames, masks = (reduction.u, reduction.v), reduction.mode_data.masks
        form = AsTheyAre() if isinstance(rule, Rule) else Diagonals()

    def draw(rng: np.random.Generator, length: int) -> tuple[Embedded, Strengths]:
        shape = (points, length)
        if core is None:
            values: Strengths = _signed_strengths(rng, shape, reduction)
        else:
            values = _matrices(rng, shape, reduction, core.size)
        turned = _turned(rng, points, graph, *frames, core is not None)
        if reduction.fixed is not None:
            fixed = tuple(jnp.stack([w] * points) for w in reduction.fixed)
            turned = dataclasses.replace(turned, fixed=fixed)
        return turned, values

    space = Space(form, masks, _tie_labels(reduction))
    whole = _OfNetwork(reduction.data if loss is mse else reduction.source, loss)
    return measure(rule, graph, space, whole, draw, steps=steps, seed=seed)


def measure(
    rule: Optimizer,
    graph: Graph,
    space: Space,
    whole: Callable[[GatedNetwork, Embedded], Array],
    draw: Callable[[np.random.Generator, int], tuple[Embedded, Strengths]],
    *,
    steps: Sequence[int] = (1, 4),
    seed: int = 0,
) -> RuleResidual:
    """Probe a rule on the loss `whole(network, frames)` at frames and points from `draw`."""
    chosen = sorted({check_integer(step, "steps", minimum=1) for step in steps})
    if not chosen:
        raise ValueError("steps is empty; give at least one, counted from 1.")
    while True:
        frames, values = draw(np.random.default_rng(seed + 3), chosen[-1])
        off, apart, size = map(np.asarray, _norms(rule, space, whole, frames, values))
        moved = np.sqrt(np.sum(np.square(size), axis=-1))  # (point, step)
        if np.any(moved > 0) or chosen[-1] >= _LONGEST:
            break
        # Gradients are gathered over several steps, or a schedule begins at 0.
        chosen.append(4 * chosen[-1])
    names = graph.moving
    worst = []
    for part in (off, apart):
        share = np.sqrt(np.sum(np.square(part), axis=-1)) / np.where(moved > 0, moved, 1.0)
        share = np.where(np.isfinite(share), share, np.inf)[:, np.array(chosen) - 1]
        point, k = np.unravel_index(np.argmax(share), share.shape)
        edge = names[int(np.argmax(part[point, chosen[k] - 1]))]
        worst.append((float(share.max()), edge, chosen[k]))
    (tangent, *there), (same, *elsewhere) = worst
    return RuleResidual(tangent, same, *(there if tangent >= same else elsewhere))


@eqx.filter_jit
def _norms(
    rule: Optimizer,
    space: Space,
    whole: Callable[[GatedNetwork, Embedded], Array],
    frames: Embedded,
    values: Strengths,
) -> tuple[Array, Array, Array]:
    """Norms (point, step, edge) of what is outside, of the difference, and of the update."""
    form = space.form
    small_rule = form.optimizer(rule)

    def at_point(frames: Embedded, values: Strengths) -> tuple[Array, Array, Array]:
        def lifted(tree: PyTree) -> GatedNetwork:
            return frames.tree(_by_edge(form.strengths(tree)))

        def step(states: tuple[PyTree, PyTree], b: Strengths) -> tuple[PyTree, tuple[Array, ...]]:
            net, tree = frames.tree(_by_edge(b)), form.tree(b)
            update, full = _updated(rule, lambda net: whole(net, frames), net, states[0])
            small, part = _updated(
                small_rule, lambda tree: whole(lifted(tree), frames), tree, states[1]
            )
            norms = (
                _edge_norms(_minus(update.stacks, space.inside(frames, update))),
                _edge_norms(_minus(update.stacks, lifted(small).stacks)),
                _edge_norms(update.stacks),
            )
            return (full, part), norms

        first = jax.tree.map(lambda stack: stack[0], values)
        states = (
            initial_state(rule, frames.tree(_by_edge(first))),
            initial_state(small_rule, form.tree(first)),
        )
        _, (off, apart, size) = jax.lax.scan(step, states, values)
        return off, apart, size

    return jax.vmap(at_point)(frames, values)


def _by_edge(b: Strengths) -> ModeStrengths | MatrixStrengths:
    return b.expanded() if isinstance(b, ClassStrengths) else b


def _updated(
    rule: Optimizer, loss: Callable[[PyTree], Array], tree: PyTree, state: PyTree
) -> tuple[Any, PyTree]:
    value, gradient = jax.value_and_grad(loss)(tree)
    return apply_gradient(rule, gradient, state, tree, value, loss)


def _minus(a: Stacks, b: Stacks) -> Stacks:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _edge_norms(stacks: Stacks) -> Array:
    return jnp.concatenate([jnp.sqrt(jnp.sum(jnp.square(x), axis=(-2, -1))) for x in stacks])


def signed_values(
    rng: np.random.Generator, shape: tuple[int, int], rows: int, typical: np.ndarray
) -> np.ndarray:
    """Strengths (*shape, row, mode) of both signs and several sizes."""
    full = (*shape, rows, len(typical))
    values = rng.choice([-1.0, 1.0], full) * rng.uniform(0.5, 1.5, full) * typical
    return values * np.resize(_SIZES, shape)[..., None, None]


def _signed_strengths(
    rng: np.random.Generator, shape: tuple[int, int], reduction: Certified
) -> ModeStrengths:
    ties, masks = _tie_labels(reduction), reduction.mode_data.masks
    labels = np.arange(sum(map(len, masks))) if ties is None else np.array(ties)
    values = signed_values(rng, shape, int(labels.max()) + 1, reduction.typical)[:, :, labels]
    return ModeStrengths.from_flat(reduction.graph, values * np.concatenate(masks))


def _matrices(
    rng: np.random.Generator, shape: tuple[int, int], reduction: Certified, count: int
) -> MatrixStrengths:
    sizes = np.resize(_SIZES, shape)[..., None, None, None]
    spread = sizes * float(np.max(reduction.typical)) / np.sqrt(count)
    stacks = tuple(
        jnp.asarray(spread * rng.normal(size=(*shape, len(stack), count, count)))
        for stack in reduction.u
    )
    return MatrixStrengths(reduction.graph, stacks)


def _turned(
    rng: np.random.Generator, points: int, graph: Graph, u: Stacks, v: Stacks, matrices: bool
) -> Embedded:
    """Frames (point, ...) with every hidden node turned; no output is changed by that."""
    sides: tuple[list[list[np.ndarray]], ...] = ([], [])
    for _ in range(points):
        turns = _turns(rng, graph)
        for side, stacks, end in zip(sides, (u, v), (0, 1), strict=True):
            stores = (store.names for store in graph.stores if not store.frozen)
            nodes = [[graph.ends(name)[end] for name in names] for names in stores]
            side.append(
                [
                    np.stack([turns[name] for name in names]) @ np.asarray(stack)
                    for names, stack in zip(nodes, stacks, strict=True)
                ]
            )
    stacked = [
        tuple(jnp.asarray(np.stack(stacks)) for stacks in zip(*side, strict=True)) for side in sides
    ]
    return Embedded(stacked[0], stacked[1], matrices)


def _turns(rng: np.random.Generator, graph: Graph) -> dict[str, np.ndarray]:
    """A random rotation of every hidden frame that is free; nodes joined by ties share theirs."""
    turns = {name: np.eye(width) for name, width in graph.nodes.items()}
    joined = [[name] for name in graph.hidden]
    if graph.tied:
        sides = Sides(graph)
        joined = [sorted(sides.nodes[c]) for c in sides.free]
    for names in joined:
        turn = np.linalg.qr(rng.normal(size=turns[names[0]].shape))[0]
        turns |= dict.fromkeys(names, turn)
    return turns


def _tie_labels(reduction: Certified) -> tuple[int, ...] | None:
    """Class (edge,) of every edge, in bundle order, under the reduction's ties."""
    if reduction.ties is None:
        return None
    label = {name: k for k, names in enumerate(reduction.ties) for name in names}
    return tuple(label[name] for name in reduction.graph.moving)


def limit(tol: float) -> float:
    """The residual that counts as exact, in the current precision."""
    return max(check_positive(tol, "tol"), _FLOAT32 if jnp.result_type(float) == "float32" else 0)


def check_rule(
    reduction: Certified,
    rule: Optimizer,
    loss: Callable[..., Array],
    *,
    tol: float,
    on_inexact: str,
) -> bool:
    """Raise `InexactRuleError` unless the rule is exact; whether it has to run on full shapes."""
    tol = limit(tol)
    if isinstance(rule, Rule) and rule.equivariant and reduction.ties is None:
        return False
    residual = residual_of(reduction, rule, loss)
    net = silent_network(reduction.graph)
    if not residual.tangent <= tol:
        which = "first update" if residual.step == 1 else f"update at step {residual.step}"
        tied = ", or separates edges that the reduction ties" if reduction.ties is not None else ""
        raise InexactRuleError(
            f"{described(rule, net)} leaves the aligned manifold{tied}: "
            f"{share(residual.tangent)} of its {which} is outside (edge {residual.edge!r}); use "
            "gdln.train on the full network, or a rule of gdln.rules."
        )
    if residual.same <= tol:
        return False
    if on_inexact == "embed" and not reduction.graph.frozen:
        return True
    raise InexactRuleError(
        f"{described(rule, net)} keeps the aligned manifold, but it sees the shapes of the "
        f"weight matrices: on strengths its update at step {residual.step} differs by "
        f"{share(residual.same)} of its size (edge {residual.edge!r}). Pass on_inexact='embed' to "
        "run it on matrices of full shape, which is exact at full cost, or use a rule of "
        "gdln.rules (muon has shape_factor=)."
    )


def check_loss_inside(reduction: Certified, loss: Callable[..., Array], *, tol: float) -> None:
    """Raise `InexactReductionError` where the gradient of a loss leaves the manifold."""
    residual = residual_of(reduction, optax.sgd(1.0), loss, steps=(1,))
    if not residual.tangent <= limit(tol):
        name = getattr(loss, "__name__", repr(loss))
        raise InexactReductionError(
            f"the gradient of {name} leaves the aligned manifold: {share(residual.tangent)} of it "
            f"is outside (edge {residual.edge!r}). The reduction was certified for gdln.mse; use "
            "gdln.train on the full network for this loss."
        )


def share(value: float) -> str:
    """A share in words: per cent where that says enough."""
    return f"{value:.0%}" if value >= 0.01 else f"{value:.1e}"


def silent_network(graph: Graph) -> GatedNetwork:
    """The network with all weights 0."""
    return GatedNetwork.from_stacks(
        graph, tuple(jnp.zeros((len(store.names), *store.shape)) for store in graph.stores)
    )


def described(rule: Optimizer, params: PyTree) -> str:
    """What is known of an optimiser: a rule's name, or the classes of its state."""
    if isinstance(rule, Rule):
        return f"the rule {rule!r}"
    parts = list(_parts(initial_state(rule, params)))
    if any(_sends_all_to_adam(part) for part in parts):
        return (
            "this optimiser is optax.contrib.muon without dimension numbers: it sends stacks of "
            "matrices to AdamW (use gdln.rules.muon), and"
        )
    names = dict.fromkeys(type(part).__name__ for part in parts if hasattr(part, "_fields"))
    known = ", ".join(name for name in names if name != "EmptyState")
    return f"this optimiser (state {known})" if known else "this optimiser (which has no state)"


def _parts(state: PyTree) -> Iterator[Any]:
    """All tuples and mappings within a state of optax."""
    if isinstance(state, tuple | dict):
        yield state
        for part in state.values() if isinstance(state, dict) else state:
            yield from _parts(part)


def _sends_all_to_adam(part: Any) -> bool:
    states = getattr(part, "inner_states", None)
    if not isinstance(states, dict) or set(states) != {"muon", "adam"}:
        return False
    averages = [inner.mu for inner in _parts(states["muon"]) if hasattr(inner, "ns_coeffs")]
    return bool(averages) and not jax.tree.leaves(averages)
