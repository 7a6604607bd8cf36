"""Coarsest invariant partitions: edges that start equal and always receive equal gradients.

An equitable partition is found by refinement (SCIENCE 3); group symmetry is not required and not
looked for. Host code in NumPy. Floor 0: imports nothing of this package and no JAX.
"""

from collections.abc import Callable

import numpy as np

# Gradients that differ by less than this, relative to the largest, are rounding: they are sums of
# many equal terms in different order.
_EQUAL = 1e-9
_VERIFICATIONS = 3


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
    class-constant point of size `scale` (mode,) and splits classes whose members differ; the
    result has been verified at fresh points. Rounds <= number of classes found + 3. Returns labels
    numbered in order of first appearance.
    """
    rng = np.random.default_rng(seed)
    labels = renumbered(labels)
    agreed = 0
    while agreed < _VERIFICATIONS:
        values = scale * rng.uniform(0.5, 1.5, size=(labels.max() + 1, modes))
        slope = gradient(values[labels])
        split = _split(labels, slope, rng)
        agreed = agreed + 1 if split.max() == labels.max() else 0
        labels = split
    return labels


def renumbered(labels: np.ndarray) -> np.ndarray:
    """The same partition with classes numbered in order of first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=int)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _split(labels: np.ndarray, slope: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Split classes where a generic projection of the gradients leaves a gap."""
    projection = slope @ rng.uniform(0.5, 1.5, size=slope.shape[1])
    size = np.abs(slope).max(initial=0.0) * slope.shape[1]
    order = np.lexsort((projection, labels))
    gap = np.diff(projection[order]) > _EQUAL * size
    new_class = np.diff(labels[order]) > 0
    numbers = np.concatenate([[0], np.cumsum(gap | new_class)])
    split = np.empty_like(labels)
    split[order] = numbers
    return renumbered(split)
