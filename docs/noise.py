"""Makes docs/noise.png, the picture of docs/noise.md: theory against trained draws, early stopping.

python docs/noise.py
"""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gdln_jax as gdln
from gdln_jax import plot

DRAWS = 6
INPUTS = 100
TS = np.linspace(0, 8, 161)
# title: sbar, outputs, examples, sigma, a0
SETUPS = {
    "100 × 50, 200 examples, σ = 0.3": ([3.0, 2.0, 1.0], 50, 200, 0.3, 0.01),
    "100 × 40, 100 examples, σ = 1": ([3.0, 1.2, 0.5], 40, 100, 1.0, 0.01),
    "100 × 100, 150 examples, σ = 0.8": ([4.0, 2.0, 1.0], 100, 150, 0.8, 0.01),
}


def main() -> None:
    """Simulate, evaluate, draw."""
    jax.config.update("jax_enable_x64", True)
    with plot.style():
        figure = plot.figure(plot.DOUBLE, 4.4)
        rows = figure.subfigures(2, 1, height_ratios=[1, 1.05])
        against_draws(rows[0])
        early_stopping(rows[1])
        path = Path(__file__).with_suffix(".png")
        figure.savefig(path, dpi=120)
    sys.stdout.write(f"wrote {path}\n")


def against_draws(row: Figure) -> None:
    """Three set-ups: theory dashed, trained networks thin."""
    axes = row.subplots(1, 3)
    for ax, label, (title, setup) in zip(axes, "abc", SETUPS.items(), strict=True):
        sbar, outputs, examples, sigma, a0 = setup
        setting = (sbar, INPUTS, outputs, examples, sigma)
        curves = gdln.noise.learning_curves(*setting, a0, TS)
        best, lowest = gdln.noise.best_time(*setting, a0)
        for colour, found, theory, name in zip(
            (plot.COLOURS["trained"], plot.COLOURS["untrained"]),
            trained(setting, a0),
            (curves.train, curves.test),
            ("train", "test"),
            strict=True,
        ):
            ax.plot(TS, found.T, color=colour, lw=0.5, alpha=0.7)
            ax.plot(TS, theory, color="black", ls="--", lw=1)
            ax.plot([], [], color=colour, label=name)
            gap = np.abs(found.mean(0) - np.asarray(theory)).max()
            sys.stdout.write(f"{title}, {name}: mean of {DRAWS} draws within {gap:.3f}\n")
        ax.axvline(float(best), color=plot.COLOURS["faint"], lw=0.7, ls=":", zorder=0)
        ax.plot(best, lowest, "o", color="black", ms=3)
        where = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ax.annotate(f"stop at {best:.2f}", (best, 0.92), (3, 0), **where)
        ax.axhline(float(curves.end), color=plot.COLOURS["faint"], lw=0.7, zorder=0)
        ax.set(xlabel="time t/τ", title=title, xlim=(0, TS[-1]), ylim=(0, None))
        plot.panel_label(ax, label)
    axes[0].plot([], [], color="black", ls="--", label="theory")
    axes[0].plot([], [], color=plot.COLOURS["faint"], lw=0.7, label="end of test")
    axes[0].set_ylabel("error")
    axes[0].legend(loc="center right")


def trained(setting: tuple, a0: float) -> tuple[np.ndarray, np.ndarray]:
    """Train and test error (draw, time) of networks that follow the gradient flow."""

    def errors(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        task = gdln.noise.draw(*setting, key=key)

        def test_error(net: gdln.GatedNetwork) -> jax.Array:
            map_ = net.weights["h->y"] @ net.weights["x->h"]
            return jnp.sum((map_ - task.meta["teacher"]) ** 2) / 2

        run = gdln.gradient_flow(
            task.meta["start"](a0), task.data, TS, measure=test_error, rtol=1e-6
        )
        return run.losses, run.measured

    train, test = jax.lax.map(jax.jit(errors), jax.random.split(jax.random.key(0), DRAWS))
    return np.asarray(train), np.asarray(test)


def early_stopping(row: Figure) -> None:
    """When to stop, and what it is worth, against signal and data."""
    axes = row.subplots(1, 3)
    sbar = jnp.geomspace(0.25, 8, 120)
    for examples, colour in zip((100, 200, 400, 1600), plot.mode_colours(4), strict=True):
        time, test = over(examples)(sbar)
        curves = gdln.noise.learning_curves([1.0], INPUTS, 50, examples, 1.0, 0.01, [0.0])
        helps = np.asarray(time) > 0
        axes[0].plot(sbar[helps], time[helps], color=colour, label=f"P = {examples}")
        axes[0].axvline(float(curves.threshold), color=colour, lw=0.6, ls=":")
        axes[1].plot(sbar, 2 * test / sbar**2, color=colour)
        axes[1].plot(sbar, 2 * float(curves.end) / sbar**2, color=colour, lw=0.7, ls=":")
    axes[0].set(ylabel="best time t/τ", ylim=(0, 4.4))
    axes[0].legend(loc="upper right")
    axes[1].set(yscale="log", ylim=(2e-3, 30), ylabel="test error / that of 0")
    for ax in axes[:2]:
        ax.set(xscale="log", xlabel="signal s / noise σ")
        ax.set_xticks([0.25, 0.5, 1, 2, 4, 8], ["0.25", "0.5", "1", "2", "4", "8"], minor=False)
        ax.set_xticks([], minor=True)
    end_value(axes[2])
    for ax, label in zip(axes, "def", strict=True):
        plot.panel_label(ax, label)


def end_value(ax: Axes) -> None:
    """The best test error and that of the end against the number of examples."""
    examples = np.unique(np.geomspace(INPUTS, 6400, 13).round().astype(int))
    for sbar, colour in zip((1.0, 2.0, 4.0), plot.mode_colours(3), strict=True):
        best = [gdln.noise.best_time([sbar], INPUTS, 50, int(p), 1.0, 0.01)[1] for p in examples]
        ax.plot(examples, best, color=colour, label=f"best, s = {sbar:g} σ")
    ax.plot(examples, INPUTS * 50 / (2 * examples), color="black", ls="--", label="end")
    ax.set(xscale="log", yscale="log", ylim=(6e-4, 50), xlabel="examples P")
    ax.set_ylabel("test error / σ²")
    ax.legend(loc="lower left")


def over(examples: int):
    """`best_time` of one mode over strengths."""
    one = functools.partial(
        gdln.noise.best_time, inputs=INPUTS, outputs=50, examples=examples, sigma=1.0, a0=0.01
    )
    return jax.jit(jax.vmap(lambda s: one(s[None])))


if __name__ == "__main__":
    main()
