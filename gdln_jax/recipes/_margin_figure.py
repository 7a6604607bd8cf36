"""The picture and the data set of the margin recipe: H Fig. 2."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.margin import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

# H's colours: linear gating blue, XoR gating orange, ReLU green.
_GATING = {"linear": COLOURS["trained"], "xor": COLOURS["untrained"]}
_NAMES = {"linear": "linear gates", "xor": "XoR gates"}
_RELU = COLOURS["shared"]


def dataset(options: Options, runs: Runs) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    data = xr.Dataset(
        coords={
            "delta": ("delta", runs.deltas, {"long_name": "half margin Delta"}),
            "time": ("time", runs.t, {"units": "epochs of H's step"}),
            "epoch": ("epoch", runs.t_step),
            "seed": np.arange(options.seeds),
            "gating": ["linear", "xor"],
            "kind": ["linear", "xor", "other"],
            "feature": ["x1", "x2", "x3"],
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    add("loss", ("delta", "seed", "time"), runs.losses, "loss, ReLU near the flow")
    add("loss_step", ("delta", "seed", "epoch"), runs.losses_step, "loss, ReLU at H's step")
    both = np.stack([runs.theory[g] for g in data["gating"].values])
    add("loss_theory", ("gating", "delta", "time"), both, "loss of the gated network, closed form")
    note = f"time to loss {options.level:g}, "
    add("t", ("delta", "seed"), runs.times, note + "ReLU near the flow")
    add("t_step", ("delta", "seed"), runs.times_step, note + "ReLU at H's step")
    add("t_theory", ("gating", "delta"), runs.predicted, note + "closed form")
    add("t_map", ("gating", "delta"), runs.predicted_step, note + "discrete map at H's step")
    add("share", ("delta", "seed", "kind"), runs.shares, "share of the output by kind of gate")
    add("direction", ("delta", "unit", "feature"), runs.directions, "input weights, first seed")
    add("power", ("delta", "unit"), runs.power, "share of the output, first seed")
    data.attrs["title"] = "XoR with a margin, H Fig. 2"
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.9)
        rows = figure.add_gridspec(2, 1)
        top, bottom = (figure.add_subfigure(rows[k]) for k in range(2))
        a, b = top.subplots(1, 2, width_ratios=[1.2, 1.0])
        c, d, e = bottom.subplots(1, 3, width_ratios=[1.25, 1.0, 1.0])
        _times(a, data, facts)
        _losses(b, data)
        _shares(c, data, facts)
        _directions((d, e), data)
        for ax, name in zip((a, b, c, d), "abcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _times(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    delta = data["delta"].values
    top = float(data["t_step"].max())
    for gating in ("linear", "xor"):
        row = data["t_theory"].sel(gating=gating).values
        # Far above the other gating it would run through the legend.
        plot.curve(ax, delta, np.where(row < 1.15 * top, row, np.nan), theory=True,
                   colour=_GATING[gating], linewidth=1.6,
                   label=f"{_NAMES[gating]}, exact")  # fmt: skip
    plot.curve(ax, delta, data["t_map"].min("gating"), theory=True, linestyle=":", linewidth=1.0,
               label="discrete map, step .4")  # fmt: skip
    for name, filled, label in (
        ("t_step", False, "ReLU, step .4"),
        ("t", True, "ReLU, near the flow"),
    ):
        low, middle, high = data[name].quantile([0.0, 0.5, 1.0], "seed").values
        ax.errorbar(
            delta, middle, yerr=[middle - low, high - middle], fmt="o", markersize=3.6, color=_RELU,
            markerfacecolor=_RELU if filled else "white", elinewidth=0.8, zorder=5, label=label,
        )  # fmt: skip
    ax.axvline(facts["root"], color=COLOURS["faint"], linewidth=0.9, zorder=0)
    ax.set(xlabel="half margin $\\Delta$", ylabel="time to loss .2 (epochs)",
           xlim=(-0.03, delta[-1] + 0.03),
           ylim=(0.75 * float(data["t"].min()), 1.62 * top))  # fmt: skip
    ax.text(facts["root"] - 0.02, 0.04, "$\\sqrt{2/3}$", transform=ax.get_xaxis_transform(),
            ha="right")  # fmt: skip
    low, high = facts["near"]
    ax.text(0.03, 0.04, f"ReLU near the flow:\n{low:+.1%} to {high:+.1%}".replace("-", "−"),
            transform=ax.transAxes, va="bottom")  # fmt: skip
    ax.legend(loc="upper right", ncols=2, columnspacing=0.9)


def _losses(ax: Any, data: xr.Dataset) -> None:
    t = data["time"].values
    delta = data["delta"].values
    shown = sorted({int(np.abs(delta - x).argmin()) for x in (0.0, 1.0, delta[-1])})
    for k in shown:
        plot.runs(ax, t, data["loss"].values[k], colour=_RELU)
        faster = int(np.argmin(data["t_theory"].values[:, k]))
        gating = str(data["gating"].values[faster])
        plot.curve(ax, t, data["loss_theory"].values[faster, k], theory=True,
                   colour=_GATING[gating], linewidth=1.4)  # fmt: skip
        median = np.median(data["loss"].values[k], axis=0)
        left = k == shown[-1]
        at = (float(t[np.argmax(median < 0.12)]), 0.12)
        ax.annotate(
            f"$\\Delta$ = {delta[k]:g}", at, (-9 if left else 4, 0), fontsize=7, va="center",
            textcoords="offset points", ha="right" if left else "left",
        )  # fmt: skip
    handles = [
        Line2D([], [], color=_RELU, label=f"ReLU ({data.sizes['seed']} seeds)"),
        *(
            Line2D([], [], color=_GATING[g], linestyle=(0, (3.2, 2.0)), label=f"{n}, exact")
            for g, n in _NAMES.items()
        ),
    ]
    ax.axhline(0.2, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    ax.set(xlabel="time (epochs)", ylabel="loss $L$", xlim=(0, 1.6 * float(data["t"].max())),
           ylim=(0, 0.53))  # fmt: skip
    ax.legend(handles=handles, loc="upper right", bbox_to_anchor=(1.0, 0.93))


def _shares(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    delta = data["delta"].values
    styles = {"linear": ("o", _GATING["linear"]), "xor": ("s", _GATING["xor"]),
              "other": ("^", COLOURS["faint"])}  # fmt: skip
    names = {"linear": "one class", "xor": "one example", "other": "others"}
    for kind, (marker, colour) in styles.items():
        low, middle, high = data["share"].sel(kind=kind).quantile([0.25, 0.5, 0.75], "seed").values
        ax.fill_between(delta, low, high, color=colour, alpha=0.25, linewidth=0)
        ax.plot(delta, middle, marker=marker, markersize=3, color=colour, label=names[kind])
    ax.axvline(facts["root"], color=COLOURS["faint"], linewidth=0.9, zorder=0)
    ax.axvline(facts["crossing"], color="black", linewidth=0.7, linestyle=":", zorder=0)
    ax.text(facts["crossing"] + 0.02, 1.03, f"{facts['crossing']:.3f}", ha="left", va="bottom")
    ax.text(facts["root"] - 0.02, 1.03, "$\\sqrt{2/3}$", ha="right", va="bottom")
    ax.set(xlabel="half margin $\\Delta$", ylabel="share of output power",
           xlim=(-0.03, delta[-1] + 0.03), ylim=(-0.05, 1.16))  # fmt: skip
    ax.legend(loc="center left", title="units on for", title_fontsize=8, alignment="left")


def _directions(axes: Any, data: xr.Dataset) -> None:
    """Input weights: x3 against the diagonal of the class that x3 favours; area is power."""
    delta = data["delta"].values
    chosen = [int(np.abs(delta - x).argmin()) for x in (0.5, 1.2)]
    for ax, k in zip(axes, chosen, strict=True):
        w, power = data["direction"].values[k], np.clip(data["power"].values[k], 0, None)
        w = w / np.linalg.norm(w, axis=1, keepdims=True)
        # Targets are +1 on the diagonal (1, -1) and -1 on (1, 1); x3 has the target's sign.
        across = np.where(w[:, 2] > 0, w[:, 0] - w[:, 1], w[:, 0] + w[:, 1]) / np.sqrt(2)
        length = np.sqrt(2 + delta[k] ** 2)
        for x, z in ((0.0, 1.0), (0.0, -1.0)):
            _arrow(ax, x, z, _GATING["linear"])
        for x, z in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            _arrow(ax, x * np.sqrt(2) / length, z * delta[k] / length, _GATING["xor"])
        ax.scatter(across, w[:, 2], s=4 + 900 * power / max(power.sum(), 1e-12) / 6,
                   facecolor="none", edgecolor=_RELU, linewidths=0.8, zorder=4)  # fmt: skip
        ax.set(xlim=(-1.15, 1.15), ylim=(-1.2, 1.2), xticks=(-1, 0, 1), yticks=(-1, 0, 1),
               xlabel="along own diagonal",
               title=f"input weights, $\\Delta$ = {delta[k]:g}")  # fmt: skip
        ax.set_aspect("equal")
    axes[0].set_ylabel("along $x_3$")


def _arrow(ax: Any, x: float, z: float, colour: str) -> None:
    ax.annotate("", (x, z), (0, 0), zorder=3,
                arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.6,
                            "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9})  # fmt: skip
