"""N Fig. 7-10: real images, transformed: accuracy of trained and untrained routes against K/M,
against the spectral gap of the trained routes, and against the gain of the initial weights.

Digits by default; MNIST and CIFAR-10 from `data_dir`. With features=conv (CIFAR-10's default) from
a small encoder that is trained here and frozen; N has the first blocks of a pre-trained ResNet-18.
Errata: E10-E12.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import spearmanr

from gdln_jax import images, tasks
from gdln_jax.images import PAPER, Settings
from gdln_jax.recipes import _ensembles as sim
from gdln_jax.recipes._images_figure import dataset, draw
from gdln_jax.recipes._options import OptionError
from gdln_jax.recipes._recipe import Check, Progress, Result, silent
from gdln_jax.recipes._run import Told, perform

# Rates stay below this part of the largest stable one at the start: at .8 digits and MNIST train at
# gain 10, at 1.6 times it they diverge (leaky ReLU).
_STABLE_PART = 0.8
# Gaps "well above" and "well below" the threshold near .7 (E11/12).
_GOOD_GAP = 0.6
# Steps timed before the run is estimated.
_PROBE = 20


@dataclass(frozen=True)
class Options:
    """Options of the recipe. N's values are `images.PAPER`; the defaults show the same on 2 cores.

    Attributes:
        dataset: digits, mnist or cifar10. data_dir: folder of the files of the last two.
        features: pixels, conv (`images.train_encoder` on all training images, encoder_steps long),
            or auto: conv for cifar10. `run(..., encode=)` takes a frozen map of your own.
        kind: of the input transformations. outputs: label permutations; lexicographic ones as
            in the field's script agree on most labels.
        train_images, test_images: at most so many.
        domains: the numbers M. fractions: K/M. seeds, seed: networks per cell.
        width: hidden units. gain: of Xavier weights. slope: of the leaky ReLU (1: linear,
            N Fig. 9: .01). bias: whether layers have biases.
        gains: for the last panel, at the first M and K/M = gain_fraction.
        loss, over, batch_size, momentum, batches: of SGD (`images.Settings`). learning_rate: for
            M = 10; grows as M^.65, and never above .8 of `images.stable_rate`.
        steps: for M = 10, growing as M^.35; gain_steps: for the panel on gains.
        evaluations: of all routes per network; stop_at, patience: early stop at one of them.
        checkpoint: folder for the state of each training; the same call goes on from there.
        preset: `paper` puts N's values (`images.PAPER`) where an option has its default, and
            takes rate and steps (1000 epochs) for all M and gains alike. Weeks on a CPU.
    """

    dataset: Literal["digits", "mnist", "cifar10"] = "digits"
    data_dir: Path | None = None
    features: Literal["auto", "pixels", "conv"] = "auto"
    encoder_steps: int = 1000
    kind: Literal["permutation", "rotation"] = "permutation"
    outputs: Literal["random", "lexicographic"] = "random"
    train_images: int = 10_000
    test_images: int = 1000
    domains: tuple[int, ...] = (10, 20)
    fractions: tuple[float, ...] = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 0.8)
    seeds: int = 2
    seed: int = 0
    width: int = 64
    gain: float = 0.1
    slope: float = 1.0
    bias: bool = True
    gains: tuple[float, ...] = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
    gain_fraction: float = 0.5
    loss: Literal["mse", "cross_entropy"] = "mse"
    batch_size: int = 8
    momentum: float = 0.9
    batches: Literal["same", "different"] = "same"
    learning_rate: float = 0.05
    steps: int = 6000
    gain_steps: int = 20_000
    over: Literal["mean", "sum"] = "mean"
    evaluations: int = 1
    stop_at: float | None = None
    patience: int | None = None
    checkpoint: Path | None = None
    preset: Literal["small", "paper"] = "small"

    def __post_init__(self) -> None:
        if self.preset == "paper":
            for name, value in _PAPER.items():
                if getattr(self, name) == getattr(type(self), name):
                    object.__setattr__(self, name, value)
        sim.check_numbers(
            self,
            ("seeds", "width", "steps", "gain_steps", "batch_size", "train_images", "test_images",
             "evaluations", "encoder_steps"),
            ("gain", "learning_rate", "gain_fraction"),
        )  # fmt: skip
        if not self.domains or min(self.domains) < 2:
            raise ValueError(f"domains must be numbers of at least 2, got {self.domains}")
        if not self.fractions or not all(0 < f <= 1 for f in self.fractions):
            raise ValueError(f"fractions must lie between 0 and 1, got {self.fractions}")
        if not self.gains or min(self.gains) <= 0:
            raise ValueError(f"gains must be positive, got {self.gains}")
        if self.dataset != "digits" and self.data_dir is None:
            raise ValueError(f"{self.dataset} is read from files: set data_dir")

    def counts(self, m: int) -> tuple[int, ...]:
        """The K of M = m."""
        return tuple(sorted({max(1, round(f * m)) for f in self.fractions}))

    def count(self, m: int, steps: int, images: int) -> int:
        """Steps of a training for M = m, of which `steps` are wanted at M = 10."""
        if self.preset == "paper":
            return PAPER["epochs"] * (images // self.batch_size)
        return round(steps * (m / 10) ** 0.35)

    def settings(self, m: int, steps: int, stable: float = np.inf) -> Settings:
        """How networks of this size are trained; `stable` is the largest stable rate."""
        rate = self.learning_rate
        if self.preset != "paper":
            rate = min(rate * (m / 10) ** 0.65, _STABLE_PART * stable)
        return Settings(
            loss=self.loss, over=self.over, batch_size=self.batch_size, learning_rate=rate,
            momentum=self.momentum, batches=self.batches, steps=steps,
            evaluate_every=max(1, steps // self.evaluations),
            stop_at=self.stop_at, patience=self.patience,
        )  # fmt: skip


# What N Table 1 fixes; the epochs are `Options.count`'s.
_PAPER = {
    name: PAPER[name]
    for name in ("batch_size", "learning_rate", "momentum", "width", "gains", "seeds")
} | {"train_images": 60_000, "test_images": 10_000}


QUICK = {
    "domains": (10,), "fractions": (0.1, 0.2, 0.4, 0.6), "seeds": 1, "gains": (10.0, 0.1),
    "gain_steps": 20_000, "steps": 5000,
}  # fmt: skip


@dataclass(frozen=True)
class Runs:
    """One row per network; `panel` 0 is against K, 1 against the gain."""

    panel: np.ndarray
    m: np.ndarray
    k: np.ndarray
    seed: np.ndarray
    gain: np.ndarray
    gap: np.ndarray
    trained: np.ndarray
    untrained: np.ndarray
    agreement: float


def run(
    options: Options, progress: Progress = silent, *, encode: Callable[[Array], Array] | None = None
) -> Result:
    """Make N Fig. 7b-d and 8-10 in one picture.

    `encode`: a frozen map of images (n, height, width, channel) to features (n, d), for example
    the first blocks of a pre-trained network, in place of the recipe's own.
    """

    def simulated(options: Options, progress: Progress) -> Runs:
        return simulate(options, progress, encode=encode)

    return perform("images", options, progress, simulated, _check, _tell)


def _check(options: Options, runs: Runs) -> tuple[Iterator[Check], dict[str, Any]]:
    return check(options, runs), {}


def _tell(options: Options, runs: Runs, facts: dict[str, Any]) -> Told:
    del facts
    data = dataset(options, runs)
    return Told(data, lambda: draw(data), _finding(runs), _notes(options, runs))


def simulate(
    options: Options, progress: Progress = silent, *, encode: Callable[[Array], Array] | None = None
) -> Runs:
    """Train all networks; the seeds of a cell are one program."""
    o = options
    try:
        train, test = images.load(o.dataset, o.data_dir)
    except ValueError as error:
        raise OptionError(str(error)) from error
    conv = o.features == "conv" or (o.features == "auto" and o.dataset == "cifar10")
    if encode is None and conv:
        progress(0.0, f"encoder: {o.encoder_steps} steps on {len(train)} images")
        encode = images.train_encoder(
            train, steps=o.encoder_steps, key=jax.random.fold_in(jax.random.key(o.seed), 0)
        )
    train, test = train.head(o.train_images), test.head(o.test_images)
    cells = [
        (0, m, k, o.gain, o.count(m, o.steps, len(train)))
        for m in o.domains for k in o.counts(m)
    ]  # fmt: skip
    m = o.domains[0]
    k = max(1, round(o.gain_fraction * m))
    # As many steps for all M: that is what gain_steps says.
    cells += [(1, m, k, gain, o.count(10, o.gain_steps, len(train))) for gain in o.gains]
    # A step costs the encoders, and the decoders of its routes.
    cost = np.array([m * (train.flat.shape[1] + 10 * k) * s for _, m, k, _, s in cells], float)
    done = np.concatenate([[0.0], np.cumsum(cost)]) / cost.sum()
    probe = cells[len(o.counts(m)) - 1]
    seconds = _seconds_per_step(o, train, test, probe, encode)
    whole = seconds * probe[4] / cost[len(o.counts(m)) - 1] * cost.sum()
    progress(0.0, f"estimate: about {whole:.0f} s for {len(cells) * o.seeds} networks")
    rows, agreement = [], 0.0
    for cell, fraction in zip(cells, done[:-1], strict=True):
        panel, m, k, gain, steps = cell
        progress(0.95 * fraction, f"M = {m}, K = {k}, gain {gain:g}")
        name = f"panel{panel}-M{m}-K{k}-gain{gain:g}.ckpt"
        out, gaps, agreement = _train(
            o, train, test, cell, steps, encode, o.checkpoint / name if o.checkpoint else None
        )
        # A network that diverged answers at chance: it says nothing, and fails the checks.
        fine = np.isfinite(out.losses[:, -1])
        last = [np.where(fine, a[:, -1], np.nan) for a in (out.trained, out.untrained)]
        rows += [(panel, m, k, s, gain, gaps[s], last[0][s], last[1][s]) for s in range(o.seeds)]
    table = np.array(rows)
    whole_numbers = [table[:, c].astype(int) for c in range(4)]
    return Runs(*whole_numbers, *(table[:, c] for c in range(4, 8)), agreement=agreement)


def _seconds_per_step(o: Options, train: Any, test: Any, cell: Any, encode: Any) -> float:
    _train(o, train, test.head(1), cell, _PROBE, encode)  # compiles
    return _train(o, train, test.head(1), cell, _PROBE, encode)[0].seconds_per_step


def _train(
    o: Options,
    train: Any,
    test: Any,
    cell: tuple[int, int, int, float, int],
    steps: int,
    encode: Any = None,
    checkpoint: Path | None = None,
) -> tuple[images.Run, list[float], float]:
    _, m, k, gain, _ = cell
    key = jax.random.fold_in(jax.random.key(o.seed), m)
    views, weights, batches, routes = jax.random.split(key, 4)
    transforms = images.make_transforms(
        o.kind,
        m,
        train.shape,
        train.classes,
        outputs=o.outputs,
        key=views,
        encode=encode,
    )
    # Networks of different K and gain share their initial weights, up to the gain.
    nets = jax.vmap(
        lambda seed: images.RoutedNetwork.init(
            m,
            transforms.width,
            train.classes,
            width=o.width,
            gain=gain,
            bias=o.bias,
            slope=o.slope,
            key=jax.random.fold_in(weights, seed),
        )
    )(jnp.arange(o.seeds))
    patterns = np.stack(
        [
            tasks.route_matrix(
                m, k, pattern="random_biregular", key=jax.random.fold_in(routes, 1000 * k + s)
            )
            for s in range(o.seeds)
        ]
    )
    stable = images.stable_rate(nets, train, transforms, patterns, o.settings(m, steps))
    out = images.train_images(
        nets, train, transforms, patterns, o.settings(m, steps, float(np.min(stable))),
        key=batches, test=test, checkpoint=checkpoint,
    )  # fmt: skip
    return out, [tasks.spectral_gap(p) for p in patterns], transforms.label_agreement


def check(options: Options, runs: Runs) -> Iterator[Check]:
    """All assertions."""
    by_k, gap = runs.panel == 0, runs.gap
    above = by_k & (gap < _GOOD_GAP)
    single = by_k & (runs.k == 1)
    lag = runs.trained - runs.untrained
    yield Check.below(
        "label agreement of two output domains", runs.agreement,
        0.2, "1/classes in the mean for random permutations",
    )  # fmt: skip
    yield Check.between(
        "trained routes, small gain: accuracy, worst median of a cell",
        _worst(runs, by_k), 0.85 if options.dataset == "digits" else 0.25, 1.0,
    )  # fmt: skip
    yield Check.between(
        f"gap < {_GOOD_GAP}: trained - untrained accuracy, median",
        _median(lag[above]), -1.0, 0.03,
        f"{above.sum()} networks, largest {lag[above].max(initial=0):.3f}",
    )  # fmt: skip
    yield Check.below(
        "K = 1: untrained accuracy, median", _median(runs.untrained[single]), 0.25,
        f"{single.sum()} networks; chance is .1",
    )  # fmt: skip
    big = (runs.panel == 1) & (runs.gain == max(options.gains))
    yield Check.below(
        f"gain {max(options.gains):g}: untrained accuracy, median",
        np.median(runs.untrained[big]), 0.25,
        "if it is learning at all, which the next check says",
    )  # fmt: skip
    yield Check.between(
        f"gain {max(options.gains):g}: trained accuracy, median",
        np.median(runs.trained[big]), 0.35, 1.0,
        f"still rising after {options.gain_steps} steps: large weights need small steps",
    )  # fmt: skip
    partial = by_k & np.isfinite(runs.untrained)
    yield Check.between(
        "rank correlation of the untrained accuracy with the gap",
        spearmanr(runs.untrained[partial], gap[partial])[0], -1.0, -0.6,
    )  # fmt: skip


def _median(values: np.ndarray) -> float:
    """Not-a-number where there are none."""
    return float(np.median(values)) if len(values) else float("nan")


def _worst(runs: Runs, rows: np.ndarray) -> float:
    cells = {(m, k) for m, k in zip(runs.m[rows], runs.k[rows], strict=True)}
    return min(
        float(np.median(runs.trained[rows & (runs.m == m) & (runs.k == k)])) for m, k in cells
    )


def _finding(runs: Runs) -> str:
    above = (runs.panel == 0) & (runs.gap < _GOOD_GAP)
    single = (runs.panel == 0) & (runs.k == 1)
    return (
        f"above the gap threshold untrained routes reach "
        f"{_median(runs.untrained[above]):.3f}, trained ones {_median(runs.trained[above]):.3f}"
        f"; with one trained route per input {_median(runs.untrained[single]):.3f} (medians)."
    )


def _notes(options: Options, runs: Runs) -> Iterator[str]:
    by_k = runs.panel == 0
    if not (np.any(by_k & (runs.gap < _GOOD_GAP)) and np.any(by_k & (runs.k == 1))):
        yield "No cells on both sides of the threshold: choose other fractions."
    if options.slope != 1:
        yield (
            "A leaky ReLU network at gain 10 does not learn in any affordable number of steps (its "
            "outputs begin a hundred times too large and are not linear in the images: digits, "
            "after 150,000 steps near the largest stable rate, are still at .12, on training "
            "images too), so that the check of trained accuracy fails there. N varies the gain of "
            "linear networks only: set gains to smaller ones."
        )
    yield f"Two output domains agree on {runs.agreement:.1%} of labels ({options.outputs})."
    yield (
        "With pixel permutations the task is M copies of the same data in other coordinates: "
        "gradient descent commutes with them, so what is shared is learned by the routes alone."
    )
    if options.dataset == "cifar10":
        yield (
            "N feeds CIFAR-10 through the first blocks of a pre-trained ResNet-18; here through a "
            "small encoder trained on the spot (features=conv), your own (encode), or as pixels."
        )
