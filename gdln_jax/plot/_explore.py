"""Reduced dynamics in a notebook: sliders, and curves that follow them."""

import importlib
import io
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imsave
from matplotlib.lines import Line2D

from gdln_jax import ModeStrengths, Pathways, Reduction
from gdln_jax._checks.types import ArrayLike, Times
from gdln_jax.plot._labels import EndLabels
from gdln_jax.plot._learning import learning, modes
from gdln_jax.plot._runs import MOST_CURVES
from gdln_jax.plot._style import COLOURS, DOUBLE, figure, style
from gdln_jax.plot._varied import CLOSED, MAX_STEPS, Varied, chosen_pathways, solved, varied

if TYPE_CHECKING:
    from ipywidgets import FloatLogSlider, FloatSlider, VBox

    Slider = FloatLogSlider | FloatSlider

_DPI = 150
# The span of an axis beside that of its curves: when it is set, and when it is set again.
_ABOVE, _LOOSE = 1.2, 2.5


class Explorer:
    """A picture of reduced dynamics with sliders; made by `explore`, shown as a cell's last value.

    - `sliders`: name -> slider of ipywidgets. Setting `.value` from Python draws as well.
    - `figure`: loss and strengths, of matplotlib; its grey curves are those at the start.
    - `box`: the widget with both.
    """

    def __init__(self, system: Varied, ts: np.ndarray):
        widgets = _ipywidgets()
        self._system, self._ts = system, ts
        self._neutral = system.neutral()
        losses, every = solved(system, self._neutral, ts)
        self._rows = chosen_pathways(every, system.classes, MOST_CURVES)
        names, paths = ([held[k] for k in self._rows] for held in (every.names, every.paths))
        shown = Pathways(
            every.ts, every.strengths[self._rows], None, tuple(names), tuple(paths), every.how
        )
        self.figure = figure(DOUBLE, 2.6)
        self.figure.set_dpi(_DPI)
        self._canvas = FigureCanvasAgg(self.figure)
        with style():
            left, right = self.figure.subplots(1, 2)
            learning((ts, losses), ax=left, colour=COLOURS["theory"])
            modes(shown, ax=right)
        self._lines = [_followed(ax) for ax in (left, right)]
        self._labels = next(part for part in right.artists if isinstance(part, EndLabels))
        for ax in (left, right):
            _make_way(ax)
        self._moving: list[Artist] = [*self._lines[0], *self._lines[1], self._labels]
        self._image = widgets.Image(format="png", width=int(96 * DOUBLE))
        self._at = _sliders(system, widgets)
        self.sliders: Mapping[str, Slider] = MappingProxyType(
            {name: slider for name, (slider, _, _) in self._at.items()}
        )
        for slider in self.sliders.values():
            slider.observe(self._follow, names="value")
        reset = widgets.Button(description="reset")
        reset.on_click(self._reset)
        columns = widgets.GridBox(
            [*self.sliders.values(), reset],
            layout=widgets.Layout(grid_template_columns="repeat(2, 20em)"),
        )
        self._note = widgets.Label()
        self.box: VBox = widgets.VBox([self._image, self._note, columns])
        self._picture()

    def _follow(self, change: Mapping[str, object]) -> None:
        """Solve at the sliders' values, move the curves, and show the picture."""
        del change
        values = {kind: np.array(held) for kind, held in self._neutral.items()}
        for slider, kind, index in self._at.values():
            values[kind][index] = slider.value
        losses, pathways = solved(self._system, values, self._ts)
        strengths = np.asarray(pathways.strengths)[self._rows]
        rows = np.moveaxis(strengths, 1, 2).reshape(-1, len(self._ts))
        ends = np.asarray(self._labels.points)
        for lines, curves in zip(self._lines, (np.asarray(losses)[None], rows), strict=True):
            for line, curve in zip(lines, curves, strict=True):
                line.set_ydata(curve)
        ends[:, 1] = np.where(np.isfinite(rows[:, -1]), rows[:, -1], 0.0)
        self._note.value = _stopped(self._ts, np.asarray(losses))
        fits = [_make_way(ax) for ax in self.figure.axes]
        if all(fits):
            self._draw()
        else:
            self._picture()

    @property
    def picture(self) -> bytes:
        """The picture as it is shown, in PNG."""
        return bytes(self._image.value)

    def _reset(self, button: object) -> None:
        del button
        for slider, kind, index in self._at.values():
            slider.value = float(self._neutral[kind][index])

    def _picture(self) -> None:
        """Lay out and draw all, and keep what does not move as the background."""
        for part in self._moving:
            part.set_animated(True)
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self.figure.bbox)
        self._draw()

    def _draw(self) -> None:
        """Draw what moves over the background: a tenth of the time of drawing all."""
        self._canvas.restore_region(self._background)
        for part in self._moving:
            part.draw(self._canvas.get_renderer())
        file = io.BytesIO()
        pixels = np.asarray(self._canvas.buffer_rgba())
        imsave(file, pixels, format="png", pil_kwargs={"compress_level": 1})
        self._image.value = file.getvalue()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.box._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return f"Explorer({', '.join(self.sliders)})"


def explore(
    reduction: Reduction, b0: ArrayLike | Mapping[str, ArrayLike] | ModeStrengths, ts: Times
) -> Explorer:
    """Show loss and mode strengths of reduced dynamics with sliders, in a notebook.

    Sliders multiply, by class of edges that start and stay equal (`Reduction.quotient`), the
    initial amplitude and the rate 1/tau; the targets along each mode; and the gates that the data
    name, where these are not 0. `closed gates` is the value of those that are 0, which opens
    pathways to one another. Gates are offered where the reduction is exact for all their values.
    More than eight of a kind share one slider.

    Args:
        reduction: of `GatedData`, in its diagonal form, of a graph without ties.
        b0: strengths as in `Reduction.strengths_of`.
        ts: (time,) increasing, in units of tau.

    Returns:
        An `Explorer`. All values of the sliders have one program. With more than 24 pathways and
        modes one pathway of each kind is drawn.

    Raises:
        ImportError: ipywidgets is not installed.
        ValueError: another form, more than 60 unknowns, or as `Reduction.solve`.
    """
    _ipywidgets()
    start = reduction.strengths_of(b0)
    known = {edge: np.asarray(start[edge]) for edge in start}
    return Explorer(varied(reduction, known), np.asarray(ts, float))


def _ipywidgets() -> ModuleType:
    try:
        return importlib.import_module("ipywidgets")  # an optional dependency
    except ImportError as error:
        raise ImportError(
            "plot.explore needs the package ipywidgets: pip install 'gdln_jax[live]'."
        ) from error


def _sliders(system: Varied, widgets: ModuleType) -> dict[str, tuple["Slider", str, int]]:
    """Sliders by name, with what they turn and its number."""

    def named(kind: str) -> list[str]:
        count = len(system.neutral().get(kind, ()))
        if kind in ("amplitude", "rate"):
            ends = [
                f"{names[0]}{f' (+{len(names) - 1})' * (len(names) > 1)}"
                for names in system.classes
            ]
            return [kind] if count == 1 else [f"{kind} {end}" for end in ends]
        if kind == "strength":
            every = "strengths" if count == 1 else ""
            return [every or f"strength of mode {k + 1}" for k in range(count)]
        if kind == CLOSED:
            return [CLOSED] * count
        return [f"gate {name}" for name in system.gates] if system.apart else ["open gates"] * count

    def slider(kind: str, name: str) -> "Slider":
        usual = {
            "description": name.replace("->", "→"),
            "style": {"description_width": "10em"},
        }
        if kind in ("amplitude", "rate"):
            low = -2 if kind == "amplitude" else -1
            return widgets.FloatLogSlider(1.0, min=low, max=1, step=0.02, **usual)
        most, value = (3.0, 1.0) if kind == "strength" else (1.0, float(kind != CLOSED))
        return widgets.FloatSlider(value, min=0.0, max=most, step=0.01, **usual)

    kinds = ("amplitude", "rate", "strength", "gate", CLOSED)
    return {
        name: (slider(kind, name), kind, k) for kind in kinds for k, name in enumerate(named(kind))
    }


def _stopped(ts: np.ndarray, losses: np.ndarray) -> str:
    """What to say where the solver gave up; nothing if it did not."""
    there = np.isfinite(losses)
    if there.all():
        return ""
    return (
        f"The solver stopped after {MAX_STEPS} steps, near time {ts[there].max(initial=0.0):.3g}: "
        "the dynamics are stiff here; use Reduction.solve with solver=diffrax.Kvaerno5()."
    )


def _followed(ax: Axes) -> list[Line2D]:
    """The lines of some axes, over grey copies of themselves."""
    lines = list(ax.lines)
    for line in lines:
        ax.plot(*line.get_data(), color=COLOURS["faint"], linewidth=0.8, zorder=1)
    return lines


def _make_way(ax: Axes) -> bool:
    """Set limits that fit the curves, and say whether the old ones did."""
    seen = np.concatenate([np.asarray(line.get_ydata(), float) for line in ax.lines])
    low, high = min(0.0, float(np.nanmin(seen))), max(0.0, float(np.nanmax(seen)))
    (bottom, top), size = ax.get_ylim(), high - low
    if bottom <= low and high <= top and top - bottom <= _LOOSE * size:
        return True
    ax.set_ylim(low - (0.05 * size if low < 0 else 0.0), low + _ABOVE * size)
    return False
