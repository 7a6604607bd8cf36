"""The picture and the data set of the linear recipe: H Fig. 7."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from gdln_jax import plot
from gdln_jax.plot import COLOURS

if TYPE_CHECKING:
    from gdln_jax.recipes.linear import Options, Runs
else:  # that room imports this one
    Options = Runs = Any

_FEATURES = ("grow", "move", "roots", "own 1", "own 2", "own 3", "own 4")


def dataset(options: Options, runs: Runs) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    m, scale, known = runs.modes, options.loss_scale, runs.theory
    data = xr.Dataset(
        coords={
            "time": ("time", runs.ts, {"units": "tau"}),
            "flow_time": ("flow_time", runs.grid, {"units": "tau"}),
            "seed": np.arange(options.seeds),
            "mode": np.arange(1, len(m.s) + 1),
            "feature": list(_FEATURES),
            "item": np.arange(1, 5),
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    y = np.asarray(runs.task.data.targets["y"]).T  # type: ignore[union-attr]
    add("y", ("feature", "item"), y, "features of the items")
    add("u", ("feature", "mode"), m.u, "output frame U")
    add("v", ("item", "mode"), m.v, "input frame V")
    add("s", ("mode",), m.s, "strength of the mode in Sigma^yx, times loss_scale")
    add("d", ("mode",), m.d, "variance of the mode in Sigma^x, times loss_scale")
    add("a0", ("seed", "mode"), runs.start, "effective a(0) = |W2^T u + W1 v|^2/4")
    add("loss_random", ("seed", "time"), scale * np.asarray(runs.descent.losses),
        "loss, random networks, gradient descent")  # fmt: skip
    add("loss_random_theory", ("seed", "time"), m.loss(known["random"]), "H Eq. 7 from a0")
    for name in ("aligned", "unbalanced"):
        seen = getattr(runs, name)
        add(f"mode_{name}", ("flow_time", "mode"), seen.measured["strength"], f"{name} start, flow")
        add(f"mode_{name}_theory", ("flow_time", "mode"), known[name], "closed form")
    add("loss_aligned", ("flow_time",), scale * np.asarray(runs.aligned.losses), "loss, flow")
    add("loss_uneven", ("flow_time",), scale * np.asarray(runs.uneven.flow.losses),
        "loss, items at different frequencies, flow")  # fmt: skip
    add("loss_uneven_coupled", ("flow_time",), scale * np.asarray(runs.uneven.reduced.losses),
        "the same by the coupled reduction")  # fmt: skip
    data.attrs["title"] = "A linear network learns a hierarchy, H Fig. 7"
    return data


def draw(data: xr.Dataset, facts: dict[str, Any]) -> Figure:
    """Draw all panels; `facts` are the numbers to print in them."""
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.5)
        rows = figure.add_gridspec(2, 1, height_ratios=[1.0, 1.35])
        top, bottom = (figure.add_subfigure(rows[k]) for k in range(2))
        _factors(top, data)
        b, c, d = bottom.subplots(1, 3)
        _modes(b, data)
        _losses(c, data, facts)
        _variants(d, data, facts)
        for ax, name in zip((b, c, d), "bcd", strict=True):
            plot.panel_label(ax, name)
    return figure


def _factors(part: Any, data: xr.Dataset) -> None:
    """The SVD of the data: Sigma^yx = U S V^T."""
    axes = part.subplots(1, 4, width_ratios=[1.0, 1.0, 1.0, 1.0])
    panels = (
        (data["y"], "features $Y$", "item", "feature", _FEATURES),
        (data["u"], "$U$", "mode", "feature", _FEATURES),
        (np.diag(data["s"].values), "$S$ (of $\\Sigma^{yx}$)", "mode", "mode", None),
        (data["v"].values.T, "$V^T$", "item", "mode", None),
    )
    image = None
    for ax, (matrix, title, xlabel, ylabel, names) in zip(axes, panels, strict=True):
        values = np.asarray(matrix)
        image = ax.imshow(values, cmap="PuOr_r", vmin=-1, vmax=1, aspect="auto")
        ax.set(title=title, xlabel=xlabel)
        ax.set_ylabel("" if names else ylabel)
        ax.set_xticks(range(4), ["1", "2", "3", "4"])
        ax.set_yticks(range(len(values)), names or ["1", "2", "3", "4"])
        ax.tick_params(length=0)
        for side in ax.spines.values():
            side.set(visible=True, linewidth=0.6)
    bar = part.colorbar(image, ax=axes, pad=0.01, aspect=22)
    bar.set_label("entry")
    bar.outline.set_linewidth(0.5)
    for k, value in enumerate(data["s"].values):
        axes[2].text(k, k, f"{value:.2f}", ha="center", va="center", fontsize=6,
                     color="white" if value > 0.55 else "black")  # fmt: skip
    plot.panel_label(axes[0], "a")


def _modes(ax: Any, data: xr.Dataset) -> None:
    t = data["flow_time"].values
    shown = [0, 1, 2]  # modes 3 and 4 coincide
    colours = plot.mode_colours(len(shown))
    plot.mode_curves(ax, t, data["mode_aligned"].values[:, shown], colours=colours, linewidth=2.4)
    for values in data["mode_aligned_theory"].values.T[shown]:
        plot.curve(ax, t, values, theory=True, linewidth=1.0)
    for k, name in zip(shown, ("1", "2", "3, 4"), strict=True):
        end = float(data["mode_aligned"][-1, k])
        ax.text(t[-1], end + 0.05, f"mode {name}", ha="right", va="bottom")
    gap = np.abs(data["mode_aligned"] - data["mode_aligned_theory"]).max()
    ax.set(ylim=(0, 4.1), ylabel="mode strength $a$")
    ax.text(0.98, 0.99, f"aligned start, largest gap\n{_power(float(gap))}",
            transform=ax.transAxes, ha="right", va="top")  # fmt: skip


def _losses(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["time"].values
    plot.loss_curves(ax, t, data["loss_random"].values, colour=COLOURS["random"],
                     label=f"random start ({data.sizes['seed']} seeds)")  # fmt: skip
    theory = np.median(data["loss_random_theory"].values, axis=0)
    plot.curve(ax, t, theory, theory=True, label="H Eq. 7, $|W_2^Tu+W_1v|^2/4$")
    start = float(data["loss_random_theory"][0, 0])
    ax.set_ylim(0, 1.45 * start)
    ax.legend(loc="upper right")
    ax.text(0.98, 0.66, f"gap {facts['mean']:.2%} of $L(0)$\n(mean over time)",
            transform=ax.transAxes, ha="right", va="top")  # fmt: skip


def _variants(ax: Any, data: xr.Dataset, facts: dict[str, Any]) -> None:
    t = data["flow_time"].values
    plot.curve(ax, t, data["loss_uneven"], colour=COLOURS["shared"], linewidth=2.4,
               label="uneven items, flow")  # fmt: skip
    plot.curve(ax, t, data["loss_uneven_coupled"], theory=True, label="coupled reduction (E20)")
    unbalanced = data["mode_unbalanced"].values[:, 0]
    final = float(data["s"][0] / data["d"][0])
    plot.curve(ax, t, unbalanced / final, colour=COLOURS["other"], linewidth=2.4,
               label="unbalanced mode 1 / final")  # fmt: skip
    plot.curve(ax, t, data["mode_unbalanced_theory"].values[:, 0] / final, theory=True,
               linewidth=1.0, linestyle=":", label="its closed form")  # fmt: skip
    top = float(data["loss_uneven"][0])
    ax.set(xlabel="time $t/\\tau$", ylabel="loss $L$, or share of mode", xlim=(0, t[-1]),
           ylim=(0, 1.9 * top))  # fmt: skip
    ax.legend(loc="upper right")
    ax.text(0.98, 0.52, f"{facts['residual']:.0%} of the gradient\noff any frames",
            transform=ax.transAxes, ha="right", va="top")  # fmt: skip


def _power(value: float) -> str:
    """The number as 2.1 × 10^-5."""
    digits, power = f"{value:.1e}".split("e")
    return f"${digits}\\times10^{{{int(power)}}}$"
