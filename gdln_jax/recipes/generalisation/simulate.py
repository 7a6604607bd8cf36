"""N Fig. 5c: the runs, and the numbers that checks, text and figure use.

Random, cyclic and block patterns of the same K differ in their gap; rank correlations say which of
K/M and gap orders the errors.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import xarray as xr
from jaxtyping import Array, PRNGKeyArray
from scipy.stats import rankdata

from gdln_jax import GatedNetwork, init, sweep, tasks, train
from gdln_jax.recipes._core import route_maps
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import labelled
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.generalisation import BANDS, Options

# tests/reference.json, `fig5c_M10_biregular_gain0.2_xavier`: mean and sd over 10 networks of the
# relative error on untrained routes.
REFERENCE = {1: (1.69, 0.17), 2: (1.35, 0.49), 4: (0.00022, 0.00047), 5: (3.3e-5, 0.0)}
KINDS = ("random", "cyclic", "blocks")


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
    return labelled(title, {"run": np.arange(len(m))}, variables)


def routes(o: Options, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels (run, 3): K, number of the kind, seed, and 0/1 patterns (run, M, M)."""
    labels, patterns = [], []
    key = jax.random.fold_in(jax.random.key(o.seed), m)
    half = np.kron(np.eye(2), np.ones((m // 2, m // 2)))
    few = tuple(sorted({max(1, round(f * m)) for f in o.fractions}))
    # Seeds: the large ones cost far more; fewer of them, but at least two.
    seeds = range(max(2, o.seeds * o.domains[0] // m))
    for k in range(1, m + 1) if m == o.domains[0] else few:
        for seed in seeds:
            for kind, name in enumerate(KINDS):
                # A cyclic pattern is one of few, and as a random one at K = 1 and M.
                if k != m // 2 if name == "blocks" else kind and (k in (1, m) or seed % 2):
                    continue
                one = jax.random.fold_in(jax.random.fold_in(key, k), seed)
                of = "cyclic" if kind else "random_biregular"
                pattern = half if kind == 2 else tasks.route_matrix(m, k, pattern=of, key=one)
                labels.append((k, kind, seed))
                patterns.append(pattern)
    return np.array(labels), np.stack(patterns)


def trained_errors(o: Options, m: int, seeds: np.ndarray, patterns: np.ndarray) -> np.ndarray:
    """Relative errors (run, input, output) after training, float32."""
    y = jnp.asarray(tasks.hierarchy_features(), jnp.float32)
    graph = tasks.routing(m, 1, width=o.width, compact=True).graph
    # Two thirds of the largest stable step, which grows about as M^0.65 (mode 1 of Eq. 13-14).
    step = o.learning_rate * (m / 10) ** 0.65
    steps = round(o.duration * m / step)
    if not 2 <= steps <= 100_000:
        raise OptionError(f"M = {m} takes {steps} steps; change duration or learning_rate")
    # Networks of different K share their initial weights: only the pattern differs.
    keys = jax.vmap(lambda s: jax.random.fold_in(jax.random.key(o.seed + 1), s))(jnp.asarray(seeds))
    chosen = jnp.asarray(patterns, jnp.float32)
    rate = jnp.asarray(step, jnp.float32)

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

    found = sweep(one, {"network": np.arange(len(patterns))}, key=keys[0], progress=False)
    bad = np.flatnonzero(found["status"].values != 0)
    if len(bad):
        raise OptionError(f"M = {m}, network {bad[0]} diverged; use a smaller learning_rate")
    return np.asarray(found["errors"].values, float)


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    table: Any = data.drop_vars("engine").to_dataframe()
    medians = table.groupby(["kind", "m", "k"])[["trained", "untrained", "gap"]].median()
    untrained, m = medians["untrained"], o.domains[0]
    blocks, mixed = (
        untrained.reindex([(kind, x, x // 2) for x in o.domains]).dropna()
        for kind in ("blocks", "random")
    )
    good = untrained["random"][untrained["random"] < 0.1].reset_index().groupby("m")["k"].min()
    least = (good / good.index).reindex(o.domains)

    quantile = table[table["kind"] == "random"].groupby(["m", "k"])["untrained"].quantile
    low, middle, high = (quantile(q).loc[m] for q in (0.1, 0.5, 0.9))
    forty = round(0.4 * m)
    numbers: Numbers = {
        "m": m,
        "engine": float(data["engine"]),
        "trained": medians["trained"].max(),
        "of_the_paper": (m, o.width, o.gain) == (10, 64, 0.2),
        "blocks_least": blocks.min(),
        "blocks_largest": blocks.max(),
        "blocks": table["untrained"][table["kind"] == "blocks"].median(),
        "blocks_text": blocks.map("{:.2g}".format).str.cat(sep=", "),
        "mixed": mixed.map("{:.2g}".format).str.cat(sep=", "),
        "at_40": middle[forty],
        "at_40_low": low[forty],
        "at_40_high": high[forty],
        "networks": table["untrained"].count(),
        "threshold": ", ".join(f"{x:.3g} for M = {number}" for number, x in least.items()),
    }
    for k in BANDS if numbers["of_the_paper"] else ():
        spread = f"10 to 90 %: {low[k]:.2g} to {high[k]:.2g}"
        numbers |= {f"untrained_{k}": middle[k], f"of_{k}": spread}
    without = ranks(table[table["kind"] != "blocks"].dropna(), o.seed)
    numbers |= ranks(table.dropna(), o.seed) | {f"no_{k}": v for k, v in without.items()}
    return numbers | {"better": numbers["difference_low"]} | same_count(medians)


def ranks(table: pd.DataFrame, seed: int) -> Numbers:
    """Rank correlation of the untrained error with the gap, with -K/M, and their difference.

    Each with the 2.5 and 97.5 % quantiles over bootstrap samples of the networks.
    """
    values = np.stack([table["untrained"], table["gap"], -table["k"] / table["m"]])
    picks = np.random.default_rng(seed).integers(len(table), size=(400, len(table)))
    order = rankdata(np.concatenate([values[:, None], values[:, picks]], axis=1), axis=-1)
    order = order - order.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # of a constant: NaN, which fails
        order = order / np.linalg.norm(order, axis=-1, keepdims=True)
    gap, count = np.einsum("sn,csn->cs", order[0], order[1:])
    numbers: Numbers = {}
    for name, found in (("gap", gap), ("count", count), ("difference", gap - count)):
        low, high = np.quantile(found[1:], (0.025, 0.975)).tolist()
        numbers |= {name: float(found[0]), f"{name}_low": low, f"{name}_high": high}
    return numbers


def same_count(medians: Any) -> Numbers:
    """Random and cyclic patterns of one K whose gaps differ by 0.05 and are well below 1."""
    both: Any = pd.concat(
        [medians.loc["random"], medians.loc["cyclic"].add_suffix("_cyclic")], axis=1
    )
    both = both[(both["gap"] + 0.05 < both["gap_cyclic"]) & (both["gap_cyclic"] < 0.95)]
    texts = [
        f"M = {m}, K = {k}: random patterns (gap {row['gap']:.2f}) err by {row['untrained']:.2g} "
        f"on untrained routes, cyclic ones (gap {row['gap_cyclic']:.2f}) by "
        f"{row['untrained_cyclic']:.2g}, medians."
        for (m, k), row in both.iterrows()
    ]
    least = (both["untrained_cyclic"] / both["untrained"]).min()
    return {"pairs": len(both), "pairs_least": least, "pairs_text": " ".join(texts)}
