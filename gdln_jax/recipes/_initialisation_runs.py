"""The networks of the initialisation recipe: one program per width, and the lazy limit's theory.

Weights are kept neither at all steps nor after a run: losses at some steps and what is measured at
the two ends are. Kernels are those of a few routes, but for the linear theory of a few networks.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gdln_jax import GatedNetwork, draw_width, init, measures, sweep, tasks, train
from gdln_jax.recipes import _route_maps
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._routing_runs import Modes, curvature

# Steps at which the loss is kept: dense early, where large scales learn.
RECORDS = 160
_POWER_STEPS = 40
# From this width on orthogonal starts are drawn as their exact small networks.
DRAWN = 512


class Routes(eqx.Module):
    """A routing network as a function of the routes (route, 2) that are asked."""

    stacks: tuple[jax.Array, ...]

    def __call__(self, routes: Any) -> Any:
        """Outputs (route * item, feature)."""
        first, hidden, third = self.stacks
        inner = jnp.einsum("gh,rhx->rgx", hidden[0], first[routes[:, 0]])
        out = jnp.einsum("ryg,rgx->rxy", third[routes[:, 1]], inner)
        return out.reshape(-1, out.shape[-1])


@dataclass(frozen=True)
class Setting:
    """The task, and how the networks of one width are trained.

    pattern: 0/1 (input, output). y (feature, item). modes: of the data. scales: sigma_0 (scale,).
    starts: random networks of scale 1, stacked over seeds. rates (scale,). steps: for all scales.
    rest: squared norm of the weights of each layer that the starts leave out (`draw_width`), at
    scale 1: 0 but for the hidden layer of networks that are drawn as small ones.
    """

    pattern: np.ndarray
    y: np.ndarray
    modes: Modes
    scales: np.ndarray
    starts: tuple[jax.Array, ...]
    rates: np.ndarray
    steps: int
    rest: tuple[float, ...] = (0.0, 0.0, 0.0)

    @property
    def kept(self) -> np.ndarray:
        """Steps at which the loss is kept."""
        return np.unique(np.geomspace(1, self.steps + 1, RECORDS).round().astype(int) - 1)

    @property
    def routes(self) -> np.ndarray:
        """Trained routes (route, 2)."""
        return np.argwhere(self.pattern == 1)


def data_modes(num_domains: int) -> Modes:
    """The hierarchy's modes: inputs are one-hot, so that Sigma^x = I/n commutes with all."""
    y = tasks.hierarchy_features()
    n = y.shape[1]
    u, s, vt = np.linalg.svd(y, full_matrices=False)
    return Modes(
        s / n, np.full(n, 1 / n), u, vt.T, 0.5 * float(np.sum(y**2)) / n, num_domains, np.arange(n)
    )


def setting(
    kind: str, domains: int, trained: int, width: int, scales: Any, seeds: int, seed: int,
    steps: int, safety: float,
) -> Setting:  # fmt: skip
    """Draw the networks of one width and choose a stable step for each scale.

    The step is `safety` over the curvature at the end of learning by Eq. 13-14 plus five times the
    largest curvature at the start over seeds: where the start is steep, learning is exponential
    with that rate, which the step must resolve.
    """
    task = tasks.routing(domains, trained, width=width)
    graph, pattern = task.graph, task.meta["pattern"]
    y = tasks.hierarchy_features()
    base = jax.random.key(seed)

    @jax.jit
    @jax.vmap
    def draw(k: Any) -> Any:
        net = GatedNetwork.init(graph, getattr(init, kind)(1.0), key=jax.random.fold_in(base, k))
        return tuple(w.astype(jnp.float32) for w in net.stacks)

    rest = (0.0, 0.0, 0.0)
    if kind == "orthogonal" and width >= DRAWN:
        starts = _drawn(task, seeds, base)
        rest = (0.0, float(width - starts[1].shape[-1]), 0.0)
    else:
        starts = draw(jnp.arange(seeds))
    modes = data_modes(domains)
    scales = np.asarray(scales, float)
    chosen, targets = jnp.asarray(pattern, jnp.float32), jnp.asarray(y, jnp.float32)

    @jax.jit
    def steepest(starts: Any, scales: Any) -> Any:
        def one(scale: Any, start: Any) -> Any:
            return largest_curvature(jax.tree.map(lambda w: scale * w, start), chosen, targets)

        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(scales, starts)

    steep = np.asarray(steepest(starts, jnp.asarray(scales, jnp.float32)), float).max(axis=1)
    rates = safety / (curvature(modes, 0.0) + 5 * steep)
    return Setting(pattern, y, modes, scales, starts, rates, steps, rest)


def _drawn(task: tasks.Task, seeds: int, key: jax.Array) -> tuple[jax.Array, ...]:
    """Small networks that stand for orthogonal ones of any width, exactly, stacked over seeds."""
    nets = [
        draw_width(task.graph, task.data, init.orthogonal(1.0), key=jax.random.fold_in(key, k)).net
        for k in range(seeds)
    ]
    stacks = zip(*(net.stacks for net in nets), strict=True)
    return tuple(jnp.stack(parts).astype(jnp.float32) for parts in stacks)


def largest_curvature(stacks: Any, pattern: Any, y: Any) -> Any:
    """Largest absolute eigenvalue of the loss's Hessian, by power iteration (from below)."""

    def slope(w: Any) -> Any:
        return jax.grad(_route_maps.loss)(w, pattern, y)

    def turn(_: Any, v: Any) -> Any:
        turned = jax.jvp(slope, (stacks,), (v,))[1]
        return jax.tree.map(lambda a: a / optax.tree.norm(turned), turned)

    # From the weights, which are random: XLA would take minutes to fold random constants.
    v = jax.lax.fori_loop(0, _POWER_STEPS, turn, stacks)
    return optax.tree.norm(jax.jvp(slope, (stacks,), (v,))[1])


def descend(s: Setting, *, refine: int = 1, seeds: int | None = None) -> dict[str, np.ndarray]:
    """Train all scales and seeds of one width in one program; arrays (scale, seed, ...), float64.

    `refine`: that many times as many steps, each as much smaller: the same flow time.

    Raises:
        OptionError: some network diverged.
    """
    pattern, y = jnp.asarray(s.pattern, jnp.float32), jnp.asarray(s.y, jnp.float32)
    scales, rates = (jnp.asarray(a, jnp.float32) for a in (s.scales, s.rates / refine))
    rest_of = jnp.asarray(s.rest, jnp.float32)
    half = s.steps * refine // 2
    rest = s.steps * refine - half
    # Four routes, of which some are trained: what kernels are measured on.
    some = np.array([(i, j) for i in (0, 1) for j in (0, 1)])

    def one(_: Any, scale: Any, seed: Any) -> dict[str, Any]:
        start = jax.tree.map(lambda w: scales[scale] * w[seed], s.starts)

        def go(stacks: Any, steps: int) -> Any:
            return train(
                stacks, pattern, optimizer=optax.sgd(rates[scale]), steps=steps,
                loss=lambda w, p: _route_maps.loss(w, p, y), keep_models=False,
            )  # fmt: skip

        first = go(start, half)
        second = go(first.final, rest)
        losses = jnp.concatenate([first.losses, second.losses[1:]])
        return {
            "loss": losses[s.kept * refine],
            "rise": jnp.max(jnp.diff(losses)) / losses[0],
            "status": jnp.maximum(first.status, second.status),
            **_ends(start, second.final, pattern, y, some, scales[scale] ** 2 * rest_of),
            **_by_pattern(first.final, pattern, y, "_half"),
            "b0": _projected(start, s.modes),
        }

    count = len(s.starts[0]) if seeds is None else seeds
    axes = {"scale": np.arange(len(scales)), "seed": np.arange(count)}
    # The key of the sweep is not used: the starts are drawn.
    found = sweep(one, axes, key=jax.random.key(0), progress=False)
    bad = np.argwhere(found["status"].values != 0)
    if len(bad):
        raise OptionError(
            f"sigma_0 = {s.scales[bad[0][0]]:g}, seed {bad[0][1]} diverged; use a smaller safety"
        )
    names = [str(name) for name in found.data_vars if str(name) not in ("status", "reason")]
    return {name: np.asarray(found[name].values, float) for name in names}


def _ends(start: Any, end: Any, pattern: Any, y: Any, some: Any, rest: jax.Array) -> dict[str, Any]:
    """What is measured at the end and between start and end.

    `rest`: squared norm of what each layer has beside the start, which does not move.
    """
    held = jnp.stack([jnp.sum(jnp.square(w)) for w in start])
    share = jnp.sqrt(held / (held + rest))
    whole = jnp.sqrt(jnp.sum(held) / jnp.sum(held + rest))
    before, after = (measures.empirical_ntk(Routes(w), some) for w in (start, end))
    change, alignment = measures.kernel_movement(before, after)
    h = jnp.swapaxes(end[0], 1, 2).reshape(-1, end[0].shape[1])
    similarity = h @ h.T
    other = 1 - pattern
    power = jnp.sum(_route_maps.maps(start) ** 2, axis=(2, 3)) / jnp.sum(y**2)
    return {
        **_by_pattern(end, pattern, y, ""),
        "start_power": jnp.sum(power * other) / jnp.sum(other),
        "curvature": largest_curvature(end, pattern, y),
        "weights": whole * measures.weight_movement(start, end),
        "layers": share
        * jnp.stack([measures.weight_movement(a, b) for a, b in zip(start, end, strict=True)]),
        "kernel_change": change,
        "kernel_alignment": alignment,
        "alignment": measures.domain_alignment(similarity, len(pattern)),
        "similarity": similarity,
        "outputs": _route_maps.maps(end),
    }


def _by_pattern(stacks: Any, pattern: Any, y: Any, suffix: str) -> dict[str, Any]:
    errors = _route_maps.errors(stacks, y)
    return {
        f"{name}{suffix}": jnp.sum(errors * chosen) / jnp.sum(chosen)
        for name, chosen in (("trained", pattern), ("untrained", 1 - pattern))
    }


def _projected(stacks: Any, modes: Modes) -> Any:
    """Initial strengths along the shared code (E9), as the routing recipe has them."""
    strengths = measures.shared_strengths(stacks[0], stacks[1][0], stacks[2], modes.u, modes.v)
    return jnp.sqrt(strengths.first * strengths.third)


def kernel(stacks: Any, routes: np.ndarray) -> np.ndarray:
    """The tangent kernel in closed form on one-hot inputs, indexed as `measures.empirical_ntk`.

    The sum over layers of what two outputs' gradients share: W1 the input domain and item, W2 the
    product of both sides' similarities, W3 the output domain and feature.
    """
    (first, hidden, third), (i, j) = (np.asarray(w, float) for w in stacks), routes.T
    h1 = np.einsum("rgx->rxg", first[i])
    h2, top = h1 @ hidden[0].T, third[j]
    back = top @ hidden[0]
    features, items = np.eye(top.shape[1]), np.eye(h1.shape[1])
    same_input, same_output = (1.0 * (a[:, None] == a) for a in (i, j))

    def products(a: np.ndarray) -> np.ndarray:
        return np.tensordot(a, a, axes=(2, 2))

    total = np.einsum("rs,xz,rysu->rxyszu", same_input, items, products(back))
    total += np.einsum("rxsz,rysu->rxyszu", products(h1), products(top))
    total += np.einsum("rs,rxsz,yu->rxyszu", same_output, products(h2), features)
    n = len(routes) * len(items)
    return total.reshape(n, len(features), n, len(features))


def kernel_error(s: Setting) -> float:
    """`kernel` against `measures.empirical_ntk`, relative, two routes of the first network."""
    stacks = jax.tree.map(lambda w: w[0].astype(float), s.starts)
    found = np.asarray(measures.empirical_ntk(Routes(stacks), s.routes[:2]))
    return float(np.linalg.norm(kernel(stacks, s.routes[:2]) - found) / np.linalg.norm(found))


def linear_losses(s: Setting, scale: int, seeds: int) -> np.ndarray:
    """Loss (seed, kept step) of the networks linearised at t = 0, where the kernel stays as it is.

    L(t) = 1/(2n) sum_k (v_k . r)^2 exp(-2 lambda_k t/n), r the outputs' distance to the targets
    and (lambda, v) the kernel's eigenpairs on all outputs of the n trained examples. Nothing is
    fitted.
    """
    routes, times = s.routes, s.kept * s.rates[scale]
    n = len(routes) * s.y.shape[1]
    curves = []
    # In turn: a kernel has (n y)^2 numbers, and LAPACK takes one at a time anyway.
    for seed in range(seeds):
        start = tuple(s.scales[scale] * np.asarray(w[seed], float) for w in s.starts)
        outputs = np.asarray(_route_maps.maps(start))[tuple(routes.T)]
        residual = np.swapaxes(outputs - s.y, 1, 2).reshape(-1)
        values, vectors = np.linalg.eigh(kernel(start, routes).reshape(2 * [residual.size]))
        decay = np.exp(-2 * np.outer(times, np.maximum(values, 0)) / n)
        curves.append(decay @ (vectors.T @ residual) ** 2 / (2 * n))
    return np.array(curves)
