"""The picture and the data set of the images recipe."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.images import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_MARKERS = ("o", "s", "^", "D")


def dataset(options: Options, runs: Runs) -> xr.Dataset:
    """One row per network."""
    data = xr.Dataset(coords={"run": np.arange(len(runs.m))})
    for name, meaning in (
        ("panel", "0: against K, 1: against the gain"), ("m", "number of domains M"),
        ("k", "trained outputs per input K"), ("seed", "initial weights and routes"),
        ("gain", "gain of Xavier weights"), ("gap", "sigma_2/sigma_1 of the trained routes"),
        ("trained", "test accuracy, trained routes"),
        ("untrained", "test accuracy, untrained routes"),
    ):  # fmt: skip
        data[name] = (("run",), getattr(runs, name), {"long_name": meaning})
    data.attrs["title"] = "Transformed images, N Fig. 7-10"
    data.attrs["domains"] = list(options.domains)
    data.attrs["dataset"] = f"{options.dataset}, {options.kind}"
    return data


def draw(data: xr.Dataset) -> Figure:
    """Draw all panels."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.5)
        axes = figure.subplots(1, 3, sharey=True)
        kind = data["panel"].values
        share = 100 * data["k"].values / data["m"].values
        for n, m in enumerate(data.attrs["domains"]):
            rows = (kind == 0) & (data["m"].values == m)
            _points(axes[0], data, rows, share, _MARKERS[n % 4], f", $M$ = {m}", line=True)
            _points(axes[1], data, rows, data["gap"].values, _MARKERS[n % 4], "", line=False)
        _points(axes[2], data, kind == 1, data["gain"].values, "o", "", line=True)
        axes[1].axvline(0.7, color=COLOURS["faint"], linewidth=0.9, linestyle=":", zorder=0)
        axes[0].set(xlabel="trained outputs per input (%)", ylabel="test accuracy", ylim=(0, 1),
                    title=data.attrs["dataset"])  # fmt: skip
        axes[1].set(xlabel="gap $\\sigma_2/\\sigma_1$", title="by spectral gap")
        last = kind == 1
        axes[2].set(xscale="log", xlabel="gain of initial weights",
                    title=f"$M$ = {data['m'].values[last][0]}, $K$ = {data['k'].values[last][0]}",
                    )  # fmt: skip
        axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 0.13), fontsize=7)
        for ax, name in zip(axes, "abc", strict=True):
            ax.axhline(0.1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
            plot.panel_label(ax, name)
        axes[1].text(0.02, 0.11, "chance", color=COLOURS["faint"], fontsize=7,
                     transform=axes[1].get_yaxis_transform())  # fmt: skip
    return figure


def _points(
    ax: Any, data: xr.Dataset, rows: np.ndarray, x: np.ndarray, marker: str, label: str, *,
    line: bool,
) -> None:  # fmt: skip
    for name in ("trained", "untrained"):
        y = data[name].values
        good = rows & np.isfinite(y)
        colour = COLOURS[name]
        ax.plot(x[good], y[good], marker, color=colour, markersize=3, alpha=0.6, linestyle="none",
                markerfacecolor="none", markeredgewidth=0.7,
                label=None if line else name)  # fmt: skip
        if line:
            at = np.unique(x[good])
            ax.plot(at, [np.median(y[good & (x == v)]) for v in at], color=colour, linewidth=1.1,
                    marker=marker, markersize=2.5, label=f"{name}{label}")  # fmt: skip
