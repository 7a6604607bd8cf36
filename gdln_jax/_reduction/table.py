"""The enumerated view of a reduction: N Eq. 10, a sum over paths, for small graphs.

For analysis and as the independent check of the loss in aligned coordinates, which never lists
paths.
"""

import functools
from collections.abc import Hashable, Iterator, Mapping
from typing import ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import Result
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._network.edges import EdgeArrays
from gdln_jax._paths import Path, PathStatistics

_Key = TypeVar("_Key", bound=Hashable)


class ByGroup(SeveralArrays, Mapping[_Key, Array | np.ndarray], eqx.Module):
    """Numbers (mode,) per group of paths, or pair of groups: a mapping with one array as its leaf.

    A dictionary would have a leaf for each of thousands of groups, and equinox lists the leaves of
    an object whenever one of its methods is called.
    """

    _reads = "x[group]"

    groups: tuple[_Key, ...] = eqx.field(static=True)
    table: Float[Array | np.ndarray, "*batch group mode"]

    @classmethod
    def of(cls, numbers: Mapping[_Key, np.ndarray]) -> "ByGroup[_Key]":
        """Make the mapping from another one, in the same order."""
        return cls(tuple(numbers), np.stack(list(numbers.values())))

    @functools.cached_property
    def _place(self) -> Mapping[_Key, int]:
        return {group: i for i, group in enumerate(self.groups)}

    def __getitem__(self, group: _Key) -> Array | np.ndarray:
        """The numbers (mode,) of one group."""
        return self.table[..., self._place[group], :]

    def __iter__(self) -> Iterator[_Key]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def __repr__(self) -> str:
        return repr(dict(self))


class PathTable(Result, eqx.Module):
    """The enumerated view of a reduction, for small graphs.

    - `paths`: all paths as tuples of edge names.
    - `strengths[p]`: S(p), (mode,). `variances[j, p]`: D(j, p), (mode,), for paths into one
      output node, without the overlap `overlaps[j, p]` = diag(U_p^T U_j).
    """

    _keys: ClassVar = {"strengths": "path", "variances": "pair", "overlaps": "pair"}

    paths: tuple[Path, ...] = eqx.field(static=True)
    strengths: dict[Path, Float[Array, " mode"]]
    variances: dict[tuple[Path, Path], Float[Array, " mode"]]
    overlaps: dict[tuple[Path, Path], Float[Array, " mode"]]

    def gradient(self, b: EdgeArrays | Mapping[str, Array]) -> dict[str, Array]:
        r"""Return the right-hand side of N Eq. 10 by enumeration:
        $\sum_{p \ni e} B_{p \setminus e}[S(p) - \sum_j U_p^T U_j B_j D(j,p)]$.
        """
        product = {p: jnp.prod(jnp.stack([b[e] for e in p]), axis=0) for p in self.paths}
        error = dict(self.strengths)
        for (j, p), d in self.variances.items():
            error[p] = error[p] - self.overlaps[j, p] * product[j] * d
        total = {name: jnp.zeros_like(value) for name, value in b.items()}
        for p in self.paths:
            for i, name in enumerate(p):
                others = [b[e] for k, e in enumerate(p) if k != i]
                rest = jnp.prod(jnp.stack(others), axis=0) if others else jnp.ones_like(b[name])
                total[name] = total[name] + rest * error[p]
        return total


def path_table(stats: PathStatistics, frames: Mapping[str, tuple[Array, Array]]) -> PathTable:
    """Look at the statistics of every path in the frames (U_e, V_e) of its ends."""
    u = {p: frames[p[-1]][0] for p in stats.paths}
    v = {p: frames[p[0]][1] for p in stats.paths}
    return PathTable(
        stats.paths,
        {p: jnp.einsum("ym,yx,xm->m", u[p], yx, v[p]) for p, yx in stats.yx.items()},
        {(j, p): jnp.einsum("xm,xz,zm->m", v[j], x, v[p]) for (j, p), x in stats.x.items()},
        {(j, p): jnp.einsum("ym,ym->m", u[j], u[p]) for j, p in stats.x},
    )
