"""The picture and the data set of the width recipe."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.width import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_MARKERS = ("o", "s", "^", "D", "v")


def dataset(options: Options, runs: Runs) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    systems = list(dict.fromkeys(name for name, _ in runs.pairs))
    data = xr.Dataset(
        coords={
            "step": runs.steps,
            "width": list(options.widths),
            "drawn": list(options.drawn),
            "system": systems,
            "network": ["wide", "small"],
            "gain": list(options.gains),
            "round": np.arange(options.rounds + 1),
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    def table(read: Any) -> list[list[Any]]:
        return [[read(runs.pairs[name, width]) for width in options.widths] for name in systems]

    add("loss", ("system", "width", "network", "step"), table(lambda p: [p.wide, p.small]), "loss")
    add("size", ("system", "width"), table(lambda p: max(p.sizes)), "largest size of a hidden node")
    wanted = table(lambda p: max(size or 0 for size in p.expected))
    add("expected", ("system", "width"), wanted, "the same by formula")
    add("seconds", ("system", "width", "network"), table(lambda p: p.seconds), "seconds a step")
    add("weights", ("system", "width", "network"), table(lambda p: p.weights), "number of weights")
    every = [[runs.drawn[name, width] for width in options.drawn] for name in systems]
    meaning = "loss of a small network that was drawn directly"
    add("loss_drawn", ("system", "drawn", "step"), [[a for a, _ in row] for row in every], meaning)
    add("size_drawn", ("system", "drawn"), [[b for _, b in row] for row in every], "its size")
    for name, meaning in (
        ("gap", "largest distance of the losses over L(0)"),
        ("estimate", "the same, estimated by one round more"),
        ("leak", "share of the images that leave the space"),
        ("size", "largest size"),
    ):
        values = [getattr(one, name) for one in runs.truncated.values()]
        add(f"truncated_{name}", ("gain", "round"), values, meaning)
    data.attrs["title"] = "The exact small network behind a wide one"
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.8)
        grid = figure.add_gridspec(2, 6)
        places = (grid[0, :3], grid[0, 3:], grid[1, :2], grid[1, 2:4], grid[1, 4:])
        axes = [figure.add_subplot(place) for place in places]
        _losses(axes[0], data, facts)
        _sizes(axes[1], data)
        _rounds(axes[2], data, facts)
        _cost(axes[3], data, 1e3 * data["seconds"], "time of a step (ms)")
        _cost(axes[4], data, 8e-6 * data["weights"], "memory of weights (MB)")
        for ax, name in zip(axes, "abcde", strict=True):
            plot.panel_label(ax, name)
    return figure


_LOOK = {
    "chain": (COLOURS["trained"], "o"),
    "gated graph": (COLOURS["untrained"], "s"),
    "two layers": (COLOURS["shared"], "^"),
}
# Where a curve has its name: share of the steps, and whether to the right of it or to the left.
_NAMES = {"chain": (0.6, "left"), "gated graph": (0.6, "center"), "two layers": (0.4, "right")}


def _losses(ax: Axes, data: xr.Dataset, facts: dict[str, Any]) -> None:
    step = data["step"].values
    widest = data["width"].values[-1]
    for name, (colour, _) in _LOOK.items():
        here = data["loss"].sel(system=name, width=widest)
        wide, small = (here.sel(network=k).values for k in ("wide", "small"))
        ax.plot(step, wide / wide[0], color=colour, linewidth=2.6, alpha=0.55)
        plot.curve(ax, step, small / wide[0], theory=True, linewidth=1.0)
        share, side = _NAMES[name]
        at = int(share * step[-1])
        up = 0.55 if side == "center" else 1.0
        ax.annotate(
            name,
            (step[at], up * wide[at] / wide[0]),
            ha=side,
            va="top" if side == "center" else "bottom" if side == "left" else "top",
            color=colour,
        )
    worst = max(facts["gap"].values())
    ax.text(
        0.03,
        0.03,
        f"wide, N = {widest}: colour\nits small network: dashed\ndistance at most {worst:.0e} L(0)",
        transform=ax.transAxes,
        va="bottom",
    )
    ax.set(
        xlabel="step of gradient descent",
        ylabel="loss $L/L(0)$",
        xlim=(0, step[-1]),
        yscale="log",
        ylim=(1e-7, 3),
    )


def _sizes(ax: Axes, data: xr.Dataset) -> None:
    drawn, width = data["drawn"].values, data["width"].values
    limits = np.array([min(drawn[0], width[0]) * 0.7, max(drawn[-1], width[-1]) * 1.4])
    ax.plot(limits, limits, color="0.6", linewidth=0.8)
    ax.text(limits[1] / 3, limits[1] / 20, "all\ndimensions", color="0.4", ha="center", va="top")
    for (name, (colour, marker)), shift in zip(_LOOK.items(), (0.88, 1.0, 1.14), strict=True):
        here = data.sel(system=name)
        label = f"{name}: {int(here['size_drawn'][-1])}"
        ax.plot(
            drawn * shift,
            here["size_drawn"],
            marker,
            color=colour,
            markersize=4,
            fillstyle="none",
            label=label,
        )
        ax.plot(width * shift, here["size"], marker, color=colour, markersize=4)
        plot.curve(ax, limits, [float(here["expected"][-1])] * 2, theory=True, linewidth=0.8)
    ax.set(
        xlabel="width $N$",
        ylabel="dimensions used",
        xscale="log",
        yscale="log",
        xlim=limits,
        ylim=(5, 1.3 * limits[1]),
    )
    ax.legend(
        loc="upper left", title="full: computed, open: drawn\ndashed: formula", alignment="left"
    )


def _rounds(ax: Axes, data: xr.Dataset, facts: dict[str, Any]) -> None:
    rounds = data["round"].values
    colours = [colour for colour, _ in _LOOK.values()]
    for k, gain in enumerate(data["gain"].values):
        here = data.sel(gain=gain)
        ax.plot(
            rounds,
            np.maximum(here["truncated_gap"], 1e-16),
            _MARKERS[k % 5],
            color=colours[k % 3],
            fillstyle="none",
            label=f"gain {gain:g}",
        )
        plot.curve(
            ax, rounds, np.maximum(here["truncated_estimate"], 1e-16), theory=True, linewidth=0.8
        )
    ax.set(xlabel="rounds $K$", ylabel="distance of losses / $L(0)$", yscale="log")
    ax.set_xticks(rounds)
    ax.set_ylim(1e-17, 10)
    ax.legend(
        loc="lower left",
        title=f"dashed: estimate\n(factor {facts['factor']:.2f})",
        alignment="left",
    )


def _cost(ax: Axes, data: xr.Dataset, values: xr.DataArray, label: str) -> None:
    """One line for the wide chain and one for its small network."""
    width = data["width"].values
    here = values.sel(system="chain")
    for network, colour, style in (
        ("wide", COLOURS["untrained"], "s-"),
        ("small", COLOURS["trained"], "o--"),
    ):
        ax.plot(
            width, here.sel(network=network), style, color=colour, fillstyle="none", label=network
        )
    ax.set(xlabel="width $N$", ylabel=label, xscale="log", yscale="log")
    powers = np.log10(np.asarray(here, float))
    ax.set_ylim(10.0 ** np.floor(powers.min()), 10.0 ** (np.ceil(powers.max()) + 1))
    ax.set_xticks(width, [str(n) for n in width])
    ax.minorticks_off()
    ax.legend(loc="upper left", title="chain", alignment="left")
