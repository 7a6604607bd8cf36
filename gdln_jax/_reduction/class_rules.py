"""The certificate of an optimiser on a quotient, with one variable per class of equal edges.

The quotient no longer holds the data of single edges, but its loss gives the gradient of each edge
of a class, dl/dx_c / |c|. A network with these gradients, aligned in random frames, stands for the
full one: a rule sees no more of it.
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._checks import is_concrete, listed
from gdln_jax._graph import Graph
from gdln_jax._network.edges import check_untied
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._reduction.forms import Embedded, Form, Optimizer, Stacks
from gdln_jax._reduction.merging import Program, program_loss
from gdln_jax._reduction.rules import (
    Space,
    Strengths,
    described,
    limit,
    measure,
    share,
    signed_values,
    silent_network,
)
from gdln_jax._reduction.strengths import ClassStrengths, ModeStrengths
from gdln_jax.rules import InexactRuleError, Rule


@runtime_checkable
class Merged(Protocol):
    """What of a `Quotient` training reads."""

    graph: Graph
    x0: Array
    fits: Array
    program: Program

    @property
    def classes(self) -> tuple[tuple[str, ...], ...]:
        """Names of the edges of each class."""
        ...

    @property
    def labels(self) -> tuple[int, ...]:
        """The class of each parameter."""
        ...

    def by_edge(self, x: Array) -> ClassStrengths:
        """Strengths of classes as a mapping by edge."""
        ...


class _OfClasses(eqx.Module):
    """The loss of a quotient, read from a network that is aligned in some frames."""

    quotient: Any

    def __call__(self, net: GatedNetwork, frames: Embedded) -> Array:
        labels = np.asarray(self.quotient.labels)
        flat = frames.strengths(net).flat()
        sums = jnp.zeros(self.quotient.x0.shape, flat.dtype).at[labels].add(flat)
        x = sums / np.bincount(labels)[:, None]
        return program_loss(x * self.quotient.fits, self.quotient.program)


def check_classes(quotient: Merged, rule: Rule) -> None:
    """Raise `ValueError` where a rule tells members of a class apart."""
    settings = what_sets_apart(rule, quotient.graph)
    if settings is None:
        return
    rows = np.array(quotient.labels)
    for k, names in enumerate(quotient.classes):
        members = settings[rows == k]
        if np.any(members != members[0]):
            raise ValueError(
                f"the rule {rule!r} tells the edges of the class {listed(names, 4)} apart (by "
                "their rate or shape factor), but the quotient has one variable for them: make it "
                "by reduction.quotient(b0, rule=rule)."
            )


def what_sets_apart(rule: object, graph: Graph) -> np.ndarray | None:
    """Rows (edge, _) of what a rule tells edges apart by; None where its rates are traced.

    Raises:
        ValueError: for an optimiser of optax, which treats all edges alike or has no settings.
    """
    if not isinstance(rule, Rule):
        raise ValueError(
            f"rule is a {type(rule).__name__}; quotient(b0, rule=) reads the rates of a rule of "
            "gdln.rules. An optimiser of optax needs no rule= here: quotient(b0).train(rule=...)."
        )
    return rule.edge_settings(graph) if is_concrete(dict(rule.settings)) else None


def check_rule_on_classes(quotient: Merged, rule: Optimizer, form: Form, *, tol: float) -> None:
    """Raise `InexactRuleError` unless a rule is the same on classes as on the full network."""
    if (isinstance(rule, Rule) and rule.equivariant) or not is_concrete(quotient):
        return
    check_untied(quotient.graph, "the certificate of an optimiser on classes", "use gdln.rules")
    graph, labels, tol = quotient.graph, np.asarray(quotient.labels), limit(tol)
    fits = np.asarray(quotient.fits)
    masks = ModeStrengths.from_flat(graph, fits[labels]).stacks
    typical = np.ones(fits.shape[1])

    def draw(rng: np.random.Generator, length: int) -> tuple[Embedded, Strengths]:
        x = signed_values(rng, (3, length), len(fits), typical) * fits
        b = eqx.tree_at(lambda b: b.stacks, quotient.by_edge(quotient.x0), (jnp.asarray(x),))
        frames = [_random_frames(rng, graph, masks) for _ in range(3)]
        u, v = (
            tuple(jnp.asarray(np.stack(stacks)) for stacks in zip(*side, strict=True))
            for side in zip(*frames, strict=True)
        )
        return Embedded(u, v, matrices=False), b

    residual = measure(rule, graph, Space(form, masks, quotient.labels), _OfClasses(quotient), draw)
    net = silent_network(graph)
    if residual.tangent > tol:
        raise InexactRuleError(
            f"{described(rule, net)} leaves the aligned manifold, or separates edges of one class: "
            f"{share(residual.tangent)} of its update at step {residual.step} is outside (edge "
            f"{residual.edge!r}); use gdln.train on the full network, or a rule of gdln.rules."
        )
    if residual.same > tol:
        names = next(names for names in quotient.classes if residual.edge in names)
        raise InexactRuleError(
            f"{described(rule, net)} is another one on classes of edges: its update at step "
            f"{residual.step} differs by {share(residual.same)} of its size, most for the class "
            f"{listed(names, 4)}. It sees shapes, or norms over stacks of edges: train the edges, "
            "reduction.train(quotient.expand(x0), rule=rule), or use a rule of gdln.rules."
        )


def _random_frames(
    rng: np.random.Generator, graph: Graph, masks: Stacks
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Frames per store: those of every node are random and hold the modes that pass there."""
    modes = masks[0].shape[1]
    passing = {name: np.zeros(modes, bool) for name in graph.nodes}
    stores = [store.names for store in graph.stores if not store.frozen]
    for names, mask in zip(stores, masks, strict=True):
        for name, row in zip(names, np.asarray(mask) > 0, strict=True):
            for node in graph.ends(name):
                passing[node] |= row
    frames = {}
    for name, width in graph.nodes.items():
        count = int(passing[name].sum())
        frames[name] = np.zeros((width, modes))
        frames[name][:, passing[name]] = np.linalg.qr(rng.normal(size=(width, count)))[0]
    sides = [
        [np.stack([frames[graph.ends(name)[end]] for name in names]) for names in stores]
        for end in (0, 1)
    ]
    return sides[0], sides[1]
