"""Base data of a recipe: scikit-learn's digits or the user's file, checked, whitened, condensed.

Whitening makes Sigma^x the identity, so that it shares its frame with any Sigma^yx and the closed
forms apply (d = 1). Condensing keeps the second moments exactly, which is all that a
gated linear network with squared error can see.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gdln_jax.recipes._core.options import OptionError


@dataclass(frozen=True)
class Base:
    """Examples as rows: `x` (n, d), `y` (n, k) in float64, and where they come from."""

    x: np.ndarray
    y: np.ndarray
    origin: str

    def whitened(self) -> "Base":
        """The same examples in coordinates in which <x x^T> = I (not centred: a correlation).

        Directions in which x does not vary beyond rounding are left out.
        """
        n = len(self.x)
        left, scale, _ = np.linalg.svd(self.x, full_matrices=False)
        # The usual numerical rank: below it a direction is rounding noise, not data.
        rank = int((scale > scale[0] * max(self.x.shape) * np.finfo(float).eps).sum())
        note = f"{self.origin}, inputs whitened ({rank} of {self.x.shape[1]} directions)"
        return Base(np.sqrt(n) * left[:, :rank], self.y, note)

    def condensed(self) -> "Base":
        """At most d + k equally weighted rows with the same <x x^T>, <y x^T> and <y y^T>."""
        joint = np.concatenate([self.x, self.y], axis=1)
        n, width = joint.shape
        if n <= width:
            return self
        rows = np.linalg.qr(joint, mode="r") * np.sqrt(width / n)
        d = self.x.shape[1]
        note = f"{self.origin}, condensed from {n} to {width} rows of equal moments"
        return Base(rows[:, :d], rows[:, d:], note)


def load_base(source: str | Path) -> Base:
    """Load the base data called `source`: `"digits"`, or a file FILE.npz with arrays x and y.

    Raises:
        OptionError: says what is wrong with the file or its arrays, and what is expected.
    """
    if str(source) == "digits":
        from sklearn.datasets import load_digits

        images, labels = (np.asarray(a) for a in load_digits(return_X_y=True))
        return Base(images / 16.0, np.eye(10)[labels], "scikit-learn's digits")  # pixels are 0..16
    path = Path(source)
    if path.suffix != ".npz":
        raise OptionError(f"base {str(source)!r} is neither 'digits' nor a file FILE.npz")
    x, y = (_array(path, name, value) for name, value in zip("xy", _read(path), strict=True))
    if len(x) != len(y):
        raise OptionError(
            f"{path}: x has {len(x)} examples and y has {len(y)}; both are (examples, features)"
        )
    return Base(x, y, str(path.name))


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with path.open("rb") as handle:
            if not zipfile.is_zipfile(handle):
                raise ValueError("it is not an .npz archive")
            handle.seek(0)
            file = np.load(handle, allow_pickle=False)
            if missing := [name for name in ("x", "y") if name not in file.files]:
                raise OptionError(
                    f"{path} has no array {missing[0]!r}; it has {sorted(file.files)};"
                    " expected are x (n, d) and y (n, k)"
                )
            return file["x"], file["y"]
    except FileNotFoundError:
        raise OptionError(f"there is no file {path}") from None
    except OptionError:
        raise
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise OptionError(
            f"{path} cannot be read as an .npz file of plain arrays: {error}"
        ) from None


def _array(path: Path, name: str, value: np.ndarray) -> np.ndarray:
    """The array `name` of the file as float64 (n, width)."""
    trouble = ""
    if value.dtype.kind not in "biuf":
        trouble = f"its type is {value.dtype}"
    elif value.ndim != 2 or 0 in value.shape:
        hint = "; write labels as one-hot rows" if value.ndim == 1 and name == "y" else ""
        trouble = f"its shape is {value.shape}{hint}"
    elif not np.isfinite(value).all():
        row, column = np.argwhere(~np.isfinite(value))[0]
        trouble = f"its entry [{row}, {column}] is {value[row, column]}"
    elif not value.any():
        trouble = "all its entries are 0: there is nothing to learn"
    if trouble:
        raise OptionError(f"{path}: {name} must be a real array (examples, features), {trouble}")
    return value.astype(np.float64)
