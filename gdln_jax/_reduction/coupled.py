"""The coupled form: frames that span what the dynamics can reach, with full matrices inside.

Exact by construction for starts inside: inputs act through the span of the data, outputs through
the span of the targets and of the frames, a hidden node through the directions of its frame, one
for each mode that passes there.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._data.packed import OutputTable, PackedData
from gdln_jax._graph import Graph
from gdln_jax._network.edges import Stacks
from gdln_jax._network.gated import propagate
from gdln_jax._reduction.statistics import input_owners
from gdln_jax._reduction.strengths import MatrixStrengths, ModeStrengths, embedded, in_frames

# Directions in which data vary less than this, relative to the most varying one, are rounding; so
# are rows below this beside the largest of their node.
_RANK, _NOISE = 1e-12, 1e-14


class TiedData(eqx.Module):
    """Data of a network with ties, and its frozen arrays."""

    packed: PackedData
    fixed: Stacks | None

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.packed.graph


class Coupled(eqx.Module):
    """A network in reduced coordinates whose dynamics are those of the full one on the span.

    - `data`: the packed data seen through orthonormal bases of the spans; with ties as they are.
    - `u`, `v`: per bundle frames (edge, width, column) of the spans: those of the modes, then what
      the span has beyond them, padded with zero columns.
    - `left`, `right`: the same frames in the bases, (edge, reduced width, column). Weights in
      these coordinates are one stack (edge, reduced |target|, reduced |source|) per bundle.
    """

    data: PackedData | TiedData
    u: tuple[Array, ...]
    v: tuple[Array, ...]
    left: tuple[Array, ...]
    right: tuple[Array, ...]

    @property
    def size(self) -> int:
        """Rows and columns of the matrix of an edge: modes, and what the spans have beyond."""
        return self.u[0].shape[-1]

    def start(self, b: ModeStrengths | MatrixStrengths) -> tuple[Array, ...]:
        """Reduced weights of strengths or of matrices."""
        return embedded(self.left, b, self.right)

    def weights(self, b: MatrixStrengths) -> tuple[Array, ...]:
        """Weights W_e = U_e M_e V_e^T of the full network."""
        return embedded(self.u, b, self.v)

    def read(self, weights: tuple[Array, ...]) -> MatrixStrengths:
        """Matrices U_e^T W_e V_e of (a trajectory of) reduced weights."""
        return in_frames(MatrixStrengths, self.data.graph, self.left, weights, self.right)


def coupled_loss(weights: tuple[Array, ...], data: PackedData | TiedData) -> Float[Array, ""]:
    """The loss of the full network at reduced weights."""
    if isinstance(data, TiedData):
        weights = (*weights, *(data.fixed or ()))
        data = data.packed
    loss = jnp.zeros(())
    for table, h in zip(data.outputs, propagate(data, weights), strict=True):
        if table is not None:
            assert h is not None
            error = jnp.square(table.target - table.predictions(h))
            loss += 0.5 * jnp.sum(table.weight[..., None] * error)
    for table in data.silent:
        if table is not None:
            loss += 0.5 * jnp.sum(table.weight[..., None] * jnp.square(table.target))
    return loss


def couple(
    packed: PackedData,
    u: tuple[Array, ...],
    v: tuple[Array, ...],
    every: PackedData | None = None,
) -> Coupled:
    """Rotate the data of a network into the spans that its dynamics can reach.

    With `every` the spans are those of these data, of which `packed` are one part.
    """
    graph = packed.graph
    bases, ranks = _bases(packed if every is None else every, u, v)
    inputs = []
    for c, names in enumerate(graph.classes.values()):
        x = packed.inputs[c]
        if x is not None:
            owner = input_owners(packed, c)
            basis = np.stack([bases[owner.get(i, names[0])] for i in range(len(x))])
            x = jnp.einsum("ibw,iwq->ibq", x, basis)
        inputs.append(x)

    def rotated(table: OutputTable, names: tuple[str, ...]) -> Array:
        basis = np.stack([bases[names[i]] for i in np.asarray(table.node).tolist()])
        return jnp.einsum("pbw,pwq->pbq", table.target, basis)

    data = packed.with_arrays(inputs, rotated)
    ends = [[graph.edge(name) for name in bundle.edges] for bundle in graph.bundles]
    targets = [[edge.target for edge in edges] for edges in ends]
    sources = [[edge.source for edge in edges] for edges in ends]
    own = {name: basis[:, : ranks[name]] for name, basis in bases.items()}
    beyond = [
        [[_beyond(own[name], frame) for name, frame in zip(*pair, strict=True)] for pair in pairs]
        for pairs in (zip(targets, u, strict=True), zip(sources, v, strict=True))
    ]
    size = u[0].shape[-1] + max(x.shape[1] for side in beyond for part in side for x in part)
    full = [
        tuple(
            np.stack([_side_by_side(frame, x, size) for frame, x in zip(*pair, strict=True)])
            for pair in zip(frames, rest, strict=True)
        )
        for frames, rest in zip((u, v), beyond, strict=True)
    ]
    reduced = [
        tuple(
            jnp.einsum("ewq,ewm->eqm", np.stack([bases[name] for name in names]), frames)
            for names, frames in zip(nodes, stacks, strict=True)
        )
        for nodes, stacks in zip((targets, sources), full, strict=True)
    ]
    u, v = (tuple(jnp.asarray(frames) for frames in stacks) for stacks in full)
    return Coupled(data, u, v, *reduced)


def couple_tied(
    packed: PackedData, u: tuple[Array, ...], v: tuple[Array, ...], fixed: Stacks | None
) -> Coupled:
    """The form for tied edges: frames of every array are completed to all of its space."""

    def beyond(stack: Array) -> list[np.ndarray]:
        return [_beyond(np.eye(frame.shape[0]), frame) for frame in stack]

    rest = [[beyond(stack) for stack in stacks] for stacks in (u, v)]
    size = u[0].shape[-1] + max(x.shape[1] for side in rest for part in side for x in part)
    full = [
        tuple(
            jnp.asarray(np.stack([_side_by_side(f, x, size) for f, x in zip(*pair, strict=True)]))
            for pair in zip(stacks, more, strict=True)
        )
        for stacks, more in zip((u, v), rest, strict=True)
    ]
    return Coupled(TiedData(packed, fixed), full[0], full[1], full[0], full[1])


def _beyond(basis: np.ndarray, frame: Array) -> np.ndarray:
    """Orthonormal directions (width, _) of the span of `basis` outside the columns of `frame`."""
    rest = basis - np.asarray(frame) @ (np.asarray(frame).T @ basis)
    left, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    return left[:, sizes > 0.5]  # they are 0 or 1


def _side_by_side(frame: Array, more: np.ndarray, size: int) -> np.ndarray:
    wide = np.zeros((len(frame), size))
    wide[:, : frame.shape[1]] = frame
    wide[:, frame.shape[1] : frame.shape[1] + more.shape[1]] = more
    return wide


def _bases(
    packed: PackedData, u: tuple[Array, ...], v: tuple[Array, ...]
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Per node an orthonormal basis (width, reduced width), and the rank of the node's own span.

    The reduced width is one per class, so basis vectors beyond the rank are never reached.
    """
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
    bases, ranks = {}, {}
    for names in graph.classes.values():
        found = {name: _principal(spans[name]) for name in names}
        ranks.update({name: rank for name, (_, rank) in found.items()})
        width = max(ranks[name] for name in names)
        bases.update({name: basis[:, :width] for name, (basis, _) in found.items()})
    return bases, ranks


def _principal(span: list[np.ndarray]) -> tuple[np.ndarray, int]:
    """A full orthonormal basis whose first vectors span the given rows, and their number."""
    rows = np.concatenate(span)
    # Every row counts alike, so that directions of small data are not taken for rounding, unless
    # the row is rounding itself.
    sizes = np.linalg.norm(rows, axis=1)
    there = sizes > _NOISE * sizes.max(initial=0.0)
    rows = rows[there] / sizes[there, None]
    _, values, right = np.linalg.svd(rows, full_matrices=True)
    return right.T, max(int(np.sum(values > _RANK * values.max(initial=0.0))), 1)
