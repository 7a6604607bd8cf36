"""Labelled data sets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

# name -> (dimensions, values, meaning)
Variables = dict[str, tuple[str | tuple[str, ...], ArrayLike, str]]


def labelled(title: str, coords: Mapping[str, Any], variables: Variables) -> xr.Dataset:
    """Make a data set from coordinates and `variables`: (dimensions, values, meaning) by name."""
    data = {
        name: (dims, np.asarray(values), {"long_name": meaning})
        for name, (dims, values, meaning) in variables.items()
    }
    return xr.Dataset(data, coords, {"title": title})
