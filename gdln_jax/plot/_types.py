"""Named types of drawings: `help()` prints the name of an alias, and of a union all members."""

import numpy.typing as npt
from matplotlib.typing import ColorType
from typing_extensions import TypeAliasType

ArrayLike = TypeAliasType("ArrayLike", npt.ArrayLike)
Colour = TypeAliasType("Colour", ColorType)
