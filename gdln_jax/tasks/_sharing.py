"""The routing task solved by pathways that share more or less (N Sec. 4.2, Fig. 5a-b)."""

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from gdln_jax._checks import check_integer
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph
from gdln_jax.tasks._routing import Base, checked_base
from gdln_jax.tasks._task import Task, check_dense_size, packed_routes


def pathway_sharing(
    num_domains: int,
    num_blocks_paths: int | Sequence[int],
    *,
    base: Base | None = None,
    width: int = 64,
    compact: bool = False,
) -> Task:
    r"""Learn all M^2 routes, with P paths through each hidden pathway (a *block*) (N Fig. 5a).

    sqrt(P) input domains and sqrt(P) output domains share a block, and each block has first,
    hidden and third layers of its own: P = 1 gives every route a dedicated pathway, P = M^2 is
    the fully shared one of `routing`. Nodes `x0 .. x{M-1}`, `h1_{P}_{a}_{b}`, `h2_{P}_{a}_{b}`
    for input group a and output group b, `y0 .. y{M-1}`. Examples are all routes times the base
    examples, as in `routing(M)`: an example turns on one input domain, one block and one output
    domain.

    Args:
        num_domains: M.
        num_blocks_paths: P, the number of paths that flow through each block. Several numbers put
            networks with these P side by side into one network: their blocks are on together, add
            up at the outputs, and race.
        base: `(x, y)` of shapes (n, d) and (n, k); default the hierarchy of N Fig. 4.
        width: units of each hidden node.
        compact: give `PackedData` that are never dense, for many domains.

    `meta`: `num_domains`, `num_blocks_paths` (tuple), `routes` (route, 2), `base`,
    `initial_loss`, and, for each P, `rates`: the factors (sqrt(P)/M^2, P/M^2, sqrt(P)/M^2) of
    the three layers in

        tau dB1/dt = sqrt(P)/M^2 B2 B1 (s - B2 B1^2 d)                      (N Eq. 16)
        tau dB2/dt = P/M^2 B1^2 (s - B2 B1^2 d)                             (N Eq. 17)

    with s and d of the base data (S(p) = s/M^2, D(p) = d/M^2 per path, all others 0), and
    `balanced_ratio` = P^(1/4), the ratio B2/B1 to which the layers tend (N Eq. 56; the root in
    Eq. 55 is over P only, E5). The equations hold for one P alone; side by side the blocks see
    one another's outputs.

    Raises:
        ValueError: unless sqrt(P) is an integer that divides M (theory#sharing), for a P given
            twice, base arrays that do not fit, or dense arrays beyond 2 GiB.
    """
    m = check_integer(num_domains, "num_domains", minimum=1)
    shares = (
        tuple(num_blocks_paths) if isinstance(num_blocks_paths, Iterable) else (num_blocks_paths,)
    )
    sides = {p: _side(p, m) for p in shares}
    if not shares or len(sides) < len(shares):
        raise ValueError(
            f"num_blocks_paths is {num_blocks_paths!r}; give at least one P, each only once."
        )
    x, y = checked_base(base)
    width = check_integer(width, "width", minimum=1)
    gates = m + sum((m // side) ** 2 for side in sides.values())
    size = 8 * m**2 * len(x) * (m * (x.shape[1] + y.shape[1]) + gates)
    if not compact:
        check_dense_size(size)
    graph = _graph(m, sides, x.shape[1], y.shape[1], width)
    routes = np.array([(i, j) for i in range(m) for j in range(m)])
    if compact:
        data = packed_routes(graph, routes, x, y, functools.partial(_edges, sides))
    else:
        data = _dense(routes, sides, x, y)
    meta = {
        "num_domains": m,
        "num_blocks_paths": shares,
        "routes": routes,
        "base": (x, y),
        "initial_loss": float(0.5 * np.mean(np.sum(y**2, axis=1))),
        "rates": {p: (side / m**2, p / m**2, side / m**2) for p, side in sides.items()},
        "balanced_ratio": {p: float(p) ** 0.25 for p in shares},
    }
    return Task(graph, data, "pathway_sharing", meta)


def _side(paths: int, m: int) -> int:
    """Return sqrt(P), the number of input (and of output) domains that share a block."""
    paths = check_integer(paths, "num_blocks_paths", minimum=1)
    side = math.isqrt(paths)
    if side**2 != paths or m % side:
        fitting = [k**2 for k in range(1, m + 1) if m % k == 0]
        raise ValueError(
            f"num_blocks_paths is {paths}; sqrt(P) must be an integer that divides the number of "
            f"domains, {m}: choose one of {fitting}."
        )
    return side


def _graph(m: int, sides: dict[int, int], inputs: int, outputs: int, width: int) -> Graph:
    blocks = [
        (f"{p}_{a}_{b}", range(a * side, (a + 1) * side), range(b * side, (b + 1) * side))
        for p, side in sides.items()
        for a in range(m // side)
        for b in range(m // side)
    ]
    nodes = {
        **{f"x{i}": inputs for i in range(m)},
        **{f"h{layer}_{name}": width for layer in (1, 2) for name, _, _ in blocks},
        **{f"y{j}": outputs for j in range(m)},
    }
    edges = [
        *((f"x{i}", f"h1_{name}") for name, sources, _ in blocks for i in sources),
        *((f"h1_{name}", f"h2_{name}") for name, _, _ in blocks),
        *((f"h2_{name}", f"y{j}") for name, _, targets in blocks for j in targets),
    ]
    return Graph(nodes, edges)


def _dense(routes: np.ndarray, sides: dict[int, int], x: np.ndarray, y: np.ndarray) -> GatedData:
    m, n = int(routes.max()) + 1, len(x)
    i, j = np.repeat(routes, n, axis=0).T
    many_x, many_y = np.tile(x, (len(routes), 1)), np.tile(y, (len(routes), 1))
    gates = {f"y{k}": (j == k).astype(float) for k in range(m)}
    for p, side in sides.items():
        for a in range(m // side):
            for b in range(m // side):
                on = (i // side == a) & (j // side == b)
                gates[f"h1_{p}_{a}_{b}"] = on.astype(float)
    return GatedData(
        {f"x{k}": many_x * (i == k)[:, None] for k in range(m)},
        {f"y{k}": many_y * (j == k)[:, None] for k in range(m)},
        gates,
    )


def _edges(sides: dict[int, int], i: int, j: int) -> list[str]:
    """Return the edges of route (i, j), through one block for each P."""
    blocks = [f"{p}_{i // side}_{j // side}" for p, side in sides.items()]
    return [
        edge
        for name in blocks
        for edge in (f"x{i}->h1_{name}", f"h1_{name}->h2_{name}", f"h2_{name}->y{j}")
    ]
