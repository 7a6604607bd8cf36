"""Pseudo-examples from second moments: all that squared error sees of data (theory#moments)."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gdln_jax._checks import check_integer, check_positive
from gdln_jax._data.arrays import real_array

# Eigenvalues of the joint moment below this, relative to the largest, are dropped.
_NOISE = 1e-15
# Largest share of Sigma^yx outside of the range of Sigma^x that counts as rounding.
_OUTSIDE = 1e-8


class Moments(NamedTuple):
    """Moments by gate pattern: (pattern, dx, dx), (pattern, dy, dx) and (pattern, dy, dy)."""

    xx: np.ndarray
    yx: np.ndarray
    yy: np.ndarray | None


def checked_widths(widths: object, name: str) -> dict[str, int]:
    """Node -> width, in the order of the blocks of the moments."""
    if not isinstance(widths, Mapping) or not widths:
        raise ValueError(
            f"{name} is {widths!r}; pass a mapping node -> width, in the order of the moments' "
            "blocks."
        )
    return {node: check_integer(w, f"{name}[{node!r}]", minimum=1) for node, w in widths.items()}


def checked_moments(dx: int, dy: int, given: Mapping[str, object], patterns: int | None) -> Moments:
    """Arrays of the right shape, with a pattern axis; `patterns` is None where there are no gates.

    Raises:
        ValueError: a wrong shape, or moments that are not symmetric.
    """
    shapes = {"xx": (dx, dx), "yx": (dy, dx), "yy": (dy, dy)}
    lead = () if patterns is None else (patterns,)
    arrays: dict[str, np.ndarray | None] = {"yy": None}
    for name, value in given.items():
        if value is None:
            continue
        array = np.asarray(real_array(value, name), np.float64)
        if array.shape != (*lead, *shapes[name]):
            raise ValueError(
                f"{name} has shape {array.shape}; expected {(*lead, *shapes[name])}"
                f"{', one matrix for each gate pattern' if lead else ''}."
            )
        array = array.reshape(-1, *shapes[name])
        if name != "yx":
            turned = np.swapaxes(array, 1, 2)
            if np.abs(array - turned).max() > _OUTSIDE * np.abs(array).max():
                raise ValueError(f"{name} is not symmetric; pass mean of {name[0]} {name[0]}^T.")
            array = (array + turned) / 2
        arrays[name] = array
    return Moments(arrays["xx"], arrays["yx"], arrays["yy"])  # type: ignore[arg-type]


def factor(
    moments: Moments, p: int, widths: tuple[tuple[int, ...], tuple[int, ...]], tol: object
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (n, dx) and targets (n, dy) whose plain means are the moments of pattern `p`.

    `widths` of the input and of the output nodes. Every node is scaled to unit size first, so that
    small inputs beside large targets are not taken for rounding.

    Raises:
        ValueError: moments that no data have; it gives the eigenvalue, or the share.
    """
    tol = check_positive(tol, "tol")
    dx = sum(widths[0])
    xx, yx = moments.xx[p], moments.yx[p]
    size_x = _sizes(np.diagonal(xx), widths[0])
    xx = xx / np.outer(size_x, size_x)
    if moments.yy is None:
        size_y = _sizes(np.square(yx / size_x).max(axis=1), widths[1])
        yx = yx / np.outer(size_y, size_x)
        values, vectors = np.linalg.eigh(xx)
        kept = values > 1e-13 * values.max(initial=0.0)
        seen = yx @ vectors
        outside = np.linalg.norm(seen[:, ~kept])
        if outside > _OUTSIDE * np.linalg.norm(yx):
            raise ValueError(
                f"yx leaves the range of xx{_of(p, moments)}: a share of "
                f"{outside / np.linalg.norm(yx):.2g} lies along inputs that do not vary. No data "
                "have such moments; check them, or give yy."
            )
        yy = (seen[:, kept] / values[kept]) @ seen[:, kept].T
    else:
        yy = moments.yy[p]
        size_y = _sizes(np.diagonal(yy), widths[1])
        yx, yy = yx / np.outer(size_y, size_x), yy / np.outer(size_y, size_y)
    joint = np.block([[xx, yx.T], [yx, yy]])
    values, vectors = np.linalg.eigh(joint)
    least, most = values[0], max(values[-1], 0.0)
    if least < -tol * most or most == 0 > least:
        raise ValueError(
            f"the moments{_of(p, moments)} are not positive semi-definite: the smallest eigenvalue "
            f"of [[xx, xy], [yx, yy]], in units of the nodes' sizes, is {least:.6g} (largest "
            f"{most:.6g}). No data have such moments."
        )
    kept = values > _NOISE * most
    if not kept.any():
        kept[-1] = True  # data that are all 0
    rows = (vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0) * kept.sum())).T
    return rows[:, :dx] * size_x, rows[:, dx:] * size_y


def _sizes(variances: np.ndarray, widths: tuple[int, ...]) -> np.ndarray:
    """Root of the largest variance at each unit's node, 1 where nothing varies."""
    parts = np.split(variances, np.cumsum(widths)[:-1])
    return np.concatenate(
        [np.full(len(v), np.sqrt(v.max()) if v.max() > 0 else 1.0) for v in parts]
    )


def _of(p: int, moments: Moments) -> str:
    return f" of pattern {p}" if len(moments.xx) > 1 else ""


def split_by_node(table: np.ndarray, widths: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Cut (n, sum of widths) into node -> (n, width)."""
    parts = np.split(table, np.cumsum(list(widths.values()))[:-1], axis=1)
    return dict(zip(widths, parts, strict=True))
