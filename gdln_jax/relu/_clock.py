"""How much time of gradient flow passes in a step of a training whose optimiser is not known.

Under gradient descent the weights move by the learning rate times the negative gradient. What they
moved between checkpoints, beside the gradients there, gives the rate, and says whether it was
gradient descent at all.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax import mse
from gdln_jax._checks import Result
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._history import History
from gdln_jax.relu._network import ReLUNetwork

# Largest drift of what gradient flow conserves. XoR with biases: gradient descent and momentum at
# rates up to a tenth of a step's limit 0.002, Adam 0.12.
_CONSERVED = 0.03
# Least cosine between what weights moved and the gradients. Where units slide along kinks, as on
# XoR, the gradient at a checkpoint has a part that averages out between steps: gradient descent has
# 0.75 to 0.8 there, 0.99 and more elsewhere.
_ALONG = 0.6
# The rate may differ by this share between the halves of what was learned.
_STEADY = 0.25


class Clock(Result, eqx.Module):
    """Flow time per step of a history; made by `fit_clock`.

    Attributes:
        rate: flow time (in units of tau) per step: the learning rate of gradient descent on the
            mean squared error, over 1 - momentum, times any factor of the loss that was used.
        cosine: between the changes of the weights and the gradients, over the whole history: 1
            for gradient flow, less for other optimisers, noise, another loss, or checkpoints that
            are far apart.
        halves: the rate of each half of the history, by what the weights moved.
        conserved: drift of what gradient flow conserves at each hidden unit, |w|^2 + b^2 - |a|^2,
            as a share of the units' squared weights at the end; 0 for gradient flow.
    """

    rate: float
    cosine: float
    halves: tuple[float, float]
    conserved: float

    @property
    def reason(self) -> str:
        """Why the rate is none of gradient descent; empty if it is one."""
        if not np.isfinite(self.rate) or self.rate <= 0:
            return "the weights did not move down the gradient of the squared error"
        if self.conserved > _CONSERVED:
            return (
                f"what gradient flow conserves drifted by {self.conserved:.1%}, more than "
                f"{_CONSERVED:.0%}: another optimiser than gradient descent (Adam, say), weight "
                "decay, or steps too large"
            )
        if self.cosine < _ALONG:
            return (
                "the weights moved along the gradients of the squared error with a cosine of "
                f"{self.cosine:.2f} only, below {_ALONG:g}: another optimiser, another loss, or "
                "checkpoints too far apart"
            )
        first, second = self.halves
        if abs(first - second) > _STEADY * max(first, second):
            return f"the learning rate changed on the way, from {first:.3g} to {second:.3g}"
        return ""

    def __repr__(self) -> str:
        verdict = self.reason or "gradient descent"
        return (
            f"Clock({self.rate:.4g} per step, cosine {self.cosine:.3f}, conserved to "
            f"{self.conserved:.1%}: {verdict})"
        )


def fit_clock(history: History, data: GatedData) -> Clock:
    """Fit the time of gradient flow that a step takes, from the weights alone.

    Between two checkpoints weights move by -rate times the steps times the mean of the gradients
    (trapezoidal rule). The rate is the fit of the gradients to the moves over all intervals and
    weights: it is the gradients that carry errors, of sampling them at the checkpoints only. Needs
    no loss curve, learning rate or optimiser; assumes the mean squared error (`mse`).

    Args:
        history: at least two checkpoints.
        data: what the network was trained on.

    Raises:
        ValueError: for one checkpoint, and data that do not fit.

    Cost of a gradient at each checkpoint.
    """
    if len(history) < 2:
        raise ValueError("there is one checkpoint; a rate needs at least two.")
    history.at(0).ends(data)
    steps = np.diff(history.steps)
    net, slope = history.at(0), _gradient(history.at(0), data)
    along, moved, pulled = (np.zeros(len(steps)) for _ in range(3))
    for i, count in enumerate(steps):
        after = history.at(i + 1)
        gradient = _gradient(after, data)
        push = -count * (slope + gradient) / 2
        change = _flat(after) - _flat(net)
        along[i], moved[i], pulled[i] = change @ push, change @ change, push @ push
        net, slope = after, gradient
    half = int(np.searchsorted(np.cumsum(moved), moved.sum() / 2)) + 1
    parts = [slice(None), slice(None, half), slice(half, None)]
    rates = [_share(moved[part].sum(), along[part].sum()) for part in parts]
    second = rates[2] if np.isfinite(rates[2]) else rates[1]
    return Clock(
        rates[0],
        _share(along.sum(), float(np.sqrt(moved.sum() * pulled.sum()))),
        (rates[1], second),
        _drift(history),
    )


@eqx.filter_jit
def _gradient(net: ReLUNetwork, data: GatedData) -> Float[Array, " parameter"]:
    return _flat(jax.grad(mse)(net, data))


def _flat(net: ReLUNetwork) -> Float[Array, " parameter"]:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(net)])


def _share(a: float, b: float) -> float:
    return float(a / b) if b > 0 else float("nan")


def _drift(history: History) -> float:
    """Drift of |w|^2 + b^2 - |a|^2 beside |w|^2 + b^2 + |a|^2, the largest over hidden layers."""
    shares = []
    net = history.network
    for layer in range(len(net.weights) - 1):
        into = jnp.sum(net.weights[layer] ** 2, axis=-1)
        if net.biases is not None:
            into = into + net.biases[layer] ** 2
        out = jnp.sum(net.weights[layer + 1] ** 2, axis=-2)
        kept = into - out
        moved = jnp.sum(jnp.abs(kept[-1] - kept[0]))
        shares.append(float(moved / jnp.sum(into[-1] + out[-1])))
    return max(shares)
