"""Data of a user: tables with names, arrays by name, tensors, images."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gdln_jax._checks import check_keys, listed
from gdln_jax._data.gated import GatedData
from gdln_jax._data.state import READABLE, check_file, read_arrays

_TABLES = (".csv", ".tsv")
_SETS = (".nc", ".h5")


def read_data(
    source: object,
    *,
    target: str | Sequence[str] | None = None,
    inputs: str | Sequence[str] | None = None,
    one_hot: bool = False,
) -> GatedData:
    """Return `GatedData` with the nodes `x` and `y` from a table or from arrays by name.

    Args:
        source: a DataFrame or a `.csv` or `.tsv` file with one example a row; a Dataset of xarray
            or its `.nc` file; a mapping name -> array (of NumPy, JAX, torch) or a `.npz`,
            `.safetensors` or PyTorch file of one. Arrays (example, ...) of images become rows.
        target: of a table the column or columns to learn, needed; of arrays the name of one.
            Default: `y`.
        inputs: the columns or the array to learn from. Default: all other columns of numbers; `x`.
        one_hot: make a column for each class of the target, as a column of text always becomes.

    Names stay with the data (`GatedData.names`): those of columns, and as those of examples the
    index of a DataFrame or the one column of a file that has another text in each row.

    Raises:
        ValueError: columns or arrays that are not there, inputs that are text, missing values.
    """
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        check_file(path, (*_TABLES, *_SETS, *READABLE))
        source = _opened(path) if path.suffix in (*_TABLES, *_SETS) else path
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return _of_table(source, target, inputs, one_hot)
    return _of_arrays(source, target, inputs, one_hot)


def _opened(path: Path) -> Any:
    try:
        if path.suffix in _SETS:
            import xarray as xr

            with xr.open_dataset(path) as opened:
                return opened.load()
        import pandas as pd

        table = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",")
    except (ValueError, OSError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    texts = [c for c in table.columns if _is_text(table[c]) and table[c].is_unique]
    return table.set_index(texts[0]) if len(texts) == 1 else table


def _is_text(column: Any) -> bool:
    return np.asarray(column).dtype.kind not in "iufb"


def _listed_names(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _of_table(
    table: Any,
    target: str | Sequence[str] | None,
    inputs: str | Sequence[str] | None,
    one_hot: bool,
) -> GatedData:
    columns = [str(c) for c in table.columns]
    table = table.set_axis(columns, axis=1)
    wanted = _listed_names(target)
    if not wanted:
        raise ValueError(f"target is needed: name the columns to learn, of {listed(columns)}.")
    given = _listed_names(inputs) or [
        c for c in columns if c not in wanted and not _is_text(table[c])
    ]
    for names, kind in ((wanted, "target"), (given, "inputs")):
        check_keys(dict.fromkeys(names), columns, kind, "a column")
    if texts := [c for c in given if _is_text(table[c])]:
        raise ValueError(f"inputs names {texts[0]!r}, a column of text; code it as numbers first.")
    if empty := [c for c in (*given, *wanted) if table[c].isna().any()]:
        raise ValueError(
            f"the column {empty[0]!r} has {int(table[empty[0]].isna().sum())} missing values; "
            "leave those rows out, or fill them."
        )
    y = table[wanted]
    if len(wanted) == 1 and (one_hot or _is_text(table[wanted[0]])):
        import pandas as pd

        y = pd.get_dummies(table[wanted[0]], dtype=float)
    return GatedData({"x": table[given].astype(float)}, {"y": y.astype(float)})


def _of_arrays(
    source: Any,
    target: str | Sequence[str] | None,
    inputs: str | Sequence[str] | None,
    one_hot: bool,
) -> GatedData:
    if hasattr(source, "data_vars"):
        arrays: Mapping[str, Any] = {str(k): v for k, v in source.data_vars.items()}
    else:
        arrays = read_arrays(source).arrays
    names = []
    for given, usual in ((inputs, "x"), (target, "y")):
        name = (_listed_names(given) or [usual])[0]
        check_keys({name: None}, arrays, "target" if usual == "y" else "inputs", "an array there")
        names.append(name)
    x, y = (_rows(arrays[name]) for name in names)
    if one_hot:
        classes, index = np.unique(np.asarray(y).ravel(), return_inverse=True)
        if len(index) != len(x):
            raise ValueError(f"one_hot needs one class an example, not an array of {y.shape}.")
        y = np.eye(len(classes))[index.ravel()]
    return GatedData({"x": x}, {"y": y})


def _rows(array: Any) -> Any:
    """An array (example, feature); of two axes it stays what it is, with its names."""
    if array.ndim == 2:
        return array
    plain = np.asarray(array)
    return plain.reshape(len(plain), -1)
