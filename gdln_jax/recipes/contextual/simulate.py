"""N A.2: the runs, and the numbers that checks, text and figure use.

Aligned networks against the two-layer closed form, random ones to their limits, on the population
(exact second moments of the square) and on samples of it.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, ArrayLike, PRNGKeyArray

import gdln_jax as gdln
from gdln_jax import GatedNetwork, exact, init, tasks
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.contextual import KINDS, Options

# tests/reference.json, `contextual_classification`.
REFERENCE_WEIGHTS = {"linear": [[0.5, 0.5]], "gated": [[1.0, 0.0], [0.0, 1.0]]}
REFERENCE_LOSS = {"linear": 1 / 12, "gated": 0.0}
A0 = 1e-3
# Variance of (x_1 - x_2)^2/8, the loss per example of the best linear map, on the square.
VARIANCE = (2 / 5 + 6 / 9) / 64 - 1 / 144
_RTOL = 1e-12  # of the flows, whose modes are held to 1e-10

Weights = dict[str, Array]


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Both kinds of networks."""
    steps = round(o.duration / o.learning_rate)
    if not 2 <= steps <= 100_000:
        raise OptionError(
            f"duration {o.duration:g} at learning rate {o.learning_rate:g} is {steps} steps"
        )
    grid = np.linspace(0, o.duration, 101)
    variables: Variables = {}
    for k, kind in enumerate(KINDS):
        progress(0.1 + 0.4 * k, f"{kind} networks, {steps} steps of gradient descent")
        variables |= _aligned(o, kind, grid) | _random(o, kind, steps)
    records = np.append(np.arange(0, steps, sim.spacing(steps)), steps)
    coords = {
        "time": ("time", o.learning_rate * records, {"units": "tau"}),
        "flow_time": ("flow_time", grid, {"units": "tau"}),
        "seed": np.arange(o.seeds),
        "feature": ["x1", "x2"],
        "context": [1, 2],
        "one": [0],
    }
    return labelled("Contextual classification, N A.2", coords, variables)


def _total(weights: Weights) -> Array:
    """(pathway, 2) total weights of the pathways."""
    count = len(weights) // 2
    return jnp.stack([(weights[f"h{c}->y"] @ weights[f"x->h{c}"])[0] for c in range(1, count + 1)])


def _pathway(kind: str) -> str:
    return "one" if kind == "linear" else "context"


def _aligned(o: Options, kind: str, grid: np.ndarray) -> Variables:
    """Gradient flow from aligned weights, and the closed form."""
    task = tasks.contextual_classification(gating=KINDS[kind], width=o.width)
    reduction = gdln.reduce(task.graph, task.data)
    flow = gdln.gradient_flow(
        reduction.embed(math.sqrt(A0)),
        task.data,
        grid,
        rtol=_RTOL,
        measure=lambda net: _total(dict(net.weights)),
    )
    s, d, limit = task.meta["s"], task.meta["d"], np.asarray(task.meta["limit"])
    theory = np.asarray(exact.linear_mode(grid, s, d, A0))
    loss = task.meta["final_loss"] + len(limit) * (s - d * theory) ** 2 / (2 * d)
    dims = _pathway(kind), "feature"
    return {
        f"{kind}_loss_flow": ("flow_time", flow.losses, "loss, aligned start, flow"),
        f"{kind}_weights_flow": (("flow_time", *dims), flow.measured, "total weights, flow"),
        f"{kind}_mode_theory": ("flow_time", theory, "closed form of the mode a(t)"),
        f"{kind}_loss_theory": ("flow_time", loss, "loss by the closed form"),
        f"{kind}_limit": (dims, limit, "limit of the total weights"),
        f"{kind}_residual": ((), reduction.residual, "residual of the reduction"),
    }


def _random(o: Options, kind: str, steps: int) -> Variables:
    """Gradient descent from random weights, on the population and on samples."""
    task = tasks.contextual_classification(gating=KINDS[kind], width=o.width)

    def initial(key: PRNGKeyArray) -> Weights:
        return dict(GatedNetwork.init(task.graph, init.normal(o.std), key=key).weights)

    def descend(weights: Weights, moments: Array) -> gdln.Trajectory:
        return gdln.train(
            weights,
            moments,
            optimizer=optax.sgd(o.learning_rate),
            steps=steps,
            loss=_loss,
            save_every=sim.spacing(steps),
            measure=_total,
            keep_models=False,
        )

    drawn = _samples(o)
    # Second moments are all that squared error sees; one program for population and samples.
    samples = jax.vmap(_moments)(*drawn)
    population = jnp.broadcast_to(_moments(*_population(task)), samples.shape)
    nets = jax.vmap(initial)(sim.keys(o.seed, o.seeds))
    all_runs = jax.jit(jax.vmap(jax.vmap(descend), in_axes=(None, 0)))
    run = all_runs(nets, jnp.stack([population, samples]))
    if np.any(np.asarray(run.status)):
        raise OptionError("some networks diverged; use a smaller learning_rate")
    maps, dims = np.asarray(run.measured), (_pathway(kind), "feature")
    best, examples = _least_squares(kind, *drawn), _loss_of_examples(maps[1, :, -1], *drawn)
    found: Variables = {
        f"{kind}_best": (("seed", *dims), best, "least squares on the sample"),
        f"{kind}_examples": ("seed", examples, "final loss on the sample, example by example"),
    }
    for k, name in enumerate(("population", "samples")):
        found[f"{kind}_loss_{name}"] = (("seed", "time"), run.losses[k], f"loss, {name}")
        rows = "seed", "time", *dims
        found[f"{kind}_weights_{name}"] = (rows, maps[k], f"total weights, {name}")
    return found


def _samples(o: Options) -> tuple[np.ndarray, np.ndarray]:
    """x (seed, context, example, 2) uniform on the square, and y (seed, context, example)."""
    key = jax.random.fold_in(jax.random.key(o.seed), 2**31 - 1)
    shape = (o.seeds, 2, o.samples // 2, 2)
    x = np.asarray(jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))
    return x, np.stack([x[:, c, :, c] for c in range(2)], axis=1)


def _population(task: tasks.Task) -> tuple[np.ndarray, np.ndarray]:
    """The task's pseudo-examples by context: x (context, example, 2), y (context, example)."""
    assert isinstance(task.data, gdln.GatedData)
    x, y = np.asarray(task.data.inputs["x"]), np.asarray(task.data.targets["y"])[:, 0]
    rows = [task.meta["context"] == c for c in range(2)]
    return np.stack([x[row] for row in rows]), np.stack([y[row] for row in rows])


def _moments(x: ArrayLike, y: ArrayLike) -> Array:
    """(context, 3, 3) second moments of (x_1, x_2, y)."""
    joint = jnp.concatenate([jnp.asarray(x), jnp.asarray(y)[..., None]], axis=-1)
    return jnp.einsum("cni,cnj->cij", joint, joint) / joint.shape[1]


def _loss(weights: Weights, moments: Array) -> Array:
    """Loss by second moments, contexts equally often: 1/2 <(y - w x)^2>."""
    maps = _total(weights)
    residual = jnp.concatenate([-maps, jnp.ones((len(maps), 1))], axis=1)
    residual = jnp.broadcast_to(residual, (2, 3))
    return jnp.einsum("ci,cij,cj->", residual, moments, residual) / 4


def _least_squares(kind: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(seed, pathway, 2) the best total weights on each sample."""
    if kind == "linear":
        x, y = x.reshape(len(x), 1, -1, 2), y.reshape(len(y), 1, -1)
    return (np.linalg.pinv(x) @ y[..., None])[..., 0]


def _loss_of_examples(maps: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(seed,) losses example by example."""
    prediction = np.einsum("scni,sci->scn", x, np.broadcast_to(maps, (len(x), 2, 2)))
    return np.mean((y - prediction) ** 2, axis=(1, 2)) / 2


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    numbers: Numbers = {}
    for kind in KINDS:
        v = {str(n).removeprefix(f"{kind}_"): data[n].values for n in data if kind in str(n)}
        known = np.array(REFERENCE_WEIGHTS[kind])
        # Along the limit's direction the mode a(t); nothing beside it.
        direction = v["limit"] / np.linalg.norm(v["limit"], axis=1)[:, None]
        theory = v["mode_theory"][:, None, None] * direction
        final, sampled = v["weights_population"][:, -1], v["weights_samples"][:, -1]
        errors = {
            "flow": v["weights_flow"] - theory,
            "limit": final - known,
            "loss": v["loss_population"][:, -1].max() - REFERENCE_LOSS[kind],
            "fit": sampled - v["best"],
            "moments": v["loss_samples"][:, -1] - v["examples"],
            "away": v["best"] - known,
        }
        numbers |= {f"{kind}_{name}": float(np.abs(e).max()) for name, e in errors.items()}
        numbers[f"{kind}_final"] = float(np.median(v["loss_population"][:, -1]))
    examples = data["linear_examples"].values
    mean, count = float(examples.mean()), o.seeds * (o.samples // 2) * 2
    # Of the least squares fit on n examples, 2 of whose degrees of freedom are used up.
    expected = (1 - 2 / o.samples) / 12
    first, second = np.median(data["linear_weights_population"][:, -1, 0], axis=0)
    return numbers | {
        "mean": abs(mean - expected) / math.sqrt(VARIANCE / count),
        "sample_loss": mean,
        "sample_sd": float(examples.std()),
        "first": float(first),
        "second": float(second),
        "residual": float(data["gated_residual"]),
    }
