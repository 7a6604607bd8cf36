"""An optimiser for each edge: rates, freezing, or another rule altogether."""

from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from gdln_jax._checks import answering
from gdln_jax._graph import check_trainable
from gdln_jax.rules._rows import Part, Rows, rows
from gdln_jax.rules._rule import Optional, Rule, check_transformation, chosen_for, make_rule


@answering
def by_edge(
    optimizers: Mapping[str, optax.GradientTransformation | None],
    *,
    default: optax.GradientTransformation | EllipsisType | None = ...,
) -> Rule:
    """Make a rule with an optimiser of its own for every edge; None freezes an edge.

    The weights of a network are stacks of several edges, so that `optax.masked` and
    `optax.partition`, which label leaves, cannot tell those edges apart. Here labels are names:

        slow, fast = optax.adam(1e-3), optax.adam(1e-2)
        gdln.rules.by_edge({"x->h1": fast, "h1->y": None}, default=slow)

    Edges with the same optimiser object share its state and its norms, as leaves with one label of
    `optax.partition` do: a bound on the global norm is one on the norm over those edges.

    Args:
        optimizers: edge -> a rule, any optimiser of optax, or None. A rate per edge alone is
            shorter as `rules.sgd({edge: rate, ...})`.
        default: the optimiser of all other edges, or None; by default every edge must be named.

    Returns:
        A `Rule` for networks and mode strengths. It needs no certificate where all optimisers are
        rules that need none. Frozen weights stay as they are to the last bit.

    Raises:
        ValueError: for what is no optimiser; when training starts, for names that are no edge, and
            for edges without an optimiser.
    """
    if not isinstance(optimizers, Mapping):
        raise ValueError(
            f"optimizers is a {type(optimizers).__name__}; pass a mapping edge -> optimiser, such "
            "as {'x->h1': optax.adam(1e-3), 'h1->y': None}."
        )
    given = {f"optimizers[{name!r}]": one for name, one in optimizers.items()}
    if not isinstance(default, EllipsisType):
        given["default"] = default
    for what, one in given.items():
        if one is not None:
            check_transformation(one, what)
    settings = {"optimizers": dict(optimizers), "default": default}

    def init(params: optax.Params) -> tuple[optax.OptState, ...]:
        return tuple(one.init(group.take(params)) for one, group in _groups(params, **settings))

    def update(
        updates: optax.Updates, state: PyTree, params: optax.Params | None = None, **extra: Any
    ) -> tuple[optax.Updates, tuple[optax.OptState, ...]]:
        moved, states = jax.tree.map(jnp.zeros_like, updates), []
        for (one, group), own in zip(_groups(updates, **settings), state, strict=True):
            weights = None if params is None else group.take(params)
            more = extra if params is None else group.restricted(extra, params)
            step, new = one.update(group.take(updates), own, weights, **more)
            moved = group.put(moved, step)
            states.append(new)
        return moved, tuple(states)

    equivariant = all(
        one is None or (isinstance(one, Rule) and one.equivariant) for one in given.values()
    )
    chained = optax.GradientTransformationExtraArgs(init, update)
    return make_rule("by_edge", settings, chained, equivariant=equivariant)


class _Group(NamedTuple):
    """The rows of a tree that one optimiser acts on; stack by stack, stacks without any left out.

    - `stacks`: numbers of the stacks. `places`: which rows of each.
    - `names`, `counts`: of those rows.
    """

    stacks: tuple[int, ...]
    places: tuple[np.ndarray, ...]
    names: tuple[tuple[str, ...], ...]
    counts: tuple[tuple[int, ...], ...]

    def take(self, tree: PyTree) -> PyTree:
        """The rows as a tree of their own."""
        leaves = jax.tree.leaves(tree)
        taken = (leaves[k][where] for k, where in zip(self.stacks, self.places, strict=True))
        return Part(tuple(taken), tree.graph, self.names, self.counts)

    def put(self, tree: PyTree, part: PyTree) -> PyTree:
        """The tree with these rows in their places."""
        leaves, structure = jax.tree.flatten(tree)
        for k, where, stack in zip(self.stacks, self.places, jax.tree.leaves(part), strict=True):
            leaves[k] = leaves[k].at[where].set(stack.astype(leaves[k].dtype))
        return structure.unflatten(leaves)

    def restricted(self, extra: Mapping[str, Any], params: PyTree) -> dict[str, Any]:
        """optax's extra arguments as functions of these rows, the others kept."""
        narrowed = dict(extra)
        if "grad" in extra:
            narrowed["grad"] = self.take(extra["grad"])

        # optax's line searches pass on what the value names, and here nothing more is used.
        def value(there: PyTree, grad_fn: object = None) -> Array:
            del grad_fn
            return extra["value_fn"](self.put(params, there))

        def gradient(there: PyTree, *_: object) -> PyTree:
            return self.take(extra["grad_fn"](self.put(params, there)))

        inside: dict[str, Callable[..., PyTree]] = {"value_fn": value, "grad_fn": gradient}
        return narrowed | {name: one for name, one in inside.items() if name in extra}


def _groups(
    tree: PyTree, optimizers: Mapping[str, Optional], default: Optional | EllipsisType
) -> list[tuple[optax.GradientTransformationExtraArgs, _Group]]:
    """The optimisers in the order of their first edge, each with the rows it acts on."""
    check_trainable(tree.graph, optimizers, "by_edge")
    table = rows(tree)
    chosen = [[chosen_for(name, optimizers, default) for name in row.names] for row in table]
    distinct = {id(one): one for stack in chosen for one in stack if one is not None}
    return [
        (optax.with_extra_args_support(one), _group(table, chosen, one))
        for one in distinct.values()
    ]


def _group(table: tuple[Rows, ...], chosen: list[list[Optional]], one: Optional) -> _Group:
    members = {
        k: [i for i, other in enumerate(stack) if other is one] for k, stack in enumerate(chosen)
    }
    members = {k: places for k, places in members.items() if places}
    return _Group(
        tuple(members),
        tuple(np.array(where) for where in members.values()),
        tuple(tuple(table[k].names[i] for i in where) for k, where in members.items()),
        tuple(tuple(int(table[k].counts[i]) for i in where) for k, where in members.items()),
    )
