"""Arrays by name, as other programs keep them: mappings, PyTorch and Equinox modules, files.

Nothing in a file is executed: `.npz` is read without pickled objects, PyTorch files with
`weights_only`.
"""

import importlib
import io
import math
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np

from gdln_jax._checks import check_choice, listed, suggest
from gdln_jax._files import write

Orientation = Literal["out_in", "in_out"]
ORIENTATIONS = ("out_in", "in_out")
TORCH = (".pt", ".pth", ".ckpt", ".bin")
"""Endings of files that `torch.save` writes."""
READABLE = (".npz", ".safetensors", *TORCH)

# Entries under which training scripts keep the weights, and those that count the steps.
_WEIGHTS = ("model_state_dict", "state_dict", "model", "network", "net", "params")
_STEPS = ("step", "global_step", "iteration", "epoch")


class NamedArrays(NamedTuple):
    """What a source holds: arrays by name, where they come from, and the step, if it is there.

    `entry` is the name of the part of the source that was read; empty for all of it.
    """

    arrays: dict[str, np.ndarray]
    where: str
    step: int | None = None
    entry: str = ""


def read_arrays(source: object) -> NamedArrays:
    """Read `source`: a mapping (of mappings) of arrays, a module, or the path of a file.

    Floats of half precision become float32, which holds each of them. Entries that are no arrays
    are left out.

    Raises:
        ValueError: a file that cannot be read, of another kind, or that holds more than arrays; a
            source without arrays, or with values that are not finite.
    """
    where: str = "the checkpoint"
    tree: object = source
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        where, tree = path.name, _from_file(path)
    elif isinstance(source, eqx.Module):
        tree = _of_module(source)
    elif callable(getattr(source, "state_dict", None)):
        tree = source.state_dict()  # type: ignore[attr-defined]
    if not isinstance(tree, Mapping):
        raise ValueError(
            f"a {type(source).__name__} holds no arrays by name; pass a mapping name -> array, a "
            f"module, or the path of a file that ends in one of {listed(READABLE)}."
        )
    step = next((n for key in _STEPS if (n := _whole(tree.get(key))) is not None), None)
    entry = next((key for key in _WEIGHTS if isinstance(tree.get(key), Mapping)), "")
    part = tree.get(entry, tree)
    assert isinstance(part, Mapping)
    arrays = dict(_flat(part, ""))
    if not arrays:
        raise ValueError(f"{where} holds no arrays by name.")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise ValueError(f"{name} of {where} is {array[place]} at index {place}.")
    return NamedArrays(arrays, where, step, entry)


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write arrays by name to a `.npz` or `.safetensors` file, whole or not at all."""
    path = Path(path).expanduser()
    if path.suffix == ".safetensors":
        save = _safetensors(path).save
        return write(path, save({k: np.ascontiguousarray(v) for k, v in arrays.items()}))
    if path.suffix != ".npz":
        raise ValueError(f"{path.name} must end in .npz or .safetensors.")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return write(path, buffer.getvalue())


def check_orientation(orientation: str | None) -> None:
    """Raise `ValueError` unless it is None or one of the two."""
    if orientation is not None:
        check_choice(orientation, ORIENTATIONS, "orientation")


def check_file(path: Path, endings: Sequence[str] = READABLE) -> None:
    """Raise `ValueError` unless `path` is a file with one of the endings."""
    must = f"must end in one of {listed(endings, len(endings))}"
    if not path.exists():
        near = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        unknown = bool(path.suffix) and path.suffix not in endings
        more = f"; its name {must}" if unknown else ""
        raise ValueError(f"there is no file or folder {path}{suggest(path.name, near)}{more}.")
    if not path.is_file():
        raise ValueError(f"{path} is a folder; pass a file, whose name {must}.")
    if path.suffix not in endings:
        raise ValueError(f"{path.name} {must}.")


def _from_file(path: Path) -> object:
    check_file(path)
    if path.suffix == ".npz":
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                return dict(file)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path.name} cannot be read ({error}); write it with np.savez(path, name=array), "
                "without pickled objects."
            ) from error
    return _from_safetensors(path) if path.suffix == ".safetensors" else _from_torch(path)


def _from_safetensors(path: Path) -> object:
    load, kind = (
        _safetensors(path).load_file,
        importlib.import_module("safetensors").SafetensorError,
    )
    try:
        return load(path)
    except (kind, OSError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} cannot be read as safetensors ({error}).") from error


def _safetensors(path: Path) -> ModuleType:
    try:
        return importlib.import_module("safetensors.numpy")  # an optional dependency
    except ImportError as error:
        raise ValueError(
            f"{path.name} needs the package safetensors: pip install 'gdln_jax[checkpoints]'."
        ) from error


def _from_torch(path: Path) -> object:
    try:
        torch = importlib.import_module("torch")  # an optional dependency
    except ImportError as error:
        raise ValueError(
            f"{path.name} is read by torch, which is not installed here: install it, or save where "
            "it is, np.savez('net.npz', **{k: v.numpy() for k, v in model.state_dict().items()})."
        ) from error
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path.name} holds more than arrays, which would be executed: save "
            "model.state_dict() instead of the model."
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path.name} cannot be read by torch ({first}).") from error


def _of_module(module: eqx.Module) -> dict[str, object]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(module, eqx.is_array))
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _flat(tree: Mapping[str, object], prefix: str) -> Iterator[tuple[str, np.ndarray]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}/")
        elif (array := _array(value)) is not None:
            yield f"{prefix}{key}", array


def _array(value: object) -> np.ndarray | None:
    """Return `value` as an array of numbers; None if it is none."""
    if hasattr(value, "detach"):  # a tensor of torch
        tensor = value.detach().cpu()  # type: ignore[attr-defined]
        half = str(tensor.dtype) in ("torch.float16", "torch.bfloat16")
        value = (tensor.float() if half else tensor).numpy()
    if not (isinstance(value, list) or (hasattr(value, "shape") and hasattr(value, "dtype"))):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # rows of unequal length
        return None
    if array.dtype.name in ("float16", "bfloat16"):
        array = array.astype(np.float32)
    return array if array.dtype.kind in "fiub" else None


def _whole(value: Any) -> int | None:
    """A number of steps, or None."""
    number = value.item() if getattr(value, "shape", None) == () else value
    good = isinstance(number, int | float) and not isinstance(number, bool)
    return int(number) if good and math.isfinite(number) else None
