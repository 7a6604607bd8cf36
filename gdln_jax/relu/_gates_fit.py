"""Initial scales of pathways fitted to a ReLU network, and labelled as a fit (H Sec. 3.1, E24).

`build_gated` fits nothing. What a fit can add, and which pathways it changes, says how much of a
gap between the two networks is owed to their start alone.
"""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from gdln_jax import Trajectory
from gdln_jax._checks import Result, check_integer, check_positive
from gdln_jax._checks.types import PRNGKeyArray
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._gates import GateModules, mean_square
from gdln_jax.relu._gates_choice import gated_outputs, stacked
from gdln_jax.relu._gates_network import mean_units


class ScaleFit(Result, eqx.Module):
    """Fitted initial scales; made by `fit_scales`.

    Attributes:
        factors: (module,), what the fit changes: 1 is the scale that is derived from the number of
            units (`scales="units"`).
        scales: (module,), the same for `build_gated(..., width=width, scales=fit.scales)`, as
            factors of std.
        gap, gap_before: mean squared difference of outputs over seeds, times, examples and
            features, as a share of the ReLU networks' mean square, with and without the fit.
        width: units of each pathway.
        evaluations: trainings that it took.
    """

    factors: Float[np.ndarray, " module"]
    scales: Float[np.ndarray, " module"]
    gap: float
    gap_before: float
    width: int
    evaluations: int

    def __repr__(self) -> str:
        factors = ", ".join(f"{factor:.3g}" for factor in self.factors)
        return (
            f"ScaleFit(FITTED to the ReLU networks: factors [{factors}] of the derived scales; "
            f"output gap {self.gap_before:.3g} -> {self.gap:.3g})"
        )


def fit_scales(
    modules: GateModules,
    runs: Trajectory,
    data: GatedData,
    *,
    learning_rate: float | int,
    std: float | int,
    key: PRNGKeyArray,
    width: int = 48,
    evaluations: int = 80,
) -> ScaleFit:
    r"""Fit one initial scale per module so that outputs agree best over the whole training.

    Minimises the output gap of `choose_k` in the logarithms of the factors (Nelder and Mead, from
    the derived scales, so that a fit is never worse than none), with the same factors and initial
    weights for all seeds.

    Args:
        modules: from `discover_gates`.
        runs: as in `choose_k`.
        data: as in `choose_k`.
        learning_rate: as in `choose_k`.
        std: as in `choose_k`.
        key: for initial weights.
        width: as in `choose_k`.
        evaluations: largest number of trainings, all by one compiled program.

    Raises:
        ValueError: for runs without snapshots, for numbers that are
            not positive, ReLU networks with several hidden layers, and if the gated network
            diverges.
    """
    check_positive(learning_rate, "learning_rate")
    check_positive(std, "std")
    width = check_integer(width, "width", minimum=1)
    evaluations = check_integer(evaluations, "evaluations", minimum=2)
    runs = stacked(runs)
    keys = jax.random.split(key, len(runs.losses))
    wanted = np.asarray(runs.measured.output, float)
    energy = mean_square(wanted)

    def gap(logs: np.ndarray) -> float:
        outputs = gated_outputs(
            runs, data, (modules,), learning_rate, std, keys, width, np.exp(logs)
        )[0]
        value = float(np.mean((outputs - wanted) ** 2) / energy)
        # A start so large that training diverges is no candidate.
        return value if np.isfinite(value) else np.inf

    before = gap(np.zeros(modules.k))
    if not np.isfinite(before):
        raise ValueError(
            "the gated network diverged; use a smaller learning_rate for all networks."
        )
    # A first step of ln 1.3: a tenth of the plateau of one e-fold in amplitude.
    corners = 0.26 * np.vstack([np.zeros(modules.k), np.eye(modules.k)])
    options = {"initial_simplex": corners, "maxfev": evaluations, "xatol": 1e-3, "fatol": 1e-7}
    found = minimize(gap, np.zeros(modules.k), method="Nelder-Mead", options=options)
    factors = np.exp(found.x)
    units = np.sqrt(np.maximum(mean_units(modules), 1) / width)
    return ScaleFit(factors, factors * units, float(found.fun), before, width, int(found.nfev))
