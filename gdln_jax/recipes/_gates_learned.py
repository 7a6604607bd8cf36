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

from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    Schedule,
    exact,
    gates,
    gradient_flow,
    init,
    mse,
)
from gdln_jax.recipes import _gates_learned_tasks as problems
from gdln_jax.recipes._recipe import Check, Progress, silent

MARGIN_A0, MARGIN_LEVEL = 1e-4, 0.2
DELTAS = np.array([0.4, 0.6, 0.75, 1.0, 1.15, 1.35])
DOMAINS, PATHWAYS, ROUTING_B0 = 3, 3, 0.05
CONTEXTS, CONTEXT_A0 = 3, 1e-3
RATES = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
LEAKS = np.array([0.0, 0.05])
# Small steps, so that the gates move together: larger ones commit each by itself, too early.
_ADAM, _STEPS = optax.adam(0.1), 100
# Routes gain most by going together, and plain gradient descent keeps that direction ahead of all
# others; Adam gives each gate the same step, and 1 start in 24 finds the shared pathway.
_DESCENT = optax.sgd(3.0)
BLOCKS, BLOCK_TIME, PER_BLOCK, SEEDS = 12, 10.0, 12, 6


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
    routing: Recovery | None  # the short setting leaves it out, and what follows
    contexts: Recovery | None
    families: np.ndarray | None  # (family,) times of all families of subsets of contexts
    blocks: dict[str, np.ndarray]  # (leak, rate, seed, ...)


def simulate(
    starts: int, seed: int, progress: Progress = silent, *, short: bool = False
) -> LearnedRuns:
    """All runs; the random starts of each problem are one program.

    `short` leaves out routing and contexts, which take most of the time (to compile).
    """
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 6), 4)
    progress(0.0, f"learned gates: {len(DELTAS)} margins, {starts} starts each")
    found, corners = _margin(jnp.asarray(DELTAS), 0.6 * jax.random.normal(keys[0], (starts, 4)))
    progress(0.2, "learned gates: two tasks in blocks")
    blocks = jax.tree.map(np.asarray, _in_blocks(jax.random.split(keys[3], SEEDS)))
    routing = contexts = families = None
    if not short:
        progress(0.3, f"learned gates: routing, {starts} starts")
        routing = recover_routing(keys[1], starts)
        progress(0.6, f"learned gates: contexts, {starts} starts")
        contexts = recover_contexts(keys[2], starts)
        families = _family_times()
    return LearnedRuns(
        problems.margin_gating(np.asarray(found.variables)),
        np.exp(np.asarray(found.values[..., -1])),
        np.exp(np.asarray(corners)),
        float(exact.margin_crossover(MARGIN_A0, MARGIN_LEVEL)),
        routing, contexts, families, blocks,
    )  # fmt: skip


@eqx.filter_jit
def _margin(deltas: jax.Array, logits: jax.Array) -> tuple[gates.Learned, jax.Array]:
    """What is learned at each margin, and log times (delta, 2) of pure linear and XoR gates."""
    pure = jnp.asarray([[-60.0] * 4, [60.0] * 4])

    def at(delta: jax.Array) -> gates.Learned:
        objective = problems.MarginTime(delta, jnp.asarray(MARGIN_A0))
        starts = jnp.concatenate([pure, logits])  # one program for all
        return gates.learn(objective, starts, optimizer=_ADAM, steps=_STEPS)

    every = jax.vmap(at)(deltas)
    return jax.tree.map(lambda leaf: leaf[:, 2:], every), every.values[:, :2, 0]


def recover_routing(key: jax.Array, starts: int) -> Recovery:
    """Learn which hidden pathway each route takes, for speed."""
    objective, routes = problems.routing_time(DOMAINS, PATHWAYS, ROUTING_B0)
    logits = 0.3 * jax.random.normal(key, (starts, routes, PATHWAYS))
    found = gates.learn(objective, logits, optimizer=_DESCENT, steps=_STEPS)
    before, after = (np.asarray(jax.nn.softmax(v, axis=-1)) for v in (logits, found.variables))
    shared = np.any(np.all(after > 0.5, axis=1), axis=-1)
    return Recovery(before, after, np.exp(np.asarray(found.values[:, -1])), shared)


def recover_contexts(key: jax.Array, starts: int) -> Recovery:
    """Learn which contexts each contextual pathway is on in, for speed."""
    objective = problems.context_time(CONTEXTS, CONTEXTS, CONTEXT_A0)
    logits = 0.5 * jax.random.normal(key, (starts, CONTEXTS, CONTEXTS))
    found = gates.learn(objective, logits, optimizer=_ADAM, steps=_STEPS)
    before, after = (np.asarray(jax.nn.sigmoid(v)) for v in (logits, found.variables))
    success = np.array([problems.is_doubles(g) for g in after])
    return Recovery(before, after, np.exp(np.asarray(found.values[:, -1])), success)


def _family_times() -> np.ndarray:
    objective = problems.context_time(CONTEXTS, CONTEXTS, CONTEXT_A0)
    every = problems.families(CONTEXTS, CONTEXTS)
    return np.exp(np.asarray(_at_corners(objective, jnp.asarray(every))))


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
    times = BLOCK_TIME * np.arange(1, BLOCKS)
    turns = Schedule([one, other], times=times, order=np.arange(BLOCKS) % 2)
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
    kept = np.median(held(runs), axis=-1)
    facts: dict[str, Any] = {
        "chosen": chosen,
        "winner": winner,
        "margin_rate": success.mean(axis=1),
        "held": kept,
        "starts": runs.margin.shape[1],
    }
    checks = [
        Check.below(
            "learned, margin: reduced dynamics at pure gates against the closed form",
            np.max(np.abs(runs.corners / closed - 1)), 1e-3, "times, relative; rtol 1e-4",
        ),
        Check.near(
            "learned, margin: margins where the fastest start has the wrong gating",
            np.sum(chosen != winner), 0.0, 0.0,
            f"crossover {runs.crossover:.3f}, sqrt(2/3) as a0 -> 0",
        ),
        Check.below(
            "learned, blocks: slow gates, what the weights hold of the idle task",
            kept[-1, 0], 0.2, "forgetful; median over seeds",
        ),
        Check.between(
            "learned, blocks: fast leaky gates, the same", kept[-1, -1], 0.85, 1.0, "flexible",
        ),
        *_check_recovery(runs, facts),
    ]  # fmt: skip
    return checks, facts


def _check_recovery(runs: LearnedRuns, facts: dict[str, Any]) -> list[Check]:
    """Routing and contexts, where they were run."""
    if runs.routing is None or runs.contexts is None or runs.families is None:
        return []
    doubles = [problems.is_doubles(g) for g in problems.families(CONTEXTS, CONTEXTS)]
    order = np.argsort(runs.families)
    facts["second"] = float(runs.families[order[1]] / runs.families[order[0]] - 1)
    checks = []
    # Most starts end in a local optimum: over keys 1 of 16 to 8 of 24 share one pathway.
    for name, found, least, what in (
        ("routing", runs.routing, 0.05, "one shared pathway"),
        ("contexts", runs.contexts, 0.2, "the pathways on in all contexts but one"),
    ):
        checks += [
            Check.near(
                f"learned, {name}: the fastest start finds {what}",
                found.success[found.best], 1.0, 0.0, "1 is yes",
            ),
            Check.between(
                f"learned, {name}: share of starts that do", found.rate, least, 1.0,
                f"of {facts['starts']}",
            ),
        ]  # fmt: skip
    checks.append(
        Check.near(
            "learned, contexts: they are the fastest of all families of subsets", doubles[order[0]],
            1.0, 0.0, f"{len(order)} families; the next is {facts['second']:.0%} slower",
        )
    )  # fmt: skip
    return checks


def finding(runs: LearnedRuns, facts: dict[str, Any]) -> str:
    """One sentence."""
    kept = facts["held"][-1]
    found = ""
    if runs.routing is not None and runs.contexts is not None:
        found = (
            f"{runs.routing.rate:.0%} of {facts['starts']} starts find the shared pathway of "
            f"routing, {runs.contexts.rate:.0%} the double contexts. "
        )
    return (
        "Gates learned through the dynamics: the fastest start has the faster gating at "
        f"{np.sum(facts['chosen'] == facts['winner'])} of {len(DELTAS)} margins. {found}In blocks "
        f"of tasks the weights hold {kept[0]:.0%} of the idle task with slow gates and "
        f"{kept[-1]:.0%} with fast ones."
    )


def record(data: Any, runs: LearnedRuns) -> None:
    """Add everything to the recipe's `xarray.Dataset`, with names that start with `learned_`."""

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[f"learned_{name}"] = (dims, np.asarray(values), {"long_name": meaning})

    starts = ("margin", "start")
    data.coords["margin"] = DELTAS
    data.coords["gate_rate"] = RATES
    data.coords["gate_leak"] = LEAKS
    add("gating", starts, runs.margin, "gating learned: 0 linear, 1 XoR, .5 one of each")
    add("margin_time", starts, runs.margin_times, "time to loss 1/5 with the learned gates")
    for name, found, dims in (
        ("routing", runs.routing, ("route", "pathway")),
        ("contexts", runs.contexts, ("contextual_pathway", "gated_context")),
    ):
        if found is not None:
            add(name, ("start", *dims), found.end, f"gates learned, {name}")
            add(f"{name}_start", ("start", *dims), found.start, f"gates at the start, {name}")
            add(f"{name}_time", ("start",), found.times, f"time to the level, {name}")
    if runs.families is not None:
        add(
            "family_time", ("family",), runs.families, "time to the level of each family of subsets"
        )
    block = ("gate_leak", "gate_rate", "block_seed", "block_time")
    shapes = {"loss": "task", "gates": "block_pathway", "held": "task"}
    for name, last in shapes.items():
        add(f"block_{name}", (*block, last), runs.blocks[name], f"tasks in blocks: {name}")
