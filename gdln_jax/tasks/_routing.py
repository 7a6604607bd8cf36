"""Routing: M input domains, M output domains, one shared hidden pathway (N Sec. 4, Fig. 4-6)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from gdln_jax._checks import check_choice, check_integer
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.arrays import real_array
from gdln_jax._data.gated import GatedData
from gdln_jax._data.names import check_row_labels
from gdln_jax._graph import Graph
from gdln_jax.tasks._hierarchy import hierarchy_features
from gdln_jax.tasks._task import Meta, Task, check_dense_size, packed_routes, random_key

_PATTERNS = ("cyclic", "random_biregular", "rows_only")
# Inputs and targets (n, d) and (n, k): arrays, or what NumPy makes arrays of (a DataFrame).
Base = tuple[object, object]


def routing(
    num_domains: int,
    trained_per_domain: int | None = None,
    *,
    base: Base | None = None,
    pattern: str | np.ndarray = "cyclic",
    key: PRNGKeyArray | None = None,
    width: int = 64,
    dedicated: int = 0,
    compact: bool = False,
) -> Task:
    """Map each input domain to output domains through a shared hidden pathway.

    Nodes `x0 .. x{M-1}`, `h1`, `h2`, `y0 .. y{M-1}`; one example activates one input and one
    output domain (a *route*), the hidden pathway is always on. Examples are the trained routes
    times the base examples, with equal weights; domains that are off have input and target 0.

    Args:
        num_domains: M.
        trained_per_domain: K, the number of outputs each input is trained with; default M.
        base: `(x, y)` of shapes (n, d) and (n, k); default the hierarchy of N Fig. 4.
        pattern: which routes are trained. `"cyclic"`: input i with outputs i .. i+K-1 (mod M).
            `"random_biregular"`: random, K per input and K per output. `"rows_only"`: K random
            outputs per input, whatever that gives per output; then Eq. 13-15 do not hold (E7). Or a
            0/1 matrix (inputs, outputs), from which K is read.
        key: for the random patterns.
        width: units of `h1` and `h2`.
        dedicated: units of the nodes `pI_J` and `qI_J` of a pathway xI -> pI_J -> qI_J -> yJ of its
            own for every trained route (I, J), beside the shared one (theory#shared-pathways); 0:
            there is none. An untrained route has the shared pathway only.
        compact: give `PackedData` that are never dense: memory grows with the number of trained
            routes, not with M times that. For M in the hundreds and above.

    `meta`: `pattern` (the 0/1 matrix; absent if compact), `routes` (route, 2), `num_domains`,
    `trained_per_domain` (K, or None where it varies), `biregular`, `base` (x, y), and for
    M <= 2000 `spectral_gap` (see `spectral_gap`).

    Raises:
        ValueError: for K > M, a missing key, a matrix that is not 0/1 or of the wrong shape, base
            arrays that do not fit each other, dense arrays beyond 2 GiB, or dedicated pathways in
            compact data.
    """
    num_domains = check_integer(num_domains, "num_domains", minimum=1)
    dedicated = check_integer(dedicated, "dedicated", minimum=0)
    if dedicated and compact:
        raise ValueError("compact data have no dedicated pathways; pass compact=False.")
    x, y = checked_base(base)
    routes = _routes(num_domains, trained_per_domain, pattern, key)
    graph = routing_graph(num_domains, x.shape[1], y.shape[1], width)
    if dedicated:
        graph = _with_dedicated(graph, routes, dedicated)
    if compact:
        data = packed_routes(graph, routes, x, y, lambda i, j: (f"x{i}->h1", "h1->h2", f"h2->y{j}"))
    else:
        check_dense_size(8 * len(routes) * len(x) * num_domains * (x.shape[1] + y.shape[1] + 2))
        data = routing_data(num_domains, routes, x, y)
    per_input = np.bincount(routes[:, 0], minlength=num_domains)
    per_output = np.bincount(routes[:, 1], minlength=num_domains)
    regular = bool(np.all(per_input == per_input[0]))
    meta: Meta = {
        "routes": routes,
        "num_domains": num_domains,
        "trained_per_domain": int(per_input[0]) if regular else None,
        "biregular": regular and bool(np.all(per_output == per_input[0])),
        "base": (x, y),
    }
    if not compact:
        meta["pattern"] = _matrix(num_domains, routes)
    if num_domains <= 2000:
        meta["spectral_gap"] = spectral_gap(_matrix(num_domains, routes))
    return Task(graph, data, "routing", meta)


def routing_graph(num_domains: int, inputs: int, outputs: int, width: int) -> Graph:
    """Return the architecture of N Fig. 4a for M domains of the given widths."""
    domains = range(num_domains)
    nodes = {
        **{f"x{i}": inputs for i in domains},
        "h1": width,
        "h2": width,
        **{f"y{j}": outputs for j in domains},
    }
    edges = [
        *((f"x{i}", "h1") for i in domains),
        ("h1", "h2"),
        *(("h2", f"y{j}") for j in domains),
    ]
    return Graph(nodes, edges)


def _with_dedicated(graph: Graph, routes: np.ndarray, width: int) -> Graph:
    """Add a pathway of three edges for each route (route, 2)."""
    nodes, edges = dict(graph.nodes), [(edge.source, edge.target) for edge in graph.edges]
    for i, j in routes:
        p, q = f"p{i}_{j}", f"q{i}_{j}"
        nodes |= {p: width, q: width}
        edges += [(f"x{i}", p), (p, q), (q, f"y{j}")]
    return Graph(nodes, edges)


def routing_data(num_domains: int, routes: np.ndarray, x: np.ndarray, y: np.ndarray) -> GatedData:
    """Return gated data of the given routes (route, 2): each shows all base examples once."""
    n, count = len(x), len(routes)
    inputs = {f"x{i}": np.zeros((count, *x.shape)) for i in range(num_domains)}
    targets = {f"y{j}": np.zeros((count, *y.shape)) for j in range(num_domains)}
    for r, (i, j) in enumerate(routes):
        inputs[f"x{i}"][r] = x
        targets[f"y{j}"][r] = y
    on_input = np.repeat(routes[:, 0], n)
    on_output = np.repeat(routes[:, 1], n)
    return GatedData(
        {k: v.reshape(count * n, -1) for k, v in inputs.items()},
        {k: v.reshape(count * n, -1) for k, v in targets.items()},
        {f"y{j}": (on_output == j).astype(float) for j in range(num_domains)},
        {f"x{i}->h1": (on_input == i).astype(float) for i in range(num_domains)},
    )


def route_matrix(
    num_domains: int,
    trained_per_domain: int | None = None,
    *,
    pattern: str | np.ndarray = "cyclic",
    key: PRNGKeyArray | None = None,
) -> Int[np.ndarray, "input output"]:
    """Return which routes are trained, 1 or 0: `routing(...).meta["pattern"]` without the task.

    Args:
        num_domains: M.
        trained_per_domain: K, as in `routing`.
        pattern: as in `routing`.
        key: for the random patterns.

    Raises:
        ValueError: as `routing`.
    """
    num_domains = check_integer(num_domains, "num_domains", minimum=1)
    return _matrix(num_domains, _routes(num_domains, trained_per_domain, pattern, key))


def spectral_gap(pattern: ArrayLike) -> float:
    """Return sigma_2 / sigma_1 of a 0/1 matrix of trained routes (E10-E12); 0 for all routes.

    Small values mean that training any route helps all others: zero-shot generalisation is good
    below about 0.7. 1 means that the trained routes fall into unconnected blocks.
    """
    values = np.linalg.svd(np.asarray(pattern, float), compute_uv=False)
    return float(values[1] / values[0]) if len(values) > 1 else 0.0


def checked_base(base: Base | None) -> tuple[np.ndarray, np.ndarray]:
    """Return base data (x, y) as float arrays, the hierarchy of N Fig. 4 for None."""
    if base is None:
        features = hierarchy_features()
        return np.eye(features.shape[1]), features.T
    if not isinstance(base, Sequence) or len(base) != 2:
        raise ValueError("base must be a pair (x, y) of arrays (n, d) and (n, k).")
    check_row_labels({"base x": base[0], "base y": base[1]})
    x, y = (np.array(real_array(a, f"base {n}"), float) for n, a in zip("xy", base, strict=True))
    for name, array in (("x", x), ("y", y)):
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"base {name} has shape {array.shape}; expected (examples, features).")
    if len(x) != len(y):
        raise ValueError(f"base x has {len(x)} examples but base y has {len(y)}.")
    return x, y


def _routes(
    num_domains: int,
    trained_per_domain: int | None,
    pattern: str | np.ndarray,
    key: PRNGKeyArray | None,
) -> Int[np.ndarray, "route 2"]:
    if not isinstance(pattern, str):
        if trained_per_domain is not None:
            raise ValueError(
                "trained_per_domain is read off a given pattern; pass only one of the two."
            )
        return _routes_of_matrix(np.asarray(pattern), num_domains)
    pattern = check_choice(pattern, _PATTERNS, "pattern")
    k = num_domains if trained_per_domain is None else trained_per_domain
    k = check_integer(k, "trained_per_domain", minimum=1)
    if k > num_domains:
        raise ValueError(
            f"trained_per_domain is {k}, but there are only {num_domains} output domains; K must "
            "lie between 1 and M."
        )
    rows = np.repeat(np.arange(num_domains), k)
    cyclic = np.stack([rows, (rows + np.tile(np.arange(k), num_domains)) % num_domains], axis=1)
    if pattern == "cyclic":
        return cyclic
    key = random_key(key, f"pattern {pattern!r} is")
    rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), jnp.uint32)))
    if pattern == "rows_only":
        columns = [np.sort(rng.permutation(num_domains)[:k]) for _ in range(num_domains)]
        return np.stack([rows, np.concatenate(columns)], axis=1)
    return _shuffled(cyclic, rng)


def _routes_of_matrix(matrix: np.ndarray, num_domains: int) -> np.ndarray:
    if matrix.shape != (num_domains, num_domains):
        raise ValueError(
            f"pattern has shape {matrix.shape}; expected (inputs, outputs) = "
            f"({num_domains}, {num_domains})."
        )
    if not np.all((matrix == 0) | (matrix == 1)):
        raise ValueError("pattern must hold only 0 (not trained) and 1 (trained).")
    if not matrix.any():
        raise ValueError("pattern trains no route at all.")
    return np.argwhere(matrix != 0)


def _shuffled(routes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Randomise a biregular pattern by switches (a,b),(c,d) -> (a,d),(c,b), which keep all degrees.

    Ten tries per route leave no visible trace of the cyclic start; the chain's limit is uniform.
    """
    outputs = routes[:, 1].tolist()
    inputs = routes[:, 0].tolist()
    present = set(zip(inputs, outputs, strict=True))
    for p, q in rng.integers(len(outputs), size=(10 * len(outputs), 2)).tolist():
        old = (inputs[p], outputs[p]), (inputs[q], outputs[q])
        new = (inputs[p], outputs[q]), (inputs[q], outputs[p])
        if new[0] not in present and new[1] not in present:
            present.difference_update(old)
            present.update(new)
            outputs[p], outputs[q] = outputs[q], outputs[p]
    return np.array(sorted(zip(inputs, outputs, strict=True)))


def _matrix(num_domains: int, routes: np.ndarray) -> np.ndarray:
    matrix = np.zeros((num_domains, num_domains), dtype=int)
    matrix[routes[:, 0], routes[:, 1]] = 1
    return matrix
