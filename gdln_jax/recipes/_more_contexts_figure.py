"""The picture and the data set of the more-contexts recipe: H Fig. 5.

One row per number of contexts and size of the contexts in the inputs (E26).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.more_contexts import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_RELU, _GATED = COLOURS["shared"], COLOURS["trained"]
_TITLES = (
    "loss $L$ (sum)",
    "common modes $\\pi$",
    "contextual pathways $B$",
    "power of ReLU units",
)


def dataset(options: Options, runs: list[Runs]) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name.

    `_C` is the number of contexts with inputs as printed, `_C_code` with those of the public code,
    where they are others. `power_code` is `power` where they are not.
    """
    data = xr.Dataset(
        coords={
            "time": ("time", runs[0].t, {"units": "tau"}),
            "seed": np.arange(options.seeds),
            "contexts": list(options.contexts),
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    shape = (len(options.contexts), options.seeds, max(options.contexts) + 1)
    power = {"power": np.full(shape, np.nan), "power_code": np.full(shape, np.nan)}
    sizes = np.ones(len(options.contexts))
    for one in runs:
        c, theory, tag = one.num_contexts, one.theory, one.tag
        seen = "" if one.context_scale == 1 else f", contexts of size {one.context_scale:g}"
        add(f"loss_relu_{tag}", ("seed", "time"), one.loss("relu"), f"loss, ReLU networks{seen}")
        add(f"loss_gated_{tag}", ("seed", "time"), one.loss("gated"), f"loss, gated networks{seen}")
        add(f"loss_theory_{tag}", ("time",), theory.loss, f"loss, closed form{seen}")
        modes, rest = f"mode_{c}", f"rest_{c}"
        both = ("seed", "time", modes)
        add(f"common_{tag}", both, one.common, f"common pathway, gated networks{seen}")
        meaning = f"whole output along the common modes, gated networks{seen}"
        add(f"whole_{tag}", both, one.whole, meaning)
        add(f"common_theory_{tag}", both[1:], theory.common, f"common pathway, H Eq. 7{seen}")
        dims = ("seed", "time", f"pathway_{c}", rest)
        add(f"contextual_{tag}", dims, one.rest, f"contextual pathways, gated networks{seen}")
        meaning = f"contextual pathways, E17{seen}"
        add(f"contextual_theory_{tag}", ("time", rest), theory.rest, meaning)
        add(f"start_{tag}", (rest,), theory.start, f"B(0), referred back to t = 0{seen}")
        row = options.contexts.index(c)
        sizes[row] = max(sizes[row], one.context_scale)
        final = np.asarray(one.relu.measured["groups"])[:, -1, 2:]
        # With inputs as printed first: the code's replace its share where they are others.
        for name in ("power", "power_code") if one.context_scale == 1 else ("power_code",):
            power[name][row, :, : final.shape[1]] = final
    meaning = "share of the output of ReLU units by the number of contexts they are mostly on in"
    for name, values in power.items():
        seen = ", inputs of the public code" if name == "power_code" else ""
        add(name, ("contexts", "seed", "active"), values, meaning + seen)
    add("context_size", ("contexts",), sizes, "size of the contexts in inputs of the public code")
    data.attrs["title"] = "More contexts, H Fig. 5"
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    members = list(facts["members"].values())
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 0.5 + 1.45 * len(members))
        axes = figure.subplots(len(members), 4, squeeze=False)
        tops = [
            max(float(data[f"{name}_{one['tag']}"].max()) for one in members)
            for name in ("loss_theory", "common_theory", "contextual_theory")
        ]
        for row, one in zip(axes, members, strict=True):
            _losses(row[0], data, one, tops[0])
            _common(row[1], data, one, tops[1])
            _contextual(row[2], data, one, tops[2])
            _power(row[3], data, one)
            row[0].set_ylabel(f"{one['contexts']} contexts, $c$ = {one['size']:g}")
        for ax, title in zip(axes[0], _TITLES, strict=True):
            ax.set_title(title)
        for ax in axes[:-1].ravel():
            ax.tick_params(labelbottom=False)
        for ax in axes[-1, :3]:
            ax.set_xlabel("time $t/\\tau$")
        axes[-1, 3].set_xlabel("contexts a unit is on in")
        axes[0, 0].legend(handles=_handles(data), loc="upper right", fontsize=7)
        axes[0, 1].legend(handles=_wholes(), loc="upper right", fontsize=7)
        for ax, name in zip(axes[0], "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _handles(data: xr.Dataset) -> list[Line2D]:
    seeds = data.sizes["seed"]
    return [
        Line2D([], [], color=_RELU, linewidth=3.0, alpha=0.6, label=f"ReLU ({seeds} seeds)"),
        Line2D([], [], color=_GATED, label="gated"),
        Line2D([], [], color="black", linewidth=1.0, linestyle=(0, (3.2, 2.0)),
               label="closed form"),
    ]  # fmt: skip


def _wholes() -> list[Line2D]:
    return [
        Line2D([], [], color="grey", linewidth=2.2, label="whole output"),
        Line2D([], [], color="grey", linewidth=0.9, label="pathway alone"),
    ]


def _losses(ax: Axes, data: xr.Dataset, one: dict[str, Any], top: float) -> None:
    t, tag, gaps = data["time"].values, one["tag"], one["gaps"]
    plot.runs(ax, t, data[f"loss_relu_{tag}"].values, colour=_RELU, thin=False)
    ax.lines[-1].set(linewidth=3.0, alpha=0.6)
    plot.runs(ax, t, data[f"loss_gated_{tag}"].values, colour=_GATED, thin=False)
    plot.curve(ax, t, data[f"loss_theory_{tag}"], theory=True, linewidth=1.0)
    ax.set(xlim=(0, t[-1]), ylim=(0, 1.05 * top))
    text = f"mean gap\ngated {gaps['gated'][0]:.2%}\nReLU {gaps['relu'][0]:.1%}"
    ax.text(0.97, 0.52, text, transform=ax.transAxes, ha="right", va="top", fontsize=7)


def _common(ax: Axes, data: xr.Dataset, one: dict[str, Any], top: float) -> None:
    t, tag = data["time"].values, one["tag"]
    theory = data[f"common_theory_{tag}"].values
    whole, own = (data[f"{name}_{tag}"].mean("seed").values for name in ("whole", "common"))
    shown = _distinct(theory)
    for m, colour in zip(shown, plot.mode_colours(len(shown)), strict=True):
        ax.plot(t, whole[:, m], color=colour, linewidth=2.2)
        ax.plot(t, own[:, m], color=colour, linewidth=0.9)
        plot.curve(ax, t, theory[:, m], theory=True, linewidth=0.9)
    ax.set(xlim=(0, t[-1]), ylim=(0, 1.6 * top))


def _contextual(ax: Axes, data: xr.Dataset, one: dict[str, Any], top: float) -> None:
    t, tag = data["time"].values, one["tag"]
    theory = data[f"contextual_theory_{tag}"].values
    found = data[f"contextual_{tag}"].mean(("seed", f"pathway_{one['contexts']}")).values
    shown = _distinct(theory)
    colours = plot.mode_colours(len(shown))
    for m, colour in zip(shown, colours, strict=True):
        # Tied modes have no frame of their own: their mean is what theory speaks of.
        tied = np.abs(theory[-1] - theory[-1, m]) < 1e-6 * theory.max()
        ax.plot(t, found[:, tied].mean(axis=1), color=colour, linewidth=2.2)
        plot.curve(ax, t, theory[:, m], theory=True, linewidth=0.9)
    ax.set(xlim=(0, t[-1]), ylim=(0, 1.08 * top))


def _distinct(theory: np.ndarray) -> list[int]:
    """One of each set of modes with equal curves."""
    _, first = np.unique(np.round(theory[len(theory) // 4 :], 6), axis=1, return_index=True)
    return sorted(int(k) for k in first)


def _power(ax: Axes, data: xr.Dataset, one: dict[str, Any]) -> None:
    c, widest = one["contexts"], one["widest"]
    name = "power" if one["size"] == 1 else "power_code"
    values = data[name].sel(contexts=c).values[:, : c + 1]
    middle = np.median(values, axis=0)
    colours = [COLOURS["untrained"] if m == widest else COLOURS["faint"] for m in range(c + 1)]
    ax.bar(range(c + 1), middle, color=colours, width=0.7, edgecolor="black", linewidth=0.5)
    for m in range(c + 1):
        ax.plot([m] * len(values), values[:, m], ".", color="black", markersize=2.5)
    high = float(middle[widest]) + 0.08
    ax.text(widest, high, f"{widest} of {c}: {middle[widest]:.0%}", ha="center", va="bottom")
    ax.set(ylim=(-0.05, 1.05), xlim=(-0.6, data.sizes["active"] - 0.4))
    ax.set_xticks(range(data.sizes["active"]))
