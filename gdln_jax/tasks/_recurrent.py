"""Linear recurrent networks (Proca, Domine, Shanahan, Mediano, ICML 2025)."""

import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.arrays import real_array
from gdln_jax._data.boundary import check_random_key
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph
from gdln_jax.exact import rnn_minimum
from gdln_jax.tasks._task import Meta, Task

# Largest eigenvalue of the Hessian at the minimum above which steps must be very small.
_STEEP = 1e4


def linear_rnn(
    strengths: ArrayLike | Sequence | None = None,
    *,
    width: int,
    inputs: ArrayLike | None = None,
    targets: ArrayLike | None = None,
    key: PRNGKeyArray | None = None,
) -> Task:
    r"""Map a sequence to one output by a linear recurrent network, unrolled over time.

    $h_t = W_h h_{t-1} + W_x x_t$, $y = W_y h_T$: nodes x1, ..., h1, ..., y, and three parameters,
    `Wx`, `Wh` (absent for one time) and `Wy`. Levels of equal weights are one scan, so that neither
    trace nor compile time grows with T.

    With `strengths` the inputs are white over time and $\Sigma^{y x_t} = U\, \mathrm{diag}(s_t)
    V^T$ with the same frames at all times; then the reduction is exact (theory#recurrence), and
    `exact` has its loss (`rnn_loss`) and minimum (`rnn_minimum`). One mode has one pole there; the
    full network may use several, where strengths are not geometric in time.

    Args:
        strengths: $s_t$ (time, mode), the first input first.
        width: number of hidden units; an aligned start learns the first `width` modes only.
        inputs: in place of strengths: sequences (n, time, features).
        targets: with these, (n, features).
        key: draws the frames U and V of strengths; without, both are the identity.

    Returns:
        A `Task`; `meta` with strengths: `strengths`, `frames` (U, V), and `minimum`, (b, loss,
        attained) of the modes.

    Raises:
        ValueError: strengths without a best network: their loss falls without end as the pole
            grows, so that no gradient flow settles; both or neither of strengths and examples;
            `key` with examples.

    Warns:
        UserWarning: curvature above 1e4 at the minimum, where descent needs steps below 2e-4.
    """
    width = check_integer(width, "width", minimum=1)
    if (strengths is None) == (inputs is None) or (inputs is None) != (targets is None):
        raise ValueError(
            "give strengths (time, mode), or inputs (n, time, features) with targets (n, features)."
        )
    meta: Meta = {}
    if strengths is None:
        if key is not None:
            raise ValueError("key draws frames of strengths; with inputs and targets leave it out.")
        x, y = (
            real_array(value, name) for value, name in ((inputs, "inputs"), (targets, "targets"))
        )
        if x.ndim != 3 or y.ndim != 2 or len(x) != len(y) or not x.shape[1]:
            raise ValueError(
                f"inputs have shape {x.shape} and targets {y.shape}; expected (n, time, features) "
                "and (n, features)."
            )
        graph = _graph(x.shape[1], x.shape[2], width, y.shape[1])
        sequence = {f"x{t + 1}": x[:, t] for t in range(x.shape[1])}
        return Task(graph, GatedData(sequence, {"y": y}), "linear_rnn", meta)
    s = np.asarray(real_array(strengths, "strengths"), float)
    if s.ndim != 2 or not s.size:
        raise ValueError(
            f"strengths has shape {s.shape}; expected (time, mode), the first input first."
        )
    times, modes = s.shape
    minimum = rnn_minimum(s)
    _check_minimum(s, *minimum)
    u, v = _orthogonal(key, modes)
    yx = np.concatenate([(u * row) @ v.T for row in s], axis=1)
    graph = _graph(times, modes, width, modes)
    widths = {name: graph.nodes[name] for name in graph.inputs}
    data = GatedData.from_moments(widths, {"y": modes}, np.eye(times * modes), yx)
    meta |= {"strengths": s, "frames": (u, v), "minimum": minimum}
    return Task(graph, data, "linear_rnn", meta)


def _graph(times: int, inputs: int, width: int, outputs: int) -> Graph:
    steps = range(1, times + 1)
    nodes = {f"x{t}": inputs for t in steps} | {f"h{t}": width for t in steps}
    entering = [(f"x{t}", f"h{t}") for t in steps]
    along = [(f"h{t}", f"h{t + 1}") for t in steps[:-1]]
    shared = {
        name: [f"{a}->{b}" for a, b in edges]
        for name, edges in (("Wx", entering), ("Wh", along))
        if edges
    }
    edges = [*entering, *along, (f"h{times}", "y", "Wy")]
    return Graph({**nodes, "y": outputs}, edges, shared=shared)


def _orthogonal(key: PRNGKeyArray | None, size: int) -> tuple[np.ndarray, np.ndarray]:
    if key is None:
        return np.eye(size), np.eye(size)
    check_random_key(key)
    draws = jax.random.normal(key, (2, size, size))
    u, v = (np.asarray(jnp.linalg.qr(draw)[0], float) for draw in draws)
    return u, v


def _check_minimum(s: np.ndarray, b: np.ndarray, loss: np.ndarray, attained: np.ndarray) -> None:
    """Refuse modes without a minimiser; warn of a minimum that is steep."""
    if not attained.all():
        m = int(np.argmin(attained))
        raise ValueError(
            f"no network is best for mode {m + 1}, strengths {s[:, m].tolist()}: the loss falls "
            f"towards {loss[m]:.3g} as the pole b grows, because the first input weighs most and "
            "the second hardly counts. Weights would grow without bound. Give later inputs more "
            "strength, or leave the first one out."
        )
    steep = [_curvature(column, pole) for column, pole in zip(s.T, b, strict=True)]
    worst = int(np.argmax(steep))
    if steep[worst] > _STEEP:
        warnings.warn(
            f"the largest curvature at the minimum is {steep[worst]:.3g} (mode {worst + 1}, pole "
            f"{b[worst]:.3g}): descent needs a step below {2 / steep[worst]:.1g}, and flows are "
            "stiff. Poles near 1 and above sum over many times: give late inputs more strength, or "
            "take fewer times.",
            stacklevel=3,
        )


def _curvature(s: np.ndarray, b: float) -> float:
    """Largest eigenvalue of the Hessian of l in (a, b, c) at the minimum, where |a| = |c|."""
    k = np.arange(len(s))[::-1]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        power = b**k
        slope, bend = k * b ** np.maximum(k - 1, 0), k * (k - 1) * b ** np.maximum(k - 2, 0)
        product = (s @ power) / (power @ power)
        a = np.sqrt(abs(product))
        c = np.sign(product) * a
        rest = s - product * power
        first = np.stack([c * power, product * slope, a * power])
        second = np.zeros((3, 3))
        second[0, 1] = second[1, 0] = c * (rest @ slope)
        second[0, 2] = second[2, 0] = rest @ power
        second[1, 2] = second[2, 1] = a * (rest @ slope)
        second[1, 1] = product * (rest @ bend)
        hessian = first @ first.T - second
    return float(np.linalg.eigvalsh(hessian)[-1]) if np.isfinite(hessian).all() else np.inf
