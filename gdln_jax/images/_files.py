"""Image files in their standard formats: MNIST's IDX and CIFAR-10's batches, gzipped or not.

Every file is checked against its own header and against its partner before it is used. NumPy only.
"""

import gzip
import io
import pickle
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np
from jaxtyping import Int, UInt8

Images = UInt8[np.ndarray, "n height width channel"]
Labels = Int[np.ndarray, " n"]

# First four bytes of an IDX file: type (8: unsigned byte) and number of axes.
_IMAGES, _LABELS = 0x00000803, 0x00000801
_KIND = {_IMAGES: "an IDX image file", _LABELS: "an IDX label file"}
# A CIFAR-10 record: one label byte, then 3 colour planes of 32 x 32.
_RECORD = 1 + 3 * 32 * 32
_CLASSES = 10


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacked if it is gzipped (judged by content, not by name).

    Raises:
        ValueError: naming the file when it cannot be read or its gzip stream is cut.
    """
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} is gzipped but damaged or cut short ({error}); fetch it again."
        ) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None


def read_idx(images: Path, labels: Path) -> tuple[Images, Labels]:
    """Read images (n, height, width, 1) and labels (n,) of a pair of IDX files.

    Raises:
        ValueError: naming the file for a wrong kind (also: the two swapped), a length that its
            header does not announce, different numbers of images and labels, or a label above 9.
    """
    x = _read_idx(images, _IMAGES)
    y = _read_idx(labels, _LABELS)
    if len(x) != len(y):
        raise ValueError(
            f"{images} holds {len(x)} images but {labels} holds {len(y)} labels; they do not "
            "belong together (training and test files mixed up?)."
        )
    _check_labels(y, labels)
    return x[..., None], y.astype(np.int64)


def _read_idx(path: Path, wanted: int) -> np.ndarray:
    content = read_bytes(path)
    axes = wanted & 0xFF
    head = 4 + 4 * axes
    if len(content) < 4:
        raise ValueError(f"{path} has {len(content)} bytes, too few for an IDX header.")
    magic = int.from_bytes(content[:4], "big")
    if magic != wanted:
        found = _KIND.get(magic, f"a file that begins with 0x{magic:08x}")
        swapped = "; are image and label files swapped?" if magic in _KIND else "."
        raise ValueError(f"{path} should be {_KIND[wanted]} but is {found}{swapped}")
    if len(content) < head:
        raise ValueError(f"{path} is cut short within its header ({len(content)} bytes).")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", count=axes, offset=4))
    size = int(np.prod(shape, dtype=np.int64))
    if len(content) != head + size:
        state = "cut short" if len(content) < head + size else "too long"
        raise ValueError(
            f"{path} is {state}: its header announces {' x '.join(map(str, shape))} bytes = "
            f"{size}, it holds {len(content) - head}."
        )
    if size == 0:
        raise ValueError(f"{path} is empty: its header announces {' x '.join(map(str, shape))}.")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def read_cifar(paths: Iterable[Path]) -> tuple[Images, Labels]:
    """Read images (n, 32, 32, 3) and labels (n,) of CIFAR-10 batches, binary or pickled.

    Raises:
        ValueError: naming the file for a wrong size, a label above 9, or a pickle that holds
            anything but plain arrays and numbers (no code of the file is ever run).
    """
    planes, labels = [], []
    for path in paths:
        content = read_bytes(path)
        read = _read_pickle if content[:1] == b"\x80" and ".bin" not in path.name else _read_binary
        x, y = read(path, content)
        _check_labels(y, path)
        planes.append(x)
        labels.append(y)
    x = np.concatenate(planes).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(x), np.concatenate(labels).astype(np.int64)


def _read_binary(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    if not content or len(content) % _RECORD:
        raise ValueError(
            f"{path} has {len(content)} bytes, which is no whole number of CIFAR-10 records of "
            f"{_RECORD} bytes; it is cut short or of another format."
        )
    table = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return table[:, 1:], table[:, 0]


def _read_pickle(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _Plain(io.BytesIO(content), encoding="bytes").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"{path} is no CIFAR-10 python batch: {error}.") from None
    if not isinstance(batch, dict) or b"data" not in batch or b"labels" not in batch:
        raise ValueError(f"{path} is no CIFAR-10 python batch: it lacks 'data' or 'labels'.")
    x, y = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    if x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != _RECORD - 1 or y.shape != (len(x),):
        raise ValueError(
            f"{path}: 'data' is {x.dtype} {x.shape} with {y.shape} labels; expected uint8 "
            f"(n, {_RECORD - 1}) and (n,)."
        )
    return x, y


class _Plain(pickle.Unpickler):
    """Unpickles NumPy arrays and plain values only: a pickle from elsewhere may hold any code."""

    def find_class(self, module: str, name: str) -> object:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, coding: text.encode(coding)
        return self._refuse(module, name)

    def _refuse(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which no batch needs")


def _check_labels(labels: np.ndarray, path: Path) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= _CLASSES))
    if len(wrong):
        raise ValueError(
            f"{path}: label {labels[wrong[0]]} of image {wrong[0]} is not one of the "
            f"{_CLASSES} classes 0..{_CLASSES - 1}."
        )
