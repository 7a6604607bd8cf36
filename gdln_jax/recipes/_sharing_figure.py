"""The picture and the data set of the sharing recipe: N Fig. 5a-b."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.sharing import Options, Runs
else:  # that room imports this one
    Options = Runs = Any


def dataset(options: Options, runs: Runs) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    race, modes = runs.race, len(runs.s)
    data = xr.Dataset(
        coords={
            "paths": ("paths", list(options.shares), {"long_name": "P"}),
            "mode": np.arange(1, modes + 1),
            "point": np.arange(options.times),
            "race_time": ("race_time", race.ts, {"units": "tau"}),
            "pathway": ["shared", "dedicated"],
            "start": race.starts,
            "layer": ["B1", "B2"],
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    nets = runs.networks.values()
    add("s", ("mode",), runs.s, "strength of the base data's mode")
    add("d", ("mode",), runs.d, "its variance")
    add("time", ("paths", "point"), [n.ts for n in nets], "time in tau")
    for name, meaning in (
        ("flow", "full network, flow"), ("reduced", "reduction"), ("theory", "N Eq. 16-17"),
        ("balanced", "reduction from a balanced start"),
    ):  # fmt: skip
        values = [np.stack(getattr(n, name)) for n in nets]
        add(f"b_{name}", ("paths", "layer", "point", "mode"), values, meaning)
    add("half", ("paths", "mode"), runs.half, "time to half, equal start")
    add("half_balanced", ("paths", "mode"), runs.half_balanced, "time to half, balanced start")
    add("race_b1", ("race_time", "pathway", "mode"), race.b1, "B1 in the combined network")
    add("race_b2", ("race_time", "pathway", "mode"), race.b2, "B2 in the combined network")
    count = len(race.starts)
    data["known_start"] = ("known_start", np.asarray(_starts(runs)))
    add("kept", ("known_start", "mode"), race.kept, "share that dedicated pathways keep")
    add("kept_theory", ("start", "mode"), race.kept_theory[:count], "the same by the exact law")
    data.attrs["title"] = "Pathways that share, N Fig. 5a-b"
    data.attrs["domains"] = options.domains
    return data


def _starts(runs: Runs) -> np.ndarray:
    from gdln_jax.recipes.sharing import _STARTS

    assert len(_STARTS) == len(runs.race.kept)
    return _STARTS


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.6)
        rows = figure.add_gridspec(2, 1, height_ratios=[1.0, 1.0])
        top, bottom = (figure.add_subfigure(rows[k]) for k in range(2))
        parts = top.add_gridspec(1, 2, width_ratios=[1.0, 1.25])
        left, right = (top.add_subfigure(parts[k]) for k in range(2))
        a = _blocks(left, data)
        b = right.subplots()
        c, d, e = bottom.subplots(1, 3)
        _curves(b, data)
        _law(c, data, facts)
        _race(d, data, facts)
        _kept(e, data)
        for ax, name in zip((a, b, c, d, e), "abcde", strict=True):
            plot.panel_label(ax, name)
    return figure


def _colours(data: xr.Dataset) -> list[Any]:
    """Dedicated orange, fully shared green, the others between."""
    between = plot.mode_colours(data.sizes["paths"] - 1)[:-1]
    return [COLOURS["untrained"], *between[::-1], COLOURS["shared"]]


def _blocks(part: Any, data: xr.Dataset) -> Any:
    """Which routes share a hidden pathway, for each P."""
    m, paths = data.attrs["domains"], data["paths"].values
    axes = part.subplots(2, math.ceil(len(paths) / 2), squeeze=False).ravel()
    for ax in axes[len(paths) :]:
        ax.set_visible(False)
    for ax, p, colour in zip(axes, paths, _colours(data), strict=False):
        side = math.isqrt(int(p))
        for edge in np.arange(0, m + 1, side):
            ax.plot([0, m], [edge, edge], color="black", linewidth=0.5)
            ax.plot([edge, edge], [0, m], color="black", linewidth=0.5)
        ax.fill_between([0, m], 0, m, color=colour, alpha=0.45, linewidth=0)
        ax.set(xlim=(0, m), ylim=(m, 0), xticks=(), yticks=(), title=f"$P$ = {p}")
        ax.set_aspect("equal")
        for spine in ax.spines.values():
            spine.set_visible(False)
    axes[0].set(ylabel="input")
    axes[max(0, len(paths) - 1)].set(xlabel="output domain")
    return axes[0]


def _curves(ax: Any, data: xr.Dataset) -> None:
    t = data["time"].values
    for k, (p, colour) in enumerate(zip(data["paths"].values, _colours(data), strict=True)):
        for name, theory in (("b_flow", False), ("b_theory", True)):
            b1, b2 = data[name].values[k]
            for mode in range(3):
                label = f"$P$ = {p}" if not theory and mode == 0 else None
                if theory:
                    label = "Eq. 16–17" if k == 0 and mode == 0 else None
                plot.curve(ax, t[k], (b2 * b1**2)[:, mode], theory=theory, label=label,
                           colour=None if theory else colour,
                           linewidth=0.9 if theory else 2.4 - 0.6 * mode)  # fmt: skip
    last = float(np.max(data["s"] / data["d"]))
    ax.set(xscale="log", xlim=(t[-1, -1] / 120, t.max()), ylim=(0, 1.08 * last),
           xlabel="time $t/\\tau$", ylabel="route's map $B_2B_1^2$")  # fmt: skip
    ax.legend(loc="upper left")


def _law(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    paths = data["paths"].values
    for name, marker, label in (("half", "o", "equal layers"), ("half_balanced", "s", "balanced")):
        times = data[name].values[:, 0]
        ax.plot(paths, times, marker=marker, markersize=4, linestyle="none",
                color=COLOURS["shared" if name == "half" else "other"], label=label)  # fmt: skip
    first = float(data["half_balanced"][0, 0])
    plot.curve(ax, paths, first * paths ** (-2 / 3), theory=True, label="$P^{-2/3}$")
    ax.set(xscale="log", yscale="log", xlabel="paths per block $P$",
           ylabel="time to half, mode 1 ($\\tau$)")  # fmt: skip
    ax.set_xticks(paths, [str(p) for p in paths])
    ax.minorticks_off()
    ax.legend(loc="lower left")
    low, high = facts["exponents"]
    ax.text(0.98, 0.98, f"equal layers: exponent\n{low:.2f} to {high:.2f}".replace("-", "−"),
            transform=ax.transAxes, ha="right", va="top")  # fmt: skip


def _race(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["race_time"].values
    product = (data["race_b1"] ** 2 * data["race_b2"]).isel(mode=0) / float(
        data["s"][0] / data["d"][0]
    )
    for k, (name, colour) in enumerate(
        (("shared", COLOURS["shared"]), ("dedicated", COLOURS["untrained"]))
    ):
        ax.plot(t, product.values[:, k], color=colour, label=name, linewidth=1.8)
    plot.curve(ax, t, np.full_like(t, facts["kept"][0]), theory=True, linewidth=0.9,
               label="exact law, end")  # fmt: skip
    ax.set(xlim=(0, t[-1]), yscale="log",
           ylim=(0.5 * float(product.min()), 80), xlabel="time $t/\\tau$",
           ylabel="share of mode 1")  # fmt: skip
    ax.legend(loc="upper right")
    ax.annotate(f"keeps {facts['kept'][0]:.2g}", (t[-1], facts["kept"][0]), (-2, 4), ha="right",
                textcoords="offset points")  # fmt: skip


def _kept(ax: Any, data: xr.Dataset) -> None:
    modes = [0, 1, 2]
    for k, colour in zip(modes, plot.mode_colours(3), strict=True):
        plot.curve(ax, data["start"], data["kept_theory"].values[:, k], theory=True, colour=colour)
        ax.plot(data["known_start"], data["kept"].values[:, k], "o^s"[k], color=colour,
                markersize=4, label=f"mode {k + 1}", linestyle="none")  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="initial strength $B(0)$",
           ylabel="dedicated keep")  # fmt: skip
    starts = data["known_start"].values
    ax.set_xticks(starts, [f"{x:g}" for x in starts])
    ax.minorticks_off()
    ax.legend(loc="lower right")
    ax.text(0.04, 0.97, "dashed: exact law", transform=ax.transAxes, va="top")
