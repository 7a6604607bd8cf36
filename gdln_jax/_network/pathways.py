"""Products of what edges hold along paths, and the strengths of all pathways over time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._checks import check_choice, is_concrete, listed, suggest
from gdln_jax._data.arrays import ArrayMapping
from gdln_jax._graph import Graph
from gdln_jax._network.edges import EdgeArrays, EdgeWeights
from gdln_jax._network.recorded import Variable, data_set

if TYPE_CHECKING:
    import xarray as xr

# More paths than this are not listed.
MOST_PATHS = 10_000


class Pathways(ArrayMapping[Array], eqx.Module):
    """Strengths of the pathways of a run: a mapping name -> (..., time, mode).

    A pathway is a path of edges, or a route from an input to an output node. Names are those of
    the nodes, `"x->h->y"`; a path is also looked up by its edges, `("x->h", "h->y")`, a route by
    its ends. Between aligned layers a strength is the product of those of the edges, with its sign;
    of a route it is the sum over its paths.

    - `ts`: as in the run; `strengths`: (..., path, time, mode).
    - `how`: "solved", of reduced dynamics; "read", networks in the frames of `embed`; "projected",
      networks in hidden frames that were looked for at each time (`Reduction.project`).
    - `outside`: (..., time) the share of a network that strengths do not describe, ||W_e - U_e
      diag(b_e) V_e^T|| / ||W_e||, largest over edges; `None` of reduced dynamics.
    - `paths`: edges of each path, or ends of each route. `modes`: names of the modes.
    """

    ts: Float[Array, "*batch time"] | Int[Array, "*batch time"]
    strengths: Float[Array, "*batch path time mode"]
    outside: Float[Array, "*batch time"] | None
    names: tuple[str, ...] = eqx.field(static=True)
    paths: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    how: str = eqx.field(static=True)

    @property
    def modes(self) -> tuple[str, ...]:
        """Names of the modes, in the order of the reduction: "mode 1", ..."""
        return tuple(f"mode {k + 1}" for k in range(self.strengths.shape[-1]))

    def __getitem__(self, name: str | Sequence[str]) -> Float[Array, "*batch time mode"]:
        """Return the strengths of one pathway.

        Raises:
            KeyError: that names the known ones.
        """
        known = self.names if isinstance(name, str) else self.paths
        key = name if isinstance(name, str) else tuple(name)
        if key not in known:
            raise KeyError(
                f"no pathway is called {name!r}{suggest(str(name), self.names)}; pathways: "
                f"{listed(self.names)}"
            )
        return self.strengths[..., known.index(key), :, :]

    def __iter__(self) -> Iterator[str]:
        """Names of the pathways."""
        return iter(self.names)

    def __len__(self) -> int:
        """Number of pathways."""
        return len(self.names)

    def to_xarray(self) -> "xr.Dataset":
        """Return an xarray `Dataset` with the dimensions path, time and mode, as `Solution` does.

        Raises:
            ValueError: values that cannot be seen, under `jit` or `vmap`.
        """
        variables: dict[str, Variable] = {"strengths": (("path", "time", "mode"), self.strengths)}
        if self.outside is not None:
            words = "share of a network outside of the reduction, largest over edges"
            variables["outside"] = (("time",), self.outside, {"long_name": words})
        labels = {"path": list(self.names), "mode": list(self.modes)}
        found = data_set(self, self.ts, self.strengths.ndim - 3, variables, labels)
        return found.assign_attrs(how=self.how)

    def __repr__(self) -> str:
        *batch, paths, times, modes = self.strengths.shape
        shape = f"{paths} pathways x {times} times x {modes} modes"
        parts = [shape, *([f"batch {tuple(batch)}"] if batch else []), self.how]
        if self.outside is not None and is_concrete(self.outside):
            parts.append(f"at most {float(np.nanmax(self.outside)):.1e} of an edge outside")
        return f"Pathways({', '.join(parts)})"


def check_learning(graph: Graph, edges: Iterable[str]) -> None:
    """Raise `ValueError` where an edge is frozen, which has no strength."""
    frozen = [name for name in edges if graph.parameter_of[name][0] in graph.frozen]
    if frozen:
        raise ValueError(
            f"no strength of a path that passes frozen edges ({listed(frozen)}): their matrices "
            "are part of the data here. Read b[edge] of the edges that learn, and the matrix of "
            f"a frozen one as reduction.embed(b).weights[{frozen[0]!r}]."
        )


def product(arrays: EdgeArrays, path: Sequence[str]) -> Array:
    """Return the product of what the edges of a path hold, see `Solution.product`."""
    multiply = jnp.multiply if arrays.core == 1 else jnp.matmul
    names = arrays.graph.walk(path)
    if not isinstance(arrays, EdgeWeights):
        check_learning(arrays.graph, names)
    first, *rest = names
    total = arrays[first]
    for name in rest:
        total = multiply(arrays[name], total)
    return total


def pathways(
    arrays: EdgeArrays,
    ts: Array,
    *,
    by: str,
    how: str,
    modes: int | None = None,
    outside: Array | None = None,
) -> Pathways:
    """Return the strengths of all paths, or of all routes, of what edges hold over time.

    Of matrices the diagonals of the products, the first `modes` entries. Differentiable.

    Args:
        arrays: strengths (..., time, mode) or matrices of every edge.
        by: `"path"`, or `"route"`: one entry for each pair of an input and an output node that a
            path joins. Routes are summed without listing their paths.

    Raises:
        ValueError: another `by`; more than 10,000 paths; frozen edges.
    """
    check_choice(by, ("path", "route"), "by")
    graph = arrays.graph
    check_learning(graph, graph.edge_index)
    if by == "route":
        keys, values = _routes(arrays)
    elif graph.num_paths > MOST_PATHS:
        raise ValueError(
            f"the graph has {graph.num_paths} paths; pass by='route' for the sum over the paths of "
            "each route, or take single paths, run.product(path)."
        )
    else:
        keys, values = tuple(graph.paths()), _paths(arrays)
    if arrays.core == 2:
        values = jnp.diagonal(values, axis1=-2, axis2=-1)
    names = tuple("->".join(key) for key in keys) if by == "route" else _names(graph, keys)
    strengths = jnp.moveaxis(values[..., :modes], 0, -3)
    return Pathways(ts, strengths, outside, names, keys, how)


def _names(graph: Graph, paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Nodes that each path passes; its edges where parallel ones make that ambiguous."""
    walks = [
        "->".join([graph.edge(path[0]).source, *(graph.edge(name).target for name in path)])
        for path in paths
    ]
    count = Counter(walks)
    pairs = zip(walks, paths, strict=True)
    return tuple(walk if count[walk] == 1 else ", ".join(path) for walk, path in pairs)


def _paths(arrays: EdgeArrays) -> Array:
    """The product along every path, (path, ..., mode) or matrices."""
    if arrays.core == 2:
        return jnp.stack([product(arrays, path) for path in arrays.graph.paths()])
    graph, flat = arrays.graph, jnp.moveaxis(arrays.flat(), -2, 0)
    order = {name: k for k, name in enumerate(graph.moving)}
    padding = len(order)  # shorter paths are filled up with factors of 1
    longest = max(graph.level.values())
    index = np.full((graph.num_paths, longest), padding)
    for row, path in enumerate(graph.paths()):
        index[row, : len(path)] = [order[graph.parameter_of[name][0]] for name in path]
    flat = jnp.concatenate([flat, jnp.ones_like(flat[:1])])
    total = flat[index[:, 0]]
    for column in index.T[1:]:
        total = total * flat[column]
    return total


def _routes(arrays: EdgeArrays) -> tuple[tuple[tuple[str, str], ...], Array]:
    """Ends of every route, and the sum of the products along its paths."""
    graph = arrays.graph
    multiply = jnp.multiply if arrays.core == 1 else jnp.matmul
    keys, values = [], []
    for source in graph.inputs:
        total: dict[str, Array] = {}
        for node in graph.order:
            for edge in graph.incoming[node]:
                if edge.source == source:
                    arrived = arrays[edge.name]
                elif edge.source in total:
                    arrived = multiply(arrays[edge.name], total[edge.source])
                else:
                    continue
                total[node] = total[node] + arrived if node in total else arrived
        for target in graph.outputs:
            if target in total:
                keys.append((source, target))
                values.append(total[target])
    return tuple(keys), jnp.stack(values)
