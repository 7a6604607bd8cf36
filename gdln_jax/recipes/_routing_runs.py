"""Modes and curvature for the recipe `initialisation`, which has no folder yet."""

import numpy as np

from gdln_jax.recipes.routing import setting


class Modes(setting.Modes):
    """Modes with their frames."""

    u: np.ndarray
    v: np.ndarray

    def __init__(
        self,
        s: np.ndarray,
        d: np.ndarray,
        u: np.ndarray,
        v: np.ndarray,
        half_trace: float,
        num_domains: int,
        order: np.ndarray,
    ):
        super().__init__(s, d, half_trace, num_domains)
        vars(self).update(u=u, v=v, order=order)


def curvature(modes: setting.Modes, b: float) -> float:
    """Return the largest curvature of the loss at the end of learning from strengths b."""
    start = max(b, 1e-9)
    b1, b2 = modes.flow(np.inf, start, start)
    return float(np.max(modes.d * (b1**4 + 2 * b1**2 * b2**2 / modes.num_domains)))
