r"""Power stages: the leading form of the loss, and its blow-up (theory#power-stages).

With P homogeneous of degree k the flow $\dot\zeta = -P'(\zeta)$ from the deviation blows up at a
time T*, so that the stage takes $T^* \varepsilon^{-a (k-2)}$.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.integrate import DOP853, solve_ivp

from gdln_jax._saddles.deviation import Term, spectrum, term
from gdln_jax._saddles.landscape import NOISE, Block, Vector, chebyshev

_FOLDS = 16.0  # e-folds of growth after which the ray and T* are known
_EARLY = 6.0  # those at which deviations that shrink are read
_SHRUNK = -12.0  # logarithm of the size at which a start counts as one on the stable set
_REST = 1e-7  # gradient of the form, over its scale, at which a start counts as one, too
_FAR = 2 * _FOLDS  # at which the direction is that of the ray, for derivatives
_NODES = 5  # of an integral over one of its steps
_ZERO = 1e-10  # entries of the ray below this are 0: an invariant plane must not be left


class Form(NamedTuple):
    """The leading form of the loss in some variables at a critical point.

    - `free`: the variables, those that are 0 and have no entry in the Hessian.
    - `degree`: of the form. `taking_part`: (n,) which variables occur in it.
    - `scale`: size of its gradient at random unit vectors.
    """

    block: Block
    x: Vector
    free: Int[np.ndarray, " free"]
    degree: int
    taking_part: np.ndarray
    scale: float

    def slope(self, unit: Vector) -> Vector:
        """Gradient at a vector of length 1 (n,); it is evaluated on those only, and scaled."""
        return self.inside(self.block.taylor(self.x, unit)[self.degree - 1])

    def curvature(self, unit: Vector) -> np.ndarray:
        """Hessian (n, n) at a vector of length 1."""
        whole = self.block.curvature_taylor(self.x, unit, self.degree - 2)
        return self.inside(self.inside(whole).T).T

    def product(self, unit: Vector, v: Vector) -> Vector:
        """The Hessian at a vector of length 1, times v."""
        size = float(np.linalg.norm(v))
        if size == 0:
            return np.zeros_like(v)
        units, weights = self.line(unit, v / size, 1)
        return size * (weights @ np.stack([self.slope(one) for one in units]))

    def line(self, unit: Vector, v: Vector, order: int) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of length 1 (point, n) and weights (point,) of the gradient there.

        Their sum is the coefficient of t^order in the gradient at unit + t v, a polynomial.
        """
        nodes, inverse = chebyshev(self.degree)
        there = unit + nodes[:, None] * v
        sizes = np.linalg.norm(there, axis=1)
        return there / sizes[:, None], inverse[order] * sizes ** (self.degree - 1)

    def resting(self, found: "BlowUp", rate: float) -> np.ndarray:
        """Projection (n, n) on the directions of one rate beside the ray of a blow-up."""
        modes = spectrum(-self.curvature(found.ray))
        rows = modes.spaces[int(np.argmin(np.abs(modes.rates - rate)))]
        beside = rows - np.outer(rows @ found.ray, found.ray)
        return rows.T @ beside

    def inside(self, values: np.ndarray) -> np.ndarray:
        """Values (n, ...), 0 for variables that are not free."""
        out = np.zeros_like(values)
        out[self.free] = values[self.free]
        return out


def leading_form(block: Block, x: Vector, curvature: np.ndarray) -> Form | None:
    """The form at x; None where the loss does not depend on what is 0 there."""
    size = np.abs(curvature).max(initial=0.0)
    flat = np.abs(curvature).max(axis=1) <= 1e-8 * max(size, 1.0)
    free = np.flatnonzero(flat & (np.abs(x) < NOISE))
    if not len(free):
        return None
    rng, rows = np.random.default_rng(0), []
    for _ in range(2):
        unit = np.zeros(len(x))
        unit[free] = rng.normal(size=len(free))
        rows.append(block.taylor(x, unit / np.linalg.norm(unit)))
    sizes = np.max(np.abs(rows), axis=0)
    sizes[:, np.setdiff1d(np.arange(len(x)), free)] = 0.0
    orders = np.flatnonzero(sizes.max(axis=1) > 1e-8 * max(sizes.max(), 1.0))
    if not len(orders):
        return None
    order, scale = int(orders[0]), float(sizes[orders[0]].max())
    return Form(block, x, free, order + 1, sizes[order] > 1e-8 * scale, scale)


class BlowUp(NamedTuple):
    """The blow-up of a form from one start.

    - `time`: T* for a start of length 1. `ray`: its direction. `speed`: lambda = -k P(ray).
    - `early`, `late`: (logarithm of the length, direction) at two times on the way.
    """

    time: float
    ray: Vector
    speed: float
    early: tuple[float, Vector]
    late: tuple[float, Vector]


def blow_up(form: Form, start: Vector) -> BlowUp | None:
    """Integrate the flow of the form from a unit vector; None where it does not blow up.

    In a clock in which a ray grows exponentially; not normalised, so that variables that take no
    part keep their relative accuracy.
    """
    power = form.degree - 2

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        zeta = state[:-1]
        size = float(np.linalg.norm(zeta))
        return np.append(-size * form.slope(zeta / size), size**-power)

    solver = DOP853(velocity, 0.0, np.append(start, 0.0), np.inf, rtol=1e-12, atol=1e-16)
    early = (0.0, start)
    for _ in range(5_000):
        solver.step()
        zeta = solver.y[:-1]
        size = float(np.linalg.norm(zeta))
        log = math.log(size)
        if log < _EARLY:
            early = (log, zeta / size)
        at_rest = np.linalg.norm(form.slope(zeta / size)) < _REST * form.scale
        if log < _SHRUNK or at_rest or solver.status != "running":
            return None
        if log > _FOLDS:
            ray, speed = _settled(form, zeta / size)
            time = float(solver.y[-1]) + size**-power / (power * speed)
            return BlowUp(time, ray, speed, early, (log, zeta / size))
    return None


class Way(NamedTuple):
    """The flow of a form from a unit vector to its ray, in the clock of `blow_up`.

    - `ts`: steps. `zeta`: (n, ...) at any times. `size`: the length at the end.
    """

    form: Form
    found: BlowUp
    ts: Float[np.ndarray, " step"]
    zeta: Callable[[float | np.ndarray], np.ndarray]
    size: float


class BlowUpChange(NamedTuple):
    """A derivative: by the start, and the vectors that multiply a change of P' at points.

    - `start`: (n,). `units`, `vectors`: (point, n), on the way from the start to the ray.
    """

    start: Vector
    units: Float[np.ndarray, "point n"]
    vectors: Float[np.ndarray, "point n"]


def way_to_ray(form: Form, start: Vector, found: BlowUp) -> Way:
    """Integrate the flow of a form that blows up once more, and keep it."""

    def velocity(_: float, zeta: np.ndarray) -> np.ndarray:
        size = float(np.linalg.norm(zeta))
        return -size * form.slope(zeta / size)

    def grown(_: float, zeta: np.ndarray) -> float:
        return math.log(np.linalg.norm(zeta)) - _FAR

    grown.terminal = True  # type: ignore[attr-defined]
    span = (0.0, np.inf)
    run = solve_ivp(velocity, span, start, "DOP853", None, True, grown, rtol=1e-12, atol=1e-16)
    return Way(form, found, run.t, run.sol, float(np.linalg.norm(run.y[:, -1])))


def blow_up_change(way: Way, along: Vector | None = None) -> BlowUpChange:
    """Differentiate T* of a start of length 1, or the component of zeta(T*) along a vector.

    The gradient g by zeta obeys dg/dt = P'' g. In the end that of T* is -w |zeta|^(1-k)/lambda,
    and that of a component the vector, at a given length of zeta: it stays normal to the velocity,
    along which rounding would grow. A change of the form adds the integral of -g . dP'.
    """
    form, (_, ray, speed, _, _), end = way.form, way.found, way.ts[-1]
    # In units in which it does not grow: by |zeta|^(1-k), or 1.
    growth = form.degree - 1 if along is None else 0

    def earlier(s: float, g: np.ndarray) -> np.ndarray:
        unit = way.zeta(end - s)
        unit = unit / np.linalg.norm(unit)
        slope = form.slope(unit)
        return -form.product(unit, normal(slope, g)) + growth * (unit @ slope) * g

    def normal(slope: np.ndarray, g: np.ndarray) -> np.ndarray:
        return g if along is None else g - slope * (slope @ g) / (slope @ slope)

    last = -ray / speed if along is None else along
    back = solve_ivp(earlier, (0.0, end), last, "DOP853", None, True, rtol=1e-12, atol=1e-13)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    middle, half = (way.ts[1:] + way.ts[:-1]) / 2, np.diff(way.ts) / 2
    s = np.append((middle[:, None] + half[:, None] * nodes).ravel(), 0.0)
    zeta = way.zeta(s).T
    sizes = np.linalg.norm(zeta, axis=1, keepdims=True)
    units = zeta / sizes
    g = np.stack(
        [normal(form.slope(u), x) for u, x in zip(units, back.sol(end - s).T, strict=True)]
    )
    vectors = -(half[:, None] * weights).reshape(-1, 1) * (sizes ** (1 - growth) * g)[:-1]
    if along is None:  # the rest of T* beyond the end
        power = form.degree - 2
        rest = way.size**-power / (power * speed**2) * ray
        units, vectors = np.vstack([units[:-1], ray]), np.vstack([vectors, rest])
    return BlowUpChange(g[-1], units[: len(vectors)], vectors)


def _settled(form: Form, ray: Vector) -> tuple[Vector, float]:
    """The ray -P'(w) = lambda w near a direction, and lambda."""
    speed = 0.0
    for _ in range(200):
        push = -form.slope(ray)
        speed = float(ray @ push)
        after = ray + push / speed
        after = np.where(np.abs(after) < _ZERO, 0.0, after / np.linalg.norm(after))
        if np.max(np.abs(after - ray)) < 1e-15:
            break
        ray = after
    return ray, speed


def never_falls(form: Form) -> bool:
    """Whether the form is at least 0 at random points, so that nothing is left to learn."""
    if form.degree % 2:
        return False
    rng = np.random.default_rng(1)
    for _ in range(64):
        unit = np.zeros(len(form.x))
        unit[form.free] = rng.normal(size=len(form.free))
        unit /= np.linalg.norm(unit)
        slope = form.slope(unit)
        if unit @ slope < -1e-9 * np.linalg.norm(slope):
            return False
    return True


def beside_ray(form: Form, found: BlowUp, of: Term, log_rho: float) -> list[Term]:
    """What is left of a term beside the ray when its part along it has the length rho.

    A direction of rate nu changes the exponent a to a (1 - nu/lambda).
    """
    modes = spectrum(-form.curvature(found.ray))
    out = []
    for rate, rows in zip(modes.rates.tolist(), modes.spaces, strict=True):
        share = rate / found.speed
        # What shrinks beside the ray is below rounding in the end.
        log, unit = found.late if share > -0.25 else found.early
        part = rows.T @ (rows @ (unit - found.ray * (found.ray @ unit)))
        length = (log + of.log) * (1 - share) + share * log_rho
        beside = term(of.exponent * (1 - share), part, length)
        if beside is not None and share < 1:
            trail = None if of.trail is None else (*of.trail, rate)
            out.append(beside._replace(trail=trail))
    return out
