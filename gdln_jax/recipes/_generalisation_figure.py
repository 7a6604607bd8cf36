"""The picture and the data set of the generalisation recipe: N Fig. 5c, and what orders it."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.generalisation import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_MARKERS = {"random": "o", "cyclic": "^", "blocks": "s"}
_BY_SIZE = (COLOURS["untrained"], COLOURS["random"], COLOURS["other"], COLOURS["faint"])


def dataset(options: Options, runs: Runs) -> xr.Dataset:
    """One row per network."""
    data = xr.Dataset(coords={"run": np.arange(len(runs.m))})
    for name, meaning in (
        ("m", "number of domains M"), ("k", "trained outputs per input K"),
        ("seed", "initial weights"), ("gap", "sigma_2/sigma_1 of the trained routes"),
        ("trained", "relative error, trained routes"),
        ("untrained", "relative error, untrained routes"),
    ):  # fmt: skip
        data[name] = (("run",), getattr(runs, name), {"long_name": meaning})
    data["kind"] = (("run",), np.array(list(_MARKERS))[runs.kind], {"long_name": "pattern"})
    data.attrs["title"] = "Generalisation against K and against the spectral gap, N Fig. 5c"
    data.attrs["domains"] = list(options.domains)
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 2.7)
        a, b, c = figure.subplots(1, 3, width_ratios=[1.1, 1.0, 1.0])
        _counts(a, data, facts)
        for ax, name in ((b, "count"), (c, "gap")):
            _against(ax, data, facts, name)
        c.sharey(b)
        c.set_ylabel("")
        _legend(b, data)
        for ax, name in zip((a, b, c), "abc", strict=True):
            plot.panel_label(ax, name)
    return figure


def _counts(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    m = facts["m"]
    chosen = (data["m"].values == m) & (data["kind"].values == "random")
    k = data["k"].values[chosen]
    for name in ("untrained", "trained"):
        errors = data[name].values[chosen]
        counts = np.array([c for c in np.unique(k) if np.isfinite(errors[k == c]).any()])
        low, middle, high = np.stack(
            [np.quantile(errors[k == c], (0.1, 0.5, 0.9)) for c in counts], axis=1
        )
        x = 100 * counts / m
        ax.plot(100 * k / m, errors, ".", color=COLOURS[name], markersize=2.5, alpha=0.5)
        ax.fill_between(x, low, high, color=COLOURS[name], alpha=0.25, linewidth=0)
        ax.plot(x, middle, color=COLOURS[name], marker="o" if name == "untrained" else "s",
                markersize=3.5, label=f"{name} routes")  # fmt: skip
    ax.axhline(1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    ax.set(yscale="log", xlabel="trained outputs per input (%)", ylabel="relative error",
           title=f"random patterns, $M$ = {m}")  # fmt: skip
    # At K = 1 trained routes are exact to rounding, far below.
    ax.set_ylim(1e-8, 2e3)
    ax.legend(loc="upper right")
    ax.annotate(f"{facts['at_40'][0]:.1g}", (40, facts["at_40"][0]), (4, 7),
                textcoords="offset points")  # fmt: skip


def _against(ax: Any, data: xr.Dataset, facts: dict[str, Any], what: str) -> None:
    errors = data["untrained"].values
    x = data["gap"].values if what == "gap" else 100 * data["k"].values / data["m"].values
    for number, m in enumerate(data.attrs["domains"]):
        for kind, marker in _MARKERS.items():
            rows = (data["m"].values == m) & (data["kind"].values == kind) & np.isfinite(errors)
            ax.plot(x[rows], errors[rows], marker, markersize=3, alpha=0.65, linestyle="none",
                    markerfacecolor="none", markeredgewidth=0.7,
                    color=_BY_SIZE[number % len(_BY_SIZE)])  # fmt: skip
    middle, low, high = facts["rho"][what]
    ax.text(0.97 if what == "count" else 0.03, 0.98,
            f"rank correlation\n{middle:.2f} ({low:.2f} .. {high:.2f})", ha="right" if
            what == "count" else "left", va="top", transform=ax.transAxes)  # fmt: skip
    label = "gap $\\sigma_2/\\sigma_1$" if what == "gap" else "trained outputs per input (%)"
    ax.axhline(1, color=COLOURS["faint"], linewidth=0.7, zorder=0)
    if what == "gap":
        ax.axvline(0.7, color=COLOURS["faint"], linewidth=0.9, linestyle=":", zorder=0)
    ax.set(yscale="log", xlabel=label, ylabel="untrained error",
           title="by spectral gap" if what == "gap" else "by $K/M$")  # fmt: skip
    ax.set_ylim(top=300)


def _legend(ax: Any, data: xr.Dataset) -> None:
    handles = [
        Line2D([], [], color=_BY_SIZE[n % len(_BY_SIZE)], marker="o", linestyle="none",
               markersize=3, label=f"$M$ = {m}")
        for n, m in enumerate(data.attrs["domains"])
    ] + [
        Line2D([], [], color="black", marker=marker, linestyle="none", markersize=3,
               markerfacecolor="none", label=kind)
        for kind, marker in _MARKERS.items()
    ]  # fmt: skip
    ax.legend(handles=handles, loc="upper right", bbox_to_anchor=(1.0, 0.85), fontsize=7,
              handletextpad=0.2)  # fmt: skip
