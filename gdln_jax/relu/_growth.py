"""Small units on their way to the maxima of the utility: directions and logarithms of sizes."""

import numpy as np
from jaxtyping import Bool, Float

from gdln_jax.relu._sliding import slide
from gdln_jax.relu._utility import Utility


class Growth:
    """Units on their way: directions `w`, `a` (of length 1 together), and `log_size`.

    `fraction` (unit, n): the share of the last step for which an example was on; `sliding` where
    it is neither 0 nor 1 because the unit stays on the kink.
    """

    def __init__(self, w: Float[np.ndarray, "unit x"], a: Float[np.ndarray, "unit y"]):
        size = np.sqrt(np.sum(w**2, axis=1) + np.sum(a**2, axis=1))
        self.w, self.a, self.log_size = w / size[:, None], a / size[:, None], np.log(size)
        self.fraction = self.sliding = np.zeros((len(w), 0))

    def flow(self, utility: Utility, units: Bool[np.ndarray, " unit"], t: float, h: float) -> None:
        """Move some units on by the time `t`, in equal steps of at most `h`.

        The midpoint rule on the weights, which are then divided by their length: first order at
        kinks would cost t h s^2/4 of ln r on XoR; sliding along them costs nothing.
        """
        x, p, residual = utility.examples.x, utility.examples.p, utility.residual
        if not self.fraction.size:
            self.fraction = (self.w @ x.T > 0).astype(float)
            self.sliding = np.zeros(self.fraction.shape, bool)
        w, a, log_size = self.w[units], self.a[units], self.log_size[units]
        fraction, sliding = self.fraction[units], self.sliding[units]
        steps = max(int(np.ceil(t / h - 1e-9)), 1) if t > 0 else 0
        h = t / max(steps, 1)
        z = w @ x.T
        weighted = p[:, None] * residual
        for _ in range(steps):
            on = np.where(sliding, fraction, z > 0)
            middle = w + h / 2 * (on * (a @ weighted.T)) @ x
            turned = a + h / 2 * (np.where(sliding, 0.0, np.maximum(z, 0.0))) @ weighted
            z_middle = middle @ x.T
            push = h * (turned @ weighted.T)
            on = np.where(sliding, fraction, z_middle > 0)
            a = a + h * np.where(sliding, 0.0, np.maximum(z_middle, 0.0)) @ weighted
            w = w + (on * push) @ x
            moved = w @ x.T
            w, fraction, sliding = slide(x, w, push, on, sliding | ((z > 0) != (moved > 0)))
            size = np.sqrt(np.sum(w**2, axis=1) + np.sum(a**2, axis=1))[:, None]
            w, a, log_size = w / size, a / size, log_size + np.log(size[:, 0])
            z = w @ x.T
        self.w[units], self.a[units], self.log_size[units] = w, a, log_size
        self.fraction[units], self.sliding[units] = fraction, sliding
