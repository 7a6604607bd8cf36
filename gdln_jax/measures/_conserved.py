r"""What gradient flow conserves, and which hidden nodes have such a law (E8; theory#conservation).

The loss does not change under $W_e \to g_t W_e g_s^{-1}$ with g = 1 at inputs and outputs. Tied
edges join the g of different nodes, a transposed use with the inverse transpose. A class of joined
nodes with a free g has a conserved matrix, to which every array counts once.
"""

import functools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, overload

import jax.numpy as jnp
from jaxtyping import Array, Float

from gdln_jax import Graph
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.boundary import check_graph
from gdln_jax._graph import check_trainable
from gdln_jax._linalg import norm, quotient
from gdln_jax._network.gated import GatedNetwork, check_network


class Term(NamedTuple):
    """One summand of a conserved matrix: `sign` times P P^T or P^T P of a parameter's array P."""

    parameter: str
    product: str
    sign: int


class Law(NamedTuple):
    """A conserved matrix: hidden nodes that share it (up to its sign), and its terms."""

    nodes: tuple[str, ...]
    terms: tuple[Term, ...]


class NoLaw(NamedTuple):
    """Hidden nodes without a conserved matrix, and why."""

    nodes: tuple[str, ...]
    reason: str


class ConservedLaws(Sequence[Law]):
    """The laws of a graph, a sequence of `Law`; `without` lists the hidden nodes that have none."""

    def __init__(self, laws: Iterable[Law], without: Iterable[NoLaw]):
        self.laws, self.without = tuple(laws), tuple(without)

    @overload
    def __getitem__(self, index: int) -> Law: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Law]: ...
    def __getitem__(self, index: int | slice) -> Law | Sequence[Law]:
        """One law, or several."""
        return self.laws[index]

    def __len__(self) -> int:
        """Number of laws."""
        return len(self.laws)

    def __repr__(self) -> str:
        def shown(law: Law) -> Iterator[str]:
            for name, product, sign in law.terms:
                yield f"{'+' if sign > 0 else '-'} {product.replace('P', f'[{name}]')}"

        lines = [f"{', '.join(law.nodes)}: {' '.join(shown(law))}" for law in self.laws]
        lines += [f"{', '.join(nodes)}: none, {reason}" for nodes, reason in self.without]
        return "ConservedLaws(\n  " + "\n  ".join(lines) + "\n)"


def conserved_laws(graph: Graph) -> ConservedLaws:
    r"""Return which matrices gradient flow conserves on a graph, for any gates (theory#ties).

    Without ties every hidden node has one, $\sum_{in} W W^T - \sum_{out} W^T W$ (E8). Ties join
    nodes: the law of a class of joined nodes sums $\pm P P^T$ or $\mp P^T P$ over the sides of
    arrays P in the class, each array once however many edges use it.

    Returns:
        A sequence of (nodes, terms), each term (parameter, "PP^T" or "P^TP", +1 or -1), the first
        node's incoming arrays with +1. `.without` has (nodes, reason) for hidden nodes without a
        law: nodes joined with an input or output, joined with their own inverse transpose (as h in
        x -W-> h -W^T-> y), or beside a frozen array.

    Raises:
        ValueError: for what is no graph.
    """
    check_graph(graph)
    return _laws(graph)


@functools.lru_cache(maxsize=64)
def _laws(graph: Graph) -> ConservedLaws:
    union = _Union()
    for node in (*graph.inputs, *graph.outputs):
        union.join(("node", node), "fixed", 0)
    for edge in graph.edges:
        name, transposed = graph.parameter_of[edge.name]
        ends = (edge.source, edge.target) if transposed else (edge.target, edge.source)
        for side, node in zip(("PP^T", "P^TP"), ends, strict=True):
            union.join(("node", node), (side, name), int(transposed))
    frozen = {union.find((side, name))[0] for name in graph.frozen for side in ("PP^T", "P^TP")}
    fixed, dual = union.find("fixed")[0], {union.find(one)[0] for one in union.dual}
    groups: dict[Hashable, list[str]] = {}
    for node in graph.hidden:
        groups.setdefault(union.find(("node", node))[0], []).append(node)
    laws, without = [], []
    for root, nodes in groups.items():
        if root == fixed:
            reason = "ties join it with an input or output node"
        elif root in frozen:
            reason = "a frozen array ends or begins there" + _rotated(graph, nodes)
        elif root in dual:
            reason = "ties join it with its own inverse transpose"
        else:
            first = union.find(("node", nodes[0]))[1]
            laws.append(Law(tuple(nodes), _terms(graph, union, root, first)))
            continue
        without.append(NoLaw(tuple(nodes), reason))
    return ConservedLaws(laws, without)


def _rotated(graph: Graph, nodes: Sequence[str]) -> str:
    """What is conserved if a frozen edge at one of the nodes is a multiple of a rotation.

    Stated where it is the one frozen edge at its two hidden nodes, and nothing there is shared; a
    graph does not know the array, so that it is no `Law`.
    """

    def alone(edge: str) -> bool:
        return len(graph.uses[graph.parameter_of[edge][0]]) == 1

    def learns(edge: str) -> bool:
        return graph.parameter_of[edge][0] not in graph.frozen

    for edge in graph.edges:
        name, source, target = edge.name, edge.source, edge.target
        inner = {source, target} & set(graph.hidden)
        if learns(name) or len(inner) < 2 or not inner & set(nodes):
            continue
        ends = (*graph.incoming[source], *graph.outgoing[source], *graph.incoming[target])
        beside = {one.name for one in (*ends, *graph.outgoing[target])} - {name}
        if alone(name) and all(alone(one) and learns(one) for one in beside):
            return (
                f"; if {name!r} is a multiple of an orthogonal O, Q_t + O Q_s O^T is conserved, "
                f"with Q_s and Q_t the sums W W^T of edges into less W^T W of edges out of "
                f"{source!r} and {target!r}, {name!r} left out"
            )
    return ""


def _terms(graph: Graph, union: "_Union", root: Hashable, first: int) -> tuple[Term, ...]:
    terms = []
    for name in graph.parameters:
        for product, sign in (("PP^T", 1), ("P^TP", -1)):
            here, parity = union.find((product, name))
            if here == root:
                terms.append(Term(name, product, -sign if parity != first else sign))
    return tuple(terms)


class _Union:
    """Union-find with parity: elements joined as equal (0) or as inverse transposes (1)."""

    def __init__(self) -> None:
        self._above: dict[Hashable, tuple[Hashable, int]] = {}
        self.dual: set[Hashable] = set()  # elements joined with their own inverse transpose

    def find(self, one: Hashable) -> tuple[Hashable, int]:
        """The root of an element, and its parity beside the root."""
        parity = 0
        while one in self._above:
            one, step = self._above[one]
            parity ^= step
        return one, parity

    def join(self, a: Hashable, b: Hashable, parity: int) -> None:
        """Join two elements."""
        (root, of_a), (other, of_b) = self.find(a), self.find(b)
        if root != other:
            self._above[other] = (root, of_a ^ of_b ^ parity)
        elif of_a ^ of_b != parity:
            self.dual.add(root)


def conserved(
    net: GatedNetwork, node: str, *, tau: Mapping[str, ArrayLike] | None = None
) -> Float[Array, "width width"]:
    r"""Return the matrix that gradient flow conserves at a hidden node (E8), for any gates.

    $\sum_{in} \tau_e W_e W_e^T - \sum_{out} \tau_e W_e^T W_e$, with `tau` of `gradient_flow` if
    edges have time constants of their own, else without. Of tied edges the law of the node's class
    in `conserved_laws`, to which every array counts once.

    In the routing task it gives M B1^2 - B2^2 and B2^2 - M B3^2 per mode: the exact form of
    N's "the hidden singular values are sqrt(M) larger". Discrete training moves it at second
    order in the step.

    Raises:
        ValueError: when `node` is no hidden node, or ties leave it without a law; it says why.
    """
    check_network(net)
    graph = net.graph
    if node not in graph.hidden:
        raise ValueError(
            f"{node!r} is no hidden node; there are {list(graph.hidden)} (E8 holds at those)."
        )
    if tau is None:
        tau = dict.fromkeys(graph.trainable, 1.0)
    check_trainable(graph, tau, "tau")
    into, out = _sums(net, node, tau)
    return into - out


def balancedness(net: GatedNetwork) -> dict[str, Float[Array, ""]]:
    """Return how far each hidden node is from balance, in [0, 1].

    ||in - out||_F / (||in||_F + ||out||_F) with in = sum_in W W^T and out = sum_out W^T W; 0 is
    balanced (C = 0 in N Eq. 15), where small initial weights lead. Weights that are 0 are balanced;
    the derivative of a balanced node is 0. Of tied edges in and out are the positive and the
    negative terms of the law in `conserved_laws`.

    Raises:
        ValueError: when ties leave a hidden node without a law.
    """
    check_network(net)
    tau = dict.fromkeys(net.graph.trainable, 1.0)
    result = {}
    for node in net.graph.hidden:
        into, out = _sums(net, node, tau)
        result[node] = quotient(norm(into - out), norm(into) + norm(out))
    return result


def _sums(net: GatedNetwork, node: str, tau: Mapping[str, ArrayLike]) -> tuple[Array, Array]:
    """Sums of the positive and of the negative terms of the law at a node."""
    laws = conserved_laws(net.graph)
    for nodes, reason in laws.without:
        if node in nodes:
            raise ValueError(
                f"nothing is conserved at {node!r}: {reason} (measures.conserved_laws(net.graph) "
                "lists what is)."
            )
    law = next(law for law in laws if node in law.nodes)
    sums = {1: jnp.zeros(()), -1: jnp.zeros(())}
    for name, product, sign in law.terms:
        p = net.parameters[name]
        sums[sign] = sums[sign] + jnp.asarray(tau[name]) * (
            p @ p.T if product == "PP^T" else p.T @ p
        )
    return sums[1], sums[-1]
