"""Training a `RoutedNetwork` on transformed images: SGD with momentum, as N App. D has it.

Only trained routes are computed; all M^2 are evaluated, in chunks. Long runs checkpoint, resume
and stop early. Inside, pixel and label permutations are absorbed into the weights, exactly, so
that training reads one copy of the images.
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import TypeAliasType

from gdln_jax._checks import Result, Suggesting, check_choice, check_integer, check_positive
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._files import expanded, writable
from gdln_jax.images._checkpoint import restore, save, spec_hash
from gdln_jax.images._evaluate import (
    accuracy_in_base,
    pixels,
    reordered,
    trained_and_untrained,
)
from gdln_jax.images._network import RoutedNetwork
from gdln_jax.images._sets import ImageSet
from gdln_jax.images._step import LOSSES, RouteTable, route_table, step
from gdln_jax.images._transforms import Transforms

Report = TypeAliasType("Report", Callable[[float, str], None])


@dataclass(frozen=True)
class Settings(Suggesting):
    """How images are trained.

    Attributes:
        loss: `"mse"` (half the squared norm, theory#conventions) or `"cross_entropy"`.
        batch_size: images per input domain and step ("per task": its K outputs share them).
        learning_rate: of SGD, momentum: heavy-ball, v <- momentum v + g, w <- w - rate v.
        steps: number of steps; `epochs` of n images are n // batch_size steps each.
        over: `"mean"` over the trained routes or their `"sum"` (the rate times K M).
        batches: `"same"` images for all input domains, as the field's script has it, or
            `"different"` ones, drawn independently. Drawn with replacement.
        evaluate_every: steps between evaluations of all routes; None: ten in all.
        stop_at: stop when both accuracies reach this; None: never.
        patience: stop after so many evaluations in which neither accuracy rose by
            `min_rise`; None: never.
        min_rise: see `patience`.
    """

    loss: str = "mse"
    batch_size: int = 8
    learning_rate: float = 1e-4
    momentum: float = 0.9
    steps: int = 10_000
    over: Literal["mean", "sum"] = "mean"
    batches: Literal["same", "different"] = "same"
    evaluate_every: int | None = None
    stop_at: float | None = None
    patience: int | None = None
    min_rise: float = 1e-3

    def __post_init__(self) -> None:
        check_choice(self.loss, LOSSES, "loss")
        check_choice(self.over, ("mean", "sum"), "over")
        check_choice(self.batches, ("same", "different"), "batches")
        check_integer(self.batch_size, "batch_size", minimum=1)
        check_integer(self.steps, "steps", minimum=1)
        check_positive(self.learning_rate, "learning_rate")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum!r}; it must lie in [0, 1).")
        for name in ("evaluate_every", "patience"):
            if getattr(self, name) is not None:
                check_integer(getattr(self, name), name, minimum=1)

    @property
    def every(self) -> int:
        """Steps between evaluations."""
        return min(self.steps, self.evaluate_every or max(1, self.steps // 10))


# N Table 1. Width 128, gains 10 to 1e-4, 10 seeds and 1000 epochs (of 7500 steps for MNIST).
PAPER = {
    "batch_size": 8,
    "learning_rate": 1e-4,
    "momentum": 0.9,
    "width": 128,
    "epochs": 1000,
    "gains": (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001),
    "seeds": 10,
}


@dataclass(frozen=True)
class Run(Result):
    """A training run, or several at once (leading axis `run` where the network had one).

    Attributes:
        net: the trained network, as seen from input and output domains.
        steps: (time,) at which it was evaluated.
        losses: (*run, time) mean training loss since the evaluation before; NaN at step 0.
        trained, untrained: (*run, time) accuracies on the test images, means over routes.
        accuracy: (*run, input, output) at the end, of every route.
        seconds_per_step: measured, of the last chunk.
        stopped: why it ended: "steps", "reached", "no rise" or "diverged".
    """

    _units: ClassVar = {"steps": "steps", "seconds_per_step": "s"}

    net: RoutedNetwork
    steps: Int[np.ndarray, " time"]
    losses: Float[np.ndarray, "*run time"]
    trained: Float[np.ndarray, "*run time"]
    untrained: Float[np.ndarray, "*run time"]
    accuracy: Float[np.ndarray, "*run input output"]
    seconds_per_step: float
    stopped: str

    def __repr__(self) -> str:
        last = (self.trained[..., -1].mean(), np.nanmean(self.untrained[..., -1:]))
        return (
            f"Run({self.steps[-1]} steps ({self.stopped}), accuracy of trained routes "
            f"{last[0]:.3f}, of untrained ones {last[1]:.3f})"
        )


def train_images(
    net: RoutedNetwork,
    images: ImageSet,
    transforms: Transforms,
    pattern: ArrayLike,
    settings: Settings,
    *,
    key: PRNGKeyArray,
    test: ImageSet | None = None,
    checkpoint: str | Path | None = None,
    progress: Report | None = None,
) -> Run:
    """Train on the routes of `pattern` and evaluate all M^2 of them on `test`.

    Args:
        net: may have a leading axis of runs on all arrays; then `pattern` is (run, M, M) with the
            same K in each, and all of them are one vmapped program. They see the same batches.
        images: training images.
        transforms: the M views and label permutations (`make_transforms`).
        pattern: (M, M) of 0 and 1, the trained routes (input, output).
        settings: how they are trained.
        key: for the batches.
        test: test images; default: the training images.
        checkpoint: a file; written after every evaluation, atomically, and resumed from if it is
            there: the result is the same to the bit as that of an undisturbed run.
        progress: called as progress(fraction done, text with both accuracies).

    Memory: weights twice, one copy of the images, one chunk of outputs; it does not grow with M
    times the images. A run whose loss is no longer finite ends with `stopped == "diverged"`
    and chance accuracies (in a batch of runs the others continue).

    Raises:
        ValueError: for images, pattern or network that do not fit one another, or a checkpoint of
            another training.
        OSError: before anything is trained, for a checkpoint that cannot be written.
    """
    runs = net.encoders[0].ndim - 3
    test = images if test is None else test
    pattern = np.asarray(pattern)
    check_fit(net, images, test, transforms, pattern, runs)
    without_length = dataclasses.asdict(dataclasses.replace(settings, steps=1)), settings.every
    spec = spec_hash(net, images.flat, images.labels, transforms, pattern, key, *without_length)
    plan = _plan(net, images, transforms, pattern, settings, key)
    net = inward(net, transforms)
    state, history = (net, jax.tree.map(jnp.zeros_like, net)), _History([], [], [], [])
    if checkpoint is not None:
        checkpoint = expanded(checkpoint)
        with writable(checkpoint.parent):
            restored = restore(checkpoint, spec, state)
        if restored is not None:
            history, state = _History(**restored[0]), restored[1]

    def evaluate() -> np.ndarray:
        absorbed = transforms.absorbs
        return accuracy_in_base(state[0], transforms, test, None, runs, absorbed=absorbed)

    accuracy, seconds = evaluate(), float("nan")
    if not history.steps:
        history.note(0, np.full(net.encoders[0].shape[:runs], np.nan), accuracy, pattern)
    while (stopped := history.ended(settings)) is None:
        done = history.steps[-1]
        count = min(settings.every, settings.steps - done)
        before = time.perf_counter()
        state, loss = _advance((plan, jnp.asarray(done), count), state)
        loss = np.asarray(loss, float)
        seconds = (time.perf_counter() - before) / count
        accuracy = evaluate()
        history.note(done + count, loss, accuracy, pattern)
        if checkpoint is not None:
            save(checkpoint, spec, vars(history), state)
        if progress is not None:
            progress((done + count) / settings.steps, history.text(settings, seconds))
    return Run(
        net=_outward(state[0], transforms),
        steps=np.array(history.steps),
        losses=_over_time(history.losses),
        trained=_over_time(history.trained),
        untrained=_over_time(history.untrained),
        accuracy=accuracy,
        seconds_per_step=seconds,
        stopped=stopped,
    )


@dataclass
class _History:
    """What every evaluation found, as plain values, of which a checkpoint is made.

    Attributes:
        steps: at which it was. losses, trained, untrained: as in `Run`, time first.
    """

    steps: list
    losses: list
    trained: list
    untrained: list

    def note(self, at: int, loss: np.ndarray, accuracy: np.ndarray, pattern: np.ndarray) -> None:
        """Add an evaluation."""
        trained, untrained = trained_and_untrained(accuracy, pattern)
        self.steps.append(int(at))
        self.losses.append(loss.tolist())
        self.trained.append(trained.tolist())
        self.untrained.append(untrained.tolist())

    def ended(self, settings: Settings) -> str | None:
        """Return why training is over, or None."""
        seen = np.array([self.trained, self.untrained], float).reshape(2, len(self.steps), -1)
        if len(self.steps) > 1 and not np.isfinite(np.array(self.losses[-1], float)).any():
            return "diverged"
        # Runs without untrained routes have NaN there, which counts as reached.
        if settings.stop_at is not None and not np.any(seen[:, -1] < settings.stop_at):
            return "reached"
        if self.steps[-1] >= settings.steps:
            return "steps"
        if settings.patience is not None and seen.shape[1] > settings.patience:
            recent, old = seen[:, -settings.patience :], seen[:, : -settings.patience]
            rise = np.nan_to_num(recent.max(axis=1) - old.max(axis=1), nan=-1.0)
            if np.all(rise < settings.min_rise):
                return "no rise"
        return None

    def text(self, settings: Settings, seconds: float) -> str:
        """Return the line for `progress`."""
        trained, untrained = np.mean(self.trained[-1]), np.mean(self.untrained[-1])
        left = seconds * (settings.steps - self.steps[-1])
        return (
            f"step {self.steps[-1]} of {settings.steps}, accuracy {trained:.3f} trained, "
            f"{untrained:.3f} untrained, {left:.0f} s left"
        )


def _over_time(values: list) -> np.ndarray:
    return np.moveaxis(np.array(values, float), 0, -1)


class _Plan(NamedTuple):
    """What stays as it is while a network trains; `rates` as in `step`."""

    table: RouteTable
    transforms: Transforms
    images: Array
    labels: Array
    rates: tuple[Array, Array, Array]
    key: PRNGKeyArray
    runs: int
    size: int
    same: bool
    loss: str


def _plan(
    net: RoutedNetwork,
    images: ImageSet,
    transforms: Transforms,
    pattern: np.ndarray,
    settings: Settings,
    key: PRNGKeyArray,
) -> _Plan:
    dtype = net.encoders[0].dtype
    scale = pattern.sum(axis=(-1, -2)).flat[0] if settings.over == "sum" else 1.0
    # Arrays, so that another rate does not compile another program.
    rate, momentum, scale = (
        jnp.asarray(value, dtype) for value in (settings.learning_rate, settings.momentum, scale)
    )
    return _Plan(
        table=route_table(pattern),
        transforms=transforms,
        images=jnp.asarray(images.flat),
        labels=jnp.asarray(images.labels),
        rates=(rate, momentum, scale),
        key=key,
        runs=net.encoders[0].ndim - 3,
        size=settings.batch_size,
        same=settings.batches == "same",
        loss=settings.loss,
    )


# Network and velocity.
_State = tuple[RoutedNetwork, RoutedNetwork]


@eqx.filter_jit(donate="all-except-first")
def _advance(fixed: tuple[_Plan, Array, int], state: _State) -> tuple[_State, Array]:
    """Take `count` steps from number `start`; also the mean loss of each run."""
    plan, start, count = fixed
    transforms, runs = plan.transforms, plan.runs
    m, dtype = transforms.num_domains, state[0].encoders[0].dtype

    def one(
        carry: tuple[RoutedNetwork, RoutedNetwork, Array], number: Array
    ) -> tuple[tuple[RoutedNetwork, RoutedNetwork, Array], None]:
        net, velocity, total = carry
        draw = jax.random.fold_in(plan.key, number)
        shape = (plan.size,) if plan.same else (m, plan.size)
        chosen = jax.random.randint(draw, shape, 0, len(plan.labels))
        x, y = pixels(plan.images[chosen], dtype), plan.labels[chosen]
        if not transforms.absorbs:
            x = transforms.inputs(x)

        def go(
            net: RoutedNetwork, velocity: RoutedNetwork, table: RouteTable
        ) -> tuple[RoutedNetwork, RoutedNetwork, Array]:
            return step(net, velocity, x, y, table, plan.rates, plan.loss)

        net, velocity, value = (jax.vmap(go) if runs else go)(net, velocity, plan.table)
        return (net, velocity, total + value), None

    zero = jnp.zeros(state[0].encoders[0].shape[:runs], dtype)
    (net, velocity, total), _ = jax.lax.scan(one, (*state, zero), start + jnp.arange(count))
    return (net, velocity), total / count


def inward(net: RoutedNetwork, transforms: Transforms) -> RoutedNetwork:
    """Return a network in the coordinates of training, from those of the domains."""
    net = jax.tree.map(jnp.array, net)  # a copy: the state is donated, the caller's network is not
    net = reordered(net, transforms.outputs)
    return _read_by(net, transforms.to_base) if transforms.absorbs else net


def _outward(net: RoutedNetwork, transforms: Transforms) -> RoutedNetwork:
    net = reordered(net, jnp.argsort(transforms.outputs, axis=1))
    return _read_by(net, transforms.to_views) if transforms.absorbs else net


def _read_by(net: RoutedNetwork, order: Callable[[Array], Array]) -> RoutedNetwork:
    return eqx.tree_at(lambda n: n.encoders[0], net, order(net.encoders[0]))


def check_fit(
    net: RoutedNetwork,
    images: ImageSet,
    test: ImageSet,
    transforms: Transforms,
    pattern: np.ndarray,
    runs: int,
) -> None:
    """Raise `ValueError` unless all shapes fit one another."""
    for name, one in (("images", images), ("test", test)):
        if one.shape != transforms.shape:
            raise ValueError(
                f"{name} have shape {one.shape}, the transforms are for {transforms.shape}."
            )
        if one.classes > transforms.outputs.shape[1]:
            raise ValueError(
                f"{name} have {one.classes} classes, the transforms {transforms.outputs.shape[1]}."
            )
    wanted = (transforms.num_domains, transforms.width, transforms.outputs.shape[1])
    got = (net.num_domains, net.encoders[0].shape[-1], net.decoders[-1].shape[-2])
    if wanted != got:
        raise ValueError(
            f"the network has (domains, inputs, classes) = {got}, the transforms {wanted}."
        )
    m = transforms.num_domains
    lead = net.encoders[0].shape[:runs]
    if pattern.shape != (*lead, m, m):
        raise ValueError(f"pattern has shape {pattern.shape}; expected {(*lead, m, m)}.")
    if len(np.unique(pattern.sum(axis=(-1, -2)))) > 1:
        raise ValueError("runs of one batch must train equally many routes.")
