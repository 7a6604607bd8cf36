"""The loss along gradient flow without control, tabulated once, and time as an effort spends it.

With S the effort that is spent, an extremal is the free flow up to S at another speed, and takes
T(S) = int_0^S sqrt(beta/2) du / sqrt(l(u) - l(S)) (theory#effort). The fall q = -dl/du > 0 is kept
as polynomials on panels, so that l(u) - l(S) is a sum of positive terms.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpy.polynomial import legendre

from gdln_jax import Quotient, Reduction

NODES, WEIGHTS = legendre.leggauss(16)
TO_COEFFICIENTS = np.linalg.inv(legendre.legvander(NODES, len(NODES) - 1))
_PANELS = 8  # of one call of the solver
_RTOL = 1e-12
# The last coefficients of a panel, relative to its largest one, and what errors of the state leave
# of a fall that is small beside the largest one so far.
_RESOLVED, _ROUNDED = 1e-11, 3e-12
# A fall this far below the largest one before it: the loss is within rounding of its end.
_LEARNED = 1e-16
_LEAST = 1e-9  # of the search: narrower panels mean that no polynomial fits


class Spending(NamedTuple):
    """An extremal that spends S: nodes v in (0, 1), u = S (1 - v^2), on intervals of the panels.

    - `ends`: (interval + 1,) falling v; `gaps`: l(u) - l(S) at the nodes, (interval, node).
    - `slopes`: |dt/dv| sqrt(2/beta) there; the time that remains is its integral from 0 to v.
    """

    spent: float
    ends: np.ndarray
    v: np.ndarray
    gaps: np.ndarray
    slopes: np.ndarray

    def integral(self, values: np.ndarray) -> float:
        """Integrate values at the nodes over v from 0 to 1."""
        return float(np.sum(self.by_interval(values)))

    def by_interval(self, values: np.ndarray) -> np.ndarray:
        """Integrate over each interval."""
        return -np.diff(self.ends) / 2 * (values @ WEIGHTS)


class FreeFlow(NamedTuple):
    """The fall q of the loss along the free flow.

    - `edges`: (panel + 1,) of the panels in u; `losses`: at the edges.
    - `coefficients`: (panel, 16) of q, in Legendre polynomials on each panel.
    """

    edges: np.ndarray
    losses: np.ndarray
    coefficients: np.ndarray

    def fall(self, panel: np.ndarray, u: np.ndarray) -> np.ndarray:
        """q at u (panel, node), each row in its panel."""
        low, high = self.edges[panel][:, None], self.edges[panel + 1][:, None]
        x = (2 * u - low - high) / (high - low)
        return legendre.legval(x, self.coefficients[panel].T[:, :, None], tensor=False)

    def between(self, panel: np.ndarray, u: np.ndarray, width: np.ndarray) -> np.ndarray:
        """Integrate q from u to u + width, both in the panel of their row."""
        inner = u[..., None] + width[..., None] * (NODES + 1) / 2
        rows, nodes, inside = inner.shape
        q = self.fall(panel, inner.reshape(rows, -1)).reshape(rows, nodes, inside)
        return width / 2 * (q @ WEIGHTS)

    def spending(self, spent: float) -> Spending:
        """The extremal that spends `spent` in all."""
        last = int(np.searchsorted(self.edges, spent, side="left")) - 1
        ends = np.append(np.sqrt(1 - self.edges[: last + 1] / spent), 0.0)
        v = ends[1:, None] + (ends[:-1] - ends[1:])[:, None] * (NODES + 1) / 2
        gaps = self.gaps(spent, np.arange(last + 1), v)
        return Spending(spent, ends, v, gaps, 2 * spent * v / np.sqrt(2 * gaps))

    def gaps(self, spent: float, panel: np.ndarray, v: np.ndarray) -> np.ndarray:
        """l(u) - l(S) at u = S (1 - v^2), (panel, node), each row in its panel."""
        last = int(np.searchsorted(self.edges, spent, side="left")) - 1
        behind = spent * v**2  # S - u
        start, end = self.edges[:last], self.edges[1 : last + 1]
        whole = (end - start) * self.coefficients[:last, 0]
        rest = np.array([[spent - self.edges[last]]])
        part = self.between(np.array([last]), np.array([[self.edges[last]]]), rest)[0, 0]
        # after[k]: from the end of panel k to S, a sum of positive terms.
        after = np.cumsum(np.append(part, whole[:0:-1]))[::-1][:last]
        after = np.append(after, 0.0)
        width = np.where(panel[:, None] == last, behind, 0.0)
        inside = panel < last
        width[inside] = behind[inside] - (spent - self.edges[panel[inside] + 1])[:, None]
        return self.between(panel, spent - behind, width) + after[panel][:, None]

    def loss(self, spent: float) -> float:
        """l(S)."""
        panel = np.clip(np.searchsorted(self.edges, spent) - 1, 0, len(self.coefficients) - 1)
        left = np.array([[self.edges[panel + 1] - spent]])
        rest = self.between(np.array([panel]), np.array([[spent]]), left)
        return float(self.losses[panel + 1] + rest[0, 0])

    def duration(self, spent: float) -> float:
        """T(S) / sqrt(beta)."""
        here = self.spending(spent)
        return here.integral(here.slopes)

    def lengthening(self, spent: float) -> float:
        """dT/dS / sqrt(beta), which is 0 at folds."""
        here = self.spending(spent)
        panel = np.arange(len(here.v))
        u = spent * (1 - here.v**2)
        end = self.fall(panel[-1:], np.array([[spent]]))
        change = end - self.fall(panel, u) * (1 - here.v**2)  # of the gap, at fixed v
        return here.integral(here.slopes * (1 / spent - change / (2 * here.gaps)))


def tabulate(dynamics: Reduction | Quotient, b0: PyTree, most: float) -> FreeFlow:
    """Follow the free flow until u = `most`, or until the loss has reached its end."""
    state, u, width, top = b0, 0.0, most / _PANELS, 0.0
    edges, losses, rows = [0.0], [], []
    while u < most:
        step = width * np.arange(1, _PANELS + 1)
        inner = (u + step - width)[:, None] + width * (NODES + 1) / 2
        ts = np.concatenate([[u], np.concatenate([inner, (u + step)[:, None]], axis=1).ravel()])
        states = _states(dynamics, state, ts)
        here, falls = (np.asarray(x) for x in _falls(dynamics, states))
        losses = losses or [float(here[0])]
        falls = falls[1:].reshape(_PANELS, -1)
        coefficients = falls[:, :-1] @ TO_COEFFICIENTS.T
        size = np.max(np.abs(coefficients), axis=1)
        tail = np.max(np.abs(coefficients[:, -2:]), axis=1)
        tops = np.maximum(top, np.maximum.accumulate(size))
        limit = _RESOLVED * size + _ROUNDED * np.sqrt(size * tops)
        learned = np.flatnonzero(falls[:, -1] < _LEARNED * tops)
        fine = np.cumprod(tail <= limit)
        kept = int(fine[: learned[0] + 1 if len(learned) else None].sum())
        if kept:
            last = kept * falls.shape[1]
            state = jax.tree.map(lambda leaf, last=last: leaf[last], states)
            u, top = float(ts[last]), float(tops[kept - 1])
            edges += (ts[1:].reshape(_PANELS, -1)[:kept, -1]).tolist()
            losses += here[1:].reshape(_PANELS, -1)[:kept, -1].tolist()
            rows.append(coefficients[:kept])
            if kept - 1 in learned:
                break
        if not fine.all():
            width /= 2
        elif np.all(tail <= 0.01 * limit):
            width *= 2
        if width < _LEAST * most:
            raise ValueError(
                f"the loss along the free flow from b0 is not smooth at u = {u:.3g}; pass a "
                "smaller most, or another start."
            )
    return FreeFlow(np.array(edges), np.array(losses), np.concatenate(rows))


def _states(dynamics: Reduction | Quotient, start: PyTree, ts: np.ndarray) -> PyTree:
    """Strengths at the times, from those at the first."""
    if isinstance(dynamics, Quotient):
        return dynamics.solve(ts, x0=start, rtol=_RTOL, progress=False).x
    return dynamics.solve(start, ts, rtol=_RTOL, progress=False).b


@eqx.filter_jit
def _falls(dynamics: Reduction | Quotient, states: PyTree) -> tuple[Array, Array]:
    """The loss at stacked states, and how fast it falls: |dl/db|^2 in the metric of the flow."""
    rates = jnp.ones(())
    if isinstance(dynamics, Quotient):
        rates = jnp.asarray(dynamics.rates / dynamics.tau)[:, None]

    def one(b: PyTree) -> tuple[Array, Array]:
        loss, slope = jax.value_and_grad(dynamics.loss)(b)
        falls = [jnp.sum(rates * jnp.square(g)) for g in jax.tree.leaves(slope)]
        return loss, jnp.sum(jnp.stack(falls))

    return jax.vmap(one)(states)
