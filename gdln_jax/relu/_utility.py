"""What a small ReLU unit gains, and the gates at which it gains most.

A unit a relu(w . x) that does not change the residual R climbs
U = sum_i p_i (a . R_i) relu(w . x_i). Within one on/off pattern D, with the examples Z on the
kink, U belongs to the linear map M_D P_Z: M_D = sum_{i in D} p_i R_i x_i^T, and P_Z takes w to the
complement of the x_i in Z. The singular triples (s, u, v) of it are modes (w, a) = (v, u)/sqrt 2
that grow as e^{s t}.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import linprog

from gdln_jax._checks import is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._gates_network import ends

# Singular values this close, relative to the largest, are equal: rounding of a matrix product.
_EQUAL = 1e-9
# Forces at the kinks balance to this share of the rate.
_BALANCED = 1e-7


class Examples(NamedTuple):
    """Inputs (n, x), targets (n, y) and weights (n,) that sum to 1, in float64."""

    x: Float[np.ndarray, "n x"]
    y: Float[np.ndarray, "n y"]
    p: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, data: GatedData) -> "Examples":
        """Read them off data with one input and one output and no gates, after checks."""
        source, output = ends(data)
        if not is_concrete(data):
            raise ValueError(
                "the gates are predicted from the values of the data; call it outside of jit, vmap "
                "and grad."
            )
        x, y, p = (
            np.asarray(part, np.float64)
            for part in (data.inputs[source], data.targets[output], data.weights)
        )
        for name, part in ((f"inputs[{source!r}]", x), (f"targets[{output!r}]", y)):
            if part.ndim != 2:
                raise ValueError(f"{name} has shape {part.shape}; expected (examples, features).")
            if not np.all(np.isfinite(part)):
                row = int(np.argmin(np.isfinite(part).all(axis=1)))
                raise ValueError(f"{name} is not finite at example {row}; leave it out.")
        if not np.any(p @ y**2):
            raise ValueError(
                f"targets[{output!r}] is 0 on all examples that have a weight, which a network "
                "with small weights fits from the start: there is nothing to predict."
            )
        return cls(x, y, p / p.sum())

    def loss(self, residual: np.ndarray) -> float:
        """Half the weighted mean square of a residual (n, y)."""
        return float(self.p @ np.sum(residual**2, axis=1) / 2)

    def size(self, rows: np.ndarray) -> float:
        """Largest singular value of rows (n, _) that are weighted by sqrt p."""
        scaled = np.sqrt(self.p)[:, None] * rows
        gram = scaled @ scaled.T if len(scaled) < scaled.shape[1] else scaled.T @ scaled
        return float(np.sqrt(max(np.linalg.eigvalsh(gram)[-1], 0.0)))


def as_matrix(array: ArrayLike | Sequence[Any], name: str) -> Float[np.ndarray, "_ _"]:
    """A finite float64 array of two axes."""
    values = np.asarray(array, np.float64)
    if values.ndim != 2:
        raise ValueError(f"{name} has shape {values.shape}; expected two axes.")
    if not np.all(np.isfinite(values)):
        row = int(np.argmin(np.isfinite(values).all(axis=1)))
        raise ValueError(f"{name} is not finite in row {row}.")
    return values


def residual_of(
    examples: Examples, given: ArrayLike | Sequence[Any] | None
) -> Float[np.ndarray, "n y"]:
    """The residual that was given, or the targets, as before anything is learned."""
    residual = examples.y if given is None else as_matrix(given, "residual")
    if residual.shape != examples.y.shape:
        raise ValueError(
            f"residual has shape {residual.shape}; expected that of the targets, "
            f"{examples.y.shape}."
        )
    return residual


class Modes(NamedTuple):
    """Growing modes of one pattern: rates (mode,), largest first, and directions (mode, x + y)."""

    rates: Float[np.ndarray, " mode"]
    directions: Float[np.ndarray, "mode parameter"]


class Kinks(NamedTuple):
    """How firmly the kinks hold a unit.

    `error` of the forces' balance, 0 where they can hold it, and the largest possible `margin` to
    letting go, inf without kinks.
    """

    error: float
    margin: float


class Gate(NamedTuple):
    """A local maximum of the utility: where its units are `on` and at a `kink` (n,), its modes."""

    on: Bool[np.ndarray, " n"]
    kink: Bool[np.ndarray, " n"]
    modes: Modes

    @property
    def rate(self) -> float:
        """ln |th| of its units grows at this rate."""
        return float(self.modes.rates[0])


class Utility:
    """The utility of small units under one residual; what was computed for a pattern is kept."""

    def __init__(self, examples: Examples, residual: Float[np.ndarray, "n y"]):
        self.examples, self.residual = examples, residual
        # Nothing grows faster than this.
        self.top = examples.size(residual) * examples.size(examples.x)
        self._modes: dict[bytes, Modes] = {}
        self._gates: dict[bytes, Gate | None] = {}

    def matrix(self, on: Bool[np.ndarray, " n"]) -> Float[np.ndarray, "y x"]:
        """M_D."""
        return (self.examples.p[on, None] * self.residual[on]).T @ self.examples.x[on]

    def modes(self, on: Bool[np.ndarray, " n"], kink: Bool[np.ndarray, " n"]) -> Modes:
        """The modes of M_D P_Z; the first has the sign with which it is on for `on`."""
        key = on.tobytes() + kink.tobytes()
        if key not in self._modes:
            x = self.examples.x
            left, rates, right = np.linalg.svd(
                _off_the_span(self.matrix(on), x[kink]), full_matrices=False
            )
            growing = rates > _EQUAL * max(self.top, np.finfo(float).tiny)
            directions = np.concatenate([right, left.T], axis=1)[growing] / np.sqrt(2)
            if len(directions) and np.sum(x[on] @ right[0]) < 0:
                directions[0] *= -1
            self._modes[key] = Modes(rates[growing], directions)
        return self._modes[key]

    def gate(self, on: Bool[np.ndarray, " n"], kink: Bool[np.ndarray, " n"]) -> Gate | None:
        """The gate whose units are on for `on` and slide along `kink`, if there is such a one."""
        key = on.tobytes() + kink.tobytes()
        if key not in self._gates:
            self._gates[key] = self._gate(on, kink)
        return self._gates[key]

    def _gate(self, on: Bool[np.ndarray, " n"], kink: Bool[np.ndarray, " n"]) -> Gate | None:
        modes = self.modes(on, kink)
        if not len(modes.rates):
            return None
        x, width = self.examples.x, self.examples.x.shape[1]
        w, a = modes.directions[0, :width], modes.directions[0, width:]
        z = x @ w
        # An input of 0 holds nothing.
        clear = (np.abs(z) > _EQUAL * np.linalg.norm(x, axis=1)) | ~np.any(x, axis=1)
        if not np.array_equal((z > 0) & clear, on):
            return None
        if not np.array_equal(~clear, kink):  # others are at the kink, too: of +x and -x, say
            return self.gate(on, ~clear)
        held = self.kinks(w, a, float(modes.rates[0]), on, kink)
        good = held.error < _BALANCED and held.margin > -_BALANCED * self.top
        return Gate(on, kink, modes) if good else None

    def kinks(
        self,
        w: Float[np.ndarray, " x"],
        a: Float[np.ndarray, " y"],
        rate: float,
        on: Bool[np.ndarray, " n"],
        kink: Bool[np.ndarray, " n"],
    ) -> Kinks:
        """Whether the examples on the kink can hold a unit of this direction.

        For |w| = |a| = 1, g = M_D^T a - rate w has to be sum_Z b_i x_i with 0 < b_i < -c_i,
        c_i = p_i a . R_i: the linear program of the largest margin to both ends.
        """
        w, a = w / np.linalg.norm(w), a / np.linalg.norm(a)
        pull = self.matrix(on).T @ a - rate * w
        push = -(self.examples.p * (self.residual @ a))[kink]
        return _held(self.examples.x[kink], pull, push, max(rate, np.finfo(float).tiny))


def _off_the_span(
    matrix: Float[np.ndarray, "y x"], rows: Float[np.ndarray, "kink x"]
) -> Float[np.ndarray, "y x"]:
    """`matrix` restricted to the complement of the span of `rows`."""
    if not len(rows):
        return matrix
    _, sizes, along = np.linalg.svd(rows, full_matrices=False)
    along = along[sizes > 1e-9 * max(sizes[0], np.finfo(float).tiny)]
    return matrix - (matrix @ along.T) @ along


def _held(
    x: Float[np.ndarray, "kink x"],
    pull: Float[np.ndarray, " x"],
    push: Float[np.ndarray, " kink"],
    rate: float,
) -> Kinks:
    if not len(x):
        return Kinks(float(np.linalg.norm(pull) / rate), np.inf)
    best = np.linalg.lstsq(x.T, pull, rcond=1e-9)[0]
    error = float(np.linalg.norm(x.T @ best - pull) / rate)
    if np.linalg.matrix_rank(x, 1e-9) == len(x):  # the forces are unique
        return Kinks(error, float(np.min(np.minimum(best, push - best))))
    # max m: b_i - m >= 0, -c_i - b_i - m >= 0, sum b_i x_i the part of the pull in the span.
    n = len(x)
    ones = np.ones((n, 1))
    upper = np.block([[-np.eye(n), ones], [np.eye(n), ones]])
    found = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=upper / rate,
        b_ub=np.append(np.zeros(n), push) / rate,
        A_eq=np.append(_basis(x) @ x.T, np.zeros((len(_basis(x)), 1)), axis=1),
        b_eq=_basis(x) @ (x.T @ best),
        bounds=(None, None),
    )
    return Kinks(error, float(found.x[-1]) if found.success else -np.inf)


def _basis(rows: Float[np.ndarray, "kink x"]) -> Float[np.ndarray, "rank x"]:
    _, sizes, along = np.linalg.svd(rows, full_matrices=False)
    return along[sizes > 1e-9 * sizes[0]]
