"""N Fig. 6: the runs, and the numbers that checks, text and figure use."""

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from gdln_jax import exact
from gdln_jax.recipes._core import route_maps
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.initialisation import REFERENCE, SMALL, Options, runs

LINEAR_SEEDS, BOOTSTRAPS = 3, 400
# Name -> dimensions and meaning; without seeds: of the network with the median untrained error.
NETWORKS: dict[str, tuple[tuple[str, ...], str]] = {
    "loss": (("seed", "record"), "loss L (half mean squared norm)"),
    "trained": (("seed",), "relative error, trained routes"),
    "untrained": (("seed",), "relative error, untrained routes"),
    "trained_half": (("seed",), "relative error, trained routes, at half the time"),
    "untrained_half": (("seed",), "relative error, untrained routes, at half the time"),
    "start_power": (("seed",), "power of outputs at t = 0 over that of targets, untrained routes"),
    "curvature": (("seed",), "largest curvature of the loss at the end"),
    "rise": (("seed",), "largest rise of the loss in a step, over L(0)"),
    "weights": (("seed",), "relative change of all weights"),
    "layers": (("seed", "layer"), "relative change of the weights by layer"),
    "kernel_change": (("seed",), "relative Frobenius change of the tangent kernel, four routes"),
    "kernel_alignment": (("seed",), "alignment of the tangent kernels at the end and at t = 0"),
    "alignment": (("seed",), "mean cosine of one item at h1 across input domains"),
    "b0": (("seed", "mode"), "b(0) along the shared code, by mode"),
    "similarity": (("presentation", "presentation2"), "dot products at h1, one network"),
    "outputs": (("input", "output", "feature", "item"), "outputs at the end, one network"),
}


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """One program per width, the first width first; then the theories of both ends."""
    settings, parts = [runs.setting(o, n) for n in range(len(o.widths))], []
    for n, one in enumerate(settings):
        progress(0.8 * n / len(settings), f"N_h = {o.widths[n]}")
        parts.append(of_width(o, n, one))
    progress(0.9, "half the step, theory")
    first, coarse, m = settings[0], parts[0]["loss"].values[:, :1], o.domains
    half = {"rates": first.rates / 2, "steps": 2 * first.steps, "kept": 2 * first.kept}
    fine = replace(first, starts=tuple(w[:1] for w in first.starts), **half)
    halved = np.abs(runs.descend(fine, measured=False)["loss"] - coarse) / coarse[..., :1]
    t, b0 = first.kept * first.rates[0], np.median(parts[0]["b0"].values[0], axis=0)
    race = exact.routing_loss(t, runs.S / runs.ITEMS, 1 / runs.ITEMS, b0, m, c=(m - 1) * b0**2)
    variables: Variables = {
        "loss_race": ("race_record", race, "N Eq. 15, first setting"),
        "pattern": (("input", "output"), first.pattern, "1: route is trained"),
        "halved": ("first", halved.mean(axis=(1, 2)), "loss - that of half the step, over L(0)"),
        "engine": ((), route_maps.against_engine(o.seed), "loss of the route maps - mse, relative"),
        "kernel": ((), runs.kernel_error(first), "closed-form kernel - empirical one, relative"),
    }
    how: Any = {"data_vars": "all", "coords": "minimal", "compat": "override", "join": "outer"}
    data = xr.concat(parts, "setting", **how).drop_vars("record")
    return data.assign(labelled("", {}, variables))


def of_width(o: Options, number: int, s: runs.Setting) -> xr.Dataset:
    """The trained networks of one width; of the settings that are shown the linear theory."""
    found, rows, kept = runs.descend(s), np.arange(len(s.scales)), s.kept
    last = len(rows) - 1
    shown = {0: {nearest(s.scales, 1.0), last}, len(o.widths) - 1: {last}}
    linear = np.full((len(rows), min(LINEAR_SEEDS, o.seeds), len(kept)), np.nan)
    for row in shown.get(number, ()):
        linear[row] = [runs.linear_loss(s, row, seed) for seed in range(linear.shape[1])]
    curve, away = np.median(linear, axis=1), found["untrained"]
    middle = np.abs(away - np.median(away, axis=1, keepdims=True)).argmin(axis=1)
    variables: Variables = {
        "rate": ("setting", s.rates, "learning rate"),
        "loss_linear": (("setting", "record"), curve, "fixed kernel, median"),
        "loss_linear_each": (("setting", "network", "record"), linear, "fixed kernel, single ones"),
    }
    for name, (dims, meaning) in NETWORKS.items():
        values = found[name] if "seed" in dims else found[name][rows, middle]
        variables[name] = (("setting", *dims), values, meaning)
    coords = {
        "width": (
            "setting",
            np.full(len(rows), o.widths[number]),
            {"long_name": "hidden units N_h"},
        ),
        "scale": ("setting", s.scales, {"long_name": "sigma_0"}),
        "time": (("setting", "record"), np.outer(s.rates, kept), {"units": "tau"}),
        "seed": np.arange(away.shape[1]),
        "record": np.arange(len(kept)),
    }
    return labelled("Initialisation, N Fig. 6", coords, variables)


def nearest(scales: np.ndarray, scale: float) -> int:
    """The number of the nearest scale."""
    return int(np.argmin(np.abs(np.log(scales / scale))))


def slopes(errors: np.ndarray, scales: np.ndarray, seed: int) -> np.ndarray:
    """d ln(median error) / d ln sigma_0 at small scales, 95 % of bootstraps; NaN at one scale."""
    errors, scales, seeds = errors[scales <= SMALL], scales[scales <= SMALL], errors.shape[1]
    if len(scales) < 2:
        return np.full(3, np.nan)
    picks = np.random.default_rng(seed).integers(seeds, size=(BOOTSTRAPS, seeds))
    medians = np.median(np.concatenate([errors[:, None], errors[:, picks]], axis=1), axis=2)
    found = np.polyfit(np.log(scales), np.log(medians), 1)[0]
    return np.array([found[0], *np.quantile(found[1:], (0.025, 0.975))])


def gap(curves: np.ndarray, theory: np.ndarray) -> float:
    """Mean distance of loss curves (..., record) over L(0); records are even in ln t."""
    return float(np.nanmedian(np.nanmean(np.abs(curves - theory) / theory[..., :1], axis=-1)))


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v = {str(name): data[name].values for name in data.variables}
    each = [name for name, (dims, _) in NETWORKS.items() if "seed" in dims and "record" not in dims]
    m = {name: np.nanmedian(v[name], axis=1) for name in each}
    scale, width, linear = v["scale"], v["width"], v["loss_linear_each"]
    narrow, last = (np.flatnonzero(width == n) for n in (width[0], width[-1]))
    # Of the first width the least scale, the one nearest to 1, and the largest; the last setting.
    rich, middle, top, lazy = shown = 0, nearest(scale[narrow], 1.0), narrow[-1], last[-1]
    rows = {"rich": rich, "top": top, "lazy": lazy, "small": nearest(scale[narrow], SMALL)}
    rows["twin"] = last[nearest(scale[last], float(scale[top]))]
    at: Numbers = {
        f"{name}_{place}": value[row]
        for name, value in {**m, "scale": scale, "width": width}.items()
        for place, row in rows.items()
    }
    fixed = {k: gap(v["loss"][k, : linear.shape[1]], linear[k]) for k in (middle, lazy)}
    loss = np.nanmedian(v["loss"][rich, :, : len(v["loss_race"])], axis=0)
    exponents = slopes(v["untrained"][narrow], scale[narrow], o.seed)
    numbers = {
        "shown": [int(row) for row in shown],
        **{name: float(v[name]) for name in ("engine", "kernel")},
        "learned": m["trained"].max(),
        "stability": np.nanmax(v["curvature"] * v["rate"][:, None]),
        "rise": max(np.nanmax(v["rise"]), 0.0),
        "halved": v["halved"].max(),
        "slopes": exponents,
        "exponent": exponents[0],
        "race": gap(loss, v["loss_race"]),
        "linear": fixed[lazy],
        "not_lazy": fixed[middle] / fixed[lazy],
        "kernel_turn": 1 - at["kernel_alignment_lazy"],
        "lazy_ratio": at["untrained_lazy"] / (1 + at["start_power_lazy"]),
        "order": np.corrcoef(rankdata(m["untrained"][narrow]), narrow)[0, 1],
        "b0": np.nanmean(v["b0"][rich]) / scale[rich],
        "fall": 1 - at["untrained_small"] / at["untrained_half_small"],
    }
    return at | numbers | references(o, v["untrained"][narrow], scale[narrow])


def references(o: Options, errors: np.ndarray, scales: np.ndarray) -> Numbers:
    """Median errors (scale, seed) on untrained routes over the reference's, or their inverse."""
    of_the_paper = (o.domains, o.trained, o.widths[0], o.init) == (7, 4, 64, "orthogonal")
    numbers: Numbers = {}
    for k, (scale, (known, _)) in enumerate(REFERENCE.items()):
        low, middle, high = np.nanquantile(errors[nearest(scales, scale)], (0.1, 0.5, 0.9))
        spread = f"{middle:.2g}, 10 to 90 %: {low:.2g} to {high:.2g}; reference {known:.2g}"
        numbers |= {f"untrained_{k}": np.exp(abs(np.log(middle / known))), f"of_{k}": spread}
        numbers[f"has_{k}"] = of_the_paper and scale in o.scales
    return numbers
