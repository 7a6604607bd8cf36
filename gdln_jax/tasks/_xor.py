"""XoR (N Fig. 3, A.1) and XoR with a linearly separating third feature (H Fig. 2, App. C)."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax._checks import check_choice, check_integer, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax.tasks._task import Meta, Task, parallel_graph

# The order of H Eq. 11; x1 XoR x2 with the target of H Eq. 12.
_CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
_TARGET = np.array([[-1.0], [1.0], [1.0], [-1.0]])

# H Fig. 2 and N Fig. 3 use 128 hidden units, however many pathways share them.
_UNITS = 128


def xor(*, gating: str = "example", width: int | None = None, at_ones: int = -1) -> Task:
    r"""Solve exclusive-or of two bits by four pathways that are on for one example each.

    Nodes `x` (2), `h1 .. h4`, `y` (1). Examples in the order (-1,-1), (1,-1), (-1,1), (1,1).

    Args:
        gating: `"example"`: pathway i is on for example i only (N Fig. 3b). `"none"`: the chain
            `x`, `h1`, `y` without gates, for ReLU networks (and for linear ones, which learn
            nothing: Sigma^yx = 0).
        width: units of each pathway; default 128 in all, N's number: 32 for each of four, 128
            without gates.
        at_ones: target at x = (1, 1). -1 is exclusive-or; 1 is what N A.1 prints, which is XNOR
            (E13). Losses and modes are the same for both.

    `meta`: `initial_loss` = 1/2 (the loss of zero weights), and with gates `s` = sqrt(2)/4 and
    `d` = 1/2, strength and variance of each pathway's only mode (N after Eq. 20), so that
    L = 1/2 - sqrt(2) a + a^2 (N Eq. 23) for equal amplitudes a. The four pathways start at one
    input node and have four different input directions: N Eq. 7-8 do not hold, the reduction
    does all the same (E4).

    Raises:
        ValueError: for another gating, a width below 1, or `at_ones` not 1 or -1.
    """
    if at_ones not in (-1, 1):
        raise ValueError(f"at_ones is {at_ones!r}; the target at (1, 1) is -1 (XoR) or 1 (XNOR).")
    gating = check_choice(gating, ("example", "none"), "gating")
    target = -at_ones * _TARGET
    meta: Meta = {"gating": gating, "initial_loss": 0.5}
    if gating == "example":
        meta |= {"s": math.sqrt(2) / 4, "d": 0.5}
    gates = np.eye(4) if gating == "example" else None
    return _parallel("xor", _CORNERS, target, gates, width, meta)


def margin_xor(delta: ArrayLike, *, gating: str = "linear", width: int | None = None) -> Task:
    r"""Solve XoR with a third input feature, +-Delta, that separates the classes (H Fig. 2).

    Nodes `x` (3), `h1 ..`, `y` (1): H Eq. 11-12, margin 2 Delta.

    Args:
        delta: Delta >= 0; 0 is XoR. May be traced, for `vmap` and `grad` over Delta.
        gating: `"linear"`: two pathways, one for the positive and one for the negative examples (H
            Fig. 2b). `"xor"`: four, one per example (H Fig. 2c). `"none"`: the ungated chain with
            the same inputs and targets, for ReLU networks.
        width: units of each pathway; default 128 in all, H's number: 64, 32 or 128. With equal
            totals the two gatings reach any loss at the same time exactly at Delta = sqrt(2/3).

    `meta`: `delta`, `initial_loss` = 1/2, `crossover` = sqrt(2/3), and with gates `s` and `d` of
    each pathway's mode that learns: linear s = Delta/2, d = Delta^2/2, so that
    L = 1/2 - Delta a + Delta^2 a^2/2 (H Eq. 22); XoR s = sqrt(2 + Delta^2)/4 and
    d = (2 + Delta^2)/4, L = 1/2 - 4 s a + 2 d a^2 (H Eq. 23). H prints d = 1/8 + Delta^2/16
    there, which is s^2: with it the loss does not reach 0 (E15).

    Raises:
        ValueError: for a negative or infinite Delta, another gating, a width below 1.
    """
    gating = check_choice(gating, ("linear", "xor", "none"), "gating")
    if is_concrete(delta):
        value = np.asarray(delta)
        if value.shape != () or not np.isfinite(value) or value < 0:
            raise ValueError(f"delta is {delta!r}; it must be one finite number of at least 0.")
    delta = jnp.asarray(delta, dtype=float)
    x = jnp.concatenate([jnp.asarray(_CORNERS), delta * jnp.asarray(_TARGET)], axis=1)
    meta: Meta = {
        "gating": gating,
        "delta": delta,
        "initial_loss": 0.5,
        "crossover": math.sqrt(2 / 3),
    }
    gates = None
    if gating == "linear":
        gates = np.concatenate([_TARGET > 0, _TARGET < 0], axis=1).astype(float)
        meta |= {"s": delta / 2, "d": delta**2 / 2}
    elif gating == "xor":
        gates = np.eye(4)
        meta |= {"s": jnp.sqrt(2 + delta**2) / 4, "d": (2 + delta**2) / 4}
    return _parallel("margin_xor", x, _TARGET, gates, width, meta)


def _parallel(
    name: str,
    x: np.ndarray | Float[Array, "n _"],
    y: np.ndarray,
    gates: np.ndarray | None,
    width: int | None,
    meta: Meta,
) -> Task:
    """One input, one output, a hidden node for each column of `gates` (n, pathway)."""
    count = 1 if gates is None else gates.shape[1]
    width = check_integer(_UNITS // count if width is None else width, "width", minimum=1)
    hidden = [f"h{i + 1}" for i in range(count)]
    graph = parallel_graph(x.shape[1], hidden, width, y.shape[1])
    node_gates = {} if gates is None else {h: gates[:, i] for i, h in enumerate(hidden)}
    return Task(graph, GatedData({"x": x}, {"y": y}, node_gates), name, meta)
