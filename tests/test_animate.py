"""Films of learning: the frames that were asked for, whole or not at all, without a display."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.animation import FFMpegWriter, PillowWriter
from PIL import Image

from gdln_jax import plot

T = np.linspace(0.0, 4.0, 9)


@pytest.fixture
def learning():
    """Two modes that are learned one after the other, and the codes of three items."""
    strengths = 1 / (1 + np.exp(np.array([1.0, 3.0]) - T[:, None] * 2))
    codes = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 0.5]])
    return strengths, strengths[:, None, :] * codes


def test_a_film_has_the_frames_that_were_asked_for(tmp_path, learning):
    strengths, codes = learning
    path = tmp_path / "film.gif"
    found = plot.animate(
        path, T, strengths, codes, theory=strengths, names=["a", "b", "c"], frames=5, fps=5, dpi=30
    )
    assert found == path
    with Image.open(path) as film:
        assert getattr(film, "n_frames", None) == 5
        assert film.info["duration"] == 200
        pictures = []
        for k in range(5):
            film.seek(k)
            pictures.append(np.asarray(film.convert("L"), float))
    # Every frame differs from the one before: it is a film.
    assert all(np.abs(a - b).max() > 50 for a, b in itertools.pairwise(pictures))
    assert [p.name for p in tmp_path.iterdir()] == ["film.gif"]


def test_curves_grow_and_the_map_does_not_move(tmp_path, learning, monkeypatch):
    """What is drawn, frame by frame, read off the figure itself."""
    strengths, codes = learning
    theory, places = 3 * strengths, codes[..., ::-1] - 5
    seen = []

    def grab(self, **options):
        curves, plane, matrix = self.fig.axes[:3]
        dots = next(line for line in plane.lines if line.get_marker() == "o")
        solid = [
            line
            for line in curves.lines
            if line.get_linestyle() == "-" and line.get_color() != plot.COLOURS["faint"]
        ]
        seen.append(
            (
                [len(line.get_xdata()) for line in solid],
                (
                    plane.get_xlim(),
                    curves.get_ylim(),
                    [ax.get_position().bounds for ax in self.fig.axes],
                ),
                np.array(dots.get_xydata()),
                np.array(matrix.images[0].get_array()),
                matrix.images[0].get_clim(),
            )
        )
        return real(self, **options)

    real = PillowWriter.grab_frame
    monkeypatch.setattr(PillowWriter, "grab_frame", grab)
    plot.animate(
        tmp_path / "film.gif", T, strengths, codes, theory=theory, places=places, frames=3, dpi=20
    )
    assert all(frame[1] == seen[0][1] for frame in seen)  # limits and panels
    assert len({scale for *_, scale in seen}) == 1
    assert seen[0][1][1][1] > theory.max()  # nothing of the theory is cut off
    for k, (lengths, _, dots, drawn, _) in zip((0, 4, 8), seen, strict=True):
        assert lengths == [k + 1] * 2
        np.testing.assert_allclose(dots, places[k])
        np.testing.assert_allclose(drawn, codes[k] @ codes[k].T)


def test_the_default_map_keeps_what_lies_in_a_plane(tmp_path, learning, monkeypatch):
    """Principal axes turn a plane of a larger space, and so leave distances as they are."""
    strengths, codes = learning
    turned = codes @ np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0][:2]
    seen = []

    def grab(self, **options):
        dots = next(line for line in self.fig.axes[1].lines if line.get_marker() == "o")
        seen.append(np.array(dots.get_xydata()))
        return real(self, **options)

    real = PillowWriter.grab_frame
    monkeypatch.setattr(PillowWriter, "grab_frame", grab)
    plot.animate(tmp_path / "film.gif", T, strengths, turned, frames=2, dpi=20)
    for k, drawn in zip((0, 8), seen, strict=True):
        for a, b in itertools.combinations(range(3), 2):
            distance = np.linalg.norm(codes[k, a] - codes[k, b])
            np.testing.assert_allclose(np.linalg.norm(drawn[a] - drawn[b]), distance)


def test_a_film_that_breaks_off_leaves_nothing(tmp_path, learning, monkeypatch):
    def broken(self, **options):
        if self._frames:  # in the middle
            raise OSError("no space left on device")
        real(self, **options)

    real = PillowWriter.grab_frame

    old = tmp_path / "film.gif"
    old.write_bytes(b"an older film")
    monkeypatch.setattr(PillowWriter, "grab_frame", broken)
    with pytest.raises(OSError, match="no space"):
        plot.animate(old, T, *learning)
    assert [p.name for p in tmp_path.iterdir()] == ["film.gif"]
    assert old.read_bytes() == b"an older film"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t": T[::-1]}, "increasing, finite times"),
        ({"t": np.append(T[:-1], np.inf)}, "increasing, finite times"),
        ({"strengths": np.ones((8, 2))}, r"strengths has shape \(8, 2\); .* 9 times"),
        ({"representations": np.ones((9, 3))}, r"expected \(time, item, unit\)"),
        ({"strengths": np.full((9, 2), np.nan)}, "not finite; did the run diverge"),
        ({"theory": np.ones((9, 3))}, r"theory has shape \(9, 3\)"),
        ({"theory": np.full((9, 2), np.inf)}, "theory holds values that are not finite"),
        ({"places": np.ones((9, 2, 2))}, r"expected \(time, item, 2\) = \(9, 3, 2\)"),
        ({"names": ["a"]}, "names has 1 entries for 3 items"),
        ({"names": ["a", "b", "$h_{1$"]}, "cannot read as mathematics"),
        ({"path": "film.avi"}, "ends in '.avi'; a film is .gif or .mp4"),
        ({"frames": 1}, "frames"),
    ],
)
def test_what_cannot_be_shown_is_named(tmp_path, learning, change, message):
    path = tmp_path / change.pop("path", "film.gif")
    given = {"t": T, "strengths": learning[0], "representations": learning[1]} | change
    with pytest.raises(ValueError, match=message):
        plot.animate(path, **given)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_refused_first(learning, monkeypatch):
    monkeypatch.setattr(PillowWriter, "saving", None)  # nothing is drawn
    with pytest.raises(OSError, match="/proc/films cannot be written"):
        plot.animate("/proc/films/film.gif", T, *learning)


def test_a_missing_folder_is_made(tmp_path, learning):
    path = tmp_path / "a" / "b" / f"{'x' * 240}.gif"  # nothing fits beside a longer name
    assert plot.animate(path, T, *learning, frames=2, dpi=20) == path
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_mp4_needs_a_program(tmp_path, learning, monkeypatch):
    monkeypatch.setattr(FFMpegWriter, "isAvailable", classmethod(lambda _: False))
    with pytest.raises(RuntimeError, match="ffmpeg; install it"):
        plot.animate(tmp_path / "film.mp4", T, *learning)


def test_no_display_is_needed(tmp_path):
    """Even where the configured backend would open windows."""
    script = (
        "import sys; from gdln_jax import plot; "
        "plot.animate('film.gif', [0, 1], [[0], [1]], [[[0]], [[1]]], frames=2); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    hidden = {"DISPLAY", "WAYLAND_DISPLAY"}
    settings = {k: v for k, v in os.environ.items() if k not in hidden} | {"MPLBACKEND": "tkagg"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=settings, check=True)
    with Image.open(tmp_path / "film.gif") as film:
        assert getattr(film, "n_frames", None) == 2
