"""Layers of which some weights do not exist: encoders of parts of the input that meet later."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool


class Mask(NamedTuple):
    """A 0/1 matrix that can be part of a compiled program's key."""

    shape: tuple[int, ...]
    entries: bytes

    @property
    def array(self) -> Bool[np.ndarray, "target source"]:
        """True where there is a weight."""
        return np.frombuffer(self.entries, bool).reshape(self.shape)


def block_mask(
    target: Sequence[int], source: Sequence[int], blocks: Sequence[Sequence[int]]
) -> Bool[np.ndarray, "target source"]:
    """Return the mask of a layer whose units come in groups, for `ReLUNetwork(..., masks=)`.

    Args:
        target: sizes of the groups of the layer's units.
        source: sizes of the groups of what it sees.
        blocks: for each group of units the numbers of the groups that it sees; two encoders of a
            unit each of two modalities are `[[0], [1]]`.
    """
    if len(blocks) != len(target):
        raise ValueError(f"blocks has {len(blocks)} entries for {len(target)} groups of units.")
    seen = np.zeros((len(target), len(source)), bool)
    for row, groups in enumerate(blocks):
        for group in groups:
            if not 0 <= group < len(source):
                raise ValueError(f"blocks[{row}] names group {group} of {len(source)}, from 0.")
            seen[row, group] = True
    return np.repeat(np.repeat(seen, target, axis=0), source, axis=1)


def checked_masks(
    masks: Sequence[object] | None, shapes: Sequence[tuple[int, ...]]
) -> tuple[Mask | None, ...] | None:
    """Masks of layers whose weights have these shapes; None if no layer has one.

    Raises:
        ValueError: another number of masks, or one that is not 0 and 1 in its layer's shape.
    """
    if masks is None:
        return None
    if len(masks) != len(shapes):
        raise ValueError(f"masks has {len(masks)} entries for {len(shapes)} layers.")
    checked: list[Mask | None] = []
    for i, (mask, shape) in enumerate(zip(masks, shapes, strict=True)):
        if mask is None or isinstance(mask, Mask):
            checked.append(mask)
            continue
        array = np.asarray(mask)
        if array.shape != shape or not np.all((array == 0) | (array == 1)):
            raise ValueError(
                f"masks[{i}] has shape {array.shape}; expected 0 and 1 in the shape of its "
                f"weights, {shape}, or None."
            )
        checked.append(Mask(shape, array.astype(bool).tobytes()))
    return tuple(checked) if any(checked) else None
