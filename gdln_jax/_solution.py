"""The result of gradient flow or training: times, losses, and the models as far as asked for."""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.schedule import Schedule

# Trajectories of whole models above this size (per run) are not kept unless asked for.
KEEP_BYTES = 256 * 2**20

# A loss within this share of its first value looks flat in any plot.
FLAT = 0.01

OK, DIVERGED, GAVE_UP = 0, 1, 2
STATUS = {OK: "ok", DIVERGED: "diverged (loss is not finite)", GAVE_UP: "the solver gave up"}


class PlateauWarning(UserWarning):
    """The run ended on the initial plateau: the loss is still that of zero output."""


class Trajectory(SeveralArrays, eqx.Module):
    """A learning run, continuous or discrete.

    - `ts`: (time,), units of time for `gradient_flow`, steps for `train`.
    - `losses`: (time,), NaN where the run had already failed.
    - `models`: the model at every `ts`, stacked along a leading axis; `None` when not kept.
    - `final`: the model at the last time.
    - `measured`: what `measure` returned at every `ts`, stacked; `None` without one.
    - `status`: 0 ok, 1 diverged, 2 the solver gave up.
    - `stats`: numbers of steps taken and rejected, where the solver counts them.
    - `optimizer_state`: that of `train` after the last step, for `train(..., resume=)`.

    Under `vmap` every array has the batch axes in front and a failed member spoils no other:
    look at `status`.
    """

    ts: Float[Array, "*batch time"] | Int[Array, "*batch time"]
    losses: Float[Array, "*batch time"]
    models: Any
    final: Any
    measured: Any
    status: Int[Array, "*batch"]
    stats: dict[str, Int[Array, "*batch"]]
    optimizer_state: Any = None

    def model(self, index: int) -> Any:
        """Return the model at `ts[index]` of an unbatched run."""
        if self.models is None:
            raise ValueError(
                "the models of this run were not kept (only `final` was): pass keep_models=True, "
                "or measure= a function of the model."
            )
        return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, self.models)

    def __repr__(self) -> str:
        kept = "models kept" if self.models is not None else "final model kept"
        lines = [f"{self.ts.shape[-1]} times", kept]
        if not isinstance(self.losses, jax.core.Tracer) and isinstance(self.losses, jax.Array):
            if self.losses.ndim == 1:
                lines.append(f"loss {float(self.losses[0]):.6g} -> {float(self.losses[-1]):.6g}")
            else:
                lines.append(f"batch {self.losses.shape[:-1]}")
            codes, counts = np.unique(np.asarray(self.status), return_counts=True)
            lines += [f"{n} x {STATUS[int(c)]}" for c, n in zip(codes, counts, strict=True)]
        return f"Trajectory({', '.join(lines)})"


def keeps_models(keep: bool | None, measure: Callable | None, model: Any, saves: int) -> bool:
    """Decide whether to stack the models: as asked, else if small and nothing is measured."""
    if keep is not None:
        return keep
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    size = saves * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    return measure is None and size <= KEEP_BYTES


def warn_of_plateau(trajectory: Trajectory, model: Any, data: Any, loss: Callable) -> None:
    """Warn, for one run whose values can be seen, when it ends where a network of weights 0 is.

    A flat loss is no proof (a trained network has one too), so it is held against that of the
    same model with all weights 0, which costs a compilation and therefore comes last. Under a
    `Schedule` the loss must be that of weights 0 at all times, each with its data.
    """
    losses = trajectory.losses
    if isinstance(losses, jax.core.Tracer) or losses.ndim != 1:
        return
    known = np.asarray(losses)
    if isinstance(data, Schedule):
        phases = np.searchsorted(np.asarray(data.switches), np.asarray(trajectory.ts), side="right")
        parts = [(known[phases == p], data.phase(int(p))) for p in np.unique(phases)]
    else:
        parts = [(known[np.array([0, -1])], data)]
    if not all(_flat(part, float(part[0])) for part, _ in parts):
        return
    silent = jax.tree.map(lambda w: jnp.zeros_like(w) if eqx.is_inexact_array(w) else w, model)
    nothing = 0.0
    for part, there in parts:
        nothing = float(eqx.filter_jit(loss)(silent, there))
        if not _flat(part, nothing):
            return
    if all(not np.any(w) for w in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))):
        why = (
            "All initial weights are 0, a stationary point that gradients never leave: draw them, "
            "for example gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), key=key)"
        )
    else:
        why = (
            "Small weights grow slowly at first. Run longer, or start larger (for example "
            "gdln.init.orthogonal(0.1)): with one hidden layer the plateau lasts as the logarithm "
            "of 1 / initial amplitude, with more layers as a power of it. If it never ends, look "
            "for closed gates, or targets that are uncorrelated with the inputs"
        )
    warnings.warn(
        f"nothing was learned: the loss went from {known[0]:.6g} to {known[-1]:.6g}, and a network "
        f"that predicts 0 has {nothing:.6g}. {why}.",
        PlateauWarning,
        stacklevel=3,
    )


def _flat(losses: np.ndarray, wanted: float) -> bool:
    return bool(np.all(np.abs(losses - wanted) <= FLAT * abs(wanted)))
