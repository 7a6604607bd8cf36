"""Reduced dynamics with numbers to turn: starts, rates, gates, sizes of targets; one program.

Gates enter as arrays in the form of `reduce(like=)`, so that 0 and 1 are values like others.
"""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax import GatedData, InexactReductionError, Pathways, Reduction, reduce

MOST_UNKNOWNS = 60
# Beyond this a slider would stand still: stiff, or a value far off.
MAX_STEPS = 4000
# Sliders of one kind; more than these are one slider for all.
_MOST = 8
# What closed gates are called, beside the names of gates.
CLOSED = "closed gates"

Values = Mapping[str, Array | np.ndarray]


class Varied(eqx.Module):
    """A reduction whose starts, rates, gates and targets are multiplied by numbers.

    - `reduction`: in the form of `reduce(like=)`, of data with all gates that are turned open.
    - `data`: as they are; `b0`: (edge, mode) the start as it was given.
    - `classes`: edges that are turned together; `gates`: names that are turned, each its own or all
      by one number; `closed`: whether a number opens what is closed.
    - `frames`: per class of nodes (output, width, mode) what is multiplied by the modes' numbers;
      empty where outputs have no one frame.
    """

    reduction: Reduction
    data: GatedData
    b0: dict[str, Float[np.ndarray, " mode"]]
    frames: tuple[Array | None, ...]
    classes: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    gates: tuple[str, ...] = eqx.field(static=True)
    closed: bool = eqx.field(static=True)

    @property
    def apart(self) -> bool:
        """Whether each gate has its own number."""
        return len(self.gates) <= _MOST

    def neutral(self) -> dict[str, np.ndarray]:
        """The numbers that change nothing."""
        classes, modes = len(self.classes), self.reduction.modes
        gates = (len(self.gates) if self.apart else 1) if self.gates else 0
        values = {"amplitude": np.ones(classes), "rate": np.ones(classes), "gate": np.ones(gates)}
        if self.frames:
            values["strength"] = np.ones(modes if modes <= _MOST else 1)
        if self.closed:
            values[CLOSED] = np.zeros(1)
        return values

    def with_values(self, values: Values) -> Reduction:
        """The reduction at other gates and targets, under `jit`."""
        reduction = self.reduction
        if self.gates:
            gated = _with_gates(self.data, self.gates, values, self.apart)
            # Of traced gates: one block with every edge.
            stages = reduction.embed(0.0).prepare(gated).stages
            reduction = eqx.tree_at(lambda r: r.mode_data.stages, reduction, stages)
        if not self.frames:
            return reduction
        factor = jnp.asarray(values["strength"]) - 1.0
        outputs = list(reduction.mode_data.outputs)
        for k, (table, frame) in enumerate(zip(outputs, self.frames, strict=True)):
            if table is not None:
                assert frame is not None
                along = jnp.einsum("pnw,pwm->pnm", table.target, frame)
                more = jnp.einsum("pnm,pwm->pnw", along * factor, frame)
                outputs[k] = eqx.tree_at(lambda t: t.target, table, table.target + more)
        return eqx.tree_at(lambda r: r.mode_data.outputs, reduction, tuple(outputs))

    def start(self, values: Values) -> dict[str, Array]:
        """Strengths at the start, by edge."""
        pairs = zip(self.classes, values["amplitude"], strict=True)
        return {edge: factor * self.b0[edge] for names, factor in pairs for edge in names}

    def tau(self, values: Values) -> dict[str, Array]:
        """Time constants by edge."""
        pairs = zip(self.classes, values["rate"], strict=True)
        return {edge: 1.0 / rate for names, rate in pairs for edge in names}


@eqx.filter_jit
def solved(
    varied: Varied, values: Values, ts: Array | np.ndarray
) -> tuple[Float[Array, " time"], Pathways]:
    """Losses and pathways over time."""
    reduction, start, tau = varied.with_values(values), varied.start(values), varied.tau(values)
    run = reduction.solve(start, ts, tau=tau, max_steps=MAX_STEPS)
    return run.losses, run.pathways()


def varied(reduction: Reduction, b0: Mapping[str, np.ndarray]) -> Varied:
    """Find what of a reduction can be turned.

    Gates are those that the data name, if the frames hold at generic values of all of them; since
    what leaves the frames is a polynomial in the gates, they then hold at almost all values.

    Raises:
        ValueError: a reduction of another form, or with too many unknowns.
    """
    data, count = reduction.source, len(reduction.graph.edges) * reduction.modes
    if reduction.coupled or reduction.graph.tied or not isinstance(data, GatedData):
        raise ValueError(
            "explore draws diagonal reductions of GatedData, of graphs without tied or frozen "
            "edges; solve others for the values that you mean: reduction.solve(b0, ts)."
        )
    if count > MOST_UNKNOWNS:
        raise ValueError(
            f"the reduction has {len(reduction.graph.edges)} edges x {reduction.modes} modes = "
            f"{count} unknowns, and explore draws at most {MOST_UNKNOWNS}: make the task with "
            "fewer domains or modes, or solve the quotient, reduction.quotient(b0).solve(ts)."
        )
    data = data.compress()
    names = tuple(
        name
        for name, gate in {**data.node_gates, **data.edge_gates}.items()
        if np.any(np.asarray(gate))
    )
    classes = (tuple(edge.name for edge in reduction.graph.edges),)
    if not reduction.ties:
        found = reduction.quotient(dict(b0)).classes
        classes = found if len(found) <= _MOST else classes
    shut = any(np.any(np.asarray({**data.node_gates, **data.edge_gates}[n]) == 0) for n in names)
    for gates, closed in dict.fromkeys([(names, shut), (names, False), ((), False)]):
        rng = np.random.default_rng(0)
        at = {"gate": rng.uniform(0.3, 0.9, len(gates)), CLOSED: np.array([0.37])}
        at = at if closed else {"gate": at["gate"]}
        try:
            base = reduce(reduction.graph, _with_gates(data, gates, at, apart=True), like=reduction)
        except InexactReductionError:
            continue
        return Varied(base, data, dict(b0), _frames(base), classes, gates, closed)
    raise AssertionError("the reduction's own gates are not exact in its frames")


def _with_gates(data: GatedData, names: Sequence[str], values: Values, apart: bool) -> GatedData:
    """The data with gates multiplied, and closed ones at the number for these."""

    def changed(gates: Mapping[str, Array]) -> dict[str, Array]:
        new = dict(gates)
        for name in gates:
            if name in names:
                factor = values["gate"][names.index(name) if apart else 0]
                shut = values[CLOSED][0] if CLOSED in values else 0.0
                new[name] = jnp.where(gates[name] == 0, shut, gates[name] * factor)
        return new

    gates = changed(data.node_gates), changed(data.edge_gates)
    return eqx.tree_at(lambda d: (d.node_gates, d.edge_gates), data, gates)


def _frames(reduction: Reduction) -> tuple[Array | None, ...]:
    """Frames of the outputs by class of nodes, in the order of their tables; () if there are none.

    An output has one where the edges into it agree up to the signs of modes.
    """
    graph, every = reduction.graph, []
    for names, table in zip(graph.classes.values(), reduction.mode_data.outputs, strict=True):
        if table is None:
            every.append(None)
            continue
        stack = []
        for node in (name for name in names if name in graph.outputs):
            frame = np.zeros((graph.nodes[node], reduction.modes))
            for edge in graph.incoming[node]:
                u = np.asarray(reduction.frames[edge.name][0])
                new = ~frame.any(axis=0)
                frame[:, new] = u[:, new]
                overlap = np.abs(np.sum(frame * u, axis=0))[u.any(axis=0)]
                if np.any(np.abs(overlap - 1.0) > 1e-10):
                    return ()
            stack.append(frame)
        every.append(jnp.asarray(np.stack(stack)))
    return tuple(every)


def chosen_pathways(found: Pathways, classes: Sequence[Sequence[str]], most: int) -> np.ndarray:
    """Numbers of the pathways to draw: all if they can be told apart, else one of each kind.

    Pathways whose edges are of the same classes stay equal.
    """
    if len(found) * len(found.modes) <= most:
        return np.arange(len(found))
    label = {edge: k for k, names in enumerate(classes) for edge in names}
    kinds: dict[tuple[int, ...], int] = {}
    for k, path in enumerate(found.paths):
        kinds.setdefault(tuple(label[edge] for edge in path), k)
    return np.array(list(kinds.values())[: max(1, most // len(found.modes))])
