"""Learning as a film: modes, representations and similarity matrices over training, GIF or MP4.

Arrays in, one file out. Drawn by Agg whatever the backend, so that no display is needed.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.animation import FFMpegWriter, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.typing import ArrayLike

from gdln_jax._checks import check_integer
from gdln_jax.plot._curves import TIME, mode_curves
from gdln_jax.plot._maps import similarity
from gdln_jax.plot._style import DOUBLE, figure, mode_colours, style

_WRITERS: dict[str, Any] = {".gif": PillowWriter, ".mp4": FFMpegWriter}


def animate(
    path: str | Path,
    t: ArrayLike,
    strengths: ArrayLike,
    representations: ArrayLike,
    *,
    theory: ArrayLike | None = None,
    names: list[str] | tuple[str, ...] | None = None,
    frames: int = 40,
    fps: int = 10,
    dpi: int = 80,
) -> Path:
    r"""Write a film of learning: strengths of modes, a map of the items, and their similarities.

    Left: each mode's strength up to now, solid, over the whole course in theory, dashed. Middle:
    the items' representations on their two leading principal axes, one map for all times, with
    the way that each has come. Right: dot products between the representations of all items, on
    one scale for all times.

    **Arguments:**

    - `path`: ends in `.gif` (written by Pillow) or `.mp4` (needs the program `ffmpeg`); its folder
      is there.
    - `t`: (time,), increasing, in units of tau.
    - `strengths`: (time, mode), as `measures.mode_strengths` reads them.
    - `representations`: (time, item, unit), the activity of a node for every item.
    - `theory`: (time, mode), drawn in full from the first frame on.
    - `names`: of the items.
    - `frames`: at most this many of the times, evenly spread, the first and the last included.
    - `fps`, `dpi`: frames per second; dots per inch of a picture 6.8 inches wide.

    Returns the path. Cost: about .1 s a frame.

    **Raises:** `ValueError` for arrays whose times or items do not fit, values that are not
    finite, or another ending; `RuntimeError` for `.mp4` without `ffmpeg`.
    """
    path = Path(path)
    t, strengths, points = _checked(t, strengths, representations)
    if theory is not None and np.shape(theory) != strengths.shape:
        raise ValueError(
            f"theory has shape {np.shape(theory)}; expected (time, mode) = {strengths.shape}."
        )
    items = points.shape[1]
    names = [str(k + 1) for k in range(items)] if names is None else list(names)
    if len(names) != items:
        raise ValueError(f"names has {len(names)} entries for {items} items.")
    frames = check_integer(frames, "frames", minimum=2)
    writer = _writer(path, check_integer(fps, "fps", minimum=1))
    shown = np.unique(np.linspace(0, len(t) - 1, frames).round().astype(int))
    with style():
        fig = figure(DOUBLE, 2.5)
        FigureCanvasAgg(fig)
        film = _Film(fig, t, strengths, points, theory, names)
        # Written beside and renamed: a film that breaks off leaves nothing, and an older one as is.
        beside = path.with_name(f".{path.stem}.tmp-{os.getpid()}{path.suffix}")
        try:
            with writer.saving(fig, str(beside), check_integer(dpi, "dpi", minimum=10)):
                for k in shown:
                    film.show(int(k))
                    writer.grab_frame()
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    return path


class _Film:
    """The three panels; `show` moves them to one of the times."""

    def __init__(
        self,
        fig: Any,
        t: np.ndarray,
        strengths: np.ndarray,
        points: np.ndarray,
        theory: ArrayLike | None,
        names: list[str],
    ):
        self.t, self.strengths, self.places = t, strengths, _principal(points)
        self.products = points @ points.transpose(0, 2, 1)
        curves, plane, matrix = fig.subplots(1, 3, width_ratios=(1.2, 1, 1.1))
        mode_curves(curves, t, strengths, theory=theory)
        # The solid line of every mode grows with time; its dashed theory stands.
        self.lines = [line for line in curves.lines if line.get_linestyle() == "-"]
        self.now = curves.axvline(t[0], color="#9A9A9A", linewidth=0.7)
        low, high = float(strengths.min()), float(strengths.max())
        margin = 0.05 * ((high - low) or 1.0)
        curves.set(ylim=(low - margin, high + margin), xlabel=TIME, title="modes")

        colours = mode_colours(len(names))
        self.tracks = [plane.plot([], [], color=c, linewidth=0.8, alpha=0.6)[0] for c in colours]
        self.dots = [plane.plot([], [], "o", color=c, markersize=4)[0] for c in colours]
        self.labels = [
            plane.annotate(name, (0, 0), xytext=(4, 3), textcoords="offset points", color=c)
            for name, c in zip(names, colours, strict=True)
        ]
        reach = 1.35 * (float(np.abs(self.places).max()) or 1.0)
        plane.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        plane.set(xticks=[], yticks=[], title="representations", xlabel="principal axis 1")
        plane.set_ylabel("principal axis 2")

        # The last matrix sets no scale: what is largest at any time does.
        largest = self.products[np.abs(self.products).max(axis=(1, 2)).argmax()]
        similarity(matrix, largest)
        self.image = matrix.images[0]
        if self.products.min() < 0:
            peak = float(np.abs(self.products).max())
            self.image.set(cmap="PuOr_r", clim=(-peak, peak))
        matrix.set(title="similarity of items")
        matrix.set_xticks(range(len(names)), names, rotation=90)
        matrix.set_yticks(range(len(names)), names)

    def show(self, k: int) -> None:
        """Move all panels to time number k."""
        for line, values in zip(self.lines, self.strengths.T, strict=True):
            line.set_data(self.t[: k + 1], values[: k + 1])
        self.now.set_xdata([self.t[k], self.t[k]])
        parts = zip(self.tracks, self.dots, self.labels, strict=True)
        for item, (track, dot, label) in enumerate(parts):
            way = self.places[: k + 1, item]
            track.set_data(way[:, 0], way[:, 1])
            dot.set_data(way[-1:, 0], way[-1:, 1])
            label.xy = tuple(way[-1])
        self.image.set_data(self.products[k])


def _principal(points: Float[np.ndarray, "time item unit"]) -> Float[np.ndarray, "time item 2"]:
    """Coordinates on the two leading axes of all times together, centred at the origin."""
    flat = points.reshape(-1, points.shape[2])
    axes = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)[2][:2]
    # Signs of axes are arbitrary: the largest entry is made positive.
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)]
    places = (points - points[-1].mean(axis=0)) @ (axes * np.where(largest < 0, -1, 1)[:, None]).T
    return np.pad(places, ((0, 0), (0, 0), (0, 2 - len(axes))))


def _checked(
    t: ArrayLike, strengths: ArrayLike, representations: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    t, strengths, points = (np.asarray(a, float) for a in (t, strengths, representations))
    if t.ndim != 1 or len(t) < 2 or not np.all(np.diff(t) > 0):
        raise ValueError(f"t has shape {t.shape}; give at least two increasing times.")
    for name, array, axes in (
        ("strengths", strengths, "(time, mode)"),
        ("representations", points, "(time, item, unit)"),
    ):
        if array.ndim != axes.count(",") + 1 or len(array) != len(t) or 0 in array.shape:
            raise ValueError(f"{name} has shape {array.shape}; expected {axes}, {len(t)} times.")
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} holds values that are not finite; did the run diverge?")
    return t, strengths, points


def _writer(path: Path, fps: int) -> Any:
    if path.suffix.lower() not in _WRITERS:
        raise ValueError(f"path ends in {path.suffix!r}; a film is .gif or .mp4.")
    kind = _WRITERS[path.suffix.lower()]
    if not kind.isAvailable():
        raise RuntimeError("writing .mp4 needs the program ffmpeg; install it, or write a .gif.")
    return kind(fps=fps)
