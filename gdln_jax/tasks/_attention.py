"""In-context linear regression by linear attention (Zhang et al., ICML 2025, arXiv 2501.16265)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.arrays import real_array
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph
from gdln_jax.exact import attention_plateaus
from gdln_jax.tasks._task import Meta, Task, random_key

# What of a covariance lies off the diagonal in the common basis, beside its norm: rounding.
_ROUNDING = 1e-10


def linear_attention(
    covariance: ArrayLike | Sequence,
    heads: int | None = None,
    *,
    context: int,
    tasks: ArrayLike | Sequence | None = None,
    noise: float = 0.0,
    rank: int = 1,
    merged: bool = False,
    assign: Sequence[int] | None = None,
    contexts: int | None = None,
    key: PRNGKeyArray | None = None,
) -> Task:
    r"""Regress in context by linear attention: predict w.x from N labelled examples of w.

    A context has examples $(x_n, y_n)$, $y_n = w^T x_n$ + noise, and a query x. With $\beta =
    \frac1N \sum_n y_n x_n$ head h adds $v_h (k_h^T \beta)(q_h^T x)$ to the prediction
    (theory#attention), a path of three layers from each input node $X_i = \beta_i x$: the query
    $q_h$, shared by all i, then $k_{hi}$, then $v_h$. Data are pseudo-examples with the moments of
    the population of contexts: Gaussian inputs, tasks and noise.

    Heads of different components do not interact; heads of one component are a race of depth 3.
    Heads of rank above 1 have a reduction, but none by separate modes: they are refused.

    Args:
        covariance: of the inputs, eigenvalues (d,) or a matrix (d, d).
        heads: their number; as many as components by default.
        context: N, labelled examples in a context.
        tasks: covariance of the tasks w, likewise, which must commute with that of the inputs;
            the identity by default.
        noise: variance of the noise of labels, that of the query's included.
        rank: of each head's key and query; 1.
        merged: one matrix per head in place of key and query: a two-layer network z -> c -> y with
            the entries of $\beta x^T$ as inputs.
        assign: the component (from 0) that each head is on in the frames of the reduction; h mod d
            by default.
        contexts: take so many sampled contexts instead of the moments.
        key: for those.

    Returns:
        A `Task` in the coordinates of the components: inputs `X0`, ..., parameters `q{h}` (1, d),
        `k{h}_{i}` and `v{h}` (1, 1). `meta`: `basis` (d, component), whose columns are the
        components (of matrices by falling S); `strengths` S and `variances` D of the components;
        `plateaus`, the losses after 0, 1, ... of them in the order of S, for a head on each;
        `assign`; `reduce`, keywords of `gdln.reduce`, in whose solution head h on component m has
        the strength `b["v{h}"][..., m]`; with `contexts=` also `contexts`: x (n, N, d), y (n, N),
        query, target.

    Raises:
        ValueError: covariances that are none or do not commute, `rank` above 1, components that
            are not there, `key` without `contexts`.
    """
    _check_rank(rank)
    count = check_integer(context, "context", minimum=1)
    basis, lam, omega = _components(covariance, tasks)
    number = len(lam) if heads is None else check_integer(heads, "heads", minimum=1)
    given = np.asarray(noise)
    if given.shape or given.dtype.kind not in "iuf" or not 0 <= given < np.inf:
        raise ValueError(f"noise is {noise!r}; it is a variance, one finite number of at least 0.")
    if key is not None and contexts is None:
        raise ValueError("key is given and contexts is not; pass both for sampled contexts.")
    s, power = lam**2 * omega, lam @ omega + noise
    gamma = (1 + 1 / count) * s + power * lam / count
    meta: Meta = {
        "basis": basis,
        "strengths": s,
        "variances": gamma * lam,
        "plateaus": np.asarray(attention_plateaus(lam, count, omega, noise)),
        "reduce": {},
    }
    d = len(lam)
    if merged:
        if assign is not None:
            raise ValueError("assign= is for heads with key and query apart, not for merged=True.")
        graph = Graph({"z": d * d, "c": number, "y": 1}, [("z", "c"), ("c", "y")])
    else:
        graph = _graph(d, number)
        meta["assign"] = _assigned(assign, number, d)
        meta["reduce"] = {"frames": _frames(meta["assign"], d)}
    if contexts is None:
        widths = {name: graph.nodes[name] for name in graph.inputs}
        xx, yx = np.diag(np.kron(gamma, lam)), np.diag(s).reshape(1, -1)
        data = GatedData.from_moments(widths, {"y": 1}, xx, yx, [[power]])
    else:
        n = check_integer(contexts, "contexts", minimum=1)
        key = random_key(key, "sampled contexts are")
        drawn = meta["contexts"] = _sampled(key, (n, count, d), lam, omega, noise)
        # One input beta_i x a component, or all of them side by side.
        beta = jnp.mean(drawn["y"][..., None] * drawn["x"], axis=1)
        z = (beta[:, :, None] * drawn["query"][:, None, :]).reshape(n, len(graph.inputs), -1)
        inputs = {name: z[:, i] for i, name in enumerate(graph.inputs)}
        data = GatedData(inputs, {"y": drawn["target"][:, None]})
    return Task(graph, data, "linear_attention", meta)


def _check_rank(rank: int) -> None:
    if check_integer(rank, "rank", minimum=1) > 1:
        raise ValueError(
            f"rank is {rank}; heads of rank 1 only. The modes of a head of higher rank meet in its "
            "one value v, so they are no separate modes. Its exact reduction is v' = sum_m k_m q_m "
            "r_m, k_m' = v q_m r_m, q_m' = v k_m r_m with r_m = S_m - D_m v k_m q_m and S, D of "
            "meta['strengths'], meta['variances']; v^2 - sum k_m^2 is conserved. Integrate it, or "
            "take several heads of rank 1."
        )


def _components(
    covariance: ArrayLike | Sequence, tasks: ArrayLike | Sequence | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Common eigenvectors of the two covariances, and the eigenvalues of each."""
    given = np.asarray(real_array(covariance, "covariance"), float)
    other = np.ones(len(np.atleast_1d(given))) if tasks is None else tasks
    other = np.asarray(real_array(other, "tasks"), float)
    if given.ndim == other.ndim == 1 and len(given) == len(other):
        basis, lam, omega = np.eye(len(given)), given, other
    else:
        inputs, drawn = _covariance(given, "covariance"), _covariance(other, "tasks")
        if len(inputs) != len(drawn):
            raise ValueError(
                f"covariance is of {len(inputs)} inputs and tasks of {len(drawn)}; both act on x."
            )
        size = np.linalg.norm(inputs) * np.linalg.norm(drawn)
        apart = np.linalg.norm(inputs @ drawn - drawn @ inputs)
        if apart > _ROUNDING * size:
            raise ValueError(
                f"covariance and tasks do not commute (|AB - BA| = {apart / size:.1e} |A| |B|): "
                "their components would mix, and no head stays on one. Give matrices with common "
                "eigenvectors, or integrate the full network by your own data."
            )
        # Numbers without a common ratio: eigenvectors of both.
        mixed = inputs / np.linalg.norm(inputs) + 0.618 * drawn / np.linalg.norm(drawn)
        basis = np.linalg.eigh(mixed)[1]
        lam, omega = (np.einsum("im,ij,jm->m", basis, x, basis) for x in (inputs, drawn))
        order = np.argsort(-(lam**2) * omega, kind="stable")
        basis, lam, omega = basis[:, order], lam[order], omega[order]
    if not lam.size or lam.min() <= 0 or omega.min() < 0:
        raise ValueError(
            "covariance must have eigenvalues above 0 and tasks of at least 0; got "
            f"{lam.tolist()} and {omega.tolist()}."
        )
    return basis, lam, omega


def _covariance(array: np.ndarray, name: str) -> np.ndarray:
    """A symmetric matrix, from itself or from its eigenvalues."""
    matrix = np.diag(array) if array.ndim == 1 else array
    expected = "give eigenvalues (d,), or a symmetric matrix (d, d)."
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} has shape {array.shape}; {expected}")
    uneven = np.abs(matrix - matrix.T).max(initial=0.0)
    if uneven > _ROUNDING * np.abs(matrix).max(initial=0.0):
        raise ValueError(f"{name} differs from its transpose by {uneven:.1e}; {expected}")
    return (matrix + matrix.T) / 2


def _graph(d: int, heads: int) -> Graph:
    nodes, edges, shared = {f"X{i}": d for i in range(d)}, [], {}
    for h in range(heads):
        nodes |= {f"a{h}_{i}": 1 for i in range(d)} | {f"c{h}": 1}
        shared[f"q{h}"] = [f"X{i}->a{h}_{i}" for i in range(d)]
        edges += [(f"X{i}", f"a{h}_{i}") for i in range(d)]
        edges += [(f"a{h}_{i}", f"c{h}", f"k{h}_{i}") for i in range(d)]
        edges.append((f"c{h}", "y", f"v{h}"))
    return Graph({**nodes, "y": 1}, edges, shared=shared)


def _assigned(assign: Sequence[int] | None, heads: int, d: int) -> tuple[int, ...]:
    if assign is None:
        return tuple(h % d for h in range(heads))
    given = list(assign) if np.ndim(assign) == 1 else assign
    if not isinstance(given, list) or len(given) != heads:
        raise ValueError(
            f"assign is {given}; give each of the {heads} heads a component, 0 to {d - 1}, or "
            "change heads=."
        )
    taken = tuple(check_integer(m, "assign", minimum=0) for m in given)
    if max(taken) >= d:
        raise ValueError(
            f"assign is {given}; give each of the {heads} heads a component, 0 to {d - 1}."
        )
    return taken


def _frames(assign: Sequence[int], d: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Frames (U, V) by parameter: each head carries the mode of its component alone."""
    frames = {}
    for h, m in enumerate(assign):
        one = np.eye(d)[m : m + 1]
        frames[f"q{h}"] = one, np.diag(one[0])
        frames |= {f"k{h}_{i}": (one * (i == m),) * 2 for i in range(d)}
        frames[f"v{h}"] = one, one
    return frames


def _sampled(
    key: PRNGKeyArray, shape: tuple[int, int, int], lam: np.ndarray, omega: np.ndarray, noise: float
) -> dict[str, Array]:
    """Contexts (n, N, d) with a query each, in the coordinates of the components."""
    n, count, d = shape
    of_task, of_x, of_noise = jax.random.split(key, 3)
    w = jax.random.normal(of_task, (n, d)) * np.sqrt(omega)
    x = jax.random.normal(of_x, (n, count + 1, d)) * np.sqrt(lam)
    y = jnp.einsum("nd,ncd->nc", w, x)
    y += np.sqrt(noise) * jax.random.normal(of_noise, y.shape)
    return {"x": x[:, :-1], "y": y[:, :-1], "query": x[:, -1], "target": y[:, -1]}
