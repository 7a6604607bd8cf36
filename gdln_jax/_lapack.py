"""Factorisations of many matrices that do not stop a CPU. Floor 0.

jaxlib 0.10 splits LAPACK calls on a batch over the threads that run the program's operations, and
waits for them there: a few such calls on some hundred matrices, independent of one another, take
all threads of a small machine and wait for ever. One call per matrix is not split, and no slower.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_batching import sequential_vmap
from jaxtyping import Array


def one_by_one(factor: Callable[[Array], Any], matrix: Array) -> Any:
    """`factor(matrix)`; under `vmap` on a CPU one after the other, elsewhere as a batch."""
    return jax.lax.platform_dependent(matrix, cpu=sequential_vmap(factor), default=factor)
