"""Which gates a ReLU network will have, when, and at which losses, from its data alone."""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from gdln_jax import Trajectory
from gdln_jax._checks import Result, check_integer, check_positive
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._descent import Active
from gdln_jax.relu._gates import Snapshots, snapshot
from gdln_jax.relu._network import ReLUNetwork, check_plain
from gdln_jax.relu._settled import kink_level
from gdln_jax.relu._stages import Course, Stop, calculate
from gdln_jax.relu._utility import Examples

# Gates with less of the output's power are not listed.
_LISTED = 0.01
# Snapshots per unit of the whole time.
_SNAPSHOTS = 20
# A run whose first loss is further from L(0) has another loss, other data or large weights.
_SAME_LOSS = 0.05

_ADVICE = {
    "learned": "the loss is below 0.001 of its start",
    "stuck": "no unit can grow, or only 1,000 times slower than at first: a gate has no unit, or "
    "the rest cannot be learned; try more units",
    "budget": "the stages or steps ran out; give more stages",
    "not separated": "rival gates enter together, so that this plateau and what follows depend on "
    "the initial weights; a smaller std separates them",
}


class GatePrediction(Result, eqx.Module):
    r"""What a ReLU network will learn, stage by stage; made by `predict_gates`.

    A stage is a drop of the loss with the plateau after it.

    - `times` (stage,): T = t/ln(1/std) of the drops, t in units of tau.
    - `plateaus` (stage,): losses, as shares of that of zero output.
    - `rates` (stage,): largest growth rate among what entered.
    - `leaves` (stage,): the loss leaves this plateau by itself; the next stage has the same T.
    - `joined`: per stage (relative size, rate) of what entered, largest first.
    - `next_size` (stage,): relative size of the largest that did not enter.
    - `separated` (stage,): no dormant gates entered as rivals of different size.
    - `gates`: per stage (gate, n), 1 where its units are on, 0 elsewhere, on a kink too; those
      with at least 1 % of the output's power, strongest first. `power`: their shares.
    - `stop`: `"learned"`, `"stuck"` (no unit can grow), `"budget"` (stages or steps ran out), or
      `"not separated"` (rivals entered in the last stage).
    - `caveats`: conditions under which a time is less reliable than the rest.
    - `w` (stage, unit, x), `a` (stage, unit, y): the units at the plateaus; 0 while dormant.
    - `std`, `initial_loss`: of the network and of zero output.
    """

    _units: ClassVar = {"times": "t / ln(1/std), with t in the units of tau"}

    times: Float[np.ndarray, " stage"]
    plateaus: Float[np.ndarray, " stage"]
    rates: Float[np.ndarray, " stage"]
    leaves: Bool[np.ndarray, " stage"]
    joined: list[Float[np.ndarray, "_ 2"]]
    next_size: Float[np.ndarray, " stage"]
    separated: Bool[np.ndarray, " stage"]
    gates: list[Int[np.ndarray, "_ n"]]
    power: list[Float[np.ndarray, " _"]]
    stop: Stop = eqx.field(static=True)
    caveats: tuple[str, ...] = eqx.field(static=True)
    w: Float[np.ndarray, "stage unit x"]
    a: Float[np.ndarray, "stage unit y"]
    std: float
    initial_loss: float
    data: GatedData

    def network(self, stage: int) -> ReLUNetwork:
        """Return the network on the plateau of a stage, numbered from 0 (from -1 backwards)."""
        stage = self._number(stage)
        return ReLUNetwork([jnp.asarray(self.w[stage]), jnp.asarray(self.a[stage].T)])

    def drop_times(
        self, std: ArrayLike | Sequence[float] | None = None
    ) -> Float[np.ndarray, "*std stage"]:
        """Return the times of the drops, T ln(1/std) in units of tau, for the prediction's `std`.

        Leading order: what is left out does not grow with ln(1/std). For another `std`, or an
        array of them, the same gates are assumed to be separated.
        """
        given = np.asarray(self.std if std is None else std, float)
        if not np.all((given > 0) & (given < 1)):
            raise ValueError(f"std is {std!r}; it must lie between 0 and 1.")
        return np.log(1 / given)[..., None] * self.times

    @property
    def snapshots(self) -> Snapshots:
        """Snapshots of the plateaus up to 1.3 times the last T, as `snapshots_until` makes them."""
        return self.snapshots_until(1.3 * float(self.times[-1]))

    def snapshots_until(self, end: float | int, *, threshold: float | int = 0.0) -> Snapshots:
        """Return the predicted units at equal intervals of time, for `discover_gates`.

        Before the first drop the output is 0 and says nothing of gates; from then on each plateau
        is repeated in proportion to its length, some 20 snapshots in all.

        Args:
            end: T at which training ends, steps x learning rate / ln(1/std); above the first T.
            threshold: a unit is on where its pre-activation exceeds this share of its largest.
                Besides, it has to exceed 0.003 |w| |x_i|, so that units on a kink are off there.

        Returns:
            `Snapshots` with the leading axis time.
        """
        end = check_positive(end, "end")
        kept = np.flatnonzero(self.times < end)
        if not len(kept):
            raise ValueError(
                f"end is {end:g}, before the first drop at T = {self.times[0]:g}: until then the "
                "output is 0. T counts in units of ln(1/std)."
            )
        length = np.diff(np.append(self.times[kept], end))
        repeats = np.maximum(np.rint(_SNAPSHOTS * length / end).astype(int), 1)
        (x,) = (np.asarray(part, float) for part in self.data.inputs.values())
        taken = []
        for k in map(int, kept):
            plateau = snapshot(self.network(k), self.data, threshold=threshold)
            w = self.w[k]
            clear = np.abs(w @ x.T) > kink_level(w, x)
            assert plateau.near is not None
            taken.append((plateau.on & clear, plateau.power, plateau.output, plateau.near & clear))
        on, power, output, near = (
            np.repeat(np.stack([np.asarray(part) for part in parts]), repeats, axis=0)
            for parts in zip(*taken, strict=True)
        )
        return Snapshots(on, power, output, near)

    def crossings(
        self, run: Trajectory, ts: ArrayLike | None = None
    ) -> Float[np.ndarray, "*batch stage"]:
        """Return when trained networks drop: the loss first crosses the middle between plateaus.

        Beside `drop_times()`. NaN for a drop that a run does not come to.

        Args:
            run: of `train` or `gradient_flow` on the same data, of one `ReLUNetwork` or a batch.
            ts: (time,) the run's times in units of tau: `flow_time(run.ts, rate)` for `train`.
                Default: `run.ts`, right for `gradient_flow` with tau = 1.

        Raises:
            ValueError: for networks with biases, a slope or several hidden layers, and for a run
                whose loss does not start at that of zero output: another loss, say cross-entropy,
                other data, or large initial weights.
        """
        check_plain(run.final)
        losses = np.asarray(run.losses, float) / self.initial_loss
        times = np.asarray(run.ts if ts is None else ts, float)
        if times.shape[-1:] != losses.shape[-1:]:
            raise ValueError(f"ts has shape {times.shape}, the losses {losses.shape}.")
        off = losses[..., 0].ravel()[np.argmax(np.abs(losses[..., 0] - 1))]
        if not abs(off - 1) <= _SAME_LOSS:
            raise ValueError(
                f"the run starts at {off:.4g} times the squared error of zero output, "
                f"{self.initial_loss:.6g}; train on the data of the prediction with gdln.mse from "
                "small weights. With cross-entropy only the first drop is as predicted, and "
                "plateaus need not exist."
            )
        levels = (np.append(1.0, self.plateaus[:-1]) + self.plateaus) / 2
        rows = np.broadcast_to(times, losses.shape).reshape(-1, losses.shape[-1])
        found = [
            [_first_below(t, loss, level) for level in levels]
            for t, loss in zip(rows, losses.reshape(rows.shape), strict=True)
        ]
        return np.array(found).reshape(*losses.shape[:-1], len(levels))

    def _number(self, stage: int) -> int:
        count = len(self.times)
        number = check_integer(stage, "stage", minimum=-count)
        if number >= count:
            raise ValueError(f"stage is {stage}, but there are {count}, numbered from 0.")
        return number

    def __repr__(self) -> str:
        lines = [f"GatePrediction(std {self.std:g}, {self.w.shape[1]} units; T = t/ln(1/std)"]
        for k, t in enumerate(self.times):
            gates = ", ".join(
                f"{_shown(gate)} ({share:.0%})"
                for gate, share in zip(self.gates[k][:4], self.power[k][:4], strict=True)
            )
            more = f", ... {len(self.gates[k])} gates" if len(self.gates[k]) > 4 else ""
            after = ", left by itself" if self.leaves[k] else ""
            mark = "" if self.separated[k] else " !"
            lines.append(
                f"  T {t:.4f}: loss {self.plateaus[k]:.4f} L(0){after}{mark}; {gates}{more}"
            )
        lines.append(f"  {self.stop}: {_ADVICE[self.stop]}")
        return "\n".join([*lines, *(f"  {caveat}" for caveat in self.caveats)]) + ")"


def predict_gates(
    data: GatedData,
    *,
    std: float | int = 1e-9,
    units: int = 100,
    stages: int = 4,
    seed: int = 0,
) -> GatePrediction:
    r"""Calculate which gates a ReLU network will have, when, and at which losses; trains nothing.

    For $y = \sum_u a_u\,\mathrm{relu}(w_u \cdot x)$ without biases, all weights iid N(0, std^2),
    the squared error (`mse`) and gradient flow. Small units grow towards local maxima of a utility
    (`certify`); the fastest drop the loss at T = t/ln(1/std) = 1/rate. Then the rest grows under
    the new residual: units that are still small, and modes that ride on units of the output. Each
    stage costs one descent of the units to the next rest of the loss.

    Not for networks with biases, a leaky slope, several hidden layers (no drops at logarithmic
    times) or cross-entropy (no plateaus): the data do not show these, and `crossings` refuses
    their runs. What follows a stage that `leaves`, and what follows a stage that is not
    `separated`, is a guess.

    Args:
        data: one input and one output node, no gates; its weights count.
        std: standard deviation of the network's initial weights, between 0 and 1. It decides which
            rivals enter together; times scale as ln(1/std).
        units: width of the network. The chance that a gate has no unit is that of the network.
        stages: most drops to calculate; a rest that the loss leaves by itself counts as one.
        seed: of the units' initial directions.

    Raises:
        ValueError: for data with gates, several inputs or outputs, or targets that are all 0, under
            `jit`, and if nothing can grow.

    Host code in float64 NumPy: a second or two for 100 units on 100 examples; up to 20,000 steps,
    each O(units x examples x (x + y)).
    """
    if isinstance(data, ReLUNetwork):
        raise ValueError(
            "data is a ReLUNetwork; gates are predicted from data alone: predict_gates(task.data, "
            "units=...)."
        )
    examples = Examples.of(data)
    std = check_positive(std, "std")
    if std >= 1:
        raise ValueError(f"std is {std:g}; it must be below 1, as times count in ln(1/std).")
    units = check_integer(units, "units", minimum=1)
    most = check_integer(stages, "stages", minimum=1)
    seed = check_integer(seed, "seed", minimum=0)
    course, stop = calculate(examples, std=std, units=units, stages=most, seed=seed)
    if not course.stages:
        raise ValueError(
            f"none of {units} units can grow on these data: sum p y relu(w . x) does not increase "
            "in any of their directions. Give more units, or look at the inputs."
        )
    return _gathered(data, examples, course, stop, std)


def _gathered(
    data: GatedData, examples: Examples, course: Course, stop: Stop, std: float
) -> GatePrediction:
    every = course.stages
    gates, power = zip(*(_listed(examples, Active(s.w, s.a)) for s in every), strict=True)
    return GatePrediction(
        times=np.array([s.time for s in every]),
        plateaus=np.array([s.plateau for s in every]),
        rates=np.array([s.joined[:, 1].max() for s in every]),
        leaves=np.array([s.leaves for s in every]),
        joined=[s.joined for s in every],
        next_size=np.array([s.next_size for s in every]),
        separated=np.array([s.separated for s in every]),
        gates=list(gates),
        power=list(power),
        stop=stop,
        caveats=course.caveats,
        w=np.stack([s.w for s in every]),
        a=np.stack([s.a for s in every]),
        std=std,
        initial_loss=examples.loss(examples.y),
        data=data,
    )


def _listed(
    examples: Examples, units: Active
) -> tuple[Int[np.ndarray, "gate n"], Float[np.ndarray, " gate"]]:
    """Distinct gates of at least 1 % of the output's power, strongest first, and their shares."""
    power = units.power(examples)
    on = (units.w @ examples.x.T > kink_level(units.w, examples.x)).astype(int)
    gates, index = np.unique(on, axis=0, return_inverse=True)
    shares = np.bincount(index.ravel(), power, minlength=len(gates))
    order = np.argsort(-shares, kind="stable")
    order = order[shares[order] >= _LISTED]
    return gates[order], shares[order]


def _first_below(
    t: Float[np.ndarray, " time"], loss: Float[np.ndarray, " time"], level: float
) -> float:
    below = np.flatnonzero(loss < level)
    if not len(below) or below[0] == 0:
        return np.nan
    k = below[0]
    return float(t[k - 1] + (loss[k - 1] - level) / (loss[k - 1] - loss[k]) * (t[k] - t[k - 1]))


def _shown(gate: Int[np.ndarray, " n"]) -> str:
    return "".join(map(str, gate)) if len(gate) <= 24 else f"{gate.sum()} of {len(gate)} on"
