"""When the gates of a ReLU network change: change points of what its units are on for.

H's two-layer networks need other gates after a plateau than before; here the time is read off
snapshots of training, by exact least-squares segmentation, not set by hand.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._network import ReLUNetwork
from gdln_jax.relu._patterns import activation_patterns, unit_power


def coactivation(
    model: ReLUNetwork,
    data: GatedData | ArrayLike,
    *,
    layer: int | None = None,
    groups: Int[np.ndarray, " n"] | None = None,
    threshold: ArrayLike = 0.0,
) -> Float[Array, "group group"]:
    r"""Return which examples share units, weighted by what these units send on.

    $\sum_u p_u \, o_u o_u^T$ with the pattern o_u (example,) of unit u and its share p_u of the
    output's energy (`unit_power`): entry (i, j) is the power of units that are on for both. All
    ones where a layer works linearly; with `groups` (n,), say contexts, patterns are averaged
    over each group. `threshold` as in `activation_patterns`. Works under `jit` and `vmap`: a
    `measure` for `train`.
    """
    layer = model.depth if layer is None else layer
    on = activation_patterns(model, data, layer=layer, threshold=threshold).astype(float)
    if groups is not None:
        member = np.eye(int(np.max(groups)) + 1)[np.asarray(groups)]
        on = on @ jnp.asarray(member / member.sum(axis=0))
    return shared_power(unit_power(model, data, layer=layer), on)


def shared_power(
    power: Float[Array, " unit"], on: Float[Array, "unit group"]
) -> Float[Array, "group group"]:
    """Return the power of the units that are on for both of two examples, or groups of them."""
    return jnp.einsum("u,ui,uj->ij", power, on, on)


def change_points(
    ts: ArrayLike | Sequence[float | int],
    signal: ArrayLike | Sequence[object],
    *,
    least_share: float = 0.05,
    changes: int | None = None,
) -> Float[np.ndarray, " change"]:
    """Return the times at which a recorded signal changes from one level to the next.

    The signal is fitted by a piecewise constant one with the least squared error, exactly
    (dynamic programming). Host code; O(times^2) in time.

    Args:
        ts: (time,), increasing.
        signal: (time, ...), say `coactivation` at every snapshot.
        least_share: a change counts if it explains at least this share of the signal's squared
            deviation from its mean. The same for any scale and number of snapshots.
        changes: their number, if it is known; then `least_share` is not used.

    Each time is halfway between the last snapshot before the change and the first one after it.
    None for a constant signal.

    Raises:
        ValueError: for a signal that does not fit `ts` or is not finite, a share outside (0, 1), or
            more changes than snapshots allow.
    """
    import ruptures  # late: it takes scipy along

    times, values = np.asarray(ts, float), np.asarray(signal, float)
    if times.ndim != 1 or values.ndim == 0 or len(values) != len(times) or len(times) < 2:
        raise ValueError(
            f"ts has shape {times.shape} and signal {values.shape}; expected (time,) and "
            "(time, ...) with at least two times."
        )
    if not np.all(np.diff(times) > 0):
        raise ValueError("ts must be strictly increasing.")
    values = values.reshape(len(times), -1)
    if not np.all(np.isfinite(values)):
        first = times[int(np.argmin(np.isfinite(values).all(axis=1)))]
        raise ValueError(f"the signal is not finite at time {first:g}; leave such snapshots out.")
    if not 0 < least_share < 1:
        raise ValueError(f"least_share is {least_share!r}; it must lie in (0, 1).")
    if changes is not None:
        changes = check_integer(changes, "changes", minimum=1)
        if changes >= len(times):
            raise ValueError(f"changes is {changes}, but there are only {len(times)} snapshots.")
    values = values - values.mean(axis=0)
    total = float(np.sum(values**2))
    if total <= (1e-12 * max(1.0, np.abs(np.asarray(signal)).max())) ** 2 * values.size:
        return np.zeros(0)
    search = ruptures.KernelCPD(kernel="linear", min_size=1).fit(values / np.sqrt(total))
    stop = {"n_bkps": changes} if changes is not None else {"pen": least_share}
    ends = search.predict(**stop)
    assert ends is not None
    first = np.array(ends[:-1], int)
    return (times[first - 1] + times[first]) / 2
