"""The numbers of a result with their spread over seeds, as far as they fit into a short table."""

from gdln_jax.recipes._core.result import Dataset

SEED = "seed"
# Dimensions along which training proceeds: what counts is the end.
_TIMES = ("time", "step", "epoch")
# A variable with more values than this per seed is a curve or a map: the picture shows it.
_LONGEST = 4


def spread_over_seeds(data: Dataset) -> list[dict[str, str | float | None]]:
    """Return median and range over seeds of every variable that has few values per seed.

    Of what is followed in time (a dimension whose name ends in time, step or epoch) the last value
    counts. One dict per value: `name` (with the index where there are several), `about` (the
    variable's long_name, `" (at the end)"` added where a time was cut), `median`, `low`, `high`
    (smallest and largest) and `seeds`, the number of finite values; without any the three are None.
    """
    import numpy as np

    rows: list[dict[str, str | float | None]] = []
    for name, variable in data.data_vars.items():
        if SEED not in variable.dims or variable.dtype.kind not in "fiub":
            continue
        times = [dim for dim in variable.dims if str(dim).endswith(_TIMES)]
        last = variable.isel(dict.fromkeys(times, -1))
        if last.size > _LONGEST * data.sizes[SEED]:
            continue
        about = str(variable.attrs.get("long_name", "")) + (" (at the end)" if times else "")
        table = np.asarray(last.transpose(SEED, ...), float).reshape(data.sizes[SEED], -1).T
        for index, row in enumerate(table):
            finite = row[np.isfinite(row)]
            found = (
                [float(x) for x in np.quantile(finite, [0.5, 0, 1])] if len(finite) else [None] * 3
            )
            full = f"{name}[{index}]" if len(table) > 1 else str(name)
            numbers = dict(zip(("median", "low", "high"), found, strict=True))
            rows.append({"name": full, "about": about, **numbers, "seeds": len(finite)})
    return rows
