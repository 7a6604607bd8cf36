"""How closely one network follows another while both learn (H Sec. 3.1, made measurable; E24).

H says that a gated network imitates a ReLU network if their losses and outputs agree at all times.
They never do exactly: what counts is the distance, beside that of two ReLU networks from different
seeds.
"""

from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Float

from gdln_jax import Trajectory
from gdln_jax._checks import Result, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax.relu._gates import mean_square, output_of


class ImitationGap(Result, eqx.Module):
    """Distances of gated from ReLU networks, per seed and time; made by `imitation_gap`.

    Attributes:
        ts: (time,), as in the trajectories.
        loss: (seed, time), |L_gated - L_relu| / L_relu(0).
        output: (seed, time), mean squared difference of outputs, over examples and features, as a
            share of the ReLU networks' mean square output, averaged over time and seeds.
        late: (seed,), mean of |L_gated / L_relu - 1| over the second half of the times.
        loss_spread, output_spread: (time,), and `late_spread`: the same measures between two ReLU
            networks, averaged over pairs of seeds: the yardstick. A loss gap is relative to the
            mean of both networks there, so that their order does not matter. NaN with one seed.
    """

    _units: ClassVar = {"ts": "time, in the units of tau"}

    ts: Float[np.ndarray, " time"]
    loss: Float[np.ndarray, "seed time"]
    output: Float[np.ndarray, "seed time"]
    late: Float[np.ndarray, " seed"]
    loss_spread: Float[np.ndarray, " time"]
    output_spread: Float[np.ndarray, " time"]
    late_spread: float

    @property
    def mean_loss(self) -> Float[np.ndarray, " seed"]:
        """Mean loss gap over time, of each seed."""
        return self.loss.mean(axis=1)

    @property
    def max_loss(self) -> Float[np.ndarray, " seed"]:
        """Largest loss gap over time, of each seed."""
        return self.loss.max(axis=1)

    @property
    def mean_output(self) -> Float[np.ndarray, " seed"]:
        """Mean output gap over time, of each seed."""
        return self.output.mean(axis=1)

    @property
    def max_output(self) -> Float[np.ndarray, " seed"]:
        """Largest output gap over time, of each seed."""
        return self.output.max(axis=1)

    @property
    def in_spreads(self) -> Float[np.ndarray, " seed"]:
        """Mean output gap in units of the mean output gap between two ReLU networks.

        Infinite where these are the same at all times (0 for a gap of 0).
        """
        return _share(self.mean_output, self.output_spread.mean())

    def __repr__(self) -> str:
        def shown(values: np.ndarray) -> str:
            spread = f" +- {values.std(ddof=1):.2g}" if len(values) > 1 else ""
            return f"{values.mean():.3g}{spread}"

        return (
            f"ImitationGap({len(self.late)} seeds, {len(self.ts)} times; loss gap / L(0): mean "
            f"{shown(self.mean_loss)}, max {shown(self.max_loss)}, late relative "
            f"{shown(self.late)}; output gap: mean {shown(self.mean_output)}, max "
            f"{shown(self.max_output)}; between ReLU seeds: loss {self.loss_spread.mean():.3g}, "
            f"late {self.late_spread:.3g}, output {self.output_spread.mean():.3g})"
        )


def imitation_gap(relu_trajectory: Trajectory, gated_trajectory: Trajectory) -> ImitationGap:
    """Compare gated networks with ReLU networks over a whole course of learning.

    A gap relative to a ReLU network's loss of 0 is infinite, or 0 if there is none.

    Args:
        relu_trajectory: a run of ReLU networks or runs stacked over seeds (`vmap`), trained with
            `measure=lambda net: relu.snapshot(net, data)`.
        gated_trajectory: as many runs of gated networks at the same times, or one, which is held
            against every ReLU network; with `measure=lambda net: net(data)["y"]`, "y" being the
            output node, and the examples in the same order.

    Raises:
        ValueError: for other times, numbers of seeds or shapes of outputs, for a trajectory without
            outputs, one that diverged, ReLU networks whose outputs are always 0, or under `jit`.
    """
    if not is_concrete((relu_trajectory, gated_trajectory)):
        raise ValueError("imitation_gap() looks at values; call it outside of jit and vmap.")
    ts, loss, output = _read(relu_trajectory, "relu_trajectory")
    other_ts, other_loss, other_output = _read(gated_trajectory, "gated_trajectory")
    if ts.shape != other_ts.shape or not np.allclose(ts, other_ts):
        raise ValueError(
            f"the trajectories have {len(ts)} times up to {ts[-1]:g} and {len(other_ts)} up to "
            f"{other_ts[-1]:g}; train both with the same steps and save_every."
        )
    if output.shape[2:] != other_output.shape[2:]:
        raise ValueError(
            f"outputs have shapes {output.shape[2:]} and {other_output.shape[2:]}; expected the "
            "same (example, y)."
        )
    if len(other_loss) not in (1, len(loss)):
        raise ValueError(
            f"there are {len(loss)} ReLU and {len(other_loss)} gated runs; give as many of both, "
            "or one gated run."
        )
    energy = mean_square(output)
    pairs = [(i, j) for i in range(len(loss)) for j in range(i)]
    apart = np.full(len(ts), np.nan), np.full(len(ts), np.nan), np.nan
    if pairs:
        i, j = np.array(pairs).T
        apart = (
            np.mean(_share(loss[i] - loss[j], (loss[i] + loss[j])[:, :1] / 2), axis=0),
            np.mean([_squares(output[a] - output[b]) for a, b in pairs], axis=0) / energy,
            float(np.mean(_late(loss[i] - loss[j], (loss[i] + loss[j]) / 2))),
        )
    return ImitationGap(
        ts,
        _share(other_loss - loss, loss[:, :1]),
        np.stack(
            [_squares(output[i] - other_output[i % len(other_output)]) for i in range(len(loss))]
        )
        / energy,
        _late(other_loss - loss, loss),
        *apart,
    )


def _squares(difference: np.ndarray) -> np.ndarray:
    """(time,) mean square over examples and features."""
    return np.mean(difference**2, axis=(-2, -1))


def _late(difference: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """(seed,) mean relative error in the second half."""
    half = reference.shape[1] // 2
    return np.mean(_share(difference[:, half:], reference[:, half:]), axis=1)


def _share(difference: np.ndarray, reference: ArrayLike) -> np.ndarray:
    """|difference| / reference; beside a reference of 0 infinite, and 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(difference == 0, 0.0, np.abs(difference) / np.asarray(reference))


def _read(run: Trajectory, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times (time,), losses (seed, time), outputs (seed, time, example, y) of a run."""
    if not isinstance(run, Trajectory):
        raise ValueError(
            f"{name} is a {type(run).__name__}; pass what train or gradient_flow returned."
        )
    if np.any(np.asarray(run.status) != 0):
        bad = int(np.argmax(np.atleast_1d(np.asarray(run.status)) != 0))
        raise ValueError(f"run {bad} of {name} failed; train with a smaller learning rate.")
    output = np.asarray(output_of(run.measured, name), float)
    loss, ts = np.asarray(run.losses, float), np.asarray(run.ts, float)
    if loss.ndim == 1:
        loss, output, ts = loss[None], output[None], ts[None]
    if output.ndim != 4 or output.shape[:2] != loss.shape:
        raise ValueError(
            f"the outputs of {name} have shape {output.shape}, its losses {loss.shape}; expected "
            "(seed, time, example, y) and (seed, time)."
        )
    return ts[0], loss, output
