"""The coupled form: frames that span what the dynamics can reach, with full matrices inside.

Exact by construction for starts on the aligned manifold: inputs act through the span of the
data, outputs through the span of the targets and of the frames, hidden layers through as many
directions as there are modes. Floor 3, below the reduction: may import floors 0 to 2.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._graph import Graph
from gdln_jax._modes import ModeStrengths
from gdln_jax._network import EdgeView, propagate
from gdln_jax._plan import OutputTable, PackedData
from gdln_jax._units import input_owners

# Directions in which data vary less than this, relative to the most varying one, are rounding.
_RANK = 1e-12


class MatrixStrengths(eqx.Module):
    """Mode matrices U_e^T W_e V_e of every edge; reads like a mapping edge -> (..., mode, mode)."""

    graph: Graph = eqx.field(static=True)
    stacks: tuple[Array, ...]

    def __getitem__(self, name: str) -> Array:
        """Matrix (..., mode, mode) of one edge."""
        return EdgeView(self.graph, self.stacks)[name]

    def __iter__(self):
        return (edge.name for edge in self.graph.edges)

    def __len__(self) -> int:
        return len(self.graph.edges)

    def __repr__(self) -> str:
        return f"MatrixStrengths({len(self)} edges x {self.stacks[0].shape[-2:]})"


class Coupled(eqx.Module):
    """A network in reduced coordinates whose dynamics are those of the full one on the span.

    `data`: the packed data seen through the bases; `left`, `right`: per bundle the frames U_e and
    V_e in them, (edge, reduced width, mode). Weights in these coordinates are one stack (edge,
    reduced |target|, reduced |source|) per bundle.
    """

    data: PackedData
    left: tuple[Array, ...]
    right: tuple[Array, ...]

    def start(self, b: ModeStrengths) -> MatrixStrengths:
        """Reduced weights of aligned strengths."""
        return MatrixStrengths(
            b.graph,
            tuple(
                jnp.einsum("etm,em,esm->ets", u, x, v)
                for u, x, v in zip(self.left, b.stacks, self.right, strict=True)
            ),
        )

    def read(self, weights: MatrixStrengths) -> MatrixStrengths:
        """Mode matrices U_e^T W_e V_e of (a trajectory of) reduced weights."""
        return MatrixStrengths(
            weights.graph,
            tuple(
                jnp.einsum("etm,...ets,esn->...emn", u, stack, v)
                for u, stack, v in zip(self.left, weights.stacks, self.right, strict=True)
            ),
        )


def coupled_loss(weights: MatrixStrengths, data: PackedData) -> Float[Array, ""]:
    """The loss of the full network at reduced weights."""

    def product(k: int, edges: Array | None, x: Array) -> Array:
        stack = weights.stacks[k] if edges is None else weights.stacks[k][edges]
        return jnp.einsum("cts,cprs->cprt", stack, x, precision=jax.lax.Precision.HIGHEST)

    loss = jnp.zeros(())
    for table, h in zip(data.outputs, propagate(data, product), strict=True):
        if table is not None:
            assert h is not None
            prediction = h if table.instance is None else h[table.instance]
            error = jnp.square(table.target - prediction)
            loss += 0.5 * jnp.sum(table.weight[..., None] * error)
    for table in data.silent:
        if table is not None:
            loss += 0.5 * jnp.sum(table.weight[..., None] * jnp.square(table.target))
    return loss


def couple(packed: PackedData, u: tuple[Array, ...], v: tuple[Array, ...], modes: int) -> Coupled:
    """Rotate the data of a network into the spans that its dynamics can reach."""
    graph = packed.graph
    bases = _bases(packed, u, v, modes)
    inputs, outputs, silent = [], [], []
    for c, names in enumerate(graph.classes.values()):
        x = packed.inputs[c]
        if x is None:
            inputs.append(None)
        else:
            owner = input_owners(packed, c)
            basis = np.stack([bases[owner.get(i, names[0])] for i in range(len(x))])
            inputs.append(jnp.einsum("ibw,iwq->ibq", x, basis))
        for tables, seen in ((packed.outputs, outputs), (packed.silent, silent)):
            seen.append(_rotated_table(tables[c], names, bases))
    data = PackedData(
        graph, tuple(inputs), packed.stages, tuple(outputs), tuple(silent), packed.counts,
        packed.num_examples,
    )  # fmt: skip
    left, right = [], []
    for k, bundle in enumerate(graph.bundles):
        ends = [graph.edge(name) for name in bundle.edges]
        targets = np.stack([bases[edge.target] for edge in ends])
        sources = np.stack([bases[edge.source] for edge in ends])
        left.append(jnp.einsum("etq,etm->eqm", targets, u[k]))
        right.append(jnp.einsum("esq,esm->eqm", sources, v[k]))
    return Coupled(data, tuple(left), tuple(right))


def _rotated_table(
    table: OutputTable | None, names: tuple[str, ...], bases: dict[str, np.ndarray]
) -> OutputTable | None:
    if table is None:
        return None
    basis = np.stack([bases[names[i]] for i in np.asarray(table.node).tolist()])
    target = jnp.einsum("pbw,pwq->pbq", table.target, basis)
    return OutputTable(table.instance, table.node, target, table.weight, table.example)


def _bases(
    packed: PackedData, u: tuple[Array, ...], v: tuple[Array, ...], modes: int
) -> dict[str, np.ndarray]:
    """Per node an orthonormal basis (width, reduced width); one reduced width per class."""
    graph = packed.graph
    spans: dict[str, list[np.ndarray]] = {name: [] for name in graph.nodes}
    for k, bundle in enumerate(graph.bundles):
        for i, name in enumerate(bundle.edges):
            edge = graph.edge(name)
            spans[edge.source].append(np.asarray(v[k][i]).T)
            spans[edge.target].append(np.asarray(u[k][i]).T)
    for c, names in enumerate(graph.classes.values()):
        x = packed.inputs[c]
        if x is not None:
            for a, owner in input_owners(packed, c).items():
                spans[owner].append(np.asarray(x[a]))
        for table in (packed.outputs[c], packed.silent[c]):
            if table is not None:
                for p, i in enumerate(np.asarray(table.node).tolist()):
                    spans[names[i]].append(np.asarray(table.target[p]))
    bases = {}
    for names in graph.classes.values():
        pairs = {name: _principal(graph, spans[name], name, modes) for name in names}
        rank = max(r for _, r in pairs.values())
        bases.update({name: basis[:, :rank] for name, (basis, _) in pairs.items()})
    return bases


def _principal(
    graph: Graph, span: list[np.ndarray], name: str, modes: int
) -> tuple[np.ndarray, int]:
    """A full orthonormal basis whose first vectors span the given rows, and their number."""
    width = graph.nodes[name]
    if name in graph.hidden:
        return np.eye(width), min(width, modes)
    # Every row counts alike, so that directions of small data are not taken for rounding.
    rows = np.concatenate(span)
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows[sizes[:, 0] > 0] / sizes[sizes[:, 0] > 0]
    _, values, right = np.linalg.svd(rows, full_matrices=True)
    return right.T, max(int(np.sum(values > _RANK * values.max(initial=0.0))), 1)
