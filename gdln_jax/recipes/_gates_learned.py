"""Learned gates: recovered by differentiating through the dynamics, and learned beside weights.

Part of the recipe `gates`. From random starts the gates that learn fastest are found: XoR or linear
gating on either side of the crossover (SCIENCE 4), one shared pathway for all routes, the pathways
that are on in all contexts but one (H Fig. 5, E23). In blocks of two tasks fast gates keep the
weights, slow ones do not.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from gdln_jax import exact, gates, init
from gdln_jax._data import GatedData
from gdln_jax._flow import gradient_flow
from gdln_jax._graph import Graph
from gdln_jax._network import GatedNetwork
from gdln_jax._schedule import Schedule
from gdln_jax.losses import mse
from gdln_jax.recipes import _gates_learned_tasks as problems
from gdln_jax.recipes._recipe import Check, Progress, silent

MARGIN_A0, MARGIN_LEVEL = 1e-4, 0.2
DELTAS = np.array([0.4, 0.6, 0.75, 1.0, 1.15, 1.35])
DOMAINS, PATHWAYS, ROUTING_B0 = 3, 3, 0.05
CONTEXTS, CONTEXT_A0 = 3, 1e-3
RATES = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
LEAKS = np.array([0.0, 0.05])
# Steps small enough that gates move together: larger ones commit each gate by itself.
_ADAM, _STEPS = optax.adam(0.1), 100
BLOCKS, BLOCK_TIME, PER_BLOCK = 12, 10.0, 12


@dataclass(frozen=True)
class Recovery:
    """Gates that were learned for speed, from every start."""

    start: np.ndarray  # gates (start, ...)
    end: np.ndarray
    times: np.ndarray  # (start,) time to the level at the end
    success: np.ndarray  # (start,) whether the known best gating was found

    @property
    def best(self) -> int:
        """The fastest start."""
        return int(np.nanargmin(self.times))

    @property
    def rate(self) -> float:
        """Share of starts that found it."""
        return float(np.mean(self.success))


@dataclass(frozen=True)
class LearnedRuns:
    """Everything that the picture shows and the checks use."""

    margin: np.ndarray  # gating (delta, start): 0 linear, 1 XoR, .5 mixed
    margin_times: np.ndarray  # (delta, start)
    corners: np.ndarray  # (delta, 2) times at pure linear and XoR gates
    crossover: float
    routing: Recovery
    contexts: Recovery
    families: np.ndarray  # times of all families of subsets
    family_gates: np.ndarray
    blocks: dict[str, np.ndarray]  # (leak, rate, seed, ...)


def simulate(starts: int, seed: int, progress: Progress = silent) -> LearnedRuns:
    """All runs; the random starts of each problem are one program."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 6), 4)
    progress(0.0, f"margin: {len(DELTAS)} margins, {starts} starts each")
    logits = 0.6 * jax.random.normal(keys[0], (starts, 4))
    found = _margin(jnp.asarray(DELTAS), logits)
    corners = _margin_corners(jnp.asarray(DELTAS))
    progress(0.3, f"routing: {starts} starts")
    routing = _routing(keys[1], starts)
    progress(0.5, f"contexts: {starts} starts")
    contexts, times, family = _contexts(keys[2], starts)
    progress(0.8, "two tasks in blocks")
    blocks = _in_blocks(jax.random.split(keys[3], max(2, starts // 4)))
    return LearnedRuns(
        problems.margin_gating(np.asarray(found.variables)),
        np.exp(np.asarray(found.values[..., -1])),
        np.asarray(corners),
        float(exact.margin_crossover(MARGIN_A0, MARGIN_LEVEL)),
        routing, contexts, times, family, blocks,
    )  # fmt: skip


@eqx.filter_jit
def _margin(deltas: jax.Array, logits: jax.Array) -> gates.Learned:
    def at(delta: jax.Array) -> gates.Learned:
        objective = problems.MarginTime(delta, jnp.asarray(MARGIN_A0))
        return gates.learn(objective, logits, optimizer=_ADAM, steps=_STEPS)

    return jax.vmap(at)(deltas)


@eqx.filter_jit
def _margin_corners(deltas: jax.Array) -> jax.Array:
    pure = jnp.asarray([[-60.0] * 4, [60.0] * 4])

    def at(delta: jax.Array) -> jax.Array:
        return jnp.exp(jax.vmap(problems.MarginTime(delta, jnp.asarray(MARGIN_A0)))(pure))

    return jax.vmap(at)(deltas)


def _routing(key: jax.Array, starts: int) -> Recovery:
    objective, routes = problems.routing_time(DOMAINS, PATHWAYS, ROUTING_B0)
    logits = 0.3 * jax.random.normal(key, (starts, routes, PATHWAYS))
    found = gates.learn(objective, logits, optimizer=_ADAM, steps=_STEPS)
    before, after = (np.asarray(jax.nn.softmax(v, axis=-1)) for v in (logits, found.variables))
    shared = np.any(np.all(after > 0.5, axis=1), axis=-1)
    return Recovery(before, after, np.exp(np.asarray(found.values[:, -1])), shared)


def _contexts(key: jax.Array, starts: int) -> tuple[Recovery, np.ndarray, np.ndarray]:
    objective = problems.context_time(CONTEXTS, CONTEXTS, CONTEXT_A0)
    logits = 0.5 * jax.random.normal(key, (starts, CONTEXTS, CONTEXTS))
    found = gates.learn(objective, logits, optimizer=_ADAM, steps=_STEPS)
    before, after = (np.asarray(jax.nn.sigmoid(v)) for v in (logits, found.variables))
    success = np.array([problems.is_doubles(g) for g in after])
    family = problems.families(CONTEXTS, CONTEXTS)
    times = np.exp(np.asarray(_at_corners(objective, jnp.asarray(family))))
    recovery = Recovery(before, after, np.exp(np.asarray(found.values[:, -1])), success)
    return recovery, times, family


@eqx.filter_jit
def _at_corners(objective: problems.ContextTime, family: jax.Array) -> jax.Array:
    return jax.vmap(objective.at)(family)


# ------------------------------------------------------------------ two tasks in blocks
def two_tasks(width: int = 4) -> tuple[Graph, tuple[GatedData, GatedData]]:
    """Two linear maps that agree on no mode (their inner product is 0), and two pathways."""
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))[0]
    signs = np.repeat([1.0, -1.0], width // 2)
    x = np.sqrt(width) * np.eye(width)  # whitened
    graph = Graph(
        {"x": width, "p": width, "q": width, "y": width},
        [("x", "p"), ("x", "q"), ("p", "y"), ("q", "y")],
    )
    one, other = (GatedData({"x": x}, {"y": x @ (rotation * s).T}) for s in (1.0, signs))
    return graph, (one, other)


@eqx.filter_jit
def _in_blocks(keys: jax.Array) -> dict[str, Any]:
    graph, (one, other) = two_tasks()
    turns = Schedule([one, other], BLOCK_TIME * np.arange(1, BLOCKS), order=np.arange(BLOCKS) % 2)
    ts = BLOCK_TIME * np.linspace(0, BLOCKS, BLOCKS * PER_BLOCK + 1)

    def look(model: gates.LearnedGates) -> dict[str, jax.Array]:
        return {
            "loss": jnp.stack([mse(model, one), mse(model, other)]),
            "gates": model.gates,
            "held": jnp.stack([gates.retention(model, one), gates.retention(model, other)]),
        }

    def run(leak: jax.Array, rate: jax.Array, key: jax.Array) -> dict[str, Any]:
        net = GatedNetwork.init(graph, init.normal(0.1), key=key)
        model = gates.LearnedGates(net, ["p", "q"], rate=rate, leak=leak)
        trajectory = gradient_flow(
            model, turns, ts, loss=gates.leaky(mse), rtol=1e-5, atol=1e-6, measure=look,
            keep_models=False, throw=False,
        )  # fmt: skip
        return trajectory.measured

    over_seeds = jax.vmap(run, (None, None, 0))
    over_rates = jax.vmap(over_seeds, (None, 0, None))
    return jax.vmap(over_rates, (0, None, None))(jnp.asarray(LEAKS), jnp.asarray(RATES), keys)


def held(runs: LearnedRuns) -> np.ndarray:
    """Retention (leak, rate, seed) of the task that was not trained in the last block."""
    idle = 1 - (BLOCKS - 1) % 2
    return np.asarray(runs.blocks["held"])[..., -1, idle]


# ------------------------------------------------------------------ checks
def check(runs: LearnedRuns) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    linear, xor = (
        np.asarray(exact.margin_time(MARGIN_LEVEL, DELTAS, MARGIN_A0, gating=gating))
        for gating in ("linear", "xor")
    )
    closed = np.stack([linear, xor], axis=1)
    fastest = np.nanargmin(runs.margin_times, axis=1)
    chosen = runs.margin[np.arange(len(DELTAS)), fastest]
    winner = (xor < linear).astype(float)
    success = runs.margin == winner[:, None]
    doubles = np.array([problems.is_doubles(g) for g in runs.family_gates])
    order = np.argsort(runs.families)
    kept = np.median(held(runs), axis=-1)
    facts: dict[str, Any] = {
        "chosen": chosen,
        "winner": winner,
        "margin_rate": success.mean(axis=1),
        "second": float(runs.families[order[1]] / runs.families[order[0]] - 1),
        "held": kept,
        "starts": runs.margin.shape[1],
    }
    checks = [
        Check.below(
            "learned, margin: reduced dynamics at pure gates against the closed form",
            np.max(np.abs(runs.corners / closed - 1)), 1e-4, "worst margin, relative; rtol 1e-6",
        ),
        Check.near(
            "learned, margin: margins where the fastest start has the wrong gating",
            np.sum(chosen != winner), 0, 0, f"crossover {runs.crossover:.3f}, sqrt(2/3) as a0 -> 0",
        ),
        Check.near(
            "learned, routing: the fastest start shares one pathway",
            runs.routing.success[runs.routing.best], 1, 0, "1 is yes",
        ),
        Check.between(
            "learned, routing: starts that find the shared pathway", runs.routing.rate, 0.6, 1,
            f"of {facts['starts']}",
        ),
        Check.near(
            "learned, contexts: fastest of all families of subsets is the double contexts",
            doubles[order[0]], 1, 0,
            f"{len(order)} families; the next is {facts['second']:.0%} slower",
        ),
        Check.near(
            "learned, contexts: the fastest start finds the double contexts",
            runs.contexts.success[runs.contexts.best], 1, 0, "1 is yes",
        ),
        Check.between(
            "learned, contexts: starts that find the double contexts", runs.contexts.rate, 0.2, 1,
            f"of {facts['starts']}",
        ),
        Check.below(
            "learned, blocks: slow gates, what the weights hold of the idle task",
            kept[-1, 0], 0.15, "forgetful; median over seeds",
        ),
        Check.between(
            "learned, blocks: fast leaky gates, the same", kept[-1, -1], 0.85, 1.0, "flexible",
        ),
    ]  # fmt: skip
    return checks, facts


def verdict(runs: LearnedRuns, facts: dict[str, Any]) -> str:
    """One sentence."""
    kept = facts["held"][-1]
    return (
        "Gates learned through the dynamics: the fastest start has the faster gating at "
        f"{np.sum(facts['chosen'] == facts['winner'])} of {len(DELTAS)} margins; "
        f"{runs.routing.rate:.0%} of {facts['starts']} starts find the shared pathway of routing, "
        f"{runs.contexts.rate:.0%} the double contexts. In blocks of tasks the weights hold "
        f"{kept[0]:.0%} of the idle task with slow gates and {kept[-1]:.0%} with fast ones."
    )
