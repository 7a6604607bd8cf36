"""Learning as a film: modes, representations and similarity matrices over training, GIF or MP4.

Arrays in, one file out. Drawn by Agg whatever the backend, so that no display is needed.
"""

from pathlib import Path

import numpy as np
from matplotlib.animation import FFMpegWriter, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gdln_jax._checks import check_integer
from gdln_jax._files import expanded, writable, written_whole
from gdln_jax.plot._curves import mode_curves
from gdln_jax.plot._differentiation import principal
from gdln_jax.plot._maps import similarity
from gdln_jax.plot._style import COLOURS, DOUBLE, figure, style
from gdln_jax.plot._text import check_text
from gdln_jax.plot._types import ArrayLike

_WRITERS = {
    ".gif": PillowWriter,
    ".mp4": FFMpegWriter,
}


def animate(
    path: str | Path,
    t: ArrayLike,
    strengths: ArrayLike,
    representations: ArrayLike,
    *,
    theory: ArrayLike | None = None,
    places: ArrayLike | None = None,
    names: list[str] | tuple[str, ...] | None = None,
    frames: int = 40,
    fps: int = 10,
    dpi: int = 80,
) -> Path:
    r"""Write a film of learning: strengths of modes, a map of the items, and their similarities.

    Left: each mode's strength up to now, solid, over the whole course in theory, dashed. Middle:
    one map of the items' representations for all times, with the way that each has come. Right:
    dot products between the representations of all items, on one scale for all times.

    Args:
        path: ends in `.gif` (written by Pillow) or `.mp4` (needs the program `ffmpeg`). A missing
            folder is made; a film that is there is replaced when the new one is complete.
        t: (time,), increasing, in units of tau.
        strengths: (time, mode), as `measures.mode_strengths` reads them.
        representations: (time, item, unit), the activity of a node for every item.
        theory: (time, mode), drawn in full from the first frame on.
        places: (time, item, 2), the map's coordinates, say by `measures.mds`. Default: the two
            leading principal axes of all times together; they are enough for two distinctions only.
        names: of the items.
        frames: at most this many of the times, evenly spread, the first and the last included.
        fps: frames per second.
        dpi: dots per inch of a picture 6.8 inches wide.

    Returns:
        The path. Cost: under 0.1 s a frame.

    Raises:
        ValueError: for arrays whose times or items do not fit, values that are not finite, another
            ending, or names with TeX that matplotlib cannot read.
        RuntimeError: for `.mp4` without `ffmpeg`.
        OSError: where the file cannot be written, before anything is drawn where that can be known.
    """
    path = expanded(path)
    t, strengths, points = _checked(t, strengths, representations)
    items = points.shape[1]
    theory = _fitting(theory, "theory", "(time, mode)", strengths.shape)
    places = _fitting(places, "places", "(time, item, 2)", (len(t), items, 2))
    kind = "map axis" if places is not None else "principal axis"
    places = principal(points)[0] if places is None else places
    names = [str(k + 1) for k in range(items)] if names is None else list(names)
    if len(names) != items:
        raise ValueError(f"names has {len(names)} entries for {items} items.")
    for name in names:
        check_text(str(name), "a name")
    frames = check_integer(frames, "frames", minimum=2)
    dpi = check_integer(dpi, "dpi", minimum=10)
    writer = _writer(path, check_integer(fps, "fps", minimum=1))
    shown = np.unique(np.linspace(0, len(t) - 1, frames).round().astype(int))
    with writable(path.parent), style():
        fig = figure(DOUBLE, 2.5)
        FigureCanvasAgg(fig)
        film = _Film(fig, t, strengths, theory, points, names)
        film.map_items(places, kind, names)
        # Laid out once, at its fullest: panels must not move from frame to frame.
        film.show(len(t) - 1)
        fig.canvas.draw()
        fig.set_layout_engine("none")
        with written_whole(path) as (beside,), writer.saving(fig, str(beside), dpi):
            for k in shown:
                film.show(int(k))
                writer.grab_frame()
    return path


class _Film:
    """The three panels; `show` moves them to one of the times."""

    def __init__(
        self,
        fig: Figure,
        t: np.ndarray,
        strengths: np.ndarray,
        theory: np.ndarray | None,
        points: np.ndarray,
        names: list[str],
    ):
        self.t, self.strengths = t, strengths
        self.products = points @ points.transpose(0, 2, 1)
        curves, self.plane, matrix = fig.subplots(1, 3, width_ratios=(1.2, 1, 1.1))
        mode_curves(curves, t, strengths, theory=theory)
        # The solid line of every mode grows with time; its dashed theory stands.
        self.lines = [line for line in curves.lines if line.get_linestyle() == "-"]
        self.now = curves.axvline(t[0], color=COLOURS["faint"], linewidth=0.7)
        drawn = strengths if theory is None else np.stack([strengths, theory])
        low, high = float(drawn.min()), float(drawn.max())
        margin = 0.05 * ((high - low) or 1.0)
        curves.set(ylim=(low - margin, high + margin), title="modes")

        # The last matrix sets no scale: what is largest at any time does.
        sizes = np.abs(self.products).max(axis=(1, 2))
        similarity(matrix, self.products[sizes.argmax()])
        self.image = matrix.images[0]
        peak = float(sizes.max())
        if self.products.min() < -0.02 * peak:
            self.image.set(cmap="PuOr_r", clim=(-peak, peak))
        matrix.set(title="similarity of items")
        matrix.set_xticks(range(len(names)), names, rotation=90)
        matrix.set_yticks(range(len(names)), names)

    def map_items(self, places: np.ndarray, kind: str, names: list[str]) -> None:
        """Fill the middle panel; one colour, since colours stand for modes in the left one."""
        self.places, plane = places, self.plane
        self.tracks = [plane.plot([], [], color=COLOURS["faint"], linewidth=0.8)[0] for _ in names]
        self.dots = plane.plot([], [], "o", color=COLOURS["trained"], markersize=4)[0]
        self.labels = [
            plane.annotate(name, (0, 0), xytext=(4, 3), textcoords="offset points", fontsize=7)
            for name in names
        ]
        reach = 1.35 * (float(np.abs(places).max()) or 1.0)
        plane.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        plane.set(title="representations", xlabel=f"{kind} 1", ylabel=f"{kind} 2")

    def show(self, k: int) -> None:
        """Move all panels to time number k."""
        for line, values in zip(self.lines, self.strengths.T, strict=True):
            line.set_data(self.t[: k + 1], values[: k + 1])
        self.now.set_xdata([self.t[k], self.t[k]])
        for item, (track, label) in enumerate(zip(self.tracks, self.labels, strict=True)):
            track.set_data(*self.places[: k + 1, item].T)
            label.xy = tuple(self.places[k, item])
        self.dots.set_data(*self.places[k].T)
        self.image.set_data(self.products[k])


def _checked(
    t: ArrayLike, strengths: ArrayLike, representations: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    t, strengths, points = (np.asarray(a, float) for a in (t, strengths, representations))
    if t.ndim != 1 or len(t) < 2 or not np.isfinite(t).all() or not np.all(np.diff(t) > 0):
        raise ValueError(f"t has shape {t.shape}; give at least two increasing, finite times.")
    for name, array, axes in (
        ("strengths", strengths, "(time, mode)"),
        ("representations", points, "(time, item, unit)"),
    ):
        if array.ndim != axes.count(",") + 1 or len(array) != len(t) or 0 in array.shape:
            raise ValueError(f"{name} has shape {array.shape}; expected {axes}, {len(t)} times.")
        _finite(array, name)
    return t, strengths, points


def _fitting(
    given: ArrayLike | None, name: str, axes: str, shape: tuple[int, ...]
) -> np.ndarray | None:
    if given is None:
        return None
    array = np.asarray(given, float)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {axes} = {shape}.")
    return _finite(array, name)


def _finite(array: np.ndarray, name: str) -> np.ndarray:
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} holds values that are not finite; did the run diverge?")
    return array


def _writer(path: Path, fps: int) -> PillowWriter | FFMpegWriter:
    if path.suffix.lower() not in _WRITERS:
        raise ValueError(f"path ends in {path.suffix!r}; a film is .gif or .mp4.")
    kind = _WRITERS[path.suffix.lower()]
    if not kind.isAvailable():
        raise RuntimeError("writing .mp4 needs the program ffmpeg; install it, or write a .gif.")
    return kind(fps=fps)
