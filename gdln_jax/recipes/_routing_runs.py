"""The routing figure's numbers: what is simulated, and the theory that it is held against.

Theory and simulation meet here only: the theory is scalars per mode (N Eq. 13-15), computed from
the base data's statistics, the simulation is full networks. Nothing is fitted between the two.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import (
    GatedNetwork,
    Reduction,
    Trajectory,
    exact,
    flow_time,
    gradient_flow,
    init,
    measures,
)
from gdln_jax.recipes import _ensembles
from gdln_jax.tasks import Task


@dataclass(frozen=True)
class Modes:
    """The base data's modes, strongest first, and the number of domains.

    s, d: strength in Sigma^yx and variance in Sigma^x of the base data (not divided by K M),
    each (mode,). u (y, mode), v (x, mode): the data's frames. half_trace: 1/2 <|y|^2>, L(0) of a
    network that predicts 0.
    """

    s: np.ndarray
    d: np.ndarray
    u: np.ndarray
    v: np.ndarray
    half_trace: float
    num_domains: int
    order: np.ndarray  # of the reduction's modes

    @property
    def floor(self) -> float:
        """The smallest loss of a linear map: what the modes leave of the half trace."""
        return self.half_trace - 0.5 * float(np.sum(self.s**2 / self.d))

    def prediction(self, x: np.ndarray) -> np.ndarray:
        """The best linear prediction (n, y) from `x` (n, x)."""
        return (x @ self.v * (self.s / self.d)) @ self.u.T

    def loss(self, b1: np.ndarray, b2: np.ndarray) -> np.ndarray:
        """Loss at strengths (..., mode): L = floor + 1/2 sum_m (s - d a)^2/d with a = B2 B1^2."""
        a = b2 * b1**2
        return self.floor + 0.5 * np.sum((self.s - self.d * a) ** 2 / self.d, axis=-1)

    def flow(self, t: Any, b1: Any, b2: Any) -> tuple[np.ndarray, np.ndarray]:
        """B1(t), B2(t) (time, mode) by N Eq. 15 from B1(0), B2(0), with C = M B1(0)^2 - B2(0)^2.

        B1 follows from M B1^2 - B2^2 = C (E8). Leading axes of the initial values broadcast.
        """
        b1, b2 = (np.asarray(b, float) + np.zeros_like(self.s) for b in (b1, b2))
        c = self.num_domains * b1**2 - b2**2
        t = np.asarray(t, float)[..., None]
        hidden = hidden_strength(t, self.s, self.d, b2, c, self.num_domains)
        return np.sqrt((hidden**2 + c) / self.num_domains), hidden

    def final_hidden(self, c: np.ndarray, share: float = 1.0) -> np.ndarray:
        """The B2 at which each mode has learned `share`: B2 (B2^2 + C)/M = share s/d."""
        wanted = share * self.num_domains * self.s / self.d
        roots = [np.roots([1.0, 0.0, cm, -w]) for cm, w in zip(c, wanted, strict=True)]
        # For C > 0 there is one real root; else the largest is where B2 goes from below.
        return np.array([max(r.real[np.abs(r.imag) < 1e-6 * (1 + np.abs(r))]) for r in roots])


# Elements per call of the closed form: everything goes through one compiled program.
_CHUNK = 4096


@jax.jit
def _routing_mode(t: Any, s: Any, d: Any, b2: Any, c: Any, m: Any) -> Any:
    return exact.routing_mode(t, s, d, b2, m, c=c)


def hidden_strength(t: Any, s: Any, d: Any, b2: Any, c: Any, num_domains: int) -> np.ndarray:
    """`exact.routing_mode` of arrays that broadcast: B2(t) from B2(0) = b2."""
    parts = np.broadcast_arrays(*(np.asarray(a, float) for a in (t, s, d, b2, c)))
    shape, size = parts[0].shape, parts[0].size
    short = -size % _CHUNK
    # Padded with the first element, so that every value is a legitimate one.
    flat = np.stack([np.append(a, np.full(short, a.flat[0])) for a in parts])
    chunks = flat.reshape(5, -1, _CHUNK).swapaxes(0, 1)
    values = [np.asarray(_routing_mode(*chunk, float(num_domains))) for chunk in chunks]
    return np.concatenate(values)[:size].reshape(shape)


def find_modes(task: Task, reduction: Reduction) -> Modes:
    """Read the base data's modes off the reduction of the task (S(p) and D(p, p), N Eq. 11-12)."""
    (i, j), *_ = task.meta["routes"].tolist()
    route = (f"x{i}", f"y{j}")
    count = len(task.meta["routes"])
    s = count * np.asarray(reduction.strengths[route])
    d = count * np.asarray(reduction.variances[route, route])
    order = np.argsort(-s, kind="stable")
    u, v = reduction.frames[f"h2->y{j}"][0], reduction.frames[f"x{i}->h1"][1]
    y = task.meta["base"][1]
    return Modes(
        s[order],
        d[order],
        np.asarray(u)[:, order],
        np.asarray(v)[:, order],
        0.5 * float(np.sum(y**2)) / len(y),
        int(task.meta["num_domains"]),
        order,
    )


class Frames(NamedTuple):
    """What a running network is measured against; arrays, so that programs are reused."""

    u: tuple[Any, ...]
    v: tuple[Any, ...]
    data_u: Any
    data_v: Any
    x: Any
    best: Any
    pattern: Any


def frames_of(task: Task, reduction: Reduction, modes: Modes) -> Frames:
    """The frames and base data for `look`."""
    x = task.meta["base"][0]
    order = modes.order
    return Frames(
        tuple(u[..., order] for u in reduction.u),
        tuple(v[..., order] for v in reduction.v),
        jnp.asarray(modes.u),
        jnp.asarray(modes.v),
        jnp.asarray(x),
        jnp.asarray(modes.prediction(x)),
        jnp.asarray(task.meta["pattern"]),
    )


def aligned(net: GatedNetwork, frames: Frames) -> tuple[list[Any], list[Any]]:
    """Per bundle: strengths (edge, mode) in the frames, and the norm of what is off them."""
    parts = list(zip(net.stacks, frames.u, frames.v, strict=True))
    return (
        [measures.mode_strengths(w, u, v) for w, u, v in parts],
        [measures.frame_distance(w, u, v) for w, u, v in parts],
    )


def shared(net: GatedNetwork, frames: Frames) -> Any:
    """Strengths of the modes along the shared code; see `measures.shared_strengths`."""
    first, hidden, third = net.stacks
    return measures.shared_strengths(first, hidden[0], third, frames.data_u, frames.data_v)


def squares(net: GatedNetwork) -> Any:
    """Sum of squared weights per layer, (3,): what the trace of E8 compares."""
    return jnp.stack([jnp.sum(jnp.square(w)) for w in net.stacks])


def initial_networks(task: Task, kind: str, scale: float, seeds: int, seed: int) -> GatedNetwork:
    """Random networks, one per seed along the leading axis."""
    initialiser = getattr(init, kind)(scale)
    key = jax.random.key(seed)
    # One by one: they share programs per shape, and one mapped program takes longer to compile.
    nets = [
        GatedNetwork.init(task.graph, initialiser, key=jax.random.fold_in(key, k))
        for k in range(seeds)
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)


def descend(
    nets: GatedNetwork, data: Any, frames: Frames, rate: float, steps: int, save_every: int
) -> Trajectory:
    """Train all networks (leading axis) by full-batch gradient descent, in one program."""
    look = eqx.Partial(_look, frames)
    return _ensembles.descend(nets, data, rate, steps, save_every, measure=look)


def _look(frames: Frames, net: GatedNetwork) -> dict[str, Any]:
    strengths, off = aligned(net, frames)
    return {
        "shared": shared(net, frames),
        "aligned": strengths,
        "off": off,
        "errors": measures.zero_shot_error(net, frames.x, frames.best, frames.pattern),
        "squares": squares(net),
    }


def follow_flow(net: GatedNetwork, data: Any, frames: Frames, ts: np.ndarray) -> Trajectory:
    """Solve the gradient flow of one network; measures alignment and what E8 conserves."""

    def look(net: GatedNetwork) -> dict[str, Any]:
        strengths, off = aligned(net, frames)
        held = [measures.conserved(net, node) for node in ("h1", "h2")]
        hidden = net.stacks[1][0]
        size = jnp.linalg.norm(hidden @ hidden.T)
        return {"aligned": strengths, "off": off, "conserved": held, "size": size}

    return gradient_flow(net, data, ts, measure=look, keep_models=False)


def weight_error(measured: dict[str, Any], b1: np.ndarray, b2: np.ndarray) -> float:
    """Largest ||W_e(t) - W_e^theory(t)||_F over times and edges.

    The frames are orthonormal, so the square is that of the strengths' error plus that of what
    lies off the frames; no weights need be kept.
    """
    worst = 0.0
    for found, off, wanted in zip(measured["aligned"], measured["off"], (b1, b2, b1), strict=True):
        gap = np.sum((np.asarray(found) - wanted[:, None, :]) ** 2, axis=-1)
        worst = max(worst, float(np.sqrt(gap + np.asarray(off) ** 2).max()))
    return worst


def conserved_drift(measured: dict[str, Any]) -> float:
    """Largest change of the matrices that E8 conserves, over times and hidden nodes.

    Relative to ||W2 W2^T||_F at t = 0: they themselves are 0 for M = 1.
    """
    held = np.stack([np.asarray(m) for m in measured["conserved"]])
    change = np.linalg.norm(held - held[:, :1], axis=(2, 3))
    return float(change.max() / np.asarray(measured["size"])[0])


def times(steps: Any, rate: float) -> np.ndarray:
    """Flow time of gradient-descent steps in units of tau: t = rate * step, exactly."""
    return np.asarray(flow_time(steps, rate))


def learning_time(modes: Modes, b1: np.ndarray, b2: np.ndarray, share: float = 0.999) -> np.ndarray:
    """Time by N Eq. 15 at which each mode has learned `share` of its s/d, from B1(0), B2(0).

    To 2 %, upwards, which does for choosing a duration (`exact.routing_time` is exact, but would be
    one more program to compile); infinite for a mode that takes more than 10^4 M/(s B1(0)).
    """
    slow = modes.num_domains / (modes.s * b1)
    factors = np.geomspace(1e-2, 1e4, 700)
    t = factors[:, None] * slow
    c = modes.num_domains * b1**2 - b2**2
    hidden = hidden_strength(t, modes.s, modes.d, b2, c, modes.num_domains)
    done = hidden >= modes.final_hidden(c, share)
    return np.where(
        done.any(axis=0), np.take_along_axis(t, done.argmax(axis=0)[None], 0)[0], np.inf
    )


def curvature(modes: Modes, b: float) -> float:
    """Largest curvature of the loss at the end of learning: d (B1^4 + 2 B1^2 B2^2/M), worst mode.

    Gradient descent needs a learning rate below 2 over this.
    """
    m = modes.num_domains
    c = np.full_like(modes.s, (m - 1) * b**2)
    b2 = modes.final_hidden(c)
    square = (b2**2 + c) / m
    return float(np.max(modes.d * (square**2 + 2 * square * b2**2 / m)))


def fit_amplitude(
    modes: Modes, t: np.ndarray, losses: np.ndarray, around: float
) -> tuple[np.ndarray, np.ndarray]:
    """The b(0) = B1(0) = B2(0) whose theoretical loss is nearest to each run (run, time).

    Least squares over the times given, on two successive logarithmic grids. Returns b(0) and the
    root mean square misfit as a fraction of L(0), each (run,). For reporting only: no comparison
    with theory uses it.
    """
    low, high = around / 4, around * 4
    best, misfit = np.zeros(len(losses)), np.zeros(len(losses))
    for _ in range(2):
        grid = np.geomspace(low, high, 40)
        starts = grid[:, None, None]
        curves = modes.loss(*modes.flow(t, starts, starts))
        gaps = np.sqrt(np.mean((losses[:, None] - curves) ** 2, axis=-1)) / modes.half_trace
        chosen = gaps.argmin(axis=1)
        best, misfit = grid[chosen], gaps.min(axis=1)
        low, high = grid[max(chosen.min() - 1, 0)], grid[min(chosen.max() + 1, len(grid) - 1)]
    return best, misfit
