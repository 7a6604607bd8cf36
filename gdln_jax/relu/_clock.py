"""How much time of gradient flow passes in a step of a training whose optimiser is not known.

Under gradient descent the weights move by the learning rate times the negative gradient. Descent is
repeated from one checkpoint to the next: the rate at which it makes the moves that were made is the
clock, and what it does not reproduce says that it was no gradient descent.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from gdln_jax import mse
from gdln_jax._checks import Result
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._history import History
from gdln_jax.relu._network import ReLUNetwork

# Largest drift of what gradient flow conserves. XoR with biases: gradient descent and momentum at
# rates up to a tenth of a step's limit 0.002, Adam 0.12.
_CONSERVED = 0.03
# Least cosine between the moves that were made and those of gradient descent. Descent has 1.000,
# with momentum 0.96 to 1.00, with batches of a fifth 0.95; Adam 0.5 to 0.85, weight decay 0.84.
_ALONG = 0.9
# Steps that are repeated, of the intervals in which weights moved most.
_MOST_STEPS = 5000
_ROUNDS = 8
# The rate may differ by this share between the halves of what was learned. Momentum 0.9 takes a
# while to come up to it: 0.08 and 0.10 on digits.
_STEADY = 0.25


class Clock(Result, eqx.Module):
    """Flow time per step of a history; made by `fit_clock`.

    Attributes:
        rate: flow time (in units of tau) per step: the learning rate of gradient descent on the
            mean squared error, over 1 - momentum, times any factor of the loss that was used.
        cosine: between the moves of the weights and those of gradient descent at this rate: 1 for
            gradient descent, less for other optimisers, batches, or another loss.
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
        first, second = self.halves
        if abs(first - second) > _STEADY * max(first, second):
            return f"the learning rate changed on the way, from {first:.3g} to {second:.3g}"
        if self.cosine < _ALONG:
            return (
                "the weights moved as gradient descent on the squared error does with a cosine of "
                f"{self.cosine:.2f} only, below {_ALONG:g}: another optimiser, another loss, or "
                f"checkpoints more than {_MOST_STEPS} steps apart"
            )
        return ""

    def __repr__(self) -> str:
        verdict = self.reason or "gradient descent"
        return (
            f"Clock({self.rate:.4g} per step, cosine {self.cosine:.3f}, conserved to "
            f"{self.conserved:.1%}: {verdict})"
        )


def fit_clock(history: History, data: GatedData) -> Clock:
    """Fit the time of gradient flow that a step takes, from the weights alone.

    Gradient descent is repeated from each checkpoint to the next, and the rate fitted to the moves
    of all weights (least squares, Gauss and Newton, from the gradients at the checkpoints). Needs
    no loss curve, learning rate or optimiser; assumes the mean squared error (`mse`) of all
    examples at each step.

    Args:
        history: at least two checkpoints.
        data: what the network was trained on.

    Raises:
        ValueError: for one checkpoint, and data that do not fit.

    Cost of a gradient at each checkpoint and of some ten times 5,000 steps at most: the intervals
    in which the weights moved most are repeated.
    """
    if len(history) < 2:
        raise ValueError("there is one checkpoint; a rate needs at least two.")
    history.at(0).ends(data)
    moves = _Moves.of(history, data)
    kept, rate = moves.chosen(), moves.start
    if not kept or not np.isfinite(rate) or rate <= 0:
        return Clock(rate, moves.cosine, (rate, rate), _drift(history))
    made = _Made.at(rate, history, data, moves, kept)
    for _ in range(_ROUNDS):
        better = float(np.clip(rate + made.step(slice(None)), rate / 2, 2 * rate))
        if abs(better - rate) < 1e-4 * rate:
            break
        rate = better
        made = _Made.at(rate, history, data, moves, kept)
    half = int(np.searchsorted(np.cumsum(made.moved), made.moved.sum() / 2)) + 1
    halves = (rate + made.step(slice(None, half)), rate + made.step(slice(half, None)))
    return Clock(rate, made.cosine, halves, _drift(history))


class _Made(NamedTuple):
    """Moves of gradient descent at some rate beside those that were made, for each interval.

    Inner products: `pull` of what is missed with the derivative by the rate, `curve` of that
    with itself, `along` of both moves, `moved` and `size` of each with itself.
    """

    pull: Float[np.ndarray, " interval"]
    curve: Float[np.ndarray, " interval"]
    along: Float[np.ndarray, " interval"]
    moved: Float[np.ndarray, " interval"]
    size: Float[np.ndarray, " interval"]

    @classmethod
    def at(
        cls, rate: float, history: History, data: GatedData, moves: "_Moves", kept: list[int]
    ) -> "_Made":
        """Repeat descent at `rate` over the intervals `kept`."""
        rows = []
        for i in kept:
            move, slope = _descended(history.at(i), data, rate, int(moves.counts[i]))
            change = moves.changes[i]
            pairs = (
                (change - move, slope),
                (slope, slope),
                (change, move),
                (change, change),
                (move, move),
            )
            rows.append([float(a @ b) for a, b in pairs])
        return cls(*np.array(rows).T)

    def step(self, part: slice) -> float:
        """Change of the rate that makes up for what is missed in some intervals (Gauss, Newton)."""
        curve = float(self.curve[part].sum())
        return float(self.pull[part].sum()) / curve if curve > 0 else 0.0

    @property
    def cosine(self) -> float:
        """Between the moves of all intervals."""
        return _share(float(self.along.sum()), float(np.sqrt(self.moved.sum() * self.size.sum())))


class _Moves(NamedTuple):
    """Moves of all weights between checkpoints, and a first guess of the rate from gradients."""

    counts: Int[np.ndarray, " interval"]
    changes: list[Float[Array, " parameter"]]
    start: float
    cosine: float

    @classmethod
    def of(cls, history: History, data: GatedData) -> "_Moves":
        """Read them off; the mean gradient between two checkpoints is that of both."""
        counts, changes = np.diff(history.steps), []
        along = moved = pulled = 0.0
        net = history.at(0)
        slope = _gradient(net, data)
        for i, count in enumerate(counts):
            after = history.at(i + 1)
            gradient = _gradient(after, data)
            push, change = -count * (slope + gradient) / 2, _flat(after) - _flat(net)
            along, moved, pulled = (
                total + float(a @ b)
                for total, a, b in (
                    (along, change, push),
                    (moved, change, change),
                    (pulled, push, push),
                )
            )
            changes.append(change)
            net, slope = after, gradient
        cosine = _share(along, float(np.sqrt(moved * pulled)))
        return cls(counts, changes, _share(moved, along), cosine)

    def chosen(self) -> list[int]:
        """Intervals to repeat, in order: those of the largest moves, as many as fit."""
        size = np.array([float(change @ change) for change in self.changes])
        order = np.argsort(-size, kind="stable")
        fits = np.cumsum(self.counts[order]) <= _MOST_STEPS
        return sorted(int(i) for i in order[fits])


@eqx.filter_jit
def _descended(
    net: ReLUNetwork, data: GatedData, rate: ArrayLike, count: ArrayLike
) -> tuple[Float[Array, " parameter"], Float[Array, " parameter"]]:
    """Move of all weights in `count` steps of gradient descent, and its derivative by the rate."""

    def moved(rate: Array) -> Array:
        def step(_: Array, net: ReLUNetwork) -> ReLUNetwork:
            gradient = jax.grad(mse)(net, data)
            return jax.tree.map(lambda w, g: w - rate.astype(w.dtype) * g, net, gradient)

        return _flat(jax.lax.fori_loop(0, jnp.asarray(count), step, net)) - _flat(net)

    rate = jnp.asarray(rate, float)
    return jax.jvp(moved, (rate,), (jnp.ones_like(rate),))


@eqx.filter_jit
def _gradient(net: ReLUNetwork, data: GatedData) -> Float[Array, " parameter"]:
    return _flat(jax.grad(mse)(net, data))


def _flat(net: ReLUNetwork) -> Float[Array, " parameter"]:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(net)])


def _share(a: float, b: float) -> float:
    return a / b if b > 0 else float("nan")


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
