"""Base data: whitening and condensing keep what they must, bad files are named."""

import numpy as np
import pytest

from gdln_jax.recipes import OptionError

# Base data: what a recipe is given, before any run shows it.
from gdln_jax.recipes._core.base import Base, load_base


def moments(base):
    joint = np.concatenate([base.x, base.y], axis=1)
    return joint.T @ joint / len(joint)


def test_digits_whitened_and_condensed():
    raw = load_base("digits")
    assert raw.x.shape == (1797, 64)
    assert raw.y.sum(axis=1).tolist() == [1.0] * 1797
    white = raw.whitened()
    rank = np.linalg.matrix_rank(raw.x)
    # <x x^T> = I on the directions that vary, and the row space is kept: x is linear in the old x.
    np.testing.assert_allclose(white.x.T @ white.x / 1797, np.eye(rank), atol=1e-12)
    fit = raw.x @ np.linalg.lstsq(raw.x, white.x, rcond=None)[0]
    np.testing.assert_allclose(fit, white.x, atol=1e-8)
    small = white.condensed()
    assert len(small.x) == rank + 10
    np.testing.assert_allclose(moments(small), moments(white), atol=1e-12)
    assert "whitened" in small.origin
    assert "condensed from 1797" in small.origin


def test_few_examples_are_left_as_they_are():
    base = Base(np.eye(4), np.ones((4, 7)), "hierarchy")
    assert base.condensed() is base


def test_a_file(tmp_path):
    x, y = np.arange(12).reshape(4, 3), np.eye(4, dtype=np.float32)
    np.savez(tmp_path / "base.npz", x=x, y=y, more=1)
    base = load_base(tmp_path / "base.npz")
    np.testing.assert_array_equal(base.x, x)
    np.testing.assert_array_equal(base.y, y)
    assert base.x.dtype == base.y.dtype == np.float64
    assert base.origin == "base.npz"


GOOD = np.ones((4, 3))
BAD = GOOD.copy()
BAD[2, 1] = np.nan


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": GOOD}, r"no array 'y'.*has \['x'\]"),
        ({"x": GOOD, "y": np.arange(4)}, r"y must be .*shape is \(4,\); write labels as one-hot"),
        ({"x": np.ones((4, 2, 2)), "y": GOOD}, r"x must be .*shape is \(4, 2, 2\)"),
        ({"x": GOOD[:0], "y": GOOD}, r"x must be .*shape is \(0, 3\)"),
        ({"x": GOOD, "y": GOOD[:3]}, "x has 4 examples and y has 3"),
        ({"x": BAD, "y": GOOD}, r"entry \[2, 1\] is nan"),
        ({"x": GOOD, "y": 0 * GOOD}, "y .*nothing to learn"),
        ({"x": GOOD * 1j, "y": GOOD}, "type is complex128"),
        ({"x": GOOD, "y": np.array([["a"]] * 4)}, "type is <U1"),
        ({"x": GOOD, "y": np.array([[None]] * 4)}, "cannot be read"),
    ],
)
def test_bad_arrays_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(OptionError, match=message):
        load_base(tmp_path / "bad.npz")


def test_bad_files_are_named(tmp_path):
    for name, content, message in (
        ("text.npz", b"not a zip file", "cannot be read"),
        ("empty.npz", b"", "cannot be read"),
        ("cut.npz", b"PK\x03\x04cut", "cannot be read"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OptionError, match=message):
            load_base(tmp_path / name)
    with pytest.raises(OptionError, match=r"there is no file .*none\.npz"):
        load_base(tmp_path / "none.npz")
    with pytest.raises(OptionError, match="neither 'digits' nor a file"):
        load_base("digitss")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(OptionError, match="cannot be read"):
        load_base(tmp_path / "folder.npz")
    np.save(tmp_path / "array.npy", GOOD)
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    with pytest.raises(OptionError, match=r"not an \.npz archive"):
        load_base(tmp_path / "array.npz")
