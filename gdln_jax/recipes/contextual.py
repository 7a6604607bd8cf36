"""N A.2: contextual classification. A linear network answers with the mean of the two inputs, a
gated one with the right input.

Aligned networks against the two-layer closed form, random ones to their limits, on the population
(exact second moments of the square) and on samples of it. Erratum: E4.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gdln_jax import GatedData, GatedNetwork, exact, gradient_flow, init, pack, reduce, tasks, train
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes._contextual_figure import dataset, draw
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform

KINDS = {"linear": "none", "gated": "context"}
# tests/reference.json, `contextual_classification`.
REFERENCE_WEIGHTS = {"linear": [[0.5, 0.5]], "gated": [[1.0, 0.0], [0.0, 1.0]]}
REFERENCE_LOSS = {"linear": 1 / 12, "gated": 0.0}
_A0 = 1e-3
# Relative tolerance of the flows, whose modes are held to 1e-10.
_RTOL = 1e-12
# Variance of (x_1 - x_2)^2/8, the loss per example of the best linear map, on the square.
_VARIANCE = (2 / 5 + 6 / 9) / 64 - 1 / 144


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        seeds, seed: random networks, and samples. width: hidden units of a pathway.
        std: of the iid normal weights. samples: examples of each sample.
        learning_rate, duration: of gradient descent; tau = 1.
    """

    seeds: int = 10
    seed: int = 0
    width: int = 16
    std: float = 0.05
    samples: int = 1000
    learning_rate: float = 0.2
    duration: float = 100.0

    def __post_init__(self) -> None:
        sim.check_numbers(self, ("seeds", "width"), ("std", "learning_rate", "duration"))
        if self.samples < 8:
            raise ValueError(f"samples must be at least 8, got {self.samples}")


QUICK = {"seeds": 4, "samples": 200}


@dataclass(frozen=True)
class Kind:
    """One of the two networks: what was simulated, and what is known."""

    ts: np.ndarray
    flow: Any  # aligned start, (time, pathway, 2) total weights in `measured`
    theory: np.ndarray  # (time,) closed form of the mode
    meta: dict[str, Any]
    residual: float
    losses: dict[str, np.ndarray]  # "population", "samples" -> (seed, time)
    maps: dict[str, np.ndarray]  # -> (seed, time, pathway, 2) total weights
    best: np.ndarray  # (seed, pathway, 2) least squares on each sample
    examples: np.ndarray  # (seed,) final losses on the samples, example by example


def run(options: Options, progress: Progress = silent) -> Result:
    """Make N A.2."""
    return perform("contextual", options, progress, simulate, check, _tell)


def _tell(options: Options, runs: dict[str, Kind], facts: dict[str, Any]) -> Told:
    data = dataset(options, runs)
    return Told(data, partial(draw, data, facts), _finding(facts), _notes(options, facts))


# ------------------------------------------------------------------ the runs
def simulate(options: Options, progress: Progress = silent) -> dict[str, Kind]:
    """Both kinds of networks."""
    steps = round(options.duration / options.learning_rate)
    if not 2 <= steps <= 100_000:
        raise OptionError(
            f"duration {options.duration:g} at learning rate {options.learning_rate:g} is "
            f"{steps} steps"
        )
    found = {}
    for k, kind in enumerate(KINDS):
        progress(0.1 + 0.4 * k, f"{kind} networks, {steps} steps of gradient descent")
        found[kind] = _kind(options, kind, steps)
    return found


def _kind(options: Options, kind: str, steps: int) -> Kind:
    o = options
    task = tasks.contextual_classification(gating=KINDS[kind], width=o.width)
    reduction = reduce(task.graph, task.data)
    pathways = len(task.graph.hidden)

    def total(net: Any) -> Any:
        w = net.weights if isinstance(net, GatedNetwork) else net
        return jnp.stack([(w[f"h{c + 1}->y"] @ w[f"x->h{c + 1}"])[0] for c in range(pathways)])

    grid = np.linspace(0, o.duration, 101)
    flow = gradient_flow(
        reduction.embed(math.sqrt(_A0)), pack(task.graph, task.data), grid, rtol=_RTOL,
        measure=total,
    )  # fmt: skip
    theory = np.asarray(exact.linear_mode(grid, task.meta["s"], task.meta["d"], _A0))

    def initial(key: Any) -> dict[str, Any]:
        return dict(GatedNetwork.init(task.graph, init.normal(o.std), key=key).weights)

    nets = jax.vmap(initial)(sim.keys(o.seed, o.seeds))
    drawn = _samples(o)
    # Second moments are all that squared error sees (SCIENCE 3); one program for both.
    population = _moments(*_population(task))
    moments = {
        "population": np.broadcast_to(population, (o.seeds, *population.shape)),
        "samples": np.asarray(jax.vmap(_moments)(*drawn)),
    }
    losses, maps, ts = {}, {}, np.zeros(0)
    for name, stacked in moments.items():
        out = _descend(nets, stacked, o.learning_rate, steps, total)
        losses[name], maps[name] = np.asarray(out.losses), np.asarray(out.measured)
        ts = o.learning_rate * np.asarray(out.ts[0], float)
    final = maps["samples"][:, -1]
    return Kind(
        ts, flow, theory, dict(task.meta), float(reduction.residual), losses, maps,
        _least_squares(kind, *drawn), _loss_of_examples(final, *drawn),
    )  # fmt: skip


def _samples(options: Options) -> tuple[np.ndarray, np.ndarray]:
    """x (seed, context, example, 2) uniform on the square, and y (seed, context, example)."""
    o = options
    key = jax.random.fold_in(jax.random.key(o.seed), 2**31 - 1)
    shape = (o.seeds, 2, o.samples // 2, 2)
    x = np.asarray(jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))
    return x, np.stack([x[:, c, :, c] for c in range(2)], axis=1)


def _population(task: tasks.Task) -> tuple[np.ndarray, np.ndarray]:
    """The task's pseudo-examples by context: x (context, example, 2), y (context, example)."""
    assert isinstance(task.data, GatedData)
    x, y = np.asarray(task.data.inputs["x"]), np.asarray(task.data.targets["y"])[:, 0]
    context = task.meta["context"]
    return np.stack([x[context == c] for c in range(2)]), np.stack(
        [y[context == c] for c in range(2)]
    )


def _moments(x: Any, y: Any) -> Any:
    """(context, 3, 3) second moments of (x_1, x_2, y)."""
    joint = jnp.concatenate([jnp.asarray(x), jnp.asarray(y)[..., None]], axis=-1)
    return jnp.einsum("cni,cnj->cij", joint, joint) / joint.shape[1]


def _moment_loss(maps: Any, moments: Any) -> Any:
    """The loss of total weights (pathway, 2), contexts equally often: 1/2 <(y - w x)^2>."""
    residual = jnp.concatenate([-maps, jnp.ones((len(maps), 1))], axis=1)
    residual = jnp.broadcast_to(residual, (2, 3))
    return jnp.einsum("ci,cij,cj->", residual, moments, residual) / 4


def _descend(nets: Any, moments: Any, rate: float, steps: int, total: Any) -> Any:
    """Train all networks, each on its own second moments, in one program."""

    @jax.jit
    def program(nets: Any, moments: Any, rate: Any) -> Any:
        def one(weights: Any, moments: Any) -> Any:
            def loss(net: Any, data: Any) -> Any:
                return _moment_loss(total(net), data)

            return train(
                weights, moments, optimizer=optax.sgd(rate), steps=steps, loss=loss,
                save_every=sim.spacing(steps), measure=total, keep_models=False,
            )  # fmt: skip

        return jax.vmap(one)(nets, moments)

    out = program(nets, moments, jnp.asarray(rate))
    bad = np.flatnonzero(np.asarray(out.status) != 0)
    if len(bad):
        raise OptionError(f"network {bad[0]} diverged; use a smaller learning_rate")
    return out


def _least_squares(kind: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(seed, pathway, 2) the best total weights on each sample."""
    if kind == "linear":
        x, y = x.reshape(len(x), 1, -1, 2), y.reshape(len(y), 1, -1)
    return (np.linalg.pinv(x) @ y[..., None])[..., 0]


def _loss_of_examples(maps: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(seed,) losses example by example."""
    prediction = np.einsum("scni,sci->scn", x, np.broadcast_to(maps, (len(x), 2, 2)))
    return np.mean((y - prediction) ** 2, axis=(1, 2)) / 2


# ------------------------------------------------------------------ checks
def check(options: Options, runs: dict[str, Kind]) -> tuple[list[Check], dict[str, Any]]:
    """All assertions, and the numbers that text and picture quote."""
    checks: list[Check] = []
    for kind, one in runs.items():
        checks += _flow_checks(kind, one)
        checks += _limit_checks(kind, one)
    linear = runs["linear"]
    n = options.seeds * (options.samples // 2) * 2
    mean = float(linear.examples.mean())
    checks.append(
        # Of the least squares fit on n examples, 2 of whose degrees of freedom are used up.
        Check.below(
            "linear, samples: mean loss - 1/12, in standard errors",
            abs(mean - (1 - 2 / options.samples) / 12) / math.sqrt(_VARIANCE / n), 4.0,
            f"{mean:.5f} over {options.seeds} samples of {options.samples}",
        )
    )  # fmt: skip
    facts = {
        "linear": np.median(linear.maps["population"][:, -1, 0], axis=0),
        "gated": np.median(runs["gated"].maps["population"][:, -1], axis=0),
        "loss": {kind: float(np.median(one.losses["population"][:, -1])) for kind, one in
                 runs.items()},
        "sample_loss": (mean, float(linear.examples.std())),
        "spread": float(np.abs(linear.best - 0.5).max()),
        "seeds": options.seeds,
        "untied": runs["gated"].residual,
    }  # fmt: skip
    return checks, facts


def _flow_checks(kind: str, one: Kind) -> Iterator[Check]:
    limit = np.asarray(one.meta["limit"])
    size = np.linalg.norm(limit, axis=1)
    # Along the limit's direction the mode a(t); nothing beside it.
    wanted = one.theory[:, None, None] * (limit / size[:, None])
    yield Check.below(
        f"{kind}: flow - closed form, total weights",
        np.abs(np.asarray(one.flow.measured) - wanted).max(), 1e-10,
        f"a(0) = {_A0:g}, population; residual of the reduction {one.residual:.1e}",
    )  # fmt: skip


def _limit_checks(kind: str, one: Kind) -> Iterator[Check]:
    # What a mode of rate 1/3 (per tau) has left over after the run, e^-30 of it.
    yield Check.below(
        f"{kind}, population: total weights - reference, random starts",
        np.abs(one.maps["population"][:, -1] - np.array(REFERENCE_WEIGHTS[kind])).max(), 1e-6,
        f"worst of {len(one.best)} seeds",
    )  # fmt: skip
    yield Check.near(
        f"{kind}, population: final loss, worst",
        one.losses["population"][:, -1].max(), REFERENCE_LOSS[kind], 1e-10,
    )  # fmt: skip
    yield Check.below(
        f"{kind}, samples: total weights - least squares of the sample",
        np.abs(one.maps["samples"][:, -1] - one.best).max(), 1e-6,
        f"which is within {np.abs(one.best - np.array(REFERENCE_WEIGHTS[kind])).max():.3g} of the "
        "population's",
    )  # fmt: skip
    yield Check.below(
        f"{kind}, samples: loss by second moments - by examples",
        np.abs(one.losses["samples"][:, -1] - one.examples).max(), 1e-12,
    )  # fmt: skip


# ------------------------------------------------------------------ in words
def _finding(facts: dict[str, Any]) -> str:
    one, two = facts["linear"]
    return (
        f"linear networks converge to [{one:.4f} {two:.4f}] with loss "
        f"{facts['loss']['linear']:.6f} = 1/12, gated ones to [1 0] and [0 1] with loss "
        f"{facts['loss']['gated']:.0e} ({facts['seeds']} seeds, nothing fitted)."
    )


def _notes(options: Options, facts: dict[str, Any]) -> Iterator[str]:
    mean, sd = facts["sample_loss"]
    yield (
        f"On samples of {options.samples} examples the linear network ends at the least squares "
        f"fit of its sample, up to {facts['spread']:.3f} from 1/2, with loss {mean:.4f} ± {sd:.4f};"
        " the gated one at [1 0] and [0 1] exactly, on any sample, because there is no noise."
    )
    yield (
        "E4: N's condition of one V per input node fails, since the two pathways leave x in two "
        "directions. Sigma^x is isotropic, so any V serves, and the reduction is exact (residual "
        f"{facts['untied']:.1e})."
    )
    yield (
        "Population statistics are eight pseudo-examples with the square's exact second moments: "
        "exact for squared error and gated linear maps, and no sample of the square for ReLU."
    )
