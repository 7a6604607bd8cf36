"""Classes that can be recognised from several views, the data of R's claims (theory#races)."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import check_choice, check_integer
from gdln_jax._checks.types import PRNGKeyArray, Rows
from gdln_jax._data.arrays import real_array
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph
from gdln_jax.tasks._task import Meta, Task, random_key

# All 2^M combinations of views are listed up to this many examples; beyond it, draw samples.
_MOST_EXAMPLES = 100_000


def multiview(
    num_classes: int,
    num_views: int,
    *,
    correlation: float | int = 0.0,
    presence: Rows = 1.0,
    strengths: Rows = 1.0,
    gates: str = "view",
    soft_labels: object = None,
    num_samples: int | None = None,
    width: int = 16,
    hidden_layers: int = 1,
    key: PRNGKeyArray | None = None,
) -> Task:
    r"""Recognise K classes, each of which shows up to M views at a time.

    View m of class k has the feature vector phi_km = strength_m v_km with unit vectors v_km in
    R^(K M): orthogonal between classes, with inner product `correlation` between the views of a
    class. An example of class k shows x = sum of phi_km over the views present, each present
    with its probability, independently. Its target is class k.

    Args:
        num_classes: K.
        num_views: M.
        correlation: v_kj . v_km for j != m, between -1/(M-1) and 1.
        presence: probability of a view, one for all or one per view.
        strengths: norm of the views, one for all or one per view.
        gates: `"view"`: M pathways `x{m}`, `h{m}`, `y`; pathway m is on where view m is present and
            reads x along that view's directions, (v_1m .. v_Km) . x: with correlation the other
            views leak in. `"class"`: K pathways `x`, `h{k}`, `y`, each on for one class, which read
            all of x. `"none"`: the ungated chain `x`, `h1`, `y`, for ReLU networks, which find
            gates of their own.
        soft_labels: None for one-hot targets; a number e for 1 - e + e/K on the class and e/K on
            the others (label smoothing); or a matrix (K, K) whose row k is the target distribution
            of class k, as a teacher in distillation gives it. Or `"views"`, a teacher that has
            learned every view and whose labels depend on the example: with f the fraction of views
            present, f + (1 - f)/K on the class and (1 - f)/K on the others.
        num_samples: draw that many examples. By default all combinations of classes and views are
            listed with their exact probabilities, at most K 2^M examples.
        width: units of each hidden node.
        hidden_layers: hidden nodes in a row on each pathway, `h{m}`, `h{m}.2`, ... (of the ungated
            chain: `h1`, `h2`, ...).
        key: for the samples.

    `meta`: `classes` (n,), `present` (n, M), `features` phi (K, M, K M), `labels` (K, K),
    `initial_loss`, and for gates per view (of the exact distribution) `d` (M, M) and, but for
    `soft_labels="views"`, `s` (M,):

        s_m = <g_m x_km> / K,   d_jm = <g_j g_m x_kj x_km> / K,

    with x_km what pathway m reads of class k, such that for one-hot targets each of the K modes
    of pathway m follows da_m/dt = 2 a_m (s_m - sum_j d_jm a_j), balanced, with one hidden layer
    (theory#races). With soft labels s is multiplied by the singular values of `labels`, one per
    mode. Views that always occur together (presence 1) give d_jm = K s_j s_m: the case in which
    this is R's equation. Orthogonal views of presence p: s_m = strength_m p_m / K, d_jm =
    strength_j strength_m p_j p_m / K for j != m, d_mm = strength_m^2 p_m / K.

    Raises:
        ValueError: for a correlation, probability, strength or label matrix out of range, samples
            without a key, or more than 100,000 combinations without `num_samples`.
    """
    k = check_integer(num_classes, "num_classes", minimum=1)
    m = check_integer(num_views, "num_views", minimum=1)
    gates = check_choice(gates, ("view", "class", "none"), "gates")
    width = check_integer(width, "width", minimum=1)
    layers = check_integer(hidden_layers, "hidden_layers", minimum=1)
    p = _per_view(presence, m, "presence", 1.0)
    norms = _per_view(strengths, m, "strengths", np.inf)
    units = _unit_views(correlation, m)
    by_views = isinstance(soft_labels, str)
    if by_views:
        check_choice(soft_labels, ("views",), "soft_labels")
    labels = _labels(None if by_views else soft_labels, k)
    if num_samples is None:
        classes, present, weights = _all_combinations(k, p)
    else:
        count = check_integer(num_samples, "num_samples", minimum=1)
        classes, present = _drawn(count, k, p, random_key(key, "samples are"))
        weights = None
    # What is shown of the class (example, M), in the coordinates of its own block of R^(K M).
    shown = (present * norms) @ units
    x = np.zeros((len(classes), k, m))
    x[np.arange(len(classes)), classes] = shown
    graph, inputs, node_gates = _pathways(gates, x, classes, present, units, width, layers)
    y = labels[classes]
    if by_views:
        known = present.mean(axis=1, keepdims=True)
        y = known * y + (1 - known) / k
    features = np.einsum("kl,mi->kmli", np.eye(k), norms[:, None] * units).reshape(k, m, k * m)
    meta: Meta = {
        "gates": gates,
        "classes": classes,
        "present": present,
        "features": features,
        "labels": labels,
        "initial_loss": float(np.average(0.5 * np.sum(y**2, axis=1), weights=weights)),
    }
    if gates == "view":
        meta |= _view_statistics(p, norms, units, k)
        if by_views:
            del meta["s"]
    return Task(graph, GatedData(inputs, {"y": y}, node_gates, weights=weights), "multiview", meta)


def _per_view(value: object, m: int, name: str, most: float) -> np.ndarray:
    array = np.asarray(real_array(value, name), float)
    if array.shape not in ((), (m,)):
        raise ValueError(
            f"{name} has shape {array.shape}; give one number, or one for each of the {m} views."
        )
    if not np.all((array > 0) & (array <= most) & np.isfinite(array)):
        raise ValueError(f"{name} is {value!r}; it must lie above 0 and be at most {most:g}.")
    return np.broadcast_to(array, (m,)).copy()


def _unit_views(correlation: float | int, m: int) -> np.ndarray:
    """Return unit vectors (view, M) with these inner products: the symmetric root of their Gram."""
    least = -1 / (m - 1) if m > 1 else -1.0
    if not least - 1e-12 <= correlation <= 1:
        raise ValueError(
            f"correlation is {correlation!r}; {m} vectors can have a common correlation between "
            f"{least:.4g} and 1."
        )
    if correlation == 0:
        return np.eye(m)
    gram = np.full((m, m), float(correlation)) + (1 - correlation) * np.eye(m)
    values, vectors = np.linalg.eigh(gram)
    return vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T


def _labels(soft_labels: object, k: int) -> np.ndarray:
    if soft_labels is None:
        return np.eye(k)
    labels = np.array(real_array(soft_labels, "soft_labels"), float)
    if labels.shape == ():
        if not 0 <= labels <= 1:
            raise ValueError(f"soft_labels is {soft_labels!r}; the share must lie in [0, 1].")
        return (1 - labels) * np.eye(k) + labels / k
    if labels.shape != (k, k):
        raise ValueError(
            f"soft_labels has shape {labels.shape}; give a number or a matrix ({k}, {k}), row k "
            "for class k."
        )
    # 1e-6: rows that were computed in float32, say by a teacher's softmax.
    if np.any(labels < 0) or np.any(np.abs(labels.sum(axis=1) - 1) > 1e-6):
        raise ValueError("each row of soft_labels must be a distribution: >= 0, with sum 1.")
    return labels


def _all_combinations(k: int, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    free = np.flatnonzero(p < 1)
    if k * 2 ** min(len(free), 60) > _MOST_EXAMPLES:
        raise ValueError(
            f"{k} classes with {len(free)} views that come and go have {k} * 2^{len(free)} "
            f"combinations, more than {_MOST_EXAMPLES}; pass num_samples= and key=."
        )
    choices = np.array(list(itertools.product([1.0, 0.0], repeat=len(free))))
    present = np.ones((len(choices), len(p)))
    present[:, free] = choices
    chance = np.prod(np.where(present == 1, p, 1 - p), axis=1)
    classes = np.repeat(np.arange(k), len(choices))
    return classes, np.tile(present, (k, 1)), np.tile(chance, k) / k


def _drawn(n: int, k: int, p: np.ndarray, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
    for_classes, for_views = jax.random.split(key)
    classes = jax.random.randint(for_classes, (n,), 0, k)
    present = jax.random.bernoulli(for_views, jnp.asarray(p), (n, len(p)))
    return np.asarray(classes), np.asarray(present, float)


def _pathways(
    gates: str,
    x: np.ndarray,
    classes: np.ndarray,
    present: np.ndarray,
    units: np.ndarray,
    width: int,
    layers: int,
) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    n, k, m = x.shape
    if gates == "none":
        return Graph.chain([k * m, *[width] * layers, k]), {"x": x.reshape(n, k * m)}, {}
    if gates == "view":
        inputs = {f"x{j}": x @ units[j] for j in range(m)}
        hidden = {f"h{j}": present[:, j] for j in range(m)}
    else:
        inputs = {"x": x.reshape(n, k * m)}
        hidden = {f"h{j}": (classes == j).astype(float) for j in range(k)}
    nodes = {v: a.shape[1] for v, a in inputs.items()} | {"y": k}
    edges = []
    for j, h in enumerate(hidden):
        row = [h, *(f"{h}.{layer + 1}" for layer in range(1, layers))]
        nodes |= dict.fromkeys(row, width)
        edges += itertools.pairwise([f"x{j}" if gates == "view" else "x", *row, "y"])
    return Graph(nodes, edges), inputs, hidden


def _view_statistics(
    p: np.ndarray, norms: np.ndarray, units: np.ndarray, k: int
) -> dict[str, np.ndarray]:
    """Return moments of what the pathways read, in closed form for independent views.

    With b_j in {0, 1} the presence of view j and c_mj = norm_j v_m.v_j, pathway m reads
    sum_j c_mj b_j where b_m = 1.
    """
    c = (units @ units.T) * norms
    m = len(p)
    s, d = np.zeros(m), np.zeros((m, m))
    for j in range(m):
        for i in range(m):
            both = np.isin(np.arange(m), [i, j])
            mean = np.where(both, 1.0, p)  # given that views i and j are present
            variance = np.where(both, 0.0, p * (1 - p))
            moment = (c[i] @ mean) * (c[j] @ mean) + (c[i] * c[j]) @ variance
            d[i, j] = moment * (p[i] * p[j] if i != j else p[i]) / k
        s[j] = p[j] * (c[j] @ np.where(np.arange(m) == j, 1.0, p)) / k
    return {"s": s, "d": d}
