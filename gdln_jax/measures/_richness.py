"""Rich or lazy: how far the tangent kernel and the weights of a run moved, and the word for it.

The bounds are those of recipe `initialisation` (N Fig. 6, three layers, 64 to 16,384 units).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import Suggesting, answering, dataset, is_concrete
from gdln_jax._linalg import norm, quotient
from gdln_jax.measures._kernels import _direction, _kernel_rows, weight_movement

# The networks that follow the theory of a fixed kernel to 3 % of L(0), and transfer nothing to
# untrained routes, are those below and above these.
LAZY_CHANGE, LAZY_ALIGNMENT = 0.2, 0.98
# The networks whose untrained routes have a relative error below 0.002 are those above this one
# (172 at sigma_0 = 0.6; 22, with an error of 0.02, at sigma_0 = 1).
RICH_CHANGE = 100.0


class Richness(NamedTuple):
    """How far a run moved its network.

    - `kernel_change`: relative Frobenius change of the tangent kernel.
    - `kernel_alignment`: cosine of the kernels at both ends.
    - `weight_change`: relative change of all weights.
    """

    kernel_change: Float[Array, ""]
    kernel_alignment: Float[Array, ""]
    weight_change: Float[Array, ""]

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__

    @property
    def regime(self) -> str:
        """The word for this run, rich, lazy or between.

        Lazy: a kernel change below 0.2 with an alignment above 0.98. Rich: a change above 100.

        Raises:
            ValueError: for a batch, or values that cannot be seen.
        """
        if not is_concrete(self) or np.ndim(self.kernel_change):
            raise ValueError(
                "regime is a word for one run whose values can be seen; under jit or vmap, or of a "
                "batch, compare kernel_change and kernel_alignment with the bounds."
            )
        if self.kernel_change < LAZY_CHANGE and self.kernel_alignment > LAZY_ALIGNMENT:
            return "lazy"
        return "rich" if self.kernel_change > RICH_CHANGE else "between"

    def __repr__(self) -> str:
        if not is_concrete(self) or np.ndim(self.kernel_change):
            shown = (f"{name}={value}" for name, value in self._asdict().items())
            return f"Richness({', '.join(shown)})"
        change, alignment, weights = (float(value) for value in self)
        return (
            f"Richness({self.regime}: kernel change {change:.3g} (lazy below {LAZY_CHANGE:g}, rich "
            f"above {RICH_CHANGE:g}), kernel alignment {alignment:.3f} (lazy above "
            f"{LAZY_ALIGNMENT:g}), weight change {weights:.3g})"
        )


@runtime_checkable
class Learned(Protocol):
    """What of a `Trajectory` is read here."""

    losses: Array
    models: PyTree
    final: PyTree


@answering
def richness(
    run: Learned,
    data: PyTree,
    *,
    start: PyTree = None,
    readout: Callable[[PyTree], Array] | None = None,
    block: int = 16,
) -> Richness:
    """Measure whether a run was rich or lazy: kernel and weights at its end against its start.

    Lazy learning leaves the tangent kernel as it was; rich learning makes a new one, and features
    with it. `regime` says which, by bounds that hold for the networks of recipe `initialisation`.

    Args:
        run: from `train` or `gradient_flow`, with its models or with `start`.
        data: the examples on which the kernel is compared.
        start: the model at the start, for a run whose models were not kept.
        readout, block: as in `empirical_ntk`.

    Returns:
        A `Richness`, also under `jit` and `vmap`. Neither kernel is held: the cost is 4 passes
        through the network per example and output, the memory `block` times the weights.

    Raises:
        ValueError: for what is no such run, a batch of runs, and a start that is missing.
    """
    if not isinstance(run, Learned):
        raise ValueError(
            f"run is a {type(run).__name__}; pass what gdln.train or gdln.gradient_flow returned. "
            "The run comes first, the data second."
        )
    if isinstance(data, Learned):
        raise ValueError(f"data is a {type(data).__name__}; the run comes first, the data second.")
    if run.losses.ndim != 1:
        raise ValueError(
            f"run is a batch of shape {run.losses.shape[:-1]}; map over it, "
            "jax.vmap(lambda run: measures.richness(run, data))(run)."
        )
    if start is None and run.models is None:
        raise ValueError(
            "the models of this run were not kept: pass start= the model it started from, or run "
            "it with keep_models=True."
        )
    if start is None:
        start = jax.tree.map(lambda leaf: leaf[0] if hasattr(leaf, "shape") else leaf, run.models)
    return _measured(start, run.final, data, readout, block)


@eqx.filter_jit  # one program: as single operations they would each be compiled
def _measured(
    start: PyTree,
    final: PyTree,
    data: PyTree,
    readout: Callable[[PyTree], Array] | None,
    block: int,
) -> Richness:
    (before, unit), (after, _) = (_kernel_rows(one, data, readout) for one in (start, final))

    def row(direction: Array) -> tuple[Array, ...]:
        a, b = before(direction).ravel(), after(direction).ravel()
        return norm(a), norm(b), norm(b - a), jnp.sum(_direction(a) * _direction(b))

    a, b, moved, cosine = jax.lax.map(row, unit, batch_size=block)
    old, new, change = norm(a), norm(b), norm(moved)
    shares = [quotient(x, jnp.broadcast_to(size, x.shape)) for x, size in ((a, old), (b, new))]
    return Richness(
        quotient(change, old, at_zero=change),
        jnp.sum(cosine * shares[0] * shares[1]),
        weight_movement(start, final),
    )
