"""What a learning run leaves behind: times, losses, and as much of the models as asked for.

Floor 2: imports nothing of this package.
"""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# Trajectories of whole models above this size (per run) are not kept unless asked for.
KEEP_BYTES = 256 * 2**20

# A loss within this share of its first value looks flat in any plot.
FLAT = 0.01

OK, DIVERGED, GAVE_UP = 0, 1, 2
STATUS = {OK: "ok", DIVERGED: "diverged (loss is not finite)", GAVE_UP: "the solver gave up"}


class PlateauWarning(UserWarning):
    """A run ended before anything was learned: the network predicts nothing still."""


class Trajectory(eqx.Module):
    """A learning run, continuous or discrete.

    - `ts`: (time,), units of time for `gradient_flow`, steps for `train`.
    - `losses`: (time,), NaN where the run had already failed.
    - `models`: the model at every `ts`, stacked along a leading axis; `None` when not kept.
    - `final`: the model at the last time.
    - `measured`: what `measure` returned at every `ts`, stacked; `None` without one.
    - `status`: 0 ok, 1 diverged, 2 the solver gave up.
    - `stats`: numbers of steps taken and rejected, where the solver counts them.

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
    same model with all weights 0, which costs a compilation and therefore comes last.
    """
    losses = trajectory.losses
    if isinstance(losses, jax.core.Tracer) or losses.ndim != 1:
        return
    first, last = float(losses[0]), float(losses[-1])
    if not abs(last - first) <= FLAT * abs(first):
        return
    silent = jax.tree.map(lambda w: jnp.zeros_like(w) if eqx.is_inexact_array(w) else w, model)
    nothing = float(eqx.filter_jit(loss)(silent, data))
    if not abs(last - nothing) <= FLAT * nothing:
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
        f"nothing was learned: the loss went from {first:.6g} to {last:.6g}, and a network that "
        f"predicts 0 has {nothing:.6g}. {why}.",
        PlateauWarning,
        stacklevel=3,
    )
