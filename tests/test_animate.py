"""Films of learning: the frames that were asked for, whole or not at all, without a display."""

import itertools

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
    seen = []

    def grab(self, **options):
        curves, plane, matrix = self.fig.axes[:3]
        solid = [
            line
            for line in curves.lines
            if line.get_linestyle() == "-" and len(line.get_xdata()) != 2
        ]
        seen.append(
            (
                [len(line.get_xdata()) for line in solid],
                plane.get_xlim(),
                np.array(matrix.images[0].get_array()),
                matrix.images[0].get_clim(),
            )
        )
        return real(self, **options)

    real = PillowWriter.grab_frame
    monkeypatch.setattr(PillowWriter, "grab_frame", grab)
    plot.animate(tmp_path / "film.gif", T, strengths, codes, frames=3, dpi=20)
    assert len({limits for _, limits, _, _ in seen}) == 1
    assert len({scale for *_, scale in seen}) == 1
    assert seen[-1][0] == [len(T)] * 2
    for k, (_, _, drawn, _) in zip((0, 4, 8), seen, strict=True):
        np.testing.assert_allclose(drawn, codes[k] @ codes[k].T)


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
        ({"t": T[::-1]}, "increasing times"),
        ({"strengths": np.ones((8, 2))}, r"strengths has shape \(8, 2\); .* 9 times"),
        ({"representations": np.ones((9, 3))}, r"expected \(time, item, unit\)"),
        ({"strengths": np.full((9, 2), np.nan)}, "not finite; did the run diverge"),
        ({"theory": np.ones((9, 3))}, r"theory has shape \(9, 3\)"),
        ({"names": ["a"]}, "names has 1 entries for 3 items"),
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


def test_mp4_needs_a_program(tmp_path, learning, monkeypatch):
    monkeypatch.setattr(FFMpegWriter, "isAvailable", classmethod(lambda _: False))
    with pytest.raises(RuntimeError, match="ffmpeg; install it"):
        plot.animate(tmp_path / "film.mp4", T, *learning)
