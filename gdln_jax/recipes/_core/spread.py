"""The numbers of a result with their spread over seeds, as far as they fit into a short table.

Imports nothing heavy; a dataset is read through its own methods.
"""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xarray import DataArray, Dataset
else:  # not loaded here, and not checked at run time
    Dataset = DataArray = Any

SEED = "seed"
# Dimensions along which training goes on: what counts is the end.
_TIMES = ("time", "step", "epoch")
# A variable with more values than this per seed is a curve or a map: the picture shows it.
_LONGEST = 4


def spread_over_seeds(data: Dataset) -> list[dict[str, Any]]:
    """Median and range over seeds of every variable that has few values per seed.

    Of what is followed in time (a dimension whose name ends in time, step or epoch) the last value
    counts. One dict per value: `name` (with the index where there are several), `about` (the
    variable's long_name, `" (at the end)"` added where a time was cut), `median`, `low`, `high`
    (smallest and largest) and `seeds`, the number of finite values; without any the three are None.
    """
    rows = []
    for name, variable in data.data_vars.items():
        if SEED not in variable.dims or variable.dtype.kind not in "fiub":
            continue
        times = [dim for dim in variable.dims if str(dim).endswith(_TIMES)]
        last = variable.isel(dict.fromkeys(times, -1))
        if last.size > _LONGEST * data.sizes[SEED]:
            continue
        about = str(variable.attrs.get("long_name", ""))
        about += " (at the end)" if times else ""
        rows += _rows(str(name), about, last)
    return rows


def _rows(name: str, about: str, values: DataArray) -> list[dict[str, Any]]:
    others = [dim for dim in values.dims if dim != SEED]
    if others:
        values = values.stack(_flat=others, create_index=False)
    table = values.transpose(SEED, ...).to_numpy().reshape(values.sizes[SEED], -1).T.tolist()
    rows = []
    for index, row in enumerate(table):
        finite = sorted(float(value) for value in row if math.isfinite(value))
        count = len(finite)
        middle = (finite[(count - 1) // 2] + finite[count // 2]) / 2 if count else None
        rows.append(
            {
                "name": f"{name}[{index}]" if len(table) > 1 else name,
                "about": about,
                "median": middle,
                "low": finite[0] if count else None,
                "high": finite[-1] if count else None,
                "seeds": count,
            }
        )
    return rows
