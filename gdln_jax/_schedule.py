"""Data that change at given times: gates that open or close, tasks that take turns.

H's two-layer networks switch pathways on after a plateau; tasks in blocks switch their targets.
`gradient_flow` and `train` take a `Schedule` wherever they take `GatedData`. Floor 1: may import
floor 0 and `_data`.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from gdln_jax._data import GatedData, is_concrete
from gdln_jax._graph import Graph


class Schedule(eqx.Module):
    """Gated data that are piecewise constant in time.

    **Arguments:**

    - `datas`: the data sets, with the same nodes, numbers of examples and widths; their gates,
      targets, inputs and weights may differ. A gate that only some of them have is 1 in the others.
    - `times`: (switch,) increasing times at which the next phase begins: units of time in
      `gradient_flow`, numbers of steps in `train`. At a switching time itself the new data hold.
      Arrays: other times need no new program, and `gradient_flow` is differentiable in them. The
      derivative at a time that is also saved is that from the left.
    - `order`: (switch + 1,) which of `datas` each phase has; by default one after the other.
      `np.arange(blocks) % 2` makes two tasks take turns.

    A pytree, all phases with one structure, so that a step costs as much as all edges on all
    examples (packed data skip closed edges, a schedule does not).

    **Raises:** `ValueError` for data sets that do not fit each other, times that do not increase,
    or a number of phases that does not fit the number of switches.
    """

    data: GatedData
    times: Float[Array, " switch"]
    order: Int[Array, " phase"]

    def __init__(
        self,
        datas: Sequence[GatedData],
        times: ArrayLike | Sequence[Any],
        order: ArrayLike | Sequence[int] | None = None,
    ):
        datas = list(datas)
        if not datas or not all(isinstance(data, GatedData) for data in datas):
            kinds = sorted({type(data).__name__ for data in datas}) or ["nothing"]
            raise ValueError(f"datas needs one or more GatedData, got {', '.join(kinds)}.")
        self.data = _stacked(datas)
        self.times = jnp.asarray(times, jnp.result_type(float))
        self.order = jnp.arange(len(datas)) if order is None else jnp.asarray(order)
        if self.times.ndim != 1 or self.order.shape != (self.times.shape[0] + 1,):
            raise ValueError(
                f"times has shape {self.times.shape} and there are phases for shape "
                f"{self.order.shape}; n phases need n - 1 switching times."
            )
        if is_concrete(self.times):
            values = np.asarray(self.times)
            if not np.all(np.isfinite(values)) or not np.all(np.diff(values) > 0):
                raise ValueError(f"times must be finite and strictly increasing, got {values}.")
        if is_concrete(self.order):
            numbers = np.asarray(self.order)
            inside = (numbers >= 0) & (numbers < len(datas))
            if numbers.dtype.kind not in "iu" or not np.all(inside):
                raise ValueError(
                    f"order must number the {len(datas)} data sets from 0, got {numbers}."
                )

    @property
    def num_examples(self) -> int:
        """Number of examples of every phase."""
        return self.data.num_examples

    def phase(self, number: int | Int[Array, ""]) -> GatedData:
        """Return the data of one phase, counted from 0; works on traced numbers."""
        return jax.tree.map(lambda leaf: leaf[self.order[number]], self.data)

    def at(self, t: ArrayLike) -> GatedData:
        """Return the data that hold at time (or step) `t`."""
        return self.phase(jnp.searchsorted(self.times, jnp.asarray(t), side="right"))

    def with_times(self, times: ArrayLike | Sequence[Any]) -> "Schedule":
        """Return the same phases with other switching times, say `times / learning_rate`."""
        times = jnp.asarray(times, self.times.dtype)
        if times.shape != self.times.shape:
            raise ValueError(f"times has shape {times.shape}; expected {self.times.shape}.")
        return eqx.tree_at(lambda s: s.times, self, times)

    def validate(self, graph: Graph) -> None:
        """Check every data set against an architecture (see `GatedData.validate`)."""
        jax.tree.map(lambda leaf: leaf[0], self.data).validate(graph)

    def __repr__(self) -> str:
        shown = f"{self.times.shape[-1]} switches"
        if is_concrete(self.times) and self.times.ndim == 1 and len(self.times) <= 6:
            shown = "switches at " + ", ".join(f"{t:g}" for t in self.times.tolist())
        return f"Schedule({self.order.shape[-1]} phases, {shown}, {self.num_examples} examples)"


def at_time(data: Any, t: ArrayLike) -> Any:
    """`data`, or what holds at `t` if they are a schedule."""
    return data.at(t) if isinstance(data, Schedule) else data


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

    every = [completed(data) for data in datas]
    shapes = [[leaf.shape for leaf in jax.tree.leaves(data)] for data in every]
    for number, data in enumerate(every):
        if (jax.tree.structure(data), shapes[number]) != (jax.tree.structure(every[0]), shapes[0]):
            raise ValueError(
                f"datas[{number}] does not fit datas[0]: all need the same nodes and shapes, got "
                f"{data!r} beside {every[0]!r}."
            )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *every)
