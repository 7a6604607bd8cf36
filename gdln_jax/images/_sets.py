"""Labelled images: scikit-learn's digits, MNIST and CIFAR-10 from a folder, OpenML, any arrays.

One copy of the images is all that is ever held; transformations are applied on the fly.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import DTypeLike

from gdln_jax._checks import MAKE_A_MODEL, Instead, Mistakable
from gdln_jax._data.arrays import check_dense
from gdln_jax._data.names import check_row_labels
from gdln_jax.images._files import read_cifar, read_idx

# Pixels above this are bytes that lost their dtype; standardised ones stay far below.
_UNSCALED = 100


def check_pair(images: object, labels: object) -> None:
    """Raise `ValueError` for images and labels that are sparse, masked, or labelled otherwise."""
    given = {"images": images, "labels": labels}
    for name, value in given.items():
        check_dense(value, name)
    check_row_labels(given)


@dataclass(frozen=True, eq=False)
class ImageSet(Mistakable):
    """Labelled images.

    Attributes:
        images: (n, height, width, channel), uint8 in 0..255 (read as value/255) or floating point,
            used as it is. (n, height, width) is taken as one channel.
        labels: (n,) whole numbers in 0..classes-1.
        classes: number of classes; default the largest label plus one.

    Both are copied: what is written to the given arrays (or files that are mapped into memory)
    later does not change the set.

    Raises:
        ValueError: for shapes that do not fit, labels that are no whole numbers or out of range,
            values that are not finite.
    """

    _instead = Instead(model=MAKE_A_MODEL)

    images: np.ndarray
    labels: np.ndarray
    classes: int = 0
    name: str = "images"

    def __post_init__(self) -> None:
        check_pair(self.images, self.labels)
        images, labels = np.asarray(self.images), np.asarray(self.labels)
        if images.ndim == 3:
            images = images[..., None]
        if images.ndim != 4 or 0 in images.shape:
            raise ValueError(
                f"images have shape {images.shape}; expected (n, height, width) or (n, height, "
                "width, channel)."
            )
        if images.dtype.kind not in "fiub":
            raise ValueError(f"images have dtype {images.dtype}; expected numbers.")
        if labels.shape != (len(images),):
            raise ValueError(
                f"labels have shape {labels.shape}; expected ({len(images)},), one per image."
            )
        if labels.dtype.kind not in "iu":
            raise ValueError(f"labels have dtype {labels.dtype}; expected whole numbers.")
        classes = int(self.classes) or int(labels.max()) + 1
        wrong = np.flatnonzero((labels < 0) | (labels >= classes))
        if len(wrong):
            raise ValueError(
                f"label {labels[wrong[0]]} of image {wrong[0]} is not one of the {classes} "
                f"classes 0..{classes - 1}."
            )
        if images.dtype == np.uint8:
            images = images.copy()
        else:
            images = images.astype(np.float32)  # a copy in any case
            if not np.all(np.isfinite(images)):
                raise ValueError("images hold values that are not finite.")
            if images.max() > _UNSCALED:
                warnings.warn(
                    f"images reach {images.max():g} and are used as they are: training on such "
                    "values diverges at any usual learning rate. Pass uint8, which is read as "
                    "value/255, or scale them.",
                    stacklevel=1,  # one place, so that it is shown once
                )
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "labels", labels.astype(np.int32))
        object.__setattr__(self, "classes", classes)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channel) of one image."""
        height, width, channel = self.images.shape[1:]
        return height, width, channel

    @property
    def flat(self) -> np.ndarray:
        """Images as rows (n, height * width * channel), a view in the stored type."""
        return self.images.reshape(len(self.images), -1)

    def values(self, dtype: DTypeLike = np.float64) -> np.ndarray:
        """Return images as rows in `dtype`, as networks see them (uint8 divided by 255)."""
        scale = 255.0 if self.images.dtype == np.uint8 else 1.0
        return self.flat.astype(dtype) / np.asarray(scale, dtype)

    def head(self, count: int | None) -> "ImageSet":
        """Return the first `count` images (all for None or more than there are)."""
        if count is None or count >= len(self):
            return self
        return ImageSet(self.images[:count], self.labels[:count], self.classes, self.name)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"ImageSet({self.name}: {len(self)} images {shape}, {self.classes} classes)"


def load(
    source: str, data_dir: str | Path | None = None, *, home: str | Path | None = None
) -> tuple[ImageSet, ImageSet]:
    """Read training and test images of `source`.

    - `"digits"`: scikit-learn's 8 x 8 digits; needs no files. Every fifth image is a test image.
    - `"mnist"`, `"cifar10"`: their standard files, gzipped or not, in `data_dir` or in its folder
      of that name. Of CIFAR-10 all `data_batch*` are training and all `test_batch*` test images.
    - `"openml:NAME"`: `sklearn.datasets.fetch_openml(NAME)` of square grey images (for example
      `mnist_784`), kept in `home`; every seventh image is a test image.

    Raises:
        ValueError: that names the file or folder and says what is wrong with it.
    """
    if source == "digits":
        return _digits()
    if source.startswith("openml:"):
        return _openml(source.removeprefix("openml:"), home)
    if source not in ("mnist", "cifar10"):
        raise ValueError(
            f"source is {source!r}; it must be 'digits', 'mnist', 'cifar10' or 'openml:NAME'."
        )
    if data_dir is None:
        raise ValueError(f"{source} is read from files: pass data_dir, the folder they lie in.")
    folder = Path(data_dir)
    if not folder.is_dir():
        raise ValueError(f"data_dir {folder} is not a folder.")
    return _mnist(folder) if source == "mnist" else _cifar(folder)


def _digits() -> tuple[ImageSet, ImageSet]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = (np.asarray(pixels) / 16).reshape(-1, 8, 8)  # pixels are 0..16
    return _split(images, np.asarray(labels), 5, "digits")


def _split(
    images: np.ndarray, labels: np.ndarray, every: int, name: str
) -> tuple[ImageSet, ImageSet]:
    test = np.arange(len(images)) % every == every - 1
    classes = int(labels.max()) + 1
    first, second = (ImageSet(images[rows], labels[rows], classes, name) for rows in (~test, test))
    return first, second


def _mnist(folder: Path) -> tuple[ImageSet, ImageSet]:
    sets = []
    for part in ("train", "t10k"):
        images, labels = read_idx(
            *(
                _find(folder, ("mnist", "MNIST/raw"), [f"{part}-{kind}{end}" for end in ends])
                for kind, ends in (
                    ("images", ("-idx3-ubyte", ".idx3-ubyte")),
                    ("labels", ("-idx1-ubyte", ".idx1-ubyte")),
                )
            )
        )
        sets.append(ImageSet(images, labels, 10, "mnist"))
    if sets[0].shape != sets[1].shape:
        raise ValueError(
            f"{folder}: training images are {sets[0].shape} but test images {sets[1].shape}."
        )
    return sets[0], sets[1]


def _find(folder: Path, inside: Sequence[str], names: Sequence[str]) -> Path:
    for place in (folder, *(folder / name for name in inside)):
        for name in names:
            for path in (place / name, place / f"{name}.gz"):
                if path.is_file():
                    return path
    raise ValueError(
        f"there is no {names[0]} (or .gz) in {folder} or its folders {', '.join(inside)}."
    )


def _cifar(folder: Path) -> tuple[ImageSet, ImageSet]:
    inside = ("cifar10", "cifar-10-batches-bin", "cifar-10-batches-py")
    for place in (folder, *(folder / name for name in inside)):
        found = [sorted(place.glob(f"{part}*")) for part in ("data_batch", "test_batch")]
        if all(found):
            first, second = (ImageSet(*read_cifar(paths), 10, "cifar10") for paths in found)
            return first, second
    raise ValueError(
        f"there are no data_batch* and test_batch* files in {folder} or its folders "
        f"{', '.join(inside)}."
    )


def _openml(name: str, home: str | Path | None) -> tuple[ImageSet, ImageSet]:
    from sklearn.datasets import fetch_openml

    try:
        data_home = None if home is None else str(home)
        pixels, labels = fetch_openml(
            name, return_X_y=True, as_frame=False, parser="auto", data_home=data_home
        )
    except OSError as error:
        raise ValueError(
            f"OpenML could not be reached for {name!r} ({error}); pass a folder with the files."
        ) from None
    pixels = np.asarray(pixels)
    side = round(np.sqrt(pixels.shape[1]))
    if side * side != pixels.shape[1]:
        raise ValueError(f"openml:{name} has {pixels.shape[1]} features, which is no square.")
    if pixels.min() >= 0 and pixels.max() <= 255 and np.all(pixels == np.round(pixels)):
        pixels = pixels.astype(np.uint8)
    _, numbers = np.unique(np.asarray(labels), return_inverse=True)
    return _split(pixels.reshape(-1, side, side), numbers, 7, name)
