"""Which initial amplitude b(0) random weights behave as (E9, E14).

The closed forms and the reduction start from aligned weights of a known size; a random network
starts unaligned. Three answers: project its weights, expect a value from its statistics, or fit
its loss curve.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import minimize_scalar

from gdln_jax._checks import Result, check_choice, check_integer, check_positive
from gdln_jax._checks.types import ArrayLike
from gdln_jax._network.edges import check_untied
from gdln_jax._network.gated import GatedNetwork, check_network
from gdln_jax._reduction.reduction import Reduction
from gdln_jax._reduction.strengths import ModeStrengths

# E14: of a ReLU layer only units that are active on an example pass it on; early on a
# unit is active on two of the four XoR examples and grows at sqrt(2) s. An integral over three
# standard normal variables (theory#initial-amplitude), to the digits given.
RELU_KAPPA = 0.661699


class EffectiveInitial(Result, eqx.Module):
    """Initial amplitudes of a network that starts unaligned; made by `effective_initial`.

    - `strengths`: projected b of every edge, in the hidden frames that fit the network best.
      The most informative start for `Reduction.solve`.
    - `amplitude`: (mode,) the projection as one number per mode, the mean over edges of each
      layer, then over layers; for two layers this is the growing combination |W2^T u + W1 v|/2,
      whose square is a0.
    - `spread`: (mode,) standard deviation of the layers' means.
    - `misalignment`: edge -> ||W - R diag(b) R^T|| / ||W||.
    - `fit`, `fit_sd`, `fit_rms`: one amplitude for all edges and modes whose reduced loss curve is
      closest to the given one in the least-squares sense, its standard error, and the root mean
      square of what is left over; None without a curve.
    """

    _keys: ClassVar = {"strengths": "edge", "misalignment": "edge"}

    strengths: ModeStrengths
    amplitude: Float[np.ndarray, " mode"]
    spread: Float[np.ndarray, " mode"]
    misalignment: dict[str, float]
    fit: float | None
    fit_sd: float | None
    fit_rms: float | None

    def __repr__(self) -> str:
        shown = ", ".join(f"{a:.4g}" for a in self.amplitude[:4])
        fit = "" if self.fit is None else f", fit {self.fit:.4g} +- {self.fit_sd:.2g}"
        return f"EffectiveInitial(projected [{shown}]{fit})"


def effective_initial(
    reduction: Reduction,
    net: GatedNetwork,
    *,
    curve: tuple[ArrayLike, ArrayLike] | None = None,
    tau: float = 1.0,
) -> EffectiveInitial:
    """Find the initial amplitude that `net` behaves as.

    Args:
        reduction: of the network's graph and data.
        net: the network before training.
        curve: optionally `(ts, losses)` of its training, `ts` in flow time (`flow_time`); then one
            amplitude is fitted to it, and the result says so: a fitted number is no prediction.
        tau: the time constant of `ts`.

    Host code, not differentiable. See the page on effective initial amplitudes in the docs for
    how well each predicts.

    Raises:
        ValueError: for another graph, a coupled reduction, a malformed curve, or a `tau` that is no
            finite number above 0.
    """
    tau = check_positive(tau, "tau")
    if not isinstance(reduction, Reduction):
        raise ValueError(
            f"reduction is a {type(reduction).__name__}; the reduction comes first, "
            "gdln.reduce(graph, data), the network second."
        )
    check_network(net)
    check_untied(net.graph, "effective_initial", "read the strengths by reduction.read(net)")
    if reduction.coupled:
        raise ValueError("effective_initial needs a diagonal reduction, not a coupled one.")
    strengths, misalignment = reduction.project(net)
    assert isinstance(strengths, ModeStrengths)
    masks = reduction.mode_data.masks
    layers = np.stack([_layer_mean(*pair) for pair in zip(strengths.stacks, masks, strict=True)])
    fit: tuple[Any, Any, Any] = (None, None, None)
    amplitude = layers.mean(axis=0)
    if curve is not None:
        fit = _fitted(reduction, *_checked_curve(curve), float(np.mean(np.abs(amplitude))), tau)
    shares = {name: float(share) for name, share in misalignment.items()}
    return EffectiveInitial(strengths, amplitude, layers.std(axis=0), shares, *fit)


def expected_initial(num_units: int, std: float, *, layer: str = "linear") -> tuple[float, float]:
    r"""Return the expected a0 = b(0)^2 of two layers with iid N(0, std^2) weights, and its sd.

    - `layer="linear"`: the growing combination $|W_2^T u + W_1 v|^2/4$ is
      $\frac{std^2}{2}\chi^2_n$: mean n std^2/2 (the obvious u^T W2 W1 v is often negative).
    - `layer="relu"`: (n/4) kappa std^2 with kappa = 0.661699 (E14), for the four-cell-type solution
      of XoR from `num_units` rectified units, in the mean over their start; kappa is exact and its
      sd 0.
    """
    n = check_integer(num_units, "num_units", minimum=1)
    std = check_positive(std, "std")
    if check_choice(layer, ("linear", "relu"), "layer") == "linear":
        return n * std**2 / 2, std**2 * np.sqrt(n / 2)
    return n / 4 * RELU_KAPPA * std**2, 0.0


def _layer_mean(stack: Array, mask: Array) -> np.ndarray:
    """Mean over the edges of a bundle that a mode fits through, of weights 0 too."""
    return np.sum(np.asarray(stack), axis=0) / np.maximum(np.sum(np.asarray(mask), axis=0), 1)


def _checked_curve(curve: tuple[ArrayLike, ArrayLike]) -> tuple[np.ndarray, np.ndarray]:
    ts, losses = (np.asarray(part, float) for part in curve)
    if ts.ndim != 1 or ts.shape != losses.shape or len(ts) < 3:
        raise ValueError(
            f"curve must be (ts, losses) of one length of at least 3, got {ts.shape} and "
            f"{losses.shape}."
        )
    if not (np.all(np.isfinite(ts)) and np.all(np.isfinite(losses)) and np.all(np.diff(ts) > 0)):
        raise ValueError("curve must be finite, with strictly increasing ts.")
    return ts, losses


def _fitted(
    reduction: Reduction, ts: np.ndarray, losses: np.ndarray, guess: float, tau: float
) -> tuple[float, float, float]:
    quotient = reduction.quotient(1.0)
    rtol = 1e-8 if quotient.x0.dtype == np.float64 else None

    def curve(log_b: float) -> np.ndarray:
        start = jnp.exp(log_b) * jnp.ones_like(quotient.x0)
        return np.asarray(quotient.solve(ts, tau=tau, x0=start, rtol=rtol).losses)

    centre = np.log(max(guess, 1e-12))
    # A grid first: far from the answer the curves do not overlap and the misfit is flat.
    grid = centre + np.linspace(-3, 3, 25)
    misfit = [float(np.sum((curve(x) - losses) ** 2)) for x in grid]
    best = grid[int(np.argmin(misfit))]
    found = minimize_scalar(
        lambda x: np.sum((curve(x) - losses) ** 2),
        bounds=(best - 0.25, best + 0.25),
        method="bounded",
        options={"xatol": 1e-6},
    )
    step = 1e-3
    slope = (curve(found.x + step) - curve(found.x - step)) / (2 * step)
    left = float(found.fun)
    sd = np.sqrt(left / (len(ts) - 1) / max(float(np.sum(slope**2)), 1e-300))
    b = float(np.exp(found.x))
    return b, b * float(sd), float(np.sqrt(left / len(ts)))
