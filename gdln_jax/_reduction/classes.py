"""Coarsest invariant partitions: edges that start equal and always receive equal gradients.

An equitable partition is found by refinement (theory#classes); group symmetry is not required and
not looked for. Host code in NumPy.
"""

from collections.abc import Callable

import numpy as np

# Gradients of one mode that differ by less than this, relative to the largest of it in their
# class, are equal: they are sums of many equal terms in different order.
_EQUAL = 1e-9
# Gradients below this, relative to those of the other modes in their class, are rounding alone.
_NOISE = 1e-13
# Points at which gradients are compared, in units of `scale`: small ones, where what is asked for
# (Sigma^yx) dominates, and large ones, where what is predicted does. All must agree.
_SIZES = (1.0, 0.1, 0.01)


def refine(
    gradient: Callable[[np.ndarray], np.ndarray],
    labels: np.ndarray,
    modes: int,
    scale: np.ndarray,
    *,
    seed: int = 0,
) -> np.ndarray:
    """Split the classes `labels` (edge,) until members of a class have equal gradients.

    `gradient` maps strengths (edge, mode) to their gradient. Each round evaluates it at a random
    class-constant point of about `scale` (mode,) or below and splits classes whose members differ
    in any mode, however weak that mode or that class is beside the others; the result has been
    verified at fresh points. At most 3 rounds per class found. Returns labels numbered in order
    of first appearance.
    """
    rng = np.random.default_rng(seed)
    labels = renumbered(labels)
    agreed = rounds = 0
    while agreed < len(_SIZES):
        size = _SIZES[rounds % len(_SIZES)]
        values = size * scale * rng.uniform(0.5, 1.5, size=(labels.max() + 1, modes))
        split = _split(labels, gradient(values[labels]))
        agreed = agreed + 1 if split.max() == labels.max() else 0
        labels, rounds = split, rounds + 1
    return labels


def equal_rows(values: np.ndarray, digits: float = 1e-12, noise: float = 0.0) -> np.ndarray:
    """Labels (row,) of the rows of `values` that agree in every column to `digits`, relatively.

    Relative to the numbers compared, not to the largest: starts of 1e-30 and 2e-30 differ even
    beside one of 1. Differences below `noise` times the largest number of the row do not count.
    """
    labels = np.zeros(len(values), int)
    rounding = noise * np.abs(values).max(axis=1, initial=0.0)
    for column in values.T:
        order = np.argsort(column, kind="stable")
        size, slack = np.abs(column)[order], rounding[order]
        tolerance = digits * np.maximum(size[1:], size[:-1]) + np.maximum(slack[1:], slack[:-1])
        level = np.empty(len(values), int)
        level[order] = np.concatenate([[0], np.cumsum(np.diff(column[order]) > tolerance)])
        labels = renumbered(labels * (level.max(initial=0) + 1) + level)
    return labels


def renumbered(labels: np.ndarray) -> np.ndarray:
    """The same partition with classes numbered in order of first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=int)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _split(labels: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Split classes where the gradients of a mode leave a gap."""
    largest = np.zeros((labels.max() + 1, slope.shape[1]))
    np.maximum.at(largest, labels, np.abs(slope))
    noise = _NOISE * largest.max(axis=1, keepdims=True, initial=0.0)
    tolerance = np.maximum(_EQUAL * largest, noise)
    split = labels
    for m in range(slope.shape[1]):
        order = np.lexsort((slope[:, m], labels))
        gap = np.diff(slope[order, m]) > tolerance[labels[order][1:], m]
        new_class = np.diff(labels[order]) > 0
        level = np.empty_like(labels)
        level[order] = np.concatenate([[0], np.cumsum(gap | new_class)])
        split = renumbered(split * (level.max() + 1) + level)
    return split
