"""The picture and the data set of the xor recipe: N Fig. 3."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdln_jax import exact, plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.xor import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_POSITIVE, _NEGATIVE, _RELU = COLOURS["trained"], COLOURS["untrained"], COLOURS["random"]


def dataset(options: Options, runs: Runs) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    o = options
    data = xr.Dataset(
        coords={
            "time": ("time", runs.t, {"units": "epochs", "tau": o.tau}),
            "seed": np.arange(o.seeds),
            "unit": np.arange(o.width),
            "example": np.arange(1, 5),
            "feature": ["x1", "x2"],
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    add("x", ("example", "feature"), runs.corners, "inputs")
    add("y", ("example",), runs.target, "targets")
    add("loss_flow", ("seed", "time"), runs.flow, "loss, ReLU, gradient flow")
    add("loss_descent", ("seed", "time"), runs.descent, "loss, ReLU, gradient descent")
    add("loss_gated", ("time",), runs.gated, "loss, four-path network, gradient flow")
    add("loss_theory", ("time",), exact.xor_loss(runs.t, o.a0, o.tau), "N Eq. 23 from E14's a(0)")
    add("a0_fitted", ("seed",), runs.fitted, "a(0) that fits loss_flow best")
    add("input_weights", ("seed", "unit", "feature"), runs.weights, "final input weights, flow")
    add("initial_weights", ("seed", "unit", "feature"), runs.initial, "initial input weights")
    add("read_out", ("seed", "unit"), runs.read_out, "final read-out weights, flow")
    add("power", ("seed", "unit"), runs.power, "share of the output")
    data.attrs["title"] = "XoR, N Fig. 3"
    data.attrs["a0"] = o.a0
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.6)
        a, b, c = figure.subplots(1, 3, width_ratios=[1.0, 0.8, 1.45])
        _types(a, data)
        _angles(b, data, facts)
        _losses(c, data, facts)
        for ax, name in zip((a, b, c), "abc", strict=True):
            plot.panel_label(ax, name)
    return figure


def _types(ax: Any, data: xr.Dataset) -> None:
    """The task, and the final input weights of one network."""
    w = data["input_weights"].values[0]
    w = w / np.linalg.norm(w, axis=-1).max()
    for x, y in zip(data["x"].values, data["y"].values, strict=True):
        plus = y > 0
        ax.scatter(*x, marker="o" if plus else "s", s=42, zorder=5, edgecolor="black",
                   facecolor=_POSITIVE if plus else _NEGATIVE, linewidth=0.6)  # fmt: skip
        ax.annotate("+1" if plus else "−1", x, (0, 8 if x[1] > 0 else -8), ha="center",
                    va="bottom" if x[1] > 0 else "top", textcoords="offset points")  # fmt: skip
    starts = np.zeros(len(w))
    ax.quiver(starts, starts, *w.T, color=_RELU, angles="xy", scale_units="xy", scale=1 / 0.95,
              width=0.006, headwidth=4, headlength=4, alpha=0.75)  # fmt: skip
    ax.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), xticks=(-1, 1), yticks=(-1, 1), xlabel="$x_1$",
           ylabel="$x_2$", title="input weights, one network")  # fmt: skip
    ax.set_aspect("equal")


def _angles(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    """Directions of all units' input weights before and after, weighted by norm."""
    bins = np.linspace(-182.5, 182.5, 74)
    for name, colour, label in (
        ("initial_weights", COLOURS["faint"], "start"),
        ("input_weights", _RELU, "end"),
    ):
        w = data[name].values.reshape(-1, 2)
        angle = np.degrees(np.arctan2(w[:, 1], w[:, 0]))
        share = np.sum(w**2, axis=1)
        heights, _ = np.histogram(angle, bins, weights=share / share.sum())
        ax.stairs(heights, bins, color=colour, fill=name == "initial_weights", label=label,
                  linewidth=1.2)  # fmt: skip
    ax.set(xlim=(-180, 180), xticks=(-135, -45, 45, 135), ylim=(0, None),
           xlabel="direction (degrees)", ylabel="share of $|w|^2$",
           title="all networks")  # fmt: skip
    ax.set_ylim(0, 1.6 * ax.get_ylim()[1])
    ax.legend(loc="upper center", ncols=2, columnspacing=0.8, handlelength=1.2)
    ax.text(0.5, 0.84, f"cosine with the nearest\ncorner {facts['cosine']:.4f}", ha="center",
            va="top", transform=ax.transAxes)  # fmt: skip


def _losses(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    tau = data["time"].attrs["tau"]
    t = data["time"].values / tau
    plot.loss_curves(ax, t, data["loss_flow"].values, colour=_RELU,
                     label=f"ReLU, flow ({data.sizes['seed']} seeds)")  # fmt: skip
    plot.curve(ax, t, data["loss_descent"].median("seed"), colour=COLOURS["other"], linewidth=0.9,
               linestyle=":", label="ReLU, descent (median)")  # fmt: skip
    plot.curve(ax, t, data["loss_gated"], colour=COLOURS["faint"], linewidth=3.2, zorder=0,
               label="four paths, flow")  # fmt: skip
    plot.curve(ax, t, data["loss_theory"], theory=True, label="N Eq. 23, a(0) by E14")
    found = np.median(facts["times"])
    ax.axhline(0.25, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    ax.set_ylim(0, 0.86)
    ax.set_yticks((0, 0.25, 0.5))
    ax.legend(loc="upper right")
    ax.text(0.02, 0.0, f"time to .25\nReLU {found / tau:.2f}\ntheory {facts['predicted'] / tau:.2f}"
            f"\n({facts['late']:+.1%}, no fit)".replace("-", "−"),
            transform=ax.transAxes, va="bottom")  # fmt: skip
