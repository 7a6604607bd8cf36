r"""Finite noisy data: train and test error over time in closed form, early stopping, and draws.

A teacher of few modes plus the noise of P examples is a spiked random matrix. Its singular values
(spikes, bulk, and what a spike takes from the bulk) and the learning curve a(s, t) of one mode give
both errors: Lampinen and Ganguli (2019, arXiv 1809.10374), Benaych-Georges and Nadakuditi (2012,
arXiv 1103.2221), with the terms of order one restored (docs/noise.md).

With `v = sigma^2 N1/P`, `A = N3/N1`, `c = sqrt(A) v` and
`lambda(theta) = s^2 = v (1 + A) + 2 c cos(theta)` all densities are elementary on (0, pi). A sum
over singular values is then a sum over points with signed weights, the same for every f:

    sum_i f(s_i) = int m f + sum_q int [f(s(theta)) - f(shat_q)] chi_q
                   + (f(s_+) + f(s_-))/4 - int f/(2 pi)

The last two terms are those of real matrices. The integral of chi_q is -1 for a mode that stands
out (`sbar^2 > c`) and 0 for one that does not, so that one smooth expression holds for both.
May import the closed forms and `tasks`, whose `Task` it returns.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import roots_legendre

from gdln_jax import GatedData, GatedNetwork, Graph
from gdln_jax._checks import Result, check_integer, is_concrete, namespace
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.boundary import check_random_key
from gdln_jax._linalg import one_by_one, random_orthogonal, standard_normal
from gdln_jax.exact._calculus import growth, implicit_root, scaled_time
from gdln_jax.tasks import Task

_Values = ArrayLike | Sequence[float | int]

# Gauss-Legendre nodes on (0, pi): with 400 the masses of all densities are right to rounding (by
# SciPy's nodes; NumPy's weights are good to 1e-10). No trapezoid: for N3 = N1 the integrands have
# no even periodic extension.
_NODES = 400


class _Sizes(NamedTuple):
    """Numbers of inputs N1, outputs N3 and examples P: static."""

    inputs: int
    outputs: int
    examples: int

    @property
    def ratio(self) -> float:
        """A = N3/N1."""
        return self.outputs / self.inputs

    @property
    def rank(self) -> int:
        return min(self.inputs, self.outputs)


class LearningCurves(Result, eqx.Module):
    """Expected errors over time; made by `learning_curves`.

    - `ts`: (time,) the times asked for.
    - `train`: (time,) the loss (mean over examples of half the squared norm) on the noisy data.
    - `test`: (time,) the same on fresh white inputs with clean targets. For noisy test targets add
      sigma^2 N3/2.
    - `spikes`: (mode,) singular value of Sigma^yx that belongs to each mode of the teacher. Where
      `above` is False this is the value of the formula, which is no singular value there (infinite
      for a mode of strength 0).
    - `above`: (mode,) whether the mode stands out of the noise: sbar > `threshold`.
    - `left`, `right`: (mode,) squared overlaps of the spike's singular vectors with the teacher's
      output and input directions; 0 where not `above`, to leading order.
    - `chi_mass`: (mode,) singular values that the mode takes from the bulk, by the quadrature that
      is used: -1 where `above`, else 0 (-1/2 at the threshold). Another number means that `nodes`
      is too small, or that sbar is within 0.1 % of the threshold, where this one number, not the
      errors, suffers.
    - `threshold`: sigma sqrt(N1/P) (N3/N1)^(1/4).
    - `edges`: (2,) smallest and largest singular value of the bulk.
    - `end`: test error at t = infinity, sigma^2 N1 N3/(2 P).
    """

    _units: ClassVar = {"ts": "time, in the units of tau", "end": "time, in the units of tau"}

    ts: Float[Array, " time"]
    train: Float[Array, " time"]
    test: Float[Array, " time"]
    spikes: Float[Array, " mode"]
    above: Bool[Array, " mode"]
    left: Float[Array, " mode"]
    right: Float[Array, " mode"]
    chi_mass: Float[Array, " mode"]
    threshold: Float[Array, ""]
    edges: Float[Array, "2"]
    end: Float[Array, ""]

    def __repr__(self) -> str:
        shape = f"LearningCurves({self.ts.shape[-1]} times, {self.above.shape[-1]} modes"
        if not is_concrete(self) or self.ts.ndim != 1 or not self.ts.size:
            return shape + ")"
        best = int(np.argmin(self.test))
        return (
            f"{shape}, {int(self.above.sum())} above the threshold {float(self.threshold):.4g}, "
            f"test error {float(self.test[0]):.4g} -> {float(self.test[best]):.4g} at t = "
            f"{float(self.ts[best]):.4g} -> {float(self.end):.4g} at the end)"
        )


def learning_curves(
    sbar: _Values,
    inputs: int,
    outputs: int,
    examples: int,
    sigma: ArrayLike,
    a0: ArrayLike,
    ts: _Values,
    *,
    tau: ArrayLike = 1.0,
    nodes: int = _NODES,
) -> LearningCurves:
    r"""Return the expected train and test error of a two-layer linear network on noisy data.

    Targets $y = W x + z$ with a teacher W = sum_q sbar_q u_q v_q^T (N3 x N1) in random position
    and z iid N(0, sigma^2); P >= N1 examples whose inputs are whitened exactly, X X^T/P = I. The
    student has min(N1, N3) or more hidden units and starts aligned and balanced: with
    Sigma^yx = U S V^T its map is U diag(a(s_i, t)) V^T, all a(s_i, 0) = a0, and
    `tau a' = 2 a (s - a)`. Then

        train = 1/2 sum_i (s_i - a_i)^2 + sigma^2 N3 (P - N1)/(2 P)
        test  = 1/2 sum_i a_i^2 - sum_i a_i u_i^T W v_i + 1/2 sum_q sbar_q^2

    in expectation over noise and teacher (the sums: theory#learning-curves; the module's docstring
    has the first). Errors of the formula are of order 1/N1: below 1.8/N1 in all set-ups tried,
    N3 = N1 included, for few modes (docs/noise.md says how few). The integrals are exact to 1e-8 in
    float64 (1e-6 from a0 = 1e-30 with N3 near N1), and to about 1e-5 in float32.

    Args:
        sbar: (mode,) strengths of the teacher, >= 0 and at most min(N1, N3) of them; modes of
            strength 0 are left out.
        inputs: N1, a plain integer, as the next two.
        outputs: N3.
        examples: P >= N1.
        sigma: standard deviation of the noise of each target, >= 0; 0 is the limit of small noise,
            with a one-sided derivative.
        a0: a(0) > 0, one number for all modes.
        ts: (time,) times >= 0 in any order, in the units of `tau` (t = tau * learning rate * step);
            `inf` is the end of training.
        tau: time constant.
        nodes: nodes of the quadrature over the bulk.

    `sbar`, `sigma`, `a0`, `ts` and `tau` may be traced and differentiated, in sbar and sigma across
    the threshold too. Costs O(times x nodes) time and memory.

    **There is no formula here** for gates and routes, starts that are unaligned, unbalanced or not
    equal for all modes, fewer hidden units than min(N1, N3), Gaussian inputs that are not whitened,
    P < N1, more than two layers, or noise in the inputs. Draw data and simulate those.

    Raises:
        ValueError: that names the argument for P < N1, sigma < 0, a0 <= 0, an a0 per mode, sbar < 0
            or more modes than min(N1, N3), negative times, and what is no number. Inside `jit`,
            `vmap` or `grad`, where values cannot be seen, such a value gives NaN.
    """
    sizes = _checked_sizes(inputs, outputs, examples)
    nodes = check_integer(nodes, "nodes", minimum=2)
    sbar, sigma, a0, tau = _checked(sbar, sigma, a0, tau, sizes)
    ts = _real(ts, "ts", 1, lambda t: t >= 0, "times of at least 0")
    return _learning_curves(*_same_dtype(sbar, sigma, a0, tau, ts), sizes, nodes)


def best_time(
    sbar: _Values,
    inputs: int,
    outputs: int,
    examples: int,
    sigma: ArrayLike,
    a0: ArrayLike,
    *,
    tau: ArrayLike = 1.0,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the time of the smallest expected test error, and that error.

    Arguments, setting and limits are those of `learning_curves`.

    Returns:
        `(time, test)`. `time` is `inf` where training never harms (`test` is then the end value
        sigma^2 N1 N3/(2 P)), and 0 where it never helps. Both may be differentiated in sbar,
        sigma, a0 and tau, `time` by the implicit function theorem, with derivative 0 where it is
        0 or `inf`; it jumps where two minima are equally deep.

    The minimum is searched on 161 times that cover the learning of all modes above the
    threshold (of the bulk's edge if there are none) and 80 from there to 10,000 times as late,
    then refined around the best. A best test error within 1e-6 (relative) of the end value counts
    as the end value. Runs under `jit` and `vmap`.

    Raises:
        ValueError: as `learning_curves`.
    """
    sizes = _checked_sizes(inputs, outputs, examples)
    return _best_time(*_same_dtype(*_checked(sbar, sigma, a0, tau, sizes)), sizes)


def draw(
    sbar: _Values,
    inputs: int,
    outputs: int,
    examples: int,
    sigma: ArrayLike,
    *,
    key: PRNGKeyArray,
    hidden: int | None = None,
) -> Task:
    """Draw one data set of the setting of `learning_curves`: teacher, whitened inputs, noise.

    Nodes `x` (N1), `h` (`hidden`), `y` (N3). The inputs are sqrt(P) times a random matrix with
    orthonormal columns, so that Sigma^x = I to rounding, and the targets are those of a teacher in
    random position plus N(0, sigma^2).

    Args:
        sbar: as `learning_curves`; so are the next four.
        inputs: N1.
        outputs: N3.
        examples: P.
        sigma: standard deviation of the noise.
        key: a JAX random key; teacher, inputs, noise and hidden frame have keys of their own.
        hidden: hidden units, at least min(N1, N3), which is the default. A narrower layer cannot
            learn all modes and has no formula here.

    `meta`: `teacher`, the map W (N3, N1); `sigma`; `start`, a function: `start(a0)` is the
    `GatedNetwork` W_1 = sqrt(a0) R V^T, W_2 = sqrt(a0) U R^T with U S V^T = Sigma^yx of this draw
    and R a random matrix with orthonormal columns, from which both errors are those of
    `learning_curves` up to the scatter of draws. The test error of a network of map W' is
    ||W' - W||^2/2.

    Costs O(P N1^2 + P N1 N3). Works on traced `sbar`, `sigma` and `key`: many draws are one
    program, `jax.vmap(lambda key: gdln.noise.draw(..., key=key).data)(keys)`.

    Raises:
        ValueError: as `learning_curves`, and for a narrower hidden layer.
    """
    sizes = _checked_sizes(inputs, outputs, examples)
    check_random_key(key)
    sbar, sigma = _same_dtype(_checked_strengths(sbar, sizes), _checked_sigma(sigma))
    width = sizes.rank if hidden is None else check_integer(hidden, "hidden", minimum=1)
    if width < sizes.rank:
        raise ValueError(
            f"hidden is {width}, fewer than min(inputs, outputs) = {sizes.rank}: there is no "
            "formula for a hidden layer that cannot hold all modes. Leave hidden out, or build a "
            "narrower graph around the data of a draw and train it."
        )
    keys = jax.random.split(key, 5)
    orthogonal = partial(random_orthogonal, dtype=sbar.dtype)
    u = orthogonal(keys[0], sizes.outputs, len(sbar))
    v = orthogonal(keys[1], sizes.inputs, len(sbar))
    x = orthogonal(keys[2], sizes.examples, sizes.inputs) * math.sqrt(sizes.examples)
    z = standard_normal(keys[3], (sizes.examples, sizes.outputs), sbar.dtype)
    exact = jax.lax.Precision.HIGHEST
    teacher = jnp.matmul(u * sbar, v.T, precision=exact)
    y = jnp.matmul(x, teacher.T, precision=exact) + sigma * z
    nodes = {"x": sizes.inputs, "h": width, "y": sizes.outputs}
    graph = Graph(nodes, [("x", "h"), ("h", "y")])
    correlation = jnp.matmul(y.T, x, precision=exact) / sizes.examples
    frame = orthogonal(keys[4], width, sizes.rank)
    meta = {"teacher": teacher, "sigma": sigma, "start": _Start(graph, correlation, frame)}
    return Task(graph, GatedData({"x": x}, {"y": y}), "noise", meta)


class _Start(eqx.Module):
    """`start(a0)`: the network that is aligned with a draw and has equal amplitudes a0."""

    graph: Graph = eqx.field(static=True)
    correlation: Float[Array, "out in"]
    frame: Float[Array, "hidden rank"]

    def __call__(self, a0: ArrayLike) -> GatedNetwork:
        root = jnp.sqrt(_checked_a0(a0).astype(self.frame.dtype))
        u, v = one_by_one(_singular_vectors, self.correlation)
        first, second = self.frame @ v.T, u @ self.frame.T
        return GatedNetwork(self.graph, {"x->h": root * first, "h->y": root * second})


def _singular_vectors(matrix: Array) -> tuple[Array, Array]:
    u, _, vt = jnp.linalg.svd(matrix, full_matrices=False)
    return u, vt.T


# ---------------------------------------------------------------- the formula
class _Spectrum(NamedTuple):
    """Singular values of Sigma^yx in expectation, as points with signed weights.

    `sum_i f(s_i) = f(points) @ number` and
    `sum_i f(s_i) u_i^T W v_i = f(points) @ overlap`.
    """

    points: Float[Array, " point"]
    number: Float[Array, " point"]
    overlap: Float[Array, " point"]


@lru_cache(maxsize=16)
def _bulk(sizes: _Sizes, nodes: int) -> tuple[np.ndarray, ...]:
    """Return, at nodes theta in (0, pi): weights of an integral, lambda/v, sin^2, 1 - cos, and m.

    No difference of nearly equal numbers, at the hard edge lambda = 0 of N3 = N1 either.
    """
    root_a = math.sqrt(sizes.ratio)
    x, weights = roots_legendre(nodes)
    half = np.pi * (1 + x) / 4
    level = (1 - root_a) ** 2 + 4 * root_a * np.cos(half) ** 2
    sine = np.sin(2 * half) ** 2
    return (
        np.pi * weights / 2,
        level,
        sine,
        2 * np.sin(half) ** 2,
        sizes.outputs * 2 / np.pi * sine / level,
    )


def _spectrum(
    sbar: Array, sigma: Array, sizes: _Sizes, nodes: int
) -> tuple[_Spectrum, dict[str, Array]]:
    """Spikes, bulk, and what spikes take from it (theory#spikes, theory#learning-curves).

    Returns the spectrum, and what `LearningCurves` says of it.

    Written in root = sqrt(v) and x = min(sbar^2/c, c/sbar^2), with which nothing is singular at
    sigma = 0 or sbar = 0: the bulk is then at s = 0, and a mode of strength 0 takes nothing.
    """
    a, root_a = sizes.ratio, math.sqrt(sizes.ratio)
    weights, level, sine, versine, bulk = (
        jnp.asarray(values, sbar.dtype) for values in _bulk(sizes, nodes)
    )
    root = sigma * math.sqrt(sizes.inputs / sizes.examples)
    v, c = root**2, root_a * root**2
    square, threshold = sbar**2, root * a**0.25
    above = sbar > threshold
    larger, smaller = jnp.where(above, square, c), jnp.where(above, c, square)
    x = smaller / jnp.where(larger > 0, larger, 1.0)
    chi, kappa_over_c = _densities(x[:, None], above[:, None], sine, versine)
    chi_mass, kappa_mass = _sum(chi, weights), c * _sum(kappa_over_c, weights)

    # What is subtracted has weight 0, to rounding, well below the threshold; there the formula of
    # its place would run to infinity.
    held = jnp.maximum(sbar, threshold / 4)
    held = jnp.where(held > 0, held, 1.0)
    subtracted = _spike(held, root, root_a)
    present = sbar > 0
    gap = jnp.where(above, 1 - x**2, 0.0)
    edges = root * jnp.array([abs(1 - root_a), 1 + root_a], sbar.dtype)
    real = -1 / (2 * math.pi)  # with the 1/4 at both edges: the real-matrix term R[f]
    none = jnp.zeros_like(edges)
    spectrum = _Spectrum(
        points=jnp.concatenate([root * jnp.sqrt(level), edges, subtracted]),
        number=jnp.concatenate([weights * (bulk + chi.sum(0) + real), none + 0.25, -chi_mass]),
        # kappa/s, in which root cancels.
        overlap=jnp.concatenate(
            [
                weights * root_a / jnp.sqrt(level) * root * kappa_over_c.sum(0),
                none,
                (square - kappa_mass) / subtracted,
            ]
        ),
    )
    facts = {
        "spikes": jnp.where(present, _spike(jnp.where(present, sbar, 1.0), root, root_a), jnp.inf),
        "above": above,
        "left": gap / (1 + a * v / held**2),
        "right": gap / (1 + v / held**2),
        "chi_mass": chi_mass,
        "threshold": threshold,
        "edges": edges,
        "end": sigma**2 * (sizes.inputs * sizes.outputs / (2 * sizes.examples)),
    }
    return spectrum, facts


def _densities(x: Array, above: Array, sine: Array, versine: Array) -> tuple[Array, Array]:
    """Return chi, which a mode takes from the bulk, and kappa/c, its overlap, (mode, node)."""
    nearness = (1 - x) ** 2 + 2 * x * versine  # |1 - x exp(i theta)|^2
    taken = jnp.where(above, -(1 - x) - x * versine, x * ((1 - x) - versine))
    return taken / (np.pi * nearness), 2 / np.pi * x * sine / nearness


def _spike(sbar: Array, root: Array, root_a: float) -> Array:
    """Return the singular value sqrt((sbar^2 + v)(sbar^2 + A v))/sbar of a mode that stands out."""
    return jnp.hypot(sbar, root) * (jnp.hypot(sbar, root_a * root) / sbar)


def _amplitude(s: Array, t: Array, a0: Array, tau: Array) -> tuple[Array, Array]:
    """Return a(s, t) and s - a(s, t), for s >= 0 and a0 > 0 with d = 1.

    `exact.linear_mode` without its quadrature, which takes 16 times the memory: here points x
    times are many.
    """
    time = 2 * scaled_time(t, tau)
    z = s * time
    near = z < 0.5
    # (1 - exp(-z))/z: 14 terms of its series are exact below 1/2.
    small, large = jnp.where(near, z, 0.0), jnp.where(near, 1.0, z)
    series = jnp.ones_like(z)
    for n in range(14, 1, -1):
        series = 1 - small * series / n
    decayed = time * jnp.where(near, series, -jnp.expm1(-large) / large)
    amplitude, missing = growth(jnp.log(a0) + z, decayed)
    return amplitude, missing * (s - a0)


def _sum(values: Array, weights: Array) -> Array:
    """GPUs would otherwise multiply float32 in reduced precision."""
    return jnp.matmul(values, weights, precision=jax.lax.Precision.HIGHEST)


def _learned(t: Array, spectrum: _Spectrum, a0: Array, tau: Array) -> Array:
    """Return the test error at t less its constant, sum_q sbar_q^2/2."""
    amplitude, _ = _amplitude(spectrum.points, t[..., None], a0, tau)
    return _sum(amplitude**2, spectrum.number) / 2 - _sum(amplitude, spectrum.overlap)


@partial(jax.jit, static_argnames=("sizes", "nodes"))
def _learning_curves(
    sbar: Array, sigma: Array, a0: Array, tau: Array, ts: Array, sizes: _Sizes, nodes: int
) -> LearningCurves:
    spectrum, facts = _spectrum(sbar, sigma, sizes, nodes)
    _, missing = _amplitude(spectrum.points, ts[:, None], a0, tau)
    outside = sizes.outputs * (sizes.examples - sizes.inputs) / (2 * sizes.examples)
    train = _sum(missing**2, spectrum.number) / 2 + sigma**2 * outside
    test = _learned(ts, spectrum, a0, tau) + jnp.sum(sbar**2) / 2
    return LearningCurves(ts, train, test, **facts)


# ---------------------------------------------------------------- the best time
@partial(jax.jit, static_argnames="sizes")
def _best_time(
    sbar: Array, sigma: Array, a0: Array, tau: Array, sizes: _Sizes
) -> tuple[Array, Array]:
    spectrum, facts = _spectrum(sbar, sigma, sizes, _NODES)
    constant = jnp.sum(sbar**2) / 2
    still = jax.lax.stop_gradient((spectrum, a0, tau))
    start, lowest = _search(lambda ts: _learned(ts, *still), _learning_time(facts, *still[1:]))
    lowest = lowest + constant
    rounding = 64 * jnp.finfo(sbar.dtype).eps * (lowest + facts["end"] + constant)
    never_harms = lowest >= facts["end"] * (1 - 1e-6) - rounding
    never_helps = start == 0

    root = implicit_root(lambda *of: of[1], _slope)
    inside = root(jnp.zeros_like(start), start, *spectrum, a0, tau)
    time = jnp.where(never_helps, 0.0, inside)
    time = jnp.where(jnp.isnan(lowest), jnp.nan, time)
    return (
        jnp.where(never_harms, jnp.inf, time),
        jnp.where(never_harms, facts["end"], _learned(time, spectrum, a0, tau) + constant),
    )


def _slope(t: Array, start: Array, *params: Array) -> tuple[Array, Array]:
    """Return the derivative of the test error in t, and one over the second derivative."""
    del start  # where the search for the root begins
    *spectrum, a0, tau = params
    derivative = jax.grad(lambda t: _learned(t, _Spectrum(*spectrum), a0, tau))
    value, second = jax.jvp(derivative, (t,), (jnp.ones_like(t),))
    # A minimum at 0 or infinity is no root: it does not move.
    return value, jnp.where(second > 0, 1 / jnp.where(second > 0, second, 1.0), 0.0)


def _learning_time(facts: dict[str, Array], a0: Array, tau: Array) -> Array:
    """Return 1.5 times the time at which all modes above the threshold are within 1 % of s.

    The edge of the bulk stands in where there are none. From below the time to 0.99 s is
    tau/(2 s) ln(99 (s - a0)/a0), from above that to 1.01 s the same with 101.
    """
    s = jax.lax.stop_gradient(jnp.append(facts["spikes"], facts["edges"][1]))
    counted = jnp.append(facts["above"], ~jnp.any(facts["above"])) & (s > 0)
    s = jnp.where(counted, s, 1.0)
    times = jnp.where(counted, tau / (2 * s) * jnp.log1p(100 * jnp.abs(s / a0 - 1)), 0.0)
    # Where all start within 1 %, the time constant of the fastest.
    return 1.5 * jnp.maximum(jnp.max(times), tau / (jnp.max(jnp.where(counted, s, 0.0)) + a0))


def _search(error: Callable[[Array], Array], last: Array) -> tuple[Array, Array]:
    """Return the time of the smallest error, to 1e-6 of the distance of the times, and the error.

    The refinements look at whole intervals, so that a minimum that is narrower than the distance
    of the first times is found if its surroundings are low.
    """
    grid = last * np.concatenate([np.linspace(0, 1, 161), np.geomspace(1, 1e4, 81)[1:]])
    errors = error(grid)

    def refine(_: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        grid, errors = found
        i = jnp.argmin(errors)
        low, high = grid[jnp.maximum(i - 1, 0)], grid[jnp.minimum(i + 1, len(grid) - 1)]
        grid = low + (high - low) * np.linspace(0, 1, len(grid))
        return grid, error(grid)

    grid, refined = jax.lax.fori_loop(0, 3, refine, (grid, errors))
    return grid[jnp.argmin(refined)], jnp.minimum(jnp.min(errors), jnp.min(refined))


# ---------------------------------------------------------------- what is accepted
def _checked_sizes(inputs: int, outputs: int, examples: int) -> _Sizes:
    sizes = _Sizes(
        check_integer(inputs, "inputs", minimum=1),
        check_integer(outputs, "outputs", minimum=1),
        check_integer(examples, "examples", minimum=1),
    )
    if sizes.examples < sizes.inputs:
        raise ValueError(
            f"examples is {sizes.examples}, fewer than inputs = {sizes.inputs}: such inputs cannot "
            "be whitened, and there is no formula for them. Give at least as many examples as "
            "inputs, or simulate: gdln.gradient_flow on data of your own."
        )
    return sizes


def _checked(
    sbar: _Values, sigma: ArrayLike, a0: ArrayLike, tau: ArrayLike, sizes: _Sizes
) -> tuple[Array, ...]:
    return (
        _checked_strengths(sbar, sizes),
        _checked_sigma(sigma),
        _checked_a0(a0),
        _real(tau, "tau", 0, lambda x: (x > 0) & jnp.isfinite(x), "a finite number above 0"),
    )


def _checked_strengths(sbar: _Values, sizes: _Sizes) -> Array:
    wanted = "the teacher's strengths, numbers of at least 0 with squares that are finite"
    strengths = _real(sbar, "sbar", 1, lambda x: (x >= 0) & _has_square(x), wanted)
    if not 1 <= len(strengths) <= sizes.rank:
        raise ValueError(
            f"sbar has {len(strengths)} modes; a teacher of {sizes.inputs} inputs and "
            f"{sizes.outputs} outputs has 1 to {sizes.rank} (pass [0.0] for pure noise)."
        )
    return strengths


def _checked_sigma(sigma: ArrayLike) -> Array:
    wanted = "a number of at least 0 with a square that is finite"
    return _real(sigma, "sigma", 0, lambda x: (x >= 0) & _has_square(x), wanted)


def _checked_a0(a0: ArrayLike) -> Array:
    wanted = (
        "one number above 0 with a square that is finite, the same for all modes (an unequal start "
        "has no formula)"
    )
    return _real(a0, "a0", 0, lambda x: (x > 0) & _has_square(x), wanted)


def _has_square(x: Array) -> Array:
    """Whether sums of some thousand squares do not overflow: errors are such sums."""
    largest = float(jnp.finfo(jnp.promote_types(x.dtype, jnp.float32)).max)
    return x < math.sqrt(largest) / 1e3


def _real(
    value: _Values, name: str, ndim: int, good: Callable[[Array], Array], wanted: str
) -> Array:
    """Return `value` as an array of `ndim` axes whose elements are `good`, or NaN if traced."""
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):  # no array at all, or rows of unequal length
        array = None
    numbers = jnp.floating, jnp.integer
    if array is None or not any(jnp.issubdtype(array.dtype, kind) for kind in numbers):
        plain = isinstance(value, str | complex | bool) or value is None
        what = repr(value) if plain else f"a {type(value).__name__}"
        if array is not None and not plain:
            what += f" of {array.dtype}"
        raise ValueError(f"{name} is {what}; it must be {wanted}.")
    if array.ndim != ndim:
        shape = "one axis" if ndim else "no axis"
        raise ValueError(f"{name} has shape {array.shape}; it must have {shape}: {wanted}.")
    fine = good(array)
    if is_concrete(fine) and not np.all(fine):
        which = f"{name}[{np.argmin(fine)}]" if ndim else name
        raise ValueError(
            f"{which} is {np.asarray(array)[~np.asarray(fine)][0]}; it must be {wanted}."
        )
    return jnp.where(fine, array, jnp.nan)


def _same_dtype(*arrays: Array) -> list[Array]:
    dtype = jnp.promote_types(jnp.result_type(*arrays, 1.0), jnp.float32)
    return [array.astype(dtype) for array in arrays]


__getattr__, __dir__ = namespace(__name__)
