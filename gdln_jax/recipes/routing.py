"""N Fig. 4: routing. M input and M output domains learn through one shared hidden pathway.

(a) networks from random initial weights by gradient descent, (b) a decoupled network by gradient
descent and by gradient flow, (c) N Eq. 13-15 with the exact clock t = tau eta step and no fitted
factor between (b) and (c), (d) the reduction and its quotient, which find Eq. 13's rates 1/M
themselves. Errata: E6-E10.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import GatedNetwork, Trajectory, draw_width, init, measures, pack, tasks
from gdln_jax.recipes import _routing_runs as sim
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._routing_checks import REFERENCE_T, check, starting_values
from gdln_jax.recipes._routing_data import dataset
from gdln_jax.recipes._routing_figure import draw
from gdln_jax.recipes._routing_plan import GAP, Options, Plan, make_plan
from gdln_jax.recipes._routing_reduced import Reduced, Unequal, solve, solve_unequal
from gdln_jax.recipes._run import Told, perform

QUICK = {"seeds": 3, "unequal": False}
_MAX_STEPS = 60_000
_ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True)
class Runs:
    """What was simulated; times are in units of tau. Runs of `descent`: the seeds, then (b)."""

    ts: np.ndarray
    descent: Trajectory
    flow: Trajectory
    start: Any
    fitted: np.ndarray
    misfit: np.ndarray
    reduced: Reduced
    unequal: Unequal | None


@dataclass(frozen=True)
class Final:
    """The random networks at the end; arrays (seed, ...)."""

    errors: np.ndarray
    similarity: np.ndarray
    alignment: np.ndarray
    outputs: np.ndarray
    target: np.ndarray
    probes: tuple[str, ...]
    median_seed: int


def run(options: Options, progress: Progress = silent) -> Result:
    """Make N Fig. 4."""
    return perform("routing", options, progress, _simulate_all, _check, _tell)


_All = tuple[Plan, Runs, Final]


def _simulate_all(options: Options, progress: Progress) -> _All:
    plan = make_plan(options)
    progress(0.1, "random networks")
    runs = simulate(plan, progress)
    return plan, runs, final_state(plan, runs)


def _check(options: Options, found: _All) -> tuple[list[Check], dict[str, Any]]:
    del options
    return check(*found)


def _tell(options: Options, found: _All, facts: dict[str, Any]) -> Told:
    del options
    plan, runs, final = found
    data = dataset(plan, runs, final, starting_values(runs))
    settled = {
        "amplitude": plan.amplitude,
        "init_scale": plan.init_scale,
        "learning_rate": plan.rate,
        "duration": float(runs.ts[-1]),
    }
    figure = partial(draw, data, plan.task.graph, facts)
    return Told(data, figure, _finding(plan, facts), _notes(plan, facts), settled)


def _duration(plan: Plan, b1: np.ndarray, b2: np.ndarray) -> float:
    """Time enough for the slowest mode that matters, by Eq. 15 from the measured b(0).

    Modes that together hold a thousandth of what can be learned are not waited for. A third as
    long again, because random networks are late, and a round number.
    """
    if plan.options.duration is not None:
        return plan.options.duration
    gain = plan.modes.s**2 / plan.modes.d
    rest = np.append(np.cumsum(gain[::-1])[::-1][1:], 0.0)
    counts = rest + gain > 1e-3 * gain.sum()
    wanted = 1.3 * float(sim.learning_time(plan.modes, b1, b2)[counts].max())
    if not np.isfinite(wanted):
        raise OptionError(
            "some mode of the base data is too weak to be learned in any reasonable time; "
            "say how long to train with --set duration="
        )
    scale = 10.0 ** np.floor(np.log10(wanted))
    return float(next(r * scale for r in _ROUND if r * scale >= wanted))


# ------------------------------------------------------------------ the runs
def simulate(plan: Plan, progress: Progress = silent) -> Runs:
    """Train the random networks and the decoupled one together; then the decoupled one's flow."""
    o, modes = plan.options, plan.modes
    frames = sim.frames_of(plan.task, plan.reduction, modes)
    random = sim.initial_networks(plan.task, o.init, plan.init_scale, o.seeds, o.seed)
    start = jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda n: sim.shared(n, frames)))(random))
    b1, b2 = (np.median(b, axis=0) for b in (np.sqrt(start.first * start.third), start.hidden))
    steps, save_every = _steps(plan, _duration(plan, b1, b2))
    decoupled = GatedNetwork.init(
        plan.task.graph, init.decoupled(plan.reduction, plan.amplitude), key=jax.random.key(0)
    )
    nets = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), random, decoupled)
    data = pack(plan.task.graph, plan.task.data)
    progress(0.2, f"{o.seeds + 1} networks, {steps} steps of gradient descent")
    descent = sim.descend(nets, data, frames, plan.rate, steps, save_every)
    progress(0.6, "gradient flow")
    ts = sim.times(descent.ts[0], plan.rate)
    grid = np.unique(np.concatenate([ts[:: max(1, len(ts) // 100)], [ts[-1]], REFERENCE_T]))
    grid = grid[grid <= ts[-1]]
    flow = sim.follow_flow(decoupled, data, frames, grid)
    progress(0.7, "reduced dynamics")
    at = np.asarray(descent.ts[0])
    solved = solve(plan.reduction, modes.order, plan.amplitude, grid, plan.rate, at)
    unequal = _unequal(plan, grid)
    progress(0.8, "theory")
    some = slice(None, None, max(1, len(ts) // 100))
    losses = np.asarray(descent.losses)[:-1]
    fitted, misfit = sim.fit_amplitude(modes, ts[some], losses[:, some], float(np.median(b1)))
    return Runs(ts, descent, flow, start, fitted, misfit, solved, unequal)


def _unequal(plan: Plan, ts: np.ndarray) -> Unequal | None:
    o = plan.options
    if not o.unequal or not 1 <= o.trained < o.domains:
        return None
    return solve_unequal(o.domains, o.trained, plan.task.meta["base"], o.seed, plan.amplitude, ts)


def _steps(plan: Plan, duration: float) -> tuple[int, int]:
    """Number of steps, and steps between records: some hundreds of them, at round numbers."""
    wanted = duration / plan.rate
    if wanted > _MAX_STEPS:
        raise OptionError(
            f"learning would take {wanted:.0f} steps (t = {duration:g} at learning rate "
            f"{plan.rate:g}); initial values {plan.init_scale:g} are small or some mode of the "
            "base data is weak: set init_scale or amplitude higher, or duration lower"
        )
    spacing = [1, 2, 5, 10, 25, 50, 100, 200]
    save_every = max(k for k in spacing if k <= max(1.0, wanted / 250))
    return max(2, round(wanted / save_every)) * save_every, save_every


def final_state(plan: Plan, runs: Runs) -> Final:
    """Errors by route, similarity across domains, and outputs on all routes, of every seed."""
    m, x = plan.options.domains, plan.task.meta["base"][0]
    nets = jax.tree.map(lambda leaf: leaf[:-1], runs.descent.final)
    probes, names = _probes(plan)
    # One example per domain and probe; only the input's side matters for h1.
    m_probes, features = len(probes), len(plan.modes.u)
    own = tasks.routing(m, base=(probes, np.zeros((m_probes, features))), pattern=np.eye(m)).data
    best = plan.modes.prediction(x)

    @jax.jit
    @jax.vmap
    def look(net: GatedNetwork) -> tuple[Any, ...]:
        outputs = jnp.einsum("ijyx,nx->ijny", measures.input_output_maps(net), probes)
        similarity = measures.representational_similarity(net, own, "h1")
        return measures.route_errors(net, x, best), similarity, outputs

    errors, similarity, outputs = (np.asarray(a) for a in look(nets))
    alignment = [float(measures.domain_alignment(one, m)) if m > 1 else 1.0 for one in similarity]
    off = plan.pattern == 0 if (plan.pattern == 0).any() else plan.pattern == 1
    score = errors[:, off].mean(axis=1)
    median_seed = int(np.argsort(score, kind="stable")[(len(score) - 1) // 2])
    target = plan.modes.prediction(probes)
    return Final(errors, similarity, np.array(alignment), outputs, target, names, median_seed)


def _probes(plan: Plan) -> tuple[np.ndarray, tuple[str, ...]]:
    """Inputs to look at the network with: the items, the mean of each class, or the modes."""
    x, y = plan.task.meta["base"]
    if len(x) <= 12:
        return x, tuple(str(k + 1) for k in range(len(x)))
    if plan.options.base == "digits":
        # Least squares on one-hot labels: <x y_c> / <y_c> is the mean input of class c.
        means = (x.T @ y / np.sum(y**2, axis=0)).T
        return means, tuple(str(k) for k in range(len(means)))
    count = min(10, len(plan.modes.s))
    probes = (plan.modes.v * np.sqrt(plan.modes.d)).T[:count]
    return probes, tuple(f"m{k + 1}" for k in range(count))


def dimensions(plan: Plan) -> int:
    """Size of the exact small network of an arbitrarily wide one, drawn directly."""
    o, base = plan.options, plan.base
    key = jax.random.key(o.seed)
    wide = tasks.routing(
        o.domains, o.trained, base=(base.x, base.y), pattern=o.pattern, key=key, width=100_000
    )
    drawn = draw_width(wide.graph, wide.data, init.orthogonal(1.0), key=key)
    return max(int(drawn.sizes[node]) for node in wide.graph.hidden)


# ------------------------------------------------------------------ in words
def _finding(plan: Plan, facts: dict[str, Any]) -> str:
    o = plan.options
    first = (
        f"M = {o.domains}, K = {o.trained}, {plan.base.origin}: the decoupled network follows "
        "Eq. 13-15 to rounding"
    )
    if not (plan.pattern == 0).any():
        return f"{first}; every route is trained, so there is no zero-shot error."
    ends = (
        "the untrained routes have relative error" if plan.generalises else "untrained routes keep"
    )
    return (
        f"{first}; from random weights {ends} {facts['untrained']:.1e} (median of {o.seeds} "
        f"seeds), trained ones {facts['trained']:.1e}."
    )


def _notes(plan: Plan, facts: dict[str, Any]) -> Iterator[str]:
    o = plan.options
    (b, spread), (hidden, hidden_spread) = facts["projected"], facts["projected_hidden"]
    fit, fit_spread = facts["fitted"]
    misfit = facts["misfit"]
    yield (
        f"E9: {o.init} weights with scale {plan.init_scale:g} are not b(0) = {plan.init_scale:g}."
        f" Projected on the shared code: b(0) = {b:.4f} ± {spread:.4f} (seeds and modes); best fit"
        f" of Eq. 15 to the loss: {fit:.4f} ± {fit_spread:.4f} (seeds). Mean distance to the median"
        f" loss, in L(0): {misfit['projected']:.2%} projected, {misfit['fitted']:.2%} fitted."
    )
    yield (
        f"The hidden layer's own projection is B2(0) = {hidden:.4f} ± {hidden_spread:.4f}; Eq. 15 "
        f"from it misses by {misfit['separate']:.2%}. The rest of the random W2 turns and carries "
        "the shared code early on; without it (W2(0) = 0) that projection would be the right one."
    )
    yield (
        "E8: sqrt(M) between the singular values is a limit; exact is M B1^2 - B2^2 = const, "
        "per mode and as matrices at every hidden node."
    )
    yield (
        f"Reduced dynamics: one variable per edge and mode; the quotient finds {facts['classes']} "
        "classes of edges and the rates 1/M of Eq. 13-14 by itself."
    )
    used = dimensions(plan)
    gain = "nothing is gained at this width" if used >= o.width else f"of {o.width} units"
    yield (
        f"From any orthogonal start each hidden layer uses {used} dimensions, at any width "
        f"(reduce_width; M times the dimensions of inputs and outputs): {gain}."
    )
    if facts["unequal"] is not None:
        found = facts["unequal"]
        yield (
            f"E7: with {o.trained} outputs per input but not as many inputs per output the "
            f"reduction is as exact (residual {found.residual:.0e}), but has {found.classes} "
            f"classes for {found.edges} edges, and its loss is up to {facts['unequal_gap']:.1%} of "
            "L(0) from Eq. 15's."
        )
    gap = plan.task.meta["spectral_gap"]
    if not (plan.pattern == 0).any():
        yield "All routes are trained: no zero-shot check."
    elif not plan.generalises:
        yield (
            f"E10-E12: sigma_2/sigma_1 of the trained routes is {gap:.2f}; zero-shot "
            f"generalisation is expected below {GAP} only, so it is reported, not checked."
        )
    if plan.base.origin.startswith("hierarchy"):
        return
    yield (
        "Relative errors are against the best linear prediction, which leaves "
        f"{plan.modes.floor / plan.modes.half_trace:.1%} of the targets' power."
    )
