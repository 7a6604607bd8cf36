r"""Linear equations along a stored orbit, and their adjoints, on one set of nodes.

With $A(t) = -l''(y(t))$: a deviation obeys $\dot v = A v$, what it is worth at the end $\dot z = -A
z$, and the worth of the orbit's own change $\dot\lambda = -A\lambda - g$. The Gauss method of sixth
order is its own adjoint, so that $z \cdot v$ stays what it is and sums over nodes are exact
derivatives of the discrete solution.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gdln_jax._saddles.landscape import NOISE, Block, Vector
from gdln_jax._saddles.orbit import Orbit, uncoupled

_ROOT = np.sqrt(15)
_NODES = np.array([0.5 - _ROOT / 10, 0.5, 0.5 + _ROOT / 10])
_STAGES = np.array(
    [
        [5 / 36, 2 / 9 - _ROOT / 15, 5 / 36 - _ROOT / 30],
        [5 / 36 + _ROOT / 24, 2 / 9, 5 / 36 - _ROOT / 24],
        [5 / 36 + _ROOT / 30, 2 / 9 + _ROOT / 15, 5 / 36],
    ]
)
_WEIGHTS = np.array([5 / 18, 4 / 9, 5 / 18])

Nodes = Float[np.ndarray, "step 3 n"]


class Carried(NamedTuple):
    """A solution at the nodes, times e^logs (step,); `end` has length 1, times e^log."""

    nodes: Nodes
    logs: Float[np.ndarray, " step"]
    end: Vector
    log: float


class Track:
    """An orbit that starts in the direction `along`, up to a time, at three nodes a step.

    - `y`: states at the nodes. `weights` (step, 3): those of an integral over time.
    - `inside`: rows of the subspace that the orbit does not leave.
    """

    def __init__(self, block: Block, orbit: Orbit, along: Vector, until: float):
        ends = np.append(orbit.ts[orbit.ts < until], until)
        self.h = np.diff(ends)
        times = ends[:-1, None] + self.h[:, None] * _NODES
        self.y = np.stack([orbit.inner[k](t).T for k, t in enumerate(times)])
        curvatures = [[block.curvature(y) for y in ys] for ys in self.y]
        self.weights = self.h[:, None] * _WEIGHTS
        rows = uncoupled([-one for ones in curvatures for one in ones])
        parts = [part for part in rows if np.linalg.norm(part @ along) > NOISE]
        self.inside = np.concatenate(parts)
        # In these coordinates what is never coupled is exactly 0: rounding would let it grow.
        self.basis = np.concatenate(rows)
        label = np.repeat(np.arange(len(rows)), [len(part) for part in rows])
        together = label[:, None] == label
        self.a = np.stack(
            [[together * (self.basis @ -one @ self.basis.T) for one in ones] for ones in curvatures]
        )

    def forward(self, v: Vector) -> Carried:
        """Carry a vector from the start to the end."""
        return self._carried(v, 1)

    def backward(self, v: Vector) -> Carried:
        """What a component along v at the end was worth before; `end` is at the start."""
        return self._carried(v, -1)

    def _carried(self, v: Vector, way: int) -> Carried:
        v, log = self.basis @ v, 0.0
        v = np.where(np.abs(v) < NOISE * np.linalg.norm(v), 0.0, v)
        nodes, logs = np.zeros_like(self.y), np.zeros(len(self.h))
        none = np.zeros_like(self.y[0])
        for k in range(len(self.h))[::way]:
            size = float(np.linalg.norm(v))
            log += float(np.log(size))
            logs[k] = log
            nodes[k], v = self._step(k, v / size, none, way)
        size = float(np.linalg.norm(v))
        log += float(np.log(size))
        return Carried(nodes @ self.basis, logs, v @ self.basis / size, log)

    def worth(self, end: Vector, sources: Nodes | None = None) -> tuple[Nodes, Vector]:
        """The worth of changes of the orbit at the nodes, and at its start."""
        keep = self.basis @ self.inside.T @ self.inside
        v, nodes = keep @ end, np.zeros_like(self.y)
        forces = np.zeros_like(self.y) if sources is None else sources @ keep.T
        for k in range(len(self.h))[::-1]:
            nodes[k], v = self._step(k, v, forces[k], -1)
        return nodes @ self.basis, v @ self.basis

    def _step(
        self, k: int, v: Vector, forces: np.ndarray, way: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """One step of v' = A v + force, forwards or backwards: values at the nodes, and after."""
        a, forces, n = self.a[k][::way], forces[::way], len(v)
        scaled = self.h[k] * _STAGES
        # Slopes obey k_i = A_i (v + h sum_j a_ij k_j) + force_i.
        matrix = np.eye(3 * n) - np.einsum("ij,iab->iajb", scaled, a).reshape(3 * n, 3 * n)
        slopes = np.linalg.solve(matrix, (a @ v + forces).ravel()).reshape(3, n)
        return (v + scaled @ slopes)[::way], v + self.weights[k] @ slopes
