"""N Fig. 7-10: the runs, and the numbers that checks and text use."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from scipy.stats import spearmanr

from gdln_jax import images, tasks
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.images import GOOD_GAP, Options

# Rates stay below this part of the largest stable one at the start: at 0.8 digits and MNIST train
# at gain 10, at 1.6 times it they diverge (leaky ReLU).
STABLE_PART = 0.8
PROBE = 20  # steps that are timed before the run is estimated
MEANINGS = {
    "panel": "0: against K, 1: against the gain",
    "m": "number of domains M",
    "k": "trained outputs per input K",
    "seed": "initial weights and routes",
    "gain": "gain of Xavier weights",
    "gap": "sigma_2/sigma_1 of the trained routes",
    "trained": "test accuracy, trained routes",
    "untrained": "test accuracy, untrained routes",
}
SETTINGS = ("loss", "over", "batch_size", "momentum", "batches", "stop_at", "patience")
Encode = Callable[[Array], Array] | None
Cell = tuple[int, int, int, float, int]  # panel, M, K, gain, steps


def count(o: Options, m: int, steps: int, size: int) -> int:
    """Steps of a training on `size` images for M = m, of which `steps` are asked for at M = 10."""
    if o.preset == "paper":
        return images.PAPER["epochs"] * (size // o.batch_size)
    return round(steps * (m / 10) ** 0.35)


def settings(o: Options, m: int, steps: int, stable: float = np.inf) -> images.Settings:
    """How networks of this size are trained; `stable` is the largest stable rate."""
    rate = min(o.learning_rate * (m / 10) ** 0.65, STABLE_PART * stable)
    rate = o.learning_rate if o.preset == "paper" else rate
    often = max(1, steps // o.evaluations)
    same = {name: getattr(o, name) for name in SETTINGS}
    return images.Settings(learning_rate=rate, steps=steps, evaluate_every=often, **same)


def simulate(o: Options, progress: Progress, *, encode: Encode = None) -> xr.Dataset:
    """Train all networks; the seeds of a cell are one program.

    `encode`: a frozen map of images (n, height, width, channel) to features (n, d), for example
    the first blocks of a pre-trained network, in place of the recipe's own.
    """
    try:
        train, test = images.load(o.dataset, o.data_dir)
    except ValueError as error:
        raise OptionError(str(error)) from error
    conv = o.features == "conv" or (o.features == "auto" and o.dataset == "cifar10")
    if encode is None and conv:
        progress(0.0, f"encoder: {o.encoder_steps} steps on {len(train)} images")
        key = jax.random.fold_in(jax.random.key(o.seed), 0)
        encode = images.train_encoder(train, steps=o.encoder_steps, key=key)
    train, test = train.head(o.train_images), test.head(o.test_images)
    several = {m: sorted({max(1, round(f * m)) for f in o.fractions}) for m in o.domains}
    steps = {m: count(o, m, o.steps, len(train)) for m in o.domains}
    cells: list[Cell] = [(0, m, k, o.gain, steps[m]) for m in o.domains for k in several[m]]
    first, m = len(several[o.domains[0]]) - 1, o.domains[0]
    k = max(1, round(o.gain_fraction * m))
    # As many steps for all M: that is what gain_steps says.
    cells += [(1, m, k, gain, count(o, 10, o.gain_steps, len(train))) for gain in o.gains]
    # A step costs the encoders, and the decoders of its routes.
    cost = np.array([m * (train.flat.shape[1] + 10 * k) * s for _, m, k, _, s in cells], float)
    seconds = seconds_per_step(o, train, test, cells[first], encode)
    whole = seconds * cells[first][4] / cost[first] * cost.sum()
    progress(0.0, f"estimate: about {whole:.0f} s for {len(cells) * o.seeds} networks")
    rows, agreement = [], 0.0
    for n, (panel, m, k, gain, s) in enumerate(cells):
        progress(0.95 * cost[:n].sum() / cost.sum(), f"M = {m}, K = {k}, gain {gain:g}")
        name = f"panel{panel}-M{m}-K{k}-gain{gain:g}.ckpt"
        path = o.checkpoint / name if o.checkpoint else None
        out, gaps, agreement = trained(o, train, test, cells[n], s, encode, path)
        # A network that diverged answers at chance: it says nothing, and fails the checks.
        fine = np.isfinite(out.losses[:, -1])
        last = [np.where(fine, a[:, -1], np.nan) for a in (out.trained, out.untrained)]
        rows += [(panel, m, k, i, gain, gaps[i], last[0][i], last[1][i]) for i in range(o.seeds)]
    table = np.array(rows)
    columns = [table[:, c].astype(int if c < 4 else float) for c in range(8)]
    named = zip(MEANINGS.items(), columns, strict=True)
    variables: Variables = {name: ("run", column, text) for (name, text), column in named}
    variables["agreement"] = ((), agreement, "share of labels on which output domains agree")
    return labelled("Transformed images, N Fig. 7-10", {"run": np.arange(len(rows))}, variables)


def seconds_per_step(
    o: Options, train: images.ImageSet, test: images.ImageSet, cell: Cell, encode: Encode
) -> float:
    """Time of a step, once it is compiled."""
    trained(o, train, test.head(1), cell, PROBE, encode)
    return trained(o, train, test.head(1), cell, PROBE, encode)[0].seconds_per_step


def trained(
    o: Options,
    train: images.ImageSet,
    test: images.ImageSet,
    cell: Cell,
    steps: int,
    encode: Encode = None,
    checkpoint: Path | None = None,
) -> tuple[images.Run, list[float], float]:
    """The networks of a cell, the gaps of their routes, and the agreement of labels."""
    _, m, k, gain, _ = cell
    key = jax.random.fold_in(jax.random.key(o.seed), m)
    views, weights, batches, routes = jax.random.split(key, 4)
    shape, classes = train.shape, train.classes
    transforms = images.make_transforms(
        o.kind, m, shape, classes, outputs=o.outputs, key=views, encode=encode
    )
    size = {"width": o.width, "gain": gain, "bias": o.bias, "slope": o.slope}

    # Networks of different K and gain share their initial weights, up to the gain.
    def initial(seed: Array) -> images.RoutedNetwork:
        own = jax.random.fold_in(weights, seed)
        return images.RoutedNetwork.init(m, transforms.width, classes, key=own, **size)

    nets = jax.vmap(initial)(jnp.arange(o.seeds))
    keys = [jax.random.fold_in(routes, 1000 * k + s) for s in range(o.seeds)]
    drawn = [tasks.route_matrix(m, k, pattern="random_biregular", key=key) for key in keys]
    patterns = np.stack(drawn)
    stable = images.stable_rate(nets, train, transforms, patterns, settings(o, m, steps))
    how = settings(o, m, steps, float(np.min(stable)))
    last = {"key": batches, "test": test, "checkpoint": checkpoint}
    out = images.train_images(nets, train, transforms, patterns, how, **last)
    return out, [tasks.spectral_gap(p) for p in patterns], transforms.label_agreement


def median(values: np.ndarray) -> float:
    """NaN where there are no values."""
    return float(np.median(values)) if len(values) else float("nan")


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks and text quote."""
    v = {str(name): data[name].values for name in data}
    by_k, lag = v["panel"] == 0, v["trained"] - v["untrained"]
    good, single = by_k & (v["gap"] < GOOD_GAP), by_k & (v["k"] == 1)
    large, learned = (v["panel"] == 1) & (v["gain"] == max(o.gains)), np.isfinite(v["untrained"])
    cells = {(m, k) for m, k in zip(v["m"][by_k], v["k"][by_k], strict=True)}
    worst = min(median(v["trained"][by_k & (v["m"] == m) & (v["k"] == k)]) for m, k in cells)
    ranked = by_k & learned
    return {
        "agreement": float(v["agreement"]),
        "digits": o.dataset == "digits",
        "others": o.dataset != "digits",
        "worst_digits": worst,
        "worst_others": worst,
        "lag": median(lag[good]),
        "largest": lag[good].max(initial=0),
        "single": median(v["untrained"][single]),
        "large": median(v["untrained"][large]),
        "large_trained": median(v["trained"][large]),
        "rank": spearmanr(v["untrained"][ranked], v["gap"][ranked])[0],
        "good_trained": median(v["trained"][good]),
        "good_untrained": median(v["untrained"][good]),
        "one_sided": not (good.any() and single.any()),
        "leaky": o.slope != 1,
        "cifar": o.dataset == "cifar10",
    }
