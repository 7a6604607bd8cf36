"""Which units are on for which examples, and how much of the output each pattern carries."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gdln_jax._checks import Result, check_integer, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._linalg import quotient
from gdln_jax.relu._network import ReLUNetwork, check_relu

# A unit within this share of its largest pre-activation of its threshold sits on it. In H's XoR
# (margin 0) that is so on half of the examples once units have turned, in H's main task on 17 %.
_NEAR = 0.05


def activation_patterns(
    model: ReLUNetwork,
    data: GatedData | PackedData | ArrayLike,
    *,
    layer: int = 1,
    threshold: ArrayLike = 0.0,
) -> Bool[Array, "unit example"]:
    """Return which units of hidden layer `layer` are on for which examples (H App. B).

    Args:
        model: an unbatched network; `jax.vmap` over stacked ones (seeds, snapshots).
        data: `GatedData` with one input, or an array (example, |x|).
        layer: 1 to `model.depth`.
        threshold: a unit is on where its pre-activation exceeds `threshold` times the largest one
            it has on any example. 0 is the gate itself, step(z). A small share, say 0.1, tells
            apart what a unit responds to from what it barely touches; H's XoR (margin 0) needs
            that, because the units' weights there are orthogonal to two of the examples and the
            sign of what is left is chance. Exactly on the threshold, at z = 0 say, a unit is off;
            what the patterns say of units that sit near it is chance (`PatternPower.on_threshold`).

    Raises:
        ValueError: for a layer that does not exist or a threshold outside [0, 1).
    """
    z = _pre_activation(model, data, layer)
    return (z > _level(z, threshold)).T


def on_threshold(
    model: ReLUNetwork,
    data: GatedData | PackedData | ArrayLike,
    *,
    layer: int = 1,
    threshold: ArrayLike = 0.0,
) -> Bool[Array, "unit example"]:
    """Return which units sit on their threshold for which examples, so that on or off is chance.

    The pre-activation is within 5 % of the unit's largest one of the threshold. Arguments as for
    `activation_patterns`.
    """
    z = _pre_activation(model, data, layer)
    largest = jnp.max(jnp.abs(z), axis=0, keepdims=True)
    return (jnp.abs(z - _level(z, threshold)) <= _NEAR * largest).T


def _level(z: Array, threshold: ArrayLike) -> Array:
    if is_concrete(threshold) and not 0 <= float(np.asarray(threshold)) < 1:
        raise ValueError(f"threshold is {threshold!r}; it is a share and must lie in [0, 1).")
    return jnp.maximum(z.max(axis=0, keepdims=True), 0) * threshold


def unit_power(
    model: ReLUNetwork, data: GatedData | PackedData | ArrayLike, *, layer: int | None = None
) -> Float[Array, " unit"]:
    r"""Return each unit's share in the energy of the output, summing to 1.

    Unit u adds $W_{:u} h_u$ to what layer l sends on, $z = \sum_u W_{:u} h_u$ (the output, if l
    is the last hidden layer, which is the default). Its share is
    $\langle W_{:u} h_u \cdot z \rangle / \langle \|z\|^2 \rangle$, weighted by the examples'
    weights: shares add up over any group of units, with all interference counted, and may be
    negative for a unit that works against the rest. Biases of the next layer are left out. If z is
    0 on all examples, all shares are 0, with derivative 0. Works under `jit` and `vmap`.
    """
    check_relu(model)
    layer = model.depth if layer is None else layer
    z = _pre_activation(model, data, layer)
    h = jnp.where(z > 0, z, model.slope * z)
    w = model.weights[layer]
    weights = data.weights if isinstance(data, GatedData) else jnp.full(len(h), 1 / len(h))
    sent = h @ w.T
    along = jnp.sum(weights[:, None] * h * (sent @ w), axis=0)
    energy = jnp.sum((weights[:, None] * sent) * sent)
    return quotient(along, jnp.full_like(along, energy))


class PatternPower(Result, eqx.Module):
    """What each activation pattern of one layer contributes, strongest first.

    Attributes:
        patterns: the distinct patterns as 0/1 (pattern, example).
        shares: of the output's energy, summing to 1 (see `unit_power`).
        counts: number of units with that pattern.
        index: for each unit the number of its pattern.
        on_threshold: share of the output's power times examples at which units sit on their
            threshold (within 5 % of their largest pre-activation), so that the pattern there is
            chance: 0.5 for H's XoR with margin 0. Pass `threshold=0.1` where that is much.
    """

    patterns: Int[np.ndarray, "pattern example"]
    shares: Float[np.ndarray, " pattern"]
    counts: Int[np.ndarray, " pattern"]
    index: Int[np.ndarray, " unit"]
    on_threshold: float

    def share_of(self, wanted: Callable[[np.ndarray], bool | np.bool_]) -> float:
        """Return the share of the units for whose pattern `wanted(pattern)` is true."""
        return float(sum(s for p, s in zip(self.patterns, self.shares, strict=True) if wanted(p)))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{''.join(map(str, p)) if len(p) <= 12 else f'{p.sum()} of {len(p)} on'}: {s:.3f}"
            for p, s in zip(self.patterns[:4], self.shares[:4], strict=True)
        )
        more = ", ..." if len(self.shares) > 4 else ""
        return (
            f"PatternPower({len(self.shares)} patterns of {len(self.index)} units; {shown}{more}; "
            f"on their threshold: {self.on_threshold:.0%})"
        )


def pattern_power(
    model: ReLUNetwork,
    data: GatedData | PackedData | ArrayLike,
    *,
    layer: int | None = None,
    threshold: float | int = 0.0,
) -> PatternPower:
    """Group the units of a layer by activation pattern and add up their shares of the output.

    Looks at values, so not for `jit` or `vmap`; `layer` and `threshold` as in `unit_power` and
    `activation_patterns`. Cost O(units x examples).
    """
    if not is_concrete(model):
        raise ValueError(
            "pattern_power() looks at the patterns' values; call it outside of jit and vmap, or "
            "use activation_patterns and unit_power."
        )
    check_relu(model)
    layer = model.depth if layer is None else layer
    on = np.asarray(activation_patterns(model, data, layer=layer, threshold=threshold))
    share = np.asarray(unit_power(model, data, layer=layer), float)
    near = np.asarray(on_threshold(model, data, layer=layer, threshold=threshold))
    patterns, index = np.unique(on.astype(int), axis=0, return_inverse=True)
    index = index.reshape(-1)
    shares = np.bincount(index, share, minlength=len(patterns))
    order = np.argsort(-shares, kind="stable")
    rank = np.argsort(order)
    counts = np.bincount(index, minlength=len(patterns))
    power = np.maximum(share, 0)
    chance = float(power @ near.mean(axis=1) / power.sum()) if power.any() else 0.0
    return PatternPower(patterns[order], shares[order], counts[order], rank[index], chance)


def _pre_activation(
    model: ReLUNetwork, data: GatedData | PackedData | ArrayLike, layer: int
) -> Float[Array, "example unit"]:
    check_relu(model)
    layer = check_integer(layer, "layer", minimum=1)
    if layer > model.depth:
        raise ValueError(f"layer is {layer}, but the network has {model.depth} hidden layer(s).")
    table = isinstance(data, GatedData | PackedData)
    x = model.ends(data)[0] if table else jnp.asarray(data)
    if x.ndim != 2:
        raise ValueError(f"data has shape {x.shape}; expected (examples, features).")
    return model.pre_activations(x)[layer - 1]
