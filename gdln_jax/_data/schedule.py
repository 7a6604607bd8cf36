"""Data that change at given times: gates that open or close, tasks that take turns.

H's two-layer networks switch pathways on after a plateau; tasks in blocks switch their targets.
`gradient_flow` and `train` take a `Schedule` wherever they take `GatedData`.
"""

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from gdln_jax._checks import MAKE_A_MODEL, Instead, is_concrete
from gdln_jax._checks.html import panel, table
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.gated import GatedData
from gdln_jax._data.names import in_common
from gdln_jax._graph import Graph


class Schedule(SeveralArrays, eqx.Module):
    """Gated data that are piecewise constant in time.

    Args:
        datas: the data sets, with the same nodes and widths; their gates, targets, inputs, weights
            and numbers of examples may differ. A gate that only some of them have is 1 in the
            others; one with fewer examples is padded with copies of weight 0, which count nowhere.
        times: (switch,) increasing times at which the next phase begins, in units of time for
            `gradient_flow`. At a switch itself the new data hold. Arrays: other values need no new
            program, and `gradient_flow` is differentiable in the times. The derivative at a time
            that is also saved is that from the left.
        steps: the same for `train`, in numbers of steps (whole, from 0). Give one of both. Each
            function refuses the other unit: one step of descent with learning rate eta lasts tau
            eta, so `schedule.with_times(tau * eta * schedule.steps)` and
            `schedule.with_steps(np.rint(schedule.times / (tau * eta)))` convert.
        order: (switch + 1,) which of `datas` each phase has; by default one after the other.
            `np.arange(blocks) % 2` makes two tasks take turns.

    A pytree, all phases with one structure, so that a step costs as much as all edges on all
    examples (packed data skip closed edges, a schedule does not).

    Raises:
        ValueError: data sets that do not fit each other or name features in another order, not
            exactly one of `times` and `steps`, switches that do not increase, steps that are
            negative or fractions, or a number of phases that does not fit the number of switches.
    """

    _instead = Instead(
        model=MAKE_A_MODEL,
        data="a Schedule changes with time, so only gradient_flow and train take it; pass one "
        "phase, schedule.phase(0)",
    )

    data: GatedData
    times: Float[Array, " switch"] | None
    steps: Int[Array, " switch"] | None
    order: Int[Array, " phase"]
    counts: Int[Array, " data"]
    """Examples of each data set, without padding."""

    def __init__(
        self,
        datas: Sequence[GatedData],
        times: ArrayLike | Sequence[ArrayLike] | None = None,
        order: ArrayLike | Sequence[int] | None = None,
        *,
        steps: ArrayLike | Sequence[ArrayLike] | None = None,
    ):
        if isinstance(datas, GatedData):
            raise ValueError("datas is one GatedData; pass a list of them, [data, other].")
        datas = list(datas)
        if not datas or not all(isinstance(data, GatedData) for data in datas):
            kinds = sorted({type(data).__name__ for data in datas}) or ["nothing"]
            raise ValueError(f"datas needs one or more GatedData, got {', '.join(kinds)}.")
        self.counts = jnp.array([data.num_examples for data in datas])
        self.data = _stacked(datas)._with(in_common([data._labels for data in datas]))
        self.order = jnp.arange(len(datas)) if order is None else jnp.array(order)
        if (times is None) == (steps is None):
            raise ValueError(
                "give the switches as exactly one of times (for gradient_flow) and steps (for "
                "train)."
            )
        self.times = None if times is None else checked_switches(times, "times")
        self.steps = None if steps is None else checked_switches(steps, "steps")
        if self.order.shape != (self.switches.shape[0] + 1,):
            raise ValueError(
                f"there are {self.switches.shape[0]} switches and phases for shape "
                f"{self.order.shape}; n phases need n - 1 switches."
            )
        if is_concrete(self.order):
            numbers = np.asarray(self.order)
            inside = (numbers >= 0) & (numbers < len(datas))
            if numbers.dtype.kind not in "iu" or not np.all(inside):
                raise ValueError(
                    f"order must number the {len(datas)} data sets from 0, got {numbers}."
                )

    @property
    def num_examples(self) -> int:
        """Number of examples of every phase, with padding."""
        return self.data.num_examples

    def phase(self, number: int | Int[Array, ""]) -> GatedData:
        """Return the data of one phase, counted from 0, padded; works on traced numbers."""
        chosen = jax.tree.map(lambda leaf: leaf[self.order[number]], self.data)
        return chosen._with(self.data._labels)

    @property
    def switches(self) -> Array:
        """`times` or `steps`, whichever the schedule has."""
        switches = self.steps if self.times is None else self.times
        assert switches is not None
        return switches

    def at(self, t: ArrayLike) -> GatedData:
        """Return the data that hold at `t`, in the unit of the schedule."""
        return self.phase(self.phase_at(t))

    def phase_at(self, t: ArrayLike) -> Int[Array, "..."]:
        """Return the number of the phase at `t`; at a switch itself it is the new one."""
        return jnp.searchsorted(self.switches, jnp.asarray(t), side="right")

    def with_times(self, times: ArrayLike | Sequence[ArrayLike]) -> "Schedule":
        """Return the same phases with other switches, in units of time."""
        return self._with(checked_switches(times, "times"), None)

    def with_steps(self, steps: ArrayLike | Sequence[ArrayLike]) -> "Schedule":
        """Return the same phases with other switches, in numbers of steps."""
        return self._with(None, checked_switches(steps, "steps"))

    def _with(self, times: Array | None, steps: Array | None) -> "Schedule":
        new = eqx.tree_at(
            lambda s: (s.times, s.steps), self, (times, steps), is_leaf=lambda x: x is None
        )
        if new.switches.shape != self.switches.shape:
            raise ValueError(
                f"{'steps' if times is None else 'times'} has shape {new.switches.shape}; expected "
                f"{self.switches.shape}."
            )
        return new

    def check_unit(self, unit: str, function: str) -> None:
        """Raise `ValueError`, with the conversion, unless the switches are in `unit`."""
        if getattr(self, unit) is None:
            other, formula = {
                "steps": ("times", "with_steps(np.rint(schedule.times / (tau * learning_rate)))"),
                "times": ("steps", "with_times(tau * learning_rate * schedule.steps)"),
            }[unit]
            raise ValueError(
                f"this Schedule switches at {other}, but {function} counts {unit}: pass "
                f"Schedule(datas, {unit}=...), or convert it, schedule.{formula}. One step of "
                "plain descent lasts tau * learning_rate."
            )

    def validate(self, graph: Graph) -> None:
        """Check every data set against an architecture (see `GatedData.validate`)."""
        self.phase(0).validate(graph)

    def _repr_html_(self) -> str:
        if not is_concrete(self) or self.order.ndim != 1:
            return panel(repr(self))
        unit = "step" if self.times is None else "time"
        begins = ["start", *(f"{t:g}" for t in self.switches.tolist())]
        rows = zip(range(len(begins)), begins, self.order.tolist(), strict=True)
        phases = table(("phase", f"from {unit}", "data set"), rows)
        return panel(repr(self), phases, self.phase(0)._repr_html_())

    def __repr__(self) -> str:
        shown = f"{self.switches.shape[-1]} switches"
        if is_concrete(self.switches) and self.switches.ndim == 1 and len(self.switches) <= 6:
            shown = "switches at " + ("steps " if self.times is None else "")
            shown += ", ".join(f"{t:g}" for t in self.switches.tolist())
        return f"Schedule({self.order.shape[-1]} phases, {shown}, {self.num_examples} examples)"


def checked_switches(values: Any, name: str) -> Array:
    """An array of times, in the default float, or of whole numbers of steps."""
    array = jnp.array(values) if np.size(values) else jnp.zeros(np.shape(values), int)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; give the switches along one axis.")
    if is_concrete(array):
        known = np.asarray(array)
        if not np.all(np.isfinite(known)) or not np.all(np.diff(known) > 0):
            raise ValueError(f"{name} must be finite and strictly increasing, got {known}.")
        if name == "steps" and not (np.all(known >= 0) and np.all(known == np.rint(known))):
            raise ValueError(
                f"steps must be whole numbers from 0, got {known}; for times pass times=."
            )
    elif name == "steps" and not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"steps has dtype {array.dtype}; traced steps must be integers.")
    return array.astype(int if name == "steps" else float)


def at_time(data: PyTree, t: ArrayLike, key: Array | None = None) -> PyTree:
    """`data`, or what of a schedule holds at `t`, or what a function of step and key makes.

    The function is given a key of its own for every step.
    """
    if isinstance(data, Schedule):
        return data.at(t)
    if is_function(data):
        assert key is not None
        return data(t, jax.random.fold_in(key, t))
    return data


def is_function(data: object) -> bool:
    """Whether data are a function of step and key: one of two arguments, also partial or compiled.

    Other objects that can be called, such as a network, are data.
    """
    kinds = functools.partial | jax.stages.Wrapped
    if not callable(data) or not (inspect.isroutine(data) or isinstance(data, kinds)):
        return False
    try:
        inspect.signature(data).bind(0, None)
    except (TypeError, ValueError):  # of built-in functions some have no signature
        return False
    return True


def _stacked(datas: list[GatedData]) -> GatedData:
    """One `GatedData` whose leaves have a leading axis of data sets."""
    nodes, edges = (
        list(dict.fromkeys(name for data in datas for name in getattr(data, field)))
        for field in ("node_gates", "edge_gates")
    )

    def completed(data: GatedData) -> GatedData:
        one = jnp.ones_like(data.weights)
        return eqx.tree_at(
            lambda d: (d.node_gates, d.edge_gates),
            data,
            (
                {name: data.node_gates.get(name, one) for name in nodes},
                {name: data.edge_gates.get(name, one) for name in edges},
            ),
        )

    most = max(data.num_examples for data in datas)

    def padded(data: GatedData) -> GatedData:
        more = most - data.num_examples
        long = jax.tree.map(lambda leaf: jnp.concatenate([leaf, *[leaf[-1:]] * more]), data)
        return eqx.tree_at(lambda d: d.weights, long, jnp.pad(data.weights, (0, more)))

    every = [padded(completed(data)) for data in datas]
    shapes = [[leaf.shape for leaf in jax.tree.leaves(data)] for data in every]
    for number, data in enumerate(every):
        if (jax.tree.structure(data), shapes[number]) != (jax.tree.structure(every[0]), shapes[0]):
            raise ValueError(
                f"datas[{number}] does not fit datas[0]: all need the same nodes and shapes, got "
                f"{data!r} beside {every[0]!r}."
            )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
