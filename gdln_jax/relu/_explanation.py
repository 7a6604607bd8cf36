"""What `explain` found, with its spread, what was assumed, and what stays open."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import numpy as np
from jaxtyping import Float

from gdln_jax import measures
from gdln_jax._checks import Result
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._clock import Clock
from gdln_jax.relu._drops import Drops
from gdln_jax.relu._expressible import Expressible
from gdln_jax.relu._gates import GateModules
from gdln_jax.relu._gates_choice import GateChoice
from gdln_jax.relu._gates_null import GateNull
from gdln_jax.relu._history import History
from gdln_jax.relu._imitation import ImitationGap
from gdln_jax.relu._prediction import GatePrediction

if TYPE_CHECKING:
    import xarray as xr


class Explanation(Result, eqx.Module):
    """Answers about a trained network; made by `explain`.

    Attributes:
        history, data: what was asked about.
        losses: (time,), mean squared error.
        gates, null: the kinds of units, and their scores beside those of shuffled gates.
        shares: (time, module), of the output's power.
        changes: (change,), steps at which the gates changed; units that sit on their threshold,
            where on or off is chance (`activation_patterns`), count as half on.
        choice, gap: how many gates imitate the course of learning, and how closely the gated
            networks of that number (or of the best one) follow; None if it could not be asked.
        reach: how many gates compute the last outputs, without asking how they were learned.
        clock: what the weights say of the optimiser; None with one checkpoint.
        rate, std: flow time per step and initial scale that the gated networks were given.
        prediction, drops: predicted gates and drops, and the observed steps of the drops.
        richness: rich or lazy (`measures.richness`).
        modes, mode_sizes: (time, mode), share of each singular mode of the targets (over examples,
            strongest first) that the outputs have; and the singular values.
        similarity: (end, example, other_example), dot products of the last hidden layer at the
            first and last checkpoint.
        alignment: (time,), cosine of that similarity with the targets' own.
        errors, groups: (time, group), relative error of each group; one group without names if none
            were given. Of the test examples where some were given.
        assumed: what was read and taken for granted.
        unanswered: (question, reason).
    """

    _exported = (
        *("k", "losses", "shares", "changes", "rate", "std", "modes", "mode_sizes"),
        *("similarity", "alignment", "errors"),
    )

    history: History
    data: GatedData
    losses: Float[np.ndarray, " time"]
    gates: GateModules
    null: GateNull
    shares: Float[np.ndarray, "time module"]
    changes: Float[np.ndarray, " change"]
    choice: GateChoice | None
    gap: ImitationGap | None
    reach: Expressible | None
    clock: Clock | None
    rate: float | None
    std: float | None
    prediction: GatePrediction | None
    drops: Drops | None
    richness: measures.Richness | None
    modes: Float[np.ndarray, "time mode"]
    mode_sizes: Float[np.ndarray, " mode"]
    similarity: Float[np.ndarray, "end example other_example"]
    alignment: Float[np.ndarray, " time"]
    errors: Float[np.ndarray, "time group"]
    groups: tuple[str, ...] = eqx.field(static=True)
    assumed: tuple[str, ...] = eqx.field(static=True)
    unanswered: tuple[tuple[str, str], ...] = eqx.field(static=True)

    @property
    def k(self) -> int | None:
        """Number of kinds of gates that imitate its course or, if not known, compute its outputs.

        Of the numbers that imitate, the smallest with gates that are decided (`undecided`): the one
        that `choice` chose, or a larger one. None if no small number does.
        """
        if self.choice is not None:
            return None if self.choice.k is None else self.gates.k
        return self.reach.k if self.reach is not None and self.reach.decides else None

    def to_xarray(self) -> "xr.Dataset":
        """Return the numbers as an xarray `Dataset`, which writes itself to netCDF.

        With the gates, (module, example), the steps as the coordinate `time`, and the names of
        examples and groups where there are some. `k` is missing where it is None.
        """
        modules = self.gates.to_xarray()[["gates", "centroids", "confidence"]]
        coords: dict[str, tuple[str, Sequence[object] | np.ndarray]] = {
            "time": ("time", np.asarray(self.history.steps)),
            "end": ("end", ["first", "last"]),
        }
        (node,) = self.data.inputs
        if (names := self.data.names[node].items) is not None:
            coords |= {axis: (axis, list(names)) for axis in ("example", "other_example")}
        if self.groups:
            coords["group"] = ("group", list(self.groups))
        whole = super().to_xarray().assign(dict(modules.data_vars)).assign_coords(coords)
        whole["time"].attrs["units"] = "steps"
        return whole

    def answers(self) -> list[tuple[str, str]]:
        """Return (question, answer with its numbers), of the questions that have one."""
        found = [("what did it learn", self._learned()), ("which gates", self._gates())]
        if self.choice is not None:
            found.append(("how many gates imitate its course of learning", self._imitated()))
        if self.reach is not None:
            found.append(("how many gates compute its outputs", self._computed()))
        if len(self.history) > 2:
            at = ", ".join(f"{step:g}" for step in self.changes) or "never in these checkpoints"
            found.append(("at which steps did the gates change", at))
        if self.clock is not None:
            flow = self.clock.reason or f"yes, {self.clock.rate:.4g} units of time per step"
            drift = f"; conserved quantities drifted by {self.clock.conserved:.1%}"
            found.append(("did it learn as gradient flow does", flow + drift))
        if self.richness is not None:
            found.append(("rich or lazy", repr(self.richness)))
        if self.drops is not None and self.prediction is not None:
            found.append(("when did the loss drop", self._dropped()))
        return found

    def _learned(self) -> str:
        modes = ", ".join(f"{share:.0%}" for share in self.modes[-1])
        lines = [
            f"loss {self.losses[0]:.4g} -> {self.losses[-1]:.4g}"
            if len(self.losses) > 1
            else f"loss {self.losses[-1]:.4g}",
            f"of the modes of the targets, strongest first: {modes}",
            f"hidden similarity aligned with the targets' to {self.alignment[-1]:.2f}",
        ]
        errors = [f"{error:.3g}" for error in self.errors[-1]]
        if self.groups:
            errors = [f"{n}: {error}" for n, error in zip(self.groups, errors, strict=True)]
        return "; ".join([*lines, f"relative error {', '.join(errors)}"])

    def _gates(self) -> str:
        shares = ", ".join(
            f"{_shown(gate)} ({share:.0%})"
            for gate, share in zip(self.gates.gates, self.gates.shares, strict=True)
        )
        chance = (
            f"; units on their threshold: {self.gates.on_threshold:.0%}; fewer than two thirds of "
            f"units agree on {self.gates.undecided:.0%}"
        )
        return f"{shares}; {str(self.null).removeprefix('GateNull(').removesuffix(')')}{chance}"

    def _imitated(self) -> str:
        assert self.choice is not None
        assert self.gap is not None
        at = list(self.choice.ks).index(self.gates.k)
        gap, loss = _spread(self.choice.gap[at]), _spread(self.gap.mean_loss)
        number = "none" if self.k is None else str(self.k)
        why = self.choice.reason
        if self.k is not None and self.choice.k is not None and self.k > self.choice.k:
            split = self.choice.chosen.undecided
            why = (
                f"{self.choice.k} would do, but is undecided: on {split:.0%} of the examples fewer "
                "than two thirds of the units agree"
            )
        return (
            f"{number} ({why}); gap of outputs {gap}, of the loss {loss} of its start, over "
            f"{len(self.gap.late)} initial weights"
        )

    def _computed(self) -> str:
        assert self.reach is not None
        at = -1 if self.reach.k is None else list(self.reach.ks).index(self.reach.k)
        gaps = (
            f"{self.reach.gap[at]:.2g} of the outputs' mean square, and shuffled gates to "
            f"{self.reach.shuffled[at]:.2g}"
        )
        if not self.reach.decides:
            return (
                f"not to be said from these {self.data.num_examples} examples: pathways with "
                f"{self.reach.ks[at]} gates come to {gaps}, as near"
            )
        return f"{'none' if self.reach.k is None else self.reach.k}, to {gaps}"

    def _dropped(self) -> str:
        assert self.drops is not None
        assert self.prediction is not None
        pairs = zip(self.prediction.times, self.drops.observed, strict=True)
        shown = "; ".join(f"T {t:.3f} at step {step:.0f}" for t, step in pairs)
        if self.drops.steps_per_t is None:
            return shown
        return (
            f"{shown}; {self.drops.steps_per_t:.1f} steps for each unit of T (second drop at "
            f"{self.drops.second:.2f} of its time)"
        )

    def __repr__(self) -> str:
        lines = [f"  {question}? {answer}" for question, answer in self.answers()]
        lines += [f"  assumed: {note}" for note in self.assumed]
        lines += [f"  open: {question}? {reason}" for question, reason in self.unanswered]
        return "\n".join([f"Explanation({self.history!r}", *lines]) + ")"


def _shown(gate: np.ndarray) -> str:
    return "".join(map(str, gate)) if len(gate) <= 24 else f"{gate.sum()} of {len(gate)} on"


def _spread(values: np.ndarray) -> str:
    """Mean over seeds, with the standard deviation if there are several."""
    sd = f" +- {values.std(ddof=1):.2g}" if len(values) > 1 else ""
    return f"{values.mean():.3g}{sd}"
