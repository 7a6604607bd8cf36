"""N Fig. 5c: the runs, and the numbers that checks, text and figure use.

Random, cyclic and block patterns of the same K differ in their gap; rank correlations say which of
K/M and gap orders the errors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, PRNGKeyArray
from scipy.stats import rankdata

from gdln_jax import GatedNetwork, init, sweep, tasks, train
from gdln_jax.recipes import _route_maps as route_maps
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import labelled
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.generalisation import BANDS, Options

# tests/reference.json, `fig5c_M10_biregular_gain0.2_xavier`: mean and sd over 10 networks of the
# relative error on untrained routes.
REFERENCE = {1: (1.69, 0.17), 2: (1.35, 0.49), 4: (0.00022, 0.00047), 5: (3.3e-5, 0.0)}
KINDS = ("random", "cyclic", "blocks")
# Gaps of random and cyclic patterns that differ by less say nothing about the errors.
_APART = 0.05
_BOOTSTRAPS = 400


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """One row per network; all patterns and seeds of one M are one program."""
    rows = []
    cost = np.cumsum([0.0, *(float(m) ** 3 for m in o.domains)])
    for n, m in enumerate(o.domains):
        labels, patterns = routes(o, m)
        progress(0.95 * cost[n] / cost[-1], f"M = {m}: {len(labels)} networks")
        errors = trained_errors(o, m, labels[:, 2], patterns)
        with np.errstate(invalid="ignore"):
            trained, untrained = (
                np.sum(errors * chosen, axis=(1, 2)) / np.sum(chosen, axis=(1, 2))
                for chosen in (patterns, 1 - patterns)
            )
        gaps = np.array([tasks.spectral_gap(p) for p in patterns])
        rows.append(np.column_stack([np.full(len(labels), m), labels, gaps, trained, untrained]))
    table = np.concatenate(rows).T
    m, k, kind, seed = table[:4].astype(int)
    variables = {
        "m": ("run", m, "number of domains M"),
        "k": ("run", k, "trained outputs per input K"),
        "seed": ("run", seed, "initial weights"),
        "gap": ("run", table[4], "sigma_2/sigma_1 of the trained routes"),
        "trained": ("run", table[5], "relative error, trained routes"),
        "untrained": ("run", table[6], "relative error, untrained routes"),
        "kind": ("run", np.array(KINDS)[kind], "pattern"),
        "engine": ((), route_maps.against_engine(o.seed), "loss of the route maps - mse, relative"),
    }
    title = "Generalisation against K and against the spectral gap, N Fig. 5c"
    data = labelled(title, {"run": np.arange(len(m))}, variables)
    return data.assign_attrs(domains=list(o.domains))


def routes(o: Options, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels (run, 3): K, number of the kind, seed, and 0/1 patterns (run, M, M)."""
    labels, patterns = [], []
    key = jax.random.fold_in(jax.random.key(o.seed), m)
    half = np.kron(np.eye(2), np.ones((m // 2, m // 2)))
    for k in o.counts(m):
        for seed in range(o.networks(m)):
            for kind, name in enumerate(KINDS):
                if name == "blocks":
                    if k != m // 2:
                        continue
                    pattern = half
                elif name == "cyclic" and (k in (1, m) or seed % 2):
                    continue  # as random ones, up to names; one pattern needs fewer networks
                else:
                    one = jax.random.fold_in(jax.random.fold_in(key, k), seed)
                    kind_of = "cyclic" if kind else "random_biregular"
                    pattern = tasks.route_matrix(m, k, pattern=kind_of, key=one)
                labels.append((k, kind, seed))
                patterns.append(pattern)
    return np.array(labels), np.stack(patterns)


def trained_errors(o: Options, m: int, seeds: np.ndarray, patterns: np.ndarray) -> np.ndarray:
    """Relative errors (run, input, output) after training, float32."""
    y = jnp.asarray(tasks.hierarchy_features(), jnp.float32)
    graph = tasks.routing(m, 1, width=o.width, compact=True).graph
    steps = round(o.duration * m / o.rate(m))
    if not 2 <= steps <= 100_000:
        raise OptionError(f"M = {m} takes {steps} steps; change duration or learning_rate")
    # Networks of different K share their initial weights: only the pattern differs.
    keys = jax.vmap(lambda s: jax.random.fold_in(jax.random.key(o.seed + 1), s))(jnp.asarray(seeds))
    chosen = jnp.asarray(patterns, jnp.float32)
    rate = jnp.asarray(o.rate(m), jnp.float32)

    def one(_: PRNGKeyArray, network: Array) -> dict[str, Array]:
        net = GatedNetwork.init(graph, init.xavier(o.gain), key=keys[network])
        out = train(
            tuple(w.astype(jnp.float32) for w in net.stacks),
            chosen[network],
            optimizer=optax.sgd(rate),
            steps=steps,
            save_every=steps,
            loss=lambda w, p: route_maps.loss(w, p, y),
            keep_models=False,
        )
        return {"errors": route_maps.errors(out.final, y), "status": out.status}

    # The key of the sweep is not used: see above.
    axes = {"network": np.arange(len(patterns))}
    found = sweep(one, axes, key=jax.random.key(o.seed + 1), progress=False)
    bad = np.flatnonzero(found["status"].values != 0)
    if len(bad):
        raise OptionError(f"M = {m}, network {bad[0]} diverged; use a smaller learning_rate")
    return np.asarray(found["errors"].values, float)


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    m, k, kind, untrained = (data[name].values for name in ("m", "k", "kind", "untrained"))
    first = o.domains[0]

    def cell(domains: int, count: int, of: str = "random") -> np.ndarray:
        return untrained[(m == domains) & (k == count) & (kind == of)]

    cells = data["trained"].groupby(["m", "k", "kind"]).median()
    blocks = [float(np.median(b)) for x in o.domains if len(b := cell(x, x // 2, "blocks"))]
    numbers: Numbers = {
        "m": first,
        "engine": float(data["engine"]),
        "trained": float(cells.max()),
        "of_the_paper": (first, o.width, o.gain) == (10, 64, 0.2),
        "blocks_least": min(blocks),
        "blocks_most": max(blocks),
        "blocks": float(np.median(untrained[kind == "blocks"])),
        "mixed": ", ".join(f"{np.median(cell(x, x // 2)):.2g}" for x in o.domains),
        "count": int(np.isfinite(untrained).sum()),
        "threshold": ", ".join(f"{threshold(data, x):.3g} for M = {x}" for x in o.domains),
    }
    for count in BANDS if numbers["of_the_paper"] else ():
        low, middle, high = np.quantile(cell(10, count), (0.1, 0.5, 0.9))
        numbers |= {f"untrained_{count}": middle, f"spread_{count}": f"{low:.2g} to {high:.2g}"}
    middle = np.quantile(cell(first, round(0.4 * first)), (0.5, 0.1, 0.9)).tolist()
    numbers |= dict(zip(("at_40", "at_40_low", "at_40_high"), middle, strict=True))
    return numbers | ranks(data, o.seed) | same_count(data)


def ranks(data: xr.Dataset, seed: int) -> Numbers:
    """Rank correlation of the untrained error with the gap, with -K/M, and their difference.

    Each with the 2.5 and 97.5 % quantiles over bootstrap samples of the networks; `mixed_` without
    the disjoint blocks.
    """
    numbers: Numbers = {}
    for prefix, chosen in (("", KINDS), ("mixed_", KINDS[:2])):
        used = np.isfinite(data["untrained"].values) & np.isin(data["kind"].values, chosen)
        shares = -data["k"].values / data["m"].values
        values = np.stack([data["untrained"].values, data["gap"].values, shares])[:, used]
        rng = np.random.default_rng(seed)
        picks = rng.integers(values.shape[1], size=(_BOOTSTRAPS, values.shape[1]))
        samples = np.concatenate([values[:, None], values[:, picks]], axis=1)
        order = rankdata(samples, axis=-1)
        order = order - order.mean(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore"):  # of a constant: NaN, which fails
            order = order / np.linalg.norm(order, axis=-1, keepdims=True)
        gap, count = np.einsum("sn,csn->cs", order[0], order[1:])
        for name, found in (("gap", gap), ("count", count), ("difference", gap - count)):
            low, high = np.quantile(found[1:], (0.025, 0.975)).tolist()
            key = prefix + (name if name == "difference" else f"rank_{name}")
            numbers |= {key: float(found[0])}
            numbers |= {f"{prefix}{name}_low": low, f"{prefix}{name}_high": high}
    return numbers | {"better": numbers["difference_low"]}


def same_count(data: xr.Dataset) -> Numbers:
    """Errors of random and cyclic patterns of the same M and K whose gaps differ.

    Gaps close to 1 are left out: nothing is transferred there.
    """
    texts, ratios = [], []
    medians = data[["untrained", "gap"]].groupby(["m", "k", "kind"]).median()
    for m in medians["m"].values:
        for k in medians["k"].values[medians["k"].values < m]:
            of = [medians.sel(m=m, k=k, kind=kind) for kind in KINDS[:2]]
            gaps, errors = ([float(x[name]) for x in of] for name in ("gap", "untrained"))
            if gaps[0] + _APART < gaps[1] < 0.95:
                ratios.append(errors[1] / errors[0])
                texts.append(
                    f"M = {m}, K = {k}: random patterns (gap {gaps[0]:.2f}) err by "
                    f"{errors[0]:.2g} on untrained routes, cyclic ones (gap {gaps[1]:.2f}) by "
                    f"{errors[1]:.2g}, medians."
                )
    least = min(ratios, default=float("nan"))
    return {"pairs": len(ratios), "pairs_least": least, "pairs_text": " ".join(texts)}


def threshold(data: xr.Dataset, m: int) -> float:
    """Smallest K/M of random patterns whose median untrained error is below 0.1; NaN if none."""
    chosen = (data["m"].values == m) & (data["kind"].values == "random") & (data["k"].values < m)
    medians = data["untrained"][chosen].groupby(data["k"][chosen]).median()
    good = medians["k"].values[medians.values < 0.1]
    return float(good.min()) / m if len(good) else float("nan")
