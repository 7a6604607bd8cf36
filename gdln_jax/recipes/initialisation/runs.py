"""The networks of N Fig. 6, one program per width, and their linear theory."""

from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from gdln_jax import GatedNetwork, draw_width, init, measures, sweep, tasks, train
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core import route_maps
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes._core.route_maps import Stacks
from gdln_jax.recipes.initialisation import Options

# Targets (feature, item) of one-hot inputs: Sigma^x = I/items, Sigma^yx = Y/items.
Y = tasks.hierarchy_features()
ITEMS = Y.shape[1]
U, S, VT = np.linalg.svd(Y, full_matrices=False)
RECORDS = 160  # steps at which the loss is kept: dense early, where large scales learn
DRAWN = 512  # from this width on orthogonal starts are drawn as their exact small networks
float32 = partial(jnp.asarray, dtype=jnp.float32)


class Routes(eqx.Module):
    """A routing network as a function of routes (route, 2)."""

    stacks: Stacks

    def __call__(self, routes: np.ndarray | Array) -> Array:
        """Outputs (route * item, feature)."""
        maps = route_maps.maps(self.stacks)[routes[:, 0], routes[:, 1]]
        return jnp.swapaxes(maps, 1, 2).reshape(-1, maps.shape[1])


@dataclass(frozen=True)
class Setting:
    """The networks of one width, and how they are trained.

    Attributes:
        pattern: 0/1 (input, output), which routes are trained.
        scales, rates: sigma_0 and learning rate (scale,).
        starts: random networks of scale 1, stacked over seeds.
        steps, kept: number of steps, at all scales, and those at which the loss is kept.
        rest: squared norm of the weights by layer, at scale 1, that are not drawn (`draw_width`).
    """

    pattern: np.ndarray
    scales: np.ndarray
    rates: np.ndarray
    starts: Stacks
    steps: int
    kept: np.ndarray
    rest: tuple[float, ...]

    def start(self, seed: int, scale: float = 1.0) -> Stacks:
        """A network before training, float64."""
        return tuple(scale * w[seed].astype(float) for w in self.starts)


def setting(o: Options, number: int) -> Setting:
    """Draw the networks of width `number` of the options and choose a step for each scale.

    The step is `safety` over the curvature at the end of learning by N Eq. 13-14 plus five times
    the largest curvature at the start over seeds: where the start is steep, learning is
    exponential at that rate, which the step must resolve.
    """
    m, width, wider = o.domains, o.widths[number], number > 0
    seeds = max(min(3, o.seeds), o.seeds * o.widths[0] // width) if wider else o.seeds
    scales, steps = (o.wide_scales, o.wide_steps) if wider else (o.scales, o.steps)
    task, initial = tasks.routing(m, o.trained, width=width), getattr(init, o.init)(1.0)
    keys, rest, pattern = sim.keys(o.seed, seeds), (0.0, 0.0, 0.0), task.meta["pattern"]
    if o.init == "orthogonal" and width >= DRAWN:
        small = [draw_width(task.graph, task.data, initial, key=key).net.stacks for key in keys]
        starts = jax.tree.map(lambda *parts: jnp.stack(parts), *small)
        rest = (0.0, float(width - starts[1].shape[-1]), 0.0)
    else:
        draw = jax.vmap(lambda key: GatedNetwork.init(task.graph, initial, key=key).stacks)
        starts = jax.jit(draw)(keys)
    starts = sim.as_type(starts, jnp.float32)

    def steepness(scale: Array, start: Stacks) -> Array:
        return largest_curvature(optax.tree.scale(scale, start), float32(pattern), float32(Y))

    every = jax.vmap(jax.vmap(steepness, (None, 0)), (0, None))
    steep = np.asarray(jax.jit(every)(float32(scales), starts), float).max(axis=1)
    # d (B1^4 + 2 B1^2 B2^2/M) of the strongest mode, where B2^3 = M S and B1^2 = B2^2/M.
    end = 3 * (m * S[0]) ** (4 / 3) / (m**2 * ITEMS)
    kept = np.unique(np.geomspace(1, steps + 1, RECORDS).round().astype(int) - 1)
    rates = o.safety / (end + 5 * steep)
    return Setting(pattern, np.array(scales), rates, starts, steps, kept, rest)


def largest_curvature(stacks: Stacks, pattern: Array, y: Array) -> Array:
    """Largest absolute eigenvalue of the Hessian of the loss, by power iteration (from below)."""
    slope = jax.grad(partial(route_maps.loss, pattern=pattern, y=y))

    def image(v: Stacks) -> Stacks:
        return jax.jvp(slope, (stacks,), (v,))[1]

    def turn(_: Array, v: Stacks) -> Stacks:
        turned = image(v)
        return jax.tree.map(lambda w: w / optax.tree.norm(turned), turned)

    # From the weights, which are random: XLA would take minutes to fold random constants.
    return optax.tree.norm(image(jax.lax.fori_loop(0, 40, turn, stacks)))


def descend(s: Setting, *, measured: bool = True) -> dict[str, np.ndarray]:
    """Train a width in one program: arrays (scale, seed, ...); the loss only if not `measured`.

    Raises:
        OptionError: some network diverged.
    """
    pattern, y, rest, scales, rates = map(float32, (s.pattern, Y, s.rest, s.scales, s.rates))
    other, half, loss = 1 - pattern, s.steps // 2, partial(route_maps.loss, y=y)

    def one(_: PRNGKeyArray, scale: Array, seed: Array) -> dict[str, Array]:
        start = optax.tree.scale(scales[scale], tuple(w[seed] for w in s.starts))
        how = {"optimizer": optax.sgd(rates[scale]), "loss": loss, "keep_models": False}
        first = train(start, pattern, steps=half, **how)
        second = train(first.final, pattern, steps=s.steps - half, **how)
        losses = jnp.concatenate([first.losses, second.losses[1:]])
        curve = {"loss": losses[s.kept], "status": jnp.maximum(first.status, second.status)}
        if not measured:
            return curve
        halfway, end = (route_maps.errors(run.final, y) for run in (first, second))
        power = jnp.sum(route_maps.maps(start) ** 2, axis=(2, 3)) / jnp.sum(y**2)
        return curve | {
            "rise": jnp.max(jnp.diff(losses)) / losses[0],
            "trained_half": jnp.average(halfway, weights=pattern),
            "untrained_half": jnp.average(halfway, weights=other),
            "trained": jnp.average(end, weights=pattern),
            "untrained": jnp.average(end, weights=other),
            "start_power": jnp.average(power, weights=other),
            "curvature": largest_curvature(second.final, pattern, y),
            **at_ends(start, second.final, scales[scale] ** 2 * rest),
        }

    # The key of the sweep is not used: the starts are drawn.
    axes = {"scale": np.arange(len(scales)), "seed": np.arange(len(s.starts[0]))}
    runs = sweep(one, axes, key=jax.random.key(0), progress=False)
    if len(bad := np.argwhere(runs["status"].values != 0)):
        scale, seed = s.scales[bad[0][0]], bad[0][1]
        raise OptionError(f"sigma_0 = {scale:g}, seed {seed} diverged; use a smaller safety")
    names = [str(name) for name in runs.data_vars if name != "reason"]
    return {name: np.asarray(runs[name].values, float) for name in names}


def at_ends(start: Stacks, end: Stacks, rest: Array) -> dict[str, Array]:
    """Movement and codes; `rest`: squared norm of each layer besides, which does not move."""
    held = jnp.stack([jnp.sum(jnp.square(w)) for w in start]) + rest
    moved = jnp.stack([jnp.sum(jnp.square(b - a)) for a, b in zip(start, end, strict=True)])
    four = np.argwhere(np.ones((2, 2)))  # routes, of which some are trained
    before, after = (measures.empirical_ntk(Routes(w), four) for w in (start, end))
    change, alignment = measures.kernel_movement(before, after)
    code = jnp.swapaxes(end[0], 1, 2).reshape(-1, end[0].shape[1])
    # Strengths of the modes along the code that all domains share (E9).
    shared = measures.shared_strengths(start[0], start[1][0], start[2], U, VT.T)
    return {
        "weights": jnp.sqrt(jnp.sum(moved) / jnp.sum(held)),
        "layers": jnp.sqrt(moved / held),
        "kernel_change": change,
        "kernel_alignment": alignment,
        "alignment": measures.domain_alignment(code @ code.T, len(end[0])),
        "b0": jnp.sqrt(shared.first * shared.third),
        "similarity": code @ code.T,
        "outputs": route_maps.maps(end),
    }


def kernel(stacks: Stacks, routes: np.ndarray) -> np.ndarray:
    """The tangent kernel in closed form on one-hot inputs, indexed as `measures.empirical_ntk`.

    The sum over layers of what the gradients of two outputs share: W1 the input domain and item,
    W2 the product of the similarities of both sides, W3 the output domain and feature.
    """
    (first, hidden, third), (i, j) = (np.asarray(w) for w in stacks), routes.T
    h1, top = np.einsum("rgx->rxg", first[i]), third[j]
    inner, outer, below = (np.tensordot(a, a, (2, 2)) for a in (h1, top, h1 @ hidden[0].T))
    back = np.tensordot(top @ hidden[0], top @ hidden[0], (2, 2))
    (items, features), n = (inner.shape[1], top.shape[1]), len(routes) * inner.shape[1]
    same_input, same_output = (1.0 * (a[:, None] == a) for a in (i, j))
    total = np.einsum("rs,xz,rysu->rxyszu", same_input, np.eye(items), back)
    total += np.einsum("rxsz,rysu->rxyszu", inner, outer)
    total += np.einsum("rs,rxsz,yu->rxyszu", same_output, below, np.eye(features))
    return total.reshape(n, features, n, features)


def kernel_error(s: Setting) -> float:
    """`kernel` against `measures.empirical_ntk`, relative, two routes of the first network."""
    stacks, routes = s.start(0), np.argwhere(s.pattern == 1)[:2]
    known = np.asarray(eqx.filter_jit(measures.empirical_ntk)(Routes(stacks), routes))
    return float(np.linalg.norm(kernel(stacks, routes) - known) / np.linalg.norm(known))


def linear_loss(s: Setting, scale: int, seed: int) -> np.ndarray:
    """Loss (kept step,) of a network linearised at t = 0, whose kernel does not change.

    L(t) = 1/(2n) sum_k (v_k . r)^2 exp(-2 lambda_k t/n), r the distance of the outputs to the
    targets and (lambda, v) the eigenpairs of the kernel on all outputs of the n trained examples.
    """
    routes, stacks = np.argwhere(s.pattern == 1), s.start(seed, s.scales[scale])
    times, n = s.kept * s.rates[scale], len(routes) * ITEMS
    residual = np.ravel(Routes(stacks)(routes) - np.tile(Y.T, (len(routes), 1)))
    values, vectors = np.linalg.eigh(kernel(stacks, routes).reshape(2 * [residual.size]))
    decay = np.exp(-2 * np.outer(times, np.maximum(values, 0)) / n)
    return decay @ (vectors.T @ residual) ** 2 / (2 * n)
