"""Makes docs/film.gif, the first picture of the README and of the site: a race of pathways.

    python docs/film.py

Six of nine routes are trained. Each has a pathway of its own beside the one that all share, which
starts behind. Lines are the reduced equations, dots are gradient descent on all weights.
"""

import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from PIL import Image

import gdln_jax as gdln
from gdln_jax import plot

RATE, END, FRAMES, EVERY = 0.01, 15.0, 60, 25
DPI, COLOURS, FRAME_MS, LAST_MS = 190, 48, 90, 2500
ROUTE = {"shared": ("x0->h1", "h1->h2", "h2->y0"), "own": ("x0->p0_0", "p0_0->q0_0", "q0_0->y0")}
START = {"shared": 0.2, "own": 0.4}
INK = {"shared": plot.COLOURS["shared"], "own": plot.COLOURS["trained"]}


def main() -> None:
    """Solve, train, draw, write."""
    jax.config.update("jax_enable_x64", True)
    task, reduction, b0 = system()
    theory, run = runs(
        task,
        reduction,
        b0,
        lambda net: (
            {name: jnp.linalg.norm(w, ord=2) for name, w in net.weights.items()}
            | {name: mapped(net, path) for name, path in ROUTE.items()}
        ),
    )
    path = Path(__file__).with_suffix(".gif")
    with plot.style():
        frames = drawn(task.graph, theory, run)
    palette = frames[-1].quantize(COLOURS)
    pictures = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    for picture in pictures:  # the background is white again, which the palette averaged
        colours = np.reshape(picture.getpalette(), (-1, 3))
        colours[picture.getpixel((0, 0))] = 255
        picture.putpalette(colours.ravel().tolist())
    durations = [FRAME_MS] * (len(pictures) - 1) + [LAST_MS]
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True
    )
    sys.stdout.write(f"wrote {path}, {path.stat().st_size // 1000} kB\n")


def system() -> tuple[gdln.tasks.Task, gdln.Reduction, dict[str, float]]:
    """The task, its reduction, and where the strengths of its edges start."""
    task = gdln.tasks.routing(3, 2, width=16, dedicated=16)
    b0 = {edge.name: START["shared" if shared(edge.name) else "own"] for edge in task.graph.edges}
    return task, gdln.reduce(task.graph, task.data), b0


def runs(
    task: gdln.tasks.Task,
    reduction: gdln.Reduction,
    b0: dict[str, float],
    measure: Callable[[gdln.GatedNetwork], object] | None,
) -> tuple[gdln.ReducedTrajectory, gdln.Trajectory]:
    """Theory, and gradient descent from the weights that belong to the same strengths."""
    theory = reduction.solve(b0, np.linspace(0, END, 301))
    descent = optax.sgd(RATE)
    run = gdln.train(
        reduction.embed(b0),
        task.data,
        optimizer=descent,
        steps=round(END / RATE),
        save_every=EVERY,
        measure=measure,
    )
    return theory, run


def mapped(net: gdln.GatedNetwork, path: tuple[str, str, str]) -> jax.Array:
    """Singular values of the map of one pathway, the largest three."""
    first, second, third = (net.weights[name] for name in path)
    return jnp.linalg.svd(third @ second @ first, compute_uv=False)[:3]


def drawn(
    graph: gdln.Graph, theory: gdln.ReducedTrajectory, run: gdln.Trajectory
) -> list[Image.Image]:
    """Every frame; limits and panels stay where they are."""
    figure = plot.figure(4.8, 3.1)
    halves = figure.subfigures(1, 2, width_ratios=[1.1, 1])
    race, loss = halves[1].subplots(2, 1, sharex=True)
    t = gdln.flow_time(run.ts, RATE)
    lines = network(halves[0].subplots(), graph)
    dots = []
    for name, path in ROUTE.items():
        product = np.prod([np.asarray(theory.b[edge]) for edge in path], axis=0)
        modes = np.sort(product, axis=1)[:, ::-1][:, :3]
        race.plot(theory.ts, modes, color=INK[name], lw=1.2)
        dots += [(race, np.asarray(run.measured[name])[:, k], INK[name]) for k in range(3)]
    loss.plot(theory.ts, theory.losses, color="black", lw=1.2)
    dots.append((loss, np.asarray(run.losses), plot.COLOURS["untrained"]))
    finish(race, loss)
    marks = [ax.plot([], [], "o", ms=3.6, mec="white", mew=0.4, color=c)[0] for ax, _, c in dots]
    now = [ax.axvline(0, color=plot.COLOURS["faint"], lw=0.8, zorder=0) for ax in (race, loss)]
    canvas = FigureCanvasAgg(figure)
    frames = []
    for k in np.linspace(0, len(t) - 1, FRAMES).round().astype(int):
        for mark, (_, values, _) in zip(marks, dots, strict=True):
            mark.set_data(t[: k + 1], values[: k + 1])
        for line in now:
            line.set_xdata([t[k], t[k]])
        for name, line in lines.items():
            line.set_linewidth(0.5 + 0.55 * float(run.measured[name][k]) ** 2)
        if not frames:
            canvas.draw()
            figure.set_layout_engine("none")
        file = BytesIO()
        figure.savefig(file, dpi=DPI, format="png")
        frames.append(Image.open(file).convert("RGB"))
    return frames


def shared(name: str) -> bool:
    """Whether the edge of this name belongs to the pathway of all routes."""
    return "h1" in name or "h2" in name


def network(ax: Axes, graph: gdln.Graph) -> dict[str, Line2D]:
    """Draw the graph; returns edge name -> its line, whose width becomes its strength squared."""
    own = [name for name in graph.nodes if name.startswith("p")]
    rows = [*own[:3], "h1", *own[3:]]
    place = {f"{kind}{k}": (x, 2.3 - 2.3 * k) for kind, x in (("x", 0), ("y", 3)) for k in range(3)}
    for y, name in zip(np.linspace(3, -3, len(rows)), rows, strict=True):
        second = "h2" if name == "h1" else f"q{name[1:]}"
        place[name], place[second] = (1, y), (2, y)
    lines = {}
    for edge in graph.edges:
        (x0, y0), (x1, y1) = place[edge.source], place[edge.target]
        ink, above = INK["shared" if shared(edge.name) else "own"], 2 if shared(edge.name) else 1
        lines[edge.name] = ax.plot([x0, x1], [y0, y1], color=ink, zorder=above)[0]
    for name, (x, y) in place.items():
        end = name[0] in "xy"
        ink = "black" if end else INK["shared" if name[0] == "h" else "own"]
        ax.plot(x, y, "o", ms=17 if end else 7, mfc="white", mec=ink, mew=1.3, zorder=3)
        if end:
            text = f"${name[0]}_{int(name[1]) + 1}$"
            ax.text(x, y, text, ha="center", va="center", zorder=4)
    ax.text(1.5, 3.35, "pathways of one route", color=INK["own"], ha="center")
    ax.text(1.5, -3.75, "pathway that all routes share", color=INK["shared"], ha="center")
    ax.set(xlim=(-0.35, 3.35), ylim=(-4, 3.8))
    ax.axis("off")
    return lines


def finish(race: Axes, loss: Axes) -> None:
    """Labels, limits, legends."""
    race.set(ylabel="strength of $x_1 → y_1$", xlim=(0, END), ylim=(-0.6, 15))
    loss.set(ylabel="loss $L$", xlabel="time $t/τ$", ylim=(-1, 33))
    loss.plot([], [], color="black", lw=1.2, label="theory")
    loss.plot([], [], "o", ms=3.6, color=plot.COLOURS["untrained"], label="gradient descent")
    loss.legend(loc="upper right")
    for ax in (race, loss):
        ax.yaxis.set_major_locator(MaxNLocator(3))


if __name__ == "__main__":
    main()
